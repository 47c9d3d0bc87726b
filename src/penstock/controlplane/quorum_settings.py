"""What the metadata quorum is told, and whom it tells."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.base.ids import LeaderEpoch, Offset
from penstock.metadata import AnyRecord, ClusterImage
from penstock.raft.config import RaftConfig
from penstock.raft.voters import Endpoint, VoterSet

_DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    """Kafka's settings of the quorum and its log, by their last names and with their defaults."""

    endpoints: tuple[Endpoint, ...] = ()
    """Where this node's controller listens, as others are told."""
    voters: VoterSet = VoterSet()  # noqa: RUF009  (it never changes)
    """`controller.quorum.voters`: in force while the log has no voters of its own."""
    bootstrap: tuple[Endpoint, ...] = ()
    """`controller.quorum.bootstrap.servers`: whom to ask where no voter is known."""
    is_standalone: bool = True
    """Whether a new directory becomes a quorum of this node alone; else it waits to join one."""
    raft: RaftConfig = RaftConfig()  # noqa: RUF009
    segment_bytes: int = 1 << 30
    """`metadata.log.segment.bytes`"""
    segment_ms: int = 7 * _DAY_MS
    """`metadata.log.segment.ms`"""
    snapshot_bytes: int = 20 << 20
    """`metadata.log.max.record.bytes.between.snapshots`"""
    snapshot_interval_ms: int = 60 * 60 * 1000
    """`metadata.log.max.snapshot.interval.ms`; 0 for never."""
    retention_bytes: int = 100 << 20
    """`metadata.max.retention.bytes`; -1 for no limit."""
    retention_ms: int = 7 * _DAY_MS
    """`metadata.max.retention.ms`; -1 for no limit."""


class QuorumListener(Protocol):
    """The state machine on top: called on the loop, one call at a time, and free to propose from within."""

    def loaded(self, image: ClusterImage) -> None:
        """Begin from here: the snapshot's image, before anything else, empty where there is no snapshot. Again only
        where a leader sent a snapshot because this node was too far behind."""

    def committed(self, records: Sequence[AnyRecord], offset: Offset, epoch: LeaderEpoch) -> None:
        """One batch, in its order; the offset is its last record's."""

    def advanced(self, high_watermark: Offset) -> None:
        """All batches below were given out, control records need no mention."""

    def leading(self, epoch: LeaderEpoch) -> None:
        """This node leads, and all that came before its epoch was given out."""

    def resigned(self, epoch: LeaderEpoch) -> None:
        """It no longer does; only after `leading`."""

    def failed(self, reason: str) -> None:
        """The quorum is over, and so must the node be: nothing more is committed here."""

    def image(self) -> ClusterImage:
        """The image of all that was given out; asked for when a snapshot is due."""
