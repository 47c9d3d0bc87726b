"""One segment: consecutive batches in a file, with their indexes.

    base_offset                             next_offset
    | batch | batch | batch | batch | batch |
      0       ^ sparse index entries  ^     size (bytes)

The last segment of a log is active: it grows, and its indexes are in memory. The others are sealed and never
change. When compaction or retention removes one, `gone` is set first, and a reader that still holds the object takes
the current list of segments.

The log file is authoritative. Every index entry is checked against its batch when it is used. A missing or wrong index
is rebuilt from the log file, in memory; the next checkpoint saves it.
"""

from collections.abc import Container, Iterable
from struct import Struct

from penstock.base.errors import KafkaError
from penstock.base.ids import NO_LEADER_EPOCH, NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs
from penstock.base.settings import LogSettings
from penstock.records import HEADER_BYTES, LOG_OVERHEAD, RecordBatch
from penstock.records.batch import LENGTH_AT
from penstock.storage import names
from penstock.storage.checkpoints import Hole
from penstock.storage.errors import CorruptLog
from penstock.storage.indexes import OffsetIndex, TimeEntry, TimeIndex
from penstock.storage.open_files import FileRef, OpenFiles
from penstock.storage.scan import RELATIVE_OFFSET_MAX, BatchPosition, scan_batches, walk_headers
from penstock.storage.txn_index import TxnIndex
from penstock.vfs import File

NO_TIME = TimeEntry(NO_TIMESTAMP, -1)
_REBUILD_STEP_BYTES = 1 << 18
_PLACE = Struct(">qii")
"""Base offset, length and leader epoch: the start of a batch, which its CRC does not cover."""
_ANY_EPOCH: LeaderEpoch = 2**31 - 1


