"""Finds the aborted transactions of a log on disk, and its last stable offset.

A `read_committed` reader stops at the last stable offset, the start of the first open transaction, and skips aborted
records. Aborted transactions are in the `.txnindex` files; no file lists the open ones. They follow from the newest
producer snapshot and the batches after it. A running broker may not have written the transaction index of the last
segment either. So the batches after the snapshot are replayed, and the files are used for those before it.
"""

from typing import NamedTuple

from penstock.arrow.scan.log_files import LogView
from penstock.base.ids import Offset
from penstock.storage import names
from penstock.storage.checkpoints import Checkpoint, Hole
from penstock.storage.errors import BadCheckpoint
from penstock.storage.holes import find_missing, fold, open_at, producers_near
from penstock.storage.reader import FixedLog, LogReader
from penstock.storage.txn_index import AbortedTxn
from penstock.vfs import Vfs, read_file


class AbortedRange(NamedTuple):
    """An aborted transaction: all transactional records of one producer between two offsets."""

    producer_id: int
    first_offset: Offset
    last_offset: Offset
    """Offset of the abort marker."""


class TransactionOutcomes(NamedTuple):
    last_stable: Offset
    """Last stable offset: read_committed readers stop there."""
    reader: LogReader

    def aborted(self, start: Offset, stop: Offset) -> tuple[AbortedRange, ...]:
        """The aborted transactions with records in a range."""
        return tuple(AbortedRange(*each[:3]) for each in self.reader.aborted(start, stop))


def replay_transactions(vfs: Vfs, view: LogView) -> TransactionOutcomes:
    location = view.location
    missing, snapshots = _find_holes(vfs, view), _list_snapshots(vfs, location.directory)
    producers = producers_near(vfs, location.directory, view.segments, snapshots, view.log_end)
    start = producers.end_offset
    found = fold(producers, view.segments, view.log_end)
    _complete(vfs, view, start, found)
    for hole in missing:
        still_open = set(producers.ongoing)
        at_hole = open_at(vfs, location.directory, view.segments, hole, snapshots, still_open)
        producers.doubt(at_hole.in_doubt)
    undecided = producers.first_undecided
    last_stable = view.log_end if undecided is None else max(undecided, view.log_start)
    fixed = FixedLog(location.partition, location.directory, vfs, view.segments, view.log_start, view.log_end)
    return TransactionOutcomes(min(last_stable, view.log_end), LogReader(fixed))


def _list_snapshots(vfs: Vfs, directory: str) -> set[Offset]:
    listed = (names.parse_segment_file(entry.name) for entry in vfs.list_dir(directory))
    return {each.base_offset for each in listed if each and each.kind == names.SNAPSHOT and not each.state}


def _find_holes(vfs: Vfs, view: LogView) -> list[Hole]:
    """Missing segments that no broker has detected yet; snapshots and indexes have the detected ones.

    The checkpoint is read after the segments were listed, so it never lists a segment that compaction or retention
    had removed before.
    """
    path, partition = view.location.checkpoint, str(view.location.partition)
    try:
        checkpoint = Checkpoint.decode(read_file(vfs, path), path)
    except (FileNotFoundError, BadCheckpoint):
        return []
    point = checkpoint.recovery_points.get(partition)
    if point is None:
        return []
    extents = checkpoint.segments.get(partition, ())
    log_start = max(view.log_start, checkpoint.log_starts.get(partition, 0))
    missing = find_missing(view.segments, extents, checkpoint.holes.get(partition, ()), point, log_start)
    for segment in view.segments:
        segment.hole = missing.holes.get(segment.base_offset)
    return missing.new


def _complete(vfs: Vfs, view: LogView, start: Offset, found: list[AbortedTxn]) -> None:
    """Add entries that the files may lack to the segments' transaction indexes in memory."""
    for segment, end in view.segments_with_ends():
        index = segment.txn_index
        replayed = [each for each in found if segment.base_offset <= each.last_offset < end]
        is_none_right = view.location.is_kafkas and vfs.stat(index.ref.path) is None
        if segment.base_offset >= start or is_none_right:
            index.start(replayed)
        elif end > start:
            index.load(below=start)
            for each in replayed:
                index.append(each)
