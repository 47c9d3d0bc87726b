"""Sparse indexes of one segment: offset to position, and timestamp to offset.

Both are sorted arrays of fixed-size big-endian entries, an entry about every `index.interval.bytes` of log:

    .index      8 bytes: int32 last offset of a batch, relative to the segment's base; int32 its position
    .timeindex 12 bytes: int64 largest timestamp so far; int32 relative last offset of the batch that has it

Entries have no checksum: each is checked against its batch when it is used, and a wrong one causes the index to be
rebuilt from the log (`Segment`).

The active segment's entries are in memory and are written at a checkpoint or when the segment is sealed: entries lost
in a crash are past the recovery point, and recovery rebuilds them. A sealed segment's entries stay on disk and are
searched there, so that 10,000 segments cost no memory.
"""

from bisect import bisect_right
from struct import Struct
from typing import ClassVar, Generic, NamedTuple, TypeVar

from penstock.base.ids import NO_TIMESTAMP, Offset, TimestampMs
from penstock.storage.errors import BadCheckpoint
from penstock.storage.open_files import FileRef, OpenFiles
from penstock.storage.scan import RELATIVE_OFFSET_MAX

_BLOCK_BYTES = 4096
"""A binary search on disk ends with one read of this size, rounded down to whole entries."""


class OffsetEntry(NamedTuple):
    offset: Offset
    position: int


class TimeEntry(NamedTuple):
    timestamp: TimestampMs
    offset: Offset


Entry = TypeVar("Entry", OffsetEntry, TimeEntry)


