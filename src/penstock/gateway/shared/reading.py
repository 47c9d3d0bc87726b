"""Reading committed records of a partition that this broker leads, in portions or as a walk.

A batch may hold tens of thousands of records. A `Walk` decodes them as they are read, so that neither a time slice nor
a short page pays for all of them.
"""

from collections.abc import Generator, Sequence
from typing import Final, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset
from penstock.client.decoding import decode, shown_batches
from penstock.records import Record
from penstock.replica import Partition
from penstock.wire import AbortedTransaction

RECORDS_A_SLICE: Final = 200
"""Records that are decoded in one slice: about a millisecond, including their encoding for the client."""

RECORD_BYTES_A_SLICE: Final = 1 << 15
"""The same in bytes of keys and values, unless the first record alone is larger. A client that does not read holds
this much, so it is small."""

READ_BYTES: Final = 1 << 16
"""Bytes of the log in one read, unless its first batch alone is larger."""


def size_of(record: Record) -> int:
    """Bytes that count against `RECORD_BYTES_A_SLICE`."""
    return len(record.key or b"") + len(record.value or b"")


class Walk:
    """Reads records from `start` to `stop`, exclusive. All transactions below `stop` are decided."""

    def __init__(self, partition: Partition, start: Offset, stop: Offset) -> None:
        self.partition = partition
        self.position = start
        """Next offset after the returned records, and after control records behind them. Moves up to `stop`."""
        self._stop = stop
        self._records = self._decoded()
        """Refers to this object: `close` breaks the cycle, so that both are freed without the garbage collector."""

    @property
    def is_over(self) -> bool:
        return self.position >= self._stop

    def some(self, records_max: int = RECORDS_A_SLICE) -> list[Record]:
        """The next records. May be fewer than there are, or none, before the walk is over. Raises an error that ends
        the walk."""
        found: list[Record] = []
        wanted, size = min(records_max, RECORDS_A_SLICE), 0
        while len(found) < wanted and size < RECORD_BYTES_A_SLICE:
            record = next(self._records, None)
            if record is None:
                break
            found.append(record)
            size += size_of(record)
            self.position = record.offset + 1
        self.partition.messages_out += len(found)
        return found

    def close(self) -> None:
        """Free the decoded records."""
        self._records.close()

    def _decoded(self) -> Generator[Record | None, None, None]:
        """Each record, and None after each read of the log."""
        partition, log = self.partition, self.partition.log
        while self.position < self._stop:
            if not partition.is_leader:
                raise KafkaError(
                    f"this broker no longer leads {partition.name}", ErrorCode.NOT_LEADER_OR_FOLLOWER
                )
            start = self.position
            visible = partition.last_stable  # the range may end within a batch
            data = log.read(start, READ_BYTES, visible=visible)
            partition.bytes_out += len(data)
            aborted = [
                AbortedTransaction(each.producer_id, each.first_offset)
                for each in log.aborted(start, visible)
            ]
            for records, after in shown_batches(data, start, aborted):
                for record in records:
                    if record.offset >= self._stop:
                        break
                    yield record
                self.position = min(after, self._stop)
            if self.position <= start:
                raise KafkaError(f"{partition.name} has no batch at {start}", ErrorCode.KAFKA_STORAGE_ERROR)
            yield None


PORTION_BYTES = 1 << 20
"""Bytes of the log in one portion, unless its first batch alone is larger."""


class Portion(NamedTuple):
    records: list[Record]
    next_offset: Offset
    """Where to continue: after aborted records, markers and compacted offsets behind the records, too."""


def read(
    partition: Partition,
    offset: Offset,
    *,
    records_max: int,
    bytes_max: int = PORTION_BYTES,
    record_bytes_max: int | None = None,
) -> Portion:
    """Committed records from an offset; none if there are none now.

    `bytes_max` limits the bytes of the log, except for one whole batch; `record_bytes_max` those of keys and values.
    Raises OFFSET_OUT_OF_RANGE for an offset outside of the log.
    """
    visible = partition.last_stable
    log = partition.log
    if offset == visible:
        return Portion([], offset)
    data = log.read(offset, bytes_max, visible=visible)
    aborted = [
        AbortedTransaction(each.producer_id, each.first_offset) for each in log.aborted(offset, visible)
    ]
    decoded = decode(data, offset, aborted)
    count = len(decoded.records)
    if record_bytes_max is not None:
        records_max = min(records_max, within(decoded.records, record_bytes_max))
    given = min(count, records_max)
    partition.messages_out += given
    partition.bytes_out += len(data) * given // count if count else 0  # the rest is read again
    if count > records_max:
        return Portion(decoded.records[:records_max], decoded.records[records_max].offset)
    return Portion(decoded.records, decoded.next_offset)


def within(records: Sequence[Record], bytes_max: int) -> int:
    """The number of records, from the first, with at most `bytes_max` bytes of keys and values; at least one."""
    size = 0
    for number, record in enumerate(records):
        size += size_of(record)
        if size > bytes_max:
            return max(number, 1)
    return len(records)
