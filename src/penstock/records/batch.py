"""Record batch v2 (magic 2): the unit in which records are sent, stored and checksummed.

    byte  0 base offset        8    the first record's offset
          8 length             4    bytes that follow this field
         12 leader epoch       4    set by the leader; like the base offset not covered by the CRC
         16 magic              1    2
         17 CRC-32C            4    of everything from byte 21 on
         21 attributes         2    codec (0-2), timestamp type (3), transactional (4), control (5),
                                    delete horizon (6)
         23 last offset delta  4    compaction keeps it even if it removes the last record
         27 base timestamp     8    base of the records' timestamps; the delete horizon if bit 6 is
                                    set
         35 max timestamp      8
         43 producer id        8    -1 without idempotence, as are epoch and sequence
         51 producer epoch     2
         53 base sequence      4
         57 record count       4
         61 records                 compressed as one piece

A `RecordBatch` reads only the header, and decodes records on demand: the broker appends, indexes and serves batches
without decoding them.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple, NoReturn

from penstock.base.ids import LeaderEpoch, Offset, ProducerId, TimestampMs

from .checksum import crc32c
from .compression import Codec, decompress
from .errors import CorruptBatch, UnsupportedMagic
from .varint import Readable, decode_varint, decode_varlong

HEADER = Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
LOG_OVERHEAD = 12
"""Bytes of base offset and length, which the length field does not count."""

LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD

OLD_LENGTH_MIN = 14
"""Smallest length of a message of magic 0. Below it, a zero magic byte is a file's blank tail."""

BASE_OFFSET_AT = 0
LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
FLAGS_AT = ATTRIBUTES_AT + 1
"""Low byte of the attributes, to which all masks below apply."""
LAST_OFFSET_DELTA_AT = 23
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
PRODUCER_EPOCH_AT = 51
BASE_SEQUENCE_AT = 53
COUNT_AT = 57
RECORDS_AT = HEADER_BYTES

MAGIC = 2

CODEC_MASK = 0x07
LOG_APPEND_TIME_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40

SEQUENCE_MASK = 0x7FFF_FFFF
"""Sequence numbers wrap from 2^31 - 1 to 0."""

DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024
"""Default limit: a hundred times Kafka's default size of a batch (message.max.bytes)."""

PRODUCER = Struct(">qhi")
"""Producer id, epoch and base sequence, from `PRODUCER_ID_AT` on."""

_LENGTH = Struct(">i")
_OFFSET = Struct(">q")
_CRC = Struct(">I")
_INT64_MAX = (1 << 63) - 1


class Record(NamedTuple):
    """One record, decoded. Header keys that are not UTF-8 keep their bytes as surrogate escapes."""

    offset: Offset
    timestamp: TimestampMs
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    attributes: int = 0
    """Unused by Kafka, always 0."""


PACK_PLACE = Struct(">qii").pack_into
"""Packs base offset, length and leader epoch, the first fields, which change when a batch is appended."""


