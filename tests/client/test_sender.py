"""The engine of producers with several batches of a partition in flight: none lost, twice or out of order."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.client.fake import FakeCluster, cause_chaos, on, seeded

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.errors import BrokerRefused
from penstock.client.identity import ProducerIdentity
from penstock.client.sender import ProducerBatch, Sender, SenderSettings
from penstock.records import build_batch
from penstock.wire import Api

ORDERS = TopicPartition("orders", 0)


class NumberBatch(ProducerBatch):
    """Numbers as records."""

    def __init__(self, numbers: Sequence[int], base_sequence: int, created_ms: float = 0) -> None:
        super().__init__(created_ms, base_sequence)
        self.numbers = numbers
        self.bytes_max = 100 + 20 * len(numbers)

    @property
    def record_count(self) -> int:
        return len(self.numbers)

    def encode(self, identity: ProducerIdentity) -> bytes:
        return build_batch(
            [(None, b"%d" % each, 0) for each in self.numbers],
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=self.base_sequence,
        )

    def split(self) -> "list[NumberBatch]":
        middle = len(self.numbers) // 2
        return [
            NumberBatch(self.numbers[:middle], self.base_sequence, self.created_ms),
            NumberBatch(self.numbers[middle:], self.base_sequence + middle, self.created_ms),
        ]


class Bench:
    def __init__(self, brokers: int = 1, partitions: int = 1, in_flight: int = 3) -> None:
        self.fake = FakeCluster(brokers)
        self.fake.add_topic("orders", partitions)
        cluster = Cluster(self.fake.addresses, network=self.fake, clock=self.fake.clock, rng=seeded())
        cluster.topic("orders")
        self.acknowledged: list[tuple[TopicPartition, int, int]] = []
        self.sender: Sender[NumberBatch] = Sender(
            cluster,
            SenderSettings(batches_in_flight_max=in_flight, requests_in_flight_max=4, request_bytes_max=400),
            None,
            lambda where, batch: self.acknowledged.append((where, batch.base_offset, batch.record_count)),
        )

    def add(self, partition: TopicPartition, *batches: Sequence[int]) -> None:
        for numbers in batches:
            sequence = self.sender.reserve_sequence(partition, len(numbers))
            self.sender.add(partition, [NumberBatch(numbers, sequence)])

    def poll(self, wait_ms: float = 0) -> None:
        self.sender.dispatch()
        self.sender.collect(wait_ms)
        self.sender.dispatch()

    def flush(self) -> None:
        while not self.sender.is_empty:
            self.poll(1000)

    def numbers(self, partition: TopicPartition = ORDERS) -> list[int]:
        return [int(record.value) for record in self.fake.logs[partition].records()]


def test_the_first_batch_is_sent_alone_and_then_as_many_as_may_be_in_flight() -> None:
    """A broker accepts any sequence number as the first of a producer."""
    bench = Bench()
    bench.fake.latency_ms = lambda: 10.0
    bench.add(ORDERS, [0], [1], [2], [3], [4])
    bench.sender.dispatch()
    assert bench.numbers() == [0]
    bench.poll(10)
    assert bench.numbers() == [0, 1, 2, 3]
    assert not bench.sender.is_ready(ORDERS)
    bench.flush()
    assert bench.numbers() == [0, 1, 2, 3, 4]
    assert bench.acknowledged == [(ORDERS, offset, 1) for offset in range(5)]
    assert bench.sender.buffered_bytes == 0
    assert bench.sender.is_ready(ORDERS)


def test_batches_behind_one_that_is_too_large_follow_its_parts() -> None:
    bench = Bench()
    bench.fake.logs[ORDERS].bytes_max = 110
    bench.fake.latency_ms = lambda: 10.0
    bench.add(ORDERS, [0], range(1, 20), range(20, 22), range(22, 60))
    bench.flush()
    assert bench.numbers() == list(range(60))
    assert bench.sender.buffered_bytes == 0


def test_a_final_error_ends_the_sender() -> None:
    bench = Bench()
    bench.fake.faults.append(on(Api.PRODUCE, int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)))
    bench.add(ORDERS, [0])
    with pytest.raises(BrokerRefused, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        bench.flush()
    with pytest.raises(BrokerRefused, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        bench.sender.dispatch()


def test_a_partition_that_was_served_is_served_after_the_others() -> None:
    """A request holds only some of the batches that are ready."""
    bench = Bench(partitions=6, in_flight=1)
    bench.fake.latency_ms = lambda: 10.0
    for index in range(6):
        bench.add(TopicPartition("orders", index), *[[number] for number in range(10)])
    for _ in range(4):
        bench.poll(10)
    counts = [len(bench.numbers(TopicPartition("orders", index))) for index in range(6)]
    assert max(counts) - min(counts) <= 1


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), in_flight=st.integers(1, 5), rate=st.floats(0, 0.5))
def test_whatever_happens_each_partition_has_its_records_once_and_in_order(
    seed: int, in_flight: int, rate: float
) -> None:
    rng = Random(seed)
    bench = Bench(brokers=3, partitions=3, in_flight=in_flight)
    cause_chaos(bench.fake, rng, partitions=3, rate=rate)
    bench.fake.logs[ORDERS].bytes_max = 100
    sent: dict[int, list[int]] = {index: [] for index in range(3)}
    for number in range(0, 180, 3):
        index = rng.randrange(3)
        numbers = range(number, number + rng.randint(1, 3) * 3, 3)
        sent[index] += numbers
        bench.add(TopicPartition("orders", index), numbers)
        bench.poll(rng.choice([0, 1]))
    bench.flush()
    assert {index: bench.numbers(TopicPartition("orders", index)) for index in range(3)} == sent
    assert sum(count for _, _, count in bench.acknowledged) == sum(map(len, sent.values()))
