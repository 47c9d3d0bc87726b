"""Fetch, on a whole node without sockets."""

from datetime import timedelta
from typing import Any

import pytest
from tests.nodes import StillClient, StillNode
from tests.placing import placed
from tests.wire_requests import fetch_body, produce_body, values_in
from tests.worlds import START_MS

from penstock.base.errors import ErrorCode
from penstock.records import build_batch, iter_batches
from penstock.wire import Api


@pytest.fixture
def node() -> StillNode:
    node = StillNode()
    node.create_topic("orders", 3)
    return node


def produce(node: StillNode, partition: int, *values: bytes, topic: str = "orders", acks: int = 1) -> int:
    client = node.client()
    data = build_batch([(None, value, START_MS) for value in values])
    client.send(Api.PRODUCE, 12, produce_body(12, [(topic, [(partition, data)])], acks))
    offset: int = client.wait().responses[0].partition_responses[0].base_offset
    return offset


def ask(client: StillClient, *partitions: tuple[int, int], version: int = 12, **options: Any) -> None:
    topic = options.pop("topic", "orders")
    client.send(Api.FETCH, version, fetch_body(version, [(topic, partitions)], **options))


def results(reply: Any) -> dict[int, Any]:
    return {each.partition_index: each for topic in reply.responses for each in topic.partitions}


def size(partition: Any) -> int:
    return len(partition.records or b"")


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_gives_the_batches(node: StillNode, version: int) -> None:
    produce(node, 1, b"a", b"b")
    produce(node, 1, b"c")
    topic_id = node.node.context.image.topics["orders"].id
    client = node.client()
    ask(client, (1, 0), version=version, topic=topic_id if version >= 13 else "orders")
    [result] = results(client.wait()).values()
    assert (result.error_code.value, result.high_watermark, result.last_stable_offset) == (0, 3, 3)
    assert values_in(result.records) == [b"a", b"b", b"c"]


def test_a_fetch_inside_a_batch_returns_that_batch(node: StillNode) -> None:
    produce(node, 0, b"a", b"b", b"c")
    client = node.client()
    ask(client, (0, 2))
    [batch] = iter_batches(bytearray(results(client.wait())[0].records))
    assert (batch.base_offset, batch.last_offset) == (0, 2)


def test_the_first_partition_with_records_gives_a_batch_however_small_the_limits(node: StillNode) -> None:
    for partition in range(3):
        produce(node, partition, b"x" * 1000)
        produce(node, partition, b"y" * 1000)
    client = node.client()
    ask(client, (0, 2), (1, 0), (2, 0), max_bytes=1, partition_bytes=1)
    found = results(client.wait())
    assert [len(values_in(found[each].records)) for each in range(3)] == [0, 1, 0]


def test_limits_hold_for_each_partition_and_for_all(node: StillNode) -> None:
    for partition in range(3):
        for _ in range(10):
            produce(node, partition, b"x" * 1000)
    client = node.client()
    ask(client, (0, 0), (1, 0), (2, 0), partition_bytes=5000, max_bytes=8000)
    found = results(client.wait())
    assert [size(found[each]) for each in range(3)] == [5000, 3000, 0]


def test_the_brokers_own_limit_holds() -> None:
    node = StillNode(settings={"fetch.max.bytes": "2048"})
    node.create_topic("orders")
    for _ in range(10):
        produce(node, 0, b"x" * 1000)
    client = node.client()
    ask(client, (0, 0))
    assert 1000 < size(results(client.wait())[0]) <= 2048


@pytest.mark.parametrize(("partition", "offset"), [(0, 0), (0, 2), (1, 0), (0, 1000)])
@pytest.mark.parametrize("isolation", [0, 1])
def test_an_epoch_that_the_log_does_not_know_is_out_of_range(
    node: StillNode, partition: int, offset: int, isolation: int
) -> None:
    """Partition.readRecords: the end of the last fetched epoch cannot be told."""
    produce(node, 0, b"a", b"b")
    client = node.client()
    ask(client, (partition, offset), last_fetched_epoch=5, isolation_level=isolation, max_wait_ms=10_000)
    [result] = results(client.wait()).values()
    assert result.error_code.value == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (result.high_watermark, size(result)) == (-1, 0)


