"""Zigzag varints, as Protocol Buffers writes sint32 and sint64.

Seven bits a byte, least significant group first, the top bit set on all but the last; before that the
sign moves into the lowest bit (0, -1, 1, -2 become 0, 1, 2, 3), so that small negatives stay short.
"""

from typing import TypeAlias

from .errors import CorruptBatch

Readable: TypeAlias = bytes | bytearray | memoryview

VARINT_BYTES_MAX = 5
VARLONG_BYTES_MAX = 10

_INT32_LIMIT = 1 << 31
_INT64_LIMIT = 1 << 63


def _encode(value: int) -> bytes:
    zigzag = value << 1 if value >= 0 else (~value << 1) | 1
    if zigzag < 1 << 7:
        return bytes((zigzag,))
    if zigzag < 1 << 14:
        return bytes((zigzag & 0x7F | 0x80, zigzag >> 7))
    if zigzag < 1 << 21:
        return bytes((zigzag & 0x7F | 0x80, zigzag >> 7 & 0x7F | 0x80, zigzag >> 14))
    groups = bytearray()
    while zigzag > 0x7F:
        groups.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    groups.append(zigzag)
    return bytes(groups)


SHORT_VARINTS = tuple(_encode(value) for value in range(1024))
"""Encodings of 0..1023, which cover nearly all of a batch; a lookup is five times as fast."""


def encode_varint(value: int) -> bytes:
    if 0 <= value < 1024:
        return SHORT_VARINTS[value]
    if not -_INT32_LIMIT <= value < _INT32_LIMIT:
        raise ValueError(f"{value} does not fit a varint, which holds 32 bits")
    return _encode(value)


def encode_varlong(value: int) -> bytes:
    if 0 <= value < 1024:
        return SHORT_VARINTS[value]
    if not -_INT64_LIMIT <= value < _INT64_LIMIT:
        raise ValueError(f"{value} does not fit a varlong, which holds 64 bits")
    return _encode(value)


def decode_varint(buffer: Readable, position: int = 0) -> tuple[int, int]:
    """The 32-bit value at position, and the position after it."""
    if position + 2 < len(buffer):  # nearly always; the two and three bytes of most lengths, without a loop
        zigzag = buffer[position]
        if zigzag < 0x80:
            return (zigzag >> 1) ^ -(zigzag & 1), position + 1
        byte = buffer[position + 1]
        zigzag += (byte << 7) - 0x80
        if byte < 0x80:
            return (zigzag >> 1) ^ -(zigzag & 1), position + 2
        byte = buffer[position + 2]
        if byte < 0x80:
            zigzag += (byte << 14) - 0x4000
            return (zigzag >> 1) ^ -(zigzag & 1), position + 3
    return _decode(buffer, position, VARINT_BYTES_MAX, 32)


def decode_varlong(buffer: Readable, position: int = 0) -> tuple[int, int]:
    """The 64-bit value at position, and the position after it."""
    if position + 1 < len(buffer):
        zigzag = buffer[position]
        byte = buffer[position + 1]
        if zigzag > 0x7F and byte < 0x80:
            zigzag += (byte << 7) - 0x80
            return (zigzag >> 1) ^ -(zigzag & 1), position + 2
    return _decode(buffer, position, VARLONG_BYTES_MAX, 64)


def _decode(buffer: Readable, start: int, bytes_max: int, bits: int) -> tuple[int, int]:
    zigzag = shift = 0
    position = start
    for byte in buffer[start : start + bytes_max]:
        position += 1
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    else:
        if position - start < bytes_max:
            raise CorruptBatch(f"a varint at byte {start} is cut short after {position - start} bytes", start)
        raise CorruptBatch(f"a varint at byte {start} goes on past {bytes_max} bytes", start)
    if zigzag >> bits:
        raise CorruptBatch(f"a varint at byte {start} holds {zigzag:#x}, more than {bits} bits", start)
    return (zigzag >> 1) ^ -(zigzag & 1), position
