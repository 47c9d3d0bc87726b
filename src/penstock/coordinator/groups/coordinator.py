"""The coordinator of the groups that live in one partition of `__consumer_offsets`.

It decides and writes nothing. The runtime appends the records of each outcome and reports the result:

    outcome = coordinator.handle(request, now_ms)
    if outcome.records:
        base_offset = append(outcome.records)           # one batch; in a transaction if write.producer says so
        coordinator.written(outcome, base_offset)       # before anything else is asked of the coordinator
    ... once everything up to here is committed ...
    coordinator.settled(outcome, ErrorCode.NONE, now_ms)
    send(outcome.reply)                                 # if it is a Promise, when it is resolved

An outcome without records also waits for earlier writes, because it may depend on them. So no reply shows state that
could still be lost, and reads need no copy of the committed state. If a commit takes too long, the request gets a
retriable error, and `overdue` reports that, because other members may wait for the same write.

State changes when its records are appended, not when they are committed, so that the next decision sees it. Nothing
has to be undone: if the append fails, nothing has changed (`settled` with the error, and the reply is
`refusal(request, write_error(code))`); if the records are appended but cannot be committed, this broker no longer
leads the partition, and the coordinator is dropped with `unload`. Classic groups are the exception: their members wait
for each other in memory (see `GroupWrite.replays`).

Time drives sessions, rebalances and expiry: `tick` returns one outcome at a time until there is none, and each is
written before the next call. A coordinator starts empty, replays every record of its partition in order, and is then
`loaded`: it knows nothing that is not in its topic.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import NO_PRODUCER_ID
from penstock.base.outcome import NOTHING, Outcome
from penstock.base.promise import Promise
from penstock.records import ControlType, RecordBatch, parse_control
from penstock.records.structs import CorruptStruct

from . import overview
from .classic.group import ClassicGroup, tombstone
from .classic.joining import Joining, checked
from .classic.membership import Membership
from .classic.rebalance import Rebalances
from .consumer.classic_members import ClassicMembers
from .consumer.group import ConsumerGroup
from .consumer.heartbeats import Heartbeats
from .offset_commits import OffsetCommits
from .offset_store import CommittedOffset, Place
from .replay import replay
from .requests import (
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    DeletedGroup,
    DeleteGroups,
    DeleteReply,
    DescribeGroups,
    ForgetPartitions,
    GroupSummary,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    Request,
    SyncGroup,
    SyncReply,
    TxnOffsetCommit,
    refusal,
)
from .schemas import AnyRecord, GroupRecord, decode
from .settings import GroupSettings, Topics
from .state import CoordinatorState
from .write import REPLAYED, GroupWrite

if TYPE_CHECKING:
    from random import Random

_EXPIRY = ("expiry",)


class GroupCoordinator:
    def __init__(self, settings: GroupSettings, topics: Topics, rng: "Random") -> None:
        self._state = CoordinatorState(settings, topics, rng)
        self._rebalances = Rebalances(self._state)
        self._joining = Joining(self._rebalances)
        self._membership = Membership(self._rebalances)
        self._heartbeats = Heartbeats(self._rebalances)
        self._classic_members = ClassicMembers(self._heartbeats)
        self._offset_commits = OffsetCommits(self._state, self._membership)
        self._is_active = False
        """Loaded, and not unloaded since."""
        self._decided: deque[Outcome[None]] = deque()
        """Outcomes without a request; `tick` returns them."""
        self._to_expire: deque[str] = deque()
        """Groups whose offsets are still to be checked for expiry."""
        self._handlers: dict[type[Any], Callable[[Any], Outcome[Any]]] = {
            JoinGroup: self._join,
            SyncGroup: self._sync,
            Heartbeat: self._heartbeat,
            LeaveGroup: self._leave,
            OffsetCommit: self._offset_commits.commit,
            TxnOffsetCommit: self._offset_commits.commit_in_transaction,
            OffsetFetch: self._offset_commits.fetch,
            OffsetDelete: self._offset_commits.delete,
            ForgetPartitions: self._offset_commits.forget,
            DeleteGroups: self._delete,
            ListGroups: lambda request: Outcome(overview.listed(self._state, request)),
            DescribeGroups: lambda request: Outcome(overview.described(self._state, request)),
            ConsumerGroupHeartbeat: self._heartbeats.heartbeat,
            ConsumerGroupDescribe: lambda request: Outcome(
                overview.described_consumers(self._state, request)
            ),
        }

    # Requests.

    def handle(self, request: Request, now_ms: int) -> Outcome[Any]:
        if not self._is_active:
            return Outcome(refusal(request, ErrorCode.NOT_COORDINATOR))
        self._state.now_ms = now_ms
        try:
            return self._handlers[type(request)](request)
        except KafkaError as error:
            return Outcome(refusal(request, error.code, str(error)))

    def written(self, outcome: Outcome[Any], base_offset: int) -> None:
        """The outcome's records were appended, the first of them at the offset."""
        write: GroupWrite = outcome.write or REPLAYED
        if write.applied is not None:
            write.applied()
        if write.replays:
            producer_id = NO_PRODUCER_ID if write.producer is None else write.producer.producer_id
            for index, record in enumerate(outcome.records):
                self._replay(record, base_offset + index, producer_id)

    def settled(self, outcome: Outcome[Any], code: ErrorCode, now_ms: int) -> None:
        """The outcome's records are committed (NONE), or were never appended."""
        write: GroupWrite = outcome.write or REPLAYED
        if self._is_active and write.settled is not None:
            self._state.now_ms = now_ms
            write.settled(code)

    def overdue(self, outcome: Outcome[Any], code: ErrorCode, now_ms: int) -> None:
        """The outcome's records are appended, but not committed in time. The decision still holds."""
        write: GroupWrite = outcome.write or REPLAYED
        if self._is_active and write.overdue is not None:
            self._state.now_ms = now_ms
            write.overdue(code)

    def _group(self, group_id: str) -> ClassicGroup | ConsumerGroup:
        if not group_id:
            raise KafkaError("the group id is empty", ErrorCode.INVALID_GROUP_ID)
        group = self._state.groups.get(group_id)
        if group is None:
            raise KafkaError(f"group {group_id} does not exist", ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    def _join(self, request: JoinGroup) -> Outcome[JoinReply | Promise[JoinReply]]:
        settings = self._state.settings
        checked(request, settings.session_timeout_ms_min, settings.session_timeout_ms_max)
        group = self._state.groups.get(request.group)
        if isinstance(group, ConsumerGroup):
            if not group.is_empty:
                return self._classic_members.join(request, group)
            return self._joining.join(request, tuple(group.tombstones()))
        return self._joining.join(request)

    def _sync(self, request: SyncGroup) -> Outcome[SyncReply | Promise[SyncReply]]:
        group = self._group(request.group)
        if isinstance(group, ConsumerGroup):
            return self._classic_members.sync(request, group)
        return self._membership.sync(request, group)

    def _heartbeat(self, request: Heartbeat) -> Outcome[HeartbeatReply]:
        group = self._group(request.group)
        if isinstance(group, ConsumerGroup):
            return self._classic_members.heartbeat(request, group)
        return self._membership.heartbeat(request, group)

    def _leave(self, request: LeaveGroup) -> Outcome[LeaveReply]:
        group = self._group(request.group)
        if isinstance(group, ConsumerGroup):
            return self._classic_members.leave(request, group)
        return self._membership.leave(request, group)

    def _delete(self, request: DeleteGroups) -> Outcome[DeleteReply]:
        results: list[DeletedGroup] = []
        records: list[GroupRecord] = []
        for group_id in dict.fromkeys(request.groups):
            group = self._state.groups.get(group_id)
            if group is None:
                results.append(DeletedGroup(group_id, ErrorCode.GROUP_ID_NOT_FOUND))
            elif not group.is_empty:
                results.append(DeletedGroup(group_id, ErrorCode.NON_EMPTY_GROUP))
            else:
                results.append(DeletedGroup(group_id))
                records += self._offset_commits.delete_all(group_id)
                records += self._tombstones(group)
        return Outcome(DeleteReply(ErrorCode.NONE, tuple(results)), tuple(records))

    @staticmethod
    def _tombstones(group: ClassicGroup | ConsumerGroup) -> list[GroupRecord]:
        return group.tombstones() if isinstance(group, ConsumerGroup) else [tombstone(group.group_id)]

    # Commands of operators and tests.

    def expire_sessions(self, group_id: str, member_id: str | None, now_ms: int) -> None:
        """End the session of one member, or of all, at the next `tick`."""
        self._state.now_ms = now_ms
        group = self._group(group_id)
        if member_id is not None and member_id not in group.members:
            raise KafkaError(f"group {group_id} has no member {member_id}", ErrorCode.UNKNOWN_MEMBER_ID)
        sessions = self._heartbeats.sessions if isinstance(group, ConsumerGroup) else self._rebalances
        for each in [*group.members] if member_id is None else [member_id]:
            sessions.expire(group_id, each)

    def rebalance(self, group_id: str, now_ms: int) -> None:
        """Begin a rebalance at the next `tick`. In a group of the consumer protocol the epoch rises, and members that
        keep their partitions need not notice."""
        self._state.now_ms = now_ms
        group = self._group(group_id)
        if isinstance(group, ConsumerGroup):
            hashed = self._heartbeats.target_assignments.hash_of(group, group.members, group.regexes)
            self._decided.append(Outcome(None, (group.epoch_record(group.epoch + 1, hashed),)))
        elif not group.is_empty:
            self._decided.append(self._rebalances.prepare_or_complete(group))

    # Time.

    def next_deadline_ms(self) -> int | None:
        """When to tick next; 0 for now, None for never."""
        if self._decided or self._to_expire:
            return 0
        return self._state.timers.next_deadline_ms()

    def tick(self, now_ms: int) -> Outcome[None] | None:
        """Run the next timer that is due; None if there is none."""
        self._state.now_ms = now_ms
        while self._is_active:
            if self._decided:
                outcome = self._decided.popleft()
            elif self._to_expire:
                outcome = self._expire(self._to_expire.popleft())
            else:
                call = self._state.timers.due(now_ms)
                if call is None:
                    return None
                outcome = call()
            if outcome.records:
                return outcome
        return None

    def _begin_expiry(self) -> Outcome[None]:
        self._to_expire.extend(self._state.groups)
        interval_ms = self._state.settings.offsets_check_interval_ms
        self._state.timers.schedule(_EXPIRY, self._state.after_ms(interval_ms), self._begin_expiry)
        return NOTHING

    def _expire(self, group_id: str) -> Outcome[None]:
        group = self._state.groups.get(group_id)
        if group is None:
            return NOTHING
        records, is_bare = self._offset_commits.expired(group)
        if is_bare and group.is_idle:
            records += self._tombstones(group)
        return Outcome(None, tuple(records))

    # Queries.

    def topics_changed(self, topics: Topics) -> None:
        self._state.topics = topics

    def find(self, group_id: str) -> ClassicGroup | ConsumerGroup | None:
        """The group, read-only."""
        return self._state.groups.get(group_id)

    def summary(self, group_id: str) -> GroupSummary | None:
        """The group in brief, read-only; None if it does not exist."""
        return overview.summarized(self._state, group_id)

    @property
    def groups(self) -> Iterable[ClassicGroup | ConsumerGroup]:
        return self._state.groups.values()

    @property
    def positions(self) -> Iterable[tuple[str, Mapping[Place, CommittedOffset]]]:
        """The committed offsets of each group, read-only."""
        offsets = self._state.offsets
        return ((group_id, offsets.of_group(group_id)) for group_id in offsets.groups())

    def owner_of(self, group_id: str, topic: str, partition: int) -> str | None:
        """The member that owns the partition."""
        group = self._state.groups.get(group_id)
        return None if group is None else group.owner_of(topic, partition, self._state.topics)

    def committed(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self._state.offsets.get(group_id, (topic, partition))

    # Loading and unloading.

    def load(self, batches: Iterable[RecordBatch]) -> None:
        """Replay batches of the partition; after the last ones, call `loaded`."""
        for batch in batches:
            if batch.is_control:
                for record in batch.records():
                    kind = parse_control(record).type
                    if kind in (ControlType.COMMIT, ControlType.ABORT):
                        self.end_transaction(batch.producer_id, kind is ControlType.COMMIT)
                continue
            producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER_ID
            for record in batch.records():
                value = None if record.value is None else bytes(record.value)
                self.replay(bytes(record.key or b""), value, record.offset, producer_id)

    def replay(self, key: bytes, value: bytes | None, offset: int, producer_id: int = NO_PRODUCER_ID) -> None:
        """Replay one record. Raises CorruptStruct if it cannot be read: the state would be incomplete."""
        try:
            record = decode(key, value)
            if record is not None:
                self._replay(record, offset, producer_id)
        except CorruptStruct as error:
            raise CorruptStruct(f"the record at offset {offset}: {error}") from error

    def _replay(self, record: AnyRecord, offset: int, producer_id: int) -> None:
        replay(self._state, self._rebalances, record, offset, producer_id)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Apply a marker of the producer that was appended to the partition."""
        self._state.offsets.end(producer_id, committed)

    def loaded(self, now_ms: int) -> None:
        self._state.now_ms = now_ms
        self._is_active = True
        for group in [*self._state.groups.values()]:
            if isinstance(group, ConsumerGroup):
                self._heartbeats.sessions.loaded(group)
                continue
            outcome = self._rebalances.loaded(group)
            if outcome.records:
                self._decided.append(outcome)
        interval_ms = self._state.settings.offsets_check_interval_ms
        self._state.timers.schedule(_EXPIRY, self._state.after_ms(interval_ms), self._begin_expiry)

    def unload(self) -> None:
        """Drop the state: another broker is the coordinator. Waiting members get NOT_COORDINATOR."""
        self._is_active = False
        self._state.timers.clear()
        self._decided.clear()
        self._to_expire.clear()
        for group in self._state.groups.values():
            if isinstance(group, ClassicGroup):
                for member in group.members.values():
                    group.answer_join(member, JoinReply(ErrorCode.NOT_COORDINATOR, member.member_id))
                    group.answer_sync(member, SyncReply(ErrorCode.NOT_COORDINATOR))
        self._state.groups.clear()
