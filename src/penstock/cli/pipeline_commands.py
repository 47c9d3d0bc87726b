"""`penstock pipeline`: its options and help. What it runs is imported when it runs."""
# ruff: noqa: PLC0415  # that is the point

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.output import Refused
from penstock.cli.wire import parse_pairs

pipeline = typer.Typer(
    help="""Run a pipeline on Spark: one YAML or Python file with sources, queries and sinks.

    \b
    penstock pipeline validate orders.yaml
    penstock pipeline run orders.yaml
    penstock pipeline run orders.yaml --once --json
    penstock pipeline status orders.yaml
    """,
    no_args_is_help=True,
    rich_markup_mode=None,
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
        "--conf", metavar="NAME=VALUE", help="A setting of Spark, before the file's; may be repeated."
    ),
]


def _where(master: str | None, remote: str | None) -> tuple[str, str | None]:
    if master is not None and remote is not None:
        raise Refused("--master and --remote are two places: give one of them")
    return master or "local[*]", remote


@pipeline.command("run")
def pipeline_run(
    file: File,
    once: Annotated[
        bool, typer.Option("--once", help="Work off what is there now, then end; else go on until stopped.")
    ] = False,
    server: Server = None,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines: an object for each batch.")] = False,
) -> None:
    """Run the flows of a pipeline, and show how they do.

    Ctrl-C or SIGTERM ends each flow after the batch it is at; a second one at once. Either way the next run goes
    on where this one stopped, without loss or repetition. If a flow fails, the others are stopped and its error is
    told in a sentence.

    The exit code is 0 after a clean end, 1 if a flow failed, 2 if the pipeline could not be started.

    \b
    penstock pipeline run orders.yaml
    penstock pipeline run orders.yaml --once --server 127.0.0.1:9092
    penstock pipeline run orders.py --master spark://127.0.0.1:7077 --conf spark.executor.memory=2g
    """
    from penstock.cli.pipelines import run

    at, connect = _where(master, remote)
    settings = parse_pairs(conf or [], "setting of Spark")
    raise typer.Exit(
        run(file, once=once, server=server, master=at, remote=connect, conf=settings, as_json=as_json)
    )


@pipeline.command("validate")
def pipeline_validate(
    file: File,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only the file itself: no Spark is started, no query is analysed.")
    ] = False,
    server: Server = None,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Check a pipeline: its keys and values, then with Spark every query, column and mode. Nothing is run.

    Each problem is a line with the file, the line in it, the key, what was found and what was expected. The exit
    code is 1 if there is any.

    \b
    penstock pipeline validate orders.yaml
    penstock pipeline validate orders.yaml --quick
    """
    from penstock.cli.pipelines import validate

    at, connect = _where(master, remote)
    settings = parse_pairs(conf or [], "setting of Spark")
    raise typer.Exit(
        validate(file, quick=quick, server=server, master=at, remote=connect, conf=settings, as_json=as_json)
    )


@pipeline.command("status")
def pipeline_status(
    file: File,
    server: Server = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document instead of a table.")] = False,
) -> None:
    """Show how a pipeline does that runs in another process, or how its last run ended.

    The lag is asked of the brokers now, where they answer; else it is that of the last batch. No Spark is started.

    \b
    penstock pipeline status orders.yaml
    """
    from penstock.cli.pipelines import status

    raise typer.Exit(status(file, server=server, as_json=as_json))
