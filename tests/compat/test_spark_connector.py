"""The same queries through Spark's own Kafka connector and through Penstock's source: the same rows.

Both read from the same node, `penstock up` as a process. Each has a Spark of its own; see tests/compat/spark.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic
from tests.compat.spark.peer import Connector, ConnectorUnavailable, SparkChild, spark_session
from tests.processes import Process
from tests.spark.topics import WAIT_S, Topics, numbers, until

from penstock.spark.session import QUICK_START

pytestmark = pytest.mark.long  # the connector takes minutes to fetch, and two Sparks half a minute to start

TIME_MS = 1_700_000_000_000
OLD = {"retention.ms": "-1"}
"""For records with times of years ago."""
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "4096",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "0",
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass
class Both:
    """Spark's connector, and Penstock's source."""

    theirs: SparkChild
    ours: SparkChild
    topics: Topics
    scratch: Path

    def batch(self, **options: Any) -> tuple[list[Any], list[Any]]:
        return self.theirs.ask("rows", source=self._source("kafka", options)), self.ours.ask(
            "rows", source=self._source("penstock", options)
        )

    def stream(self, how: str, name: str, **options: Any) -> tuple[list[Any], list[Any]]:
        """From a checkpoint each, which a second call of the same name goes on from."""
        found = []
        for child, source in ((self.theirs, "kafka"), (self.ours, "penstock")):
            places = {"checkpoint": str(self.scratch / f"{name}-{source}-checkpoint")}
            if how == "parquet":
                places["target"] = str(self.scratch / f"{name}-{source}")
            found.append(child.ask(f"stream_to_{how}", source=self._source(source, options), **places))
        return found[0], found[1]

    def _source(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        named = {"kafka.bootstrap.servers": self.topics.broker.bootstrap, "includeHeaders": "true"}
        texts = {key.replace("__", "."): value for key, value in options.items()}
        return {"format": name, "options": {**named, **texts}}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    try:
        connector = Connector.find()
    except ConnectorUnavailable as missing:
        pytest.skip(f"Spark's Kafka connector is not available: {missing}")
    scratch = tmp_path_factory.mktemp("connector")
    settings = ("--set", "log.cleaner.backoff.ms=50")
    conf = {**QUICK_START, "spark.master": "local[2]"}
    with (
        Process(*settings, data=scratch / "data") as node,
        Topics(node) as topics,  # type: ignore[arg-type]  # it has an address, and that is all that matters
        spark_session(scratch / "theirs", conf, connector) as theirs,
        spark_session(scratch / "ours", conf) as ours,
    ):
        fill(topics)
        yield Both(theirs, ours, topics, scratch)


def create(topics: Topics, name: str, partitions: int, configs: dict[str, str] | None = None) -> None:
    made = topics.admin.create_topics([NewTopic(name, partitions, config=OLD | (configs or {}))])
    made[name].result(WAIT_S)


def fill(topics: Topics) -> None:
    """Nulls, headers, every codec, times in order; transactions of all ends; a log with holes."""
    create(topics, "orders", 3)
    topics.produce("orders", [None, b"", b"plain"], partition=0, timestamp=TIME_MS)
    headers = [
        ("trace", b"\x00\xff"),
        ("empty", b""),
        ("none", None),
        ("trace", b"again"),
        ("n\u00e4me", b"x"),
    ]
    topics.produce("orders", [b"with headers", None], partition=0, headers=headers, timestamp=TIME_MS + 1)
    topics.produce("orders", numbers(3), partition=0, key=b"", timestamp=TIME_MS + 2)
    for at, codec in enumerate(CODECS):
        producer = topics.producer(compression_type=codec, linger_ms=50)
        for number in range(200):
            value = b"%s-%d" % (codec.encode(), number) * 5
            producer.produce(
                "orders", value, b"k%d" % (number % 7), 1, timestamp=TIME_MS + 1000 * at + number
            )
        assert producer.flush(WAIT_S) == 0
    create(topics, "payments", 2)
    for transactional_id, ends, value in (("a", "commit", b"a"), ("b", "abort", b"b"), ("c", "commit", b"c")):
        values = [value + each for each in numbers(20)]
        producer = topics.transaction("payments", values, transactional_id=transactional_id)
        (producer.commit_transaction if ends == "commit" else producer.abort_transaction)(WAIT_S)
        topics.produce("payments", [b"plain after " + value], partition=1)
    create(topics, "table", 1, COMPACTED)
    for value in numbers(600):
        key = b"once-" + value if int(value) % 50 == 0 else b"key-%d" % (int(value) % 10)
        topics.produce("table", [value * 20], key=key)
    until(lambda: len(topics.read("table")) < 500, "a compacted log")


def check(found: tuple[list[Any], list[Any]], count: int | None = None) -> list[Any]:
    """Both have the same rows, and there are some."""
    theirs, ours = found
    assert ours == theirs
    assert theirs if count is None else len(theirs) == count
    return theirs


def by_offsets(**offsets: dict[str, int]) -> str:
    return json.dumps(offsets)


def test_every_column_of_a_batch_is_the_same(both: Both) -> None:
    rows = check(both.batch(subscribe="orders"), 8 + 200 * len(CODECS))
    values = {row[1] for row in rows}
    assert {None, "", b"plain".hex()} <= values
    assert sum(row[7] is not None for row in rows) == 2


def test_topics_chosen_by_name_by_pattern_and_by_partition_are_the_same(both: Both) -> None:
    check(both.batch(subscribe="orders,payments"))
    check(both.batch(subscribePattern="(pay|tab).*"))
    check(both.batch(assign='{"orders": [1], "payments": [1]}'), 200 * len(CODECS) + 3)


def test_ranges_of_offsets_are_the_same(both: Both) -> None:
    starts = by_offsets(orders={"0": 2, "1": 150, "2": -2})
    ends = by_offsets(orders={"0": -1, "1": 431, "2": -1})
    check(both.batch(subscribe="orders", startingOffsets=starts, endingOffsets=ends), 6 + 281)
    check(both.batch(subscribe="orders", startingOffsets=starts, endingOffsets=ends, minPartitions="9"))


def test_ranges_of_times_are_the_same(both: Both) -> None:
    late = {"startingOffsetsByTimestampStrategy": "latest"}
    from_time = str(TIME_MS + 1000)
    check(both.batch(subscribe="orders", startingTimestamp=from_time, **late), 200 * (len(CODECS) - 1))
    check(both.batch(subscribe="orders", endingTimestamp=from_time), 8 + 200)
    starts = by_offsets(orders={"0": TIME_MS + 2, "1": TIME_MS + 1100, "2": TIME_MS})
    ends = by_offsets(orders={"0": TIME_MS + 9, "1": TIME_MS + 3050, "2": TIME_MS})
    rows = both.batch(
        subscribe="orders", startingOffsetsByTimestamp=starts, endingOffsetsByTimestamp=ends, **late
    )
    check(rows, 3 + 100 + 200 + 50)


@pytest.mark.parametrize(("level", "count"), [("read_committed", 43), ("read_uncommitted", 63)])
def test_transactions_are_seen_the_same(both: Both, level: str, count: int) -> None:
    check(both.batch(subscribe="payments", kafka__isolation__level=level), count)


def test_a_compacted_log_is_the_same(both: Both) -> None:
    rows = check(both.batch(subscribe="table"))
    offsets = sorted(row[4] for row in rows)
    assert len(offsets) < offsets[-1] - offsets[0] + 1, "it has no holes"


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_a_stream_into_memory_is_the_same(both: Both, level: str) -> None:
    options = {"subscribe": "orders,payments,table", "startingOffsets": "earliest"}
    streamed = both.stream("memory", f"memory-{level}", **options, kafka__isolation__level=level)
    assert check(streamed) == check(both.batch(subscribe=options["subscribe"], kafka__isolation__level=level))


def test_a_stream_in_small_batches_goes_on_where_it_was_and_is_the_same(both: Both) -> None:
    create(both.topics, "growing", 2)
    options = {"subscribe": "growing", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"}
    for partition in (0, 1):
        both.topics.produce("growing", numbers(40), partition=partition)
    check(both.stream("parquet", "growing", **options), 80)
    both.topics.produce("growing", numbers(50, 40), partition=1)
    assert check(both.stream("parquet", "growing", **options), 130) == check(both.batch(subscribe="growing"))
