"""`penstock topics` and `penstock configs`: their options and help. What they run is imported when they run."""
# ruff: noqa: PLC0415  # that is the point

from typing import Annotated

import typer

from penstock.cli.wire import SERVER_DEFAULT, Json, Server, parse_pairs

topics = typer.Typer(
    help="""Create, list, describe, widen and delete topics, on Penstock or Apache Kafka.

    \b
    penstock topics create orders --partitions 3 --config retention.ms=86400000
    penstock topics describe orders
    penstock topics list --server 10.0.0.7:9092 --json
    """,
    no_args_is_help=True,
    rich_markup_mode=None,
)
configs = typer.Typer(
    help="""Show and change settings of topics and brokers, on Penstock or Apache Kafka.

    A target is `topic NAME`, `broker ID`, or `brokers`, the default of all brokers.

    \b
    penstock configs describe topic orders --all
    penstock configs set topic orders retention.ms=86400000 cleanup.policy=compact
    penstock configs unset topic orders retention.ms
    """,
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A topic.")]
Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TARGET] [SETTING]...", help="`topic NAME`, `broker ID` or `brokers`; settings."),
]


@topics.command("create")
def topics_create(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Topics to create.")],
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", min=1, max=2**31 - 1, help="Partitions; else as many as the broker gives."
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor", "-r", min=1, max=32767, help="Replicas; else as many as the broker gives."
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="NAME=VALUE", help="A setting; may be repeated."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="A topic that is there already is no error.")
    ] = False,
    server: Server = SERVER_DEFAULT,
    as_json: Json = False,
) -> None:
    """Create topics.

    \b
    penstock topics create orders payments --partitions 6
    penstock topics create events -p 3 -c cleanup.policy=compact -c segment.bytes=1048576
    """
    from penstock.cli.topics import create
    from penstock.client.admin import BROKER_DEFAULT, NewTopic

    settings = parse_pairs(config or [], "setting")
    wanted = [
        NewTopic(name, partitions or BROKER_DEFAULT, replication_factor or BROKER_DEFAULT, settings)
        for name in dict.fromkeys(names)
    ]
    raise typer.Exit(create(server, wanted, if_not_exists=if_not_exists, as_json=as_json))


@topics.command("list")
def topics_list(
    internal: Annotated[
        bool, typer.Option("--internal", help="Show topics of the system's own too.")
    ] = False,
    server: Server = SERVER_DEFAULT,
    as_json: Json = False,
) -> None:
    """List the topics of a cluster.

    \b
    penstock topics list
    """
    from penstock.cli.topics import show_list

    raise typer.Exit(show_list(server, internal=internal, as_json=as_json))


@topics.command("describe")
def topics_describe(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Topics; all where none is named.")
    ] = None,
    server: Server = SERVER_DEFAULT,
    as_json: Json = False,
) -> None:
    """Show partitions, leaders, replicas and offsets of topics, and settings that are not the default.

    The high watermark is as far as consumers read. How far each follower is behind the leader's log end, it is asked
    itself: 3:117 is replica 3, which lacks 117 records, 3:? one that does not answer. Eligible replicas (KIP-966) are
    those that may lead although they are not in sync.

    \b
    penstock topics describe orders
    """
    from penstock.cli.topics import describe

    raise typer.Exit(describe(server, names or [], as_json=as_json))


@topics.command("alter")
def topics_alter(
    name: Name,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", min=1, max=2**31 - 1, help="How many it is to have.")
    ],
    server: Server = SERVER_DEFAULT,
    as_json: Json = False,
) -> None:
    """Give a topic more partitions. Keys are spread anew: records with a key may go to another partition.

    \b
    penstock topics alter orders --partitions 12
    """
    from penstock.cli.topics import alter

    raise typer.Exit(alter(server, name, partitions, as_json=as_json))


@topics.command("delete")
def topics_delete(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Topics to delete.")],
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="A topic that is not there is no error.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    server: Server = SERVER_DEFAULT,
    as_json: Json = False,
) -> None:
    """Delete topics and all their records. Asks first, on a terminal.

    \b
    penstock topics delete orders --yes
    """
    from penstock.cli.topics import delete

    raise typer.Exit(
        delete(server, list(dict.fromkeys(names)), if_exists=if_exists, yes=yes, as_json=as_json)
    )


@configs.command("describe")
def configs_describe(
    words: Words = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Defaults too, and everywhere a value was looked for.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="What each setting means, too.")] = False,
    server: Server = SERVER_DEFAULT,
    as_json: Json = False,
) -> None:
    """Show settings, their values and where they come from: those that are not the default, or those named.

    \b
    penstock configs describe topic orders
    penstock configs describe topic orders retention.ms --verbose
    penstock configs describe broker 1 --all
    penstock configs describe brokers
    """
    from penstock.cli.configs import describe

    raise typer.Exit(describe(server, words or [], everything=everything, verbose=verbose, as_json=as_json))


@configs.command("set")
def configs_set(words: Words = None, server: Server = SERVER_DEFAULT, as_json: Json = False) -> None:
    """Set values: all of them, or none where one is refused.

    \b
    penstock configs set topic orders retention.ms=86400000
    penstock configs set brokers log.retention.ms=604800000
    """
    from penstock.cli.configs import set_values

    raise typer.Exit(set_values(server, words or [], as_json=as_json))


@configs.command("unset")
def configs_unset(words: Words = None, server: Server = SERVER_DEFAULT, as_json: Json = False) -> None:
    """Take values back: what is next in line is in force again, in the end the default.

    \b
    penstock configs unset topic orders retention.ms cleanup.policy
    """
    from penstock.cli.configs import unset

    raise typer.Exit(unset(server, words or [], as_json=as_json))
