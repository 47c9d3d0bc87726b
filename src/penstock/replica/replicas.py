"""All partitions of a node, found by their topic's name or id, and kept as the cluster's image says.

Whoever follows the metadata log gives each new image to `apply`. Partitions that are new get a log, those whose
topic was deleted or that were moved to other brokers lose theirs, what is led here is led in the epoch that the
image has, and what is led elsewhere is copied from there. Doing it again does no harm: after a crash the first image
makes up for what was not done before it.

A log is deleted only if a metadata record deleted its topic, or moved the partition away while this broker looked on.
What the image merely does not mention is set aside and kept (`unclaimed`). A node that was away gives nothing to
`apply` before it has caught up with the metadata log: an image of the past knows nothing of what was created or
moved here since.

A partition whose files cannot be made, because the disk is full or fails, is tried again every second. Until then
clients that ask for it are told so, with an error that they retry.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TopicPartition, Uuid, uuid_text
from penstock.base.metrics import TICK_NS_MAX, Traffic
from penstock.base.world import Timer, World
from penstock.metadata import (
    EMPTY,
    BrokerSettings,
    ClusterImage,
    ImageDelta,
    PartitionDelta,
    ResourceType,
    Topic,
)
from penstock.metadata.configs import broker_setting
from penstock.metadata.controller.port import ControllerPort
from penstock.metadata.controller.requests import AlterPartition
from penstock.metadata.image import Partition as Placed
from penstock.replica.broker_client import BrokerClient
from penstock.replica.failing_disk import FailingDisk
from penstock.replica.fetchers import Fetchers
from penstock.replica.inspections import Inspections
from penstock.replica.isr_changes import CHANGES_MAX, IsrChanges
from penstock.replica.partition import NO_LEADER, Durability, Partition, SyncLane
from penstock.replica.refused_batches import RefusedBatches, numbered
from penstock.replica.throttle import LeaderThrottle
from penstock.replica.topic_rules import TopicRules
from penstock.replica.unclaimed import Unclaimed, named
from penstock.replica.uncreated import changes_without
from penstock.storage import Log, LogDirectory, StorageError
from penstock.storage.directory import DirectoryRemoval
from penstock.wire import TopicKey

logger = logging.getLogger(__name__)


Step = Callable[[], int]
"""A part of following an image; it returns what it cost."""

CREATION_COST: Final = 20
"""What making or removing a partition's files takes, in terms of looking at one that needs nothing."""

TURN_COST_MAX: Final = 400
"""What may be done of it in one turn, if it does not take longer than `TICK_NS_MAX`."""