class Segment:
    __slots__ = (
        "_files",
        "_first_timestamp",
        "_indexed_to",
        "_is_forgotten",
        "_largest",
        "base_offset",
        "checked_epoch",
        "checked_from",
        "checked_offset",
        "checked_to",
        "created_ms",
        "damaged",
        "directory",
        "flushed_bytes",
        "gone",
        "hole",
        "index",
        "interval_bytes",
        "is_truncated",
        "last_file",
        "next_offset",
        "reads_ahead",
        "ref",
        "room_bytes",
        "room_offset",
        "room_timestamp",
        "size",
        "time_index",
        "txn_index",
    )

    def __init__(
        self,
        files: OpenFiles,
        directory: str,
        base_offset: Offset,
        *,
        interval_bytes: int,
        size: int = 0,
        created_ms: TimestampMs = 0,
        state: str = "",
    ) -> None:
        self._files = files
        self.directory = directory
        self.base_offset = base_offset
        self.ref = FileRef(self.path_of(names.LOG, state))
        self.index = OffsetIndex(files, FileRef(self.path_of(names.INDEX, state)), base_offset)
        self.time_index = TimeIndex(files, FileRef(self.path_of(names.TIME_INDEX, state)), base_offset)
        self.txn_index = TxnIndex(files, FileRef(self.path_of(names.TXN_INDEX, state)))
        self.size = size
        """Bytes that readers may see. Advances after a write has succeeded, so that no reader sees a torn one."""
        self.flushed_bytes = size
        """Bytes known to be on disk; at most `size`."""
        self.next_offset: Offset = base_offset
        """Maintained while the segment is active. A sealed segment ends at the next segment's base offset."""
        self.created_ms = created_ms
        self.interval_bytes = interval_bytes
        """`index.interval.bytes`, which may change while the segment is active."""
        self.damaged: dict[int, str] = {}
        """Positions of corrupt batches that sound ones follow, and what is wrong with them."""
        self.checked_from = 0
        """Everything from this position on was written since the broker started."""
        self.checked_to = 0
        """Everything below this position was checked since (`check`); bytes between the two are unchecked."""
        self.checked_offset = base_offset
        """The offset after the last batch before `checked_to`."""
        self.checked_epoch: LeaderEpoch = NO_LEADER_EPOCH
        """The leader epoch of that batch."""
        self.hole: Hole | None = None
        """The missing range between the previous segment and this one."""
        self.gone = False
        self.is_truncated = False
        """The log was truncated at or before this segment's end, so its file changes. Set together with `gone`, before
        the file is changed."""
        self.last_file: File | None = None
        """The open file of a segment that is gone, for replies that still send records from it."""
        self._is_forgotten = False
        self.reads_ahead = True
        """Whether replies may start before their records are read (`UnreadRecords`). False after such a read failed:
        the next reader gets an error for this partition instead of a broken connection."""
        self._indexed_to = 0
        """Position of the batch that has the last index entry, or 0."""
        self._largest: TimeEntry | None = None
        self._first_timestamp: TimestampMs | None = None
        self.room_bytes = 0
        """A batch that ends below this position, with timestamp and last offset up to the next two fields, fits
        without a call of `is_full`. 0 requires the call."""
        self.room_offset: Offset = 0
        self.room_timestamp: TimestampMs = 0

    def __repr__(self) -> str:
        return f"<Segment {self.ref.path} {self.size} bytes>"

    def path_of(self, kind: str, state: str = "") -> str:
        return f"{self.directory}/{names.segment_file(self.base_offset, kind, state)}"

    def file(self) -> File:
        return self._files.open(self.ref)

    def sync(self) -> None:
        """Sync the log file; on any thread."""
        try:
            self.file().sync()
        except OSError:
            self.sync_failed()
            raise

    def sync_failed(self) -> None:
        """Report that a sync failed; on any thread."""
        if not self.gone:
            self._files.sync_failed()

    # -- appending (active segment, writer only) ------------------------------------------------------

    def create(self) -> None:
        """Create the file, truncating any existing one, and start empty indexes."""
        file = self._files.open(self.ref, create=True)
        if file.size():
            file.truncate(0)
        self.start_indexes()

    def start_indexes(self) -> None:
        self.index.start()
        self.time_index.start()
        self.txn_index.start()
        self._largest, self._indexed_to, self._first_timestamp = NO_TIME, 0, None
        self.room_bytes = 0

    def note(self, position: int, last_offset: Offset, max_timestamp: TimestampMs) -> None:
        """Add a batch to the indexes. The steps are in Kafka's order, so that the files are identical."""
        if not 0 <= last_offset - self.base_offset <= RELATIVE_OFFSET_MAX:
            # The CRC does not cover the base offset.
            raise CorruptLog(self.ref.path, position, f"offset {last_offset} cannot be in this segment")
        largest = self._largest
        if largest is None or max_timestamp > largest.timestamp:
            largest = self._largest = TimeEntry(max_timestamp, last_offset)
        if position - self._indexed_to > self.interval_bytes:
            self.index.append(last_offset, position)
            self.time_index.append(largest.timestamp, largest.offset)
            self._indexed_to = position
        if self._first_timestamp is None:
            self._first_timestamp = max_timestamp
        if last_offset >= self.next_offset:
            self.next_offset = last_offset + 1

    def note_all(self, position: int, batches: Iterable[tuple[memoryview, Offset, TimestampMs]]) -> None:
        """`note` for consecutive batches: bytes, last offset and largest timestamp of each."""
        interval_bytes, room_offset = self.interval_bytes, self.base_offset + RELATIVE_OFFSET_MAX
        largest = self._largest if self._first_timestamp is not None else None
        for view, last_offset, max_timestamp in batches:
            if (
                largest is None
                or max_timestamp > largest.timestamp
                or position - self._indexed_to > interval_bytes
                or last_offset > room_offset
            ):
                self.note(position, last_offset, max_timestamp)
                largest = self._largest
            position += len(view)

    def is_full(
        self,
        start_position: int,
        end_position: int,
        last_offset: Offset,
        timestamp: TimestampMs,
        now_ms: TimestampMs,
        settings: LogSettings,
    ) -> bool:
        """Whether a batch that would take these positions needs a new segment.

        Decided by size, range of offsets, full indexes, or age.
        """
        if start_position == 0:
            return last_offset - self.base_offset > RELATIVE_OFFSET_MAX
        wait_ms_max = settings.segment_ms - self._jitter_ms(settings)
        entries_left = min(
            self.index.entries_left(settings.segment_index_bytes),
            self.time_index.entries_left(settings.segment_index_bytes),
        )
        if (
            end_position > settings.segment_bytes
            or last_offset - self.base_offset > RELATIVE_OFFSET_MAX
            or not entries_left
            or self.waited_ms(timestamp, now_ms) > wait_ms_max
        ):
            return True
        first = self.first_timestamp()
        if first >= 0:
            # Up to this size the indexes cannot fill up: there is at most one entry per `interval_bytes`.
            self.room_bytes = min(
                settings.segment_bytes, self._indexed_to + entries_left * self.interval_bytes
            )
            self.room_offset = self.base_offset + RELATIVE_OFFSET_MAX
            self.room_timestamp = first + wait_ms_max
        return False

    def waited_ms(self, timestamp: TimestampMs, now_ms: TimestampMs) -> int:
        """Age of the segment: by the timestamp of its first record, otherwise by its creation."""
        first = self._first_timestamp
        if first is None:
            first = self.first_timestamp()
        return timestamp - first if first >= 0 else now_ms - self.created_ms

    def _jitter_ms(self, settings: LogSettings) -> int:
        """Spreads rolls by age over partitions: a hash of base offset and path, so that it does not change."""
        if not settings.segment_jitter_ms:
            return 0
        return hash_text(self.ref.path) % min(settings.segment_jitter_ms, settings.segment_ms)

    def seal(self) -> list[FileRef]:
        """Complete and write the indexes; return the files that changed, for the caller to sync."""
        self.finish_time_index()
        return self.save_indexes()

    def finish_time_index(self) -> None:
        """Add the last entry of the time index: the largest timestamp of the segment."""
        largest = self.largest()
        if largest is not NO_TIME:
            self.time_index.append(*largest)

    @property
    def has_saved_indexes(self) -> bool:
        """Whether the index files have all entries in memory."""
        return self.index.is_saved and self.time_index.is_saved and self.txn_index.is_saved

    @property
    def is_time_index_finished(self) -> bool:
        """Whether `finish_time_index` has nothing to add."""
        largest = self._largest
        return largest is NO_TIME or (largest is not None and self.time_index.last() == largest)

    def save_indexes(self) -> list[FileRef]:
        """Write entries that are only in memory; return the files that changed, for the caller to sync."""
        return [index.ref for index in (self.index, self.time_index, self.txn_index) if index.write()]

    @property
    def index_refs(self) -> list[FileRef]:
        return [self.index.ref, self.time_index.ref, self.txn_index.ref]

    def doubt_indexes(self) -> None:
        """Rewrite the indexes at the next save, because a sync of one failed."""
        self.index.doubt()
        self.time_index.doubt()
        self.txn_index.doubt()

    def release_indexes(self) -> None:
        self.index.release()
        self.time_index.release()
        self.txn_index.release()

    def resume(self, *, below: Offset, empty: Container[str] = ()) -> bool:
        """Prepare to append after the last batch below an offset, trusting the indexes up to there.

        `empty` has the kinds of index whose files are known to be empty. False if the segment cannot be read to its
        end.
        """
        self.index.load(below=below, is_empty=names.INDEX in empty)
        self.time_index.load(below=below, is_empty=names.TIME_INDEX in empty)
        if self.size or names.TXN_INDEX in empty:
            self.txn_index.load(below=below, is_empty=names.TXN_INDEX in empty)
        else:
            self.txn_index.start()
        last = self.index.last()
        self._indexed_to = last.position if last else 0
        self._largest = NO_TIME
        self._first_timestamp = None
        self.room_bytes = 0
        try:
            self._index_tail()
        except (CorruptLog, _BadIndex):
            # The index contradicts the log file. If the log file is damaged, the same error recurs.
            self.next_offset = self.base_offset
            return self.rebuild_indexes()
        return True

    def _index_tail(self) -> None:
        """Find the largest timestamp and the next offset in the batches after the last index entries."""
        self.next_offset = self.base_offset
        last = self.index.last()
        if last is not None and last.position >= self.size:
            raise _BadIndex
        start, self._largest = self._timed_to()
        start = min(start, self._indexed_to)
        for spot in walk_headers(self.file(), start, self.size):
            if last is not None and spot.position <= last.position:
                if spot.position == last.position and spot.last_offset != last.offset:
                    raise _BadIndex
                if spot.max_timestamp > self._largest.timestamp:
                    if spot.position < last.position:
                        raise _BadIndex  # the time index is cut short
                    self._largest = TimeEntry(spot.max_timestamp, spot.last_offset)
                self.next_offset = spot.last_offset + 1
                continue
            self.note(spot.position, spot.last_offset, spot.max_timestamp)
        if self.size and (start or last is not None):  # otherwise the first batch was just noted
            self._first_timestamp = next(walk_headers(self.file(), 0, self.size)).max_timestamp

    def _timed_to(self) -> tuple[int, TimeEntry]:
        """The last entry of the time index and the position of its batch; raises if the log contradicts it."""
        entry = self.time_index.last()
        if entry is None:
            return 0, NO_TIME
        near = self.index.lookup(entry.offset)
        spot = self._walk_from(near.position, near.offset, entry.offset)
        if spot is None or spot.last_offset != entry.offset or spot.max_timestamp != entry.timestamp:
            raise _BadIndex
        return spot.position, entry

    # -- finding ---------------------------------------------------------------------------------------

    def find(self, offset: Offset) -> BatchPosition | None:
        """The first batch that ends at or after offset; None if the segment ends before it."""
        try:
            entry = self.index.lookup(offset)
            return self._walk_from(entry.position, entry.offset, offset)
        except (FileNotFoundError, _BadIndex):
            self.rebuild_indexes()
            return self._walk_from(self.index.lookup(offset).position, None, offset)

    def _walk_from(self, position: int, indexed: Offset | None, offset: Offset) -> BatchPosition | None:
        size = self.size
        if position and not 0 < position < size:
            raise _BadIndex
        try:
            for spot in walk_headers(self.file(), position, size):
                if indexed is not None and position and spot.last_offset != indexed:
                    raise _BadIndex
                indexed = None
                if spot.last_offset >= offset:
                    return spot
        except CorruptLog as error:
            if position and error.position == position:
                raise _BadIndex from error
            raise
        return None

    def largest(self) -> TimeEntry:
        """The largest timestamp of the segment, and the last offset of the first batch that has it."""
        largest = self._largest
        if largest is None:
            try:
                largest = self._largest_on_disk()
            except (FileNotFoundError, _BadIndex):
                self.rebuild_indexes()
                largest = self.time_index.last() or NO_TIME
            self._largest = largest
        return largest

    def _largest_on_disk(self) -> TimeEntry:
        """The last entry of the time index, if the log confirms it.

        No later batch may have a larger timestamp, or the index is cut short. With timestamps in order only the last
        few batches are read.
        """
        position, entry = self._timed_to()
        try:
            for spot in walk_headers(self.file(), position, self.size):
                if spot.max_timestamp > entry.timestamp:
                    raise _BadIndex
        except CorruptLog:
            pass  # the next read reports it
        return entry

    def find_timestamp(self, timestamp: TimestampMs, position: int = 0) -> BatchPosition | None:
        """The first batch at or after a position that has a record at or after a time."""
        if self.largest().timestamp < timestamp:
            return None
        try:
            return self._walk_to(timestamp, position, self.time_index.lookup(timestamp))
        except (FileNotFoundError, _BadIndex):
            self.rebuild_indexes()
            return self._walk_to(timestamp, position, None)

    def _walk_to(
        self, timestamp: TimestampMs, position: int, entry: TimeEntry | None
    ) -> BatchPosition | None:
        """The same, starting after the batch of a time index entry: all earlier batches are older."""
        if entry is not None:
            near = self.index.lookup(entry.offset)
            start = self._walk_from(near.position, near.offset, entry.offset)
            if start is None or start.last_offset != entry.offset or start.max_timestamp != entry.timestamp:
                raise _BadIndex
            position = max(position, start.position)
        for spot in walk_headers(self.file(), position, self.size):
            if spot.max_timestamp >= timestamp:
                return spot
        return None

    def first_timestamp(self) -> TimestampMs:
        """The first batch's largest timestamp; -1 if there is none."""
        if self._first_timestamp is None:
            spot = next(walk_headers(self.file(), 0, self.size), None) if self.size else None
            if spot is None:
                return NO_TIMESTAMP
            self._first_timestamp = spot.max_timestamp
        return self._first_timestamp

    def index_bytes(self) -> int:
        """Size of the larger of the two indexes."""
        try:
            return max(self.index.size_bytes(), self.time_index.size_bytes())
        except FileNotFoundError:
            self.rebuild_indexes()
            return max(self.index.size_bytes(), self.time_index.size_bytes())

    # -- checking --------------------------------------------------------------------------------------

    def check(self, position: int, data: bytes, end: Offset, epoch_max: LeaderEpoch | None = None) -> int:
        """How many bytes read at a position are sound batches; the last batch may be partial.

        The CRC does not cover a batch's offsets, so they are compared with the neighbours: a batch starts at or after
        the end of the previous one, and ends before the start of the next. `end` is the offset after the segment.
        Leader epochs never decrease either; they are checked if `epoch_max`, the latest epoch, is given.
        """
        is_next = position == self.checked_to
        expected = self.checked_offset if is_next else self.base_offset
        epoch = self.checked_epoch if is_next else NO_LEADER_EPOCH
        view, at = memoryview(data), 0
        while len(data) - at >= HEADER_BYTES:
            size = LOG_OVERHEAD + int.from_bytes(
                view[at + LENGTH_AT : at + LENGTH_AT + 4], "big", signed=True
            )
            if size > max(LOG_OVERHEAD, len(data) - at):
                break
            follows, epoch_behind = self._follows(view, position, at + size, end)
            problem = self._problem_of(view, at, expected, follows)
            if not problem and epoch_max is not None:
                problem = _epoch_problem(
                    RecordBatch.parse(view, at).leader_epoch, epoch, epoch_behind, epoch_max
                )
            if problem:
                self.damaged[position + at] = problem
                return at
            batch = RecordBatch.parse(view, at)
            expected, epoch = batch.next_offset, batch.leader_epoch
            at += size
            if is_next:
                self.checked_to, self.checked_offset, self.checked_epoch = position + at, expected, epoch
        return len(data)

    def _follows(self, view: memoryview, position: int, at: int, end: Offset) -> tuple[Offset, LeaderEpoch]:
        """The offset and the leader epoch of the batch after a batch."""
        if at + _PLACE.size <= len(view):
            offset, _, epoch = _PLACE.unpack_from(view, at)
        elif position + at + HEADER_BYTES <= self.size:
            offset, _, epoch = _PLACE.unpack(self.file().pread(_PLACE.size, position + at))
        else:
            offset, epoch = end, _ANY_EPOCH
        return offset, epoch

    def _problem_of(self, view: memoryview, at: int, expected: Offset, follows: Offset) -> str:
        try:
            batch = RecordBatch.parse(view, at)
        except KafkaError as error:
            return str(error)
        if not batch.crc_valid():
            return "CRC mismatch"
        # A damaged next batch proves nothing about this one; its damage is found when it is read.
        if batch.base_offset < expected or expected <= follows < batch.next_offset:
            return f"offsets {batch.base_offset} to {batch.last_offset}, expected {expected} and less than {follows}"
        return ""

    def epoch_at(self, position: int) -> LeaderEpoch:
        """The leader epoch of the batch at a position."""
        _, _, epoch = _PLACE.unpack(self.file().pread(_PLACE.size, position))
        return int(epoch)

    def sound_part(self) -> tuple[int, Offset]:
        """Position and offset up to which the file has only sound batches, in order."""
        position, offset = 0, self.base_offset
        try:
            for at, batch in scan_batches(self.file(), 0, self.size):
                if batch.base_offset < offset or not batch.crc_valid() or at in self.damaged:
                    break
                position, offset = at + batch.size, batch.next_offset
        except CorruptLog:
            pass  # the sound part ends here
        return position, offset

    # -- rebuilding ------------------------------------------------------------------------------------

    def rebuild_indexes(self) -> bool:
        """Rebuild offset and time index from the log file, in memory; False if it cannot be read to its end."""
        fresh = Segment(
            self._files, self.directory, self.base_offset, interval_bytes=self.interval_bytes, size=self.size
        )
        fresh.ref = self.ref
        fresh.start_indexes()
        is_whole = True
        try:
            for spot in walk_headers(self.file(), 0, self.size, step=_REBUILD_STEP_BYTES):
                fresh.note(spot.position, spot.last_offset, spot.max_timestamp)
        except CorruptLog:
            is_whole = False  # the next read reports it
        if fresh._largest is not NO_TIME and fresh._largest is not None:
            fresh.time_index.append(*fresh._largest)
        fresh.index.ref, fresh.time_index.ref = self.index.ref, self.time_index.ref
        self.index, self.time_index = fresh.index, fresh.time_index
        self._largest, self._indexed_to = fresh._largest, fresh._indexed_to
        self._first_timestamp = fresh._first_timestamp
        self.next_offset = max(self.next_offset, fresh.next_offset)
        return is_whole

    @property
    def refs(self) -> dict[str, FileRef]:
        """The segment's files by kind."""
        return {
            names.LOG: self.ref,
            names.INDEX: self.index.ref,
            names.TIME_INDEX: self.time_index.ref,
            names.TXN_INDEX: self.txn_index.ref,
        }

    def forget_files(self) -> None:
        """Close open files after `gone` is set; the first call comes before the files are changed."""
        if not self._is_forgotten:
            self._is_forgotten = True
            self.last_file = self._files.held(self.ref)
        for ref in self.refs.values():
            self._files.forget(ref)


def _epoch_problem(
    epoch: LeaderEpoch, before: LeaderEpoch, behind: LeaderEpoch, epoch_max: LeaderEpoch
) -> str:
    # A damaged next batch proves nothing about this one.
    most = behind if before <= behind <= epoch_max else epoch_max
    return "" if before <= epoch <= most else f"leader epoch {epoch}, expected {before} to {most}"


class _BadIndex(Exception):
    """An index entry that the log contradicts."""


def hash_text(text: str) -> int:
    """A small hash that is the same in every process, unlike `hash`."""
    value = 0
    for character in text.encode():
        value = (value * 31 + character) & 0x7FFFFFFF
    return value
