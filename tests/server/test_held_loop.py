"""No request holds the event loop for long, whatever its API: the most that each may ask for, on a node with thousands
of partitions.

The calls of each piece of work are counted (`tests.held_loop`): a piece may make as many as take 20 ms.
"""

from datetime import timedelta
from typing import Any

import pytest
from tests.handlers.test_costly_batches import bomb
from tests.held_loop import CALL_NS, Holds, MeasuredClient, MeasuredWorld
from tests.nodes import StillNode
from tests.wire_requests import fetch_body, produce_body
from tests.worlds import START_MS

from penstock.base.loop_watch import HELD_NS
from penstock.handlers.support.dispatch import RANGES
from penstock.metadata.config_table import STANDARD_AUTHORIZER
from penstock.records import Codec, build_batch
from penstock.wire import Api, request_frame, request_module, write_request

CALLS_MAX = HELD_NS // CALL_NS
TOPICS, PARTITIONS = 4, 500
NAMES = [f"t{number}" for number in range(TOPICS)]
MANY = 5_000


class Scene:
    """A node with some thousand partitions, and a client."""

    def __init__(self) -> None:
        self.holds = Holds()
        settings = {"durability.fsync": "never", "log.cleanup.policy": "compact"}
        self.node = StillNode(world=MeasuredWorld(self.holds), settings=settings)
        for name in NAMES:
            self.node.create_topic(name, PARTITIONS)
        self.client = MeasuredClient(self.node)

    def longest_calls(self, what: str) -> int:
        client = self.client
        for _ in range(20_000):
            if client.transport.is_closed or client.reply() is not None:
                return self.holds.longest[what]
            self.node.world.advance(1, calls_max=1_000_000)
        raise AssertionError(f"{what} was not answered")


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene()


def by_partition(topic: str, topic_name: str, partitions: str, row: str, **fields: Any) -> Any:
    """Rows for every partition of every topic."""
    return lambda module: tuple(
        getattr(module, topic)(
            **{
                topic_name: name,
                partitions: tuple(fill(getattr(module, row), number, fields) for number in range(PARTITIONS)),
            }
        )
        for name in NAMES
    )


def fill(kind: type[Any], number: int, fields: dict[str, Any]) -> Any:
    known = kind.__dataclass_fields__
    values = {name: value(number) if callable(value) else value for name, value in fields.items()}
    return kind(**{name: value for name, value in values.items() if name in known})


SECONDS = timedelta(seconds=5)
REQUESTS: dict[Api, Any] = {
    Api.METADATA: lambda _: {
        "topics": None,
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
    },
    Api.DESCRIBE_TOPIC_PARTITIONS: lambda m: {
        "topics": tuple(m.TopicRequest(name=each) for each in NAMES),
        "response_partition_limit": 2**31 - 1,
        "cursor": None,
    },
    Api.LIST_OFFSETS: lambda m: {
        "replica_id": -1,
        "isolation_level": 0,
        "timeout": SECONDS,
        "topics": by_partition(
            "ListOffsetsTopic",
            "name",
            "partitions",
            "ListOffsetsPartition",
            partition_index=int,
            current_leader_epoch=-1,
            timestamp=-1,
        )(m),
    },
    Api.OFFSET_FOR_LEADER_EPOCH: lambda m: {
        "replica_id": -1,
        "topics": by_partition(
            "OffsetForLeaderTopic",
            "topic",
            "partitions",
            "OffsetForLeaderPartition",
            partition=int,
            current_leader_epoch=-1,
            leader_epoch=0,
        )(m),
    },
    Api.DELETE_RECORDS: lambda m: {
        "timeout": SECONDS,
        "topics": by_partition(
            "DeleteRecordsTopic",
            "name",
            "partitions",
            "DeleteRecordsPartition",
            partition_index=int,
            offset=0,
        )(m),
    },
    Api.DESCRIBE_LOG_DIRS: lambda _: {"topics": None},
    Api.DESCRIBE_PRODUCERS: lambda m: {
        "topics": tuple(
            m.TopicRequest(name=each, partition_indexes=tuple(range(PARTITIONS))) for each in NAMES
        )
    },
    Api.DESCRIBE_CONFIGS: lambda m: {
        "resources": tuple(
            m.DescribeConfigsResource(resource_type=2, resource_name=f"u{each}", configuration_keys=None)
            for each in range(MANY)
        ),
        "include_synonyms": True,
        "include_documentation": True,
    },
    Api.INCREMENTAL_ALTER_CONFIGS: lambda m: {
        "validate_only": False,
        "resources": tuple(
            m.AlterConfigsResource(
                resource_type=2,
                resource_name=f"u{each}",
                configs=(m.AlterableConfig(name="retention.ms", config_operation=0, value="1000"),),
            )
            for each in range(MANY)
        ),
    },
    Api.ALTER_CONFIGS: lambda m: {
        "validate_only": False,
        "resources": tuple(
            m.AlterConfigsResource(
                resource_type=2,
                resource_name=f"u{each}",
                configs=(m.AlterableConfig(name="retention.ms", value="1000"),),
            )
            for each in range(MANY)
        ),
    },
    Api.CREATE_TOPICS: lambda m: {
        "validate_only": False,
        "timeout": SECONDS,
        "topics": tuple(
            m.CreatableTopic(
                name=f"n{each}", num_partitions=1, replication_factor=-1, assignments=(), configs=()
            )
            for each in range(1000)
        ),
    },
    Api.DELETE_TOPICS: lambda m: {
        "timeout": SECONDS,
        "topics": tuple(m.DeleteTopicState(name=f"x{each}", topic_id=None) for each in range(MANY)),
    },
    Api.ALTER_PARTITION_REASSIGNMENTS: lambda m: {
        "timeout": SECONDS,
        "topics": by_partition(
            "ReassignableTopic",
            "name",
            "partitions",
            "ReassignablePartition",
            partition_index=int,
            replicas=(1,),
        )(m),
    },
    Api.LIST_PARTITION_REASSIGNMENTS: lambda _: {"timeout": SECONDS, "topics": None},
    Api.FIND_COORDINATOR: lambda _: {
        "key_type": 0,
        "coordinator_keys": tuple(f"g{each}" for each in range(MANY)),
    },
    Api.OFFSET_FETCH: lambda m: {
        "require_stable": False,
        "groups": tuple(
            m.OffsetFetchRequestGroup(group_id="g", member_id=None, member_epoch=-1, topics=None)
            for _ in range(1000)
        ),
    },
    Api.DESCRIBE_GROUPS: lambda _: {
        "groups": tuple(f"g{each}" for each in range(MANY)),
        "include_authorized_operations": False,
    },
    Api.DELETE_GROUPS: lambda _: {"groups_names": tuple(f"none{each}" for each in range(MANY))},
    Api.CONSUMER_GROUP_DESCRIBE: lambda _: {
        "group_ids": tuple(f"g{each}" for each in range(MANY)),
        "include_authorized_operations": False,
    },
    Api.DESCRIBE_TRANSACTIONS: lambda _: {"transactional_ids": tuple(f"g{each}" for each in range(MANY))},
    Api.LIST_GROUPS: lambda _: {"states_filter": (), "types_filter": ()},
}
"""What each asks for, by its fields in the latest version."""

