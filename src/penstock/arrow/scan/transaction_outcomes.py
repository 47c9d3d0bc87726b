"""Which transactions of a log on disk were aborted, and up to where all of them are decided.

A reader of committed data stops at the last stable offset, where the first transaction began that is still open, and
skips what was aborted. Aborted transactions are in the `.txnindex` files; which ones are open is in no file. It
follows from the newest producer snapshot and the batches behind it, which the owner of the log, if it is at work, may
not have put into the last segment's transaction index either. So that stretch is replayed, and the files are believed
for what lies before it.
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
    """Of the marker that aborted it."""


class TransactionOutcomes(NamedTuple):
    last_stable: Offset
    """Last stable offset: read_committed readers stop there."""
    reader: LogReader

    def aborted(self, start: Offset, stop: Offset) -> tuple[AbortedRange, ...]:
        """Those that have records in a range."""
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
    """Missing segments that no broker has noticed yet; those that one has are in its snapshots and indexes.

    The checkpoint is read after the segments were listed: it never knows of one that compaction, or retention, has
    taken away by then.
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
    """Give each segment's transaction index, in memory, what its file may lack."""
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
