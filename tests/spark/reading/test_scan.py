"""Scans of segment files, without Spark: what is planned, what is read, and how many bytes of it.

The directories of Kafka's own are those of tests/golden: what a scan gives is held against what Kafka's consumer read.
"""

import json
import os
import pickle
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any

import pytest
from tests.compat.kafka.everything import Expected, ExpectedRecord, load_expected
from tests.storage.housekeeping import compact

from penstock.arrow.decode import CorruptRecords
from penstock.arrow.scan.log_dirs import find_logs
from penstock.arrow.scan.log_files import open_view
from penstock.arrow.scan.read_range import ScanRange, read_range
from penstock.arrow.scan.task_ranges import SizedRange, count_tasks
from penstock.arrow.schema import COLUMNS
from penstock.base.errors import KafkaError
from penstock.base.ids import TopicPartition
from penstock.base.settings import LogSettings
from penstock.records import Codec, build_batch, end_txn_marker
from penstock.spark.errors import BadOption, DataLoss
from penstock.spark.reading.scan import ScanReader, ScanTask, plan_scan, read_scan_options
from penstock.storage import names
from penstock.storage.directory import LogDirectory, open_directory
from penstock.storage.log import Log
from penstock.storage.retention import delete_segments
from penstock.storage.rules import Origin
from penstock.vfs import RealDisk
from penstock.vfs.real import RealFile

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "kafka"
T = 1_794_000_000_000
ORDERS = TopicPartition("orders", 0)
SMALL = LogSettings(segment_bytes=10_000, index_interval_bytes=1000)


@contextmanager
def opened(path: Path, settings: LogSettings = SMALL) -> Iterator[LogDirectory]:
    """A node's directory at work: its lock held, its last segment's indexes in memory alone."""
    directory = open_directory(RealDisk(), str(path), now_ms=T, rng=Random(1), settings_of=lambda _: settings)
    try:
        yield directory
    finally:
        directory.abandon()


def fill(log: Log, count: int, *, each: int = 5, first: int = 0, size: int = 100) -> None:
    """So many records in batches of a few; the value begins with the record's number."""
    for number in range(first, first + count, each):
        records = [
            (b"k%d" % (at % 7 if at % 10 else at + 7), b"%d " % at + b"x" * size, T + at * 10)
            for at in range(number, min(number + each, first + count))
        ]
        log.append(build_batch(records), leader_epoch=0, now_ms=T)


def scan(path: Path, vfs: RealDisk | None = None, **options: Any) -> list[dict[str, Any]]:
    """All rows of a scan, in the order of topic, partition and offset."""
    return rows_of(spans_of(path, vfs, **options), vfs, **options)


def spans_of(path: Path, vfs: RealDisk | None = None, **options: Any) -> list[ScanRange]:
    spans = plan_scan(vfs or RealDisk(), read_scan_options(told(path, options)))
    return [pickle.loads(pickle.dumps(each)) for each in spans]


def told(path: Path, options: Mapping[str, Any]) -> dict[str, str]:
    texts = {
        name.replace("_", "."): json.dumps(value) if isinstance(value, dict | bool) else str(value)
        for name, value in options.items()
    }
    return {"path": str(path)} | texts


def rows_of(spans: list[ScanRange], vfs: RealDisk | None = None, **options: Any) -> list[dict[str, Any]]:
    fails = options.get("failOnDataLoss", True)
    return [
        row
        for span in spans
        for batch in read_range(vfs or RealDisk(), span, COLUMNS, fails_on_data_loss=fails)
        for row in batch.to_pylist()
    ]


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return [int(row["value"].split()[0]) for row in rows]


class CountingDisk(RealDisk):
    """Notes how much is read, by kind of file."""

    def __init__(self) -> None:
        self.read: dict[str, int] = {}

    def open(self, path: str, *, write: bool = False, create: bool = False) -> RealFile:
        assert not write
        assert not create
        return CountedFile(path, os.open(path, os.O_RDONLY), self.read)

    def lock(self, path: str) -> Any:
        raise AssertionError(f"{path}: a scan takes no lock")

    rename = remove = remove_dir = make_dirs = sync_dir = set_modified_ms = lock


