"""SyncGroup, Heartbeat and LeaveGroup in a classic group, and the checks of offset commits."""

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.outcome import NOTHING, Outcome
from penstock.base.promise import Promise
from penstock.coordinator.groups.requests import (
    NO_MEMBER_ID,
    Heartbeat,
    HeartbeatReply,
    LeaveGroup,
    LeaveReply,
    LeavingMember,
    LeftMember,
    SyncGroup,
    SyncReply,
)

from .group import ClassicGroup, State
from .rebalance import Rebalances, session_timer


class Membership:
    def __init__(self, rebalances: Rebalances) -> None:
        self._rebalances = rebalances
        self._state = rebalances.state

    def sync(self, request: SyncGroup, group: ClassicGroup) -> Outcome[SyncReply | Promise[SyncReply]]:
        if group.is_empty:
            raise KafkaError(f"group {group.group_id} has no members", ErrorCode.UNKNOWN_MEMBER_ID)
        member = group.known(request.member_id, request.instance_id)
        if request.generation != group.generation:
            raise _illegal_generation(group, request.generation)
        if _differ(request.protocol_type, group.protocol_type) or _differ(request.protocol, group.protocol):
            raise KafkaError(
                f"group {group.group_id} uses {group.protocol_type}/{group.protocol}, "
                f"not {request.protocol_type}/{request.protocol}",
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            )
        if group.state is State.PREPARING:
            raise KafkaError(
                f"group {group.group_id} is rebalancing; join again", ErrorCode.REBALANCE_IN_PROGRESS
            )
        self._rebalances.has_synced(group, member.member_id)
        if group.state is State.STABLE:
            return Outcome(SyncReply(ErrorCode.NONE, group.protocol_type, group.protocol, member.assignment))
        waits: Promise[SyncReply] = Promise()
        group.answer_sync(
            member, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS)
        )  # the client timed out and retries
        member.awaits_sync = waits
        if member.member_id != group.leader:
            return Outcome(waits)
        return self._rebalances.assigned(group, dict(request.assignments)).with_reply(waits)

    def heartbeat(self, request: Heartbeat, group: ClassicGroup) -> Outcome[HeartbeatReply]:
        member = group.known(request.member_id, request.instance_id)
        if request.generation != group.generation:
            raise _illegal_generation(group, request.generation)
        self._rebalances.renew(group, member)
        if group.state is State.PREPARING:
            return Outcome(HeartbeatReply(ErrorCode.REBALANCE_IN_PROGRESS))
        return Outcome(HeartbeatReply())

    def leave(self, request: LeaveGroup, group: ClassicGroup) -> Outcome[LeaveReply]:
        left = tuple(
            LeftMember(leaving.member_id, leaving.instance_id, self._leave(leaving, group))
            for leaving in request.members
        )
        outcome = NOTHING
        if any(each.code is ErrorCode.NONE for each in left):
            if group.state in (State.STABLE, State.COMPLETING):
                outcome = self._rebalances.prepare_or_complete(group)
            elif group.state is State.PREPARING:
                outcome = self._rebalances.complete_if_all_joined(group)
        return outcome.with_reply(LeaveReply(ErrorCode.NONE, left))

    def _leave(self, leaving: LeavingMember, group: ClassicGroup) -> ErrorCode:
        member_id = leaving.member_id
        if member_id in group.pending_joins:
            group.remove(member_id)
            self._state.timers.cancel(session_timer(group.group_id, member_id))
            return ErrorCode.NONE
        if member_id == NO_MEMBER_ID:
            # An administrator removes a static member by its instance.
            member_id = group.statics.get(leaving.instance_id or "", NO_MEMBER_ID)
        try:
            member = group.known(member_id, leaving.instance_id)
        except KafkaError as error:
            return error.code
        self._rebalances.remove(group, member)
        return ErrorCode.NONE

    def may_commit(
        self,
        group: ClassicGroup,
        member_id: str,
        instance_id: str | None,
        generation: int,
        transactional: bool,
    ) -> None:
        """Raise unless this member and generation may commit offsets. A commit restarts the member's session."""
        if generation < 0 and group.is_empty:
            return  # an administrator, or a consumer that assigns partitions to itself
        if generation >= 0 or member_id or instance_id is not None:
            member = group.known(member_id, instance_id)
            if generation != group.generation:
                raise _illegal_generation(group, generation)
            if not transactional and group.state in (State.STABLE, State.PREPARING):
                self._rebalances.renew(group, member)
        elif not transactional:
            raise KafkaError(
                f"group {group.group_id} has members, and only members may commit its offsets",
                ErrorCode.UNKNOWN_MEMBER_ID,
            )
        if not transactional and group.state is State.COMPLETING:
            raise KafkaError(
                f"group {group.group_id} is rebalancing; join again", ErrorCode.REBALANCE_IN_PROGRESS
            )


def _differ(requested: str | None, current: str | None) -> bool:
    return requested is not None and current is not None and requested != current


def _illegal_generation(group: ClassicGroup, generation: int) -> KafkaError:
    return KafkaError(
        f"group {group.group_id} is in generation {group.generation}, the request has {generation}",
        ErrorCode.ILLEGAL_GENERATION,
    )
