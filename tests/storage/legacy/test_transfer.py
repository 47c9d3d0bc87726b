"""Whole directories in and out: round trips, what is refused, and what a crash leaves."""

import random
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.storage.legacy.old_files import (
    NOW_MS,
    contents,
    encode,
    new_disk,
    opened,
    path_in,
    put,
    put_records,
    records_of,
    run_import,
    some_records,
)

from penstock.base.ids import TopicPartition
from penstock.base.settings import LogSettings
from penstock.records import BatchBuilder, Codec, Record, end_txn_marker
from penstock.storage.legacy.errors import CorruptSource, LegacyError
from penstock.storage.legacy.exporter import export_directory
from penstock.storage.legacy.importer import import_directory
from penstock.storage.legacy.kafka_jr import IDEMPOTENCY_HEADER
from penstock.storage.legacy.layout import FORMATS
from penstock.vfs import MemoryDisk, RealDisk, read_file

NAMES = list(FORMATS)
ORDERS = TopicPartition("orders", 0)


@st.composite
def partitions(draw: st.DrawFn, *, with_keys: bool) -> list[Record]:
    """Records with gaps between their offsets, timestamps in any order, keys and values empty or not there."""
    offset = draw(st.integers(0, 2**40))
    maybe = st.none() | st.binary(max_size=20)
    records = []
    for _ in range(draw(st.integers(0, 12))):
        offset += draw(st.integers(1, 3) | st.integers(1, 2**31 - 1))
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if with_keys and draw(st.booleans()):
            headers = ((IDEMPOTENCY_HEADER, draw(st.binary(min_size=1, max_size=10))),)
        value = draw(maybe | st.builds(bytes, st.integers(60_000, 80_000)))
        timestamp = draw(st.integers(-1, 2**62) | st.integers(NOW_MS, NOW_MS + 10))
        records.append(Record(offset, timestamp, draw(maybe), value, headers))
    return records


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20, deadline=None)
@given(data=st.data(), segment_bytes=st.sampled_from([1, 300, 100_000, 2**30]))
def test_out_and_in_again_changes_nothing(name: str, data: st.DataObject, segment_bytes: int) -> None:
    """Import what was written by hand, export it, import that: the same records, log start and log end."""
    disk = new_disk()
    written = {
        TopicPartition(topic, number): data.draw(partitions(with_keys=name == "kafka-jr"))
        for topic, number in (("orders", 0), ("orders", 1), ("a.b_c-d", 0))
    }
    for partition, records in written.items():
        base = records[0].offset if records else 5
        put(
            disk,
            {path_in(name, partition, base): b"".join(encode(name, partition, each) for each in records)},
        )
    first = run_import(disk, name)
    assert contents(disk) == written
    assert {each.partition: each.log_start for each in first.imported} == {
        partition: records[0].offset if records else 5 for partition, records in written.items()
    }
    directory = opened(disk)
    report = export_directory(directory, "/out", FORMATS[name], segment_bytes=segment_bytes)
    directory.close()
    assert report.records == sum(map(len, written.values()))
    second = run_import(disk, name, source="/out", data="/again")
    assert contents(disk, "/again") == written
    assert second.imported == first.imported


@pytest.mark.parametrize("name", NAMES)
def test_an_export_is_byte_for_byte_what_was_imported(name: str) -> None:
    disk = new_disk()
    written = put_records(disk, name, ORDERS, some_records(500))
    run_import(disk, name)
    directory = opened(disk)
    export_directory(directory, "/out", FORMATS[name], segment_bytes=4096)
    where = path_in(name, ORDERS).rpartition("/")[0].replace("/old", "/out")
    files = sorted(disk.list_dir(where), key=lambda entry: int(entry.name.removesuffix(".log")))
    assert b"".join(read_file(disk, f"{where}/{entry.name}") for entry in files) == written
    assert len(files) > 5
    assert all(entry.size <= 4096 for entry in files)
    width = 1 if name == "minikafka" else 20
    assert files[0].name == "0" * width + ".log"


