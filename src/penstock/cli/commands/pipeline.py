"""`penstock pipeline`: checks a file, runs it and shows its progress, and reports on another process's run."""

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NamedTuple

import typer
from msgspec import to_builtins

from penstock.base.errors import KafkaError
from penstock.base.pipeline_report import PIPELINES_TOPIC, PipelineReport
from penstock.cli.command_group import command_group
from penstock.cli.connecting import ClientConfigFile, connected, parse_pairs, target_of
from penstock.cli.main import EXIT_WRONG
from penstock.cli.options import Json
from penstock.cli.output import (
    Cell,
    Refused,
    complain,
    counted,
    print_json,
    print_result,
    print_table,
    printable,
    show_time,
)
from penstock.cli.pipeline_show import columns, row_of, show_of
from penstock.cli.spark_jobs import client_options
from penstock.spark.pipeline.brokers import check_brokers
from penstock.spark.pipeline.build import Builder
from penstock.spark.pipeline.checkpoint import positions_in
from penstock.spark.pipeline.errors import BadPipeline, CannotRun, FlowFailed
from penstock.spark.pipeline.lag import commit_positions, lag_now
from penstock.spark.pipeline.load import load
from penstock.spark.pipeline.options import Brokers
from penstock.spark.pipeline.packaging import session
from penstock.spark.pipeline.progress import offsets
from penstock.spark.pipeline.run import Report, Runner, missing_packages, prepare
from penstock.spark.pipeline.spec import PipelineSpec
from penstock.spark.pipeline.state import RunLock, StatusFile, read_status

app = command_group(
    """Run, check and watch pipelines on Spark.

    A pipeline is one YAML or Python file with sources, queries and sinks.

    \b
    penstock pipeline validate orders.yaml
    penstock pipeline run orders.yaml
    penstock pipeline run orders.yaml --once --json
    penstock pipeline status orders.yaml
    penstock pipeline list
    """
)
File = Annotated[Path, typer.Argument(metavar="FILE", help="A pipeline: a .yaml, .yml or .py file.")]
Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        "-s",
        metavar="HOST:PORT[,...]",
        envvar="PENSTOCK_SERVER",
        help="Brokers, instead of the file's `bootstrap`.",
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master", metavar="URL", help="A Spark master: local[4], spark://HOST:7077, yarn, ...  [local[*]]"
    ),
]
Remote = Annotated[
    str | None, typer.Option("--remote", metavar="URL", help="A Spark Connect server: sc://HOST:15002.")
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="NAME=VALUE", help="A Spark setting, which overrides the file's; repeatable."
    ),
]


SPARK_LOG = "spark.log"


class _SparkOptions(NamedTuple):
    """Where Spark runs, and its settings."""

    master: str
    remote: str | None
    conf: Mapping[str, str]

    @classmethod
    def parse(cls, master: str | None, remote: str | None, conf: list[str] | None) -> "_SparkOptions":
        if master is not None and remote is not None:
            raise Refused("--master and --remote exclude each other: give one of them")
        return cls(master or "local[*]", remote, parse_pairs(conf or [], "setting of Spark"))

    def session(self, spec: PipelineSpec, log: Path) -> AbstractContextManager[Any]:
        return session(spec, master=self.master, remote=self.remote, conf=self.conf, log=log)


