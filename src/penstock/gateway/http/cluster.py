"""The cluster: its brokers, and which of them lead what is decided."""

from typing import Any

import msgspec

from penstock.gateway.http.protocol.messages import Request, Response, Route, json
from penstock.gateway.shared.controller_call import allow
from penstock.handlers.support.context import AclResourceType, Context, Operation


class ListenerEndpoint(msgspec.Struct):
    listener: str
    host: str
    port: int


class BrokerDescription(msgspec.Struct):
    id: int
    rack: str | None
    fenced: bool
    """It leads nothing, and clients are not sent to it: it stopped, or has not said for too long that it lives."""
    endpoints: list[ListenerEndpoint]
    """Where Kafka clients reach it."""


class ClusterDescription(msgspec.Struct):
    cluster_id: str
    node_id: int
    """Of the broker that answers."""
    controller: int | None
    """The node that leads the quorum; null while there is none."""
    brokers: list[BrokerDescription]
    topics: int
    partitions: int
    """Led by the broker that answers."""


def _describe(gateway: Any, request: Request) -> Response:
    context: Context = gateway.context
    allow(context, request.session, Operation.DESCRIBE, AclResourceType.CLUSTER)
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


ROUTES = (
    Route(
        "GET",
        "/cluster",
        _describe,
        "cluster",
        "The cluster's id, its brokers and its controller.",
        answer=ClusterDescription,
    ),
)
