"""`penstock cluster`: its options and help. What it runs is imported when it runs."""
# ruff: noqa: PLC0415  # that is the point

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.wire import Json, parse_pairs

DATA_DEFAULT = Path("penstock-cluster")
BASE_PORT_DEFAULT = 9092
BROKERS_DEFAULT = 3
BROKERS_MAX = 32
"""Processes of one machine."""

cluster = typer.Typer(
    help="""Run a cluster on this machine, each node a process.

    \b
    penstock cluster start --brokers 3
    penstock cluster status
    penstock cluster kill 2
    penstock cluster restart 2
    """,
    no_args_is_help=True,
    rich_markup_mode=None,
)

Data = Annotated[Path, typer.Option("--data", metavar="DIR", help="Where the cluster is, or is to be.")]
NodeId = Annotated[int, typer.Argument(metavar="N", min=0, help="The node's id.")]


@cluster.command("start")
def start_command(
    brokers: Annotated[
        int | None, typer.Option("--brokers", min=1, max=BROKERS_MAX, help="How many.  [3]")
    ] = None,
    controllers: Annotated[
        int,
        typer.Option(
            "--controllers",
            min=0,
            max=9,
            help="Nodes that are controllers and nothing else; with 0 some brokers are controllers too.",
        ),
    ] = 0,
    data: Data = DATA_DEFAULT,
    base_port: Annotated[
        int,
        typer.Option(
            "--base-port",
            metavar="N",
            min=0,
            max=65_000,
            help="Kafka's port of broker 1, others follow; 100 above controllers, 200 HTTP, 300 lines. 0: any free.",
        ),
    ] = BASE_PORT_DEFAULT,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of every node, by Kafka's name."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines: what happens, as it happens.")] = False,
) -> None:
    """Start a cluster, show how it is, and stop all of it at Ctrl-C.

    Topics have three replicas, and two in sync to be written to with acks=all, unless --set says otherwise. A
    directory with a cluster in it is started again as it was. Each node logs to node-N.log there.

    \b
    penstock cluster start
    penstock cluster start --brokers 5 --controllers 3 --data ./five --base-port 19092
    penstock cluster start --set log.retention.hours=1
    """
    from penstock.cli.cluster_nodes import Wanted
    from penstock.cli.cluster_run import start

    wanted = Wanted(
        brokers or BROKERS_DEFAULT,
        controllers,
        base_port,
        settings=parse_pairs(settings or [], "setting"),
    )
    raise typer.Exit(start(data, wanted, is_new=brokers is not None, as_json=as_json))


@cluster.command("status")
def status_command(data: Data = DATA_DEFAULT, as_json: Json = False) -> None:
    """Show which nodes run, who leads what, and what has too few replicas in sync.

    The exit code is 1 if a node is down or a partition under-replicated.
    """
    from penstock.cli.cluster_run import status

    raise typer.Exit(status(data, as_json=as_json))


@cluster.command("stop")
def stop_command(
    node: Annotated[
        int | None, typer.Argument(metavar="[N]", min=0, help="A node's id; without it, all.")
    ] = None,
    data: Data = DATA_DEFAULT,
    as_json: Json = False,
) -> None:
    """Stop the cluster, or one node, cleanly: leadership moves first, and everything is on disk."""
    from penstock.cli.cluster_run import stop

    raise typer.Exit(stop(data, node, as_json=as_json))


@cluster.command("kill")
def kill_command(node: NodeId, data: Data = DATA_DEFAULT, as_json: Json = False) -> None:
    """End a node as a crash would, with SIGKILL. What was acknowledged is not lost."""
    from penstock.cli.cluster_run import kill

    raise typer.Exit(kill(data, node, as_json=as_json))


@cluster.command("restart")
def restart_command(node: NodeId, data: Data = DATA_DEFAULT, as_json: Json = False) -> None:
    """Start a node again, after a clean stop if it still runs; returns when it serves."""
    from penstock.cli.cluster_run import restart

    raise typer.Exit(restart(data, node, as_json=as_json))
