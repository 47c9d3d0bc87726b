"""What `penstock archive`, `audit` and `replay` do: a session where one is needed, and the result in a line."""

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from penstock.base.errors import KafkaError
from penstock.base.extras import install_hint
from penstock.cli.main import EXIT_CANNOT, EXIT_WRONG
from penstock.cli.output import complain, print_json, print_json_line
from penstock.spark.pipeline.errors import CannotRun, one_sentence

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S = 0.5
"""How often a stream is asked how it does."""


class Place(NamedTuple):
    """Where Spark runs."""

    master: str
    conf: Mapping[str, str]


@contextmanager
def _session(name: str, place: Place) -> "Iterator[SparkSession]":
    """A session as a pipeline has it: executors are shipped what they need. Java's output goes to a file."""
    from penstock.spark.pipeline.packaging import session  # noqa: PLC0415
    from penstock.spark.pipeline.spec import PipelineSpec  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="penstock-") as scratch:
        at = Path(scratch)
        spec = PipelineSpec(name, at, None, scratch, at, {}, (), (), ())
        with session(spec, master=place.master, conf=place.conf, log=at / "spark.log") as spark:
            yield spark


@contextmanager
def _sentences() -> Iterator[list[int]]:
    """One sentence of whatever goes wrong; the list then has the exit code."""
    code: list[int] = []
    try:
        yield code
    except (KafkaError, CannotRun) as error:
        complain(str(error))
        code.append(EXIT_CANNOT)
    except ImportError as error:
        complain(f"this command needs {error.name or error}, which is not installed: {install_hint('spark')}")
        code.append(EXIT_CANNOT)


# -- archive ----------------------------------------------------------------------------------------------


def run_archive(
    topic: str,
    directory: str,
    server: str,
    place: Place,
    *,
    every: str | None,
    records_max: int,
    isolation: str,
    skip_lost: bool,
    as_json: bool,
) -> int:
    stop = threading.Event()
    with _sentences() as code, _stopping(stop):
        from penstock.spark.archiving.archive import ArchiveJob, archived, claim, look, start  # noqa: PLC0415
        from penstock.spark.archiving.archive_table import locked  # noqa: PLC0415

        job = ArchiveJob(topic, directory, server, isolation, not skip_lost)
        wanted = look(job)
        with locked(directory, "archive.lock"):
            claim(job, wanted)
            with _session(f"archive {topic}", place) as spark:
                query = start(spark, job, every=every, records_max=records_max)
                records, failure = _follow(query, stop, as_json=as_json, is_followed=every is not None)
            files, size = archived(directory)
        if failure is not None:
            complain(f"the archive of {topic} stopped: {failure}")
            return EXIT_WRONG
        if as_json:
            print_json_line({"topic": topic, "records": records, "files": files, "bytes": size})
        else:
            print(
                f"{topic}: {records:,} records archived in {directory}, which has {files} files, {size:,} bytes"
            )
        return 0
    return code[0]


def _follow(
    query: "StreamingQuery", stop: threading.Event, *, as_json: bool, is_followed: bool
) -> tuple[int, str | None]:
    """Wait for the end of the stream, and tell of its batches; how many records, and why it failed."""
    records, told, failure = 0, -1, None
    while True:
        is_over = False
        try:
            is_over = bool(query.awaitTermination(LOOK_S))  # type: ignore[arg-type]  # seconds may be fractions
        except Exception as error:
            failure, is_over = one_sentence(error), True
        for progress in query.recentProgress:
            if progress["batchId"] <= told or not progress["numInputRows"]:
                continue
            told = progress["batchId"]
            records += progress["numInputRows"]
            if as_json:
                print_json_line({"batch": told, "records": progress["numInputRows"]})
            elif is_followed:
                print(f"batch {told}: {progress['numInputRows']:,} records")
            sys.stdout.flush()
        if is_over:
            return records, failure
        if stop.is_set():
            query.stop()
            stop.clear()


@contextmanager
def _stopping(stop: threading.Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM end a stream; a second one ends the command."""

    def heard(number: int, _: FrameType | None) -> None:
        if stop.is_set():
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        stop.set()

    before = {each: signal.signal(each, heard) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# -- audit and replay -------------------------------------------------------------------------------------


def run_audit(
    topic: str, directory: str, server: str, path: str | None, place: Place, *, as_json: bool
) -> int:
    with _sentences() as code:
        from penstock.spark.archiving.archive_table import the_archive  # noqa: PLC0415
        from penstock.spark.archiving.audit import AuditJob, audit  # noqa: PLC0415

        the_archive(directory)  # before Spark is started for nothing
        with _session(f"audit {topic}", place) as spark:
            try:
                verdict = audit(spark, AuditJob(topic, directory, None if path else server, path))
            except KafkaError:
                raise
            except Exception as error:
                complain(f"{topic} and {directory} could not be compared: {one_sentence(error)}")
                return EXIT_CANNOT
        if as_json:
            print_json(verdict.as_json())
        else:
            print(verdict)
        return 0 if verdict.is_whole else EXIT_WRONG
    return code[0]


def run_replay(directory: str, topic: str, server: str, compression: str, *, as_json: bool) -> int:
    with _sentences() as code:
        from penstock.records import Codec  # noqa: PLC0415
        from penstock.spark.archiving.replay import ReplayJob, replay  # noqa: PLC0415

        codecs = {each.name.lower(): each for each in Codec}
        if compression not in codecs:
            complain(f"--compression is {compression!r}, expected one of {', '.join(codecs)}")
            return EXIT_CANNOT
        show = sys.stderr.isatty()

        def progress(records: int) -> None:
            if show:
                print(f"\r{records:,} records", end="", file=sys.stderr, flush=True)

        done = replay(ReplayJob(directory, topic, server, codecs[compression]), progress)
        if show:
            print(file=sys.stderr)
        if done.warning:
            complain(done.warning)
        if as_json:
            print_json(done._asdict())
        else:
            how = "more records" if done.is_resumed else "records"
            print(f"{topic}: {done.records:,} {how} brought back from {directory}, {done.bytes:,} bytes")
        return 0
    return code[0]
