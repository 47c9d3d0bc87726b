"""How records are found and waited for: positions, times, watermarks, fetch sizes, long polls."""

import threading

import pytest
from tests.compat.clients.driver import (
    SECONDS_MAX,
    Driver,
    Fetching,
    Record,
    Refused,
    Sending,
    read,
    read_with,
)
from tests.compat.clients.servers import beside_kafka

OFFSET_OUT_OF_RANGE = 1
LOCAL_NO_RESET = -140
"""What librdkafka makes of it, with auto.offset.reset=error."""

START_MS = 1_600_000_000_000


def numbered(count: int, step_ms: int = 1000) -> list[Record]:
    return [Record(b"%d" % number, timestamp_ms=START_MS + number * step_ms) for number in range(count)]


def test_a_reader_may_start_and_seek_inside_a_batch(driver: Driver, topic: str) -> None:
    """The broker gives the whole batch; what the client shows begins at the offset that it asked for."""
    driver.produce(topic, numbered(100), Sending("gzip", linger_ms=100))
    with driver.reader(topic, {0: 57}) as reader:
        first = reader.next()
        assert first is not None
        assert (first.offset, first.value) == (57, b"57")
        reader.seek(0, 3)
        again = reader.next()
        assert again is not None
        assert (again.offset, again.value) == (3, b"3")


def test_a_batch_larger_than_the_fetch_size_is_still_given(driver: Driver, topic: str) -> None:
    """KIP-74: the first batch comes whole, or a consumer would never get past it."""
    sent = [Record(bytes([number]) * 5_000) for number in range(20)]
    driver.produce(topic, sent, Sending(linger_ms=100))
    got = read_with(driver, topic, 20, Fetching(partition_bytes_max=1_000))
    assert [each.value for each in got] == [record.value for record in sent]


@beside_kafka
def test_watermarks_tell_the_first_offset_and_the_next(driver: Driver, topic: str) -> None:
    assert driver.watermarks(topic, 0) == (0, 0)
    driver.produce(topic, numbered(10))
    assert driver.watermarks(topic, 0) == (0, 10)
    assert driver.delete_records(topic, 0, 4) == 4
    assert driver.watermarks(topic, 0) == (4, 10)


def test_times_find_the_first_record_that_is_not_older(driver: Driver, topic: str) -> None:
    for record in numbered(10):
        driver.produce(topic, [record], Sending(linger_ms=0))
    assert driver.offset_for_time(topic, 0, 0) == 0
    assert driver.offset_for_time(topic, 0, START_MS) == 0
    assert driver.offset_for_time(topic, 0, START_MS + 3000) == 3
    assert driver.offset_for_time(topic, 0, START_MS + 3001) == 4
    assert driver.offset_for_time(topic, 0, START_MS + 9000) == 9
    found = driver.offset_for_time(topic, 0, START_MS + 9001)
    assert found in ((10, None) if driver.name == "confluent-kafka" else (None,))


def test_times_find_a_record_inside_a_batch(driver: Driver, topic: str) -> None:
    driver.produce(topic, numbered(50), Sending("gzip", linger_ms=100))
    assert driver.offset_for_time(topic, 0, START_MS + 30_500) == 31


def test_a_waiting_reader_gets_a_record_when_it_comes(driver: Driver, topic: str) -> None:
    """The broker holds the fetch: longer than the test waits for what is to end it."""
    got: list[bytes | None] = []
    reads = threading.Event()

    def wait() -> None:
        with driver.reader(topic, {0: 0}, Fetching(wait_ms_max=25_000)) as reader:
            first = reader.next()
            got.append(first.value if first else None)
            reads.set()
            second = reader.next()
            got.append(second.value if second else None)

    thread = threading.Thread(target=wait)
    thread.start()
    driver.produce(topic, [Record(b"first")])
    assert reads.wait(SECONDS_MAX)
    driver.produce(topic, [Record(b"second")])
    thread.join(20)
    assert not thread.is_alive(), "the record came only when the wait was over"
    assert got == [b"first", b"second"]


def test_a_reader_that_wants_more_bytes_is_answered_when_its_wait_is_over(driver: Driver, topic: str) -> None:
    driver.produce(topic, [Record(b"little")])
    [got] = read_with(driver, topic, 1, Fetching(wait_ms_max=50, bytes_min=1 << 20))
    assert got.value == b"little"


def test_an_offset_out_of_range_is_an_error_for_a_reader_without_a_reset(driver: Driver, topic: str) -> None:
    driver.produce(topic, numbered(3))
    with pytest.raises(Refused) as refused, driver.reader(topic, {0: 1_000}) as reader:
        reader.next()
    assert refused.value.code in (OFFSET_OUT_OF_RANGE, LOCAL_NO_RESET)


def test_records_that_were_deleted_are_not_read(driver: Driver, topic: str) -> None:
    driver.produce(topic, numbered(10))
    assert driver.delete_records(topic, 0, 6) == 6
    got = read(driver, topic, 4, {0: 6})
    assert [each.offset for each in got] == [6, 7, 8, 9]
    assert driver.delete_records(topic, 0, -1) == 10, "-1 is the high watermark"
    assert driver.watermarks(topic, 0) == (10, 10)


def test_deleting_past_the_end_is_refused(driver: Driver, topic: str) -> None:
    driver.produce(topic, numbered(3))
    with pytest.raises(Refused) as refused:
        driver.delete_records(topic, 0, 4)
    assert refused.value.code == OFFSET_OUT_OF_RANGE
    assert driver.watermarks(topic, 0) == (0, 3)


def test_two_readers_of_one_partition_each_get_everything(driver: Driver, topic: str) -> None:
    driver.produce(topic, numbered(20))
    with driver.reader(topic, {0: 0}) as one, driver.reader(topic, {0: 10}) as other:
        for number in range(10):
            first, second = one.next(), other.next()
            assert first is not None
            assert second is not None
            assert (first.offset, second.offset) == (number, number + 10)


def test_a_reader_goes_on_over_many_partitions_as_records_come(driver: Driver, name: str) -> None:
    """The fetch session changes with what arrives (KIP-227)."""
    driver.create_topic(name, partitions=5)
    with driver.reader(name, dict.fromkeys(range(5), 0)) as reader:
        for number in range(15):
            driver.produce(name, [Record(b"%d" % number, partition=number % 5)], Sending(linger_ms=0))
            got = reader.next()
            assert got is not None
            assert (got.partition, got.offset, got.value) == (number % 5, number // 5, b"%d" % number)
