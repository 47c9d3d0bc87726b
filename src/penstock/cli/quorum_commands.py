"""`penstock quorum`: its options and help. What it runs is imported when it runs."""
# ruff: noqa: PLC0415  # that is the point

from typing import Annotated

import typer

from penstock.cli.wire import SERVER_DEFAULT, Json, Server

quorum = typer.Typer(
    help="""The controllers that keep the cluster's metadata: who leads, who votes, and how far each is.

    Any broker is asked, and passes it on to the controller that leads; on Penstock or Apache Kafka.

    \b
    penstock quorum describe
    penstock quorum add-voter 4 10.0.0.4:9093
    penstock quorum remove-voter 2
    """,
    no_args_is_help=True,
    rich_markup_mode=None,
)

NodeId = Annotated[int, typer.Argument(metavar="ID", min=0, max=2**31 - 1, help="A controller's node.id.")]
Directory = Annotated[
    str | None,
    typer.Option(
        "--directory",
        metavar="ID",
        help="Its directory's id, as in meta.properties.  [as the quorum knows it]",
    ),
]


@quorum.command("describe")
def quorum_describe(server: Server = SERVER_DEFAULT, as_json: Json = False) -> None:
    """Show the leader, its epoch and high watermark, and of every voter and observer how far its log is.

    \b
    penstock quorum describe
    penstock quorum describe --server 10.0.0.7:9092 --json
    """
    from penstock.cli.quorum import describe

    raise typer.Exit(describe(server, as_json=as_json))


@quorum.command("add-voter")
def quorum_add_voter(
    node_id: NodeId,
    address: Annotated[
        str, typer.Argument(metavar="HOST:PORT", help="Where the others reach its controller.")
    ],
    directory: Directory = None,
    listener: Annotated[
        str | None,
        typer.Option("--listener", metavar="NAME", help="Its listener's name.  [as that of the voters]"),
    ] = None,
    server: Server = SERVER_DEFAULT,
    as_json: Json = False,
) -> None:
    """Let a controller vote that has followed the log so far, as an observer; done when that is committed.

    The voters must be in the log (controller.quorum.bootstrap.servers), not in every node's settings
    (controller.quorum.voters).

    \b
    penstock quorum add-voter 4 10.0.0.4:9093
    """
    from penstock.cli.quorum import add_voter

    raise typer.Exit(
        add_voter(server, node_id, address, directory=directory, listener=listener, as_json=as_json)
    )


@quorum.command("remove-voter")
def quorum_remove_voter(
    node_id: NodeId, directory: Directory = None, server: Server = SERVER_DEFAULT, as_json: Json = False
) -> None:
    """Let a voter vote no more; done when that is committed. A leader may be removed: another one follows it.

    \b
    penstock quorum remove-voter 2
    """
    from penstock.cli.quorum import remove_voter

    raise typer.Exit(remove_voter(server, node_id, directory=directory, as_json=as_json))
