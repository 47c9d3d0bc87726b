"""What clients are told by a leader that may be deposed, on a whole node without sockets.

The node's partitions have a second replica as far as it knows, and it has lost touch with its controller.
"""

from typing import Any

import pytest
from tests.handlers.members import Groups, Member, gather
from tests.handlers.producers import Txn
from tests.nodes import StillNode
from tests.placing import placed
from tests.wire_requests import fetch_body, produce_body
from tests.worlds import START_MS

from penstock.base.errors import ErrorCode
from penstock.records import build_batch
from penstock.wire import Api

NONE = ErrorCode.NONE
NOT_LEADER, NOT_COORDINATOR = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR
FEW = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}


def lose_touch(node: StillNode, *, replicas: tuple[int, ...] = (1, 2)) -> None:
    """All that it leads has these replicas, of which it alone is in sync; and its controller is not heard."""
    held = node.node.context.replicas
    assert held.isr_changes is not None
    held.isr_changes.has_lease = lambda: False
    for partition in held.partitions.values():
        partition.lead(
            placed(
                partition.leader_epoch,
                replicas=replicas,
                isr=(1,),
                partition_epoch=partition.partition_epoch + 1,
            ),
            1,
        )


def regain_lease(node: StillNode) -> None:
    changes = node.node.context.replicas.isr_changes
    assert changes is not None
    changes.has_lease = lambda: True


@pytest.fixture
def node() -> StillNode:
    node = StillNode(settings=FEW)
    node.create_topic("orders", 2)
    return node


def produce(
    node: StillNode, sequence: int, *, epoch: int = 0, partitions: tuple[int, ...] = (0,)
) -> ErrorCode:
    """A batch of producer 7 for each of the partitions; what the first is told."""
    client = node.client()
    data = build_batch([(None, b"x", START_MS)], producer_id=7, producer_epoch=epoch, base_sequence=sequence)
    body = produce_body(12, [("orders", [(each, data) for each in partitions])], -1, 1000)
    client.send(Api.PRODUCE, 12, body)
    return ErrorCode(client.wait().responses[0].partition_responses[0].error_code.value)


@pytest.mark.parametrize("partitions", [(0,), (0, 1)])
def test_a_producer_that_wrote_elsewhere_meanwhile_is_not_out_of_order(
    node: StillNode, partitions: tuple[int, ...]
) -> None:
    assert produce(node, 0, epoch=1, partitions=partitions) is NONE
    lose_touch(node)
    assert produce(node, 5, epoch=1, partitions=partitions) is NOT_LEADER
    assert produce(node, 1, epoch=0, partitions=partitions) is NOT_LEADER
    regain_lease(node)
    assert produce(node, 5, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(node, 1, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_what_comes_next_is_written_all_the_same(node: StillNode) -> None:
    """While no controller is there, leaders are what they were."""
    assert produce(node, 0) is NONE
    lose_touch(node)
    assert produce(node, 1) is NONE
    assert produce(node, 0) is NONE, "a retry"


def test_what_is_wrong_whoever_leads_is_reported_as_it_is(node: StillNode) -> None:
    lose_touch(node)
    client = node.client()
    broken = bytearray(build_batch([(None, b"x", START_MS)]))
    broken[-1] ^= 1
    client.send(Api.PRODUCE, 12, produce_body(12, [("orders", [(0, bytes(broken))])], -1, 1000))
    [result] = client.wait().responses[0].partition_responses
    assert result.error_code.value == ErrorCode.CORRUPT_MESSAGE


def test_the_only_replica_of_a_partition_has_the_last_word(node: StillNode) -> None:
    assert produce(node, 0) is NONE
    lose_touch(node, replicas=(1,))
    assert produce(node, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def fetch(node: StillNode, offset: int) -> Any:
    client = node.client()
    client.send(Api.FETCH, 12, fetch_body(12, [("orders", [(0, offset)])]))
    [result] = client.wait().responses[0].partitions
    return result


def test_a_consumer_that_read_elsewhere_meanwhile_is_not_out_of_range(node: StillNode) -> None:
    """It would begin anew, at the beginning or the end."""
    assert produce(node, 0) is NONE
    lose_touch(node)
    assert fetch(node, 9).error_code.value == NOT_LEADER
    assert fetch(node, 0).error_code.value == NONE
    regain_lease(node)
    assert fetch(node, 9).error_code.value == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("speaks", [1, 2])
def test_a_transaction_that_began_elsewhere_is_not_ended_from_memory(node: StillNode, speaks: int) -> None:
    """Neither refused nor, where an old client's transactions look alike, said to be done: the one before was."""
    producer = Txn(node, "mine", speaks=speaks)
    assert producer.init() is NONE
    assert producer.send("orders", 0, b"a") is NONE
    assert producer.end(commit=True) is NONE
    node.world.advance(100)
    lose_touch(node)
    assert producer.end(commit=True) is NOT_COORDINATOR
    regain_lease(node)
    assert producer.end(commit=True) is (ErrorCode.INVALID_TXN_STATE if speaks == 2 else NONE)


def test_a_producer_that_was_initialised_elsewhere_is_not_fenced(node: StillNode) -> None:
    producer = Txn(node, "mine")
    assert producer.init() is NONE
    lose_touch(node)
    producer.epoch += 1
    assert producer.add(("orders", 0)) is NOT_COORDINATOR
    assert producer.add(("orders", 0), version=5, verify_only=True) is NOT_COORDINATOR
    producer.producer_id += 1
    assert producer.end(commit=False) is NOT_COORDINATOR
    regain_lease(node)
    assert producer.end(commit=False) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_transactions_go_on_without_a_controller(node: StillNode) -> None:
    producer = Txn(node, "mine")
    assert producer.init() is NONE
    lose_touch(node)
    for value in (b"a", b"b"):
        assert producer.send("orders", 0, value) is NONE
        assert producer.end(commit=True) is NONE


def member(scene: Groups) -> Member:
    member = scene.member(instance="mine")
    gather(member)
    return member


def test_a_static_member_that_joined_elsewhere_is_not_fenced() -> None:
    scene = Groups()
    known = member(scene)
    lose_touch(scene.node)
    assert known.heartbeat() == NONE
    assert known.commit(4) == NONE
    known.id = "another"
    assert known.heartbeat() == NOT_COORDINATOR
    assert known.commit(5) == NOT_COORDINATOR
    regain_lease(scene.node)
    assert known.heartbeat() == ErrorCode.FENCED_INSTANCE_ID


def test_a_held_commit_of_a_static_member_that_joined_elsewhere_is_not_refused_for_good() -> None:
    """Commits that come in quick succession are decided together."""
    scene = Groups({"group.coordinator.append.linger.ms": "5"})
    known = member(scene)
    lose_touch(scene.node)
    assert known.commit(4) == NONE
    held, known.id = known.id, "another"
    assert known.commit(5) == NOT_COORDINATOR
    known.id = held
    assert known.commit(6) == NONE
    assert scene.committed() == 6


def test_a_member_that_has_to_join_again_gets_rebalance_in_progress() -> None:
    """No controller may be there for long, and members come and go meanwhile."""
    scene = Groups()
    known = member(scene)
    lose_touch(scene.node)
    known.generation += 1
    assert known.heartbeat() == ErrorCode.ILLEGAL_GENERATION
    known.instance, known.id = None, "another"
    assert known.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    known.id = ""
    gather(known)
    assert known.heartbeat() == NONE
