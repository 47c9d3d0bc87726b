"""Fetch requests of followers: records up to the log end, and the state that a replica needs.

A fetch tells the leader the follower's log end: the requested offset. That may advance the high watermark, acknowledge
producers, and add the follower to the ISR, all before the response is built, so that it has the newest high watermark.

- Needs CLUSTER_ACTION on the cluster: TOPIC_AUTHORIZATION_FAILED. A broker that is not a replica gets
  UNKNOWN_LEADER_EPOCH or, if it names no epoch, NOT_LEADER_OR_FOLLOWER, as does an earlier incarnation of a broker
  (KIP-841, KIP-903).
- A follower whose log diverges from the leader's gets the diverging epoch, one with an offset that is not in the log
  OFFSET_OUT_OF_RANGE; neither offset counts as the follower's log end.
- The response waits for records as a consumer's does. A new high watermark is sent with the next response; it is sent
  at once only where consumers may read from followers (`replica.selector.class`, KIP-392).
- Writes to several logs in one tick are sent in one response.
- Records of a throttled partition (`leader.replication.throttled.replicas`) are sent to a follower outside the ISR as
  the leader's rate allows. Until then the response has none of them, and waits.
"""

from math import ceil
from typing import cast

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import HoldingPromise
from penstock.base.world import Timer
from penstock.handlers.support.context import Context, Session
from penstock.handlers.support.diverging_epoch import diverging_epoch
from penstock.handlers.support.fetch_sessions import FIRST_EPOCH, NO_SESSION, requested_partitions
from penstock.handlers.support.follower_sessions import FollowedPartition, FollowerSession
from penstock.handlers.support.nearest_replica import selects_by_rack
from penstock.metadata.acls import CLUSTER_NAME, AclResourceType, Operation
from penstock.replica import Partition
from penstock.storage.unread import UnreadRecords
from penstock.wire import (
    Buffer,
    FetchRequest,
    FetchResult,
    Piece,
    RequestHeader,
    TopicKey,
    UnreadReply,
    fetch_reply,
)

_NO_OFFSET = -1
_AS_REPLICA = Operation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME

Reply = list[Piece]
Read = list[tuple[FollowedPartition, FetchResult]]


def fetch_as_follower(
    context: Context, session: Session, header: RequestHeader, request: FetchRequest
) -> Reply | HoldingPromise[Reply]:
    version = header.api_version
    is_broker = context.permits(session, *_AS_REPLICA)
    session.state.is_exempt = is_broker
    try:
        kept = _session_of(context, request, version, is_broker=is_broker)
    except KafkaError as error:
        context.metrics.fetch.fail(error.code)
        return fetch_reply(version, header.correlation_id, [], error_code=error.code)[0]
    kept.seen.ms = context.world.clock_ns() // 1_000_000
    one = FollowerFetch(context, session, header, request, kept)
    read = one.read()
    if one.is_enough(read) or request.max_wait_ms <= 0:
        return one.reply(read)
    waiting = DelayedReplicaFetch(one, sum(len(each.records or b"") for _, each in read))
    waiting.begin()
    return waiting.later


def _session_of(context: Context, request: FetchRequest, version: int, *, is_broker: bool) -> FollowerSession:
    """The session of a request; a temporary one where it has none. A client that is no broker gets a temporary one: it
    must not resume, close or evict those of followers."""
    uses_ids = version >= 13
    now_ms = context.world.now_ms()
    sessions = context.fetch_sessions
    if request.session_epoch > FIRST_EPOCH:
        if not is_broker:
            raise KafkaError(
                f"Fetch session {request.session_id} is not of this client.",
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
            )
        kept = sessions.resume(request, FollowerSession, uses_ids, now_ms)
        if kept.waiting is not None:
            kept.waiting.superseded()
        return kept
    if is_broker and request.session_id != NO_SESSION:
        sessions.close_former(request.replica_id, request.session_id)

    def make(session_id: int) -> FollowerSession:
        seen_ms = context.world.clock_ns() // 1_000_000
        return FollowerSession(session_id, uses_ids, now_ms, request.replica_id, seen_ms)

    is_kept = is_broker and request.session_epoch == FIRST_EPOCH
    opened = sessions.open(request, make, now_ms) if is_kept else None
    if opened is None:
        opened = make(NO_SESSION)
        opened.update(requested_partitions(request))
    return opened


