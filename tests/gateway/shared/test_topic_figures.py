"""Figures of topics: rates over the last seconds, computed once for all who ask, and never a 0 that is not known."""

import pytest
from tests.gateway.shared.test_explorer import begin, run
from tests.nodes import StillNode
from tests.worlds import StillWorld

from penstock.base.errors import KafkaError
from penstock.base.ids import TopicPartition
from penstock.base.promise import Promise
from penstock.base.steps import Steps, sleep
from penstock.gateway.peer_rpc.cluster_topics import ClusterFigures, Placement, TopicTotals
from penstock.gateway.shared.controller_call import decide
from penstock.gateway.shared.kept_result import KEEP_MS, KEEP_MS_MAX, KeptResult
from penstock.gateway.shared.topic_figures import SPAN_MS_MAX, TopicFigures, TopicSampler
from penstock.metadata.controller.requests import CreateTopics, NewTopic
from penstock.metadata.image import Topic
from penstock.records import build_batch

ID = b"i" * 16


# -- results that are kept --------------------------------------------------------------------------------


class Counted:
    def __init__(self, world: StillWorld, took_ms: int = 0, error: Exception | None = None) -> None:
        self.world, self.took_ms, self.error = world, took_ms, error
        self.runs = 0
        self.kept: KeptResult[int] = KeptResult(world)

    def get(self) -> Promise[int]:
        return self.kept.get(self._compute())

    def _compute(self) -> Steps[int]:
        self.runs += 1
        if self.took_ms:
            yield sleep(self.world, self.took_ms)
        if self.error is not None:
            raise self.error
        return self.runs


def test_all_who_ask_meanwhile_get_one_result() -> None:
    world = StillWorld()
    counted = Counted(world, took_ms=10)
    promises = [counted.get() for _ in range(5)]
    world.advance(11)
    assert [each.value for each in promises] == [1] * 5
    assert counted.get().value == 1


def test_a_result_is_kept_longer_the_longer_it_took_but_not_for_ever() -> None:
    for took_ms, kept_ms in ((0, KEEP_MS), (100, 2_000), (60_000, KEEP_MS_MAX)):
        world = StillWorld()
        counted = Counted(world, took_ms)
        counted.get()
        world.advance(took_ms + 1)
        world.advance(kept_ms - 10)
        counted.get()
        assert counted.runs == 1
        world.advance(20)
        counted.get()
        assert counted.runs == 2


@pytest.mark.parametrize("error", [KafkaError("gone"), ValueError("odd")])
def test_a_failure_reaches_all_who_wait_and_is_not_kept(error: Exception) -> None:
    world = StillWorld()
    counted = Counted(world, took_ms=10, error=error)
    promises = [counted.get(), counted.get()]
    world.advance(11)
    for each in promises:
        assert each.error is not None
        assert str(error) in str(each.error)
    counted.error = None
    again = counted.get()
    world.advance(11)
    assert again.value == 2


def test_one_who_leaves_does_not_stop_the_work_for_others() -> None:
    world = StillWorld()
    counted = Counted(world, took_ms=10)

    def waits() -> Steps[int]:
        found: int = yield counted.get()
        return found

    first, _ = begin(waits())
    _, ends = begin(waits())
    first.cancel()
    world.advance(11)
    assert ends == [1]


# -- samples ----------------------------------------------------------------------------------------------


def sampled(node: StillNode, sampler: TopicSampler) -> TopicFigures:
    def steps() -> Steps[list[TopicFigures]]:
        found: list[TopicFigures] = yield sampler.figures()
        return found

    [figures] = run(node, steps())
    return figures


def written(node: StillNode, records: int) -> int:
    """Write records, each in a batch of its own; return their bytes."""
    partition = node.node.context.replicas.partitions[TopicPartition("orders", 0)]
    size = 0
    for _ in range(records):
        data = build_batch([(None, b"x" * 100, node.world.now_ms())])
        size += len(data)
        partition.log.append(data, leader_epoch=partition.leader_epoch, now_ms=node.world.now_ms())
    return size


@pytest.fixture
def node() -> StillNode:
    node = StillNode()
    run(node, decide(node.node.context, CreateTopics((NewTopic("orders", 2),))))
    return node


def test_rates_are_growth_over_the_last_seconds(node: StillNode) -> None:
    sampler = TopicSampler(node.node.context)
    first = sampled(node, sampler)
    assert (first.size_bytes, first.bytes_in, first.messages_in) == (0, None, None)
    size = written(node, 20)
    node.world.advance(2_000)
    second = sampled(node, sampler)
    assert second.size_bytes == size
    assert second.messages_in == pytest.approx(10, rel=0.01)
    assert second.bytes_in == pytest.approx(size / 2, rel=0.01)
    for _ in range(15):
        node.world.advance(2_000)
        last = sampled(node, sampler)
    assert (last.messages_in, last.bytes_in) == (0, 0)


def test_after_a_pause_rates_are_not_known(node: StillNode) -> None:
    """An average over ten minutes is not a rate of now."""
    sampler = TopicSampler(node.node.context)
    sampled(node, sampler)
    node.world.advance(2_000)
    assert sampled(node, sampler).messages_in == 0
    written(node, 5)
    node.world.advance(SPAN_MS_MAX + 1_000)
    assert sampled(node, sampler).messages_in is None


# -- sums over brokers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answered", "leaders", "expected"),
    [
        ({1, 2, 3}, {1, 2}, TopicTotals(30, 6, 1.5, 3.0)),
        ({1, 2}, {1, 2}, TopicTotals(None, 4, 1.0, 2.0)),
        ({1, 3}, {1, 2}, TopicTotals(None)),
        ({1, 2, 3}, {1, -1}, TopicTotals(30)),
        (set(), {1}, TopicTotals()),
    ],
)
def test_what_depends_on_a_silent_broker_is_not_known(
    answered: set[int], leaders: set[int], expected: TopicTotals
) -> None:
    figures = ClusterFigures(
        {each: {ID: TopicFigures(ID, 10, 2, 0.5, 1.0)} for each in answered}, frozenset({1, 2, 3} - answered)
    )
    placed = Placement(Topic("orders", ID), frozenset({1, 2, 3}), frozenset(leaders), 0, 0)
    assert figures.of(placed) == expected
