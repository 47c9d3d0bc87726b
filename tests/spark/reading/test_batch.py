"""Batch reads, planned and read in this process: what a range means, what comes out, what is refused."""

import datetime
import json
from collections.abc import Iterator
from random import Random

import pytest
from tests.spark.topics import Topics, corrupt, numbers, send

from penstock.arrow.decode import CorruptRecords
from penstock.arrow.schema import arrow_schema
from penstock.spark.errors import BadOption, DataLoss
from penstock.spark.reading.batch import plan_batch
from penstock.spark.reading.fetch import read_task
from penstock.spark.reading.options import read_options
from penstock.testing import Broker

T = 1_794_000_000_000


def offsets(topic: str, *by_partition: int) -> str:
    return json.dumps({topic: {str(index): offset for index, offset in enumerate(by_partition)}})


# -- rows -------------------------------------------------------------------------------------------------


def test_every_column_comes_as_it_was_produced(topics: Topics, topic: str) -> None:
    topics.broker.create_topic(topic, partitions=2)
    headers = [("trace", b"1"), ("trace", b""), ("none", None)]
    topics.produce(topic, [b"hello"], 1, key=b"k", timestamp=T, headers=headers)
    topics.produce(topic, [None], 1, key=None, timestamp=T + 1)
    topics.produce(topic, [b""], 1, key=b"", timestamp=T + 2)
    at = datetime.datetime.fromtimestamp(T / 1000, datetime.UTC)
    ms = datetime.timedelta(milliseconds=1)
    common = {"topic": topic, "partition": 1, "timestampType": 0}
    assert topics.read(topic) == [
        {
            "key": b"k",
            "value": b"hello",
            "offset": 0,
            "timestamp": at,
            "headers": [
                {"key": "trace", "value": b"1"},
                {"key": "trace", "value": b""},
                {"key": "none", "value": None},
            ],
            **common,
        },
        {"key": None, "value": None, "offset": 1, "timestamp": at + ms, "headers": None, **common},
        {"key": b"", "value": b"", "offset": 2, "timestamp": at + 2 * ms, "headers": None, **common},
    ]


def test_a_topic_with_log_append_time_says_so(topics: Topics, topic: str) -> None:
    topics.broker.create_topic(topic, message_timestamp_type="LogAppendTime")
    topics.produce(topic, [b"1"], timestamp=T)
    [row] = topics.read(topic)
    assert row["timestampType"] == 1
    assert row["timestamp"] > datetime.datetime.fromtimestamp(T / 1000, datetime.UTC)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs(topics: Topics, topic: str, codec: str) -> None:
    topics.broker.create_topic(topic)
    values = [each * 20 for each in numbers(300)]
    send(topics.producer(compression_type=codec, linger_ms=50), topic, values)
    assert topics.values(topic) == values


def test_a_schema_narrows_and_orders_the_columns(topics: Topics, topic: str) -> None:
    topics.broker.create_topic(topic)
    topics.produce(topic, numbers(3))
    options = read_options(topics.options(topic))
    [task] = plan_batch(options)
    [batch] = read_task(task, ("offset", "value"), options)
    assert batch.schema == arrow_schema(("offset", "value"))
    assert batch.to_pydict() == {"offset": [0, 1, 2], "value": [b"0", b"1", b"2"]}


def test_values_of_a_megabyte_and_fetches_smaller_than_one(topics: Topics, topic: str) -> None:
    topics.broker.create_topic(topic, max_message_bytes=2_000_000)
    values = [Random(seed).randbytes(1_000_000) for seed in range(5)]
    send(topics.producer(message_max_bytes=2_000_000), topic, values)
    assert topics.values(topic) == values
    assert topics.values(topic, kafka__max__partition__fetch__bytes=1000) == values


def test_many_fetches_give_each_record_once(topics: Topics, topic: str) -> None:
    topics.broker.create_topic(topic)
    values = numbers(5000)
    send(topics.producer(batch_num_messages=100), topic, values)
    assert topics.values(topic, kafka__fetch__max__bytes=4000) == values


def test_an_empty_topic_has_no_rows_and_no_tasks(topics: Topics, topic: str) -> None:
    topics.broker.create_topic(topic, partitions=3)
    assert plan_batch(read_options(topics.options(topic))) == []
    assert topics.read(topic) == []


# -- transactions -----------------------------------------------------------------------------------------


@pytest.fixture
def mixed(topics: Topics, topic: str) -> Iterator[str]:
    """Committed, aborted and open transactions, with records of nobody's transaction between."""
    topics.broker.create_topic(topic)
    topics.produce(topic, [b"plain"])
    done = topics.transaction(topic, [b"a1", b"a2"], transactional_id=f"{topic}-a")
    done.commit_transaction(30)
    undone = topics.transaction(topic, [b"b1", b"b2"], transactional_id=f"{topic}-b")
    topics.produce(topic, [b"between"])
    undone.abort_transaction(30)
    still = topics.transaction(topic, [b"c1"], transactional_id=f"{topic}-c")
    topics.produce(topic, [b"after"])
    yield topic
    still.abort_transaction(30)


