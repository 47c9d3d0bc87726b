"""Metadata and DescribeTopicPartitions: what clients are told of topics. Kafka's KafkaApis is the model."""

from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from tests.handlers.cluster import Cluster, uuid

from penstock.handlers.metadata import CREATION_WAIT_MS
from penstock.handlers.support.context import Endpoint
from penstock.handlers.support.response_fields import OPERATIONS_NOT_REQUESTED
from penstock.metadata.acls import CLUSTER_NAME, AclResourceType, Operation
from penstock.metadata.image import Resource
from penstock.metadata.records import BrokerRegistrationChangeRecord
from penstock.raft.describe import QuorumDescription
from penstock.wire import Api

LATEST = 13


def ask_for(cluster: Cluster, *names: str, version: int = LATEST, create: bool = False, **values: Any) -> Any:
    topics = [{"name": name} for name in names]
    return cluster.call(Api.METADATA, version, topics=topics, allow_auto_topic_creation=create, **values)


def names_in(reply: Any) -> list[str]:
    return [topic.name for topic in reply.topics]


# Which topics.


@pytest.mark.parametrize("version", range(14))
def test_all_topics_none_or_those_on_the_list(version: int, cluster: Cluster) -> None:
    """Version 0 has no null: its empty list is all topics."""
    cluster.create("b")
    cluster.create("a")
    everything = [] if version == 0 else None
    assert names_in(cluster.call(Api.METADATA, version, topics=everything)) == ["a", "b"]
    if version > 0:
        assert names_in(cluster.call(Api.METADATA, version, topics=[])) == []
    assert names_in(ask_for(cluster, "b", "a", "b", version=version)) == ["b", "a"]


def test_a_topic_that_is_not_there_is_unknown_and_a_bad_name_is_invalid(cluster: Cluster) -> None:
    reply = ask_for(cluster, "missing", "not a name", "x" * 250, "")
    assert [topic.error_code for topic in reply.topics] == [
        ErrorCode.unknown_topic_or_partition,
        *[ErrorCode.invalid_topic_exception] * 3,
    ]
    assert not cluster.port.asked


def test_topics_are_found_by_id(cluster: Cluster) -> None:
    """KIP-516."""
    cluster.create("t")
    known, unknown = cluster.topic_id("t"), UUID(int=77)
    reply = cluster.call(
        Api.METADATA, 12, topics=[{"topic_id": known, "name": None}, {"topic_id": unknown, "name": None}]
    )
    found, missing = reply.topics
    assert (found.name, found.topic_id, found.error_code) == ("t", known, ErrorCode.none)
    assert (missing.name, missing.topic_id) == (None, unknown)
    assert missing.error_code is ErrorCode.unknown_topic_id


@pytest.mark.parametrize("version", [10, 11])
def test_ids_in_requests_are_refused_before_version_12(version: int, cluster: Cluster) -> None:
    """Versions 10 and 11 have the field and may not use it: KAFKA-12701."""
    cluster.create("t")
    for topic in ({"topic_id": cluster.topic_id("t"), "name": "t"}, {"topic_id": None, "name": None}):
        (refused,) = cluster.call(Api.METADATA, version, topics=[topic]).topics
        assert refused.error_code is ErrorCode.invalid_request
        assert refused.topic_id is None


# Where they are.


def test_partitions_are_reported_with_their_leaders_epochs_and_replicas(three: Cluster) -> None:
    three.create("t", (1, 2, 3), (3, 2, 1))
    three.create("lost", (3,))
    three.fence(3)
    t, lost = ask_for(three, "t", "lost").topics
    told = [
        (each.error_code.name, each.leader_id, each.replica_nodes, each.isr_nodes, each.offline_replicas)
        for each in (*t.partitions, *lost.partitions)
    ]
    assert told == [
        ("none", 1, (1, 2, 3), (1, 2), (3,)),
        ("none", 2, (3, 2, 1), (2, 1), (3,)),
        ("leader_not_available", -1, (3,), (), (3,)),  # eligible, not in sync: KIP-966
    ]
    assert [each.leader_epoch for each in t.partitions] == [0, 1]


def test_version_0_leaves_out_replicas_that_are_not_alive(three: Cluster) -> None:
    three.create("t", (1, 2, 3))
    three.fence(3)
    (partition,) = ask_for(three, "t", version=0).topics[0].partitions
    assert (partition.error_code, partition.replica_nodes) == (ErrorCode.replica_not_available, (1, 2))


