"""The `penstock` command line: the table of its commands, and how their failures are reported.

A command returns its exit code; without one it is 0.
"""

import sys
from typing import Annotated

import typer

from penstock.cli.command_group import LazyCommand, LazyGroup, command_group
from penstock.cli.main import EXIT_CANNOT, EXIT_INTERRUPTED
from penstock.cli.output import Refused, complain


class Root(LazyGroup):
    table = {  # noqa: RUF012  # never changed
        "up": LazyCommand("up:up_command", "Start a node"),
        "cluster": LazyCommand("cluster:app", "Run a cluster on this machine, each node a process"),
        "topics": LazyCommand("topics:app", "Create, list, describe, widen and delete topics"),
        "produce": LazyCommand("produce:produce", "Send records to a topic"),
        "consume": LazyCommand("consume:consume", "Read records of a topic"),
        "search": LazyCommand("search:search", "Find records of a topic"),
        "groups": LazyCommand("groups:app", "List, describe, reset and delete consumer groups"),
        "transactions": LazyCommand("transactions:app", "List, describe and abort transactions"),
        "configs": LazyCommand("configs:app", "Show and change settings of topics and brokers"),
        "acls": LazyCommand("acls:app", "List, change and explain ACLs"),
        "users": LazyCommand(
            "users:app",
            "List, add and remove users, set their passwords, and explain what they can do",
        ),
        "tokens": LazyCommand("tokens:app", "List, create, renew and expire delegation tokens"),
        "quotas": LazyCommand("quotas:app", "List, change and explain quotas of clients"),
        "secure": LazyCommand(
            "secure:app", "Make certificates and a first user for a secured node or cluster"
        ),
        "reassign": LazyCommand("reassign:app", "Move partitions to other brokers"),
        "quorum": LazyCommand("quorum:app", "Show and change the quorum of controllers"),
        "pipeline": LazyCommand("pipeline:app", "Run, check and watch pipelines on Spark"),
        "archive": LazyCommand("archive:archive", "Keep a topic as a table of Parquet files"),
        "audit": LazyCommand("audit:audit", "Compare a topic with its archive"),
        "replay": LazyCommand("replay:replay", "Write an archived topic back to a broker"),
        "log": LazyCommand("log:app", "Look inside logs on disk, check and repair them"),
        "lab": LazyCommand("lab:app", "Run experiments that show how a log works"),
        "demo": LazyCommand("demo:demo_command", "Run a node, a stream of orders and a pipeline on Spark"),
        "sim": LazyCommand("sim:app", "Run simulated clusters and check what clients see"),
        "chaos": LazyCommand("chaos:app", "Break real brokers and check what clients see"),
    }


app = command_group(
    "Run and use Penstock, a durable commit log that speaks the Kafka protocol.",
    cls=Root,
    epilog="Try: penstock lab crash",
)


def _show_version(is_given: bool) -> None:
    if is_given:
        from penstock import __version__  # noqa: PLC0415

        print(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    pass


def invoke(arguments: list[str]) -> int:
    """Run a command line and turn what it raises into a sentence and an exit code."""
    try:
        code = typer.main.get_command(app).main(arguments, prog_name="penstock", standalone_mode=False)
    except typer.Exit as done:
        code = done.exit_code
    except typer.Abort:
        return EXIT_INTERRUPTED
    except Refused as refused:
        complain(str(refused))
        return EXIT_CANNOT
    except SystemExit as done:
        # Raised by the parser when the reader of a pipe has ended.
        raise BrokenPipeError from done
    except BrokenPipeError:
        raise
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        complain(f"{where}{error.strerror or error}")
        return EXIT_CANNOT
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        # A mistake in the command line; the parser's own exceptions are not public.
        message = error.format_message()
        if message.startswith("Usage:"):
            print(message, file=sys.stderr)  # no command was given: the help
        else:
            complain(message)
        return EXIT_CANNOT
    return code if isinstance(code, int) else 0