BY_HAND = {
    Api.PRODUCE: (
        9,
        produce_body(
            9,
            [
                (name, [(each, bytes(build_batch([(b"k", b"v", START_MS)]))) for each in range(PARTITIONS)])
                for name in NAMES
            ],
        ),
    ),
    Api.FETCH: (12, fetch_body(12, [(name, [(each, 0) for each in range(PARTITIONS)]) for name in NAMES])),
}

BOUNDED_ELSEWHERE: dict[Api, str] = {
    Api.API_VERSIONS: "says the same to everybody",
    Api.DESCRIBE_CLUSTER: "as large as the cluster has brokers",
    Api.DESCRIBE_QUORUM: "as large as the quorum",
    Api.LIST_CONFIG_RESOURCES: "names, of topics with settings of their own",
    Api.ADD_RAFT_VOTER: "one voter",
    Api.REMOVE_RAFT_VOTER: "one voter",
    Api.UNREGISTER_BROKER: "one broker",
    Api.UPDATE_FEATURES: "features are few",
    Api.INIT_PRODUCER_ID: "one producer",
    Api.JOIN_GROUP: "one member",
    Api.SYNC_GROUP: "the members of one group",
    Api.HEARTBEAT: "one member",
    Api.LEAVE_GROUP: "the members of one group",
    Api.CONSUMER_GROUP_HEARTBEAT: "one member",
    Api.END_TXN: "one transaction",
    Api.ADD_OFFSETS_TO_TXN: "one group",
    Api.LIST_TRANSACTIONS: "the transactions of a coordinator",
    Api.CREATE_PARTITIONS: "sliced as CreateTopics is",
    Api.ELECT_LEADERS: "a controller's decision, in one piece: see docs/decisions/0020",
    Api.SASL_HANDSHAKE: "one mechanism",
    Api.SASL_AUTHENTICATE: "one token: see sasl.server.max.receive.size",
    Api.DESCRIBE_ACLS: "needs ACLs: see below",
    Api.CREATE_ACLS: "needs an authorizer: see below",
    Api.DELETE_ACLS: "a controller's decision, in one piece, of 10,000 ACLs at most",
    Api.DESCRIBE_CLIENT_QUOTAS: "described in slices: see tests/handlers/test_client_quotas.py",
    Api.ALTER_CLIENT_QUOTAS: "sliced as AlterConfigs is, and otherwise of 10,000 changes at most",
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: "needs users: see below",
    Api.ALTER_USER_SCRAM_CREDENTIALS: "a controller's decision, in one piece",
    Api.CREATE_DELEGATION_TOKEN: "one token",
    Api.RENEW_DELEGATION_TOKEN: "one token",
    Api.EXPIRE_DELEGATION_TOKEN: "one token",
    Api.DESCRIBE_DELEGATION_TOKEN: "in portions, as DescribeUserScramCredentials",
    Api.OFFSET_COMMIT: "sliced as OffsetDelete is",
    Api.OFFSET_DELETE: "needs a group: see below",
    Api.TXN_OFFSET_COMMIT: "sliced as OffsetCommit is",
    Api.ADD_PARTITIONS_TO_TXN: "a coordinator's decision, in one piece",
    Api.WRITE_TXN_MARKERS: "one marker a partition",
    Api.ENVELOPE: "has another request in it",
}


