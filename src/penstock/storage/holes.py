"""Holes: damaged or missing ranges of a log. Finds them, and replays a log across them.

A hole is a range of offsets that was once on disk and can no longer be read. There are three kinds:

    damaged      bytes that are not a sound batch, followed by sound ones   found by the CRC, inside a segment
    missing      a segment file that is missing, empty or truncated         found by the checkpoint, between segments
    lost tail    the log ends before the recovery point                     found by the checkpoint, at the end

A gap between offsets is not a hole: compaction leaves gaps, and retention removes segments from the front. So the
checkpoint lists, for each log, every segment below the recovery point and its size (`Extent`). Before any file is
changed, retention saves the new log start, truncation lowers the recovery point, and compaction removes its segments
from the checkpoint. A segment that is missing nevertheless was lost.

Markers in a hole are unknown: see `producers`. Readers and followers are served up to a hole and not across it, so
that no replica takes it for a gap.
"""

from collections.abc import Callable, Collection, Container, Iterator, Sequence
from typing import NamedTuple

from penstock.base.ids import Offset
from penstock.records import RecordBatch
from penstock.storage.checkpoints import Extent, Hole, RecoveryPoint
from penstock.storage.errors import CorruptLog
from penstock.storage.producers import InDoubt, Producers
from penstock.storage.scan import next_sound, scan_batches, walk_headers
from penstock.storage.segment import Segment
from penstock.storage.snapshots import load_snapshot
from penstock.storage.txn_index import AbortedTxn
from penstock.vfs import File, Vfs

# -- what is missing ---------------------------------------------------------------------------------------


class Missing(NamedTuple):
    """What a log has lost between its segments and at its end."""

    holes: dict[Offset, Hole]
    """By base offset of the segment after each."""
    new: list[Hole]
    """Those that were not known before."""
    end: Offset | None
    """The offset that the log had reached, if it has lost its tail."""


def find_missing(
    segments: Sequence[Segment],
    extents: Sequence[Extent],
    known: Sequence[Hole],
    point: RecoveryPoint,
    log_start: Offset,
) -> Missing:
    """Compare a log's segments with those that were certainly on disk, up to a recovery point.

    A truncated segment is cut after its last whole batch. `known` are holes that an earlier start found and handled.
    """
    synced_end = point.offset
    if point.segment >= 0:
        sealed = [each for each in extents if each.base_offset < point.segment]
        extents = [*sealed, Extent(point.segment, point.position)]
    else:
        extents = extents[:-1]  # the recovery point's position in the last one is unknown
    present = {segment.base_offset: segment for segment in segments}
    lost_from: dict[Offset, Offset] = {}
    """First lost offset, by the base offset of the next segment or -1."""
    ends = [*(each.base_offset for each in extents[1:]), synced_end]
    for (base_offset, size), end in zip(extents, ends, strict=False):
        segment = present.get(base_offset)
        if end <= log_start or end > synced_end or end <= base_offset:
            continue
        if segment is not None and segment.size >= size:
            continue
        start = base_offset if segment is None else _shorten(segment)
        if start >= end:
            continue  # compaction has made it smaller, and its last batch exists
        behind = _behind(segments, base_offset, synced_end)
        lost_from.setdefault(behind, max(start, log_start))
    holes: dict[Offset, Hole] = {}
    for hole in known:
        behind = _behind(segments, hole.end - 1, synced_end)
        if hole.end > log_start and behind >= 0 and hole.start < behind:
            holes[behind] = Hole(hole.start, behind)
    new = []
    for behind, start in lost_from.items():
        if behind < 0:
            continue
        before = holes.get(behind)
        holes[behind] = Hole(start if before is None else min(start, before.start), behind)
        if holes[behind] != before:
            new.append(holes[behind])
    return Missing(holes, new, synced_end if -1 in lost_from else None)


def _behind(segments: Sequence[Segment], offset: Offset, synced_end: Offset) -> Offset:
    """Base offset of the first segment after an offset; -1 for none. An empty one counts if it was created at the end
    of the log."""
    bases = (
        each.base_offset
        for each in segments
        if each.base_offset > offset and (each.size or each.base_offset >= synced_end)
    )
    return next(bases, -1)


def _shorten(segment: Segment) -> Offset:
    """End a segment after its last whole batch; return the next offset."""
    end, size = segment.base_offset, 0
    try:
        for spot in walk_headers(segment.file(), 0, segment.size):
            end, size = spot.last_offset + 1, spot.position + spot.size
    except CorruptLog:
        segment.size = size
    return end


# -- replaying ---------------------------------------------------------------------------------------------


