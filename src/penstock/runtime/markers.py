"""The ends of transactions, written to the partitions that took part, until every one of them has its marker.

A partition that is led here gets its marker appended. One that is no more has nothing to end. Anything else is tried
again, for ever: readers wait for it. A marker on `__consumer_offsets` is told to the group coordinator there, whose
pending offsets it decides.
"""

import logging
from collections.abc import Callable
from typing import Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TopicPartition
from penstock.base.world import World
from penstock.coordinator.transactions import Markers
from penstock.coordinator.transactions.state import EPOCH_BUMP_VERSION
from penstock.records import end_txn_marker
from penstock.replica import ALL_IN_SYNC, Partition, Replicas
from penstock.runtime.groups import OFFSETS_TOPIC, Groups
from penstock.runtime.shard import WRITE_MS_MAX
from penstock.storage import Appended, Origin

logger = logging.getLogger(__name__)

RETRY_MS: Final = 100
"""After how long a partition that could not be written is tried again."""

_DEPOSED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""What a partition says when a newer coordinator has ended the transaction."""

Done = Callable[[KafkaError | None], None]


class _MarkerWrite:
    """A `Writer`."""

    acks = ALL_IN_SYNC

    def __init__(self, appended: Appended, deadline_ms: int, done: Done) -> None:
        self.appended = appended
        self.deadline_ms = deadline_ms
        self.settle = done


class MarkerWriter:
    def __init__(self, world: World, replicas: Replicas, groups: Groups) -> None:
        self._world = world
        self._replicas = replicas
        self._groups = groups

    def write(
        self, markers: Markers, written: Callable[[TopicPartition], None], is_over: Callable[[], bool]
    ) -> None:
        """Write them all; `written` is told of each. `is_over` says that nobody waits any more."""
        for name in sorted(markers.partitions):
            self._write_one(name, markers, written, is_over)

    def _write_one(
        self,
        name: TopicPartition,
        markers: Markers,
        written: Callable[[TopicPartition], None],
        is_over: Callable[[], bool],
    ) -> None:
        if is_over():
            return

        def again() -> None:
            self._write_one(name, markers, written, is_over)

        def done(error: KafkaError | None) -> None:
            if error is None or error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                written(name)
            elif error.code in _DEPOSED:
                logger.warning("%s: another coordinator has ended %s", name, markers.transactional_id)
            else:
                self._world.call_later(RETRY_MS, again)

        self.append(
            name,
            markers.producer.producer_id,
            markers.producer.epoch,
            markers.coordinator_epoch,
            markers.commit,
            done,
            version=markers.version,
        )

    def append(
        self,
        name: TopicPartition,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        commit: bool,
        done: Done,
        *,
        version: int = 0,
    ) -> None:
        """Write one marker, of an end in a `transaction.version`; `done` is told when it is committed, or why not."""
        now_ms = self._world.now_ms()
        try:
            partition = self._replicas.find(name.topic, name.partition)
            if version >= EPOCH_BUMP_VERSION:
                _check_epoch(partition, producer_id, epoch)
            marker = end_txn_marker(producer_id, epoch, commit, coordinator_epoch, now_ms)
            shard = self._groups.shards.at(name.partition) if name.topic == OFFSETS_TOPIC else None
            if shard is not None:
                shard.append_marker(marker, producer_id, commit, done)
                return
            appended = partition.stage(memoryview(bytearray(marker)), ALL_IN_SYNC, now_ms, Origin.COORDINATOR)
        except KafkaError as error:
            done(error)
            return
        partition.wait(_MarkerWrite(appended, now_ms + WRITE_MS_MAX, done))


def _check_epoch(partition: Partition, producer_id: int, epoch: int) -> None:
    """Refuse a marker that comes too late (KIP-1228): one whose epoch is that of the open transaction's records is of
    an earlier one. Where none is open, it is written once more, and harms nobody."""
    entry = partition.log.producers.by_id.get(producer_id)
    if entry is not None and entry.epoch == epoch and entry.txn_first_offset is not None:
        raise KafkaError(
            f"{partition.name}: a marker for producer {producer_id} has epoch {epoch}, "
            f"and so has the open transaction, which has another end",
            ErrorCode.INVALID_PRODUCER_EPOCH,
        )
