"""A broker in a thread of this process: the same node as `penstock up`, with its own event loop.

    start     creates directory, ports and thread; returns when clients are served
    stop      stops cleanly; everything is on disk
    kill      stops like a crash: nothing is flushed, connections break
    restart   starts again on the same ports and directory
    close     stops, and removes a temporary directory

Faults are set before or while it runs: errors, delays and lost connections (`request_faults`), a full or failing disk
(`disk`), a clock that jumps (`clock`), expired sessions and rebalances (`Broker` itself).

The ports stay reserved while the broker is down, so that they are free for a restart.
"""

import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from os import PathLike, fspath
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import uvloop

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.base.world import World
from penstock.server import doors
from penstock.server.config import NodeConfig, config_from
from penstock.server.host import Host, MakeNode
from penstock.server.ports import hold_port
from penstock.server.process import open_files_max
from penstock.testing.clock import Clock
from penstock.testing.disk import BrokerDisk
from penstock.testing.faulty_node import FaultyNode
from penstock.testing.network import Network
from penstock.testing.request_faults import Fault, FaultedRequest, RequestFaults, error_of
from penstock.testing.security import BrokerSecurity, ClientAccess, Security, SecurityFiles
from penstock.vfs import Vfs
from penstock.wire import messages

if TYPE_CHECKING:
    from penstock.server.node import Node

T = TypeVar("T")

HOST = "127.0.0.1"

WAIT_S_MAX = 60.0
"""A start or a stop that takes longer fails the test instead of letting it hang."""

_LOADING = threading.Lock()


def _load_module(name: str) -> ModuleType:
    """One thread at a time: see `messages.load_module`."""
    with _LOADING:
        return import_module(name)


messages.load_module = _load_module

TEST_DESCRIPTORS = 1024
"""Open files of the broker, below the lowest usual limit of a process."""

DEFAULTS = {"group.initial.rebalance.delay.ms": "0"}
"""In a test a group has all its members from the start, so there is no point in waiting for more."""


class BrokerFailed(Exception):
    """The broker could not start, or failed; the message says why."""


