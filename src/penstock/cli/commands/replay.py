"""`penstock replay`: writes an archived topic back to a broker."""

import sys
from typing import Annotated

import typer

from penstock.cli.connecting import SERVER_DEFAULT, Server
from penstock.cli.output import Refused, complain, print_json
from penstock.cli.spark_jobs import ArchiveDirectory, ResultAsJson, refusing
from penstock.records import Codec


def replay(
    directory: ArchiveDirectory,
    to: Annotated[
        str, typer.Option("--to", metavar="TOPIC", help="A topic that does not exist, or is empty.")
    ],
    compression: Annotated[
        str,
        typer.Option("--compression", "-z", metavar="none|gzip|snappy|lz4|zstd", help="Compression codec."),
    ] = "zstd",
    server: Server = SERVER_DEFAULT,
    as_json: ResultAsJson = False,
) -> None:
    """Write an archived topic back to a broker.

    Partitions, order, keys, values, headers and timestamps stay the same; offsets are new. A missing topic is created
    with retention.ms=-1, since the records keep their old timestamps. After an interruption, run the command again: it
    continues where it stopped, and repeats nothing.

    \b
    penstock replay /archive/orders --to orders-again
    """
    codecs = {each.name.lower(): each for each in Codec}
    if compression not in codecs:
        raise Refused(f"--compression is {compression!r}, expected one of {', '.join(codecs)}")
    table = str(directory.absolute())
    with refusing():
        from penstock.spark.archiving import replay as replaying  # noqa: PLC0415  # help works without the extra

        done = replaying.replay(replaying.ReplayJob(table, to, server, codecs[compression]), _show_progress)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    if done.warning:
        complain(done.warning)
    if as_json:
        print_json(done._asdict())
    else:
        how = "more records" if done.is_resumed else "records"
        print(f"{to}: {done.records:,} {how} replayed from {table}, {done.bytes:,} bytes")


def _show_progress(records: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{records:,} records", end="", file=sys.stderr, flush=True)
