"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, translated.

For them the member epoch is the generation, a join is a heartbeat that lists the owned partitions, and a sync returns
the assignment. There is no leader: the coordinator assigns. If a member has to give up partitions or gets more, its
heartbeat returns REBALANCE_IN_PROGRESS, and it joins again.
"""

from collections.abc import Mapping
from dataclasses import replace

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import random_uuid, uuid_text
from penstock.base.outcome import Outcome
from penstock.coordinator.groups.classic.joining import rebalance_timeout_ms
from penstock.coordinator.groups.consumer_protocol import PROTOCOL_TYPE, Subscription, read_subscription
from penstock.coordinator.groups.requests import (
    NO_MEMBER_ID,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    LeavingMember,
    LeftMember,
    Partitions,
    SyncGroup,
    SyncReply,
)
from penstock.coordinator.groups.schemas import GroupRecord
from penstock.coordinator.groups.settings import Topic
from penstock.coordinator.groups.write import GroupWrite
from penstock.records.structs import CorruptStruct

from .group import ConsumerGroup
from .heartbeats import Heartbeats, known_static
from .member import ConsumerMember, MemberState
from .migration import assignment_of, can_downgrade, classic_metadata, downgrade
from .target_assignment import Step


class ClassicMembers:
    def __init__(self, heartbeats: Heartbeats) -> None:
        self._heartbeats = heartbeats
        self._sessions = heartbeats.sessions
        self._rebalances = heartbeats.rebalances
        self._state = self._rebalances.state

    def join(self, request: JoinGroup, group: ConsumerGroup) -> Outcome[JoinReply]:
        is_unknown = request.member_id == NO_MEMBER_ID
        member_id = uuid_text(random_uuid(self._state.rng)) if is_unknown else request.member_id
        self._heartbeats.check_room(group, member_id)
        self._check_protocols(request, group)
        if is_unknown and request.instance_id is None and request.needs_member_id:
            return Outcome(JoinReply(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        try:
            subscription = read_subscription(request.protocols[0][1])
        except CorruptStruct as error:
            raise KafkaError(str(error), ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from error
        records: list[GroupRecord] = []
        replaced: ConsumerMember | None = None
        if request.instance_id is None:
            old = group.members.get(member_id, ConsumerMember(member_id))
        elif is_unknown:
            replaced = group.static(request.instance_id)
            if replaced is None:
                old = ConsumerMember(member_id)
            else:
                old = self._heartbeats.replace(group, replaced, member_id, records)
        else:
            old = known_static(group, request.instance_id, member_id)
        new = _updated(old, request, subscription)
        if replaced is not None and can_downgrade(group, {replaced.member_id}, self._state.settings):
            return self._downgrade(group, replaced, old, new, records)
        owned = _by_id(subscription, self._state.topics.by_name)
        step = Step(
            group,
            old,
            new,
            owned,
            records,
            replaced=None if replaced is None else replaced.member_id,
            resolves_regexes=False,
        )
        after = self._heartbeats.target_assignments.take(step)

        def settled(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self._sessions.joined(group, after)

        return Outcome(_joined(after), tuple(records), GroupWrite(settled))

    def _downgrade(
        self,
        group: ConsumerGroup,
        replaced: ConsumerMember,
        old: ConsumerMember,
        new: ConsumerMember,
        records: list[GroupRecord],
    ) -> Outcome[JoinReply]:
        """The last member of the consumer protocol returns with the classic protocol."""
        new = replace(new, epoch=group.epoch)
        needs_rebalance = new.names != old.names or bool(old.regex)
        change = downgrade(
            self._rebalances, self._sessions, group, {replaced.member_id}, new, needs_rebalance, records
        )
        return change.with_reply(_joined(new))

    def _check_protocols(self, request: JoinGroup, group: ConsumerGroup) -> None:
        known = [member.classic for member in group.members.values() if member.classic is not None]
        common = {name for name, _ in request.protocols}
        for classic in known:
            common &= {each.name for each in classic.supported_protocols}
        if request.protocol_type != PROTOCOL_TYPE or not common:
            raise KafkaError(
                f"the members of group {group.group_id} have no protocol in common with this member",
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            )

    def sync(self, request: SyncGroup, group: ConsumerGroup) -> Outcome[SyncReply]:
        member = self._known(group, request.member_id, request.instance_id)
        assert member.classic is not None
        protocol = member.classic.supported_protocols[0].name
        _check_generation(member, request.generation)
        if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol not in (None, protocol):
            raise KafkaError(
                f"group {group.group_id} uses {PROTOCOL_TYPE}/{protocol}, "
                f"not {request.protocol_type}/{request.protocol}",
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            )
        if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED:
            self._sessions.await_join(group, member)
            raise KafkaError(
                f"group {group.group_id} is rebalancing; join again", ErrorCode.REBALANCE_IN_PROGRESS
            )
        self._sessions.synced(group, member)
        has = {topic_id: tuple(partitions) for topic_id, partitions in member.assigned.items()}
        assignment = assignment_of(member, has, self._state.topics)
        return Outcome(SyncReply(ErrorCode.NONE, request.protocol_type, request.protocol, assignment))

    def heartbeat(self, request: Heartbeat, group: ConsumerGroup) -> Outcome[HeartbeatReply]:
        member = self._known(group, request.member_id, request.instance_id)
        _check_generation(member, request.generation)
        self._sessions.renew(group, member)
        should_join = (
            member.epoch < group.epoch
            or member.state is MemberState.UNREVOKED
            or (member.state is MemberState.UNRELEASED and not group.waits_for_others(member))
        )
        if not should_join:
            return Outcome(HeartbeatReply())
        self._sessions.await_join(group, member)
        return Outcome(HeartbeatReply(ErrorCode.REBALANCE_IN_PROGRESS))

    def leave(self, request: LeaveGroup, group: ConsumerGroup) -> Outcome[LeaveReply]:
        """Remove members, of either protocol. An administrator may do so, too."""
        results: list[LeftMember] = []
        gone: dict[str, ConsumerMember] = {}
        for leaving in request.members:
            try:
                member = _leaving(group, leaving)
            except KafkaError as error:
                results.append(LeftMember(leaving.member_id, leaving.instance_id, error.code))
            else:
                gone[member.member_id] = member
                results.append(LeftMember(leaving.member_id, leaving.instance_id))
        change = self._heartbeats.fence(group, [*gone.values()])
        return change.with_reply(LeaveReply(ErrorCode.NONE, tuple(results)))

    @staticmethod
    def _known(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
        static = instance_id is not None
        member = known_static(group, instance_id or "", member_id) if static else group.known(member_id)
        if not member.is_classic:
            raise KafkaError(
                f"member {member_id} does not use the classic protocol", ErrorCode.UNKNOWN_MEMBER_ID
            )
        return member


def _leaving(group: ConsumerGroup, leaving: LeavingMember) -> ConsumerMember:
    if leaving.instance_id is None:
        return group.known(leaving.member_id)
    member_id = leaving.member_id
    if member_id == NO_MEMBER_ID:
        member_id = group.statics.get(leaving.instance_id, NO_MEMBER_ID)
    return known_static(group, leaving.instance_id, member_id)


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise KafkaError(
            f"member {member.member_id} is in generation {member.epoch}, the request has {generation}",
            ErrorCode.ILLEGAL_GENERATION,
        )


def _updated(member: ConsumerMember, request: JoinGroup, subscription: Subscription) -> ConsumerMember:
    return replace(
        member,
        instance_id=request.instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        names=tuple(sorted(set(subscription.topics))),
        regex="",
        rebalance_timeout_ms=rebalance_timeout_ms(request),
        classic=classic_metadata(request.session_timeout_ms, request.protocols),
    )


def _by_id(subscription: Subscription, by_name: Mapping[str, Topic]) -> Partitions:
    owned = []
    for each in subscription.owned_partitions:
        topic = by_name.get(each.topic)
        if topic is not None:
            owned.append((topic.topic_id, each.partitions))
    return tuple(owned)


def _joined(member: ConsumerMember) -> JoinReply:
    assert member.classic is not None
    return JoinReply(
        ErrorCode.NONE,
        member.member_id,
        member.epoch,
        PROTOCOL_TYPE,
        member.classic.supported_protocols[0].name,
    )
