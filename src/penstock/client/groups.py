"""Lists, describes and deletes groups.

Each broker lists the groups that it coordinates, so all brokers are asked. A group uses the consumer protocol
(KIP-848) or the classic one, which the client does not know in advance: it tries ConsumerGroupDescribe, then
DescribeGroups if the group is not found or the broker does not have the API.
"""

from itertools import count
from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.hashing import partition_for
from penstock.base.ids import TopicPartition
from penstock.base.internal_topics import OFFSETS_TOPIC
from penstock.coordinator.groups.consumer_protocol import (
    PROTOCOL_TYPE,
    read_assignment,
    read_topics,
)
from penstock.records.structs import CorruptStruct
from penstock.wire import Api
from penstock.wire.request import Request, through_kio

from .cluster import Cluster
from .coordinators import AGAIN, Kind, ask_brokers, ask_coordinator
from .errors import BrokerRefused, NotServed, check, refused

CLASSIC, CONSUMER = "classic", "consumer"
DEAD, EMPTY = "Dead", "Empty"
"""States of a group without members, as in the protocol: one that does not exist, and one that does."""

_CLASSIC_MEMBER = 0
"""The type of a member of the classic protocol in a consumer group."""


class ListedGroup(NamedTuple):
    group_id: str
    type: str | None
    """None from a broker older than Kafka 3.8."""
    state: str | None
    """None from a broker older than Kafka 2.6."""
    protocol_type: str
    coordinator: int


class GroupMember(NamedTuple):
    member_id: str
    instance_id: str | None
    """The `group.instance.id` of a static member."""
    client_id: str
    host: str
    rack: str | None
    epoch: int | None
    """Set in consumer groups only."""
    is_classic: bool
    topics: tuple[str, ...]
    """Topics that it is subscribed to by name."""
    topic_regex: str | None
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] | None
    """Target assignment, which it gets once the members have revoked the partitions they lose; None in a classic
    group."""


class Group(NamedTuple):
    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str | None
    epoch: int | None
    assignment_epoch: int | None
    coordinator: int
    members: tuple[GroupMember, ...]

    @property
    def is_live(self) -> bool:
        return self.state not in (DEAD, EMPTY)


def list_groups(
    cluster: Cluster, states: tuple[str, ...] = (), types: tuple[str, ...] = ()
) -> list[ListedGroup]:
    """Groups of all brokers, by name. `states` and `types` restrict the list."""
    version_min = 5 if types else 4 if states else 0
    request = through_kio(
        Api.LIST_GROUPS,
        lambda make: make.ListGroupsRequest(states_filter=states, types_filter=types),
        version_min=version_min,
    )
    answers = ask_brokers(cluster, request, "groups")
    found: dict[str, ListedGroup] = {}
    for node_id, reply in answers:
        for each in reply.groups:
            kind, state = getattr(each, "group_type", ""), getattr(each, "group_state", "")
            found[each.group_id] = ListedGroup(
                each.group_id, kind.lower() or None, state or None, each.protocol_type, node_id
            )
    return [found[name] for name in sorted(found)]


def describe_group(cluster: Cluster, group_id: str) -> Group:
    """A group and its members. Raises BrokerRefused with GROUP_ID_NOT_FOUND if it does not exist."""
    try:
        return _describe_consumer(cluster, group_id)
    except NotServed:
        pass  # a broker older than Kafka 3.7: all its groups are classic
    except BrokerRefused as error:
        if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            raise
    return _describe_classic(cluster, group_id)


def find_group(cluster: Cluster, group_id: str) -> Group | None:
    """The same, but None if it does not exist."""
    try:
        return describe_group(cluster, group_id)
    except BrokerRefused as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return None


def _describe_consumer(cluster: Cluster, group_id: str) -> Group:
    request = through_kio(
        Api.CONSUMER_GROUP_DESCRIBE,
        lambda make: make.ConsumerGroupDescribeRequest(
            group_ids=(group_id,), include_authorized_operations=False
        ),
    )
    node_id, reply = ask_coordinator(cluster, Kind.GROUP, group_id, request, _first_code)
    described = _only(reply, group_id)
    members = tuple(_consumer_member(each) for each in described.members)
    return Group(
        group_id,
        CONSUMER,
        described.group_state,
        PROTOCOL_TYPE,
        described.assignor_name or None,
        described.group_epoch,
        described.assignment_epoch,
        node_id,
        tuple(sorted(members)),
    )


def _consumer_member(described: Any) -> GroupMember:
    return GroupMember(
        described.member_id,
        described.instance_id,
        described.client_id,
        described.client_host,
        described.rack_id,
        described.member_epoch,
        getattr(described, "member_type", None) == _CLASSIC_MEMBER,
        tuple(described.subscribed_topic_names),
        described.subscribed_topic_regex or None,
        _partitions(described.assignment),
        _partitions(described.target_assignment),
    )


def _partitions(described: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(each.topic_name, partition)
            for each in described.topic_partitions
            for partition in each.partitions
        )
    )


