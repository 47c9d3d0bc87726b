"""The table of rights: every API is in it, handlers ask for what it says, and the documentation shows it."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.compat.test_acls_beside_kafka import BATCH, REQUESTS, VERSIONS
from tests.handlers.cluster import make_request
from tests.nodes import StillClient, StillNode
from tests.wire_requests import fetch_body, produce_body

from penstock.handlers import describe_topic_partitions
from penstock.handlers.support.context import Context, Session
from penstock.handlers.support.dispatch import CONTROLLER_RANGES, RANGES, Dispatcher
from penstock.handlers.support.needed_rights import NEEDED, as_markdown
from penstock.metadata.acls import AclResourceType, Operation
from penstock.records import build_batch
from penstock.wire import KAFKA_RANGES, Api, request_frame, write_request
from penstock.wire.messages import request_type

SECURITY = Path(__file__).parents[2] / "docs" / "security.md"

TRANSACTIONAL = bytes(
    build_batch([(b"k", b"v", 1)], transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
)

Policy = Callable[[Operation, AclResourceType], bool]
POLICIES: dict[str, Policy] = {
    "nothing is allowed": lambda *_: False,
    "nothing on the cluster is allowed": lambda _, on: on is not AclResourceType.CLUSTER,
    "nothing on topics is allowed": lambda _, on: on is not AclResourceType.TOPIC,
    "only Describe is allowed": lambda operation, _: operation is Operation.DESCRIBE,
    "everything is allowed": lambda *_: True,
}

MORE: dict[Api, list[dict[str, Any]]] = {
    Api.METADATA: [
        {"topics": None},
        {"topics": [{"name": "new"}], "allow_auto_topic_creation": True},
    ],
    Api.DESCRIBE_CONFIGS: [
        {"resources": [{"resource_type": 32, "resource_name": "g", "configuration_keys": None}]}
    ],
    Api.ALTER_CONFIGS: [{"resources": [{"resource_type": 32, "resource_name": "g", "configs": []}]}],
    Api.INCREMENTAL_ALTER_CONFIGS: [
        {"resources": [{"resource_type": 32, "resource_name": "g", "configs": []}]}
    ],
    Api.FIND_COORDINATOR: [{"key_type": 1, "coordinator_keys": ["x"]}],
    Api.INIT_PRODUCER_ID: [{"transactional_id": None}],
    Api.CREATE_DELEGATION_TOKEN: [
        {"owner_principal_type": "User", "owner_principal_name": "bob", "renewers": [], "max_lifetime": -1}
    ],
    Api.DELETE_TOPICS: [{"topics": [{"name": "doomed"}]}],
    Api.JOIN_GROUP: [
        {
            "group_id": "g",
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }
    ],
    Api.OFFSET_FETCH: [{"groups": [{"group_id": "g", "topics": None}], "require_stable": False}],
    Api.ADD_RAFT_VOTER: [
        {"voter_id": 7, "listeners": [{"name": "CONTROLLER", "host": "localhost", "port": 1}]}
    ],
}
STATEFUL = {
    (Api.LIST_GROUPS, Operation.DESCRIBE, AclResourceType.GROUP),
    (Api.LIST_TRANSACTIONS, Operation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID),
    (Api.DESCRIBE_TRANSACTIONS, Operation.DESCRIBE, AclResourceType.TOPIC),
    (Api.CONSUMER_GROUP_DESCRIBE, Operation.DESCRIBE, AclResourceType.TOPIC),
    (Api.DESCRIBE_DELEGATION_TOKEN, Operation.DESCRIBE, AclResourceType.DELEGATION_TOKEN),
    (Api.DESCRIBE_DELEGATION_TOKEN, Operation.DESCRIBE_TOKENS, AclResourceType.USER),
    (Api.FETCH, Operation.CLUSTER_ACTION, AclResourceType.CLUSTER),
    (Api.ADD_PARTITIONS_TO_TXN, Operation.CLUSTER_ACTION, AclResourceType.CLUSTER),
}
"""Asked only about what exists, or of brokers: seen in other tests."""


class Asked:
    """Every right that was asked for, by the API."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: dict[str, set[tuple[Operation, AclResourceType]]] = defaultdict(set)
        self.policy: Policy = POLICIES["nothing is allowed"]

        def decide(_: Context, session: Session, operation: Operation, on: AclResourceType, *__: str) -> bool:
            hot = "Produce" if operation is Operation.WRITE else "Fetch"
            self.found[session.request or hot].add((operation, on))
            return self.policy(operation, on)

        for name in ("authorize", "permits", "permits_any"):
            monkeypatch.setattr(Context, name, decide)


