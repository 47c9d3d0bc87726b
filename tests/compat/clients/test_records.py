"""What goes in comes out: every codec, header, timestamp, size, acknowledgement, with every client."""

import pytest
from tests.compat.clients.driver import (
    CODECS,
    CREATE_TIME,
    LOG_APPEND_TIME,
    Driver,
    Fetching,
    Record,
    Refused,
    Sending,
    Unsupported,
    read,
    read_with,
)
from tests.compat.clients.servers import Server, beside_kafka

MESSAGE_TOO_LARGE = 10
INVALID_TIMESTAMP = 32
INVALID_RECORD = 87
UNKNOWN_TO_CLIENT = -1


def values(count: int, length: int = 100) -> list[Record]:
    """Records that compress well and differ."""
    return [
        Record(f"{number:06d}".encode() + b"x" * length, key=b"%d" % (number % 7)) for number in range(count)
    ]


@beside_kafka
@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_codec_come_back_in_order(driver: Driver, topic: str, codec: str) -> None:
    if codec not in driver.codecs:
        pytest.skip(f"{driver.name} cannot compress with {codec} as it is installed")
    sent = values(200)
    assert driver.produce(topic, sent, Sending(codec)) == list(range(200))
    got = read(driver, topic, 200)
    assert [(each.offset, each.key, each.value) for each in got] == [
        (offset, record.key, record.value) for offset, record in enumerate(sent)
    ]


def test_one_log_holds_batches_of_all_codecs(driver: Driver, topic: str) -> None:
    codecs = [codec for codec in CODECS if codec in driver.codecs]
    for codec in codecs:
        driver.produce(topic, values(20), Sending(codec))
    got = read(driver, topic, 20 * len(codecs))
    assert [each.value for each in got] == [record.value for record in values(20)] * len(codecs)


@beside_kafka
def test_headers_keep_their_order_their_duplicates_and_their_missing_values(
    driver: Driver, topic: str
) -> None:
    headers = (("b", b"1"), ("a", b""), ("b", b"2"), ("ключ", "é".encode()), ("b", b"1"))
    try:
        driver.produce(topic, [Record(b"v", headers=(*headers, ("none", None)))])
        headers = (*headers, ("none", None))
    except Unsupported:
        driver.produce(topic, [Record(b"v", headers=headers)])
    [got] = read(driver, topic, 1)
    assert got.headers == headers


def test_empty_and_missing_keys_and_values_are_distinguished(driver: Driver, topic: str) -> None:
    """A record without a value is a tombstone; one with an empty value is not."""
    sent = [
        Record(b"", key=b""),
        Record(b"", key=None),
        Record(None, key=b""),
        Record(None, key=b"gone"),
        Record(b"v", key=b"k"),
    ]
    driver.produce(topic, sent)
    assert [(each.key, each.value) for each in read(driver, topic, 5)] == [
        (record.key, record.value) for record in sent
    ]


def test_a_record_may_have_neither_key_nor_value(driver: Driver, topic: str) -> None:
    try:
        driver.produce(topic, [Record(None)])
    except Unsupported as reason:
        pytest.skip(str(reason))
    [got] = read(driver, topic, 1)
    assert (got.key, got.value) == (None, None)


def test_a_record_keeps_the_time_that_its_producer_gave_it(driver: Driver, topic: str) -> None:
    times = [1_600_000_000_000, 1_500_000_000_001, 1_600_000_000_002]
    driver.produce(topic, [Record(b"v", timestamp_ms=each) for each in times])
    got = read(driver, topic, 3)
    assert [each.timestamp_ms for each in got] == times
    assert {each.timestamp_type for each in got} == {CREATE_TIME}


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_topic_with_append_time_gives_records_the_brokers_time(
    driver: Driver, name: str, codec: str
) -> None:
    driver.create_topic(name, configs={"message.timestamp.type": "LogAppendTime"})
    driver.create_topic(f"{name}-clock")
    driver.produce(f"{name}-clock", [Record(b"before")])
    driver.produce(
        name, [Record(b"v", timestamp_ms=1_600_000_000_000 + each) for each in range(3)], Sending(codec)
    )
    driver.produce(f"{name}-clock", [Record(b"after")])
    before, after = read(driver, f"{name}-clock", 2)
    got = read(driver, name, 3)
    assert {each.timestamp_type for each in got} == {LOG_APPEND_TIME}
    assert all(before.timestamp_ms <= each.timestamp_ms <= after.timestamp_ms for each in got)
    assert len({each.timestamp_ms for each in got}) == 1, "one batch has one time"


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_value_of_five_megabytes_goes_through(driver: Driver, name: str, codec: str) -> None:
    if codec not in driver.codecs:
        pytest.skip(f"{driver.name} cannot compress with {codec} as it is installed")
    driver.create_topic(name, configs={"max.message.bytes": str(6 << 20)})
    big = bytes(range(256)) * (5 * 4096)
    sent = [Record(b"before"), Record(big, key=b"big"), Record(b"after")]
    driver.produce(name, sent, Sending(codec, request_bytes_max=6 << 20))
    assert [each.value for each in read(driver, name, 3)] == [record.value for record in sent]


