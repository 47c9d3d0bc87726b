"""`penstock log import` and `penstock log export`: directories of MiniKafka and Kafka-JR.

Findings are printed on standard error at once, the result on standard output at the end, with `--json` as one
object. Storage is imported only when a command runs.
"""

import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.base.errors import KafkaError
from penstock.cli.main import EXIT_CANNOT, EXIT_WRONG
from penstock.cli.output import complain, print_json, progress_of
from penstock.storage.directory import LogDirectory, open_directory
from penstock.storage.errors import CorruptLog
from penstock.storage.layout import layout_of
from penstock.storage.legacy.errors import CorruptSource, LegacyError
from penstock.storage.legacy.exporter import ExportReport, export_directory
from penstock.storage.legacy.importer import ImportReport, import_directory
from penstock.storage.legacy.layout import FORMATS, find_topics
from penstock.vfs import RealDisk

LINES_MAX = 20
"""Maximum lines for one kind of finding. `--json` has all findings."""


class LegacyFormat(StrEnum):
    MINIKAFKA = "minikafka"
    KAFKA_JR = "kafka-jr"


FormatOption = Annotated[LegacyFormat, typer.Option("--format", help="The older system.")]
DataOption = Annotated[Path, typer.Option("--data", help="Penstock's data directory.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def import_command(
    directory: Annotated[Path, typer.Argument(help="Directory of the older system.", metavar="DIR")],
    format_: FormatOption,
    data: DataOption = Path("penstock-data"),
    skip_corrupt: Annotated[
        bool, typer.Option("--skip-corrupt", help="Continue at the next valid record after a damaged one.")
    ] = False,
    skip_existing: Annotated[
        bool, typer.Option("--skip-existing", help="Skip partitions that have records.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Import topics of MiniKafka or Kafka-JR.

    Either all topics of the directory are imported into the data directory, or none.
    """
    with _one_sentence():
        # Checked first, so that a mistyped name does not create the data directory.
        find_topics(RealDisk(), str(directory), FORMATS[format_.value])
        with _opened(data) as (opened, now_ms), progress_of("importing") as progress:
            report = import_directory(
                str(directory),
                FORMATS[format_.value],
                opened,
                now_ms=now_ms,
                rng=random.Random(),
                skip_corrupt=skip_corrupt,
                skip_existing=skip_existing,
                progress=progress,
            )
    if as_json:
        print_json(_import_json(report))
    else:
        _print_import(report, data)


def export_command(
    directory: Annotated[Path, typer.Argument(help="Directory to create.", metavar="DIR")],
    format_: FormatOption,
    data: DataOption = Path("penstock-data"),
    topic: Annotated[
        list[str] | None, typer.Option("--topic", help="Export only this topic; repeatable.")
    ] = None,
    segment_bytes: Annotated[
        int, typer.Option("--segment-bytes", min=1, help="Start a new file at this size.")
    ] = 2**30,
    as_json: JsonOption = False,
) -> None:
    """Export topics as files of MiniKafka or Kafka-JR."""
    with _one_sentence():
        if RealDisk().stat(layout_of(RealDisk(), str(data.absolute())).logs) is None:
            raise LegacyError(f"{data} is not a Penstock data directory: it has no logs")
        with _opened(data) as (opened, _), progress_of("exporting") as progress:
            report = export_directory(
                opened,
                str(directory.absolute()),
                FORMATS[format_.value],
                topics=topic or None,
                segment_bytes=segment_bytes,
                progress=progress,
            )
    if as_json:
        print_json(_export_json(report))
    else:
        _print_export(report, directory)


@contextmanager
def _one_sentence() -> Iterator[None]:
    """Report errors as one line: exit code 1 for damaged files, 2 if the command could not run."""
    try:
        yield
    except (KafkaError, OSError) as error:
        complain(str(error))
        is_damage = isinstance(error, CorruptLog | CorruptSource)
        raise typer.Exit(EXIT_WRONG if is_damage else EXIT_CANNOT) from error


@contextmanager
def _opened(data: Path) -> Iterator[tuple[LogDirectory, int]]:
    """Open and lock the data directory; close it cleanly at the end, also after an error."""
    now_ms = time.time_ns() // 1_000_000
    directory = open_directory(RealDisk(), str(data.absolute()), now_ms=now_ms, rng=random.Random())
    try:
        yield directory, now_ms
    finally:
        directory.close()


def _print_import(report: ImportReport, data: Path) -> None:
    _list("truncated the torn end: {}", report.cut)
    _list("skipped: {}", report.skipped)
    offsets = [path for path in report.left if path.endswith("consumer_offsets.dat")]
    _list("skipped {}: committed offsets of groups are not imported yet", offsets)
    _list("skipped {}: not a topic's records", [path for path in report.left if path not in offsets])
    _list("skipped {}: it already has records", report.existing)
    _list("created {} empty: the source has no such partition", report.made)
    topics = {each.partition.topic for each in report.imported}
    print(
        f"imported {report.records} records in {len(report.imported)} partitions of {len(topics)} topics into {data}"
    )


def _print_export(report: ExportReport, target: Path) -> None:
    if report.control:
        typer.echo(f"skipped {report.control} control records", err=True)
    if report.aborted:
        typer.echo(f"skipped {report.aborted} records of aborted transactions", err=True)
    if report.undecided:
        typer.echo(f"among them are {report.undecided} records of transactions still open", err=True)
    if report.headers:
        typer.echo(
            f"skipped {report.headers} headers of {report.headers_records} records: the format has none",
            err=True,
        )
    topics = {each.partition.topic for each in report.exported}
    print(
        f"exported {report.records} records in {len(report.exported)} partitions of {len(topics)} topics to {target}"
    )


def _list(sentence: str, items: list[Any]) -> None:
    for item in items[:LINES_MAX]:
        print(sentence.format(item), file=sys.stderr)
    if len(items) > LINES_MAX:
        print(f"... and {len(items) - LINES_MAX} more", file=sys.stderr)


def _import_json(report: ImportReport) -> dict[str, Any]:
    return {
        "records": report.records,
        "partitions": [_partition_json(each) for each in report.imported],
        "cut": [each._asdict() for each in report.cut],
        "skipped": [each._asdict() for each in report.skipped],
        "left": report.left,
        "existing": [str(each) for each in report.existing],
        "made": [str(each) for each in report.made],
    }


def _export_json(report: ExportReport) -> dict[str, Any]:
    return {
        "records": report.records,
        "partitions": [_partition_json(each) for each in report.exported],
        "control_left": report.control,
        "aborted_left": report.aborted,
        "undecided": report.undecided,
        "headers_left": report.headers,
        "headers_left_records": report.headers_records,
    }


def _partition_json(each: Any) -> dict[str, Any]:
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "records": each.records,
        "log_start": each.log_start,
        "log_end": each.log_end,
    }
