"""Requests of HTTP clients to groups: join, leave, consume and commit.

`Members` handles them on the broker that coordinates the group; other brokers forward them (`at_coordinator`). So a
client may call any broker, and a load balancer needs no affinity.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset
from penstock.base.steps import Steps, sleep
from penstock.coordinator.groups.consumer.member import ConsumerMember
from penstock.coordinator.groups.coordinator import GroupCoordinator
from penstock.coordinator.groups.requests import (
    CommittedPartition,
    OffsetCommit,
    OffsetFetch,
    WantedOffset,
)
from penstock.gateway.membership.http_members import HttpMembers, Reply
from penstock.gateway.membership.rights import (
    Conflict,
    assignments_of,
    check_reader,
    committer,
    is_live,
    member_of,
)
from penstock.gateway.peer_rpc import messages
from penstock.gateway.peer_rpc.coordinators import at_coordinator
from penstock.gateway.peer_rpc.messages import Assignments
from penstock.gateway.peer_rpc.retry import retry_while_moving
from penstock.gateway.peer_rpc.routed_partition import (
    Growth,
    RoutedPartition,
    find_partition,
    look_up_bounds,
)
from penstock.gateway.shared.access import GROUP, TOPIC, allow
from penstock.gateway.shared.reading import PORTION_BYTES
from penstock.gateway.shared.topics import ensure_topic, find_topic
from penstock.handlers.consumer_groups import is_enabled
from penstock.handlers.support.context import Context, Session
from penstock.handlers.support.response_fields import client_host
from penstock.metadata.acls import Operation
from penstock.records import Record

MEMBERS_MAX: Final = 1000
"""HTTP members of groups that this broker coordinates: it sends their heartbeats, and rebalances them in one step."""

BYTES_MAX: Final = 4 << 20
"""Bytes of keys, values and headers in a response, unless its first record alone is larger."""

HIDDEN_PORTIONS_MAX: Final = 64
"""Portions without a visible record, of aborted transactions for example, that a call without a wait reads. Its
response has the offset to continue at."""


class Consumed(NamedTuple):
    records: Sequence[Record]
    next_offset: Offset
    """The offset to commit once the records are processed."""


class Members:
    """A `Part` of the gateway."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._http_members = HttpMembers(context)

    def start(self) -> None:
        self._http_members.start()

    def stop(self) -> None:
        self._http_members.stop()

    # -- join and leave --------------------------------------------------------------------------------

    def join(self, session: Session, asked: messages.Join) -> Steps[Assignments]:
        """Join the group, or change a member's subscription; return the member's assignment. Other HTTP members revoke
        partitions at once. Partitions that a Kafka client has to revoke are assigned when it has."""
        context, group, consumer = self._context, asked.group, asked.consumer
        self._check(session, group, asked.topics)
        if not is_enabled(context):
            raise Conflict("unsupported_version", "the consumer protocol is disabled (group.version is 0)")
        for topic in asked.topics:
            yield from ensure_topic(context, session, topic)
        coordinator = yield from self._http_members.coordinator(group)
        member = self._joining(coordinator, group, consumer)
        reply = self._http_members.send_heartbeat(
            group,
            member,
            client_host=client_host(session).removeprefix("/"),
            rebalance_timeout_ms=asked.session_ms,
            subscribed_names=asked.topics,
        )
        self._http_members.follow(group)
        self._http_members.renew(group, consumer)
        replies = [reply, *(yield from self._http_members.settled(group))]
        joined = member_of(coordinator.find(group), consumer)
        assignments = {} if joined is None else assignments_of(joined, context.image)
        yield from self._committed(replies)
        return assignments

    def _joining(self, coordinator: GroupCoordinator, group_id: str, consumer: str) -> ConsumerMember:
        group = coordinator.find(group_id)
        member = member_of(group, consumer)
        if member is not None:
            return member
        if group is not None and consumer in group.members:
            raise Conflict(
                "name_taken", f"{consumer!r} is a Kafka client in group {group_id!r}: choose another name"
            )
        if self._http_members.count >= MEMBERS_MAX:
            raise KafkaError(
                f"{MEMBERS_MAX} consumers have joined groups over HTTP at this broker, which is the maximum",
                ErrorCode.GROUP_MAX_SIZE_REACHED,
            )
        return ConsumerMember(consumer)

    def leave(self, session: Session, asked: messages.Leave) -> Steps[None]:
        """Leave the group. The member's partitions are assigned to others when this returns."""
        group, consumer = asked.group, asked.consumer
        self._check(session, group)
        coordinator = yield from self._http_members.coordinator(group)
        member = member_of(coordinator.find(group), consumer)
        if member is None:
            raise KafkaError(
                f"no consumer {consumer!r} joined group {group!r} over HTTP",
                ErrorCode.UNKNOWN_MEMBER_ID,
            )
        reply = self._http_members.leave(group, member)
        replies = [reply, *(yield from self._http_members.settled(group))]
        yield from self._committed(replies)

    @staticmethod
    def _committed(replies: list[Reply]) -> Steps[None]:
        """Wait until all decisions are committed. Raise the error of the first reply, which is the caller's."""
        for index, later in enumerate(replies):
            reply = yield later
            if not index and reply.code is not ErrorCode.NONE:
                why = reply.message or f"the group's coordinator says {reply.code.name}"
                if reply.code is ErrorCode.GROUP_ID_NOT_FOUND:
                    raise Conflict("group_of_another_kind", why)
                raise KafkaError(why, reply.code)

    # -- reading ---------------------------------------------------------------------------------------

    def consume(self, session: Session, asked: messages.Consume) -> Steps[Consumed]:
        """Records from the group's committed offset, as soon as there are any, or none after `wait_ms`."""
        group, consumer = asked.group, asked.consumer
        self._check(session, group, (asked.topic,))
        self._http_members.renew(group, consumer)
        find_partition(self._context, asked.topic, asked.partition)
        coordinator = yield from self._http_members.coordinator(group)
        with self._http_members.in_call(group, consumer):
            yield from self._check_reader(coordinator, asked)
            offset = yield from self._position(asked)
            return (yield from self._read(asked, offset))

    def _check_reader(
        self, coordinator: GroupCoordinator, asked: messages.Consume | messages.Commit
    ) -> Steps[None]:
        """Send one more heartbeat before the member is rejected: partitions may have been added since the last one."""
        image = self._context.image
        try:
            check_reader(coordinator, image, asked)
        except Conflict:
            member = member_of(coordinator.find(asked.group), asked.consumer)
            if member is None:
                raise
            reply = self._http_members.send_heartbeat(asked.group, member)
            replies = [reply, *(yield from self._http_members.settled(asked.group))]
            check_reader(coordinator, image, asked)
            yield from self._committed(replies)

    def _position(self, asked: messages.Consume) -> Steps[Offset]:
        group = asked.group
        wanted = WantedOffset(asked.topic, asked.partition, find_topic(self._context, asked.topic).id)
        reply = yield self._context.groups.handle(group, OffsetFetch(group, (wanted,), require_stable=True))
        code = reply.code if reply.code is not ErrorCode.NONE else reply.offsets[0].code
        if code is not ErrorCode.NONE:
            raise KafkaError(f"the committed offset of group {group!r} is not available. Retry.", code)
        offset: Offset = reply.offsets[0].offset
        return offset

    def _read(self, asked: messages.Consume, offset: Offset) -> Steps[Consumed]:
        context, world = self._context, self._context.world
        deadline_ms = world.now_ms() + asked.wait_ms
        hidden = 0
        while True:
            partition = find_partition(context, asked.topic, asked.partition)
            yield from look_up_bounds(context, [partition])
            before = _in_log(partition, offset)
            records, offset = yield from _portions(context, partition, before, asked.records_max)
            left_ms = deadline_ms - world.now_ms()
            if records or before == offset < partition.last_stable:
                # Without records: the log cannot be read any further, and is not read again.
                return Consumed(records, offset)
            if before != offset:
                hidden += 1
                if left_ms > 0 or hidden < HIDDEN_PORTIONS_MAX:
                    yield sleep(world, 0)
                    continue
            if left_ms <= 0:
                return Consumed((), offset)
            yield from self._wait(asked, partition, offset, left_ms)

    def _wait(
        self, asked: messages.Consume, partition: RoutedPartition, offset: Offset, wait_ms: float
    ) -> Steps[None]:
        """Wait for more records, or until `wait_ms` have passed. Raises a `Conflict` if the partition is
        reassigned."""
        context = self._context

        def check() -> None:
            coordinator = self._http_members.find(asked.group)
            if coordinator is not None:
                check_reader(coordinator, context.image, asked)

        growth = Growth(context, partition, offset, wait_ms)

        def moved() -> None:
            try:
                check()
            except Conflict:
                growth.changed()

        with self._http_members.watching(asked.group, moved):
            try:
                yield growth
            finally:
                growth.cancel()
        check()

    # -- committing ------------------------------------------------------------------------------------

    def commit(self, session: Session, asked: messages.Commit) -> Steps[None]:
        """Commit an offset in the name of the partition's owner, or of no member if the group has none."""
        context, group, consumer = self._context, asked.group, asked.consumer
        topic, number, offset = asked.topic, asked.partition, asked.offset
        self._check(session, group, (topic,))
        self._http_members.renew(group, consumer)
        partition = find_partition(context, topic, number)
        coordinator = yield from self._http_members.coordinator(group)
        with self._http_members.in_call(group, consumer):
            if consumer is not None and is_live(coordinator.find(group)):
                yield from self._check_reader(coordinator, asked)
            member = committer(coordinator, group, topic, number)
            if member is not None:
                self._http_members.renew(group, member.member_id)
            yield from look_up_bounds(context, [partition])
            if offset > partition.log_end:
                raise KafkaError(
                    f"partition {number} of topic {topic!r} ends at offset {partition.log_end}: "
                    f"{offset} cannot be committed",
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                )
            committed = CommittedPartition(topic, number, offset, topic_id=find_topic(context, topic).id)
            request = OffsetCommit(group, (committed,))
            if member is not None:
                request = request._replace(member_id=member.member_id, generation=member.epoch)
            reply = yield context.groups.handle(group, request)
            code = reply.code if reply.code is not ErrorCode.NONE else reply.partitions[0].code
            if code is not ErrorCode.NONE:
                raise KafkaError(f"offset {offset} could not be committed for group {group!r}", code)

    def _check(self, session: Session, group: str, topics: Sequence[str] = ()) -> None:
        """Raise if the client may not read the group and the topics."""
        allow(self._context, session, Operation.READ, GROUP, group)
        for topic in topics:
            allow(self._context, session, Operation.READ, TOPIC, topic)


