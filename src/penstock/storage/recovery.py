"""Opening a partition's directory, whatever state a crash left it in.

After a clean stop the files are believed: the log end, producer state and indexes are read, not worked out.
Otherwise everything past the recovery point is scanned once, every CRC checked, and indexes, epochs and
producer state are brought up to date on the way.

The first thing that is not a sound batch is one of two:

- **Torn**: the end of what was being written. Nothing sound comes after it, or what lies between has a
  sector of zeros, as a write leaves that never reached the disk. A sync covers a whole file, so nothing after
  it was ever synced, or acknowledged as durable. It is cut off, and what was cut is logged with its size.
  Should sound batches lie behind such a hole, they are set aside in a `.cut` file, not destroyed.
- **Damaged**: sound batches follow, and no hole explains it. That is a disk (or a person) changing bytes that
  were good. It stays where it is, is reported, and readers are served up to it and told why no further.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from penstock.base.errors import KafkaError
from penstock.base.ids import LeaderEpoch, Offset, TimestampMs, TopicPartition
from penstock.base.settings import LogSettings
from penstock.records import HEADER_BYTES, LOG_OVERHEAD, RecordBatch
from penstock.records.batch import LENGTH_AT
from penstock.storage import names
from penstock.storage.aborted import FileSum
from penstock.storage.checkpoints import RecoveryPoint, decode_partition_metadata, encode_partition_metadata
from penstock.storage.deletion import finish_burials
from penstock.storage.durable import Points
from penstock.storage.epochs import EpochStart, LeaderEpochs
from penstock.storage.errors import BadCheckpoint, CorruptLog
from penstock.storage.log import PRODUCER_IDLE_MS_MAX, Log
from penstock.storage.names import SegmentFile
from penstock.storage.openfiles import FileRef, OpenFiles
from penstock.storage.producers import Producers
from penstock.storage.scan import BATCH_BYTES_MAX, next_sound, scan_batches, walk_headers
from penstock.storage.segment import Segment
from penstock.storage.segments import SegmentList
from penstock.storage.snapshots import load_snapshot, remove_snapshots_above
from penstock.storage.swap import finish_swaps
from penstock.vfs import File, Vfs, read_file, replace_file

logger = logging.getLogger(__name__)

SECTOR_BYTES = 512
"""What a disk writes whole or not at all."""


@dataclass
class Report:
    """What opening a log had to do."""

    bytes_scanned: int = 0
    bytes_cut: int = 0
    notes: list[str] = field(default_factory=list)
    damage: list[CorruptLog] = field(default_factory=list)
    has_lost: bool = False
    """Something is missing, or damaged, that no kill explains: one leaves at most a last batch that is too short."""

    def say(self, sentence: str) -> None:
        self.notes.append(sentence)
        logger.warning("%s", sentence)


def create_log(
    partition: TopicPartition,
    directory: str,
    files: OpenFiles,
    settings: LogSettings,
    points: Points,
    *,
    now_ms: TimestampMs,
    topic_id: bytes | None = None,
) -> Log:
    """Make the directory of a new partition and its empty log. The first flush makes what is in it durable; its own
    name is the caller's to sync."""
    files.vfs.make_dirs(directory)
    if topic_id is not None:
        _write_new(files.vfs, f"{directory}/{names.PARTITION_METADATA}", encode_partition_metadata(topic_id))
    segment = Segment(files, directory, 0, interval_bytes=settings.index_interval_bytes, created_ms=now_ms)
    segment.create()
    return Log(
        partition,
        directory,
        files,
        settings,
        points,
        SegmentList([segment]),
        log_start=0,
        producers=Producers(),
        epochs=LeaderEpochs(),
        recovery_point=RecoveryPoint(0, 0, 0),
        topic_id=topic_id,
        is_clean=False,
        unsynced=[_metadata_ref(directory)],
    )


def _metadata_ref(directory: str) -> FileRef:
    return FileRef(f"{directory}/{names.PARTITION_METADATA}")


def _write_new(vfs: Vfs, path: str, data: bytes) -> None:
    file = vfs.open(path, write=True, create=True)
    try:
        file.pwrite([data], 0)
    finally:
        file.close()


