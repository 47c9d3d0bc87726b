"""`penstock groups` and `penstock transactions`: their options and help. What they run is imported when they run."""
# ruff: noqa: PLC0415  # that is the point

from typing import Annotated

import typer

from penstock.cli.output import Refused
from penstock.cli.wire import SERVER_DEFAULT, Json, Server

groups = typer.Typer(
    help="""List, describe, reset and delete consumer groups, on Penstock or Apache Kafka.

    \b
    penstock groups list
    penstock groups describe billing
    penstock groups reset-offsets billing --to earliest --topic orders
    """,
    no_args_is_help=True,
    rich_markup_mode=None,
)
transactions = typer.Typer(
    help="""List, describe and abort transactions, on Penstock or Apache Kafka.

    \b
    penstock transactions list
    penstock transactions describe billing-1
    penstock transactions abort billing-1
    """,
    no_args_is_help=True,
    rich_markup_mode=None,
)

Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", "-t", metavar="TOPIC[:P,...]", help="A topic, or some of its partitions; may be repeated."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
INT64_MAX = 2**63 - 1


@groups.command("list")
def groups_list(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="Only groups in this state: Stable, Empty, ...; may be repeated."),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option("--type", help="Only groups of this type: classic or consumer; may be repeated."),
    ] = None,
    server: Server = SERVER_DEFAULT,
    as_json: Json = False,
) -> None:
    """List the groups of a cluster.

    \b
    penstock groups list
    penstock groups list --state Empty --json
    """
    from penstock.cli.groups import show_list

    raise typer.Exit(show_list(server, states=state or [], types=kind or [], as_json=as_json))


@groups.command("describe")
def groups_describe(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[GROUP]...", help="Groups; all where none is named.")
    ] = None,
    server: Server = SERVER_DEFAULT,
    as_json: Json = False,
) -> None:
    """Show members, what they read, and for each partition the committed offset, the end and the lag between.

    \b
    penstock groups describe billing
    """
    from penstock.cli.groups import describe

    raise typer.Exit(describe(server, names or [], as_json=as_json))


@groups.command("reset-offsets")
def groups_reset_offsets(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="A group without live members.")],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="PLACE",
            help="earliest, latest, current, an offset (120; -5 is five before the end), a time "
            "(2026-01-01T10:00:00Z, @MILLISECONDS) or so long ago (-1h).",
        ),
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(
            "--shift-by",
            metavar="N",
            min=-INT64_MAX,
            max=INT64_MAX,
            help="So many records on, or back where it is below zero.",
        ),
    ] = None,
    from_file: Annotated[
        str | None,
        typer.Option(
            "--from-file", metavar="FILE", help="Lines of topic,partition,offset, as --export writes them."
        ),
    ] = None,
    topic: Topics = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; else it is only shown.")] = False,
    export: Annotated[bool, typer.Option("--export", help="Print the new offsets as CSV.")] = False,
    server: Server = SERVER_DEFAULT,
    as_json: Json = False,
) -> None:
    """Set where a group goes on reading: everything that it has committed, or the topics that are named.

    Shows old and new offsets and changes nothing, unless --execute is given. An offset before the start or
    beyond the end of its partition becomes that start or end. Refused while the group has live members.

    \b
    penstock groups reset-offsets billing --to earliest
    penstock groups reset-offsets billing --to -1h --topic orders:0,1 --execute
    penstock groups reset-offsets billing --shift-by -100 --execute
    penstock groups reset-offsets billing --to current --export > offsets.csv
    penstock groups reset-offsets billing --from-file offsets.csv --execute
    """
    from penstock.cli.resets import Target, reset
    from penstock.cli.selection import parse_selection

    if export and as_json:
        raise Refused("--export and --json are two ways to print: give one of them")
    selections = [parse_selection(each) for each in topic or []]
    target = Target(to, shift_by, from_file)
    raise typer.Exit(
        reset(server, group, selections, target, execute=execute, as_csv=export, as_json=as_json)
    )


@groups.command("delete")
def groups_delete(
    names: Annotated[list[str], typer.Argument(metavar="GROUP...", help="Groups without live members.")],
    topic: Topics = None,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="A group that is not there is no error.")
    ] = False,
    yes: Yes = False,
    server: Server = SERVER_DEFAULT,
    as_json: Json = False,
) -> None:
    """Delete groups and all that they have committed; with --topic only what a group has committed there.

    \b
    penstock groups delete billing --yes
    penstock groups delete billing --topic old-orders
    """
    from penstock.cli.groups import delete, forget
    from penstock.cli.selection import parse_selection

    if topic:
        if len(names) != 1:
            raise Refused(f"--topic goes with one group, {len(names)} were named")
        selections = [parse_selection(each) for each in topic]
        raise typer.Exit(forget(server, names[0], selections, as_json=as_json))
    raise typer.Exit(
        delete(server, list(dict.fromkeys(names)), if_exists=if_exists, yes=yes, as_json=as_json)
    )


