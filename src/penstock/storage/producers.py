"""Producer state of a partition: sequences, epochs, open transactions.

An idempotent producer numbers its records. The last batches of each producer are kept, so that a retry gets the offset
of its first copy, and a gap is refused. Open transactions hold back the last stable offset; aborted ones go to the
transaction index.

The state is a fold over the log: `apply` for every batch in order. Entries are immutable and replaced whole, so that a
failed append is undone by restoring the old ones.

A hole (a damaged or missing range of the log) may have had markers. A transaction that is open at a hole is *in doubt*
from then on:

    T1: a b   ?? hole ??   T2: c d   commit          T1 may have been aborted in the hole

No later marker decides it: the producer's next batch begins another transaction. Its records count as aborted, and the
last stable offset stays at its first record until an operator accepts the loss (`accept_loss`) or the log start passes
the hole.

With snapshots (`snapshots`) a start does not replay the whole log.
"""

from collections.abc import Container, Iterable
from typing import NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import NO_PRODUCER_EPOCH, NO_SEQUENCE, Offset, ProducerId, TimestampMs
from penstock.records import ControlType, RecordBatch, parse_control
from penstock.storage.txn_index import AbortedTxn

IN_FLIGHT_MAX = 5
"""Batches that an idempotent producer may have in flight (`max.in.flight.requests.per.connection`)."""

BATCHES_KEPT = 2 * IN_FLIGHT_MAX - 1
"""Enough to include the oldest unacknowledged batch. Of five in flight the first may time out while the next four are
acknowledged. It is sent again, followed by four new ones, and the connection may break after all of them are written:

    1 2 3 4 5        1 times out, the others are acknowledged
    1 6 7 8 9        written, but the replies are lost: 1 is sent again, eight batches later

Kafka keeps five, and answers 1 with OUT_OF_ORDER_SEQUENCE_NUMBER, which is fatal."""

SEQUENCE_MAX = 2**31 - 1

ACCEPT_LOSS_EPOCH = 2**31 - 1
"""DescribeProducers returns this coordinator epoch for a transaction in doubt. Tools that abort a hanging transaction
(`kafka-transactions abort`) send it back in their abort marker, which accepts the loss. No coordinator has this epoch:
real ones are leader epochs."""


class OutOfOrderSequence(KafkaError):
    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class StaleProducerEpoch(KafkaError):
    code = ErrorCode.INVALID_PRODUCER_EPOCH


class KeptBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp: TimestampMs

    @property
    def first_offset(self) -> Offset:
        return self.last_offset - self.offset_delta


class NumberedBatch(NamedTuple):
    """Producer id, epoch and sequence of a batch."""

    producer_id: ProducerId
    epoch: int
    sequence: int


