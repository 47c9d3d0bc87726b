"""Administration of groups.

ListGroups 0 to 5                 the groups that this broker coordinates
DescribeGroups 0 to 6             classic groups and their members
ConsumerGroupDescribe 0 to 1      groups of the consumer protocol (KIP-848)
DeleteGroups 0 to 2               groups without members, with their offsets
"""

from collections.abc import Callable, Iterable
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.base.promise import Promise
from penstock.base.steps import Steps
from penstock.coordinator.groups.requests import (
    ConsumerDescribeReply,
    ConsumerGroupDescribe,
    DeleteGroups,
    DeleteReply,
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribedTopicPartitions,
    DescribeGroups,
    DescribeReply,
    ListGroups,
    ListReply,
)
from penstock.metadata.acls import CLUSTER_NAME, AclResourceType, Operation
from penstock.wire import Api

from .consumer_groups import is_enabled
from .support.context import Call, Context
from .support.response_fields import NO_THROTTLE, OPERATIONS_NOT_REQUESTED, group_operations, uuid_out
from .support.waiting import all_of, in_steps, settled

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
"""Member types of ConsumerGroupDescribe."""


@in_steps
def list_groups(context: Context, call: Call) -> Steps[Any]:
    """ListGroups 0 to 5: the groups that this broker coordinates. Clients ask all brokers.

    A client that may not describe the cluster gets the groups that it may describe. While a coordinator loads its
    partition the reply is COORDINATOR_LOAD_IN_PROGRESS; groups of a partition that cannot be read are left out.

    Version notes: 3 is flexible; 4 filters by state (KIP-518); 5 by type (KIP-848). Filters ignore case.
    """
    make, request = call.make, call.message
    filters = ListGroups(
        frozenset(each.lower() for each in getattr(request, "states_filter", ())),
        frozenset(each.lower() for each in getattr(request, "types_filter", ())),
    )
    sees_all = context.permits(call.session, Operation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_NAME)
    reply: ListReply = yield context.groups.list_groups(filters)
    groups = () if reply.code is not ErrorCode.NONE else reply.groups
    return make.ListGroupsResponse(
        throttle_time=NO_THROTTLE,
        error_code=reply.code,
        groups=tuple(
            make.ListedGroup(
                group_id=each.group,
                protocol_type=each.protocol_type,
                group_state=each.state,
                group_type=each.type,
            )
            for each in groups
            if sees_all
            or context.permits(call.session, Operation.DESCRIBE, AclResourceType.GROUP, each.group)
        ),
    )


