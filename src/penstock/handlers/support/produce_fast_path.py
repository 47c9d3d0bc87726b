"""Fast path of Produce: requests that repeat the connection's last one, with other records.

A producer sends nearly the same request again and again (`wire.prefix`), mostly to one partition. `take` has two
stages, each of which handles only requests that `produce` would accept:

- A small batch for the partition of the last request. All positions in frame and batch header, the partition and the
  reply around its offset are known, so that one `unpack` reads all numbers, and one condition checks what `produce`,
  `Log.stage` and `validate_produced` would check. Flexible versions, acks 1 or all, a batch of 128 bytes to 16 KB
  (whose length takes two bytes) without producer id and flags, a log without `flush.messages`.
- Any other request with the same header, transactional id, acks, timeout and topic, and one partition: it is written
  by `write_one`, without being parsed.

Otherwise `take` returns None, and `produce` parses, validates and reports.
"""

from struct import Struct

from penstock.base.errors import KafkaError
from penstock.base.ids import NO_TIMESTAMP, Offset, TimestampMs
from penstock.base.promise import Promise
from penstock.handlers.support.context import Context, Session
from penstock.handlers.support.produce_admission import admit, batch_error
from penstock.handlers.support.produce_one import NEVER_FLUSHED, refuse, write_one
from penstock.handlers.support.produce_writers import AcksOneReply, Reply, refusal
from penstock.handlers.support.replies import NO_REPLY, NoReply
from penstock.metadata.image import ClusterImage
from penstock.records import DECOMPRESSED_BYTES_MAX, HEADER, HEADER_BYTES, LOG_OVERHEAD
from penstock.records.batch import ATTRIBUTES_AT, LENGTH_MIN, MAGIC
from penstock.records.checksum import crc32c
from penstock.records.decompressed_size import RECORD_BYTES_MIN, surely_fits
from penstock.replica import ALL_IN_SYNC, Partition
from penstock.storage import Appended
from penstock.wire import ProducePrefix, ProduceRequest, RequestHeader
from penstock.wire.prefix import NO_TAGS
from penstock.wire.produce import FLEXIBLE, reply_template

_CODEC_MAX = _ZSTD = 4
_NEVER = 2**31
"""Larger than any frame."""
_new = tuple.__new__

_NO_TAGS_BYTES = len(NO_TAGS)
"""Three zero bytes. Each is compared by itself, which is faster than slicing them."""


