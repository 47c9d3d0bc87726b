"""The coordinator of the transactional ids that one partition of `__transaction_state` keeps.

It decides on the committed state and writes nothing; the runtime acts. Client requests, written markers and timeouts
are all handled the same way:

    outcome = coordinator.handle(request, now_ms)          NEEDS_PRODUCER_ID: get one, and ask again with it
    append outcome.records to the partition, in one batch
    coordinator.committed(outcome, now_ms)                 once they are; then the reply may leave
    for each in coordinator.take_markers(): write them     and say so: handle(MarkersWritten(...))

    coordinator.failed(outcome, now_ms)                    they are not in the log: nothing has happened
    for each in coordinator.tick(now_ms): handle it        no later than next_deadline_ms()

From a decision to its commit, nothing else may change the same id. `failed` is for records that are certainly not in
the log. Where that cannot be known, what is in memory is no longer what a reload would give: `unload`, and load again.
An outcome from before an `unload` no longer counts.

What the log says is all there is: `replay` every record, then `start`. Markers of transactions that were decided and
not completed are handed out again from there; a partition that has its marker already takes another without harm.
"""

import logging
from collections.abc import Iterable
from typing import Any

from penstock.base.ids import ProducerId, TimestampMs, TopicPartition
from penstock.base.outcome import Outcome
from penstock.records.structs import CorruptStruct

from . import decisions as deciding
from .decisions import Decision, NoProducerId, Refused, Settings, View
from .expiry import ExpiryRound
from .overview import describe, list_transactions
from .requests import (
    NEEDS_PRODUCER_ID,
    AbortTimedOut,
    AddPartitions,
    DescribeTransaction,
    EndTxn,
    ExpireIds,
    InitProducerId,
    ListTransactions,
    Markers,
    MarkersWritten,
    NeedsProducerId,
    OfOneId,
    ProducerEpoch,
    Reply,
    Request,
    VerifyPartitions,
    refusal,
)
from .schema import Record, decode_key, decode_value, encode_key
from .state import State, Transaction, from_value
from .timers import TransactionTimers

logger = logging.getLogger(__name__)

RETRY_MS = 100
"""Pause before a failed abort or a failed last record is retried, as in Kafka (`retry.backoff.ms`)."""


class PendingWrite:
    """A change that is decided and not committed."""

    __slots__ = ("after",)

    def __init__(self, after: dict[str, Transaction | None]) -> None:
        self.after = after
        """By transactional id: its state once the records are committed; None if the id expires."""


class Entry:
    """One transactional id."""

    __slots__ = ("current", "end", "pending", "unmarked")

    def __init__(self, current: Transaction | None = None) -> None:
        self.current = current
        """The committed state; None until the first record is committed."""
        self.pending: PendingWrite | None = None
        """The change that is decided and not committed."""
        self.end = 0
        """Identifies the end whose markers are being written. Producer and epoch do not: before `transaction.version`
        2 they are the same for successive transactions."""
        self.unmarked: set[TopicPartition] = set()
        """Partitions whose marker is not written yet. Empty unless the transaction is prepared."""


