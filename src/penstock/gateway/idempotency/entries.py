"""A key's digest and its record's place: 36 bytes, in memory as in files.

    digest 16    partition 4    offset 8    timestamp 8        big-endian

Keys are kept as digests: they are of any length, and what is asked is only whether one is there. Two that are alike by
chance are not to be feared: of a million million keys, with a chance of one in 10^14.
"""

from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from penstock.base.ids import Offset, TimestampMs

HEADER = "penstock-idempotency-key"
"""The record's header that has the key, as text."""

IDEMPOTENCY_KEY_BYTES_MAX = 256

DIGEST_BYTES = 16
PLACE = Struct(">iqq")
ENTRY_BYTES = DIGEST_BYTES + PLACE.size


class KeyPlace(NamedTuple):
    """Where the record with a key is, and since when."""

    partition: int
    offset: Offset
    timestamp: TimestampMs


def digest_of(key: bytes) -> bytes:
    return blake2b(key, digest_size=DIGEST_BYTES).digest()


def unpack_place(data: bytes, at: int = 0) -> KeyPlace:
    return KeyPlace(*PLACE.unpack_from(data, at))