class FollowerFetch:
    """A follower's request. `read` may be called several times before `reply`."""

    __slots__ = (
        "_ahead",
        "_has_unread",
        "context",
        "header",
        "held_ms",
        "kept",
        "request",
        "sends_high_watermarks",
        "session",
    )

    def __init__(
        self,
        context: Context,
        session: Session,
        header: RequestHeader,
        request: FetchRequest,
        kept: FollowerSession,
    ) -> None:
        self.context = context
        self.session = session
        self.header = header
        self.request = request
        self.kept = kept
        self.sends_high_watermarks = selects_by_rack(context)
        """Whether a new high watermark is sent at once."""
        self._ahead = 0
        """Bytes that may still be read before they are sent."""
        self._has_unread = False
        """Whether the last read has records that are read when they are sent."""
        self.held_ms = 0.0
        """How long the leader's throttle holds back records of the last read."""

    def read(self) -> Read:
        """The result for each partition that is due, within the limits."""
        context = self.context
        self.held_ms = 0.0
        left = min(self.request.max_bytes, context.fetch_bytes_max)
        memory = context.client_memory
        self._ahead = left if memory is None else memory.read_ahead()
        self._has_unread = False
        must_give = True
        results: Read = []
        may = context.authorize(self.session, *_AS_REPLICA)
        for followed in list(self.kept.due.values()):
            result = self._read_one(followed, left, must_give, may)
            if result.records:
                left -= len(result.records)
                must_give = False
            results.append((followed, result))
        return results

    def _read_one(self, followed: FollowedPartition, left: int, must_give: bool, may: bool) -> FetchResult:
        topic, number = followed.key
        replicas = self.context.replicas
        try:
            if not may:
                raise KafkaError(
                    f"{self.session.principal} is not authorized to fetch as a replica",
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                )
            partition = replicas.led(topic, number)
            if partition is None:
                partition = replicas.find(topic, number)
            return self._read_from(partition, followed, left, must_give)
        except KafkaError as error:
            followed.leave()
            return FetchResult(number, error.code, _NO_OFFSET, _NO_OFFSET, _NO_OFFSET, b"")

    def _read_from(
        self, partition: Partition, followed: FollowedPartition, left: int, must_give: bool
    ) -> FetchResult:
        requested, request = followed.requested, self.request
        number, epoch, offset = requested.partition, requested.current_leader_epoch, requested.fetch_offset
        if epoch != partition.leader_epoch:
            partition.check_epoch(epoch)
        partition.check_follower(request.replica_id, request.replica_epoch, epoch)
        log = partition.log
        followed.attend(partition)
        diverging = diverging_epoch(partition, requested)
        if diverging is not None:
            followed.is_updated = False
            return FetchResult(
                number,
                0,
                partition.high_watermark,
                partition.last_stable,
                log.log_start,
                diverging_epoch=diverging,
            )
        if not log.log_start <= offset <= log.log_end:
            raise KafkaError(
                f"{partition.name} has offsets {log.log_start} to {log.log_end}, requested {offset}",
                ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        seen = self.kept.seen
        if followed.is_updated or not self._is_in_sync(partition):
            followed.is_updated = False
            partition.fetched_by(
                request.replica_id, request.replica_epoch, offset, requested.log_start_offset, seen.ms, seen
            )
        records: bytes | UnreadRecords = b""
        if offset < log.log_end and (left > 0 or must_give) and not self._holds_back(followed, partition):
            size = max(min(requested.partition_bytes_max, left), 0)
            records = partition.read_ahead(offset, size, self._ahead, whole_first=must_give)
            if isinstance(records, UnreadRecords):
                self._has_unread = True
            else:
                self._ahead -= len(records)
                if self.context.client_memory is not None:
                    self.context.client_memory.ahead_left -= len(records)
        high_watermark = partition.high_watermark
        stable = partition.last_stable if log.producers.ongoing else high_watermark
        return FetchResult(number, 0, high_watermark, stable, log.log_start, cast(Buffer, records))

    def _holds_back(self, followed: FollowedPartition, partition: Partition) -> bool:
        throttle = self.context.replicas.leader_throttle
        followed.is_held_back = False
        if throttle.is_idle or self._is_in_sync(partition):
            return False
        delay_ms = throttle.delay_ms(partition, self.context.world.clock_ns() // 1_000_000)
        followed.is_held_back = delay_ms > 0
        self.held_ms = max(self.held_ms, delay_ms)
        return followed.is_held_back

    def _is_in_sync(self, partition: Partition) -> bool:
        isr = partition.isr
        return isr is not None and self.request.replica_id in isr.committed

    def is_enough(self, read: Read) -> bool:
        total = 0
        for followed, result in read:
            if result.error_code or result.diverging_epoch is not None:
                return True
            if result.records:
                total += len(result.records)
            elif (
                self.sends_high_watermarks
                and self.kept.id != NO_SESSION  # without a session the last high watermark is unknown
                and result.high_watermark != followed.high_watermark
            ):
                return True
        return total >= self.request.min_bytes or not self.kept.followed

    def reply(self, read: Read) -> Reply:
        kept, header = self.kept, self.header
        metrics = self.context.metrics
        self._count(read)
        changed = kept.changed(read)
        if kept.id == NO_SESSION or self.request.session_epoch == FIRST_EPOCH:
            changed = [(followed.key[0], result) for followed, result in read]
        if kept.id == NO_SESSION:
            kept.close()
        by_topic: dict[TopicKey, list[FetchResult]] = {}
        for topic, result in changed:
            by_topic.setdefault(topic, []).append(result)
            if result.error_code:
                metrics.fetch.fail(result.error_code)
            elif result.records:
                metrics.replicated_bytes_out += len(result.records)
        pieces, _ = fetch_reply(
            header.api_version, header.correlation_id, list(by_topic.items()), session_id=kept.id
        )
        return UnreadReply(pieces) if self._has_unread else pieces

    def _count(self, read: Read) -> None:
        """Count the bytes of throttled partitions."""
        throttle = self.context.replicas.leader_throttle
        if throttle.is_idle:
            return
        now_ms = self.context.world.clock_ns() // 1_000_000
        for followed, result in read:
            if result.records and followed.partition is not None:
                throttle.gave(followed.partition, len(result.records), now_ms)


class DelayedReplicaFetch:
    """A follower's fetch that waits for changes in its session, or for its timeout."""

    __slots__ = ("_available", "_fetch", "_is_waking", "_timer", "later")

    def __init__(self, one: FollowerFetch, available: int) -> None:
        self._fetch = one
        self._available = available
        self._is_waking = False
        """The response is built in the next tick, after all writes of this one."""
        self._timer: Timer | None = None
        self.later: HoldingPromise[Reply] = HoldingPromise()

    def begin(self) -> None:
        one = self._fetch
        wait_ms = one.request.max_wait_ms
        if one.held_ms > 0:
            wait_ms = min(wait_ms, ceil(one.held_ms))
        self._timer = one.context.world.call_later(wait_ms, self._answer)
        one.kept.waiting = self
        one.session.state.fetch = self

    def wrote(self, bytes_more: int) -> None:
        self._available += bytes_more
        if self._available >= self._fetch.request.min_bytes:
            self.changed()

    def moved(self) -> None:
        if self._fetch.sends_high_watermarks:
            self.changed()

    def superseded(self) -> None:
        """The follower fetches on another connection, or its session is closed: it ignores this response."""
        self.cancel()
        self.later.resolve(self._fetch.reply([]))

    def changed(self) -> None:
        """Answer in the next tick."""
        if not self._is_waking:
            self._is_waking = True
            self._fetch.context.world.call_soon(self._answer)

    def _answer(self) -> None:
        if self.later.is_settled or self._timer is None:
            return
        self.cancel()
        self.later.resolve(self._fetch.reply(self._fetch.read()))

    def cancel(self) -> None:
        """Stop waiting, without a reply."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        kept = self._fetch.kept
        if kept.waiting is self:
            kept.waiting = None
        self._fetch.session.state.fetch = None
