"""Damages a copy of a node's disk whenever the node goes down, and reads the copy.

    the node stops, is killed, or loses power
    its disk is copied; in the copy one partition is damaged (`lose`): a bit of a transaction marker flips; a segment
        is removed, emptied or truncated; an index or a snapshot is removed
    the copy is opened, and a read_committed consumer reads the whole partition
    every producer commits another transaction there, and the consumer reads again; once more after a restart

The node itself continues with the undamaged disk: the run is the same with and without trials. The records read are
recorded (`ReadAfterLoss`), and `NoDecisionFromHole` compares them with the states of the transactions.

Only losses that a log can detect are tried: of segments in its checkpoint, up to the size noted there.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from random import Random
from typing import NamedTuple

from penstock.base.errors import KafkaError
from penstock.base.ids import Offset, ProducerId, TopicPartition
from penstock.base.settings import LogSettings
from penstock.records import build_batch, end_txn_marker, iter_batches
from penstock.records.batch import ATTRIBUTES_AT
from penstock.sim.checkers.disks import DATA
from penstock.sim.checkers.history import ReadAfterLoss, ReadRecord
from penstock.sim.clients.consumers import AbortedBatches
from penstock.storage import Log, Origin, names
from penstock.storage import checkpoints as ck
from penstock.storage.checkpoints import Checkpoint, Extent
from penstock.storage.directory import LogDirectory, open_directory
from penstock.storage.findings import read_through
from penstock.storage.layout import layout_of
from penstock.vfs import MemoryDisk
from penstock.vfs.files import read_file

EVERYTHING = 1 << 30
NOW_MS = 0
"""Trials do not depend on time, since no topic has settings."""


class Loss(NamedTuple):
    at: TopicPartition
    what: str
    """A sentence for the trace."""


# -- losing ------------------------------------------------------------------------------------------------


def lose(disk: MemoryDisk, rng: Random) -> Loss | None:
    """Damage a partition; return None if there is nothing to damage."""
    kinds: list[Callable[[MemoryDisk, Random], Loss | None]] = [_flip_marker, _lose_segment, _lose_companion]
    rng.shuffle(kinds)
    return next(filter(None, (each(disk, rng) for each in kinds)), None)


def _partitions(disk: MemoryDisk) -> dict[TopicPartition, str]:
    logs = layout_of(disk, DATA).logs
    found = (
        (names.parse_partition_dir(entry.name), f"{logs}/{entry.name}")
        for entry in (disk.list_dir(logs) if disk.stat(logs) else ())
        if entry.is_dir
    )
    return {at: path for at, path in sorted(found, key=str) if at and not at.topic.startswith("__")}


def _flip_marker(disk: MemoryDisk, rng: Random) -> Loss | None:
    markers: list[tuple[TopicPartition, str, int, int]] = []
    for at, directory in _partitions(disk).items():
        for entry in disk.list_dir(directory):
            if entry.name.endswith(names.LOG):
                path = f"{directory}/{entry.name}"
                markers += [
                    (at, path, piece.position, piece.size)
                    for piece in read_through(disk.open(path), 0, entry.size)
                    if piece.is_sound and piece.batch is not None and piece.batch.is_control
                ]
    if not markers:
        return None
    at, path, position, size = rng.choice(markers)
    place = position + rng.randrange(ATTRIBUTES_AT, size)
    file = disk.open(path, write=True)
    (byte,) = file.pread(1, place)
    file.pwrite([bytes([byte ^ (1 << rng.randrange(8))])], place)
    file.sync()
    file.close()
    return Loss(at, f"a bit of the marker at {position} of {path} flips")


def _lose_segment(disk: MemoryDisk, rng: Random) -> Loss | None:
    path = f"{layout_of(disk, DATA).meta}/{ck.CHECKPOINT}"
    if disk.stat(path) is None:
        return None
    checkpoint = Checkpoint.decode(read_file(disk, path), path)
    known = []
    for at, directory in _partitions(disk).items():
        point = checkpoint.recovery_points.get(str(at))
        if point is not None:
            extents = [*checkpoint.segments.get(str(at), ()), Extent(point.segment, point.position)]
            known += [(at, directory, each) for each in extents if each.size]
    if not known:
        return None
    at, directory, extent = rng.choice(known)
    path = f"{directory}/{names.segment_file(extent.base_offset, names.LOG)}"
    if disk.stat(path) is None:
        return None
    if rng.random() < 0.4:
        disk.remove(path)
        disk.sync_dir(directory)
        return Loss(at, f"{path} is removed")
    size = rng.choice((0, rng.randrange(extent.size)))
    file = disk.open(path, write=True)
    file.truncate(size)
    file.sync()
    file.close()
    return Loss(at, f"{path} is cut off at {size}")


def _lose_companion(disk: MemoryDisk, rng: Random) -> Loss | None:
    found = [
        (at, f"{directory}/{entry.name}")
        for at, directory in _partitions(disk).items()
        for entry in disk.list_dir(directory)
        if entry.name.endswith((names.TXN_INDEX, names.SNAPSHOT, names.INDEX))
    ]
    if not found:
        return None
    at, path = rng.choice(found)
    disk.remove(path)
    disk.sync_dir(path.rpartition("/")[0])
    return Loss(at, f"{path} is removed")


# -- reading -----------------------------------------------------------------------------------------------


def read_committed(log: Log) -> Iterator[ReadRecord]:
    """Yield what a read_committed consumer gets, filtered as Kafka's clients do. It seeks past damaged records."""
    offset, end = log.log_start, log.last_stable
    while offset < end:
        try:
            batches = list(iter_batches(log.read(offset, EVERYTHING, visible=end)))
            aborted = log.aborted(offset, batches[-1].next_offset) if batches else []
        except KafkaError:
            batches = []
        if not batches:
            offset += 1
            continue
        aborted_batches = AbortedBatches([(each.producer_id, each.first_offset) for each in aborted])
        for batch in batches:
            if not aborted_batches.hides(batch) and not batch.is_control:
                for each in batch.records():
                    if each.offset >= offset:
                        yield ReadRecord(each.offset, each.key, bytes(each.value or b""))
        offset = max(offset + 1, batches[-1].next_offset)