@in_steps
def describe_groups(context: Context, call: Call) -> Steps[Any]:
    """DescribeGroups 0 to 6: classic groups and their members.

    A group that does not exist, or has the consumer protocol, is Dead, from version 6 on with GROUP_ID_NOT_FOUND and a
    message (KIP-1043).

    Version notes: 3 adds authorized operations; 4 instance ids; 5 is flexible.
    """
    make, request = call.make, call.message

    def describe(group: str) -> Promise[DescribeReply]:
        if not context.authorize(call.session, Operation.DESCRIBE, AclResourceType.GROUP, group):
            return settled(DescribeReply(code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return context.groups.handle(group, DescribeGroups((group,)))

    replies: list[DescribeReply] = yield all_of([describe(group) for group in request.groups])
    groups = [
        reply.groups[0] if reply.groups else DescribedGroup(group, reply.code)
        for group, reply in zip(request.groups, replies, strict=True)
    ]
    return make.DescribeGroupsResponse(
        throttle_time=NO_THROTTLE, groups=tuple(_described(context, call, each) for each in groups)
    )


def _described(context: Context, call: Call, group: DescribedGroup) -> Any:
    make, code = call.make, group.code
    if code is ErrorCode.GROUP_ID_NOT_FOUND and call.version < 6:
        code = ErrorCode.NONE
    return make.DescribedGroup(
        error_code=code,
        error_message=group.message,
        group_id=group.group,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=tuple(
            make.DescribedGroupMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                member_metadata=each.metadata,
                member_assignment=each.assignment,
            )
            for each in group.members
        ),
        authorized_operations=_operations(context, call, group.group, code),
    )


def _operations(context: Context, call: Call, group: str, code: ErrorCode) -> int:
    if code is ErrorCode.NONE and getattr(call.message, "include_authorized_operations", False):
        return group_operations(context, call.session, group)
    return OPERATIONS_NOT_REQUESTED


@in_steps
def delete_groups(context: Context, call: Call) -> Steps[Any]:
    """DeleteGroups 0 to 2: delete groups without members, with their offsets.

    A group with members gets NON_EMPTY_GROUP, an unknown one GROUP_ID_NOT_FOUND.

    Version notes: 2 is flexible.
    """
    make = call.make
    names = list(dict.fromkeys(call.message.groups_names))

    def delete(group: str) -> Promise[DeleteReply]:
        if not context.authorize(call.session, Operation.DELETE, AclResourceType.GROUP, group):
            return settled(DeleteReply(code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return context.groups.handle(group, DeleteGroups((group,)))

    replies: list[DeleteReply] = yield all_of([delete(group) for group in names])
    results = tuple(
        make.DeletableGroupResult(
            group_id=group, error_code=reply.groups[0].code if reply.groups else reply.code
        )
        for group, reply in zip(names, replies, strict=True)
    )
    return make.DeleteGroupsResponse(throttle_time=NO_THROTTLE, results=results)


@in_steps
def consumer_group_describe(context: Context, call: Call) -> Steps[Any]:
    """ConsumerGroupDescribe 0 to 1: groups of the consumer protocol, with current and target assignments.

    An unknown or classic group gets GROUP_ID_NOT_FOUND; one with topics that the client may not describe
    TOPIC_AUTHORIZATION_FAILED, without members. With `group.version` 0 every group gets UNSUPPORTED_VERSION.

    Version notes: 1 adds the member type, which marks members that use the classic protocol.
    """
    make, request = call.make, call.message

    def describe(group: str) -> Promise[ConsumerDescribeReply]:
        code = _undescribable(context, call, group)
        if code is not ErrorCode.NONE:
            return settled(ConsumerDescribeReply(code=code))
        return context.groups.handle(group, ConsumerGroupDescribe((group,)))

    replies: list[ConsumerDescribeReply] = yield all_of([describe(group) for group in request.group_ids])
    groups = [
        reply.groups[0] if reply.groups else DescribedConsumerGroup(group, reply.code)
        for group, reply in zip(request.group_ids, replies, strict=True)
    ]
    return make.ConsumerGroupDescribeResponse(
        throttle_time=NO_THROTTLE,
        groups=tuple(_described_consumers(context, call, each) for each in groups),
    )


def _undescribable(context: Context, call: Call, group: str) -> ErrorCode:
    if not is_enabled(context):
        return ErrorCode.UNSUPPORTED_VERSION
    if not context.authorize(call.session, Operation.DESCRIBE, AclResourceType.GROUP, group):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE if group else ErrorCode.INVALID_GROUP_ID


def _described_consumers(context: Context, call: Call, group: DescribedConsumerGroup) -> Any:
    topics = {
        each.topic for member in group.members for each in (*member.assignment, *member.target)
    }  # as in Kafka, topics that are subscribed to and not assigned are not checked
    if not all(
        context.authorize(call.session, Operation.DESCRIBE, AclResourceType.TOPIC, name) for name in topics
    ):
        group = DescribedConsumerGroup(
            group.group,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "The group has topics that this client is not authorized to describe.",
        )
    return call.make.DescribedGroup(
        error_code=group.code,
        error_message=group.message,
        group_id=group.group,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=tuple(_described_member(call, each) for each in group.members),
        authorized_operations=_operations(context, call, group.group, group.code),
    )


def _described_member(call: Call, member: DescribedConsumer) -> Any:
    make = call.make

    def assignment(topics: Iterable[DescribedTopicPartitions]) -> Any:
        return make.Assignment(
            topic_partitions=tuple(
                make.TopicPartitions(
                    topic_id=uuid_out(each.topic_id), topic_name=each.topic, partitions=each.partitions
                )
                for each in topics
            )
        )

    return make.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.subscribed_names,
        subscribed_topic_regex=member.subscribed_regex,
        assignment=assignment(member.assignment),
        target_assignment=assignment(member.target),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.LIST_GROUPS: list_groups,
    Api.DESCRIBE_GROUPS: describe_groups,
    Api.DELETE_GROUPS: delete_groups,
    Api.CONSUMER_GROUP_DESCRIBE: consumer_group_describe,
}
