"""JoinGroup in a classic group: which members may join, and whether that starts a rebalance.

A dynamic member joins without an id, gets one, and joins again with it (KIP-394). A static member (KIP-345) is
identified by its instance id: when it returns it replaces its predecessor, without a rebalance if nothing else
changed.
"""

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.outcome import Outcome
from penstock.base.promise import Promise
from penstock.coordinator.groups.requests import NO_MEMBER_ID, JoinGroup, JoinReply, write_error
from penstock.coordinator.groups.schemas import Records
from penstock.coordinator.groups.write import GroupWrite

from .group import ClassicGroup, ClassicMember, State
from .rebalance import Rebalances

Joined = Outcome[JoinReply | Promise[JoinReply]]


class Joining:
    def __init__(self, rebalances: Rebalances) -> None:
        self._rebalances = rebalances
        self._state = rebalances.state

    def join(self, request: JoinGroup, before: Records = ()) -> Joined:
        """Join the group; create it if it does not exist. `before` are tombstones of a consumer group of the same
        id."""
        groups = self._state.groups
        found = groups.get(request.group)
        group = self._rebalances.group(request.group)
        if group is not None:
            return self._join(request, group)
        if request.member_id != NO_MEMBER_ID:
            raise KafkaError(
                f"group {request.group} does not exist, and has no member {request.member_id}",
                ErrorCode.UNKNOWN_MEMBER_ID,
            )
        group = ClassicGroup(request.group, state_since_ms=self._state.now_ms)
        # A new group is written at once, so that a group that never becomes stable can be found and deleted.
        record = group.record({})
        outcome = self._join(request, group)  # raises if the member may not join; then no group is created
        groups[request.group] = group

        def settled(code: ErrorCode) -> None:
            if code is not ErrorCode.NONE and groups.get(request.group) is group:
                self._rebalances.forget_timers(group)
                for member in group.members.values():
                    group.answer_join(member, JoinReply(write_error(code), member.member_id))
                if found is None:
                    del groups[request.group]
                else:
                    groups[request.group] = found

        return Outcome(outcome.reply, (*before, record), GroupWrite(settled, replays=False))

    def _join(self, request: JoinGroup, group: ClassicGroup) -> Joined:
        if not self._has_room(group, request.member_id):
            group.remove(request.member_id)
            raise KafkaError(
                f"group {group.group_id} already has group.max.size members", ErrorCode.GROUP_MAX_SIZE_REACHED
            )
        if not group.supports(request.protocol_type, (name for name, _ in request.protocols)):
            raise KafkaError(
                f"the members of group {group.group_id} have no protocol in common with this member",
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            )
        if request.member_id == NO_MEMBER_ID:
            return self._join_new(request, group)
        if request.member_id in group.pending_joins:
            if request.instance_id is not None:
                raise KafkaError(
                    "the member id belongs to a dynamic member, but the request has an instance id",
                    ErrorCode.UNKNOWN_MEMBER_ID,
                )
            return self._add(request, group, request.member_id)
        return self._rejoin(request, group)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        limit = self._state.settings.size_max
        member = group.members.get(member_id)
        if group.state is State.EMPTY:
            return True
        if group.state is State.PREPARING:
            # Waiting members are counted: if the limit was lowered, the last ones to join again are rejected.
            return (member is not None and member.awaits_join is not None) or group.joins_awaited < limit
        return member is not None or len(group.members) < limit

    def _join_new(self, request: JoinGroup, group: ClassicGroup) -> Joined:
        if request.instance_id is not None:
            member_id = f"{request.instance_id}-{self._state.new_id()}"
            existing = group.statics.get(request.instance_id)
            if existing is None:
                return self._add(request, group, member_id)
            return self._replace(request, group, group.members[existing], member_id)
        member_id = f"{request.client_id}-{self._state.new_id()}"
        if request.needs_member_id:
            self._rebalances.expect(group, member_id, request.session_timeout_ms)
            return Outcome(JoinReply(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        return self._add(request, group, member_id)

    def _add(self, request: JoinGroup, group: ClassicGroup, member_id: str) -> Joined:
        member = ClassicMember(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            rebalance_timeout_ms(request),
            request.session_timeout_ms,
            request.protocols,
            is_new=True,
        )
        if group.state is State.PREPARING and group.previous_state is State.EMPTY:
            group.had_newcomer = True
        if not group.members:
            group.protocol_type = request.protocol_type
        waits: Promise[JoinReply] = Promise()
        group.add(member, waits)
        # The member cannot send heartbeats before it knows its id, so its session is longer; but it ends, because a
        # client that disconnects is not noticed.
        self._rebalances.renew(group, member, self._state.settings.new_member_join_timeout_ms)
        return self._rebalances.prepare_or_complete(group).with_reply(waits)

    def _update(self, request: JoinGroup, group: ClassicGroup, member: ClassicMember) -> Joined:
        waits: Promise[JoinReply] = Promise()
        group.update(member, request.protocols, rebalance_timeout_ms(request), request.session_timeout_ms)
        group.await_join(member, waits)
        return self._rebalances.prepare_or_complete(group).with_reply(waits)

    def _rejoin(self, request: JoinGroup, group: ClassicGroup) -> Joined:
        member = group.known(request.member_id, request.instance_id)
        is_leader = member.member_id == group.leader
        is_same = member.protocols == request.protocols
        if group.state is State.PREPARING:
            return self._update(request, group, member)
        if group.state is State.COMPLETING:
            if not is_same:
                return self._update(request, group, member)
            # The reply to its join was lost, and the member retries.
            return Outcome(
                self._rebalances.joined(group, member, group.joined_members() if is_leader else ())
            )
        if group.state is State.STABLE:
            if is_leader or not is_same:
                # A leader that joins again has a reason that the coordinator cannot know, such as new partitions.
                return self._update(request, group, member)
            return Outcome(self._rebalances.joined(group, member))
        raise KafkaError(f"group {group.group_id} has no members", ErrorCode.UNKNOWN_MEMBER_ID)

    def _replace(
        self, request: JoinGroup, group: ClassicGroup, member: ClassicMember, member_id: str
    ) -> Joined:
        """A static member returns with a new member id."""
        rebalances = self._rebalances
        old_id, old_leader = member.member_id, group.leader or ""
        old = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        group.replace_static(member, member_id)
        rebalances.renew(group, member)
        group.update(member, request.protocols, rebalance_timeout_ms(request), request.session_timeout_ms)
        waits: Promise[JoinReply] = Promise()
        group.await_join(member, waits)
        if group.state is State.COMPLETING:
            # The leader may be assigning to the old id at this moment.
            return rebalances.prepare(group).with_reply(waits)
        if group.state is not State.STABLE:
            return rebalances.complete_if_all_joined(group).with_reply(waits)
        if group.select_protocol() != group.protocol:
            return rebalances.prepare_or_complete(group).with_reply(waits)

        def settled(code: ErrorCode) -> None:
            if member.awaits_join is not waits:
                return  # another rebalance has begun, and answers the join
            if code is not ErrorCode.NONE:
                group.answer_join(member, JoinReply(write_error(code)))
                if member_id in group.members:
                    group.update(member, *old)
                    group.replace_static(member, old_id)
                    rebalances.renew(group, member)
                return
            is_leader = group.leader == member_id
            if request.may_skip_assignment:
                members = group.joined_members() if is_leader else ()
                group.answer_join(member, rebalances.joined(group, member, members, skip=is_leader))
            else:
                # The reply names the old leader, so that the member does not compute a new assignment.
                group.answer_join(member, rebalances.joined(group, member)._replace(leader=old_leader))

        assignments = {each.member_id: each.assignment for each in group.members.values()}
        return Outcome(waits, (group.record(assignments),), GroupWrite(settled, replays=False))


def rebalance_timeout_ms(request: JoinGroup) -> int:
    return request.session_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms


def checked(request: JoinGroup, timeout_ms_min: int, timeout_ms_max: int) -> JoinGroup:
    if not request.group:
        raise KafkaError("the group id is empty", ErrorCode.INVALID_GROUP_ID)
    if not timeout_ms_min <= request.session_timeout_ms <= timeout_ms_max:
        raise KafkaError(
            f"the session timeout is {request.session_timeout_ms} ms, "
            f"expected {timeout_ms_min} to {timeout_ms_max}",
            ErrorCode.INVALID_SESSION_TIMEOUT,
        )
    return request
