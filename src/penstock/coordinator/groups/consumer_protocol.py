"""Subscriptions and assignments, as consumers encode them in the classic protocol.

Other kinds of groups, such as Connect's workers, use other formats. The coordinator reads subscriptions to know which
offsets must not expire, assignments to find the owner of a partition, and both when a group changes to the consumer
protocol. Every version starts with the fields of version 0, so a later version is read as far as it is known.
"""

from struct import Struct as Packing
from struct import error as StructError  # noqa: N812  (a class that the module spells like a function)
from typing import Any, ClassVar, NamedTuple

from penstock.records.structs import BYTES, INT32, STRING, CorruptStruct, Struct, array, body_of, struct, wire

PROTOCOL_TYPE = "consumer"

_INT16 = Packing(">h")
_NEVER = 2**15
SUBSCRIPTION_LATEST = 3
ASSIGNMENT_LATEST = 3


class TopicPartitions(Struct):
    topic: str = wire(STRING)
    partitions: tuple[int, ...] = wire(array(INT32))


class Subscription(Struct):
    FLEXIBLE_SINCE: ClassVar = _NEVER
    topics: tuple[str, ...] = wire(array(STRING))
    user_data: bytes | None = wire(BYTES, None, nullable=True)
    owned_partitions: tuple[TopicPartitions, ...] = wire(array(struct(TopicPartitions)), since=1)
    generation: int = wire(INT32, -1, since=2)
    rack_id: str | None = wire(STRING, None, since=3, nullable=True)


class Assignment(Struct):
    FLEXIBLE_SINCE: ClassVar = _NEVER
    assigned_partitions: tuple[TopicPartitions, ...] = wire(array(struct(TopicPartitions)))
    user_data: bytes | None = wire(BYTES, None, nullable=True)


class Versioned(NamedTuple):
    version: int
    value: Any


def _read(of: type[Struct], latest: int, data: bytes) -> Versioned:
    try:
        (version,) = _INT16.unpack_from(data)
        if version < 0:
            raise CorruptStruct(f"{of.__name__} has version {version}, expected 0 or more")
        values, _ = body_of(of, min(version, latest)).read(data, _INT16.size)
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise CorruptStruct(f"{of.__name__} of {len(data)} bytes cannot be read: {error}") from error
    return Versioned(version, of(**values))


def read_subscription(data: bytes) -> Subscription:
    subscription = _read(Subscription, SUBSCRIPTION_LATEST, data).value
    assert isinstance(subscription, Subscription)
    return subscription


def read_topics(data: bytes) -> tuple[str, ...]:
    """The topics of a subscription, which every version has."""
    subscription = _read(Subscription, 0, data).value
    assert isinstance(subscription, Subscription)
    return subscription.topics


def read_version(data: bytes) -> int:
    if len(data) < _INT16.size:
        raise CorruptStruct(f"a subscription has {len(data)} bytes, too few for a version")
    version: int = _INT16.unpack_from(data)[0]
    return version


def read_assignment(data: bytes) -> Assignment:
    """Empty bytes are an empty assignment."""
    if not data:
        return Assignment()
    assignment = _read(Assignment, ASSIGNMENT_LATEST, data).value
    assert isinstance(assignment, Assignment)
    return assignment


def write_subscription(subscription: Subscription, version: int) -> bytes:
    return _write(subscription, min(version, SUBSCRIPTION_LATEST))


def write_assignment(assignment: Assignment, version: int) -> bytes:
    return _write(assignment, min(version, ASSIGNMENT_LATEST))


def _write(value: Struct, version: int) -> bytes:
    out = bytearray(_INT16.pack(version))
    body_of(type(value), version).write(out, value)
    return bytes(out)
