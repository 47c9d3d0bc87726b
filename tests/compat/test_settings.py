"""Each setting that is acted on changes what happens, as a client or a look at the directory sees it.

Where a setting has its test elsewhere, it is named here:
    flush.messages, flush.ms, durability.fsync    tests/replica (what is synced before an acknowledgement)
    max.message.bytes, message.timestamp.type     tests/compat/clients/test_records.py, with every client
    min.insync.replicas                           tests/cluster/test_in_sync.py, where there is more than one
    socket.request.max.bytes                      tests/server/test_fuzz.py
    num.partitions, auto.create.topics.enable     tests/compat/clients/test_topics.py, and below when off

A broker deletes and compacts when it finds the time: its interval is short here, and the tests wait for the effect.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c
from tests.compat.clients.confluent import ConfluentDriver
from tests.compat.clients.driver import LOG_APPEND_TIME, SECONDS_MAX, Record, Refused, Sending, read
from tests.server.raw import (
    FETCH,
    PRODUCE,
    RawClient,
    batch,
    create_topic,
    fetch_request,
    produce_request,
)

from penstock.records import HEADER_BYTES, Codec, RecordBatch, iter_batches
from penstock.testing import Broker
from penstock.wire import Api, request_module

INVALID_TIMESTAMP = 32
INVALID_REPLICATION_FACTOR = 38
TOPIC_DELETION_DISABLED = 73
UNKNOWN_TOPIC = {3, -188}
INVALID_RECORD = 87

OLD_MS = 1_500_000_000_000

SETTINGS = {
    "num.partitions": "1",
    "log.retention.check.interval.ms": "50",
    "log.cleaner.backoff.ms": "50",
    "log.segment.delete.delay.ms": "0",
}


class Place:
    """A broker, a client for it, and a look at its files."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.driver = ConfluentDriver(broker.bootstrap)

    def create(self, topic: str, **configs: object) -> None:
        settings = {name.replace("_", "."): str(value) for name, value in configs.items()}
        self.driver.create_topic(topic, configs=settings)

    def send(self, topic: str, *records: Record, codec: str = "none") -> None:
        """Each record in a batch of its own."""
        for record in records:
            self.driver.produce(topic, [record], Sending(codec, linger_ms=0))

    def directory(self, topic: str) -> Path:
        assert self.broker.data is not None
        return Path(self.broker.data) / "logs" / f"{topic}-0"

    def files(self, topic: str, suffix: str) -> list[Path]:
        return sorted(self.directory(topic).glob(f"*.{suffix}"))

    def batches(self, topic: str) -> list[RecordBatch]:
        while True:
            try:
                return [each for path in self.files(topic, "log") for each in iter_batches(path.read_bytes())]
            except FileNotFoundError:
                pass  # it was deleted or cleaned between the look and the read

    def low(self, topic: str) -> int:
        return self.driver.watermarks(topic, 0)[0]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with Broker(settings=SETTINGS) as broker:
        yield Place(broker)


def eventually(holds: Callable[[], bool]) -> None:
    """Nobody tells a client when a segment is deleted or compacted: look until it is."""
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


def fresh(count: int, length: int = 300) -> list[Record]:
    return [Record(b"%03d" % number + b"x" * length) for number in range(count)]


# -- segments and retention ---------------------------------------------------------------------------------


def test_segment_bytes_begins_a_new_file_when_one_is_full(place: Place) -> None:
    place.create("segment-bytes", segment_bytes=1000, retention_ms=-1)
    place.send("segment-bytes", *fresh(10))
    files = place.files("segment-bytes", "log")
    assert len(files) >= 4
    assert all(path.stat().st_size <= 1000 for path in files)
    assert [each.value for each in read(place.driver, "segment-bytes", 10)] == [
        each.value for each in fresh(10)
    ]


def test_segment_ms_begins_a_new_file_when_one_is_old(place: Place) -> None:
    """Age is counted in the records' own time."""
    place.create("segment-ms", segment_ms=60_000, retention_ms=-1)
    place.send("segment-ms", *[Record(b"v", timestamp_ms=OLD_MS + each * 50_000) for each in range(5)])
    assert len(place.files("segment-ms", "log")) == 3


