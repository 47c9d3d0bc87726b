"""Which function answers which API, in which versions.

The versions are Kafka 4.3's. Produce, Fetch and ApiVersions are not here: they are answered by hand, see `dispatch`.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from penstock.wire import KAFKA_RANGES, Api, VersionRange

from . import (
    cluster,
    config_changes,
    configs,
    consumer_groups,
    coordinators,
    features,
    group_admin,
    groups,
    log_admin,
    metadata,
    offset_commits,
    offsets,
    producer_ids,
    topic_partitions,
    topics,
    transaction_admin,
    transactions,
)
from .context import Call, Context

Handler: TypeAlias = Callable[[Context, Call], Any]
"""Answers with the response, or with a `Later` of it."""

_MODULES = (
    metadata,
    topic_partitions,
    topics,
    configs,
    config_changes,
    cluster,
    features,
    producer_ids,
    offsets,
    log_admin,
    coordinators,
    groups,
    consumer_groups,
    offset_commits,
    group_admin,
    transactions,
    transaction_admin,
)

SERVED: dict[Api, tuple[VersionRange, Handler]] = {
    api: (KAFKA_RANGES[api], handler) for module in _MODULES for api, handler in module.HANDLERS.items()
}
