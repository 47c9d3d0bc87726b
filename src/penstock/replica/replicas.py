"""All partitions of a node, found by their topic's name or id, and kept as the cluster's image says.

Whoever follows the metadata log gives each new image to `apply`. Partitions that are new get a log, those whose
topic is gone lose theirs, and what is led here is led in the epoch that the image has. Doing it again does no harm:
after a crash the first image makes up for what was not done before it.
"""

import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TopicPartition, uuid_text
from penstock.base.settings import LogSettings
from penstock.base.world import World
from penstock.metadata import (
    EMPTY,
    BrokerSettings,
    ClusterImage,
    ImageDelta,
    ResourceType,
    Topic,
    log_defaults,
    log_settings,
)
from penstock.metadata.configs import min_insync_replicas
from penstock.metadata.image import Partition as Placement
from penstock.replica.partition import Durability, Partition, SyncLane
from penstock.storage import Log, LogDirectory, StorageError
from penstock.wire import TopicKey

logger = logging.getLogger(__name__)


class Stray(NamedTuple):
    """A partition on disk that the cluster knows nothing of."""

    partition: TopicPartition
    topic_id: bytes | None


class Replicas:
    def __init__(
        self,
        world: World,
        directory: LogDirectory,
        node_id: int,
        settings: BrokerSettings,
        durability: Durability,
        write_later: Callable[[Callable[[], None]], None],
    ) -> None:
        """`write_later` has something called at the end of the turn, before replies are sent."""
        self.directory = directory
        self.partitions: dict[TopicPartition, Partition] = {}
        self.lane = SyncLane(world)
        self._world = world
        self._node_id = node_id
        self._settings = settings
        self._durability = durability
        self._write_later = write_later
        self._image = EMPTY
        self._by_key: dict[tuple[TopicKey, int], Partition] = {}
        """Each twice: by its topic's name and id. Only those that are led here."""

    # -- finding ---------------------------------------------------------------------------------------

    def led(self, topic: TopicKey, number: int) -> Partition | None:
        """The partition, if it is led here."""
        return self._by_key.get((topic, number))

    def find(self, topic: TopicKey, number: int) -> Partition:
        """The partition, if it is led here; otherwise an error that says what is wrong."""
        found = self._by_key.get((topic, number))
        if found is not None:
            return found
        if isinstance(topic, bytes):
            known = self._image.topic_by_id(topic)
            if known is None:
                raise KafkaError(f"no topic has the id {uuid_text(topic)}", ErrorCode.UNKNOWN_TOPIC_ID)
            topic = known.name
        name = TopicPartition(topic, number)
        if self._image.partition(topic, number) is None:
            raise KafkaError(f"there is no partition {name}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise KafkaError(f"{name} is not led here", ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def strays(self) -> list[Stray]:
        """What lies in the directory and belongs to no topic of the cluster."""
        return [
            Stray(name, log.topic_id)
            for name, log in sorted(self.directory.logs.items())
            if name not in self.partitions
        ]

    # -- following the cluster -------------------------------------------------------------------------

    def apply(self, image: ClusterImage, changed: ImageDelta) -> None:
        """Bring about what changed on the way to this image."""
        self._image = image
        for topic in changed.topics_deleted:
            for number in sorted(topic.partitions):
                self._drop(TopicPartition(topic.name, number))
        reconfigured = self._reconfigured(changed)
        defaults = log_defaults(image, self._settings) if changed.partitions or reconfigured else None
        for each in changed.partitions:
            self._place(each.topic, each.number, each.new, defaults)
        for name in reconfigured:
            partition = self.partitions.get(name)
            if partition is not None:
                self._configure(partition, defaults)

    def _reconfigured(self, changed: ImageDelta) -> Iterable[TopicPartition]:
        """The partitions whose settings may be others now."""
        kinds = {resource.type for resource in changed.configs}
        if ResourceType.BROKER in kinds:
            return list(self.partitions)
        topics = {each.name for each in changed.configs if each.type == ResourceType.TOPIC}
        return [
            TopicPartition(name, number)
            for name in sorted(topics)
            if name in self._image.topics
            for number in self._image.topics[name].partitions
        ]

    def _place(self, topic: Topic, number: int, placed: Placement, defaults: LogSettings | None) -> None:
        name = TopicPartition(topic.name, number)
        if self._node_id not in placed.replicas:
            self._drop(name)
            return
        partition = self.partitions.get(name)
        if partition is None:
            log = self._log(name, topic, defaults)
            if log is None:
                return
            partition = Partition(
                log, topic.id, self._world, self.lane, self._durability, self._write_later
            )
            self.partitions[name] = partition
        if placed.leader == self._node_id:
            partition.lead(
                placed.leader_epoch,
                len(placed.isr),
                min_insync_replicas(topic.name, self._image, self._settings),
            )
            self._by_key[topic.name, number] = self._by_key[topic.id, number] = partition
        else:
            self._forget(partition)
            partition.step_down(
                KafkaError(f"{name} is led elsewhere now", ErrorCode.NOT_LEADER_OR_FOLLOWER)
            )

    def _log(self, name: TopicPartition, topic: Topic, defaults: LogSettings | None) -> Log | None:
        """The partition's log, which may be there from before; None if the disk fails."""
        try:
            log = self.directory.logs.get(name)
            if log is not None and log.topic_id not in (None, topic.id):
                logger.warning("%s on disk is of a topic that was deleted, and goes", name)
                self._remove(name)
                log = None
            if log is None:
                log = self.directory.create(name, now_ms=self._world.now_ms(), topic_id=topic.id)
        except StorageError as error:
            logger.error("%s", error)
            return None
        log.configure(log_settings(topic.name, self._image, self._settings, defaults))
        return log

    def _configure(self, partition: Partition, defaults: LogSettings | None) -> None:
        partition.log.configure(log_settings(partition.topic, self._image, self._settings, defaults))
        partition.min_in_sync = min_insync_replicas(partition.topic, self._image, self._settings)

    def _drop(self, name: TopicPartition) -> None:
        partition = self.partitions.pop(name, None)
        if partition is not None:
            self._forget(partition)
            partition.step_down(
                KafkaError(f"{name} was deleted", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            )
        if name in self.directory.logs:
            try:
                self._remove(name)
            except StorageError as error:
                logger.error("%s", error)

    def _forget(self, partition: Partition) -> None:
        self._by_key.pop((partition.topic, partition.number), None)
        self._by_key.pop((partition.topic_id, partition.number), None)

    def _remove(self, name: TopicPartition) -> None:
        delay_ms = self.directory.logs[name].settings.file_delete_delay_ms
        removal = self.directory.delete(name, self._world.rng)

        def done(_: None, error: Exception | None) -> None:
            if error is not None:
                logger.error("%s", error)

        self._world.call_later(delay_ms, lambda: self._world.beside(removal.run, done))

    def step_down(self) -> None:
        """Lead nothing any more: the node is about to stop."""
        self._by_key.clear()
        for partition in self.partitions.values():
            partition.step_down(
                KafkaError(f"{partition.name} is closed: the node stops", ErrorCode.NOT_LEADER_OR_FOLLOWER)
            )