@transactions.command("list")
def transactions_list(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="Only those in this state: Ongoing, Empty, ...; may be repeated."),
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option("--producer-id", min=0, max=INT64_MAX, help="Only of this producer; may be repeated."),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option("--pattern", help="Only ids that a regular expression matches, as a whole."),
    ] = None,
    older: Annotated[
        str | None,
        typer.Option("--older", metavar="DURATION", help="Only those open for so long: 90s, 15m, 1h."),
    ] = None,
    hanging: Annotated[
        bool,
        typer.Option(
            "--hanging",
            help="Search all partitions for open transactions that no coordinator knows of, and that nobody wrote "
            "to for --older (15m).",
        ),
    ] = False,
    server: Server = SERVER_DEFAULT,
    as_json: Json = False,
) -> None:
    """List transactional ids and the state of their transactions, or those that hang in a partition.

    \b
    penstock transactions list --state Ongoing --older 5m
    penstock transactions list --hanging
    """
    from penstock.cli.moments import parse_duration
    from penstock.cli.transactions import show_hanging, show_list
    from penstock.client.transactions import ANY_AGE, Filters

    age_ms = ANY_AGE if older is None else parse_duration(older, "--older")
    if hanging:
        if state or producer_id or pattern is not None:
            raise Refused("--hanging searches partitions: of the filters only --older goes with it")
        raise typer.Exit(show_hanging(server, 15 * 60_000 if older is None else age_ms, as_json=as_json))
    filters = Filters(tuple(state or ()), tuple(producer_id or ()), age_ms, pattern)
    raise typer.Exit(show_list(server, filters, as_json=as_json))


@transactions.command("describe")
def transactions_describe(
    names: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Transactional ids.")] = None,
    partition: Annotated[
        str | None,
        typer.Option("--partition", metavar="TOPIC:P", help="The producers of a partition instead."),
    ] = None,
    server: Server = SERVER_DEFAULT,
    as_json: Json = False,
) -> None:
    """Show the state of transactional ids, or the producers that a partition remembers.

    \b
    penstock transactions describe billing-1
    penstock transactions describe --partition orders:0
    """
    from penstock.cli.selection import parse_partition
    from penstock.cli.transactions import describe, describe_producers

    if (partition is None) == (not names):
        raise Refused("expected either transactional ids or --partition")
    if partition is not None:
        raise typer.Exit(describe_producers(server, parse_partition(partition), as_json=as_json))
    raise typer.Exit(describe(server, list(dict.fromkeys(names or [])), as_json=as_json))


@transactions.command("abort")
def transactions_abort(
    name: Annotated[str | None, typer.Argument(metavar="[ID]", help="A transactional id.")] = None,
    partition: Annotated[
        str | None,
        typer.Option("--partition", metavar="TOPIC:P", help="A partition in which a transaction hangs."),
    ] = None,
    start_offset: Annotated[
        int | None,
        typer.Option("--start-offset", metavar="N", min=0, max=INT64_MAX, help="Where it begins there."),
    ] = None,
    yes: Yes = False,
    server: Server = SERVER_DEFAULT,
    as_json: Json = False,
) -> None:
    """Abort an open transaction: by its id, or in a partition where it hangs. Asks first, on a terminal.

    By its id, the producer that has it open is fenced, and the coordinator aborts. In a partition an abort marker
    is written past the coordinator: only for a transaction that `list --hanging` shows, since one that
    its coordinator still commits would be torn. A transaction whose end was lost with a damaged or missing segment
    (the broker says so at its start) is accepted as lost this way: its records stay hidden, and readers of committed
    records go on.

    \b
    penstock transactions abort billing-1 --yes
    penstock transactions abort --partition orders:0 --start-offset 1042
    """
    from penstock.cli.selection import parse_partition
    from penstock.cli.transactions import abort, abort_in_partition

    if (name is None) == (partition is None):
        raise Refused("expected either a transactional id or --partition with --start-offset")
    if (partition is None) != (start_offset is None):
        raise Refused("--partition and --start-offset go together")
    if name is not None:
        raise typer.Exit(abort(server, name, yes=yes, as_json=as_json))
    assert partition is not None  # as was just seen
    assert start_offset is not None
    raise typer.Exit(
        abort_in_partition(server, parse_partition(partition), start_offset, yes=yes, as_json=as_json)
    )
