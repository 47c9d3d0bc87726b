"""Figures of all topics of the cluster, summed over its brokers.

Every broker is asked once, for up to `FIGURES_A_REPLY` topics at a time. A broker that is fenced or does not answer in
time is named: what depends on it is not known, and is left out rather than counted as 0.
"""

from typing import Final, NamedTuple

from penstock.base.errors import KafkaError
from penstock.base.ids import Uuid
from penstock.base.promise import Promise
from penstock.base.steps import Steps, in_time, next_tick
from penstock.gateway.peer_rpc.client import peer_rpc_of
from penstock.gateway.peer_rpc.messages import FIGURES_A_REPLY, GetTopicFigures
from penstock.gateway.shared.kept_result import KeptResult
from penstock.gateway.shared.topic_figures import TopicFigures, TopicSampler
from penstock.handlers.support.context import Context
from penstock.metadata.image import Topic
from penstock.replica.partition import NO_LEADER

ANSWER_MS_MAX: Final = 3_000
"""A broker that takes longer is left out: a list of topics should not wait for it."""

TOPICS_A_TICK: Final = 1_000


class TopicTotals(NamedTuple):
    """Of a topic in the cluster. None stands for what is not known."""

    size_bytes: int | None = None
    """Of all replicas."""
    messages: int | None = None
    bytes_in: float | None = None
    messages_in: float | None = None


class Placement(NamedTuple):
    """Where a topic's replicas are."""

    topic: Topic
    brokers: frozenset[int]
    leaders: frozenset[int]
    """With `NO_LEADER`, if a partition has none."""
    under_replicated: int
    """Partitions with a replica that is not in sync."""
    offline: int
    """Partitions without a leader."""


class ClusterFigures(NamedTuple):
    by_broker: dict[int, dict[Uuid, TopicFigures]]
    unanswered: frozenset[int]
    """Brokers that are fenced or did not answer."""

    def of(self, placed: Placement) -> TopicTotals:
        topic_id = placed.topic.id
        found = {
            broker: figures
            for broker, topics in self.by_broker.items()
            if broker in placed.brokers and (figures := topics.get(topic_id)) is not None
        }
        size = sum(each.size_bytes for each in found.values()) if placed.brokers <= found.keys() else None
        if not placed.leaders <= found.keys():
            return TopicTotals(size)
        return TopicTotals(
            size,
            sum(each.messages for each in found.values()),
            _sum([each.bytes_in for each in found.values()]),
            _sum([each.messages_in for each in found.values()]),
        )


def _sum(values: list[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return sum(known) if len(known) == len(values) else None


class ClusterTopics:
    """The topics of the cluster, as one broker gathers them."""

    def __init__(self, context: Context, sampler: TopicSampler) -> None:
        self._context = context
        self._sampler = sampler
        self._kept: KeptResult[ClusterFigures] = KeptResult(context.world)
        self._placements: dict[str, Placement] = {}
        """By name; one is replaced when its topic has changed in the image."""

    def figures(self) -> Promise[ClusterFigures]:
        return self._kept.get(self._gather())

    def placement(self, topic: Topic) -> Placement:
        known = self._placements.get(topic.name)
        if known is None or known.topic is not topic:
            known = self._placements[topic.name] = _placed(topic)
        return known

    def _gather(self) -> Steps[ClusterFigures]:
        context = self._context
        for name in [each for each in self._placements if each not in context.image.topics]:
            del self._placements[name]
        others = [each for each in context.image.brokers if each != context.node_id]
        fenced = {each for each in others if context.image.brokers[each].fenced}
        asked = {each: self._ask(each, None) for each in others if each not in fenced}
        here: list[TopicFigures] = yield self._sampler.figures()
        by_broker: dict[int, dict[Uuid, TopicFigures]] = {}
        by_broker[context.node_id] = {each.topic_id: each for each in here}
        unanswered = set(fenced)
        for broker, answer in asked.items():
            try:
                by_broker[broker] = yield from self._all_of(broker, answer)
            except KafkaError:
                unanswered.add(broker)
        return ClusterFigures(by_broker, frozenset(unanswered))

    def _all_of(self, broker: int, answer: Promise[list[TopicFigures]]) -> Steps[dict[Uuid, TopicFigures]]:
        found: dict[Uuid, TopicFigures] = {}
        while True:
            some: list[TopicFigures] = yield answer
            for at in range(0, len(some), TOPICS_A_TICK):
                found.update((each.topic_id, each) for each in some[at : at + TOPICS_A_TICK])
                yield next_tick(self._context.world)
            if len(some) < FIGURES_A_REPLY:
                return found
            answer = self._ask(broker, some[-1].topic_id)

    def _ask(self, broker: int, after: Uuid | None) -> Promise[list[TopicFigures]]:
        request = GetTopicFigures(after)
        return in_time(
            self._context.world,
            peer_rpc_of(self._context).send(broker, request, timeout_ms=ANSWER_MS_MAX),
            ANSWER_MS_MAX,
            f"broker {broker} did not answer within {ANSWER_MS_MAX} ms",
        )


def _placed(topic: Topic) -> Placement:
    partitions = topic.partitions.values()
    return Placement(
        topic,
        frozenset(broker for each in partitions for broker in each.replicas),
        frozenset(each.leader for each in partitions),
        sum(len(each.isr) < len(each.replicas) for each in partitions),
        sum(each.leader == NO_LEADER for each in partitions),
    )
