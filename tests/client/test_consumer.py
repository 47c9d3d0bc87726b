"""The consumer, and what it makes of batches."""

from typing import Any

import pytest
from tests.client.fake import FakeCluster, on, seeded

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.consumer import Consumer, ConsumerSettings, Reset
from penstock.client.decoding import decode
from penstock.client.errors import BrokerRefused, OffsetGone, TimedOut
from penstock.records import Codec, CorruptBatch, build_batch, end_txn_marker
from penstock.records.control import ControlType
from penstock.wire import AbortedTransaction, Api, VersionRange

ORDERS = TopicPartition("orders", 0)


def batch(base_offset: int, *values: bytes, **options: Any) -> bytes:
    return build_batch([(None, value, 0) for value in values], base_offset=base_offset, **options)


class Bench:
    def __init__(self, brokers: int = 1, partitions: int = 1, **options: Any) -> None:
        self.fake = FakeCluster(brokers)
        self.fake.add_topic("orders", partitions)
        self.log = self.fake.logs[ORDERS]
        self.cluster = Cluster(self.fake.addresses, network=self.fake, clock=self.fake.clock, rng=seeded())
        self.cluster.topic("orders")
        self.settings = ConsumerSettings(**options)
        self.resets: list[tuple[TopicPartition, int, int]] = []

    def consumer(self, positions: dict[TopicPartition, int]) -> Consumer:
        return Consumer(self.cluster, positions, self.settings, lambda *told: self.resets.append(told))

    def read(self, start: int = 0, wait_ms: float = 1000) -> list[bytes]:
        fetched = self.consumer({ORDERS: start}).poll(wait_ms)
        return [record.value for each in fetched for record in each.records]


def test_records_are_read_from_a_position_on_even_inside_a_batch() -> None:
    bench = Bench()
    bench.log.batches += [batch(0, b"a", b"b", b"c"), batch(3, b"d", codec=Codec.GZIP)]
    assert bench.read(0) == [b"a", b"b", b"c", b"d"]
    assert bench.read(2) == [b"c", b"d"]


def test_positions_move_with_what_was_read() -> None:
    bench = Bench()
    bench.log.batches.append(batch(0, b"a", b"b"))
    consumer = bench.consumer({ORDERS: 0})
    (first,) = consumer.poll(1000)
    assert (first.next_offset, first.high_watermark, consumer.positions) == (2, 2, {ORDERS: 2})
    bench.log.batches.append(batch(2, b"c"))
    # The fetch that was sent ahead found the log as it was: nothing is read twice, nothing is missed.
    values = [record.value for _ in range(3) for each in consumer.poll(600) for record in each.records]
    assert values == [b"c"]


def test_at_the_end_of_the_log_it_waits_as_long_as_it_was_told() -> None:
    bench = Bench()
    assert bench.read(0, wait_ms=2000) == []
    assert 2000 <= bench.fake.clock.time_ms < 2600


def test_every_leader_is_asked_for_its_own_partitions() -> None:
    bench = Bench(brokers=2, partitions=2)
    other = TopicPartition("orders", 1)
    bench.fake.move(other, 2)
    bench.cluster.refresh(["orders"])
    bench.log.batches.append(batch(0, b"a"))
    bench.fake.logs[other].batches.append(batch(0, b"b"))
    fetched = bench.consumer({ORDERS: 0, other: 0}).poll(1000)
    assert {each.partition: each.records[0].value for each in fetched} == {ORDERS: b"a", other: b"b"}
    assert {node for node, api in bench.fake.requests if api is Api.FETCH} == {1, 2}


@pytest.mark.parametrize("hints", [True, False])
def test_it_follows_the_leader(hints: bool) -> None:
    bench = Bench(brokers=2)
    bench.fake.hints = hints
    bench.log.batches.append(batch(0, b"a"))
    bench.fake.move(ORDERS, 2)
    assert bench.read() == [b"a"]
    assert [node for node, api in bench.fake.requests if api is Api.FETCH][:2] == [1, 2]


@pytest.mark.parametrize("fault", ["before", "after", int(ErrorCode.NOT_LEADER_OR_FOLLOWER)])
def test_what_passes_is_tried_again(fault: str | int) -> None:
    bench = Bench()
    bench.log.batches.append(batch(0, b"a"))
    bench.fake.faults += [on(Api.FETCH, fault)] * 3
    assert bench.read(wait_ms=10_000) == [b"a"]


