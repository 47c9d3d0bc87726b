"""Consumer groups on `__consumer_offsets`: each request goes to the coordinator of its group's partition.

    handle --> coordinator decides --> records appended --> state moves --> (committed) --> the reply leaves

A decision that needs no records is told when everything that it was decided on is committed. Where that takes longer
than `offsets.commit.timeout.ms`, who waits is told to ask again; the write goes on, and the state stands. Where a
write fails after the state has moved, the state in memory is thrown away and read anew.

Most of what comes are commits, and those that come in the log's gap are not written before its end. So they are held
till then, and decided one after the other, which takes half as long as to come back to each of them. The outcome is
the same: whatever else is asked, or is due, is decided after what is held.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TimestampMs
from penstock.base.outcome import Outcome
from penstock.base.promise import Promise
from penstock.base.world import World
from penstock.coordinator.groups import GroupCoordinator, refusal, write_error, write_refusal
from penstock.coordinator.groups.offset_store import CommittedOffset, OffsetRecord
from penstock.coordinator.groups.requests import (
    ForgetPartitions,
    ListGroups,
    ListReply,
    OffsetCommit,
    Request,
)
from penstock.coordinator.groups.schemas import GroupMetadataKey, Key, LegacyOffsetCommitKey, OffsetCommitKey
from penstock.coordinator.runtime.coordinator_log import CoordinatorLog, KeyValue
from penstock.coordinator.runtime.coordinator_shard import CoordinatorShard
from penstock.coordinator.runtime.coordinator_shards import CoordinatorShards
from penstock.coordinator.runtime.group_settings import group_settings
from penstock.coordinator.runtime.image_topics import ImageTopics
from penstock.metadata import BrokerSettings, ClusterImage, ImageDelta
from penstock.metadata.configs import broker_setting
from penstock.records import RecordBatch
from penstock.replica import Replicas
from penstock.replica.deposed_leader import may_be_outdated

logger = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"


class GroupListener(Protocol):
    """Who speaks for members on this node, and wants to know what becomes of their groups."""

    def loaded(self, coordinator: GroupCoordinator) -> None:
        """A coordinator has read its partition, and is asked from now on."""

    def moved(self, group_id: str) -> None:
        """Something other than offsets was written of a group: members, epochs, targets, or that it is gone."""


HELD_PARTITIONS_MAX: Final = 500
"""So many offsets are not held any longer: to decide them takes some milliseconds."""

DECIDED_BYTES_MAX: Final = 16 * 1024
"""So much of what is decided is appended at once: with all that one request may add, less than a batch may have."""

_new = tuple.__new__


class _HeldCommit(NamedTuple):
    request: OffsetCommit
    came_ms: TimestampMs
    later: Promise[Any]


_DecidedCommit: TypeAlias = tuple[Outcome[Any], Promise[Any], OffsetCommit]


class GroupShard(CoordinatorShard):
    """The coordinator of one partition, and its driver."""

    def __init__(
        self,
        world: World,
        log: CoordinatorLog,
        coordinator: GroupCoordinator,
        reload: Callable[[], None],
        listener: Callable[[], GroupListener | None] = lambda: None,
    ) -> None:
        super().__init__(world, log, reload)
        self.coordinator = coordinator
        self._listener = listener
        self._gone: list[tuple[str, int]] = []
        """Partitions that were deleted while this was loading."""
        self._held: list[_HeldCommit] = []
        """Not empty only while the log gathers."""
        self._held_partitions = 0
        log.fill = self.decide_held

    def take(self, batches: Iterable[RecordBatch]) -> None:
        self.coordinator.load(batches)

    def begin(self) -> None:
        self.coordinator.loaded(self._world.now_ms())
        if self._gone:
            self.forget_partitions(tuple(self._gone))
        listener = self._listener()
        if listener is not None:
            listener.loaded(self.coordinator)

    def forget(self) -> None:
        self._refuse_held(ErrorCode.NOT_COORDINATOR)
        self.coordinator.unload()

    # -- requests --------------------------------------------------------------------------------------

    def handle(self, request: Request) -> Promise[Any]:
        later: Promise[Any] = Promise()
        if not self._is_loaded:
            later.resolve(refusal(request, self.trouble or ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return later
        now_ms = self._world.now_ms()
        if type(request) is OffsetCommit and self.log.begin_gathering(now_ms):
            self._held.append(_new(_HeldCommit, (request, now_ms, later)))
            self._held_partitions += len(request.partitions)
            if self._held_partitions > HELD_PARTITIONS_MAX:
                self.decide_held()
            self.log.end_gap(now_ms)
            return later
        self.decide_held()
        self._carry_out(
            self._as_coordinator(request, self.coordinator.handle(request, now_ms)), later, request
        )
        self.set_timer()
        return later

    def _as_coordinator(self, request: Request, outcome: Outcome[Any]) -> Outcome[Any]:
        """What was decided, unless it is a refusal that only the coordinator may give, and that may be another now."""
        reply = outcome.reply
        if (
            outcome.records
            or isinstance(reply, Promise)
            or not may_be_outdated(self.log.partition, reply.code)
        ):
            return outcome
        return Outcome(refusal(request, ErrorCode.NOT_COORDINATOR))

    def decide_held(self) -> None:
        """Decide the commits that came in the log's gap, each as of when it came."""
        if not self._held:
            return
        if not self._is_loaded:
            self._refuse_held(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return
        held, self._held, self._held_partitions = self._held, [], 0
        decided: list[_DecidedCommit] = []
        records: list[KeyValue] = []
        size = 0
        offset = self.log.next_offset
        for request, came_ms, later in held:
            outcome = self.coordinator.handle(request, came_ms)
            made = outcome.records
            if not made:
                decided.append((self._as_coordinator(request, outcome), later, request))
                continue
            decided.append((outcome, later, request))
            for each in made:
                record = each.encoded()
                records.append(record)
                size += len(record[0]) + len(record[1] or b"")
            # The next is decided on what this one leaves.
            self.coordinator.written(outcome, offset)
            offset += len(made)
            if size > DECIDED_BYTES_MAX:
                self._append_commits(decided, records)
                decided, records, size = [], [], 0
                offset = self.log.next_offset
        if decided:
            self._append_commits(decided, records)
        self.set_timer()

    def _append_commits(self, decided: list[_DecidedCommit], records: list[KeyValue]) -> None:
        """Have the records of several commits written as one, and all of them told."""

        def settled(error: KafkaError | None) -> None:
            if error is None:
                for outcome, later, _ in decided:
                    later.resolve(outcome.reply)
                return
            refuse(error.code)
            if records:
                self.lost(error)

        def refuse(code: ErrorCode) -> None:
            for _, later, request in decided:
                later.resolve(write_refusal(request, code))
            decided.clear()

        def overdue() -> None:
            refuse(ErrorCode.REQUEST_TIMED_OUT)

        if not records:
            self.log.after(settled, overdue)
            return
        try:
            self.log.append(records, settled, overdue)
        except KafkaError as error:
            settled(error)

    def _refuse_held(self, code: ErrorCode) -> None:
        held, self._held, self._held_partitions = self._held, [], 0
        for request, _, later in held:
            later.resolve(refusal(request, code))

    def forget_partitions(self, partitions: tuple[tuple[str, int], ...]) -> None:
        """They are deleted: what groups committed for them goes, once it is known."""
        if self.is_loaded:
            self.handle(ForgetPartitions(partitions))
        elif not self.is_damaged:
            self._gone += partitions

    def _carry_out(self, outcome: Outcome[Any], later: Promise[Any] | None, request: Request | None) -> None:
        """Write what was decided, and have it told once it is committed."""

        def settled(error: KafkaError | None) -> None:
            if error is None:
                if outcome.write is not None and outcome.write.settled is not None:
                    self.coordinator.settled(outcome, ErrorCode.NONE, self._world.now_ms())
                    self.set_timer()
                _pass_on(outcome.reply, later)
                return
            self.coordinator.settled(outcome, write_error(error.code), self._world.now_ms())
            refuse(error.code)
            if outcome.records:
                self.lost(error)

        def refuse(code: ErrorCode) -> None:
            if later is not None and request is not None and not later.is_settled:
                later.resolve(write_refusal(request, code))

        def overdue() -> None:
            code = ErrorCode.REQUEST_TIMED_OUT
            self.coordinator.overdue(outcome, write_error(code), self._world.now_ms())
            self.set_timer()
            refuse(code)

        if not outcome.records:
            self.log.after(settled, overdue)
            return
        producer = None if outcome.write is None else outcome.write.producer
        try:
            base_offset = self.log.append(
                [each.encoded() for each in outcome.records],
                settled,
                overdue,
                producer=None if producer is None else (producer.producer_id, producer.producer_epoch),
            )
        except KafkaError as error:
            self.coordinator.settled(outcome, write_error(error.code), self._world.now_ms())
            refuse(error.code)
            return
        self.coordinator.written(outcome, base_offset)
        if not isinstance(outcome.records[0], OffsetRecord):
            self._tell_moved(outcome.records[0].key)

    def _tell_moved(self, key: Key) -> None:
        """What is written at once is of one group, or takes away groups that nobody is in."""
        listener = self._listener()
        if listener is None or isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey):
            return
        group_id = key.group if isinstance(key, GroupMetadataKey) else getattr(key, "group_id", None)
        if group_id is not None:
            listener.moved(group_id)

    def append_marker(
        self, marker: bytes, producer_id: int, commit: bool, done: Callable[[KafkaError | None], None]
    ) -> None:
        """Write the end of a transaction to this partition: offsets that were pending are committed, or dropped. Where
        that takes long, `done` is told so, and not what becomes of it."""
        is_told = False

        def tell(error: KafkaError | None) -> None:
            nonlocal is_told
            if not is_told:
                is_told = True
                done(error)

        def overdue() -> None:
            name = self.log.partition.name
            tell(KafkaError(f"{name} could not be replicated in time", ErrorCode.REQUEST_TIMED_OUT))

        if self._is_damaged:
            self.log.append_batch(marker, tell, overdue)
            return
        if not self._is_loaded:
            raise KafkaError(
                f"{self.log.partition.name} is being loaded", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            )

        def settled(error: KafkaError | None) -> None:
            if error is not None:
                self.lost(error)
            tell(error)

        self.log.append_batch(marker, settled, overdue)
        self.coordinator.end_transaction(producer_id, commit)

    # -- time ------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> TimestampMs | None:
        return self.coordinator.next_deadline_ms()

    def tick(self) -> None:
        self.decide_held()
        while (outcome := self.coordinator.tick(self._world.now_ms())) is not None:
            self._carry_out(outcome, None, None)


