"""Writes batches, byte for byte as Kafka's Java client does.

The base timestamp is that of the first record, or the delete horizon; the max timestamp is the largest. Records are
encoded as they are added; the header, whose CRC covers them, is written last.
"""

from collections.abc import Iterable, Sequence
from typing import TypedDict, Unpack

from penstock.base.ids import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    ProducerId,
    TimestampMs,
)

from .batch import (
    ATTRIBUTES_AT,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_MASK,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_MASK,
    Record,
)
from .checksum import crc32c
from .compression import Codec, compress
from .varint import SHORT_VARINTS, Readable, encode_varint, encode_varlong

Headers = Sequence[tuple[str, bytes | None]]

LAST_OFFSET_DELTA_MAX = (1 << 31) - 1

_NULL = b"\x01"
"""-1 as a varint: the length of null."""


def encode_record(
    offset_delta: int,
    timestamp_delta: int,
    key: Readable | None,
    value: Readable | None,
    headers: Headers = (),
) -> bytes:
    """Encode one record, preceded by its length."""
    if key is None:
        key_size, key = _NULL, b""
    else:
        size = len(key)
        key_size = SHORT_VARINTS[size] if size < 1024 else encode_varint(size)
    if value is None:
        value_size, value = _NULL, b""
    else:
        size = len(value)
        value_size = SHORT_VARINTS[size] if size < 1024 else encode_varint(size)
    timestamp = (
        SHORT_VARINTS[timestamp_delta] if 0 <= timestamp_delta < 1024 else encode_varlong(timestamp_delta)
    )
    offset = SHORT_VARINTS[offset_delta] if 0 <= offset_delta < 1024 else encode_varint(offset_delta)
    tail = _encode_headers(headers) if headers else b"\x00"
    body = b"".join((b"\x00", timestamp, offset, key_size, key, value_size, value, tail))
    size = len(body)
    return (SHORT_VARINTS[size] if size < 1024 else encode_varint(size)) + body


def _encode_headers(headers: Headers) -> bytes:
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        name_bytes = name.encode("utf-8", "surrogateescape")
        parts += (encode_varint(len(name_bytes)), name_bytes)
        parts += (_NULL,) if value is None else (encode_varint(len(value)), value)
    return b"".join(parts)


class BatchBuilder:
    """Collects records, then writes them as one batch.

    base_offset  append(..., offset=None)   each record one after the last
       100 ----- append(..., offset=103)    gaps are allowed, as compaction leaves them
                 append(..., offset=102)    ValueError: offsets increase
    """

    def __init__(
        self,
        base_offset: Offset = 0,
        *,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        timestamp_type_log_append: bool = False,
        producer_id: ProducerId = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        control: bool = False,
        leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
        delete_horizon_ms: TimestampMs | None = None,
    ) -> None:
        self.base_offset = base_offset
        self.codec = codec
        self.level = level
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.leader_epoch = leader_epoch
        self.attributes = (
            codec
            | (LOG_APPEND_TIME_MASK if timestamp_type_log_append else 0)
            | (TRANSACTIONAL_MASK if transactional else 0)
            | (CONTROL_MASK if control else 0)
            | (0 if delete_horizon_ms is None else DELETE_HORIZON_MASK)
        )
        self.base_timestamp = delete_horizon_ms
        self.max_timestamp: TimestampMs = NO_TIMESTAMP
        self.next_offset = base_offset
        self.records_bytes = 0
        """Bytes of the records so far, before compression."""
        self._records: list[bytes] = []

    def __len__(self) -> int:
        return len(self._records)

    def append(
        self,
        key: Readable | None,
        value: Readable | None,
        timestamp: TimestampMs,
        headers: Headers = (),
        offset: Offset | None = None,
    ) -> None:
        if offset is None:
            offset = self.next_offset
        elif offset < self.next_offset:
            raise ValueError(
                f"offset {offset} comes after {self.next_offset - 1}: offsets increase in a batch"
            )
        if timestamp < NO_TIMESTAMP:
            raise ValueError(f"timestamp {timestamp} is negative and not {NO_TIMESTAMP}, for none")
        base = timestamp if self.base_timestamp is None else self.base_timestamp
        record = encode_record(offset - self.base_offset, timestamp - base, key, value, headers)
        self._records.append(record)
        self.base_timestamp = base
        self.max_timestamp = max(self.max_timestamp, timestamp)
        self.records_bytes += len(record)
        self.next_offset = offset + 1

    def build(self, last_offset: Offset | None = None) -> bytes:
        """Write the batch. last_offset covers the offsets of last records that compaction removed."""
        if not self._records:
            raise ValueError("a batch has at least one record; empty_batch() writes what compaction leaves")
        if last_offset is None:
            last_offset = self.next_offset - 1
        elif last_offset < self.next_offset - 1:
            raise ValueError(
                f"the last record is at {self.next_offset - 1}, past the last offset {last_offset}"
            )
        payload = b"".join(self._records)
        if self.codec:
            payload = compress(self.codec, payload, self.level)
        header = bytearray(HEADER_BYTES)
        base_timestamp = self.base_timestamp
        assert base_timestamp is not None  # the first append set it
        fields = (
            self.attributes,
            _delta(self.base_offset, last_offset),
            base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            len(self._records),
        )
        length = HEADER_BYTES - LOG_OVERHEAD + len(payload)
        prefix = (self.base_offset, length, self.leader_epoch, MAGIC)
        HEADER.pack_into(header, 0, *prefix, 0, *fields)
        crc = crc32c(payload, crc32c(memoryview(header)[ATTRIBUTES_AT:]))
        return HEADER.pack(*prefix, crc, *fields) + payload


