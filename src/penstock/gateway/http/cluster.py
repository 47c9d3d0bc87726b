"""GET /cluster: the brokers and the active controller."""

from typing import Any

import msgspec

from penstock.gateway.http.protocol.messages import Request, Response, Routes, json
from penstock.gateway.shared.access import DESCRIBE_CLUSTER, Rule
from penstock.handlers.support.context import Context

ROUTES = Routes("cluster")


class ListenerEndpoint(msgspec.Struct):
    listener: str
    host: str
    port: int


class BrokerDescription(msgspec.Struct):
    id: int
    rack: str | None
    fenced: bool
    """The broker is stopped, unreachable or starting: it leads no partition, and clients do not see it."""
    endpoints: list[ListenerEndpoint]
    """Addresses for Kafka clients."""


class ClusterDescription(msgspec.Struct):
    cluster_id: str
    node_id: int
    """The broker that answers."""
    controller: int | None
    """The active controller; null while there is none."""
    brokers: list[BrokerDescription]
    topics: int
    partitions: int
    """Number of partitions that the answering broker leads."""


@ROUTES.add(
    "GET",
    "/cluster",
    "The cluster id, the brokers and the active controller.",
    answer=ClusterDescription,
    rule=Rule((DESCRIBE_CLUSTER,)),
)
def _describe(gateway: Any, _: Request) -> Response:
    context: Context = gateway.context
    leader = context.quorum.leader_id
    brokers = []
    for broker_id, broker in sorted(context.image.brokers.items()):
        endpoints = [ListenerEndpoint(each.name, each.host, each.port) for each in broker.endpoints]
        brokers.append(BrokerDescription(broker_id, broker.rack, broker.fenced, endpoints))
    return json(
        ClusterDescription(
            context.cluster_id,
            context.node_id,
            leader if leader >= 0 else None,
            brokers,
            len(context.image.topics),
            len(context.replicas.by_key) // 2,  # by name and by id
        )
    )
