"""`penstock replay`: writes an archived topic back to a broker."""

import sys
from typing import Annotated

import typer

from penstock.cli.connecting import ClientConfigFile, Compression, Server, parse_codec, target_of
from penstock.cli.output import complain, print_json
from penstock.cli.spark_jobs import ArchiveDirectory, ResultAsJson, client_options, refusing


def replay(
    directory: ArchiveDirectory,
    to: Annotated[
        str, typer.Option("--to", metavar="TOPIC", help="A topic that does not exist, or is empty.")
    ],
    compression: Compression = "zstd",
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: ResultAsJson = False,
) -> None:
    """Write an archived topic back to a broker.

    Partitions, order, keys, values, headers and timestamps stay the same; offsets are new. A missing topic is created
    with retention.ms=-1, since the records keep their old timestamps. After an interruption, run the command again: it
    continues where it stopped, and repeats nothing.

    \b
    penstock replay /archive/orders --to orders-again
    """
    codec = parse_codec(compression)
    table = str(directory.absolute())
    target = target_of(server, client_config)
    with refusing():
        from penstock.spark.archiving import replay as replaying  # noqa: PLC0415  # help works without the extra

        job = replaying.ReplayJob(table, to, target.server, codec, client_options(target))
        done = replaying.replay(job, _show_progress)
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
