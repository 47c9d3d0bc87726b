"""FindCoordinator: who keeps a group or a transactional id, and how the topic comes to be that keeps it."""

from typing import Any

import pytest
from tests.handlers.cluster import Cluster

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.hashing import partition_for
from penstock.metadata.acls import AclResourceType, Operation
from penstock.wire import Api

GROUP, TRANSACTION, SHARE = 0, 1, 2


def find(cluster: Cluster, key: str = "g", kind: int = GROUP, version: int = 6) -> Any:
    reply = cluster.call(Api.FIND_COORDINATOR, version, key=key, coordinator_keys=[key], key_type=kind)
    return reply.coordinators[0] if version >= 4 else reply


@pytest.mark.parametrize("version", range(7))
def test_the_coordinator_is_the_leader_of_the_keys_partition(version: int, three: Cluster) -> None:
    found = find(three, version=version)
    topic = three.image.topics["__consumer_offsets"]
    leader = topic.partitions[partition_for("g", 50)].leader
    assert (found.error_code.value, found.node_id) == (0, leader)
    broker = three.image.brokers[leader].endpoints[0]
    expected = ("127.0.0.1", 9092) if leader == 1 else (broker.host, broker.port)
    assert (found.host, found.port) == expected
    if version >= 4:
        assert found.key == "g"


def test_transactional_ids_are_kept_in_another_topic(three: Cluster) -> None:
    assert find(three, kind=TRANSACTION).error_code.value == 0
    assert set(three.image.topics) == {"__transaction_state"}


def test_a_topic_is_created_even_where_topics_are_not_created_when_asked_for() -> None:
    cluster = Cluster(static={"auto.create.topics.enable": "false"})
    assert find(cluster).error_code.value == 0


def test_many_keys_are_found_at_once_and_each_has_its_own_answer(three: Cluster) -> None:
    three.deny(Operation.DESCRIBE, AclResourceType.GROUP, "b")
    reply = three.call(Api.FIND_COORDINATOR, 6, coordinator_keys=["a", "b", "c"])
    assert [(each.key, each.error_code.value) for each in reply.coordinators] == [
        ("a", 0),
        ("b", 30),
        ("c", 0),
    ]
    denied = reply.coordinators[1]
    assert (denied.node_id, denied.host, denied.port) == (-1, "", -1)
    assert denied.error_message == "not authorized for this group"


def test_who_may_not_describe_does_not_create(cluster: Cluster) -> None:
    cluster.deny(Operation.DESCRIBE, AclResourceType.GROUP)
    cluster.deny(Operation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID)
    assert find(cluster).error_code.value == 30
    assert find(cluster, kind=TRANSACTION).error_code.value == 53
    assert not cluster.image.topics


@pytest.mark.parametrize("kind", [SHARE, 3, -1])
@pytest.mark.parametrize("version", [1, 3, 4, 6])
def test_other_types_of_keys_are_refused(kind: int, version: int, cluster: Cluster) -> None:
    found = find(cluster, kind=kind, version=version)
    assert (found.error_code.value, found.node_id) == (42, -1)
    assert found.error_message
    assert not cluster.image.topics


def test_a_partition_without_a_leader_has_no_coordinator(three: Cluster) -> None:
    assert find(three).error_code.value == 0
    for broker in (2, 3):
        three.fence(broker)
    topic = three.image.topics["__consumer_offsets"]
    assert {each.leader for each in topic.partitions.values()} == {1}
    three.fence(1)
    assert find(three).error_code.value == 15


def test_where_the_topic_cannot_be_created_the_client_is_to_ask_again(cluster: Cluster) -> None:
    cluster.port.refusal = KafkaError("no leader", ErrorCode.NOT_CONTROLLER)
    assert find(cluster).error_code.value == 15
    cluster.port.refusal = None
    assert find(cluster).error_code.value == 0


def test_where_the_topic_takes_too_long_the_client_is_to_ask_again(cluster: Cluster) -> None:
    cluster.port.hold()
    later = cluster.ask(Api.FIND_COORDINATOR, 6, coordinator_keys=["g"])
    assert not later.is_settled
    cluster.world.advance(5000)
    assert later.value.coordinators[0].error_code.value == 15
    cluster.port.release()
    assert find(cluster).error_code.value == 0


def test_two_clients_that_come_first_find_the_same(cluster: Cluster) -> None:
    cluster.port.hold()
    asked = [cluster.ask(Api.FIND_COORDINATOR, 6, coordinator_keys=["g"]) for _ in range(2)]
    cluster.port.release()
    assert [each.value.coordinators[0].error_code.value for each in asked] == [0, 0]
