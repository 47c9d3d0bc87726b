"""Types of identifiers: offsets, epochs, producer ids, partitions and 16-byte UUIDs."""

import base64
import binascii
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from random import Random

Offset: TypeAlias = int
"""Position of a record in its partition; 64 bits."""

LeaderEpoch: TypeAlias = int
"""Number of leader changes of a partition; 32 bits, -1 if unknown."""

ProducerId: TypeAlias = int
"""64 bits; -1 for a producer that is not idempotent."""

TimestampMs: TypeAlias = int
"""Milliseconds since 1970; -1 for a record without a timestamp."""

Uuid: TypeAlias = bytes
"""Id of a topic, a directory or a broker's incarnation: 16 bytes in files and on the wire; base64 for people and
JSON."""

INT64_MAX: Final = 2**63 - 1
NEVER_MS: Final = INT64_MAX
"""A time that does not come; a setting's value for an interval without end."""

NO_TIMESTAMP: TimestampMs = -1
NO_PRODUCER_ID: ProducerId = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH: LeaderEpoch = -1


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


UUID_BYTES = 16

RESERVED_UUIDS_MAX = 100
"""Kafka reserves the first hundred ids."""


def is_reserved(uuid: Uuid) -> bool:
    return int.from_bytes(uuid, "big") < RESERVED_UUIDS_MAX


def random_uuid(rng: "Random") -> Uuid:
    """Return a version 4 UUID whose text does not begin with a dash, which a command line would parse as a flag."""
    while True:
        drawn = bytearray(rng.randbytes(UUID_BYTES))
        drawn[6] = drawn[6] & 0x0F | 0x40
        drawn[8] = drawn[8] & 0x3F | 0x80
        uuid = bytes(drawn)
        if not is_reserved(uuid) and not uuid_text(uuid).startswith("-"):
            return uuid


def uuid_text(uuid: Uuid) -> str:
    """Return the UUID as Kafka prints it: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(uuid).decode().rstrip("=")


def uuid_from_text(text: str) -> Uuid:
    try:
        uuid = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is not an id in base64") from error
    if len(uuid) != UUID_BYTES:
        raise ValueError(f"{text!r} is {len(uuid)} bytes, expected {UUID_BYTES}")
    return uuid
