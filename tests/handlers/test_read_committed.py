"""What readers of committed data are given, and when."""

import pytest
from tests.handlers.producers import Txn, read_committed
from tests.nodes import StillClient, StillNode
from tests.wire_requests import fetch_body, values_in

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.records import build_batch
from penstock.wire import Api, request_module

NONE = ErrorCode.NONE
FEW = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}


@pytest.fixture
def node() -> StillNode:
    node = StillNode(settings=FEW)
    node.create_topic("orders", 1)
    return node


def txn(node: StillNode, name: str = "mine") -> Txn:
    producer = Txn(node, name)
    assert producer.init() is NONE
    return producer


def fetch(client: StillClient, offset: int = 0, **options: int) -> None:
    options = {"isolation_level": 1, **options}
    client.send(Api.FETCH, 12, fetch_body(12, [("orders", [(0, offset)])], **options))


def latest(node: StillNode, isolation_level: int) -> int:
    module = request_module(Api.LIST_OFFSETS, 8)
    one = module.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = (module.ListOffsetsTopic(name="orders", partitions=(one,)),)
    reply = node.client().call(
        Api.LIST_OFFSETS, 8, replica_id=-1, isolation_level=isolation_level, topics=topics
    )
    return int(reply.topics[0].partitions[0].offset)


@pytest.mark.parametrize("min_bytes", [1, 150, 5000])
@pytest.mark.parametrize("commit", [True, False])
def test_a_reader_that_waits_is_woken_by_the_end_of_the_transaction(
    node: StillNode, min_bytes: int, commit: bool
) -> None:
    """Not by its records, of which it sees nothing; and not only for as many bytes as the marker has."""
    producer = txn(node)
    reader = node.client()
    fetch(reader, max_wait_ms=5000, min_bytes=min_bytes)
    assert producer.send("orders", 0, b"x" * 6000) is NONE
    node.world.advance(50)
    assert reader.reply() is None
    assert producer.end(commit=commit) is NONE
    node.world.advance(50)
    [answered] = reader.reply().responses[0].partitions
    assert values_in(answered.records) == [b"x" * 6000]
    skipped = [(each.producer_id, each.first_offset) for each in answered.aborted_transactions]
    assert skipped == ([] if commit else [(producer.producer_id, 0)])


def test_a_marker_that_is_not_written_yet_has_decided_nothing(node: StillNode) -> None:
    """Between a marker's staging and its write, in one turn, a reader must not see what it aborts."""
    producer = txn(node)
    assert producer.send("orders", 0, b"never") is NONE
    partition = node.node.context.replicas.find("orders", 0)
    node.node.context.markers.append(
        TopicPartition("orders", 0), producer.producer_id, producer.epoch, 0, False
    )
    assert partition.log.producers.first_undecided is None
    assert partition.last_stable == 0
    reader = node.client()
    fetch(reader)
    node.world.advance(10)
    [answered] = reader.reply().responses[0].partitions
    assert (answered.last_stable_offset, answered.records or b"") == (0, b"")
    assert partition.last_stable == 2
    assert read_committed(node, "orders", 0) == []


def test_only_those_aborted_transactions_are_told_that_the_returned_records_are_of(node: StillNode) -> None:
    producer = txn(node)
    for number in range(4):
        assert producer.send("orders", 0, b"%d" % number * 500) is NONE
        assert producer.end(commit=False) is NONE
        node.world.advance(50)
    reader = node.client()
    for first in range(0, 8, 2):
        for offset in (first, first + 1):
            fetch(reader, offset, partition_bytes=1)
            [answered] = reader.wait().responses[0].partitions
            told = [each.first_offset for each in answered.aborted_transactions]
            assert told == [first], "of the transaction that the one batch belongs to, or ends"
    fetch(reader, 8)
    [answered] = reader.wait().responses[0].partitions
    assert (answered.records or b"", answered.aborted_transactions) == (b"", ())
    fetch(reader, 0)
    [answered] = reader.wait().responses[0].partitions
    assert [each.first_offset for each in answered.aborted_transactions] == [0, 2, 4, 6]


def test_the_end_is_the_last_stable_offset(node: StillNode) -> None:
    client = node.client()
    plain = build_batch([(None, b"plain", node.world.now_ms())])
    from_producer = txn(node)
    partition = node.node.context.replicas.find("orders", 0)
    partition.stage(memoryview(bytearray(plain)), 1, node.world.now_ms())
    node.world.advance(1)
    assert from_producer.send("orders", 0, b"open") is NONE
    assert (latest(node, 0), latest(node, 1)) == (2, 1)
    fetch(client, 0)
    [answered] = client.wait().responses[0].partitions
    assert values_in(answered.records) == [b"plain"]
    assert (answered.high_watermark, answered.last_stable_offset) == (2, 1)
    assert from_producer.end(commit=True) is NONE
    node.world.advance(50)
    assert (latest(node, 0), latest(node, 1)) == (3, 3)


def test_aborted_transactions_are_known_after_a_crash_and_in_older_segments() -> None:
    node = StillNode(settings=FEW)
    node.create_topic("orders", 1, segment_bytes="1000")
    producer = txn(node)
    expected = []
    for number in range(9):
        value = b"%d" % number * 300
        assert producer.send("orders", 0, value) is NONE
        assert producer.end(commit=number % 2 == 0) is NONE
        node.world.advance(50)
        expected += [value] if number % 2 == 0 else []
    assert len(node.node.context.replicas.find("orders", 0).log.segments) > 3
    assert read_committed(node, "orders", 0) == expected
    node.crash()
    assert read_committed(node, "orders", 0) == expected
    assert read_committed(node, "orders", 0, partition_bytes=1) == expected
