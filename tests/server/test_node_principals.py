"""What nodes do with each other is refused to everyone else, at brokers and at controllers, and after a log-in too."""

from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, get_origin, get_type_hints
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from tests.nodes import StillClient, StillNode

from penstock.wire import Api, request_module
from penstock.wire.catalogue import BROKER_APIS, CONTROLLER_APIS, KAFKA_RANGES

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = f'{MODULE} username="node" password="n" user_node="n" user_alice="a";'
SETTINGS = {
    "node.id": "1",
    "listeners": "BROKERS://127.0.0.1:9091,CONTROLLER://127.0.0.1:9093",
    "listener.security.protocol.map": "BROKERS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
    "controller.listener.names": "CONTROLLER",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.brokers.plain.sasl.jaas.config": USERS,
    "listener.name.controller.plain.sasl.jaas.config": USERS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:node",
}

OF_NODES = (
    Api.VOTE,
    Api.BEGIN_QUORUM_EPOCH,
    Api.END_QUORUM_EPOCH,
    Api.FETCH_SNAPSHOT,
    Api.UPDATE_RAFT_VOTER,
    Api.BROKER_REGISTRATION,
    Api.BROKER_HEARTBEAT,
    Api.CONTROLLER_REGISTRATION,
    Api.ALTER_PARTITION,
    Api.ALLOCATE_PRODUCER_IDS,
    Api.ENVELOPE,
)


def smallest(entity: type[Any]) -> Any:
    """An entity of kio's whose fields are zero or empty."""
    hints = get_type_hints(entity)
    return entity(
        **{
            each.name: _zero(hints[each.name])
            for each in fields(entity)
            if each.init and each.default is MISSING and each.default_factory is MISSING
        }
    )


ZEROS: dict[type[Any], Any] = {
    UUID: UUID(int=0),
    timedelta: timedelta(0),
    datetime: datetime.fromtimestamp(0, UTC),
    bool: False,
    int: 0,
    float: 0.0,
    str: "",
    bytes: b"",
}


def _zero(kind: Any) -> Any:
    if get_origin(kind) is tuple:
        return ()
    if not isinstance(kind, type):  # a type that None is of too
        return None
    if is_dataclass(kind):
        return smallest(kind)
    return next((zero for each, zero in ZEROS.items() if issubclass(kind, each)), None)


@pytest.fixture(scope="module")
def node() -> StillNode:
    return StillNode(settings=SETTINGS)


def logged_in(node: StillNode, listener: str, user: str, password: str) -> StillClient:
    client = node.client(listener)
    assert client.call(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code is ErrorCode.none
    token = f"\0{user}\0{password}".encode()
    assert client.call(Api.SASL_AUTHENTICATE, 2, auth_bytes=token).error_code is ErrorCode.none
    return client


@pytest.mark.parametrize("api", OF_NODES, ids=lambda each: each.label)
def test_without_cluster_action_no_request_between_nodes_is_served(node: StillNode, api: Api) -> None:
    version = KAFKA_RANGES[api].max
    message = smallest(getattr(request_module(api, version), f"{api.label}Request"))
    asked = {each.name: getattr(message, each.name) for each in fields(message) if each.init}
    for listener, served in (("CONTROLLER", CONTROLLER_APIS), ("BROKERS", BROKER_APIS)):
        if api not in served:
            continue
        refused = logged_in(node, listener, "alice", "a").call(api, version, **asked)
        assert refused.error_code is ErrorCode.cluster_authorization_failed, listener
        allowed = logged_in(node, listener, "node", "n").call(api, version, **asked)
        assert allowed.error_code is not ErrorCode.cluster_authorization_failed, listener


@pytest.mark.parametrize("listener", ["CONTROLLER", "BROKERS"])
def test_before_the_log_in_no_request_between_nodes_is_read(node: StillNode, listener: str) -> None:
    client = node.client(listener)
    client.ask(Api.DESCRIBE_CLUSTER, 1, include_cluster_authorized_operations=False)
    node.world.advance(1000)
    assert client.transport.is_closed
    assert client.reply() is None
