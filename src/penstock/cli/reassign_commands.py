"""`penstock reassign`: its options and help. What it runs is imported when it runs."""
# ruff: noqa: PLC0415  # that is the point

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.output import Refused
from penstock.cli.wire import SERVER_DEFAULT, Json, Server

reassign = typer.Typer(
    help="""Move partitions to other brokers, on Penstock or Apache Kafka.

    A plan is a file in the format of kafka-reassign-partitions, and each tool takes the other's.

    \b
    penstock reassign plan orders payments --brokers 1,2,3 --out plan.json
    penstock reassign apply plan.json --throttle 50000000
    penstock reassign status plan.json
    """,
    no_args_is_help=True,
    rich_markup_mode=None,
)

File = Annotated[Path, typer.Argument(metavar="FILE", help="A plan; - is standard input.")]
KeepThrottle = Annotated[
    bool, typer.Option("--keep-throttle", help="Leave the settings that hold replication back.")
]


@reassign.command("plan")
def plan_command(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Topics to move.")],
    brokers: Annotated[
        str | None,
        typer.Option("--brokers", "-b", metavar="ID,ID,...", help="Who is to have them.  [all brokers]"),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", "-r", min=1, max=32767, help="How many replicas.  [as now]"),
    ] = None,
    no_racks: Annotated[bool, typer.Option("--no-racks", help="Take no notice of racks.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Keep what changes in this file.")
    ] = None,
    server: Server = SERVER_DEFAULT,
    as_json: Json = False,
) -> None:
    """Propose where replicas go: spread evenly, in different racks, and with as few moved as that takes.

    Nothing is changed. The broker list says who is to have replicas of these topics; whoever is not in it gives them
    up.

    \b
    penstock reassign plan orders --brokers 2,3,4 --out plan.json
    penstock reassign plan orders --replication-factor 3 --json
    """
    from penstock.cli.reassign import plan

    raise typer.Exit(
        plan(
            server,
            list(dict.fromkeys(topics)),
            None if brokers is None else _broker_ids(brokers),
            replication_factor=replication_factor,
            with_racks=not no_racks,
            out=out,
            as_json=as_json,
        )
    )


@reassign.command("apply")
def apply_command(
    file: File,
    throttle: Annotated[
        int | None,
        typer.Option(
            "--throttle", metavar="BYTES", min=1, help="Copy no more than so many bytes a second and broker."
        ),
    ] = None,
    additional: Annotated[
        bool, typer.Option("--additional", help="Although other partitions are moving.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return when all is done, and nothing is held back any more.")
    ] = False,
    server: Server = SERVER_DEFAULT,
    as_json: Json = False,
) -> None:
    """Begin to move partitions. Until the new replicas are in sync, the old ones stay.

    It prints how it was before, to go back to. With --throttle, run `penstock reassign status FILE` afterwards: when
    all is done it takes the settings away that hold replication back. Or wait for it with --wait.

    \b
    penstock reassign apply plan.json --throttle 50000000 --wait
    """
    from penstock.cli.reassign import apply

    raise typer.Exit(
        apply(server, file, throttle=throttle, additional=additional, wait=wait, as_json=as_json)
    )


@reassign.command("status")
def status_command(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A plan; without one, all that moves.")
    ] = None,
    keep_throttle: KeepThrottle = False,
    server: Server = SERVER_DEFAULT,
    as_json: Json = False,
) -> None:
    """Show what moves, or how far a plan is; when nothing moves any more, its throttle is taken away.

    The exit code is 1 if a partition is neither where the plan wants it nor on its way.

    \b
    penstock reassign status
    penstock reassign status plan.json
    """
    from penstock.cli.reassign import status

    raise typer.Exit(status(server, file, keep_throttle=keep_throttle, as_json=as_json))


@reassign.command("cancel")
def cancel_command(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="A plan.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that moves, whoever began it.")] = False,
    keep_throttle: KeepThrottle = False,
    server: Server = SERVER_DEFAULT,
    as_json: Json = False,
) -> None:
    """Take back what still moves: the replicas that were being added go, and those there were stay.

    \b
    penstock reassign cancel plan.json
    penstock reassign cancel --all
    """
    from penstock.cli.reassign import cancel

    if (file is None) is not everything:
        raise Refused("expected either a file or --all")
    raise typer.Exit(cancel(server, file, keep_throttle=keep_throttle, as_json=as_json))


def _broker_ids(text: str) -> list[int]:
    words = [each.strip() for each in text.split(",")]
    for word in words:
        if not word.isdecimal() or int(word) >= 2**31:
            raise Refused(f"--brokers has {word!r}, expected ids of brokers, such as 1,2,3")
        if words.count(word) > 1:
            raise Refused(f"--brokers has broker {word} twice")
    return [int(word) for word in words]
