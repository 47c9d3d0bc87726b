"""`penstock archive`, `audit` and `replay`: their options and help. What they run is imported when they run."""
# ruff: noqa: PLC0415  # that is the point

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.data_commands import Isolation
from penstock.cli.output import Refused
from penstock.cli.wire import SERVER_DEFAULT, Server, parse_pairs

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")]
Table = Annotated[Path, typer.Argument(metavar="DIR", help="The archive's directory.")]
Master = Annotated[
    str,
    typer.Option(
        "--master", metavar="URL", help="A Spark master; its executors need DIR under the same path."
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Tell the result as JSON.")]


def archive(
    topic: Topic,
    to: Annotated[
        Path, typer.Option("--to", metavar="DIR", help="The table: a new or empty directory, or its own.")
    ],
    once: Annotated[
        bool, typer.Option("--once", help="Archive what is there now, then end; else go on until stopped.")
    ] = False,
    every: Annotated[
        str, typer.Option("--every", metavar="TIME", help="How often to look for new records: 30s, 5m.")
    ] = "60s",
    batch_records: Annotated[
        int, typer.Option("--batch-records", metavar="N", min=1, help="At most so many at a time.")
    ] = 5_000_000,
    isolation: Annotated[
        Isolation,
        typer.Option("--isolation", help="Whether records of open and aborted transactions are archived."),
    ] = Isolation.COMMITTED,
    skip_lost: Annotated[
        bool, typer.Option("--skip-lost", help="Go on where retention was quicker than the archive.")
    ] = False,
    server: Server = SERVER_DEFAULT,
    master: Master = "local[*]",
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Keep a topic as a table of Parquet files, with a Spark stream.

    Every record is in the table once, whatever was interrupted: run it again and it goes on. Files have the names
    DIR/partition=N/FIRST-LAST.parquet, by their offsets; columns are offset, timestamp, timestampType, key, value and
    headers. Ctrl-C stops it.

    \b
    penstock archive orders --to /archive/orders
    penstock archive orders --to /archive/orders --once
    penstock audit orders /archive/orders
    """
    from penstock.cli.archiving import Place, run_archive
    from penstock.cli.moments import parse_duration

    every_ms = parse_duration(every, "--every")
    if every_ms < 1000:
        raise Refused(f"--every is {every!r}, expected a second or more")
    raise typer.Exit(
        run_archive(
            topic,
            str(to.absolute()),
            server,
            Place(master, parse_pairs(conf or [], "setting of Spark")),
            every=None if once else f"{every_ms} milliseconds",
            records_max=batch_records,
            isolation=f"read_{isolation.value}",
            skip_lost=skip_lost,
            as_json=as_json,
        )
    )


def audit(
    topic: Topic,
    directory: Table,
    path: Annotated[
        Path | None,
        typer.Option(
            "--path", metavar="DATA", help="Read the log's files in this directory, not from a broker."
        ),
    ] = None,
    server: Server = SERVER_DEFAULT,
    master: Master = "local[*]",
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Compare every offset of a topic with its archive, and say in one line whether the archive is whole.

    Counts, gaps, repetitions and checksums of whole records, as a Spark job. What retention has taken from the log,
    and what was not archived yet, is counted and is not wrong. The exit code is 0 if the archive is whole, 1 if it is
    not, 2 if they could not be compared.

    \b
    penstock audit orders /archive/orders
    penstock audit orders /archive/orders --json
    penstock audit orders /archive/orders --path /var/lib/penstock
    """
    from penstock.cli.archiving import Place, run_audit

    raise typer.Exit(
        run_audit(
            topic,
            str(directory.absolute()),
            server,
            None if path is None else str(path.absolute()),
            Place(master, parse_pairs(conf or [], "setting of Spark")),
            as_json=as_json,
        )
    )


def replay(
    directory: Table,
    to: Annotated[
        str, typer.Option("--to", metavar="TOPIC", help="A topic that is not there yet, or is empty.")
    ],
    compression: Annotated[
        str, typer.Option("--compression", "-z", metavar="none|gzip|snappy|lz4|zstd", help="The codec.")
    ] = "zstd",
    server: Server = SERVER_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Bring an archived topic back: the same partitions, in the same order, keys, values, headers and times.

    A topic that is not there is made, with retention.ms=-1: records keep their times, and are old. Run it again
    after whatever interruption: it goes on where it stopped, and repeats nothing. Offsets are new ones.

    \b
    penstock replay /archive/orders --to orders-again
    """
    from penstock.cli.archiving import run_replay

    raise typer.Exit(run_replay(str(directory.absolute()), to, server, compression, as_json=as_json))
