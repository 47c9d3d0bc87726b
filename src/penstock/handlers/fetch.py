"""Fetch (API 1): batches of partitions, at once or when there are enough.

Fetch 4 to 18.

Behaviour:
- A partition's records are whole batches, from the one that contains the requested offset. The first partition with
  records returns at least one batch, whatever the limits. Records beyond `ClientMemory.step` are read from the disk
  when the client has taken those before them.
- Limits: `partition_max_bytes` for a partition, `max_bytes` and the broker's `fetch.max.bytes` for the response. After
  `TICK_NS_MAX` of reading, the remaining partitions are returned without records, as if `max_bytes` were reached.
- With fewer bytes than `min_bytes` the fetch waits for more, at most `max_wait_ms`, unless a partition has an error.
- READ_COMMITTED returns records below the last stable offset, with the aborted transactions among them.
- Incremental fetch sessions (KIP-227): `support.fetch_sessions`.
- A client that names the epoch of its last batch gets the diverging epoch if its log differs from this one (KIP-595),
  and OFFSET_OUT_OF_RANGE for an epoch that this log does not have.
- A leader that may have been deposed replies NOT_LEADER_OR_FOLLOWER for an offset that it does not have
  (`replica.deposed_leader`).
- Consumers may read from a follower, from version 11 on, up to the high watermark that it knows. The leader directs
  them to a replica in their rack if `replica.selector.class` says so (KIP-392).
- A client above its quota gets no records, and is muted (`security.client_quotas`). One below it gets what is left of
  the quota, and at least one batch.
- Followers get records up to the log end: `support.follower_fetch`.
- A controller's listener serves Fetch of the metadata log: `raft`.

Version notes: 5 adds the log start offset; 7 sessions; 9 checks the leader epoch; 11 has a rack; 12 the epoch of the
last batch; 13 topic ids.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any

from penstock.base.errors import KafkaError
from penstock.base.ids import Offset
from penstock.base.metrics import TICK_NS_MAX
from penstock.base.promise import HoldingPromise
from penstock.base.world import Timer
from penstock.handlers.support.context import Context, Session
from penstock.handlers.support.diverging_epoch import diverging_epoch
from penstock.handlers.support.fetch_sessions import FINAL_EPOCH, FIRST_EPOCH, NO_SESSION, ConsumerSession
from penstock.handlers.support.follower_fetch import fetch_as_follower
from penstock.handlers.support.nearest_replica import THE_LEADER, nearest, selects_by_rack
from penstock.handlers.support.produce_admission import check_name, denied
from penstock.metadata.acls import CLUSTER_NAME, AclResourceType, Operation
from penstock.records.batch import LAST_OFFSET_DELTA_AT, LENGTH_AT, LOG_OVERHEAD
from penstock.records.counting import records_in
from penstock.replica import Partition
from penstock.replica.deposed_leader import retriable_if_deposed
from penstock.storage import StorageError
from penstock.storage.unread import UnreadRecords
from penstock.wire import (
    AbortedTransaction,
    Buffer,
    FetchPartition,
    FetchRequest,
    FetchResult,
    Piece,
    RequestHeader,
    TopicKey,
    UnreadReply,
    fetch_reply,
    parse_fetch,
)

if TYPE_CHECKING:
    from penstock.security.client_quotas import ClientQuotas

READ_COMMITTED = 1
_TOPIC_IDS = 13
_ANY_REPLICA = 11
"""The version from which consumers may read from followers."""
_NO_OFFSET = -1

_OFFSET, _LENGTH, _DELTA = Struct(">q"), Struct(">i"), Struct(">i")

UNLIMITED = 1 << 62

_COUNTED_BYTES = 64 * 1024
"""Bytes of unread records that are read to estimate their number."""

_new = tuple.__new__
_READ, _TOPIC = Operation.READ, AclResourceType.TOPIC

Reply = list[Piece]
Read = list[tuple[TopicKey, FetchResult]]


def fetch(
    context: Context, session: Session, frame: memoryview, header: RequestHeader
) -> Reply | HoldingPromise[Reply]:
    """Reply now, or when there are enough records."""
    request = parse_fetch(frame, header.body_at, header.api_version)
    version = header.api_version
    if request.replica_id >= 0:
        return fetch_as_follower(context, session, header, request)
    delay_ms = 0
    quotas, share = context.quotas, session.state.share
    if (
        quotas is not None
        and share is not None
        and share.fetch is not None
        and (share.fetch_credit <= 0 or context.metrics.tick_began_ns >= share.until_ns)
    ):
        delay_ms = share.fetch_delay_ms(context.metrics.tick_began_ns or quotas.now_ns())
    try:
        # A full fetch that is throttled opens no session, as in Kafka.
        kept = (
            None
            if delay_ms and request.session_epoch == FIRST_EPOCH
            else _session_of(context, request, version)
        )
    except KafkaError as error:
        context.metrics.fetch.fail(error.code)
        return fetch_reply(version, header.correlation_id, [], error_code=error.code)[0]
    if delay_ms:
        session.mute(delay_ms)
        session_id = NO_SESSION if kept is None else kept.id
        return fetch_reply(
            version, header.correlation_id, [], throttle_time_ms=delay_ms, session_id=session_id
        )[0]
    one = ConsumerFetch(context, session, header, request, kept)
    read = one.read()
    if one.is_enough(read) or request.max_wait_ms <= 0:
        return one.reply(read)
    waiting = DelayedConsumerFetch(one, one.bytes_of(read))
    waiting.begin()
    return waiting.later


def _session_of(context: Context, request: FetchRequest, version: int) -> ConsumerSession | None:
    uses_ids = version >= _TOPIC_IDS
    now_ms = context.world.now_ms()
    sessions = context.fetch_sessions
    if request.session_epoch == FINAL_EPOCH:
        if request.session_id != NO_SESSION:
            sessions.close(request.session_id)
        return None
    if request.session_epoch == FIRST_EPOCH:
        if request.session_id != NO_SESSION:
            sessions.close(request.session_id)
        return sessions.open(request, lambda number: ConsumerSession(number, uses_ids, now_ms), now_ms)
    return sessions.resume(request, ConsumerSession, uses_ids, now_ms)


def _end_of(records: bytes | UnreadRecords, offset: Offset, visible: Offset) -> Offset:
    """The first offset after these batches, of which the last may be incomplete; `offset` if there are none."""
    if isinstance(records, UnreadRecords):
        return records.end_offset(visible)
    end, at, size = offset, 0, len(records)
    while size - at >= LAST_OFFSET_DELTA_AT + _DELTA.size:
        end = (
            _OFFSET.unpack_from(records, at)[0]
            + _DELTA.unpack_from(records, at + LAST_OFFSET_DELTA_AT)[0]
            + 1
        )
        at += LOG_OVERHEAD + _LENGTH.unpack_from(records, at + LENGTH_AT)[0]
    return end


def _count_of(records: Buffer | UnreadRecords) -> int:
    """The approximate number of records."""
    if not isinstance(records, UnreadRecords):
        return records_in(records)
    try:
        return records_in(records.peek(_COUNTED_BYTES), len(records))
    except StorageError:
        return 0  # the error is reported when the records are sent


class ConsumerFetch:
    """A consumer's request. `read` may be called several times before `reply`."""

    __slots__ = (
        "_ahead",
        "_has_unread",
        "_is_of_gateway",
        "_notable",
        "_rack",
        "context",
        "header",
        "kept",
        "request",
        "session",
    )

    def __init__(
        self,
        context: Context,
        session: Session,
        header: RequestHeader,
        request: FetchRequest,
        kept: ConsumerSession | None,
    ) -> None:
        self.context = context
        self.session = session
        self.header = header
        self.request = request
        self.kept = kept
        self._rack = request.rack_id if request.rack_id and selects_by_rack(context) else ""
        """The consumer's rack, if replicas are selected by rack."""
        self._is_of_gateway = request.cluster_id is not None and context.authorize(
            session, Operation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME
        )
        """Whether another broker's gateway reads for a client that it has authorized: consumers name no cluster. A
        broker could also read everything as a follower."""
        self._notable: Read = []
        """Results of the last read that have records or an error."""
        self._ahead = 0
        """Bytes that may still be read before they are sent."""
        self._has_unread = False
        """Whether the last read has records that are read when they are sent."""

    @property
    def requested(self) -> Iterable[tuple[TopicKey, Sequence[FetchPartition]]]:
        return self.request.topics if self.kept is None else self.kept.requested()

    def read(self) -> Read:
        """The result for each partition, within the limits."""
        request = self.request
        context = self.context
        left = min(request.max_bytes, context.fetch_bytes_max)
        must_give = True
        self._has_unread = False
        results: Read = []
        notable = self._notable = []
        led = context.replicas.by_key.get
        simple = request.isolation_level != READ_COMMITTED and not self._rack
        clock_ns = context.world.clock_ns
        end_ns = 0
        readable: TopicKey | None = None
        """The last topic that the client is authorized to read."""
        for topic, partitions in self.requested:
            for asked in partitions:
                number, epoch, offset, fetched_epoch, _, _, _, _ = asked
                # Most partitions of most fetches have nothing new.
                if (
                    simple
                    and (partition := led((topic, number))) is not None
                    and offset == (high := partition.high_watermark)
                    and epoch in (-1, partition.leader_epoch)
                    and fetched_epoch < 0
                    and (topic is readable or topic == readable or self._may_read(partition.topic))
                ):
                    readable = topic
                    log = partition.log
                    stable = partition.last_stable if log.producers.ongoing else high
                    result = _new(
                        FetchResult, (number, 0, high, stable, log.log_start, b"", None, -1, None, None, None)
                    )
                else:
                    if not end_ns:
                        end_ns = clock_ns() + TICK_NS_MAX
                        if context.quotas is not None:
                            left = min(left, self._quota_bytes_max(context.quotas))
                        memory = context.client_memory
                        self._ahead = left if memory is None else memory.read_ahead()
                    result = self._read_one(topic, asked, left, must_give)
                    if result.records:
                        left = left - len(result.records) if clock_ns() < end_ns else 0
                        must_give = False
                        notable.append((topic, result))
                    elif result.error_code:
                        notable.append((topic, result))
                results.append((topic, result))
        return results

    def _quota_bytes_max(self, quotas: "ClientQuotas") -> int:
        """How much the client's quota allows."""
        share = self.session.state.share
        return UNLIMITED if share is None else share.fetch_bytes_max(quotas.now_ns())

    def replica(self, topic: TopicKey, number: int) -> Partition | None:
        """The partition, if this broker may serve this client from it."""
        replicas = self.context.replicas
        found = replicas.led(topic, number)
        if found is None and self.header.api_version >= _ANY_REPLICA:
            found = replicas.held(topic, number)
            if found is not None and found.is_behind:
                return None
        return found

    def _may_read(self, topic: str) -> bool:
        return self._is_of_gateway or self.context.authorize(self.session, _READ, _TOPIC, topic)

    def _read_one(self, topic: TopicKey, asked: FetchPartition, left: int, must_give: bool) -> FetchResult:
        number = asked.partition
        context = self.context
        try:
            partition = self.replica(topic, number)
            if partition is None:
                if not self._is_of_gateway:
                    check_name(context, self.session, _READ, topic)
                partition = context.replicas.find(topic, number)
            self._admit(partition, asked)
            high, stable = partition.high_watermark, partition.last_stable
            offset = asked.fetch_offset
            start = partition.log.log_start
            committed_only = self.request.isolation_level == READ_COMMITTED
            visible = stable if committed_only else high
            diverging = diverging_epoch(partition, asked)
            if diverging is not None:
                return FetchResult(number, 0, high, stable, start, diverging_epoch=diverging)
            if self._rack and partition.isr is not None:
                preferred = nearest(context, partition, offset, self._rack)
                if preferred != THE_LEADER:
                    return FetchResult(number, 0, high, stable, start, b"", preferred_read_replica=preferred)
            if offset == visible or (
                left <= 0 and not must_give and start <= offset <= partition.log.log_end
            ):
                return FetchResult(number, 0, high, stable, start, b"", [] if committed_only else None)
            size = min(asked.partition_bytes_max, left)
            records: Any = partition.read_ahead(
                offset, max(size, 0), self._ahead, visible=visible, whole_first=must_give
            )
            if isinstance(records, UnreadRecords):
                self._has_unread = True
            else:
                length = len(records)
                self._ahead -= length
                if context.client_memory is not None:
                    context.client_memory.ahead_left -= length
            aborted = None
            if committed_only:
                aborted = [
                    AbortedTransaction(each.producer_id, each.first_offset)
                    for each in partition.log.aborted(offset, _end_of(records, offset, visible))
                ]
            return _new(FetchResult, (number, 0, high, stable, start, records, aborted, -1, None, None, None))
        except KafkaError as error:
            led = context.replicas.led(topic, number)
            code = error.code if led is None else retriable_if_deposed(led, error).code
            return FetchResult(number, code, _NO_OFFSET, _NO_OFFSET, _NO_OFFSET, b"", [])

    def _admit(self, partition: Partition, asked: FetchPartition) -> None:
        if not self._may_read(partition.topic):
            raise denied(self.session, _READ, partition.topic)
        if asked.current_leader_epoch != -1:
            partition.check_epoch(asked.current_leader_epoch)

    def is_enough(self, read: Read) -> bool:
        if not read:
            return True
        total = 0
        for _, result in read:
            if result[1] or result[8] is not None or result[7] >= 0:
                return True
            if result[5]:
                total += len(result[5])
        return total >= self.request.min_bytes

    @staticmethod
    def bytes_of(read: Read) -> int:
        return sum(len(result.records) for _, result in read if result.records)

    def reply(self, read: Read) -> Reply:
        header, kept = self.header, self.kept
        if self._notable:
            self._count()
        session_id = NO_SESSION
        if kept is not None:
            session_id = kept.id
            changed = kept.changed(read)
            if self.request.session_epoch != FIRST_EPOCH:
                read = changed
        by_topic: dict[TopicKey, list[FetchResult]] = {}
        last: TopicKey | None = None
        for topic, result in read:
            if topic is not last:
                last = topic
                results = by_topic.setdefault(topic, [])
            results.append(result)
        pieces, size = fetch_reply(
            header.api_version, header.correlation_id, list(by_topic.items()), session_id=session_id
        )
        if self.context.quotas is not None and (share := self.session.state.share) is not None:
            share.fetch_credit -= size
        return UnreadReply(pieces) if self._has_unread else pieces

    def _count(self) -> None:
        """Count errors, bytes and records of the reply. Reads that returned too little are not counted."""
        for topic, result in self._notable:
            records = result.records
            if not records:
                self.context.metrics.fetch.fail(result.error_code)
            elif (partition := self.replica(topic, result.partition)) is not None:
                partition.bytes_out += len(records)
                partition.messages_out += _count_of(records)


