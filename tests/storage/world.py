"""A log beside a model of it, and power cuts in between.

The model is a list of the batches that were appended, as bytes, and a few numbers; everything else that a
log knows (producers, aborted transactions, epochs, what is at a timestamp) is worked out from that list when
it is compared. Each operation runs on both. While it runs, clones of the disk are taken as a power cut would
leave it; each is opened and must be what the model was before the operation, or after it, or lie between.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from tests.storage.housekeeping import retain

from penstock.base.ids import TopicPartition
from penstock.base.settings import LogSettings
from penstock.records import RecordBatch, build_batch, end_txn_marker
from penstock.storage.directory import LogDirectory, open_directory
from penstock.storage.epochs import EpochStart, LeaderEpochs
from penstock.storage.log import Log
from penstock.storage.producers import Producers
from penstock.storage.rules import Origin
from penstock.storage.txn_index import AbortedTxn
from penstock.vfs import FaultyDisk, MemoryDisk, Vfs

P = TopicPartition("orders", 0)
NOW_MS = 1_700_000_000_000
SMALL = LogSettings(
    segment_bytes=2000,
    index_interval_bytes=200,
    retention_bytes=6000,
    retention_ms=-1,
    max_message_bytes=5000,
)
EVERYTHING = 1 << 30


def open_small(
    vfs: Vfs, settings: LogSettings = SMALL, path: str = "/data", open_files_max: int = 64
) -> LogDirectory:
    return open_directory(
        vfs,
        path,
        now_ms=NOW_MS,
        rng=Random(1),
        settings_of=lambda _: settings,
        open_files_max=open_files_max,
    )


def make_batch(
    count: int,
    *,
    size: int = 40,
    timestamp: int = NOW_MS,
    step: int = 1,
    fill: int = 0,
    producer: tuple[int, int, int] | None = None,
    transactional: bool = False,
) -> bytearray:
    """A batch as a client sends it; `producer` is its id, epoch and base sequence."""
    value = bytes((fill + i) % 251 for i in range(size))
    records = [(b"k%d" % i, value, timestamp + i * step) for i in range(count)]
    if producer is None:
        return bytearray(build_batch(records))
    producer_id, epoch, sequence = producer
    return bytearray(
        build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


def append(log: Log, data: bytes | bytearray, *, leader_epoch: int = 0, marker: bool = False) -> bytes:
    """Append and return the bytes as they lie in the log."""
    origin = Origin.COORDINATOR if marker else Origin.CLIENT
    appended = log.append(data, leader_epoch=leader_epoch, now_ms=NOW_MS, origin=origin)
    assert not appended.is_duplicate
    return log.read(appended.base_offset, 1)


def batches_of(log: Log) -> list[bytes]:
    """Every batch in the files, those that the log start hides included."""
    return [bytes(batch.view) for batch in log.batches(log.segments[0].base_offset)]


def files_of(vfs: Vfs, path: str = "/data") -> dict[str, bytes]:
    """Every file below a path."""
    found = {}
    for entry in vfs.list_dir(path):
        name = f"{path}/{entry.name}"
        if entry.is_dir:
            found.update(files_of(vfs, name))
        else:
            file = vfs.open(name)
            found[name] = file.pread(file.size(), 0)
    return found


def put(vfs: Vfs, path: str, data: bytes) -> None:
    """Give a file this content, durably, whatever was there."""
    file = vfs.open(path, write=True, create=True)
    file.truncate(0)
    file.pwrite([data], 0)
    file.sync()


# -- what a list of batches says ----------------------------------------------------------------------


def fold(batches: Sequence[bytes]) -> tuple[Producers, list[AbortedTxn]]:
    producers, aborted = Producers(), []
    for data in batches:
        ended = producers.apply(RecordBatch.parse(data))
        if ended is not None:
            aborted.append(ended)
    return producers, aborted


def fold_epochs(batches: Sequence[bytes], log_start: int, log_end: int) -> list[EpochStart]:
    epochs = LeaderEpochs()
    for data in batches:
        batch = RecordBatch.parse(data)
        if batch.leader_epoch > epochs.latest:
            epochs.assign(batch.leader_epoch, batch.base_offset)
    epochs.truncate_end(log_end)
    epochs.truncate_start(log_start)
    return epochs.entries


def records_of(batches: Sequence[bytes]) -> list[tuple[int, int]]:
    """Offset and timestamp of every record."""
    return [
        (record.offset, record.timestamp) for data in batches for record in RecordBatch.parse(data).records()
    ]


def base_of(data: bytes) -> int:
    return RecordBatch.parse(data).base_offset


def end_of(data: bytes) -> int:
    return RecordBatch.parse(data).next_offset


# -- comparing ----------------------------------------------------------------------------------------


def check_reads(log: Log, batches: Sequence[bytes]) -> None:
    """Every look-up by offset gives what a walk over all batches gives."""
    for data in batches:
        batch = RecordBatch.parse(data)
        for offset in {batch.base_offset, batch.last_offset, (batch.base_offset + batch.last_offset) // 2}:
            if offset >= log.log_start:
                assert log.read(offset, 1) == data, f"read({offset})"


def check_timestamps(log: Log, batches: Sequence[bytes]) -> None:
    """Every look-up by time gives what a walk over all records gives."""
    records = records_of(batches)
    for timestamp in sorted({stamp + d for _, stamp in records for d in (0, 1)})[:60]:
        expected = next(
            ((o, t) for o, t in records if t >= timestamp and o >= log.log_start),
            None,
        )
        found = log.reader.offset_for_timestamp(timestamp)
        assert (found and (found.offset, found.timestamp)) == expected, f"timestamp {timestamp}"


def check_producers(actual: Producers, whole: Sequence[bytes], present: Sequence[bytes]) -> None:
    """The state is that of the whole history; or, where its front was deleted, of some part that has all that
    is left: what a snapshot was lost for is worked out from the batches that are still there."""
    expected = fold(whole)[0].by_id
    if actual.by_id != expected:
        shortest = len(whole) - len(present)
        possible = [fold(whole[first:])[0].by_id for first in range(1, shortest + 1)]
        for producer_id in {*actual.by_id, *expected}:
            found = actual.by_id.get(producer_id)
            allowed = [each.get(producer_id) for each in (expected, *possible)]
            assert found in allowed, f"producer {producer_id}: {found}, expected {allowed[0]}"
    assert actual.ongoing == {
        each.txn_first_offset: producer_id
        for producer_id, each in actual.by_id.items()
        if each.txn_first_offset is not None
    }


def check_aborted(log: Log, whole: Sequence[bytes]) -> None:
    """Transactions that lost records to retention are left out: they may begin where what is left begins."""
    first = log.segments[0].base_offset
    expected = fold(whole)[1]
    partly_gone = {each.last_offset for each in expected if each.first_offset < first}
    middle = (log.log_start + log.log_end) // 2
    for start, end in ((log.log_start, log.log_end), (log.log_start, middle), (middle, log.log_end)):
        found = [each[:3] for each in log.aborted(start, end) if each.last_offset not in partly_gone]
        wanted = [
            each[:3]
            for each in expected
            if each.last_offset >= start and each.first_offset < end and each.last_offset not in partly_gone
        ]
        assert found == wanted, f"aborted({start}, {end})"


def check_log(log: Log, whole: Sequence[bytes], *, looks_up: bool = True) -> None:
    """A log, against all batches that were ever appended to it and not truncated."""
    present = batches_of(log)
    assert present == [data for data in whole if base_of(data) >= base_of(present[0])] if present else True
    ends = [log.segments[0].base_offset, *map(end_of, present)]
    assert [base_of(data) for data in present] == ends[:-1], "offsets without gap or repeat"
    assert log.log_end == ends[-1]
    assert log.log_start <= log.log_end
    assert log.flushed <= log.log_end
    check_producers(log.producers, whole, present)
    if log.log_start < log.log_end:
        assert log.epochs.entries == fold_epochs(whole, log.log_start, log.log_end)
    if looks_up:
        check_reads(log, present)
        check_timestamps(log, present)
        check_aborted(log, whole)


# -- the model ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class State:
    """What the model knows of the partition."""

    history: tuple[bytes, ...] = ()
    """Every batch since the log began, those deleted from its front included."""
    flushed: int = 0
    log_start: int = 0
    exists: bool = True


@dataclass
class World:
    """A directory with one partition on a disk that may lose power, and the model beside it."""

    seed: int = 0
    settings: LogSettings = SMALL
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    cuts_each: int = 1
    """How many outcomes of one power cut are looked at."""

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.faults = FaultyDisk(self.disk, rng=self.rng)
        """The disk as the log sees it: it fails when told to."""
        self.is_faulty = False
        """For rules of `faults` that must not strike while the outcome is looked at."""
        self.directory = open_small(self.faults, self.settings)
        self.directory.create(P, now_ms=NOW_MS)
        self.state = State()
        self.sequences: dict[int, tuple[int, int]] = {}
        """Epoch and next sequence of each producer, as its client knows them."""
        self.epoch = 0
        self.clock = NOW_MS
        self.removals: list = []
        self.crashes_checked = 0

    @property
    def log(self) -> Log:
        return self.directory.logs[P]

    # -- running an operation, with power cuts ---------------------------------------------------------

    def run(
        self,
        operation: Callable[[], State],
        crash_at: Sequence[int] = (),
        required: int | None = None,
    ) -> None:
        """Run an operation, which returns the state after it; cut the power before some of its disk changes."""
        before, clones, count = self.state, [], 0

        def event(_: str) -> None:
            nonlocal count
            if count in crash_at:
                clones.extend(self.disk.crash_clone(self.rng) for _ in range(self.cuts_each))
            count += 1

        self.disk.on_change = self.disk.on_sync = event
        try:
            after = operation()
        finally:
            self.disk.on_change = self.disk.on_sync = None
        self.state = after
        lowest = min(before.flushed, after.flushed) if required is None else required
        for clone in clones:
            self.check_crash(clone, before, after, lowest)

    def check_crash(self, clone: MemoryDisk, before: State, after: State, required: int) -> None:
        """Open what a power cut left; it must fit, take appends, and survive a second cut."""
        self.crashes_checked += 1
        directory = open_small(clone, self.settings)
        state = self.recognise(directory, before, after, required)
        if state is None:
            return
        log = directory.logs[P]
        more = append(log, make_batch(2, size=300, timestamp=self.clock), leader_epoch=self.epoch)
        log.flush()
        again = open_small(clone.crash_clone(self.rng), self.settings)
        grown = replace(state, history=(*state.history, more), flushed=log.log_end)
        assert self.recognise(again, grown, grown, log.log_end) is not None

    def recognise(self, directory: LogDirectory, before: State, after: State, required: int) -> State | None:
        """Which of the two states this is, as far as it got; None where the partition is not there."""
        log = directory.logs.get(P)
        if log is None:
            assert not (before.exists and after.exists)
            return None
        if directory.reports.get(P) is not None:
            assert not directory.reports[P].holes, "a crash is no loss of what was synced"
        starts = [each.log_start for each in (before, after)]
        assert min(starts) <= log.log_start <= max(starts), "the log start went back, or ahead"
        present = batches_of(log)
        if not present:
            assert log.log_end == log.log_start
        # Without a batch only the producers tell one from the other.
        for each in (before, after) if not present and log.producers.by_id else (after, before):
            history = tuple(data for data in each.history if end_of(data) <= log.log_end)
            if history[len(history) - len(present) :] == tuple(present):
                break
        else:
            raise AssertionError(f"{present} is neither of before nor of after")
        assert log.log_end >= required, f"{required} was flushed, the log ends at {log.log_end}"
        if present:
            check_log(log, history)
            assert base_of(present[0]) <= log.log_start
        elif history and end_of(history[-1]) != log.log_end:
            history = ()  # less was left than the log start hides: the log began anew there
        return State(history, log.flushed, log.log_start)

    # -- operations ------------------------------------------------------------------------------------

    def append(self, count: int = 1, size: int = 40, crash_at: Sequence[int] = ()) -> None:
        self._append(make_batch(count, size=size, timestamp=self._tick(), fill=count), crash_at)

    def produce(
        self, producer_id: int, count: int = 1, *, transactional: bool = False, crash_at: Sequence[int] = ()
    ) -> None:
        epoch, sequence = self.sequences.get(producer_id, (0, 0))
        data = make_batch(
            count,
            timestamp=self._tick(),
            producer=(producer_id, epoch, sequence),
            transactional=transactional,
        )
        self._append(data, crash_at)
        self.sequences[producer_id] = (epoch, sequence + count)

    def end_transaction(
        self, producer_id: int, *, commit: bool, bump: bool = False, crash_at: Sequence[int] = ()
    ) -> None:
        epoch, sequence = self.sequences.get(producer_id, (0, 0))
        if bump:
            epoch, sequence = epoch + 1, 0
        data = bytearray(end_txn_marker(producer_id, epoch, commit, 0, self._tick()))
        self._append(data, crash_at, marker=True)
        self.sequences[producer_id] = (epoch, sequence)

    def _append(self, data: bytearray, crash_at: Sequence[int], *, marker: bool = False) -> None:
        def operation() -> State:
            placed = append(self.log, data, leader_epoch=self.epoch, marker=marker)
            return replace(self.state, history=(*self.state.history, placed))

        self.run(operation, crash_at)

    def _tick(self) -> int:
        """Timestamps that mostly grow, and sometimes go back."""
        self.clock += self.rng.choice((-30, 0, 1, 5, 20))
        return self.clock

    def new_leader(self) -> None:
        self.epoch += 1

    def flush(self, crash_at: Sequence[int] = ()) -> None:
        def operation() -> State:
            self.log.flush()
            assert self.log.flushed == self.log.log_end
            return replace(self.state, flushed=self.log.flushed)

        self.run(operation, crash_at)

    def checkpoint(self, crash_at: Sequence[int] = ()) -> None:
        def operation() -> State:
            self.directory.checkpoint()
            return replace(self.state, flushed=self.log.flushed)

        self.run(operation, crash_at)

    def roll(self, crash_at: Sequence[int] = ()) -> None:
        def operation() -> State:
            if self.log.log_end > self.log.segments.active.base_offset:
                self.log.roll(NOW_MS)
            return self.state

        self.run(operation, crash_at)

    def truncate(self, share: float = 0.5, crash_at: Sequence[int] = ()) -> None:
        log = self.log
        offset = log.log_start + int((log.log_end - log.log_start) * share)
        kept = tuple(data for data in self.state.history if end_of(data) <= offset)
        end = end_of(kept[-1]) if kept else log.segments[0].base_offset

        def operation() -> State:
            assert log.truncate(offset) == end
            self._forget_sequences()
            return State(kept, min(self.state.flushed, end), min(self.state.log_start, end))

        if offset < log.log_end:
            self.run(operation, crash_at)

    def restart_at(self, offset: int, crash_at: Sequence[int] = ()) -> None:
        def operation() -> State:
            self.log.restart_at(offset, NOW_MS)
            self.sequences = {}
            return State((), offset, offset)

        self.run(operation, crash_at, required=0)

    def advance_start(self, share: float = 0.5, crash_at: Sequence[int] = ()) -> None:
        log = self.log
        offset = log.log_start + int((log.log_end - log.log_start) * share)

        def operation() -> State:
            log.advance_start(offset)
            return replace(self.state, log_start=max(offset, self.state.log_start))

        self.run(operation, crash_at)

    def retain(self, *, remove: bool = True, crash_at: Sequence[int] = ()) -> None:
        def operation() -> State:
            self.removals += retain(self.directory, NOW_MS)
            if remove:
                while self.removals:
                    self.removals.pop().run()
            return replace(self.state, log_start=self.log.log_start)

        self.run(operation, crash_at)

    def delete(self, crash_at: Sequence[int] = ()) -> None:
        def operation() -> State:
            self.removals.append(self.directory.delete(P, self.rng))
            return State(exists=False)

        self.run(operation, crash_at)
        self.sequences = {}

        def creation() -> State:
            self.directory.create(P, now_ms=NOW_MS)
            return State()

        self.run(creation, crash_at)

    def close_and_open(self, crash_at: Sequence[int] = ()) -> None:
        def operation() -> State:
            self.directory.close()
            self.directory = open_small(self.faults, self.settings)
            assert not self.directory.reports
            return replace(self.state, flushed=self.log.log_end)

        self.run(operation, crash_at)

    def crash(self, *, power: bool = True) -> None:
        """Go on with what a power cut, or kill -9, leaves."""
        self.disk = self.disk.crash_clone(self.rng) if power else self.disk.kill_clone()
        self.faults = FaultyDisk(self.disk, rng=self.rng)
        self.directory = open_small(self.faults, self.settings)
        state = self.recognise(self.directory, self.state, self.state, self.state.flushed)
        assert state is not None
        if not power:
            assert self.log.log_end == (
                end_of(self.state.history[-1]) if self.state.history else self.log.log_end
            )
        self.state = state
        self._forget_sequences()
        self.removals = []

    def _forget_sequences(self) -> None:
        """Clients begin again where the log left them."""
        known = self.log.producers.by_id
        self.sequences = {
            producer_id: (each.epoch, each.last_sequence + 1) for producer_id, each in known.items()
        }

    def check(self) -> None:
        """The log as it runs is what the model says."""
        assert self.log.log_start == self.state.log_start
        assert self.log.flushed >= self.state.flushed
        check_log(self.log, self.state.history)
