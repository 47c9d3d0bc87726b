"""Exactly once, whatever ends a run, and wherever: without Spark, so that there can be many crashes."""

from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.spark.queries import Crash, Fault, Query, commit_requests, new_query
from tests.spark.sinks import committed, values

from penstock.client.cluster import Cluster
from penstock.client.transactional import end_transactions
from penstock.client.transactions import list_transactions
from penstock.spark.errors import RowsLost, WriteFailed
from penstock.spark.writing import micro_batch
from penstock.spark.writing.micro_batch import TaskId, TaskResult, abort_batch
from penstock.spark.writing.sink_options import SinkOptions
from penstock.testing import Broker
from penstock.wire import Api


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def commit_without_ledger(
    cluster: Cluster, options: SinkOptions, results: list[TaskResult], batch: int
) -> None:
    """The mistake that the ledger is there for."""
    del options, batch
    transactions = [each.transaction for each in results if each.transaction is not None]
    end_transactions(cluster, transactions, commit=True, epoch_bumps=results[0].epoch_bumps)


faults = st.tuples(st.integers(0, 70), st.booleans())
lives = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 1000), faults), max_size=3)


def crash_and_replay(query: Query, drawn: list[tuple[int, int, tuple[int, bool]]]) -> None:
    for tasks, seed, (at, is_after) in drawn:
        query.live(tasks, seed, Fault(at, is_after))
    query.live(2, 7)
    query.check()


@given(lives)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_row_is_there_once_wherever_runs_crash(
    broker: Broker, drawn: list[tuple[int, int, tuple[int, bool]]]
) -> None:
    crash_and_replay(new_query(broker, [5, 0, 4]), drawn)


@pytest.mark.long
@given(lives)
@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_row_is_there_once_wherever_runs_crash_many_times(
    broker: Broker, drawn: list[tuple[int, int, tuple[int, bool]]]
) -> None:
    crash_and_replay(new_query(broker, [5, 0, 4]), drawn)


@pytest.mark.long
@given(lives)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
def test_older_transactions_are_as_safe(
    broker: Broker, drawn: list[tuple[int, int, tuple[int, bool]]]
) -> None:
    """As before KIP-890: partitions are added first, and an end leaves the epoch as it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(micro_batch, "uses_epoch_bumps", lambda _: False)
        crash_and_replay(new_query(broker, [5, 4]), drawn)


@pytest.mark.long
@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 40), st.booleans(), st.integers(0, 1000))
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_driver_that_sleeps_while_another_run_does_its_work_adds_nothing(
    broker: Broker, tasks: int, others: int, at: int, is_after: bool, seed: int
) -> None:
    query = new_query(broker, [6, 5])

    def another_run() -> None:
        if query.logged < 1:
            query.live(others, seed + 1, batches=1)

    with suppress(WriteFailed):  # it may be told that its time is over
        query.live(tasks, seed, Fault(at, is_after, another_run))
    query.live(2)
    query.check()


@pytest.mark.long
def test_a_driver_that_sleeps_within_its_commit_loses_nothing_to_the_tasks_of_another_run(
    broker: Broker,
) -> None:
    """They take its transactions' ids over, so it must not be able to record them any more."""
    for at in range(len(commit_requests(broker, 2))):
        query = new_query(broker, [6])
        theirs: list[TaskResult] = []

        def other_tasks(query: Query = query, theirs: list[TaskResult] = theirs) -> None:
            theirs += query.write("run-2", 0, 3, 2, Fault())

        ours = query.write("run-1", 0, 2, 1, Fault())
        with suppress(WriteFailed):
            query.finish(0, ours, Fault(at, action=other_tasks))
        with suppress(WriteFailed):
            query.finish(0, theirs, Fault())
        query.live(2)
        query.check()


def test_each_request_of_a_commit_may_be_the_last(broker: Broker) -> None:
    """Not by chance: before the record, between the record and the first end, between two ends, after the last."""
    requests = commit_requests(broker, 3)
    assert requests.count(Api.END_TXN) == 4, "the record's, and one a task"
    for at in range(len(requests)):
        for is_after in (False, True):
            query = new_query(broker, [6])
            results = query.write("run-1", 0, 3, 1, Fault())
            with pytest.raises(Crash):
                query.finish(0, results, Fault(at, is_after))
            query.live(2, seed=5)
            query.check()


def test_without_the_ledger_a_crash_between_two_ends_repeats_rows(broker: Broker) -> None:
    """The tests above can fail."""
    query = new_query(broker, [6])
    query.commit = commit_without_ledger
    results = query.write("run-1", 0, 3, 1, Fault())
    with pytest.raises(Crash):
        query.finish(0, results, Fault(1))
    query.live(3, seed=5)
    with pytest.raises(AssertionError):
        query.check()