class ProduceFastPath:
    """Of one connection, and from its second request on of one partition. Immutable but for the prefix it learns:
    replies that wait are built from it."""

    __slots__ = (
        "_acks",
        "_after",
        "_appends",
        "_batch_at",
        "_before",
        "_bytes_min",
        "_context",
        "_crc_from",
        "_head",
        "_image",
        "_meter",
        "_now_ms",
        "_number",
        "_pack",
        "_partition",
        "_prefix",
        "_reply_bytes",
        "_request",
        "_same",
        "_session",
        "_timeout_ms",
        "_topic",
        "_unpack",
        "_version",
    )

    def __init__(
        self,
        context: Context,
        session: Session,
        prefix: ProducePrefix | None = None,
        partition: Partition | None = None,
    ) -> None:
        """With a partition, expect small batches for it in requests with this prefix."""
        self._context = context
        self._session = session
        self._prefix = prefix = ProducePrefix() if prefix is None else prefix
        self._meter = context.metrics.produce
        self._now_ms = context.world.now_ms
        self._bytes_min = _NEVER
        self._request = prefix.request
        self._image: ClusterImage | None = None
        header, request = prefix.header, prefix.request
        if partition is None or header is None or request is None:
            self._number = -1
            return
        self._image = context.image
        self._partition = partition
        self._appends = partition.appends
        self._number = partition.number
        self._head, self._same = prefix.head, prefix.same
        self._topic = prefix.topic
        version = self._version = header.api_version
        self._batch_at = batch_at = prefix.records_at + 2
        self._crc_from = batch_at + ATTRIBUTES_AT
        self._unpack = Struct(f">4si{len(prefix.same)}siBB{HEADER.format[1:]}").unpack_from
        self._acks, self._timeout_ms = request.acks, request.timeout_ms
        if version >= FLEXIBLE and request.acks in (1, ALL_IN_SYNC):
            self._bytes_min = batch_at + HEADER_BYTES + _NO_TAGS_BYTES
        frame, self._reply_bytes, self._before, self._after = reply_template(version, prefix.topic)
        self._pack = frame.pack

    def learn(self, frame: memoryview, header: RequestHeader, request: ProduceRequest) -> None:
        """Remember a request that was parsed."""
        self._prefix.learn(frame, header, request)

    def take(self, frame: memoryview) -> Reply | Promise[Reply] | NoReply | None:
        """Stage the batch of a request, if this path handles it. The reply may be sent once the tick's writes are
        done."""
        if len(frame) < self._bytes_min:
            return self._repeat(frame)
        (
            head,
            correlation_id,
            same,
            number,
            size_low,
            size_high,
            base_offset,
            length,
            _,
            magic,
            crc,
            attributes,
            last_offset_delta,
            _,
            max_timestamp,
            producer_id,
            _,
            _,
            count,
        ) = self._unpack(frame)
        batch_at = self._batch_at
        end = batch_at + LOG_OVERHEAD + length
        partition = self._partition
        log = partition.log
        if not (
            same == self._same
            and head == self._head
            and number == self._number
            # The length of the records plus one, as a varint of two bytes.
            and size_low > 127 >= size_high
            and (size_low & 127) + (size_high << 7) - 1 == LOG_OVERHEAD + length
            and len(frame) == end + _NO_TAGS_BYTES
            and not (frame[end] or frame[end + 1] or frame[end + 2])
            and magic == MAGIC
            and not base_offset
            and 0 <= attributes <= _CODEC_MAX
            and producer_id < 0
            and count == last_offset_delta + 1 > 0
            # The least and the most that the records take. Only zstd can expand so small a batch beyond the limit.
            and count * RECORD_BYTES_MIN <= (DECOMPRESSED_BYTES_MAX if attributes else length - LENGTH_MIN)
            and (
                attributes != _ZSTD
                or surely_fits(_ZSTD, frame[batch_at + HEADER_BYTES : end], DECOMPRESSED_BYTES_MAX)
            )
            and LOG_OVERHEAD + length <= log.plain_bytes_max
            and log.settings.flush_messages == NEVER_FLUSHED
            and self._image is self._context.image
            and partition.is_leader
            and (self._acks == 1 or partition.isr_size >= partition.min_isr)
            and crc32c(frame[self._crc_from : end]) == crc
        ):
            return self._repeat(frame)
        now_ms = self._now_ms()
        base_offset = self._appends.stage_plain(
            frame[batch_at:end], length, last_offset_delta, max_timestamp, now_ms
        )
        if base_offset < 0:
            return self._repeat(frame)
        if self._acks != 1:
            write = FastPathWrite(
                self, correlation_id, base_offset, base_offset + last_offset_delta, now_ms + self._timeout_ms
            )
            partition.wait(write)
            return write
        reply = bytearray(
            self._pack(
                self._reply_bytes,
                correlation_id,
                self._before,
                number,
                0,
                base_offset,
                -1,
                log.log_start,
                self._after,
            )
        )
        self._appends.prepared_replies.append(
            _new(
                AcksOneReply,
                (
                    base_offset + last_offset_delta,
                    reply,
                    self._meter,
                    self._version,
                    correlation_id,
                    self._topic,
                    number,
                ),
            )
        )
        return [reply]

    def _repeat(self, frame: memoryview) -> Reply | Promise[Reply] | NoReply | None:
        """Write the batch of a request that has the learned prefix and one partition."""
        prefix = self._prefix
        if len(frame) <= 2 or frame[1] or (repeated := prefix.match(frame)) is None:  # Produce is API 0
            return None
        context, session = self._context, self._session
        correlation_id, number, records = repeated
        header, request, topic = prefix.header, prefix.request, prefix.topic
        assert header is not None
        assert request is not None
        version = header.api_version
        if (
            self._request is request
            and self._number == number
            and self._image is context.image
            and self._partition.is_leader
        ):
            partition = self._partition
        else:
            try:
                partition = admit(context, session, header.client_id, request, topic, number)
            except KafkaError as error:
                refused = batch_error(context, topic, number, records, error)
                return refuse(context, version, correlation_id, request, topic, number, refused)
            session.state.produce = ProduceFastPath(context, session, prefix, partition)
        written = write_one(context, session, version, correlation_id, request, topic, partition, records)
        return written or NO_REPLY

    def reply(self, correlation_id: int, base_offset: Offset) -> bytes:
        return self._pack(
            self._reply_bytes,
            correlation_id,
            self._before,
            self._number,
            0,
            base_offset,
            -1,
            self._partition.log.log_start,
            self._after,
        )

    def refusal(self, correlation_id: int, error: KafkaError) -> bytes:
        return refusal(self._meter, self._version, correlation_id, self._topic, self._number, error)


class FastPathWrite(Promise[Reply]):
    """A batch with acks=all: a `DelayedProduce`, and the promise of its reply."""

    __slots__ = ("_correlation_id", "_path", "appended", "deadline_ms")

    acks = ALL_IN_SYNC

    def __init__(
        self,
        path: ProduceFastPath,
        correlation_id: int,
        base_offset: Offset,
        last_offset: Offset,
        deadline_ms: TimestampMs,
    ) -> None:
        self.is_settled = False
        self._on_value = self._on_error = self.error = None
        self.request_start = None
        self._path = path
        self._correlation_id = correlation_id
        self.appended = _new(Appended, (base_offset, last_offset, NO_TIMESTAMP, False))
        self.deadline_ms = deadline_ms

    def settle(self, error: KafkaError | None) -> None:
        path, correlation_id = self._path, self._correlation_id
        if error is None:
            self.resolve([path.reply(correlation_id, self.appended.base_offset)])
        else:
            self.resolve([path.refusal(correlation_id, error)])
