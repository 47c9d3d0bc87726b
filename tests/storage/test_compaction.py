"""Compaction: one record a key, and nothing else lost."""

import random
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.storage.housekeeping import compact

from penstock.base.errors import KafkaError
from penstock.base.ids import TopicPartition
from penstock.base.settings import LogSettings
from penstock.records import BatchBuilder, Codec, Record, build_batch, end_txn_marker, iter_batches
from penstock.storage import Log, LogDirectory, Origin, StorageError, open_directory
from penstock.storage.cleaner import clean
from penstock.storage.compaction import cleanable_end, install, is_due, plan_cleaning
from penstock.storage.errors import CorruptLog
from penstock.vfs import FaultyDisk, MemoryDisk, RealDisk, Vfs

PARTITION = TopicPartition("table", 0)
NOW = 1_000_000


def open_table(vfs: Vfs, **changed: object) -> tuple[LogDirectory, Log]:
    wanted = LogSettings(cleanup_policy=("compact",), delete_retention_ms=1000, **changed)  # type: ignore[arg-type]
    directory = open_directory(vfs, "/data", now_ms=NOW, rng=random.Random(1), settings_of=lambda _: wanted)
    return directory, directory.logs.get(PARTITION) or directory.create(PARTITION, now_ms=NOW)


def put(log: Log, *rows: tuple[bytes, bytes | None], codec: Codec = Codec.NONE, timestamp: int = NOW) -> None:
    log.append(
        build_batch([(key, value, timestamp) for key, value in rows], codec=codec), leader_epoch=0, now_ms=NOW
    )


def records(log: Log) -> list[Record]:
    return [record for batch in log.batches() if not batch.is_control for record in batch.records()]


def contents(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in records(log)]


def run(log: Log, now_ms: int = NOW, **options: int) -> None:
    done = compact(log, now_ms, log.log_end, **options)
    if done is not None:
        done[1].run()


WORKED_EXAMPLE = [
    (b"A", b"1"),
    (b"B", b"1"),
    (b"A", b"2"),
    (b"C", b"1"),
    (b"B", b"2"),
    (b"A", b"3"),
    (b"B", None),
]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("together", [True, False], ids=["one batch", "seven batches"])
def test_the_worked_example(codec: Codec, together: bool) -> None:
    """A, B, A, C, B, A and a tombstone for B leave C at 3, A at 5 and the tombstone at 6, for a while."""
    _, log = open_table(MemoryDisk())
    for rows in [WORKED_EXAMPLE] if together else [[row] for row in WORKED_EXAMPLE]:
        put(log, *rows, codec=codec)
    log.roll(NOW)

    run(log)
    assert contents(log) == [(3, b"C", b"1"), (5, b"A", b"3"), (6, b"B", None)]
    run(log, NOW + 999)
    assert contents(log)[-1] == (6, b"B", None)

    assert is_due(log, NOW + 1000, log.log_end), (
        "the tombstone's time has come, though nothing new was written"
    )
    run(log, NOW + 1000)
    assert contents(log) == [(3, b"C", b"1"), (5, b"A", b"3")]
    assert log.log_end == 7
    assert all(batch.crc_valid() for batch in log.batches())


def test_offsets_timestamps_headers_and_the_log_end_stay_as_they_were() -> None:
    _, log = open_table(MemoryDisk())
    builder = BatchBuilder()
    for number in range(10):
        builder.append(
            b"%d" % (number % 4), b"v%d" % number, NOW + 7 * number, [("h", b"%d" % number), ("n", None)]
        )
    log.append(builder.build(), leader_epoch=3, now_ms=NOW)
    before = {record.offset: record for record in records(log)}
    log.roll(NOW)

    run(log)

    after = records(log)
    assert [record.offset for record in after] == [6, 7, 8, 9]
    assert all(record == before[record.offset] for record in after)
    [batch] = [batch for batch in log.batches() if batch.count]
    assert (batch.base_offset, batch.last_offset, batch.leader_epoch) == (0, 9, 3)
    assert batch.max_timestamp == NOW + 63
    assert log.log_end == 10