@pytest.mark.parametrize("name", NAMES)
def test_imported_logs_are_ordinary_logs(name: str) -> None:
    """Several records a batch; found by offset and by time; still there after a crash without a checkpoint."""
    disk = new_disk()
    records = some_records(3000, start=1000)
    put(disk, {path_in(name, ORDERS, 990): b"".join(encode(name, ORDERS, record) for record in records)})
    run_import(disk, name)
    directory = opened(disk)
    log = directory.logs[ORDERS]
    assert (log.log_start, log.log_end) == (990, 4000)
    assert len(list(log.batches())) < 20
    found = log.reader.offset_for_timestamp(NOW_MS + 1234)
    assert found is not None
    assert found.offset == 2234
    assert directory.checkpoints.high_watermarks[ORDERS] == 4000
    directory.abandon()
    assert contents(disk.crash_clone(random.Random(1))) == {ORDERS: records}


@pytest.mark.parametrize("name", NAMES)
def test_offsets_given_out_before_are_not_given_again(name: str) -> None:
    """An empty last segment is named by the next offset: its records are gone, their offsets are taken."""
    disk = new_disk()
    put_records(disk, name, ORDERS, some_records(3))
    empty = TopicPartition("orders", 1)
    put(disk, {path_in(name, ORDERS, 10): b"", path_in(name, empty, 77): b""})
    run_import(disk, name)
    directory = opened(disk)
    assert (directory.logs[ORDERS].log_start, directory.logs[ORDERS].log_end) == (0, 10)
    assert (directory.logs[empty].log_start, directory.logs[empty].log_end) == (77, 77)
    export_directory(directory, "/out", FORMATS[name])
    directory.close()
    run_import(disk, name, source="/out", data="/again")
    assert {each: log.log_end for each, log in opened(disk, "/again").logs.items()} == {ORDERS: 10, empty: 77}


@pytest.mark.parametrize("name", NAMES)
def test_missing_partitions_are_made_and_a_topic_has_one_id(name: str) -> None:
    disk = new_disk()
    for partition in (ORDERS, TopicPartition("orders", 3), TopicPartition("other", 0)):
        put_records(disk, name, partition, some_records(2))
    report = run_import(disk, name)
    assert report.made == [TopicPartition("orders", 1), TopicPartition("orders", 2)]
    logs = opened(disk).logs
    assert sorted(logs) == [
        *(TopicPartition("orders", each) for each in range(4)),
        TopicPartition("other", 0),
    ]
    ids = {
        topic: {log.topic_id for each, log in logs.items() if each.topic == topic}
        for topic in ("orders", "other")
    }
    assert len(ids["orders"]) == 1
    assert ids["orders"] != ids["other"]


@pytest.mark.parametrize("name", NAMES)
def test_indexes_are_not_read_and_everything_else_is_named(name: str) -> None:
    disk = new_disk()
    put_records(disk, name, ORDERS, some_records(2))
    beside = path_in(name, ORDERS).removesuffix(".log")
    topic = beside.rsplit("/", 2)[0]
    others = [
        "/old/consumer_offsets.dat",
        f"{topic}/README",
        f"{beside}.log.bak",
        f"{topic.rpartition('/')[0]}/lost+found/x",
    ]
    put(disk, dict.fromkeys([f"{beside}.idx", f"{beside}.timeidx", *others], b"junk"))
    report = run_import(disk, name)
    assert report.derived == 2
    assert sorted(report.left) == sorted([*others[:3], others[3].removesuffix("/x")])
    assert contents(disk) == {ORDERS: some_records(2)}


# -- what is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "topic", ["with space", "ümlaut", "x" * 250, "a:b", "__consumer_offsets", "__cluster_metadata"]
)
def test_a_topic_that_kafka_would_refuse_is_refused(name: str, topic: str) -> None:
    disk = new_disk()
    put_records(disk, name, TopicPartition(topic, 0), some_records(1))
    put_records(disk, name, ORDERS, some_records(1))
    with pytest.raises(LegacyError, match=r"cannot be a topic's name|the broker's own state"):
        run_import(disk, name)
    assert contents(disk) == {}


