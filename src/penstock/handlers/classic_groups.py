"""Members of classic consumer groups.

    JoinGroup 0 to 9        join a group, or its next generation
    SyncGroup 0 to 5        get the assignment, which the group's leader sends
    Heartbeat 0 to 4        keep the member's session alive
    LeaveGroup 0 to 5       leave a group, or remove members from it

The coordinator of the group's partition decides (`coordinator.groups`). JoinGroup is answered when the generation is
complete, SyncGroup when the leader has sent the assignment. All need READ on the group.
"""

from collections.abc import Callable
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.base.steps import Steps
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
from penstock.metadata.acls import AclResourceType, Operation
from penstock.wire import Api

from .support.context import Call, Context
from .support.controller_call import wait_ms_of
from .support.response_fields import NO_THROTTLE, client_host
from .support.waiting import in_steps

FIRST_WITH_MEMBER_IDS = 4
FIRST_WITH_NULL_PROTOCOL = 7
FIRST_WITH_SKIPPING = 9


@in_steps
def join_group(context: Context, call: Call) -> Steps[Any]:
    """JoinGroup 0 to 9: join a group, or its next generation. Answered when that is complete.

    Version notes: 1 adds the rebalance timeout, which is the session timeout before; 4 gives a new member its id with
    MEMBER_ID_REQUIRED (KIP-394); 5 adds static members (KIP-345); 6 is flexible; 7 returns the protocol type, and may
    return no protocol; 8 adds a reason, which is ignored; 9 can tell the leader to skip the assignment (KIP-814).
    """
    request, version = call.message, call.version
    refused = _refused(context, call)
    if refused is not ErrorCode.NONE:
        return _joined(call, JoinReply(refused, request.member_id))
    join = JoinGroup(
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
    return _joined(call, (yield context.groups.handle(request.group_id, join)))


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


@in_steps
def sync_group(context: Context, call: Call) -> Steps[Any]:
    """SyncGroup 0 to 5: get a member's assignment. The leader's request carries the assignments of all.

    Version notes: 3 adds static members; 4 is flexible; 5 must name the protocol and its type, else it gets
    INCONSISTENT_GROUP_PROTOCOL (KIP-559).
    """
    request, version = call.message, call.version
    protocol_type = getattr(request, "protocol_type", None)
    protocol = getattr(request, "protocol_name", None)
    refused = _refused(context, call)
    if version >= 5 and (protocol_type is None or protocol is None):
        refused = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if refused is not ErrorCode.NONE:
        return _synced(call, SyncReply(refused))
    sync = SyncGroup(
        request.group_id,
        request.member_id,
        request.generation_id,
        getattr(request, "group_instance_id", None),
        protocol_type,
        protocol,
        tuple((each.member_id, each.assignment) for each in request.assignments),
    )
    return _synced(call, (yield context.groups.handle(request.group_id, sync)))


def _synced(call: Call, reply: SyncReply) -> Any:
    return call.make.SyncGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=reply.code,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        assignment=reply.assignment,
    )


@in_steps
def heartbeat(context: Context, call: Call) -> Steps[Any]:
    """Heartbeat 0 to 4: keep a member's session alive. REBALANCE_IN_PROGRESS makes the member rejoin.

    While the coordinator loads its partition, every heartbeat succeeds: sessions restart afterwards.

    Version notes: 3 adds static members; 4 is flexible.
    """
    request = call.message
    refused = _refused(context, call)
    if refused is not ErrorCode.NONE:
        return _alive(call, HeartbeatReply(refused))
    beat = Heartbeat(
        request.group_id,
        request.member_id,
        request.generation_id,
        request.group_instance_id if call.version >= 3 else None,
    )
    return _alive(call, (yield context.groups.handle(request.group_id, beat)))


def _alive(call: Call, reply: HeartbeatReply) -> Any:
    code = ErrorCode.NONE if reply.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else reply.code
    return call.make.HeartbeatResponse(throttle_time=NO_THROTTLE, error_code=code)


@in_steps
def leave_group(context: Context, call: Call) -> Steps[Any]:
    """LeaveGroup 0 to 5: members leave, or an administrator removes them.

    Members of a group that does not exist get UNKNOWN_MEMBER_ID.

    Version notes: 3 has several members, with an error for each (KIP-345); before, the response's error is the
    member's. 4 is flexible; 5 adds reasons, which are ignored.
    """
    request = call.message
    if call.version >= 3:
        members = tuple(LeavingMember(each.member_id, each.group_instance_id) for each in request.members)
    else:
        members = (LeavingMember(request.member_id),)
    refused = _refused(context, call)
    if refused is not ErrorCode.NONE:
        return _left(call, LeaveReply(refused))
    reply = yield context.groups.handle(request.group_id, LeaveGroup(request.group_id, members))
    if reply.code is ErrorCode.UNKNOWN_MEMBER_ID:
        unknown = [LeftMember(*each, ErrorCode.UNKNOWN_MEMBER_ID) for each in members]
        reply = LeaveReply(members=tuple(unknown))
    return _left(call, reply)


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