class TransactionCoordinator:
    def __init__(self, settings: Settings = Settings()) -> None:  # noqa: B008  (it cannot be changed)
        self.settings = settings
        """May be replaced at any time; the next decision uses it."""
        self.coordinator_epoch = -1
        """The leader epoch of the partition; identifies the markers of a deposed coordinator."""
        self._entries: dict[str, Entry] = {}
        self._pending: set[PendingWrite] = set()
        self._last_end = 0
        """Numbers the ends. Not reset by `unload`, so that late markers are recognised."""
        self._markers: list[Markers] = []
        self._timers = TransactionTimers()
        self._expiry = ExpiryRound()

    # Loading.

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Replay a record of the partition, in order. Raises CorruptStruct if it cannot be read."""
        transactional_id = decode_key(key)
        if transactional_id is None:
            logger.warning("__transaction_state: skipped a record of an unknown type")
        elif value is None:
            self._entries.pop(transactional_id, None)
        else:
            try:
                current = from_value(decode_value(value))
            except CorruptStruct as error:
                raise CorruptStruct(f"the state of transactional id {transactional_id!r}: {error}") from error
            self._entries[transactional_id] = Entry(current)

    def start(self, coordinator_epoch: int, now_ms: TimestampMs) -> None:
        """The whole partition is replayed: resume timers and markers."""
        self.coordinator_epoch = coordinator_epoch
        for transactional_id, entry in self._entries.items():
            self._follow(transactional_id, entry, now_ms)
        self._expiry.next_ms = now_ms + self.settings.expiry_interval_ms

    def unload(self) -> None:
        """Drop the state: another broker is the coordinator, or the partition is loaded again."""
        self._entries.clear()
        self._pending.clear()
        self._markers.clear()
        self._timers.clear()
        self._expiry = ExpiryRound()
        self.coordinator_epoch = -1

    # Deciding.

    def handle(
        self, request: Request, now_ms: TimestampMs, producer_id: ProducerId | None = None
    ) -> Outcome[Any] | NeedsProducerId:
        """Return the reply and the records that make it true. An unneeded producer id is lost."""
        match request:
            case DescribeTransaction():
                return Outcome(describe(request, self.current(request.transactional_id)))
            case ListTransactions():
                return Outcome(list_transactions(request, self._known(), now_ms))
            case ExpireIds():
                return self._expire(request, now_ms)
            case MarkersWritten() if not self._is_marked(request):
                return Outcome(Reply())
        return self._change(request, now_ms, producer_id)

    def _change(
        self, request: OfOneId, now_ms: TimestampMs, producer_id: ProducerId | None
    ) -> Outcome[Any] | NeedsProducerId:
        entry = self._entries.get(request.transactional_id)
        try:
            decided = _decide(self._view(entry, now_ms, producer_id), request)
        except Refused as error:
            logger.debug("%s rejected: %s", type(request).__name__, error)
            return Outcome(refusal(request, error.code))
        except NoProducerId:
            return NEEDS_PRODUCER_ID
        if not decided.states:
            return Outcome(decided.reply)
        level = self.settings.transaction_version
        records = tuple(each.record(request.transactional_id, level) for each in decided.states)
        return Outcome(
            decided.reply, records, self._begin_write({request.transactional_id: decided.states[-1]})
        )

    def _expire(self, request: ExpireIds, now_ms: TimestampMs) -> Outcome[Reply]:
        expired = [
            each
            for each in request.transactional_ids
            if deciding.is_expired(self._view(self._entries.get(each), now_ms, None))
        ]
        if not expired:
            return Outcome(Reply())
        records = tuple(Record(encode_key(each), None) for each in expired)
        return Outcome(Reply(), records, self._begin_write(dict.fromkeys(expired)))

    def _view(self, entry: Entry | None, now_ms: TimestampMs, producer_id: ProducerId | None) -> View:
        current = None if entry is None else entry.current
        is_pending = entry is not None and entry.pending is not None
        return View(current, is_pending, self.settings, now_ms, producer_id)

    def _begin_write(self, after: dict[str, Transaction | None]) -> PendingWrite:
        write = PendingWrite(after)
        self._pending.add(write)
        for transactional_id in after:
            entry = self._entries.setdefault(transactional_id, Entry())
            assert entry.pending is None, "a transactional id has one pending change at a time"
            entry.pending = write
        return write

    def _finish_write(self, outcome: Outcome[Any]) -> dict[str, Transaction | None] | None:
        write: PendingWrite | None = outcome.write
        if write is None or write not in self._pending:
            return None
        self._pending.remove(write)
        return write.after

    def _is_marked(self, request: MarkersWritten) -> bool:
        """Note the written markers; return whether they were the last ones. Markers of another end are ignored."""
        entry = self._entries.get(request.transactional_id)
        current = None if entry is None else entry.current
        if entry is None or current is None or not current.state.is_prepared:
            return False
        if entry.end != request.end:
            return False
        entry.unmarked -= request.partitions
        return not entry.unmarked

    # After the write.

    def committed(self, outcome: Outcome[Any], now_ms: TimestampMs) -> bool:
        """The records are committed: apply them. False if the coordinator was unloaded since; reply
        NOT_COORDINATOR."""
        after = self._finish_write(outcome)
        if after is None:
            return False
        for transactional_id, current in after.items():
            if current is None:
                del self._entries[transactional_id]
                continue
            entry = self._entries[transactional_id]
            entry.current, entry.pending = current, None
            self._follow(transactional_id, entry, now_ms)
        return True

    def failed(self, outcome: Outcome[Any], now_ms: TimestampMs) -> bool:
        """The records are certainly not in the log: drop the change. False as with `committed`."""
        after = self._finish_write(outcome)
        if after is None:
            return False
        for transactional_id in after:
            entry = self._entries[transactional_id]
            entry.pending = None
            if entry.current is None:
                del self._entries[transactional_id]
            elif entry.current.state.is_prepared:
                self._timers.wake(transactional_id, now_ms + RETRY_MS)
        return True

    def take_markers(self) -> list[Markers]:
        """Markers to be written for transactions that are decided; each is returned once."""
        markers, self._markers = self._markers, []
        return markers

    def _follow(self, transactional_id: str, entry: Entry, now_ms: TimestampMs) -> None:
        """Set the timer and hand out the markers that the committed state needs."""
        current = entry.current
        if current is None:
            return
        expires_ms = current.expires_ms
        if expires_ms is not None:
            self._timers.wake(transactional_id, expires_ms + 1)
        if not current.state.is_prepared:
            entry.unmarked = set()
            return
        self._last_end += 1
        entry.unmarked, entry.end = set(current.partitions), self._last_end
        if not current.partitions:
            self._timers.wake(transactional_id, now_ms)
            return
        self._markers.append(
            Markers(
                transactional_id,
                entry.end,
                ProducerEpoch(current.producer_id, current.epoch),
                self.coordinator_epoch,
                current.state is State.PREPARE_COMMIT,
                current.partitions,
                current.version,
            )
        )

    # Time.

    def tick(self, now_ms: TimestampMs) -> list[Request]:
        """The requests that timers cause. Handle them now like any other; their replies are not used."""
        due: list[Request] = []
        for transactional_id in self._timers.due(now_ms):
            request = self._look_at(transactional_id, now_ms)
            if request is not None:
                due.append(request)
        due += self._expiry.due(
            self._entries,
            lambda entry: deciding.is_expired(self._view(entry, now_ms, None)),
            self.settings.expiry_interval_ms,
            now_ms,
        )
        return due

    def next_deadline_ms(self) -> TimestampMs | None:
        """When `tick` may return something; None if no timer is set."""
        moments = [self._timers.next_ms(), self._expiry.next_ms if self._entries else None]
        return min((each for each in moments if each is not None), default=None)

    def _look_at(self, transactional_id: str, now_ms: TimestampMs) -> Request | None:
        entry = self._entries.get(transactional_id)
        current = None if entry is None else entry.current
        if entry is None or current is None:
            return None
        if current.state.is_prepared:
            if entry.pending or entry.unmarked:
                return None
            self._timers.wake(transactional_id, now_ms + RETRY_MS)
            return MarkersWritten(transactional_id, entry.end)
        expires_ms = current.expires_ms
        if expires_ms is None:
            return None
        if expires_ms >= now_ms:
            self._timers.wake(transactional_id, expires_ms + 1)
            return None
        # Retry later: the id may be busy, no producer id available, or the write may fail.
        self._timers.wake(transactional_id, now_ms + RETRY_MS)
        return (
            None
            if entry.pending
            else AbortTimedOut(transactional_id, ProducerEpoch(current.producer_id, current.epoch))
        )

    # Queries.

    def current(self, transactional_id: str) -> Transaction | None:
        """The committed state of an id."""
        entry = self._entries.get(transactional_id)
        return None if entry is None else entry.current

    def _known(self) -> Iterable[tuple[str, Transaction]]:
        for transactional_id, entry in self._entries.items():
            if entry.current is not None:
                yield transactional_id, entry.current

    def is_pending(self, transactional_id: str) -> bool:
        """Whether a change of the id is decided and not committed."""
        entry = self._entries.get(transactional_id)
        return entry is not None and entry.pending is not None


def _decide(view: View, request: OfOneId) -> Decision:
    match request:
        case InitProducerId():
            return deciding.init_producer_id(view, request)
        case AddPartitions():
            return deciding.add_partitions(view, request)
        case VerifyPartitions():
            return deciding.verify_partitions(view, request)
        case EndTxn():
            return deciding.end_txn(view, request)
        case AbortTimedOut():
            return deciding.abort_timed_out(view, request)
        case MarkersWritten():
            return deciding.complete(view)
