"""Checks the three indexes of a segment against its batches, in one pass.

Each check reads its file once, front to back, alongside the batches, and holds one entry at a time, so memory is
bounded. An entry is checked when its batch is read.
"""

from collections.abc import Iterator
from struct import Struct
from typing import ClassVar, NamedTuple

from penstock.base.ids import NO_TIMESTAMP, Offset
from penstock.storage.findings import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    TXN_ENTRY,
    Finding,
    RawEntry,
    is_zero_from,
    read_entries,
)
from penstock.storage.scan import BatchPosition
from penstock.storage.txn_index import AbortedTxn
from penstock.vfs import File, Vfs


class _EntryCheck:
    """Common part: the current entry, checked for order when it is read."""

    LAYOUT: ClassVar[Struct]

    def __init__(self, vfs: Vfs, path: str, base_offset: Offset) -> None:
        self.path = path
        self.base_offset = base_offset
        self.file: File | None = None
        self.size = 0
        try:
            self.file = vfs.open(path)
            self.size = self.file.size()
        except FileNotFoundError:
            pass
        self._entries = read_entries(self.file, self.size, self.LAYOUT) if self.file else iter(())
        self.last: RawEntry | None = None
        """The last entry that was in order."""
        self.entry: RawEntry | None = None
        """The entry to check next."""

    @property
    def is_missing(self) -> bool:
        return self.file is None

    def begin(self) -> Iterator[Finding]:
        if self.size % self.LAYOUT.size:
            yield self._error(
                self.size // self.LAYOUT.size * self.LAYOUT.size,
                "the file ends inside an entry",
                f"{self.size} bytes",
                f"a multiple of {self.LAYOUT.size}",
            )
        yield from self._next()

    def _next(self) -> Iterator[Finding]:
        """Read the next entry that is in order; report the others."""
        self.last, self.entry = self.entry or self.last, None
        for entry in self._entries:
            if not any(entry.fields) and self.file and is_zero_from(self.file, entry.position, self.size):
                yield Finding(
                    "note",
                    self.path,
                    entry.position,
                    f"{self.size - entry.position} bytes of zeros at the end: preallocated and not trimmed",
                )
                self._entries = iter(())
                return
            wrong = self._disorder(entry)
            if wrong is None:
                self.entry = entry
                return
            yield self._error(entry.position, "the entry is out of order", self.show(entry), wrong)

    def _disorder(self, entry: RawEntry) -> str | None:
        """The expected values of an entry that is out of order."""
        raise NotImplementedError

    def show(self, entry: RawEntry) -> str:
        raise NotImplementedError

    def _error(self, position: int, problem: str, found: str, expected: str) -> Finding:
        return Finding("error", self.path, position, problem, found, expected)

    def _wrong(self, problem: str, expected: str) -> Finding:
        """A finding about the current entry."""
        assert self.entry is not None
        return self._error(self.entry.position, problem, self.show(self.entry), expected)

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


class OffsetIndexCheck(_EntryCheck):
    """Every entry is the last offset and the position of a batch, and both increase."""

    LAYOUT = OFFSET_ENTRY

    def see(self, spot: BatchPosition) -> Iterator[Finding]:
        while self.entry is not None and self.entry.fields[1] <= spot.position:
            relative, position = self.entry.fields
            if position < spot.position:
                yield self._wrong(
                    f"no batch begins at byte {position} of the log",
                    f"the position of a batch; the next is at {spot.position}",
                )
            elif self.base_offset + relative != spot.last_offset:
                yield self._wrong(
                    "the entry does not match its batch",
                    f"offset {spot.last_offset}, the last one of the batch at {position}",
                )
            yield from self._next()

    def skip(self, end: int) -> Iterator[Finding]:
        """Skip damage up to a position: entries into it cannot be checked."""
        while self.entry is not None and self.entry.fields[1] < end:
            yield from self._next()

    def finish(self, end: int) -> Iterator[Finding]:
        while self.entry is not None:
            yield self._wrong("the entry points past the end of the log", f"a position below {end}")
            yield from self._next()

    def _disorder(self, entry: RawEntry) -> str | None:
        relative, position = entry.fields
        before = self.last.fields if self.last else (-1, -1)
        if relative > before[0] and position > before[1]:
            return None
        return f"offset {self.base_offset + before[0] + 1} and position {before[1] + 1} or more"

    def show(self, entry: RawEntry) -> str:
        return f"offset {self.base_offset + entry.fields[0]} at position {entry.fields[1]}"


