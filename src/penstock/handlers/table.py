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
    features,
    log_admin,
    metadata,
    offsets,
    producer_ids,
    topic_partitions,
    topics,
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
)

SERVED: dict[Api, tuple[VersionRange, Handler]] = {
    api: (KAFKA_RANGES[api], handler) for module in _MODULES for api, handler in module.HANDLERS.items()
}
