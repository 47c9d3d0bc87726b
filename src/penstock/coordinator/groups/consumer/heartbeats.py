"""ConsumerGroupHeartbeat: the request with which members of the consumer protocol join, reconcile and leave."""

from dataclasses import replace

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import random_uuid, uuid_text
from penstock.base.outcome import NOTHING, Outcome
from penstock.coordinator.groups.classic.group import ClassicGroup, tombstone
from penstock.coordinator.groups.classic.rebalance import Rebalances
from penstock.coordinator.groups.requests import ConsumerGroupHeartbeat, ConsumerHeartbeatReply
from penstock.coordinator.groups.schemas import GroupRecord
from penstock.coordinator.groups.write import GroupWrite

from .group import ConsumerGroup
from .member import (
    AWAY_EPOCH,
    JOINING_EPOCH,
    LEAVING_EPOCH,
    ConsumerMember,
    as_partitions,
    is_subset,
    member_tombstones,
    target_record,
)
from .migration import can_downgrade, downgrade, upgrade
from .sessions import Sessions
from .target_assignment import Step, TargetAssignments


class Heartbeats:
    def __init__(self, rebalances: Rebalances) -> None:
        self.rebalances = rebalances
        self._state = rebalances.state
        self.target_assignments = TargetAssignments(self._state)
        self.sessions = Sessions(self._state, self.fence)

    def heartbeat(self, request: ConsumerGroupHeartbeat) -> Outcome[ConsumerHeartbeatReply]:
        check(request, self._state.settings.consumer_assignors)
        if request.member_epoch < 0:
            return self._leave(request)
        records: list[GroupRecord] = []
        is_joining = request.member_epoch == JOINING_EPOCH
        group, is_new_group = self._group(request.group, is_joining, records)
        member_id = request.member_id or uuid_text(random_uuid(self._state.rng))
        self.check_room(group, member_id)
        old, replaced = self._member(group, member_id, request, records)
        step = Step(
            group,
            old,
            _updated(old, request),
            request.owned,
            records,
            is_new_group,
            replaced,
            request.may_describe,
        )
        before = len(records)
        after = self.target_assignments.take(step)
        if len(records) > before:
            self.sessions.moved(group, after)
        self.sessions.renew(group, after)
        is_full = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_names is not None or request.subscribed_regex is not None)
            and request.owned is not None
        )
        has_assignment = is_joining or is_full
        if after is not old and not has_assignment:
            has_assignment = as_partitions(after.assigned) != as_partitions(old.assigned)
        reply = ConsumerHeartbeatReply(
            member_id=after.member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=self._state.settings.consumer_heartbeat_interval_ms,
            assignment=as_partitions(after.assigned) if has_assignment else None,
        )
        return Outcome(reply, tuple(records))

    def check_room(self, group: ConsumerGroup, member_id: str) -> None:
        limit = self._state.settings.consumer_size_max
        if len(group.members) >= limit and member_id not in group.members:
            raise KafkaError(
                f"group {group.group_id} already has {limit} members, the maximum",
                ErrorCode.GROUP_MAX_SIZE_REACHED,
            )

    def _group(self, group_id: str, creates: bool, records: list[GroupRecord]) -> tuple[ConsumerGroup, bool]:
        """The group, or the new group that replaying the records will create; and whether it is new."""
        group = self._state.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group, not group.target_epoch and not group.members
        if group is None and creates:
            return ConsumerGroup(group_id), True
        if isinstance(group, ClassicGroup) and creates:
            if group.is_empty:
                if not group.is_simple:
                    records.append(tombstone(group_id))
                return ConsumerGroup(group_id), True
            upgraded = upgrade(group, self._state.settings, self._state.topics, records)
            for member in upgraded.members.values():
                self.sessions.renew(upgraded, member)
            return upgraded, False
        raise KafkaError(f"consumer group {group_id} does not exist", ErrorCode.GROUP_ID_NOT_FOUND)

    def _member(
        self,
        group: ConsumerGroup,
        member_id: str,
        request: ConsumerGroupHeartbeat,
        records: list[GroupRecord],
    ) -> tuple[ConsumerMember, str | None]:
        """The member, and the id of the static member that it replaces."""
        is_joining = request.member_epoch == JOINING_EPOCH
        if request.instance_id is None:
            if is_joining:
                return group.members.get(member_id, ConsumerMember(member_id)), None
            member = group.known(member_id)
        else:
            existing = group.static(request.instance_id)
            if is_joining:
                if existing is None:
                    return group.members.get(member_id, ConsumerMember(member_id)), None
                if existing.member_id == member_id:
                    return existing, None
                if not existing.is_classic and existing.epoch != AWAY_EPOCH:
                    raise KafkaError(
                        f"instance id {request.instance_id} belongs to member {existing.member_id}, "
                        "which has not left the group",
                        ErrorCode.UNRELEASED_INSTANCE_ID,
                    )
                return self.replace(group, existing, member_id, records), existing.member_id
            member = known_static(group, request.instance_id, member_id)
        _check_epoch(member, request)
        return member, None

    @staticmethod
    def replace(
        group: ConsumerGroup, old: ConsumerMember, member_id: str, records: list[GroupRecord]
    ) -> ConsumerMember:
        """Give a static member another member id; it keeps its subscription and assignment. The old timers expire
        unused."""
        new = replace(old, member_id=member_id, epoch=0, previous_epoch=0)
        records += member_tombstones(group.group_id, old.member_id)
        records.append(new.subscription_record(group.group_id))
        records.append(target_record(group.group_id, member_id, group.target_of(old)))
        records.append(new.current_record(group.group_id))
        return new

    # Leaving.

    def _leave(self, request: ConsumerGroupHeartbeat) -> Outcome[ConsumerHeartbeatReply]:
        group = self._state.groups.get(request.group)
        if not isinstance(group, ConsumerGroup):
            raise KafkaError(f"consumer group {request.group} does not exist", ErrorCode.GROUP_ID_NOT_FOUND)
        reply = ConsumerHeartbeatReply(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.instance_id is None:
            member = group.known(request.member_id)
        else:
            member = known_static(group, request.instance_id, request.member_id)
            if request.member_epoch == AWAY_EPOCH:
                # A static member keeps its assignment until its session ends.
                away = replace(member, epoch=AWAY_EPOCH, revoking={})
                return Outcome(reply, (away.current_record(group.group_id),))
        return self.fence(group, [member]).with_reply(reply)

    def fence(self, group: ConsumerGroup, members: list[ConsumerMember]) -> Outcome[None]:
        """Remove the members. Their partitions are free, and the next target assigns them to the others."""
        gone = {member.member_id for member in members}
        if not gone:
            return NOTHING

        def settled(code: ErrorCode) -> None:
            if code is not ErrorCode.NONE and self._state.groups.get(group.group_id) is group:
                for member in members:  # the removal failed: restart their sessions
                    self.sessions.resume(group, member)

        if can_downgrade(group, gone, self._state.settings):
            classic = downgrade(self.rebalances, self.sessions, group, gone)
            return classic._replace(write=classic.write._replace(settled=settled))
        records: list[GroupRecord] = []
        for member in members:
            records += member_tombstones(group.group_id, member.member_id)
        left = {member_id: each for member_id, each in group.members.items() if member_id not in gone}
        subscribed = {member.regex for member in left.values()}
        regexes = {regex: resolved for regex, resolved in group.regexes.items() if regex in subscribed}
        records += (group.regex_record(regex, None) for regex in group.regexes if regex not in regexes)
        hashed = self.target_assignments.hash_of(group, left, regexes)
        records.append(group.epoch_record(group.epoch + 1, hashed))
        for member_id in gone:
            self.sessions.forget(group.group_id, member_id)
        return Outcome(None, tuple(records), GroupWrite(settled))


def known_static(group: ConsumerGroup, instance_id: str, member_id: str) -> ConsumerMember:
    member = group.static(instance_id)
    if member is None:
        raise KafkaError(
            f"group {group.group_id} has no member with instance id {instance_id}",
            ErrorCode.UNKNOWN_MEMBER_ID,
        )
    if member.member_id != member_id:
        raise KafkaError(
            f"instance id {instance_id} of group {group.group_id} now belongs to member {member.member_id}",
            ErrorCode.FENCED_INSTANCE_ID,
        )
    return member


def _check_epoch(member: ConsumerMember, request: ConsumerGroupHeartbeat) -> None:
    epoch = request.member_epoch
    if epoch == member.epoch:
        return
    # The reply that raised the epoch may have been lost; then the member owns no more than before.
    if epoch < member.epoch and epoch == member.previous_epoch and is_subset(request.owned, member.assigned):
        return
    raise KafkaError(
        f"member {member.member_id} is at epoch {member.epoch}, the request has {epoch}: "
        "give up all partitions and join again",
        ErrorCode.FENCED_MEMBER_EPOCH,
    )


def _updated(member: ConsumerMember, request: ConsumerGroupHeartbeat) -> ConsumerMember:
    """The member with the fields of the heartbeat; fields that it omits stay."""
    changes: dict[str, object] = {}
    if request.client_id != member.client_id:
        changes["client_id"] = request.client_id
    if request.client_host != member.client_host:
        changes["client_host"] = request.client_host
    if request.instance_id is not None and request.instance_id != member.instance_id:
        changes["instance_id"] = request.instance_id
    if request.rack_id is not None and request.rack_id != member.rack_id:
        changes["rack_id"] = request.rack_id
    if request.rebalance_timeout_ms not in (-1, member.rebalance_timeout_ms):
        changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.assignor is not None and request.assignor != member.assignor:
        changes["assignor"] = request.assignor
    if request.subscribed_names is not None:
        names = tuple(sorted(set(request.subscribed_names)))
        if names != member.names:
            changes["names"] = names
    if request.subscribed_regex is not None and request.subscribed_regex != member.regex:
        changes["regex"] = request.subscribed_regex
    if member.classic is not None:
        changes["classic"] = None
    return replace(member, **changes) if changes else member  # type: ignore[arg-type]


def check(request: ConsumerGroupHeartbeat, assignors: tuple[str, ...]) -> None:
    """Validate a heartbeat as Kafka does, independently of the group."""

    def refuse(why: str) -> KafkaError:
        return KafkaError(why, ErrorCode.INVALID_REQUEST)

    if not request.group:
        raise refuse("GroupId can't be empty.")
    if request.instance_id == "":
        raise refuse("InstanceId can't be empty.")
    if request.rack_id == "":
        raise refuse("RackId can't be empty.")
    epoch = request.member_epoch
    if not request.member_id and not (request.needs_member_id and epoch == JOINING_EPOCH):
        raise refuse("MemberId can't be empty.")
    if epoch == JOINING_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise refuse("RebalanceTimeoutMs must be provided in first request.")
        if request.owned is None or request.owned:
            raise refuse("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_names is None and request.subscribed_regex is None:
            raise refuse(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
    elif epoch == AWAY_EPOCH:
        if request.instance_id is None:
            raise refuse("InstanceId can't be null.")
    elif epoch < LEAVING_EPOCH:
        raise refuse(f"MemberEpoch is invalid: {epoch}.")
    if request.assignor is not None and request.assignor not in assignors:
        raise KafkaError(
            f"ServerAssignor {request.assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
            ErrorCode.UNSUPPORTED_ASSIGNOR,
        )
