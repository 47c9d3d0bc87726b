"""A cluster inside a test: several brokers and their quorum, each in a thread of this process.

    with Cluster(brokers=3) as cluster:
        cluster.create_topic("orders", partitions=3, replication_factor=3)
        cluster.brokers[0].kill()
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})

The first three brokers are the controllers too, unless `controllers` sets a number of dedicated controllers.

The network between nodes can be partitioned (`partition`, `isolate`, `heal`), leaders can be moved, and the clock of
all brokers set forward (`clock.advance`). Other faults are set at single brokers, as with one `Broker`.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from os import PathLike, fspath, path

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster as Client
from penstock.client.errors import ClientError
from penstock.client.reassignments import alter_reassignments, elect_preferred
from penstock.client.settings import Address
from penstock.testing.broker import HOST, WAIT_S_MAX, Broker, BrokerFailed, text_of
from penstock.testing.clock import Clock
from penstock.testing.network import Network
from penstock.testing.security import ClientAccess, Security, SecurityFiles

CONTROLLERS_MAX = 3
"""Brokers that are controllers too: two of three are a majority, and more only make it slower."""

FIRST_CONTROLLER_ID = 101
"""Id of the first dedicated controller; brokers start at 1."""

DEFAULTS = {
    "controller.quorum.election.timeout.ms": "300",
    "broker.heartbeat.interval.ms": "200",
}
"""Shorter waits than in a real network, since all nodes are on one machine. Session timeouts stay: a dead node is
detected at once anyway, and on a busy machine live nodes may be silent for a while."""


class Cluster:
    """Methods may be called from any one thread."""

    def __init__(
        self,
        brokers: int = 3,
        *,
        controllers: int = 0,
        data: "str | PathLike[str] | None" = None,
        settings: Mapping[str, object] | None = None,
        of_broker: Mapping[int, Mapping[str, object]] | None = None,
        http: bool = False,
        line: bool = False,
        security: Security | str | bool = False,
    ) -> None:
        """Nothing happens before `start` or `with`.

        data: a directory that is kept, with one for each node in it; without it a temporary one is used.
        settings: Kafka's broker settings, for all of them; `of_broker` has more for single ones, by id.
        security: of clients, as that of a `Broker`; nodes use TLS with certificates among themselves.
        """
        self._data = None if data is None else fspath(data)
        self._own_data: str | None = None
        self._has_run = False
        """Whether all nodes were up at once; a start that fails before that removes what it created."""
        self._settings = DEFAULTS | {name: text_of(value) for name, value in (settings or {}).items()}
        self._more = of_broker or {}
        combined = 0 if controllers else min(brokers, CONTROLLERS_MAX)
        self._roles = {
            number: "broker,controller" if number <= combined else "broker"
            for number in range(1, brokers + 1)
        }
        self.brokers = [
            Broker(http=http, line=line, controller=number <= combined) for number in range(1, brokers + 1)
        ]
        """Brokers by id, from 1."""
        self.controllers = [Broker(controller=True, http=http) for _ in range(controllers)]
        """Dedicated controllers."""
        self._roles |= {FIRST_CONTROLLER_ID + place: "controller" for place in range(controllers)}
        self.clock = Clock()
        """The clock of all brokers, which the test can move."""
        self._network = Network()
        for each in (*self.brokers, *self.controllers):
            each.join_network(self._network, self.clock)
        self._security = Security.of(security)
        self._files: SecurityFiles | None = None

    def __enter__(self) -> "Cluster":
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """Value of `bootstrap.servers` for clients."""
        return ",".join(each.bootstrap for each in self.brokers)

    @property
    def nodes(self) -> dict[int, Broker]:
        """All nodes by id."""
        return dict(zip(self._roles, [*self.brokers, *self.controllers], strict=True))

    # -- life ------------------------------------------------------------------------------------------

    def start(self) -> "Cluster":
        """Start all nodes that are down, and return when every broker serves clients."""
        if self._data is None:
            self._data = self._own_data = tempfile.mkdtemp(prefix="penstock-cluster-")
        nodes = self.nodes
        if self._security is not None and self._files is None:
            self._files = SecurityFiles(self._security, path.join(self._data, "security"), is_cluster=True)
            for each in self.brokers:
                each.secure(self._files)
            for each in self.controllers:
                each.settings |= self._files.node_settings(None, ["CONTROLLER"])
        for node in nodes.values():
            node.take_ports()
        voters = ",".join(
            f"{number}@{HOST}:{node.controller_port}"
            for number, node in nodes.items()
            if "controller" in self._roles[number]
        )
        self._network.place(
            {port: number for number, node in nodes.items() for port in node.ports_between_nodes}
        )
        for number, node in nodes.items():
            node.data = node.data or path.join(self._data, f"node-{number}")
            more = {name: text_of(value) for name, value in self._more.get(number, {}).items()}
            node.settings |= self._settings | more
            node.settings |= {
                "node.id": str(number),
                "process.roles": self._roles[number],
                "controller.quorum.voters": voters,
            }
        try:
            self._all_at_once(each.start for each in nodes.values() if not each.is_running)
        except BaseException:
            if not self._has_run:
                self.close()
            raise
        self._has_run = True
        if self._files is not None:
            self.brokers[0].create_users()
        return self

    def client(self, user: str | None = None) -> ClientAccess:
        """As `Broker.client`, for all brokers."""
        return ClientAccess(self.bootstrap, self._files, user)

    def stop(self) -> None:
        """Stop all nodes cleanly."""
        self._all_at_once(each.stop for each in self.nodes.values())

    def close(self) -> None:
        """Stop, and remove the temporary directory."""
        try:
            if self._own_data is not None:
                self._kill_all()  # their data is deleted anyway
            self._all_at_once(each.close for each in self.nodes.values())
        finally:
            if self._own_data is not None:
                shutil.rmtree(self._own_data, ignore_errors=True)
                self._data = self._own_data = None

    def _all_at_once(self, calls: Iterable[Callable[[], object]]) -> None:
        """Start nodes together: none is ready before a majority is."""
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            futures = [pool.submit(call) for call in calls]
        failures = [each.exception() for each in futures]
        for failure in failures:
            if failure is not None:
                with suppress(Exception):
                    self._kill_all()
                raise failure

    def _kill_all(self) -> None:
        for each in self.nodes.values():
            each.kill()

    # -- faults ----------------------------------------------------------------------------------------

    def partition(self, *sides: Iterable[int]) -> None:
        """Cut the network between groups of nodes, by id: `partition([1], [2, 3])`. Clients still reach all nodes."""
        unknown = {node for side in sides for node in side} - set(self._roles)
        if unknown:
            raise ValueError(f"there is no node {min(unknown)}; expected some of {sorted(self._roles)}")
        self._network.partition(*sides)

    def isolate(self, node: int) -> None:
        """Cut one node off from all others."""
        self.partition([node], set(self._roles) - {node})

    def heal(self) -> None:
        """Let all nodes reach each other again."""
        self._network.heal()

    def leader_of(self, topic: str, partition: int = 0) -> Broker:
        """Return the current leader of a partition, according to the metadata of its brokers."""
        with self._client() as client:
            return self.nodes[self._leader(client, TopicPartition(topic, partition))]

    def move_leader(self, topic: str, partition: int = 0, *, to: int) -> None:
        """Make another replica of a partition its leader, and return when it leads."""
        place = TopicPartition(topic, partition)
        with self._client() as client:
            replicas = client.refresh([topic]).topics[topic].partitions[partition].replicas
            if to not in replicas:
                raise ValueError(f"node {to} has no replica of {place}; expected one of {sorted(replicas)}")
            order = [to, *(each for each in replicas if each != to)]
            [refusal] = alter_reassignments(client, {place: order}).values()
            if refusal is not None:
                raise refusal
            backoff = client.backoff(WAIT_S_MAX * 1000)
            while self._leader(client, place) != to:
                try:
                    elect_preferred(client, [place])
                except ClientError as error:
                    backoff.pause(error)
                else:
                    backoff.pause(TimeoutError(f"node {to} does not lead {place} yet"))

    def expire_session(self, group: str, member_id: str | None = None) -> None:
        """As `Broker.expire_session`, at the group's coordinator."""
        self._at_coordinator(lambda broker: broker.expire_session(group, member_id))

    def rebalance(self, group: str) -> None:
        """As `Broker.rebalance`, at the group's coordinator."""
        self._at_coordinator(lambda broker: broker.rebalance(group))

    def _at_coordinator(self, do: Callable[[Broker], None]) -> None:
        refusal: KafkaError | None = None
        for broker in self.brokers:
            if broker.is_running:
                try:
                    do(broker)
                except KafkaError as error:
                    refusal = error
                    if error.code not in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
                        raise
                else:
                    return
        raise refusal or BrokerFailed("no broker runs")

    def _client(self) -> Client:
        servers = [Address(HOST, each.port) for each in self.brokers if each.is_running]
        return Client(servers, self.client().settings)

    @staticmethod
    def _leader(client: Client, place: TopicPartition) -> int:
        return client.refresh([place.topic]).topics[place.topic].partitions[place.partition].leader

    # -- use -------------------------------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int = 1, replication_factor: int = -1, **configs: object
    ) -> None:
        """Create a topic, which every running broker knows when this returns; settings as in `Broker.create_topic`."""
        first, *others = (each for each in self.brokers if each.is_running)
        first.create_topic(name, partitions, replication_factor, **configs)
        for each in others:
            each.await_topic(name)
