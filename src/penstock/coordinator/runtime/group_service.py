"""Routes requests to the group coordinators on `__consumer_offsets`, and writes their records.

    handle -> decide -> append -> apply -> (committed) -> reply

Most requests are offset commits. Commits that arrive while the log lingers are written together when the linger ends,
so they are held until then and decided in one go, which takes half the time. The outcome is the same: any other
request or timer is decided after the held commits.
"""

from __future__ import annotations  # those of nested functions would be evaluated in each call

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TimestampMs
from penstock.base.internal_topics import OFFSETS_TOPIC
from penstock.base.outcome import Outcome
from penstock.base.promise import Promise
from penstock.base.world import World
from penstock.coordinator.groups.coordinator import GroupCoordinator
from penstock.coordinator.groups.offset_store import CommittedOffset, OffsetRecord
from penstock.coordinator.groups.requests import (
    ForgetPartitions,
    ListGroups,
    ListReply,
    OffsetCommit,
    Request,
    refusal,
    write_error,
    write_refusal,
)
from penstock.coordinator.groups.schemas import GroupMetadataKey, Key, LegacyOffsetCommitKey, OffsetCommitKey
from penstock.coordinator.runtime.coordinator_log import CoordinatorLog, KeyValue
from penstock.coordinator.runtime.coordinator_shard import CoordinatorShard
from penstock.coordinator.runtime.coordinator_shards import CoordinatorShards
from penstock.coordinator.runtime.group_settings import group_settings
from penstock.coordinator.runtime.image_topics import ImageTopics
from penstock.metadata.configs import BrokerSettings, broker_setting
from penstock.metadata.delta import ImageDelta
from penstock.metadata.image import ClusterImage
from penstock.records import RecordBatch
from penstock.replica import Replicas
from penstock.replica.deposed_leader import may_be_outdated

logger = logging.getLogger(__name__)


class GroupListener(Protocol):
    """Is notified of changes of groups: the HTTP gateway, which holds members on this node and tells of rebalances."""

    def loaded(self, coordinator: GroupCoordinator) -> None:
        """A coordinator has loaded its partition and serves requests."""

    def moved(self, group_id: str) -> None:
        """A group's members, epochs or targets changed, or the group was deleted. Not called for offsets."""


HELD_PARTITIONS_MAX: Final = 500
"""Held commits are decided when they have more partitions than this, which takes some milliseconds."""

DECIDED_BYTES_MAX: Final = 16 * 1024
"""Records of held commits are appended when they exceed this size: with one more request, still less than a batch may
have."""

_new = tuple.__new__


class _HeldCommit(NamedTuple):
    request: OffsetCommit
    received_ms: TimestampMs
    promise: Promise[Any]


_DecidedCommit: TypeAlias = tuple[Outcome[Any], Promise[Any], OffsetCommit]


