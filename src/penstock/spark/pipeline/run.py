"""All flows of a pipeline in one session: started, watched, stopped.

    prepare   every flow is built, and its checkpoint compared, before any is started
    start     one after the other, each when the one before has its Python processes; if one cannot start, those that
              did are stopped
    watch     until all have finished, one has failed, or someone asks to stop
    stop      each flow ends the batch it is at, then its query is stopped

A stop between batches loses nothing and repeats nothing: positions are in the checkpoint. A stop inside of one,
because it took too long or because someone was in a hurry, does neither: the batch is run again from the same
positions to the same ends, and the sinks know it by its number.
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
"""How long a running batch may take to end when the pipeline is to stop."""

STARTS_MAX = 5
"""How often a flow is started whose Python processes were too slow to start; a batch that ends counts anew."""

READY_S_MAX = 10.0
"""How long the next flow waits for one to be ready: what takes longer is no longer the start."""

LEFT = "is left for the next run: the pipeline stops"

Tell = Callable[[FlowProgress], None]
"""Called for each batch that ended, and for each change of a flow's state."""


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
    """What sinks need beyond Spark, and is not installed."""
    from importlib.util import find_spec  # noqa: PLC0415

    if find_spec("deltalake") is not None:
        return []
    needing = [flow.name for flow in spec.flows if isinstance(flow.sink, DeltaSink)]
    sentence = f"a Delta table needs the package deltalake: {install_hint('delta')}"
    return [Problem(spec.where("flows", name, "to"), f"flows.{name}.to", sentence) for name in needing]


def patiently(attempt: Callable[[], Result], pause: Pause) -> Result:
    """Try what needs a Python process of Spark's; where that was too slow to start, again after a while."""
    for number in range(STARTS_MAX - 1):
        try:
            return attempt()
        except Exception as error:
            if TOO_SLOW not in str(error):
                raise
        pause(2.0**number)
    return attempt()


def prepare(spec: PipelineSpec, builder: Builder, pause: Pause = time.sleep) -> list[Prepared]:
    """Every flow, analysed by Spark and compared with its checkpoint. Raises BadPipeline with all that is wrong."""
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
    ) -> None:
        self._spec = spec
        self._builder = builder
        self._status = status
        self._once = once
        self._is_remote = is_remote
        self._tell = tell
        self._closing = threading.Event()
        """Set: functions are given no further batch."""
        self._running: list[_Running] = []
        self._status_at = 0.0
        self._state = "starting"
        self._seen: dict[str, tuple[int, str]] = {}
        """The last progress taken in of each flow: its batch and its time."""
        self.flows = [FlowProgress(each.name) for each in spec.flows]
        self.hurry = threading.Event()
        """Set: stop at once, inside of batches if need be."""

    def run(self, stop: threading.Event) -> None:
        """Until all flows have finished or `stop` is set. Raises FlowFailed if one fails, with the others stopped."""
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
        """A function that gets no batch once the pipeline stops: it may do anything, so it is not to be cut short.

        Its query then ends with an exception, and the batch comes again with the next run. With Spark Connect
        functions run at the server, out of reach.
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
        """Take in what a query tells; the failure, if it is one."""
        is_active = bool(each.query.isActive)  # before its progress: what it tells at its end is not missed
        self._take(each)
        if is_active:
            return None
        error = each.query.exception()
        if error is not None and TOO_SLOW in str(error) and each.starts < STARTS_MAX:
            # From its checkpoint: the batch that failed is the one that it begins with.
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
                self._write(
                    self._state, now=True
                )  # first, so that a batch that was reported is in the status
                self._tell(each.progress)

    def _fail(self, progress: FlowProgress, error: BaseException) -> FlowFailed:
        progress.state = "failed"
        progress.error = one_sentence(error)
        file = self._status.keep_error(str(error), progress.flow)
        self._tell(progress)
        return FlowFailed(progress.flow, f"{progress.error} (all of it is in {file})")

    def _stop(self) -> FlowFailed | None:
        """Stop every query: at the end of the batch it is at, or at once if there is a hurry.

        Returns the failure of a flow that ended by itself meanwhile.
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
        """Whether the batch that ran when the stop began has ended. A query with a function ends by itself then."""
        if is_function(each.flow) and not self._is_remote:
            return False
        return _batch(each.query) > batch

    def _write(self, state: str, *, now: bool = False, error: str | None = None) -> None:
        self._state = state
        moment = time.monotonic()
        if now or moment - self._status_at >= STATUS_S:
            self._status_at = moment
            self._status.write(state, self.flows, error)


def _is_ready(query: "StreamingQuery") -> bool:
    """Whether a query is at its first batch, or waits for one, or is over: its source's process runs then."""
    if query.recentProgress or not query.isActive:
        return True
    status = query.status
    message = str(status.get("message", ""))
    return bool(status.get("isDataAvailable")) or message.startswith(("Processing", "Waiting"))


def _batch(query: "StreamingQuery") -> int:
    """The last batch that ended."""
    last = query.lastProgress
    return -1 if last is None else int(json.loads(last.json)["batchId"])


def _is_between(query: "StreamingQuery") -> bool:
    """Whether a query waits for rows or for its time, rather than working at a batch."""
    return not query.isActive or not query.status["isTriggerActive"]