@pytest.mark.parametrize("name", NAMES)
def test_a_partition_that_has_records_is_not_imported_into(name: str) -> None:
    disk = new_disk()
    put_records(disk, name, ORDERS, some_records(2))
    run_import(disk, name)
    put_records(disk, name, TopicPartition("fresh", 0), some_records(1))
    with pytest.raises(
        LegacyError, match="orders-0 in /data/logs has offsets 0 to 2 already: nothing was imported"
    ):
        run_import(disk, name)
    assert contents(disk) == {ORDERS: some_records(2)}
    report = run_import(disk, name, skip_existing=True)
    assert report.existing == [ORDERS]
    assert contents(disk) == {TopicPartition("fresh", 0): some_records(1), ORDERS: some_records(2)}


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_partition_is_imported_into_and_keeps_its_topics_id(name: str) -> None:
    disk = new_disk()
    put_records(disk, name, ORDERS, some_records(2))
    directory = opened(disk)
    for number in range(3):
        directory.create(TopicPartition("orders", number), now_ms=NOW_MS, topic_id=b"0123456789abcdef")
    directory.close()
    run_import(disk, name)
    directory = opened(disk)
    assert records_of(directory.logs[ORDERS]) == some_records(2)
    assert {log.topic_id for log in directory.logs.values()} == {b"0123456789abcdef"}
    assert len(directory.logs) == 3
    assert directory.leftovers == []


@pytest.mark.parametrize("name", NAMES)
def test_damage_stops_the_import_with_nothing_imported(name: str) -> None:
    disk = new_disk()
    put_records(disk, name, ORDERS, some_records(5))
    broken = TopicPartition("orders", 1)
    parts = [encode(name, broken, record) for record in some_records(5)]
    put(disk, {path_in(name, broken): b"".join((*parts[:2], b"\x07" * 60, *parts[2:]))})
    with pytest.raises(CorruptSource):
        run_import(disk, name)
    assert contents(disk) == {}
    assert [entry.name for entry in disk.list_dir("/data/logs") if entry.is_dir] == []
    report = run_import(disk, name, skip_corrupt=True)
    assert [(each.path, each.size) for each in report.skipped] == [(path_in(name, broken), 60)]
    assert contents(disk) == {ORDERS: some_records(5), broken: some_records(5)}


@pytest.mark.parametrize("name", NAMES)
def test_a_directory_without_topics_is_refused(name: str) -> None:
    disk = new_disk()
    with pytest.raises(LegacyError, match="there is no directory /old"):
        run_import(disk, name)
    disk.make_dirs("/old/logs/stray")
    with pytest.raises(LegacyError, match=r"/old has no topics: .* as DIR/"):
        run_import(disk, name)


@pytest.mark.parametrize("name", NAMES)
def test_numbers_in_names_are_bounded(name: str) -> None:
    disk = new_disk()
    put_records(disk, name, TopicPartition("orders", 2_000_000_000), [])
    with pytest.raises(LegacyError, match="has a partition 2000000000, expected less than 10000"):
        run_import(disk, name)
    disk = new_disk()
    put(disk, {path_in(name, ORDERS, 2**63): b""})
    with pytest.raises(LegacyError, match="has base offset 9223372036854775808, expected at most"):
        run_import(disk, name)
    disk = new_disk()
    put(disk, {path_in(name, ORDERS): b"", path_in(name, ORDERS).replace("0" * 20, "00"): b""})
    with pytest.raises(LegacyError, match="have the same base offset"):
        run_import(disk, name)


# -- crashes -------------------------------------------------------------------------------------------


class Killed(BaseException):
    pass


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("power", [False, True])
def test_an_import_cut_short_anywhere_is_repeated(name: str, power: bool) -> None:
    """After kill -9 or a power cut each partition is whole or not there, and a second import brings the rest."""
    source = new_disk()
    written = {TopicPartition("orders", number): some_records(4 + number) for number in range(3)}
    for partition, records in written.items():
        put_records(source, name, partition, records)
    source = _durable(source)
    changes = _count_changes(source.kill_clone(), name)
    partly = 0
    for stop in range(1, changes + 1, 2):
        disk = source.kill_clone()
        after = _import_until(disk, name, stop, power=power)
        found = {each: records for each, records in contents(after).items() if records}
        assert all(records == written[each] for each, records in found.items())
        partly += 0 < len(found) < 3
        run_import(after, name, skip_existing=True)
        assert contents(after) == written
        assert not [each for each in after.list_dir("/data/logs") if each.name.endswith("-delete")]
    assert partly < changes / 10  # only while names are given