class RecordBatch:
    """A batch in a buffer: the header's fields, and a view of the bytes.

    The fields are copied when the batch is parsed; only `place` changes both buffer and fields.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "count",
        "crc",
        "last_offset_delta",
        "leader_epoch",
        "length",
        "magic",
        "max_timestamp",
        "producer_epoch",
        "producer_id",
        "size",
        "view",
    )

    view: memoryview
    """The whole batch, header included; shares the memory of the buffer it was parsed from."""
    base_offset: Offset
    length: int
    leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: TimestampMs
    max_timestamp: TimestampMs
    producer_id: ProducerId
    producer_epoch: int
    base_sequence: int
    count: int
    size: int
    """Bytes of the whole batch: the length field plus `LOG_OVERHEAD`."""

    @classmethod
    def parse(cls, buffer: Readable, position: int = 0) -> "RecordBatch":
        """Parse the batch at position. Checks magic and length, but neither CRC nor records."""
        buffer_end = len(buffer)
        if position < 0 or buffer_end - position < 61:
            _explain_short(buffer, position, buffer_end - position)
        self = cls.__new__(cls)
        (
            self.base_offset,
            self.length,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        ) = HEADER.unpack_from(buffer, position)
        length = self.length
        self.size = 12 + length
        end = position + 12 + length
        if self.magic != 2 or length < 49 or end > buffer_end:
            _explain_header(self.magic, length, buffer_end - position, position)
        if position == 0 and end == buffer_end and type(buffer) is memoryview:
            self.view = buffer
        else:
            self.view = memoryview(buffer)[position:end]
        return self

    def __repr__(self) -> str:
        return (
            f"RecordBatch({self.base_offset}..{self.last_offset}, {self.count} records, {self.size} bytes, "
            f"attributes={self.attributes:#x}, leader_epoch={self.leader_epoch}, "
            f"producer={self.producer_id}/{self.producer_epoch}/{self.base_sequence})"
        )

    @property
    def last_offset(self) -> Offset:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> Offset:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The last record's sequence number; -1 if the batch has none."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MASK

    @property
    def codec(self) -> Codec:
        try:
            return Codec(self.attributes & CODEC_MASK)
        except ValueError:
            found = self.attributes & CODEC_MASK
            raise CorruptBatch(f"{self._name} has codec {found}; codecs are 0 to 4") from None

    @property
    def is_compressed(self) -> bool:
        return self.attributes & CODEC_MASK != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_MASK != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_MASK != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0

    @property
    def log_append_time(self) -> bool:
        """Whether all records have the append time, max_timestamp, as their timestamp."""
        return self.attributes & LOG_APPEND_TIME_MASK != 0

    @property
    def delete_horizon_ms(self) -> TimestampMs | None:
        """When compaction may drop this batch's tombstones and markers; None if not set yet."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_MASK else None

    @property
    def payload(self) -> memoryview:
        """The records, compressed as they are."""
        return self.view[RECORDS_AT:]

    @property
    def _name(self) -> str:
        return f"the batch at offset {self.base_offset}"

    def place(self, base_offset: Offset, leader_epoch: LeaderEpoch) -> None:
        """Set base offset and leader epoch, in the buffer (which must be writable) and in the fields."""
        PACK_PLACE(self.view, 0, base_offset, self.length, leader_epoch)
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch

    def crc_valid(self) -> bool:
        return crc32c(self.view[ATTRIBUTES_AT:]) == self.crc

    def check_crc(self) -> None:
        expected = crc32c(self.view[ATTRIBUTES_AT:])
        if expected != self.crc:
            raise CorruptBatch(f"{self._name} has CRC {self.crc:#010x}, its bytes give {expected:#010x}")

    def decompressed(self, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> memoryview:
        """The records' bytes after decompression; without compression a view, not a copy."""
        return decompress(self.codec, self.payload, max_bytes)

    def records(self, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
        """Decode the records one by one. A malformed record raises when it is reached.

        max_bytes limits the decompressed size; positions in errors count from the first record.
        """
        if self.count < 0:
            raise CorruptBatch(f"{self._name} counts {self.count} records")
        if self.count == 0 and self.length == LENGTH_MIN:
            return iter(())  # emptied by compaction: only a header with producer and offsets
        data = bytes(self.decompressed(max_bytes) if self.is_compressed else self.payload)
        return _decode_records(self, data)


def _explain_short(buffer: Readable, position: int, available: int) -> NoReturn:
    if position >= 0 and available > MAGIC_AT:
        (length,) = _LENGTH.unpack_from(buffer, position + LENGTH_AT)
        magic = buffer[position + MAGIC_AT]
        if length < LENGTH_MIN or magic in (0, 1):
            _explain_header(magic, length, available, position)
    raise CorruptBatch(f"a batch header takes {HEADER_BYTES} bytes, {available} are there", position)


def _explain_header(magic: int, length: int, available: int, position: int) -> NoReturn:
    if magic in (0, 1) and length >= OLD_LENGTH_MIN:
        raise _old_magic(magic, position)
    what = "the batch has"
    if magic != MAGIC and length >= OLD_LENGTH_MIN:
        raise CorruptBatch(f"{what} magic {magic}, expected {MAGIC}", position)
    if length < LENGTH_MIN:
        raise CorruptBatch(f"{what} length {length}, at least {LENGTH_MIN} expected", position)
    raise CorruptBatch(f"{what} length {length}, {available - LOG_OVERHEAD} bytes are there", position)


def _old_magic(magic: int, position: int) -> UnsupportedMagic:
    return UnsupportedMagic(
        f"the batch has magic {magic}: message sets from before Kafka 0.11 are not read, "
        f"only record batches of magic {MAGIC}",
        position,
    )


def iter_batches(buffer: Readable, position: int = 0) -> Iterator[RecordBatch]:
    """All whole batches from position on.

    [10-19][20-29][30-   ends after 20-29: the last batch of a fetch response may be partial.
    """
    view = memoryview(buffer)
    end = len(view)
    while end - position >= LOG_OVERHEAD:
        (length,) = _LENGTH.unpack_from(view, position + LENGTH_AT)
        if position + LOG_OVERHEAD + length > end and length >= LENGTH_MIN:
            return
        batch = RecordBatch.parse(view, position)
        yield batch
        position += LOG_OVERHEAD + length


def patch(buffer: bytearray | memoryview, base_offset: Offset, leader_epoch: LeaderEpoch) -> None:
    """Set base offset and leader epoch of the batch at the start of buffer. The CRC covers neither."""
    _OFFSET.pack_into(buffer, BASE_OFFSET_AT, base_offset)
    _LENGTH.pack_into(buffer, LEADER_EPOCH_AT, leader_epoch)


def stamp(buffer: bytearray | memoryview, append_time: TimestampMs) -> None:
    """Set the append time of all records of the batch in buffer."""
    attributes = int.from_bytes(buffer[ATTRIBUTES_AT : ATTRIBUTES_AT + 2], "big") | LOG_APPEND_TIME_MASK
    buffer[ATTRIBUTES_AT : ATTRIBUTES_AT + 2] = attributes.to_bytes(2, "big")
    _OFFSET.pack_into(buffer, MAX_TIMESTAMP_AT, append_time)
    seal(buffer)


def seal(buffer: bytearray | memoryview) -> None:
    """Update length and CRC of the batch in buffer after a change to its bytes."""
    _LENGTH.pack_into(buffer, LENGTH_AT, len(buffer) - LOG_OVERHEAD)
    _CRC.pack_into(buffer, CRC_AT, crc32c(memoryview(buffer)[ATTRIBUTES_AT:]))


def _decode_records(batch: RecordBatch, data: bytes) -> Iterator[Record]:  # noqa: C901, PLR0912, PLR0915
    # One function, with the one-byte varint inlined five times: a call for each would cost as
    # much as all the rest. Reading past the end of a record is detected by its length.
    base_offset = batch.base_offset
    base_timestamp = batch.base_timestamp
    append_time = batch.max_timestamp if batch.log_append_time else None
    new = tuple.__new__  # half the cost of calling Record
    total = len(data)
    position = start = index = 0
    try:
        for index in range(batch.count):
            start = position
            byte = data[position]
            if byte < 0x80:
                size = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                size, position = decode_varint(data, position)
            end = position + size
            if size < 0 or end > total:
                _malformed(batch, index, start, f"has length {size}, {total - position} bytes are left")

            attributes = data[position]
            byte = data[position + 1]
            if byte < 0x80:
                timestamp = base_timestamp + ((byte >> 1) ^ -(byte & 1))
                position += 2
            else:
                delta, position = decode_varlong(data, position + 1)
                timestamp = base_timestamp + delta
            if not -_INT64_MAX <= timestamp <= _INT64_MAX:
                _malformed(batch, index, start, f"has timestamp {timestamp}, beyond 64 bits")

            byte = data[position]
            if byte < 0x80:
                offset = base_offset + ((byte >> 1) ^ -(byte & 1))
                position += 1
            else:
                delta, position = decode_varint(data, position)
                offset = base_offset + delta

            byte = data[position]
            if byte < 0x80:
                size = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                size, position = decode_varint(data, position)
            if size >= 0:
                key = data[position : position + size]
                position += size
            elif size == -1:
                key = None
            else:
                _malformed(batch, index, start, f"has a key of {size} bytes")

            byte = data[position]
            if byte < 0x80:
                size = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                size, position = decode_varint(data, position)
            if size >= 0:
                value = data[position : position + size]
                position += size
            elif size == -1:
                value = None
            else:
                _malformed(batch, index, start, f"has a value of {size} bytes")

            byte = data[position]
            headers: tuple[tuple[str, bytes | None], ...] = ()
            if byte == 0:
                position += 1
            else:
                count, position = decode_varint(data, position)
                if not 0 <= count <= end - position:
                    _malformed(batch, index, start, f"has {count} headers in {end - position} bytes")
                headers, position = _decode_headers(data, position, count)
            if position != end:
                _malformed(batch, index, start, f"ends at byte {position} by its fields, {end} by its length")
            if append_time is not None:
                timestamp = append_time
            yield new(Record, (offset, timestamp, key, value, headers, attributes))
    except IndexError:
        _malformed(batch, index, start, f"goes on past the end of the records at {total}")
    if position != total:
        raise CorruptBatch(
            f"{batch._name} counts {batch.count} records, {total - position} bytes follow the last", position
        )


def _malformed(batch: RecordBatch, index: int, position: int, what: str) -> NoReturn:
    raise CorruptBatch(f"record {index} of {batch._name} (byte {position} of its records) {what}", position)


def _decode_headers(
    data: bytes, position: int, count: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        start = position
        size, position = decode_varint(data, position)
        if not 0 <= size <= len(data) - position:
            raise CorruptBatch(f"a header at byte {start} of the records has a key of {size} bytes", start)
        name = data[position : position + size].decode("utf-8", "surrogateescape")
        position += size
        size, position = decode_varint(data, position)
        if not -1 <= size <= len(data) - position:
            raise CorruptBatch(f"a header at byte {start} of the records has a value of {size} bytes", start)
        if size < 0:
            headers.append((name, None))
        else:
            headers.append((name, data[position : position + size]))
            position += size
    return tuple(headers), position