def test_every_api_is_measured_or_bounded_otherwise() -> None:
    assert set(RANGES) == {*REQUESTS, *BY_HAND, *BOUNDED_ELSEWHERE}


@pytest.mark.parametrize("api", [*REQUESTS, *BY_HAND], ids=lambda api: api.label)
def test_the_largest_request_does_not_hold_the_loop(scene: Scene, api: Api) -> None:
    if api in BY_HAND:
        version, body = BY_HAND[api]
    else:
        version = RANGES[api].max
        module = request_module(api, version)
        kind = getattr(module, f"{api.label}Request")
        fields = {
            name: value for name, value in REQUESTS[api](module).items() if name in kind.__dataclass_fields__
        }
        body = write_request(api, version, kind(**fields))
    with scene.holds.measuring(api.label):
        scene.client.send(api, version, body)
        longest = scene.longest_calls(api.label)
    assert not scene.client.transport.is_closed
    assert longest < CALLS_MAX, scene.holds.where[api.label]


def test_many_requests_that_come_together_take_turns(scene: Scene) -> None:
    module = request_module(Api.METADATA, 12)
    request = module.MetadataRequest(
        topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    body = write_request(Api.METADATA, 12, request)
    client = MeasuredClient(scene.node)
    with scene.holds.measuring("pipelined"):
        client.feed(b"".join(request_frame(Api.METADATA, 12, each, "test", body) for each in range(15)))
        scene.node.world.run_until(
            lambda: client.connection.open_requests == 0 and client.transport.is_reading, calls_max=1_000_000
        )
    assert scene.holds.longest["pipelined"] < CALLS_MAX, scene.holds.where["pipelined"]
    assert scene.holds.total["pipelined"] > scene.holds.longest["pipelined"] * 5


def test_a_batch_of_many_records_does_not_hold_the_loop(scene: Scene) -> None:
    record = bytes([12, 0, 0, 0, 0, 1, 0])
    with scene.holds.measuring("bomb"):
        body = produce_body(9, [("t0", [(0, bomb(300_000, 300_000 * record, Codec.ZSTD))])])
        scene.client.send(Api.PRODUCE, 9, body)
        longest = scene.longest_calls("bomb")
    assert longest < CALLS_MAX, scene.holds.where["bomb"]


def test_thousands_of_acls_are_created_and_described_without_holding_the_loop() -> None:
    holds = Holds()
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    node = StillNode(world=MeasuredWorld(holds), settings=settings)
    client = MeasuredClient(node)
    module = request_module(Api.CREATE_ACLS, 3)
    acls = tuple(
        module.AclCreation(
            resource_type=2,
            resource_name=f"topic-{number}",
            resource_pattern_type=3,
            principal="User:alice",
            host="*",
            operation=3,
            permission_type=3,
        )
        for number in range(MANY)
    )
    with holds.measuring("CreateAcls"):
        created = client.call(Api.CREATE_ACLS, 3, creations=acls)
    assert [each.error_code for each in created.results] == [0] * MANY
    with holds.measuring("DescribeAcls"):
        described = client.call(
            Api.DESCRIBE_ACLS,
            3,
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
    assert [each.resource_name for each in described.resources] == sorted(each.resource_name for each in acls)
    for what in ("CreateAcls", "DescribeAcls"):
        assert holds.longest[what] < CALLS_MAX, holds.where[what]


def test_a_request_for_more_acls_than_may_be_changed_is_refused_as_a_whole() -> None:
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    node = StillNode(settings=settings)
    module = request_module(Api.CREATE_ACLS, 3)
    acl = module.AclCreation(
        resource_type=2,
        resource_name="orders",
        resource_pattern_type=3,
        principal="User:alice",
        host="*",
        operation=3,
        permission_type=3,
    )
    reply = node.client().call(Api.CREATE_ACLS, 3, creations=(acl,) * 10_001)
    assert {each.error_message for each in reply.results} == {
        "The request has 10001 ACLs, expected 10000 at most"
    }


def test_thousands_of_users_are_described_without_holding_the_loop() -> None:
    holds = Holds()
    node = StillNode(world=MeasuredWorld(holds))
    client = MeasuredClient(node)
    module = request_module(Api.ALTER_USER_SCRAM_CREDENTIALS, 0)
    names = [f"user-{number}" for number in range(MANY)]
    for at in range(0, MANY, 100):
        users = tuple(
            module.ScramCredentialUpsertion(
                name=name, mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32)
            )
            for name in names[at : at + 100]
        )
        client.call(Api.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=(), upsertions=users)
    with holds.measuring("users"):
        described = client.call(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None)
    assert [each.user for each in described.results] == sorted(names)
    assert holds.longest["users"] < CALLS_MAX, holds.where["users"]
