"""Decides each request against the state of its transactional id, as Kafka 4.3 does.

These functions change nothing. A decision is a reply and the states that the id passes through, in order; none if the
state stays. `Refused` carries the error of a rejected request; `NoProducerId` asks for a producer id. An id whose last
change is not committed, or whose markers are not all written, is busy: requests that would change it get
CONCURRENT_TRANSACTIONS, and clients retry.

EndTxn with `transaction.version` 2 bumps the epoch, so the epoch distinguishes a repeated request from a new one:

                     abort                       commit
                     repeated     new            repeated     new
    Empty            FENCED       ends nothing   FENCED       INVALID_TXN_STATE
    CompleteAbort    NONE         ends nothing   INVALID      INVALID_TXN_STATE
    CompleteCommit   INVALID      ends nothing   NONE         INVALID_TXN_STATE

"Ends nothing" still counts as an abort and bumps the epoch: a client cannot always know whether its transaction began.
"""

from typing import NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerId, TimestampMs

from . import state as to
from .requests import (
    AbortTimedOut,
    AddPartitions,
    EndTxn,
    InitProducerId,
    ProducerEpoch,
    ProducerReply,
    Reply,
    VerifyPartitions,
    VerifyReply,
)
from .state import EPOCH_BUMP_VERSION, EPOCH_MAX, State, Transaction, is_exhausted

ID_BYTES_MAX = 2**15 - 1
"""The limit of the length field in a record's key."""


class Settings(NamedTuple):
    """Defaults are Kafka's."""

    timeout_ms_max: int = 15 * 60 * 1000
    """`transaction.max.timeout.ms`."""
    id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    """`transactional.id.expiration.ms`."""
    expiry_interval_ms: int = 60 * 60 * 1000
    """`transaction.remove.expired.transaction.cleanup.interval.ms`. Unlike in Kafka, transactions that time
    out are not found at intervals, but aborted on time."""
    transaction_version: int = EPOCH_BUMP_VERSION
    """The cluster's `transaction.version`: how the coordinator itself ends transactions, and writes its records."""


class Refused(KafkaError):
    """The request is rejected, with this error code."""


class NoProducerId(Exception):
    """A fresh producer id is needed, and none was given."""


class View(NamedTuple):
    """The input of a decision, besides the request."""

    current: Transaction | None
    """The committed state; None if the id is unknown, or its first record is not committed yet."""
    is_pending: bool
    """Whether a change is decided and not committed."""
    settings: Settings
    now_ms: TimestampMs
    fresh_id: ProducerId | None
    """An unused producer id, if one was requested."""

    @property
    def is_busy(self) -> bool:
        return self.is_pending or (self.current is not None and self.current.state.is_prepared)

    def take_id(self) -> ProducerId:
        if self.fresh_id is None:
            raise NoProducerId
        return self.fresh_id

    def known(self, transactional_id: str, producer_id: ProducerId) -> Transaction:
        """The state, if the transactional id has this producer id."""
        current = self.current
        if current is None or current.producer_id != producer_id:
            held = "none" if current is None else f"{current.producer_id}"
            raise Refused(
                f"transactional id {transactional_id!r} has producer id {held}, the request has {producer_id}",
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            )
        return current

    def refuse_if_busy(self, transactional_id: str) -> None:
        if self.is_busy:
            raise Refused(
                f"a change of transactional id {transactional_id!r} is not complete yet; retry",
                ErrorCode.CONCURRENT_TRANSACTIONS,
            )


class Decision(NamedTuple):
    reply: Reply | ProducerReply | VerifyReply
    states: tuple[Transaction, ...] = ()


