"""The deadlines of members of a consumer group: for heartbeats, revocations, joins and syncs."""

from collections.abc import Callable

from penstock.base.outcome import NOTHING, Outcome
from penstock.coordinator.groups.state import CoordinatorState

from .group import ConsumerGroup
from .member import ConsumerMember, MemberState

Fence = Callable[[ConsumerGroup, list[ConsumerMember]], Outcome[None]]

_SESSION, _REBALANCE, _JOIN, _SYNC = "member-session", "member-rebalance", "member-join", "member-sync"


class Sessions:
    def __init__(self, state: CoordinatorState, fence: Fence) -> None:
        self._state = state
        self._fence = fence

    def loaded(self, group: ConsumerGroup) -> None:
        for member in group.members.values():
            self.resume(group, member)

    def resume(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Restart the timers of a member."""
        self.renew(group, member)
        if member.state is MemberState.UNREVOKED and not member.is_classic:
            self.await_revocation(group, member)

    def renew(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Restart the session of a member that sent a request."""
        timeout_ms = self._state.settings.consumer_session_timeout_ms
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        self._fence_after(_SESSION, group, member, timeout_ms)

    def expire(self, group_id: str, member_id: str) -> None:
        """End the member's session as if its heartbeats had stopped."""
        self._state.timers.hasten((_SESSION, group_id, member_id), self._state.now_ms)

    def moved(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Set the revocation timer after a change of the member's state. Classic members have join and sync timers
        instead."""
        if member.is_classic:
            return
        if member.state is MemberState.UNREVOKED:
            self.await_revocation(group, member)
        else:
            self._state.timers.cancel((_REBALANCE, group.group_id, member.member_id))

    def await_revocation(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        group_id, member_id, epoch = group.group_id, member.member_id, member.epoch

        def over() -> Outcome[None]:
            found = self._member(group_id, member_id)
            return NOTHING if found is None or found[1].epoch != epoch else self._fence(found[0], [found[1]])

        name = (_REBALANCE, group_id, member_id)
        self._state.timers.schedule(name, self._state.after_ms(member.rebalance_timeout_ms), over)

    def await_join(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Start the join timer of a classic member that got REBALANCE_IN_PROGRESS, unless it already runs."""
        if (_JOIN, group.group_id, member.member_id) not in self._state.timers:
            self._fence_after(_JOIN, group, member, member.rebalance_timeout_ms)

    def joined(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        self._state.timers.cancel((_JOIN, group.group_id, member.member_id))
        self.renew(group, member)
        self._fence_after(_SYNC, group, member, member.rebalance_timeout_ms)

    def synced(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        self._state.timers.cancel((_SYNC, group.group_id, member.member_id))
        self.renew(group, member)

    def forget(self, group_id: str, member_id: str) -> None:
        for kind in (_SESSION, _REBALANCE, _JOIN, _SYNC):
            self._state.timers.cancel((kind, group_id, member_id))

    def _fence_after(self, kind: str, group: ConsumerGroup, member: ConsumerMember, timeout_ms: int) -> None:
        group_id, member_id = group.group_id, member.member_id

        def over() -> Outcome[None]:
            found = self._member(group_id, member_id)
            return NOTHING if found is None else self._fence(found[0], [found[1]])

        self._state.timers.schedule((kind, group_id, member_id), self._state.after_ms(timeout_ms), over)

    def _member(self, group_id: str, member_id: str) -> tuple[ConsumerGroup, ConsumerMember] | None:
        group = self._state.groups.get(group_id)
        if not isinstance(group, ConsumerGroup) or member_id not in group.members:
            return None
        return group, group.members[member_id]
