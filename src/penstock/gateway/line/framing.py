"""Bytes cut into lines and counted payloads, however they arrive.

    TOPIC orders k 5\\n hello \\n ACK\\n ...
    `------line-----'  `take'   `line'

Nothing is kept but what has arrived of the next piece: a line has a bound, a payload is asked for only by who has
found its length good, and one that nobody wants is skipped without being kept.
"""

LINE_BYTES_MAX = 8 * 1024
"""With its end. A key is the longest thing in a line."""


class LineTooLong(Exception):
    """There is no end within the bound: where the next command begins cannot be known."""


class Framer:
    __slots__ = ("_at", "_data", "_gathered", "_to_skip", "_wanted")

    def __init__(self) -> None:
        self._data = b""
        self._at = 0
        """What is before it has been given out."""
        self._gathered: bytearray | None = None
        """The beginning of a payload that has not arrived whole, in place of `_data`: it grows without copies."""
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
        """A part of the next piece has arrived."""
        return bool(self._gathered) or self._to_skip > 0 or self._at < len(self._data)

    def line(self) -> bytes | None:
        """The next line without its end; None while that has not arrived."""
        data, at = self._data, self._at
        end = data.find(b"\n", at, at + LINE_BYTES_MAX)
        if end < 0:
            if len(data) - at >= LINE_BYTES_MAX:
                raise LineTooLong
            self._data, self._at = data[at:], 0  # a client that says nothing for long holds no buffer
            return None
        self._at = end + 1
        return data[at : end - 1] if end > at and data[end - 1] == 13 else data[at:end]

    def take(self, count: int) -> bytes | None:
        """The next so many bytes; None while they have not all arrived: ask for the same again."""
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
        """Have the next so many bytes forgotten, whether or not they have arrived."""
        skipped = min(count, len(self._data) - self._at)
        self._at += skipped
        self._to_skip = count - skipped
