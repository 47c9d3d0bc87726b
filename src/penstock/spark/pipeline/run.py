"""Starts, watches and stops all flows of a pipeline in one session.

    prepare   build every flow and check its checkpoint, before any starts
    start     start flows one after the other, each when the Python processes of the previous one run; if one cannot
              start, stop the others
    watch     until all have finished, one has failed, or a stop is requested
    stop      let each flow complete its batch, then stop its query

A stop between batches loses and repeats nothing, because positions are in the checkpoint. Nor does a stop inside a
batch, after a timeout or a second signal: the batch runs again with the same offsets, and the sinks recognise it
by its number.
"""

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from penstock.base.extras import install_hint

from .build import BatchFunction, Builder, is_function
from .checkpoint_compat import FlowIdentity, check_identity, save_identity
from .errors import TOO_SLOW, BadPipeline, FlowFailed, Problem, one_sentence
from .progress import FlowProgress
from .spec import DeltaSink, Flow, PipelineSpec
from .state import StatusFile

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.3
STATUS_S = 1.0
STOP_S_MAX = 60.0
"""How long a stop waits for a running batch."""

STARTS_MAX = 5
"""Starts of a flow whose Python processes start too slowly; reset by each completed batch."""

READY_S_MAX = 10.0
"""How long the start of the next flow waits for the previous one."""

LEFT = "is left for the next run, because the pipeline is stopping"

Tell = Callable[[FlowProgress], None]
"""Called for each completed batch, and for each change of a flow's state."""


Report = Callable[[str, Sequence[FlowProgress], str | None], None]
"""Called with the state of the pipeline, its flows and its error, for each batch and about once a second."""


Pause = Callable[[float], object]
"""Waits at most this many seconds."""

Result = TypeVar("Result")


class Prepared(NamedTuple):
    flow: Flow
    identity: FlowIdentity


@dataclass
class _Running:
    flow: Flow
    identity: FlowIdentity
    query: "StreamingQuery"
    progress: FlowProgress
    starts: int = 1


def missing_packages(spec: PipelineSpec) -> list[Problem]:
    """Missing packages that sinks need in addition to Spark."""
    from importlib.util import find_spec  # noqa: PLC0415

    if find_spec("deltalake") is not None:
        return []
    needing = [flow.name for flow in spec.flows if isinstance(flow.sink, DeltaSink)]
    sentence = f"a Delta table needs the package deltalake: {install_hint('delta')}"
    return [Problem(spec.where("flows", name, "to"), f"flows.{name}.to", sentence) for name in needing]


def patiently(attempt: Callable[[], Result], pause: Pause) -> Result:
    """Call a function that starts Spark's Python processes; retry if they started too slowly."""
    for number in range(STARTS_MAX - 1):
        try:
            return attempt()
        except Exception as error:
            if TOO_SLOW not in str(error):
                raise
        pause(2.0**number)
    return attempt()


def prepare(spec: PipelineSpec, builder: Builder, pause: Pause = time.sleep) -> list[Prepared]:
    """Analyse every flow with Spark and check its checkpoint. Raises BadPipeline with all problems."""
    problems = missing_packages(spec)
    prepared: list[Prepared] = []
    for flow in spec.flows:
        try:
            rows = patiently(partial(builder.rows, flow), pause)
            builder.check(flow, rows)
        except BadPipeline as bad:
            problems += [each for each in bad.problems if each not in problems]
            continue
        if not problems:
            prepared.append(Prepared(flow, check_identity(spec, flow, rows)))
    if problems:
        raise BadPipeline(problems)
    return prepared


