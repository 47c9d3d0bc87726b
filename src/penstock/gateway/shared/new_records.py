"""Records to write: their fields, their checks, their results, and the append of a batch with `acks=all`."""

from typing import NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, TimestampMs
from penstock.base.internal_topics import INTERNAL_TOPICS
from penstock.base.promise import Promise
from penstock.gateway.idempotency import HEADER, IDEMPOTENCY_KEY_BYTES_MAX
from penstock.handlers.support.context import Context
from penstock.records.builder import Headers
from penstock.replica import ALL_IN_SYNC, Partition
from penstock.storage import Appended


class RecordPosition(NamedTuple):
    partition: int
    offset: Offset


class NewRecord(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    idempotency_key: str | None = None
    timestamp: TimestampMs | None = None
    """None for the time at which it is written."""


class RecordResult(NamedTuple):
    """The position of a written record, or the error of one that is not known to be written."""

    partition: int
    offset: Offset
    error: KafkaError | None = None
    may_be_written: bool = False
    """The record may be written in spite of the error: a retry may write it twice, unless it has an idempotency
    key."""


RECORD_OVERHEAD_BYTES_MAX = 46
"""Lengths, deltas, attributes and header count of a record, each at its longest."""


def check_key(partition: Partition, key: bytes | None) -> None:
    if key is None and partition.log.settings.is_compacted:
        raise KafkaError(
            f"the record has no key, and topic {partition.topic!r} is compacted",
            ErrorCode.INVALID_RECORD,
        )


def check_timestamp(partition: Partition, timestamp: TimestampMs | None, now_ms: TimestampMs) -> None:
    why = None if timestamp is None else partition.log.timestamp_fault(timestamp, now_ms)
    if why is not None:
        raise KafkaError(f"the timestamp {why}", ErrorCode.INVALID_TIMESTAMP)


def check_not_internal(topic: str, audit_topic: str = "") -> None:
    if topic in INTERNAL_TOPICS or (topic == audit_topic and topic):
        raise KafkaError(
            f"{topic} is an internal topic and cannot be written to", ErrorCode.INVALID_TOPIC_EXCEPTION
        )


def checked_idempotency_key(idempotency_key: str) -> bytes:
    key = idempotency_key.encode() if _is_unicode(idempotency_key) else b""
    if not 0 < len(key) <= IDEMPOTENCY_KEY_BYTES_MAX:
        raise KafkaError(
            f"an idempotency key must have 1 to {IDEMPOTENCY_KEY_BYTES_MAX} bytes of UTF-8",
            ErrorCode.INVALID_REQUEST,
        )
    return key


def check_headers(headers: Headers) -> None:
    for name, _ in headers:
        if name == HEADER:
            raise KafkaError(
                f"the header {HEADER} is reserved for idempotency keys",
                ErrorCode.INVALID_REQUEST,
            )
        if not name.isascii() and not _is_unicode(name):
            raise KafkaError("the key of a header is not valid Unicode", ErrorCode.INVALID_REQUEST)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def record_bytes_max(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Upper bound of the bytes that a record takes in a batch."""
    size = RECORD_OVERHEAD_BYTES_MAX + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += 10 + 4 * len(name) + len(content or b"")
    return size


WAIT_MS_MAX = 30_000
"""Timeout of a write, as `request.timeout.ms` of Kafka's clients."""


class Write(Promise[Appended]):
    """A `DelayedProduce` that is the promise of its result."""

    __slots__ = ("acks", "appended", "deadline_ms")

    appended: Appended
    """Set when the batch is staged."""

    def __init__(self, deadline_ms: TimestampMs) -> None:
        super().__init__()
        self.acks = ALL_IN_SYNC
        self.deadline_ms = deadline_ms

    def settle(self, error: KafkaError | None) -> None:
        if error is None:
            self.resolve(self.appended)
        else:
            self.fail(error)


def append(context: Context, partition: Partition, batch: bytearray) -> Promise[Appended]:
    """Append a batch of `build_batch`. Resolved when it is durable; after an error it may still be written."""
    now_ms = context.world.now_ms()
    write = Write(now_ms + WAIT_MS_MAX)

    def staged(appended: Appended) -> None:
        write.appended = appended
        partition.wait(write)

    partition.stage_own(batch, now_ms).then(staged, write.fail)
    return write