class TimeIndexCheck(_EntryCheck):
    """Every entry is the largest timestamp so far, and an offset of the first batch that has it."""

    LAYOUT = TIME_ENTRY

    def __init__(self, vfs: Vfs, path: str, base_offset: Offset) -> None:
        super().__init__(vfs, path, base_offset)
        self._largest = NO_TIMESTAMP
        self._is_blind = False
        """After damage the largest timestamp is unknown: only order can be checked."""

    def see(self, spot: BatchPosition) -> Iterator[Finding]:
        is_largest = spot.max_timestamp > self._largest
        self._largest = max(self._largest, spot.max_timestamp)
        while self.entry is not None and self.base_offset + self.entry.fields[1] <= spot.last_offset:
            timestamp, relative = self.entry.fields
            offset = self.base_offset + relative
            fits = is_largest and offset >= spot.base_offset and timestamp == spot.max_timestamp
            if not fits and not self._is_blind:
                yield self._wrong(
                    "the entry does not match the log",
                    f"timestamp {self._largest}, the largest up to offset {spot.last_offset}, "
                    "and its first batch",
                )
            yield from self._next()

    def skip(self) -> None:
        self._is_blind = True

    def finish(self, next_offset: Offset, *, is_complete: bool) -> Iterator[Finding]:
        """`is_complete`: the segment is sealed, so the last entry must be its largest timestamp."""
        while self.entry is not None:
            if not self._is_blind:
                yield self._wrong(
                    "the entry points past the end of the log", f"an offset below {next_offset}"
                )
            yield from self._next()
        found = self.last.fields[0] if self.last else NO_TIMESTAMP
        if is_complete and not self._is_blind and not self.is_missing and found < self._largest:
            yield self._error(
                self.last.position if self.last else 0,
                "the last entry is not the segment's largest timestamp",
                f"timestamp {found}" if self.last else "no entry",
                f"timestamp {self._largest}",
            )

    def _disorder(self, entry: RawEntry) -> str | None:
        timestamp, relative = entry.fields
        before = self.last.fields if self.last else (NO_TIMESTAMP, -1)
        if timestamp > before[0] and relative > before[1]:
            return None
        return f"timestamp {before[0] + 1} and offset {self.base_offset + before[1] + 1} or more"

    def show(self, entry: RawEntry) -> str:
        return f"timestamp {entry.fields[0]} at offset {self.base_offset + entry.fields[1]}"


class Marker(NamedTuple):
    """The end of a transaction in the log."""

    offset: Offset
    producer_id: int
    is_abort: bool
    aborted: AbortedTxn | None
    """The transaction by a replay of the log; None if it has no records."""
    has_records: bool
    """Whether any of its records are still in the log."""


class TxnIndexCheck(_EntryCheck):
    """The entries are the transactions that the log aborts, in the order of their markers.

    Compaction removes records and markers and leaves entries: if offsets are missing from the log, an entry may have
    an earlier first offset than the log, or a marker that was removed.
    """

    LAYOUT = TXN_ENTRY

    def see(
        self, first: Offset, last: Offset, marker: Marker | None, *, is_exact: bool, must_have: bool
    ) -> Iterator[Finding]:
        """Check a batch. `is_exact`: no offset is missing so far, so log and index must agree.

        `must_have`: a missing entry is an error, not one that is not written yet.
        """
        is_noted = False
        while self.entry is not None and self.entry.fields[3] <= last:
            if self.entry.fields[3] >= first:
                expected = self._expected(self.entry, marker, is_exact)
                if expected is not None:
                    yield self._wrong("the entry does not match the log", expected)
                is_noted = True
            yield from self._next()
        if marker is None or marker.aborted is None or is_noted:
            return
        if is_exact or marker.has_records:
            yield Finding(
                "error" if must_have else "note",
                self.path,
                None,
                "an aborted transaction is not in the index" + ("" if must_have else " yet"),
                "no file" if self.is_missing else f"no entry for offset {marker.offset}",
                _show(marker.aborted),
            )

    def skip(self, end: int) -> Iterator[Finding]:
        while self.entry is not None and self.entry.fields[3] < end:
            yield from self._next()

    def finish(self, next_offset: Offset) -> Iterator[Finding]:
        while self.entry is not None:
            if self.entry.fields[3] >= next_offset:
                yield self._wrong(
                    "the entry's marker is past the end of the segment", f"an offset below {next_offset}"
                )
            yield from self._next()

    def _expected(self, entry: RawEntry, marker: Marker | None, is_exact: bool) -> str | None:
        found = AbortedTxn(*entry.fields[1:])
        if marker is None:
            return f"an abort marker at offset {found.last_offset}"
        if not marker.is_abort:
            return f"nothing: the marker at offset {marker.offset} commits"
        if is_exact:
            if marker.aborted is None:
                return f"nothing: the transaction that ends at {marker.offset} has no records"
            return None if found == marker.aborted else _show(marker.aborted)
        begins_later = marker.aborted is not None and found.first_offset > marker.aborted.first_offset
        if found.producer_id != marker.producer_id or begins_later:
            return f"producer {marker.producer_id}" + (
                f", first offset at most {marker.aborted.first_offset}" if marker.aborted else ""
            )
        return None

    def _disorder(self, entry: RawEntry) -> str | None:
        version, _, first, marker, _ = entry.fields
        before = self.last.fields[3] if self.last else -1
        if version != 0:
            return "version 0"
        if marker < before or first > marker:  # several may end at one hole
            return f"a marker at or past {before}, and at or past the first offset"
        return None

    def show(self, entry: RawEntry) -> str:
        version = f"version {entry.fields[0]}, " if entry.fields[0] else ""
        return version + _show(AbortedTxn(*entry.fields[1:]))


def _show(aborted: AbortedTxn) -> str:
    return (
        f"producer {aborted.producer_id} from {aborted.first_offset} to its marker at {aborted.last_offset}, "
        f"last stable offset {aborted.last_stable_offset}"
    )
