"""`penstock audit`: compares a topic with its archive."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.base.errors import KafkaError
from penstock.cli.connecting import ClientConfigFile, Server, Topic, parse_pairs, target_of
from penstock.cli.main import EXIT_WRONG
from penstock.cli.output import Refused, print_json
from penstock.cli.spark_jobs import (
    ArchiveDirectory,
    Conf,
    Master,
    ResultAsJson,
    client_options,
    refusing,
    spark_session,
)
from penstock.spark.pipeline.errors import one_sentence


def audit(
    topic: Topic,
    directory: ArchiveDirectory,
    path: Annotated[
        Path | None,
        typer.Option(
            "--path", metavar="DATA", help="Read the log files in this data directory, not from a broker."
        ),
    ] = None,
    server: Server = None,
    client_config: ClientConfigFile = None,
    master: Master = "local[*]",
    conf: Conf = None,
    as_json: ResultAsJson = False,
) -> None:
    """Compare a topic with its archive.

    A Spark job compares counts, gaps, repetitions and checksums of whole records, offset by offset, and prints the
    verdict in one line. Records that retention deleted from the log, or that are not archived yet, are counted and are
    no errors. The exit code is 0 if the archive is complete, 1 if it is not, 2 if the comparison failed.

    \b
    penstock audit orders /archive/orders
    penstock audit orders /archive/orders --json
    penstock audit orders /archive/orders --path /var/lib/penstock
    """
    table = str(directory.absolute())
    data = None if path is None else str(path.absolute())
    spark_settings = parse_pairs(conf or [], "setting of Spark")
    target = target_of(server, client_config)
    with refusing():
        from penstock.spark.archiving import audit as auditing  # noqa: PLC0415  # help works without the extra
        from penstock.spark.archiving.archive_table import the_archive  # noqa: PLC0415

        the_archive(table)  # refused before Spark starts
        with spark_session(f"audit {topic}", master, spark_settings) as spark:
            try:
                servers = None if data else target.server
                job = auditing.AuditJob(topic, table, servers, data, client_options(target))
                verdict = auditing.audit(spark, job)
            except KafkaError:
                raise
            except Exception as error:
                raise Refused(f"cannot compare {topic} with {table}: {one_sentence(error)}") from error
    if as_json:
        print_json(verdict.as_json())
    else:
        print(verdict)
    raise typer.Exit(0 if verdict.is_whole else EXIT_WRONG)
