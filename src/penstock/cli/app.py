"""The `penstock` command line: the table of its commands, and how their failures are reported."""

import sys
from typing import Annotated

import typer

from penstock.cli.command_group import Entry, LazyGroup, command_group
from penstock.cli.main import EXIT_CANNOT, EXIT_INTERRUPTED
from penstock.cli.output import Refused, complain


class Root(LazyGroup):
    table = {  # noqa: RUF012  # read by everyone, written by no one
        "up": Entry("up:up_command", "Start a node"),
        "cluster": Entry("cluster:app", "Run a cluster on this machine, each node a process"),
        "topics": Entry("topics:app", "Create, list, describe, widen and delete topics"),
        "produce": Entry("produce:produce", "Send records to a topic"),
        "consume": Entry("consume:consume", "Read records of a topic"),
        "groups": Entry("groups:app", "List, describe, reset and delete consumer groups"),
        "transactions": Entry("transactions:app", "List, describe and abort transactions"),
        "configs": Entry("configs:app", "Show and change settings of topics and brokers"),
        "reassign": Entry("reassign:app", "Move partitions to other brokers"),
        "quorum": Entry("quorum:app", "Show and change the quorum of controllers"),
        "pipeline": Entry("pipeline:app", "Run, check and watch pipelines on Spark"),
        "archive": Entry("archive:archive", "Keep a topic as a table of Parquet files"),
        "audit": Entry("audit:audit", "Compare a topic with its archive"),
        "replay": Entry("replay:replay", "Write an archived topic back to a broker"),
        "log": Entry("log:app", "Look inside logs on disk, check and repair them"),
        "lab": Entry("lab:app", "Run experiments that show how a log works"),
        "demo": Entry("demo:demo_command", "Run a node, a stream of orders and a pipeline on Spark"),
        "sim": Entry("sim:app", "Run simulated clusters and check what clients see"),
        "chaos": Entry("chaos:app", "Break real brokers and check what clients see"),
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
        # The parser's way to end when the reader of a pipe has gone.
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