def test_segment_index_bytes_begins_a_new_file_when_an_index_is_full(place: Place) -> None:
    place.create("segment-index", segment_index_bytes=24, index_interval_bytes=0, retention_ms=-1)
    place.send("segment-index", *fresh(12))
    assert len(place.files("segment-index", "log")) > 2


def test_index_interval_bytes_says_how_many_entries_an_index_has(place: Place) -> None:
    sizes = {}
    for interval in (1, 1_000_000):
        topic = f"index-interval-{interval}"
        place.create(topic, index_interval_bytes=interval, segment_bytes=4000, retention_ms=-1)
        place.send(topic, *fresh(30))
        # The first index belongs to a closed segment and has been cut to its entries.
        sizes[interval] = place.files(topic, "index")[0].stat().st_size
    assert sizes[1] > sizes[1_000_000]


def test_retention_bytes_deletes_the_oldest_segments(place: Place) -> None:
    place.create("retention-bytes", segment_bytes=1000, retention_bytes=2000, retention_ms=-1)
    place.send("retention-bytes", *fresh(30))
    eventually(lambda: place.low("retention-bytes") > 15)
    eventually(lambda: sum(path.stat().st_size for path in place.files("retention-bytes", "log")[1:]) < 2000)
    low, high = place.driver.watermarks("retention-bytes", 0)
    assert high == 30
    got = read(place.driver, "retention-bytes", high - low, {0: low})
    assert [each.offset for each in got] == list(range(low, high))


def test_retention_ms_deletes_segments_that_are_old(place: Place) -> None:
    place.create("retention-ms", segment_bytes=1000, retention_ms=3_600_000)
    old = [Record(b"x" * 300, timestamp_ms=OLD_MS + each) for each in range(10)]
    place.send("retention-ms", *old, *fresh(4))
    eventually(lambda: place.low("retention-ms") > 6)
    assert place.low("retention-ms") <= 10, "what is young stays"


def test_a_changed_retention_counts_without_a_restart(place: Place) -> None:
    place.create("retention-later", segment_bytes=1000, retention_ms=-1)
    place.send("retention-later", *[Record(b"x" * 300, timestamp_ms=OLD_MS) for _ in range(9)])
    assert place.low("retention-later") == 0
    place.driver.change_configs("retention-later", {"retention.ms": "1000"})
    eventually(lambda: place.low("retention-later") > 5)


def test_file_delete_delay_ms_keeps_deleted_files_for_a_while(place: Place) -> None:
    place.create("delete-delay", segment_bytes=1000, retention_ms=1000, file_delete_delay_ms=600_000)
    place.send("delete-delay", *[Record(b"x" * 300, timestamp_ms=OLD_MS) for _ in range(9)])
    eventually(lambda: bool(place.files("delete-delay", "log.deleted")))
    place.create("delete-now", segment_bytes=1000, retention_ms=1000, file_delete_delay_ms=0)
    place.send("delete-now", *[Record(b"x" * 300, timestamp_ms=OLD_MS) for _ in range(9)])
    eventually(lambda: place.low("delete-now") > 5 and not place.files("delete-now", "log.deleted"))


# -- compaction ---------------------------------------------------------------------------------------------


def keyed(rounds: int, **more: int) -> list[Record]:
    return [
        Record(b"%d" % number + b"x" * 200, key=b"k%d" % key, **more)
        for number in range(rounds)
        for key in range(3)
    ]


def compacted(place: Place, topic: str, **configs: object) -> None:
    place.create(
        topic, cleanup_policy="compact", segment_bytes=1000, min_cleanable_dirty_ratio=0.01, **configs
    )


def offsets(place: Place, topic: str) -> list[int]:
    """The offsets of the records that are there, as the files say."""
    return [record.offset for each in place.batches(topic) for record in each.records()]