def init_producer_id(view: View, request: InitProducerId) -> Decision:
    _need_name(request.transactional_id)
    timeout_ms, timeout_ms_max = request.timeout_ms, view.settings.timeout_ms_max
    if not 0 < timeout_ms <= timeout_ms_max:
        raise Refused(
            f"the transaction timeout is {timeout_ms} ms, expected 1 to {timeout_ms_max}",
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        )
    view.refuse_if_busy(request.transactional_id)
    current, expected, now_ms = view.current, request.expected, view.now_ms
    if current is None:
        return _given(to.new(view.take_id(), timeout_ms, now_ms))
    if expected is not None and not _may_go_on(current, expected):
        raise _fenced_by(current, expected)
    if current.state is State.ONGOING:
        # No producer gets the epoch of this abort. The producer retries, and gets the next one.
        return _fence(view, current, ProducerReply(ErrorCode.CONCURRENT_TRANSACTIONS))
    if expected is None or expected.epoch == current.epoch:
        last_epoch = NO_PRODUCER_EPOCH if expected is None else current.epoch
        if current.is_exhausted:
            return _given(to.rotated(current, view.take_id(), last_epoch, timeout_ms, now_ms))
        return _given(to.initialised(current, current.epoch + 1, last_epoch, timeout_ms, now_ms))
    if expected.epoch != current.last_epoch:
        raise _fenced_by(current, expected)
    # A retry: the last epoch is set, so no other producer was initialised since.
    return _given(to.initialised(current, current.epoch, current.last_epoch, timeout_ms, now_ms))


def _may_go_on(current: Transaction, expected: ProducerEpoch) -> bool:
    """Whether this is the current producer, or one that missed the reply with its new producer id."""
    return expected.producer_id == current.producer_id or (
        expected.producer_id == current.previous_producer_id and is_exhausted(expected.epoch)
    )


def add_partitions(view: View, request: AddPartitions) -> Decision:
    _need_name(request.transactional_id)
    if view.current is None and not view.is_pending:
        view.known(request.transactional_id, request.producer.producer_id)
    # Check for a busy id before the epoch: with transaction.version 2 the first request of the next transaction may
    # arrive before the last one is complete, and its producer must not be fenced.
    view.refuse_if_busy(request.transactional_id)
    current = view.known(request.transactional_id, request.producer.producer_id)
    if current.epoch != request.producer.epoch:
        raise _fenced_by(current, request.producer)
    if current.state is State.ONGOING and request.partitions <= current.partitions:
        return Decision(Reply())
    after = to.with_partitions(current, request.partitions, request.version, view.now_ms)
    return Decision(Reply(), (after,))


def verify_partitions(view: View, request: VerifyPartitions) -> Decision:
    """Verify against the committed state, even if a change is pending: the partition checks the append again."""
    _need_name(request.transactional_id)
    current = view.known(request.transactional_id, request.producer.producer_id)
    if current.epoch != request.producer.epoch:
        raise _fenced_by(current, request.producer)
    if current.state.is_prepared:
        view.refuse_if_busy(request.transactional_id)
    codes = {
        each: ErrorCode.NONE if each in current.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for each in request.partitions
    }
    return Decision(VerifyReply(codes))


def end_txn(view: View, request: EndTxn) -> Decision:
    _need_name(request.transactional_id)
    return (_end_v2 if request.version >= EPOCH_BUMP_VERSION else _end_v1)(view, request)


def _end_v1(view: View, request: EndTxn) -> Decision:
    current = view.known(request.transactional_id, request.producer.producer_id)
    if current.epoch != request.producer.epoch:
        raise _fenced_by(current, request.producer)
    view.refuse_if_busy(request.transactional_id)
    if current.state is State.ONGOING:
        after = to.prepared(current, request.commit, 0, view.now_ms, NO_PRODUCER_ID)
        return Decision(ProducerReply(), _to_the_end(after, view.now_ms))
    if not _ended_so(current, request):
        raise _no_such_end(current, request)
    return Decision(ProducerReply())


def _end_v2(view: View, request: EndTxn) -> Decision:
    producer = request.producer
    if view.current is None and not view.is_pending:
        view.known(request.transactional_id, producer.producer_id)
    view.refuse_if_busy(request.transactional_id)
    current = view.current
    if current is None or not _was_last_of_its_id(current, producer):
        current = view.known(request.transactional_id, producer.producer_id)
    if _is_repeated(current, producer):
        if not _ended_so(current, request):
            raise _no_such_end(current, request)
        return Decision(ProducerReply(ErrorCode.NONE, current.producer_id, current.epoch))
    if current.epoch != producer.epoch:
        raise _fenced_by(current, producer)
    if request.commit and current.state is not State.ONGOING:
        raise _no_such_end(current, request)
    next_id = _next_id(view, current, request.version)
    after = to.prepared(current, request.commit, request.version, view.now_ms, next_id)
    end = to.completed(after, view.now_ms)
    reply = ProducerReply(ErrorCode.NONE, end.producer_id, end.epoch)
    return Decision(reply, _to_the_end(after, view.now_ms))


