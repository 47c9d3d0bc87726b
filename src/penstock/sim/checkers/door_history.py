"""Events of HTTP and line protocol clients that Kafka clients do not have."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.base.ids import Offset, TopicPartition

if TYPE_CHECKING:
    from penstock.sim.checkers.history import ReadRecord


class KeyAnswered(NamedTuple):
    """A record with an idempotency key was acknowledged, perhaps not for the first time."""

    client: str
    key: str
    at: TopicPartition
    offset: Offset


class DoorCommitSent(NamedTuple):
    """A client sent a commit of its group's offset."""

    number: int
    """Unique."""
    group: str
    at: TopicPartition
    offset: Offset
    now_us: int


class DoorCommitEnded(NamedTuple):
    number: int
    is_done: bool | None
    """None if no reply arrived: the commit may take effect at any time."""


class DoorFetchSent(NamedTuple):
    """A client requested records from its group's offset."""

    number: int
    group: str
    at: Sequence[TopicPartition]


class DoorFetchReceived(NamedTuple):
    """A client received records, in the order of their offsets."""

    client: str
    number: int
    """Number of the request (`DoorFetchSent`)."""
    group: str
    at: TopicPartition
    start: Offset | None
    """Offset from which the client continued; None for its group's offset."""
    records: "Sequence[ReadRecord]"


DoorEvent = KeyAnswered | DoorCommitSent | DoorCommitEnded | DoorFetchSent | DoorFetchReceived
