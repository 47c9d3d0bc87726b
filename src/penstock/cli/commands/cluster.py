"""`penstock cluster`: runs a local cluster in one terminal, and stops, kills and restarts its nodes from another.

`start` watches the nodes through their files: it prints which of them stop and return, and when partitions are
under-replicated. Ctrl-C stops all nodes. `penstock cluster stop` ends the watch too.
"""

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.base.errors import KafkaError
from penstock.cli import cluster_nodes as nodes
from penstock.cli.child import stopped_by_signals
from penstock.cli.cluster_nodes import BROKERS_MAX, ClusterOptions, Layout
from penstock.cli.cluster_status import SETTINGS, look, show, summary
from penstock.cli.command_group import command_group
from penstock.cli.connecting import ClientConfigFile, parse_pairs, secured, target_of
from penstock.cli.main import EXIT_WRONG
from penstock.cli.options import AddScram, Json
from penstock.cli.output import Refused, counted, print_json, print_json_line, print_result
from penstock.client.settings import ClientSettings

DATA_DEFAULT = Path("penstock-cluster")
BASE_PORT_DEFAULT = 9092
BROKERS_DEFAULT = 3
app = command_group(
    """Run a cluster on this machine, each node a process.

    \b
    penstock cluster start --brokers 3
    penstock cluster status
    penstock cluster kill 2
    penstock cluster restart 2
    """
)
Data = Annotated[
    Path, typer.Option("--data", metavar="DIR", help="Directory of the cluster; created if missing.")
]
NodeId = Annotated[int, typer.Argument(metavar="N", min=0, help="The node's id.")]


LOOK_EVERY_S = 1.0


@app.command("start")
def start_command(
    brokers: Annotated[
        int | None, typer.Option("--brokers", min=1, max=BROKERS_MAX, help="Number of brokers.  [3]")
    ] = None,
    controllers: Annotated[
        int,
        typer.Option(
            "--controllers",
            min=0,
            max=9,
            help="Number of dedicated controllers; with 0, some brokers are controllers too.",
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
            help="Kafka port of broker 1; others follow. +100: controllers, +200: HTTP, +300: line. 0: any free.",
        ),
    ] = BASE_PORT_DEFAULT,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of every node, by Kafka's name."),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option("--config", metavar="FILE", help="Settings file of every node, as for penstock up."),
    ] = None,
    users: AddScram = None,
    client_config: ClientConfigFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines: an object for each event.")] = False,
) -> None:
    """Start a cluster, show its state, and stop it at Ctrl-C.

    Topics have three replicas, and min.insync.replicas is 2, unless --set changes that. A directory that has a cluster
    is started again as it was. Each node logs to node-N.log there.

    \b
    penstock cluster start
    penstock cluster start --brokers 5 --controllers 3 --data ./five --base-port 19092
    penstock cluster start --set log.retention.hours=1
    penstock cluster start --config secured.properties --add-scram 'SCRAM-SHA-256=[name=admin,password=secret]'
    """
    wanted = ClusterOptions(
        brokers or BROKERS_DEFAULT,
        controllers,
        base_port,
        settings=parse_pairs(settings or [], "setting"),
        config=config,
    )
    nodes.give_first_users(users)
    start(data, wanted, is_new=brokers is not None, as_json=as_json, client_config=client_config)


@app.command("status")
def status_command(
    data: Data = DATA_DEFAULT, client_config: ClientConfigFile = None, as_json: Json = False
) -> int:
    """Show running nodes, leaders and under-replicated partitions.

    The exit code is 1 if a node is down or a partition under-replicated.
    """
    layout = _existing(data)
    try:
        document = look(layout, _looking(client_config), is_watching=False)
    except KafkaError as error:
        raise Refused(str(error)) from error
    if as_json:
        print_json(document)
    else:
        show(document)
    is_well = document["underReplicated"] == 0 and all(each["state"] != "down" for each in document["nodes"])
    return 0 if is_well else EXIT_WRONG


@app.command("stop")
def stop_command(
    node: Annotated[
        int | None, typer.Argument(metavar="[N]", min=0, help="A node's id; without it, all.")
    ] = None,
    data: Data = DATA_DEFAULT,
    as_json: Json = False,
) -> None:
    """Stop the cluster, or one node, cleanly: leadership moves first, and all data is flushed."""
    layout = _existing(data)
    wanted = layout.nodes if node is None else (layout.node(node),)
    if node is None:
        layout.stopping.touch()
    stopped = nodes.stop_nodes(layout, wanted)
    nothing = "no node runs" if node is None else f"node {node} does not run"
    words = f"stopped {_listed(stopped)}" if stopped else nothing
    print_result({"stopped": stopped}, words, as_json=as_json)


