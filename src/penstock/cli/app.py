"""The commands and their help. Each imports what it runs when it runs: help costs nothing but this file."""
# ruff: noqa: PLC0415  # that is the point

import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.admin_commands import configs, topics
from penstock.cli.archive_commands import archive, audit, replay
from penstock.cli.chaos_commands import chaos
from penstock.cli.cluster_commands import BROKERS_MAX, cluster
from penstock.cli.coordinator_commands import groups, transactions
from penstock.cli.data_commands import consume, produce
from penstock.cli.lab_commands import indexes_command, isr_command, segments_command
from penstock.cli.main import EXIT_CANNOT, EXIT_INTERRUPTED
from penstock.cli.pipeline_commands import pipeline
from penstock.cli.quorum_commands import quorum
from penstock.cli.reassign_commands import reassign
from penstock.cli.simulating import sim
from penstock.cli.stray_commands import strays
from penstock.cli.transfer import export_command, import_command

app = typer.Typer(
    help="Penstock: a durable commit log that speaks the Kafka protocol.",
    epilog="Try: penstock lab crash",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
log = typer.Typer(
    help="""Look inside logs on disk: list, dump, check, rebuild; strays; import and export older formats.

    A DIR is a data directory (with logs/ and meta/), a Kafka log directory (with meta.properties), or the
    directory of one partition, such as orders-0. Directories that Apache Kafka wrote are read as well.

    \b
    penstock log ls penstock-data
    penstock log dump penstock-data/logs/orders-0/00000000000000000000.log --records
    penstock log check penstock-data
    penstock log import --format kafka-jr old-data --data penstock-data
    """,
    no_args_is_help=True,
    rich_markup_mode=None,
)
lab = typer.Typer(
    help="""Experiments that show how a log works, on data of their own.

    \b
    penstock lab segments   how segment.bytes cuts a log into files
    penstock lab indexes    an offset looked up step by step; indexes spoilt and mended
    penstock lab isr        a broker stops and returns; who is in sync meanwhile
    penstock lab crash      kill a writer in the middle of its work, and see what is left
    """,
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(cluster, name="cluster")
app.add_typer(topics, name="topics")
app.add_typer(configs, name="configs")
app.add_typer(reassign, name="reassign")
app.add_typer(groups, name="groups")
app.add_typer(transactions, name="transactions")
app.command("produce")(produce)
app.command("consume")(consume)
app.add_typer(pipeline, name="pipeline")
app.command("archive")(archive)
app.command("audit")(audit)
app.command("replay")(replay)
app.add_typer(quorum, name="quorum")
app.add_typer(log, name="log")
app.add_typer(lab, name="lab")
lab.command("segments")(segments_command)
lab.command("indexes")(indexes_command)
lab.command("isr")(isr_command)
app.add_typer(sim, name="sim")
app.add_typer(chaos, name="chaos")

Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of a table.")]
Directory = Annotated[Path, typer.Argument(metavar="DIR", help="A data, log or partition directory.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        from penstock import __version__

        print(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option("--version", help="Say which version this is.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    pass


@app.command("up")
def up_command(
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="DIR", help="Where the data is, or is to be.  [./penstock-data]"),
    ] = None,
    kafka: Annotated[
        str | None,
        typer.Option(
            "--kafka",
            metavar="HOST:PORT",
            help="Where Kafka clients connect; port 0 is any free one, no host is all interfaces.  [127.0.0.1:9092]",
        ),
    ] = None,
    controller: Annotated[
        str | None,
        typer.Option(
            "--controller",
            metavar="HOST:PORT",
            help="Where the other nodes of a cluster reach this one's controller.  [nowhere: a node alone]",
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            help="Where JSON over HTTP is served; off is nowhere.  [127.0.0.1:8080]",
        ),
    ] = None,
    line: Annotated[
        str | None,
        typer.Option(
            "--line",
            metavar="HOST:PORT",
            help="Where the line protocol is served; off is nowhere.  [127.0.0.1:9090]",
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option("--config", metavar="FILE", help="Settings in TOML, or a server.properties of Kafka."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting by Kafka's name; as often as you like."),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log more than usual.")] = False,
    brokers: Annotated[
        int | None,
        typer.Option(
            "--brokers",
            min=1,
            max=BROKERS_MAX,
            help="So many nodes, each a process: a cluster on this machine.",
        ),
    ] = None,
) -> None:
    """Start a node that Kafka clients, JSON over HTTP and the line protocol reach.

    When it serves, it prints one line: penstock ready kafka=127.0.0.1:9092 http=127.0.0.1:8080 line=127.0.0.1:9090.
    Log lines go to standard error; PENSTOCK_LOG=debug|info|warning|error says how many. SIGTERM or Ctrl-C stops it
    cleanly, a second one at once.

    Settings have Kafka's names. They come from the file of --config, from the environment (log.retention.ms is
    PENSTOCK_LOG_RETENTION_MS) and from --set, each stronger than the one before.

    A node is a cluster by itself, unless its settings name others: process.roles, controller.quorum.voters or
    controller.quorum.bootstrap.servers, and a listener for the controllers. docs/cluster.md has the files for three
    machines. --brokers runs a whole cluster here.

    The exit code is 0 after a clean stop, 1 after a failure, 2 if the node could not start.

    \b
    penstock up
    penstock up --data /var/lib/penstock --kafka :9092
    penstock up --kafka 127.0.0.1:0 --set num.partitions=1 --set log.retention.hours=24
    penstock up --config server.properties
    penstock up --config node.toml --controller :9093
    penstock up --brokers 4
    """
    if brokers is not None:
        from penstock.cli.cluster_up import up_brokers

        places = {"--kafka": kafka, "--controller": controller, "--http": http, "--line": line}
        raise typer.Exit(up_brokers(brokers, data, places, config, settings or []))
    from penstock.cli.up import Flags, up

    raise typer.Exit(up(Flags(data, kafka, controller, http, line, config, settings or [], verbose)))


@app.command("demo")
def demo_command(
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Where everything is put.  [a new temporary directory]"),
    ] = None,
    rate: Annotated[
        int, typer.Option("--rate", metavar="N", min=1, max=100_000, help="Orders a second.")
    ] = 500,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            metavar="S",
            min=0,
            help="End so long after the first result.  [at a terminal: not before Ctrl-C; elsewhere 20]",
        ),
    ] = None,
) -> None:
    """Show the whole: a node, a stream of orders, a pipeline on Spark that sums them up, and its results growing.

    It needs the extra `spark` and Java. The commands that it runs are shown; everything they leave is in one
    directory, to be looked at afterwards.

    \b
    penstock demo
    penstock demo --rate 5000 --seconds 60 --data ./demo
    """
    from tempfile import mkdtemp

    from penstock.cli.demo import demo

    raise typer.Exit(demo(data or Path(mkdtemp(prefix="penstock-demo-")), rate=rate, seconds=seconds))


@log.command("ls")
def log_ls(
    directory: Directory,
    segments: Annotated[bool, typer.Option("--segments", help="Show every segment too.")] = False,
    as_json: Json = False,
) -> None:
    """List the partitions of a directory, or the segments of one partition.

    Reads little, writes nothing and takes no lock: safe beside a running broker, whose newest records may be
    a moment ahead of what is shown.

    \b
    penstock log ls penstock-data
    penstock log ls penstock-data/logs/orders-0
    penstock log ls /var/lib/kafka --segments --json
    """
    from penstock.cli.listing import show

    raise typer.Exit(show(str(directory), with_segments=segments, as_json=as_json))


@log.command("dump")
def log_dump(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Files of a log directory.")],
    records: Annotated[bool, typer.Option("--records", help="Show the records of each batch too.")] = False,
    from_offset: Annotated[
        int, typer.Option("--from-offset", metavar="N", help="Leave out batches that end before it.")
    ] = 0,
    max_batches: Annotated[
        int | None, typer.Option("--max-batches", metavar="N", min=1, help="Stop after so many of a file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines: an object for each entry.")] = False,
) -> None:
    """Show what is in files, line by line, in the words of kafka-dump-log.

    Reads .log, .index, .timeindex, .txnindex, .snapshot, .sequences and .tomb files, also with .deleted,
    .cleaned, .swap or .cut behind; .checkpoint snapshots; the checkpoint files, partition.metadata and
    meta.properties. Damage is shown where it lies; reading goes on where sound batches begin again, and the
    exit code is 1.

    Bytes are shown as text where they are printable UTF-8, else in hex after 0x. In JSON a key or value that
    is not UTF-8 comes as keyHex or valueHex.

    \b
    penstock log dump orders-0/00000000000000000000.log --records --from-offset 100 --max-batches 3
    penstock log dump --json orders-0/*.index orders-0/leader-epoch-checkpoint
    """
    from penstock.cli.dump import Wanted, show

    wanted = Wanted(records, from_offset, max_batches)
    raise typer.Exit(show([str(each) for each in files], wanted, as_json=as_json))


@log.command("check")
def log_check(
    directory: Directory,
    deep: Annotated[bool, typer.Option("--deep", help="Unpack and decode every record as well.")] = False,
    as_json: Json = False,
) -> None:
    """Check everything in a directory against everything else, and change nothing.

    Every batch's header and CRC, the order of offsets, indexes, leader epochs, producer snapshots and
    checkpoints against the log. Each finding names file, position, what was found and what was expected. The
    exit code is 1 if anything is wrong; notes, such as leftovers that the next start removes, do not count.

    Meant for a directory at rest: beside a running broker, the very end may be in motion.

    \b
    penstock log check penstock-data --deep
    penstock log check /var/lib/kafka/orders-0
    """
    from penstock.cli.checking import show

    raise typer.Exit(show(str(directory), deep=deep, as_json=as_json))


@log.command("rebuild")
def log_rebuild(
    directory: Directory,
    everything: Annotated[bool, typer.Option("--all", help="Also indexes that have no fault.")] = False,
    interval: Annotated[
        int,
        typer.Option("--index-interval-bytes", metavar="N", min=0, help="Bytes of log between two entries."),
    ] = 4096,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would change, change nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make indexes anew from the log: those that are missing or wrong.

    Covers .index, .timeindex and .txnindex, and leader-epoch-checkpoint where it is lost. Refuses while a
    broker has the directory open. Each file is replaced whole, or not at all. The log itself is never touched.

    \b
    penstock log rebuild penstock-data --dry-run
    penstock log rebuild penstock-data/logs/orders-0
    """
    from penstock.cli.rebuilding import Wanted, show

    wanted = Wanted(everything, interval, dry_run)
    raise typer.Exit(show(str(directory), wanted, as_json=as_json))


log.add_typer(strays, name="strays")
log.command("import")(import_command)
log.command("export")(export_command)


@lab.command("crash")
def lab_crash(
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", metavar="DIR", help="Keep the data here: a new or empty directory, or one of this lab."
        ),
    ] = None,
) -> None:
    """Kill a writer with SIGKILL in the middle of its work, recover, and look inside.

    A child process appends records and flushes now and then; what it flushed, it acknowledges. The lab kills
    it, tears the end of the log further, opens the directory again and shows what recovery did. The exit code is
    0 only if everything acknowledged is there.
    """
    from penstock.cli.crash import run_lab

    raise typer.Exit(run_lab(None if data is None else str(data)))


def invoke(arguments: list[str]) -> int:
    """Run a command line and turn what it raises into a sentence and an exit code."""
    from penstock.cli.output import Refused, complain

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
