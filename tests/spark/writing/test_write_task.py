"""Where a task's rows go, and in which order: on brokers without sockets, and without time."""

import random
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.fake import FakeCluster, seeded

from penstock.base.hashing import partition_of_key
from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.identity import init_producer_id
from penstock.spark.errors import BadRows
from penstock.spark.writing.column_producer import ColumnProducer
from penstock.spark.writing.sink_options import SinkOptions
from penstock.spark.writing.write_task import TaskWriter, WriteCounts


def write(
    fake: FakeCluster, batches: list[pa.RecordBatch], topic: str | None = "t", **options: int
) -> WriteCounts:
    read = SinkOptions(tuple(fake.addresses), topic, **options)  # type: ignore[arg-type]
    with Cluster(fake.addresses, network=fake, clock=fake.clock, rng=seeded()) as cluster:

        def open_producer() -> ColumnProducer:
            return ColumnProducer(cluster, read, init_producer_id(cluster), None, epoch_bumps=False)

        return TaskWriter(cluster, read, open_producer, random.Random(1)).write(batches)


def values(fake: FakeCluster, partition: int, topic: str = "t") -> list[bytes]:
    return [record.value for record in fake.logs[TopicPartition(topic, partition)].records()]


@given(st.lists(st.lists(st.integers(0, 9), max_size=30), max_size=6))
def test_a_key_has_its_partition_and_its_order(batches: list[list[int]]) -> None:
    fake = FakeCluster(brokers=2)
    fake.add_topic("t", 3)
    numbered, sent = 0, []
    for keys in batches:
        rows = range(numbered, numbered + len(keys))
        numbered += len(keys)
        sent.append(
            pa.record_batch(
                {
                    "key": pa.array([b"k%d" % each for each in keys], pa.binary()),
                    "value": pa.array([str(each) for each in rows], pa.string()),
                }
            )
        )
    written = write(fake, sent, batch_bytes_max=200)
    assert written.records == numbered
    found = []
    for partition in range(3):
        records = fake.logs[TopicPartition("t", partition)].records()
        assert all(partition_of_key(record.key, 3) == partition for record in records)
        numbers = [int(record.value) for record in records]
        assert all(before < after for before, after in pairwise(numbers))
        found += numbers
    assert sorted(found) == list(range(numbered))


def test_a_task_without_rows_sends_no_request() -> None:
    fake = FakeCluster()
    assert write(fake, [pa.record_batch({"value": pa.array([], pa.string())})]) == WriteCounts()
    assert fake.requests == []


def test_rows_without_a_key_fill_one_partition_before_they_go_to_the_next() -> None:
    fake = FakeCluster()
    fake.add_topic("t", 4)
    batch = pa.record_batch({"value": ["x" * 100] * 50})
    assert write(fake, [batch] * 40, batch_bytes_max=20_000).records == 2000
    counts = [len(values(fake, partition)) for partition in range(4)]
    assert sum(counts) == 2000
    assert sum(count > 0 for count in counts) >= 3
    batches = sum(len(fake.logs[TopicPartition("t", partition)].batches) for partition in range(4))
    assert batches <= 20, "runs are long enough to fill batches: one, and what is left over"


def test_the_column_partition_goes_before_the_key() -> None:
    fake = FakeCluster()
    fake.add_topic("t", 3)
    key = next(b"%d" % each for each in range(99) if partition_of_key(b"%d" % each, 3) == 1)
    batch = pa.record_batch(
        {"key": [key, key], "value": ["said", "hashed"], "partition": pa.array([2, None], pa.int32())}
    )
    write(fake, [batch])
    assert [values(fake, partition) for partition in range(3)] == [[], [b"hashed"], [b"said"]]


@pytest.mark.parametrize("partition", [-1, 3])
def test_a_partition_that_is_not_there_is_reported(partition: int) -> None:
    fake = FakeCluster()
    fake.add_topic("t", 3)
    batch = pa.record_batch({"value": ["a", "b"], "partition": pa.array([0, partition], pa.int32())})
    with pytest.raises(
        BadRows, match=f"a row has {partition} in column partition, expected 0 to 2: topic t has 3"
    ):
        write(fake, [batch])


def test_a_topic_that_is_never_created_is_reported() -> None:
    with pytest.raises(BadRows, match="there is no topic t, and the broker does not create it by itself"):
        write(FakeCluster(), [pa.record_batch({"value": ["a"]})])


def test_rows_go_to_the_topics_that_their_column_names() -> None:
    fake = FakeCluster()
    fake.add_topic("a")
    fake.add_topic("b")
    write(fake, [pa.record_batch({"value": ["1", "2", "3"], "topic": ["a", "b", "a"]})], None)
    assert (values(fake, 0, "a"), values(fake, 0, "b")) == ([b"1", b"3"], [b"2"])