def commit_more(log: Log, still_open: Collection[ProducerId]) -> set[Offset]:
    """Let every producer of a log commit another transaction; return the offsets of the records. Transactions of
    `still_open` producers are aborted first, as a coordinator does; the others have ended."""
    offsets = set()
    coordinator_epoch = 2**30  # higher than any coordinator epoch of a run
    known = {*log.producers.by_id, *(each.producer_id for each in log.producers.in_doubt.values())}
    for producer_id in sorted(known):
        producer = log.producers.by_id.get(producer_id)
        epoch = 0 if producer is None else producer.epoch + 1
        if producer_id in still_open:
            _end(log, producer_id, epoch, coordinator_epoch, commit=False)
        batch = build_batch(
            [(b"k", b"", NOW_MS)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=True,
        )
        appended = log.append(bytearray(batch), leader_epoch=log.epochs.latest, now_ms=NOW_MS)
        offsets.add(appended.base_offset)
        _end(log, producer_id, epoch, coordinator_epoch, commit=True)
    return offsets


def _end(log: Log, producer_id: ProducerId, epoch: int, coordinator_epoch: int, *, commit: bool) -> None:
    marker = bytearray(end_txn_marker(producer_id, epoch, commit, coordinator_epoch, NOW_MS))
    log.append(marker, leader_epoch=log.epochs.latest, now_ms=NOW_MS, origin=Origin.COORDINATOR)


# -- trials ------------------------------------------------------------------------------------------------


class HoleTrials:
    """Runs trials, with a random stream of their own."""

    def __init__(
        self, rng: Random, record: Callable[[ReadAfterLoss], None], trace: Callable[[str], None]
    ) -> None:
        self._rng = rng
        self._record = record
        self._trace = trace
        self.count = 0

    def run(self, disk: MemoryDisk, boot_id: str) -> None:
        copy = disk.kill_clone()
        lost = lose(copy, self._rng)
        if lost is None:
            return
        self.count += 1
        self._trace(f"in a copy {lost.what}")
        with opened(disk.kill_clone(), boot_id) as directory:
            whole = directory.logs.get(lost.at)
            still_open = set() if whole is None else set(whole.producers.ongoing.values())
        with opened(copy, boot_id) as directory:
            log = directory.logs.get(lost.at)
            if log is None:
                return
            self._read(log, lost, set())
            more = commit_more(log, still_open)
            self._read(log, lost, more)
            log.flush()
        with opened(copy, boot_id) as directory:
            self._read(directory.logs[lost.at], lost, more)

    def _read(self, log: Log, lost: Loss, more: set[Offset]) -> None:
        records = tuple(each for each in read_committed(log) if each.offset not in more)
        self._record(ReadAfterLoss(lost.at, lost.what, records))


@contextmanager
def opened(disk: MemoryDisk, boot_id: str) -> Iterator[LogDirectory]:
    """Open a data directory without its metadata log, and abandon it as a killed process does."""
    directory = open_directory(
        disk, DATA, now_ms=NOW_MS, rng=Random(0), settings_of=lambda _: LogSettings(), boot_id=boot_id
    )
    try:
        yield directory
    finally:
        directory.abandon()
