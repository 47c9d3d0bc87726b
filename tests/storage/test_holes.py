"""Damage and missing files: no record of an aborted transaction is ever read as committed, and the loss is reported.

A history of transactions is written, one file is damaged, and the log is opened again. A reader of committed records
then goes over all of it, and once more after every producer has committed another transaction, and once more after a
restart: whatever a later marker might decide by mistake has been decided by then.
"""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.storage.housekeeping import compact_due, retain
from tests.storage.world import EVERYTHING, NOW_MS, SMALL, P, append, files_of, make_batch, put

from penstock.records import RecordBatch, end_txn_marker, iter_batches
from penstock.sim.faults.hole_trials import read_committed
from penstock.storage.check import check_directory
from penstock.storage.checkpoints import Hole
from penstock.storage.directory import LogDirectory, open_directory
from penstock.storage.errors import CorruptLog
from penstock.storage.log import Log
from penstock.storage.rules import Origin
from penstock.vfs import MemoryDisk, Vfs

SETTINGS = replace(SMALL, segment_bytes=600, retention_bytes=-1)
PRODUCERS = (7, 8, 9)


def open_here(vfs: Vfs) -> LogDirectory:
    directory = open_directory(
        vfs,
        "/data",
        now_ms=NOW_MS,
        rng=Random(1),
        settings_of=lambda _: SETTINGS,
        open_files_max=64,
        boot_id="boot",
    )
    directory.registered(5)
    return directory


class History:
    """Transactions as a coordinator knows them: which records were aborted, whatever the log says later."""

    def __init__(self, steps: list[str]) -> None:
        self.disk = MemoryDisk()
        self.directory = open_here(self.disk)
        self.log = self.directory.create(P, now_ms=NOW_MS)
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.open: dict[int, list[int]] = {}
        self.aborted: set[int] = set()
        """Offsets of records whose transaction was aborted."""
        self.values: dict[int, bytes] = {}
        for step in steps:
            self.run(step)

    def run(self, step: str) -> None:
        kind, _, number = step.partition(" ")
        if kind == "plain":
            self.note(append(self.log, make_batch(2, size=30, fill=len(self.values))))
        elif kind == "produce":
            self.produce(int(number))
        elif kind in ("commit", "abort") and int(number) in self.open:
            self.end(int(number), commit=kind == "commit")
        elif kind == "roll" and self.log.log_end > self.log.segments.active.base_offset:
            self.log.roll(NOW_MS)
        elif kind == "checkpoint":
            self.directory.checkpoint()

    def note(self, data: bytes) -> list[int]:
        offsets = []
        for record in RecordBatch.parse(data).records():
            assert record.value is not None
            self.values[record.offset] = bytes(record.value)
            offsets.append(record.offset)
        return offsets

    def produce(self, producer_id: int) -> None:
        sequence = self.sequences[producer_id]
        producer = (producer_id, 0, sequence)
        batch = make_batch(1, size=40, fill=len(self.values), producer=producer, transactional=True)
        self.open.setdefault(producer_id, []).extend(self.note(append(self.log, batch)))
        self.sequences[producer_id] = sequence + 1

    def end(self, producer_id: int, *, commit: bool) -> None:
        append(self.log, bytearray(end_txn_marker(producer_id, 0, commit, 0, NOW_MS)), marker=True)
        offsets = self.open.pop(producer_id)
        if not commit:
            self.aborted.update(offsets)

    @property
    def not_committed(self) -> set[int]:
        return self.aborted | {offset for offsets in self.open.values() for offset in offsets}