def open_log(
    partition: TopicPartition,
    directory: str,
    files: OpenFiles,
    settings: LogSettings,
    points: Points,
    *,
    now_ms: TimestampMs,
    clean: bool,
    recovery_point: RecoveryPoint,
    is_our_point: bool = True,
    log_start: Offset | None = None,
    txn_sums: Mapping[Offset, FileSum] | None = None,
    known_end: Offset = 0,
) -> tuple[Log, Report]:
    """Open what is in a directory. `is_our_point`: the recovery point is Penstock's own and nobody wrote since.
    `txn_sums` has what `Log.txn_sums` was. Records below `known_end` are known to have been on disk."""
    opening = _Opening(
        directory, files, settings, Report(), is_our_point, now_ms, txn_sums or {}, known_end=known_end
    )
    opening.load_segments(opening.tidy(log_start), log_start)
    first = opening.segments[0].base_offset
    start = first if log_start is None else max(log_start, first)
    epochs_lost = opening.load_epochs()
    if not (clean and opening.believe(recovery_point)):
        opening.scan_from(recovery_point)
    elif opening.epochs.latest < opening.last_epoch():
        epochs_lost = True  # the checkpoint is older than the log
    if epochs_lost:
        opening.rebuild_epochs()
    end = opening.segments[-1].next_offset
    if end < start:
        opening.report.say(
            f"{directory}: the log ends at {end}, before its start {start}: it begins anew there"
        )
        opening.begin_anew(start)
        end = start
    opening.epochs.truncate_end(end)
    opening.epochs.truncate_start(start)
    opening.producers.expire(now_ms, PRODUCER_IDLE_MS_MAX)
    log = Log(
        partition,
        directory,
        files,
        settings,
        points,
        SegmentList(opening.segments),
        log_start=start,
        producers=opening.producers,
        epochs=opening.epochs,
        recovery_point=opening.recovery_point,
        topic_id=opening.topic_id(),
        is_clean=clean or opening.is_as_checkpointed,
        epochs_saved=None if epochs_lost else opening.epochs_in_file,
        unsynced=opening.unsynced,
        snapshots=opening.snapshots,
    )
    for error in opening.report.damage:
        log.met_damage(error)
    return log, opening.report