class Broker:
    """A Kafka broker for tests. Methods may be called from any one thread."""

    def __init__(
        self,
        *,
        data: "str | PathLike[str] | None" = None,
        settings: Mapping[str, object] | None = None,
        port: int = 0,
        http: bool | int = False,
        line: bool | int = False,
        controller: bool | int = False,
        security: "Security | str | bool" = False,
        make_node: MakeNode | None = None,
    ) -> None:
        """Nothing happens before `start` or `with`.

        data: a directory that is kept; without it a temporary one is used.
        settings: Kafka's broker settings; `False` is `"false"`.
        port: any free one, unless given.
        http, line: whether JSON over HTTP and the line protocol are served as well, on any free port or on this one.
        controller: whether other nodes may reach this one's controller, likewise; see `Cluster`.
        security: `True` for TLS, a log-in with SCRAM and ACLs, the name of a protocol, or a `Security`; see `client`.
        """
        self.settings = DEFAULTS | {name: text_of(value) for name, value in (settings or {}).items()}
        self.port = port
        self.data = None if data is None else fspath(data)
        self._own_data: str | None = None
        wanted = {"http": http, "line": line, "controller": controller}
        self._ports = {
            name: 0 if port is True else port for name, port in wanted.items() if port is not False
        }
        """Ports of the other doors; 0 until they are chosen."""
        self._held: dict[str, socket.socket] = {}
        """Sockets that reserve the ports, by door."""
        self.clock = Clock()
        """The broker's clock, which the test can move."""
        self.disk = BrokerDisk()
        """The broker's disk, which the test can fill or make fail."""
        self._faults = RequestFaults()
        self._network = Network()
        self._make_node = make_node
        self._security = BrokerSecurity(Security.of(security))
        self._has_users = False
        """Whether the users of SCRAM are in the metadata log."""
        self._faulty: FaultyNode | None = None
        """The running node, unless `make_node` made something else."""
        self._running: _Running | None = None

    def __repr__(self) -> str:
        return f"<Broker {self.bootstrap} {'running' if self._running else 'stopped'}>"

    def __enter__(self) -> "Broker":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """Value of `bootstrap.servers` for clients."""
        return f"{HOST}:{self.port}"

    @property
    def http_url(self) -> str:
        """URL of JSON over HTTP, such as http://127.0.0.1:41234, without a trailing slash."""
        protocol = self.settings.get("http.security.protocol", self._security.protocol)
        scheme = "https" if protocol.endswith("SSL") else "http"
        return f"{scheme}://{HOST}:{self._port_of('http')}"

    @property
    def line_port(self) -> int:
        """Port of the line protocol."""
        return self._port_of("line")

    @property
    def controller_port(self) -> int:
        """Port of the controller, for other nodes."""
        return self._port_of("controller")

    @property
    def ports_between_nodes(self) -> list[int]:
        """Inter-broker port, for other nodes of a cluster."""
        return [
            self._security.inner_port or self.port,
            *(port for door, port in self._ports.items() if door == "controller"),
        ]

    @property
    def registry_url(self) -> str:
        """URL of the schema registry, for `schema.registry.url` of serializers. Needs `http`."""
        return f"{self.http_url}/schema-registry"

    def _port_of(self, door: str) -> int:
        if door not in self._ports:
            raise BrokerFailed(f"this broker does not serve it; create it with Broker({door}=True)")
        return self._ports[door]

    @property
    def is_running(self) -> bool:
        return self._running is not None

    # -- life ------------------------------------------------------------------------------------------

    def start(self) -> "Broker":
        """Start the broker, and return when it serves clients."""
        if self._running is not None:
            raise BrokerFailed("the broker runs already")
        is_first = not self._held
        if self.data is None:
            self.data = self._own_data = tempfile.mkdtemp(prefix="penstock-")
        self.take_ports()
        wanted = {"kafka": self.port, **self._ports}
        try:
            settings = self._security.settings(self.port, self._ports) | self.settings
            config = config_from(
                self.data, settings, **{door: f"{HOST}:{port}" for door, port in wanted.items()}
            )
            config = replace(config, open_files_max=open_files_max(TEST_DESCRIPTORS))
            # Imported on this thread: pytest rewrites imported modules, which CPython 3.11 cannot do on two threads.
            doors.load(config.doors)
            self._running = _Running(config, self._make_node or self._new_node)
        except (KafkaError, BrokerFailed) as error:
            if is_first:
                self.close()
            raise BrokerFailed(str(error)) from error
        self.port = self._running.ports.pop("kafka", self.port)
        self._ports = self._running.ports
        if self._faulty is not None:
            self._faulty.begin(self._running.call)
        if not self._security.inner_port:
            self.create_users()
        return self

    # -- security --------------------------------------------------------------------------------------

    def secure(self, files: SecurityFiles) -> None:
        """Make this a node of a secured cluster. Nodes use another listener than clients."""
        held = _hold(0)
        if held is None:
            raise BrokerFailed("a secured cluster needs Linux, where a port can be reserved")
        self._held["inner"] = held
        self._security = BrokerSecurity(files.security, files, held.getsockname()[1])

    def create_users(self) -> None:
        """Put the users of SCRAM into the metadata log, unless they are there."""
        files = self._security.files
        change = None if files is None or self._has_users else files.scram_users()
        if change is not None:
            results = self._await(lambda node: node.context.controller.submit(change))
            for user, result in results.items():
                if result.code:
                    raise BrokerFailed(f"user {user} could not be created: {result.message}")
        self._has_users = True

    def _await(self, question: "Callable[[Node], Promise[T]]") -> T:
        """The value of a promise of the node's."""
        answer: Future[T] = Future()
        self._ask(lambda node: question(node).then(answer.set_result, answer.set_exception))
        return answer.result(WAIT_S_MAX)

    def client(self, user: str | None = None) -> ClientAccess:
        """The settings with which a user connects, as each client library takes them; by default the first user."""
        return ClientAccess(self.bootstrap, self._security.files, user)

    def _new_node(self, world: World, vfs: Vfs, config: NodeConfig) -> "Node":
        self._faulty = FaultyNode(world, config, self.disk, self.clock, self._network, self._faults)
        return self._faulty.node

    def _ended(self) -> "_Running | None":
        running, self._running = self._running, None
        if self._faulty is not None:
            self._faulty.end()
            self._faulty = None
        return running

    def take_ports(self) -> None:
        """Choose and reserve the ports, so that they are known before the start."""
        for door, port in {"kafka": self.port, **self._ports}.items():
            held = self._held.get(door) or _hold(port)
            if held is None:
                continue
            self._held[door] = held
            if door == "kafka":
                self.port = held.getsockname()[1]
            else:
                self._ports[door] = held.getsockname()[1]

    def stop(self) -> None:
        """Stop cleanly, if it runs."""
        running = self._ended()
        if running is not None:
            running.stop()

    def kill(self) -> None:
        """Stop like a crash: nothing is flushed, and connections are dropped."""
        running = self._ended()
        if running is not None:
            running.kill()

    def restart(self) -> "Broker":
        """Start again on the same port and directory, after a clean stop if it runs."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """Stop, and remove the temporary directory."""
        try:
            self.stop()
        finally:
            for held in self._held.values():
                held.close()
            self._held.clear()
            self._remove_data()
            self._security.close()

    def _remove_data(self) -> None:
        if self._own_data is not None:
            shutil.rmtree(self._own_data, ignore_errors=True)
            self.data = self._own_data = None

    # -- faults ----------------------------------------------------------------------------------------

    def fail(
        self,
        api: str,
        *,
        error: str | ErrorCode,
        times: int | None = None,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Answer requests with an error, without handling them.

        api: as Kafka calls it, such as "Produce" or "FindCoordinator"; "*" for any.
        error: as Kafka calls it, such as "NOT_LEADER_OR_FOLLOWER".
        times: number of requests; without it, until the fault is cancelled or its `with` ends.
        topic, client_id: only requests that name this topic, or come from this client.
        """
        code = error if isinstance(error, ErrorCode) else error_of(error)
        return self._faults.add(lambda request: request.refuse(code), api, times, topic, client_id)

    def delay(
        self,
        api: str,
        seconds: float,
        *,
        times: int | None = None,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Handle requests as usual, and delay their replies."""
        return self._faults.add(lambda request: request.hold(seconds), api, times, topic, client_id)

    def drop(
        self,
        api: str,
        *,
        handled: bool = False,
        times: int | None = None,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Close the connection in place of a reply: before the request is handled, or, with `handled`, after."""
        act = FaultedRequest.lose_reply if handled else FaultedRequest.lose_request
        return self._faults.add(act, api, times, topic, client_id)

    def clear_faults(self) -> None:
        """End all faults of requests and of the disk."""
        self._faults.clear()
        self.disk.clear()

    def expire_session(self, group: str, member_id: str | None = None) -> None:
        """Expire the session of a member of a group, or of all members."""
        self._ask(lambda node: node.context.groups.expire_sessions(group, member_id))

    def rebalance(self, group: str) -> None:
        """Make a group rebalance now."""
        self._ask(lambda node: node.context.groups.rebalance(group))

    def _ask(self, question: "Callable[[Node], T]") -> T:
        """Run a function on the node's thread, and return its result."""
        running, faulty = self._running, self._faulty
        if running is None or faulty is None:
            raise BrokerFailed("the broker does not run")
        node, answer = faulty.node, Future[T]()

        def ask() -> None:
            try:
                answer.set_result(question(node))
            except Exception as error:
                answer.set_exception(error)

        running.call(ask)
        return answer.result(WAIT_S_MAX)

    def join_network(self, network: Network, clock: Clock) -> None:
        """Make this a node of a cluster, with a shared clock and a network that can be partitioned."""
        self._network, self.clock = network, clock

    # -- use -------------------------------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int = 1, replication_factor: int = -1, **configs: object
    ) -> None:
        """Create a topic, which is ready for use when this returns.

        Settings have Kafka's names, with underscores for dots: `create_topic("log", retention_ms=1000)`.
        """
        from penstock.client.admin import NewTopic, create_topics  # noqa: PLC0415  # many tests make none
        from penstock.client.cluster import Cluster  # noqa: PLC0415
        from penstock.client.settings import Address  # noqa: PLC0415

        texts = {key.replace("_", "."): text_of(value) for key, value in configs.items()}
        with Cluster([Address(HOST, self.port)], self.client().settings) as cluster:
            known = cluster.refresh([name]).topics.get(name)
            [outcome] = create_topics(
                cluster, [NewTopic(name, partitions, replication_factor, configs=texts)]
            )
            if outcome.error is None:
                return
            was_there = known is not None and not known.error_code
            if was_there or outcome.error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise outcome.error
            # The controller changed meanwhile, and the first one had already created the topic.
        self.await_topic(name)

    def await_topic(self, name: str) -> None:
        """Wait until this broker knows a topic."""
        from penstock.client.cluster import Cluster  # noqa: PLC0415
        from penstock.client.settings import Address  # noqa: PLC0415

        with Cluster([Address(HOST, self.port)], self.client().settings) as cluster:
            cluster.topic(name, wait_ms=WAIT_S_MAX * 1000)


