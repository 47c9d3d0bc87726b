"""Rebalances of a classic group: collect joins, start a generation, distribute the leader's assignment.

Members wait for each other, so most decisions take effect at once, in memory. A record is written when a generation's
assignment is known, when a group is created or becomes empty, and when a static member returns with another member
id: a later coordinator starts from that record. A generation without an assignment is not in the log; its members
join again.
"""

from penstock.base.errors import ErrorCode
from penstock.base.outcome import NOTHING, Outcome
from penstock.coordinator.groups.requests import JoinedMember, JoinReply, SyncReply, write_error
from penstock.coordinator.groups.state import CoordinatorState
from penstock.coordinator.groups.write import GroupWrite

from .group import ClassicGroup, ClassicMember, State


def session_timer(group_id: str, member_id: str) -> tuple[str, ...]:
    return ("session", group_id, member_id)


def join_timer(group_id: str) -> tuple[str, ...]:
    return ("join", group_id)


def sync_timer(group_id: str) -> tuple[str, ...]:
    return ("sync", group_id)


class Rebalances:
    def __init__(self, state: CoordinatorState) -> None:
        self.state = state

    def group(self, group_id: str) -> ClassicGroup | None:
        group = self.state.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def loaded(self, group: ClassicGroup) -> Outcome[None]:
        """Start the sessions of the members of a loaded group."""
        for member in group.members.values():
            self.renew(group, member)
        if len(group.members) > self.state.settings.size_max:
            return self.prepare(group)  # the limit was lowered: the last members to rejoin are rejected
        return NOTHING

    def forget_timers(self, group: ClassicGroup) -> None:
        for member_id in (*group.members, *group.pending_joins):
            self.state.timers.cancel(session_timer(group.group_id, member_id))
        self.state.timers.cancel(join_timer(group.group_id))
        self.state.timers.cancel(sync_timer(group.group_id))

    def forget(self, group: ClassicGroup) -> None:
        """Drop a group that was deleted or changed its protocol. Waiting members get REBALANCE_IN_PROGRESS and join
        again."""
        self.forget_timers(group)
        for member in group.members.values():
            group.answer_join(member, JoinReply(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
            group.answer_sync(member, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS))
        del self.state.groups[group.group_id]

    # Phase 1: joins.

    def prepare_or_complete(self, group: ClassicGroup) -> Outcome[None]:
        return self.prepare(group) if group.can_rebalance else self.complete_if_all_joined(group)

    def prepare(self, group: ClassicGroup) -> Outcome[None]:
        """Start a rebalance: every member has to join again."""
        state = self.state
        if group.state is State.COMPLETING:
            for member in group.members.values():
                member.assignment = b""
            self._propagate(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_syncs.clear()
        state.timers.cancel(sync_timer(group.group_id))
        is_first = group.state is State.EMPTY
        group.enter(State.PREPARING, state.now_ms)
        if is_first:
            # A new group waits for more members, instead of rebalancing for each of them.
            delay_ms = state.settings.initial_rebalance_delay_ms
            left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._wait_for_more(group.group_id, delay_ms, left_ms)
            return NOTHING
        if group.all_joined:
            return self.complete(group)
        self._complete_after(group, group.rebalance_timeout_ms)
        return NOTHING

    def _wait_for_more(self, group_id: str, delay_ms: int, left_ms: int) -> None:
        self.state.timers.schedule(
            join_timer(group_id),
            self.state.after_ms(delay_ms),
            lambda: self._first_delay_over(group_id, delay_ms, left_ms),
        )

    def _first_delay_over(self, group_id: str, delay_ms: int, left_ms: int) -> Outcome[None]:
        group = self.group(group_id)
        if group is None:
            return NOTHING
        if group.had_newcomer and left_ms:
            group.had_newcomer = False
            next_ms = min(self.state.settings.initial_rebalance_delay_ms, left_ms)
            self._wait_for_more(group_id, next_ms, max(left_ms - delay_ms, 0))
            return NOTHING
        return self.complete(group)

    def _complete_after(self, group: ClassicGroup, delay_ms: int) -> None:
        group_id = group.group_id

        def over() -> Outcome[None]:
            found = self.group(group_id)
            return NOTHING if found is None or found.state is not State.PREPARING else self.complete(found)

        self.state.timers.schedule(join_timer(group_id), self.state.after_ms(delay_ms), over)

    def complete_if_all_joined(self, group: ClassicGroup) -> Outcome[None]:
        if group.state is not State.PREPARING or group.previous_state is State.EMPTY or not group.all_joined:
            return NOTHING
        return self.complete(group)

    def complete(self, group: ClassicGroup) -> Outcome[None]:
        """End the join phase: remove dynamic members that did not join, and start a generation."""
        state = self.state
        state.timers.cancel(join_timer(group.group_id))
        for member in [*group.members.values()]:
            if member.awaits_join is None and member.instance_id is None:
                group.remove(member.member_id)
                state.timers.cancel(session_timer(group.group_id, member.member_id))
        if group.members and not self._elect_joined_leader(group):
            # Only static members are left and none has joined: wait until one joins, or their sessions end.
            self._complete_after(group, group.rebalance_timeout_ms)
            return NOTHING
        self._next_generation(group)
        if group.state is State.EMPTY:
            return Outcome(None, (group.record({}),), GroupWrite(replays=False))
        listed = group.joined_members()
        for member in group.members.values():
            is_leader = member.member_id == group.leader
            group.answer_join(member, self.joined(group, member, listed if is_leader else ()))
            self.renew(group, member)
            member.is_new = False
            group.pending_syncs[member.member_id] = None
        self._await_syncs(group)
        return NOTHING

    @staticmethod
    def joined(
        group: ClassicGroup, member: ClassicMember, members: tuple[JoinedMember, ...] = (), skip: bool = False
    ) -> JoinReply:
        return JoinReply(
            ErrorCode.NONE,
            member.member_id,
            group.generation,
            group.protocol_type,
            group.protocol,
            group.leader or "",
            skip,
            members,
        )

    @staticmethod
    def _elect_joined_leader(group: ClassicGroup) -> bool:
        leader = group.members.get(group.leader or "")
        if leader is not None and leader.awaits_join is not None:
            return True
        joined = next((each for each in group.members.values() if each.awaits_join is not None), None)
        if joined is None:
            return False
        group.leader = joined.member_id
        return True

    def _next_generation(self, group: ClassicGroup) -> None:
        group.generation += 1
        group.protocol = group.select_protocol() if group.members else None
        group.subscribed_topics = group.compute_subscribed_topics()
        group.enter(State.COMPLETING if group.members else State.EMPTY, self.state.now_ms)
        group.pending_syncs.clear()

    # Phase 2: syncs.

    def _await_syncs(self, group: ClassicGroup) -> None:
        group_id, generation = group.group_id, group.generation
        self.state.timers.schedule(
            sync_timer(group_id),
            self.state.after_ms(group.rebalance_timeout_ms),
            lambda: self._syncs_overdue(group_id, generation),
        )

    def _syncs_overdue(self, group_id: str, generation: int) -> Outcome[None]:
        """Remove members that joined and did not sync in time."""
        group = self.group(group_id)
        if group is None or group.generation != generation or not group.pending_syncs:
            return NOTHING
        if group.state not in (State.COMPLETING, State.STABLE):
            return NOTHING
        for member_id in [*group.pending_syncs]:
            group.remove(member_id)
            self.state.timers.cancel(session_timer(group_id, member_id))
        return self.prepare(group)

    def has_synced(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_syncs.pop(member_id, None)
        if not group.pending_syncs:
            self.state.timers.cancel(sync_timer(group.group_id))

    def assigned(self, group: ClassicGroup, assignments: dict[str, bytes]) -> Outcome[None]:
        """The leader has sent the assignment: when it is committed, every member gets its part, and the group is
        stable."""
        generation = group.generation

        def settled(code: ErrorCode) -> None:
            if group.state is not State.COMPLETING or group.generation != generation:
                return  # another rebalance has begun
            if code is ErrorCode.NONE:
                for member in group.members.values():
                    member.assignment = assignments.get(member.member_id, b"")
                self._propagate(group, ErrorCode.NONE)
                group.enter(State.STABLE, self.state.now_ms)
                return
            self._propagate(group, write_error(code))
            self.prepare(group)

        # A slow write counts as a failed one: waiting members get an error, and another rebalance begins.
        return Outcome(
            None, (group.record(assignments),), GroupWrite(settled, replays=False, overdue=settled)
        )

    def _propagate(self, group: ClassicGroup, code: ErrorCode) -> None:
        for member in group.members.values():
            if code is ErrorCode.NONE:
                reply = SyncReply(code, group.protocol_type, group.protocol, member.assignment)
            else:
                reply = SyncReply(code)
            if group.answer_sync(member, reply):
                self.renew(group, member)  # the session was suspended while the member waited

    # Sessions.

    def renew(self, group: ClassicGroup, member: ClassicMember, timeout_ms: int | None = None) -> None:
        """Restart the session of a member that sent a request."""
        group_id, member_id = group.group_id, member.member_id
        self.state.timers.schedule(
            session_timer(group_id, member_id),
            self.state.after_ms(member.session_timeout_ms if timeout_ms is None else timeout_ms),
            lambda: self._session_over(group_id, member_id),
        )

    def expire(self, group_id: str, member_id: str) -> None:
        """End the member's session as if its heartbeats had stopped."""
        self.state.timers.hasten(session_timer(group_id, member_id), self.state.now_ms)

    def expect(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        """Wait for a new member to join again with the id that it was given."""
        group_id = group.group_id
        group.pending_joins[member_id] = None
        self.state.timers.schedule(
            session_timer(group_id, member_id),
            self.state.after_ms(timeout_ms),
            lambda: self._session_over(group_id, member_id),
        )

    def _session_over(self, group_id: str, member_id: str) -> Outcome[None]:
        group = self.group(group_id)
        if group is None:
            return NOTHING
        if member_id in group.pending_joins:
            group.remove(member_id)
            return self._complete_if_possible(group)
        member = group.members.get(member_id)
        if member is None or member.is_excused:
            return NOTHING
        self.remove(group, member)
        if group.state in (State.STABLE, State.COMPLETING):
            return self.prepare_or_complete(group)
        return self._complete_if_possible(group)

    def _complete_if_possible(self, group: ClassicGroup) -> Outcome[None]:
        if group.state is State.PREPARING and group.all_joined:
            return self.complete(group)
        return NOTHING

    def remove(self, group: ClassicGroup, member: ClassicMember) -> None:
        """Remove a member. A waiting join or sync gets UNKNOWN_MEMBER_ID, so that its client can start over."""
        self.state.timers.cancel(session_timer(group.group_id, member.member_id))
        group.answer_join(member, JoinReply(ErrorCode.UNKNOWN_MEMBER_ID))
        group.answer_sync(member, SyncReply(ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)