@dataclass
class _Opening:
    """The state of one `open_log`."""

    directory: str
    files: OpenFiles
    settings: LogSettings
    report: Report
    is_our_point: bool
    now_ms: TimestampMs
    txn_sums: Mapping[Offset, FileSum]
    known_end: Offset = 0
    segments: list[Segment] = field(default_factory=list)
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    producers: Producers = field(default_factory=Producers)
    recovery_point: RecoveryPoint = field(default_factory=lambda: RecoveryPoint(0, 0, 0))
    epochs_in_file: tuple[EpochStart, ...] = ()
    scanned_epochs: dict[LeaderEpoch, Offset] = field(default_factory=dict)
    """What the checkpoint says of epochs; past the recovery point only where the log bears it out."""
    unsynced: list[FileRef] = field(default_factory=list)
    """Index files that were written anew."""
    snapshots: set[Offset] = field(default_factory=set)
    """Offsets of which there is a producer snapshot, or a companion of one."""
    empty: set[tuple[Offset, str]] = field(default_factory=set)
    """Index files that are there and hold nothing, by segment and kind: they need no reading."""

    @property
    def vfs(self) -> Vfs:
        return self.files.vfs

    @property
    def is_as_checkpointed(self) -> bool:
        """Whether nothing was found past the recovery point: then names and epochs are durable too.

        A log at offset 0 may be one that nothing was flushed of yet, not even its name.
        """
        active, point = self.segments[-1], self.recovery_point
        is_at_point = (active.base_offset, active.size) == (point.segment, point.position)
        return is_at_point and point.offset > 0 and not self.report.notes

    # -- what is there ---------------------------------------------------------------------------------

    def tidy(self, log_start: Offset | None) -> list[tuple[SegmentFile, int]]:
        """Finish deletions and swaps that were cut short, drop what is left of abandoned ones, and list the rest."""
        listed = self._list()
        is_tidy = True
        if any(each.kind == names.TOMB for each, _ in listed):
            finish_burials(self.vfs, self.directory, log_start or 0)
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
            # Left by a roll that failed. The log went on in the segment before it, which it would hide.
            if not segment.size:
                self._drop_empty(segment)
        if not self.segments:
            self.segments = [self._new_segment(log_start or 0)]

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

    def _empty_of(self, segment: Segment) -> set[str]:
        return {kind for base_offset, kind in self.empty if base_offset == segment.base_offset}

    def _drop_empty(self, segment: Segment) -> None:
        self.segments.remove(segment)
        self._set_aside(segment)

    def _new_segment(self, base_offset: Offset) -> Segment:
        segment = self._segment(base_offset, 0)
        segment.create()
        self.vfs.sync_dir(self.directory)
        return segment

    def begin_anew(self, offset: Offset) -> None:
        for segment in reversed(self.segments):
            self._set_aside(segment)
        remove_snapshots_above(self.vfs, self.directory, -1)
        self.snapshots.clear()
        self.segments = [self._new_segment(offset)]
        self.producers = Producers(offset)
        self.recovery_point = RecoveryPoint(offset, offset, 0)

    def topic_id(self) -> bytes | None:
        path = f"{self.directory}/{names.PARTITION_METADATA}"
        try:
            return decode_partition_metadata(read_file(self.vfs, path), path)
        except FileNotFoundError:
            return None
        except BadCheckpoint as error:
            self.report.say(str(error))
            return None

    def load_epochs(self) -> bool:
        """Read the epoch checkpoint; True if it is lost and must be worked out from the log."""
        path = f"{self.directory}/{names.LEADER_EPOCHS}"
        try:
            data = read_file(self.vfs, path)
            self.epochs = LeaderEpochs.decode(data, path)
            self.epochs_in_file = tuple(self.epochs.entries)
        except FileNotFoundError:
            return True
        except BadCheckpoint as error:
            self.report.say(str(error))
            return True
        return not data  # which Kafka leaves before there is a record

    def rebuild_epochs(self) -> None:
        self.epochs = LeaderEpochs()
        for batch in self._batches_between(self.segments[0].base_offset, self.segments[-1].next_offset):
            self._note_epoch(batch, after=batch.base_offset)

    def _note_epoch(self, batch: RecordBatch, after: Offset) -> None:
        if batch.leader_epoch > self.epochs.latest:
            # It may have begun with records that compaction took.
            known = self.scanned_epochs.get(batch.leader_epoch, batch.base_offset)
            start = known if after <= known <= batch.base_offset else batch.base_offset
            self.epochs.assign(batch.leader_epoch, start)

    # -- after a clean stop ----------------------------------------------------------------------------

    def believe(self, point: RecoveryPoint) -> bool:
        """Take the files at their word; False if the active segment cannot be what a clean stop left."""
        if len(self.segments) > 1 and not self.segments[-1].size and self._reaches_past(self.segments[-1]):
            self._drop_empty(self.segments[-1])
        active = self.segments[-1]
        if not active.resume(below=2**63 - 1, empty=self._empty_of(active)):
            return False
        end = active.next_offset
        if point.segment == active.base_offset and point.position == active.size and end <= point.offset:
            # The offset that the log stopped at, which may lie past its last batch.
            end = active.next_offset = point.offset
        elif self.is_our_point:
            return False
        elif active.size == 0:
            end = active.next_offset = max(end, active.base_offset)
        self.recovery_point = RecoveryPoint(end, active.base_offset, active.size)
        self.producers = self._producers_near(end)
        if self.producers.end_offset < end:
            self._replay_producers(end)
        return True

    def last_epoch(self) -> LeaderEpoch:
        """Of the last batch, as its header has it; -1 for none that can be read."""
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
        """Whether the segment before the last one has records that belong into the last one."""
        try:
            return self.segments[-2].find(last.base_offset) is not None
        except CorruptLog:
            return False

    def _producers_near(self, at_most: Offset) -> Producers:
        """The latest sound snapshot at or below an offset; the beginning of the log where there is none.

        One from before the first segment is no use: what came between it and the segment is gone, the end of
        a transaction that it has for open perhaps.
        """
        first = self.segments[0].base_offset
        producers = Producers(first)
        for offset in sorted(self.snapshots, reverse=True):
            if first <= offset <= at_most and load_snapshot(self.vfs, self.directory, offset, producers):
                break
        return producers

    def _replay_producers(self, end: Offset) -> None:
        for batch in self._batches_between(self.producers.end_offset, end):
            self.producers.apply(batch)
        self.producers.end_offset = end

    def _batches_between(self, start: Offset, end: Offset) -> Iterator[RecordBatch]:
        for segment, behind in zip(self.segments, [*self.segments[1:], None], strict=True):
            if behind is not None and behind.base_offset <= start:
                continue
            if segment.base_offset >= end or not segment.size:
                continue
            try:
                spot = segment.find(start)
                if spot is None:
                    continue
                position = spot.position
            except CorruptLog:
                position = 0
            for batch in self._readable(segment, position):
                if batch.base_offset >= end:
                    return
                if batch.base_offset >= start:
                    yield batch

    def _readable(self, segment: Segment, position: int) -> Iterator[RecordBatch]:
        """The batches of a segment from a position on, looking past damage, which is reported."""
        file, size, offset = segment.file(), segment.size, segment.base_offset
        while position < size:
            try:
                for at, batch in scan_batches(file, position, size):
                    if at in segment.damaged:  # its length may be what is wrong with it
                        raise CorruptLog(file.path, at, segment.damaged[at])
                    _check(file, at, batch, offset)
                    yield batch
                    position, offset = at + batch.size, batch.next_offset
            except CorruptLog as error:
                known = ((each.path, each.position) for each in self.report.damage)
                if (error.path, error.position) not in known:
                    self._found(error)
                position = next_sound(file, error.position + 1, size, offset) or size

    # -- after a crash ---------------------------------------------------------------------------------

    def scan_from(self, point: RecoveryPoint) -> None:
        """Go through everything past the recovery point."""
        index = self._index_of(point.offset)
        while index and (
            not self.segments[index].size or self.segments[index - 1].base_offset == point.segment
        ):
            # A segment without a batch says nothing about where the log ends; and the indexes of the one that
            # was active then are certain up to the point, not to its end.
            index -= 1
        segment = self.segments[index]
        position, is_certain = self._position_of(point, segment)
        offset = point.offset if position else segment.base_offset

        size, segment.size = segment.size, position
        segment.flushed_bytes = position
        is_readable = segment.resume(below=offset, empty=self._empty_of(segment))
        if is_certain:
            if segment.next_offset > offset:
                self._find_misplaced(segment, offset)
            segment.next_offset = offset
        elif segment.next_offset < offset:
            self.report.say(
                f"{segment.ref.path} ends at offset {segment.next_offset}, before the recovery point {offset}"
            )
            offset = segment.next_offset
        self.recovery_point = RecoveryPoint(offset, segment.base_offset, position)
        if any(each > offset for each in self.snapshots):
            remove_snapshots_above(self.vfs, self.directory, offset)
            self.snapshots = {each for each in self.snapshots if each <= offset}
        self.scanned_epochs = {entry.epoch: entry.offset for entry in self.epochs.entries}
        self.epochs.truncate_end(offset)
        self.producers = self._producers_near(offset)
        if self.producers.end_offset < offset or not is_readable:
            self._replay_producers(offset)  # which also finds what is damaged
        segment.size = size

        # What needs no change may yet be in the cache alone, as a process before this one left it.
        self.unsynced.append(_metadata_ref(self.directory))
        while True:
            self.unsynced += segment.index_refs
            intact = self._scan(index, position)
            self._complete_txn_index(segment)
            following = self.segments[index + 1] if index + 1 < len(self.segments) else None
            if following is None or not intact:
                return
            end = segment.next_offset
            if following.base_offset != end and (self.is_our_point or following.base_offset < end):
                # Rolling names a segment by the log end, so this one lost its end at a batch's border.
                self._drop_from(index + 1, f"{segment.ref.path} ends at offset {end}")
                return
            segment.seal()
            segment.release_indexes()
            index, segment, position = index + 1, following, 0
            segment.flushed_bytes = 0
            segment.next_offset = segment.base_offset  # whatever believing in it has left there
            segment.start_indexes()

    def _find_misplaced(self, segment: Segment, offset: Offset) -> None:
        """A batch before the recovery point has an offset behind it, which no CRC covers: it is damaged."""
        with suppress(CorruptLog):  # which is found, and reported, when producers are replayed
            for spot in walk_headers(segment.file(), 0, segment.size):
                if spot.last_offset >= offset:
                    problem = f"offsets {spot.base_offset} to {spot.last_offset}, expected less than {offset}"
                    segment.damaged[spot.position] = problem
                    self._found(CorruptLog(segment.ref.path, spot.position, problem))
                    return

    def _found(self, damage: CorruptLog) -> None:
        self.report.damage.append(damage)
        self.report.has_lost = True
        self.report.say(str(damage))

    def _index_of(self, offset: Offset) -> int:
        return SegmentList(self.segments).index_of(offset)

    def _position_of(self, point: RecoveryPoint, segment: Segment) -> tuple[int, bool]:
        """The byte that a recovery point stands for, and whether the log is known to reach up to it.

        0, the segment's start, where it is in doubt.
        """
        if point.segment == segment.base_offset and _fits(point, segment):
            return point.position, True
        if point.offset <= segment.base_offset:
            return 0, False
        try:
            # By what lies before it: what comes after it may be torn, its offset included.
            before = segment.find(point.offset - 1)
            if before is not None and before.last_offset == point.offset - 1:
                return before.position + before.size, True
            spot = segment.find(point.offset)
        except CorruptLog:
            return 0, False
        if spot is not None and spot.base_offset >= point.offset:
            return spot.position, True
        return segment.size if spot is None else 0, False

    def _scan(self, index: int, position: int) -> bool:
        """Check one segment from a position on; False if its end was torn and is cut off now."""
        segment = self.segments[index]
        size, file = segment.size, segment.file()
        while position < size:
            try:
                for at, batch in scan_batches(file, position, size):
                    position = at
                    _check(file, at, batch, segment.next_offset)
                    if batch.base_offset > segment.next_offset:
                        self._check_gap(index, at, batch)
                    self._take(segment, at, batch)
                    position = at + batch.size
            except CorruptLog as error:
                sound = next_sound(file, error.position + 1, size, segment.next_offset)
                has_sound_behind = sound is not None or self._is_sound(index + 1)
                end = size if sound is None else sound
                hole = _has_hole(file, error.position, end, segment.next_offset)
                if not has_sound_behind or hole or sound is None:
                    # Last to first: whatever a crash leaves of this is the log without its end.
                    self._drop_from(index + 1, f"written after the torn end of {segment.ref.path}")
                    was_synced = segment.next_offset < self.known_end
                    self._cut(segment, error, keep=has_sound_behind or was_synced)
                    return False
                segment.damaged[error.position] = error.problem
                self.report.damage.append(error)
                self.report.has_lost = True
                self.report.say(f"{error}; {sound - error.position} bytes are damaged, sound batches follow")
                position = sound
        return True

    def _check_gap(self, index: int, position: int, batch: RecordBatch) -> None:
        """A batch that leaves a gap before it may be a follower's copy of a compacted log, or misplaced: no CRC
        covers the offset. What comes behind it knows."""
        segment, behind = self.segments[index], position + batch.size
        if behind + HEADER_BYTES <= segment.size:
            follows = int.from_bytes(segment.file().pread(8, behind), "big", signed=True)
        elif index + 1 < len(self.segments):
            follows = self.segments[index + 1].base_offset
        else:
            return
        if segment.next_offset <= follows < batch.next_offset:
            raise CorruptLog(
                segment.ref.path,
                position,
                f"offsets {batch.base_offset} to {batch.last_offset}, expected {segment.next_offset} and less "
                f"than {follows}, which follows",
            )

    def _take(self, segment: Segment, position: int, batch: RecordBatch) -> None:
        self._note_epoch(batch, after=self.producers.end_offset)
        segment.note(position, batch.last_offset, batch.max_timestamp)
        aborted = self.producers.apply(batch)
        if aborted is not None:
            segment.txn_index.append(aborted)
        self.report.bytes_scanned += batch.size

    def _complete_txn_index(self, segment: Segment) -> None:
        """Find in the log what it aborts before the recovery point, where the transaction index does not say.

        The file was certain up to the point, and written again since: a write that was not finished may have left
        its end such that nothing in it is believed. One that is missing is Kafka's way to say that there is nothing
        in it, until there is.
        """
        index, offset = segment.txn_index, self.recovery_point.offset
        if not index.is_lost or not (index.is_partial or self.vfs.stat(index.ref.path)):
            return
        producers = self._producers_near(segment.base_offset)
        found = [producers.apply(batch) for batch in self._batches_between(producers.end_offset, offset)]
        index.restore(each for each in found if each and each.last_offset >= segment.base_offset)

    def _is_sound(self, index: int) -> bool:
        """Whether a later segment begins with a sound batch."""
        for segment in self.segments[index:]:
            if segment.size:
                try:
                    _, batch = next(scan_batches(segment.file(), 0, segment.size))
                    return batch.crc_valid()
                except CorruptLog:
                    return False
        return False

    def _cut(self, segment: Segment, error: CorruptLog, *, keep: bool) -> None:
        """Cut a torn end off a segment; with `keep`, set its bytes aside first."""
        file, size = segment.file(), segment.size
        cut = size - error.position
        self.report.has_lost |= keep or not _is_cut_short(file, error.position, size)
        if keep:
            aside = segment.path_of(names.LOG) + f".{error.position}.cut"
            replace_file(self.vfs, aside, file.pread(cut, error.position))
        file.truncate(error.position)
        segment.sync()
        segment.size = segment.checked_from = error.position
        self.report.bytes_cut += cut
        kept = "; the bytes are set aside in a .cut file" if keep else ""
        self.report.say(
            f"{error}; cut a torn end of {cut} bytes, the log ends at {segment.next_offset}{kept}"
        )

    def _drop_from(self, index: int, reason: str) -> None:
        if index == len(self.segments):
            return
        for segment in reversed(self.segments[index:]):
            self.report.bytes_cut += segment.size
            self.report.has_lost |= segment.size > 0
            self.report.say(f"{segment.ref.path}: {segment.size} bytes set aside, {reason}")
            self._set_aside(segment)
        del self.segments[index:]
        self.vfs.sync_dir(self.directory)

    def _set_aside(self, segment: Segment) -> None:
        segment.forget_files()
        path = segment.path_of(names.LOG)
        if segment.size:
            self.vfs.rename(path, path + ".cut")
        else:
            self.vfs.remove(path)
        for kind in (names.INDEX, names.TIME_INDEX, names.TXN_INDEX):
            if self.vfs.stat(segment.path_of(kind)) is not None:
                self.vfs.remove(segment.path_of(kind))


