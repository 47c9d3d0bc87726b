"""The frame that serializers of a schema registry put before a record's key or value.

    0, id (int32), payload                       the schema's id
    1, guid (16 bytes), payload                  the schema's guid
    0 or 1 and the id or guid in a header        `__key_schema_id`, `__value_schema_id`: the payload has no frame

A Protobuf payload begins with the message indexes: the path to the message type within its file, as a zigzag varint of
their number, then the indexes. The path [0], the first message of the file, is the single byte 0.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from penstock.base.errors import ErrorCode, KafkaError

from .errors import CorruptBatch
from .varint import Readable, decode_varint, encode_varint

ID_MAGIC: Final = 0
GUID_MAGIC: Final = 1

_ID_FRAME: Final = Struct(">BI")
ID_FRAME_BYTES: Final = _ID_FRAME.size
GUID_FRAME_BYTES: Final = 17

KEY_HEADER: Final = "__key_schema_id"
VALUE_HEADER: Final = "__value_schema_id"
"""Record headers that hold a frame without a payload."""

MESSAGE_INDEXES_MAX: Final = 64
"""Messages are nested less deeply than this; Protobuf's compilers allow 32 levels."""


class NotFramed(KafkaError):
    """The bytes do not begin with a frame."""

    code = ErrorCode.INVALID_RECORD


class Frame(NamedTuple):
    schema_id: int | None
    """None if the frame has a guid."""
    guid: str | None
    """In the form of UUIDs; None if the frame has an id."""
    payload_at: int
    """Position of the payload, or of the message indexes before it."""


def parse_frame(data: Readable) -> Frame:
    """The frame at the start of a key or value. Raises `NotFramed`."""
    size = len(data)
    if size >= ID_FRAME_BYTES and data[0] == ID_MAGIC:
        return Frame(_ID_FRAME.unpack_from(data)[1], None, ID_FRAME_BYTES)
    if size >= GUID_FRAME_BYTES and data[0] == GUID_MAGIC:
        return Frame(None, str(UUID(bytes=bytes(data[1:GUID_FRAME_BYTES]))), GUID_FRAME_BYTES)
    if not size:
        raise NotFramed("it is empty, expected a schema id: byte 0, then 4 bytes")
    if data[0] not in (ID_MAGIC, GUID_MAGIC):
        raise NotFramed(f"it begins with byte {data[0]}, expected 0 and a schema id, or 1 and a schema guid")
    expected = ID_FRAME_BYTES if data[0] == ID_MAGIC else GUID_FRAME_BYTES
    raise NotFramed(f"it has {size} bytes, expected at least {expected}: it begins with byte {data[0]}")


def write_frame(schema_id: int) -> bytes:
    """The frame of a schema id; the payload follows it."""
    return _ID_FRAME.pack(ID_MAGIC, schema_id)


def write_guid_frame(guid: str) -> bytes:
    return bytes((GUID_MAGIC,)) + UUID(guid).bytes


def parse_message_indexes(data: Readable, position: int = ID_FRAME_BYTES) -> tuple[tuple[int, ...], int]:
    """The message indexes of a Protobuf record, and the position of the message. Raises `NotFramed`."""
    try:
        count, position = decode_varint(data, position)
        if count == 0:
            return (0,), position
        if not 0 < count <= MESSAGE_INDEXES_MAX:
            raise NotFramed(f"it has {count} message indexes, expected 0 to {MESSAGE_INDEXES_MAX}")
        indexes = []
        for _ in range(count):
            index, position = decode_varint(data, position)
            indexes.append(index)
    except CorruptBatch as error:
        raise NotFramed(f"its message indexes cannot be read: {error}") from None
    if min(indexes) < 0:
        raise NotFramed(f"a message index is {min(indexes)}, expected 0 or more")
    return tuple(indexes), position


def write_message_indexes(indexes: Sequence[int]) -> bytes:
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(map(encode_varint, (len(indexes), *indexes)))