def _durable(disk: MemoryDisk) -> MemoryDisk:
    """The same files, synced."""

    def visit(path: str) -> None:
        for entry in disk.list_dir(path or "/"):
            if entry.is_dir:
                visit(f"{path}/{entry.name}")
            else:
                file = disk.open(f"{path}/{entry.name}", write=True)
                file.sync()
                file.close()
        disk.sync_dir(path or "/")

    visit("")
    return disk


def _count_changes(disk: MemoryDisk, name: str) -> int:
    before = disk.change_count
    run_import(disk, name)
    return disk.change_count - before


def _import_until(disk: MemoryDisk, name: str, stop: int, *, power: bool) -> MemoryDisk:
    """What is on the disk when the process dies just before its nth change."""
    left, after = stop, None

    def count(path: str) -> None:
        nonlocal left, after
        left -= 1
        if left <= 0:
            if after is None:
                after = disk.crash_clone(random.Random(stop)) if power else disk.kill_clone()
            raise Killed

    disk.on_change = count
    with pytest.raises(Killed):
        run_import(disk, name)
    assert after is not None
    return after


def test_an_export_cut_short_is_begun_anew() -> None:
    disk = new_disk()
    put_records(disk, "kafka-jr", ORDERS, some_records(5))
    run_import(disk, "kafka-jr")
    put(
        disk,
        {"/out.unfinished/orders/0/00000000000000000000.log": b"half a rec", "/out.unfinished/other": b"x"},
    )
    directory = opened(disk)
    export_directory(directory, "/out", FORMATS["kafka-jr"])
    directory.close()
    assert disk.stat("/out.unfinished") is None
    run_import(disk, "kafka-jr", source="/out", data="/again")
    assert contents(disk, "/again") == {ORDERS: some_records(5)}


# -- what an export leaves out -------------------------------------------------------------------------


def _batch(
    offset: int, count: int, *, producer: int = -1, headers: tuple[tuple[str, bytes | None], ...] = ()
) -> bytes:
    builder = BatchBuilder(
        offset,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=offset if producer >= 0 else -1,
        transactional=producer >= 0,
        codec=Codec.GZIP,
        leader_epoch=0,
    )
    for index in range(count):
        builder.append(b"k", b"%d" % (offset + index), NOW_MS, headers)
    return builder.build()


@pytest.mark.parametrize("name", NAMES)
def test_markers_and_aborted_records_are_left_out_and_counted(name: str) -> None:
    disk = new_disk()
    directory = opened(disk)
    log = directory.create(ORDERS, now_ms=NOW_MS, topic_id=b"0123456789abcdef")
    log.append_replicated(
        b"".join(
            (
                _batch(0, 2),
                _batch(2, 3, producer=1),
                _batch(5, 2, producer=2),
                end_txn_marker(1, 0, False, 0, NOW_MS, 7, 0),
                _batch(8, 1, producer=1),
                end_txn_marker(1, 0, True, 0, NOW_MS, 9, 0),
                end_txn_marker(2, 0, True, 0, NOW_MS, 10, 0),
                _batch(11, 2, producer=3),
                end_txn_marker(4, 0, True, 0, NOW_MS, 13, 0),
            )
        ),
        now_ms=NOW_MS,
    )
    log.advance_start(1)
    report = export_directory(directory, "/out", FORMATS[name])
    directory.close()
    assert (report.records, report.control, report.aborted, report.undecided) == (6, 4, 3, 2)
    run_import(disk, name, source="/out", data="/again")
    again = opened(disk, "/again").logs[ORDERS]
    assert [record.offset for record in records_of(again)] == [1, 5, 6, 8, 11, 12]
    assert (again.log_start, again.log_end) == (1, 14)