class CountedFile(RealFile):
    __slots__ = ("_read",)

    def __init__(self, path: str, descriptor: int, read: dict[str, int]) -> None:
        super().__init__(path, descriptor)
        self._read = read

    def pread(self, length: int, position: int) -> bytes:
        data = super().pread(length, position)
        self._count(len(data))
        return data

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        count = super().pread_into(buffer, position)
        self._count(count)
        return count

    def _count(self, count: int) -> None:
        kind = os.path.splitext(self.path)[1]
        self._read[kind] = self._read.get(kind, 0) + count


# -- Kafka's directories --------------------------------------------------------------------------------


def expected_rows(records: list[ExpectedRecord]) -> list[dict[str, Any]]:
    return [
        {
            "key": each.key,
            "value": each.value,
            "topic": each.topic,
            "partition": each.partition,
            "offset": each.offset,
            "timestamp": each.timestamp,
            "timestampType": int(each.log_append_time),
            "headers": [{"key": key, "value": value} for key, value in each.headers],
        }
        for each in records
    ]


def seen_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Times in ms, and no headers as none: Spark's Kafka source makes a null of them."""
    return [
        row | {"timestamp": round(row["timestamp"].timestamp() * 1000), "headers": row["headers"] or []}
        for row in rows
    ]


@pytest.fixture(scope="module")
def expected() -> Expected:
    return load_expected(GOLDEN / "expected.jsonl.gz")


