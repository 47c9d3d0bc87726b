"""The explorer's parts, on a node that stands still: what is said is what the log has, and nothing blocks the loop."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from tests.nodes import StillNode

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.hashing import partition_of_key
from penstock.base.ids import TopicPartition
from penstock.base.steps import RunningSteps, Steps
from penstock.gateway.http.explorer import view_anywhere
from penstock.gateway.shared.explorer import DEMO, PORTION_RECORDS, SETUP_RECORDS, Explorer, reading
from penstock.gateway.shared.log_inspection import ViewLimits, view_cluster
from penstock.handlers.support.context import Session

T = TypeVar("T")

SESSION = Session("127.0.0.1", 8080, "127.0.0.1:5000")
ALL = ViewLimits(segments_max=1_000, entries_max=1_000)


def begin(steps: Steps[T]) -> tuple[RunningSteps[T], list[Any]]:
    """Steps on their way, and where their end will be found."""
    ends: list[Any] = []
    return RunningSteps(steps, ends.append, ends.append), ends


def run(node: StillNode, steps: Steps[T]) -> T:
    _, ends = begin(steps)
    node.world.run_until(lambda: bool(ends))
    if isinstance(ends[0], Exception):
        raise ends[0]
    return ends[0]  # type: ignore[no-any-return]


@pytest.fixture
def node() -> StillNode:
    return StillNode()


@pytest.fixture
def explorer(node: StillNode) -> Explorer:
    return Explorer(node.node.context)


def logs(node: StillNode) -> list[Any]:
    partitions = node.node.context.replicas.partitions
    return [partitions[TopicPartition(DEMO, number)].log for number in range(3)]


def test_setup_makes_the_topic_and_writes_each_key_to_its_partition(
    node: StillNode, explorer: Explorer
) -> None:
    told = run(node, explorer.setup(SESSION))

    assert told.created
    assert told.produced == SETUP_RECORDS
    found = {}
    for number, log in enumerate(logs(node)):
        records = [record for batch in log.batches() for record in batch.records()]
        assert all(partition_of_key(record.key, 3) == number for record in records)
        assert told.partitions[number].records == len(records)
        assert told.partitions[number].last_offset == len(records) - 1
        found.update({record.value: record.key for record in records})
    assert found == {reading(each).value: reading(each).key for each in range(SETUP_RECORDS)}


def test_setup_twice_changes_nothing_and_says_what_was_there(node: StillNode, explorer: Explorer) -> None:
    run(node, explorer.setup(SESSION))
    told = run(node, explorer.setup(SESSION))

    assert not told.created
    assert (told.records_before, told.produced) == (SETUP_RECORDS, 0)
    assert "1000 records" in told.message
    assert sum(log.log_end for log in logs(node)) == SETUP_RECORDS


def test_two_who_set_it_up_at_once_do_it_once(node: StillNode, explorer: Explorer) -> None:
    _, first = begin(explorer.setup(SESSION))
    _, second = begin(explorer.setup(SESSION))
    _, third = begin(explorer.setup(SESSION))
    node.world.run_until(lambda: bool(first and second and third))

    assert [each[0].created for each in (first, second, third)] == [True, False, False]
    assert sum(log.log_end for log in logs(node)) == SETUP_RECORDS


def test_a_client_that_leaves_during_a_setup_delays_no_other(node: StillNode, explorer: Explorer) -> None:
    first, _ = begin(explorer.setup(SESSION))
    _, second = begin(explorer.setup(SESSION))
    first.cancel()
    node.world.run_until(lambda: bool(second))

    assert second[0].produced == SETUP_RECORDS
    assert sum(log.log_end for log in logs(node)) == SETUP_RECORDS


def test_a_topic_that_was_left_empty_is_filled(node: StillNode, explorer: Explorer) -> None:
    node.create_topic(DEMO, 3)
    told = run(node, explorer.setup(SESSION))
    assert (told.created, told.records_before, told.produced) == (False, 0, SETUP_RECORDS)


def test_a_long_run_is_written_in_portions(
    node: StillNode, explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two portions every other client has its turn."""
    run(node, explorer.setup(SESSION))
    sizes = []
    honest: Callable[..., Any] = explorer._batches

    def counted(numbers: range, partitions: int) -> Any:
        sizes.append((len(numbers), node.world.now_ms()))
        return honest(numbers, partitions)

    monkeypatch.setattr(explorer, "_batches", counted)
    told = run(node, explorer.produce(SESSION, 10_050))

    assert [size for size, _ in sizes] == [PORTION_RECORDS] * 20 + [50]
    assert len({at for _, at in sizes}) == len(sizes), "each waits until the one before is durable"
    assert told.produced == sum(each.records for each in told.partitions) == 10_050
    assert told.segments_before == 3
    assert told.segments == sum(len(log.segments) for log in logs(node)) > 9


