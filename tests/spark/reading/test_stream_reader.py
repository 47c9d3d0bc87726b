"""A stream's reader, asked as Spark asks it, in this process: offsets, limits, and what happens underneath."""

import json
import logging
import pickle
import threading
import time
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from tests.spark.topics import Topics, numbers, read_span

from penstock.spark.errors import BadOption, DataLoss
from penstock.spark.reading.stream import START_KEY, StreamReader
from penstock.testing import Broker

ALL = ReadAllAvailable()
Told = dict[str, Any]


def told(topic: str, *by_partition: int) -> Told:
    return {topic: {str(index): offset for index, offset in enumerate(by_partition)}}


def plain(offset: Told) -> Told:
    """Without what the end of a first batch says of its start."""
    return {name: inner for name, inner in offset.items() if name != START_KEY}


# -- offsets ----------------------------------------------------------------------------------------------


def test_a_stream_starts_at_the_end_by_default(topics: Topics, topic: str) -> None:
    topics.broker.create_topic(topic, partitions=2)
    topics.produce(topic, numbers(5), 1)
    assert topics.stream(topic).initialOffset() == told(topic, 0, 5)
    assert topics.stream(topic, startingOffsets="earliest").initialOffset() == told(topic, 0, 0)
    given = json.dumps(told(topic, -1, 3))
    assert topics.stream(topic, startingOffsets=given).initialOffset() == told(topic, 0, 3)


def test_a_topic_that_is_not_there_is_reported_at_the_start(topics: Topics, topic: str) -> None:
    with pytest.raises(BadOption, match=f"topic {topic} does not exist"):
        topics.stream(topic).initialOffset()


def test_records_between_two_questions_for_the_start_are_not_lost(topics: Topics, topic: str) -> None:
    """Spark asks for it when it looks for new offsets, and again when it plans the batch."""
    topics.broker.create_topic(topic)
    stream = topics.stream(topic)
    first = stream.initialOffset()
    topics.produce(topic, numbers(3))
    assert stream.initialOffset() == first == told(topic, 0)


def test_a_first_batch_replayed_after_a_crash_starts_where_it_started(topics: Topics, topic: str) -> None:
    """Its end is in the checkpoint, and Spark asks a new reader for its start."""
    topics.broker.create_topic(topic)
    topics.produce(topic, numbers(2))
    stream = topics.stream(topic)
    start = stream.initialOffset()
    topics.produce(topic, numbers(3, 2))
    end = stream.latestOffset(start, ALL)
    assert read_span(stream, start, end) == numbers(3, 2)
    topics.produce(topic, numbers(4, 5))
    later = topics.stream(topic)
    assert later.initialOffset() == told(topic, 9)
    replay = json.loads(json.dumps(end))
    assert read_span(later, later.initialOffset(), replay) == numbers(3, 2)
    second = later.latestOffset(replay, ALL)
    assert second == told(topic, 9)
    assert later.latestOffset(second, ALL) == second  # though it is where this reader would have started
    assert read_span(later, replay, second) == numbers(4, 5)


def test_a_first_batch_without_records_fixes_the_start_too(topics: Topics, topic: str) -> None:
    """Spark runs it, and after a crash replays it, with whatever has come since."""
    topics.broker.create_topic(topic)
    topics.produce(topic, numbers(2))
    stream = topics.stream(topic)
    end = stream.latestOffset(stream.initialOffset(), ALL)
    assert plain(end) == told(topic, 2)
    topics.produce(topic, numbers(3, 2))
    later = topics.stream(topic)
    assert later.partitions(later.initialOffset(), end) == []
    assert later.latestOffset(end, ALL) == told(topic, 5)


def test_nothing_new_gives_the_start_back_to_the_letter(topics: Topics, topic: str) -> None:
    """Another text would be another offset, and another batch without end."""
    topics.broker.create_topic(topic, partitions=12)
    stream = topics.stream(topic, startingOffsets="earliest")
    first = json.dumps(stream.latestOffset(stream.initialOffset(), ALL))
    assert json.dumps(stream.latestOffset(json.loads(first), ALL)) == first
    topics.produce(topic, numbers(1), 11)
    second = json.dumps(stream.latestOffset(json.loads(first), ALL))
    assert second != first
    assert json.dumps(stream.latestOffset(json.loads(second), ALL)) == second


