"""Whether a batch may be written as part of a transaction: its coordinator knows (KIP-890).

A batch that its coordinator does not know of would hang: no marker would ever end it, and readers of committed data
would wait behind it for ever. So the leader of a partition asks before the first batch of a transaction. Where the
partition has an open transaction of the same producer and epoch it has asked before, and asks no more.

    Produce 12, TxnOffsetCommit 5 and later    the partition joins the transaction
    before                                     the client must have added it itself; not asked for where
                                               `transaction.partition.verification.enable` is false

The end of the transaction before may not be complete yet when the next one begins. Where a partition is to join, the
verification is asked again for a short while, as Kafka does, before the client is told CONCURRENT_TRANSACTIONS.

An answer is good for as long as no marker of the producer comes to the partition. A producer's entry in a log is
replaced by whatever is written in its name: where it is not the same when the answer comes, it is asked again.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TopicPartition
from penstock.base.promise import Promise
from penstock.coordinator.transactions import AddPartitions, ProducerEpoch, VerifyPartitions
from penstock.coordinator.transactions.codes import adds_partitions, for_write
from penstock.coordinator.transactions.state import EPOCH_BUMP_VERSION
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

from .context import AclResourceType, Context, Operation, Session
from .txn_coordinators import Codes, ask_coordinator

ASK_AGAIN_MS: Final = 20
"""Kafka's `add.partitions.to.txn.retry.backoff.ms`."""
ASK_MS_MAX: Final = 100
"""Kafka's `add.partitions.to.txn.retry.backoff.max.ms`."""

VerificationErrors: TypeAlias = dict[TopicPartition, KafkaError]
"""Why partitions may not be written to; the others may, now and not later."""


class Claim(NamedTuple):
    """Who says that it writes as part of whose transaction, and how it says so."""

    transactional_id: str
    producer: ProducerEpoch
    api: Api
    version: int

    @property
    def adds(self) -> bool:
        return adds_partitions(self.api, self.version)


def is_transactional(records: memoryview | None) -> bool:
    """By its header, whether a batch is part of a transaction; what is no sound header is for others to refuse."""
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
    """What the transactional batches of a Produce request say; refuses what cannot be."""
    if transactional_id is None or not context.authorize(
        session, Operation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id
    ):
        named = (
            "no transactional id" if transactional_id is None else f"transactional id {transactional_id!r}"
        )
        raise KafkaError(
            f"{session.principal} may not write transactional records with {named}",
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        )
    producers = {ProducerEpoch(*PRODUCER.unpack_from(each, PRODUCER_ID_AT)[:2]) for each in batches}
    if len(producers) > 1:
        raise KafkaError(
            f"one transaction has one producer, the request has {len(producers)}",
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        )
    return Claim(transactional_id, producers.pop(), Api.PRODUCE, version)


def check_first_sequence(claim: Claim, partition: Partition, records: memoryview) -> None:
    """With `transaction.version` 2 every transaction has an epoch of its own, and every epoch begins with 0: the first
    batch of a producer that nothing is known of must, too."""
    _, _, sequence = PRODUCER.unpack_from(records, PRODUCER_ID_AT)
    if claim.adds and sequence != 0 and claim.producer.producer_id not in partition.log.producers.by_id:
        raise OutOfOrderSequence(
            f"producer {claim.producer.producer_id} begins with sequence {sequence}, expected 0"
        )


def verify_partitions(
    context: Context, claim: Claim, partitions: Sequence[Partition]
) -> Promise[VerificationErrors]:
    """Ask for all of them at once. The answer holds until whoever gets it lets go."""
    verification = _Verification(context, claim)
    verification.ask(partitions)
    return verification.later


class _Verification:
    def __init__(self, context: Context, claim: Claim) -> None:
        self.later: Promise[VerificationErrors] = Promise()
        self._context = context
        self._claim = claim
        self._until_ms = context.world.now_ms() + ASK_MS_MAX
        self._fates: VerificationErrors = {}

    def ask(self, partitions: Sequence[Partition]) -> None:
        claim, context = self._claim, self._context
        left = [each for each in partitions if self._is_sound(each)]
        unknown = frozenset(each.name for each in left if not _is_open(each, claim.producer))
        is_asked = claim.adds or broker_flag(
            "transaction.partition.verification.enable", context.image, context.settings
        )
        if not unknown or not is_asked:
            self.later.resolve(self._fates)
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
        """Whether it can be written to at all: much may have happened while nobody answered."""
        name, producer = partition.name, self._claim.producer
        entry = _entry(partition, producer)
        if not partition.is_leader:
            self._fates[name] = KafkaError(f"{name} is not led here", ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif entry is not None and entry.epoch > producer.epoch:
            self._fates[name] = StaleProducerEpoch(
                f"producer {producer.producer_id} has epoch {producer.epoch}, the last seen is {entry.epoch}"
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
                self._fates[name] = KafkaError(
                    f"{name} is not in the open transaction of {claim.transactional_id!r}: {code.name}",
                    for_write(code, claim.api, claim.version),
                )
        left = [each for each in known if each.name not in self._fates]
        if all(each.is_leader and _entry(each, claim.producer) is known[each] for each in left):
            self.later.resolve(self._fates)
        else:
            self.ask(left)


def _entry(partition: Partition, producer: ProducerEpoch) -> Producer | None:
    return partition.log.producers.by_id.get(producer.producer_id)


def _is_open(partition: Partition, producer: ProducerEpoch) -> bool:
    entry = _entry(partition, producer)
    return entry is not None and entry.epoch == producer.epoch and entry.txn_first_offset is not None
