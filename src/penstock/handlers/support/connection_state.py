"""What handlers keep for one connection between its requests."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.handlers.support.commit_fast_path import CommitFastPath
    from penstock.handlers.support.produce_fast_path import ProduceFastPath


class Delayed(Protocol):
    """A request that waits."""

    def cancel(self) -> None:
        """Stop waiting, without a reply."""


class ConnectionState:
    __slots__ = ("commit", "fetch", "metadata_ns", "produce")

    def __init__(self) -> None:
        self.produce: ProduceFastPath | None = None
        """Set by the first Produce request."""
        self.commit: CommitFastPath | None = None
        """Set by the first OffsetCommit."""
        self.fetch: Delayed | None = None
        """The fetch that waits for records; a connection has one at most."""
        self.metadata_ns = -(1 << 62)
        """When Metadata was last requested or answered (`metadata_delay`)."""
