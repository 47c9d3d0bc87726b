"""Against a log directory that Apache Kafka wrote: tests/golden/kafka, whose README says what is in it.

Reading goes the way of a consumer: fetches that are too small for what is there, cut where they please, and
for read_committed the aborted transactions of each fetch. What comes out is put into the form of the
expectation, which is what Kafka's own consumer read, and the two must be equal.

Writing is held to bytes: Kafka's batches, appended here one by one, must leave Kafka's files.
"""

import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from tests.compat.kafka.everything import Expected, ExpectedPartition, ExpectedRecord, load_expected

from penstock.base.ids import TopicPartition, uuid_from_text, uuid_text
from penstock.base.internal_topics import METADATA_TOPIC
from penstock.base.settings import LogSettings
from penstock.records import (
    ControlType,
    RecordBatch,
    build_batch,
    end_txn_marker,
    iter_batches,
    parse_control,
)
from penstock.storage import checkpoints as ck
from penstock.storage import names
from penstock.storage.directory import LogDirectory, open_directory
from penstock.storage.epochs import LeaderEpochs
from penstock.storage.log import Log
from penstock.storage.rules import Origin
from penstock.storage.txn_index import AbortedTxn, decode_aborted
from penstock.vfs import RealDisk

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "kafka"

FETCH_BYTES = 700
"""About half a segment: fetches end inside batches, and many are needed."""

SMALL = LogSettings(segment_bytes=1500, index_interval_bytes=300)
INTERNAL = LogSettings(segment_bytes=100 << 20, cleanup_policy=("compact",))
"""What Kafka gives its own topics, `__consumer_offsets` and `__transaction_state`."""


def settings_of(topic: str) -> LogSettings:
    """The settings that WriteEverything.java made a topic with, as far as they shape files."""
    if topic.startswith("__"):
        return INTERNAL
    if topic == "log.append_time":
        return replace(SMALL, message_timestamp_type="LogAppendTime")
    return replace(SMALL, cleanup_policy=("compact",)) if topic.startswith("compacted") else SMALL


@contextmanager
def opened(path: Path, now_ms: int) -> Iterator[LogDirectory]:
    """A directory, let go of as in a crash unless the test has closed it."""
    directory = open_directory(RealDisk(), str(path), now_ms=now_ms, rng=Random(1), settings_of=settings_of)
    try:
        yield directory
    finally:
        directory.abandon()


def time_of(expected: Expected) -> int:
    """A moment just after everything was written, so that no producer has been idle for long."""
    return max(record.timestamp for record in expected.records) + 1


# -- reading as a consumer does ------------------------------------------------------------------------


def read_everything(directory: LogDirectory) -> Expected:
    """What Penstock makes of a directory, in the form and order in which Kafka's consumer told it."""
    partitions: list[ExpectedPartition] = []
    records: list[ExpectedRecord] = []
    for partition, log in sorted(directory.logs.items()):
        partitions.append(describe(log))
        decided = committed_offsets(log)
        for batch in fetched(log, log.log_end):
            records += data_records(partition, log, batch, decided)
    return Expected(tuple(partitions), tuple(records))


def describe(log: Log) -> ExpectedPartition:
    latest = log.reader.latest_timestamp()
    assert log.topic_id is not None
    return ExpectedPartition(
        topic=log.partition.topic,
        partition=log.partition.partition,
        topic_id=uuid_text(log.topic_id),
        log_start=log.log_start,
        log_end=log.log_end,
        last_stable=log.last_stable,
        max_timestamp_offset=latest.offset if latest else -1,
    )


def fetches(log: Log, visible: int) -> Iterator[list[RecordBatch]]:
    offset = log.log_start
    while data := log.read(offset, FETCH_BYTES, visible=visible):
        batches = list(iter_batches(data))
        yield batches
        offset = batches[-1].next_offset


def fetched(log: Log, visible: int) -> Iterator[RecordBatch]:
    for batches in fetches(log, visible):
        yield from batches