class Runner:
    def __init__(
        self,
        spec: PipelineSpec,
        builder: Builder,
        status: StatusFile,
        *,
        once: bool = False,
        is_remote: bool = False,
        tell: Tell = lambda _: None,
        report: Report = lambda *_: None,
    ) -> None:
        self._spec = spec
        self._builder = builder
        self._status = status
        self._once = once
        self._is_remote = is_remote
        self._tell = tell
        self._report = report
        self._closing = threading.Event()
        """If set, functions get no further batch."""
        self._running: list[_Running] = []
        self._status_at = 0.0
        self._state = "starting"
        self._seen: dict[str, tuple[int, str]] = {}
        """Batch and time of the last progress report of each flow."""
        self.flows = [FlowProgress(each.name) for each in spec.flows]
        self.hurry = threading.Event()
        """If set, stop at once, even inside a batch."""

    def run(self, stop: threading.Event) -> None:
        """Run until all flows have finished or `stop` is set. If one fails, stop the others and raise FlowFailed."""
        failed: FlowFailed | None = None
        try:
            self._write("starting", now=True)
            prepared = prepare(self._spec, self._builder, pause=self.hurry.wait)
            failed = self._start(prepared, stop) or self._watch(stop)
        except BaseException as error:
            self.hurry.set()
            self._stop()
            self._write("failed", now=True, error=one_sentence(error))
            raise
        self._write("stopping", now=True)
        later = self._stop()
        failed = failed or later
        if failed is not None:
            self._write("failed", now=True, error=str(failed))
            raise failed
        state = "finished" if all(each.state == "finished" for each in self.flows) else "stopped"
        self._write(state, now=True)

    def _start(self, prepared: Sequence[Prepared], stop: threading.Event) -> FlowFailed | None:
        for (flow, identity), progress in zip(prepared, self.flows, strict=True):
            save_identity(self._spec, flow, identity)
            try:
                query = self._query(flow, identity)
            except Exception as error:
                return self._fail(progress, error)
            progress.state = "running"
            self._running.append(_Running(flow, identity, query, progress))
            self._tell(progress)
            if len(self._running) < len(prepared):
                deadline = time.monotonic() + READY_S_MAX
                while not _is_ready(query) and time.monotonic() < deadline and not stop.wait(0.05):
                    pass
        return None

    def _query(self, flow: Flow, identity: FlowIdentity) -> "StreamingQuery":
        return patiently(lambda: self._started(flow, identity), self.hurry.wait)

    def _started(self, flow: Flow, identity: FlowIdentity) -> "StreamingQuery":
        rows = self._builder.rows(flow)
        return self._builder.writer(flow, rows, identity.flow_id, once=self._once, gate=self._gate).start()

    def _gate(self, function: BatchFunction) -> BatchFunction:
        """Wrap a function so that it gets no batch once the pipeline stops, because it must not be interrupted.

        Its query then ends with an exception, and the next run repeats the batch. With Spark Connect
        functions run on the server, so they cannot be wrapped.
        """
        if self._is_remote:
            return function

        def gated(batch: Any, batch_id: int) -> None:
            if self._closing.is_set():
                raise RuntimeError(f"batch {batch_id} {LEFT}")
            function(batch, batch_id)

        return gated

    def _watch(self, stop: threading.Event) -> FlowFailed | None:
        while any(each.progress.state == "running" for each in self._running):
            for each in self._running:
                if each.progress.state == "running":
                    failed = self._look(each)
                    if failed is not None:
                        return failed
            self._write("running")
            if stop.wait(POLL_S):
                return None
        return None

    def _look(self, each: _Running) -> FlowFailed | None:
        """Process a query's progress; return its failure, if any."""
        is_active = bool(
            each.query.isActive
        )  # read before its progress, so that the last report is not missed
        self._take(each)
        if is_active:
            return None
        error = each.query.exception()
        if error is not None and TOO_SLOW in str(error) and each.starts < STARTS_MAX:
            # It resumes from its checkpoint with the failed batch.
            self.hurry.wait(2.0 ** (each.starts - 1))
            each.starts += 1
            try:
                each.query = self._query(each.flow, each.identity)
            except Exception as again:
                return self._fail(each.progress, again)
            return None
        if error is not None:
            return self._fail(each.progress, error)
        each.progress.state = "finished"
        self._tell(each.progress)
        return None

    def _take(self, each: _Running) -> None:
        for progress in each.query.recentProgress:
            data: dict[str, Any] = json.loads(progress.json)
            mark = (int(data["batchId"]), str(data["timestamp"]))
            if mark <= self._seen.get(each.flow.name, (-1, "")):
                continue
            self._seen[each.flow.name] = mark
            if each.progress.take(data):
                each.starts = 1
                self._write(self._state, now=True)  # first, so that the status has every reported batch
                self._tell(each.progress)

    def _fail(self, progress: FlowProgress, error: BaseException) -> FlowFailed:
        progress.state = "failed"
        progress.error = one_sentence(error)
        file = self._status.keep_error(str(error), progress.flow)
        self._tell(progress)
        return FlowFailed(progress.flow, f"{progress.error} (the full error is in {file})")

    def _stop(self) -> FlowFailed | None:
        """Stop every query: after its current batch, or at once if requested.

        Returns the failure of a flow that failed meanwhile.
        """
        failed: FlowFailed | None = None
        deadline = time.monotonic() + STOP_S_MAX
        self._closing.set()
        batches = {each.flow.name: _batch(each.query) for each in self._running}
        left = [each for each in self._running if each.progress.state == "running"]
        while left:
            at_once = self.hurry.is_set() or time.monotonic() > deadline
            waiting = []
            for each in left:
                query = each.query
                error = None if query.isActive else query.exception()
                if error is not None and LEFT not in str(error) and TOO_SLOW not in str(error):
                    failed = self._fail(each.progress, error)
                elif at_once or _is_between(query) or self._is_past(each, batches[each.flow.name]):
                    query.stop()
                    self._take(each)
                    each.progress.state = "stopped"
                    self._tell(each.progress)
                else:
                    waiting.append(each)
            left = waiting
            if left:
                self.hurry.wait(0.05)
        return failed

    def _is_past(self, each: _Running, batch: int) -> bool:
        """Whether the batch that was running at the stop has ended. A query with a function then ends as well."""
        if is_function(each.flow) and not self._is_remote:
            return False
        return _batch(each.query) > batch

    def _write(self, state: str, *, now: bool = False, error: str | None = None) -> None:
        self._state = state
        moment = time.monotonic()
        if now or moment - self._status_at >= STATUS_S:
            self._status_at = moment
            self._status.write(state, self.flows, error)
            self._report(state, self.flows, error)


def _is_ready(query: "StreamingQuery") -> bool:
    """Whether a query processes or awaits its first batch, or has ended: its source's process then runs."""
    if query.recentProgress or not query.isActive:
        return True
    status = query.status
    message = str(status.get("message", ""))
    return bool(status.get("isDataAvailable")) or message.startswith(("Processing", "Waiting"))


def _batch(query: "StreamingQuery") -> int:
    """Number of the last completed batch."""
    last = query.lastProgress
    return -1 if last is None else int(json.loads(last.json)["batchId"])


def _is_between(query: "StreamingQuery") -> bool:
    """Whether a query waits for rows or its trigger, rather than processing a batch."""
    return not query.isActive or not query.status["isTriggerActive"]