class GroupShard(CoordinatorShard):
    """Runs the group coordinator of one partition."""

    def __init__(
        self,
        world: World,
        log: CoordinatorLog,
        coordinator: GroupCoordinator,
        reload: Callable[[], None],
        listeners: Iterable[GroupListener] = (),
    ) -> None:
        super().__init__(world, log, reload)
        self.coordinator = coordinator
        self._listeners = listeners
        self._deleted: list[tuple[str, int]] = []
        """Partitions that were deleted while the shard was loading."""
        self._held: list[_HeldCommit] = []
        """Empty unless the log lingers."""
        self._held_partitions = 0
        log.fill = self.decide_held

    def replay(self, batches: Iterable[RecordBatch]) -> None:
        self.coordinator.load(batches)

    def start(self) -> None:
        self.coordinator.loaded(self._world.now_ms())
        if self._deleted:
            self.forget_partitions(tuple(self._deleted))
        for listener in list(self._listeners):
            listener.loaded(self.coordinator)

    def drop_state(self) -> None:
        self._refuse_held(ErrorCode.NOT_COORDINATOR)
        self.coordinator.unload()

    # -- requests --------------------------------------------------------------------------------------

    def handle(self, request: Request) -> Promise[Any]:
        promise: Promise[Any] = Promise()
        if not self._is_loaded:
            promise.resolve(refusal(request, self.unavailable_error or ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return promise
        now_ms = self._world.now_ms()
        if type(request) is OffsetCommit and self.log.begin_gathering(now_ms):
            self._held.append(_new(_HeldCommit, (request, now_ms, promise)))
            self._held_partitions += len(request.partitions)
            if self._held_partitions > HELD_PARTITIONS_MAX:
                self.decide_held()
            self.log.end_window(now_ms)
            return promise
        self.decide_held()
        self._write(self._as_coordinator(request, self.coordinator.handle(request, now_ms)), promise, request)
        self.set_timer()
        return promise

    def _as_coordinator(self, request: Request, outcome: Outcome[Any]) -> Outcome[Any]:
        """Replace a final error by NOT_COORDINATOR if another broker may be the coordinator by now."""
        reply = outcome.reply
        if (
            outcome.records
            or isinstance(reply, Promise)
            or not may_be_outdated(self.log.partition, reply.code)
        ):
            return outcome
        return Outcome(refusal(request, ErrorCode.NOT_COORDINATOR))

    def decide_held(self) -> None:
        """Decide the commits that arrived while the log lingers, each as of its arrival."""
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
        for request, received_ms, promise in held:
            outcome = self.coordinator.handle(request, received_ms)
            if not outcome.records:
                decided.append((self._as_coordinator(request, outcome), promise, request))
                continue
            decided.append((outcome, promise, request))
            for each in outcome.records:
                record = each.encoded()
                records.append(record)
                size += len(record[0]) + len(record[1] or b"")
            # The next commit is decided on the state that this one leaves.
            self.coordinator.written(outcome, offset)
            offset += len(outcome.records)
            if size > DECIDED_BYTES_MAX:
                self._append_commits(decided, records)
                decided, records, size = [], [], 0
                offset = self.log.next_offset
        if decided:
            self._append_commits(decided, records)
        self.set_timer()

    def _append_commits(self, decided: list[_DecidedCommit], records: list[KeyValue]) -> None:
        """Append the records of several commits together, and answer each commit when they are committed."""

        def settled(error: KafkaError | None) -> None:
            if error is None:
                for outcome, promise, _ in decided:
                    promise.resolve(outcome.reply)
                return
            refuse(error.code)
            if records:
                self.lost(error)

        def refuse(code: ErrorCode) -> None:
            for _, promise, request in decided:
                promise.resolve(write_refusal(request, code))
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
        for request, _, promise in held:
            promise.resolve(refusal(request, code))

    def forget_partitions(self, partitions: tuple[tuple[str, int], ...]) -> None:
        """Delete the offsets that groups committed for these deleted partitions, once the shard is loaded."""
        if self.is_loaded:
            self.handle(ForgetPartitions(partitions))
        elif not self.is_damaged:
            self._deleted += partitions

    def _write(self, outcome: Outcome[Any], promise: Promise[Any] | None, request: Request | None) -> None:
        """Append the records of an outcome, and resolve the promise when they are committed."""

        def settled(error: KafkaError | None) -> None:
            if error is None:
                if outcome.write is not None and outcome.write.settled is not None:
                    self.coordinator.settled(outcome, ErrorCode.NONE, self._world.now_ms())
                    self.set_timer()
                _resolve(promise, outcome.reply)
                return
            self.coordinator.settled(outcome, write_error(error.code), self._world.now_ms())
            refuse(error.code)
            if outcome.records:
                self.lost(error)

        def refuse(code: ErrorCode) -> None:
            if promise is not None and request is not None and not promise.is_settled:
                promise.resolve(write_refusal(request, code))

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
            self._notify_listeners(outcome.records[0].key)

    def _notify_listeners(self, key: Key) -> None:
        """The records of one outcome belong to one group, or delete empty groups."""
        if not self._listeners or isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey):
            return
        group_id = key.group if isinstance(key, GroupMetadataKey) else getattr(key, "group_id", None)
        if group_id is not None:
            for listener in list(self._listeners):
                listener.moved(group_id)

    def append_marker(self, marker: bytes, producer_id: int, commit: bool) -> Promise[None]:
        """Append the marker that ends a transaction: pending offsets are committed or dropped. Resolved when the
        marker is committed; fails with REQUEST_TIMED_OUT if that takes too long, although the write goes on."""
        name = self.log.partition.name
        if not self._is_loaded and not self._is_damaged:
            raise KafkaError(f"{name} is still loading; retry.", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        committed: Promise[None] = Promise()

        def settled(error: KafkaError | None) -> None:
            if error is not None:
                self.lost(error)
            if committed.is_settled:
                return
            if error is None:
                committed.resolve(None)
            else:
                committed.fail(error)

        def overdue() -> None:
            committed.fail(
                KafkaError(f"{name}: the marker was not replicated in time.", ErrorCode.REQUEST_TIMED_OUT)
            )

        self.log.append_batch(marker, settled, overdue)
        if self._is_loaded:
            self.coordinator.end_transaction(producer_id, commit)
        return committed

    # -- time ------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> TimestampMs | None:
        return self.coordinator.next_deadline_ms()

    def tick(self) -> None:
        self.decide_held()
        while (outcome := self.coordinator.tick(self._world.now_ms())) is not None:
            self._write(outcome, None, None)


def _resolve(promise: Promise[Any] | None, reply: Any) -> None:
    if promise is None or promise.is_settled:
        return
    if isinstance(reply, Promise):
        reply.then(promise.resolve)
    else:
        promise.resolve(reply)


class GroupCoordinatorService:
    """The groups whose coordinator is this broker."""

    def __init__(
        self, world: World, replicas: Replicas, settings: BrokerSettings, image: Callable[[], ClusterImage]
    ) -> None:
        self._world = world
        self._settings = settings
        self._image = image
        self.listeners: dict[GroupListener, None] = {}
        self.shards = CoordinatorShards[GroupShard](OFFSETS_TOPIC, world, replicas, self._make)

    def _make(self, number: int, log: CoordinatorLog) -> GroupShard:
        image = self._image()
        log.linger_ms = int(broker_setting("group.coordinator.append.linger.ms", image, self._settings) or 0)
        log.timeouts.limit_ms = int(broker_setting("offsets.commit.timeout.ms", image, self._settings) or 0)
        coordinator = GroupCoordinator(
            group_settings(image, self._settings), ImageTopics(image), self._world.rng
        )
        return GroupShard(self._world, log, coordinator, lambda: self.shards.reload(number), self.listeners)

    def follow(self, image: ClusterImage, changed: ImageDelta) -> None:
        """Apply a new image: follow the leadership of partitions, and forget deleted topics."""
        self.shards.follow(image)
        topics = ImageTopics(image)
        deleted = tuple(
            (topic.name, number) for topic in changed.topics_deleted for number in sorted(topic.partitions)
        )
        for shard in self.shards:
            shard.decide_held()
            shard.coordinator.topics_changed(topics)
            if deleted:
                shard.forget_partitions(deleted)

    def handle(self, group_id: str, request: Request) -> Promise[Any]:
        """Have the group's coordinator handle a request. Errors are fields of the reply."""
        try:
            shard = self.shards.of(group_id)
        except KafkaError as error:
            promise: Promise[Any] = Promise()
            promise.resolve(refusal(request, error.code))
            return promise
        return shard.handle(request)

    def list_groups(self, request: ListGroups) -> Promise[ListReply]:
        """List the groups of all shards whose partition could be read."""
        return _merged([each.handle(request) for each in self.shards if not each.is_damaged])

    def expire_sessions(self, group_id: str, member_id: str | None = None) -> None:
        """End the session of one member, or of all, as if their heartbeats had stopped."""
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
        """The member of the group that owns the partition."""
        return self.shards.of(group_id).coordinator.owner_of(group_id, topic, partition)

    def committed(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self.shards.of(group_id).coordinator.committed(group_id, topic, partition)


def _merged(replies: Iterable[Promise[ListReply]]) -> Promise[ListReply]:
    waiting = list(replies)
    whole: Promise[ListReply] = Promise()
    groups: list[Any] = []
    codes: list[ErrorCode] = []

    def gather(reply: ListReply) -> None:
        groups.extend(reply.groups)
        codes.append(reply.code)
        if len(codes) == len(waiting):
            error = next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)
            whole.resolve(ListReply(error, tuple(groups)))

    if not waiting:
        whole.resolve(ListReply())
    for each in waiting:
        each.then(gather)
    return whole
