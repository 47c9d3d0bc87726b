"""Produce, on a whole node without sockets."""

from datetime import timedelta
from random import Random
from typing import Any

import pytest
from tests.nodes import StillClient, StillNode
from tests.wire_requests import fetch_all, produce_body
from tests.worlds import START_MS

from penstock.base.errors import ErrorCode
from penstock.records import build_batch
from penstock.vfs import FaultyDisk, MemoryDisk
from penstock.wire import Api


def batch(*values: bytes, producer: tuple[int, int, int] | None = None, **options: Any) -> bytes:
    if producer is not None:
        options |= {"producer_id": producer[0], "producer_epoch": producer[1], "base_sequence": producer[2]}
    return build_batch([(None, value, START_MS) for value in values], **options)


def send(
    client: StillClient,
    *partitions: tuple[int, bytes | None],
    topic: str | bytes = "orders",
    acks: int = -1,
    version: int = 12,
    timeout_ms: int = 1000,
    transactional_id: str | None = None,
) -> None:
    body = produce_body(version, [(topic, list(partitions))], acks, timeout_ms, transactional_id)
    client.send(Api.PRODUCE, version, body)


def result(reply: Any, at: int = 0) -> Any:
    [topic] = reply.responses
    return topic.partition_responses[at]


@pytest.fixture
def node() -> StillNode:
    node = StillNode()
    node.create_topic("orders", 3)
    return node


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
def test_every_version_is_answered_with_the_offset(node: StillNode, version: int, acks: int) -> None:
    topic_id = node.node.context.image.topics["orders"].id
    client = node.client()
    for offset in range(3):
        topic = topic_id if version >= 13 else "orders"
        send(client, (1, batch(b"x")), acks=acks, version=version, topic=topic)
        assert result(client.wait()).base_offset == offset
        assert fetch_all(node, "orders", 1) == [b"x"] * (offset + 1)


@pytest.mark.parametrize("version", [0, 1, 2, 14])
def test_versions_that_are_not_served_end_the_connection(node: StillNode, version: int) -> None:
    client = node.client()
    client.feed(b"\0\0\0\x0e\0\0" + version.to_bytes(2, "big") + b"\0\0\0\x01\xff\xff\0\0\0\0")
    assert client.transport.is_closed


def test_many_partitions_are_answered_together_each_with_its_own_fate(node: StillNode) -> None:
    client = node.client()
    broken = bytearray(batch(b"torn"))
    broken[-1] ^= 1
    send(client, (0, batch(b"a", b"b")), (1, bytes(broken)), (9, batch(b"c")), (2, None))
    reply = client.wait()
    assert [
        (result(reply, at).index, result(reply, at).error_code.value, result(reply, at).base_offset)
        for at in range(4)
    ] == [
        (0, ErrorCode.NONE, 0),
        (1, ErrorCode.CORRUPT_MESSAGE, -1),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (2, ErrorCode.INVALID_RECORD, -1),
    ]
    assert "CRC" in result(reply, 1).error_message
    assert fetch_all(node, "orders", 0) == [b"a", b"b"]
    assert fetch_all(node, "orders", 1) == []


def test_acks_0_is_not_answered_and_an_error_ends_its_connection(node: StillNode) -> None:
    client = node.client()
    send(client, (0, batch(b"quiet")), acks=0)
    node.world.advance(100)
    assert client.transport.received == b""
    assert fetch_all(node, "orders", 0) == [b"quiet"]

    send(client, (7, batch(b"nowhere")), acks=0)
    assert client.transport.is_closed


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_other_acks_are_refused(node: StillNode, acks: int) -> None:
    client = node.client()
    send(client, (0, batch(b"x")), acks=acks)
    assert result(client.wait()).error_code.value == ErrorCode.INVALID_REQUIRED_ACKS