def test_a_batch_whose_commit_failed_after_it_was_recorded_is_not_aborted(broker: Broker) -> None:
    """Spark calls abort when commit has failed, at whatever point."""

    def give_up() -> None:
        raise OSError("the network is gone")

    ends = [at for at, api in enumerate(commit_requests(broker, 3)) if api is Api.END_TXN]
    query = new_query(broker, [6])
    results = query.write("run-1", 0, 3, 1, Fault())
    with pytest.raises(OSError, match="the network is gone"):
        query.finish(0, results, Fault(ends[2], action=give_up))
    with query.cluster(Fault()) as cluster:
        abort_batch(cluster, query.options, results, 0)
    query.live(1)
    query.check()


def test_a_batch_that_failed_is_aborted_at_once(broker: Broker) -> None:
    query = new_query(broker, [6])
    results = query.write("run-1", 0, 3, 1, Fault())
    with query.cluster(Fault()) as cluster:
        abort_batch(cluster, query.options, results, 0)
    assert values(committed(broker, query.topic)) == [], "and nobody waits for it"
    query.live(2)
    query.check()


def test_transactions_that_end_before_the_batch_is_recorded_cost_nothing_but_another_try(
    broker: Broker,
) -> None:
    query = new_query(broker, [6])
    results = query.write("run-1", 0, 2, 1, Fault())
    end_early(query, results[0])
    with pytest.raises(WriteFailed, match=r"1 of its 2 transactions ended .* nothing of this try is visible"):
        query.finish(0, results, Fault())
    assert values(committed(broker, query.topic)) == []
    query.live(2)
    query.check()


def test_transactions_that_end_after_the_batch_is_recorded_are_reported_loudly(broker: Broker) -> None:
    """The driver dies with the batch recorded, and nobody starts it again before the timeout."""
    query = new_query(broker, [6, 3])
    ends = [at for at, api in enumerate(commit_requests(broker, 2)) if api is Api.END_TXN]
    results = query.write("run-1", 0, 2, 1, Fault())
    with pytest.raises(Crash):
        query.finish(0, results, Fault(ends[2]))
    end_early(query, results[1])
    for _ in range(2):
        with pytest.raises(RowsLost, match=r"batch 0 .* 1 of its 2 transactions, with 3 rows"):
            query.live(2)
    assert query.logged == 0
    query.settings["failOnDataLoss"] = "false"
    query.live(2)
    found = values(committed(broker, query.topic))
    assert len(found) == len(set(found)) == 6


def end_early(query: Query, result: TaskResult) -> None:
    """As a timeout does."""
    assert result.transaction is not None
    with query.cluster(Fault()) as cluster:
        end_transactions(cluster, [result.transaction], commit=False, epoch_bumps=result.epoch_bumps)


def test_of_two_attempts_of_a_task_one_counts(broker: Broker) -> None:
    """Speculation: both write the same rows, and Spark takes the message of one."""
    query = new_query(broker, [6])
    task_id = TaskId(query.query_id, "run-1", 0, 0)
    winner = query.write_task(task_id, query.rows(0), Fault())
    loser = query.write_task(task_id._replace(attempt=1), query.rows(0), Fault())
    assert loser.transaction is not None
    query.finish(0, [winner], Fault())
    query.check()
    late = query.write_task(task_id._replace(attempt=2), query.rows(0), Fault())
    assert late.is_skipped


def test_a_query_that_starts_over_with_a_new_checkpoint_skips_nothing(broker: Broker) -> None:
    """Spark gives it a new id, and batches count from 0 again."""
    query = new_query(broker, [4])
    query.live(2)
    query.query_id += "-again"
    query.logged = 0
    query.live(2)
    found = values(committed(broker, query.topic))
    assert sorted(found) == sorted([b"%d" % each for each in range(4)] * 2)


def test_ids_do_not_grow_with_the_batches(broker: Broker) -> None:
    query = new_query(broker, [2] * 8)
    query.live(2)
    with query.cluster(Fault()) as cluster:
        ids = [
            each.transactional_id
            for each in list_transactions(cluster)
            if query.query_id in each.transactional_id
        ]
    assert len(ids) == 3, "the query's own, and one a task"


def test_a_ledger_that_would_be_forgotten_is_refused(broker: Broker) -> None:
    broker.create_topic("forgetful", 1, cleanup_policy="delete")
    query = new_query(broker, [2], ledgerTopic="forgetful")
    with pytest.raises(WriteFailed, match=r"has cleanup\.policy=delete, expected compact"):
        query.live(1)
