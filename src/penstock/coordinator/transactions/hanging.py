"""Transactions that hang: open in a partition, and ended by no coordinator.

    partition     the producer, and the first offset of its open transaction
    coordinator   the transactional id of the producer id, and the partitions that still need a marker

A transaction hangs if no coordinator lists the partition for its producer, or if it is in doubt (`storage.producers`).
read_committed consumers do not read past it. Only transactions that got no record for some time are examined: a
partition may be written a moment before its coordinator lists it, or after.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.base.ids import Offset, ProducerId, TimestampMs, TopicPartition
from penstock.storage.producers import ACCEPT_LOSS_EPOCH, UNKNOWN_PRODUCER

from .state import State

if TYPE_CHECKING:
    from penstock.storage import Log

OPEN: Final = (State.ONGOING.title, State.PREPARE_EPOCH_FENCE.title)
"""States in which a transaction can still be aborted; the protocol's words."""

IDLE: Final = (
    State.EMPTY.title,
    State.COMPLETE_COMMIT.title,
    State.COMPLETE_ABORT.title,
    State.DEAD.title,
)
"""States of an id without an open transaction."""


class PartitionProducer(NamedTuple):
    producer_id: ProducerId
    epoch: int
    last_sequence: int
    last_timestamp: TimestampMs
    coordinator_epoch: int
    """Coordinator epoch of the last marker; -1 if there was none."""
    start_offset: Offset
    """First offset of its open transaction; -1 if it has none."""

    @property
    def is_in_doubt(self) -> bool:
        """Whether the marker of the transaction may be lost with a damaged or missing part of the log."""
        return self.coordinator_epoch == ACCEPT_LOSS_EPOCH

    @property
    def abort_epoch(self) -> int:
        """The coordinator epoch of an abort marker without a coordinator: 0 fences no coordinator."""
        return max(0, self.coordinator_epoch)

    def may_hang(self, now_ms: TimestampMs, age_ms_min: int) -> bool:
        return self.start_offset >= 0 and (self.is_in_doubt or now_ms - self.last_timestamp >= age_ms_min)

    def hangs(self, partition: TopicPartition, covered: Collection[TopicPartition] | None) -> bool:
        """`covered` are the partitions that the coordinator will still end; None if no coordinator knows the
        producer."""
        return self.is_in_doubt or covered is None or partition not in covered


def producers_of(log: "Log") -> list[PartitionProducer]:
    """The producers that a partition remembers, by id."""
    producers = log.producers
    found = []
    for producer_id in sorted(
        {*producers.by_id, *(each.producer_id for each in producers.in_doubt.values())}
    ):
        producer = producers.by_id.get(producer_id, UNKNOWN_PRODUCER)
        in_doubt = producers.doubt_of(producer_id) if producers.in_doubt else None
        epoch, coordinator_epoch, first_offset = (
            (producer.epoch, producer.coordinator_epoch, producer.txn_first_offset)
            if in_doubt is None
            else (in_doubt.epoch, ACCEPT_LOSS_EPOCH, in_doubt.first_offset)
        )
        found.append(
            PartitionProducer(
                producer_id,
                epoch,
                producer.last_sequence,
                producer.timestamp,
                coordinator_epoch,
                -1 if first_offset is None else first_offset,
            )
        )
    return found
