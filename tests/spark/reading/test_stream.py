"""`spark.readStream.format("penstock")`, by real Spark: restarts, limits, replays, lag.

What deletion and retention do underneath is in test_stream_reader, without Spark around it; here is that it arrives.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.topics import Topics, numbers, until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

WAIT_S = 120


class Query:
    """A stream that keeps the values of its batches, run until nothing is new."""

    def __init__(
        self, spark: "SparkSession", topics: Topics, topic: str | None, place: Path, **options: Any
    ) -> None:
        self._spark = spark
        self._options = topics.options(topic, **({"startingOffsets": "earliest"} | options))
        self._place = place
        self.batches: list[list[bytes]] = []
        self.fails = False

    def start(self, **trigger: Any) -> "StreamingQuery":
        rows = self._spark.readStream.format("penstock").options(**self._options).load()
        writer = rows.writeStream.foreachBatch(self._take).option("checkpointLocation", str(self._place))
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    def run(self) -> list[list[bytes]]:
        """The batches of one run."""
        first = len(self.batches)
        query = self.start()
        try:
            assert query.awaitTermination(WAIT_S)
        finally:
            query.stop()
        return self.batches[first:]

    def _take(self, batch: "DataFrame", _: int) -> None:
        rows = batch.select("partition", "offset", "value").orderBy("partition", "offset").collect()
        if self.fails:
            raise RuntimeError("on purpose")
        self.batches.append([bytes(row["value"]) for row in rows])


def test_a_query_goes_on_where_it_was_and_shows_its_lag(
    spark: "SparkSession", topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.broker.create_topic(topic, partitions=2)
    topics.produce(topic, numbers(30), 0)
    topics.produce(topic, numbers(10, 100), 1)
    query = Query(spark, topics, topic, tmp_path, maxOffsetsPerTrigger=20)
    assert query.run() == [
        [*numbers(15), *numbers(5, 100)],
        [*numbers(15, 15), *numbers(5, 105)],
    ]
    assert topics.committed(f"spark-{topic}", topic, 2) == [30, 10]
    topics.grow(topic, 3)
    topics.produce(topic, numbers(2, 200), 2)
    topics.produce(topic, numbers(1, 30), 0)
    assert query.run() == [[b"30", b"200", b"201"]]
    assert topics.committed(f"spark-{topic}", topic, 3) == [31, 10, 2]
    assert query.run() == []


def test_a_first_batch_that_failed_is_replayed_from_where_it_started(
    spark: "SparkSession", topics: Topics, topic: str, tmp_path: Path
) -> None:
    """With startingOffsets=latest: where the end is by then is not where the query began."""
    topics.broker.create_topic(topic)
    topics.produce(topic, numbers(5))
    query = Query(spark, topics, topic, tmp_path, startingOffsets="latest", group="")
    query.fails = True
    with pytest.raises(Exception, match="on purpose"):
        query.run()
    topics.produce(topic, numbers(3, 5))
    query.fails = False
    assert query.run() == [[], numbers(3, 5)]


@pytest.mark.long
def test_a_running_query_finds_new_topics_and_survives_a_deleted_one(
    spark: "SparkSession", topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.broker.create_topic(f"{topic}-a")
    topics.produce(f"{topic}-a", [b"a"])
    query = Query(spark, topics, None, tmp_path, subscribePattern=f"{topic}-.*", failOnDataLoss=False)
    running = query.start(processingTime="0 seconds")
    try:
        until(lambda: query.batches == [[b"a"]], "the first record")
        topics.broker.create_topic(f"{topic}-b")
        topics.produce(f"{topic}-b", [b"b"])
        until(lambda: [b"b"] in query.batches, "a record of a new topic")
        topics.delete(f"{topic}-a")
        topics.produce(f"{topic}-b", [b"c"])
        until(lambda: [b"c"] in query.batches, "a record after a topic is gone")
        assert running.exception() is None
    finally:
        running.stop()


def test_a_deleted_topic_fails_the_query_with_a_sentence(
    spark: "SparkSession", topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.broker.create_topic(topic)
    topics.produce(topic, numbers(2))
    query = Query(spark, topics, topic, tmp_path)
    assert query.run() == [numbers(2)]
    topics.delete(topic)
    with pytest.raises(Exception, match=f"partitions that were read no longer exist: {topic}-0"):
        query.run()


def test_a_stream_has_no_end_option(
    spark: "SparkSession", topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.broker.create_topic(topic)
    with pytest.raises(Exception, match="option endingOffsets is not for streams"):
        Query(spark, topics, topic, tmp_path, endingOffsets="latest").run()
