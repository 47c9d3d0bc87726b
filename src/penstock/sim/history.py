"""What happened, as clients and the operator saw it: the only thing that checkers look at.

A reply may reach its client after the process that sent it is gone. So whatever was heard names the `incarnation` it
was heard from: the number of the node's process, counted up with every start.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from penstock.base.ids import Offset, TopicPartition


class Survives(Enum):
    """What a record must survive once it is acknowledged."""

    NOTHING = "nothing"
    KILL = "a kill"
    POWER_CUT = "a power cut"


class Written(NamedTuple):
    """A record as its producer made it. The value is found nowhere else."""

    key: bytes | None
    value: bytes
    number: int
    """Counts the producer's records in this partition."""


class Batch:
    """A batch as its producer made it, with what became of it so far."""

    __slots__ = ("acks", "at", "identities", "number", "producer", "records", "sends")

    def __init__(
        self, producer: str, number: int, at: TopicPartition, acks: int, records: list[Written]
    ) -> None:
        self.producer = producer
        self.number = number
        """Counts the producer's batches."""
        self.at = at
        self.acks = acks
        self.records = records
        self.sends = 0
        self.identities: list[tuple[int, int, int]] = []
        """Under which (producer id, epoch, sequence) it was sent; empty for a plain producer."""

    def __str__(self) -> str:
        return f"{self.producer} #{self.number} for {self.at} ({len(self.records)} records, acks={self.acks})"

    @property
    def copies_max(self) -> int:
        """How often each of its records may be in the log."""
        return len(self.identities) or self.sends


class Seen(NamedTuple):
    """A record as somebody read it."""

    offset: Offset
    key: bytes | None
    value: bytes


# -- producers ----------------------------------------------------------------------------------------------


class Sent(NamedTuple):
    batch: Batch


class Acked(NamedTuple):
    batch: Batch
    base_offset: Offset
    """-1 if the node only said that it has the batch already."""
    survives: Survives
    incarnation: int


class Refused(NamedTuple):
    batch: Batch
    code: int
    is_first: bool
    """Everything that the producer sent before it to this partition was acknowledged."""
    incarnation: int


class GotProducerId(NamedTuple):
    producer: str
    producer_id: int
    epoch: int
    incarnation: int


# -- consumers ----------------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """A fetch leaves its client."""

    request: tuple[str, int]
    at: Sequence[TopicPartition]


class Viewed(NamedTuple):
    """A fetch showed what lies between two offsets."""

    consumer: str
    at: TopicPartition
    request: tuple[str, int]
    start: Offset
    stop: Offset
    records: Sequence[Seen]
    high_watermark: Offset
    log_start: Offset
    """-1 if it was not told."""
    incarnation: int


class Moved(NamedTuple):
    """A consumer's offset was out of range: it goes on elsewhere."""

    consumer: str
    at: TopicPartition
    to: Offset
    incarnation: int


class Audited(NamedTuple):
    """Everything in a partition, read when all is quiet."""

    at: TopicPartition
    start: Offset
    end: Offset
    records: Sequence[Seen]


# -- connections and topics ---------------------------------------------------------------------------------


class Replied(NamedTuple):
    client: str
    link: int
    expected: int
    """The correlation id of the oldest request that is open; -1 if none is."""
    found: int


class Overdue(NamedTuple):
    """A request has waited for its reply longer than anything takes."""

    client: str
    what: str
    is_node_there: bool
    """The process that the request went to lives, and holds the connection."""


class TopicMet(NamedTuple):
    name: str
    id: UUID | None
    partition_count: int


# -- the node -----------------------------------------------------------------------------------------------


class Started(NamedTuple):
    incarnation: int


class Killed(NamedTuple):
    incarnation: int


class PowerCut(NamedTuple):
    incarnation: int
    """The last process that ran; it need not have been running still."""


class Stopped(NamedTuple):
    incarnation: int
    is_clean: bool
    """It had a sound disk, so that all it wrote is to be durable now."""


Event = (
    Sent
    | Acked
    | Refused
    | GotProducerId
    | Asked
    | Viewed
    | Moved
    | Audited
    | Replied
    | Overdue
    | TopicMet
    | Started
    | Killed
    | PowerCut
    | Stopped
)
