"""Rules for the inside of a cluster, which clients cannot see."""

from collections.abc import Mapping

from penstock.base.ids import LeaderEpoch, Offset, TopicPartition, Uuid
from penstock.metadata.image import EMPTY, ClusterImage
from penstock.metadata.records import AnyRecord
from penstock.sim.checkers.history import (
    Event,
    HighWatermark,
    ImageLoaded,
    LeaderFound,
    MetadataCommitted,
    QuorumLeaderFound,
    ReplicaRead,
)
from penstock.sim.checkers.records import Checker


class OneLeaderPerEpoch(Checker):
    """In each epoch, of the quorum and of each partition, at most one node leads."""

    def begin(self) -> None:
        self._quorum: dict[LeaderEpoch, int] = {}
        self._partitions: dict[tuple[Uuid, int, LeaderEpoch], int] = {}

    def see(self, event: Event) -> None:
        match event:
            case QuorumLeaderFound(node, epoch):
                known = self._quorum.setdefault(epoch, node)
                if known != node:
                    raise self.violation(f"nodes {known} and {node} both led the quorum in epoch {epoch}")
            case LeaderFound(node, at, topic_id, epoch):
                known = self._partitions.setdefault((topic_id, at.partition, epoch), node)
                if known != node:
                    raise self.violation(f"nodes {known} and {node} both led {at} in epoch {epoch}")


class MetadataIdentical(Checker):
    """All nodes have the same committed batches at the same offsets of the metadata log, and the same cluster image at
    the same offset, also from snapshots."""

    def begin(self) -> None:
        self._batches: dict[Offset, tuple[LeaderEpoch, tuple[AnyRecord, ...], int]] = {}
        """Batches by last offset, with the node that reported each first."""
        self._images: dict[Offset, ClusterImage] = {-1: EMPTY}
        self._end: Offset = -1

    def see(self, event: Event) -> None:
        match event:
            case MetadataCommitted(node, records, offset, epoch):
                self._committed(node, records, offset, epoch)
            case ImageLoaded(node, image):
                known = self._images.get(image.offset)
                if known is not None and list(known.records()) != list(image.records()):
                    raise self.violation(f"node {node} has a different cluster image at {image.offset}")

    def _committed(
        self, node: int, records: tuple[AnyRecord, ...], offset: Offset, epoch: LeaderEpoch
    ) -> None:
        known = self._batches.get(offset)
        if known is None and offset <= self._end:
            raise self.violation(
                f"node {node} has a batch that ends at {offset}, and no other node has one there"
            )
        if known is None:
            self._batches[offset] = epoch, records, node
            self._images[offset] = self._images[self._end].replay(records, offset, epoch)
            self._end = offset
        elif known[:2] != (epoch, records):
            raise self.violation(
                f"node {node} has {records} of epoch {epoch} at {offset},"
                f" and node {known[2]} {known[1]} of epoch {known[0]}"
            )


class HighWatermarkHeld(Checker):
    """The high watermark of a replica never moves back while its process runs, unless all nodes may lose power at
    once and with it records that were committed and not synced."""

    def begin(self) -> None:
        self._highest: dict[int, Offset] = {}

    def see(self, event: Event) -> None:
        if isinstance(event, HighWatermark) and not self.rules.is_shaken:
            highest = self._highest.get(event.replica, -1)
            if event.offset < highest:
                raise self.violation(f"a replica of {event.at} moved back from {highest} to {event.offset}")
            self._highest[event.replica] = event.offset


class ReplicasAgree(Checker):
    """At the end, every replica has the same record and leader epoch at an offset. Retention and compaction, which run
    on each replica separately, may have removed a record from only some of them."""

    def begin(self) -> None:
        self._first: dict[TopicPartition, tuple[int, Mapping[Offset, tuple[LeaderEpoch, bytes]]]] = {}

    def see(self, event: Event) -> None:
        if not isinstance(event, ReplicaRead):
            return
        other, expected = self._first.setdefault(event.at, (event.node, event.batches))
        for offset in sorted(expected.keys() & event.batches.keys()):
            if expected[offset] != event.batches[offset]:
                raise self.violation(
                    f"{event.at} at {offset} is {expected[offset]} on node {other}"
                    f" and {event.batches[offset]} on node {event.node}"
                )
        if event.at.topic in self.rules.compacted | self.rules.shortened or event.at.topic.startswith("__"):
            return
        missing = sorted(expected.keys() ^ event.batches.keys())
        if missing:
            raise self.violation(
                f"{event.at} at {missing[0]} is on only one of the nodes {other} and {event.node}"
            )


CLUSTER_CHECKERS = (OneLeaderPerEpoch, MetadataIdentical, HighWatermarkHeld, ReplicasAgree)