def committed_offsets(log: Log) -> set[int]:
    """The offsets that read_committed sees: each fetch comes with the transactions to skip in it."""
    seen: set[int] = set()
    for batches in fetches(log, log.last_stable):
        begun = sorted(
            log.aborted(batches[0].base_offset, batches[-1].next_offset), key=lambda each: each.first_offset
        )
        skipped: set[int] = set()
        for batch in batches:
            while begun and begun[0].first_offset <= batch.last_offset:
                skipped.add(begun.pop(0).producer_id)
            if batch.is_control:
                skipped -= {batch.producer_id} if is_abort(batch) else set()
            elif not (batch.is_transactional and batch.producer_id in skipped):
                seen |= {record.offset for record in batch.records()}
    return seen


def is_abort(batch: RecordBatch) -> bool:
    return any(parse_control(record).type is ControlType.ABORT for record in batch.records())


def data_records(
    partition: TopicPartition, log: Log, batch: RecordBatch, decided: set[int]
) -> list[ExpectedRecord]:
    if batch.is_control:
        return []
    return [
        ExpectedRecord(
            topic=partition.topic,
            partition=partition.partition,
            offset=record.offset,
            timestamp=record.timestamp,
            log_append_time=batch.log_append_time,
            leader_epoch=batch.leader_epoch,
            key=record.key,
            value=record.value,
            headers=record.headers,
            committed=record.offset in decided,
        )
        for record in batch.records()
        if record.offset >= log.log_start
    ]


def assert_same(seen: Expected, expected: Expected) -> None:
    """Equal, and if not, said of one partition at a time."""
    assert [each.directory for each in seen.partitions] == [each.directory for each in expected.partitions]
    for mine, kafkas in zip(seen.partitions, expected.partitions, strict=True):
        assert mine == kafkas
        assert seen.of(mine.topic, mine.partition) == expected.of(mine.topic, mine.partition), mine.directory
    assert seen == expected


# -- golden directories --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def expected() -> Expected:
    return load_expected(GOLDEN / "expected.jsonl.gz")


@pytest.fixture(scope="module")
def unclean_expected() -> Expected:
    return load_expected(GOLDEN / "unclean-expected.jsonl.gz")


@pytest.fixture
def clean_copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / "logs", tmp_path / "kafka-logs"))


