"""Members of classic groups: they join, are told what they got, say that they are alive, and leave.

The coordinator of the group's partition decides; here its answers get the form of the client's version. What it cannot
decide now is answered when it can: a JoinGroup when the group has its generation, a SyncGroup when its leader has
assigned. A client that is gone by then has its session end.
"""

from collections.abc import Callable
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.base.promise import Promise
from penstock.coordinator.groups.requests import (
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    LeavingMember,
    LeftMember,
    SyncGroup,
    SyncReply,
)
from penstock.wire import Api

from .support.context import AclResourceType, Call, Context, Operation
from .support.controller_call import wait_ms_of
from .support.response_fields import NO_THROTTLE, client_host
from .support.waiting import after

FIRST_WITH_MEMBER_IDS = 4
FIRST_WITH_NULL_PROTOCOL = 7
FIRST_WITH_SKIPPING = 9


def join_group(context: Context, call: Call) -> Any | Promise[Any]:
    """JoinGroup 0 to 9: become a member, or take part in the next generation; answered when there is one.

    Version 1 has a rebalance timeout of its own, which before was the session's, 4 gives a new member its id with
    MEMBER_ID_REQUIRED and lets it join with that (KIP-394), 5 has static members (KIP-345), 6 is flexible, 7 tells
    the protocol's type and may have no protocol, 8 a reason, which nobody reads, 9 may tell a leader to leave the
    assignment as it is (KIP-814).
    """
    request, version = call.message, call.version
    refused = _refused(context, call)
    if refused is not ErrorCode.NONE:
        return _joined(call, JoinReply(refused, request.member_id))
    asked = JoinGroup(
        request.group_id,
        call.client_id or "",
        client_host(call.session),
        request.protocol_type,
        tuple((each.name, each.metadata) for each in request.protocols),
        wait_ms_of(request.session_timeout),
        wait_ms_of(request.rebalance_timeout) if version >= 1 else -1,
        request.member_id,
        getattr(request, "group_instance_id", None),
        needs_member_id=version >= FIRST_WITH_MEMBER_IDS,
        may_skip_assignment=version >= FIRST_WITH_SKIPPING,
    )
    return after(context.groups.handle(request.group_id, asked), lambda reply: _joined(call, reply))


def _joined(call: Call, reply: JoinReply) -> Any:
    make = call.make
    protocol = reply.protocol
    if protocol is None and call.version < FIRST_WITH_NULL_PROTOCOL:
        protocol = ""
    return make.JoinGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=reply.code,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=protocol,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=tuple(
            make.JoinGroupResponseMember(
                member_id=each.member_id, group_instance_id=each.instance_id, metadata=each.metadata
            )
            for each in reply.members
        ),
    )


def sync_group(context: Context, call: Call) -> Any | Promise[Any]:
    """SyncGroup 0 to 5: what a member got, which the leader says in its own.

    Version 3 has static members, 4 is flexible, 5 names the protocol and its type, and gets
    INCONSISTENT_GROUP_PROTOCOL where it does not (KIP-559).
    """
    request, version = call.message, call.version
    protocol_type = getattr(request, "protocol_type", None)
    protocol = getattr(request, "protocol_name", None)
    refused = _refused(context, call)
    if version >= 5 and (protocol_type is None or protocol is None):
        refused = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if refused is not ErrorCode.NONE:
        return _synced(call, SyncReply(refused))
    asked = SyncGroup(
        request.group_id,
        request.member_id,
        request.generation_id,
        getattr(request, "group_instance_id", None),
        protocol_type,
        protocol,
        tuple((each.member_id, each.assignment) for each in request.assignments),
    )
    return after(context.groups.handle(request.group_id, asked), lambda reply: _synced(call, reply))


def _synced(call: Call, reply: SyncReply) -> Any:
    return call.make.SyncGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=reply.code,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        assignment=reply.assignment,
    )


def heartbeat(context: Context, call: Call) -> Any | Promise[Any]:
    """Heartbeat 0 to 4: a member is alive; REBALANCE_IN_PROGRESS tells it to join again.

    While the coordinator reads its partition every heartbeat is fine: sessions begin anew when it has.

    Version 3 has static members, 4 is flexible.
    """
    request = call.message
    refused = _refused(context, call)
    if refused is not ErrorCode.NONE:
        return _alive(call, HeartbeatReply(refused))
    asked = Heartbeat(
        request.group_id,
        request.member_id,
        request.generation_id,
        request.group_instance_id if call.version >= 3 else None,
    )
    return after(context.groups.handle(request.group_id, asked), lambda reply: _alive(call, reply))


def _alive(call: Call, reply: HeartbeatReply) -> Any:
    code = ErrorCode.NONE if reply.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else reply.code
    return call.make.HeartbeatResponse(throttle_time=NO_THROTTLE, error_code=code)


def leave_group(context: Context, call: Call) -> Any | Promise[Any]:
    """LeaveGroup 0 to 5: members leave, or are removed by an administrator.

    Of a group that is not there no member is known: UNKNOWN_MEMBER_ID for each.

    Version 3 takes several at once, with an error for each (KIP-345), where before the answer's error was that of the
    one member; 4 is flexible, 5 has reasons, which nobody reads.
    """
    request = call.message
    if call.version >= 3:
        members = tuple(LeavingMember(each.member_id, each.group_instance_id) for each in request.members)
    else:
        members = (LeavingMember(request.member_id),)
    refused = _refused(context, call)
    if refused is not ErrorCode.NONE:
        return _left(call, LeaveReply(refused))
    answer = context.groups.handle(request.group_id, LeaveGroup(request.group_id, members))

    def respond(reply: LeaveReply) -> Any:
        if reply.code is ErrorCode.UNKNOWN_MEMBER_ID:
            strangers = [LeftMember(*each, ErrorCode.UNKNOWN_MEMBER_ID) for each in members]
            reply = LeaveReply(members=tuple(strangers))
        return _left(call, reply)

    return after(answer, respond)


def _left(call: Call, reply: LeaveReply) -> Any:
    make, code = call.make, reply.code
    if call.version < 3:
        if code is ErrorCode.NONE:
            code = reply.members[0].code
        return make.LeaveGroupResponse(throttle_time=NO_THROTTLE, error_code=code)
    return make.LeaveGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        members=tuple(
            make.MemberResponse(
                member_id=each.member_id, group_instance_id=each.instance_id, error_code=each.code
            )
            for each in reply.members
        ),
    )


def _refused(context: Context, call: Call) -> ErrorCode:
    group = call.message.group_id
    if not context.authorize(call.session, Operation.READ, AclResourceType.GROUP, group):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE if group else ErrorCode.INVALID_GROUP_ID


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.JOIN_GROUP: join_group,
    Api.SYNC_GROUP: sync_group,
    Api.HEARTBEAT: heartbeat,
    Api.LEAVE_GROUP: leave_group,
}
