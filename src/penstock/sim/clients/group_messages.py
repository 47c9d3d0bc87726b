"""Requests of group members, in any version. See also `messages`."""

from typing import Any, NamedTuple

from penstock.base.ids import Offset
from penstock.coordinator.groups.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    read_assignment,
    write_assignment,
    write_subscription,
)
from penstock.sim.clients.messages import Request, RequestClasses, TopicName, ms, read_code
from penstock.wire import Api
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


class CoordinatorReply(NamedTuple):
    code: int
    address: Address


def find_coordinator(key: str, kind: int) -> Request[CoordinatorReply]:
    def read(response: Any) -> CoordinatorReply:
        found = response.coordinators[0] if response.__version__ >= _MANY_KEYS_FROM else response
        return CoordinatorReply(int(found.error_code), Address(found.host, found.port))

    return Request(
        Api.FIND_COORDINATOR,
        lambda make: make.FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=(key,)),
        read,
    )


# -- the classic protocol -----------------------------------------------------------------------------------


class JoinTerms(NamedTuple):
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None


class JoinReply(NamedTuple):
    code: int
    generation: int
    member_id: str
    leader: str
    members: list[str]
    """Only in the leader's reply."""


def join_group(member: Membership, terms: JoinTerms, topic: str) -> Request[JoinReply]:
    subscription = write_subscription(Subscription(topics=(topic,)), 0)
    return Request(
        Api.JOIN_GROUP,
        lambda make: make.JoinGroupRequest(
            group_id=member.group,
            session_timeout=ms(terms.session_timeout_ms),
            rebalance_timeout=ms(terms.rebalance_timeout_ms),
            member_id=member.member_id,
            group_instance_id=terms.instance_id,
            protocol_type="consumer",
            protocols=(make.JoinGroupRequestProtocol(name="range", metadata=subscription),),
        ),
        lambda response: JoinReply(
            int(response.error_code),
            response.generation_id,
            response.member_id,
            response.leader,
            [each.member_id for each in response.members],
        ),
    )


def sync_group(
    member: Membership, topic: str, assigned: dict[str, list[int]]
) -> Request[tuple[int, list[int]]]:
    """The reply has an error code, and the assigned partitions."""

    def encoded(partitions: list[int]) -> bytes:
        given = (TopicPartitions(topic=topic, partitions=tuple(partitions)),) if partitions else ()
        return write_assignment(Assignment(assigned_partitions=given), 0)

    def read(response: Any) -> tuple[int, list[int]]:
        if response.error_code or not response.assignment:
            return int(response.error_code), []
        assignment = read_assignment(response.assignment)
        return 0, sorted(index for each in assignment.assigned_partitions for index in each.partitions)

    return Request(
        Api.SYNC_GROUP,
        lambda make: make.SyncGroupRequest(
            group_id=member.group,
            generation_id=member.generation,
            member_id=member.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=tuple(
                make.SyncGroupRequestAssignment(member_id=member_id, assignment=encoded(partitions))
                for member_id, partitions in assigned.items()
            ),
        ),
        read,
    )


def heartbeat(member: Membership) -> Request[int]:
    return Request(
        Api.HEARTBEAT,
        lambda make: make.HeartbeatRequest(
            group_id=member.group, generation_id=member.generation, member_id=member.member_id
        ),
        read_code,
    )


def leave_group(member: Membership) -> Request[int]:
    """The reply is its first error code."""

    def read(response: Any) -> int:
        rows = (response, *(response.members if response.__version__ >= _MANY_LEAVE_FROM else ()))
        return next((int(each.error_code) for each in rows if each.error_code), 0)

    return Request(
        Api.LEAVE_GROUP,
        lambda make: make.LeaveGroupRequest(
            group_id=member.group,
            member_id=member.member_id,
            members=(make.MemberIdentity(member_id=member.member_id),)
            if make.version >= _MANY_LEAVE_FROM
            else (),
        ),
        read,
    )


# -- the consumer protocol ----------------------------------------------------------------------------------


class ConsumerHeartbeat(NamedTuple):
    """A heartbeat of the consumer protocol. None means unchanged since the last one."""

    member: Membership
    rebalance_timeout_ms: int
    topic: TopicName
    is_full: bool
    owned: list[int] | None


class ConsumerHeartbeatReply(NamedTuple):
    code: int
    member_id: str | None
    epoch: int
    interval_ms: int
    assigned: list[int] | None
    """None if unchanged."""


def consumer_group_heartbeat(beat: ConsumerHeartbeat) -> Request[ConsumerHeartbeatReply]:
    def build(make: RequestClasses) -> Any:
        owned = None
        if beat.owned is not None:
            partitions = tuple(beat.owned)
            owned = (
                (make.TopicPartitions(topic_id=beat.topic.id, partitions=partitions),) if partitions else ()
            )
        return make.ConsumerGroupHeartbeatRequest(
            group_id=beat.member.group,
            member_id=beat.member.member_id,
            member_epoch=beat.member.generation,
            rebalance_timeout=ms(beat.rebalance_timeout_ms if beat.is_full else -1),
            subscribed_topic_names=(beat.topic.name,) if beat.is_full else None,
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=owned,
        )

    def read(response: Any) -> ConsumerHeartbeatReply:
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

    return Request(Api.CONSUMER_GROUP_HEARTBEAT, build, read)


# -- offsets ------------------------------------------------------------------------------------------------


def offset_commit(
    member: Membership, topic: TopicName, positions: dict[int, Position]
) -> Request[dict[int, int]]:
    """The reply has the error code of each partition."""
    return Request(
        Api.OFFSET_COMMIT,
        lambda make: make.OffsetCommitRequest(
            group_id=member.group,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
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
        ),
        lambda response: {
            each.partition_index: int(each.error_code)
            for topic in response.topics
            for each in topic.partitions
        },
    )


class OffsetFetchReply(NamedTuple):
    code: int
    """First error of the reply, on any level."""
    positions: dict[int, Position]
    is_stable: bool
    """Whether it waited for open transactions."""


def offset_fetch(member: Membership, topic: TopicName, partitions: list[int]) -> Request[OffsetFetchReply]:
    def build(make: RequestClasses) -> Any:
        of_topic = {"name": topic.name, "topic_id": topic.id, "partition_indexes": tuple(partitions)}
        if make.version < _MANY_GROUPS_FROM:
            topics = (make.OffsetFetchRequestTopic(**of_topic),)
            return make.OffsetFetchRequest(group_id=member.group, topics=topics, require_stable=True)
        group = make.OffsetFetchRequestGroup(
            group_id=member.group,
            member_id=member.member_id or None,
            member_epoch=member.generation if member.member_id else -1,
            topics=(make.OffsetFetchRequestTopics(**of_topic),),
        )
        return make.OffsetFetchRequest(groups=(group,), require_stable=True)

    def read(response: Any) -> OffsetFetchReply:
        whole = response.groups[0] if response.__version__ >= _MANY_GROUPS_FROM else response
        rows = [each for of_topic in whole.topics for each in of_topic.partitions]
        code = next((int(each.error_code) for each in (whole, *rows) if getattr(each, "error_code", 0)), 0)
        positions = {
            each.partition_index: Position(each.committed_offset, each.metadata or "") for each in rows
        }
        return OffsetFetchReply(code, positions, response.__version__ >= STABLE_FROM)

    return Request(Api.OFFSET_FETCH, build, read)
