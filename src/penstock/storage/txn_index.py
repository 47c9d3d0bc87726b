"""The transaction index of one segment: the aborted transactions that read_committed consumers skip.

Entries are 34 bytes, in the order of their abort markers: int16 version 0, int64 producer id, int64 first
offset of the transaction, int64 offset of its marker, int64 last stable offset when the marker was written.
The last bounds a search: a transaction aborted later cannot have begun before it.

Kafka's format has no checksum, and a missing or damaged entry would expose aborted records. So `checkpoint.json` has a
checksum (`FileSum`), and a file that does not match it is rebuilt from the log.
"""

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from penstock.base.ids import Offset, ProducerId
from penstock.records.checksum import crc32c
from penstock.storage.errors import BadCheckpoint
from penstock.storage.open_files import FileRef, OpenFiles

_ENTRY = Struct(">hqqqq")


class AbortedTxn(NamedTuple):
    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    """Offset of the abort marker."""
    last_stable_offset: Offset

    def encode(self) -> bytes:
        return _ENTRY.pack(0, *self)


class FileSum(NamedTuple):
    """Size and checksum of the start of a file."""

    size: int
    crc: int
    """CRC-32C of the first `size` bytes."""

    def fits(self, data: bytes) -> bool:
        return len(data) >= self.size and crc32c(data[: self.size]) == self.crc


class TxnIndex:
    """In memory while its segment is active, on disk once sealed, as the other indexes.

    A sealed segment always has the file, empty if nothing was aborted, so a missing file is detected, and rebuilt
    before committed records are read past it. (Kafka leaves an empty one out.)
    """

    __slots__ = ("_entries", "_files", "_is_lost", "_is_written", "ref", "sum")

    def __init__(self, files: OpenFiles, ref: FileRef) -> None:
        self._files = files
        self.ref = ref
        self._entries: list[AbortedTxn] | None = None
        self._is_written = False
        self._is_lost = False
        """Earlier entries are unknown: nothing is returned or written until they are rebuilt from the log
        (`restore`)."""
        self.sum: FileSum | None = None
        """Checksum of the file as last written, or as read if that was unknown; None if empty. The file may have grown
        since."""

    def start(self, entries: Iterable[AbortedTxn] = ()) -> None:
        self._entries = list(entries)
        self._is_written = False
        self._is_lost = False

    def load(self, *, below: Offset, is_empty: bool = False) -> None:
        """Load the entries whose marker is below an offset.

        With `is_empty` the file is known to exist and to be empty.
        """
        if is_empty and self.sum is None:
            self.start()
            self._is_written = True
        else:
            self.take(self, below=below)

    def take(self, other: "TxnIndex", *, below: Offset) -> None:
        """Start with the entries of another index whose marker is below an offset."""
        try:
            self.start(entry for entry in other.entries() if entry.last_offset < below)
        except BadCheckpoint:
            self.start()
            self._is_lost = True

    def restore(self, entries: Iterable[AbortedTxn]) -> None:
        """Set the earlier entries, rebuilt from the log, before those appended since."""
        self.start(_in_order((*entries, *(self._entries or ()))))

    def add(self, entries: Iterable[AbortedTxn]) -> None:
        """Add transactions that end at a hole, anywhere in the segment."""
        known = list(self.entries())
        added = [entry for entry in entries if entry not in known]
        if added:
            self.start(_in_order((*known, *added)))

    def append(self, aborted: AbortedTxn) -> None:
        assert self._entries is not None
        self._entries.append(aborted)
        self._is_written = False

    @property
    def is_lost(self) -> bool:
        """Whether earlier entries are unknown, on disk or in memory."""
        return self._is_lost

    @property
    def is_partial(self) -> bool:
        """Whether it has later entries but not the earlier ones."""
        return self._is_lost and bool(self._entries)

    def entries(self) -> list[AbortedTxn]:
        entries = self._entries  # once: another thread may release them
        if self._is_lost:
            raise BadCheckpoint(f"{self.ref.path}: missing or damaged")
        if entries is not None:
            return list(entries)
        try:
            file = self._files.open(self.ref)
        except FileNotFoundError as error:
            raise BadCheckpoint(f"{self.ref.path}: missing") from error
        data = file.pread(file.size(), 0)
        if self.sum is not None and not self.sum.fits(data):
            raise BadCheckpoint(f"{self.ref.path}: its first {self.sum.size} bytes are not what was written")
        found = decode_aborted(data, self.ref.path)
        if self.sum is None and data:
            self.sum = FileSum(len(data), crc32c(data))
        return found

    @property
    def is_saved(self) -> bool:
        """Whether the file has all entries; not whether it is synced."""
        return self._entries is None or self._is_written or self._is_lost

    def write(self) -> bool:
        """Write entries that the file lacks; True if it changed. Not synced."""
        if self._entries is None or self.is_saved:
            return False
        file = self._files.open(self.ref, create=True)
        data = b"".join(entry.encode() for entry in self._entries)
        has_changed = bool(data) or file.size() > 0
        if has_changed:
            file.truncate(len(data))
        if data:
            file.pwrite([data], 0)
        self.sum = FileSum(len(data), crc32c(data)) if data else None
        self._is_written = True
        return has_changed

    def doubt(self) -> None:
        """Rewrite the file at the next save: a sync of it failed, so its contents are unknown."""
        if self._entries is None:
            self.load(below=2**63 - 1)
        self._is_written = False

    def release(self) -> None:
        """Drop the entries from memory; the file must be up to date."""
        self._entries = None


def _in_order(entries: Iterable[AbortedTxn]) -> Iterable[AbortedTxn]:
    """Sort by marker; of several entries of a transaction the last one counts."""
    by_marker = {(entry.last_offset, entry.producer_id): entry for entry in entries}
    return (by_marker[each] for each in sorted(by_marker))


def decode_aborted(data: bytes, path: str) -> list[AbortedTxn]:
    if len(data) % _ENTRY.size:
        raise BadCheckpoint(f"{path}: {len(data)} bytes, expected a multiple of {_ENTRY.size}")
    entries: list[AbortedTxn] = []
    last_offset = last_stable = -1
    for version, *fields in _ENTRY.iter_unpack(data):
        entry = AbortedTxn(*fields)
        if version != 0:
            raise BadCheckpoint(f"{path}: entry {len(entries)} has version {version}, expected 0")
        # Several may end at one hole, where their markers are unknown.
        if not last_offset <= entry.last_offset or entry.first_offset >= entry.last_offset:
            raise BadCheckpoint(f"{path}: entry {len(entries)} ends at {entry.last_offset}, out of order")
        if not last_stable <= entry.last_stable_offset <= entry.last_offset + 1:
            raise BadCheckpoint(
                f"{path}: entry {len(entries)} has last stable offset {entry.last_stable_offset}, "
                f"expected {last_stable} to {entry.last_offset + 1}"
            )
        last_offset, last_stable = entry.last_offset, entry.last_stable_offset
        entries.append(entry)
    return entries