def test_readers_see_everything_by_default(topics: Topics, mixed: str) -> None:
    """Kafka's default, and so that of Spark's source."""
    everything = [b"plain", b"a1", b"a2", b"b1", b"b2", b"between", b"c1", b"after"]
    assert topics.values(mixed) == everything
    assert topics.values(mixed, isolation__level="read_uncommitted") == everything


@pytest.mark.parametrize("option", ["isolation__level", "kafka__isolation__level"])
def test_read_committed_stops_at_the_first_open_transaction(topics: Topics, mixed: str, option: str) -> None:
    assert topics.values(mixed, **{option: "read_committed"}) == [b"plain", b"a1", b"a2", b"between"]


# -- ranges -----------------------------------------------------------------------------------------------


def test_offsets_by_partition(topics: Topics, topic: str) -> None:
    topics.broker.create_topic(topic, partitions=3)
    for index in range(3):
        topics.produce(topic, numbers(10, 100 * index), index)
    got = topics.values(
        topic, startingOffsets=offsets(topic, 8, -2, 3), endingOffsets=offsets(topic, -1, 2, 3)
    )
    assert got == [b"8", b"9", b"100", b"101"]


def test_times(topics: Topics, topic: str) -> None:
    topics.broker.create_topic(topic, partitions=2)
    for index in range(10):
        topics.produce(topic, [b"%d" % index], index % 2, timestamp=T + 1000 * index)
    assert topics.values(topic, startingTimestamp=T + 4500, endingTimestamp=T + 7000) == [b"6", b"5"]
    by_partition = json.dumps({topic: {"0": T + 8000, "1": T + 6500}})
    assert topics.values(topic, startingOffsetsByTimestamp=by_partition) == [b"8", b"7", b"9"]
    assert topics.values(topic, endingOffsetsByTimestamp=json.dumps({topic: {"0": T + 1, "1": T + 1}})) == [
        b"0"
    ]


def test_an_ending_time_after_the_last_record_is_the_end(topics: Topics, topic: str) -> None:
    topics.broker.create_topic(topic)
    topics.produce(topic, numbers(2), timestamp=T)
    assert topics.values(topic, endingTimestamp=T + 10**9) == [b"0", b"1"]


def test_a_starting_time_after_the_last_record_is_an_error_by_default(topics: Topics, topic: str) -> None:
    topics.broker.create_topic(topic)
    topics.produce(topic, numbers(2), timestamp=T)
    late = T + 10**9
    with pytest.raises(
        BadOption, match=rf"startingTimestamp: partition {topic}-0 has no record .* {late} ms"
    ):
        topics.values(topic, startingTimestamp=late)
    assert topics.values(topic, startingTimestamp=late, startingOffsetsByTimestampStrategy="latest") == []


def test_patterns_match_whole_names(topics: Topics, topic: str) -> None:
    for name in (f"{topic}-a", f"{topic}-b", f"{topic}-bc"):
        topics.broker.create_topic(name)
        topics.produce(name, [name.encode()])
    got = topics.values(subscribePattern=f"{topic}-[ab]")
    assert got == [f"{topic}-a".encode(), f"{topic}-b".encode()]
    assert topics.values(subscribePattern=f"{topic}-no-such") == []


def test_assigned_partitions_alone_are_read(topics: Topics, topic: str) -> None:
    topics.broker.create_topic(topic, partitions=3)
    for index in range(3):
        topics.produce(topic, [b"%d" % index], index)
    assert topics.values(assign=json.dumps({topic: [2, 0]})) == [b"0", b"2"]
    with pytest.raises(BadOption, match=f"partition {topic}-7 does not exist"):
        topics.values(assign=json.dumps({topic: [0, 7]}))


def test_a_big_partition_is_split(topics: Topics, topic: str) -> None:
    topics.broker.create_topic(topic, partitions=2)
    values = numbers(1000)
    send(topics.producer(batch_num_messages=37), topic, values)
    topics.produce(topic, [b"x"], 1)
    options = read_options(topics.options(topic, minPartitions=6))
    tasks = plan_batch(options)
    assert [str(each.span) for each in tasks] == [
        *(f"{topic}-0 [{200 * index}, {200 * index + 200})" for index in range(5)),
        f"{topic}-1 [0, 1)",
    ]
    rows = [
        row for task in tasks for batch in read_task(task, ("value",), options) for row in batch.to_pylist()
    ]
    assert [row["value"] for row in rows] == [*values, b"x"]
    assert len(plan_batch(read_options(topics.options(topic, maxRecordsPerPartition=100)))) == 11