def _describe_classic(cluster: Cluster, group_id: str) -> Group:
    request = _describe_request(group_id)
    node_id, reply = ask_coordinator(cluster, Kind.GROUP, group_id, request, _first_code)
    described = _only(reply, group_id)
    if described.group_state == DEAD:  # before version 6, a group that does not exist
        raise refused(f"group {group_id}", ErrorCode.GROUP_ID_NOT_FOUND)
    members = tuple(_classic_member(each, described.protocol_type) for each in described.members)
    return Group(
        group_id,
        CLASSIC,
        described.group_state,
        described.protocol_type,
        described.protocol_data or None,
        None,
        None,
        node_id,
        tuple(sorted(members)),
    )


def _describe_request(*group_ids: str) -> Request[Any]:
    return through_kio(
        Api.DESCRIBE_GROUPS,
        lambda make: make.DescribeGroupsRequest(groups=group_ids, include_authorized_operations=False),
    )


def _classic_member(described: Any, protocol_type: str) -> GroupMember:
    topics: tuple[str, ...] = ()
    assignment: tuple[TopicPartition, ...] = ()
    if protocol_type == PROTOCOL_TYPE:  # for example Connect's workers, which use another format
        try:
            topics = read_topics(described.member_metadata) if described.member_metadata else ()
            assigned = read_assignment(described.member_assignment).assigned_partitions
            assignment = tuple(
                sorted(TopicPartition(each.topic, n) for each in assigned for n in each.partitions)
            )
        except CorruptStruct as error:
            raise refused(
                f"member {described.member_id}", ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)
            ) from error
    return GroupMember(
        described.member_id,
        getattr(described, "group_instance_id", None),
        described.client_id,
        described.client_host,
        None,
        None,
        True,
        topics,
        None,
        assignment,
        None,
    )


def delete_group(cluster: Cluster, group_id: str) -> None:
    """Delete a group without members, with its offsets."""
    request = through_kio(Api.DELETE_GROUPS, lambda make: make.DeleteGroupsRequest(groups_names=(group_id,)))
    _, reply = ask_coordinator(
        cluster,
        Kind.GROUP,
        group_id,
        request,
        lambda described: int(described.results[0].error_code) if described.results else 0,
    )
    if not reply.results:
        raise _left_out(group_id)
    check(f"group {group_id}", reply.results[0])


def _first_code(reply: Any) -> int:
    return int(reply.groups[0].error_code) if reply.groups else 0


def _only(reply: Any, group_id: str) -> Any:
    if not reply.groups:
        raise _left_out(group_id)
    described = reply.groups[0]
    if (
        described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    ):  # Kafka's message names the kind of group looked for
        raise refused(f"group {group_id}", ErrorCode.GROUP_ID_NOT_FOUND)
    check(f"group {group_id}", described)
    return described


def _left_out(group_id: str) -> BrokerRefused:
    return refused(
        f"group {group_id}", ErrorCode.UNKNOWN_SERVER_ERROR, "the broker left the group out of its reply"
    )


# -- groups that are not listed ----------------------------------------------------------------------------


class UnlistedPartitions(NamedTuple):
    """Partitions whose groups cannot be listed, with the errors."""

    partitions: dict[int, ErrorCode]
    of: int
    """The number of partitions of the topic."""


def unlisted_partitions(cluster: Cluster) -> UnlistedPartitions:
    """Find partitions of `__consumer_offsets` whose groups cannot be listed.

    ListGroups leaves out the groups of a partition that the broker cannot read, without an error. But DescribeGroups
    returns the error for every group id of that partition, even if no such group exists. So one made-up group id per
    partition is described.
    """
    topic = cluster.refresh([OFFSETS_TOPIC]).topics.get(OFFSETS_TOPIC)
    if topic is None or topic.error_code:
        return UnlistedPartitions({}, 0)  # the topic is created with the first group
    names = _a_name_for_each(len(topic.partitions))
    errors: dict[int, ErrorCode] = {}
    by_leader: dict[int, list[int]] = {}
    for number, partition in topic.partitions.items():
        if partition.leader in cluster.info.brokers:
            by_leader.setdefault(partition.leader, []).append(number)
        else:
            errors[number] = ErrorCode.LEADER_NOT_AVAILABLE
    for leader, numbers in by_leader.items():
        request = _describe_request(*(names[number] for number in numbers))
        for described in cluster.ask_node(leader, request).groups:
            code = int(described.error_code)
            if code in AGAIN:
                errors[partition_for(described.group_id, len(names))] = ErrorCode(code)
    return UnlistedPartitions(dict(sorted(errors.items())), len(names))


def _a_name_for_each(partitions: int) -> list[str]:
    names: dict[int, str] = {}
    for number in count():
        if len(names) == partitions:
            break
        name = f"any-{number}"
        names.setdefault(partition_for(name, partitions), name)
    return [names[number] for number in range(partitions)]
