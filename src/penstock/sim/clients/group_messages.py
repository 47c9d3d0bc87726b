"""Requests and replies of group members, in any version. See also `messages`."""

from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.ids import Offset
from penstock.coordinator.groups.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    read_assignment,
    write_assignment,
    write_subscription,
)
from penstock.sim.clients.messages import TopicName, ms, request_classes
from penstock.wire import Api, read_response, write_request
from penstock.wire.peers import Address

GROUP, TRANSACTION = 0, 1
"""Types of coordinator keys."""

STABLE_FROM = 7
"""First version of OffsetFetch that can wait for open transactions."""

_MANY_KEYS_FROM = 4
_MANY_GROUPS_FROM = 8
_MANY_LEAVE_FROM = 3


class Membership(NamedTuple):
    """Identity of a member."""

    group: str
    member_id: str = ""
    generation: int = -1
    """The member epoch in the consumer protocol."""


class Position(NamedTuple):
    """A committed offset; metadata names the commit."""

    offset: Offset
    metadata: str


# -- finding the coordinator --------------------------------------------------------------------------------


def find_coordinator(version: int, key: str, kind: int) -> bytes:
    make = request_classes(Api.FIND_COORDINATOR, version)
    entity = make.FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=(key,))
    return write_request(Api.FIND_COORDINATOR, version, entity)


class CoordinatorReply(NamedTuple):
    code: int
    address: Address


def read_find_coordinator(version: int, body: memoryview) -> CoordinatorReply:
    response = read_response(Api.FIND_COORDINATOR, version, body)
    found = response.coordinators[0] if version >= _MANY_KEYS_FROM else response
    return CoordinatorReply(int(found.error_code), Address(found.host, found.port))


# -- the classic protocol -----------------------------------------------------------------------------------


class JoinTerms(NamedTuple):
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None


def join_group(version: int, who: Membership, terms: JoinTerms, topic: str) -> bytes:
    make = request_classes(Api.JOIN_GROUP, version)
    subscription = write_subscription(Subscription(topics=(topic,)), 0)
    entity = make.JoinGroupRequest(
        group_id=who.group,
        session_timeout=ms(terms.session_timeout_ms),
        rebalance_timeout=ms(terms.rebalance_timeout_ms),
        member_id=who.member_id,
        group_instance_id=terms.instance_id,
        protocol_type="consumer",
        protocols=(make.JoinGroupRequestProtocol(name="range", metadata=subscription),),
    )
    return write_request(Api.JOIN_GROUP, version, entity)


class JoinReply(NamedTuple):
    code: int
    generation: int
    member_id: str
    leader: str
    members: list[str]
    """Only in the leader's reply."""


def read_join_group(version: int, body: memoryview) -> JoinReply:
    response = read_response(Api.JOIN_GROUP, version, body)
    return JoinReply(
        int(response.error_code),
        response.generation_id,
        response.member_id,
        response.leader,
        [each.member_id for each in response.members],
    )


def sync_group(version: int, who: Membership, topic: str, assigned: dict[str, list[int]]) -> bytes:
    make = request_classes(Api.SYNC_GROUP, version)

    def encoded(partitions: list[int]) -> bytes:
        given = (TopicPartitions(topic=topic, partitions=tuple(partitions)),) if partitions else ()
        return write_assignment(Assignment(assigned_partitions=given), 0)

    entity = make.SyncGroupRequest(
        group_id=who.group,
        generation_id=who.generation,
        member_id=who.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=tuple(
            make.SyncGroupRequestAssignment(member_id=member_id, assignment=encoded(partitions))
            for member_id, partitions in assigned.items()
        ),
    )
    return write_request(Api.SYNC_GROUP, version, entity)


def read_sync_group(version: int, body: memoryview) -> tuple[int, list[int]]:
    """Return the error code, and the assigned partitions."""
    response = read_response(Api.SYNC_GROUP, version, body)
    if response.error_code or not response.assignment:
        return int(response.error_code), []
    assignment = read_assignment(response.assignment)
    return 0, sorted(index for each in assignment.assigned_partitions for index in each.partitions)


def heartbeat(version: int, who: Membership) -> bytes:
    make = request_classes(Api.HEARTBEAT, version)
    entity = make.HeartbeatRequest(group_id=who.group, generation_id=who.generation, member_id=who.member_id)
    return write_request(Api.HEARTBEAT, version, entity)


def read_heartbeat(version: int, body: memoryview) -> int:
    return int(read_response(Api.HEARTBEAT, version, body).error_code)


def leave_group(version: int, who: Membership) -> bytes:
    make = request_classes(Api.LEAVE_GROUP, version)
    members = (make.MemberIdentity(member_id=who.member_id),) if version >= _MANY_LEAVE_FROM else ()
    entity = make.LeaveGroupRequest(group_id=who.group, member_id=who.member_id, members=members)
    return write_request(Api.LEAVE_GROUP, version, entity)