def test_a_reader_gets_the_offset_where_its_log_diverges(node: StillNode) -> None:
    """KIP-595: at once, without records, and before its offset is looked at."""
    produce(node, 0, b"a", b"b")
    partition = node.node.context.replicas.find("orders", 0)
    partition.lead(placed(4), min_isr=1)
    produce(node, 0, b"c")
    client = node.client()

    def told(offset: int, epoch: int) -> tuple[int, int, int, int]:
        ask(client, (0, offset), last_fetched_epoch=epoch, max_wait_ms=10_000)
        node.world.advance(0)
        reply = client.reply()
        assert reply is not None, "there is nothing to wait for"
        result = results(reply)[0]
        parted = result.diverging_epoch
        return result.error_code.value, size(result), parted.epoch, parted.end_offset

    assert told(3, 0) == (0, 0, 0, 2), "epoch 0 ended at 2, and it has more of it"
    assert told(1000, 4) == (0, 0, 4, 3)
    assert told(2, 3) == (0, 0, 0, 2), "nothing was written in epoch 3"
    for offset, epoch in ((0, 0), (2, 0), (2, 4)):
        code, bytes_told, parted, _ = told(offset, epoch)
        assert (code, parted) == (0, -1)
        assert bytes_told


def test_a_long_poll_is_answered_when_there_is_enough(node: StillNode) -> None:
    client = node.client()
    ask(client, (0, 0), (1, 0), max_wait_ms=10_000, min_bytes=2200)
    node.world.advance(100)
    produce(node, 0, b"x" * 1000)
    node.world.advance(100)
    assert client.reply() is None
    produce(node, 1, b"x" * 1000)
    assert client.reply() is None
    produce(node, 1, b"x" * 1000)
    node.world.advance(0)
    found = results(client.reply())
    assert (len(values_in(found[0].records)), len(values_in(found[1].records))) == (1, 2)


def test_a_long_poll_ends_in_time_with_what_there_is(node: StillNode) -> None:
    client = node.client()
    ask(client, (0, 0), max_wait_ms=500, min_bytes=5000)
    produce(node, 0, b"few")
    node.world.advance(490)
    assert client.reply() is None
    node.world.advance(15)
    assert values_in(results(client.reply())[0].records) == [b"few"]


def test_a_long_poll_does_not_outlive_its_client(node: StillNode) -> None:
    client = node.client()
    ask(client, (0, 0), max_wait_ms=2**31 - 1)
    client.connection.connection_lost(None)
    produce(node, 0, b"x")
    assert client.connection.session.state.fetch is None


