"""Groups from outside: listed, described and deleted."""

from collections.abc import Callable, Iterable
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.base.promise import Promise
from penstock.coordinator.groups.requests import (
    ConsumerDescribeReply,
    ConsumerGroupDescribe,
    DeletedGroup,
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
from penstock.wire import Api

from .consumer_groups import is_enabled
from .support.context import CLUSTER_NAME, AclResourceType, Call, Context, Operation
from .support.response_fields import NO_THROTTLE, OPERATIONS_NOT_REQUESTED, group_operations, uuid_out
from .support.waiting import after, after_all

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
"""Types of members in ConsumerGroupDescribe."""


def list_groups(context: Context, call: Call) -> Any | Promise[Any]:
    """ListGroups 0 to 5: the groups whose coordinator is this node; all of them together are those of all nodes.

    A client that may not describe the cluster is told the groups that it may describe. While a coordinator reads its
    partition the answer is COORDINATOR_LOAD_IN_PROGRESS; groups of a partition that cannot be read are not told.

    Version 3 is flexible, 4 asks for states (KIP-518), 5 for types (KIP-848); case does not matter.
    """
    make, request = call.make, call.message
    asked = ListGroups(
        frozenset(each.lower() for each in getattr(request, "states_filter", ())),
        frozenset(each.lower() for each in getattr(request, "types_filter", ())),
    )
    sees_all = context.authorize(call.session, Operation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_NAME)

    def respond(reply: ListReply) -> Any:
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
                or context.authorize(call.session, Operation.DESCRIBE, AclResourceType.GROUP, each.group)
            ),
        )

    return after(context.groups.list_groups(asked), respond)


def describe_groups(context: Context, call: Call) -> Any | Promise[Any]:
    """DescribeGroups 0 to 6: classic groups and their members.

    A group that is not there, or is of the consumer protocol, is Dead, which from version 6 on is GROUP_ID_NOT_FOUND
    as well, with a message (KIP-1043).

    Version 3 tells authorized operations, 4 instances, 5 is flexible.
    """
    make, request = call.make, call.message

    def ask(group: str) -> Promise[DescribedGroup]:
        later: Promise[DescribedGroup] = Promise()
        if not context.authorize(call.session, Operation.DESCRIBE, AclResourceType.GROUP, group):
            later.resolve(DescribedGroup(group, ErrorCode.GROUP_AUTHORIZATION_FAILED))
            return later

        def told(reply: DescribeReply) -> None:
            later.resolve(reply.groups[0] if reply.groups else DescribedGroup(group, reply.code))

        context.groups.handle(group, DescribeGroups((group,))).then(told)
        return later

    def respond(groups: list[DescribedGroup]) -> Any:
        return make.DescribeGroupsResponse(
            throttle_time=NO_THROTTLE, groups=tuple(_described(context, call, each) for each in groups)
        )

    return after_all([ask(group) for group in request.groups], respond)


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


def delete_groups(context: Context, call: Call) -> Any | Promise[Any]:
    """DeleteGroups 0 to 2: groups without members go, with their offsets.

    One that has members gets NON_EMPTY_GROUP, one that is not there GROUP_ID_NOT_FOUND. Version 2 is flexible.
    """
    make = call.make

    def ask(group: str) -> Promise[DeletedGroup]:
        later: Promise[DeletedGroup] = Promise()
        if not context.authorize(call.session, Operation.DELETE, AclResourceType.GROUP, group):
            later.resolve(DeletedGroup(group, ErrorCode.GROUP_AUTHORIZATION_FAILED))
            return later

        def told(reply: DeleteReply) -> None:
            later.resolve(reply.groups[0] if reply.groups else DeletedGroup(group, reply.code))

        context.groups.handle(group, DeleteGroups((group,))).then(told)
        return later

    def respond(groups: list[DeletedGroup]) -> Any:
        results = tuple(
            make.DeletableGroupResult(group_id=each.group, error_code=each.code) for each in groups
        )
        return make.DeleteGroupsResponse(throttle_time=NO_THROTTLE, results=results)

    return after_all([ask(group) for group in dict.fromkeys(call.message.groups_names)], respond)


def consumer_group_describe(context: Context, call: Call) -> Any | Promise[Any]:
    """ConsumerGroupDescribe 0 to 1: groups of the consumer protocol, with what their members have and will have.

    A group that is not there, or is a classic one, gets GROUP_ID_NOT_FOUND; one with topics that the client may not
    describe TOPIC_AUTHORIZATION_FAILED, and nothing of it is told. Where `group.version` is 0 all get
    UNSUPPORTED_VERSION.

    Version 1 tells which members speak the classic protocol.
    """
    make, request = call.make, call.message

    def ask(group: str) -> Promise[DescribedConsumerGroup]:
        later: Promise[DescribedConsumerGroup] = Promise()
        code = _undescribable(context, call, group)
        if code is not ErrorCode.NONE:
            later.resolve(DescribedConsumerGroup(group, code))
            return later

        def told(reply: ConsumerDescribeReply) -> None:
            later.resolve(reply.groups[0] if reply.groups else DescribedConsumerGroup(group, reply.code))

        context.groups.handle(group, ConsumerGroupDescribe((group,))).then(told)
        return later

    def respond(groups: list[DescribedConsumerGroup]) -> Any:
        return make.ConsumerGroupDescribeResponse(
            throttle_time=NO_THROTTLE,
            groups=tuple(_described_consumers(context, call, each) for each in groups),
        )

    return after_all([ask(group) for group in request.group_ids], respond)


def _undescribable(context: Context, call: Call, group: str) -> ErrorCode:
    if not is_enabled(context):
        return ErrorCode.UNSUPPORTED_VERSION
    if not context.authorize(call.session, Operation.DESCRIBE, AclResourceType.GROUP, group):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE if group else ErrorCode.INVALID_GROUP_ID


def _described_consumers(context: Context, call: Call, group: DescribedConsumerGroup) -> Any:
    topics = {
        each.topic for member in group.members for each in (*member.assignment, *member.target)
    }  # what it is subscribed to but does not have is no secret: it said so itself
    if not all(
        context.authorize(call.session, Operation.DESCRIBE, AclResourceType.TOPIC, name) for name in topics
    ):
        group = DescribedConsumerGroup(
            group.group,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "the group has topics that the client may not describe",
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
