"""A page of metrics stays small and cheap, however large the node is."""

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.gateway.scrapes import Scrape, check
from tests.worlds import StillWorld

from penstock.base.ids import TopicPartition
from penstock.base.metrics import Metrics, Traffic
from penstock.base.steps import RunningSteps
from penstock.gateway.shared import group_lag_metrics
from penstock.gateway.shared import metrics_page as collecting
from penstock.gateway.shared.exposition import Page
from penstock.gateway.shared.metrics_page import collect
from penstock.replica.sync_lane import SyncLane


class LargeNode:
    """So many partitions and groups, each with the same numbers, and nothing else."""

    def __init__(self, topics: int, partitions: int, groups: int = 0) -> None:
        self.world = StillWorld()
        names = [
            TopicPartition(f"topic-{each:05}", number)
            for each in range(topics)
            for number in range(partitions)
        ]
        held = {name: self._partition(name) for name in names}
        by_key = {
            (key, each.number): each for each in held.values() for key in (each.topic, each.topic.encode())
        }
        places = {(f"topic-{each:05}", 0): SimpleNamespace(offset=4) for each in range(topics)}
        coordinator = SimpleNamespace(
            positions=[(f"group-{each:05}", places) for each in range(groups)], groups=[]
        )
        shards = SimpleNamespace(coordinator=coordinator, is_damaged=False, is_loaded=True)
        self.context = cast(
            Any,
            SimpleNamespace(
                world=self.world,
                metrics=Metrics(),
                client_memory=None,
                replicas=SimpleNamespace(
                    inspections=SimpleNamespace(inspected=0, waiting=0),
                    directory=SimpleNamespace(strays_left=list),
                    partitions=held,
                    by_key=by_key,
                    record_times=SimpleNamespace(is_known=lambda *_: False, lag_seconds=lambda *_: 7.5),
                    gone=Traffic(),
                    lane=SyncLane(self.world),
                    isr_changes=None,
                    fetchers=None,
                ),
                quorum=SimpleNamespace(
                    role="leader",
                    is_leader=True,
                    leader_id=1,
                    epoch=1,
                    high_watermark=10,
                    end_offset=10,
                    voters=[1],
                    elections=1,
                    is_recovering=False,
                ),
                image=SimpleNamespace(brokers={}, topics=_placed(topics, partitions)),
                groups=SimpleNamespace(shards=_Shards("__consumer_offsets", [shards])),
                transactions=SimpleNamespace(shards=_Shards("__transaction_state", [])),
                cluster_id="c",
                node_id=1,
            ),
        )

    @staticmethod
    def _partition(name: TopicPartition) -> Any:
        log = SimpleNamespace(
            segments=_Segments([SimpleNamespace(size=100)] * 2),
            size_bytes=200,
            log_start=2,
            log_end=12,
        )
        return SimpleNamespace(
            topic=name.topic,
            number=name.partition,
            log=log,
            bytes_in=200,
            messages_in=10,
            bytes_out=0,
            messages_out=0,
            waiting=0,
            high_watermark=12,
            isr_size=1,
            isr=None,
        )

    def page(self, *, by_partition: bool = False) -> tuple[Scrape, int]:
        """The page, and how often others had their turn."""
        pages: list[Page] = []
        failures: list[Exception] = []
        steps = collect(self.context, None, is_open=False, by_partition=by_partition)
        RunningSteps(steps, pages.append, failures.append)
        turns = 0
        while not pages and not failures:
            assert self.world.step()
            turns += 1
        assert not failures, failures
        return Scrape(pages[0].encoded().decode()), turns


def _placed(topics: int, partitions: int) -> dict[str, Any]:
    """As the image has them, all led by the first of two replicas."""
    placed = SimpleNamespace(leader=1, replicas=(1, 2), adding=(), removing=())
    topic = SimpleNamespace(partitions=dict.fromkeys(range(partitions), placed))
    return {f"topic-{each:05}": topic for each in range(topics)}


class _Segments(list[Any]):
    @property
    def active(self) -> Any:
        return self[-1]


class _Shards(list[Any]):
    def __init__(self, topic: str, shards: list[Any]) -> None:
        super().__init__(shards)
        self.topic = topic


def test_ten_thousand_partitions_are_one_line_a_topic() -> None:
    node = LargeNode(topics=10, partitions=1000)
    page, turns = node.page()
    check(page)
    assert len(page.text.splitlines()) < 400
    assert page("penstock_partitions") == 10_000
    assert page("penstock_topic_log_bytes", topic="topic-00003") == 200_000
    assert page("penstock_topic_log_segments", topic="topic-00003") == 2000
    assert page("penstock_topic_log_end_offsets", topic="topic-00003") == 12_000
    assert page("penstock_messages_in_total") == 100_000
    assert page("penstock_cluster_partitions") == 10_000
    assert turns >= 2 * 10_000 // collecting.ITEMS_A_TICK, "clients are served in between"


def test_on_demand_they_are_lines_of_their_own() -> None:
    page, turns = LargeNode(topics=2, partitions=1000).page(by_partition=True)
    check(page)
    shown = Counter(name for name, _ in page.series)
    assert shown["penstock_partition_log_end_offset"] == 2000
    assert turns >= 2 * 2000 // collecting.ITEMS_A_TICK


def test_of_too_many_topics_some_have_no_series_and_all_are_in_the_totals() -> None:
    page, _ = LargeNode(topics=collecting.TOPICS_MAX + 50, partitions=1).page()
    shown = Counter(name for name, _ in page.series)
    assert shown["penstock_topic_messages_in_total"] == collecting.TOPICS_MAX
    assert page("penstock_messages_in_total") == 10 * (collecting.TOPICS_MAX + 50)
    assert page("penstock_series_omitted", of="topics") == 50


def test_a_page_looks_up_a_bounded_number_of_timestamps() -> None:
    node = LargeNode(topics=20, partitions=1, groups=50)
    lookups = []
    node.context.replicas.record_times.lag_seconds = lambda *args: lookups.append(args) or 7.5
    page, turns = node.page()
    assert len(lookups) == group_lag_metrics.LAG_LOOKUPS
    assert turns >= len(lookups) * group_lag_metrics.LOOKUP_COST // group_lag_metrics.ITEMS_A_TICK
    assert page("penstock_group_lag", group="group-00049", topic="topic-00000") == 12 - 4
    assert not page.has("penstock_group_lag_seconds", group="group-00049", topic="topic-00000")


def test_of_too_many_groups_some_have_no_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_lag_metrics, "LAGS_MAX", 100)
    page, turns = LargeNode(topics=20, partitions=1, groups=50).page()
    shown = Counter(name for name, _ in page.series)
    assert shown["penstock_group_lag"] == 100
    assert shown["penstock_group_lag_seconds"] == 100
    assert page("penstock_series_omitted", of="group lags") == 900
    assert page("penstock_group_lag", group="group-00000", topic="topic-00000") == 12 - 4
    assert page("penstock_group_lag_seconds", group="group-00000", topic="topic-00000") == 7.5
    assert turns >= 1000 // collecting.ITEMS_A_TICK, "clients are served in between"