def test_a_read_from_a_hole_goes_on_at_the_next_record() -> None:
    _, log = open_table(MemoryDisk())
    for row in WORKED_EXAMPLE:
        put(log, row)
    log.roll(NOW)
    run(log)

    assert next(iter_batches(log.read(0, 10_000))).base_offset == 3
    assert next(iter_batches(log.read(4, 10_000))).base_offset == 5
    found = log.reader.offset_for_timestamp(NOW)
    assert found is not None
    assert found.offset == 3


def test_small_segments_are_merged_up_to_the_configured_size() -> None:
    _, log = open_table(MemoryDisk(), segment_bytes=1000)
    for number in range(300):
        put(log, (b"key%d" % (number % 5), b"x" * 50))
    many = len(log.segments)

    run(log)

    assert len(log.segments) == 2 < many
    assert len(contents(log)) >= 5
    assert {key for _, key, _ in contents(log)} == {b"key%d" % number for number in range(5)}


def test_records_without_a_key_have_no_place_in_a_compacted_log() -> None:
    _, log = open_table(MemoryDisk())
    with pytest.raises(KafkaError):
        put(log, (None, b"refused"))  # type: ignore[arg-type]
    log.configure(LogSettings())
    put(log, (None, b"from before the topic was compacted"))  # type: ignore[arg-type]
    put(log, (b"k", b"v"))
    log.configure(LogSettings(cleanup_policy=("compact",)))
    log.roll(NOW)

    run(log)

    assert contents(log) == [(1, b"k", b"v")]


def test_long_keys_are_distinguished_by_their_digest_and_short_ones_by_themselves() -> None:
    _, log = open_table(MemoryDisk())
    keys = [b"", b"a" * 15, b"a" * 16, b"a" * 17, b"b" * 1000, b"b" * 999 + b"c"]
    for value in (b"old", b"new"):
        for key in keys:
            put(log, (key, value))
    log.roll(NOW)

    run(log)

    assert contents(log) == [(6 + index, key, b"new") for index, key in enumerate(keys)]


# -- what may not be cleaned --------------------------------------------------------------------------


def test_the_active_segment_is_never_cleaned() -> None:
    _, log = open_table(MemoryDisk())
    put(log, (b"k", b"1"))
    put(log, (b"k", b"2"))

    assert compact(log, NOW, log.log_end) is None
    assert len(contents(log)) == 2


def test_nothing_past_the_high_watermark_is_cleaned() -> None:
    _, log = open_table(MemoryDisk())
    for value in (b"1", b"2"):
        put(log, (b"k", value))
        log.roll(NOW)

    assert cleanable_end(log, NOW, high_watermark=1) == 1
    assert cleanable_end(log, NOW, high_watermark=2) == 2


def test_records_younger_than_the_compaction_lag_wait() -> None:
    """min.compaction.lag.ms: a reader has at least that long to see every record."""
    _, log = open_table(MemoryDisk(), min_compaction_lag_ms=500)
    put(log, (b"k", b"old"), timestamp=NOW - 1000)
    put(log, (b"k", b"newer"), timestamp=NOW - 1000)
    log.roll(NOW)
    put(log, (b"k", b"young"), timestamp=NOW - 100)
    log.roll(NOW)

    assert cleanable_end(log, NOW, log.log_end) == 2
    run(log)
    assert [value for *_, value in contents(log)] == [b"newer", b"young"]
    run(log, NOW + 1000)
    assert [value for *_, value in contents(log)] == [b"young"]


def test_a_round_is_due_when_enough_of_the_log_is_dirty() -> None:
    _, log = open_table(MemoryDisk(), min_cleanable_dirty_ratio=0.5)
    assert not is_due(log, NOW, log.log_end)
    for number in range(10):
        put(log, (b"%d" % number, b"v"))
    log.roll(NOW)
    assert is_due(log, NOW, log.log_end)
    run(log)
    assert not is_due(log, NOW, log.log_end)
    for number in range(4):
        put(log, (b"%d" % number, b"v"))
    log.roll(NOW)
    assert not is_due(log, NOW, log.log_end), "four of fourteen"
    for number in range(8):
        put(log, (b"%d" % number, b"v"))
    log.roll(NOW)
    assert is_due(log, NOW, log.log_end)