def _delta(base_offset: Offset, last_offset: Offset) -> int:
    delta = last_offset - base_offset
    if delta > LAST_OFFSET_DELTA_MAX:
        raise ValueError(f"offsets {base_offset} to {last_offset} span more than a batch can, 2^31")
    return delta


def empty_batch(
    base_offset: Offset,
    last_offset: Offset,
    *,
    timestamp: TimestampMs,
    producer_id: ProducerId = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    timestamp_type_log_append: bool = False,
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
) -> bytes:
    """A batch without records, which keeps a producer's last sequence and its offsets after compaction."""
    attributes = (
        (LOG_APPEND_TIME_MASK if timestamp_type_log_append else 0)
        | (TRANSACTIONAL_MASK if transactional else 0)
        | (CONTROL_MASK if control else 0)
    )
    prefix = (base_offset, HEADER_BYTES - LOG_OVERHEAD, leader_epoch, MAGIC)
    fields = (
        attributes,
        _delta(base_offset, last_offset),
        NO_TIMESTAMP,
        timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        0,
    )
    header = HEADER.pack(*prefix, 0, *fields)
    return HEADER.pack(*prefix, crc32c(memoryview(header)[ATTRIBUTES_AT:]), *fields)


class BatchOptions(TypedDict, total=False):
    """Keyword arguments of BatchBuilder."""

    base_offset: Offset
    codec: Codec
    level: int | None
    timestamp_type_log_append: bool
    producer_id: ProducerId
    producer_epoch: int
    base_sequence: int
    transactional: bool
    control: bool
    leader_epoch: LeaderEpoch
    delete_horizon_ms: TimestampMs | None


NewRecord = (
    tuple[Readable | None, Readable | None, TimestampMs]
    | tuple[Readable | None, Readable | None, TimestampMs, Headers]
)
"""Key, value, timestamp and perhaps headers: the arguments of BatchBuilder.append."""


def build_batch(records: Iterable[Record | NewRecord], **options: Unpack[BatchOptions]) -> bytes:
    """A batch of records.

    A Record keeps its offset, and the first one's is the base offset unless given in options; a plain tuple gets the
    next offset.
    """
    records = list(records)
    if records and isinstance(records[0], Record):
        options.setdefault("base_offset", records[0].offset)
    builder = BatchBuilder(**options)
    for record in records:
        if isinstance(record, Record):
            builder.append(record.key, record.value, record.timestamp, record.headers, record.offset)
        else:
            builder.append(*record)
    return builder.build()
