"""The 16-byte ids of topics, directories and incarnations, and the ids that mean something special.

They stay bytes, as they are in a log's `partition.metadata` and on the wire; text is for people and JSON.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, TypeAlias

from .codec import NO_UUID, UUID_BYTES

if TYPE_CHECKING:
    from random import Random

Uuid: TypeAlias = bytes

DIRECTORY_MIGRATING: Uuid = NO_UUID
"""From before directories were recorded."""
DIRECTORY_UNASSIGNED: Uuid = (1).to_bytes(16, "big")
"""The broker has not said yet which of its directories holds the replica."""
DIRECTORY_LOST: Uuid = (2).to_bytes(16, "big")
"""The directory failed, and which one it was is not known."""

RESERVED_IDS_MAX = 100
"""Kafka keeps the first hundred ids for meanings like these."""


def is_reserved(uuid: Uuid) -> bool:
    return int.from_bytes(uuid, "big") < RESERVED_IDS_MAX


def random_uuid(rng: Random) -> Uuid:
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
        raise ValueError(f"{text!r} has {len(uuid)} bytes, {UUID_BYTES} expected")
    return uuid
