"""Members of a group as bytes: what each sends next, given what it was told.

    Classic     JoinGroup, the leader's range assignment in its SyncGroup, everybody's SyncGroup, Heartbeats
    Consumer    ConsumerGroupHeartbeat (KIP-848): one request for all of it

A member does what a client does, but for the time between: it takes and gives up partitions at once. The versions are
those of librdkafka 2.16, but for LeaveGroup, which here takes all members at once.
"""

from abc import ABC, abstractmethod
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from benchmarks.broker.admin import Admin
from benchmarks.broker.frames import CLIENT_ID
from benchmarks.broker.load import BadReply
from penstock.base.errors import ErrorCode
from penstock.coordinator.groups.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    read_assignment,
    write_assignment,
    write_subscription,
)
from penstock.wire import (
    Api,
    parse_response_header,
    read_response,
    request_frame,
    request_module,
    write_request,
)

JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 5, 3, 3, 3
CONSUMER_VERSION, COMMIT_VERSION = 1, 9
SESSION = timedelta(minutes=5)
"""Longer than a row takes: members that wait for their turn send nothing. Within Kafka's limit."""
REBALANCE = timedelta(minutes=1)
EMBEDDED_VERSION = 1
"""Of subscriptions and assignments inside the classic protocol's bytes."""
LEAVES = -1
"""The epoch with which a member of a consumer group goes."""


class Group(NamedTuple):
    """A group to be, and the topic that all of its members read."""

    name: str
    topic: str
    topic_id: bytes
    partitions: int
    protocol: str
    """`classic` or `consumer`."""


class Joined(NamedTuple):
    """A member as it is when its group has settled."""

    group: str
    member_id: str
    generation: int
    """Or its epoch, where the group is a consumer group."""
    partitions: tuple[int, ...]


class Member(ABC):
    """What a member holds. `told` gives the next request, or None when it has nothing to say before a heartbeat."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.member_id = ""
        self.generation = -1
        self.partitions: tuple[int, ...] = ()

    def joined(self) -> Joined:
        return Joined(self.group.name, self.member_id, self.generation, self.partitions)

    @abstractmethod
    def join(self) -> bytes: ...

    @abstractmethod
    def heartbeat(self) -> bytes: ...

    @abstractmethod
    def told(self, frame: memoryview) -> bytes | None: ...


class Classic(Member):
    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self._asked = Api.JOIN_GROUP

    def join(self) -> bytes:
        module = request_module(Api.JOIN_GROUP, JOIN_VERSION)
        self._asked = Api.JOIN_GROUP
        self.partitions = ()
        request = module.JoinGroupRequest(
            group_id=self.group.name,
            session_timeout=SESSION,
            rebalance_timeout=REBALANCE,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=(
                module.JoinGroupRequestProtocol(name="range", metadata=_subscription(self.group.topic)),
            ),
        )
        return _frame(Api.JOIN_GROUP, JOIN_VERSION, request)

    def heartbeat(self) -> bytes:
        self._asked = Api.HEARTBEAT
        return heartbeat_frame(self.joined())

    def told(self, frame: memoryview) -> bytes | None:
        if self._asked is Api.JOIN_GROUP:
            return self._answer_to_join(_read(Api.JOIN_GROUP, JOIN_VERSION, frame))
        if self._asked is Api.SYNC_GROUP:
            reply = _read(Api.SYNC_GROUP, SYNC_VERSION, frame)
            if reply.error_code == ErrorCode.NONE:
                assigned = read_assignment(reply.assignment).assigned_partitions
                self.partitions = tuple(number for each in assigned for number in each.partitions)
                return None
        else:
            reply = _read(Api.HEARTBEAT, HEARTBEAT_VERSION, frame)
            if reply.error_code == ErrorCode.NONE:
                return None
        _expect(reply.error_code, ErrorCode.REBALANCE_IN_PROGRESS)
        return self.join()

    def _answer_to_join(self, reply: Any) -> bytes:
        if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
            return self.join()
        _expect(reply.error_code, ErrorCode.NONE)
        self.member_id, self.generation = reply.member_id, reply.generation_id
        members = [each.member_id for each in reply.members] if reply.leader == reply.member_id else []
        module = request_module(Api.SYNC_GROUP, SYNC_VERSION)
        self._asked = Api.SYNC_GROUP
        request = module.SyncGroupRequest(
            group_id=self.group.name,
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=tuple(
                module.SyncGroupRequestAssignment(
                    member_id=member, assignment=_assignment(self.group.topic, run)
                )
                for member, run in zip(
                    sorted(members), ranges(self.group.partitions, len(members)), strict=True
                )
            ),
        )
        return _frame(Api.SYNC_GROUP, SYNC_VERSION, request)


class Consumer(Member):
    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self.member_id = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")

    def join(self) -> bytes:
        self.generation = 0
        return self._beat(
            rebalance_timeout=REBALANCE, subscribed_topic_names=(self.group.topic,), topic_partitions=()
        )

    def heartbeat(self) -> bytes:
        return self._beat(topic_partitions=None)

    def told(self, frame: memoryview) -> bytes | None:
        reply = _read(Api.CONSUMER_GROUP_HEARTBEAT, CONSUMER_VERSION, frame)
        _expect(reply.error_code, ErrorCode.NONE)
        self.generation = reply.member_epoch
        if reply.assignment is None:
            return None
        before = self.partitions
        self.partitions = tuple(
            number for each in reply.assignment.topic_partitions for number in each.partitions
        )
        return None if self.partitions == before else self._beat(topic_partitions=self._owned())

    def _owned(self) -> tuple[Any, ...]:
        if not self.partitions:
            return ()
        module = request_module(Api.CONSUMER_GROUP_HEARTBEAT, CONSUMER_VERSION)
        return (module.TopicPartitions(topic_id=UUID(bytes=self.group.topic_id), partitions=self.partitions),)

    def _beat(self, **changed: Any) -> bytes:
        return _consumer_frame(self.group.name, self.member_id, self.generation, changed)


MEMBERS: dict[str, type[Member]] = {"classic": Classic, "consumer": Consumer}


def ranges(partitions: int, members: int) -> list[range]:
    """A run of neighbours for each, the first ones with one more where it does not come out even."""
    if not members:
        return []
    least, more = divmod(partitions, members)
    ends = [least * number + min(number, more) for number in range(members + 1)]
    return [range(start, end) for start, end in pairwise(ends)]


# -- frames -------------------------------------------------------------------------------------------


def heartbeat_frame(member: Joined) -> bytes:
    module = request_module(Api.HEARTBEAT, HEARTBEAT_VERSION)
    request = module.HeartbeatRequest(
        group_id=member.group, generation_id=member.generation, member_id=member.member_id
    )
    return _frame(Api.HEARTBEAT, HEARTBEAT_VERSION, request)


HEARTBEAT_ERROR_AT = 12
"""Where a Heartbeat reply has its error code: behind length, correlation id and throttle time."""


def consumer_heartbeat_frame(member: Joined) -> bytes:
    """Of a member that has nothing new to say."""
    return _consumer_frame(member.group, member.member_id, member.generation, {"topic_partitions": None})


CONSUMER_HEARTBEAT_ERROR_AT = 13
"""The same, behind the header's tags."""


