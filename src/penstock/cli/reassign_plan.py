"""Where replicas should be, with as few of them moved as that takes.

A plan starts from where they are. Replicas on brokers that are not to have any go; those of one partition that share a
rack, while another rack has none, are spread; what is missing is placed; and then one replica at a time moves from the
broker that has most to the one that has least, of the same topic first and over all topics afterwards, until no two
brokers differ by more than one or no move is left that keeps racks apart. In the end the order of replicas is changed,
which moves nothing, so that every broker is the first choice to lead about as often as the others.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from penstock.base.ids import TopicPartition

Replicas: TypeAlias = tuple[int, ...]
Assignment: TypeAlias = dict[TopicPartition, Replicas]


EVERY_TOPIC = ""
"""In place of a topic's name, which is never empty."""


class PlannedBroker(NamedTuple):
    id: int
    rack: str | None = None


class CannotPlan(Exception):
    """No assignment is possible; the message is one sentence for a person."""


def plan(
    current: Mapping[TopicPartition, Replicas],
    brokers: Sequence[PlannedBroker],
    replication_factor: int | None = None,
) -> Assignment:
    """Replicas for each partition, on these brokers alone; without a factor each keeps as many as it has."""
    without = [each.id for each in brokers if each.rack is None]
    if without and len(without) < len(brokers):
        raise CannotPlan(
            f"broker {without[0]} has no rack and others have; leave racks out of it (--no-racks)"
        )
    most = max((len(replicas) for replicas in current.values()), default=0)
    wanted = replication_factor or most
    if wanted > len(brokers):
        raise CannotPlan(
            f"{wanted} replicas of a partition need as many brokers, and {len(brokers)} are named"
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
        """What each broker has: of a topic, and of every topic."""

    def keep(self, partition: TopicPartition, replicas: Replicas, factor: int) -> None:
        """Start with the replicas that may stay: on brokers of the plan, in different racks as far as possible."""
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
        """Where the partition's rack has fewest, then where it is already, then where there is least."""
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
            return False  # the topic itself would be less even
        others = [each for each in placed if each != source]
        return self._in_rack(target, others) <= self._in_rack(source, others)

    def spread_leaders(self) -> None:
        """Change preferred leaders, from brokers that lead too often to brokers that lead too seldom."""
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
        """How many of the other replicas are in the broker's rack. A broker without a rack is a rack by itself."""
        rack = self.racks[broker]
        return 0 if rack is None else sum(self.racks[each] == rack for each in others)

    def _put(self, partition: TopicPartition, broker: int) -> None:
        self._on[partition.topic, broker][partition] = None
        self._on[EVERY_TOPIC, broker][partition] = None
