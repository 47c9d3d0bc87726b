"""The state of one transactional id, and the ways in which it may change.

                     add partitions           end, fence, time out          all markers written
    Empty            ------------->  Ongoing  --------------->  Prepare...  ------------------>  Complete...
      ^  new, or initialised again      |  ^                       ^                                |
      |                                 +--+ more partitions       |                                |
      +----------------------------------------------------------- | -------------------------------+
                                        an abort of nothing (KIP-890) from Empty and Complete

A `Transaction` is what one record of `__transaction_state` says; it is replaced, never changed. The functions
here return the next one; `decisions` decides which requests are allowed. With `transaction.version` 2 (KIP-890) the
producer's epoch rises at every end, so that late requests of the previous transaction are rejected everywhere.

    epoch               used by
    ..., n              the producer, from 0 up
    32766               the last one that a client is ever given
    32767               kept free, so that the owner of 32766 can still be fenced; the next id then begins at 0
"""

from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.base.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ProducerId,
    TimestampMs,
    TopicPartition,
)
from penstock.records.structs import CorruptStruct

from .schema import PartitionsSchema, Record, TransactionLogValue, encode_key, encode_value

Partitions: TypeAlias = frozenset[TopicPartition]

EPOCH_MAX: Final = 2**15 - 1
TIMEOUT_NEVER_MS: Final = 2**31 - 1
"""The timeout of a transaction with an external coordinator (KIP-939): it never times out."""
EPOCH_BUMP_VERSION: Final = 2
"""The `transaction.version` from which every end bumps the epoch."""
_NOTHING: Partitions = frozenset()