def of_users(expected: Expected, *, committed: bool = False) -> list[ExpectedRecord]:
    return [
        record
        for partition in sorted(expected.partitions, key=lambda each: (each.topic, each.partition))
        if not partition.topic.startswith("__")
        for record in expected.of(partition.topic, partition.partition, committed=committed)
    ]


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_a_directory_of_kafkas_is_read_as_its_consumer_read_it(expected: Expected, level: str) -> None:
    rows = scan(GOLDEN / "logs", isolation_level=level)
    assert seen_rows(rows) == expected_rows(of_users(expected, committed=level == "read_committed"))


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_so_is_one_whose_kafka_was_killed(tmp_path: Path, level: str) -> None:
    """Its indexes were made at full size and are mostly zeros."""
    with tarfile.open(GOLDEN / "unclean.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    expected = load_expected(GOLDEN / "unclean-expected.jsonl.gz")
    before = contents(tmp_path)
    rows = scan(tmp_path / "unclean", isolation_level=level)
    assert seen_rows(rows) == expected_rows(of_users(expected, committed=level == "read_committed"))
    assert contents(tmp_path) == before, "nothing was written"


def contents(path: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in path.rglob("*") if each.is_file()}


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_without_any_index_the_log_itself_tells(tmp_path: Path, expected: Expected, level: str) -> None:
    copy = Path(shutil.copytree(GOLDEN / "logs", tmp_path / "logs"))
    lost = {names.INDEX, names.TIME_INDEX, names.SNAPSHOT}
    for path in [each for each in copy.rglob("*") if each.suffix in lost]:
        path.unlink()
    rows = scan(copy, isolation_level=level)
    assert seen_rows(rows) == expected_rows(of_users(expected, committed=level == "read_committed"))


def test_one_partition_is_read_by_its_own_directory_an_internal_one_too(expected: Expected) -> None:
    rows = scan(GOLDEN / "logs" / "transactions-0")
    assert seen_rows(rows) == expected_rows(expected.of("transactions"))
    [internal] = {each.partition for each in expected.records if each.topic == "__transaction_state"}
    rows = scan(GOLDEN / "logs" / f"__transaction_state-{internal}")
    assert seen_rows(rows) == expected_rows(expected.of("__transaction_state", internal))


def test_offsets_below_the_log_start_are_not_read(expected: Expected) -> None:
    """The segments that hold them are still there."""
    for partition in (0, 1):
        rows = scan(GOLDEN / "logs" / f"records-deleted-{partition}")
        assert rows[0]["offset"] == 17
        assert seen_rows(rows) == expected_rows(expected.of("records-deleted", partition))


def test_records_of_many_ranges_are_those_of_one(expected: Expected) -> None:
    whole = scan(GOLDEN / "logs", isolation_level="read_committed", includeHeaders="true")
    assert scan(GOLDEN / "logs", isolation_level="read_committed", maxRecordsPerPartition=1) == whole
    assert scan(GOLDEN / "logs", isolation_level="read_committed", minPartitions=100) == whole
    assert len(spans_of(GOLDEN / "logs", minPartitions=100)) >= 100


def test_a_time_is_found_as_kafka_finds_it(expected: Expected) -> None:
    """The first record at or after it, in order of offsets, although times step back."""
    path, records = GOLDEN / "logs" / "segments-0", expected.of("segments")
    for time in sorted(
        {each.timestamp + step for each in records[::5] + records[-1:] for step in (-1, 0, 1)}
    ):
        first = next((each.offset for each in records if each.timestamp >= time), None)
        options: dict[str, Any] = {"startingTimestamp": time}
        if first is None:
            with pytest.raises(BadOption, match="no record at or after"):
                spans_of(path, **options)
            rows = scan(path, startingOffsetsByTimestampStrategy="latest", **options)
        else:
            rows = scan(path, **options)
        start = len(records) if first is None else first
        assert [row["offset"] for row in rows] == [each.offset for each in records if each.offset >= start]
        before = scan(path, endingTimestamp=time)
        assert len(before) + len(rows) == len(records)


# -- a node at work -------------------------------------------------------------------------------------


def test_what_a_node_at_work_has_written_is_read(tmp_path: Path) -> None:
    """Its last segment has no index file yet; its lock is held, and stays so."""
    with opened(tmp_path) as directory:
        log = directory.create(ORDERS, now_ms=T)
        fill(log, 500)
        assert len(log.segments) > 3
        before = contents(tmp_path)
        assert numbers(scan(tmp_path, CountingDisk())) == list(range(500))
        assert contents(tmp_path) == before
        fill(log, 40, first=500)
        assert numbers(scan(tmp_path / "logs")) == list(range(540))
        assert numbers(scan(tmp_path / "logs" / "orders-0")) == list(range(540))


@pytest.mark.parametrize("tail", [b"\0" * 3000, b"\x17" * 40, "cut", "crc"])
def test_a_torn_tail_is_where_the_log_ends(tmp_path: Path, tail: bytes | str) -> None:
    with opened(tmp_path) as directory:
        log = directory.create(ORDERS, now_ms=T)
        fill(log, 500)
        path, end = log.segments.active.ref.path, log.segments.active.size
    whole = 500
    with open(path, "r+b") as file:
        if isinstance(tail, bytes):
            file.seek(end)
            file.write(tail)
        elif tail == "cut":
            file.truncate(end - 1)
            whole = 495
        else:
            file.seek(end - 1)
            file.write(b"?")
            whole = 495
    for options in ({}, {"maxRecordsPerPartition": 7}, {"isolation_level": "read_committed"}):
        assert numbers(scan(tmp_path, **options)) == list(range(whole))


def test_damage_at_the_end_of_what_was_on_disk_for_certain_is_damage(tmp_path: Path) -> None:
    """No crash tears what lies below the recovery point."""
    with opened(tmp_path) as directory:
        log = directory.create(ORDERS, now_ms=T)
        fill(log, 500)
        directory.close()
        path = Path(log.segments.active.ref.path)
    for damaged in (path.read_bytes()[:-1], path.read_bytes()[:-1] + b"?"):
        path.write_bytes(damaged)
        with pytest.raises(CorruptRecords, match=f"corrupt records at offset 495: .*{path.name}"):
            scan(tmp_path)
        assert numbers(scan(tmp_path, endingOffsets={"orders": {"0": 495}})) == list(range(495))


def test_several_torn_batches_at_the_end_are_no_part_of_the_log(tmp_path: Path) -> None:
    """The index, which was saved, points into them."""
    with opened(tmp_path) as directory:
        log = directory.create(ORDERS, now_ms=T)
        fill(log, 500)
        log.checkpoint()
        active = log.segments.active
        spot = active.find(active.base_offset + 20)
        path, end = active.ref.path, active.size
    assert spot is not None
    with open(path, "r+b") as file:
        file.seek(spot.position)
        file.write(b"\0" * (end - spot.position))
    assert numbers(scan(tmp_path)) == list(range(spot.base_offset))


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("damage", ["crc", "length"])
def test_damage_in_the_middle_is_reported_with_topic_partition_offset_and_file(
    tmp_path: Path, is_last: bool, damage: str
) -> None:
    with opened(tmp_path) as directory:
        log = directory.create(ORDERS, now_ms=T)
        fill(log, 500)
        segment = log.segments[-1 if is_last else 1]
        spot = segment.find(segment.base_offset + 10)
        path = segment.ref.path
        assert spot is not None
        offset = spot.base_offset
        with open(path, "r+b") as file:
            file.seek(spot.position + (70 if damage == "crc" else 8))
            file.write(b"?!")
        with pytest.raises(CorruptRecords) as caught:
            scan(tmp_path)
        said = str(caught.value)
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("orders", 0, offset)
        assert "orders" in said
        assert str(offset) in said
        assert path in said
        before = scan(tmp_path, endingOffsets={"orders": {"0": offset}})
        after = scan(tmp_path, startingOffsets={"orders": {"0": offset + 5}})
        assert numbers(before + after) == [each for each in range(500) if not offset <= each < offset + 5]


def test_old_message_formats_are_distinguished_from_damage(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        log = directory.create(ORDERS, now_ms=T)
        fill(log, 100)
        body = b"\1\0" + bytes(8) + (1).to_bytes(4, "big") + b"k" + (60).to_bytes(4, "big") + b"v" * 60
        message = bytes(8) + (len(body) + 4).to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big") + body
        for segment in (log.segments.active, log.segments[0]):
            path = Path(segment.ref.path)
            whole = path.read_bytes()
            path.write_bytes(message)
            with pytest.raises(KafkaError, match=r"orders.*message format 1, expected 2"):
                scan(tmp_path)
            path.write_bytes(whole)


def test_what_retention_takes_after_the_plan_is_an_error_or_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path) as directory:
        log = directory.create(ORDERS, now_ms=T)
        fill(log, 500)
        spans = spans_of(tmp_path, maxRecordsPerPartition=100)
        kept = log.segments[2].base_offset
        directory.checkpoints.save_log_starts({ORDERS: kept})
        delete_segments(log, log.segments[:2], T).run()
        with pytest.raises(
            DataLoss, match=f"orders partition 0: offsets 0 to {min(kept, 100) - 1} were deleted"
        ):
            rows_of(spans)
        assert numbers(rows_of(spans, failOnDataLoss=False)) == list(range(kept, 500))
        assert "were deleted" in caplog.text
        assert numbers(scan(tmp_path)) == list(range(kept, 500)), "a plan made now knows"
        with pytest.raises(DataLoss, match=f"startingOffsets is 1, but the log has offsets {kept} to 500"):
            scan(tmp_path, startingOffsets={"orders": {"0": 1}})


def test_a_topic_deleted_after_the_plan_is_an_error_or_a_warning(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        fill(directory.create(ORDERS, now_ms=T), 50)
        spans = spans_of(tmp_path)
        shutil.rmtree(tmp_path / "logs" / "orders-0")
        with pytest.raises(DataLoss, match="the partition was deleted"):
            rows_of(spans)
        assert rows_of(spans, failOnDataLoss=False) == []


def test_a_log_compacted_after_the_plan_gives_what_a_consumer_would_get(tmp_path: Path) -> None:
    """Positions that the plan noted are checked: cleaned files have others."""
    settings = replace(SMALL, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    with opened(tmp_path, settings) as directory:
        log = directory.create(ORDERS, now_ms=T)
        fill(log, 500)
        log.checkpoint()
        spans = spans_of(tmp_path, maxRecordsPerPartition=50)
        done = compact(log, T, log.log_end)
        assert done is not None
        rows = rows_of(spans)
        kept = [record.offset for batch in log.batches() for record in batch.records()]
        assert [row["offset"] for row in rows] == kept
        assert len(kept) < 250
        done[1].run()
        assert scan(tmp_path) == rows


@pytest.mark.parametrize("step", ["cleaned", "swap beside", "swap alone"])
def test_a_compaction_under_way_is_seen_as_the_next_start_would_end_it(tmp_path: Path, step: str) -> None:
    settings = replace(SMALL, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    with opened(tmp_path, settings) as directory:
        log = directory.create(ORDERS, now_ms=T)
        fill(log, 500)
        log.checkpoint()
        old = Path(shutil.copytree(log.directory, tmp_path / "old"))
        assert compact(log, T, log.log_end) is not None
        after = scan(tmp_path)
        new = {each for each in Path(log.directory).iterdir() if each.suffix in names.SEGMENT_KINDS}
        cleaned = {each for each in new if each.read_bytes() != (old / each.name).read_bytes()}
        assert cleaned
        bases = sorted(each.base_offset for each in log.segments)
    for path in cleaned:
        path.rename(f"{path}{names.CLEANED if step == 'cleaned' else names.SWAP}")
    if step != "swap alone":
        for path in old.iterdir():
            if not (Path(log.directory) / path.name).exists():
                shutil.copy(path, log.directory)
    before = list(range(500))
    assert bases
    assert numbers(scan(tmp_path)) == (before if step == "cleaned" else numbers(after))


def test_scans_beside_a_node_that_rolls_compacts_and_deletes(tmp_path: Path) -> None:
    """Every scan has what no compaction may take, and no offset twice."""
    settings = replace(SMALL, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    with opened(tmp_path, settings) as directory:
        log = directory.create(ORDERS, now_ms=T)
        fill(log, 200)
        done = Event()
        failures: list[BaseException] = []

        def work() -> None:
            try:
                for first in range(200, 3000, 100):
                    fill(log, 100, first=first)
                    log.checkpoint()
                    compacted = compact(log, T, log.log_end)
                    if compacted is not None:
                        compacted[1].run()
            except BaseException as error:
                failures.append(error)
            finally:
                done.set()

        thread = Thread(target=work)
        thread.start()
        scans = 0
        while not done.is_set() or not scans:
            spans = spans_of(tmp_path, maxRecordsPerPartition=500)
            rows = rows_of(spans)
            found, end = numbers(rows), spans[-1].stop
            assert [row["offset"] for row in rows] == found, "a record's number is its offset"
            assert found == sorted(set(found))
            assert set(range(0, end, 10)) <= set(found), "keys that come once are never compacted away"
            scans += 1
        thread.join()
        assert failures == []


def test_records_that_come_while_a_scan_reads_are_not_in_it(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        log = directory.create(ORDERS, now_ms=T)
        fill(log, 100)
        spans = spans_of(tmp_path)
        fill(log, 400, first=100)
        assert numbers(rows_of(spans)) == list(range(100))


# -- transactions ---------------------------------------------------------------------------------------


def write_transactions(log: Log) -> list[int]:
    """Two producers that overlap, over several segments; what is committed, by number."""
    committed: list[int] = []
    sequences = {1: 0, 2: 0}
    held: dict[int, list[int]] = {1: [], 2: []}
    rng = Random(7)
    number = 0
    for _ in range(150):
        producer = rng.choice((1, 2))
        records = [(None, b"%d " % each + b"x" * 100, T) for each in range(number, number + 3)]
        data = build_batch(
            records,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequences[producer],
            transactional=True,
            codec=rng.choice((Codec.NONE, Codec.LZ4)),
        )
        log.append(data, leader_epoch=0, now_ms=T)
        sequences[producer] += 3
        held[producer] += range(number, number + 3)
        number += 3
        if rng.random() < 0.2:
            commits = rng.random() < 0.5
            marker = end_txn_marker(producer, 0, commits, 0, T)
            log.append(marker, leader_epoch=0, now_ms=T, origin=Origin.COORDINATOR)
            committed += held[producer] if commits else []
            held[producer] = []
    undecided = min((each for every in held.values() for each in every), default=number)
    return sorted(each for each in committed if each < undecided)


@pytest.mark.parametrize("checkpoint", ["never", "in the middle", "at the end", "stopped"])
def test_of_transactions_only_what_is_committed_is_seen(tmp_path: Path, checkpoint: str) -> None:
    """Whether transaction index and snapshot are in their files, in part, or in the node's memory alone."""
    with opened(tmp_path) as directory:
        log = directory.create(ORDERS, now_ms=T)
        committed = write_transactions(log)
        assert len(log.segments) > 2
        assert 0 < len(committed) < 400
        if checkpoint == "in the middle":
            log.checkpoint()
            fill(log, 20, first=10_000)
        elif checkpoint == "at the end":
            log.checkpoint()
        elif checkpoint == "stopped":
            directory.close()
        disk = CountingDisk()
        for options in ({}, {"maxRecordsPerPartition": 11}):
            rows = scan(tmp_path, disk, isolation_level="read_committed", **options)
            assert numbers(rows) == committed
        assert len(scan(tmp_path)) > len(committed)


# -- how much is read -----------------------------------------------------------------------------------


def test_a_short_range_costs_a_short_read(tmp_path: Path) -> None:
    with opened(tmp_path, LogSettings(segment_bytes=1 << 20)) as directory:
        log = directory.create(ORDERS, now_ms=T)
        fill(log, 20_000, each=50, size=400)
        directory.close()
    disk = CountingDisk()
    limits = {"startingOffsets": {"orders": {"0": 12_340}}, "endingOffsets": {"orders": {"0": 12_350}}}
    assert numbers(scan(tmp_path, disk, **limits)) == list(range(12_340, 12_350))
    assert sum(disk.read.values()) < 300_000, "of 8 MB"
    disk = CountingDisk()
    limits = {"startingTimestamp": T + 123_400, "endingTimestamp": T + 123_500}
    assert numbers(scan(tmp_path, disk, **limits)) == list(range(12_340, 12_350))
    assert sum(disk.read.values()) < 700_000


def test_a_large_segment_is_cut_where_its_index_has_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that tasks begin without a search; each byte is read by one task."""
    monkeypatch.setattr("penstock.arrow.scan.task_ranges.TASK_BYTES", 1 << 20)
    monkeypatch.setattr("penstock.arrow.scan.log_files.INDEX_POINT_BYTES", 1 << 16)
    with opened(tmp_path, LogSettings(segment_bytes=6 << 20)) as directory:
        log = directory.create(ORDERS, now_ms=T)
        fill(log, 40_000, each=50, size=200)
        size = log.size_bytes
        for is_stopped in (False, True):
            if is_stopped:
                directory.close()
            spans = spans_of(tmp_path)
            assert 7 < len(spans) < 14
            assert all(
                each.start_point is not None and each.start_point.last_offset + 1 == each.start
                for each in spans[1:]
            )
            assert len(pickle.dumps(spans[0])) < 600
            disk = CountingDisk()
            assert numbers(rows_of(spans, disk)) == list(range(40_000))
            assert disk.read[".log"] < 1.5 * size
            longest = max(each.stop - each.start for each in spans)
            assert longest < 2 * 40_000 / len(spans)


def test_a_lying_index_changes_nothing_but_the_cuts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.arrow.scan.task_ranges.TASK_BYTES", 1 << 16)
    monkeypatch.setattr("penstock.arrow.scan.log_files.INDEX_POINT_BYTES", 1 << 12)
    with opened(tmp_path, LogSettings(segment_bytes=1 << 18)) as directory:
        log = directory.create(ORDERS, now_ms=T)
        fill(log, 5_000, each=50, size=100)
        directory.close()
    for path in (tmp_path / "logs" / "orders-0").glob("*.index"):
        data = bytearray(path.read_bytes())
        data[3::8] = bytes((each + 1) & 0xFF for each in data[3::8])
        data[7::24] = bytes((each + 3) & 0xFF for each in data[7::24])
        path.write_bytes(data)
    assert numbers(scan(tmp_path)) == list(range(5_000))


def test_there_are_tasks_for_all_processors_as_long_as_none_is_small() -> None:
    """A task costs as much to begin as some megabytes cost to read."""

    class Sized:
        def __init__(self, megabytes: float) -> None:
            self.bytes = megabytes * (1 << 20)

    def shared(*megabytes: float, cores: int, tasks_min: int | None = None) -> list[int]:
        return count_tasks([Sized(each) for each in megabytes], tasks_min, cores)  # type: ignore[misc]

    assert shared(270, 270, cores=2) == [1, 1]
    assert shared(270, cores=2) == [2]
    assert shared(270, cores=64) == [4]
    assert shared(100, cores=64) == [1]
    assert shared(1, 1, 1, cores=64) == [1, 1, 1]
    assert shared(2560, 10, cores=2) == [10, 1]
    assert shared(384, 128, cores=8) == [6, 2]
    assert shared(100, cores=2, tasks_min=7) == [7]


def test_pieces_cover_a_range_without_gap_or_overlap(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        fill(directory.create(ORDERS, now_ms=T), 500)
    [location] = find_logs(RealDisk(), str(tmp_path))
    view = open_view(RealDisk(), location)
    for start, stop in ((0, 500), (3, 499), (250, 251)):
        sized = SizedRange(RealDisk(), view, start, stop)
        for count in (1, 2, 7, 600):
            for records_max in (None, 1, 13, 10_000):
                pieces = sized.cut(count, records_max)
                assert [each.start for each in pieces] == [start, *(each.stop for each in pieces[:-1])]
                assert pieces[-1].stop == stop
                assert all(each.start < each.stop for each in pieces)
                if records_max is not None:
                    assert max(each.stop - each.start for each in pieces) <= records_max


# -- options --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kafka.bootstrap.servers": "x:1"}, "option kafka.bootstrap.servers does not apply with path"),
        ({"maxOffsetsPerTrigger": "1"}, "option maxOffsetsPerTrigger does not apply with path"),
        ({"path": " "}, "option path is empty"),
        ({"path": "/nowhere/at/all"}, "path is /nowhere/at/all, which does not exist"),
        ({"path": "s3a://bucket/logs"}, "expected a directory of a disk that every executor has mounted"),
        ({"path": str(Path(__file__).parent)}, "which is not a log directory, expected a data directory"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "subscribe and assign are given"),
        ({"subscribe": "orders,missing"}, "option subscribe names topic missing, which "),
        ({"assign": '{"orders": [3]}'}, "option assign names partition orders-3"),
        ({"startingOffsets": "latest"}, "startingOffsets is latest, expected earliest"),
        ({"endingOffsets": "earliest"}, "endingOffsets is earliest, expected latest"),
        ({"startingOffsets": '{"orders": {"1": 0}}'}, "startingOffsets has no value for partition orders-0"),
        ({"startingOffsets": '{"orders": {"0": 0, "1": 0}}'}, "names partition orders-1, which is not read"),
        ({"endingOffsets": '{"orders": {"0": 51}}'}, "endingOffsets is 51, but the log ends at 50"),
        (
            {"startingOffsets": '{"orders": {"0": 51}}'},
            "startingOffsets is 51, but the log has offsets 0 to 50",
        ),
        ({"minPartitions": "0"}, "option minPartitions is '0', expected a whole number"),
        ({"isolation.level": "none"}, "option isolation.level is 'none'"),
        ({"startingTimestamp": str(T * 2)}, "partition orders-0 has no record at or after"),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence(
    tmp_path: Path, options: dict[str, str], sentence: str
) -> None:
    with opened(tmp_path) as directory:
        fill(directory.create(ORDERS, now_ms=T), 50)
    with pytest.raises((BadOption, DataLoss)) as caught:
        plan_scan(RealDisk(), read_scan_options({"path": str(tmp_path)} | options))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_topics_are_chosen_by_name_by_pattern_and_by_partition(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        for topic in ("orders", "payments", "__consumer_offsets"):
            for partition in (0, 1):
                fill(directory.create(TopicPartition(topic, partition), now_ms=T), 5)

    def chosen(**options: str) -> list[str]:
        return [str(each.location.partition) for each in spans_of(tmp_path, **options)]

    assert chosen() == ["orders-0", "orders-1", "payments-0", "payments-1"]
    assert chosen(subscribe="payments") == ["payments-0", "payments-1"]
    assert chosen(subscribePattern="ord.*|__.*") == ["orders-0", "orders-1"]
    assert chosen(subscribePattern="order") == []
    assert chosen(assign='{"orders": [1], "payments": [0]}') == ["orders-1", "payments-0"]
    assert chosen(subscribe="__consumer_offsets") == ["__consumer_offsets-0", "__consumer_offsets-1"]
    assert [str(each.partition) for each in find_logs(RealDisk(), f"file://{tmp_path}/logs/orders-1")] == [
        "orders-1"
    ]


def test_an_empty_partition_needs_no_task_and_none_is_fine(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        directory.create(ORDERS, now_ms=T)
    reader = ScanReader(("value",), read_scan_options({"path": str(tmp_path)}))
    assert reader.partitions() == []
    assert list(reader.read(ScanTask.__mro__[1](None))) == []
