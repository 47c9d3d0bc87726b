"""What happened inside a cluster, where its clients cannot see it."""

from collections.abc import Mapping
from typing import NamedTuple

from penstock.base.ids import LeaderEpoch, Offset, TopicPartition, Uuid
from penstock.metadata import AnyRecord, ClusterImage


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
    """A node that leads a partition of a coordinator's topic has read it. Until then it answers heartbeats blindly."""

    node: int
    partition: int
    epoch: LeaderEpoch
    now_us: int


class CoordinatorUnloaded(NamedTuple):
    """A node that leads a partition of a coordinator's topic reads it anew. It answers heartbeats blindly again."""

    node: int
    partition: int
    epoch: LeaderEpoch
    now_us: int


class ReplicaCreated(NamedTuple):
    """A process has a partition anew that it had before: it was moved away, and came back."""

    incarnation: int
    at: TopicPartition


class HighWatermark(NamedTuple):
    """A replica's high watermark has moved."""

    replica: int
    """Another number in each life of a process, and each time the partition is placed there anew."""
    at: TopicPartition
    offset: Offset


class MetadataCommitted(NamedTuple):
    """A node was told that a batch of the metadata log is committed."""

    node: int
    records: tuple[AnyRecord, ...]
    offset: Offset
    """Of its last record."""
    epoch: LeaderEpoch


class ImageLoaded(NamedTuple):
    """A node has an image of the cluster, from a snapshot; or in the end."""

    node: int
    image: ClusterImage


class ReplicaRead(NamedTuple):
    """What is in a replica's files in the end, as far as it was committed."""

    node: int
    at: TopicPartition
    batches: Mapping[Offset, tuple[LeaderEpoch, bytes]]
    """Of each record's offset: the leader epoch of its batch, and the record's value."""
