"""Sums over all partitions of the metadata image, computed once for each image.

A cluster that is left alone keeps its image, so that asking again costs nothing. A new image of 50,000 partitions is
read in slices. If it takes long, the next one is read later, and the sums before it are answered meanwhile.
"""

from collections import Counter
from typing import Final

from penstock.base.steps import Steps, next_tick
from penstock.gateway.shared.health import Problem, cluster_problems
from penstock.handlers.support.context import Context
from penstock.metadata.configs import min_insync_replicas
from penstock.metadata.image import ClusterImage
from penstock.metadata.records import NO_LEADER

PARTITIONS_A_TICK: Final = 1_000

FRESH_TIMES: Final = 100
"""After a count, the next one waits for this many times what it took: counting takes a percent of the loop at most."""

FRESH_MS_MAX: Final = 15_000


class PartitionCounts:
    """Of one image."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.partitions = self.offline = self.under_replicated = self.under_min_isr = 0
        self.reassigning = self.unpreferred = 0
        self.leaders: Counter[int] = Counter()
        """Partitions by leader."""
        self.replicas: Counter[int] = Counter()
        """Replicas by broker."""
        self.problems: list[Problem] = []
        """`health.cluster_problems`."""


class PartitionCounter:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: PartitionCounts | None = None
        self._fresh_until_ms = 0.0
        """By a monotonic clock."""

    def counts(self) -> Steps[PartitionCounts]:
        """Those of the current image, or of one some seconds ago."""
        known, image, world = self._known, self._context.image, self._context.world
        began_ms = world.clock_ns() / 1e6
        if known is None or (known.image is not image and began_ms >= self._fresh_until_ms):
            known = self._known = yield from self._count(image)
            now_ms = world.clock_ns() / 1e6
            self._fresh_until_ms = now_ms + min(FRESH_TIMES * (now_ms - began_ms), FRESH_MS_MAX)
        return known

    def _count(self, image: ClusterImage) -> Steps[PartitionCounts]:
        context = self._context
        counts = PartitionCounts(image)
        for topic in image.topics.values():
            in_sync_min = min_insync_replicas(topic.name, image, context.settings)
            for partition in topic.partitions.values():
                counts.partitions += 1
                if counts.partitions % PARTITIONS_A_TICK == 0:
                    yield next_tick(context.world)
                for broker in partition.replicas:
                    counts.replicas[broker] += 1
                leader, in_sync, replicas = partition.leader, len(partition.isr), len(partition.replicas)
                if leader == NO_LEADER:
                    counts.offline += 1
                else:
                    counts.leaders[leader] += 1
                    counts.unpreferred += leader != partition.replicas[0]
                    counts.under_min_isr += in_sync < min(in_sync_min, replicas)
                counts.under_replicated += in_sync < replicas and not partition.adding
                counts.reassigning += bool(partition.adding or partition.removing)
        counts.problems = yield from cluster_problems(context)
        return counts
