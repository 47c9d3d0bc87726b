"""What clients of HTTP and of the line protocol saw, beside what they have in common with Kafka's."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.base.ids import Offset, TopicPartition

if TYPE_CHECKING:
    from penstock.sim.checkers.history import ReadRecord


class KeyAnswered(NamedTuple):
    """A record with an idempotency key was acknowledged; perhaps not for the first time."""

    client: str
    key: str
    at: TopicPartition
    offset: Offset


class DoorCommitSent(NamedTuple):
    """A client commits an offset of its group."""

    number: int
    """Found nowhere else."""
    group: str
    at: TopicPartition
    offset: Offset
    now_us: int


class DoorCommitEnded(NamedTuple):
    number: int
    is_done: bool | None
    """None if nobody knows, and it may still count at any time."""


class DoorFetchSent(NamedTuple):
    """A client asks for records, from where its group is."""

    number: int
    group: str
    at: Sequence[TopicPartition]


class DoorFetchReceived(NamedTuple):
    """Records came, in the order of their offsets."""

    client: str
    number: int
    """Of the question."""
    group: str
    at: TopicPartition
    start: Offset | None
    """Where reading went on, if the client knows; None for where the group was."""
    records: "Sequence[ReadRecord]"


DoorEvent = KeyAnswered | DoorCommitSent | DoorCommitEnded | DoorFetchSent | DoorFetchReceived