def commit_more(log: Log) -> set[int]:
    """Every producer goes on with another transaction, and commits it. Its offsets."""
    offsets = set()
    for producer_id in PRODUCERS:
        batch = make_batch(1, producer=(producer_id, 3, 0), transactional=True)
        offsets.add(log.append(batch, leader_epoch=0, now_ms=NOW_MS).base_offset)
        marker = bytearray(end_txn_marker(producer_id, 3, True, 0, NOW_MS))
        log.append(marker, leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    return offsets


def check_committed(log: Log, history: History, later: set[int]) -> None:
    for seen in read_committed(log):
        if seen.offset in later:
            continue
        assert seen.offset not in history.aborted, (
            f"offset {seen.offset} was aborted, and is read as committed"
        )
        assert seen.value == history.values[seen.offset], f"offset {seen.offset} has another value"


def logs_of(disk: MemoryDisk) -> list[str]:
    return sorted(name for name in files_of(disk) if name.endswith(".log"))


def stopped(history: History, *, clean: bool) -> MemoryDisk:
    if clean:
        history.directory.close()
    return history.disk.kill_clone()


def check_after(history: History, disk: MemoryDisk) -> LogDirectory:
    """Open what is left, and have nobody see a record that was aborted, now or later."""
    directory = open_here(disk)
    log = directory.logs[P]
    check_committed(log, history, set())
    later = commit_more(log)
    check_committed(log, history, later)
    killed = disk.kill_clone()
    again = open_here(killed)
    check_committed(again.logs[P], history, later)
    again.close()
    check_accepted(open_here(killed), history, later)
    return directory


def check_accepted(directory: LogDirectory, history: History, later: set[int]) -> None:
    """An operator accepts every loss: readers go on, and still see nothing that was aborted."""
    log = directory.logs[P]
    check_committed(log, history, later)
    for first_offset in list(log.producers.in_doubt):
        log.accept_loss(first_offset)
    assert log.last_stable == log.log_end or log.producers.ongoing
    check_committed(log, history, later)
    directory.close()
    again = open_here(directory.vfs).logs[P]
    assert not again.producers.in_doubt
    check_committed(again, history, later)


# -- a damaged marker --------------------------------------------------------------------------------------


def flip_in(disk: MemoryDisk, base_offset: int) -> None:
    """Flip one bit in the payload of the batch that begins at an offset."""
    for name in logs_of(disk):
        data, position = bytearray(files_of(disk)[name]), 0
        for batch in iter_batches(bytes(data)):
            if batch.base_offset == base_offset:
                data[position + batch.size - 3] ^= 1
                put(disk, name, bytes(data))
                return
            position += batch.size
    raise AssertionError(f"no batch begins at {base_offset}")


ABORTED = ["plain", "produce 7", "produce 7", "abort 7", "plain", "produce 7", "commit 7", "plain"]
"""Offsets 2 and 3 are aborted by the marker at 4; offset 7 is committed."""


def test_an_abort_marker_that_is_damaged_leaves_its_transaction_undecided(
    caplog: pytest.LogCaptureFixture,
) -> None:
    history = History(ABORTED)
    disk = stopped(history, clean=False)
    flip_in(disk, 4)
    log = check_after(history, disk).logs[P]
    assert log.last_stable == 2, "readers of committed records wait where the transaction began"
    assert [each.first_offset for each in log.producers.in_doubt.values()] == [2]
    errors = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert any("transaction of producer 7 that began at offset 2" in each for each in errors)
    assert any("penstock transactions abort --partition orders:0 --start-offset 2" in each for each in errors)


def test_a_damaged_marker_at_the_end_of_the_log_leaves_its_transaction_undecided() -> None:
    history = History(ABORTED[:4])
    disk = stopped(history, clean=False)
    flip_in(disk, 4)
    directory = open_here(disk)
    log = directory.logs[P]
    assert directory.reports[P].lost_end == Hole(4, 5)
    assert (log.last_stable, log.log_end) == (2, 5), "offset 4 is not given to another record"
    check_after(history, disk.kill_clone())


def test_what_a_producer_commits_behind_a_hole_is_read_once_the_loss_is_accepted() -> None:
    history = History(ABORTED)
    disk = stopped(history, clean=False)
    flip_in(disk, 4)
    log = open_here(disk).logs[P]
    log.accept_loss(2)
    assert log.last_stable == log.log_end
    offsets = [each.offset for each in read_committed(log)]
    assert offsets == [0, 1, 5, 6, 7, 9, 10], "not 2 and 3, which were aborted"


def test_a_transaction_that_ends_behind_the_hole_is_not_in_doubt_where_a_snapshot_proves_it() -> None:
    steps = ["produce 7", "roll", "plain", "roll", "plain", "abort 7", "produce 8", "commit 8"]
    history = History(steps)
    disk = stopped(history, clean=True)
    disk.remove(logs_of(disk)[1])
    log = open_here(disk).logs[P]
    assert log.segments.holes(log.log_start) == [Hole(1, 3)]
    assert not log.producers.in_doubt
    assert [each.offset for each in read_committed(log)] == [3, 4, 6]


def test_nothing_is_in_doubt_about_records_that_are_deleted() -> None:
    history = History(ABORTED)
    disk = stopped(history, clean=False)
    flip_in(disk, 4)
    log = open_here(disk).logs[P]
    log.advance_start(4)
    assert not log.producers.in_doubt
    assert log.last_stable == log.log_end


# -- missing segments --------------------------------------------------------------------------------------

SEGMENTS = ["produce 7", "plain", "roll", "abort 7", "plain", "roll", "plain", "produce 7", "commit 7"]
"""Segments at 0, 3 and 6; the middle one has the marker that aborts offset 0."""


@pytest.mark.parametrize("how", ["remove", "empty", "shorten"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_segment_is_a_hole_that_nobody_reads_across(how: str, clean: bool) -> None:
    history = History([*SEGMENTS, "checkpoint"])
    disk = stopped(history, clean=clean)
    name = logs_of(disk)[1]
    if how == "remove":
        disk.remove(name)
    else:
        put(disk, name, files_of(disk)[name][: 10 if how == "shorten" else 0])
    directory = check_after(history, disk)
    log = directory.logs[P]
    assert directory.reports[P].holes == [Hole(3, 6)]
    assert log.is_damaged
    assert log.last_stable == 0
    for offset in (3, 5):
        with pytest.raises(CorruptLog, match="offsets 3 to 5 before it are missing"):
            log.read(offset, EVERYTHING)
    assert log.read(6, EVERYTHING), "what is behind it can be read"
    assert log.cut_damage() == 3, "a replica copies from here what the leader has"
    assert not log.is_damaged
    assert not log.producers.in_doubt
    assert log.last_stable == 0, "open, as it was here"


@pytest.mark.parametrize("how", ["remove", "empty", "shorten"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_lost_its_only_file_is_noticed(
    how: str, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    history = History(["plain", "plain", "checkpoint"])
    disk = stopped(history, clean=clean)
    (name,) = logs_of(disk)
    if how == "remove":
        disk.remove(name)
    else:
        put(disk, name, files_of(disk)[name][: 10 if how == "shorten" else 0])
    directory = open_here(disk)
    assert directory.reports[P].lost_end == Hole(0, 4)
    assert directory.previous_broker_epoch == -1, "the broker is not believed to have everything"
    errors = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert any("it ends at offset 0, but had records up to 4" in each for each in errors)


def test_the_front_of_a_log_that_is_missing_is_a_hole_too() -> None:
    history = History(["plain", "roll", "plain", "roll", "plain"])
    disk = stopped(history, clean=True)
    disk.remove(logs_of(disk)[0])
    directory = open_here(disk)
    assert directory.reports[P].holes == [Hole(0, 2)]
    assert directory.logs[P].cut_damage() == 0


def test_retention_compaction_and_truncation_leave_no_holes() -> None:
    settings = replace(SETTINGS, cleanup_policy="compact,delete", min_cleanable_dirty_ratio=0.0)
    disk = MemoryDisk()
    directory = open_directory(
        disk, "/data", now_ms=NOW_MS, rng=Random(1), settings_of=lambda _: settings, boot_id="boot"
    )
    log = directory.create(P, now_ms=NOW_MS)

    def opened() -> dict:
        clone = disk.kill_clone()
        return open_directory(
            clone, "/data", now_ms=NOW_MS, rng=Random(1), settings_of=lambda _: settings, boot_id="boot"
        ).reports

    for _ in range(3):
        for _ in range(12):
            append(log, make_batch(2, size=60))
        directory.checkpoint()
        log.flush()
        directory.checkpoints.high_watermarks[P] = log.log_end
        removals = list(compact_due(directory, NOW_MS))
        assert removals, "something was compacted"
        assert not [each.holes for each in opened().values() if each.holes]
        log.truncate(log.log_end - 3)
        assert not [each.holes for each in opened().values() if each.holes]
        log.advance_start(log.log_end - 4)
        for removal in [*removals, *retain(directory, NOW_MS)]:
            removal.run()
        assert not [each.holes for each in opened().values() if each.holes]


# -- any single damage -------------------------------------------------------------------------------------

STEPS = st.lists(
    st.sampled_from(
        [
            *(f"produce {each}" for each in PRODUCERS),
            *(f"abort {each}" for each in PRODUCERS),
            *(f"commit {each}" for each in PRODUCERS),
            "plain",
            "roll",
            "checkpoint",
        ]
    ),
    min_size=4,
    max_size=40,
)
KINDS = ("flip", "remove", "remove all of a segment", "empty", "shorten")


@hypothesis_settings(max_examples=100, deadline=None)
@given(STEPS, st.booleans(), st.sampled_from(KINDS), st.integers(0, 10**6), st.integers(0, 10**6))
def test_no_single_damage_makes_an_aborted_record_visible(
    steps: list[str], clean: bool, kind: str, which: int, where: int
) -> None:
    history = History(steps)
    if kind != "flip":
        history.run("checkpoint")  # nothing tells how long a file was that nobody has synced
    disk = stopped(history, clean=clean)
    damage(disk, kind, which, where)
    check_after(history, disk)


def damage(disk: MemoryDisk, kind: str, which: int, where: int) -> None:
    """Do one thing to one file of the partition."""
    found = {name: data for name, data in files_of(disk).items() if "/orders-0/" in name}
    names = sorted(name for name, data in found.items() if data or kind.startswith("remove"))
    if not names:
        return
    name = names[which % len(names)]
    data = found[name]
    if kind == "flip":
        put(disk, name, flipped(name, data, where))
    elif kind == "remove":
        disk.remove(name)
    elif kind == "remove all of a segment":
        base = name.rpartition("/")[2].partition(".")[0]
        for each in names:
            if each.rpartition("/")[2].startswith(base):
                disk.remove(each)
    else:
        put(disk, name, b"" if kind == "empty" else data[: where % len(data)])


def flipped(name: str, data: bytes, where: int) -> bytes:
    """One bit, of those that a CRC covers in a log: offsets and epochs are held against their neighbours alone."""
    changed = bytearray(data)
    place = where % len(data)
    if name.endswith(".log"):
        position = 0
        for batch in iter_batches(data):
            if position <= place < position + 21:
                place = position + 21
            position += batch.size
    changed[place] ^= 1 << (where % 8)
    return bytes(changed)


# -- the checker -------------------------------------------------------------------------------------------


def test_the_checker_names_a_segment_that_is_missing_or_shorter() -> None:
    for how in ("remove", "shorten"):
        disk = stopped(History(SEGMENTS), clean=True)
        name = logs_of(disk)[1]
        if how == "remove":
            disk.remove(name)
        else:
            put(disk, name, files_of(disk)[name][:10])
        found = [
            each
            for each in check_directory(disk, "/data/logs", "/data/meta")
            if each.severity == "error" and each.path == name
        ]
        assert any("missing or truncated" in each.problem for each in found), found


def test_the_checker_has_nothing_to_say_of_a_log_in_which_a_loss_was_accepted_but_its_hole() -> None:
    disk = stopped(History(SEGMENTS), clean=True)
    disk.remove(logs_of(disk)[1])
    directory = open_here(disk)
    directory.logs[P].accept_loss(0)
    directory.close()
    errors = [each for each in check_directory(disk, "/data/logs", "/data/meta") if each.severity == "error"]
    assert [each.problem for each in errors] == [
        "offsets 3 to 5 are missing, as an earlier start of the broker found"
    ]