def test_headers_without_room_are_counted_and_the_idempotency_key_has_its_field() -> None:
    disk = new_disk()
    directory = opened(disk)
    log = directory.create(ORDERS, now_ms=NOW_MS, topic_id=b"0123456789abcdef")
    headers = (("trace", b"1"), (IDEMPOTENCY_HEADER, b"once"), ("empty", None))
    log.append_replicated(_batch(0, 2, headers=headers) + _batch(2, 5), now_ms=NOW_MS)
    minikafka = export_directory(directory, "/mk", FORMATS["minikafka"])
    kafka_jr = export_directory(directory, "/jr", FORMATS["kafka-jr"])
    directory.close()
    assert (minikafka.headers, minikafka.headers_records) == (6, 2)
    assert (kafka_jr.headers, kafka_jr.headers_records) == (4, 2)
    run_import(disk, "kafka-jr", source="/jr", data="/again")
    records = contents(disk, "/again")[ORDERS]
    assert [record.headers for record in records] == 2 * [((IDEMPOTENCY_HEADER, b"once"),)] + 5 * [()]


def test_only_the_topics_asked_for_are_exported() -> None:
    disk = new_disk()
    for topic in ("a", "b", "c"):
        put_records(disk, "minikafka", TopicPartition(topic, 0), some_records(1))
    run_import(disk, "minikafka")
    directory = opened(disk)
    directory.create(TopicPartition("__consumer_offsets", 0), now_ms=NOW_MS, topic_id=b"0123456789abcdef")
    export_directory(directory, "/out", FORMATS["minikafka"], topics=["a", "c"])
    assert [entry.name for entry in disk.list_dir("/out/logs")] == ["a", "c"]
    export_directory(directory, "/all", FORMATS["minikafka"])
    assert [entry.name for entry in disk.list_dir("/all/logs")] == ["a", "b", "c"]
    with pytest.raises(LegacyError, match="there is no topic d in /data/logs"):
        export_directory(directory, "/more", FORMATS["minikafka"], topics=["d"])
    with pytest.raises(LegacyError, match="the broker's own state"):
        export_directory(directory, "/more", FORMATS["minikafka"], topics=["__consumer_offsets"])
    with pytest.raises(LegacyError, match="/out already exists: expected no such directory, or an empty one"):
        export_directory(directory, "/out", FORMATS["minikafka"])


def test_a_damaged_batch_stops_the_export_and_leaves_nothing() -> None:
    disk = new_disk()
    put_records(disk, "kafka-jr", ORDERS, some_records(50))
    run_import(disk, "kafka-jr")
    directory = opened(disk)
    file = disk.open("/data/logs/orders-0/00000000000000000000.log", write=True)
    file.pwrite([b"!"], 200)
    with pytest.raises(Exception, match=r"orders-0/00000000000000000000.log at position 0: .* has CRC"):
        export_directory(directory, "/out", FORMATS["kafka-jr"])
    assert disk.stat("/out") is None
    assert disk.stat("/out.unfinished") is None


# -- size ----------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_memory_does_not_grow_with_the_input(name: str, tmp_path: Path) -> None:
    """24 MB in and out, in no more than a few steps of a megabyte."""
    value = bytes(1000)
    where = tmp_path / path_in(name, ORDERS).removeprefix("/")
    where.parent.mkdir(parents=True)
    with where.open("wb") as file:
        for offset in range(24_000):
            file.write(encode(name, ORDERS, Record(offset, NOW_MS, b"k", value)))
    steps: list[tuple[int, int]] = []
    directory = opened(RealDisk(), str(tmp_path / "data"))
    tracemalloc.start()
    try:
        report = import_directory(
            str(tmp_path / "old"),
            FORMATS[name],
            directory,
            now_ms=NOW_MS,
            rng=random.Random(1),
            settings=LogSettings(segment_bytes=5_000_000),
            progress=lambda done, total: steps.append((done, total)),
        )
        export_directory(directory, str(tmp_path / "out"), FORMATS[name], segment_bytes=7_000_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    directory.close()
    assert report.records == 24_000
    assert peak < 8_000_000
    size = where.stat().st_size
    assert steps[-1] == (size, size)
    assert len(steps) > 20
