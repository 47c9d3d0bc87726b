"""Topics in pages, for clusters whose metadata is too large for one response.

DescribeTopicPartitions 0
"""

from collections.abc import Callable
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.base.internal_topics import INTERNAL_TOPICS
from penstock.metadata.acls import AclResourceType, Operation
from penstock.metadata.configs import broker_setting
from penstock.metadata.image import Topic
from penstock.records.structs import NO_UUID
from penstock.wire import Api

from .metadata import is_name
from .support.client_view import ClientView
from .support.context import Call, Context
from .support.response_fields import NO_THROTTLE, OPERATIONS_NOT_REQUESTED, topic_operations, uuid_out


def describe_topic_partitions(context: Context, call: Call) -> Any:
    """DescribeTopicPartitions 0: topics in the order of their names, a page at a time (KIP-966).

    A page has at most the requested number of partitions, at least one and at most
    `max.request.partition.size.limit`. If more follow, the cursor names the first topic and partition of the next
    page. A request without names gets all topics that the client may describe. A named topic that does not exist gets
    an error, also if it is the cursor's topic and was deleted between two pages.

    Partitions include their eligible leader replicas, which Metadata omits. A cursor with a negative partition, or
    with a topic that is not requested, gets INVALID_REQUEST in each topic, since the response has no error of its own.
    """
    make, request = call.make, call.message
    cursor = request.cursor
    start = "" if cursor is None else cursor.topic_name
    named = dict.fromkeys(topic.name for topic in request.topics)
    if cursor is not None and (cursor.partition_index < 0 or (named and start not in named)):
        refused = [_missing(call, name, ErrorCode.INVALID_REQUEST) for name in named]
        return make.DescribeTopicPartitionsResponse(
            throttle_time=NO_THROTTLE, topics=tuple(refused), next_cursor=None
        )
    names = sorted(name for name in named or context.image.topics if name >= start)
    allowed: list[str] = []
    denied: list[str] = []
    is_allowed = context.authorize if named else context.permits
    for name in names:
        may = is_allowed(call.session, Operation.DESCRIBE, AclResourceType.TOPIC, name)
        (allowed if may else denied).append(name)
    view = ClientView(context, call.session)
    most = int(broker_setting("max.request.partition.size.limit", context.image, context.settings) or 1)
    left = max(1, min(request.response_partition_limit, most))
    topics, next_cursor = [], None
    for name in allowed:
        if not left:
            next_cursor = make.Cursor(topic_name=name, partition_index=0)
            break
        topic = context.image.topics.get(name)
        if topic is None:
            unknown = (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
            )
            topics.append(_missing(call, name, unknown))
            continue
        first = cursor.partition_index if cursor is not None and name == start else 0
        numbers = [number for number in sorted(topic.partitions) if number >= first]
        topics.append(_found(context, call, view, topic, numbers[:left]))
        if len(numbers) > left:
            next_cursor = make.Cursor(topic_name=name, partition_index=numbers[left])
            break
        left -= len(numbers)
    if named:
        topics += [_missing(call, name, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for name in denied]
    return make.DescribeTopicPartitionsResponse(
        throttle_time=NO_THROTTLE, topics=tuple(topics), next_cursor=next_cursor
    )


def _missing(call: Call, name: str, code: ErrorCode) -> Any:
    return call.make.DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=uuid_out(NO_UUID),
        is_internal=name in INTERNAL_TOPICS and code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        partitions=(),
        topic_authorized_operations=OPERATIONS_NOT_REQUESTED,
    )


def _found(context: Context, call: Call, view: ClientView, topic: Topic, numbers: list[int]) -> Any:
    make = call.make
    partitions = []
    for number in numbers:
        partition = topic.partitions[number]
        seen = view.partition(partition, hide_absent=False, tell_listener=True)
        partitions.append(
            make.DescribeTopicPartitionsResponsePartition(
                error_code=seen.error,
                partition_index=number,
                leader_id=seen.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=seen.replicas,
                isr_nodes=seen.isr,
                eligible_leader_replicas=partition.elr,
                last_known_elr=partition.last_known_elr,
                offline_replicas=seen.offline,
            )
        )
    return make.DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=uuid_out(topic.id),
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(partitions),
        topic_authorized_operations=topic_operations(context, call.session, topic.name),
    )


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions
}
