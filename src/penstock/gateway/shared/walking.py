"""Committed records of a range, a few at a time.

Who has much to read gives way to others in between. A batch may hold tens of thousands of records: they are decoded as
they are asked for, so that neither a turn nor a short page pays for all of them.
"""

from collections.abc import Generator
from typing import Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset
from penstock.client.decoding import shown_batches
from penstock.records import Record
from penstock.replica import Partition
from penstock.wire import AbortedTransaction

RECORDS_A_TURN: Final = 200
"""Decoded before others get their turn: with what is then done with them about a millisecond."""

RECORD_BYTES_A_TURN: Final = 1 << 15
"""The same in bytes of keys and values, unless the first record alone is larger. A client that does not read holds
this much, so it is small."""

READ_BYTES: Final = 1 << 16
"""Of the log, read at once, unless its first batch alone is larger."""


def size_of(record: Record) -> int:
    """What counts against `RECORD_BYTES_A_TURN`."""
    return len(record.key or b"") + len(record.value or b"")


class Walk:
    """From an offset up to, and without, another one, below which all is committed or aborted."""

    def __init__(self, partition: Partition, start: Offset, stop: Offset) -> None:
        self.partition = partition
        self.position = start
        """Behind all that was given, and what is not shown behind that. Moves up to stop."""
        self._stop = stop
        self._records = self._decoded()
        """Refers to this object: `close` lets both go at once, and not when the collector comes."""

    @property
    def is_over(self) -> bool:
        return self.position >= self._stop

    def some(self, records_max: int = RECORDS_A_TURN) -> list[Record]:
        """The next records; fewer than there are, or none, before it is over. Raises what keeps it from going on."""
        found: list[Record] = []
        wanted, size = min(records_max, RECORDS_A_TURN), 0
        while len(found) < wanted and size < RECORD_BYTES_A_TURN:
            record = next(self._records, None)
            if record is None:
                break
            found.append(record)
            size += size_of(record)
            self.position = record.offset + 1
        self.partition.messages_out += len(found)
        return found

    def close(self) -> None:
        """Let go of what is decoded."""
        self._records.close()

    def _decoded(self) -> Generator[Record | None, None, None]:
        """Each record, and None after each stretch that was read."""
        partition, log = self.partition, self.partition.log
        while self.position < self._stop:
            if not partition.is_leader:
                raise KafkaError(
                    f"{partition.name} is not led here any more", ErrorCode.NOT_LEADER_OR_FOLLOWER
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
