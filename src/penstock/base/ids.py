"""The names of things: offsets, epochs, producers, partitions, and ids of 16 bytes."""

import base64
import binascii
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from random import Random

Offset: TypeAlias = int
"""A record's place in its partition; 64 bits."""

LeaderEpoch: TypeAlias = int
"""Counts the leaders of a partition; 32 bits, -1 where none is known."""

ProducerId: TypeAlias = int
"""A producer's number; 64 bits, -1 for a producer that is not idempotent."""

TimestampMs: TypeAlias = int
"""Milliseconds since 1970; -1 for a record without a timestamp."""

Uuid: TypeAlias = bytes
"""The id of a topic, a directory or an incarnation: 16 bytes, as they are in files and on the wire; text is for
people and JSON."""

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
"""Kafka gives the first hundred ids special meanings."""


def is_reserved(uuid: Uuid) -> bool:
    return int.from_bytes(uuid, "big") < RESERVED_UUIDS_MAX


def random_uuid(rng: "Random") -> Uuid:
    """A version 4 id; its text does not begin with a dash, which a command line would take for a flag."""
    while True:
        drawn = bytearray(rng.randbytes(UUID_BYTES))
        drawn[6] = drawn[6] & 0x0F | 0x40
        drawn[8] = drawn[8] & 0x3F | 0x80
        uuid = bytes(drawn)
        if not is_reserved(uuid) and not uuid_text(uuid).startswith("-"):
            return uuid


def uuid_text(uuid: Uuid) -> str:
    """As Kafka prints it: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(uuid).decode().rstrip("=")


def uuid_from_text(text: str) -> Uuid:
    try:
        uuid = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is not an id in base64") from error
    if len(uuid) != UUID_BYTES:
        raise ValueError(f"{text!r} is {len(uuid)} bytes, expected {UUID_BYTES}")
    return uuid
