"""All partitions of this broker, found by topic name or id. Applies the cluster image to them.

Each new image of the metadata log is given to `apply`. New partitions get a log; the logs of partitions whose topic
was deleted, or that were reassigned to other brokers, are deleted; partitions that this broker leads get the leader
epoch of the image; others are replicated from their leader. Applying an image twice does no harm: after a crash, the
first image completes what was not done before.

A log is deleted only if a metadata record deleted its topic, or reassigned the partition while this broker ran. A log
that the image merely does not mention is set aside and kept (`unclaimed`). A broker that was away applies no image
before it has caught up with the metadata log: an old image lacks what was created or reassigned here since.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TopicPartition, Uuid, uuid_text
from penstock.base.metrics import TICK_NS_MAX, Traffic
from penstock.base.settings import LogSettings
from penstock.base.world import World
from penstock.metadata.configs import BrokerSettings, broker_setting
from penstock.metadata.controller.port import ControllerPort
from penstock.metadata.delta import ImageDelta, PartitionDelta
from penstock.metadata.image import EMPTY, ClusterImage, PartitionRegistration, ResourceType, Topic
from penstock.replica.broker_client import BrokerClient
from penstock.replica.delayed_operations import Durability
from penstock.replica.failed_creations import FailedCreations
from penstock.replica.failing_disk import FailingDisk
from penstock.replica.fetchers import Fetchers
from penstock.replica.inspections import Inspections
from penstock.replica.isr_changes import IsrChanges
from penstock.replica.partition import NO_LEADER, Partition
from penstock.replica.record_times import RecordTimes
from penstock.replica.refused_batches import RefusedBatches, numbered
from penstock.replica.removals import Removals
from penstock.replica.sync_lane import SyncLane
from penstock.replica.throttle import LeaderThrottle
from penstock.replica.topic_rules import TopicRules
from penstock.replica.unclaimed import Unclaimed, named
from penstock.storage import Log, LogDirectory, StorageError
from penstock.storage.schema_check import SchemaCheck
from penstock.wire import TopicKey

logger = logging.getLogger(__name__)

Task = Callable[[], int]
"""A part of applying an image; returns its cost."""

CREATION_COST: Final = 20
"""Cost of creating or deleting a partition's files. A partition that needs nothing costs 1."""

TICK_COST_MAX: Final = 400
"""How much is done in one tick of the loop, unless it takes longer than `TICK_NS_MAX`."""


