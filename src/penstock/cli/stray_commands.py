"""`penstock log strays list | restore | delete`: the commands and their help."""

from pathlib import Path
from typing import Annotated

import typer

strays = typer.Typer(
    help="""Show, restore or delete strays: partitions on disk that no topic of the cluster claims.

    A broker never deletes a partition because the cluster's metadata does not mention it. It keeps the directory as
    <topic>-<partition>.<id>-stray, where Apache Kafka leaves it alone too, until somebody decides.

    \b
    penstock log strays list penstock-data
    penstock log strays restore penstock-data orders-0
    penstock log strays delete penstock-data --all
    """,
    no_args_is_help=True,
    rich_markup_mode=None,
)

DataDirectory = Annotated[
    Path, typer.Argument(metavar="DIR", help="A data directory, or a Kafka log directory.")
]
Chosen = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME...", help="Partitions, such as orders-0, or names of stray directories."),
]
All = Annotated[bool, typer.Option("--all", help="All strays of the directory.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of a table.")]


@strays.command("list")
def list_command(directory: DataDirectory, as_json: Json = False) -> None:
    """List strays with their size and why they were set aside.

    Takes no lock and writes nothing: safe beside a running broker. The exit code is 0 whether there are any or not.

    \b
    penstock log strays list penstock-data
    penstock log strays list /var/lib/kafka --json
    """
    from penstock.cli.straying import show  # noqa: PLC0415

    raise typer.Exit(show(str(directory), as_json=as_json))


@strays.command("restore")
def restore_command(
    directory: DataDirectory,
    names: Chosen = None,
    everything: All = False,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Set the partition that has the name now aside as a stray instead."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Make strays partitions again. Refuses while a broker has the directory open.

    The node's metadata log must have the topic. If it has the topic with the stray's own id, because the metadata was
    restored, the stray becomes what it was. If the topic was created anew, it has another id: then the partition must
    have one replica, on this node, so that no other replica overwrites the restored records; more can be added with
    `penstock reassign` once the node serves it.

    \b
    penstock log strays restore penstock-data orders-0 orders-1
    penstock log strays restore penstock-data --all
    """
    from penstock.cli.straying import restore  # noqa: PLC0415

    raise typer.Exit(
        restore(str(directory), names or [], everything=everything, is_replaced=replace, as_json=as_json)
    )


@strays.command("delete")
def delete_command(
    directory: DataDirectory, names: Chosen = None, everything: All = False, as_json: Json = False
) -> None:
    """Delete strays and their records for good. A running broker does not mind.

    \b
    penstock log strays delete penstock-data orders-0
    penstock log strays delete penstock-data --all
    """
    from penstock.cli.straying import delete  # noqa: PLC0415

    raise typer.Exit(delete(str(directory), names or [], everything=everything, as_json=as_json))
