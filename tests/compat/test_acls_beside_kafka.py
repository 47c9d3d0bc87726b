"""Every API of a broker, asked by a client with few rights: Penstock answers as Apache Kafka does, field by field.

Brokers and the operator connect from 127.0.0.1, where everything is allowed. The client connects from 127.0.0.3, and
gets one right after the other.
"""

import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.compat.beside import Side
from tests.compat.kafka.peer import KafkaPeer
from tests.handlers.cluster import make_request
from tests.wire_requests import fetch_body, produce_body

from penstock.metadata.acls import AclResourceType, Operation, PatternType, Permission
from penstock.records import build_batch
from penstock.testing import Broker
from penstock.wire import (
    KAFKA_RANGES,
    Api,
    parse_response_header,
    read_response,
    request_frame,
    write_request,
)

pytestmark = [pytest.mark.kafka, pytest.mark.long]

NODES, CLIENT = "127.0.0.1", "127.0.0.3"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
NAMES = {
    AclResourceType.TOPIC: "orders",
    AclResourceType.GROUP: "g",
    AclResourceType.CLUSTER: "kafka-cluster",
    AclResourceType.TRANSACTIONAL_ID: "x",
}
OPERATIONS = {
    AclResourceType.TOPIC: "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS ALL",
    AclResourceType.GROUP: "READ DELETE DESCRIBE ALL",
    AclResourceType.CLUSTER: "CREATE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE",
    AclResourceType.TRANSACTIONAL_ID: "WRITE DESCRIBE ALL",
}
SECONDS = timedelta(seconds=10)
BATCH = bytes(build_batch([(b"k", b"v", 1_700_000_000_000)]))


class Right(NamedTuple):
    on: AclResourceType
    operation: Operation
    permission: Permission = Permission.ALLOW

    def __str__(self) -> str:
        return f"{self.permission.name} {self.operation.name} {self.on.name}"


ONE_BY_ONE = [(Right(on, Operation[each]),) for on, names in OPERATIONS.items() for each in names.split()]
EVERYTHING = tuple(Right(on, Operation.ALL) for on in OPERATIONS)
DENIED = [
    (*EVERYTHING, Right(AclResourceType.TOPIC, each, Permission.DENY))
    for each in (Operation.READ, Operation.WRITE, Operation.DESCRIBE)
]
RIGHTS: list[tuple[Right, ...]] = [(), *ONE_BY_ONE, EVERYTHING, *DENIED]