def test_producing_before_the_setup_says_what_to_do(node: StillNode, explorer: Explorer) -> None:
    with pytest.raises(KafkaError, match="POST /api/architecture/setup") as refused:
        run(node, explorer.produce(SESSION, 1))
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_partitions_that_are_not_led_here_are_said_to_be_elsewhere(
    node: StillNode, explorer: Explorer
) -> None:
    run(node, explorer.setup(SESSION))
    node.node.context.replicas.step_down()
    with pytest.raises(KafkaError) as refused:
        run(node, explorer.produce(SESSION, 10))
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_topic_is_shown_as_its_log_is(node: StillNode, explorer: Explorer) -> None:
    run(node, explorer.setup(SESSION))
    run(node, explorer.produce(SESSION, 10_000))
    context = node.node.context

    view = run(node, view_anywhere(context, SESSION, DEMO, ALL))

    assert (view.segment_bytes, view.retention_ms, view.min_insync_replicas) == (100_000, 604_800_000, 1)
    assert view.segments == sum(len(log.segments) for log in logs(node))
    assert {each.name: each.source for each in view.settings}["segment.bytes"] == "topic"
    assert {each.name: each.source for each in view.settings}["retention.ms"] == "default"
    for partition, log in zip(view.partitions, logs(node), strict=True):
        assert (partition.log_start_offset, partition.log_end_offset) == (0, log.log_end)
        assert partition.high_watermark == partition.flushed_offset == log.log_end
        assert partition.size_bytes == sum(each.size_bytes for each in partition.segments)
        for shown, segment in zip(partition.segments, log.segments, strict=True):
            assert (shown.base_offset, shown.size_bytes) == (segment.base_offset, segment.size)
            assert shown.largest_timestamp == segment.largest().timestamp
            assert [
                (each.offset, each.position) for each in shown.offset_index.first
            ] == segment.index.entries()
            assert [
                (each.timestamp, each.offset) for each in shown.time_index.first
            ] == segment.time_index.entries()
        assert [each.is_active for each in partition.segments] == [False] * (len(log.segments) - 1) + [True]


def test_as_much_is_shown_as_was_asked_for(node: StillNode, explorer: Explorer) -> None:
    run(node, explorer.setup(SESSION))
    run(node, explorer.produce(SESSION, 10_000))

    view = run(node, view_anywhere(node.node.context, SESSION, DEMO, ViewLimits(2, 1, partition=1)))

    [shown] = view.partitions
    assert shown.partition == 1
    assert shown.segment_count == view.segments == len(logs(node)[1].segments)
    assert [each.base_offset for each in shown.segments] == [
        each.base_offset for each in logs(node)[1].segments[-2:]
    ]
    assert [len(each.offset_index.first) for each in shown.segments] == [1, 1]
    assert shown.segments[0].offset_index.entries > 1


def test_what_is_not_there_is_named(node: StillNode, explorer: Explorer) -> None:
    with pytest.raises(KafkaError, match="no such topic: 'nothing'"):
        run(node, view_anywhere(node.node.context, SESSION, "nothing", ALL))
    run(node, explorer.setup(SESSION))
    with pytest.raises(KafkaError, match="has no partition 3, only 0 to 2"):
        run(node, view_anywhere(node.node.context, SESSION, DEMO, ViewLimits(1, 1, partition=3)))


def test_a_segment_that_goes_while_it_is_looked_at_is_left_out(node: StillNode, explorer: Explorer) -> None:
    run(node, explorer.setup(SESSION))
    run(node, explorer.produce(SESSION, 10_000))
    before = len(logs(node)[0].segments)
    _, ends = begin(view_anywhere(node.node.context, SESSION, DEMO, ViewLimits(1_000, 3, partition=0)))
    leaving = logs(node)[0].segments[0]
    leaving.gone = True
    leaving.forget_files()
    for kind in (".log", ".index", ".timeindex"):
        node.disk.remove(leaving.path_of(kind))
    node.world.run_until(lambda: bool(ends))

    [shown] = ends[0].partitions
    assert shown.segment_count == len(shown.segments) == before - 1
    assert shown.segments[0].base_offset > 0


def test_the_cluster_is_shown_as_the_metadata_log_has_it(node: StillNode) -> None:
    node.create_topic("orders", 4)
    context = node.node.context

    view = view_cluster(context)

    assert view.cluster_id == context.cluster_id
    assert view.controller == view.answered_by == context.node_id
    assert [each.id for each in view.nodes] == sorted(context.image.brokers)
    assert (view.topics, view.partitions) == (1, 4)
    assert view.quorum.voters == [context.node_id]
    assert view.log_directory == "/data/logs"