# -- what is refused, and what is gone ------------------------------------------------------------------------


def test_a_topic_that_is_not_there(topics: Topics, topic: str) -> None:
    with pytest.raises(BadOption, match=f"topic {topic} does not exist"):
        topics.read(topic)


def test_offsets_must_name_every_partition_and_no_other(topics: Topics, topic: str) -> None:
    topics.broker.create_topic(topic, partitions=2)
    with pytest.raises(BadOption, match=f"startingOffsets has no value for partition {topic}-1"):
        topics.read(topic, startingOffsets=offsets(topic, 0))
    with pytest.raises(BadOption, match=f"endingOffsets names partition {topic}-2"):
        topics.read(topic, endingOffsets=offsets(topic, -1, -1, -1))


def test_no_listener(topics: Topics, topic: str) -> None:
    with pytest.raises(Exception, match=r"cannot reach 127\.0\.0\.1:1: connection refused"):
        topics.read(topic, **{"kafka.bootstrap.servers": "127.0.0.1:1"})


@pytest.mark.parametrize(("start", "stop"), [(1, -1), (-2, 9)])
def test_offsets_outside_of_the_log(
    topics: Topics, topic: str, start: int, stop: int, caplog: pytest.LogCaptureFixture
) -> None:
    topics.broker.create_topic(topic)
    topics.produce(topic, numbers(6))
    topics.cut(topic, 3)
    given = {"startingOffsets": offsets(topic, start), "endingOffsets": offsets(topic, stop)}
    with pytest.raises(DataLoss, match=rf"has offset {max(start, stop)} for {topic}-0, which has 3 to 6"):
        topics.read(topic, **given)
    assert topics.values(topic, failOnDataLoss=False, **given) == [b"3", b"4", b"5"]
    assert "failOnDataLoss is false, so the rest is read" in caplog.text


@pytest.mark.parametrize("is_error", [True, False])
def test_records_deleted_between_plan_and_read(
    topics: Topics, topic: str, is_error: bool, caplog: pytest.LogCaptureFixture
) -> None:
    topics.broker.create_topic(topic)
    topics.produce(topic, numbers(10))
    options = read_options(topics.options(topic, failOnDataLoss=is_error))
    [task] = plan_batch(options)
    topics.cut(topic, 7)
    if is_error:
        with pytest.raises(
            DataLoss,
            match=rf"{topic}-0 \[0, 10\) cannot be read completely: offsets 0 to 6 no longer exist, .* at 7",
        ):
            list(read_task(task, ("value",), options))
    else:
        [batch] = read_task(task, ("offset",), options)
        assert batch.to_pydict() == {"offset": [7, 8, 9]}
        assert "offsets 0 to 6 no longer exist" in caplog.text


@pytest.mark.parametrize("is_error", [True, False])
@pytest.mark.parametrize("is_made_anew", [True, False])
def test_a_topic_deleted_between_plan_and_read(
    topics: Topics, topic: str, is_error: bool, is_made_anew: bool, caplog: pytest.LogCaptureFixture
) -> None:
    topics.broker.create_topic(topic)
    topics.produce(topic, numbers(5))
    options = read_options(topics.options(topic, failOnDataLoss=is_error))
    [task] = plan_batch(options)
    topics.delete(topic)
    if is_made_anew:
        topics.broker.create_topic(topic)
        topics.produce(topic, numbers(20, 1000))
    why = "the topic was deleted and created again" if is_made_anew else "the topic no longer exists"
    if is_error:
        with pytest.raises(DataLoss, match=rf"{topic}-0 \[0, 5\) cannot be read completely: .*{why}"):
            list(read_task(task, ("value",), options))
    else:
        assert list(read_task(task, ("value",), options)) == []
        assert why in caplog.text


def test_a_corrupt_batch_is_named() -> None:
    with Broker() as broker, Topics(broker) as topics:
        broker.create_topic("orders")
        for first in (0, 10, 20):
            topics.produce("orders", numbers(10, first))
        corrupt(broker, "orders", b"15")
        with pytest.raises(CorruptRecords, match=r"partition 0 of topic orders .* at offset 10: .*corrupt"):
            topics.read("orders")
        assert topics.values("orders", endingOffsets=offsets("orders", 10)) == numbers(10)


def test_a_broker_that_restarts_in_the_middle() -> None:
    with Broker() as broker, Topics(broker) as own:
        broker.create_topic("orders")
        values = numbers(3000)
        send(own.producer(batch_num_messages=100), "orders", values)
        options = read_options(own.options("orders", kafka__fetch__max__bytes=3000))
        [task] = plan_batch(options)
        rows = iter(read_task(task, ("value",), options))
        broker.restart()
        got = [row["value"] for batch in rows for row in batch.to_pylist()]
        assert got == values