CREATE_AGAIN_MS: Final = 1000
"""After so long, files that could not be made are tried again."""


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
        is_in_touch: Callable[[], bool] = lambda: True,
        turn: Callable[[], int] = lambda: 0,
    ) -> None:
        """`write_later` has something called at the end of the turn, before replies are sent. `neighbours` are there
        where the node may have some, and `controller` decides on ISRs; `broker_epoch` is of this life of the node, and
        `is_in_touch` says whether the controller is known to count on it. `turn` tells the turns of the loop apart."""
        self.directory = directory
        self.partitions: dict[TopicPartition, Partition] = {}
        self.lane = SyncLane(world)
        self.inspections = Inspections(world, turn)
        self._world = world
        self._node_id = node_id
        self._settings = settings
        self._durability = durability
        self._write_later = write_later
        self._image = EMPTY
        self.by_key: dict[tuple[TopicKey, int], Partition] = {}
        """Each twice: by its topic's name and id. Only those that are led here."""
        self._held: dict[tuple[TopicKey, int], Partition] = {}
        """The same of all that are here."""
        self.refused = RefusedBatches()
        """Of idempotent producers, by the partitions here and by those that are not here, or not yet."""
        self.isr_changes: IsrChanges | None = None
        self.fetchers: Fetchers | None = None
        self.leader_throttle: LeaderThrottle[Partition] = LeaderThrottle(
            lambda: self._number("leader.replication.throttled.rate")
        )
        if controller is not None:
            lag_ms_max = self._number("replica.lag.time.max.ms")
            self.isr_changes = IsrChanges(
                world, controller, node_id, broker_epoch, lambda: self._image, lag_ms_max, is_in_touch
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
                save_log_starts=directory.save_log_starts,
            )
        self.failing_disk: FailingDisk | None = None
        if self.isr_changes is not None and controller is not None:
            self.failing_disk = FailingDisk(
                world, self.lane, directory, controller, node_id, broker_epoch, lambda: self._image
            )
            self.failing_disk.suspend, self.failing_disk.resume = self._suspend, self._resume
            self.isr_changes.failing = self.failing_disk
        self.gone = Traffic()
        """Of partitions that are not here any more: what a node has counted never becomes less."""
        self._todo: deque[Step] = deque()
        self._is_working = False
        self._created: dict[Partition, None] = {}
        """New, and not yet durably named: not served before that."""
        self._dropped: list[tuple[float, DirectoryRemoval]] = []
        """Gone, and not yet durably so: not emptied before that; and after how many ms then."""
        self._unclaimed = Unclaimed(world, directory)
        self.uncreated: dict[TopicPartition, str] = {}
        """Placed here by the image, but the disk took no files for them; and what it said."""
        self._is_leaving = False
        """The controller is about to be asked for ISRs without them."""
        self._controller = controller
        self._broker_epoch = broker_epoch
        self._create_timer: Timer | None = None
        self._is_over = False
        """The node is about to stop."""

    def _number(self, name: str) -> int:
        """A setting of the broker, as it is in force now."""
        return int(broker_setting(name, self._image, self._settings) or 0)

    # -- finding ---------------------------------------------------------------------------------------

    def led(self, topic: TopicKey, number: int) -> Partition | None:
        """The partition, if it is led here."""
        return self.by_key.get((topic, number))

    def held(self, topic: TopicKey, number: int) -> Partition | None:
        """The partition, if a replica of it is here, whoever leads it."""
        return self._held.get((topic, number))

    def find(self, topic: TopicKey, number: int) -> Partition:
        """The partition, if it is led here; otherwise an error that says what is wrong."""
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
        if name in self.uncreated:
            raise KafkaError(
                f"{name} has no files yet: {self.uncreated[name]}; they are tried again every second",
                ErrorCode.KAFKA_STORAGE_ERROR,
            )
        raise KafkaError(f"{name} is not led here", ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def note_refused(
        self, topic: TopicKey, number: int, records: memoryview | None, error: KafkaError
    ) -> None:
        """Remember that a producer's batch was refused. The partition need not be led here, nor exist."""
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

    # -- what the image does not claim -----------------------------------------------------------------

    def unclaimed(self) -> list[TopicPartition]:
        """What lies in the directory and is no partition of this broker by the image."""
        return [name for name in sorted(self.directory.logs) if name not in self.partitions]

    def settle(self) -> None:
        """See to what a start has found on disk and the image does not claim. The image must be one that knows of
        everything that was ever placed here."""
        found = self.unclaimed()
        kept = [name for name in found if not self._unclaimed.may_be_deleted(self.directory.logs[name])]
        gone = [name for name in found if name not in kept]
        if gone:
            logger.info("%d partitions of deleted topics are on disk, and go: %s", len(gone), named(gone))
        if kept:
            self._unclaimed.tell(kept)
        self._todo.extend(partial(self._settle, name) for name in found)
        self._todo.append(self._settled)
        if not self._is_working:
            self._work()

    def _settle(self, name: TopicPartition) -> int:
        """Unless it was created meanwhile."""
        log = self.directory.logs.get(name)
        if log is None or name in self.partitions:
            return 1
        return self._drop(name) if self._unclaimed.may_be_deleted(log) else self._set_aside(name)

    def _settled(self) -> int:
        self._unclaimed.settled()
        return self._sync_dropped()

    def _set_aside(self, name: TopicPartition) -> int:
        """Keep its files as a stray: the image does not have it here, and nothing says that it was deleted."""
        self._let_go_of(name)
        try:
            self._unclaimed.set_aside(name, self._image)
        except StorageError as error:
            logger.error("%s", error)
        return CREATION_COST

    # -- following the cluster -------------------------------------------------------------------------

    def apply(
        self,
        image: ClusterImage,
        changed: ImageDelta,
        done: Callable[[], None],
        deleted: Collection[Uuid] = (),
    ) -> None:
        """Bring about what changed on the way to this image, then call `done`; which is at once, unless there is
        much to do: then clients are served in between. `deleted` are the ids of topics for which there was a
        RemoveTopicRecord on the way."""
        self._todo.extend(self._steps(image, changed, done, frozenset(deleted)))
        if not self._is_working:
            self._work()

    def _work(self) -> None:
        """Do what fits into a turn, and the rest in the next one."""
        self._is_working = True
        clock_ns = self._world.clock_ns
        end_ns = clock_ns() + TICK_NS_MAX
        cost = 0
        while self._todo:
            if cost > TURN_COST_MAX or (cost > CREATION_COST and clock_ns() > end_ns):
                self._world.call_soon(self._work)
                return
            cost += self._todo.popleft()()
        self._is_working = False

    def _steps(
        self, image: ClusterImage, changed: ImageDelta, done: Callable[[], None], deleted: frozenset[Uuid]
    ) -> Iterator[Step]:
        """Each does a part and says what it cost."""

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
                yield partial(self._part_with, TopicPartition(topic.name, number))
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
        """The partitions whose settings may be others now."""
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
            self.uncreated.pop(name, None)
            # What a start has found here and the image has elsewhere is left to `settle`.
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
            log.configure(rules.settings(topic.name))
            partition = Partition(
                log,
                topic.id,
                self._world,
                self.lane,
                self._durability,
                self._write_later,
                self.isr_changes,
                self.directory.high_watermarks.get(name, log.log_start),
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
            self._lead_no_more(partition)
            why = KafkaError(f"{name} is led elsewhere now", ErrorCode.NOT_LEADER_OR_FOLLOWER)
            partition.follow(placed.leader, placed.leader_epoch, why, placed.partition_epoch)
            if partition.log.is_damaged:
                self._mend(partition, placed)
        if partition not in self._created:
            self._serve(partition, rules)
        return cost

    def _is_of(self, log: Log, topic: Topic, placed: Placed) -> bool:
        """Whether a log is this topic's. One that does not say whose it is may be of a topic that was deleted, and
        created again: it is taken for this one's as long as somebody counts on it, and copied anew if nobody does."""
        return log.topic_id == topic.id or (log.topic_id is None and not self._is_spare(placed))

    def _give_up(self, partition: Partition) -> None:
        del self.partitions[partition.name]
        self._forget(partition)
        partition.step_down(
            KafkaError(f"{partition.name} is led elsewhere now", ErrorCode.NOT_LEADER_OR_FOLLOWER)
        )

    def _is_spare(self, placed: Placed) -> bool:
        """Whether nobody counts on the replica here: another leads, and it is neither in sync nor eligible."""
        return placed.leader != NO_LEADER and self._node_id not in (*placed.isr, *placed.elr)

    def _mend(self, partition: Partition, placed: Placed) -> None:
        """Cut a damaged follower's log off, once nobody counts on it; until then, see that nobody does."""
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

    def _serve(self, partition: Partition, rules: TopicRules) -> None:
        """Have it found, and copied if it is led elsewhere."""
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
        """A new log, in place of one that belongs, or may belong, to another topic of the same name; None if the disk
        fails, and then it is tried again."""
        try:
            if name in self.directory.logs:
                if self._unclaimed.may_be_deleted(self.directory.logs[name]):
                    logger.info("%s on disk is of a topic that was deleted, and goes", name)
                    self._remove(name)
                else:
                    self._unclaimed.tell([name])
                    self._unclaimed.set_aside(name, self._image, sync=True)
            log = self._unclaimed.take_back(name, topic)
            if log is not None:
                return log
            return self.directory.create(name, now_ms=self._world.now_ms(), topic_id=topic.id, sync=False)
        except StorageError as error:
            self._create_later(name, error)
            return None

    def _create_later(self, name: TopicPartition, error: StorageError) -> None:
        if name not in self.uncreated:
            logger.error("%s; it is tried again every second", error)
        self.uncreated[name] = str(error)
        if not self._is_leaving:
            self._is_leaving = True
            self._world.call_soon(self._leave_isrs)
        if self._create_timer is None and not self._is_over:
            self._create_timer = self._world.call_later(CREATE_AGAIN_MS, self._create_again)

    def _leave_isrs(self) -> None:
        """Have nobody wait for replicas that have no files; asked again with each attempt to make them."""
        self._is_leaving = False
        changes = changes_without(self._node_id, self.uncreated, self._image)[:CHANGES_MAX]
        if changes and self._controller is not None and not self._is_over:

            def answered(answer: object) -> None:
                if isinstance(answer, KafkaError):
                    logger.warning("the controller could not take replicas without files out: %s", answer)

            request = AlterPartition(self._node_id, self._broker_epoch(), tuple(changes))
            self._controller.submit(request).then(answered)

    def _create_again(self) -> None:
        """Try the partitions whose files could not be made, as the image has them now."""
        self._create_timer = None
        rules = TopicRules(self._image, self._settings)
        for name in list(self.uncreated):
            topic = self._image.topics.get(name.topic)
            placed = None if topic is None else topic.partitions.get(name.partition)
            if topic is None or placed is None or self._node_id not in placed.replicas:
                del self.uncreated[name]
                continue
            change = PartitionDelta(topic, name.partition, None, placed)
            self._todo.append(partial(self._place, rules, change))
        self._todo.append(partial(self._sync_created, rules))
        if not self._is_working:
            self._work()

    def _mend_id(self, name: TopicPartition, topic: Topic) -> None:
        """A power cut may take what a new partition's directory says of its topic, and nothing else. Who leads with
        that log makes it this topic's."""
        try:
            self.directory.set_topic_id(name, topic.id)
        except StorageError as error:
            logger.error("%s", error)

    def _sync_created(self, rules: TopicRules) -> int:
        """New partitions are served once their names are on disk: all of them with one sync."""
        created, self._created = self._created, {}
        if not created:
            return 0
        try:
            self.directory.sync_names()
        except StorageError as error:
            self._created = created
            for partition in created:
                self._create_later(partition.name, error)
            return CREATION_COST
        # Next, and before whatever follows: who waits for the topic finds its partitions.
        self._todo.extendleft([partial(self._serve_created, each, rules) for each in reversed(created)])
        return CREATION_COST

    def _serve_created(self, partition: Partition, rules: TopicRules) -> int:
        if self.uncreated.pop(partition.name, None) is not None:
            logger.info("%s has its files now, and is served", partition.name)
        if self.partitions.get(partition.name) is partition:
            self._serve(partition, rules)
        return 2

    def _configure(self, name: TopicPartition, rules: TopicRules) -> int:
        partition = self.partitions.get(name)
        if partition is not None:
            partition.log.configure(rules.settings(name.topic))
            partition.require(rules.min_isr(name.topic))
            if partition.is_leader:
                self.leader_throttle.mark(partition, rules.leading_is_throttled(name, self._node_id))
            elif self.fetchers is not None:
                self.fetchers.throttle_one(partition, rules.following_is_throttled(name, self._node_id))
        return 1

    def _part_with(self, name: TopicPartition) -> int:
        """Its topic is in the image no more."""
        log = self.directory.logs.get(name)
        if log is None or self._unclaimed.may_be_deleted(log):
            return self._drop(name)
        self._unclaimed.tell([name])
        return self._set_aside(name)

    def _let_go_of(self, name: TopicPartition) -> Partition | None:
        """Serve it no more."""
        self.uncreated.pop(name, None)
        partition = self.partitions.pop(name, None)
        if partition is not None:
            self.gone.add(
                partition.bytes_in, partition.messages_in, partition.bytes_out, partition.messages_out
            )
            self._forget(partition)
            partition.step_down(KafkaError(f"{name} was deleted", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        return partition

    def _drop(self, name: TopicPartition) -> int:
        partition = self._let_go_of(name)
        held = self.directory.logs.get(name)
        if held is not None:
            try:
                removal = self.directory.delete(name, self._world.rng, sync=False)
            except StorageError as error:
                logger.error("%s", error)
            else:
                delay_ms = (
                    self._delete_delay_ms(name) if partition is None else held.settings.file_delete_delay_ms
                )
                self._dropped.append((delay_ms, removal))
        return CREATION_COST

    def _sync_dropped(self) -> int:
        """What was dropped is durably gone, all of it with one sync, and its files go in their time."""
        dropped, self._dropped = self._dropped, []
        if not dropped and self._unclaimed.is_synced:
            return 0
        try:
            self.directory.sync_deleted()
            self._unclaimed.synced()
        except StorageError as error:
            logger.error("%s; the files of %d deleted partitions go at the next start", error, len(dropped))
            return CREATION_COST
        for delay_ms, removal in dropped:
            self._empty_later(delay_ms, removal)
        return CREATION_COST

    def _forget(self, partition: Partition) -> None:
        self._created.pop(partition, None)
        if self.failing_disk is not None:
            self.failing_disk.forget(partition)
        self._lead_no_more(partition)
        self._held.pop((partition.topic, partition.number), None)
        self._held.pop((partition.topic_id, partition.number), None)
        if self.fetchers is not None:
            self.fetchers.forget(partition)

    def _lead_no_more(self, partition: Partition) -> None:
        self.leader_throttle.mark(partition, False)
        self.by_key.pop((partition.topic, partition.number), None)
        self.by_key.pop((partition.topic_id, partition.number), None)

    def _remove(self, name: TopicPartition) -> None:
        """Of a topic that is no more."""
        self._empty_later(self._delete_delay_ms(name), self.directory.delete(name, self._world.rng))

    def _delete_delay_ms(self, name: TopicPartition) -> float:
        """For a log that was found here and never used: it has not been told its settings."""
        return TopicRules(self._image, self._settings).settings(name.topic).file_delete_delay_ms

    def _empty_later(self, delay_ms: float, removal: DirectoryRemoval) -> None:
        def done(_: None, error: Exception | None) -> None:
            if error is not None:
                logger.error("%s", error)

        self._world.call_later(delay_ms, lambda: self._world.beside(removal.run, done))

    def step_down(self) -> None:
        """Lead and follow nothing any more: the node is about to stop."""
        self._is_over = True
        if self._create_timer is not None:
            self._create_timer.cancel()
            self._create_timer = None
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
                KafkaError(f"{partition.name} is closed: the node stops", ErrorCode.NOT_LEADER_OR_FOLLOWER)
            )