def test_an_idle_stream_waits_at_the_broker(topics: Topics, topic: str) -> None:
    """Spark asks again at once; answered at once, that would be 60 times a second."""
    topics.broker.create_topic(topic)
    stream = topics.stream(topic)
    end = stream.latestOffset(stream.initialOffset(), ALL)
    for _ in range(2):
        began = time.monotonic()
        assert stream.latestOffset(end, ALL) == end
        assert time.monotonic() - began >= 0.15


def test_the_latest_offset_is_reported_from_memory(topics: Topics, topic: str) -> None:
    topics.broker.create_topic(topic)
    stream = topics.stream(topic)
    assert stream.reportLatestOffset() is None
    start = stream.initialOffset()
    topics.produce(topic, numbers(10))
    stream.latestOffset(start, ReadMaxRows(4))
    topics.produce(topic, numbers(10))
    assert stream.reportLatestOffset() == told(topic, 10)


def test_a_question_for_new_offsets_is_answered_with_the_first_record(topics: Topics, topic: str) -> None:
    """It waits at the broker; a record that comes meanwhile is in the answer, not in the next one."""
    topics.broker.create_topic(topic)
    stream = topics.stream(topic)
    start = stream.latestOffset(stream.initialOffset(), ALL)
    thread = threading.Timer(0.02, topics.produce, (topic, numbers(1)))
    thread.start()
    found, asked = start, 0
    while found == start:
        found = stream.latestOffset(start, ALL)
        asked += 1
    thread.join()
    assert found == told(topic, 1)
    assert asked <= 20  # hundreds, if it were answered at once


def test_read_committed_does_not_go_past_an_open_transaction(topics: Topics, topic: str) -> None:
    topics.broker.create_topic(topic)
    stream = topics.stream(topic, isolation__level="read_committed", startingOffsets="earliest")
    start = stream.initialOffset()
    topics.produce(topic, [b"plain"])
    open_one = topics.transaction(topic, [b"mine"], transactional_id=topic)
    end = stream.latestOffset(start, ALL)
    assert plain(end) == told(topic, 1)
    open_one.commit_transaction(30)
    last = stream.latestOffset(end, ALL)
    assert last == told(topic, 3)  # the marker has an offset too
    assert read_span(stream, end, last) == [b"mine"]


# -- limits -----------------------------------------------------------------------------------------------


def test_limits_come_from_options(topics: Topics, topic: str) -> None:
    assert topics.stream(topic).getDefaultReadLimit() == ALL
    assert topics.stream(topic, maxOffsetsPerTrigger=5).getDefaultReadLimit() == ReadMaxRows(5)
    assert topics.stream(topic, minOffsetsPerTrigger=5).getDefaultReadLimit() == ReadMinRows(5)
    both = topics.stream(topic, minOffsetsPerTrigger=5, maxOffsetsPerTrigger=9)
    assert both.getDefaultReadLimit() == ReadMaxRows(9)


def test_a_limit_is_shared_and_spark_may_ask_for_everything(topics: Topics, topic: str) -> None:
    topics.broker.create_topic(topic, partitions=2)
    stream = topics.stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=12)
    start = stream.initialOffset()
    topics.produce(topic, numbers(40), 0)
    topics.produce(topic, numbers(20), 1)
    end = stream.latestOffset(start, ReadMaxRows(12))
    assert plain(end) == told(topic, 8, 4)
    assert stream.latestOffset(end, ALL) == told(topic, 40, 20)


def test_available_now_reads_what_was_there_and_no_more(topics: Topics, topic: str) -> None:
    topics.broker.create_topic(topic)
    topics.produce(topic, numbers(5))
    stream = topics.stream(topic, startingOffsets="earliest", minOffsetsPerTrigger=100, maxTriggerDelay="1h")
    stream.prepareForTriggerAvailableNow()
    topics.produce(topic, numbers(5))
    start = stream.initialOffset()
    first = stream.latestOffset(start, ReadMaxRows(3))
    second = stream.latestOffset(first, ReadMaxRows(3))
    assert [plain(first), second] == [told(topic, 3), told(topic, 5)]
    assert stream.latestOffset(second, ReadMaxRows(3)) == second


