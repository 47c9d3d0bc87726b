"""The protocol's small encodings: varints, compact strings and arrays, tagged fields.

A flexible message (KIP-482) writes lengths as unsigned varints, plus one so that 0 means null, and ends each structure
with tagged fields, of which readers skip those they do not know:

    varint       7 bits a byte, lowest first, the top bit says that more follow
    compact      varint(length + 1), then the items; varint(0) is null
    tagged       varint(count), then for each: varint(tag), varint(size), size bytes

Readers take the frame and a position, and return the value and the position after it. They check a length
against the remaining bytes before they use it. Reading past the end raises IndexError or struct.error, which parsers
turn into MalformedRequest.
"""

from struct import Struct
from typing import Final, Protocol, TypeAlias

from .errors import MalformedRequest

INT8 = Struct(">b")
INT16 = Struct(">h")
INT32 = Struct(">i")
INT64 = Struct(">q")
UUID_BYTES: Final = 16
INT32_MAX: Final = 2**31 - 1

VARINT_BYTES_MAX: Final = 5
"""Enough for 32 bits; the limit of Kafka's reader."""

REQUEST_ITEMS_MAX: Final = 2**18
"""Items in all arrays of one request: more partitions than a broker of Kafka's is advised to have, in at most
some 50 MB of objects. Without it a frame of `socket.request.max.bytes`, full of topics of three bytes each,
would become gigabytes of them."""

UNKNOWN_TAGS_MAX: Final = 1000
"""Tagged fields of a Produce or Fetch that this release does not know, in all structures together: two milliseconds.
Clients of later releases may send some; none sends dozens for each partition."""

TAGS_MAX: Final = 64
"""Tagged fields of one structure; none of Kafka's has ten. Without it a frame of two bytes for each field, also of a
client that has not logged in, would hold up the broker for seconds."""

TopicKey: TypeAlias = str | bytes
"""A topic as the client identifies it: by name, or by the 16 bytes of its id.

Bytes and not a UUID object, which would cost as much to make as the rest of a Fetch request to read.
"""

Buffer: TypeAlias = bytes | bytearray | memoryview


class Unread(Protocol):
    """Bytes of a response that are read from the disk as they are sent."""

    def __len__(self) -> int:
        """The total size, with the bytes that were taken."""

    @property
    def left(self) -> int:
        """Bytes that have not been taken."""

    def take(self, bytes_max: int) -> bytes:
        """Read the next bytes, up to a number. Raises a `KafkaError` if they cannot be read."""


Piece: TypeAlias = Buffer | Unread
"""A part of a response."""


class UnreadReply(list[Piece]):
    """A response that has unread pieces; any other is a plain list of buffers."""


_SMALL = tuple(bytes((value,)) for value in range(128))


def read_uvarint(frame: memoryview, at: int) -> tuple[int, int]:
    """The varint at a position; no length or count of Kafka's is beyond 31 bits, and neither is this."""
    value = shift = 0
    while True:
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > INT32_MAX:
                raise MalformedRequest(f"a varint says {value}, expected at most {INT32_MAX}")
            return value, at
        shift += 7
        if shift == 7 * VARINT_BYTES_MAX:
            raise MalformedRequest(f"a varint goes on after {VARINT_BYTES_MAX} bytes")


def read_count(frame: memoryview, at: int, flexible: bool, item_bytes_min: int) -> tuple[int, int]:
    """The number of items of an array, and their position; raises if the remaining bytes cannot hold that many."""
    if flexible:
        count, at = read_uvarint(frame, at)
        count -= 1
    else:
        (count,) = INT32.unpack_from(frame, at)
        at += 4
    if count < 0:
        raise MalformedRequest(f"an array at byte {at} has length {count}, expected at least 0")
    if count > REQUEST_ITEMS_MAX:
        raise too_many(count, at)
    if count * item_bytes_min > len(frame) - at:
        raise MalformedRequest(
            f"an array at byte {at} says it has {count} items, of {item_bytes_min} bytes or more each; "
            f"{len(frame) - at} bytes are left"
        )
    return count, at


