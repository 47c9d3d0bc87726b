"""Reads one committed record, whichever broker leads its partition, together with its batch."""

from typing import NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset
from penstock.base.steps import Steps
from penstock.client.decoding import shown_batches
from penstock.gateway.peer_rpc.retry import retry_while_moving
from penstock.gateway.peer_rpc.routed_partition import RoutedPartition, look_up_bounds
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


def read_record(context: Context, partition: RoutedPartition, offset: Offset) -> Steps[FoundRecord]:
    """The record at an offset. Raises `NoRecord` if there is none."""
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
    records, _ = next(shown_batches(data, offset, aborted))
    record = next(iter(records), None)
    if record is not None and record.offset == offset:
        return FoundRecord(partition.topic, partition.number, record, batch)
    if record is None and batch.is_transactional and batch.count:
        raise NoRecord(f"offset {offset} of {name} is of an aborted transaction")
    raise NoRecord(f"offset {offset} of {name} is empty: compaction has removed its record")
