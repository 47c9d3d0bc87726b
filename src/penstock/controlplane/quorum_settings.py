"""Settings and listener of the metadata quorum."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.base.ids import LeaderEpoch, Offset
from penstock.metadata.image import ClusterImage
from penstock.metadata.records import AnyRecord
from penstock.raft.config import RaftConfig
from penstock.raft.voters import Endpoint, VoterSet

_DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    """Kafka's settings of the quorum and its log, with Kafka's defaults."""

    endpoints: tuple[Endpoint, ...] = ()
    """Advertised endpoints of this node's controller."""
    listener: str = ""
    """The listener of controllers that this node connects to, by its name; empty for the first that they have."""
    voters: VoterSet = VoterSet()  # noqa: RUF009  (it never changes)
    """`controller.quorum.voters`: in force while the log has no voters."""
    bootstrap: tuple[Endpoint, ...] = ()
    """`controller.quorum.bootstrap.servers`: asked for the leader while no voter is known."""
    is_standalone: bool = True
    """Whether a new directory becomes a quorum of one; otherwise it waits to join a quorum."""
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
    """The state machine above the quorum. Called on the loop, one call at a time; may propose records from within."""

    def loaded(self, image: ClusterImage) -> None:
        """Start from this image: the first call, empty without a snapshot. Again when the leader sent a snapshot
        because this node was too far behind."""

    def committed(self, records: Sequence[AnyRecord], offset: Offset, epoch: LeaderEpoch) -> None:
        """A committed batch, in log order; `offset` is its last record's."""

    def advanced(self, high_watermark: Offset) -> None:
        """All batches below were published; control batches are not."""

    def leading(self, epoch: LeaderEpoch) -> None:
        """This node leads, and everything before its epoch was published."""

    def resigned(self, epoch: LeaderEpoch) -> None:
        """This node no longer leads; only after `leading`."""

    def failed(self, reason: str) -> None:
        """The quorum ended; the node must end too, because nothing more is committed here."""

    def image(self) -> ClusterImage:
        """The image of everything published; called when a snapshot is due."""
