"""The handlers of all APIs, at brokers' and at controllers' listeners.

The versions are those of Kafka 4.3. `dispatch` handles Produce, Fetch and ApiVersions, which are not in these tables.

A controller serves requests between replicas of the metadata log, of brokers to their controller, and administration.
`AT_CONTROLLERS` has the handlers that differ from a broker's: a broker may forward a request to the active controller,
a controller does not.
"""

from typing import TypeAlias

from penstock.handlers import (
    acls,
    brokers,
    client_quotas,
    cluster,
    config_changes,
    configs,
    consumer_groups,
    delegation_tokens,
    envelope,
    features,
    forwarded,
    group_admin,
    log_admin,
    metadata,
    offset_commits,
    producer_ids,
    raft,
    reassignments,
    sasl,
    scram_users,
    topics,
    transaction_admin,
    transactions,
)
from penstock.handlers import classic_groups as groups
from penstock.handlers import describe_topic_partitions as topic_partitions
from penstock.handlers import find_coordinator as coordinators
from penstock.handlers import list_offsets as offsets
from penstock.handlers import raft_voters as voters
from penstock.wire import CONTROLLER_APIS, KAFKA_RANGES, Api, VersionRange

from .context import Handler

_MODULES = (
    metadata,
    topic_partitions,
    topics,
    configs,
    config_changes,
    cluster,
    voters,
    reassignments,
    features,
    acls,
    client_quotas,
    producer_ids,
    sasl,
    scram_users,
    delegation_tokens,
    offsets,
    log_admin,
    coordinators,
    groups,
    consumer_groups,
    offset_commits,
    group_admin,
    transactions,
    transaction_admin,
    envelope,
)

_CONTROLLER_MODULES = (raft, brokers, forwarded)
"""Served by controllers only."""

Table: TypeAlias = dict[Api, tuple[VersionRange, Handler]]

SERVED: Table = {
    api: (KAFKA_RANGES[api], handler) for module in _MODULES for api, handler in module.HANDLERS.items()
}
"""Served at brokers' listeners."""

SERVED_BY_CONTROLLERS: Table = {
    **{api: served for api, served in SERVED.items() if api in CONTROLLER_APIS},
    **{
        api: (KAFKA_RANGES[api], handler)
        for handlers in (
            *(module.HANDLERS for module in _CONTROLLER_MODULES),
            cluster.AT_CONTROLLERS,
            config_changes.AT_CONTROLLERS,
            voters.AT_CONTROLLERS,
        )
        for api, handler in handlers.items()
    },
}
