"""Observes the nodes of a cluster while they run, and records as events what clients cannot see.

The nodes run the shipped code. A watched node reports committed metadata, and its state is inspected between events.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.base.ids import LeaderEpoch, Offset, TopicPartition, Uuid
from penstock.base.internal_topics import OFFSETS_TOPIC
from penstock.base.world import World
from penstock.coordinator.runtime.group_service import GroupShard
from penstock.metadata.image import ClusterImage
from penstock.metadata.records import AnyRecord
from penstock.replica.partition import Partition
from penstock.server.config import NodeConfig
from penstock.server.node import Node
from penstock.sim.checkers.disks import left_behind
from penstock.sim.checkers.history import (
    CoordinatorLoaded,
    CoordinatorUnloaded,
    Event,
    HighWatermark,
    ImageLoaded,
    LeaderFound,
    MetadataCommitted,
    QuorumLeaderFound,
    ReplicaCreated,
)
from penstock.sim.clients.client import Recorder
from penstock.sim.world.machine import Machine, State
from penstock.sim.world.schedule import Schedule
from penstock.vfs import Vfs

PARTITIONS_EVERY = 13
"""Partitions are inspected after this many events; a prime, so that every node gets inspected."""


class WatchedNode(Node):
    def __init__(self, world: World, vfs: Vfs, config: NodeConfig, record: Callable[[Event], None]) -> None:
        super().__init__(world, vfs, config)
        self._record = record

    @property
    def is_composed(self) -> bool:
        return hasattr(self, "context")

    @property
    def has_lease(self) -> bool:
        """Whether this broker is in touch with its controller."""
        return self.is_composed and self._lifecycle.has_lease

    def loaded(self, image: ClusterImage) -> None:
        super().loaded(image)
        self._record(ImageLoaded(self._number, image))

    def committed(self, records: Sequence[AnyRecord], offset: Offset, epoch: LeaderEpoch) -> None:
        self._record(MetadataCommitted(self._number, tuple(records), offset, epoch))
        super().committed(records, offset, epoch)

    @property
    def _number(self) -> int:
        return self._config.node_id or 0


class WatchedReplica(NamedTuple):
    """A replica and its last recorded high watermark."""

    partition: Partition
    replica: int
    """Number of the replica; one that was moved away and returned gets a new number."""
    offset: Offset


class ClusterWatch:
    def __init__(self, recorder: Recorder, schedule: Schedule) -> None:
        self._recorder = recorder
        self._schedule = schedule
        self._record = recorder.record
        self._machines: Sequence[Machine] = ()
        self._looks = 0
        self._led: dict[tuple[Uuid, int, LeaderEpoch], int] = {}
        """Recorded leader of each partition and epoch."""
        self._loaded: dict[tuple[int, LeaderEpoch], GroupShard] = {}
        """Loaded group coordinators by partition and leader epoch."""
        self._ruled: dict[LeaderEpoch, int] = {}
        """Recorded leader of the quorum in each epoch."""
        self._marks: dict[tuple[int, Uuid, int], WatchedReplica] = {}
        """Replicas by process and partition."""
        self._replicas = 0

    def make_node(self, world: World, vfs: Vfs, config: NodeConfig) -> WatchedNode:
        return WatchedNode(world, vfs, config, self._record)

    def begin(self, machines: Sequence[Machine]) -> None:
        self._machines = machines

    # -- between two events ----------------------------------------------------------------------------

    def look(self) -> None:
        for machine in self._machines:
            if machine.has_run:
                machine.has_run = False
                node = machine.node
                if isinstance(node, WatchedNode) and node.is_composed:
                    self._looks += 1
                    if node.quorum.is_leader:
                        self._look_at_leader(machine, node.quorum.epoch)
                    if self._looks % PARTITIONS_EVERY == 0:
                        self._look_at_partitions(machine, node)

    def _look_at_leader(self, machine: Machine, epoch: LeaderEpoch) -> None:
        if self._ruled.get(epoch) != machine.number:
            self._ruled[epoch] = machine.number
            self._recorder.trace(f"{machine.host} leads the quorum in epoch {epoch}")
            self._record(QuorumLeaderFound(machine.number, epoch))

    def _look_at_partitions(self, machine: Machine, node: Node) -> None:
        for at, partition in node.context.replicas.partitions.items():
            name = partition.topic_id, partition.number
            if partition.is_leader:
                key = (*name, partition.leader_epoch)
                if self._led.get(key) != machine.number:
                    epoch = partition.leader_epoch
                    self._led[key] = machine.number
                    self._recorder.trace(
                        f"{machine.host} leads {at} in epoch {epoch} from {partition.epoch_start} on"
                    )
                    now_us = self._schedule.now_us
                    self._record(LeaderFound(machine.number, at, partition.topic_id, epoch, now_us))
                if at.topic == OFFSETS_TOPIC:
                    self._look_at_groups(machine, node, partition)
            place, offset = (machine.incarnation, *name), partition.high_watermark
            mark = self._marks.get(place)
            if mark is None or mark.partition is not partition:
                if mark is not None:
                    self._record(ReplicaCreated(machine.incarnation, at))
                self._replicas += 1
                mark = WatchedReplica(partition, self._replicas, -1)
            if mark.offset != offset:
                self._marks[place] = mark._replace(offset=offset)
                self._record(HighWatermark(mark.replica, at, offset))

    def _look_at_groups(self, machine: Machine, node: Node, partition: Partition) -> None:
        number, epoch = partition.number, partition.leader_epoch
        shard = node.context.groups.shards.at(number)
        known = self._loaded.get((number, epoch))
        if known is not None and (known is not shard or not shard.is_loaded):
            del self._loaded[number, epoch]
            self._record(CoordinatorUnloaded(machine.number, number, epoch, self._schedule.now_us))
            known = None
        if known is None and shard is not None and shard.is_loaded and shard.log.is_still(partition):
            self._loaded[number, epoch] = shard
            self._record(CoordinatorLoaded(machine.number, number, epoch, self._schedule.now_us))

    # -- at the end of a run ---------------------------------------------------------------------------

    @property
    def _images(self) -> list[ClusterImage]:
        return [
            machine.node.context.image
            for machine in self._machines
            if machine.state is State.UP and isinstance(machine.node, WatchedNode)
        ]

    def are_all_in_sync(self) -> bool:
        """Return whether every replica of every partition is in sync in every node's image."""
        images = self._images
        return len(images) == len(self._machines) and all(
            sorted(partition.isr) == sorted(partition.replicas) and not partition.adding
            for image in images
            for topic in image.topics.values()
            for partition in topic.partitions.values()
        )

    def do_all_know_the_same(self) -> bool:
        return len({image.offset for image in self._images}) == 1

    def is_nothing_left_behind(self) -> bool:
        """Return whether no disk has a partition that does not belong there."""
        return not any(
            left_behind(machine.disk, machine.number, machine.node.context.image)
            for machine in self._machines
            if isinstance(machine.node, WatchedNode)
        )

    def committed_ends(self) -> dict[TopicPartition, Offset]:
        """Return the high watermark of each partition, taken from its leader."""
        return {
            at: partition.high_watermark
            for machine in self._machines
            if isinstance(machine.node, WatchedNode)
            for at, partition in machine.node.context.replicas.partitions.items()
            if partition.is_leader
        }

    def tell_images(self) -> None:
        for machine, image in zip(self._machines, self._images, strict=True):
            self._record(ImageLoaded(machine.number, image))