class _SparseIndex(Generic[Entry]):
    """Common part of both indexes: entries in memory while active, on disk once sealed."""

    _ENTRY: ClassVar[Struct]

    __slots__ = (
        "_entries",
        "_files",
        "_is_exact",
        "_last_key",
        "_sealed_bytes",
        "_written",
        "base_offset",
        "ref",
    )

    def __init__(self, files: OpenFiles, ref: FileRef, base_offset: Offset) -> None:
        self._files = files
        self.ref = ref
        self.base_offset = base_offset
        self._entries: bytearray | None = None
        """All entries while the segment is active; None once they are only on disk."""
        self._written = 0
        """How many bytes of `_entries` are in the file."""
        self._is_exact = False
        """The file is known to exist and to have exactly these."""
        self._last_key = -1
        """First field of the last entry in memory; -1 if there is none."""
        self._sealed_bytes: int | None = None
        """Size of the file, known once it was searched on disk and is not small."""

    # -- growing, while active ------------------------------------------------------------------------

    def start(self) -> None:
        """Start empty, in memory."""
        self._entries = bytearray()
        self._written = 0
        self._is_exact = False
        self._last_key = -1

    def load(self, *, below: Offset | None = None, is_empty: bool = False) -> None:
        """Load the entries into memory to append to them; with `below`, only those that point below it.

        With `is_empty` the file is known to exist and to be empty.
        """
        data = b"" if is_empty else self._read_all()
        valid = self._valid_bytes(data, below) if data else 0
        self._entries = bytearray(data[:valid])
        self._written = valid
        self._is_exact = valid == len(data) and (is_empty or valid > 0)
        self._note_last_key()

    def _note_last_key(self) -> None:
        entries, width = self._entries, self._ENTRY.size
        self._last_key = self._ENTRY.unpack_from(entries, len(entries) - width)[0] if entries else -1

    @property
    def is_saved(self) -> bool:
        """Whether the file has all entries; not whether it is synced."""
        return self._entries is None or (self._is_exact and self._written == len(self._entries))

    def write(self) -> bool:
        """Write entries that the file lacks; True if it changed. Not synced."""
        entries = self._entries
        if entries is None or self.is_saved:
            return False
        file = self._files.open(self.ref, create=True)
        if file.size() > self._written:
            file.truncate(self._written)
        elif self._written == len(entries) and file.size() == self._written:
            self._is_exact = True
            return False
        if self._written < len(entries):
            file.pwrite([bytes(entries[self._written :])], self._written)
            self._written = len(entries)
        self._is_exact = True
        self._files.forget_small(self.ref)
        self._sealed_bytes = None
        return True

    def doubt(self) -> None:
        """Rewrite the whole file at the next save: a sync of it failed, so its contents are unknown."""
        if self._entries is None:
            self.load()
        self._written = 0
        self._is_exact = False

    def release(self) -> None:
        """Drop the entries from memory; the file must be up to date."""
        self._entries = None

    def entries_left(self, bytes_max: int) -> int:
        """How many more entries fit into the active segment's index."""
        assert self._entries is not None
        return max(0, bytes_max - len(self._entries)) // self._ENTRY.size

    # -- reading --------------------------------------------------------------------------------------

    def size_bytes(self) -> int:
        entries = self._entries  # once: another thread may release them
        return len(entries) if entries is not None else self._files.open(self.ref).size()

    def entries(self) -> list[Entry]:
        entries = self._entries
        data = bytes(entries) if entries is not None else self._read_all()
        if len(data) % self._ENTRY.size:
            raise BadCheckpoint(
                f"{self.ref.path}: {len(data)} bytes, expected a multiple of {self._ENTRY.size}"
            )
        return [self._decode(*fields) for fields in self._ENTRY.iter_unpack(data)]

    @property
    def count(self) -> int:
        """Number of entries."""
        return self.size_bytes() // self._ENTRY.size

    def window(self, first: int, count: int) -> list[Entry]:
        """Entries from a number on, up to so many."""
        entries, width = self._entries, self._ENTRY.size
        start, size = first * width, count * width
        data = (
            entries[start : start + size]
            if entries is not None
            else self._files.open(self.ref).pread(size, start)
        )
        whole = len(data) // width * width
        return [self._decode(*fields) for fields in self._ENTRY.iter_unpack(data[:whole])]

    def sampled(self, count_max: int) -> list[Entry]:
        """About so many entries at even distances, of those in memory; none if they are only on disk."""
        entries, width = self._entries or b"", self._ENTRY.size
        step = max(1, len(entries) // width // max(count_max, 1)) * width
        return [self._decode(*self._ENTRY.unpack_from(entries, at)) for at in range(0, len(entries), step)]

    def last(self) -> Entry | None:
        entries, width = self._entries, self._ENTRY.size
        if entries is not None:
            return self._decode(*self._ENTRY.unpack(entries[-width:])) if entries else None
        file = self._files.open(self.ref)
        size = file.size() // width * width
        return self._decode(*self._ENTRY.unpack(file.pread(width, size - width))) if size else None

    def _floor(self, key: int, field: int = 0) -> Entry | None:
        """The last entry whose first field, or another increasing field, is at most key."""
        unpack_from, width = self._ENTRY.unpack_from, self._ENTRY.size
        entries = self._entries
        data = entries if entries is not None else self._block_around(key, field)
        after = bisect_right(
            range(len(data) // width), key, key=lambda i: unpack_from(data, i * width)[field]
        )
        return self._decode(*unpack_from(data, (after - 1) * width)) if after else None

    def _block_around(self, key: int, field: int = 0) -> bytes:
        """The block of entries on disk that has key's floor: a binary search over blocks, then one read."""
        if self._sealed_bytes is None:
            small = self._files.read_small(self.ref)
            if small is not None:
                return small
            self._sealed_bytes = self._files.open(self.ref).size()
        file = self._files.open(self.ref)
        width, unpack = self._ENTRY.size, self._ENTRY.unpack
        block = _BLOCK_BYTES // width * width
        low, high = 0, (self._sealed_bytes - 1) // block  # the block sought is in low..high
        while low < high:
            middle = (low + high + 1) // 2
            first = file.pread(width, middle * block)
            if len(first) == width and unpack(first)[field] <= key:
                low = middle
            else:
                high = middle - 1
        return file.pread(block, low * block)

    def _read_all(self) -> bytes:
        try:
            file = self._files.open(self.ref)
        except FileNotFoundError:
            return b""
        return file.pread(file.size(), 0)

    def _valid_bytes(self, data: bytes | bytearray, below: Offset | None) -> int:
        """How much of data is a strictly increasing run of entries, for batches that end before `below`."""
        raise NotImplementedError

    def _decode(self, first: int, second: int) -> Entry:
        raise NotImplementedError


class OffsetIndex(_SparseIndex[OffsetEntry]):
    _ENTRY = Struct(">ii")
    __slots__ = ()

    def append(self, offset: Offset, position: int) -> None:
        assert self._entries is not None
        self._entries += self._ENTRY.pack(offset - self.base_offset, position)

    def lookup(self, offset: Offset) -> OffsetEntry:
        """The last indexed batch that ends at or before offset; the segment's start if there is none.

        entries (40, 0) (90, 5000)   lookup(39) -> start    lookup(40) -> (40, 0)    lookup(200) -> (90, 5000)
        """
        return self._floor(offset - self.base_offset) or OffsetEntry(self.base_offset, 0)

    def at_position(self, position: int) -> OffsetEntry:
        """The last indexed batch that begins at or before a position; the segment's start if there is none."""
        return self._floor(position, 1) or OffsetEntry(self.base_offset, 0)

    def _valid_bytes(self, data: bytes | bytearray, below: Offset | None) -> int:
        valid, last_relative, last_position = 0, -1, -1
        limit = RELATIVE_OFFSET_MAX if below is None else below - self.base_offset - 1
        for relative, position in self._ENTRY.iter_unpack(data[: len(data) // 8 * 8]):
            if not (last_relative < relative <= limit and position > last_position):
                break
            valid, last_relative, last_position = valid + 8, relative, position
        return valid

    def _decode(self, first: int, second: int) -> OffsetEntry:
        return OffsetEntry(self.base_offset + first, second)


class TimeIndex(_SparseIndex[TimeEntry]):
    _ENTRY = Struct(">qi")
    __slots__ = ()

    def append(self, timestamp: TimestampMs, offset: Offset) -> None:
        """Add an entry if its timestamp is larger than the last one."""
        assert self._entries is not None
        if timestamp > self._last_key:
            self._entries += self._ENTRY.pack(timestamp, offset - self.base_offset)
            self._last_key = timestamp

    def lookup(self, timestamp: TimestampMs) -> TimeEntry | None:
        """The last entry at or before timestamp: all records before its offset are no younger than it."""
        return self._floor(timestamp)

    def _valid_bytes(self, data: bytes | bytearray, below: Offset | None) -> int:
        valid, last_timestamp, last_relative = 0, NO_TIMESTAMP, -1
        limit = RELATIVE_OFFSET_MAX if below is None else below - self.base_offset - 1
        for timestamp, relative in self._ENTRY.iter_unpack(data[: len(data) // 12 * 12]):
            if not (timestamp > last_timestamp and last_relative < relative <= limit):
                break
            valid, last_timestamp, last_relative = valid + 12, timestamp, relative
        return valid

    def _decode(self, first: int, second: int) -> TimeEntry:
        return TimeEntry(first, self.base_offset + second)
