"""How flows are started, watched and stopped, with queries that do as they are told instead of Spark's."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.spark.pipeline import BadPipeline, FlowFailed, load
from penstock.spark.pipeline.build import Builder
from penstock.spark.pipeline.errors import TOO_SLOW, Problem, one_sentence
from penstock.spark.pipeline.run import LEFT, STARTS_MAX, Runner
from penstock.spark.pipeline.state import StatusFile

TWO = """
pipeline: p
checkpoint: state
sources: {s: {rate: 1}}
flows:
  one: {reads: s, to: {parquet: out}}
  two: {reads: s, to: {console: true}}
"""


class Progress:
    def __init__(self, batch: int) -> None:
        self.json = json.dumps(
            {"batchId": batch, "timestamp": f"{batch:04}", "sources": [{"numInputRows": 10}]}
        )


class Query:
    """A query that is asked for its state some times before it ends as it was told."""

    def __init__(self, looks: int = 2, error: str | None = None, is_busy: bool = False) -> None:
        self.looks = looks
        self.error = error
        self.is_busy = is_busy
        self.is_stopped = False
        self.batches = 1

    @property
    def isActive(self) -> bool:  # noqa: N802  # Spark's name, as those below
        self.looks -= 1
        return self.looks > 0 and not self.is_stopped

    @property
    def recentProgress(self) -> list[Progress]:  # noqa: N802
        return [Progress(each) for each in range(self.batches)]

    @property
    def lastProgress(self) -> Progress | None:  # noqa: N802
        return self.recentProgress[-1] if self.recentProgress else None

    @property
    def status(self) -> dict[str, Any]:
        return {"isTriggerActive": self.is_busy}

    def exception(self) -> Exception | None:
        return None if self.error is None else RuntimeError(self.error)

    def stop(self) -> None:
        self.is_stopped = True


class Rows:
    """A DataFrame of which only the plan is looked at."""

    _jdf: Any

    def __init__(self) -> None:
        self._jdf = self

    def queryExecution(self) -> "Rows":  # noqa: N802
        return self

    def analyzed(self) -> "Rows":
        return self

    def toString(self) -> str:  # noqa: N802
        return "SubqueryAlias s"


class FakeBuilder:
    def __init__(self, start: Callable[[str], Query]) -> None:
        self._start = start

    def rows(self, flow: Any) -> Rows:
        return Rows()

    def check(self, flow: Any, rows: Any) -> None:
        pass

    def writer(self, flow: Any, rows: Any, flow_id: str, *, once: bool, gate: Any) -> Any:
        start = self._start

        class Writer:
            def start(self) -> Query:
                return start(flow.name)

        return Writer()


def runner(directory: Path, start: Callable[[str], Query]) -> Runner:
    file = directory / "p.yaml"
    file.write_text(TWO)
    spec = load(file)
    spec.state.mkdir(exist_ok=True)
    runs = Runner(spec, cast(Builder, FakeBuilder(start)), StatusFile(spec, "local", ""))
    runs.hurry.wait = lambda _timeout=None: runs.hurry.is_set()  # type: ignore[method-assign]  # no time passes
    return runs


def test_flows_that_finish_are_finished(tmp_path: Path) -> None:
    runs = runner(tmp_path, lambda _: Query())

    runs.run(threading.Event())

    assert [(each.state, each.rows) for each in runs.flows] == [("finished", 10), ("finished", 10)]
    assert json.loads((tmp_path / "state" / "status.json").read_text())["state"] == "finished"


def test_a_python_process_that_was_too_slow_to_start_is_started_again(tmp_path: Path) -> None:
    starts = {"one": 0, "two": 0}

    def start(flow: str) -> Query:
        starts[flow] += 1
        if flow == "one" and starts[flow] < 3:
            raise RuntimeError(TOO_SLOW)
        return Query(error=TOO_SLOW if flow == "two" and starts[flow] < 2 else None)

    runs = runner(tmp_path, start)
    runs.run(threading.Event())

    assert [each.state for each in runs.flows] == ["finished", "finished"]
    assert starts == {"one": 3, "two": 2}


def test_one_that_is_always_too_slow_fails(tmp_path: Path) -> None:
    starts = []

    def start(flow: str) -> Query:
        starts.append(flow)
        raise RuntimeError(TOO_SLOW)

    with pytest.raises(
        FlowFailed, match=f"flow one failed: {TOO_SLOW}: the machine is too busy to start .*; nothing is lost"
    ):
        runner(tmp_path, start).run(threading.Event())

    assert starts == ["one"] * STARTS_MAX


@pytest.mark.long
def test_one_that_is_too_slow_again_and_again_while_it_runs_fails_and_one_that_gets_on_does_not(
    tmp_path: Path,
) -> None:
    """A batch that ends is a new beginning: in a month every flow is too slow now and then."""
    starts = {"one": 0, "two": 0}

    def start(flow: str) -> Query:
        starts[flow] += 1
        query = Query(error=TOO_SLOW if flow == "one" or starts[flow] < 2 * STARTS_MAX else None)
        query.batches = starts[flow] if flow == "two" else 0
        return query

    with pytest.raises(FlowFailed, match="flow one failed"):
        runner(tmp_path, start).run(threading.Event())
    assert starts["one"] == STARTS_MAX
    starts = {"one": 2 * STARTS_MAX, "two": 0}
    only = runner(tmp_path, lambda flow: Query() if flow == "one" else start(flow))
    only.run(threading.Event())

    assert starts["two"] == 2 * STARTS_MAX
    assert [each.state for each in only.flows] == ["finished", "finished"]


def test_a_flow_is_started_when_the_one_before_is_at_its_first_batch(tmp_path: Path) -> None:
    told: list[str] = []

    class Slow(Query):
        batches = 0

        @property
        def recentProgress(self) -> list[Progress]:  # noqa: N802
            return []

        @property
        def status(self) -> dict[str, Any]:
            messages = ["Initializing sources", "Getting offsets from x", "Processing new data"]
            told.append(messages[min(len(told), 2)])
            return {"isTriggerActive": False, "isDataAvailable": False, "message": told[-1]}

    def start(flow: str) -> Query:
        if flow == "one":
            return Slow(looks=6)
        assert told[-1] == "Processing new data"
        return Query()

    runner(tmp_path, start).run(threading.Event())

    assert len(told) == 3


def test_what_python_was_too_slow_for_is_asked_of_spark_again(tmp_path: Path) -> None:
    asked = []

    class SlowBuilder(FakeBuilder):
        def rows(self, flow: Any) -> Rows:
            asked.append(flow.name)
            if len(asked) in (1, 4):
                raise BadPipeline([Problem("p.yaml:3", "sources.s", one_sentence(RuntimeError(TOO_SLOW)))])
            return Rows()

    runs = runner(tmp_path, lambda _: Query())
    runs._builder = cast(Builder, SlowBuilder(lambda _: Query()))
    runs.run(threading.Event())

    assert asked == ["one", "one", "two", "one", "one", "two"]


def test_a_flow_that_cannot_start_stops_those_that_did(tmp_path: Path) -> None:
    first = Query(looks=1000)

    def start(flow: str) -> Query:
        if flow == "two":
            raise RuntimeError("no such table")
        return first

    runs = runner(tmp_path, start)
    with pytest.raises(FlowFailed, match="flow two failed: no such table"):
        runs.run(threading.Event())

    assert first.is_stopped
    assert [each.state for each in runs.flows] == ["stopped", "failed"]


def test_a_stop_waits_for_the_batch_that_runs(tmp_path: Path) -> None:
    queries: dict[str, Query] = {}

    class Busy(Query):
        asked = 0

        @property
        def lastProgress(self) -> Progress:  # noqa: N802
            self.asked += 1
            if self.asked > 5:
                self.batches = 2
            return self.recentProgress[-1]

    def start(flow: str) -> Query:
        queries[flow] = Busy(looks=1000, is_busy=True) if flow == "one" else Query(looks=1000)
        return queries[flow]

    runs, stop = runner(tmp_path, start), threading.Event()
    stop.set()
    runs.run(stop)

    assert [(each.state, each.batch) for each in runs.flows] == [("stopped", 1), ("stopped", 0)]
    assert all(each.is_stopped for each in queries.values())


def test_a_flow_that_fails_while_others_are_stopped_is_reported(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    runs = runner(tmp_path, lambda flow: Query(looks=2 if flow == "one" else 1000, error="the disk is full"))

    with pytest.raises(FlowFailed, match="flow one failed: the disk is full"):
        runs.run(stop)


def test_a_function_that_left_its_batch_for_the_next_run_has_not_failed(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    runs = runner(tmp_path, lambda flow: Query(looks=2 if flow == "two" else 1000, error=f"batch 4 {LEFT}"))

    runs.run(stop)

    assert [each.state for each in runs.flows] == ["stopped", "stopped"]
