"""Members of consumer groups (KIP-848).

ConsumerGroupHeartbeat 0 to 1     join a group, report owned partitions, get an assignment, and leave
"""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.base.steps import Steps
from penstock.coordinator.groups.requests import ConsumerGroupHeartbeat, ConsumerHeartbeatReply
from penstock.metadata.acls import AclResourceType, Operation
from penstock.wire import Api

from .support.context import Call, Context, Session
from .support.controller_call import wait_ms_of
from .support.response_fields import NO_THROTTLE, client_host, uuid_in, uuid_out
from .support.waiting import in_steps


def is_enabled(context: Context) -> bool:
    """Whether the cluster has the consumer protocol (`group.version` 1)."""
    return bool(context.image.features.get("group.version", 0))


@in_steps
def consumer_group_heartbeat(context: Context, call: Call) -> Steps[Any]:
    """ConsumerGroupHeartbeat 0 to 1: a member's state, answered with its assignment.

    With `group.version` 0 the reply is UNSUPPORTED_VERSION, and clients may fall back to the classic protocol. A
    subscription to a topic that the client may not describe gets TOPIC_AUTHORIZATION_FAILED.

    Version notes: 1 adds regular expressions, and requires the member to choose its id, which the coordinator does in
    version 0 (KIP-1082).
    """
    request = call.message
    code = _refused(context, call)
    if code is not ErrorCode.NONE:
        return _response(call, ConsumerHeartbeatReply(code))
    owned = request.topic_partitions
    heartbeat = ConsumerGroupHeartbeat(
        request.group_id,
        request.member_id,
        request.member_epoch,
        call.client_id or "",
        client_host(call.session),
        request.instance_id,
        request.rack_id,
        wait_ms_of(request.rebalance_timeout),
        request.subscribed_topic_names,
        getattr(request, "subscribed_topic_regex", None),
        request.server_assignor,
        None if owned is None else tuple((uuid_in(each.topic_id), tuple(each.partitions)) for each in owned),
        needs_member_id=call.version == 0,
        may_describe=None if context.authorizer is None else partial(_may_describe, context, call.session),
    )
    return _response(call, (yield context.groups.handle(request.group_id, heartbeat)))


def _may_describe(context: Context, session: Session, topic: str) -> bool:
    return context.permits(session, Operation.DESCRIBE, AclResourceType.TOPIC, topic)


def _refused(context: Context, call: Call) -> ErrorCode:
    request, session = call.message, call.session
    if not is_enabled(context):
        return ErrorCode.UNSUPPORTED_VERSION
    if not context.authorize(session, Operation.READ, AclResourceType.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    for name in request.subscribed_topic_names or ():
        if not context.authorize(session, Operation.DESCRIBE, AclResourceType.TOPIC, name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def _response(call: Call, reply: ConsumerHeartbeatReply) -> Any:
    make, assignment = call.make, None
    if reply.assignment is not None:
        assignment = make.Assignment(
            topic_partitions=tuple(
                make.TopicPartitions(topic_id=uuid_out(topic_id), partitions=partitions)
                for topic_id, partitions in reply.assignment
            )
        )
    return make.ConsumerGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=reply.code,
        error_message=reply.message,
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval=timedelta(milliseconds=reply.heartbeat_interval_ms),
        assignment=assignment,
    )


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {Api.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat}
