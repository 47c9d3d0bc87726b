"""`penstock archive`: keeps a topic as a table of Parquet files, with a Spark stream."""

import os
import signal
import sys
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.child import stopped_by_signals
from penstock.cli.connecting import ClientConfigFile, Isolation, Server, Topic, parse_pairs, target_of
from penstock.cli.main import EXIT_WRONG
from penstock.cli.output import Refused, complain, print_json_line
from penstock.cli.positions import parse_duration
from penstock.cli.spark_jobs import Conf, Master, ResultAsJson, client_options, refusing, spark_session
from penstock.spark.pipeline.errors import one_sentence

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.5
"""How often the stream's progress is read."""


def archive(
    topic: Topic,
    to: Annotated[
        Path,
        typer.Option(
            "--to", metavar="DIR", help="The table: a new or empty directory, or this topic's archive."
        ),
    ],
    once: Annotated[
        bool, typer.Option("--once", help="Archive the records that exist now, then end.")
    ] = False,
    every: Annotated[
        str, typer.Option("--every", metavar="TIME", help="How often to look for new records: 30s, 5m.")
    ] = "60s",
    batch_records: Annotated[
        int, typer.Option("--batch-records", metavar="N", min=1, help="Records in one batch at most.")
    ] = 5_000_000,
    isolation: Annotated[
        Isolation,
        typer.Option("--isolation", help="Whether records of open and aborted transactions are archived."),
    ] = Isolation.COMMITTED,
    skip_lost: Annotated[
        bool,
        typer.Option("--skip-lost", help="Continue if retention deleted records before they were archived."),
    ] = False,
    server: Server = None,
    client_config: ClientConfigFile = None,
    master: Master = "local[*]",
    conf: Conf = None,
    as_json: ResultAsJson = False,
) -> None:
    """Keep a topic as a table of Parquet files.

    A Spark stream writes every record to the table exactly once. After an interruption, run the command again: it
    continues. Files are named DIR/partition=N/FIRST-LAST.parquet, by offsets; columns are offset, timestamp,
    timestampType, key, value and headers. Ctrl-C stops the stream.

    \b
    penstock archive orders --to /archive/orders
    penstock archive orders --to /archive/orders --once
    penstock audit orders /archive/orders
    """
    every_ms = parse_duration(every, "--every")
    if every_ms < 1000:
        raise Refused(f"--every is {every!r}, expected a second or more")
    directory = str(to.absolute())
    spark_settings = parse_pairs(conf or [], "setting of Spark")
    stop = threading.Event()
    with refusing(), _stopping(stop):
        from penstock.spark.archiving.archive import (  # noqa: PLC0415  # help works without the extra
            ArchiveJob,
            archived,
            claim,
            look,
            start,
        )
        from penstock.spark.archiving.archive_table import locked  # noqa: PLC0415

        target = target_of(server, client_config)
        job = ArchiveJob(
            topic,
            directory,
            target.server,
            f"read_{isolation.value}",
            not skip_lost,
            client_options(target),
        )
        partitions = look(job)
        with locked(directory, "archive.lock"):
            claim(job, partitions)
            with spark_session(f"archive {topic}", master, spark_settings) as spark:
                trigger = None if once else f"{every_ms} milliseconds"
                query = start(spark, job, every=trigger, records_max=batch_records)
                records, failure = _follow(query, stop, as_json=as_json, is_followed=not once)
            files, size = archived(directory)
    if failure is not None:
        complain(f"the archive of {topic} stopped: {failure}")
        raise typer.Exit(EXIT_WRONG)
    if as_json:
        print_json_line({"topic": topic, "records": records, "files": files, "bytes": size})
    else:
        print(
            f"{topic}: {records:,} records archived in {directory}, which has {files} files, {size:,} bytes"
        )


def _follow(
    query: "StreamingQuery", stop: threading.Event, *, as_json: bool, is_followed: bool
) -> tuple[int, str | None]:
    """Wait for the end of the stream, and print its batches. Return the number of records and the failure."""
    records, printed, failure = 0, -1, None
    while True:
        is_over = False
        try:
            is_over = bool(query.awaitTermination(POLL_S))  # type: ignore[arg-type]  # seconds may be fractions
        except Exception as error:
            failure, is_over = one_sentence(error), True
        for progress in query.recentProgress:
            if progress["batchId"] <= printed or not progress["numInputRows"]:
                continue
            printed = progress["batchId"]
            records += progress["numInputRows"]
            if as_json:
                print_json_line({"batch": printed, "records": progress["numInputRows"]})
            elif is_followed:
                print(f"batch {printed}: {progress['numInputRows']:,} records")
            sys.stdout.flush()
        if is_over:
            return records, failure
        if stop.is_set():
            query.stop()
            stop.clear()


def _stopping(stop: threading.Event) -> AbstractContextManager[None]:
    """Ctrl-C and SIGTERM set `stop`; a second one ends the command."""

    def on_signal(number: int, _: FrameType | None) -> None:
        if stop.is_set():
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        stop.set()

    return stopped_by_signals(stop, on_signal)