def test_cleanup_policy_compact_keeps_the_latest_of_each_key(place: Place) -> None:
    compacted(place, "compact")
    place.send("compact", *keyed(10))
    eventually(lambda: len(offsets(place, "compact")) < 12)
    latest: dict[bytes | None, bytes | None] = {}
    offset = -1
    with place.driver.reader("compact", {0: 0}) as reader:
        while offset < 29:  # the last is in the active segment, which is not compacted
            got = reader.next()
            assert got is not None
            assert got.offset > offset
            offset = got.offset
            latest[got.key] = got.value
    assert latest == {record.key: record.value for record in keyed(10)}
    assert place.driver.watermarks("compact", 0) == (0, 30)


@pytest.mark.long
def test_min_compaction_lag_ms_keeps_what_is_young(place: Place) -> None:
    compacted(place, "lag", min_compaction_lag_ms=3_600_000)
    compacted(place, "no-lag")
    place.send("lag", *keyed(8))
    place.send("no-lag", *keyed(8))
    eventually(lambda: len(offsets(place, "no-lag")) < 12)
    assert len(offsets(place, "lag")) == 24


@pytest.mark.long
def test_min_cleanable_dirty_ratio_says_when_it_is_worth_it(place: Place) -> None:
    """A log that was cleaned before is never dirty as a whole, so with 1 it is not cleaned again."""
    compacted(place, "ratio")
    place.send("ratio", *keyed(8))
    eventually(lambda: len(offsets(place, "ratio")) < 12)
    place.driver.change_configs("ratio", {"min.cleanable.dirty.ratio": "1"})
    place.send("ratio", *keyed(8))
    compacted(place, "ratio-later")
    place.send("ratio-later", *keyed(8))
    eventually(lambda: len(offsets(place, "ratio-later")) < 12)
    assert len(offsets(place, "ratio")) >= 24


@pytest.mark.long
def test_max_compaction_lag_ms_cleans_what_is_not_worth_it(place: Place) -> None:
    compacted(place, "max-lag")
    place.send("max-lag", *keyed(8))
    eventually(lambda: len(offsets(place, "max-lag")) < 12)
    place.driver.change_configs("max-lag", {"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": "1"})
    place.send("max-lag", *keyed(8))
    eventually(lambda: len(offsets(place, "max-lag")) < 12)


def test_delete_retention_ms_keeps_tombstones_for_readers(place: Place) -> None:
    tombstones = [Record(None, key=b"k%d" % key) for key in range(3)]
    for topic, kept_ms in (("tombs-stay", 3_600_000), ("tombs-go", 0)):
        compacted(place, topic, delete_retention_ms=kept_ms)
        place.send(topic, *keyed(4), *tombstones)
        place.send(topic, *[Record(b"x" * 300, key=b"other%d" % each) for each in range(8)])

    def keys(topic: str) -> set[bytes | None]:
        return {record.key for each in place.batches(topic) for record in each.records()}

    eventually(lambda: len(offsets(place, "tombs-stay")) < 12)
    # Two passes take a tombstone away; more writes make the log dirty again.
    for _ in range(3):
        place.send("tombs-go", *[Record(b"x" * 300, key=b"other%d" % each) for each in range(8)])
    eventually(lambda: b"k0" not in keys("tombs-go"))
    assert b"k0" in keys("tombs-stay")


def test_cleanup_policy_compact_and_delete_does_both(place: Place) -> None:
    place.create(
        "both",
        cleanup_policy="compact,delete",
        segment_bytes=1000,
        retention_ms=3_600_000,
        min_cleanable_dirty_ratio=0.01,
    )
    place.send("both", *keyed(5, timestamp_ms=OLD_MS))
    place.send("both", *keyed(5))
    eventually(lambda: place.low("both") > 9 and len(offsets(place, "both")) < 12)


# -- what is taken, and how it is stored --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("producer", Codec.SNAPPY),
        ("uncompressed", Codec.NONE),
        ("gzip", Codec.GZIP),
        ("lz4", Codec.LZ4),
        ("zstd", Codec.ZSTD),
    ],
)
def test_compression_type_is_the_codec_on_disk(place: Place, asked: str, stored: Codec) -> None:
    place.create(f"codec-{asked}", compression_type=asked)
    place.driver.produce(f"codec-{asked}", [Record(b"x" * 100)] * 20, Sending("snappy"))
    assert {each.codec for each in place.batches(f"codec-{asked}")} == {stored}
    assert len(read(place.driver, f"codec-{asked}", 20)) == 20


