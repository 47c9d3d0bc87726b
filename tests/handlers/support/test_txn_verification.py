"""Produce within a transaction: what a partition's leader asks, and what it does with the answer."""

import pytest
from tests.handlers.producers import Txn, describe, read_committed, transactional_batch
from tests.nodes import StillNode
from tests.server.settings_scenes import Scene
from tests.wire_requests import fetch_all, produce_body

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TopicPartition
from penstock.handlers.support.txn_verification import ASK_AGAIN_MS, ASK_MS_MAX
from penstock.records import build_batch
from penstock.wire import Api

NONE = ErrorCode.NONE
FEW = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}


@pytest.fixture
def node() -> StillNode:
    node = StillNode(settings=FEW)
    node.create_topic("orders", 3)
    return node


def produced(
    node: StillNode,
    *partitions: tuple[int, bytes],
    transactional_id: str | None = "mine",
    version: int = 12,
    acks: int = -1,
) -> list[ErrorCode]:
    client = node.client()
    body = produce_body(version, [("orders", list(partitions))], acks, transactional_id=transactional_id)
    client.send(Api.PRODUCE, version, body)
    [topic] = client.wait().responses
    return [ErrorCode(each.error_code.value) for each in topic.partition_responses]


def txn(node: StillNode, name: str = "mine", speaks: int = 2) -> Txn:
    producer = Txn(node, name, speaks=speaks)
    assert producer.init() is NONE
    return producer


def batch_of(producer: Txn, *values: bytes, sequence: int = 0) -> bytes:
    return transactional_batch(producer.node, producer.producer_id, producer.epoch, sequence, *values)


def stable(node: StillNode, partition: int = 0) -> int:
    return node.node.context.replicas.find("orders", partition).last_stable


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_transactional_batch_needs_a_transactional_id(node: StillNode, partitions: int) -> None:
    producer = txn(node)
    batches = [(number, batch_of(producer, b"a")) for number in range(partitions)]
    codes = produced(node, *batches, transactional_id=None)
    assert codes == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * partitions
    assert fetch_all(node, "orders", 0) == []


def test_a_batch_of_another_producer_than_the_ids_is_refused(node: StillNode) -> None:
    producer, other = txn(node), txn(node, "other")
    wrong = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert produced(node, (0, batch_of(other, b"a"))) == [wrong]
    assert produced(node, (0, batch_of(other, b"a")), transactional_id="nobody") == [wrong]
    mixed = [(0, batch_of(other, b"a")), (1, batch_of(producer, b"b"))]
    assert produced(node, *mixed) == [wrong, wrong]
    assert fetch_all(node, "orders", 0) == fetch_all(node, "orders", 1) == []


