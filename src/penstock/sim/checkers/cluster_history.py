"""Events inside a cluster, which clients cannot see."""

from collections.abc import Mapping
from typing import NamedTuple

from penstock.base.ids import LeaderEpoch, Offset, TopicPartition, Uuid
from penstock.metadata.image import ClusterImage
from penstock.metadata.records import AnyRecord


class QuorumLeaderFound(NamedTuple):
    """A node leads the quorum."""

    node: int
    epoch: LeaderEpoch


class LeaderFound(NamedTuple):
    """A node leads a partition."""

    node: int
    at: TopicPartition
    topic_id: Uuid
    epoch: LeaderEpoch
    now_us: int = 0


class CoordinatorLoaded(NamedTuple):
    """The leader of a partition of `__consumer_offsets` has loaded it. Before that it answers heartbeats unchecked."""

    node: int
    partition: int
    epoch: LeaderEpoch
    now_us: int


class CoordinatorUnloaded(NamedTuple):
    """The leader of a partition of `__consumer_offsets` loads it again, and answers heartbeats unchecked again."""

    node: int
    partition: int
    epoch: LeaderEpoch
    now_us: int


class ReplicaCreated(NamedTuple):
    """A process got a replica back that it had before: it was moved away and returned."""

    incarnation: int
    at: TopicPartition


class HighWatermark(NamedTuple):
    """A replica's high watermark has moved."""

    replica: int
    """Unique per process, and per placement of the partition on it."""
    at: TopicPartition
    offset: Offset


class MetadataCommitted(NamedTuple):
    """A node learned that a batch of the metadata log is committed."""

    node: int
    records: tuple[AnyRecord, ...]
    offset: Offset
    """Offset of the last record."""
    epoch: LeaderEpoch


class ImageLoaded(NamedTuple):
    """The cluster image that a node loaded from a snapshot, or has at the end."""

    node: int
    image: ClusterImage


class ReplicaRead(NamedTuple):
    """The committed records in a replica's files at the end."""

    node: int
    at: TopicPartition
    batches: Mapping[Offset, tuple[LeaderEpoch, bytes]]
    """Leader epoch of the batch and value of the record, by offset."""
