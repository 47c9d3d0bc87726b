"""Loads the files of a partition: segments, epochs, producer state, and what is missing.

After a clean stop the files are trusted: log end, producer state and indexes are read, not recomputed. Otherwise
`recovery` scans everything past the recovery point.

In both cases the segments are compared with the checkpoint, which lists what was on disk (`holes`). Missing segments
are logged at ERROR, and readers get an error at the hole.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.base.ids import LeaderEpoch, Offset, TimestampMs
from penstock.base.settings import LogSettings
from penstock.records import HEADER_BYTES, RecordBatch
from penstock.storage import names
from penstock.storage.checkpoints import Extent, Hole, RecoveryPoint, decode_partition_metadata
from penstock.storage.deletion import finish_deletions
from penstock.storage.epochs import EpochStart, LeaderEpochs
from penstock.storage.errors import BadCheckpoint, CorruptLog
from penstock.storage.holes import find_missing, fold, open_at, open_behind, producers_near, replay
from penstock.storage.names import SegmentFile
from penstock.storage.open_files import FileRef, OpenFiles
from penstock.storage.producers import InDoubt, Producers
from penstock.storage.segment import Segment
from penstock.storage.snapshots import remove_snapshots_above
from penstock.storage.swap import finish_swaps
from penstock.storage.txn_index import AbortedTxn, FileSum
from penstock.vfs import Vfs, read_file

logger = logging.getLogger(__name__)


@dataclass
class Report:
    """What was found when a log was opened."""

    bytes_scanned: int = 0
    bytes_cut: int = 0
    notes: list[str] = field(default_factory=list)
    damage: list[CorruptLog] = field(default_factory=list)
    has_lost: bool = False
    """Something is missing or damaged that a kill cannot cause: a kill leaves at most a partial last batch."""
    holes: list[Hole] = field(default_factory=list)
    """Ranges found by this start that were on disk and are missing, or that are damaged."""
    lost_end: Hole | None = None
    """The last of them, if the log has lost its tail. New records get offsets from `lost_end.start` on, or from
    `lost_end.end` on if transactions were open."""

    def warn(self, sentence: str) -> None:
        self.notes.append(sentence)
        logger.warning("%s", sentence)

    def fail(self, sentence: str, *, is_new: bool = True) -> None:
        """Log a loss. Not `is_new`: an earlier start has logged it too."""
        self.has_lost |= is_new
        self.notes.append(sentence)
        logger.error("%s", sentence)


ADVICE_TO_RESTORE = (
    "If other replicas are in sync, this one is copied from the leader; otherwise stop the broker and restore "
    "{directory} from a backup, if there is one."
)


@dataclass
class Opening:
    """A log that is being opened."""

    directory: str
    files: OpenFiles
    settings: LogSettings
    report: Report
    is_our_point: bool
    now_ms: TimestampMs
    txn_sums: Mapping[Offset, FileSum]
    segments: list[Segment] = field(default_factory=list)
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    producers: Producers = field(default_factory=Producers)
    recovery_point: RecoveryPoint = field(default_factory=lambda: RecoveryPoint(0, 0, 0))
    epochs_in_file: tuple[EpochStart, ...] = ()
    scanned_epochs: dict[LeaderEpoch, Offset] = field(default_factory=dict)
    """Epochs of the checkpoint file; past the recovery point only those that the log confirms."""
    unsynced: list[FileRef] = field(default_factory=list)
    """Index files that were rewritten."""
    snapshots: set[Offset] = field(default_factory=set)
    """Offsets that have a producer snapshot or a `.sequences` file."""
    known_end: Offset = 0
    """The log certainly reached this offset, on disk."""
    empty: set[tuple[Offset, str]] = field(default_factory=set)
    """Empty index files, by segment and kind, which need no reading."""

    @property
    def vfs(self) -> Vfs:
        return self.files.vfs

    @property
    def is_as_checkpointed(self) -> bool:
        """Whether nothing was found past the recovery point: then directory entries and epochs are durable too.

        Of a log at offset 0 nothing may have been flushed yet, not even its directory entry.
        """
        active, point = self.segments[-1], self.recovery_point
        is_at_point = (active.base_offset, active.size) == (point.segment, point.position)
        return is_at_point and point.offset > 0 and not self.report.notes

    # -- what is there ---------------------------------------------------------------------------------

    def tidy(self, log_start: Offset | None) -> list[tuple[SegmentFile, int]]:
        """Complete interrupted deletions and swaps, remove leftovers, and list the remaining files."""
        listed = self._list()
        is_tidy = True
        if any(each.kind == names.TOMB for each, _ in listed):
            finish_deletions(self.vfs, self.directory, log_start or 0)
            is_tidy = False
        if any(each.state for each, _ in listed):
            finish_swaps(self.vfs, self.directory)
            is_tidy = False
        return listed if is_tidy else self._list()

    def _list(self) -> list[tuple[SegmentFile, int]]:
        """The segments' files, with their sizes."""
        entries = self.vfs.list_dir(self.directory)
        return [(parsed, entry.size) for entry in entries if (parsed := names.parse_segment_file(entry.name))]

    def load_segments(self, listed: list[tuple[SegmentFile, int]], log_start: Offset | None) -> None:
        sizes = {each.base_offset: size for each, size in listed if each.kind == names.LOG and not each.state}
        for each, size in listed:
            if each.state:
                continue
            if each.kind in (names.SNAPSHOT, names.SEQUENCES):
                self.snapshots.add(each.base_offset)
            elif each.kind in names.SEGMENT_KINDS:
                if each.base_offset not in sizes:
                    self.vfs.remove(f"{self.directory}/{names.segment_file(each.base_offset, each.kind)}")
                elif not size:
                    self.empty.add((each.base_offset, each.kind))
        self.segments = [self._segment(base, size) for base, size in sorted(sizes.items())]
        for segment in self.segments[1:-1]:
            # Left by a failed roll. The log continued in the previous segment, which this one would hide.
            if not segment.size:
                self.drop_empty(segment)
        if not self.segments:
            self.segments = [self.new_segment(log_start or 0)]

    def _segment(self, base_offset: Offset, size: int) -> Segment:
        interval = self.settings.index_interval_bytes
        segment = Segment(
            self.files,
            self.directory,
            base_offset,
            interval_bytes=interval,
            size=size,
            created_ms=self.now_ms,
        )
        segment.checked_from = size
        segment.txn_index.sum = self.txn_sums.get(base_offset)
        return segment

    def empty_of(self, segment: Segment) -> set[str]:
        return {kind for base_offset, kind in self.empty if base_offset == segment.base_offset}

    def drop_empty(self, segment: Segment) -> None:
        self.segments.remove(segment)
        self.set_aside(segment)

    def new_segment(self, base_offset: Offset) -> Segment:
        segment = self._segment(base_offset, 0)
        segment.create()
        self.vfs.sync_dir(self.directory)
        return segment

    def restart_empty(self, offset: Offset) -> None:
        for segment in reversed(self.segments):
            self.set_aside(segment)
        remove_snapshots_above(self.vfs, self.directory, -1)
        self.snapshots.clear()
        self.segments = [self.new_segment(offset)]
        self.producers = Producers(offset)
        self.recovery_point = RecoveryPoint(offset, offset, 0)

    def topic_id(self) -> bytes | None:
        path = f"{self.directory}/{names.PARTITION_METADATA}"
        try:
            return decode_partition_metadata(read_file(self.vfs, path), path)
        except FileNotFoundError:
            return None
        except BadCheckpoint as error:
            self.report.warn(str(error))
            return None

    def load_epochs(self) -> bool:
        """Read the epoch checkpoint; True if it is lost and must be rebuilt from the log."""
        path = f"{self.directory}/{names.LEADER_EPOCHS}"
        try:
            data = read_file(self.vfs, path)
            self.epochs = LeaderEpochs.decode(data, path)
            self.epochs_in_file = tuple(self.epochs.entries)
        except FileNotFoundError:
            return True
        except BadCheckpoint as error:
            self.report.warn(str(error))
            return True
        return not data  # Kafka leaves it empty before the first record

    def rebuild_epochs(self) -> None:
        self.epochs = LeaderEpochs()
        for each in replay(
            self.segments, self.segments[0].base_offset, self.segments[-1].next_offset, self.found
        ):
            if isinstance(each, RecordBatch):
                self.note_epoch(each, after=each.base_offset)

    def note_epoch(self, batch: RecordBatch, after: Offset) -> None:
        if batch.leader_epoch > self.epochs.latest:
            # It may have begun with records that compaction removed.
            known = self.scanned_epochs.get(batch.leader_epoch, batch.base_offset)
            start = known if after <= known <= batch.base_offset else batch.base_offset
            self.epochs.assign(batch.leader_epoch, start)

    # -- after a clean stop ----------------------------------------------------------------------------

    def trust_files(self, point: RecoveryPoint) -> bool:
        """Trust the files; False if the active segment cannot be the result of a clean stop."""
        if len(self.segments) > 1 and not self.segments[-1].size and self._reaches_past(self.segments[-1]):
            self.drop_empty(self.segments[-1])
        active = self.segments[-1]
        if not active.resume(below=2**63 - 1, empty=self.empty_of(active)):
            return False
        end = active.next_offset
        if point.segment == active.base_offset and point.position == active.size and end <= point.offset:
            # The log end at the stop, which may be past the last batch.
            end = active.next_offset = point.offset
        elif self.is_our_point:
            return False
        elif active.size == 0:
            end = active.next_offset = max(end, active.base_offset)
        self.recovery_point = RecoveryPoint(end, active.base_offset, active.size)
        self.producers = self.producers_near(end)
        if self.producers.end_offset < end:
            self.replay_producers(end)
        return True

    def last_epoch(self) -> LeaderEpoch:
        """Leader epoch of the last batch; -1 if none can be read."""
        for segment in reversed(self.segments):
            if segment.size:
                try:
                    spot = segment.find(segment.next_offset - 1)
                except CorruptLog:
                    return -1
                if spot is None:
                    return -1
                header = segment.file().pread(HEADER_BYTES, spot.position)
                return int.from_bytes(header[12:16], "big", signed=True)
        return -1

    def _reaches_past(self, last: Segment) -> bool:
        """Whether the segment before the last one has records that belong to the last one."""
        try:
            return self.segments[-2].find(last.base_offset) is not None
        except CorruptLog:
            return False

    def producers_near(self, at_most: Offset) -> Producers:
        return producers_near(self.vfs, self.directory, self.segments, self.snapshots, at_most)

    def replay_producers(self, end: Offset) -> None:
        """Replay producer state up to an offset; the transaction indexes already have the aborts."""
        self.fold(self.producers, end)

    def fold(self, producers: Producers, end: Offset) -> list[AbortedTxn]:
        """Replay the log up to an offset; return the transactions that it aborts."""
        return fold(
            producers,
            self.segments,
            end,
            self.found,
            lambda hole: open_behind(self.vfs, self.directory, hole),
        )

    def found(self, damage: CorruptLog) -> None:
        """Report damage, once."""
        if (damage.path, damage.position) not in ((each.path, each.position) for each in self.report.damage):
            self.report.damage.append(damage)
            self.report.fail(
                f"{damage}; readers are served up to it. {ADVICE_TO_RESTORE.format(directory=self.directory)}"
            )

    # -- what is missing -------------------------------------------------------------------------------

    def find_holes(
        self,
        extents: Sequence[Extent],
        known: Sequence[Hole],
        point: RecoveryPoint,
        log_start: Offset,
    ) -> None:
        """Find the segments that are missing, or shorter than they were."""
        missing = find_missing(self.segments, extents, known, point, log_start)
        for segment in self.segments:
            segment.hole = missing.holes.get(segment.base_offset)
        self.report.holes += missing.new
        for hole in missing.holes.values():
            is_new = hole in missing.new
            since = "" if is_new else ", found by an earlier start"
            self.report.fail(
                f"{self.directory} has a hole: {hole} are missing{since}, because a segment file is missing or "
                f"truncated. Readers are served up to {hole.start} and from {hole.end} on. "
                f"{ADVICE_TO_RESTORE.format(directory=self.directory)} To continue without the records, reset "
                f"consumer groups to offset {hole.end}, or delete all records below it (kafka-delete-records)",
                is_new=is_new,
            )
        self.known_end = max(self.known_end, missing.end or 0)

    def doubt_at_holes(self) -> None:
        """Mark transactions that were open at each new hole as in doubt. The snapshot was taken when the log was
        whole, so it does not show how transactions ended whose markers are missing now."""
        for hole in list(self.report.holes):
            still_open = set(self.producers.ongoing) - set(self.producers.in_doubt)
            found = open_at(
                self.vfs, self.directory, self.segments, hole, self.snapshots, still_open, self.found
            )
            self.producers.doubt(found.in_doubt)
            if found.ended:
                self._end_at_hole(hole, found.ended)

    def _end_at_hole(self, hole: Hole, entries: list[AbortedTxn]) -> None:
        """Add transactions in doubt to the transaction index of the segment before a hole."""
        before = [each for each in self.segments if each.base_offset <= hole.start and each.size]
        if not before:
            return
        try:
            before[-1].txn_index.add(entries)
        except BadCheckpoint:
            return  # rebuilt from the log when needed, including the hole
        self.unsynced.append(before[-1].txn_index.ref)

    def report_in_doubt(self, in_doubt: Sequence[InDoubt]) -> None:
        partition = names.parse_partition_dir(self.directory.rpartition("/")[2])
        name = "TOPIC:PARTITION" if partition is None else f"{partition.topic}:{partition.partition}"
        for each in in_doubt:
            self.report.fail(
                f"{self.directory}: it is unknown whether the transaction of producer {each.producer_id} that "
                f"began at offset {each.first_offset} was committed, because records are missing at "
                f"offset {each.hole}. Its records count as aborted, and read_committed consumers stop at its first "
                "offset. "
                f"{ADVICE_TO_RESTORE.format(directory=self.directory)} To accept the loss, run `penstock transactions "
                f"abort --partition {name} --start-offset {each.first_offset}`, or kafka-transactions abort",
                is_new=False,  # the hole is, or is not
            )

    def handle_lost_tail(self, end: Offset) -> None:
        """Handle a log that ends before an offset that it had reached. If transactions are open, whose markers may be
        lost, new records start after that offset; otherwise at the current end."""
        hole = Hole(end, self.known_end)
        self.report.holes.append(hole)
        self.report.lost_end = hole
        has_open = len(self.producers.ongoing) > len(self.producers.in_doubt)
        where = hole.end if has_open else hole.start
        self.report.fail(
            f"{self.directory} has lost its tail: it ends at offset {end}, but had records up to {self.known_end}. "
            f"New records get offsets from {where} on. {ADVICE_TO_RESTORE.format(directory=self.directory)}"
        )
        if not has_open:
            return
        entries = self.producers.pass_hole(hole.start)
        self.producers.end_offset = hole.end
        last = self.segments[-1]
        if last.size:
            last.seal()
            last.release_indexes()
            self.unsynced += last.index_refs
        else:
            self.drop_empty(last)
        self._end_at_hole(hole, entries)
        fresh = self.new_segment(hole.end)
        fresh.hole = hole
        self.segments.append(fresh)
        self.recovery_point = RecoveryPoint(hole.end, hole.end, 0)

    def set_aside(self, segment: Segment) -> None:
        segment.forget_files()
        path = segment.path_of(names.LOG)
        if segment.size:
            self.vfs.rename(path, path + ".cut")
        else:
            self.vfs.remove(path)
        for kind in (names.INDEX, names.TIME_INDEX, names.TXN_INDEX):
            if self.vfs.stat(segment.path_of(kind)) is not None:
                self.vfs.remove(segment.path_of(kind))
