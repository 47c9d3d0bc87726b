"""Operations that wait for a partition: appends, consumers' fetches, followers' fetches.

These are the interfaces that a `Partition` calls. The implementations belong to the handlers, the coordinators and the
gateway.
"""

from enum import Enum
from typing import Final, Protocol

from penstock.base.errors import KafkaError
from penstock.base.ids import Offset, TimestampMs
from penstock.storage import Appended

ALL_IN_SYNC: Final = -1
"""`acks` of a producer that waits for the whole ISR."""


class Durability(Enum):
    """`durability.fsync`: when a batch with acks=all is synced before it is acknowledged."""

    ALONE = "alone"
    ALWAYS = "always"
    NEVER = "never"


class DelayedProduce(Protocol):
    """A staged batch that waits for its acks."""

    @property
    def appended(self) -> Appended: ...

    @property
    def acks(self) -> int: ...

    @property
    def deadline_ms(self) -> TimestampMs:
        """When the request times out."""

    def settle(self, error: KafkaError | None) -> None:
        """The batch is as durable as `acks` requires, or failed. Called once."""


class PreparedReply(Protocol):
    """A reply that is encoded when its batch is staged, and sent after the write at the end of the loop's tick."""

    @property
    def last_offset(self) -> Offset: ...

    def settle(self, error: KafkaError | None) -> None:
        """The batch could not be written: replace the reply by this error."""


class DelayedFetch(Protocol):
    """A consumer that waits for records."""

    def grew(self, bytes_more: int) -> None:
        """This many more bytes are visible."""

    def decided(self) -> None:
        """The high watermark moved or a transaction ended: older records may have become visible too."""

    def changed(self) -> None:
        """This broker no longer leads the partition, or the log start moved."""


class DelayedFollowerFetch(Protocol):
    """A follower that replicates up to the log end. It stays registered until it is removed."""

    def wrote(self, bytes_more: int) -> None:
        """This many more bytes are in the log."""

    def moved(self) -> None:
        """The high watermark or the ISR changed: send it with the next response."""

    def changed(self) -> None:
        """This broker no longer leads the partition, or the log start moved: respond now."""
