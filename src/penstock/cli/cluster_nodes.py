"""A cluster of processes on one machine: its nodes, how they start and stop, and its files.

    DIR/cluster.json     the nodes, their ports and settings; written when the cluster is created
    DIR/node-1/          data of node 1
    DIR/node-1.pid       its process id, while it runs
    DIR/node-1.out       its ready line
    DIR/node-1.log       its log lines
    DIR/stopping         exists while the whole cluster is stopped

A node is a `penstock up` process in a separate session: Ctrl-C in the terminal reaches only the command that watches
the nodes. Commands share only these files, so any command can stop, kill and start a node. A process id counts only
if that process was started on the node's directory: the system reuses process ids.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

from penstock.base.ids import uuid_text
from penstock.cli.output import Refused
from penstock.server.ports import free_ports

HOST = "127.0.0.1"
STATE = "cluster.json"
STOPPING = "stopping"
VERSION = 1

BROKERS_MAX = 32
"""Processes of one machine."""

CONTROLLERS_MAX = 3
"""Brokers that are controllers too. Two of three are a majority; more voters are slower."""

FIRST_CONTROLLER_ID = 101
"""First id of dedicated controllers; broker ids start at 1."""

CONTROLLER_PORTS, HTTP_PORTS, LINE_PORTS = 100, 200, 300
"""Added to a broker's Kafka port for its other ports."""

READY_S_MAX = 90.0
STOP_S_MAX = 90.0
LOOK_EVERY_S = 0.05


@dataclass(frozen=True)
class Node:
    id: int
    roles: str
    kafka: int | None = None
    """Ports; None if not served."""
    controller: int | None = None
    http: int | None = None
    line: int | None = None

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles


@dataclass(frozen=True)
class Layout:
    """A cluster as created."""

    directory: str
    cluster_id: str
    nodes: tuple[Node, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of every node, without those that make it a member of the cluster."""
    config: str | None = None
    """A settings file; `settings` override it."""
    host: str = HOST
    """Listen address for clients; empty for all interfaces. Controllers listen on loopback."""

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{self.host or HOST}:{each.kafka}" for each in self.nodes if each.is_broker)

    def node(self, node_id: int) -> Node:
        for each in self.nodes:
            if each.id == node_id:
                return each
        ids = ", ".join(str(each.id) for each in self.nodes)
        raise Refused(f"the cluster in {self.directory} has no node {node_id}; its nodes are {ids}")

    def file(self, node: Node, ending: str = "") -> Path:
        return Path(self.directory) / f"node-{node.id}{ending}"

    @property
    def stopping(self) -> Path:
        return Path(self.directory) / STOPPING

    def arguments(self, node: Node) -> list[str]:
        """Arguments of `penstock` that start the node."""
        voters = [f"{each.id}@{HOST}:{each.controller}" for each in self.nodes if each.controller is not None]
        settings = {
            **self.settings,
            "node.id": str(node.id),
            "process.roles": node.roles,
            "controller.quorum.voters": ",".join(voters),
            "cluster.id": self.cluster_id,
        }
        words = ["up", "--data", str(self.file(node))]
        if self.config is not None:
            words += ["--config", self.config]
        if node.kafka is not None:
            words += ["--kafka", f"{self.host}:{node.kafka}"]
        if node.controller is not None:
            words += ["--controller", f"{HOST}:{node.controller}"]
        for flag, port in (("--http", node.http), ("--line", node.line)):
            words += [flag, "off" if port is None else f"{self.host}:{port}"]
        for name, value in settings.items():
            words += ["--set", f"{name}={value}"]
        return words


def give_first_users(users: Sequence[str] | None) -> None:
    """Pass SCRAM users of a new cluster to nodes that this process starts: in the environment, since arguments of
    processes and the cluster's file can be read by others."""
    if users:
        os.environ["PENSTOCK_BOOTSTRAP_SCRAM_USERS"] = ",".join(users)


# -- layout -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClusterOptions:
    """Size and settings of a new cluster."""

    brokers: int = 3
    controllers: int = 0
    base_port: int = 0
    """Kafka port of the first broker; 0 for any free ports."""
    host: str = HOST
    with_http: bool = True
    with_line: bool = True
    settings: Mapping[str, str] = field(default_factory=dict)
    config: str | None = None


def make_layout(directory: Path, wanted: ClusterOptions) -> Layout:
    brokers, controllers, base_port = wanted.brokers, wanted.controllers, wanted.base_port
    alone = 0 if controllers else (CONTROLLERS_MAX if brokers >= CONTROLLERS_MAX else 1)
    ids = [*range(1, brokers + 1), *range(FIRST_CONTROLLER_ID, FIRST_CONTROLLER_ID + controllers)]
    nodes = []
    free = iter(free_ports(4 * len(ids)) if base_port == 0 else ())
    for index, node_id in enumerate(ids):
        is_broker = node_id <= brokers
        votes = node_id <= alone or not is_broker

        def port(above: int, is_wanted: bool, index: int = index) -> int | None:
            if not is_wanted:
                return None
            return next(free) if base_port == 0 else base_port + above + index

        roles = "broker,controller" if is_broker and votes else "broker" if is_broker else "controller"
        nodes.append(
            Node(
                node_id,
                roles,
                port(0, is_broker),
                port(CONTROLLER_PORTS, votes),
                port(HTTP_PORTS, is_broker and wanted.with_http),
                port(LINE_PORTS, is_broker and wanted.with_line),
            )
        )
    factor = min(brokers, 3)
    defaults = {
        "default.replication.factor": str(factor),
        "offsets.topic.replication.factor": str(factor),
        "transaction.state.log.replication.factor": str(factor),
        "transaction.state.log.min.isr": str(min(factor, 2)),
        "min.insync.replicas": str(min(factor, 2)),
    }
    made = Layout(
        str(directory.absolute()),
        uuid_text(secrets.token_bytes(16)),
        tuple(nodes),
        defaults | dict(wanted.settings),
        wanted.config,
        wanted.host,
    )
    directory.mkdir(parents=True, exist_ok=True)
    partial = directory / f"{STATE}.partial"
    partial.write_text(json.dumps({"version": VERSION, **asdict(made)}, indent=2) + "\n", "utf-8")
    partial.replace(directory / STATE)
    return made


def find_layout(directory: Path) -> Layout | None:
    """The cluster of a directory; None if it has none."""
    file = directory / STATE
    try:
        document = json.loads(file.read_text("utf-8"))
        if document.pop("version") != VERSION:
            raise ValueError("another version")
        nodes = tuple(Node(**each) for each in document.pop("nodes"))
        return Layout(**{**document, "directory": str(directory.absolute()), "nodes": nodes})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Refused(f"{file} does not describe a cluster: {error}") from error


# -- processes ----------------------------------------------------------------------------------------------


def process_of(layout: Layout, node: Node) -> int | None:
    """The node's process id, if it runs."""
    try:
        pid = int(layout.file(node, ".pid").read_text())
    except (FileNotFoundError, ValueError):
        return None
    _reap(pid)
    words = _command_line(pid)
    data = str(layout.file(node))
    return pid if ("--data", data) in pairwise(words) else None


def _command_line(pid: int) -> list[str]:
    """The command line of a process; empty if it has ended or is a zombie."""
    with suppress(OSError):
        return [os.fsdecode(each) for each in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
    if os.path.isdir("/proc/self"):
        return []
    listed = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return listed.stdout.split()


def spawn(layout: Layout, node: Node) -> int:
    """Start a node, which outlives this process, and return its process id. It is not ready yet."""
    out, log = (str(layout.file(node, ending)) for ending in (".out", ".log"))
    modes = os.O_WRONLY | os.O_CREAT
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "penstock", *layout.arguments(node)],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, out, modes | os.O_TRUNC, 0o644),
            (os.POSIX_SPAWN_OPEN, 2, log, modes | os.O_APPEND, 0o644),
        ],
        setsid=True,
    )
    layout.file(node, ".pid").write_text(f"{pid}\n")
    # A new process has no command line for a moment, like one that has ended.
    while not any(_command_line(pid)) and not _reap(pid):
        time.sleep(0.001)
    return pid


