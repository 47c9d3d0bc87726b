"""Replicas whose files could not be created, because the disk is full or fails. They are tried again every second.

A replica without files cannot be written to, and `acks=all` would wait for it until its leader drops it from the ISR
(`replica.lag.time.max.ms`). So it leaves the ISR by itself, as a replica does whose disk fails later (`failing_disk`).
A leader hands over. The replica has no records, so it leaves the ELR too."""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from penstock.base.errors import KafkaError
from penstock.base.ids import TopicPartition
from penstock.base.world import Timer, World
from penstock.metadata.controller.port import ControllerPort
from penstock.metadata.controller.requests import DAMAGED, AlterPartition, IsrChange, IsrMember
from penstock.metadata.image import ClusterImage
from penstock.replica.isr_changes import CHANGES_MAX
from penstock.storage import StorageError

logger = logging.getLogger(__name__)

RETRY_MS: Final = 1000


class FailedCreations:
    def __init__(
        self,
        world: World,
        controller: ControllerPort | None,
        node_id: int,
        broker_epoch: Callable[[], int],
        image: Callable[[], ClusterImage],
        retry: Callable[[], None],
    ) -> None:
        """`retry` creates the partitions of `reasons` again."""
        self.reasons: dict[TopicPartition, str] = {}
        """By partition: why its files could not be created."""
        self._world = world
        self._controller = controller
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._image = image
        self._retry = retry
        self._is_leaving = False
        """A request to leave ISRs is about to be sent."""
        self._timer: Timer | None = None
        self._is_stopped = False

    def add(self, name: TopicPartition, error: StorageError) -> None:
        if name not in self.reasons:
            logger.error("%s; it is tried again every second", error)
        self.reasons[name] = str(error)
        if not self._is_leaving:
            self._is_leaving = True
            self._world.call_soon(self._leave_isrs)
        if self._timer is None and not self._is_stopped:
            self._timer = self._world.call_later(RETRY_MS, self._retry_now)

    def discard(self, name: TopicPartition) -> bool:
        """Forget a partition that has its files, or is no longer placed here; True if it had failed."""
        return self.reasons.pop(name, None) is not None

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _retry_now(self) -> None:
        self._timer = None
        self._retry()

    def _leave_isrs(self) -> None:
        """Leave the ISRs. Repeated with each attempt to create the files."""
        self._is_leaving = False
        changes = _isrs_without(self._node_id, self.reasons, self._image())[:CHANGES_MAX]
        if changes and self._controller is not None and not self._is_stopped:
            request = AlterPartition(self._node_id, self._broker_epoch(), tuple(changes))
            self._controller.submit(request).then(lambda _: None, _failed)


def _failed(error: KafkaError) -> None:
    logger.warning("the controller could not take replicas without files out of the ISR: %s", error)


def _isrs_without(node_id: int, names: Iterable[TopicPartition], image: ClusterImage) -> list[IsrChange]:
    """ISRs without this broker, for the partitions that have others in sync."""
    changes = []
    for name in names:
        topic = image.topics.get(name.topic)
        placed = None if topic is None else topic.partitions.get(name.partition)
        if topic is None or placed is None or node_id not in placed.isr or len(placed.isr) == 1:
            continue
        others = tuple(IsrMember(each) for each in placed.isr if each != node_id)
        changes.append(
            IsrChange(topic.id, name.partition, placed.leader_epoch, placed.partition_epoch, others, DAMAGED)
        )
    return changes