@pytest.mark.parametrize(
    ("version", "code"), [(5, ErrorCode.leader_not_available), (6, ErrorCode.listener_not_found)]
)
def test_a_leader_without_the_clients_listener_is_distinguished_from_version_6_on(
    version: int, code: ErrorCode
) -> None:
    cluster = Cluster(brokers=(1,))
    cluster.start(2, listener="OTHER")
    cluster.create("t", (2,))
    reply = ask_for(cluster, "t", version=version)
    (partition,) = reply.topics[0].partitions
    assert (partition.error_code, partition.leader_id, partition.offline_replicas) == (code, -1, (2,))
    assert [broker.node_id for broker in reply.brokers] == [1]


def test_a_replica_in_a_failed_directory_is_offline(three: Cluster) -> None:
    three.create("t", (1, 2))
    three.write(
        [
            BrokerRegistrationChangeRecord(
                version=2, broker_id=2, broker_epoch=three.image.brokers[2].epoch, log_dirs=(uuid(99),)
            )
        ]
    )
    (partition,) = ask_for(three, "t").topics[0].partitions
    assert partition.offline_replicas == (2,)


def test_brokers_have_the_addresses_of_the_clients_listener(three: Cluster) -> None:
    """This node by the address that was dialled, unless advertised.listeners says otherwise."""
    three.fence(3)
    reply = ask_for(three)
    assert [(each.node_id, each.host, each.port) for each in reply.brokers] == [
        (1, "127.0.0.1", 9092),
        (2, "host-2", 9002),
    ]
    assert (reply.cluster_id, reply.controller_id) == (three.context.cluster_id, 1)
    three.context.advertised["PLAINTEXT"] = Endpoint("example.org", 19092)
    assert ask_for(three).brokers[0].host == "example.org"


def test_the_controller_is_a_broker_that_is_alive(three: Cluster) -> None:
    """Brokers pass administration on, so that Kafka names any of them that is alive."""
    for leader, told in ((2, 2), (3, 1), (-1, 1), (7, 1)):
        three.quorum.description = QuorumDescription(leader, 1, 0)
        if leader == 3:
            three.fence(3)
        assert ask_for(three).controller_id == told


def test_internal_topics_are_marked(cluster: Cluster) -> None:
    cluster.create("__consumer_offsets")
    cluster.create("__mine")
    assert [topic.is_internal for topic in ask_for(cluster, "__consumer_offsets", "__mine").topics] == [
        True,
        False,
    ]


# Topics that come by being asked for.


@pytest.mark.parametrize("version", range(14))
def test_an_unknown_topic_is_created_and_told_in_the_same_answer(version: int, cluster: Cluster) -> None:
    (topic,) = ask_for(cluster, "new", version=version, create=True).topics
    assert topic.error_code is ErrorCode.none
    assert len(topic.partitions) == 2  # num.partitions
    assert topic.partitions[0].leader_id == 1


def test_nothing_is_created_unless_both_sides_agree() -> None:
    """auto.create.topics.enable, and from version 4 on the client; Kafka's admin client says no."""
    cluster = Cluster(static={"auto.create.topics.enable": " FALSE "})
    assert ask_for(cluster, "t", create=True).topics[0].error_code is ErrorCode.unknown_topic_or_partition
    cluster = Cluster()
    assert ask_for(cluster, "t", version=4).topics[0].error_code is ErrorCode.unknown_topic_or_partition
    assert not cluster.image.topics


def test_no_topic_is_created_by_its_id_or_by_asking_for_all(cluster: Cluster) -> None:
    cluster.create("t")
    an_id = UUID(int=77)
    cluster.call(Api.METADATA, 13, topics=[{"topic_id": an_id, "name": None}], allow_auto_topic_creation=True)
    cluster.call(Api.METADATA, 13, topics=None, allow_auto_topic_creation=True)
    assert not cluster.port.asked


def test_the_answer_waits_for_the_creation_but_not_for_long(cluster: Cluster) -> None:
    cluster.port.hold()
    later = cluster.ask(Api.METADATA, 13, topics=[{"name": "t"}], allow_auto_topic_creation=True)
    cluster.world.advance(CREATION_WAIT_MS - 1)
    assert not later.is_settled
    cluster.world.advance(1)
    assert later.value.topics[0].error_code is ErrorCode.unknown_topic_or_partition
    cluster.port.release()
    assert ask_for(cluster, "t").topics[0].error_code is ErrorCode.none


