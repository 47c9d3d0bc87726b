"""Verifies that batches belong to an open transaction (KIP-890).

A transactional batch that its coordinator does not know of would hang: no marker would end it, and READ_COMMITTED
readers would never pass it. So a leader asks the coordinator before it writes the first batch of a transaction. It
does not ask again while the partition has an open transaction of the same producer and epoch.

    Produce 12, TxnOffsetCommit 5 and later    the leader adds the partition to the transaction
    before                                     the client must have added it; not verified where
                                               `transaction.partition.verification.enable` is false

The previous transaction may not be complete when the next one begins. When adding a partition, the leader retries
CONCURRENT_TRANSACTIONS for a short while, as Kafka does, before it returns the error.

A verification is valid until a marker of the producer is written to the partition. Every write replaces the producer's
entry in the log: if the entry has changed when the coordinator's reply arrives, the leader asks again.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TopicPartition
from penstock.base.promise import Promise
from penstock.coordinator.transactions.codes import adds_partitions, for_write
from penstock.coordinator.transactions.requests import AddPartitions, ProducerEpoch, VerifyPartitions
from penstock.coordinator.transactions.state import EPOCH_BUMP_VERSION
from penstock.metadata.acls import AclResourceType, Operation
from penstock.metadata.configs import broker_flag
from penstock.records.batch import (
    FLAGS_AT,
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    PRODUCER,
    PRODUCER_ID_AT,
    TRANSACTIONAL_MASK,
)
from penstock.replica import Partition
from penstock.storage.producers import OutOfOrderSequence, Producer, StaleProducerEpoch
from penstock.wire import Api

from .context import Context, Session
from .txn_coordinators import Codes, ask_coordinator

ASK_AGAIN_MS: Final = 20
"""Kafka's `add.partitions.to.txn.retry.backoff.ms`."""
ASK_MS_MAX: Final = 100
"""Kafka's `add.partitions.to.txn.retry.backoff.max.ms`."""

VerificationErrors: TypeAlias = dict[TopicPartition, KafkaError]
"""Errors of partitions that may not be written. The others may be written in this tick."""


class Claim(NamedTuple):
    """The transaction that a request names, and its producer."""

    transactional_id: str
    producer: ProducerEpoch
    api: Api
    version: int

    @property
    def adds(self) -> bool:
        return adds_partitions(self.api, self.version)


def is_transactional(records: memoryview | None) -> bool:
    """Whether a batch's header marks it as transactional. Invalid headers are rejected elsewhere."""
    return (
        records is not None
        and len(records) >= HEADER_BYTES
        and records[MAGIC_AT] == MAGIC
        and bool(records[FLAGS_AT] & TRANSACTIONAL_MASK)
    )


def claim_of(
    context: Context,
    session: Session,
    transactional_id: str | None,
    version: int,
    batches: Sequence[memoryview],
) -> Claim:
    """The transaction of the transactional batches of a Produce request; raises if it is invalid."""
    if transactional_id is None or not context.authorize(
        session, Operation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id
    ):
        named = (
            "no transactional id" if transactional_id is None else f"transactional id {transactional_id!r}"
        )
        raise KafkaError(
            f"{session.principal} is not authorized to write transactional records with {named}",
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        )
    producers = {ProducerEpoch(*PRODUCER.unpack_from(each, PRODUCER_ID_AT)[:2]) for each in batches}
    if len(producers) > 1:
        raise KafkaError(
            f"A transaction has one producer, the request has batches of {len(producers)}.",
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        )
    return Claim(transactional_id, producers.pop(), Api.PRODUCE, version)


def check_first_sequence(claim: Claim, partition: Partition, records: memoryview) -> None:
    """With `transaction.version` 2 each transaction has a new epoch, which starts with sequence 0: so must the first
    batch of an unknown producer."""
    _, _, sequence = PRODUCER.unpack_from(records, PRODUCER_ID_AT)
    if claim.adds and sequence != 0 and claim.producer.producer_id not in partition.log.producers.by_id:
        raise OutOfOrderSequence(
            f"Producer {claim.producer.producer_id} starts with sequence {sequence}, expected 0."
        )


def verify_partitions(
    context: Context, claim: Claim, partitions: Sequence[Partition]
) -> Promise[VerificationErrors]:
    """Verify several partitions with one request. The result is valid within the tick in which it arrives."""
    verification = _Verification(context, claim)
    verification.ask(partitions)
    return verification.later


class _Verification:
    def __init__(self, context: Context, claim: Claim) -> None:
        self.later: Promise[VerificationErrors] = Promise()
        self._context = context
        self._claim = claim
        self._until_ms = context.world.now_ms() + ASK_MS_MAX
        self._errors: VerificationErrors = {}

    def ask(self, partitions: Sequence[Partition]) -> None:
        claim, context = self._claim, self._context
        left = [each for each in partitions if self._is_sound(each)]
        unknown = frozenset(each.name for each in left if not _is_open(each, claim.producer))
        is_asked = claim.adds or broker_flag(
            "transaction.partition.verification.enable", context.image, context.settings
        )
        if not unknown or not is_asked:
            self.later.resolve(self._errors)
            return
        known = {each: _entry(each, claim.producer) for each in left}
        transactional_id, producer = claim.transactional_id, claim.producer
        request: AddPartitions | VerifyPartitions = (
            AddPartitions(transactional_id, producer, unknown, EPOCH_BUMP_VERSION)
            if claim.adds
            else VerifyPartitions(transactional_id, producer, unknown)
        )
        ask_coordinator(context, request).then(lambda codes: self._answered(known, codes))

    def _is_sound(self, partition: Partition) -> bool:
        """Whether the partition can still be written, which may have changed while the coordinator was asked."""
        name, producer = partition.name, self._claim.producer
        entry = _entry(partition, producer)
        if not partition.is_leader:
            self._errors[name] = KafkaError(
                f"This broker does not lead {name}; refresh metadata and retry.",
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
            )
        elif entry is not None and entry.epoch > producer.epoch:
            self._errors[name] = StaleProducerEpoch(
                f"Producer {producer.producer_id} has epoch {producer.epoch}, the latest is {entry.epoch}."
            )
        else:
            return True
        return False

    def _answered(self, known: dict[Partition, Producer | None], codes: Codes) -> None:
        claim, world = self._claim, self._context.world
        if (
            claim.adds
            and ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
            and world.now_ms() < self._until_ms
        ):
            world.call_later(ASK_AGAIN_MS, lambda: self.ask(list(known)))
            return
        for name, code in codes.items():
            if code is not ErrorCode.NONE:
                self._errors[name] = KafkaError(
                    f"{name} is not in the open transaction of {claim.transactional_id!r}: {code.name}",
                    for_write(code, claim.api, claim.version),
                )
        left = [each for each in known if each.name not in self._errors]
        if all(each.is_leader and _entry(each, claim.producer) is known[each] for each in left):
            self.later.resolve(self._errors)
        else:
            self.ask(left)


def _entry(partition: Partition, producer: ProducerEpoch) -> Producer | None:
    return partition.log.producers.by_id.get(producer.producer_id)


def _is_open(partition: Partition, producer: ProducerEpoch) -> bool:
    entry = _entry(partition, producer)
    return entry is not None and entry.epoch == producer.epoch and entry.txn_first_offset is not None
