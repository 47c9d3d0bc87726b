"""What the sink writes, read by librdkafka: every codec, headers, nulls, times."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.spark.sinks import Server

from penstock.arrow.schema import ARROW_TYPES
from penstock.client.cluster import Cluster
from penstock.records import Codec
from penstock.spark.writing.job import commit_job, write_job_rows
from penstock.spark.writing.sink_options import read_sink_options
from penstock.testing import Broker

COUNT = 5_000
FIRST = datetime(2024, 1, 1, tzinfo=UTC)

Row = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def row(number: int) -> Row:
    key = None if number % 5 == 0 else b"key %d" % (number % 50)
    value = None if number % 7 == 0 else b"value %d " % number * (number % 11)
    headers: list[tuple[str, bytes | None]] = (
        [("n", b"%d" % number), ("none", None)] if number % 3 == 0 else []
    )
    return key, value, int(FIRST.timestamp() * 1000) + number, headers


def write_rows(server: Server, topic: str, codec: Codec) -> None:
    """In one partition, so that the order of all can be seen."""
    rows = [row(each) for each in range(COUNT)]
    columns = {
        "key": [each[0] for each in rows],
        "value": [each[1] for each in rows],
        "timestamp": [FIRST + timedelta(milliseconds=each) for each in range(COUNT)],
        "headers": [[{"key": name, "value": value} for name, value in each[3]] for each in rows],
    }
    batch = pa.record_batch({name: pa.array(data, ARROW_TYPES[name]) for name, data in columns.items()})
    named = {"kafka.bootstrap.servers": server.bootstrap, "topic": topic, "kafka.batch.size": "50000"}
    options = read_sink_options(named | {"kafka.compression.type": codec.name.lower()})
    with Cluster(options.servers, options.client) as cluster:
        pieces = [batch.slice(start, 700) for start in range(0, COUNT, 700)]
        result = write_job_rows(cluster, options, topic, "0", pieces)
        assert result.written.records == COUNT
        commit_job(cluster, options, topic, [result])


def read_rows(server: Server, topic: str) -> list[Row]:
    consumer = Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": topic, "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Row] = []
    try:
        while len(found) < COUNT:
            message = consumer.poll(30)
            assert message is not None, f"{len(found)} of {COUNT} came"
            assert message.error() is None
            headers = [(name, value) for name, value in message.headers() or []]
            found.append((message.key(), message.value(), message.timestamp()[1], headers))
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("codec", list(Codec))
def test_librdkafka_reads_what_was_written(broker: Broker, codec: Codec) -> None:
    topic = f"read-{codec.name.lower()}"
    broker.create_topic(topic, 1)
    write_rows(broker, topic, codec)
    assert read_rows(broker, topic) == [row(each) for each in range(COUNT)]