def test_a_topic_that_cannot_be_created_says_why_where_asking_again_does_not_help() -> None:
    cluster = Cluster(static={"default.replication.factor": "3"})
    (topic,) = ask_for(cluster, "t", create=True).topics
    assert topic.error_code is ErrorCode.invalid_replication_factor
    cluster = Cluster()
    cluster.create("a.b")
    (topic,) = ask_for(cluster, "a_b", create=True).topics
    assert topic.error_code is ErrorCode.invalid_topic_exception
    (topic,) = ask_for(cluster, "__cluster_metadata", create=True).topics
    assert topic.error_code is ErrorCode.topic_authorization_failed


def test_a_topic_that_another_client_creates_just_now_has_no_leader_yet(cluster: Cluster) -> None:
    before = cluster.image
    cluster.create("t")
    cluster.context.image = before  # decided, and not known here
    cluster.port.hold()
    later = cluster.ask(Api.METADATA, 13, topics=[{"name": "t"}], allow_auto_topic_creation=True)
    (request, waiting), cluster.port.held = cluster.port.held[0], None
    waiting.resolve(cluster.controller.handle(request, 0).reply)
    assert later.value.topics[0].error_code is ErrorCode.leader_not_available


def test_the_clusters_own_topics_are_created_as_they_should_be(three: Cluster) -> None:
    """As Kafka's AutoTopicCreationManager; but with as many replicas as there are brokers."""
    offsets, transactions, shares = ask_for(
        three, "__consumer_offsets", "__transaction_state", "__share_group_state", create=True
    ).topics
    assert (len(offsets.partitions), len(offsets.partitions[0].replica_nodes)) == (50, 3)
    assert three.image.config(Resource(2, "__consumer_offsets"))["cleanup.policy"] == "compact"
    assert len(transactions.partitions) == 50
    assert three.image.config(Resource(2, "__transaction_state"))["min.insync.replicas"] == "2"
    assert shares.error_code is ErrorCode.unknown_topic_or_partition
    alone = Cluster()
    (offsets,) = ask_for(alone, "__consumer_offsets", create=True).topics
    assert offsets.partitions[0].replica_nodes == (1,)


# Who may know.


def test_topics_that_a_client_may_not_describe_are_not_leaked(cluster: Cluster) -> None:
    cluster.create("secret")
    cluster.create("open")
    cluster.deny(Operation.DESCRIBE, AclResourceType.TOPIC, "secret")
    cluster.deny(Operation.DESCRIBE, AclResourceType.TOPIC, "absent")
    assert names_in(cluster.call(Api.METADATA, 13, topics=None)) == ["open"]
    secret, absent = ask_for(cluster, "secret", "absent", create=True).topics
    assert secret.error_code is absent.error_code is ErrorCode.topic_authorization_failed
    assert (secret.topic_id, secret.partitions) == (absent.topic_id, absent.partitions) == (None, ())
    (by_id,) = cluster.call(
        Api.METADATA, 13, topics=[{"topic_id": cluster.topic_id("secret"), "name": None}]
    ).topics
    assert (by_id.name, by_id.error_code) == (None, ErrorCode.topic_authorization_failed)
    assert not cluster.port.asked


def test_to_create_one_must_be_allowed_on_the_cluster_or_on_the_topic(cluster: Cluster) -> None:
    cluster.deny(Operation.CREATE, AclResourceType.CLUSTER, CLUSTER_NAME)
    cluster.deny(Operation.CREATE, AclResourceType.TOPIC, "theirs")
    theirs, mine = ask_for(cluster, "theirs", "mine", create=True).topics
    assert theirs.error_code is ErrorCode.topic_authorization_failed
    assert mine.error_code is ErrorCode.none


def test_authorized_operations_are_reported_on_request(cluster: Cluster) -> None:
    """KIP-430: a bit for each operation."""
    cluster.create("t")
    cluster.deny(Operation.DELETE, AclResourceType.TOPIC, "t")
    assert ask_for(cluster, "t").topics[0].topic_authorized_operations == OPERATIONS_NOT_REQUESTED
    told = ask_for(cluster, "t", include_topic_authorized_operations=True).topics[0]
    assert told.topic_authorized_operations == 0b1101_1011_1000
    reply = ask_for(cluster, version=8, include_cluster_authorized_operations=True)
    assert reply.cluster_authorized_operations == 0b1_1111_1010_0000
    assert ask_for(cluster, version=8).cluster_authorized_operations == OPERATIONS_NOT_REQUESTED
    cluster.deny(Operation.DESCRIBE, AclResourceType.CLUSTER)
    reply = ask_for(cluster, version=8, include_cluster_authorized_operations=True)
    assert reply.cluster_authorized_operations == 0