def read_leave_group(version: int, body: memoryview) -> int:
    response = read_response(Api.LEAVE_GROUP, version, body)
    code = int(response.error_code)
    if not code and version >= _MANY_LEAVE_FROM:
        code = next((int(each.error_code) for each in response.members if each.error_code), 0)
    return code


# -- the consumer protocol ----------------------------------------------------------------------------------


class ConsumerHeartbeat(NamedTuple):
    """A heartbeat of the consumer protocol. None means unchanged since the last one."""

    who: Membership
    rebalance_timeout_ms: int
    topic: TopicName
    is_full: bool
    owned: list[int] | None


def consumer_group_heartbeat(version: int, beat: ConsumerHeartbeat) -> bytes:
    make = request_classes(Api.CONSUMER_GROUP_HEARTBEAT, version)
    owned = None
    if beat.owned is not None:
        partitions = tuple(beat.owned)
        owned = (make.TopicPartitions(topic_id=beat.topic.id, partitions=partitions),) if partitions else ()
    entity = make.ConsumerGroupHeartbeatRequest(
        group_id=beat.who.group,
        member_id=beat.who.member_id,
        member_epoch=beat.who.generation,
        rebalance_timeout=ms(beat.rebalance_timeout_ms if beat.is_full else -1),
        subscribed_topic_names=(beat.topic.name,) if beat.is_full else None,
        subscribed_topic_regex=None,
        server_assignor=None,
        topic_partitions=owned,
    )
    return write_request(Api.CONSUMER_GROUP_HEARTBEAT, version, entity)


class ConsumerHeartbeatReply(NamedTuple):
    code: int
    member_id: str | None
    epoch: int
    interval_ms: int
    assigned: list[int] | None
    """None if unchanged."""


def read_consumer_group_heartbeat(version: int, body: memoryview) -> ConsumerHeartbeatReply:
    response = read_response(Api.CONSUMER_GROUP_HEARTBEAT, version, body)
    assigned = None
    if response.assignment is not None:
        given = response.assignment.topic_partitions
        assigned = sorted(index for each in given for index in each.partitions)
    return ConsumerHeartbeatReply(
        int(response.error_code),
        response.member_id,
        response.member_epoch,
        int(response.heartbeat_interval.total_seconds() * 1000),
        assigned,
    )


# -- offsets ------------------------------------------------------------------------------------------------


def offset_commit(version: int, who: Membership, topic: TopicName, positions: dict[int, Position]) -> bytes:
    make = request_classes(Api.OFFSET_COMMIT, version)
    entity = make.OffsetCommitRequest(
        group_id=who.group,
        generation_id_or_member_epoch=who.generation,
        member_id=who.member_id,
        topics=(
            make.OffsetCommitRequestTopic(
                name=topic.name,
                topic_id=topic.id,
                partitions=tuple(
                    make.OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=metadata
                    )
                    for index, (offset, metadata) in positions.items()
                ),
            ),
        ),
    )
    return write_request(Api.OFFSET_COMMIT, version, entity)


def read_offset_commit(version: int, body: memoryview) -> dict[int, int]:
    """Return the error code of each partition."""
    response = read_response(Api.OFFSET_COMMIT, version, body)
    return {
        each.partition_index: int(each.error_code) for topic in response.topics for each in topic.partitions
    }


def offset_fetch(version: int, who: Membership, topic: TopicName, partitions: list[int]) -> bytes:
    make = request_classes(Api.OFFSET_FETCH, version)

    def asked(name: str) -> tuple[Any, ...]:
        return (getattr(make, name)(name=topic.name, topic_id=topic.id, partition_indexes=tuple(partitions)),)

    if version >= _MANY_GROUPS_FROM:
        topics = asked("OffsetFetchRequestTopics")
        is_member = bool(who.member_id)
        group = make.OffsetFetchRequestGroup(
            group_id=who.group,
            member_id=who.member_id if is_member else None,
            member_epoch=who.generation if is_member else -1,
            topics=topics,
        )
        entity = make.OffsetFetchRequest(groups=(group,), require_stable=True)
    else:
        topics = asked("OffsetFetchRequestTopic")
        entity = make.OffsetFetchRequest(group_id=who.group, topics=topics, require_stable=True)
    return write_request(Api.OFFSET_FETCH, version, entity)


class OffsetFetchReply(NamedTuple):
    code: int
    """First error of the reply, on any level."""
    positions: dict[int, Position]


def read_offset_fetch(version: int, body: memoryview) -> OffsetFetchReply:
    response = read_response(Api.OFFSET_FETCH, version, body)
    whole = response.groups[0] if version >= _MANY_GROUPS_FROM else response
    code = int(getattr(whole, "error_code", ErrorCode.NONE))
    positions = {}
    for topic in whole.topics:
        for each in topic.partitions:
            code = code or int(each.error_code)
            positions[each.partition_index] = Position(each.committed_offset, each.metadata or "")
    return OffsetFetchReply(code, positions)
