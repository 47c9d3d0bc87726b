"""Plans replica assignments that move as few replicas as possible.

A plan starts with the current assignment. Replicas on brokers outside of the plan are removed. Replicas of a partition
in the same rack are spread if another rack has none. Missing replicas are added. Then replicas move one at a time from
the broker with most to the broker with fewest, first within each topic, then over all topics, until no two brokers
differ by more than one, or every further move would put replicas into the same rack. Finally the order of replicas is
changed, which copies nothing, so that preferred leaders are spread evenly.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from penstock.base.ids import TopicPartition

Replicas: TypeAlias = tuple[int, ...]
Assignment: TypeAlias = dict[TopicPartition, Replicas]


EVERY_TOPIC = ""
"""Instead of a topic name, which is never empty."""


class PlannedBroker(NamedTuple):
    id: int
    rack: str | None = None


class CannotPlan(Exception):
    """No assignment is possible; the message is one sentence for the user."""


def plan(
    current: Mapping[TopicPartition, Replicas],
    brokers: Sequence[PlannedBroker],
    replication_factor: int | None = None,
) -> Assignment:
    """Replicas for each partition on these brokers; without a factor the number of replicas stays."""
    without = [each.id for each in brokers if each.rack is None]
    if without and len(without) < len(brokers):
        raise CannotPlan(f"broker {without[0]} has no rack, but others have: give it one, or ignore racks")
    most = max((len(replicas) for replicas in current.values()), default=0)
    wanted = replication_factor or most
    if wanted > len(brokers):
        raise CannotPlan(
            f"{wanted} replicas of a partition need {wanted} brokers, but the plan has {len(brokers)}"
        )
    planner = _Planner(brokers)
    for partition, replicas in sorted(current.items()):
        planner.keep(partition, replicas, replication_factor or len(replicas))
    planner.fill()
    for topic in sorted({each.topic for each in current}):
        planner.level(topic)
    planner.level(EVERY_TOPIC)
    planner.spread_leaders()
    return {partition: tuple(planner.placed[partition]) for partition in sorted(current)}


class _Planner:
    def __init__(self, brokers: Iterable[PlannedBroker]) -> None:
        self.racks = {each.id: each.rack for each in brokers}
        self.placed: dict[TopicPartition, list[int]] = {}
        self._before: dict[TopicPartition, Replicas] = {}
        self._factors: dict[TopicPartition, int] = {}
        self._on: defaultdict[tuple[str, int], dict[TopicPartition, None]] = defaultdict(dict)
        """Number of replicas of each broker: per topic, and of all topics."""

    def keep(self, partition: TopicPartition, replicas: Replicas, factor: int) -> None:
        """Start with the replicas that may stay: on brokers of the plan, in different racks if possible."""
        self._factors[partition], self._before[partition] = factor, replicas
        kept: list[int] = []
        self.placed[partition] = kept
        for each in replicas:
            if each in self.racks and len(kept) < factor and self._may_join(each, kept, factor):
                kept.append(each)
                self._put(partition, each)

    def fill(self) -> None:
        for partition, kept in sorted(self.placed.items()):
            while len(kept) < self._factors[partition]:
                best = self._best_addition(partition)
                kept.append(best)
                self._put(partition, best)

    def _best_addition(self, partition: TopicPartition) -> int:
        """Prefer the rack with fewest replicas of the partition, then a current replica, then the least load."""
        kept, before = self.placed[partition], self._before[partition]
        free = [each for each in self.racks if each not in kept]

        def cost(broker: int) -> tuple[int, bool, int, int, int]:
            load = (len(self._on[partition.topic, broker]), len(self._on[EVERY_TOPIC, broker]))
            return self._in_rack(broker, kept), broker not in before, *load, broker

        return min(free, key=cost)

    def level(self, topic: str) -> None:
        """Move replicas of one topic, or of all, one at a time, from the broker with most to the one with fewest."""
        while (found := self._best_move(topic)) is not None:
            partition, source, target = found
            placed = self.placed[partition]
            placed[placed.index(source)] = target
            del self._on[partition.topic, source][partition]
            del self._on[EVERY_TOPIC, source][partition]
            self._put(partition, target)

    def _best_move(self, topic: str) -> tuple[TopicPartition, int, int] | None:
        load = {each: len(self._on[topic, each]) for each in self.racks}
        order = sorted(self.racks, key=lambda each: (load[each], each))
        for source in reversed(order):
            for target in order:
                if load[source] - load[target] < 2:
                    break
                for partition in self._on[topic, source]:
                    if self._may_move(partition, source, target, topic):
                        return partition, source, target
        return None

    def _may_move(self, partition: TopicPartition, source: int, target: int, topic: str) -> bool:
        placed = self.placed[partition]
        if target in placed:
            return False
        own = partition.topic
        if topic == EVERY_TOPIC and len(self._on[own, source]) <= len(self._on[own, target]):
            return False  # the topic would be less balanced
        others = [each for each in placed if each != source]
        return self._in_rack(target, others) <= self._in_rack(source, others)

    def spread_leaders(self) -> None:
        """Move preferred leaders from brokers with too many to brokers with too few."""
        first = Counter(dict.fromkeys(self.racks, 0))
        first.update(placed[0] for placed in self.placed.values())
        is_changing = True
        while is_changing:
            is_changing = False
            for _, placed in sorted(self.placed.items()):
                best = min(placed, key=lambda each: (first[each], each))
                if first[placed[0]] - first[best] > 1:
                    first[placed[0]] -= 1
                    first[best] += 1
                    placed.remove(best)
                    placed.insert(0, best)
                    is_changing = True

    def _may_join(self, broker: int, others: Sequence[int], factor: int) -> bool:
        """Whether the broker's rack has at most its share of the partition."""
        racks = len(set(self.racks.values()))
        return self._in_rack(broker, others) < -(-factor // racks)

    def _in_rack(self, broker: int, others: Iterable[int]) -> int:
        """Number of other replicas in the broker's rack. A broker without a rack is its own rack."""
        rack = self.racks[broker]
        return 0 if rack is None else sum(self.racks[each] == rack for each in others)

    def _put(self, partition: TopicPartition, broker: int) -> None:
        self._on[partition.topic, broker][partition] = None
        self._on[EVERY_TOPIC, broker][partition] = None