@beside_kafka
def test_a_batch_larger_than_the_topic_takes_is_refused_and_the_topic_goes_on(
    driver: Driver, name: str
) -> None:
    driver.create_topic(name, configs={"max.message.bytes": "10000"})
    with pytest.raises(Refused) as refused:
        driver.produce(name, [Record(b"x" * 20_000)])
    assert refused.value.code == MESSAGE_TOO_LARGE
    assert driver.produce(name, [Record(b"x" * 9_000)]) == [0]


def test_fifty_partitions_are_written_and_read_together(driver: Driver, name: str) -> None:
    driver.create_topic(name, partitions=50)
    sent = [
        Record(b"%d-%d" % (partition, number), partition=partition)
        for number in range(4)
        for partition in range(50)
    ]
    driver.produce(name, sent, Sending(is_idempotent=True))
    got = read(driver, name, 200, dict.fromkeys(range(50), 0))
    for partition in range(50):
        mine = [(each.offset, each.value) for each in got if each.partition == partition]
        assert mine == [(number, b"%d-%d" % (partition, number)) for number in range(4)]


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_records_arrive_with_any_number_of_acknowledgements(driver: Driver, topic: str, acks: int) -> None:
    sent = values(30)
    offsets = driver.produce(topic, sent, Sending(acks=acks))
    assert offsets == (list(range(30)) if acks else [-1] * 30)
    assert [each.value for each in read(driver, topic, 30)] == [record.value for record in sent]


def test_idempotent_producers_share_a_partition(driver: Driver, topic: str) -> None:
    """Each gets an id of its own and counts its own sequence."""
    for round_number in range(3):
        first = round_number * 40
        offsets = driver.produce(topic, values(40), Sending("gzip", is_idempotent=True))
        assert offsets == list(range(first, first + 40))
    assert [each.value for each in read(driver, topic, 120)] == [record.value for record in values(40)] * 3


def test_many_small_batches_of_one_idempotent_producer_stay_in_order(driver: Driver, topic: str) -> None:
    """Without lingering, sequences go out in as many requests as the client has in flight."""
    sent = values(300)
    assert driver.produce(topic, sent, Sending(is_idempotent=True, linger_ms=0)) == list(range(300))
    assert [each.value for each in read(driver, topic, 300)] == [record.value for record in sent]


@pytest.mark.parametrize("asked", ["gzip", "zstd", "lz4", "snappy", "uncompressed"])
def test_a_topic_that_names_a_codec_is_read_by_every_client(driver: Driver, name: str, asked: str) -> None:
    """The broker recompresses; a client can tell only that the records are the same."""
    codec = "none" if asked == "uncompressed" else asked
    if codec not in driver.codecs:
        pytest.skip(f"{driver.name} cannot read {codec} as it is installed")
    driver.create_topic(name, configs={"compression.type": asked})
    headers = (("h", b"1"), ("h", b""))
    sent = [
        Record(b"v%d" % each, key=b"k", headers=headers, timestamp_ms=1_600_000_000_000 + each)
        for each in range(50)
    ]
    assert driver.produce(name, sent, Sending("gzip")) == list(range(50))
    got = read(driver, name, 50)
    assert [(each.value, each.headers, each.timestamp_ms) for each in got] == [
        (record.value, headers, record.timestamp_ms) for record in sent
    ]


def test_a_compacted_topic_refuses_records_without_a_key(driver: Driver, name: str, server: Server) -> None:
    driver.create_topic(name, configs={"cleanup.policy": "compact"})
    with pytest.raises(Refused) as refused:
        driver.produce(name, [Record(b"no key")])
    # Code 87 is younger than aiokafka's list of codes.
    assert refused.value.code == (INVALID_RECORD if driver.name != "aiokafka" else UNKNOWN_TO_CLIENT)
    assert driver.produce(name, [Record(b"v", key=b"k")]) == [0]


def test_a_record_from_the_far_future_is_refused(driver: Driver, name: str) -> None:
    """message.timestamp.after.max.ms is an hour unless set."""
    driver.create_topic(name)
    far = 4_000_000_000_000
    with pytest.raises(Refused) as refused:
        driver.produce(name, [Record(b"v", timestamp_ms=far)])
    assert refused.value.code == INVALID_TIMESTAMP
    assert driver.produce(name, [Record(b"v")]) == [0]


def test_a_big_log_is_read_whole(driver: Driver, topic: str) -> None:
    """Several fetches, each cut by its size, with whole batches."""
    sent = values(3_000, 500)
    driver.produce(topic, sent, Sending(linger_ms=5))
    got = read_with(driver, topic, 3_000, Fetching(partition_bytes_max=50_000))
    assert [each.offset for each in got] == list(range(3_000))
    assert [each.value for each in got] == [record.value for record in sent]