class Replicas:
    def __init__(
        self,
        world: World,
        directory: LogDirectory,
        node_id: int,
        settings: BrokerSettings,
        durability: Durability,
        write_later: Callable[[Callable[[], None]], None],
        broker_client: BrokerClient | None = None,
        controller: ControllerPort | None = None,
        broker_epoch: Callable[[], int] = lambda: -1,
        has_lease: Callable[[], bool] = lambda: True,
        tick: Callable[[], int] = lambda: 0,
    ) -> None:
        """`write_later` has a function called at the end of the loop's tick, before replies are sent. `broker_client`
        and `controller` are None on a node without a cluster. `has_lease` returns whether this broker's lease holds.
        `tick` returns the number of the loop's tick."""
        self.directory = directory
        self.partitions: dict[TopicPartition, Partition] = {}
        self.lane = SyncLane(world)
        self.inspections = Inspections(world, tick)
        self._world = world
        self._node_id = node_id
        self._settings = settings
        self._durability = durability
        self._write_later = write_later
        self._image = EMPTY
        self.by_key: dict[tuple[TopicKey, int], Partition] = {}
        """Partitions that this broker leads, each twice: by topic name and by topic id."""
        self._held: dict[tuple[TopicKey, int], Partition] = {}
        """The same for all partitions, led or followed."""
        self.refused = RefusedBatches()
        """Of idempotent producers, also for partitions that are not on this broker."""
        self.record_times = RecordTimes()
        self.schema_checks: Callable[[str, LogSettings], SchemaCheck] | None = None
        """Makes the check of a topic with `schema.validation`."""
        self.isr_changes: IsrChanges | None = None
        self.fetchers: Fetchers | None = None
        self.leader_throttle: LeaderThrottle[Partition] = LeaderThrottle(
            lambda: self._number("leader.replication.throttled.rate")
        )
        if controller is not None:
            lag_ms_max = self._number("replica.lag.time.max.ms")
            self.isr_changes = IsrChanges(
                world, controller, node_id, broker_epoch, lambda: self._image, lag_ms_max, has_lease
            )
        if broker_client is not None:
            self.fetchers = Fetchers(
                world,
                node_id,
                broker_client,
                self.lane,
                durability,
                setting=self._number,
                broker_epoch=broker_epoch,
                save_log_starts=directory.checkpoints.save_log_starts,
            )
        self.failing_disk: FailingDisk | None = None
        if self.isr_changes is not None and controller is not None:
            self.failing_disk = FailingDisk(
                world, self.lane, directory, controller, node_id, broker_epoch, lambda: self._image
            )
            self.failing_disk.suspend, self.failing_disk.resume = self._suspend, self._resume
            self.failing_disk.mend = self._mend_spare
            self.isr_changes.failing = self.failing_disk
        self.gone = Traffic()
        """Traffic of partitions that are no longer here: counters of a node never decrease."""
        self._tasks: deque[Task] = deque()
        self._is_working = False
        self._created: dict[Partition, None] = {}
        """New, with names that are not yet durable: not served before that."""
        self._removals = Removals(world, directory)
        self._unclaimed = Unclaimed(world, directory)
        self.failed_creations = FailedCreations(
            world, controller, node_id, broker_epoch, lambda: self._image, self._create_again
        )

    def _number(self, name: str) -> int:
        """The current value of a broker setting."""
        return int(broker_setting(name, self._image, self._settings) or 0)

    # -- lookup ----------------------------------------------------------------------------------------

    def led(self, topic: TopicKey, number: int) -> Partition | None:
        """The partition, if this broker leads it."""
        return self.by_key.get((topic, number))

    def held(self, topic: TopicKey, number: int) -> Partition | None:
        """The partition, if this broker has a replica of it."""
        return self._held.get((topic, number))

    def find(self, topic: TopicKey, number: int) -> Partition:
        """The partition, if this broker leads it; raises the error for the client otherwise."""
        found = self.by_key.get((topic, number))
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
        if name in self.failed_creations.reasons:
            raise KafkaError(
                f"{name} has no files yet: {self.failed_creations.reasons[name]}; this is tried again every second",
                ErrorCode.KAFKA_STORAGE_ERROR,
            )
        raise KafkaError(f"this broker does not lead {name}", ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def note_refused(
        self, topic: TopicKey, number: int, records: memoryview | None, error: KafkaError
    ) -> None:
        """Remember that a producer's batch was refused. The partition need not be on this broker, nor exist."""
        batch = numbered(records)
        if batch is None:
            return
        partition = self._held.get((topic, number))
        producers = None if partition is None else partition.log.producers
        known = self._image.topics.get(topic) if isinstance(topic, str) else None
        at = (topic if known is None else known.id, number)
        self.refused.note(at, batch, error, self._world.clock_ns() // 1_000_000, producers)

    def _forget_refused(self, topic: Topic) -> int:
        self.refused.forget_topic(topic.name, topic.id)
        return 1

    # -- unclaimed logs --------------------------------------------------------------------------------

    def unclaimed(self) -> list[TopicPartition]:
        """Logs in the directory that the image does not place on this broker."""
        return [name for name in sorted(self.directory.logs) if name not in self.partitions]

    def settle(self) -> None:
        """Delete or set aside the logs that the start found and the image does not claim. The image must be caught up
        with the metadata log."""
        found = self.unclaimed()
        kept = [name for name in found if not self._unclaimed.may_be_deleted(self.directory.logs[name])]
        gone = [name for name in found if name not in kept]
        if gone:
            logger.info("deleting %d partitions of deleted topics: %s", len(gone), named(gone))
        if kept:
            self._unclaimed.log_strays(kept)
        self._tasks.extend(partial(self._settle, name) for name in found)
        self._tasks.append(self._settled)
        if not self._is_working:
            self._work()

    def _settle(self, name: TopicPartition) -> int:
        """Delete or set aside a log, unless its partition was created meanwhile."""
        log = self.directory.logs.get(name)
        if log is None or name in self.partitions:
            return 1
        return self._drop(name) if self._unclaimed.may_be_deleted(log) else self._set_aside(name)

    def _settled(self) -> int:
        self._unclaimed.settled()
        return self._sync_dropped()

    def _set_aside(self, name: TopicPartition) -> int:
        """Keep a log as a stray: the image does not place it here, and no record deleted it."""
        self._let_go_of(name)
        try:
            self._unclaimed.set_aside(name, self._image)
        except StorageError as error:
            logger.error("%s", error)
        return CREATION_COST

    # -- applying images -------------------------------------------------------------------------------

    def apply(
        self,
        image: ClusterImage,
        changed: ImageDelta,
        done: Callable[[], None],
        deleted: Collection[Uuid] = (),
    ) -> None:
        """Apply what changed up to this image, then call `done`: before this returns, unless there is so much to do
        that clients must be served in between. `deleted` are the ids of the topics that a RemoveTopicRecord
        deleted."""
        self._tasks.extend(self._tasks_for(image, changed, done, frozenset(deleted)))
        if not self._is_working:
            self._work()

    def _work(self) -> None:
        """Do as much as fits into a tick of the loop, and the rest in the next ones."""
        self._is_working = True
        clock_ns = self._world.clock_ns
        end_ns = clock_ns() + TICK_NS_MAX
        cost = 0
        while self._tasks:
            if cost > TICK_COST_MAX or (cost > CREATION_COST and clock_ns() > end_ns):
                self._world.call_soon(self._work)
                return
            cost += self._tasks.popleft()()
        self._is_working = False

    def _tasks_for(
        self, image: ClusterImage, changed: ImageDelta, done: Callable[[], None], deleted: frozenset[Uuid]
    ) -> Iterator[Task]:

        def begin() -> int:
            self._image = image
            self._unclaimed.follow(deleted)
            return 1

        def finish() -> int:
            done()
            return 1

        yield begin
        for topic in changed.topics_deleted:
            yield partial(self._forget_refused, topic)
            for number in sorted(topic.partitions):
                yield partial(self._topic_deleted, TopicPartition(topic.name, number))
        if changed.topics_deleted:
            yield self._sync_dropped
        placed = set()
        rules = TopicRules(image, self._settings)
        for each in changed.partitions:
            yield partial(self._place, rules, each)
            placed.add(TopicPartition(each.topic.name, each.number))
        if changed.partitions:
            yield partial(self._sync_created, rules)
            yield self._sync_dropped
        for name in self._reconfigured(image, changed):
            if name not in placed:
                yield partial(self._configure, name, rules)
        yield finish

    def _reconfigured(self, image: ClusterImage, changed: ImageDelta) -> Iterable[TopicPartition]:
        """The partitions whose settings may have changed."""
        kinds = {resource.type for resource in changed.configs}
        if ResourceType.BROKER in kinds:
            return list(self.partitions)
        topics = {each.name for each in changed.configs if each.type == ResourceType.TOPIC}
        return [
            TopicPartition(name, number)
            for name in sorted(topics)
            if name in image.topics
            for number in sorted(image.topics[name].partitions)
        ]

    def _place(self, rules: TopicRules, change: PartitionDelta) -> int:
        topic, number, placed = change.topic, change.number, change.new
        name = TopicPartition(topic.name, number)
        if self._node_id not in placed.replicas:
            self.failed_creations.discard(name)
            # A log that the start found, and that the image places elsewhere, is left to `settle`.
            was_here = change.old is not None and self._node_id in change.old.replicas
            return self._drop(name) if was_here else 1
        partition = self.partitions.get(name)
        if partition is not None and not self._is_of(partition.log, topic, placed):
            self._give_up(partition)
            partition = None
        cost = 1
        if partition is None:
            log = self.directory.logs.get(name)
            if (
                log is None
                or not self._is_of(log, topic, placed)
                or self._unclaimed.is_ahead(log, placed.leader_epoch)
            ):
                log = self._create(name, topic)
                cost = CREATION_COST
                if log is None:
                    return cost
            self._configure_log(log, rules, topic.name)
            partition = Partition(
                log,
                topic.id,
                self._world,
                self.lane,
                self._durability,
                self._write_later,
                self.isr_changes,
                self.directory.checkpoints.high_watermarks.get(name, log.log_start),
                self.inspections,
                self.refused,
            )
            self.partitions[name] = partition
            if cost == CREATION_COST:
                self._created[partition] = None
        if placed.leader == self._node_id:
            if self.fetchers is not None:
                self.fetchers.forget(partition)
            if partition.log.topic_id is None:
                self._mend_id(name, topic)
            partition.lead(placed, rules.min_isr(topic.name))
        else:
            self._unlead(partition)
            why = KafkaError(
                f"this broker no longer leads {name}; refresh metadata and retry",
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
            )
            partition.follow(placed.leader, placed.leader_epoch, why, placed.partition_epoch)
            self._mend_follower(partition, change)
        if partition not in self._created:
            self._serve(partition, rules)
        return cost

    def _is_of(self, log: Log, topic: Topic, placed: PartitionRegistration) -> bool:
        """Whether a log belongs to this topic. A log without a topic id may be of an older topic of the same name: it
        is accepted while it is in the ISR or the ELR, and replicated again otherwise."""
        return log.topic_id == topic.id or (log.topic_id is None and not self._is_spare(placed))

    def _give_up(self, partition: Partition) -> None:
        del self.partitions[partition.name]
        self._forget(partition)
        partition.step_down(
            KafkaError(
                f"this broker no longer leads {partition.name}; refresh metadata and retry",
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
            )
        )

    def _is_spare(self, placed: PartitionRegistration) -> bool:
        """Whether the replica here can be replaced: another broker leads, and it is in neither the ISR nor the ELR."""
        return placed.leader != NO_LEADER and self._node_id not in (*placed.isr, *placed.elr)

    def _mend_follower(self, partition: Partition, change: PartitionDelta) -> None:
        has_joined_isr = (
            change.old is not None and self._node_id not in change.old.isr and self._node_id in change.new.isr
        )
        if has_joined_isr and partition.log.topic_id is None:
            self._mend_id(partition.name, change.topic)
        if partition.log.is_damaged:
            self._mend(partition, change.new)

    def _mend(self, partition: Partition, placed: PartitionRegistration) -> None:
        """Truncate a damaged follower's log once it is out of the ISR and the ELR; until then, have it leave them."""
        if not self._is_spare(placed):
            partition.damage_found()
            return
        try:
            partition.mend()
        except StorageError as error:
            logger.error("%s", error)
            return
        if self.failing_disk is not None:
            self.failing_disk.mended(partition)

    def _mend_spare(self, partition: Partition) -> None:
        """Mend a follower that was out of the ISR already when the damage was found."""
        placed = self._image.partition(partition.topic, partition.number)
        if placed is not None and not partition.is_leader and self._is_spare(placed):
            self._mend(partition, placed)

    def _serve(self, partition: Partition, rules: TopicRules) -> None:
        """Make a partition available to clients, and replicate it if another broker leads."""
        by_name, by_id = (partition.topic, partition.number), (partition.topic_id, partition.number)
        self._held[by_name] = self._held[by_id] = partition
        if partition.is_leader:
            self.by_key[by_name] = self.by_key[by_id] = partition
            self.leader_throttle.mark(partition, rules.leading_is_throttled(partition.name, self._node_id))
        elif self.fetchers is not None:
            is_throttled = rules.following_is_throttled(partition.name, self._node_id)
            self.fetchers.follow(partition, is_throttled=is_throttled)

    def _suspend(self, name: TopicPartition) -> None:
        partition = self.partitions.get(name)
        if partition is not None and self.fetchers is not None:
            self.fetchers.suspend(partition)

    def _resume(self, name: TopicPartition) -> None:
        partition = self.partitions.get(name)
        if partition is not None and self.fetchers is not None:
            self.fetchers.resume(partition)

    def _create(self, name: TopicPartition, topic: Topic) -> Log | None:
        """Create a log, in place of one of another topic of the same name. None if the disk fails; it is tried
        again."""
        try:
            if name in self.directory.logs:
                if self._unclaimed.may_be_deleted(self.directory.logs[name]):
                    logger.info("%s on disk is of a deleted topic: deleting it", name)
                    self._removals.delete_now(name, self._delete_delay_ms(name))
                else:
                    self._unclaimed.log_strays([name])
                    self._unclaimed.set_aside(name, self._image, sync=True)
            log = self._unclaimed.take_back(name, topic)
            if log is not None:
                return log
            return self.directory.create(name, now_ms=self._world.now_ms(), topic_id=topic.id, sync=False)
        except StorageError as error:
            self.failed_creations.add(name, error)
            return None

    def _create_again(self) -> None:
        """Create the partitions that failed, as the image has them now."""
        rules = TopicRules(self._image, self._settings)
        for name in list(self.failed_creations.reasons):
            topic = self._image.topics.get(name.topic)
            placed = None if topic is None else topic.partitions.get(name.partition)
            if topic is None or placed is None or self._node_id not in placed.replicas:
                self.failed_creations.discard(name)
                continue
            change = PartitionDelta(topic, name.partition, None, placed)
            self._tasks.append(partial(self._place, rules, change))
        self._tasks.append(partial(self._sync_created, rules))
        if not self._is_working:
            self._work()

    def _mend_id(self, name: TopicPartition, topic: Topic) -> None:
        """Write the topic id of a log that has lost it: a power cut may take the id of a new log, and nothing else. As
        this replica leads, or has caught up with the leader, the log is this topic's."""
        try:
            self.directory.set_topic_id(name, topic.id)
        except StorageError as error:
            logger.error("%s", error)

    def _sync_created(self, rules: TopicRules) -> int:
        """Sync the names of new partitions, all with one sync, and serve them then."""
        created, self._created = self._created, {}
        if not created:
            return 0
        try:
            self.directory.sync_names()
        except StorageError as error:
            self._created = created
            for partition in created:
                self.failed_creations.add(partition.name, error)
            return CREATION_COST
        # Before all other tasks: `done` is called when clients can find the partitions.
        self._tasks.extendleft([partial(self._serve_created, each, rules) for each in reversed(created)])
        return CREATION_COST

    def _serve_created(self, partition: Partition, rules: TopicRules) -> int:
        if self.failed_creations.discard(partition.name):
            logger.info("the files of %s are created, it is served", partition.name)
        if self.partitions.get(partition.name) is partition:
            self._serve(partition, rules)
        return 2

    def _configure(self, name: TopicPartition, rules: TopicRules) -> int:
        partition = self.partitions.get(name)
        if partition is not None:
            self._configure_log(partition.log, rules, name.topic)
            partition.require(rules.min_isr(name.topic))
            if partition.is_leader:
                self.leader_throttle.mark(partition, rules.leading_is_throttled(name, self._node_id))
            elif self.fetchers is not None:
                self.fetchers.throttle_one(partition, rules.following_is_throttled(name, self._node_id))
        return 1

    def _configure_log(self, log: Log, rules: TopicRules, topic: str) -> None:
        settings = rules.settings(topic)
        log.configure(settings)
        checks = self.schema_checks if settings.schema_validation != "none" else None
        log.schema_check = None if checks is None else checks(topic, settings)

    def _topic_deleted(self, name: TopicPartition) -> int:
        """The topic is no longer in the image."""
        log = self.directory.logs.get(name)
        if log is None or self._unclaimed.may_be_deleted(log):
            return self._drop(name)
        self._unclaimed.log_strays([name])
        return self._set_aside(name)

    def _let_go_of(self, name: TopicPartition) -> Partition | None:
        """Stop serving a partition."""
        self.failed_creations.discard(name)
        partition = self.partitions.pop(name, None)
        if partition is not None:
            self.gone.add(
                partition.bytes_in, partition.messages_in, partition.bytes_out, partition.messages_out
            )
            self._forget(partition)
            partition.step_down(KafkaError(f"{name} was deleted", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        return partition

    def _drop(self, name: TopicPartition) -> int:
        """Stop serving a partition, and delete its log."""
        partition = self._let_go_of(name)
        log = self.directory.logs.get(name)
        if log is not None:
            delay_ms = self._delete_delay_ms(name) if partition is None else log.settings.file_delete_delay_ms
            self._removals.delete(name, delay_ms)
        return CREATION_COST

    def _sync_dropped(self) -> int:
        """Make deletions and strays durable, all with one sync."""
        if self._removals.is_synced and self._unclaimed.is_synced:
            return 0
        if self._removals.sync():
            self._unclaimed.synced()
        return CREATION_COST

    def _forget(self, partition: Partition) -> None:
        self._created.pop(partition, None)
        if self.failing_disk is not None:
            self.failing_disk.forget(partition)
        self._unlead(partition)
        self._held.pop((partition.topic, partition.number), None)
        self._held.pop((partition.topic_id, partition.number), None)
        if self.fetchers is not None:
            self.fetchers.forget(partition)

    def _unlead(self, partition: Partition) -> None:
        self.leader_throttle.mark(partition, False)
        self.by_key.pop((partition.topic, partition.number), None)
        self.by_key.pop((partition.topic_id, partition.number), None)

    def _delete_delay_ms(self, name: TopicPartition) -> float:
        """For a log that was found at the start: it has no settings yet."""
        return TopicRules(self._image, self._settings).settings(name.topic).file_delete_delay_ms

    def step_down(self) -> None:
        """Stop leading and following: the node is about to stop."""
        self.failed_creations.stop()
        if self.fetchers is not None:
            self.fetchers.stop()
        if self.isr_changes is not None:
            self.isr_changes.stop()
        if self.failing_disk is not None:
            self.failing_disk.stop()
        self.by_key.clear()
        self._held.clear()
        for partition in self.partitions.values():
            partition.step_down(
                KafkaError(f"{partition.name} is closed: the broker stops", ErrorCode.NOT_LEADER_OR_FOLLOWER)
            )