def test_a_long_poll_on_a_topic_that_is_deleted_is_answered(node: StillNode) -> None:
    client, admin = node.client(), node.client()
    ask(client, (0, 0), max_wait_ms=60_000)
    admin.call(Api.DELETE_TOPICS, 5, topic_names=("orders",), timeout=timedelta(seconds=5))
    assert results(client.wait())[0].error_code.value == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("partition", "offset", "options", "code"),
    [
        (9, 0, {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, 2, {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (0, -1, {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (0, 0, {"leader_epoch": 7}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (0, 0, {"topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, 0, {"topic": bytes(15) + b"\xff", "version": 13}, ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
def test_an_error_is_reported_at_once(
    node: StillNode, partition: int, offset: int, options: dict[str, Any], code: ErrorCode
) -> None:
    produce(node, 0, b"x")
    client = node.client()
    ask(client, (partition, offset), max_wait_ms=10_000, **options)
    node.world.advance(0)
    assert results(client.reply())[partition].error_code.value == code


def test_nothing_that_is_not_visible_is_given(node: StillNode) -> None:
    """An offset at the high watermark is in range, and has nothing yet."""
    produce(node, 0, b"x")
    client = node.client()
    ask(client, (0, 1))
    result = results(client.wait())[0]
    assert (result.error_code.value, size(result)) == (0, 0)


class TestSessions:
    """KIP-227."""

    def open(self, client: StillClient, *partitions: tuple[int, int]) -> int:
        ask(client, *partitions, session=(0, 0))
        reply = client.wait()
        assert set(results(reply)) == {number for number, _ in partitions}
        assert reply.session_id > 0
        return int(reply.session_id)

    def test_only_what_is_new_is_told(self, node: StillNode) -> None:
        client = node.client()
        session = self.open(client, (0, 0), (1, 0), (2, 0))
        produce(node, 1, b"news")
        ask(client, session=(session, 1))
        reply = client.wait()
        assert reply.session_id == session
        assert {number: values_in(each.records) for number, each in results(reply).items()} == {1: [b"news"]}

        ask(client, (1, 1), session=(session, 2))
        assert results(client.wait()) == {}

    def test_partitions_come_and_go(self, node: StillNode) -> None:
        client = node.client()
        session = self.open(client, (0, 0))
        produce(node, 0, b"a")
        produce(node, 2, b"c")
        ask(client, (2, 0), session=(session, 1), forgotten=[("orders", (0,))])
        assert {number: values_in(each.records) for number, each in results(client.wait()).items()} == {
            2: [b"c"]
        }

    def test_an_error_is_told_again_and_so_is_its_end(self, node: StillNode) -> None:
        client = node.client()
        ask(client, (0, 5), session=(0, 0))
        session = client.wait().session_id
        ask(client, session=(session, 1))
        assert results(client.wait())[0].error_code.value == ErrorCode.OFFSET_OUT_OF_RANGE
        ask(client, (0, 0), session=(session, 2))
        assert results(client.wait())[0].error_code.value == 0

    def test_what_does_not_fit_is_refused(self, node: StillNode) -> None:
        client = node.client()
        session = self.open(client, (0, 0))
        for attempt, code in [
            ((session, 2), ErrorCode.INVALID_FETCH_SESSION_EPOCH),
            ((session ^ 1, 1), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        ]:
            ask(client, session=attempt)
            assert client.wait().error_code.value == code
        client.send(Api.FETCH, 13, fetch_body(13, [], session=(session, 1)))
        assert client.wait().error_code.value == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR

    def test_a_session_can_be_ended(self, node: StillNode) -> None:
        client = node.client()
        session = self.open(client, (0, 0))
        ask(client, (0, 0), session=(session, -1))
        reply = client.wait()
        assert (reply.session_id, set(results(reply))) == (0, {0})
        ask(client, session=(session, 1))
        assert client.wait().error_code.value == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    def test_where_there_is_no_room_a_fetch_is_served_without(self) -> None:
        node = StillNode(settings={"max.incremental.fetch.session.cache.slots": "1"})
        node.create_topic("orders", 3)
        client = node.client()
        first = self.open(client, (0, 0))
        ask(client, (0, 0), session=(0, 0))
        assert client.wait().session_id == 0
        node.world.advance(121_000)
        self.open(client, (0, 0))
        ask(client, session=(first, 1))
        assert client.wait().error_code.value == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    def test_a_partition_that_gave_records_goes_to_the_end_of_the_line(self, node: StillNode) -> None:
        for partition in range(3):
            for _ in range(3):
                produce(node, partition, b"x" * 500)
        client = node.client()
        ask(client, (0, 0), (1, 0), (2, 0), session=(0, 0), max_bytes=1)
        reply = client.wait()
        session = reply.session_id
        order = [number for number, each in results(reply).items() if size(each)]
        for epoch in (1, 2):
            ask(client, (order[-1], 1), session=(session, epoch), max_bytes=1)
            order += [number for number, each in results(client.wait()).items() if size(each)]
        assert sorted(order) == [0, 1, 2]

    def test_a_long_poll_in_a_session_has_only_what_arrived(self, node: StillNode) -> None:
        client = node.client()
        session = self.open(client, (0, 0), (1, 0))
        ask(client, session=(session, 1), max_wait_ms=1000)
        produce(node, 1, b"x")
        node.world.advance(0)
        assert set(results(client.reply())) == {1}