def test_a_minimum_holds_back_all_but_the_first_batch(topics: Topics, topic: str) -> None:
    topics.broker.create_topic(topic)
    stream = topics.stream(topic, startingOffsets="earliest", minOffsetsPerTrigger=5, maxTriggerDelay="1h")
    limit = stream.getDefaultReadLimit()
    topics.produce(topic, numbers(1))
    first = stream.latestOffset(stream.initialOffset(), limit)
    assert plain(first) == told(topic, 1)
    topics.produce(topic, numbers(4))
    assert stream.latestOffset(first, limit) == first
    topics.produce(topic, numbers(1))
    assert stream.latestOffset(first, limit) == told(topic, 6)


def test_a_minimum_gives_way_after_its_delay(topics: Topics, topic: str) -> None:
    topics.broker.create_topic(topic)
    stream = topics.stream(topic, startingOffsets="earliest", minOffsetsPerTrigger=5, maxTriggerDelay="1ms")
    limit = stream.getDefaultReadLimit()
    topics.produce(topic, numbers(1))
    first = stream.latestOffset(stream.initialOffset(), limit)
    topics.produce(topic, numbers(1))
    found = first
    while found == first:
        found = stream.latestOffset(first, limit)
    assert found == told(topic, 2)


# -- what happens underneath --------------------------------------------------------------------------------


def test_new_partitions_are_read_from_their_beginning(topics: Topics, topic: str) -> None:
    topics.broker.create_topic(topic)
    topics.produce(topic, numbers(3))
    stream = topics.stream(topic)
    start = stream.initialOffset()
    topics.grow(topic, 3)
    topics.produce(topic, numbers(2, 10), 2)
    end = stream.latestOffset(start, ReadMaxRows(100))
    assert plain(end) == told(topic, 3, 0, 2)
    assert read_span(stream, start, end) == numbers(2, 10)


def test_new_topics_are_found_by_pattern(topics: Topics, topic: str) -> None:
    topics.broker.create_topic(f"{topic}-a")
    stream = topics.stream(subscribePattern=f"{topic}-.*")
    start = stream.initialOffset()
    topics.broker.create_topic(f"{topic}-b")
    topics.produce(f"{topic}-b", numbers(2))
    end = stream.latestOffset(start, ALL)
    assert plain(end) == told(f"{topic}-a", 0) | told(f"{topic}-b", 2)
    assert read_span(stream, start, end) == numbers(2)