class DelayedConsumerFetch:
    """A fetch that waits for more bytes in its partitions, or for its timeout. A `DelayedFetch` of each partition."""

    __slots__ = ("_available", "_fetch", "_partitions", "_timer", "later")

    def __init__(self, one: ConsumerFetch, available: int) -> None:
        self._fetch = one
        self._available = available
        """An upper estimate of the bytes to read."""
        self._partitions: list[Partition] = []
        self._timer: Timer | None = None
        self.later: HoldingPromise[Reply] = HoldingPromise()

    def begin(self) -> None:
        one = self._fetch
        for topic, partitions in one.requested:
            for asked in partitions:
                partition = one.replica(topic, asked.partition)
                if partition is not None:
                    partition.watch(self)
                    self._partitions.append(partition)
        self._timer = one.context.world.call_later(one.request.max_wait_ms, self.changed)
        one.session.state.fetch = self

    def grew(self, bytes_more: int) -> None:
        self._available += bytes_more
        if self._available >= self._fetch.request.min_bytes:
            self.decided()

    def decided(self) -> None:
        read = self._fetch.read()
        if self._fetch.is_enough(read):
            self._finish(read)
        else:  # new records may be above the last stable offset
            self._available = self._fetch.bytes_of(read)

    def changed(self) -> None:
        """A partition changed in another way, or time is up."""
        self._finish(self._fetch.read())

    def _finish(self, read: Read) -> None:
        self.cancel()
        self.later.resolve(self._fetch.reply(read))

    def cancel(self) -> None:
        """Stop waiting, without a reply."""
        if self._timer is not None:
            self._timer.cancel()
        for partition in self._partitions:
            partition.unwatch(self)
        self._partitions = []
        self._fetch.session.state.fetch = None