def read_nullable_string(frame: memoryview, at: int, flexible: bool) -> tuple[str | None, int]:
    if flexible:
        size, at = read_uvarint(frame, at)
        size -= 1
    else:
        (size,) = INT16.unpack_from(frame, at)
        at += 2
    if size < 0:
        if size < -1:
            raise MalformedRequest(f"a string at byte {at} has length {size}, expected -1 or more")
        return None, at
    stop = at + size
    if stop > len(frame):
        raise too_long("a string", size, frame, at)
    return str(frame[at:stop], "utf-8"), stop


def read_string(frame: memoryview, at: int, flexible: bool) -> tuple[str, int]:
    text, at = read_nullable_string(frame, at, flexible)
    if text is None:
        raise MalformedRequest(f"a string before byte {at} is null, expected a value")
    return text, at


def read_tag_count(frame: memoryview, at: int) -> tuple[int, int]:
    """The number of tagged fields that follow."""
    count, at = read_uvarint(frame, at)
    if count > TAGS_MAX:
        raise MalformedRequest(
            f"a structure before byte {at} has {count} tagged fields, expected at most {TAGS_MAX}"
        )
    return count, at


def skip_tags(frame: memoryview, at: int) -> int:
    """The position after the tagged fields, whatever they are."""
    count, at = read_tag_count(frame, at)
    for _ in range(count):
        _, at = read_uvarint(frame, at)
        size, at = read_uvarint(frame, at)
        if size > len(frame) - at:
            raise too_long("a tagged field", size, frame, at)
        at += size
    return at


def read_tags(frame: memoryview, at: int) -> tuple[dict[int, tuple[int, int]], int]:
    """The range of each tagged field, by tag, and the position after all."""
    count, at = read_tag_count(frame, at)
    found = {}
    for _ in range(count):
        tag, at = read_uvarint(frame, at)
        size, at = read_uvarint(frame, at)
        if size > len(frame) - at:
            raise too_long("a tagged field", size, frame, at)
        if tag in found:
            raise MalformedRequest(f"tag {tag} at byte {at} occurs twice")
        found[tag] = (at, at + size)
        at += size
    return found, at


class UnknownTags:
    """Counts the tagged fields of one request that are skipped."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def add(self, count: int) -> None:
        self._count += count
        if self._count > UNKNOWN_TAGS_MAX:
            raise MalformedRequest(
                f"the request has {self._count} unknown tagged fields or more, expected at most {UNKNOWN_TAGS_MAX}"
            )

    def skip(self, frame: memoryview, at: int) -> int:
        """As `skip_tags`."""
        self.add(read_tag_count(frame, at)[0])
        return skip_tags(frame, at)


def too_long(what: str, size: int, frame: memoryview, at: int) -> MalformedRequest:
    return MalformedRequest(f"{what} at byte {at} says it has {size} bytes, {len(frame) - at} are left")


def too_many(items: int, at: int) -> MalformedRequest:
    return MalformedRequest(
        f"by byte {at} the request has {items} items, expected at most {REQUEST_ITEMS_MAX}"
    )


def trailing(frame: memoryview, at: int) -> MalformedRequest:
    return MalformedRequest(f"the request ends at byte {at}, {len(frame) - at} more follow")


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return _SMALL[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x20_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def string(text: str | None, flexible: bool) -> bytes:
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    encoded = text.encode()
    return uvarint(len(encoded) + 1) + encoded if flexible else INT16.pack(len(encoded)) + encoded


def count(items: int, flexible: bool) -> bytes:
    return uvarint(items + 1) if flexible else INT32.pack(items)


def topic_key(topic: TopicKey, flexible: bool) -> bytes:
    """An id is its 16 bytes in every version that has one; a name is a string."""
    return topic if isinstance(topic, bytes) else string(topic, flexible)


def tags(fields: dict[int, bytes]) -> bytes:
    """Tagged fields, by ascending tag as the protocol wants them."""
    encoded = [uvarint(len(fields))]
    for tag in sorted(fields):
        encoded += (uvarint(tag), uvarint(len(fields[tag])), fields[tag])
    return b"".join(encoded)
