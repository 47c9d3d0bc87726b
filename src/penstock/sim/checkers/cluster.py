"""What must hold inside a cluster, beside what its clients see."""

from collections.abc import Mapping

from penstock.base.ids import LeaderEpoch, Offset, TopicPartition, Uuid
from penstock.metadata import EMPTY, AnyRecord, ClusterImage
from penstock.sim.checkers.cluster_history import (
    HighWatermark,
    ImageLoaded,
    LeaderFound,
    MetadataCommitted,
    QuorumLeaderFound,
    ReplicaRead,
)
from penstock.sim.checkers.history import Event
from penstock.sim.checkers.records import Checker, Durability, Rules, SentRecords


class OneLeaderPerEpoch(Checker):
    """In an epoch of the quorum, and in one of a partition, one node leads at most."""

    def __init__(self, rules: Rules, durability: Durability, sent: SentRecords) -> None:
        super().__init__(rules, durability, sent)
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
            case _:
                pass


class MetadataIdentical(Checker):
    """What one node knows to be committed in the metadata log, every node has at the same place; and their images of
    the cluster are the same at the same offset, from snapshots too."""

    def __init__(self, rules: Rules, durability: Durability, sent: SentRecords) -> None:
        super().__init__(rules, durability, sent)
        self._batches: dict[Offset, tuple[LeaderEpoch, tuple[AnyRecord, ...], int]] = {}
        """By the offset of its last record: a batch, and who had it first."""
        self._images: dict[Offset, ClusterImage] = {-1: EMPTY}
        self._end: Offset = -1

    def see(self, event: Event) -> None:
        match event:
            case MetadataCommitted(node, records, offset, epoch):
                self._committed(node, records, offset, epoch)
            case ImageLoaded(node, image):
                known = self._images.get(image.offset)
                if known is not None and list(known.records()) != list(image.records()):
                    raise self.violation(f"node {node} has another image of the cluster at {image.offset}")
            case _:
                pass

    def _committed(
        self, node: int, records: tuple[AnyRecord, ...], offset: Offset, epoch: LeaderEpoch
    ) -> None:
        known = self._batches.get(offset)
        if known is None and offset <= self._end:
            raise self.violation(f"node {node} has a batch that ends at {offset}, where no other has one")
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
    """The high watermark of a replica never goes back while its process lives; unless all others may have lost what
    was committed, and not synced."""

    def __init__(self, rules: Rules, durability: Durability, sent: SentRecords) -> None:
        super().__init__(rules, durability, sent)
        self._highest: dict[int, Offset] = {}

    def see(self, event: Event) -> None:
        if isinstance(event, HighWatermark) and not self.rules.is_shaken:
            highest = self._highest.get(event.replica, -1)
            if event.offset < highest:
                raise self.violation(f"a replica of {event.at} had {highest}, and has {event.offset}")
            self._highest[event.replica] = event.offset


class ReplicasAgree(Checker):
    """When all is quiet, every replica has the same record at an offset, in the same leader epoch; retention and
    compaction, which each does by itself, may take some from one of them alone."""

    def __init__(self, rules: Rules, durability: Durability, sent: SentRecords) -> None:
        super().__init__(rules, durability, sent)
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
                f"{event.at} at {missing[0]} is on node {other} or on node {event.node}, and not on both"
            )


CLUSTER_CHECKERS = (OneLeaderPerEpoch, MetadataIdentical, HighWatermarkHeld, ReplicasAgree)