def commit_frame(member: Joined, topic: str, offset: int) -> bytes:
    """A member's place in all of its partitions."""
    module = request_module(Api.OFFSET_COMMIT, COMMIT_VERSION)
    partitions = tuple(
        module.OffsetCommitRequestPartition(
            partition_index=number, committed_offset=offset, committed_metadata=""
        )
        for number in member.partitions
    )
    request = module.OffsetCommitRequest(
        group_id=member.group,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        topics=(module.OffsetCommitRequestTopic(name=topic, partitions=partitions),),
    )
    return _frame(Api.OFFSET_COMMIT, COMMIT_VERSION, request)


def commit_error_at(topic: str) -> int:
    """Where an OffsetCommit reply has the error code of its first partition."""
    return 20 + len(topic.encode())


def _consumer_frame(group: str, member_id: str, epoch: int, changed: dict[str, Any]) -> bytes:
    module = request_module(Api.CONSUMER_GROUP_HEARTBEAT, CONSUMER_VERSION)
    request = module.ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member_id, member_epoch=epoch, **changed
    )
    return _frame(Api.CONSUMER_GROUP_HEARTBEAT, CONSUMER_VERSION, request)


def _frame(api: Api, version: int, request: Any) -> bytes:
    return request_frame(api, version, 1, CLIENT_ID, write_request(api, version, request))


def _read(api: Api, version: int, frame: memoryview) -> Any:
    _, body_at = parse_response_header(frame, api, version)
    return read_response(api, version, frame[body_at:])


@cache
def _subscription(topic: str) -> bytes:
    return write_subscription(Subscription(topics=(topic,)), EMBEDDED_VERSION)


def _assignment(topic: str, run: Sequence[int]) -> bytes:
    assigned = (TopicPartitions(topic=topic, partitions=tuple(run)),)
    return write_assignment(Assignment(assigned_partitions=assigned), EMBEDDED_VERSION)


def _expect(code: int, expected: ErrorCode) -> None:
    if code != expected:
        raise BadReply(f"a member was told {code!r}, expected {expected!r}")


# -- the end ------------------------------------------------------------------------------------------


def leave(admin: Admin, protocol: str, members: Sequence[Joined]) -> None:
    """The members of one group go, so that nobody waits for their sessions to end."""
    if protocol == "consumer":
        module = request_module(Api.CONSUMER_GROUP_HEARTBEAT, CONSUMER_VERSION)
        for each in members:
            request = module.ConsumerGroupHeartbeatRequest(
                group_id=each.group, member_id=each.member_id, member_epoch=LEAVES, topic_partitions=None
            )
            reply = admin.ask(Api.CONSUMER_GROUP_HEARTBEAT, CONSUMER_VERSION, request)
            _expect(reply.error_code, ErrorCode.NONE)
        return
    module = request_module(Api.LEAVE_GROUP, LEAVE_VERSION)
    identities = tuple(
        module.MemberIdentity(member_id=each.member_id, group_instance_id=None) for each in members
    )
    request = module.LeaveGroupRequest(group_id=members[0].group, members=identities)
    reply = admin.ask(Api.LEAVE_GROUP, LEAVE_VERSION, request)
    for code in (reply.error_code, *(each.error_code for each in reply.members)):
        _expect(code, ErrorCode.NONE)
