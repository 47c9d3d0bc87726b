"""The way of a producer's small batches, known from the request before: one look at the frame, and it is staged.

A producer that sends one record at a time says nearly the same thing in each request (`wire.prefix`), to the same
partition. What can be known before the next request comes is prepared here: where each number of frame and batch
header lies, the partition, the reply around its offset. Then `take` reads all numbers with one call and
compares them with what the ordinary way (`produce`, `Log.stage`, `validate_produced`) would ask for.

It takes only what that way would take without a word: flexible versions, acks 1 or all, a batch of 128 bytes to 16 KB
(whose length has two bytes) without producer id and flags, for a log without `flush.messages`. Of anything else, and
of all that is wrong, it says None, and the ordinary way has a look, and the words.
"""

from struct import Struct

from penstock.base.errors import KafkaError
from penstock.base.ids import NO_TIMESTAMP, Offset, TimestampMs
from penstock.base.promise import Promise
from penstock.handlers.support.context import Context
from penstock.handlers.support.produce_writers import Foretold, Reply, refusal
from penstock.records import DECOMPRESSED_BYTES_MAX, HEADER, HEADER_BYTES, LOG_OVERHEAD
from penstock.records.batch import ATTRIBUTES_AT, LENGTH_MIN, MAGIC
from penstock.records.checksum import crc32c
from penstock.records.unpacked import RECORD_BYTES_MIN, surely_fits
from penstock.replica import ALL_IN_SYNC, Partition
from penstock.storage import Appended
from penstock.wire import ProducePrefix, ProduceRequest
from penstock.wire.prefix import NO_TAGS
from penstock.wire.produce import FLEXIBLE, reply_template

NEVER_FLUSHED = 2**63 - 1
"""`flush.messages` of a log whose records need no sync before they are acknowledged."""

_CODEC_MAX = _ZSTD = 4
_NEVER = 2**31
"""Bytes that no frame has."""
_new = tuple.__new__

_NO_TAGS_BYTES = len(NO_TAGS)
"""Three of them, all 0; each is looked at by itself, which is quicker than to cut them out."""


class ProduceFastPath:
    """A partition that a producer was let to; good for the same request as long as the image is the same."""

    __slots__ = (
        "_acks",
        "_after",
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
        "_reply_bytes",
        "_request",
        "_same",
        "_timeout_ms",
        "_topic",
        "_unpack",
        "_version",
    )

    def __init__(self, context: Context, prefix: ProducePrefix, partition: Partition) -> None:
        header, request = prefix.header, prefix.request
        assert header is not None
        assert request is not None
        self._context = context
        self._image = context.image
        self._meter = context.metrics.produce
        self._now_ms = context.world.now_ms
        self._partition = partition
        self._number = partition.number
        self._request = request
        self._head, self._same = prefix.head, prefix.same
        self._topic = prefix.topic
        version = self._version = header.api_version
        self._batch_at = batch_at = prefix.records_at + 2
        self._crc_from = batch_at + ATTRIBUTES_AT
        self._unpack = Struct(f">4si{len(prefix.same)}siBB{HEADER.format[1:]}").unpack_from
        self._acks, self._timeout_ms = request.acks, request.timeout_ms
        is_express = version >= FLEXIBLE and request.acks in (1, ALL_IN_SYNC)
        self._bytes_min = batch_at + HEADER_BYTES + _NO_TAGS_BYTES if is_express else _NEVER
        frame, self._reply_bytes, self._before, self._after = reply_template(version, prefix.topic)
        self._pack = frame.pack

    def leads_to(self, request: ProduceRequest, number: int) -> bool:
        """Whether a request that begins like this one, for this partition, may go there still."""
        return (
            self._request is request
            and self._number == number
            and self._image is self._context.image
            and self._partition.is_leader
        )

    @property
    def partition(self) -> Partition:
        return self._partition

    def take(self, frame: memoryview) -> "Reply | FastPathWrite | None":
        """Stage the batch of a request, if it is one that goes this way; its reply, to be sent after the write or, if
        it waits for more than that, later."""
        if len(frame) < self._bytes_min:
            return None
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
            # The records' length and one, in two bytes of seven bits, the lower one first and with its top bit set.
            and size_low > 127 >= size_high
            and (size_low & 127) + (size_high << 7) - 1 == LOG_OVERHEAD + length
            and len(frame) == end + _NO_TAGS_BYTES
            and not (frame[end] or frame[end + 1] or frame[end + 2])
            and magic == MAGIC
            and not base_offset
            and 0 <= attributes <= _CODEC_MAX
            and producer_id < 0
            and count == last_offset_delta + 1 > 0
            # What the records take at least, and at most: of so small a batch only zstd's is not known to be bounded.
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
            return None
        now_ms = self._now_ms()
        base_offset = partition.stage_plain(
            frame[batch_at:end], length, last_offset_delta, max_timestamp, now_ms
        )
        if base_offset < 0:
            return None
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
        partition.appends.prepared_replies.append(
            _new(
                Foretold,
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
    """A batch that came this way, and waits for all replicas in sync; a `DelayedProduce`, and its answer."""

    __slots__ = ("_correlation_id", "_route", "appended", "deadline_ms")

    acks = ALL_IN_SYNC

    def __init__(
        self,
        route: ProduceFastPath,
        correlation_id: int,
        base_offset: Offset,
        last_offset: Offset,
        deadline_ms: TimestampMs,
    ) -> None:
        self.is_settled = False
        self._on_value = self._on_error = self.error = None
        self.asked = None
        self._route = route
        self._correlation_id = correlation_id
        self.appended = _new(Appended, (base_offset, last_offset, NO_TIMESTAMP, False))
        self.deadline_ms = deadline_ms

    def settle(self, error: KafkaError | None) -> None:
        route, correlation_id = self._route, self._correlation_id
        if error is None:
            self.resolve([route.reply(correlation_id, self.appended.base_offset)])
        else:
            self.resolve([route.refusal(correlation_id, error)])
