"""State of a local cluster: running nodes, leaders and under-replicated partitions."""

from typing import Any, Final, NamedTuple

from penstock.base.errors import KafkaError
from penstock.base.internal_topics import METADATA_TOPIC
from penstock.cli.cluster_nodes import HOST, Layout, Node, running_nodes
from penstock.cli.output import print_table
from penstock.client.cluster import Cluster
from penstock.client.errors import AuthenticationFailed
from penstock.client.settings import Address, ClientSettings
from penstock.client.topology import PartitionInfo
from penstock.wire import Api
from penstock.wire.request import through_kio

SETTINGS: Final = ClientSettings(request_timeout_ms=2_000, api_timeout_ms=4_000)
"""Short timeouts: the nodes are on this machine."""


class ClusterState(NamedTuple):
    """The cluster as its brokers report it."""

    alive: frozenset[int]
    controller: int | None
    partitions: list[PartitionInfo]

    def leads(self, node_id: int) -> int:
        return sum(each.leader == node_id for each in self.partitions)

    def has(self, node_id: int) -> int:
        return sum(node_id in each.replicas for each in self.partitions)


def look(layout: Layout, settings: ClientSettings = SETTINGS, *, is_watching: bool = True) -> dict[str, Any]:
    """The state of the cluster, as the JSON output has it. Unless it watches, raises AuthenticationFailed."""
    running = running_nodes(layout)
    brokers = [each for each in layout.nodes if each.is_broker and each.id in running]
    state = _ask(layout, brokers, settings, is_watching=is_watching)
    partitions = [] if state is None else state.partitions
    return {
        "directory": layout.directory,
        "clusterId": layout.cluster_id,
        "bootstrap": layout.bootstrap,
        "controller": None if state is None else state.controller,
        "partitions": None if state is None else len(partitions),
        "underReplicated": None if state is None else sum(len(p.isr) < len(p.replicas) for p in partitions),
        "withoutLeader": None if state is None else sum(p.leader < 0 for p in partitions),
        "nodes": [_node(layout, each, running.get(each.id), state) for each in layout.nodes],
    }


def _node(layout: Layout, node: Node, pid: int | None, state: ClusterState | None) -> dict[str, Any]:
    def address(port: int | None) -> str | None:
        return None if port is None else f"{layout.host or HOST}:{port}"

    node_state = "down"
    if pid is not None:
        is_known = state is not None and node.is_broker
        node_state = "runs" if not is_known or state is None else "up" if node.id in state.alive else "fenced"
    return {
        "id": node.id,
        "roles": node.roles,
        "pid": pid,
        "kafka": address(node.kafka),
        "http": address(node.http),
        "line": address(node.line),
        "controller": None if node.controller is None else f"{HOST}:{node.controller}",
        "state": node_state,
        "leads": state.leads(node.id) if state is not None and node.is_broker else None,
        "replicas": state.has(node.id) if state is not None and node.is_broker else None,
    }


def _ask(
    layout: Layout, brokers: list[Node], settings: ClientSettings, *, is_watching: bool
) -> ClusterState | None:
    """The state reported by a broker; None if no broker answers."""
    servers = [Address(layout.host or HOST, each.kafka) for each in brokers if each.kafka is not None]
    if not servers:
        return None
    try:
        with Cluster(servers, settings) as cluster:
            info = cluster.refresh(None)
            controller = _quorum_leader(cluster)
    except AuthenticationFailed:
        if is_watching:
            return None
        raise
    except KafkaError:
        return None
    partitions = [each for topic in info.topics.values() for each in topic.partitions.values()]
    return ClusterState(frozenset(info.brokers), controller, partitions)


def _quorum_leader(cluster: Cluster) -> int | None:
    """The active controller; None if there is none, or it is unknown."""

    def build(make: Any) -> Any:
        partition = make.PartitionData(partition_index=0)
        return make.DescribeQuorumRequest(
            topics=(make.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),)
        )

    try:
        reply = cluster.ask_any(through_kio(Api.DESCRIBE_QUORUM, build))
    except KafkaError:
        return None
    leaders = [each.leader_id for topic in reply.topics for each in topic.partitions]
    return leaders[0] if leaders and leaders[0] >= 0 else None


def show(document: dict[str, Any]) -> None:
    columns = ("node", "roles", "state", "leads", "replicas", "kafka", "http", "line", "controller", "pid")
    rows = [(each["id"], *(each[name] for name in columns[1:])) for each in document["nodes"]]
    print_table(columns, rows, title=f"cluster {document['clusterId']} in {document['directory']}")
    print(summary(document))


def summary(document: dict[str, Any]) -> str:
    """One line: the controller, and how many partitions have problems."""
    if document["partitions"] is None:
        return "No broker answers."
    controller = document["controller"]
    words = "no controller is known" if controller is None else f"controller {controller}"
    partitions = f"{document['partitions']} partitions, {document['underReplicated']} under-replicated"
    return f"{words}, {partitions}, {document['withoutLeader']} without leader"