def test_what_does_not_pass_is_raised() -> None:
    bench = Bench()
    bench.fake.faults.append(on(Api.FETCH, int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
    with pytest.raises(BrokerRefused, match=r"partition orders-0.*TOPIC_AUTHORIZATION_FAILED"):
        bench.read()


def test_a_partition_that_fails_for_too_long_is_raised() -> None:
    bench = Bench(failing_ms_max=5000)
    bench.fake.faults += [on(Api.FETCH, int(ErrorCode.KAFKA_STORAGE_ERROR))] * 1000
    with pytest.raises(TimedOut, match="partition orders-0 could not be read for 5 s"):
        bench.read(wait_ms=60_000)


@pytest.mark.parametrize(("reset", "expected"), [(Reset.EARLIEST, 5), (Reset.LATEST, 7)])
def test_a_position_that_is_gone_moves_where_the_reader_wants(reset: Reset, expected: int) -> None:
    bench = Bench(reset=reset)
    bench.log.start = 5
    bench.log.batches.append(batch(5, b"a", b"b"))
    consumer = bench.consumer({ORDERS: 1})
    fetched = consumer.poll(1000)
    assert [record.offset for each in fetched for record in each.records] == list(range(expected, 7))
    assert bench.resets == [(ORDERS, 1, expected)]


def test_a_position_that_is_gone_is_raised_where_the_reader_wants_that() -> None:
    bench = Bench(reset=Reset.NONE)
    bench.log.start = 5
    bench.log.batches.append(batch(5, b"a"))
    with pytest.raises(OffsetGone, match="partition orders-0 has no offset 1, it has 5 to 6"):
        bench.read(1)


def test_a_damaged_batch_is_reported_with_its_place() -> None:
    bench = Bench()
    damaged = bytearray(batch(0, b"abcdef"))
    damaged[-3] ^= 1
    bench.log.batches.append(bytes(damaged))
    with pytest.raises(CorruptBatch, match=r"partition orders-0 at offset 0: .* has CRC"):
        bench.read()


def test_a_broker_without_topic_ids_is_spoken_to_by_name() -> None:
    bench = Bench()
    bench.fake.ranges[Api.FETCH] = VersionRange(4, 11)
    bench.cluster.close()
    bench.log.batches.append(batch(0, b"a"))
    assert bench.read() == [b"a"]


def test_a_dropped_partition_is_read_no_more() -> None:
    bench = Bench()
    bench.log.batches.append(batch(0, b"a"))
    consumer = bench.consumer({ORDERS: 0})
    consumer.drop(ORDERS)
    assert consumer.poll(1000) == []


# -- decoding ---------------------------------------------------------------------------------------------


def transactional(base_offset: int, producer_id: int, *values: bytes) -> bytes:
    return batch(
        base_offset, *values, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
    )


def marker(base_offset: int, producer_id: int, kind: ControlType) -> bytes:
    return end_txn_marker(producer_id, 0, kind is ControlType.COMMIT, 0, 0, base_offset)


def values_of(data: bytes, aborted: list[AbortedTransaction] | None, start: int = 0) -> list[bytes | None]:
    return [record.value for record in decode(data, start, aborted).records]


INTERLEAVED = b"".join(
    [
        transactional(0, 7, b"a0"),
        transactional(1, 8, b"b1"),
        batch(2, b"plain"),
        marker(3, 7, ControlType.ABORT),
        transactional(4, 7, b"a4"),
        marker(5, 8, ControlType.COMMIT),
        marker(6, 7, ControlType.COMMIT),
    ]
)


def test_aborted_records_are_left_out_up_to_their_marker() -> None:
    """What the producer does after its abort marker is another transaction."""
    assert values_of(INTERLEAVED, [AbortedTransaction(7, 0)]) == [b"b1", b"plain", b"a4"]


def test_without_isolation_everything_but_markers_is_shown() -> None:
    assert values_of(INTERLEAVED, None) == [b"a0", b"b1", b"plain", b"a4"]


def test_the_next_offset_is_after_the_last_batch_shown_or_not() -> None:
    decoded = decode(INTERLEAVED, 5, [])
    assert (decoded.records, decoded.next_offset, decoded.batches) == ([], 7, 2)


def test_a_last_batch_that_is_cut_waits_for_the_next_fetch() -> None:
    data = batch(0, b"a") + batch(1, b"b")
    for cut in range(1, len(batch(1, b"b"))):
        decoded = decode(data[:-cut], 0, None)
        assert ([each.value for each in decoded.records], decoded.next_offset) == ([b"a"], 1)
    assert decode(batch(0, b"a")[:-1], 0, None).batches == 0