def test_compression_level_says_how_hard_the_broker_tries(place: Place) -> None:
    value = b"".join(b"%d,%d;" % (number, number * number % 1009) for number in range(20_000))
    sizes = {}
    for level in (1, 9):
        topic = f"level-{level}"
        place.create(topic, compression_type="gzip", compression_gzip_level=level)
        place.driver.produce(topic, [Record(value)])
        sizes[level] = place.files(topic, "log")[0].stat().st_size
    assert sizes[9] < sizes[1]


@pytest.mark.parametrize(
    ("setting", "off_ms"),
    [("message.timestamp.before.max.ms", -3_600_000), ("message.timestamp.after.max.ms", 1_800_000)],
)
def test_timestamp_bounds_refuse_records_outside_them(place: Place, setting: str, off_ms: int) -> None:
    topic = setting.replace(".", "-")
    place.driver.create_topic(topic, configs={setting: "600000"})
    now_ms = time.time_ns() // 1_000_000
    with pytest.raises(Refused) as refused:
        place.driver.produce(topic, [Record(b"v", timestamp_ms=now_ms + off_ms)])
    assert refused.value.code == INVALID_TIMESTAMP
    assert place.driver.produce(topic, [Record(b"v", timestamp_ms=now_ms)]) == [0]


def test_record_validation_full_looks_at_every_record(place: Place) -> None:
    """A setting of ours: otherwise a batch is judged by its header and checksum, and readers find the fault."""
    bad = bytearray(batch(b"some value", b"another"))
    bad[HEADER_BYTES] = 0x7E  # the length of the first record, which is now past the end
    bad[17:21] = crc32c(bad[21:]).to_bytes(4, "big")
    place.create("by-header")
    place.create("by-record", record_validation="full")
    with RawClient(place.broker.port) as client:
        assert produced(client, "by-header", bytes(bad)) == 0
        assert produced(client, "by-record", bytes(bad)) == INVALID_RECORD
        assert produced(client, "by-record", batch(b"sound")) == 0


def produced(client: RawClient, topic: str, records: bytes, acks: int = 1) -> int:
    """The error code."""
    answer = client.ask(Api.PRODUCE, PRODUCE, produce_request(topic, records, acks=acks))
    return int(answer.responses[0].partition_responses[0].error_code)


# -- the broker's own ---------------------------------------------------------------------------------------


def test_settings_of_the_broker_stand_in_for_those_of_topics() -> None:
    settings = {
        "log.message.timestamp.type": "LogAppendTime",
        "message.max.bytes": "2000",
        "log.cleanup.policy": "compact",
        "auto.create.topics.enable": "false",
        "delete.topic.enable": "false",
        "num.partitions": "7",
    }
    with Broker(settings=settings) as broker:
        driver = ConfluentDriver(broker.bootstrap)
        driver.create_topic("t", partitions=-1)
        assert driver.partition_count("t") == 7
        driver.produce("t", [Record(b"v", key=b"k", timestamp_ms=OLD_MS)])
        [got] = read(driver, "t", 1)
        assert (got.timestamp_type, got.timestamp_ms > OLD_MS) == (LOG_APPEND_TIME, True)
        with pytest.raises(Refused) as refused:
            driver.produce("t", [Record(b"x" * 3000, key=b"k")])
        assert refused.value.code == 10
        with pytest.raises(Refused) as refused:
            driver.produce("t", [Record(b"no key")])
        assert refused.value.code == INVALID_RECORD
        with pytest.raises(Refused) as refused:
            driver.produce("not-there", [Record(b"v")], Sending(give_up_ms=1000))
        assert refused.value.code in {*UNKNOWN_TOPIC, -192}
        assert driver.topics() - {"__consumer_offsets"} == {"t"}
        with pytest.raises(Refused) as refused:
            driver.delete_topic("t")
        assert refused.value.code == TOPIC_DELETION_DISABLED


