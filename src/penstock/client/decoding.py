"""Decodes the batches of a fetch into records.

The first batch may begin before the requested offset: its earlier records are skipped. The last batch may be cut off:
it is fetched again. Control records are left out. For read_committed, the response lists the aborted transactions by
producer and first offset: records of that producer from there to its abort marker are left out.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from penstock.base.ids import Offset
from penstock.records import DECOMPRESSED_BYTES_MAX, ControlType, Record, iter_batches, parse_control
from penstock.wire import AbortedTransaction, Buffer


class Decoded(NamedTuple):
    records: list[Record]
    next_offset: Offset
    """The offset after the last whole batch, even if its records are left out."""
    batches: int
    """Number of whole batches; 0 if the first one did not fit into the fetch."""


def decode(
    data: Buffer | None,
    from_offset: Offset,
    aborted: Iterable[AbortedTransaction] | None,
    *,
    bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> Decoded:
    """The records from an offset on. Raises CorruptBatch if a checksum is wrong."""
    records: list[Record] = []
    next_offset, batches = from_offset, 0
    for shown, after in shown_batches(data or b"", from_offset, aborted, bytes_max):
        records += shown
        next_offset = max(next_offset, after)
        batches += 1
    return Decoded(records, next_offset, batches)


def shown_batches(
    data: Buffer,
    from_offset: Offset,
    aborted: Iterable[AbortedTransaction] | None,
    bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> Iterator[tuple[Iterable[Record], Offset]]:
    """Yield for each batch its records, decoded lazily, and the offset after the batch."""
    to_come = sorted(aborted or (), key=lambda each: each.first_offset, reverse=True)
    aborting: set[int] = set()
    for batch in iter_batches(data):
        if batch.next_offset <= from_offset:
            continue
        batch.check_crc()
        while to_come and to_come[-1].first_offset <= batch.last_offset:
            aborting.add(to_come.pop().producer_id)
        if batch.is_control:
            if batch.producer_id in aborting and _is_abort(list(batch.records())):
                aborting.discard(batch.producer_id)
            yield [], batch.next_offset
        elif batch.is_transactional and batch.producer_id in aborting:
            yield [], batch.next_offset
        else:
            records = batch.records(bytes_max)
            yield (each for each in records if each.offset >= from_offset), batch.next_offset


def _is_abort(markers: list[Record]) -> bool:
    return bool(markers) and parse_control(markers[0]).type is ControlType.ABORT
