"""Record batches of a Fetch response that are read from the segment while they are sent.

A Fetch response may have 55 MB. Reading all of it in advance would hold that much memory for every client that does
not read. An `UnreadRecords` fixes the bytes of the response and reads them in steps.

The bytes do not change meanwhile. A segment that is deleted or compacted keeps its file open (`Segment.last_file`).
Truncation changes the file in place; then `take` raises, and the connection must be closed, because the length of the
response has been sent.
"""

from penstock.base.ids import Offset
from penstock.storage.errors import CorruptLog, StorageError
from penstock.storage.scan import walk_headers
from penstock.storage.segment import Segment


class UnreadRecords:
    """A byte range of a segment that starts with a batch; the last batch may be partial."""

    __slots__ = ("_end", "_position", "_segment", "_size")

    def __init__(self, segment: Segment, position: int, size: int) -> None:
        self._segment = segment
        self._position = position
        self._end = position + size
        self._size = size

    def __len__(self) -> int:
        """Total bytes, taken or not: the length in the response."""
        return self._size

    @property
    def left(self) -> int:
        """Bytes that have not been taken."""
        return self._end - self._position

    def take(self, bytes_max: int) -> bytes:
        """Read the next bytes, up to a number. Raises `StorageError` if they no longer exist."""
        data = self.peek(bytes_max)
        self._position += len(data)
        return data

    def peek(self, bytes_max: int) -> bytes:
        """Read the next bytes without taking them."""
        wanted = min(bytes_max, self.left)
        segment = self._segment
        try:
            data = self._read(wanted)
        except OSError as error:
            segment.reads_ahead = False
            raise StorageError(f"cannot read {segment.ref.path}: {error.strerror or error}") from error
        if segment.is_truncated:
            raise StorageError(f"{segment.ref.path} was truncated while it was being sent")
        if len(data) < wanted:
            segment.reads_ahead = False
            raise StorageError(
                f"{segment.ref.path} has {len(data)} bytes at {self._position}, expected {wanted}"
            )
        return data

    def _read(self, wanted: int) -> bytes:
        segment = self._segment
        while True:
            is_gone = segment.gone
            file = segment.last_file if is_gone else segment.file()
            if file is None:
                raise StorageError(f"{segment.ref.path} was deleted while it was being sent")
            data = file.pread(wanted, self._position)
            if is_gone or not segment.gone:
                return data
            # It has just left the log, and the opened file may be its replacement.

    def end_offset(self, at_most: Offset) -> Offset:
        """First offset after these batches, including a partial one; `at_most` if the index is damaged."""
        segment = self._segment
        end = at_most
        try:
            start = segment.index.at_position(self._end - 1).position
            for spot in walk_headers(segment.file(), max(start, self._position), segment.size):
                if spot.position >= self._end:
                    break
                end = spot.last_offset + 1
        except (CorruptLog, OSError):
            return at_most
        return min(end, at_most)