def _in_log(partition: RoutedPartition, offset: Offset) -> Offset:
    """The offset; or the start of the log, if the offset is not in it."""
    return offset if partition.log_start <= offset <= partition.log_end else partition.log_start


def _portions(
    context: Context, partition: RoutedPartition, offset: Offset, records_max: int
) -> Steps[Consumed]:
    """Records from an offset, up to the size of a response."""
    records: list[Record] = []
    size = 0
    while offset < partition.last_stable:
        read = partial(
            partition.read, offset, records_max=records_max - len(records), bytes_max=PORTION_BYTES
        )
        portion = yield from retry_while_moving(context, read)
        for record in portion.records:
            size += _size(record)
            if size > BYTES_MAX and records:
                return Consumed(records, record.offset)
            records.append(record)
        offset = portion.next_offset
        if len(records) >= records_max or not portion.records:
            break
    return Consumed(records, offset)


def _size(record: Record) -> int:
    return (
        len(record.key or b"")
        + len(record.value or b"")
        + sum(len(key) + len(value or b"") for key, value in record.headers)
    )


def consume_anywhere(
    context: Context, here: Members, session: Session, asked: messages.Consume
) -> Steps[Consumed]:
    """Consume at the group's coordinator. From another broker, records come in the form of messages."""
    found: Consumed | messages.ConsumedRecords = yield from at_coordinator(
        context, session, asked, here.consume, asked.wait_ms
    )
    if isinstance(found, Consumed):
        return found
    return Consumed([_record(each) for each in found.records], found.next_offset)


def _record(consumed: messages.ConsumedRecord) -> Record:
    headers = tuple((name.decode(errors="surrogateescape"), value) for name, value in consumed.headers)
    return Record(consumed.offset, consumed.timestamp, consumed.key, consumed.value, headers)
