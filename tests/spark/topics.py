"""Topics of a test: filled and changed with librdkafka, read through the source's own classes or through Spark."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceStreamReader
from pyspark.sql.types import StructType

from penstock.spark.reading.stream import StreamReader
from penstock.spark.schema import SCHEMA, default_schema
from penstock.spark.source import DefaultSource
from penstock.testing import Broker

WAIT_S = 30.0


class Topics:
    """One broker's; what was opened for a test is closed with it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._producer: Producer | None = None
        self._streams: list[StreamReader] = []

    def __enter__(self) -> "Topics":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for each in self._streams:
            each.stop()
        self._producer = None

    # -- filling ---------------------------------------------------------------------------------------

    def produce(self, topic: str, values: Iterable[Any], partition: int = 0, **fields: Any) -> None:
        """One record a value, each in the order given, all of them there when this returns."""
        if self._producer is None:
            self._producer = self.producer()
        send(self._producer, topic, values, partition, **fields)

    def producer(self, **settings: Any) -> Producer:
        return Producer({"bootstrap.servers": self.broker.bootstrap, "log_level": 0, **_dotted(settings)})

    def transaction(
        self, topic: str, values: Iterable[Any], *, partition: int = 0, transactional_id: str = "t"
    ) -> Producer:
        """Produced and left open."""
        producer = self.producer(transactional_id=transactional_id)
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        send(producer, topic, values, partition)
        return producer

    # -- changing --------------------------------------------------------------------------------------

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.broker.bootstrap})

    def delete(self, *topics: str) -> None:
        for each in self.admin.delete_topics(list(topics)).values():
            each.result(WAIT_S)

    def grow(self, topic: str, partitions: int) -> None:
        for each in self.admin.create_partitions([NewPartitions(topic, partitions)]).values():
            each.result(WAIT_S)
        self._producer = None  # it would learn of them in its own time

    def cut(self, topic: str, before: int = OFFSET_END, partition: int = 0) -> None:
        """Delete the records before an offset, as retention would."""
        for each in self.admin.delete_records([TopicPartition(topic, partition, before)]).values():
            each.result(WAIT_S)

    def committed(self, group: str, topic: str, partitions: int = 1) -> list[int]:
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": group})
        try:
            found = consumer.committed([TopicPartition(topic, each) for each in range(partitions)], WAIT_S)
        finally:
            consumer.close()
        return [each.offset for each in found]

    def member(self, group: str, topic: str) -> Consumer:
        """A group's member, once it is one."""
        consumer = Consumer(
            {"bootstrap.servers": self.broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(0.05)
        return consumer

    # -- reading, without Spark ------------------------------------------------------------------------

    def options(self, topic: str | None = None, **options: Any) -> dict[str, str]:
        named = {"kafka.bootstrap.servers": self.broker.bootstrap}
        if topic is not None:
            named["subscribe"] = topic
        return named | {name.replace("__", "."): str(value) for name, value in options.items()}

    def read(
        self, topic: str | None = None, schema: StructType | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        """The rows of a batch, by partition and offset; planned and read in this process."""
        source = DefaultSource(CaseInsensitiveDict(self.options(topic, **options)))
        reader = source.reader(schema or default_schema(with_headers=True))
        batches = [batch for task in reader.partitions() for batch in reader.read(task)]
        return [row for batch in batches for row in batch.to_pylist()]

    def values(self, topic: str | None = None, **options: Any) -> list[bytes]:
        return [row["value"] for row in self.read(topic, **options)]

    def stream(self, topic: str | None = None, **options: Any) -> StreamReader:
        source = DefaultSource(CaseInsensitiveDict(self.options(topic, **options)))
        reader = source.streamReader(SCHEMA)
        assert isinstance(reader, StreamReader)
        self._streams.append(reader)
        return reader


def send(producer: Producer, topic: str, values: Iterable[Any], partition: int = 0, **fields: Any) -> None:
    errors: list[Any] = []

    def note(error: Any, _: Any) -> None:
        errors.extend([error] if error is not None else [])

    for each in values:
        producer.produce(topic, value=each, partition=partition, on_delivery=note, **fields)
    assert producer.flush(WAIT_S) == 0
    assert not errors, errors


def read_span(
    reader: DataSourceStreamReader, start: Mapping[str, Any], end: Mapping[str, Any]
) -> list[bytes]:
    """The values of one batch of a stream."""
    return [
        row["value"]
        for task in reader.partitions(dict(start), dict(end))
        for batch in reader.read(task)
        for row in batch.to_pylist()
    ]


def until(is_so: Callable[[], Any], what: str, tries: int = 2400) -> Any:
    """Wait for what another thread or process brings about."""
    for _ in range(tries):
        with suppress(AssertionError):
            found = is_so()
            if found:
                return found
        time.sleep(0.05)
    raise AssertionError(f"never: {what}")


def corrupt(broker: Broker, topic: str, text: bytes) -> None:
    """Change one byte of a record in a stopped broker's log, and start it again."""
    assert broker.data is not None
    broker.stop()
    [segment] = Path(broker.data).glob(f"**/{topic}-0/*.log")
    data = bytearray(segment.read_bytes())
    data[data.index(text)] ^= 0xFF
    segment.write_bytes(data)
    broker.start()


def numbers(count: int, first: int = 0) -> Sequence[bytes]:
    return [b"%d" % each for each in range(first, first + count)]


def _dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in settings.items()}
