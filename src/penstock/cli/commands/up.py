"""`penstock up`: the options and help of a node, and `--brokers`, which runs a cluster on this machine.

A plain `penstock up` does not come here: `penstock.cli.up` reads its flags without loading the parser.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.cluster_nodes import BROKERS_MAX, HOST, ClusterOptions, give_first_users
from penstock.cli.options import AddScram
from penstock.cli.output import Refused
from penstock.cli.up import Flags, up

DATA_DEFAULT = "./penstock-data"
KAFKA_PORT = 9092


def up_command(
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="DIR", help="Data directory; created if missing.  [./penstock-data]"),
    ] = None,
    kafka: Annotated[
        str | None,
        typer.Option(
            "--kafka",
            metavar="HOST:PORT",
            help="Address for Kafka clients; port 0: any free port, no host: all interfaces.  [127.0.0.1:9092]",
        ),
    ] = None,
    controller: Annotated[
        str | None,
        typer.Option(
            "--controller",
            metavar="HOST:PORT",
            help="Address of this node's controller, for the other nodes of a cluster.  [none]",
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            help="Address for JSON over HTTP, or off.  [127.0.0.1:8080]",
        ),
    ] = None,
    line: Annotated[
        str | None,
        typer.Option(
            "--line",
            metavar="HOST:PORT",
            help="Address for the line protocol, or off.  [127.0.0.1:9090]",
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option("--config", metavar="FILE", help="Settings file: TOML, or a Kafka server.properties."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting, by Kafka's name; repeatable."),
    ] = None,
    users: AddScram = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log more.")] = False,
    brokers: Annotated[
        int | None,
        typer.Option(
            "--brokers",
            min=1,
            max=BROKERS_MAX,
            help="Run a cluster of N nodes on this machine, each a process.",
        ),
    ] = None,
) -> int:
    """Start a node.

    It serves Kafka clients, JSON over HTTP and the line protocol. Once ready, it prints one line:
    penstock ready kafka=127.0.0.1:9092 http=127.0.0.1:8080 line=127.0.0.1:9090. Log lines go to standard error;
    PENSTOCK_LOG=debug|info|warning|error sets the level. SIGTERM or Ctrl-C stops it cleanly, a second one at once.

    Settings have Kafka's names. --set overrides the environment (log.retention.ms is PENSTOCK_LOG_RETENTION_MS), and
    the environment overrides the file of --config.

    A node is a cluster of one, unless its settings name others: process.roles, controller.quorum.voters or
    controller.quorum.bootstrap.servers, and a controller listener. docs/cluster.md has the files for three
    machines. --brokers runs a whole cluster on this machine.

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
        places = {"--kafka": kafka, "--controller": controller, "--http": http, "--line": line}
        give_first_users(users)
        up_brokers(brokers, data, places, config, settings or [])
        return 0
    return up(Flags(data, kafka, controller, http, line, config, settings or [], users or [], verbose))


def up_brokers(
    brokers: int,
    data: str | None,
    places: Mapping[str, str | None],
    config: str | None,
    settings: Sequence[str],
) -> None:
    """Run a cluster: the first broker listens at `--kafka`, the others on the ports after it."""
    from penstock.base.settings import BadSetting  # noqa: PLC0415  # only with --brokers: they are slow to load
    from penstock.cli.commands.cluster import start  # noqa: PLC0415
    from penstock.cli.connecting import parse_pairs  # noqa: PLC0415
    from penstock.server.listeners import parse_address  # noqa: PLC0415

    for flag in ("--http", "--line"):
        if places[flag] not in (None, "off"):
            raise Refused(
                f"{flag} is {places[flag]!r}, expected off or no {flag}: with --brokers each broker has its own port"
            )
    if places["--controller"] is not None:
        raise Refused("--controller cannot be used with --brokers: it is for one node")
    try:
        kafka = parse_address(places["--kafka"] or f"{HOST}:{KAFKA_PORT}", "--kafka", KAFKA_PORT)
    except BadSetting as error:
        raise Refused(str(error)) from error
    wanted = ClusterOptions(
        brokers,
        base_port=kafka.port,
        host=kafka.host,
        with_http=places["--http"] is None,
        with_line=places["--line"] is None,
        settings=parse_pairs(list(settings), "setting"),
        config=config,
    )
    start(Path(data or DATA_DEFAULT), wanted, is_new=True)