def test_a_setting_of_all_brokers_is_changed_at_run_time(place: Place) -> None:
    from confluent_kafka.admin import (  # noqa: PLC0415
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    entry = ConfigEntry("message.max.bytes", "1500", incremental_operation=AlterConfigOpType.SET)
    back = ConfigEntry("message.max.bytes", None, incremental_operation=AlterConfigOpType.DELETE)

    def change(to: ConfigEntry) -> None:
        [node] = place.driver.brokers()
        resource = ConfigResource(ResourceType.BROKER, str(node), incremental_configs=[to])
        place.driver.settle(place.driver.admin.incremental_alter_configs([resource]))

    place.create("dynamic")
    change(entry)
    with pytest.raises(Refused) as refused:
        place.driver.produce("dynamic", [Record(b"x" * 2000)])
    assert refused.value.code == 10
    change(back)
    assert place.driver.produce("dynamic", [Record(b"x" * 2000)]) == [0]


def test_connections_max_idle_ms_closes_a_connection_that_says_nothing() -> None:
    with Broker(settings={"connections.max.idle.ms": "1000"}) as broker, RawClient(broker.port) as client:
        client.ask(Api.API_VERSIONS, 0, request_module(Api.API_VERSIONS, 0).ApiVersionsRequest())
        assert client.receive_frame() is None


def test_fetch_max_bytes_bounds_what_one_answer_holds() -> None:
    """One batch always comes, or a reader could not get past it; a second only where there is room."""
    sizes = {}
    for limit in (1024, 1_000_000):
        with Broker(settings={"fetch.max.bytes": limit}) as broker, RawClient(broker.port) as client:
            create_topic(broker.port, "t")
            for _ in range(5):
                assert produced(client, "t", batch(b"x" * 900)) == 0
            answer = client.ask(Api.FETCH, FETCH, fetch_request("t", 0))
            records = answer.responses[0].partitions[0].records
            sizes[limit] = len(list(iter_batches(bytes(records))))
    assert sizes == {1024: 1, 1_000_000: 5}


def test_fetch_session_slots_say_how_many_sessions_are_kept(place: Place) -> None:
    """KIP-227: where there is no room, the client is told session 0 and goes on with full requests."""

    def session_of(port: int) -> int:
        with RawClient(port) as client:
            wanted = replace(fetch_request("sessions", 0), session_epoch=0)
            return int(client.ask(Api.FETCH, FETCH, wanted).session_id)

    place.create("sessions")
    assert session_of(place.broker.port) != 0
    with Broker(settings={"max.incremental.fetch.session.cache.slots": 0}) as broker:
        create_topic(broker.port, "sessions")
        assert session_of(broker.port) == 0


def test_default_replication_factor_is_what_topics_get_that_ask_for_none() -> None:
    with Broker(settings={"default.replication.factor": 2}) as broker:
        driver = ConfluentDriver(broker.bootstrap)
        driver.create_topic("asks")
        with pytest.raises(Refused) as refused:
            driver.create_topic("asks-for-none", replicas=-1)
        assert refused.value.code == INVALID_REPLICATION_FACTOR


def test_advertised_listeners_say_where_clients_are_sent() -> None:
    settings = {"advertised.listeners": "PLAINTEXT://broker.example:19092"}
    with Broker(settings=settings) as broker, RawClient(broker.port) as client:
        message = request_module(Api.METADATA, 1).MetadataRequest(topics=())
        [node] = client.ask(Api.METADATA, 1, message).brokers
    assert (node.host, node.port) == ("broker.example", 19092)


def test_the_address_that_was_dialled_is_advertised_otherwise(place: Place) -> None:
    with RawClient(place.broker.port) as client:
        [node] = client.ask(
            Api.METADATA, 1, request_module(Api.METADATA, 1).MetadataRequest(topics=())
        ).brokers
    assert (node.host, node.port) == ("127.0.0.1", place.broker.port)