def _is_cut_short(file: File, position: int, end: int) -> bool:
    """Whether what lies at the end is the beginning of a batch, as a write leaves it that was not finished; and not a
    whole one whose length has changed, which no CRC covers."""
    length = file.pread(4, position + LENGTH_AT)
    if len(length) == 4 and LOG_OVERHEAD + int.from_bytes(length, "big", signed=True) <= end - position:
        return False
    there = bytearray(file.pread(min(end - position, BATCH_BYTES_MAX), position))
    if len(there) < HEADER_BYTES:
        return True
    there[LENGTH_AT : LENGTH_AT + 4] = (len(there) - LOG_OVERHEAD).to_bytes(4, "big")
    try:
        return not RecordBatch.parse(memoryview(there)).crc_valid()
    except KafkaError:
        return True


def _fits(point: RecoveryPoint, segment: Segment) -> bool:
    """Whether the segment ends, or a batch begins, just where our recovery point lies."""
    if not 0 <= point.position < segment.size:
        return point.position == segment.size
    header = segment.file().pread(HEADER_BYTES, point.position)
    return len(header) == HEADER_BYTES and int.from_bytes(header[:8], "big") >= point.offset


def _check(file: File, position: int, batch: RecordBatch, offset: Offset) -> None:
    if batch.base_offset < offset:
        raise CorruptLog(file.path, position, f"offset {batch.base_offset}, expected {offset} or more")
    if not batch.crc_valid():
        raise CorruptLog(file.path, position, "the CRC does not fit the batch")


def _has_hole(file: File, start: int, end: int, offset: Offset) -> bool:
    """Whether a stretch has a sector of zeros, or begins with zeros up to a sector's border.

    The header that was to begin here has the offset and a length: a few zeros prove nothing where it too
    would begin with them.
    """
    header = offset.to_bytes(8, "big") + b"\0\0\0\1"
    position = start
    while position < end:
        border = (
            position // SECTOR_BYTES + 1
        ) * SECTOR_BYTES  # past the end: a sound batch may begin with zeros
        zeros = border - position
        proves = any(header[:zeros]) if position == start else zeros == SECTOR_BYTES
        if proves and not any(file.pread(zeros, position)):
            return True
        position = border
    return False
