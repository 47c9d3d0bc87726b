"""What `penstock pipeline` does: checks a file, runs it while it shows how the flows do, tells of another's run."""

import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from penstock.base.errors import KafkaError
from penstock.cli.main import EXIT_CANNOT, EXIT_WRONG
from penstock.cli.output import complain, print_json, print_table, show_time
from penstock.cli.pipeline_show import columns, row_of, show_of
from penstock.spark.pipeline.errors import BadPipeline, CannotRun, FlowFailed, Problem
from penstock.spark.pipeline.load import load
from penstock.spark.pipeline.options import SERVERS_DEFAULT
from penstock.spark.pipeline.spec import PipelineSpec

SPARK_LOG = "spark.log"


def validate(
    file: Path,
    *,
    quick: bool,
    server: str | None,
    master: str,
    remote: str | None,
    conf: Mapping[str, str],
    as_json: bool,
) -> int:
    try:
        spec = load(file)
        if not quick:
            _analyse(spec, server, master, remote, conf)
    except BadPipeline as bad:
        return _told(bad, as_json=as_json)
    except CannotRun as error:
        complain(str(error))
        return EXIT_CANNOT
    if as_json:
        print_json({"pipeline": spec.name, "problems": []})
    else:
        flows = ", ".join(each.name for each in spec.flows)
        print(f"{file}: pipeline {spec.name} is sound: {_count(len(spec.flows), 'flow')} ({flows})")
    return 0


def _analyse(
    spec: PipelineSpec, server: str | None, master: str, remote: str | None, conf: Mapping[str, str]
) -> None:
    import os  # noqa: PLC0415
    import tempfile  # noqa: PLC0415

    from penstock.spark.pipeline.build import Builder  # noqa: PLC0415
    from penstock.spark.pipeline.packaging import session  # noqa: PLC0415
    from penstock.spark.pipeline.run import prepare  # noqa: PLC0415

    handle, log = tempfile.mkstemp(prefix="penstock-spark-", suffix=".log")
    os.close(handle)
    try:
        with session(spec, master=master, remote=remote, conf=conf, log=Path(log)) as spark:
            prepare(spec, Builder(spec, spark, servers=server))
    finally:
        Path(log).unlink(missing_ok=True)


def run(
    file: Path,
    *,
    once: bool,
    server: str | None,
    master: str,
    remote: str | None,
    conf: Mapping[str, str],
    as_json: bool,
) -> int:
    stops = _Stops()
    try:
        spec = load(file)
        with stops.listening():
            return _run(spec, stops, once, server, master, remote, conf, as_json)
    except BadPipeline as bad:
        return _told(bad, as_json=as_json)
    except CannotRun as error:
        complain(str(error))
        return EXIT_CANNOT


def _run(
    spec: PipelineSpec,
    stops: "_Stops",
    once: bool,
    server: str | None,
    master: str,
    remote: str | None,
    conf: Mapping[str, str],
    as_json: bool,
) -> int:
    from penstock.spark.pipeline.brokers import check_brokers  # noqa: PLC0415
    from penstock.spark.pipeline.build import Builder  # noqa: PLC0415
    from penstock.spark.pipeline.lag import commit_positions  # noqa: PLC0415
    from penstock.spark.pipeline.packaging import session  # noqa: PLC0415
    from penstock.spark.pipeline.run import Runner, missing_packages  # noqa: PLC0415
    from penstock.spark.pipeline.state import RunLock, StatusFile  # noqa: PLC0415

    missing = missing_packages(spec)
    if missing:
        raise BadPipeline(missing)
    servers = server or spec.bootstrap or SERVERS_DEFAULT
    log = spec.state / SPARK_LOG
    with RunLock(spec):
        if remote is None:  # else it is that server that must reach them
            check_brokers(spec, servers)
        if not as_json:
            print(
                f"pipeline {spec.name}: starting Spark at {remote or master}; its log is {log}",
                file=sys.stderr,
            )
        with session(spec, master=master, remote=remote, conf=conf, log=log) as spark:
            stops.listen()  # Spark has a handler of its own for Ctrl-C, which ends jobs instead of flows
            builder = Builder(spec, spark, servers=server)
            status = StatusFile(spec, remote or master, servers)
            with show_of(spec, as_json=as_json) as shown:
                runner = Runner(
                    spec, builder, status, once=once, is_remote=remote is not None, tell=shown.tell
                )
                shown.watch(runner.flows)
                stops.hurry = runner.hurry
                try:
                    runner.run(stops.asked)
                except FlowFailed as failed:
                    shown.end("failed")
                    complain(str(failed))
                    return EXIT_WRONG
                finally:
                    refused = commit_positions(spec, runner.flows, servers)
                shown.end("stopped" if stops.asked.is_set() else "finished")
            for sentence in refused:
                complain(sentence)
    return 0


class _Stops:
    """Ctrl-C and SIGTERM: the first asks for a clean end, the second for one at once."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.hurry: threading.Event | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
        signal.signal(signal.SIGTERM, self._heard)
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def listen(self) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, self._heard)

    def _heard(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked.is_set() and self.hurry is not None:
            self.hurry.set()
        self.asked.set()


def status(file: Path, *, server: str | None, as_json: bool) -> int:
    from penstock.spark.pipeline.state import read_status  # noqa: PLC0415

    try:
        spec = load(file)
        found = read_status(spec)
    except BadPipeline as bad:
        return _told(bad, as_json=as_json)
    except CannotRun as error:
        complain(str(error))
        return EXIT_CANNOT
    if found is None:
        complain(f"pipeline {spec.name} has not run yet: there is no status in {spec.state}")
        return EXIT_CANNOT
    _ask_lag(spec, found, server)
    if as_json:
        print_json(found)
        return 0
    moment = show_time(int(found.get("updated_ms", -1)))
    age_s = max(0, time.time_ns() // 1_000_000 - int(found.get("updated_ms", 0))) // 1000
    who = f"pid {found['pid']} on {found['host']}"
    print(f"pipeline {found['pipeline']}: {found['state']}, {who}, as of {moment} ({age_s} s ago)")
    print_table(columns(), [row_of(each) for each in found["flows"]])
    for each in found["flows"]:
        if each.get("error"):
            print(f"flow {each['flow']} failed: {each['error']}")
    return 0


def _ask_lag(spec: PipelineSpec, found: dict[str, Any], server: str | None) -> None:
    """Replace the lag of the last batch by that of this moment."""
    from penstock.spark.pipeline.checkpoint import positions_in  # noqa: PLC0415
    from penstock.spark.pipeline.lag import lag_now  # noqa: PLC0415
    from penstock.spark.pipeline.progress import offsets  # noqa: PLC0415

    flows = {each.name: each for each in spec.flows}
    for each in found["flows"]:
        flow = flows.get(each.get("flow"))
        if flow is None:
            continue
        positions = offsets(each.get("positions")) or positions_in(spec, flow)
        if positions is None:
            continue
        servers = server or spec.bootstrap or found.get("bootstrap") or SERVERS_DEFAULT
        try:
            each["lag"] = lag_now(spec, flow, positions, servers)
        except KafkaError as error:
            complain(f"the lag of {flow.name} is that of its last batch: {error}")


def _told(bad: BadPipeline, *, as_json: bool) -> int:
    if as_json:
        print_json({"problems": [_as_json(each) for each in bad.problems]})
    for each in bad.problems:
        complain(str(each))
    return EXIT_WRONG


def _as_json(problem: Problem) -> dict[str, str]:
    return {"where": problem.where, "key": problem.key, "problem": problem.sentence}


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
