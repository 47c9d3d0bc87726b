"""What tests of running pipelines share: files written, records produced and read, a run in this process."""

import json
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, Producer

from penstock.spark.pipeline import PipelineSpec, load
from penstock.spark.pipeline.build import Builder
from penstock.spark.pipeline.options import Brokers
from penstock.spark.pipeline.progress import FlowProgress
from penstock.spark.pipeline.run import Runner
from penstock.spark.pipeline.state import RunLock, StatusFile
from penstock.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S = 60.0


def written(directory: Path, text: str, name: str = "p.yaml") -> Path:
    file = directory / name
    file.write_text(text)
    return file


def run(
    file: Path | PipelineSpec,
    spark: "SparkSession",
    servers: str | None = None,
    *,
    once: bool = True,
    stop: threading.Event | None = None,
    tell: Callable[[FlowProgress], None] = lambda _: None,
) -> Runner:
    """Run a file in this process until it has finished, or is stopped; what it raises is the caller's."""
    spec = load(file) if isinstance(file, Path) else file
    runner = Runner(
        spec,
        Builder(spec, spark, Brokers.of(spec, servers, {})),
        StatusFile(spec, "local", servers or ""),
        once=once,
        tell=tell,
    )
    with RunLock(spec):
        runner.run(stop or threading.Event())
    return runner


def produce(broker: Broker, topic: str, values: Iterable[Any], *, key: str | None = None) -> None:
    """JSON values, or bytes as they are; `key` names the field that is the key."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for value in values:
        data = value if isinstance(value, bytes | None) else json.dumps(value).encode()
        producer.produce(topic, data, None if key is None else str(value[key]).encode())
    assert producer.flush(WAIT_S) == 0


def consume(broker: Broker, topic: str) -> list[tuple[bytes | None, Any]]:
    """Keys and values that are committed, up to the ends as they are now."""
    from confluent_kafka import TopicPartition  # noqa: PLC0415

    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"reader-of-{topic}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        partitions = list(consumer.list_topics(topic, WAIT_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
        found: list[tuple[bytes | None, Any]] = []
        left = set(partitions)
        while left:
            message = consumer.poll(WAIT_S)
            assert message is not None, f"{topic} did not come to its end"
            if message.error() is None:
                found.append((message.key(), json.loads(message.value())))
            else:
                left.discard(message.partition())
        return found
    finally:
        consumer.close()
