"""What can be seen of a record alone: whether it may be written, and how large it gets."""

from penstock.base.errors import ErrorCode, KafkaError
from penstock.gateway.idempotency import HEADER, IDEMPOTENCY_KEY_BYTES_MAX
from penstock.handlers.support.internal_topics import INTERNAL_TOPICS
from penstock.records.builder import Headers
from penstock.replica import Partition

RECORD_OVERHEAD_BYTES_MAX = 46
"""Lengths, deltas, attributes and count of headers of a record, each as long as it can get."""


def check_key(partition: Partition, key: bytes | None) -> None:
    if key is None and partition.log.settings.is_compacted:
        raise KafkaError(
            f"a record without a key is refused: topic {partition.topic!r} is compacted",
            ErrorCode.INVALID_RECORD,
        )


def check_not_internal(topic: str) -> None:
    if topic in INTERNAL_TOPICS:
        raise KafkaError(f"{topic} is written by coordinators alone", ErrorCode.INVALID_TOPIC_EXCEPTION)


def checked_idempotency_key(idempotency_key: str) -> bytes:
    key = idempotency_key.encode() if _is_unicode(idempotency_key) else b""
    if not 0 < len(key) <= IDEMPOTENCY_KEY_BYTES_MAX:
        raise KafkaError(
            f"an idempotency key is text of 1 to {IDEMPOTENCY_KEY_BYTES_MAX} bytes in UTF-8",
            ErrorCode.INVALID_REQUEST,
        )
    return key


def check_headers(headers: Headers) -> None:
    for name, _ in headers:
        if name == HEADER:
            raise KafkaError(
                f"the header {HEADER} is where an idempotency key is kept, and cannot be given otherwise",
                ErrorCode.INVALID_REQUEST,
            )
        if not name.isascii() and not _is_unicode(name):
            raise KafkaError("the name of a header is not valid Unicode", ErrorCode.INVALID_REQUEST)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def record_bytes_max(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """What a record takes in a batch, at most."""
    size = RECORD_OVERHEAD_BYTES_MAX + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += 10 + 4 * len(name) + len(content or b"")
    return size