def _is_repeated(current: Transaction, producer: ProducerEpoch) -> bool:
    """Whether this EndTxn repeats the one that led to the current epoch.

    Kafka compares the epochs alone. But if the last end did not bump the epoch, an InitProducerId did: then this
    producer was fenced, and must not get the epoch of its successor.
    """
    if current.state not in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT) or not current.bumps_epoch:
        return False
    return current.epoch == producer.epoch + 1 or _was_last_of_its_id(current, producer)


def _was_last_of_its_id(current: Transaction, producer: ProducerEpoch) -> bool:
    """Whether the end used the last epoch of the producer id, and the transactional id has a new one."""
    return (
        current.previous_producer_id == producer.producer_id
        and producer.epoch == EPOCH_MAX - 1
        and current.epoch == 0
    )


def _ended_so(current: Transaction, request: EndTxn) -> bool:
    return current.state is (State.COMPLETE_COMMIT if request.commit else State.COMPLETE_ABORT)


def abort_timed_out(view: View, request: AbortTimedOut) -> Decision:
    view.refuse_if_busy(request.transactional_id)
    current = view.known(request.transactional_id, request.producer.producer_id)
    if current.epoch != request.producer.epoch:
        raise _fenced_by(current, request.producer)
    expires_ms = current.expires_ms
    if expires_ms is None or view.now_ms <= expires_ms:
        return Decision(Reply())
    return _fence(view, current, Reply())


def complete(view: View) -> Decision:
    """The last marker is written."""
    current = view.current
    if view.is_pending or current is None or not current.state.is_prepared:
        return Decision(Reply())
    return Decision(Reply(), (to.completed(current, view.now_ms),))


def is_expired(view: View) -> bool:
    """Whether the id has been unused for longer than the expiration time."""
    current = view.current
    if view.is_pending or current is None or not current.state.is_at_rest:
        return False
    return current.updated_ms <= view.now_ms - view.settings.id_expiration_ms


def _fence(view: View, current: Transaction, reply: Reply | ProducerReply) -> Decision:
    version = view.settings.transaction_version
    after = to.fenced(current, version, view.now_ms, _next_id(view, current, version))
    return Decision(reply, _to_the_end(after, view.now_ms))


def _next_id(view: View, current: Transaction, version: int) -> ProducerId:
    """The next producer id, if the end uses the last epoch."""
    return view.take_id() if version >= EPOCH_BUMP_VERSION and current.is_exhausted else NO_PRODUCER_ID


def _to_the_end(prepared: Transaction, now_ms: TimestampMs) -> tuple[Transaction, ...]:
    """A transaction without partitions needs no markers: its prepared and completed states are written together."""
    return (prepared,) if prepared.partitions else (prepared, to.completed(prepared, now_ms))


def _given(after: Transaction) -> Decision:
    return Decision(ProducerReply(ErrorCode.NONE, after.producer_id, after.epoch), (after,))


def _need_name(transactional_id: str) -> None:
    if not transactional_id:
        raise Refused("the transactional id is empty", ErrorCode.INVALID_REQUEST)
    size = len(transactional_id.encode())
    if size > ID_BYTES_MAX:
        raise Refused(
            f"the transactional id has {size} bytes, expected at most {ID_BYTES_MAX}",
            ErrorCode.INVALID_REQUEST,
        )


def _fenced_by(current: Transaction, producer: ProducerEpoch) -> Refused:
    return Refused(
        f"producer {producer.producer_id} has epoch {producer.epoch}, "
        f"but the transactional id now has producer id {current.producer_id}, epoch {current.epoch}",
        ErrorCode.PRODUCER_FENCED,
    )


def _no_such_end(current: Transaction, request: EndTxn) -> Refused:
    end = "commit" if request.commit else "abort"
    return Refused(
        f"transactional id {request.transactional_id!r} is {current.state.title} and cannot {end}",
        ErrorCode.INVALID_TXN_STATE,
    )
