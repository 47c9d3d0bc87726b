"""The producer on a cluster that misbehaves: nothing lost, nothing twice, nothing out of order."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.client.fake import FakeBroker, FakeCluster, cause_chaos, on, seeded

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.errors import BrokerRefused, ClientError, TimedOut
from penstock.client.producer import Delivery, Producer, ProducerSettings
from penstock.records import Codec, RecordBatch
from penstock.wire import Api, VersionRange

ORDERS = TopicPartition("orders", 0)


class Bench:
    def __init__(self, brokers: int = 1, partitions: int = 1, **options: object) -> None:
        self.fake = FakeCluster(brokers)
        self.fake.add_topic("orders", partitions)
        self.cluster = Cluster(self.fake.addresses, network=self.fake, clock=self.fake.clock, rng=seeded())
        self.delivered: list[Delivery] = []
        self.producer = Producer(
            self.cluster,
            ProducerSettings(**options),  # type: ignore[arg-type]
            self.delivered.append,
        )

    def send(self, *values: bytes, partition: int | None = 0) -> None:
        for value in values:
            self.producer.send("orders", None, value, partition=partition)

    def values(self, partition: TopicPartition = ORDERS) -> list[bytes]:
        return [record.value for record in self.fake.logs[partition].records()]


NUMBERS = [b"%d" % number for number in range(50)]


def test_records_arrive_in_order_in_one_batch() -> None:
    bench = Bench()
    bench.send(*NUMBERS)
    bench.producer.flush()
    assert bench.values() == NUMBERS
    assert bench.delivered == [Delivery(ORDERS, 0, 50, sum(map(len, NUMBERS)))]
    assert bench.producer.buffered_bytes == 0


def test_keys_headers_timestamps_and_nulls_are_kept() -> None:
    bench = Bench(codec=Codec.ZSTD)
    headers = (("a", b"1"), ("a", None))
    bench.producer.send("orders", b"k", None, timestamp=5, headers=headers)
    bench.producer.send("orders", b"", b"", timestamp=4)
    bench.producer.flush()
    first, second = bench.fake.logs[ORDERS].records()
    assert (first.key, first.value, first.timestamp, first.headers) == (b"k", None, 5, headers)
    assert (second.key, second.value, second.timestamp, second.headers) == (b"", b"", 4, ())


def test_a_full_batch_leaves_and_a_small_one_lingers() -> None:
    bench = Bench(batch_bytes_max=200, linger_ms=5)
    bench.send(b"a" * 20)
    bench.producer.poll()
    assert bench.values() == []
    bench.fake.clock.time_ms += 5
    bench.producer.poll()
    assert bench.values() == [b"a" * 20]
    bench.send(b"b" * 100, b"c" * 100)
    assert bench.values() == [b"a" * 20, b"b" * 100]


def test_the_buffer_is_bounded() -> None:
    bench = Bench(batch_bytes_max=500, buffer_bytes_max=2000, linger_ms=10_000)
    for _ in range(100):
        bench.send(b"x" * 100)
        assert bench.producer.buffered_bytes <= 2000
    bench.producer.flush()
    assert len(bench.values()) == 100


@pytest.mark.parametrize("when", ["before", "after"])
def test_after_a_broken_connection_a_batch_is_there_once(when: str) -> None:
    bench = Bench()
    bench.fake.faults.append(on(Api.PRODUCE, when))
    bench.send(*NUMBERS)
    bench.producer.flush()
    assert bench.values() == NUMBERS
    assert bench.delivered[0].base_offset == 0


def test_without_idempotence_a_broken_connection_may_double_a_batch() -> None:
    """As with Kafka's own: that is what idempotence is for."""
    bench = Bench(is_idempotent=False)
    bench.fake.faults.append(on(Api.PRODUCE, "after"))
    bench.send(b"a")
    bench.producer.flush()
    assert bench.values() == [b"a", b"a"]
    assert not RecordBatch.parse(bench.fake.logs[ORDERS].batches[0]).has_producer_id


@pytest.mark.parametrize("hints", [True, False])
def test_a_batch_follows_its_leader(hints: bool) -> None:
    bench = Bench(brokers=3)
    bench.fake.hints = hints
    bench.send(b"a")
    bench.producer.flush()
    bench.fake.move(ORDERS, 3)
    bench.send(b"b")
    bench.fake.requests.clear()
    bench.producer.flush()
    assert bench.values() == [b"a", b"b"]
    asked_again = (Api.METADATA in [api for _, api in bench.fake.requests]) is not hints
    assert asked_again
    assert [node for node, api in bench.fake.requests if api is Api.PRODUCE] == [1, 3]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.CORRUPT_MESSAGE,
    ],
)
def test_what_passes_is_tried_again(code: ErrorCode) -> None:
    bench = Bench(partitions=2, batch_bytes_max=100, linger_ms=0)
    bench.fake.faults += [on(Api.PRODUCE, int(code))] * 3
    for number in NUMBERS:
        bench.send(number, partition=int(number) % 2)
    bench.producer.flush()
    assert [*bench.values(), *bench.values(TopicPartition("orders", 1))] == NUMBERS[::2] + NUMBERS[1::2]


