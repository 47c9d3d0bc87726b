"""The transaction index of one segment: which aborted transactions a reader must skip.

Entries are 34 bytes, in the order of their abort markers: int16 version 0, int64 producer id, int64 first
offset of the transaction, int64 offset of its marker, int64 last stable offset when the marker was written.
The last bounds a search: a transaction aborted later cannot have begun before it.
"""

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from penstock.base.ids import Offset, ProducerId
from penstock.storage.errors import BadCheckpoint
from penstock.storage.openfiles import FileRef, OpenFiles

_ENTRY = Struct(">hqqqq")


class AbortedTxn(NamedTuple):
    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    """The abort marker's own offset."""
    last_stable_offset: Offset

    def encode(self) -> bytes:
        return _ENTRY.pack(0, *self)


class TxnIndex:
    """In memory while its segment is active, in its file once sealed; the same life as the other indexes.

    A sealed segment always has the file, an empty one where nothing was aborted: so a missing file is known
    to be lost, and is rebuilt before anyone reads committed data past it. (Kafka leaves an empty one out.)
    """

    __slots__ = ("_entries", "_files", "_is_written", "ref")

    def __init__(self, files: OpenFiles, ref: FileRef) -> None:
        self._files = files
        self.ref = ref
        self._entries: list[AbortedTxn] | None = None
        self._is_written = False

    def start(self, entries: Iterable[AbortedTxn] = ()) -> None:
        self._entries = list(entries)
        self._is_written = False

    def load(self, *, below: Offset) -> None:
        """Bring the entries into memory whose marker lies below an offset; of a lost file, none."""
        try:
            self.start(entry for entry in self.entries() if entry.last_offset < below)
        except BadCheckpoint:
            self.start()

    def append(self, aborted: AbortedTxn) -> None:
        assert self._entries is not None
        self._entries.append(aborted)
        self._is_written = False

    def truncate(self, offset: Offset) -> None:
        """Forget aborts whose marker lies at or after offset."""
        self.load(below=offset)

    def entries(self) -> list[AbortedTxn]:
        if self._entries is not None:
            return list(self._entries)
        try:
            file = self._files.open(self.ref)
        except FileNotFoundError as error:
            raise BadCheckpoint(f"{self.ref.path}: missing") from error
        return decode_aborted(file.pread(file.size(), 0), self.ref.path)

    def write(self) -> bool:
        """Bring the file up to what is in memory; True if it had to change. Not synced."""
        if self._entries is None or self._is_written:
            return False
        file = self._files.open(self.ref, create=True)
        data = b"".join(entry.encode() for entry in self._entries)
        file.truncate(len(data))
        if data:
            file.pwrite([data], 0)
        self._is_written = True
        return True

    def release(self) -> None:
        """Leave the entries to the file, which must be up to date."""
        self._entries = None


def decode_aborted(data: bytes, path: str) -> list[AbortedTxn]:
    if len(data) % _ENTRY.size:
        raise BadCheckpoint(f"{path}: {len(data)} bytes, expected a multiple of {_ENTRY.size}")
    entries: list[AbortedTxn] = []
    last_offset = -1
    for version, *fields in _ENTRY.iter_unpack(data):
        entry = AbortedTxn(*fields)
        if version != 0:
            raise BadCheckpoint(f"{path}: entry {len(entries)} has version {version}, expected 0")
        if not last_offset < entry.last_offset or entry.first_offset > entry.last_offset:
            raise BadCheckpoint(f"{path}: entry {len(entries)} ends at {entry.last_offset}, out of order")
        last_offset = entry.last_offset
        entries.append(entry)
    return entries