class State(IntEnum):
    """Numbers as they are in records, names as DescribeTransactions spells them."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """Its tombstone is being written. Never in a record."""
    PREPARE_EPOCH_FENCE = 7
    """Kafka's name for the moment before a fencing abort is written. Never in a record, and never
    returned; ListTransactions accepts the name."""

    @property
    def title(self) -> str:
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def is_at_rest(self) -> bool:
        """Nothing is open: the id may start, be given to another producer, or expire."""
        return self in (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


_AT_REST = frozenset(each for each in State if each.is_at_rest)

LEGAL: Final[dict[State, frozenset[State]]] = {
    State.EMPTY: _AT_REST,
    State.ONGOING: _AT_REST | {State.ONGOING},
    State.PREPARE_COMMIT: frozenset({State.ONGOING}),
    State.PREPARE_ABORT: _AT_REST | {State.ONGOING},
    State.COMPLETE_COMMIT: frozenset({State.PREPARE_COMMIT}),
    State.COMPLETE_ABORT: frozenset({State.PREPARE_ABORT}),
    State.DEAD: _AT_REST,
    State.PREPARE_EPOCH_FENCE: frozenset({State.ONGOING}),
}
"""Of each state, those that it may follow."""

STATES_BY_TITLE: Final = {each.title: each for each in State}


class Transaction(NamedTuple):
    """A transactional id, as of a committed record."""

    producer_id: ProducerId
    epoch: int
    timeout_ms: int
    updated_ms: TimestampMs
    """When it last changed: idle ids expire."""
    state: State = State.EMPTY
    partitions: Partitions = _NOTHING
    """What the transaction has written to, or may have. Empty unless it is ongoing or prepared."""
    started_ms: TimestampMs = NO_TIMESTAMP
    """When its first partition was added."""
    version: int = 0
    """The `transaction.version` that the producer spoke when this state was reached."""
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    """What `producer_id` was before the last change; the same, mostly."""
    next_producer_id: ProducerId = NO_PRODUCER_ID
    """What `producer_id` becomes when the end is complete. Only while it is prepared, with no epochs left."""
    last_epoch: int = NO_PRODUCER_EPOCH
    """The epoch that the same producer had before it asked for this one: by it a retry is known (KIP-360).
    It is not in the record, as with Kafka: after a reload such a retry is refused."""

    @property
    def bumps_epoch(self) -> bool:
        return self.version >= EPOCH_BUMP_VERSION

    @property
    def is_exhausted(self) -> bool:
        """The epoch is the last that a client may have."""
        return is_exhausted(self.epoch)

    @property
    def expires_ms(self) -> TimestampMs | None:
        """The last moment of an ongoing transaction, past which it is aborted; None where there is none."""
        if self.state is not State.ONGOING or self.timeout_ms == TIMEOUT_NEVER_MS:
            return None
        return self.started_ms + self.timeout_ms

    def record(self, transactional_id: str, transaction_version: int) -> Record:
        """As it is written where the cluster has this `transaction.version`."""
        value = TransactionLogValue(
            version=1,
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            producer_epoch=self.epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=int(self.state),
            transaction_partitions=None if self.state is State.EMPTY else _by_topic(self.partitions),
            transaction_last_update_timestamp_ms=self.updated_ms,
            transaction_start_timestamp_ms=self.started_ms,
            client_transaction_version=self.version,
        )
        if transaction_version < 1:
            value = _without_tags(value)
        return Record(encode_key(transactional_id), encode_value(value))


def from_value(value: TransactionLogValue) -> Transaction:
    status = value.transaction_status
    if status not in _RECORDED:
        raise CorruptStruct(f"a transaction's state is {status}, expected 0 to {int(State.COMPLETE_ABORT)}")
    partitions = () if status == State.EMPTY else value.transaction_partitions or ()
    return Transaction(
        producer_id=value.producer_id,
        epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        state=State(status),
        partitions=frozenset(
            TopicPartition(each.topic, number) for each in partitions for number in each.partition_ids
        ),
        started_ms=value.transaction_start_timestamp_ms,
        version=value.client_transaction_version,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
    )


_RECORDED = frozenset(range(State.COMPLETE_ABORT + 1))


def is_exhausted(epoch: int) -> bool:
    return epoch >= EPOCH_MAX - 1


# Transitions. `decisions` decides which are allowed.


def new(producer_id: ProducerId, timeout_ms: int, now_ms: TimestampMs) -> Transaction:
    return Transaction(producer_id, 0, timeout_ms, now_ms, previous_producer_id=producer_id)


def initialised(
    before: Transaction, epoch: int, last_epoch: int, timeout_ms: int, now_ms: TimestampMs
) -> Transaction:
    """A producer was initialised with an epoch."""
    return _moved(
        before,
        State.EMPTY,
        epoch=epoch,
        last_epoch=last_epoch,
        timeout_ms=timeout_ms,
        partitions=_NOTHING,
        started_ms=NO_TIMESTAMP,
        updated_ms=now_ms,
    )


def rotated(
    before: Transaction, producer_id: ProducerId, last_epoch: int, timeout_ms: int, now_ms: TimestampMs
) -> Transaction:
    """No epoch is left: another producer id, from epoch 0."""
    return initialised(before, 0, last_epoch, timeout_ms, now_ms)._replace(producer_id=producer_id)


def with_partitions(
    before: Transaction, partitions: Partitions, version: int, now_ms: TimestampMs
) -> Transaction:
    return _moved(
        before,
        State.ONGOING,
        partitions=before.partitions | partitions,
        started_ms=now_ms if before.state.is_at_rest else before.started_ms,
        updated_ms=now_ms,
        version=version,
    )


def prepared(
    before: Transaction, commit: bool, version: int, now_ms: TimestampMs, next_producer_id: ProducerId
) -> Transaction:
    """The end is decided: from this record on the transaction commits, or aborts, on every partition."""
    epoch, last_epoch = before.epoch, before.last_epoch
    if version >= EPOCH_BUMP_VERSION:
        epoch, last_epoch = min(before.epoch + 1, EPOCH_MAX), before.epoch
    return _moved(
        before,
        State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
        epoch=epoch,
        last_epoch=last_epoch,
        # An abort of nothing has no beginning, but its end must have one.
        started_ms=now_ms if before.state.is_at_rest else before.started_ms,
        updated_ms=now_ms,
        version=version,
        next_producer_id=next_producer_id,
    )


def fenced(
    before: Transaction, version: int, now_ms: TimestampMs, next_producer_id: ProducerId
) -> Transaction:
    """The transaction is aborted by the coordinator, and its producer is fenced."""
    if version >= EPOCH_BUMP_VERSION:
        return prepared(before, False, version, now_ms, next_producer_id)
    ahead = before._replace(epoch=min(before.epoch + 1, EPOCH_MAX), last_epoch=NO_PRODUCER_EPOCH)
    return prepared(ahead, False, version, now_ms, NO_PRODUCER_ID)


def completed(before: Transaction, now_ms: TimestampMs) -> Transaction:
    """All markers are written."""
    after = _moved(
        before,
        State.COMPLETE_COMMIT if before.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT,
        partitions=_NOTHING,
        updated_ms=now_ms,
        next_producer_id=NO_PRODUCER_ID,
    )
    if before.bumps_epoch and before.next_producer_id != NO_PRODUCER_ID:
        return after._replace(producer_id=before.next_producer_id, epoch=0)
    return after


def _moved(before: Transaction, state: State, **changes: Any) -> Transaction:
    assert before.state in LEGAL[state], f"{before.state.title} cannot become {state.title}"
    return before._replace(state=state, previous_producer_id=before.producer_id, **changes)


def _by_topic(partitions: Partitions) -> tuple[PartitionsSchema, ...]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return tuple(
        PartitionsSchema(topic=topic, partition_ids=tuple(numbers)) for topic, numbers in topics.items()
    )


def _without_tags(value: TransactionLogValue) -> TransactionLogValue:
    """Version 0, which has no room for what KIP-890 added."""
    tagged = {name: how.default for name, how in TransactionLogValue.FIELDS.items() if how.tag is not None}
    return TransactionLogValue(**(vars(value) | tagged | {"version": 0}))