def wait_ready(layout: Layout, nodes: Iterable[Node]) -> None:
    """Return once all nodes serve."""
    deadline = time.monotonic() + READY_S_MAX
    left = list(nodes)
    while left:
        for node in list(left):
            if layout.file(node, ".out").read_bytes().startswith(b"penstock ready"):
                left.remove(node)
            elif process_of(layout, node) is None:
                raise Refused(f"node {node.id} did not start: {_last_error(layout.file(node, '.log'))}")
        if left and time.monotonic() > deadline:
            log = layout.file(left[0], ".log")
            raise Refused(f"node {left[0].id} was not ready within {READY_S_MAX:.0f} s; see {log}")
        time.sleep(LOOK_EVERY_S if left else 0)


def _last_error(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").strip().splitlines()
    errors = [line.removeprefix("penstock: ") for line in lines if line.startswith("penstock: ")]
    return (errors or lines or ["it logged nothing"])[-1]


def stop_nodes(layout: Layout, nodes: Iterable[Node]) -> list[int]:
    """Stop nodes cleanly; return the ids of those that ran. Brokers stop first: they need controllers to stop."""
    stopped = []
    wanted = list(nodes)
    for group in (
        [each for each in wanted if each.is_broker],
        [each for each in wanted if not each.is_broker],
    ):
        running = {each: pid for each in group if (pid := process_of(layout, each)) is not None}
        for pid in running.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        _wait_gone(layout, running)
        stopped += [each.id for each in running]
    return stopped


def _wait_gone(layout: Layout, running: Mapping[Node, int]) -> None:
    deadline = time.monotonic() + STOP_S_MAX
    left = dict(running)
    while left:
        for node, pid in list(left.items()):
            if process_of(layout, node) != pid:
                layout.file(node, ".pid").unlink(missing_ok=True)
                del left[node]
            elif time.monotonic() > deadline:
                kill_node(layout, node)
        time.sleep(LOOK_EVERY_S if left else 0)


def _reap(pid: int) -> bool:
    """Collect a child that has ended, which stays a zombie until then. Return whether it was one."""
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return False


def kill_node(layout: Layout, node: Node) -> bool:
    """Kill a node with SIGKILL. Return whether it ran."""
    pid = process_of(layout, node)
    if pid is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    while process_of(layout, node) == pid:
        time.sleep(LOOK_EVERY_S)
    return True


def running_nodes(layout: Layout) -> dict[int, int]:
    """Process ids of running nodes, by node id."""
    return {each.id: pid for each in layout.nodes if (pid := process_of(layout, each)) is not None}


def start_nodes(layout: Layout, nodes: Sequence[Node]) -> None:
    """Start nodes together; return once they serve. If one fails, stop them all."""
    for each in nodes:
        spawn(layout, each)
    try:
        wait_ready(layout, nodes)
    except BaseException:
        stop_nodes(layout, nodes)
        raise