class _Running:
    """One run of a broker, from the start of its thread to its end."""

    def __init__(self, config: NodeConfig, make_node: MakeNode) -> None:
        self._config = config
        self._make_node = make_node
        self._ready: Future[dict[str, int]] = Future()
        self._failure: str | None = None
        self._loop = uvloop.new_event_loop()
        self._host: Host | None = None
        # A broker that was not closed must not keep the interpreter running.
        self._thread = threading.Thread(target=self._main, name="penstock-broker", daemon=True)
        self._thread.start()
        try:
            self.ports = self._ready.result(WAIT_S_MAX)
        except BrokerFailed:
            self._thread.join()
            raise
        except TimeoutError as error:
            self._end(Host.abandon)
            raise BrokerFailed(f"the broker was not ready within {WAIT_S_MAX:.0f} s") from error

    def stop(self) -> None:
        self._end(lambda host: host.stop(self._loop.stop), stops_itself=True)
        if self._failure is not None:
            raise BrokerFailed(self._failure)

    def kill(self) -> None:
        self._end(Host.abandon)

    def call(self, call: Callable[[], None]) -> None:
        """Call a function on the broker's thread."""
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:  # the loop is closed
            raise BrokerFailed(self._failure or "the broker does not run") from None

    def _end(self, how: Callable[[Host], Any], *, stops_itself: bool = False) -> None:
        def end() -> None:
            if self._failure is None and self._host is not None:
                how(self._host)
            if not stops_itself or self._failure is not None:
                self._loop.stop()

        with suppress(RuntimeError):  # the loop is closed: the broker failed and has ended
            self._loop.call_soon_threadsafe(end)
        self._thread.join(WAIT_S_MAX)
        if self._thread.is_alive():
            raise BrokerFailed(f"the broker did not end within {WAIT_S_MAX:.0f} s")

    # -- on the broker's thread ------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            self._host = host = Host(self._loop, self._config, self._make_node)
            try:
                host.start(self._is_ready, self._failed)
                self._loop.run_forever()
            except BaseException:
                host.abandon()
                raise
            finally:
                host.close()
        except Exception as error:
            reason = str(error) if isinstance(error, KafkaError) else f"{type(error).__name__}: {error}"
            self._failure = self._failure or reason
            if not self._ready.done():
                self._ready.set_exception(BrokerFailed(reason))
                self._failure = None  # it was reported
        finally:
            self._loop.close()

    def _is_ready(self) -> None:
        assert self._host is not None
        host = self._host
        ports = {name: each.endpoint.port for name, each in host.doors.items()}
        for name, listeners in (("kafka", host.listening), ("controller", host.controllers)):
            for each in list(listeners.values())[:1]:
                ports[name] = each.endpoint.port
        self._ready.set_result(ports)

    def _failed(self, reason: str) -> None:
        assert self._host is not None
        self._host.abandon()
        self._loop.stop()
        if self._ready.done():
            self._failure = self._failure or reason
        else:
            self._ready.set_exception(BrokerFailed(reason))


def text_of(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _hold(port: int) -> socket.socket | None:
    """Reserve a port, if the system lets a broker listen on a reserved port."""
    if sys.platform == "linux":
        with suppress(OSError):
            return hold_port(port, HOST)
    return None