def replay(
    segments: Sequence[Segment],
    start: Offset,
    end: Offset,
    on_damage: Callable[[CorruptLog], None] = lambda _: None,
) -> Iterator[RecordBatch | Hole]:
    """Every batch between two offsets, and every hole. Each batch is valid until the next one."""
    for index, segment in enumerate(segments):
        behind = segments[index + 1].base_offset if index + 1 < len(segments) else end
        if index + 1 < len(segments) and behind <= start:
            continue
        if segment.base_offset >= end:
            return
        hole = segment.hole
        if hole is not None and hole.start >= start:
            yield hole
        if not segment.size:
            continue
        try:
            spot = segment.find(start)
            if spot is None:
                continue
            position = spot.position
        except CorruptLog:
            position = 0
        for event in read_on(segment, position, max(start, segment.base_offset), behind, on_damage):
            if isinstance(event, RecordBatch):
                if event.base_offset >= end:
                    return
                if event.base_offset >= start:
                    yield event
            elif event.end > start:
                yield event


# -- what is open at a hole --------------------------------------------------------------------------------


class OpenAtHole(NamedTuple):
    in_doubt: list[InDoubt]
    ended: list[AbortedTxn]
    """The same transactions, as entries for the index of the segment before the hole."""


def open_at(
    vfs: Vfs,
    directory: str,
    segments: Sequence[Segment],
    hole: Hole,
    snapshots: Collection[Offset],
    still_open: Collection[Offset],
    on_damage: Callable[[CorruptLog], None] = lambda _: None,
) -> OpenAtHole:
    """The transactions that were open at a hole and whose marker may have been in it.

    `still_open` are the first offsets of those open at the end of the log, by a snapshot taken when the log was whole.
    Such a snapshot does not show how a transaction ended whose marker was in the hole.
    """
    producers = producers_near(vfs, directory, segments, snapshots, hole.start)
    fold(producers, segments, hole.start, on_damage)
    ended = producers.pass_hole(hole.start, {*still_open, *open_behind(vfs, directory, hole)})
    return OpenAtHole([each for each in producers.in_doubt.values() if each.hole == hole.start], ended)


def producers_near(
    vfs: Vfs, directory: str, segments: Sequence[Segment], snapshots: Collection[Offset], at_most: Offset
) -> Producers:
    """Producer state of the latest sound snapshot at or below an offset; empty at the start of the log if there is
    none.

    A snapshot from before the first segment is not used: the deleted batches in between may have ended a transaction
    that it has as open.
    """
    first = segments[0].base_offset
    producers = Producers(first)
    for offset in sorted(snapshots, reverse=True):
        if first <= offset <= at_most and load_snapshot(vfs, directory, offset, producers):
            break
    return producers


def open_behind(vfs: Vfs, directory: str, hole: Hole) -> set[Offset]:
    """First offsets of the transactions that were still open after a hole, by a snapshot from there."""
    producers = Producers()
    if load_snapshot(vfs, directory, hole.end, producers):
        return set(producers.ongoing) - set(producers.in_doubt)
    return set()


def fold(
    producers: Producers,
    segments: Sequence[Segment],
    end: Offset,
    on_damage: Callable[[CorruptLog], None] = lambda _: None,
    still_open: Callable[[Hole], Container[Offset]] = lambda _: (),
) -> list[AbortedTxn]:
    """Replay the log up to an offset, and return the transactions that it aborts. Transactions that are open at a hole
    become in doubt, except those in `still_open`."""
    found: list[AbortedTxn] = []
    for each in replay(segments, producers.end_offset, end, on_damage):
        if isinstance(each, Hole):
            found += producers.pass_hole(each.start, still_open(each))
        elif (aborted := producers.apply(each)) is not None:
            found.append(aborted)
    producers.end_offset = end
    return found


def read_on(
    segment: Segment,
    position: int,
    offset: Offset,
    behind: Offset,
    on_damage: Callable[[CorruptLog], None],
) -> Iterator[RecordBatch | Hole]:
    """The batches of a segment from a position on, and the damage between them. `offset` is the first expected one,
    `behind` the base offset of the next segment."""
    file, size, floor = segment.file(), segment.size, segment.base_offset
    while position < size:
        try:
            for at, batch in scan_batches(file, position, size):
                if at in segment.damaged:  # its length may be damaged
                    raise CorruptLog(file.path, at, segment.damaged[at])
                check_batch(file, at, batch, floor)
                yield batch
                position, floor = at + batch.size, batch.next_offset
                offset = max(offset, floor)
        except CorruptLog as error:
            on_damage(error)
            sound = next_sound(file, error.position + 1, size, floor)
            position = size if sound is None else sound
            end = behind if sound is None else int.from_bytes(file.pread(8, sound), "big", signed=True)
            yield Hole(offset, max(end, offset + 1))


def check_batch(file: File, position: int, batch: RecordBatch, offset: Offset) -> None:
    """Raise `CorruptLog` if a batch goes back in offsets or has a wrong CRC."""
    if batch.base_offset < offset:
        raise CorruptLog(file.path, position, f"offset {batch.base_offset}, expected {offset} or more")
    if not batch.crc_valid():
        raise CorruptLog(file.path, position, "CRC mismatch")
