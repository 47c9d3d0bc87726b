"""Cuts received bytes into lines and counted payloads.

    TOPIC orders k 5\\n hello \\n ACK\\n ...
    `------line-----'  `take'   `line'

Only the incomplete line or payload is kept. The length of a line is bounded; the caller checks the length of a payload
before it takes it, and skips a payload that is too long.
"""

LINE_BYTES_MAX = 8 * 1024
"""Including the line end. The longest part of a line is a key."""


class LineTooLong(Exception):
    """The line has no end within `LINE_BYTES_MAX`, so that the start of the next command is not known."""


class Framer:
    __slots__ = ("_at", "_data", "_gathered", "_to_skip", "_wanted")

    def __init__(self) -> None:
        self._data = b""
        self._at = 0
        """Everything before this index has been returned."""
        self._gathered: bytearray | None = None
        """The received part of a payload, instead of `_data`: it grows without copies."""
        self._wanted = 0
        self._to_skip = 0

    def feed(self, data: memoryview) -> None:
        if self._to_skip:
            skipped = min(self._to_skip, len(data))
            self._to_skip -= skipped
            data = data[skipped:]
        if self._gathered is not None:
            self._gathered += data
            if len(self._gathered) >= self._wanted:
                self._data, self._at, self._gathered = bytes(self._gathered), 0, None
        elif self._at == len(self._data):
            self._data, self._at = bytes(data), 0
        else:
            self._data, self._at = self._data[self._at :] + data, 0

    @property
    def is_midway(self) -> bool:
        """Whether a part of the next line or payload has arrived."""
        return bool(self._gathered) or self._to_skip > 0 or self._at < len(self._data)

    @property
    def kept_bytes(self) -> int:
        return len(self._data) - self._at + len(self._gathered or b"")

    def line(self) -> bytes | None:
        """The next line without its end; None until it is complete."""
        data, at = self._data, self._at
        end = data.find(b"\n", at, at + LINE_BYTES_MAX)
        if end < 0:
            if len(data) - at >= LINE_BYTES_MAX:
                raise LineTooLong
            self._data, self._at = data[at:], 0  # an idle client holds no buffer
            return None
        self._at = end + 1
        return data[at : end - 1] if end > at and data[end - 1] == 13 else data[at:end]

    def take(self, count: int) -> bytes | None:
        """The next `count` bytes; None until they have arrived. The caller then asks for the same count again."""
        if self._gathered is not None:
            return None
        at = self._at
        end = at + count
        if end > len(self._data):
            self._gathered, self._wanted = bytearray(self._data[at:]), count
            self._data, self._at = b"", 0
            return None
        self._at = end
        return self._data[at:end]

    def skip(self, count: int) -> None:
        """Drop the next `count` bytes, whether or not they have arrived."""
        skipped = min(count, len(self._data) - self._at)
        self._at += skipped
        self._to_skip = count - skipped
