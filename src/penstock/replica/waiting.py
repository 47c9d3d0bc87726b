"""Who waits for a partition, and for what: producers, readers, followers."""

from enum import Enum
from typing import Final, Protocol

from penstock.base.errors import KafkaError
from penstock.base.ids import Offset, TimestampMs
from penstock.storage import Appended

ALL_IN_SYNC: Final = -1
"""`acks` of a producer that waits for every replica in sync."""


class Durability(Enum):
    """`durability.fsync`: when a batch for all replicas in sync is synced before it is acknowledged."""

    ALONE = "alone"
    ALWAYS = "always"
    NEVER = "never"


class Writer(Protocol):
    """A batch that was staged, and waits."""

    @property
    def appended(self) -> Appended: ...

    @property
    def acks(self) -> int: ...

    @property
    def deadline_ms(self) -> TimestampMs:
        """When it gives up waiting, by its own wish."""

    def settle(self, error: KafkaError | None) -> None:
        """It is as durable as was asked for, or never will be. Called once."""


class Foretold(Protocol):
    """A reply that was made when its batch was staged, and leaves after the write, with all replies of the turn."""

    @property
    def last_offset(self) -> Offset: ...

    def settle(self, error: KafkaError | None) -> None:
        """Its batch could not be written: say so instead."""


class Watcher(Protocol):
    """A reader that waits for more to read."""

    def grew(self, bytes_more: int) -> None:
        """So many bytes more are visible."""

    def decided(self) -> None:
        """More may be visible than what was written last: a transaction ended, or the replicas in sync have caught
        up."""

    def changed(self) -> None:
        """Something else happened: the partition is not led here any more, or its records are gone."""


class Tail(Protocol):
    """A follower that copies the log up to its end; it stays until it is taken away."""

    def wrote(self, bytes_more: int) -> None:
        """So many bytes more are in the log."""

    def moved(self) -> None:
        """The high watermark or the replicas in sync are others: to be told with the next reply."""

    def changed(self) -> None:
        """Something that it should know now: the partition is not led here any more, or its records are gone."""