def test_a_plain_batch_in_a_request_with_a_transactional_id_is_a_plain_batch(node: StillNode) -> None:
    assert produced(node, (0, build_batch([(None, b"a", node.world.now_ms())]))) == [NONE]
    assert read_committed(node, "orders", 0) == [b"a"]


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (10, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_an_older_client_must_have_added_the_partition(
    node: StillNode, version: int, code: ErrorCode
) -> None:
    producer = txn(node, speaks=1)
    assert produced(node, (0, batch_of(producer, b"a")), version=version) == [code]
    assert producer.add(("orders", 0)) is NONE
    assert produced(node, (0, batch_of(producer, b"a")), version=version) == [NONE]
    both = [(0, batch_of(producer, b"b", sequence=1)), (1, batch_of(producer, b"c"))]
    assert produced(node, *both, version=version) == [NONE, code]
    assert producer.end(commit=True) is NONE
    node.world.advance(100)
    assert produced(node, (0, batch_of(producer, b"d", sequence=2)), version=version) == [code]
    assert read_committed(node, "orders", 0) == [b"a", b"b"]


def test_a_newer_client_has_all_partitions_of_a_request_added_at_once(node: StillNode) -> None:
    producer = txn(node)
    assert produced(node, *((number, batch_of(producer, b"a")) for number in range(3))) == [NONE] * 3
    assert describe(node, "mine").topics[0].partitions == (0, 1, 2)
    assert producer.end(commit=True) is NONE
    node.world.advance(100)
    assert [read_committed(node, "orders", number) for number in range(3)] == [[b"a"]] * 3


def test_a_producer_that_nothing_is_known_of_begins_with_sequence_0(node: StillNode) -> None:
    producer = txn(node)
    assert produced(node, (0, batch_of(producer, b"a", sequence=3))) == [
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    ]
    assert produced(node, (0, batch_of(producer, b"a"))) == [NONE]


def test_the_coordinator_is_asked_once_for_each_partition_of_a_transaction(node: StillNode) -> None:
    producer = txn(node)
    written = (
        node.node.context.replicas.find("__transaction_state", 0),
        node.node.context.replicas.find("__transaction_state", 1),
    )
    before = sum(each.log.log_end for each in written)
    for number in range(5):
        assert producer.send("orders", 0, b"%d" % number) is NONE
    assert sum(each.log.log_end for each in written) == before + 1


def test_batches_that_were_sent_at_once_are_written_in_their_order(node: StillNode) -> None:
    """The first waits for the coordinator; those behind it wait for the first."""
    producer = txn(node)
    for number in range(4):
        producer.produce("orders", number % 2, b"%d" % number)
    assert [producer.sent() for _ in range(4)] == [NONE] * 4
    assert fetch_all(node, "orders", 0) == [b"0", b"2"]
    assert fetch_all(node, "orders", 1) == [b"1", b"3"]


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("fsync", ["alone", "never"])
def test_a_batch_that_waited_is_written_whatever_its_acks(acks: int, fsync: str) -> None:
    node = StillNode(settings={**FEW, "durability.fsync": fsync})
    node.create_topic("orders", 3)
    producer = txn(node)
    client = node.client()
    records = bytearray(batch_of(producer, b"a"))
    client.send(
        Api.PRODUCE, 12, produce_body(12, [("orders", [(0, bytes(records))])], acks, transactional_id="mine")
    )
    other = node.client()
    other.send(Api.PRODUCE, 12, produce_body(12, [("orders", [(1, build_batch([(None, b"z", 0)]))])], 1))
    if acks:
        assert client.wait().responses[0].partition_responses[0].base_offset == 0
    node.world.advance(100)
    assert not client.transport.is_closed
    assert fetch_all(node, "orders", 0) == [b"a"]


def test_a_refusal_with_acks_0_ends_the_connection(node: StillNode) -> None:
    producer = txn(node)
    producer.epoch += 1
    client = node.client()
    body = produce_body(12, [("orders", [(0, batch_of(producer, b"a"))])], 0, transactional_id="mine")
    client.send(Api.PRODUCE, 12, body)
    node.world.advance(10)
    assert client.transport.is_closed


def test_the_question_is_asked_again_while_the_last_transaction_ends(node: StillNode) -> None:
    producer = txn(node)
    assert producer.send("orders", 0, b"a") is NONE
    held = hold_markers(node)
    assert producer.end(commit=True) is NONE
    node.world.advance(50)  # markers are tried again after 100 ms
    producer.produce("orders", 0, b"b")
    node.world.advance(ASK_AGAIN_MS + 5)
    assert producer.client.reply() is None
    held.release()
    assert producer.sent() is NONE
    assert producer.end(commit=True) is NONE
    node.world.advance(200)
    assert read_committed(node, "orders", 0) == [b"a", b"b"]


def test_it_is_not_asked_for_ever(node: StillNode) -> None:
    producer = txn(node)
    assert producer.send("orders", 0, b"a") is NONE
    held = hold_markers(node)
    assert producer.end(commit=True) is NONE
    began_ms = node.world.now_ms()
    producer.produce("orders", 0, b"b")
    assert producer.sent() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert ASK_MS_MAX <= node.world.now_ms() - began_ms <= ASK_MS_MAX + 2 * ASK_AGAIN_MS
    held.release()
    node.world.advance(200)
    assert read_committed(node, "orders", 0) == [b"a"]


class hold_markers:  # noqa: N801  (it reads as what it does)
    """Have markers fail until they are let go, as where the leader of a partition is away."""

    def __init__(self, node: StillNode) -> None:
        self._partition = node.node.context.replicas.find("orders", 0)
        self._partition.isr_size = 0

    def release(self) -> None:
        self._partition.isr_size = 1


def test_an_answer_does_not_count_where_a_marker_came_meanwhile(node: StillNode) -> None:
    """What was asked for is asked again: the batch is part of the transaction that is open then, or of none."""
    producer = txn(node)
    assert producer.send("orders", 0, b"a") is NONE
    assert producer.end(commit=True) is NONE
    node.world.advance(100)
    producer.produce("orders", 0, b"b")
    ended: list[object] = []
    node.node.context.markers.append(
        TopicPartition("orders", 0), producer.producer_id, producer.epoch, 0, False
    ).then(ended.append)
    assert producer.sent() is NONE
    assert ended == [None]
    assert producer.end(commit=True) is NONE
    node.world.advance(100)
    assert read_committed(node, "orders", 0) == [b"a", b"b"]


def test_a_producer_that_was_fenced_while_it_waited_is_refused(node: StillNode) -> None:
    producer = txn(node)
    producer.produce("orders", 0, b"a")
    ended: list[object] = []
    node.node.context.markers.append(
        TopicPartition("orders", 0), producer.producer_id, producer.epoch + 1, 0, False
    ).then(ended.append)
    assert producer.sent() is ErrorCode.INVALID_PRODUCER_EPOCH
    assert fetch_all(node, "orders", 0) == []
    assert stable(node) == 1


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_batch_that_waited_too_long_for_its_partition_is_refused(node: StillNode, partitions: int) -> None:
    producer = txn(node)
    client = node.client()
    batches = [(number, batch_of(producer, b"a")) for number in range(partitions)]
    client.send(Api.PRODUCE, 12, produce_body(12, [("orders", batches)], transactional_id="mine"))
    gone = KafkaError("orders-0 is led elsewhere", ErrorCode.NOT_LEADER_OR_FOLLOWER)
    node.node.context.replicas.find("orders", 0).step_down(gone)
    [topic] = client.wait().responses
    codes = [ErrorCode(each.error_code.value) for each in topic.partition_responses]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, NONE][:partitions]


@pytest.mark.parametrize("at_run_time", [False, True])
def test_partitions_are_not_verified_without_need(at_run_time: bool) -> None:
    """`transaction.partition.verification.enable`; a client that speaks version 2 has them added all the same."""
    name = "transaction.partition.verification.enable"
    node = StillNode(settings=FEW if at_run_time else {**FEW, name: "false"})
    node.create_topic("orders", 3)
    if at_run_time:
        assert Scene(node).alter(4, "", name, "false") == 0
    old, new = txn(node, speaks=1), txn(node, "new")
    assert produced(node, (0, batch_of(old, b"a")), version=11) == [NONE]
    assert describe(node, "mine").transaction_state == "Empty"
    assert produced(node, (1, batch_of(new, b"a")), transactional_id="new") == [NONE]
    assert describe(node, "new").transaction_state == "Ongoing"