def test_a_retry_gets_the_offset_of_the_first_copy_also_after_a_crash(node: StillNode) -> None:
    client = node.client()
    for sequence in range(5):
        send(client, (0, batch(b"%d" % sequence, producer=(77, 0, sequence))))
        assert result(client.wait()).base_offset == sequence
    node.crash(Random(4))
    client = node.client()
    for sequence in range(5):
        send(client, (0, batch(b"%d" % sequence, producer=(77, 0, sequence))))
        reply = result(client.wait())
        assert (reply.error_code.value, reply.base_offset) == (0, sequence)
    assert fetch_all(node, "orders", 0) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_gap_in_the_sequence_is_refused(node: StillNode) -> None:
    client = node.client()
    send(client, (0, batch(b"0", producer=(77, 0, 0))))
    send(client, (0, batch(b"2", producer=(77, 0, 2))))
    assert result(client.wait()).error_code.value == 0
    assert result(client.wait()).error_code.value == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_transactions_are_refused_until_there_is_a_coordinator(node: StillNode) -> None:
    """With a code that older producers try again after."""
    client = node.client()
    send(client, (0, batch(b"x", producer=(7, 0, 0), transactional=True)), transactional_id="t")
    assert result(client.wait()).error_code.value == ErrorCode.NOT_ENOUGH_REPLICAS
    send(client, (0, batch(b"x", producer=(7, 0, 0), transactional=True)))
    assert result(client.wait()).error_code.value == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_log_append_time_is_reported() -> None:
    node = StillNode()
    node.create_topic("stamped", message_timestamp_type="LogAppendTime")
    client = node.client()
    now_ms = node.world.now_ms()
    send(client, (0, batch(b"x")), topic="stamped")
    assert int(result(client.wait()).log_append_time.timestamp() * 1000) == now_ms


def test_the_records_at_fault_are_named() -> None:
    """KIP-467: a producer may drop them and send the rest again."""
    node = StillNode()
    node.create_topic("keyed", cleanup_policy="compact")
    client = node.client()
    records = [(b"k", b"0", START_MS), (None, b"1", START_MS), (b"k", b"2", START_MS), (None, b"3", START_MS)]
    send(client, (0, build_batch(records)), topic="keyed")
    refused = result(client.wait())
    assert refused.error_code.value == ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in refused.record_errors] == [1, 3]


def test_a_full_disk_costs_the_batch_and_nothing_else() -> None:
    disk = FaultyDisk(MemoryDisk())
    node = StillNode(disk)
    node.create_topic("orders")
    client = node.client()
    send(client, (0, batch(b"before")))
    assert result(client.wait()).base_offset == 0

    full = disk.fail("write", path="*orders-0*.log")
    send(client, (0, batch(b"lost")))
    assert result(client.wait()).error_code.value == ErrorCode.KAFKA_STORAGE_ERROR
    full.cancel()
    send(client, (0, batch(b"after")))
    assert result(client.wait()).base_offset == 1
    assert fetch_all(node, "orders", 0) == [b"before", b"after"]


def test_requests_of_one_turn_are_one_write(node: StillNode) -> None:
    disk = node.disk
    assert isinstance(disk, MemoryDisk)
    writes: list[str] = []
    clients = [node.client() for _ in range(10)]
    disk.on_change = lambda *change: writes.append(str(change))
    for client in clients:
        send(client, (0, batch(b"x")), acks=1)
    node.world.advance(0)
    disk.on_change = None
    assert sorted(result(client.reply()).base_offset for client in clients) == list(range(10))
    assert len([each for each in writes if ".log" in each]) == 1


def test_the_remembered_beginning_of_requests_changes_nothing(node: StillNode) -> None:
    """The second request of a connection is matched with the first; other requests in between do no harm."""
    client = node.client()
    for offset in range(6):
        send(client, (offset % 2, batch(b"x")), acks=1)
        if offset % 3 == 0:
            client.ask(Api.API_VERSIONS, 0)
    replies = [client.wait() for _ in range(8)]
    offsets = [result(each).base_offset for each in replies if hasattr(each, "responses")]
    assert offsets == [0, 0, 1, 1, 2, 2]


def test_a_slow_disk_is_reported_in_time(node: StillNode) -> None:
    node.world.beside_ms = 5000
    client = node.client()
    send(client, (0, batch(b"x")), timeout_ms=300)
    assert result(client.wait()).error_code.value == ErrorCode.REQUEST_TIMED_OUT


def test_waiting_requests_fail_when_the_topic_is_deleted(node: StillNode) -> None:
    node.world.beside_ms = 300
    client, admin = node.client(), node.client()
    send(client, (0, batch(b"x")), timeout_ms=60_000)
    admin.ask(Api.DELETE_TOPICS, 5, topic_names=("orders",), timeout=timedelta(seconds=30))
    assert result(client.wait()).error_code.value in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    admin.wait()
    send(client, (0, batch(b"x")))
    assert result(client.wait()).error_code.value == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