class Producer(NamedTuple):
    """One producer's state; replaced, never changed."""

    epoch: int
    batches: tuple[KeptBatch, ...]
    """The last few batches of this epoch, oldest first; empty after a marker that began a new epoch."""
    timestamp: TimestampMs
    """Timestamp of the last batch or marker; idle producers expire."""
    coordinator_epoch: int
    txn_first_offset: Offset | None
    """First offset of the open transaction; None if there is none."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> Offset:
        return self.batches[-1].last_offset if self.batches else -1

    def duplicate_of(self, batch: RecordBatch) -> KeptBatch | None:
        """The kept batch that this one is a retry of, or None."""
        if batch.producer_epoch != self.epoch:
            return None
        first, last = batch.base_sequence, batch.last_sequence
        for kept in self.batches:
            if kept.first_sequence == first and kept.last_sequence == last:
                return kept
        return None


UNKNOWN_PRODUCER = Producer(NO_PRODUCER_EPOCH, (), -1, -1, None)


class InDoubt(NamedTuple):
    """A transaction whose end may have been in a hole."""

    producer_id: ProducerId
    epoch: int
    first_offset: Offset
    hole: Offset
    """First offset of the hole. All known records of the transaction are below it."""


class Producers:
    """All producers of a partition, as of `end_offset`."""

    def __init__(self, end_offset: Offset = 0) -> None:
        self.by_id: dict[ProducerId, Producer] = {}
        self.end_offset = end_offset
        self.ongoing: dict[Offset, ProducerId] = {}
        """First offset of each undecided transaction: open or in doubt."""
        self.in_doubt: dict[Offset, InDoubt] = {}
        """Transactions in doubt, by first offset. Producers in `by_id` do not have them as open."""

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Producers)
            and self.by_id == other.by_id
            and self.end_offset == other.end_offset
            and self.in_doubt == other.in_doubt
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def first_undecided(self) -> Offset | None:
        """First offset of the oldest undecided transaction, where read_committed consumers stop."""
        return min(self.ongoing) if self.ongoing else None

    def check(self, batch: RecordBatch) -> KeptBatch | None:
        """Check a client's batch: None if it may be appended, the first copy if it is a retry."""
        producer = self.by_id.get(batch.producer_id)
        if producer is None:
            # Unknown producer, perhaps because its records were deleted: accept any sequence.
            return None
        is_next = batch.producer_epoch == producer.epoch and batch.base_sequence == _next_sequence(
            producer.last_sequence
        )
        duplicate = None if is_next else producer.duplicate_of(batch)
        if duplicate is not None:
            return duplicate
        if batch.producer_epoch < producer.epoch:
            raise StaleProducerEpoch(
                f"producer {batch.producer_id} has epoch {batch.producer_epoch}, the last seen is {producer.epoch}"
            )
        if batch.producer_epoch > producer.epoch:
            if batch.base_sequence != 0:
                raise OutOfOrderSequence(
                    f"producer {batch.producer_id} begins epoch {batch.producer_epoch} "
                    f"with sequence {batch.base_sequence}, expected 0"
                )
        elif not is_next:
            raise OutOfOrderSequence(
                f"producer {batch.producer_id} sent sequence {batch.base_sequence}, "
                f"expected {_next_sequence(producer.last_sequence)}"
            )
        if producer.txn_first_offset is not None and not batch.is_transactional:
            raise KafkaError(
                f"producer {batch.producer_id} sent a batch outside its open transaction",
                ErrorCode.INVALID_TXN_STATE,
            )
        return None

    def check_marker(self, batch: RecordBatch) -> None:
        """Whether a coordinator may append this end-of-transaction marker."""
        producer = self.by_id.get(batch.producer_id, UNKNOWN_PRODUCER)
        if batch.producer_epoch < producer.epoch:
            raise StaleProducerEpoch(
                f"marker for producer {batch.producer_id} has epoch {batch.producer_epoch}, "
                f"the last seen is {producer.epoch}"
            )
        for record in batch.records():
            coordinator_epoch = parse_control(record).coordinator_epoch
            if coordinator_epoch is not None and coordinator_epoch < producer.coordinator_epoch:
                raise KafkaError(
                    f"marker for producer {batch.producer_id} comes from coordinator epoch {coordinator_epoch}, "
                    f"the current one is {producer.coordinator_epoch}",
                    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                )

    def apply(self, batch: RecordBatch) -> AbortedTxn | None:
        """Apply a batch of the log; return the transaction that it aborts, if any."""
        aborted = None
        if batch.has_producer_id:
            before = self.by_id.get(batch.producer_id, UNKNOWN_PRODUCER)
            if batch.is_control:
                aborted = self._apply_marker(batch, before)
            else:
                self.by_id[batch.producer_id] = self._after_data(batch, before)
        self.end_offset = batch.next_offset
        return aborted

    def _after_data(self, batch: RecordBatch, before: Producer) -> Producer:
        base_offset, last_offset = batch.base_offset, batch.last_offset
        kept = KeptBatch(
            batch.base_sequence,
            batch.last_sequence,
            last_offset,
            last_offset - base_offset,
            batch.max_timestamp,
        )
        batches = (
            (*before.batches[1 - BATCHES_KEPT :], kept) if before.epoch == batch.producer_epoch else (kept,)
        )
        txn_first_offset = before.txn_first_offset
        if txn_first_offset is None and batch.is_transactional:
            txn_first_offset = base_offset
            self.ongoing[base_offset] = batch.producer_id
        return Producer(
            batch.producer_epoch, batches, batch.max_timestamp, before.coordinator_epoch, txn_first_offset
        )

    def _apply_marker(self, batch: RecordBatch, before: Producer) -> AbortedTxn | None:
        for record in batch.records():
            control = parse_control(record)
            if control.type not in (ControlType.ABORT, ControlType.COMMIT):
                continue
            batches = before.batches if before.epoch == batch.producer_epoch else ()
            coordinator_epoch = -1 if control.coordinator_epoch is None else control.coordinator_epoch
            self.by_id[batch.producer_id] = Producer(
                batch.producer_epoch, batches, record.timestamp, coordinator_epoch, None
            )
            first_offset = before.txn_first_offset
            if first_offset is None:
                return None  # a transaction without records
            self.ongoing.pop(first_offset, None)
            if control.type is ControlType.ABORT:
                undecided = self.first_undecided
                last_stable = batch.base_offset + 1 if undecided is None else undecided
                return AbortedTxn(batch.producer_id, first_offset, batch.base_offset, last_stable)
        return None  # an empty control batch: the cleaner removed the whole transaction

    # -- holes -----------------------------------------------------------------------------------------

    def pass_hole(self, start: Offset, survivors: Container[Offset] = ()) -> list[AbortedTxn]:
        """Skip a hole that begins at `start`.

        Open transactions are in doubt from here on, except those whose first offset is in `survivors`: a snapshot from
        after the hole proves that they were still open. Returns an entry of the transaction index for each transaction
        in doubt, which ends it at the hole: its records must not be read as committed.
        """
        doubtful = [
            InDoubt(producer_id, self.by_id[producer_id].epoch, first_offset, start)
            for first_offset, producer_id in sorted(self.ongoing.items())
            if first_offset not in self.in_doubt and first_offset not in survivors
        ]
        for each in doubtful:
            self.by_id[each.producer_id] = self.by_id[each.producer_id]._replace(txn_first_offset=None)
            self.in_doubt[each.first_offset] = each
        undecided = self.first_undecided
        return [
            AbortedTxn(each.producer_id, each.first_offset, start, undecided)
            for each in doubtful
            if undecided is not None
        ]

    def doubt(self, transactions: Iterable[InDoubt]) -> None:
        """Add transactions in doubt from another replay of the same log."""
        for each in transactions:
            self.in_doubt[each.first_offset] = each
            self.ongoing[each.first_offset] = each.producer_id

    def doubt_of(self, producer_id: ProducerId) -> InDoubt | None:
        """The oldest transaction of a producer that is in doubt."""
        found = (each for _, each in sorted(self.in_doubt.items()) if each.producer_id == producer_id)
        return next(found, None)

    def accept_loss(self, first_offset: Offset) -> None:
        """Let the last stable offset pass a transaction in doubt. Its records stay aborted."""
        del self.in_doubt[first_offset]
        del self.ongoing[first_offset]

    def forget_holes(self, log_start: Offset) -> None:
        """Drop doubts about records below the log start."""
        for each in [each for each in self.in_doubt.values() if each.hole <= log_start]:
            self.accept_loss(each.first_offset)

    def first_from(self, offset: Offset, producer_ids: Iterable[ProducerId]) -> list[NumberedBatch]:
        """The first batch at or after an offset of each of these producers."""
        found = []
        for producer_id in producer_ids:
            producer = self.by_id.get(producer_id)
            if producer is not None and producer.last_offset >= offset:
                kept = next(each for each in producer.batches if each.last_offset >= offset)
                found.append(NumberedBatch(producer_id, producer.epoch, kept.first_sequence))
        return found

    def undo(self, producer_id: ProducerId, before: Producer | None) -> None:
        """Restore the state before an `apply` whose write failed."""
        now = self.by_id.pop(producer_id, None)
        if now is not None and now.txn_first_offset is not None:
            self.ongoing.pop(now.txn_first_offset, None)
        if before is not None:
            self.by_id[producer_id] = before
            if before.txn_first_offset is not None:
                self.ongoing[before.txn_first_offset] = producer_id

    def expire(self, now_ms: TimestampMs, idle_ms_max: int) -> None:
        """Drop producers that were idle for longer than this, unless they have an open transaction."""
        for producer_id, producer in list(self.by_id.items()):
            if producer.txn_first_offset is None and now_ms - producer.timestamp >= idle_ms_max:
                del self.by_id[producer_id]

    def load(
        self, entries: dict[ProducerId, Producer], end_offset: Offset, in_doubt: Iterable[InDoubt] = ()
    ) -> None:
        self.by_id = dict(entries)
        self.ongoing = {
            entry.txn_first_offset: producer_id
            for producer_id, entry in entries.items()
            if entry.txn_first_offset is not None
        }
        self.in_doubt = {}
        self.doubt(in_doubt)
        self.end_offset = end_offset


def _next_sequence(last: int) -> int:
    return 0 if last == SEQUENCE_MAX else last + 1
