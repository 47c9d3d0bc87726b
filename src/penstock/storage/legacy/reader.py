"""Reads the records of one partition of an older system, also from damaged files.

    [ 0 ][ 1 ][ 2 ][#3#][ 4 ]      damaged: stops at 3 with an error, or skips and reports it
    [ 0 ][ 1 ][ 2 ][#3#]           a torn end: ends before 3, and reports the torn bytes
    [ 0 ][ 1 ][ 2 ][ 3               the same

Bytes that are not a sound record are damage if a sound record follows, and a torn end if none does. The search for the
next sound record starts at the end of the bad one, if its lengths are consistent, otherwise at its second byte, and
continues into the next files. A sound record decodes, and its offset is higher than the one before.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from penstock.base.ids import Offset
from penstock.records import Record
from penstock.storage.scan import RELATIVE_OFFSET_MAX
from penstock.vfs import File, Vfs

from .codec import INT32, LENGTH_BYTES, OFFSET_MAX, RECORD_BYTES_MAX, BadRecord, Codec
from .errors import CorruptSource, OffsetsOutOfOrder
from .layout import SourceFile

STEP_BYTES = 1 << 20
"""Bytes read at once, unless a single record is longer."""

JUMP_MAX = RELATIVE_OFFSET_MAX
"""Largest gap between the offsets of two records. A segment spans no more; a larger gap is a flipped bit."""


class Damage(NamedTuple):
    """Bytes that were not imported."""

    path: str
    position: int
    size: int
    problem: str

    def __str__(self) -> str:
        return f"{self.path} at position {self.position}: {self.problem} ({self.size} bytes)"


class _Broken(Exception):
    """The bytes at the current position are not a sound record."""

    def __init__(self, position: int, problem: str, search_from: int, *, is_order: bool = False) -> None:
        super().__init__(problem)
        self.position = position
        self.problem = problem
        self.search_from = search_from
        self.is_order = is_order
        """The record itself is sound, so it is not a torn end."""


class PartitionReader:
    """An iterable over the records; iterate once."""

    def __init__(
        self,
        vfs: Vfs,
        files: Sequence[SourceFile],
        codec: Codec,
        *,
        skip_corrupt: bool = False,
        on_read: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.start: Offset = files[0].base_offset if files else 0
        """Log start: records below were deleted."""
        self.next_offset: Offset = self.start
        """Offset after the last record read."""
        self.cut: list[Damage] = []
        """The torn end, in one file or several."""
        self.skipped: list[Damage] = []
        self._vfs = vfs
        self._files = files
        self._codec = codec
        self._skip_corrupt = skip_corrupt
        self._on_read = on_read

    @property
    def end(self) -> Offset:
        """The next offset that the older system would assign: an empty last segment is named by it."""
        return max(self.next_offset, self._files[-1].base_offset) if self._files else 0

    def __iter__(self) -> Iterator[Record]:
        index = position = 0
        while index < len(self._files):
            source = self._files[index]
            if source.base_offset > self.next_offset + JUMP_MAX:
                raise OffsetsOutOfOrder(
                    source.path,
                    0,
                    f"the file begins at offset {source.base_offset}, expected at most "
                    f"{self.next_offset + JUMP_MAX}: the records before it end at {self.next_offset}",
                )
            file = self._vfs.open(source.path)
            try:
                yield from self._records(file, position, source)
                index, position = index + 1, 0
            except _Broken as broken:
                index, position = self._go_on(index, broken)
            finally:
                file.close()

    def _records(self, file: File, position: int, source: SourceFile) -> Iterator[Record]:
        """Yield the records of one file, each checked against the one before it."""
        decode, length_min = self._codec.decode, self._codec.length_min
        unpack = INT32.unpack_from
        next_offset, end = self.next_offset, source.size
        low, high = max(next_offset, source.base_offset), min(next_offset + JUMP_MAX, OFFSET_MAX)
        step, at = STEP_BYTES, 0
        try:
            while position < end:
                data = file.pread(min(step, end - position), position)
                at, filled = 0, len(data)
                while filled - at >= LENGTH_BYTES:
                    stop = at + LENGTH_BYTES + unpack(data, at)[0]
                    if stop > filled or stop < at + LENGTH_BYTES + length_min:
                        break
                    record = decode(data, at, stop)
                    offset = record[0]
                    if not low <= offset <= high:
                        problem = _order_problem(offset, low, high, source, next_offset)
                        raise _Broken(position + at, problem, position + stop, is_order=True)
                    next_offset = low = offset + 1
                    high = min(offset + JUMP_MAX, OFFSET_MAX)
                    yield record
                    at = stop
                self._on_read(at)
                position += at
                if at < filled or not filled:
                    step = self._look_ahead(data[at : at + LENGTH_BYTES], file, position, end)
                at = 0
        except BadRecord as bad:
            search_from = position + (stop if bad.is_framed else at + 1)
            raise _Broken(position + at, bad.problem, search_from) from None
        finally:
            self._on_read(at)
            self.next_offset = next_offset

    def _look_ahead(self, head: bytes, file: File, position: int, end: int) -> int:
        """Return how much to read for a record that is incomplete in the buffer; raise `_Broken` if the file ends."""
        left = end - position
        if left < LENGTH_BYTES or not head:
            raise _Broken(position, f"{left} bytes, expected a record", end)
        if len(head) < LENGTH_BYTES:
            return STEP_BYTES
        length: int = INT32.unpack(head)[0]
        try:
            _check_length(length, self._codec.length_min)
        except BadRecord as bad:
            raise _Broken(position, bad.problem, position + 1) from None
        if length > left - LENGTH_BYTES:
            is_torn = self._codec.is_torn(file.pread(min(left, STEP_BYTES), position), length)
            problem = f"a record of {LENGTH_BYTES + length} bytes, {left} are there"
            raise _Broken(position, problem, end if is_torn else position + 1)
        return max(STEP_BYTES, LENGTH_BYTES + length)

    # -- damage ----------------------------------------------------------------------------------------

    def _go_on(self, index: int, broken: _Broken) -> tuple[int, int]:
        """Return the file and position of the next sound record, or the end of the last file if there is none."""
        path = self._files[index].path
        if broken.is_order and not self._skip_corrupt:
            raise OffsetsOutOfOrder(path, broken.position, broken.problem)
        sound = self._next_sound(index, broken.search_from)
        if sound is None and not broken.is_order:
            self._note(self.cut, index, broken, (len(self._files), 0))
        elif self._skip_corrupt:
            self._note(self.skipped, index, broken, sound or (len(self._files), 0))
        else:
            raise CorruptSource(path, broken.position, f"{broken.problem}; sound records follow")
        return sound or (len(self._files), 0)

    def _note(self, notes: list[Damage], index: int, broken: _Broken, upto: tuple[int, int]) -> None:
        start, problem = broken.position, broken.problem
        while index < len(self._files) and (index, start) < upto:
            source = self._files[index]
            end = upto[1] if index == upto[0] else source.size
            if end > start:
                notes.append(Damage(source.path, start, end - start, problem))
                self._on_read(end - start)
            index, start, problem = index + 1, 0, "follows what is damaged, and has no sound record here"

    def _next_sound(self, index: int, position: int) -> tuple[int, int] | None:
        for later in range(index, len(self._files)):
            source = self._files[later]
            file = self._vfs.open(source.path)
            try:
                found = self._search(file, position, source)
            finally:
                file.close()
            if found is not None:
                return later, found
            position = 0
        return None

    def _search(self, file: File, position: int, source: SourceFile) -> int | None:
        """Return the position of the first sound record at or after a position."""
        while position < source.size:
            if self._is_sound(file, position, source):
                return position
            overlap = self._codec.probe_bytes - 1
            block = file.pread(min(STEP_BYTES + overlap, source.size - position), position)
            for at in self._codec.candidates(block):
                if self._is_sound(file, position + at, source):
                    return position + at
            position += STEP_BYTES
        return None

    def _is_sound(self, file: File, position: int, source: SourceFile) -> bool:
        head = file.pread(LENGTH_BYTES, position)
        if len(head) < LENGTH_BYTES:
            return False
        (length,) = INT32.unpack(head)
        try:
            _check_length(length, self._codec.length_min)
            data = file.pread(LENGTH_BYTES + length, position) if length <= source.size - position else b""
            if len(data) < LENGTH_BYTES + length:
                return False
            offset = self._codec.decode(data, 0, len(data)).offset
        except BadRecord:
            return False
        low = max(self.next_offset, source.base_offset)
        return low <= offset <= min(self.next_offset + JUMP_MAX, OFFSET_MAX)


def _check_length(length: int, length_min: int) -> None:
    if not length_min <= length <= RECORD_BYTES_MAX:
        raise BadRecord(f"length {length}, expected {length_min} to {RECORD_BYTES_MAX}")


def _order_problem(offset: Offset, low: Offset, high: Offset, source: SourceFile, next_offset: Offset) -> str:
    if offset > high:
        return f"offset {offset} comes after {next_offset - 1}, expected at most {high}"
    if low > next_offset or next_offset == source.base_offset:
        return f"offset {offset} in a file that begins at {source.base_offset}"
    return f"offset {offset} comes after {next_offset - 1}: offsets must increase"