def test_what_does_not_pass_is_raised_and_ends_the_producer() -> None:
    bench = Bench()
    bench.fake.faults.append(on(Api.PRODUCE, int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
    bench.send(b"a")
    with pytest.raises(BrokerRefused, match=r"partition orders-0: access .* \(TOPIC_AUTHORIZATION_FAILED\)"):
        bench.producer.flush()
    with pytest.raises(BrokerRefused):
        bench.send(b"b")
    assert bench.values() == []


def test_after_its_delivery_timeout_a_batch_is_given_up_with_the_last_reason() -> None:
    bench = Bench(delivery_timeout_ms=3000)
    bench.fake.faults += [on(Api.PRODUCE, int(ErrorCode.NOT_ENOUGH_REPLICAS))] * 1000
    bench.send(b"a", b"b")
    with pytest.raises(TimedOut, match=r"2 records for orders-0 were not delivered within 3 s: .*in sync"):
        bench.producer.flush()
    assert 3000 <= bench.fake.clock.time_ms < 6000


def test_a_broker_that_is_away_for_a_while_gets_everything_in_the_end() -> None:
    bench = Bench(brokers=2)
    bench.send(b"a")
    bench.producer.flush()
    broker = bench.fake.brokers[1]
    broker.is_up = False
    asked = []

    def comes_back(_: FakeBroker, api: Api) -> None:
        asked.append(api)
        if len(asked) == 5:
            broker.is_up = True

    bench.fake.faults.append(comes_back)
    bench.send(b"b")
    bench.producer.flush()
    assert bench.values() == [b"a", b"b"]


def test_a_batch_too_large_for_the_topic_is_split() -> None:
    bench = Bench(linger_ms=1000)
    bench.fake.logs[ORDERS].bytes_max = 300
    bench.send(*[number * 20 for number in NUMBERS])
    bench.producer.flush()
    assert bench.values() == [number * 20 for number in NUMBERS]
    assert len(bench.fake.logs[ORDERS].batches) > 4


def test_one_record_too_large_for_the_topic_is_an_error() -> None:
    bench = Bench()
    bench.fake.logs[ORDERS].bytes_max = 300
    bench.send(b"x" * 1000)
    with pytest.raises(BrokerRefused, match="MESSAGE_TOO_LARGE"):
        bench.producer.flush()


def test_a_record_that_no_broker_takes_is_refused_at_once() -> None:
    bench = Bench(record_bytes_max=1000)
    with pytest.raises(ClientError, match="a record of 2021 bytes is too large, expected at most 1000"):
        bench.send(b"x" * 2000)


def test_acks_0_waits_for_no_replica() -> None:
    bench = Bench(acks=0, is_idempotent=False)
    bench.send(*NUMBERS)
    bench.producer.flush()
    assert bench.values() == NUMBERS
    assert bench.delivered == [Delivery(ORDERS, -1, 50, sum(map(len, NUMBERS)))]


def test_idempotence_wants_acks_all() -> None:
    with pytest.raises(ValueError, match="needs acks=all, acks=1 was given"):
        ProducerSettings(acks=1)


def test_a_broker_without_topic_ids_is_spoken_to_by_name() -> None:
    bench = Bench()
    bench.fake.ranges[Api.PRODUCE] = VersionRange(3, 8)
    bench.fake.ranges[Api.METADATA] = VersionRange(0, 8)
    bench.send(b"a")
    bench.producer.flush()
    assert bench.values() == [b"a"]


def test_a_topic_that_the_broker_creates_is_waited_for() -> None:
    bench = Bench()
    bench.fake.creates_topics = True
    bench.producer.send("new", None, b"a")
    bench.producer.flush()
    assert bench.values(TopicPartition("new", 0)) == [b"a"]


def test_a_topic_or_partition_that_is_not_there_is_reported() -> None:
    bench = Bench()
    with pytest.raises(BrokerRefused, match="topic nope: there is no such topic"):
        bench.producer.send("nope", None, b"a")
    with pytest.raises(BrokerRefused, match="topic orders has no partition 9: it has 1 partition"):
        bench.send(b"a", partition=9)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    batch_bytes_max=st.integers(70, 400),
    codec=st.sampled_from(Codec),
    rate=st.floats(0, 0.5),
)
def test_whatever_happens_each_partition_has_its_records_once_and_in_order(
    seed: int, batch_bytes_max: int, codec: Codec, rate: float
) -> None:
    rng = Random(seed)
    bench = Bench(brokers=3, partitions=4, batch_bytes_max=batch_bytes_max, codec=codec, linger_ms=1)
    cause_chaos(bench.fake, rng, partitions=4, rate=rate)
    sent: dict[int, list[bytes]] = {index: [] for index in range(4)}
    for number in range(150):
        value = b"%d" % number
        where = bench.producer.send("orders", rng.choice([None, b"k%d" % number]), value)
        sent[where.partition].append(value)
        bench.fake.clock.time_ms += rng.random()
    bench.producer.flush()
    assert {index: bench.values(TopicPartition("orders", index)) for index in range(4)} == sent
    assert sum(each.records for each in bench.delivered) == 150
