"""Reads one committed record, whichever broker leads its partition, together with its batch.

The record is found by decoding its batch from the first record on. A batch may have hundreds of thousands, so that is
done in slices; and who needs several records of a batch gets them from one reading.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset
from penstock.base.steps import Steps
from penstock.client.decoding import shown_batches
from penstock.gateway.peer_rpc.retry import retry_while_moving
from penstock.gateway.peer_rpc.routed_partition import RoutedPartition, look_up_bounds
from penstock.gateway.shared.fair_queue import FairQueue
from penstock.gateway.shared.reading import RECORDS_A_SLICE
from penstock.handlers.support.context import Context
from penstock.records import Record, RecordBatch
from penstock.wire import AbortedTransaction


class FoundRecord(NamedTuple):
    topic: str
    partition: int
    record: Record
    batch: RecordBatch


class NoRecord(KafkaError):
    """There is no committed record at this offset; the message says why."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorCode.OFFSET_OUT_OF_RANGE)


def read_record(
    context: Context, fair_queue: FairQueue, partition: RoutedPartition, offset: Offset
) -> Steps[FoundRecord]:
    """The record at an offset. Raises `NoRecord` if there is none."""
    found = yield from read_records(context, fair_queue, partition, offset)
    return found[offset]


def read_records(
    context: Context,
    fair_queue: FairQueue,
    partition: RoutedPartition,
    offset: Offset,
    others: Collection[Offset] = (),
) -> Steps[dict[Offset, FoundRecord]]:
    """The record at an offset, and those of other offsets that are in its batch. Raises `NoRecord` if there is none at
    the first."""
    yield from look_up_bounds(context, [partition])
    name, first, visible = partition.name, partition.log_start, partition.last_stable
    if offset < first:
        raise NoRecord(f"offset {offset} of {name} is deleted: the partition begins at {first}")
    if offset >= visible:
        raise NoRecord(
            f"offset {offset} of {name} is in a transaction that is not committed yet, or not replicated yet"
            if offset < partition.log_end
            else f"offset {offset} of {name} is not written yet: the partition ends at {partition.log_end}"
        )

    def attempt() -> Steps[tuple[bytes, list[AbortedTransaction]]]:
        here = partition.here
        if here is None:
            got = yield from partition.fetch(offset, 1)
            return got.data, got.aborted
        log = here.log
        found = log.aborted(offset, visible)
        aborted = [AbortedTransaction(each.producer_id, each.first_offset) for each in found]
        return log.read(offset, 1, visible=here.last_stable), aborted

    data, aborted = yield from retry_while_moving(context, attempt)
    batch = RecordBatch.parse(data) if data else None
    if batch is None or batch.base_offset > offset:
        raise NoRecord(f"offset {offset} of {name} is empty: compaction has removed its record")
    if batch.is_control:
        raise NoRecord(f"offset {offset} of {name} has a transaction marker, and no record")
    records, _ = next(shown_batches(data, batch.base_offset, aborted))
    wanted = {offset, *(each for each in others if batch.base_offset <= each <= batch.last_offset)}
    chosen = yield from _chosen(fair_queue, records, wanted)
    if offset in chosen:
        return {
            each: FoundRecord(partition.topic, partition.number, record, batch)
            for each, record in chosen.items()
        }
    if records == [] and batch.is_transactional and batch.count:
        raise NoRecord(f"offset {offset} of {name} is of an aborted transaction")
    raise NoRecord(f"offset {offset} of {name} is empty: compaction has removed its record")


def _chosen(
    fair_queue: FairQueue, records: Iterable[Record], wanted: Collection[Offset]
) -> Steps[dict[Offset, Record]]:
    """The records at these offsets."""
    last = max(wanted)
    found: dict[Offset, Record] = {}
    for number, record in enumerate(records, 1):
        if record.offset in wanted:
            found[record.offset] = record
        if record.offset >= last:
            break
        if number % RECORDS_A_SLICE == 0:
            yield fair_queue.next()
    return found