# In pages.


def page(cluster: Cluster, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    return cluster.call(
        Api.DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=[{"name": name} for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]},
    )


def told(reply: Any) -> list[tuple[str, list[int]]]:
    return [(topic.name, [each.partition_index for each in topic.partitions]) for topic in reply.topics]


def test_pages_put_together_are_all_topics(cluster: Cluster) -> None:
    """KIP-966: the cursor is where the next page begins."""
    for name, count in (("c", 3), ("a", 2), ("b", 1)):
        cluster.create(name, *[(1,)] * count)
    whole = [("a", 0), ("a", 1), ("b", 0), ("c", 0), ("c", 1), ("c", 2)]
    for limit in range(-1, 8):
        found, cursor, pages = [], None, 0
        while pages == 0 or cursor is not None:
            reply = page(cluster, limit=limit, cursor=cursor)
            here = [(name, number) for name, numbers in told(reply) for number in numbers]
            assert 1 <= len(here) <= max(limit, 1)
            found += here
            following = reply.next_cursor
            cursor = None if following is None else (following.topic_name, following.partition_index)
            pages += 1
        assert found == whole


def test_a_page_has_named_topics_in_order_and_says_which_are_not_there(cluster: Cluster) -> None:
    cluster.create("b", (1,), (1,))
    cluster.create("d")
    reply = page(cluster, "d", "c", "b", "not a name")
    assert told(reply) == [("b", [0, 1]), ("c", []), ("d", [0]), ("not a name", [])]
    assert [topic.error_code for topic in reply.topics] == [
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.none,
        ErrorCode.invalid_topic_exception,
    ]
    assert reply.topics[0].topic_id == cluster.topic_id("b")


def test_a_topic_deleted_between_two_pages_is_said_to_be_gone(cluster: Cluster) -> None:
    cluster.create("d")
    reply = page(cluster, "a", "c", "d", cursor=("c", 1))
    assert [(topic.name, topic.error_code.name) for topic in reply.topics] == [
        ("c", "unknown_topic_or_partition"),
        ("d", "none"),
    ]
    assert told(page(cluster, cursor=("c", 1))) == [("d", [0])]


def test_a_cursor_before_the_first_partition_is_refused(cluster: Cluster) -> None:
    cluster.create("t")
    reply = page(cluster, "t", cursor=("t", -1))
    assert [topic.error_code for topic in reply.topics] == [ErrorCode.invalid_request]
    assert page(cluster, cursor=("t", -1)).topics == ()


@pytest.mark.parametrize("start", ["a", "k", "z"])
def test_a_cursor_that_is_none_of_the_named_topics_is_refused(cluster: Cluster, start: str) -> None:
    """DescribeTopicPartitionsRequestHandler: each named topic is told, in the client's order, and no other."""
    for name in ("t", "b", "k"):
        cluster.create(name)
    reply = page(cluster, "t", "gone", "b", cursor=(start, 0))
    assert [(topic.name, topic.error_code.name) for topic in reply.topics] == [
        ("t", "invalid_request"),
        ("gone", "invalid_request"),
        ("b", "invalid_request"),
    ]
    assert reply.next_cursor is None


def test_a_page_has_no_more_partitions_than_the_broker_allows() -> None:
    """max.request.partition.size.limit"""
    cluster = Cluster(static={"max.request.partition.size.limit": "2"})
    cluster.create("t", (1,), (1,), (1,))
    reply = page(cluster)
    assert told(reply) == [("t", [0, 1])]
    assert (reply.next_cursor.topic_name, reply.next_cursor.partition_index) == ("t", 2)


def test_a_page_tells_eligible_leaders(three: Cluster) -> None:
    """KIP-966: replicas that left the ISR while it was smaller than min.insync.replicas."""
    three.create("t", (1, 2), min_insync_replicas="2")
    three.fence(2)
    (partition,) = page(three, "t").topics[0].partitions
    assert (partition.isr_nodes, partition.eligible_leader_replicas) == ((1,), (2,))
    assert partition.offline_replicas == (2,)
    assert partition.last_known_elr == ()


def test_a_page_does_not_leak_topics(cluster: Cluster) -> None:
    cluster.create("secret")
    cluster.deny(Operation.DESCRIBE, AclResourceType.TOPIC, "secret")
    assert told(page(cluster)) == []
    (denied,) = page(cluster, "secret").topics
    assert (denied.error_code, denied.topic_id) == (ErrorCode.topic_authorization_failed, None)