@app.command("run")
def pipeline_run(
    file: File,
    once: Annotated[
        bool, typer.Option("--once", help="Process the records that exist now, then end.")
    ] = False,
    server: Server = None,
    client_config: ClientConfigFile = None,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    report: Annotated[
        bool,
        typer.Option(
            help=f"Report the run to the topic {PIPELINES_TOPIC}, for `penstock pipeline list` and the console."
        ),
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines: an object for each batch.")] = False,
) -> int:
    """Run the flows of a pipeline, and show their progress.

    Ctrl-C or SIGTERM ends each flow after its current batch; a second one ends it at once. Either way the next run
    continues where this one stopped, without loss or repetition. If a flow fails, the others are stopped.

    The exit code is 0 after a clean end, 1 if a flow failed, 2 if the pipeline could not be started.

    \b
    penstock pipeline run orders.yaml
    penstock pipeline run orders.yaml --once --server 127.0.0.1:9092
    penstock pipeline run orders.py --master spark://127.0.0.1:7077 --conf spark.executor.memory=2g
    """
    options = _SparkOptions.parse(master, remote, conf)
    stops = _Stops()
    with _reporting(as_json):
        spec = load(file)
        with stops.listening():
            brokers = _brokers(spec, server, client_config)
            return _run(spec, options, stops, once=once, brokers=brokers, report=report, as_json=as_json)


@app.command("validate")
def pipeline_validate(
    file: File,
    quick: Annotated[
        bool, typer.Option("--quick", help="Check only the file: start no Spark, analyse no query.")
    ] = False,
    server: Server = None,
    client_config: ClientConfigFile = None,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Check a pipeline: its keys and values, then with Spark every query, column and mode. Runs nothing.

    Each problem is a line with the file, the line in it, the key, what was found and what was expected. The exit
    code is 1 if there is any.

    \b
    penstock pipeline validate orders.yaml
    penstock pipeline validate orders.yaml --quick
    """
    options = _SparkOptions.parse(master, remote, conf)
    with _reporting(as_json):
        spec = load(file)
        if not quick:
            _analyse(spec, options, _brokers(spec, server, client_config))
    flows = f"{counted(len(spec.flows), 'flow')} ({', '.join(each.name for each in spec.flows)})"
    sentence = f"{file}: pipeline {spec.name} is sound: {flows}"
    print_result({"pipeline": spec.name, "problems": []}, sentence, as_json=as_json)


@app.command("status")
def pipeline_status(
    file: File,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> None:
    """Show the progress of a pipeline that runs in another process, or how its last run ended.

    The lag is computed now if the brokers answer; else it is the lag after the last batch. Starts no Spark.

    \b
    penstock pipeline status orders.yaml
    """
    with _reporting(as_json):
        spec = load(file)
        found = read_status(spec)
    if found is None:
        raise Refused(f"pipeline {spec.name} has not run yet: there is no status in {spec.state}")
    brokers = _brokers(spec, server or spec.bootstrap or found.get("bootstrap"), client_config)
    _ask_lag(spec, found, brokers)
    if as_json:
        print_json(found)
        return
    moment = show_time(int(found.get("updated_ms", -1)))
    age_s = max(0, time.time_ns() // 1_000_000 - int(found.get("updated_ms", 0))) // 1000
    process = f"pid {found['pid']} on {found['host']}"
    print(f"pipeline {found['pipeline']}: {found['state']}, {process}, as of {moment} ({age_s} s ago)")
    print_table(columns(), [row_of(each) for each in found["flows"]])
    for each in found["flows"]:
        if each.get("error"):
            print(f"flow {each['flow']} failed: {each['error']}")


@app.command("list")
def pipeline_list(
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> None:
    """List the pipelines that report to a cluster, wherever they run.

    \b
    penstock pipeline list
    penstock pipeline list --server 127.0.0.1:9092 --json
    """
    found = _reports(server, client_config)
    if as_json:
        print_json({"pipelines": [to_builtins(each) for each in found]})
    elif not found:
        print("No pipelines.")
    else:
        names = ("pipeline", "state", "flows", "rows/s", "lag", "reported", "host", "error")
        print_table(names, [_listed(each) for each in found])


def _listed(report: PipelineReport) -> list[Cell]:
    cells: list[Cell] = [
        report.pipeline,
        report.state,
        len(report.flows),
        round(report.rows_per_s),
        report.lag,
    ]
    return [*cells, show_time(report.updated_ms), report.host, report.last_error]


@app.command("show")
def pipeline_show(
    name: Annotated[str, typer.Argument(metavar="PIPELINE", help="The name of a pipeline that reports.")],
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> None:
    """Show the flows of a pipeline as its last report has them: rows, durations, lag and errors.

    \b
    penstock pipeline show orders
    """
    report = next((each for each in _reports(server, client_config) if each.pipeline == name), None)
    if report is None:
        raise Refused(
            f"no pipeline {name} reports to this cluster: `penstock pipeline list` shows those that do"
        )
    if as_json:
        print_json(to_builtins(report))
        return
    process = f"pid {report.pid} on {report.host}"
    print(printable(f"pipeline {name}: {report.state}, {process}, as of {show_time(report.updated_ms)}"))
    print_table(columns(), [row_of(to_builtins(each)) for each in report.flows])
    for each in report.flows:
        if each.error:
            print(printable(f"flow {each.flow} failed: {each.error}"))


def _reports(server: str | None, client_config: str | None) -> list[PipelineReport]:
    from penstock.client.pipeline_reports import read_reports  # noqa: PLC0415  # only these commands read them

    with connected(server, client_config) as cluster:
        return read_reports(cluster)


def _brokers(spec: PipelineSpec, server: str | None, client_config: str | None) -> Brokers:
    """The brokers of a pipeline: those of the command, else those of the file."""
    try:
        return Brokers.of(spec, server, client_options(target_of(server, client_config)))
    except KafkaError as error:
        raise Refused(str(error)) from error


def _analyse(spec: PipelineSpec, options: _SparkOptions, brokers: Brokers) -> None:
    handle, log = tempfile.mkstemp(prefix="penstock-spark-", suffix=".log")
    os.close(handle)
    try:
        with options.session(spec, Path(log)) as spark:
            prepare(spec, Builder(spec, spark, brokers))
    finally:
        Path(log).unlink(missing_ok=True)


def _run(
    spec: PipelineSpec,
    options: _SparkOptions,
    stops: "_Stops",
    *,
    once: bool,
    brokers: Brokers,
    report: bool,
    as_json: bool,
) -> int:
    remote, where = options.remote, options.remote or options.master
    missing = missing_packages(spec)
    if missing:
        raise BadPipeline(missing)
    log = spec.state / SPARK_LOG
    with RunLock(spec):
        if remote is None:  # else the Spark Connect server must reach them
            check_brokers(spec, brokers)
        if not as_json:
            print(
                f"pipeline {spec.name}: starting Spark at {where}; its log is {log}",
                file=sys.stderr,
            )
        with options.session(spec, log) as spark:
            stops.listen()  # after Spark has installed a handler for Ctrl-C, which ends jobs instead of flows
            builder = Builder(spec, spark, brokers)
            status = StatusFile(spec, where, brokers.servers)
            with ExitStack() as opened:
                shown = opened.enter_context(show_of(spec, as_json=as_json))
                runner = Runner(
                    spec,
                    builder,
                    status,
                    once=once,
                    is_remote=remote is not None,
                    tell=shown.tell,
                    report=_report_of(spec, brokers, where, opened) if report else lambda *_: None,
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
                    refused = commit_positions(spec, runner.flows, brokers)
                shown.end("stopped" if stops.asked.is_set() else "finished")
            for sentence in refused:
                complain(sentence)
    return 0


def _report_of(spec: PipelineSpec, brokers: Brokers, where: str, opened: ExitStack) -> Report:
    from penstock.spark.pipeline.report import Reporter  # noqa: PLC0415  # only a run reports

    return opened.enter_context(Reporter(spec, brokers, where, complain)).update


class _Stops:
    """Ctrl-C and SIGTERM: the first one requests a clean end, the second an immediate one."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.hurry: threading.Event | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
        signal.signal(signal.SIGTERM, self._on_signal)
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def listen(self) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked.is_set() and self.hurry is not None:
            self.hurry.set()
        self.asked.set()


def _ask_lag(spec: PipelineSpec, found: dict[str, Any], brokers: Brokers) -> None:
    """Replace the lag after the last batch by the current lag."""
    flows = {each.name: each for each in spec.flows}
    for each in found["flows"]:
        flow = flows.get(each.get("flow"))
        if flow is None:
            continue
        positions = offsets(each.get("positions")) or positions_in(spec, flow)
        if positions is None:
            continue
        try:
            each["lag"] = lag_now(spec, flow, positions, brokers)
        except KafkaError as error:
            complain(f"the lag of flow {flow.name} is as of its last batch: {error}")


@contextmanager
def _reporting(as_json: bool) -> Iterator[None]:
    """Report why a pipeline is not sound, or cannot run."""
    try:
        yield
    except CannotRun as error:
        raise Refused(str(error)) from error
    except BadPipeline as bad:
        if as_json:
            rows = [{"where": each.where, "key": each.key, "problem": each.sentence} for each in bad.problems]
            print_json({"problems": rows})
        for each in bad.problems:
            complain(str(each))
        raise typer.Exit(EXIT_WRONG) from bad