def bodies(api: Api) -> list[tuple[int, bytes]]:
    if api is Api.PRODUCE:
        return [
            (9, produce_body(9, [("orders", [(0, BATCH)])])),
            (9, produce_body(9, [("orders", [(0, TRANSACTIONAL)])], transactional_id="x")),
        ]
    if api is Api.FETCH:
        return [(11, fetch_body(11, [("orders", [(0, 0)])]))]
    version = VERSIONS.get(api, KAFKA_RANGES[api].max)
    found = [*([REQUESTS[api]] if api in REQUESTS else []), *MORE.get(api, [])] or [{}]
    required = _filled(request_type(api, version))
    unasked = {"include_topic_authorized_operations", "include_authorized_operations"}
    unasked |= {"include_cluster_authorized_operations"}
    return [
        (version, write_request(api, version, make_request(api, version, **(required | values))))
        for values in ({name: each for name, each in one.items() if name not in unasked} for one in found)
    ]


_FILLS: dict[str, Any] = {
    "string": "text",
    "bytes": b"",
    "records": None,
    "uuid": UUID(int=7),
    "bool": False,
    "timedelta_i32": timedelta(seconds=1),
    "timedelta_i64": timedelta(seconds=1),
}


def _filled(entity_type: type[Any]) -> dict[str, Any]:
    """A value for each field that must have one."""
    found: dict[str, Any] = {}
    for each in fields(entity_type):
        if each.default is MISSING:
            kind = each.metadata.get("kafka_type", "")
            is_list = "tuple" in str(each.type)
            nested = is_dataclass(each.type)
            found[each.name] = () if is_list else _filled(each.type) if nested else _FILLS.get(kind, 0)
    return found


def ask(client: StillClient, api: Api) -> None:
    for version, body in bodies(api):
        client.send(api, version, body)
        client.node.world.advance(100)


def test_handlers_ask_for_the_rights_of_the_table_and_for_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    made = StillNode(settings={"audit.log": "denied", "delegation.token.secret.key": "secret"})
    made.create_topic("orders")
    made.create_topic("doomed")
    monkeypatch.setattr(describe_topic_partitions, "topic_operations", lambda *_: 0)
    asked = Asked(monkeypatch)
    controller = Dispatcher.for_controllers(made.node.context)
    for policy in POLICIES.values():
        asked.policy = policy
        for api in NEEDED:
            client = made.client()
            client.connection.session.principal = "User:alice"
            if api in RANGES:
                ask(client, api)
            else:
                for version, body in bodies(api):
                    frame = request_frame(api, version, 1, "test", body)
                    controller.dispatch(client.connection.session, memoryview(frame)[4:])
                    made.world.advance(10)
    wrong = {}
    for api, rights in NEEDED.items():
        expected = {(each.operation, each.on) for each in rights}
        unseen = {each[1:] for each in STATEFUL if each[0] is api}
        if asked.found[api.label] | unseen != expected:
            wrong[api.label] = asked.found[api.label] | unseen, expected
    assert not wrong


def test_every_api_that_is_served_has_an_entry() -> None:
    served = {*RANGES, *CONTROLLER_RANGES}
    assert served - NEEDED.keys() == set(), "say in handlers/support/needed_rights.py what they need"
    assert NEEDED.keys() - served == set()


def test_the_documentation_has_the_table() -> None:
    assert as_markdown() in SECURITY.read_text(), (
        "put the output of python -m penstock.handlers.support.needed_rights into docs/security.md"
    )