@pytest.fixture
def unclean_copy(tmp_path: Path) -> Path:
    with tarfile.open(GOLDEN / "unclean.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "unclean"


def test_a_directory_that_kafka_closed_reads_as_its_consumer_read_it(
    clean_copy: Path, expected: Expected
) -> None:
    with opened(clean_copy, time_of(expected)) as directory:
        assert_same(read_everything(directory), expected)
        assert directory.reports == {}, "after a clean stop there is nothing to scan and nothing to say"
        assert [Path(each.path).name[:9] for each in directory.leftovers] == ["doomed-0."]
        assert TopicPartition(METADATA_TOPIC, 0) not in directory.logs


def test_a_directory_whose_kafka_was_killed_reads_as_its_consumer_read_it(
    unclean_copy: Path, unclean_expected: Expected
) -> None:
    with opened(unclean_copy, time_of(unclean_expected)) as directory:
        assert_same(read_everything(directory), unclean_expected)
        for partition, log in directory.logs.items():
            report = directory.reports[partition]
            assert report.bytes_scanned == log.size_bytes, "there is no recovery point but 0"
            assert (report.bytes_cut, report.notes, report.damage) == (0, [], [])
        directory.close()
    with opened(unclean_copy, time_of(unclean_expected)) as directory:
        assert_same(read_everything(directory), unclean_expected)
        assert directory.reports == {}


def test_a_directory_without_any_of_its_accelerators_reads_the_same(
    clean_copy: Path, expected: Expected
) -> None:
    """The `.log` is the truth; besides it only log start offsets are no copy of something else."""
    (clean_copy / ck.CLEAN_SHUTDOWN).unlink()
    (clean_copy / ck.RECOVERY_POINTS).unlink()
    lost = {names.INDEX, names.TIME_INDEX, names.TXN_INDEX, names.SNAPSHOT}
    for each in expected.partitions:
        for path in (clean_copy / each.directory).iterdir():
            if path.suffix in lost or path.name == names.LEADER_EPOCHS:
                path.unlink()
    with opened(clean_copy, time_of(expected)) as directory:
        assert_same(read_everything(directory), expected)


@pytest.mark.parametrize("is_clean", [True, False])
def test_leader_epochs_are_those_of_kafkas_checkpoint_that_have_records(
    clean_copy: Path, expected: Expected, is_clean: bool
) -> None:
    """An epoch that begins at the log end is dropped on opening: LogLoader.load does the same, by
    truncateFromEnd, and the next leader begins with an epoch of its own."""
    if not is_clean:
        (clean_copy / ck.CLEAN_SHUTDOWN).unlink()
        (clean_copy / ck.RECOVERY_POINTS).unlink()
    with opened(clean_copy, time_of(expected)) as directory:
        for each in expected.partitions:
            log = directory.logs[TopicPartition(each.topic, each.partition)]
            kafkas = epochs_of(GOLDEN / "logs" / each.directory)
            assert log.epochs.entries == [entry for entry in kafkas.entries if entry.offset < each.log_end]
            for record in expected.of(each.topic, each.partition):
                assert log.epochs.epoch_at(record.offset) == record.leader_epoch


def test_a_time_leads_to_the_first_record_that_is_no_older(clean_copy: Path, expected: Expected) -> None:
    """ListOffsets by timestamp; markers count, as they do for Kafka."""
    with opened(clean_copy, time_of(expected)) as directory:
        for log in directory.logs.values():
            there = [
                (record.timestamp, record.offset)
                for batch in log.batches()
                for record in batch.records()
                if record.offset >= log.log_start
            ]
            for timestamp in {at + step for at, _ in there for step in (-1, 0, 1)}:
                found = log.reader.offset_for_timestamp(timestamp)
                first = next((offset for at, offset in there if at >= timestamp), None)
                assert (found.offset if found else None) == first, (log, timestamp)


def epochs_of(partition: Path) -> LeaderEpochs:
    path = partition / names.LEADER_EPOCHS
    return LeaderEpochs.decode(path.read_bytes(), str(path))


# -- byte for byte -------------------------------------------------------------------------------------

WRITTEN_IN_ONE_RUN = (
    "__consumer_offsets-0",
    "codec-gzip-0",
    "codec-lz4-0",
    "codec-none-0",
    "codec-snappy-0",
    "codec-zstd-0",
    "empty-0",
    "log.append_time-0",
    "records-deleted-1",
    "segments-1",
    "transaction-open-0",
    "transactions-0",
    "transactions-1",
)
"""Partitions whose files follow from their batches and settings alone.

The compacted ones are left out, whose batches are not those that shaped the segments, and records-deleted-0,
whose first segment is gone. `records-deleted-1` has all its segments and a log start offset among them.
"""

WRITTEN_IN_TWO_RUNS = ("__transaction_state-0", "idempotent-0", "segments-0")
"""Kafka was restarted in between, where the second leader epoch begins."""

ENTRY_BYTES = {names.INDEX: 8, names.TIME_INDEX: 12}


def replay(
    directory: LogDirectory, kafkas: Path, each: ExpectedPartition, now_ms: int, offsets: range
) -> Log:
    """Append a range of the batches of a Kafka partition, one at a time, as a follower may get them."""
    partition = TopicPartition(each.topic, each.partition)
    log = directory.logs.get(partition) or directory.create(
        partition, now_ms=now_ms, topic_id=uuid_from_text(each.topic_id)
    )
    for batch in batches_in(kafkas):
        if batch.base_offset in offsets:
            log.append_replicated(batch.view, now_ms=now_ms)
    return log


def batches_in(partition: Path) -> Iterator[RecordBatch]:
    for path in sorted(partition.glob(f"*{names.LOG}")):
        yield from iter_batches(path.read_bytes())


def files_of(partition: Path) -> dict[str, bytes]:
    """A partition's files, without ours and without a transaction index that says nothing.

    Kafka makes that one only when something is aborted; ours is there for every segment.
    """
    files = {path.name: path.read_bytes() for path in partition.iterdir() if path.suffix != names.SEQUENCES}
    return {name: data for name, data in files.items() if data or not name.endswith(names.TXN_INDEX)}


def assert_batches_leave_files(data: Path, kafkas: Path, each: ExpectedPartition, now_ms: int) -> None:
    """Segments cut at the same offsets; every index entry, snapshot and checkpoint the same.

    Where nothing was written under it, the epoch of Kafka's second run is in its checkpoint by becoming the
    leader, and so it is here.
    """
    with opened(data, now_ms) as directory:
        log = replay(directory, kafkas, each, now_ms, range(each.log_end))
        log.begin_epoch(epochs_of(kafkas).latest)
        log.advance_start(each.log_start)
        directory.close()
        ours, theirs = files_of(Path(log.directory)), files_of(kafkas)
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        assert ours[name].hex(" ") == expected.hex(" "), f"{each.directory}/{name}"


@pytest.mark.parametrize("name", WRITTEN_IN_ONE_RUN)
def test_kafkas_batches_leave_kafkas_files(tmp_path: Path, expected: Expected, name: str) -> None:
    each = next(each for each in expected.partitions if each.directory == name)
    assert_batches_leave_files(tmp_path, GOLDEN / "logs" / name, each, time_of(expected))


@pytest.mark.parametrize("name", WRITTEN_IN_TWO_RUNS)
def test_a_restart_leaves_kafkas_files_but_for_index_entries_that_kafka_forgot(
    tmp_path: Path, expected: Expected, name: str
) -> None:
    """Kafka does not remember over a restart how far behind it the last index entry is, and counts from 0
    again. Here it is known, so the index may have an entry more; all of Kafka's are there."""
    each = next(each for each in expected.partitions if each.directory == name)
    kafkas, now_ms = GOLDEN / "logs" / name, time_of(expected)
    restart = epochs_of(kafkas).entries[-1].offset
    ours = tmp_path / "logs" / name
    for offsets in (range(restart), range(restart, each.log_end)):
        with opened(tmp_path, now_ms) as directory:
            replay(directory, kafkas, each, now_ms, offsets)
            directory.close()
    here, there = files_of(ours), files_of(kafkas)
    assert here.keys() == there.keys()
    for file, data in here.items():
        entry_bytes = ENTRY_BYTES.get(Path(file).suffix)
        if entry_bytes is None:
            assert data == there[file], file
        else:
            assert entries(there[file], entry_bytes) <= entries(data, entry_bytes), file


def entries(index: bytes, size: int) -> set[bytes]:
    return {index[at : at + size] for at in range(0, len(index), size)}


def test_recovery_makes_the_indexes_that_kafka_made(clean_copy: Path, expected: Expected) -> None:
    (clean_copy / ck.CLEAN_SHUTDOWN).unlink()
    (clean_copy / ck.RECOVERY_POINTS).unlink()
    indexes = (names.INDEX, names.TIME_INDEX, names.TXN_INDEX)
    for name in WRITTEN_IN_ONE_RUN:
        for path in (clean_copy / name).iterdir():
            if path.suffix in indexes:
                path.write_bytes(bytes(path.stat().st_size))
    with opened(clean_copy, time_of(expected)) as directory:
        directory.close()
    for name in WRITTEN_IN_ONE_RUN:
        for file, data in files_of(GOLDEN / "logs" / name).items():
            if Path(file).suffix in indexes:
                assert files_of(clean_copy / name)[file] == data, (name, file)


def test_opening_and_closing_leaves_kafkas_partitions_as_they_were(
    clean_copy: Path, expected: Expected
) -> None:
    """But for what Kafka's own start changes: what cleaning had yet to remove (`.deleted`) goes; and one index, which
    a restart of Kafka's left with a gap, is filled in."""
    with opened(clean_copy, time_of(expected)) as directory:
        directory.close()
    for each in expected.partitions:
        before, after = files_of(GOLDEN / "logs" / each.directory), files_of(clean_copy / each.directory)
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        changed -= {name for name in before if name.endswith(names.DELETED)}
        if each.directory == "segments-0":
            assert changed == {"00000000000000000053.index"}
            assert after["00000000000000000053.index"].startswith(before["00000000000000000053.index"])
        else:
            assert changed == set(), each.directory


@pytest.mark.parametrize("is_lost", [False, True])
def test_the_epoch_checkpoint_says_after_a_clean_stop_what_was_known_while_running(
    clean_copy: Path, expected: Expected, is_lost: bool
) -> None:
    """Also where opening had to work them all out because the file was lost. An epoch without records may be in it
    besides: every start forgets it."""
    if is_lost:
        for each in expected.partitions:
            (clean_copy / each.directory / names.LEADER_EPOCHS).unlink()
    with opened(clean_copy, time_of(expected)) as directory:
        known = {str(partition): log.epochs.entries for partition, log in directory.logs.items()}
        ends = {str(partition): log.log_end for partition, log in directory.logs.items()}
        directory.close()
    found = {name: epochs_of(clean_copy / name).entries for name in known}
    assert {name: [each for each in found[name] if each.offset < ends[name]] for name in known} == known


@pytest.mark.parametrize("is_rolled", [False, True])
def test_an_abort_in_a_segment_that_kafka_left_without_a_transaction_index_gets_one(
    clean_copy: Path, expected: Expected, is_rolled: bool
) -> None:
    """Kafka serves aborted records as committed ones where the file does not tell."""
    now_ms = expected.of("segments", 1)[0].timestamp
    index = clean_copy / "segments-1" / names.segment_file(0, names.TXN_INDEX)
    assert not index.exists()
    with opened(clean_copy, time_of(expected)) as directory:
        log = directory.logs[TopicPartition("segments", 1)]
        for batch in (
            build_batch(
                [(b"k", b"v", now_ms)], producer_id=9, producer_epoch=0, base_sequence=0, transactional=True
            ),
            end_txn_marker(9, 0, False, 0, now_ms),
        ):
            log.append(batch, leader_epoch=2, now_ms=now_ms, origin=Origin.COORDINATOR)
        if is_rolled:
            log.roll(now_ms)
        directory.close()
    assert decode_aborted(index.read_bytes(), str(index)) == [AbortedTxn(9, 1, 2, 3)]


def test_checkpoints_tell_of_every_partition_what_kafkas_tell(clean_copy: Path, expected: Expected) -> None:
    """Kafka's log-start-offset-checkpoint leaves out a partition that starts with its first segment."""
    offsets: dict[str, Callable[[ExpectedPartition], int]] = {
        ck.RECOVERY_POINTS: lambda each: each.log_end,
        ck.HIGH_WATERMARKS: lambda each: each.log_end,
        ck.LOG_STARTS: lambda each: each.log_start,
    }
    with opened(clean_copy, time_of(expected)) as directory:
        directory.close()
    for name, offset_of in offsets.items():
        kafkas, ours = (
            ck.decode_offsets((logs / name).read_bytes(), name) for logs in (GOLDEN / "logs", clean_copy)
        )
        assert ours == {
            TopicPartition(each.topic, each.partition): offset_of(each) for each in expected.partitions
        }
        assert kafkas.items() <= ours.items()