def _pass_on(reply: Any, later: Promise[Any] | None) -> None:
    if later is None or later.is_settled:
        return
    if isinstance(reply, Promise):
        reply.then(later.resolve)
    else:
        later.resolve(reply)


class GroupCoordinatorService:
    """All groups whose coordinator is on this node."""

    def __init__(
        self, world: World, replicas: Replicas, settings: BrokerSettings, image: Callable[[], ClusterImage]
    ) -> None:
        self._world = world
        self._settings = settings
        self._image = image
        self.listener: GroupListener | None = None
        self.shards = CoordinatorShards[GroupShard](OFFSETS_TOPIC, world, replicas, self._make)

    def _make(self, number: int, log: CoordinatorLog) -> GroupShard:
        image = self._image()
        log.linger_ms = int(broker_setting("group.coordinator.append.linger.ms", image, self._settings) or 0)
        log.timeouts.limit_ms = int(broker_setting("offsets.commit.timeout.ms", image, self._settings) or 0)
        coordinator = GroupCoordinator(
            group_settings(image, self._settings), ImageTopics(image), self._world.rng
        )
        return GroupShard(
            self._world, log, coordinator, lambda: self.shards.reload(number), lambda: self.listener
        )

    def follow(self, image: ClusterImage, changed: ImageDelta) -> None:
        """The image has moved: partitions may be led here or no longer, and topics may be gone."""
        self.shards.follow(image)
        topics = ImageTopics(image)
        gone = tuple(
            (topic.name, number) for topic in changed.topics_deleted for number in sorted(topic.partitions)
        )
        for shard in self.shards:
            shard.decide_held()
            shard.coordinator.topics_changed(topics)
            if gone:
                shard.forget_partitions(gone)

    def handle(self, group_id: str, request: Request) -> Promise[Any]:
        """Ask the coordinator of a group; refused in the reply's own way where it is not here."""
        try:
            shard = self.shards.of(group_id)
        except KafkaError as error:
            later: Promise[Any] = Promise()
            later.resolve(refusal(request, error.code))
            return later
        return shard.handle(request)

    def list_groups(self, request: ListGroups) -> Promise[ListReply]:
        """Of all coordinators here, but those whose partition cannot be read."""
        return _gathered([each.handle(request) for each in self.shards if not each.is_damaged])

    def expire_sessions(self, group_id: str, member_id: str | None = None) -> None:
        """End the session of one member, or of all, as if they had not been heard of in time."""
        shard = self.shards.of(group_id)
        shard.decide_held()
        shard.coordinator.expire_sessions(group_id, member_id, self._world.now_ms())
        shard.wake()

    def rebalance(self, group_id: str) -> None:
        shard = self.shards.of(group_id)
        shard.decide_held()
        shard.coordinator.rebalance(group_id, self._world.now_ms())
        shard.wake()

    def owner_of(self, group_id: str, topic: str, partition: int) -> str | None:
        """The member of a group that reads a partition now; for doors whose requests name a group."""
        return self.shards.of(group_id).coordinator.owner_of(group_id, topic, partition)

    def committed(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self.shards.of(group_id).coordinator.committed(group_id, topic, partition)


def _gathered(replies: Iterable[Promise[ListReply]]) -> Promise[ListReply]:
    waiting = list(replies)
    whole: Promise[ListReply] = Promise()
    groups: list[Any] = []
    codes: list[ErrorCode] = []

    def gather(reply: ListReply) -> None:
        groups.extend(reply.groups)
        codes.append(reply.code)
        if len(codes) == len(waiting):
            wrong = next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)
            whole.resolve(ListReply(wrong, tuple(groups)))

    if not waiting:
        whole.resolve(ListReply())
    for each in waiting:
        each.then(gather)
    return whole