def test_a_round_is_due_when_a_record_has_waited_too_long() -> None:
    """max.compaction.lag.ms."""
    _, log = open_table(MemoryDisk(), min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000)
    put(log, (b"a", b"1"))
    log.roll(NOW)
    run(log)
    put(log, (b"a", b"2"))
    log.roll(NOW)

    assert not is_due(log, NOW + 1000, log.log_end)
    assert is_due(log, NOW + 1001, log.log_end)


# -- transactions and producers -----------------------------------------------------------------------


def transaction(
    log: Log, producer_id: int, sequence: int, *rows: tuple[bytes, bytes | None], commit: bool
) -> None:
    batch = build_batch(
        [(key, value, NOW) for key, value in rows],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    log.append(batch, leader_epoch=0, now_ms=NOW)
    log.append(
        end_txn_marker(producer_id, 0, commit, 1, NOW), leader_epoch=0, now_ms=NOW, origin=Origin.COORDINATOR
    )


def markers(log: Log) -> list[int]:
    return [batch.base_offset for batch in log.batches() if batch.is_control and batch.count]


def test_an_aborted_record_neither_stays_nor_supersedes_a_committed_one() -> None:
    _, log = open_table(MemoryDisk())
    transaction(log, 7, 0, (b"k", b"committed"), commit=True)
    transaction(log, 7, 1, (b"k", b"aborted"), commit=False)
    put(log, (b"other", b"v"))
    log.roll(NOW)

    run(log)

    assert (0, b"k", b"committed") in contents(log)
    assert all(value != b"aborted" for *_, value in contents(log))


def test_a_marker_stays_until_its_records_are_gone_and_then_as_long_as_a_tombstone() -> None:
    """KIP-534: a consumer that has read the records must be able to learn how they ended."""
    _, log = open_table(MemoryDisk())
    transaction(log, 7, 0, (b"k", b"1"), commit=True)
    transaction(log, 8, 0, (b"k", b"2"), commit=True)
    log.roll(NOW)
    run(log)
    assert markers(log) == [1, 3], "the first record went in this round, its marker may go in a later one"

    run(log, NOW + 1)
    assert markers(log) == [1, 3]
    run(log, NOW + 1 + 1000)
    assert 3 in markers(log), "the second transaction's record is still there"


def test_the_transaction_index_of_a_cleaned_segment_is_that_of_its_records() -> None:
    _, log = open_table(MemoryDisk())
    transaction(log, 7, 0, (b"a", b"1"), commit=True)
    transaction(log, 8, 0, (b"b", b"2"), commit=False)
    log.roll(NOW)
    assert len(log.aborted(0, log.log_end)) == 1
    run(log)

    for entry in log.aborted(0, log.log_end):
        assert entry.producer_id == 8


def test_the_last_batch_of_a_live_producer_stays_even_when_empty() -> None:
    """Its sequence number must survive a restart that replays the log."""
    disk = MemoryDisk()
    directory, log = open_table(disk)
    for sequence in range(3):
        log.append(
            build_batch(
                [(b"k", b"%d" % sequence, NOW)], producer_id=5, producer_epoch=1, base_sequence=sequence
            ),
            leader_epoch=0,
            now_ms=NOW,
        )
    put(log, (b"k", b"last"))
    log.roll(NOW)
    run(log)

    assert [(batch.base_offset, batch.count) for batch in log.batches()] == [(2, 0), (3, 1)]
    # Without snapshots, the state must come out of the log alone.
    for entry in disk.list_dir(log.directory):
        if entry.name.endswith((".snapshot", ".sequences")):
            disk.remove(f"{log.directory}/{entry.name}")
    directory.abandon()
    _, reopened = open_table(disk)
    assert reopened.producers.by_id[5].last_sequence == 2


def test_the_end_of_the_cleaned_range_is_remembered_by_an_empty_batch() -> None:
    _, log = open_table(MemoryDisk())
    put(log, (b"k", b"1"))
    transaction(log, 7, 0, (b"k", b"aborted"), commit=False)
    log.roll(NOW)
    run(log, NOW)
    run(log, NOW + 5000)

    assert [batch.last_offset for batch in log.batches()][-1] == log.log_end - 1


# -- bounds and faults --------------------------------------------------------------------------------


def test_a_round_that_runs_out_of_memory_goes_on_in_the_next() -> None:
    _, log = open_table(MemoryDisk(), segment_bytes=4000)
    for number in range(200):
        put(log, *[(b"key%d" % ((number * 7 + row) % 150), b"%d" % number) for row in range(3)])
    expected = {record.key: record.offset for record in records(log)}
    log.roll(NOW)
    small = 4 * 2**20 + 200 * 40  # room for 40 keys

    rounds = 0
    while log.clean_to < log.segments.active.base_offset:
        before = log.clean_to
        run(log, memory_bytes=small)
        assert log.clean_to > before
        rounds += 1
    run(log)

    assert rounds > 3
    assert {record.key: record.offset for record in records(log)} == expected
    last = {}
    for record in records(log):
        last[record.key] = record.offset
    assert last == expected


def test_a_damaged_batch_stops_the_round_and_nothing_is_changed() -> None:
    disk = MemoryDisk()
    _, log = open_table(disk)
    put(log, (b"k", b"1"))
    put(log, (b"k", b"2"))
    log.roll(NOW)
    path = log.segments[0].ref.path
    file = disk.open(path, write=True)
    file.pwrite([b"\xff"], file.size() - 2)

    with pytest.raises(CorruptLog, match=r"00000000000000000000\.log at position \d+: CRC mismatch"):
        compact(log, NOW, log.log_end)
    assert log.segments[0].size == file.size()


def test_a_full_disk_stops_the_round_and_the_log_goes_on() -> None:
    faulty = FaultyDisk(MemoryDisk())
    _, log = open_table(faulty)
    for number in range(50):
        put(log, (b"%d" % number, b"x" * 100))
    log.roll(NOW)
    before = contents(log)
    faulty.capacity = faulty.used + 1000

    with pytest.raises(StorageError, match="cannot clean"):
        compact(log, NOW, log.log_end)

    assert contents(log) == before
    faulty.capacity = None
    run(log)
    assert contents(log) == before


def test_a_result_is_thrown_away_when_the_log_was_cut_meanwhile() -> None:
    disk = MemoryDisk()
    _, log = open_table(disk)
    for row in WORKED_EXAMPLE:
        put(log, row)
    log.roll(NOW)
    plan = plan_cleaning(log, NOW, log.log_end)
    assert plan is not None
    cleaned = clean(disk, plan)
    log.truncate(4)

    install(log, plan, cleaned)

    assert [offset for offset, *_ in contents(log)] == [0, 1, 2, 3]
    assert not [entry.name for entry in disk.list_dir(log.directory) if entry.name.endswith(".cleaned")]


def test_the_work_can_be_done_by_another_process(tmp_path: Path) -> None:
    settings_ = LogSettings(cleanup_policy=("compact",), segment_bytes=2000)
    directory = open_directory(
        RealDisk(), str(tmp_path), now_ms=NOW, rng=random.Random(1), settings_of=lambda _: settings_
    )
    log = directory.create(PARTITION, now_ms=NOW)
    for number in range(200):
        put(log, (b"key%d" % (number % 3), b"%d" % number))
    log.roll(NOW)
    plan = plan_cleaning(log, NOW, log.log_end)
    assert plan is not None

    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        cleaned = pool.submit(clean, RealDisk(), plan).result(timeout=60)
    put(log, (b"key0", b"meanwhile"))
    install(log, plan, cleaned).run()

    assert [value for *_, value in contents(log)] == [b"197", b"198", b"199", b"meanwhile"]
    directory.close()


@pytest.mark.long
def test_readers_go_on_while_segments_are_swapped(tmp_path: Path) -> None:
    settings_ = LogSettings(cleanup_policy=("compact",), segment_bytes=2000)
    directory = open_directory(
        RealDisk(), str(tmp_path), now_ms=NOW, rng=random.Random(1), settings_of=lambda _: settings_
    )
    log = directory.create(PARTITION, now_ms=NOW)
    problems: list[object] = []
    is_done = False

    def read_again_and_again() -> None:
        try:
            while not is_done:
                offset = 0
                while offset < log.log_end:
                    batches = list(iter_batches(log.read(offset, 1500)))
                    if not batches:
                        break
                    for batch in batches:
                        if batch.last_offset < offset or not batch.crc_valid():
                            problems.append((offset, batch))
                        problems.extend(
                            record
                            for record in batch.records()
                            if record.value is None or not record.value.startswith(record.key or b"?")
                        )
                    offset = batches[-1].next_offset
        except Exception as error:
            problems.append(error)

    readers = [Thread(target=read_again_and_again) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for number in range(600):
            key = b"key%d" % (number % 20)
            put(log, (key, key + b"=%d" % number))
            if number % 50 == 49:
                run(log)
    finally:
        is_done = True
        for reader in readers:
            reader.join()

    assert problems == []
    directory.close()


# -- power cuts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_at_any_point_of_a_round_loses_no_latest_record(seed: int) -> None:
    """Every sync and every change of a name is a moment at which the power may go."""
    disk = MemoryDisk()
    directory, log = open_table(disk, segment_bytes=1000)
    for number in range(60):
        put(log, (b"key%d" % (number % 7), b"x" * 40 + b"%d" % number))
    directory.checkpoint()
    expected = {record.key: record.value for record in records(log)}
    rng = random.Random(seed)
    crashed: list[MemoryDisk] = []

    def cut(_: str) -> None:
        crashed.append(disk.crash_clone(rng))

    disk.on_sync = disk.on_change = cut
    run(log)
    disk.on_sync = disk.on_change = None
    crashed.append(disk.crash_clone(rng))

    assert len(crashed) > 20
    for clone in crashed:
        reopened_directory, reopened = open_table(clone, segment_bytes=1000)
        found = {record.key: record.value for record in records(reopened)}
        assert found == expected
        assert reopened.log_end == log.log_end
        offsets = [record.offset for record in records(reopened)]
        assert offsets == sorted(set(offsets))
        run(reopened)
        assert {record.key: record.value for record in records(reopened)} == expected
        reopened_directory.close()


keys = st.sampled_from([b"a", b"bb", b"c" * 20, b"", b"long" * 10])
values = st.one_of(st.none(), st.binary(max_size=20))


@given(
    st.lists(st.lists(st.tuples(keys, values), min_size=1, max_size=5), min_size=1, max_size=30),
    st.sampled_from(list(Codec)),
    st.integers(1, 10),
)
@settings(deadline=None)
def test_after_any_history_a_full_read_gives_the_same_table(
    history: Sequence[Sequence[tuple[bytes, bytes | None]]], codec: Codec, every: int
) -> None:
    """Replaying a compacted log gives the same latest values as replaying all that was written."""
    _, log = open_table(MemoryDisk(), segment_bytes=1000)
    expected: dict[bytes, bytes | None] = {}
    for number, rows in enumerate(history):
        put(log, *rows, codec=codec)
        expected.update(rows)
        if number % every == 0:
            log.roll(NOW)
            run(log, NOW + number * 300)
    log.roll(NOW)
    run(log, NOW)

    seen: dict[bytes | None, bytes | None] = {}
    for record in records(log):
        seen[record.key] = record.value
    live = {key: value for key, value in expected.items() if value is not None}
    assert {key: value for key, value in seen.items() if value is not None} == live
    assert log.log_end == sum(len(rows) for rows in history)
