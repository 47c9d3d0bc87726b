"""Opens a partition's log after a clean stop or a crash.

`Opening` lists the files, and trusts them after a clean stop. Otherwise everything past the recovery point is scanned
once, every CRC is checked, and indexes, epochs and producer state are brought up to date (`_Scan`).

The first bytes that are not a sound batch are one of two:

- **Torn**: the end of an unfinished write. No sound batch follows, or the bytes in between have a sector of zeros, as
  after a write that did not reach the disk. A sync covers a whole file, so nothing after it was synced or acknowledged
  as durable. It is truncated, and the log says how many bytes. Sound batches after it are moved to a `.cut` file.
- **Damaged**: sound batches follow, and there is no sector of zeros. The disk has changed bytes that were written
  correctly. They stay in place and are reported; readers are served up to them and then get an error.

Truncated batches that were certainly written (before a kill without a restart of the machine, or below the recovery
point) are a lost tail. Transactions that are open at damage or at a lost tail are in doubt: see `producers`.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from penstock.base.errors import KafkaError
from penstock.base.ids import Offset, TimestampMs, TopicPartition
from penstock.base.settings import LogSettings
from penstock.records import HEADER_BYTES, LOG_OVERHEAD, RecordBatch
from penstock.records.batch import LENGTH_AT
from penstock.storage import names
from penstock.storage.checkpoints import Extent, Hole, RecoveryPoint, encode_partition_metadata
from penstock.storage.epochs import LeaderEpochs
from penstock.storage.errors import CorruptLog
from penstock.storage.holes import check_batch
from penstock.storage.log import PRODUCER_IDLE_MS_MAX, Log, Points
from penstock.storage.open_files import FileRef, OpenFiles
from penstock.storage.opening import Opening, Report
from penstock.storage.producers import Producers
from penstock.storage.scan import BATCH_BYTES_MAX, next_sound, scan_batches, walk_headers
from penstock.storage.segment import Segment
from penstock.storage.segments import SegmentList
from penstock.storage.snapshots import remove_snapshots_above
from penstock.storage.txn_index import FileSum
from penstock.vfs import File, Vfs, replace_file

SECTOR_BYTES = 512
"""The unit that a disk writes atomically."""


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
    """Create the directory of a new partition and its empty log. The first flush makes its files durable; the caller
    syncs the parent directory."""
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
    extents: Sequence[Extent] = (),
    holes: Sequence[Hole] = (),
    is_all_there: bool = False,
) -> tuple[Log, Report]:
    """Open the log in a directory. `is_our_point`: Penstock saved the recovery point and was the last writer.

    `txn_sums`, `extents` and `holes` are those of the log when the recovery point was saved. `is_all_there`: all
    writes must be in the files, because the broker stopped cleanly, or was killed and the machine did not restart.
    Records below `known_end`, and below the recovery point, are known to have been on disk.
    """
    opening = Opening(directory, files, settings, Report(), is_our_point, now_ms, txn_sums or {})
    opening.known_end = max(known_end, recovery_point.offset)
    opening.load_segments(opening.tidy(log_start), log_start)
    if is_our_point:
        opening.find_holes(extents, holes, recovery_point, log_start or 0)
    first = opening.segments[0].base_offset
    start = first if log_start is None else max(log_start, first)
    epochs_lost = opening.load_epochs()
    if not (clean and opening.trust_files(recovery_point)):
        _Scan(opening, is_all_there=is_all_there or clean).run(recovery_point)
    elif opening.epochs.latest < opening.last_epoch():
        epochs_lost = True  # the checkpoint is older than the log
    opening.doubt_at_holes()
    end = opening.segments[-1].next_offset
    if end < opening.known_end:
        opening.handle_lost_tail(end)
        end = opening.segments[-1].next_offset
    if epochs_lost:
        opening.rebuild_epochs()
    if end < start:
        opening.report.warn(
            f"{directory}: the log ends at {end}, before its start {start}: it restarts empty at {start}"
        )
        opening.restart_empty(start)
        end = start
    opening.epochs.truncate_end(end)
    opening.epochs.truncate_start(start)
    opening.producers.expire(now_ms, PRODUCER_IDLE_MS_MAX)
    opening.producers.forget_holes(start)
    opening.report_in_doubt(tuple(opening.producers.in_doubt.values()))
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
        is_clean=(clean or opening.is_as_checkpointed) and not opening.report.holes,
        epochs_saved=None if epochs_lost else opening.epochs_in_file,
        unsynced=opening.unsynced,
        snapshots=opening.snapshots,
    )
    for error in opening.report.damage:
        log.reader.note_damage(error)
    for segment in opening.segments:
        if segment.hole is not None:
            log.reader.note_damage(CorruptLog(segment.ref.path, 0, f"{segment.hole} before it are missing"))
    return log, opening.report


class _Scan:
    """Scans everything past the recovery point."""

    def __init__(self, opening: Opening, *, is_all_there: bool) -> None:
        self._opening = opening
        self._report = opening.report
        self._is_all_there = is_all_there

    def run(self, point: RecoveryPoint) -> None:
        opening, segments = self._opening, self._opening.segments
        index = SegmentList(segments).index_of(point.offset)
        while index and (not segments[index].size or segments[index - 1].base_offset == point.segment):
            # A segment without a batch does not determine the log end; and the indexes of the one that
            # was active then are reliable up to the recovery point, not to its end.
            index -= 1
        segment = segments[index]
        position, is_certain = self._position_of(point, segment)
        offset = point.offset if position else segment.base_offset

        size, segment.size = segment.size, position
        segment.flushed_bytes = position
        is_readable = segment.resume(below=offset, empty=opening.empty_of(segment))
        if is_certain:
            if segment.next_offset > offset:
                self._find_misplaced(segment, offset)
            segment.next_offset = offset
        elif segment.next_offset < offset:
            self._report.warn(
                f"{segment.ref.path} ends at offset {segment.next_offset}, before the recovery point {offset}"
            )
            offset = segment.next_offset
        opening.recovery_point = RecoveryPoint(offset, segment.base_offset, position)
        if any(each > offset for each in opening.snapshots):
            remove_snapshots_above(opening.vfs, opening.directory, offset)
            opening.snapshots = {each for each in opening.snapshots if each <= offset}
        opening.scanned_epochs = {entry.epoch: entry.offset for entry in opening.epochs.entries}
        opening.epochs.truncate_end(offset)
        opening.producers = opening.producers_near(offset)
        if opening.producers.end_offset < offset or not is_readable:
            opening.replay_producers(offset)  # this also finds damage
        segment.size = size

        # Files that need no change may still be in the page cache only.
        opening.unsynced.append(_metadata_ref(opening.directory))
        while True:
            opening.unsynced += segment.index_refs
            intact = self._scan(index, position)
            self._complete_txn_index(segment)
            following = segments[index + 1] if index + 1 < len(segments) else None
            if following is None or not intact:
                return
            end = segment.next_offset
            if following.hole is not None and following.hole.start >= opening.recovery_point.offset:
                for aborted in opening.producers.pass_hole(following.hole.start):
                    segment.txn_index.append(aborted)
                opening.producers.end_offset = following.base_offset
            elif following.base_offset != end and (opening.is_our_point or following.base_offset < end):
                # A segment is named by the log end at the roll, so this one lost whole batches at its end.
                self._drop_from(
                    index + 1, f"{segment.ref.path} ends at offset {end}", is_lost=self._is_all_there
                )
                return
            segment.seal()
            segment.release_indexes()
            index, segment, position = index + 1, following, 0
            segment.flushed_bytes = 0
            segment.next_offset = segment.base_offset  # remove the effects of having trusted it
            segment.start_indexes()

    def _find_misplaced(self, segment: Segment, offset: Offset) -> None:
        """A batch before the recovery point has an offset after it: the offset, which the CRC does not cover, is
        damaged."""
        with suppress(CorruptLog):  # found and reported when producers are replayed
            for spot in walk_headers(segment.file(), 0, segment.size):
                if spot.last_offset >= offset:
                    problem = f"offsets {spot.base_offset} to {spot.last_offset}, expected less than {offset}"
                    segment.damaged[spot.position] = problem
                    self._opening.found(CorruptLog(segment.ref.path, spot.position, problem))
                    return

    def _position_of(self, point: RecoveryPoint, segment: Segment) -> tuple[int, bool]:
        """The byte position of a recovery point, and whether the log certainly reaches it.

        0, the segment's start, if that is unknown.
        """
        if point.segment == segment.base_offset and _fits(point, segment):
            return point.position, True
        if point.offset <= segment.base_offset:
            return 0, False
        try:
            # Decided by the batch before it: the one after it may be torn, including its offset.
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
        """Check one segment from a position on; False if its end was torn and is truncated now."""
        opening, segment = self._opening, self._opening.segments[index]
        size, file = segment.size, segment.file()
        while position < size:
            try:
                for at, batch in scan_batches(file, position, size):
                    position = at
                    check_batch(file, at, batch, segment.next_offset)
                    if batch.base_offset > segment.next_offset:
                        self._check_gap(index, at, batch)
                    self._take(segment, at, batch)
                    position = at + batch.size
            except CorruptLog as error:
                sound = next_sound(file, error.position + 1, size, segment.next_offset)
                has_sound_behind = sound is not None or self._is_sound(index + 1)
                end = size if sound is None else sound
                has_zeros = _has_zero_sector(file, error.position, end, segment.next_offset)
                if not has_sound_behind or has_zeros or sound is None:
                    # Last to first: a crash in between leaves a shorter log without a hole.
                    is_cut_short = _is_cut_short(file, error.position, size)
                    is_torn = is_cut_short or (has_zeros and not self._is_all_there)
                    self._drop_from(
                        index + 1, f"written after the torn tail of {segment.ref.path}", is_lost=not is_torn
                    )
                    was_synced = segment.next_offset < opening.known_end
                    self._cut(segment, error, keep=has_sound_behind or was_synced)
                    if not is_torn:
                        opening.known_end = max(opening.known_end, segment.next_offset + 1)
                    return False
                segment.damaged[error.position] = error.problem
                opening.found(error)
                for aborted in opening.producers.pass_hole(segment.next_offset):
                    segment.txn_index.append(aborted)
                position = sound
        return True

    def _check_gap(self, index: int, position: int, batch: RecordBatch) -> None:
        """Check a batch that leaves a gap before it: either the log is a replica of a compacted one, or the batch's
        offset is damaged, since the CRC does not cover it. The next batch decides."""
        segment, behind = self._opening.segments[index], position + batch.size
        if behind + HEADER_BYTES <= segment.size:
            follows = int.from_bytes(segment.file().pread(8, behind), "big", signed=True)
        elif index + 1 < len(self._opening.segments):
            follows = self._opening.segments[index + 1].base_offset
        else:
            return
        if segment.next_offset <= follows < batch.next_offset:
            raise CorruptLog(
                segment.ref.path,
                position,
                f"offsets {batch.base_offset} to {batch.last_offset}, expected {segment.next_offset} and less "
                f"than {follows}, the next offset",
            )

    def _take(self, segment: Segment, position: int, batch: RecordBatch) -> None:
        opening = self._opening
        opening.note_epoch(batch, after=opening.producers.end_offset)
        segment.note(position, batch.last_offset, batch.max_timestamp)
        aborted = opening.producers.apply(batch)
        if aborted is not None:
            segment.txn_index.append(aborted)
        self._report.bytes_scanned += batch.size

    def _complete_txn_index(self, segment: Segment) -> None:
        """Rebuild the transaction index below the recovery point from the log, if its file is unusable.

        The file was complete up to the recovery point, but a later unfinished write may have damaged it. Kafka creates
        the file with the first abort, so a missing file means that nothing was aborted.
        """
        index, offset = segment.txn_index, self._opening.recovery_point.offset
        if not index.is_lost or not (index.is_partial or self._opening.vfs.stat(index.ref.path)):
            return
        producers = self._opening.producers_near(segment.base_offset)
        found = self._opening.fold(producers, offset)
        index.restore(each for each in found if each.last_offset >= segment.base_offset)

    def _is_sound(self, index: int) -> bool:
        """Whether a later segment begins with a sound batch."""
        for segment in self._opening.segments[index:]:
            if segment.size:
                try:
                    _, batch = next(scan_batches(segment.file(), 0, segment.size))
                    return batch.crc_valid()
                except CorruptLog:
                    return False
        return False

    def _cut(self, segment: Segment, error: CorruptLog, *, keep: bool) -> None:
        """Truncate a torn tail; with `keep`, copy its bytes to a `.cut` file first."""
        file, size = segment.file(), segment.size
        cut = size - error.position
        self._report.has_lost |= keep or not _is_cut_short(file, error.position, size)
        if keep:
            aside = segment.path_of(names.LOG) + f".{error.position}.cut"
            replace_file(self._opening.vfs, aside, file.pread(cut, error.position))
        file.truncate(error.position)
        segment.sync()
        segment.size = segment.checked_from = error.position
        self._report.bytes_cut += cut
        kept = "; the bytes are kept in a .cut file" if keep else ""
        self._report.warn(
            f"{error}; truncated a torn tail of {cut} bytes, the log ends at {segment.next_offset}{kept}"
        )

    def _drop_from(self, index: int, reason: str, *, is_lost: bool) -> None:
        """Rename segments to `.cut`. `is_lost`: they were certainly part of the log."""
        opening, segments = self._opening, self._opening.segments
        if index == len(segments):
            return
        for segment in reversed(segments[index:]):
            self._report.bytes_cut += segment.size
            self._report.has_lost |= segment.size > 0
            self._report.warn(f"{segment.ref.path}: {segment.size} bytes renamed to .cut, {reason}")
            if is_lost and segment.size:
                opening.known_end = max(opening.known_end, segment.base_offset + 1)
            opening.set_aside(segment)
        del segments[index:]
        opening.vfs.sync_dir(opening.directory)


def _is_cut_short(file: File, position: int, end: int) -> bool:
    """Whether the last bytes are the start of a batch, as after an unfinished write, and not a whole batch with a
    damaged length, which the CRC does not cover."""
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
    """Whether the segment ends, or a batch begins, exactly at our recovery point."""
    if not 0 <= point.position < segment.size:
        return point.position == segment.size
    header = segment.file().pread(HEADER_BYTES, point.position)
    return len(header) == HEADER_BYTES and int.from_bytes(header[:8], "big") >= point.offset


def _has_zero_sector(file: File, start: int, end: int, offset: Offset) -> bool:
    """Whether a range has a sector of zeros, or begins with zeros up to the next sector boundary.

    A few zeros prove nothing: the header that was to be written here, with offset and length, may begin with zeros
    too.
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