def test_a_new_partition_that_has_lost_records_already(
    topics: Topics, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    topics.broker.create_topic(topic)
    for is_error in (True, False):
        stream = topics.stream(topic, failOnDataLoss=is_error)
        start = stream.initialOffset()
        if is_error:
            topics.grow(topic, 2)
            topics.produce(topic, numbers(5), 1)
            topics.cut(topic, 2, 1)
            with pytest.raises(DataLoss, match=f"new partition {topic}-1 starts at offset 2 and not at 0"):
                stream.partitions(start, stream.latestOffset(start, ALL))
        else:
            before = told(topic, 0)
            assert read_span(stream, before, stream.latestOffset(before, ALL)) == numbers(3, 2)
            assert f"new partition {topic}-1 starts at offset 2" in caplog.text


def test_retention_underneath(topics: Topics, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    topics.broker.create_topic(topic)
    topics.produce(topic, numbers(10))
    topics.cut(topic, 6)
    start, end = told(topic, 2), told(topic, 10)
    with pytest.raises(
        DataLoss, match=rf"{topic}-0 \[2, 10\) .*: offsets 2 to 5 no longer exist, its log now starts at 6"
    ):
        read_span(topics.stream(topic), start, end)
    assert read_span(topics.stream(topic, failOnDataLoss=False), start, end) == numbers(4, 6)
    assert "offsets 2 to 5 no longer exist" in caplog.text


def test_a_topic_deleted_underneath(topics: Topics, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a", "b"):
        topics.broker.create_topic(f"{topic}-{name}")
        topics.produce(f"{topic}-{name}", numbers(3))
    start = told(f"{topic}-a", 3) | told(f"{topic}-b", 1)
    strict, lax = (
        topics.stream(subscribePattern=f"{topic}-.*", failOnDataLoss=each) for each in (True, False)
    )
    topics.delete(f"{topic}-a")
    with pytest.raises(DataLoss, match=f"partitions that were read no longer exist: {topic}-a-0"):
        strict.latestOffset(start, ALL)
    end = lax.latestOffset(start, ALL)
    assert plain(end) == told(f"{topic}-b", 3)
    assert read_span(lax, start, end) == numbers(2, 1)
    assert f"no longer exist: {topic}-a-0" in caplog.text


def test_a_topic_made_anew_underneath(topics: Topics, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    """What the new one has is read from its beginning, rather than skipped."""
    caplog.set_level(logging.WARNING)
    topics.broker.create_topic(topic)
    topics.produce(topic, numbers(5))
    start = told(topic, 5)
    topics.delete(topic)
    topics.broker.create_topic(topic)
    topics.produce(topic, numbers(2, 100))
    with pytest.raises(DataLoss, match=f"partition {topic}-0 was read up to offset 5, but now ends at 2"):
        topics.stream(topic).latestOffset(start, ALL)
    lax = topics.stream(topic, failOnDataLoss=False)
    end = lax.latestOffset(start, ReadMaxRows(1))
    assert plain(end) == told(topic, 2)
    assert read_span(lax, start, end) == numbers(2, 100)


def test_a_broker_that_is_away_for_a_while() -> None:
    with Broker() as broker, Topics(broker) as topics:
        broker.create_topic("orders")
        stream = topics.stream("orders")
        start = stream.latestOffset(stream.initialOffset(), ALL)
        assert stream.latestOffset(start, ALL) == start
        broker.restart()
        topics.produce("orders", numbers(3))
        found = start
        while found == start:
            found = stream.latestOffset(start, ALL)
        assert read_span(stream, start, found) == numbers(3)


# -- the position -------------------------------------------------------------------------------------------


def test_the_position_is_committed_as_spark_tells_it(topics: Topics, topic: str) -> None:
    topics.broker.create_topic(topic, partitions=2)
    stream = topics.stream(topic, startingOffsets="earliest", group=f"group-{topic}")
    start = stream.initialOffset()
    topics.produce(topic, numbers(4), 1)
    end = stream.latestOffset(start, ALL)
    assert topics.committed(f"group-{topic}", topic, 2) == [0, 0]
    stream.commit(end)
    assert topics.committed(f"group-{topic}", topic, 2) == [0, 4]


def test_a_restart_commits_what_was_not(topics: Topics, topic: str) -> None:
    """commit() is told of the last batch of a run never; the start of the next question is as good."""
    topics.broker.create_topic(topic)
    topics.produce(topic, numbers(4))
    stream = topics.stream(topic, group=f"group-{topic}")
    stream.prepareForTriggerAvailableNow()
    stream.latestOffset(told(topic, 4), ALL)
    assert topics.committed(f"group-{topic}", topic) == [4]


def test_a_position_that_cannot_be_committed_stops_nothing(
    topics: Topics, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A group with members refuses whoever is not one of them."""
    topics.broker.create_topic(topic)
    group = f"group-{topic}"
    member = topics.member(group, topic)
    try:
        stream = topics.stream(topic, startingOffsets="earliest", group=group)
        start = stream.initialOffset()
        topics.produce(topic, numbers(2))
        end = stream.latestOffset(start, ALL)
        stream.commit(end)
        assert plain(end) == told(topic, 2)
    finally:
        member.close()
    assert caplog.text.count(f"cannot commit offsets of group {group}; the query continues") == 1


def test_no_group_no_commit(topics: Topics, topic: str) -> None:
    topics.broker.create_topic(topic)
    stream = topics.stream(topic, group="")
    stream.latestOffset(stream.initialOffset(), ALL)
    assert not any(topic in group.group_id for group in topics.admin.list_consumer_groups().result(30).valid)


def test_a_reader_travels_before_it_is_used(topics: Topics, topic: str) -> None:
    assert isinstance(pickle.loads(pickle.dumps(topics.stream(topic))), StreamReader)