REQUESTS: dict[Api, dict[str, Any]] = {
    Api.METADATA: {
        "topics": [{"name": "orders"}, {"name": "missing"}],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
    },
    Api.DESCRIBE_TOPIC_PARTITIONS: {
        "topics": [{"name": "orders"}, {"name": "missing"}],
        "response_partition_limit": 10,
    },
    Api.CREATE_TOPICS: {
        "topics": [
            {"name": name, "num_partitions": 1, "replication_factor": 1} for name in ("orders", "others")
        ],
        "timeout": SECONDS,
        "validate_only": True,
    },
    Api.DELETE_TOPICS: {"topics": [{"name": "missing"}], "timeout": SECONDS},
    Api.CREATE_PARTITIONS: {
        "topics": [{"name": name, "count": 2, "assignments": None} for name in ("orders", "missing")],
        "timeout": SECONDS,
        "validate_only": True,
    },
    Api.DESCRIBE_CONFIGS: {
        "resources": [
            {"resource_type": 2, "resource_name": "orders", "configuration_keys": ["retention.ms"]},
            {"resource_type": 4, "resource_name": "1", "configuration_keys": ["num.partitions"]},
        ]
    },
    Api.ALTER_CONFIGS: {
        "resources": [
            {"resource_type": 2, "resource_name": "orders", "configs": []},
            {"resource_type": 4, "resource_name": "", "configs": []},
        ],
        "validate_only": True,
    },
    Api.INCREMENTAL_ALTER_CONFIGS: {
        "resources": [
            {
                "resource_type": 2,
                "resource_name": "orders",
                "configs": [{"name": "retention.ms", "config_operation": 0, "value": "5"}],
            },
            {
                "resource_type": 4,
                "resource_name": "",
                "configs": [{"name": "log.retention.ms", "config_operation": 0, "value": "5"}],
            },
        ],
        "validate_only": True,
    },
    Api.LIST_CONFIG_RESOURCES: {"resource_types": [2]},
    Api.DESCRIBE_CLUSTER: {"include_cluster_authorized_operations": True},
    Api.ALTER_PARTITION_REASSIGNMENTS: {
        "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "replicas": None}]}],
        "timeout": SECONDS,
    },
    Api.LIST_PARTITION_REASSIGNMENTS: {"topics": None, "timeout": SECONDS},
    Api.ELECT_LEADERS: {
        "election_type": 0,
        "topic_partitions": [{"topic": "orders", "partitions": [0]}],
        "timeout": SECONDS,
    },
    Api.UNREGISTER_BROKER: {"broker_id": 77},
    Api.UPDATE_FEATURES: {
        "feature_updates": [{"feature": "group.version", "max_version_level": 1, "upgrade_type": 1}],
        "timeout": SECONDS,
        "validate_only": True,
    },
    Api.LIST_OFFSETS: {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [
            {
                "name": name,
                "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -2}],
            }
            for name in ("orders", "missing")
        ],
    },
    Api.OFFSET_FOR_LEADER_EPOCH: {
        "replica_id": -1,
        "topics": [
            {
                "topic": "orders",
                "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}],
            }
        ],
    },
    Api.DELETE_RECORDS: {
        "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "offset": 0}]}],
        "timeout": SECONDS,
    },
    Api.DESCRIBE_PRODUCERS: {"topics": [{"name": "orders", "partition_indexes": [0]}]},
    Api.FIND_COORDINATOR: {"key_type": 0, "coordinator_keys": ["g", "other"]},
    Api.LIST_GROUPS: {"states_filter": [], "types_filter": []},
    Api.DESCRIBE_GROUPS: {"groups": ["g", "other"], "include_authorized_operations": True},
    Api.CONSUMER_GROUP_DESCRIBE: {"group_ids": ["g"], "include_authorized_operations": True},
    Api.DELETE_GROUPS: {"groups_names": ["other"]},
    Api.HEARTBEAT: {"group_id": "g", "generation_id": 1, "member_id": "m"},
    Api.LEAVE_GROUP: {"group_id": "g", "members": [{"member_id": "m"}]},
    Api.SYNC_GROUP: {"group_id": "g", "generation_id": 1, "member_id": "m", "assignments": []},
    Api.OFFSET_COMMIT: {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [
            {"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 0}]},
        ],
    },
    Api.OFFSET_FETCH: {
        "groups": [{"group_id": "g", "topics": [{"name": "orders", "partition_indexes": [0]}]}],
        "require_stable": False,
    },
    Api.OFFSET_DELETE: {
        "group_id": "g",
        "topics": [{"name": "orders", "partitions": [{"partition_index": 0}]}],
    },
    Api.INIT_PRODUCER_ID: {
        "transactional_id": "x",
        "transaction_timeout": SECONDS,
        "producer_id": -1,
        "producer_epoch": -1,
    },
    Api.ADD_OFFSETS_TO_TXN: {
        "transactional_id": "x",
        "producer_id": 999_999,
        "producer_epoch": 0,
        "group_id": "g",
    },
    Api.END_TXN: {
        "transactional_id": "x",
        "producer_id": 999_999,
        "producer_epoch": 0,
        "committed": True,
    },
    Api.DESCRIBE_TRANSACTIONS: {"transactional_ids": ["none"]},
    Api.LIST_TRANSACTIONS: {"state_filters": ["Dead"], "producer_id_filters": []},
    Api.WRITE_TXN_MARKERS: {"markers": []},
    Api.DESCRIBE_ACLS: {
        "resource_type_filter": 5,
        "resource_name_filter": "nobody",
        "pattern_type_filter": 3,
        "operation": 1,
        "permission_type": 1,
    },
    Api.CREATE_ACLS: {"creations": []},
    Api.DELETE_ACLS: {"filters": []},
    Api.CREATE_DELEGATION_TOKEN: {"renewers": [], "max_lifetime": -1},
    Api.RENEW_DELEGATION_TOKEN: {"hmac": b"none", "renew_period": -1},
    Api.EXPIRE_DELEGATION_TOKEN: {"hmac": b"none", "expiry_time_period": -1},
    Api.DESCRIBE_DELEGATION_TOKEN: {"owners": None},
    Api.DESCRIBE_QUORUM: {"topics": []},
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: {"users": [{"name": "nobody"}]},
    Api.ALTER_USER_SCRAM_CREDENTIALS: {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []},
    Api.CONSUMER_GROUP_HEARTBEAT: {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 5,
        "rebalance_timeout": SECONDS,
        "subscribed_topic_names": ["orders", "missing"],
    },
    Api.TXN_OFFSET_COMMIT: {
        "transactional_id": "x",
        "group_id": "g",
        "producer_id": 999_999,
        "producer_epoch": 0,
        "generation_id": -1,
        "member_id": "",
        "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 0}]}],
    },
    Api.ADD_PARTITIONS_TO_TXN: {
        "v3_and_below_transactional_id": "x",
        "v3_and_below_producer_id": 999_999,
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [{"name": name, "partitions": [0]} for name in ("orders", "missing")],
    },
    Api.DESCRIBE_LOG_DIRS: {"topics": [{"topic": "missing", "partitions": [0]}]},
    Api.REMOVE_RAFT_VOTER: {"cluster_id": "none", "voter_id": 77},
}
OWN = {"cluster_id", "controller_id", "topic_id", "brokers", "leader_epoch", "configs"}
OWN |= {"producer_id", "producer_epoch", "log_dir", "member_id", "nodes"}
OWN |= {"base_offset", "end_offset", "high_watermark", "last_stable_offset", "records", "usable_bytes"}
UNORDERED = {"config_resources"}
VERSIONS = {
    Api.ADD_PARTITIONS_TO_TXN: 3,
    Api.TXN_OFFSET_COMMIT: 3,
    Api.OFFSET_COMMIT: 9,
    Api.OFFSET_FETCH: 9,
    Api.END_TXN: 4,
    Api.METADATA: 9,
}
"""Older ones, with names of topics, or without what the transaction's version decides."""

ALSO = {"idempotent": (Api.INIT_PRODUCER_ID, {"transactional_id": None, "transaction_timeout": SECONDS})}


@pytest.fixture(scope="module")
def two(kafka: KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    log_dir: Path = tmp_path_factory.mktemp("acls") / "kafka"
    kafka.format_storage(log_dir)
    with kafka.running_kafka(log_dir, SETTINGS) as running, Broker(settings=SETTINGS) as penstock:
        sides = (Side(running.bootstrap), Side(penstock.bootstrap))
        for side in sides:
            side.call(
                Api.CREATE_TOPICS,
                7,
                topics=[{"name": "orders", "num_partitions": 1, "replication_factor": 1}],
                timeout=SECONDS,
            )
            open_for_nodes(side)
            for kind in (0, 1):
                wait_for_coordinator(side, kind)
            give(side, EVERYTHING)
            while "coordinator_load_in_progress" in repr(answers(side)):
                pass
        yield sides
        for side in sides:
            side.begin()


def open_for_nodes(side: Side) -> None:
    create(side, NODES, [(on, "*" if on is not AclResourceType.CLUSTER else NAMES[on]) for on in NAMES])


def create(side: Side, host: str, resources: list[tuple[AclResourceType, str]]) -> None:
    creations = [acl(on, name, host, Operation.ALL, Permission.ALLOW) for on, name in resources]
    side.call(Api.CREATE_ACLS, 3, creations=creations)


def acl(
    on: AclResourceType, name: str, host: str, operation: Operation, permission: Permission
) -> dict[str, Any]:
    return {
        "resource_type": int(on),
        "resource_name": name,
        "resource_pattern_type": int(PatternType.LITERAL),
        "principal": "User:ANONYMOUS",
        "host": host,
        "operation": int(operation),
        "permission_type": int(permission),
    }


def wait_for_coordinator(side: Side, kind: int) -> None:
    while (
        side.call(Api.FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=("x",))
        .coordinators[0]
        .error_code.value
    ):
        pass


OF_CLIENT = {
    "resource_type_filter": 1,
    "pattern_type_filter": 1,
    "host_filter": CLIENT,
    "operation": 1,
    "permission_type": 1,
}


def give(side: Side, rights: tuple[Right, ...]) -> None:
    """The client has these rights and no others, once the broker's answers show it."""
    side.call(Api.DELETE_ACLS, 3, filters=[OF_CLIENT])
    if rights:
        wanted = [acl(each.on, NAMES[each.on], CLIENT, each.operation, each.permission) for each in rights]
        side.call(Api.CREATE_ACLS, 3, creations=wanted)
    while sum(len(each.acls) for each in side.call(Api.DESCRIBE_ACLS, 3, **OF_CLIENT).resources) != len(
        rights
    ):
        pass


def ask(side: Side, api: Api, version: int, body: bytes) -> Any:
    """The answer to the client, as plain data; None if the broker closes the connection."""
    host, _, port = side.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30, source_address=(CLIENT, 0)) as client:
        client.sendall(request_frame(api, version, 1, "client", body))
        received = b""
        while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            came = client.recv(1 << 16)
            if not came:
                return None
            received += came
    frame = memoryview(received)[4:]
    _, start = parse_response_header(frame, api, version)
    return without(side.plain(read_response(api, version, frame[start:])))


def without(plain: Any) -> Any:
    """An answer without what each cluster has of its own."""
    if isinstance(plain, dict):
        rest = {name: without(value) for name, value in plain.items() if name not in OWN}
        for name in UNORDERED & rest.keys():
            rest[name].sort(key=repr)
        return rest
    return [without(each) for each in plain] if isinstance(plain, list) else plain


def answers(side: Side) -> dict[str, Any]:
    found: dict[str, Any] = {}
    cases = [(api.label, api, values) for api, values in REQUESTS.items()]
    cases += [(label, api, values) for label, (api, values) in ALSO.items()]
    for label, api, values in cases:
        version = VERSIONS.get(api, KAFKA_RANGES[api].max)
        found[label] = ask(
            side, api, version, write_request(api, version, make_request(api, version, **values))
        )
    found["Produce"] = ask(side, Api.PRODUCE, 9, produce_body(9, [("orders", [(0, BATCH)])]))
    found["Produce of a transaction"] = ask(
        side, Api.PRODUCE, 9, produce_body(9, [("orders", [(0, BATCH)])], transactional_id="x")
    )
    found["Produce to no topic"] = ask(side, Api.PRODUCE, 9, produce_body(9, [("missing", [(0, BATCH)])]))
    found["Fetch"] = ask(side, Api.FETCH, 11, fetch_body(11, [("orders", [(0, 0)]), ("missing", [(0, 0)])]))
    return found


@pytest.mark.parametrize("rights", RIGHTS, ids=lambda rights: ", ".join(map(str, rights)) or "no right")
def test_a_client_gets_what_kafka_gives_it(two: tuple[Side, Side], rights: tuple[Right, ...]) -> None:
    for side in two:
        give(side, rights)
    expected, seen = (answers(side) for side in two)
    different = [
        f"{label}\n  Kafka:    {expected[label]}\n  Penstock: {seen[label]}"
        for label in expected
        if expected[label] != seen[label]
    ]
    assert not different, "\n".join(different)


def test_kafkas_own_tool_adds_lists_and_removes_acls(kafka: KafkaPeer) -> None:
    def tool(*words: str) -> str:
        at = ("--bootstrap-server", penstock.bootstrap)
        return kafka.java("org.apache.kafka.tools.AclCommand", *at, *words)

    with Broker(settings=SETTINGS) as penstock:
        rule = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")
        tool("--add", *rule)
        listed = tool("--list")
        assert "name=orders, patternType=LITERAL" in listed
        assert "principal=User:alice, host=*, operation=READ, permissionType=ALLOW" in listed
        tool("--remove", "--force", *rule)
        assert "User:alice" not in tool("--list")