@app.command("kill")
def kill_command(node: NodeId, data: Data = DATA_DEFAULT, as_json: Json = False) -> None:
    """Kill a node with SIGKILL, as a crash would. Acknowledged records are not lost."""
    layout = _existing(data)
    if not nodes.kill_node(layout, layout.node(node)):
        raise Refused(f"node {node} does not run")
    print_result({"killed": node}, f"killed node {node}", as_json=as_json)


@app.command("restart")
def restart_command(node: NodeId, data: Data = DATA_DEFAULT, as_json: Json = False) -> None:
    """Restart a node: stop it cleanly if it runs, start it, and return once it serves."""
    layout = _existing(data)
    restarted = layout.node(node)
    nodes.stop_nodes(layout, [restarted])
    nodes.start_nodes(layout, [restarted])
    pid = nodes.process_of(layout, restarted)
    print_result({"restarted": node, "pid": pid}, f"node {node} is up, process {pid}", as_json=as_json)


def start(
    directory: Path,
    wanted: ClusterOptions,
    *,
    is_new: bool = False,
    as_json: bool = False,
    client_config: str | None = None,
) -> None:
    """Run until Ctrl-C, or until another command stops the cluster. With `is_new` its size must match `wanted`."""
    layout = _layout(directory, wanted, is_new)
    try:
        settings = _looking(client_config)
    except KafkaError as error:
        raise Refused(str(error)) from error
    if running := nodes.running_nodes(layout):
        raise Refused(
            f"the cluster in {directory} runs already: node {min(running)} is process {running[min(running)]}"
        )
    stop = threading.Event()
    with stopped_by_signals(stop):
        if not as_json:
            print(f"starting {counted(len(layout.nodes), 'node')} in {layout.directory} ...", flush=True)
        layout.stopping.unlink(missing_ok=True)
        nodes.start_nodes(layout, layout.nodes)
        try:
            _watch(layout, settings, stop, as_json)
        finally:
            stopped = nodes.stop_nodes(layout, layout.nodes)
    _say(as_json, "stopped", f"stopped {_listed(stopped)}" if stopped else "no node runs", ids=stopped)


def _layout(directory: Path, wanted: ClusterOptions, is_new: bool) -> Layout:
    """The cluster of the directory, created if there is none."""
    wanted = replace(wanted, config=None if wanted.config is None else os.path.abspath(wanted.config))
    found = nodes.find_layout(directory)
    if found is None:
        if (directory / "meta").exists() or (directory / "logs").exists():
            raise Refused(
                f"{directory} is the data directory of a node: expected a new directory, or a cluster's"
            )
        return nodes.make_layout(directory, wanted)
    held = sum(each.is_broker for each in found.nodes), sum(not each.is_broker for each in found.nodes)
    if is_new and held != (wanted.brokers, wanted.controllers):
        alone = f" and {counted(held[1], 'controller')} beside them" if held[1] else ""
        raise Refused(
            f"{directory} has a cluster of {counted(held[0], 'broker')}{alone}; leave --brokers out to start it, or "
            "name another directory"
        )
    return replace(
        found, settings={**found.settings, **wanted.settings}, config=wanted.config or found.config
    )


def _looking(client_config: str | None) -> ClientSettings:
    """How to ask the brokers for their state."""
    return secured(SETTINGS, target_of(None, client_config).config)


def _watch(layout: Layout, settings: ClientSettings, stop: threading.Event, as_json: bool) -> None:
    """Print changes until the cluster is stopped, by a signal or by another command."""
    document = look(layout, settings)
    if as_json:
        print_json_line({"event": "ready", **document})
    else:
        show(document)
        print(f"clients connect to {layout.bootstrap}; Ctrl-C stops all", flush=True)
    before = document
    while not stop.wait(LOOK_EVERY_S):
        now = look(layout, settings)
        for old, new in zip(before["nodes"], now["nodes"], strict=True):
            if old["state"] != new["state"] or old["pid"] != new["pid"]:
                words = f"node {new['id']}: {new['state']}" + (
                    f", process {new['pid']}" if new["pid"] else ""
                )
                _say(as_json, "node", words, id=new["id"], state=new["state"], pid=new["pid"])
        if summary(now) != summary(before):
            changed = {name: value for name, value in now.items() if name != "nodes"}
            _say(as_json, "cluster", summary(now), **changed)
        if layout.stopping.exists() and all(each["state"] == "down" for each in now["nodes"]):
            return
        before = now


def _say(as_json: bool, event: str, words: str, **fields: Any) -> None:
    if as_json:
        print_json_line({"event": event, **fields})
    else:
        print(words, flush=True)


def _existing(directory: Path) -> Layout:
    layout = nodes.find_layout(directory)
    if layout is None:
        raise Refused(
            f"there is no cluster in {directory}: create one with `penstock cluster start --data {directory}`"
        )
    return layout


def _listed(ids: list[int]) -> str:
    words = ", ".join(str(each) for each in ids)
    return f"node {words}" if len(ids) == 1 else f"nodes {words}"
