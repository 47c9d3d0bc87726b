"""GET /health: whether the node can do its work, and if not, why."""

import errno
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Producer
from tests.gateway.peer_rpc.doors import eventually
from tests.gateway.scrapes import get_json, scrape
from tests.handlers.cluster import Cluster

from penstock import __version__
from penstock.base.steps import RunningSteps
from penstock.base.world import World
from penstock.gateway.shared.health import DISK_USABLE_BYTES_MIN, Problem, cluster_problems, problems
from penstock.server.config import NodeConfig
from penstock.server.node import Node
from penstock.testing import Broker
from penstock.testing import Cluster as RealCluster
from penstock.vfs import FaultyDisk, Usage, Vfs


class Disk(FaultyDisk):
    """One whose volume is as full as a test says."""

    usable_bytes = 10 * DISK_USABLE_BYTES_MIN

    def usage(self, path: str) -> Usage:
        return Usage(2 * self.usable_bytes, self.usable_bytes)


class Scene:
    def __init__(self) -> None:
        self.disks: list[Disk] = []

    def make_node(self, world: World, vfs: Vfs, config: NodeConfig) -> Node:
        self.disks.append(Disk(vfs))
        return Node(world, self.disks[-1], config)

    @property
    def disk(self) -> Disk:
        return self.disks[-1]


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene()


@pytest.fixture(scope="module")
def broker(scene: Scene) -> Iterator[Broker]:
    with Broker(http=True, make_node=scene.make_node) as running:
        yield running


def test_a_node_that_serves_says_who_it_is(broker: Broker) -> None:
    status, health = get_json(broker, "/health")
    assert status == 200
    assert health["status"] == "ok"
    assert health["version"] == __version__
    assert health["node_id"] == 1
    assert len(health["cluster_id"]) == 22
    assert health["uptime_ms"] >= 0
    assert health["problems"] == health["cluster_problems"] == health["warnings"] == []
    assert get_json(broker, "/health/live") == (200, {"status": "ok"})
    assert get_json(broker, "/health/ready") == (200, {"status": "ok", "problems": []})


def test_uptime_begins_with_the_node(broker: Broker) -> None:
    before = get_json(broker, "/health")[1]["uptime_ms"]
    assert get_json(broker, "/health")[1]["uptime_ms"] >= before


def test_a_full_disk_is_a_reason_not_to_be_ready(broker: Broker, scene: Scene) -> None:
    scene.disk.usable_bytes = DISK_USABLE_BYTES_MIN - 1
    try:
        status, ready = get_json(broker, "/health/ready")
        assert (status, ready["status"]) == (503, "unavailable")
        [problem] = ready["problems"]
        assert problem["code"] == "disk_full"
        assert ready["error"] == {"code": "unavailable", "message": problem["message"]}
        assert str(DISK_USABLE_BYTES_MIN - 1) in problem["message"]
        assert get_json(broker, "/health")[0] == 503
        assert get_json(broker, "/health/live")[0] == 200
        assert scrape(broker)("penstock_disk_usable_bytes") == DISK_USABLE_BYTES_MIN - 1
    finally:
        scene.disk.usable_bytes = Disk.usable_bytes
    assert get_json(broker, "/health/ready")[0] == 200


def test_a_log_whose_sync_failed_is_named_until_it_can_be_written_again(broker: Broker, scene: Scene) -> None:
    broker.create_topic("fragile", partitions=2)
    before = scrape(broker)("penstock_fsync_errors_total")
    rule = scene.disk.fail("sync", path="*/fragile-1/*.log", error=errno.EIO)
    try:
        assert produce(broker) == ["KAFKA_STORAGE_ERROR"]
    finally:
        rule.cancel()
    status, ready = get_json(broker, "/health/ready")
    assert status == 503
    assert [each["code"] for each in ready["problems"]] == ["log_failed"]
    assert "fragile-1" in ready["problems"][0]["message"]
    assert "fragile-0" not in ready["problems"][0]["message"]
    page = scrape(broker)
    assert page("penstock_fsync_errors_total") > before
    assert page("penstock_request_errors_total", api="Produce", error="KAFKA_STORAGE_ERROR") > 0
    assert produce(broker) == []
    assert get_json(broker, "/health/ready") == (200, {"status": "ok", "problems": []})


def produce(broker: Broker) -> list[str]:
    """Write one record, without trying again; the errors."""
    errors: list[str] = []
    client = Producer({"bootstrap.servers": broker.bootstrap, "retries": 0, "acks": "all", "log_level": 0})
    client.produce(
        "fragile",
        b"x",
        partition=1,
        on_delivery=lambda error, _: errors.append(error.name()) if error is not None else None,
    )
    assert client.flush(30) == 0
    return errors


# -- what does not last long enough to be met from outside -------------------------------------------------


def found(cluster: Cluster, shards: list[Any] | None = None, *, is_broker: bool = True) -> list[Problem]:
    """Of a node without partitions, with coordinators as they are given."""
    context = cast(Any, cluster.context)
    context.replicas = SimpleNamespace(partitions={}, by_key={})
    context.groups = SimpleNamespace(shards=_Shards(shards or []))
    context.transactions = SimpleNamespace(shards=_Shards([]))
    directory = SimpleNamespace(vfs=Disk(cast(Any, None)), layout=SimpleNamespace(logs="/logs"))
    answers: list[list[Problem]] = []

    def failed(error: Exception) -> None:
        raise error

    node = SimpleNamespace(context=context, directory=directory, is_broker=is_broker)
    RunningSteps(problems(cast(Any, node)), answers.append, failed)
    cluster.world.run_until(lambda: bool(answers))
    return answers[0]


class _Shards(list[Any]):
    topic = "__consumer_offsets"


def test_a_fenced_broker_is_not_ready() -> None:
    cluster = Cluster()
    assert found(cluster) == []
    cluster.fence(1)
    assert [each.code for each in found(cluster)] == ["fenced"]


def test_a_controller_alone_is_ready_when_it_knows_who_leads_the_quorum() -> None:
    cluster = Cluster()
    cluster.fence(1)
    assert found(cluster, is_broker=False) == []
    cast(Any, cluster.context).quorum = SimpleNamespace(leader_id=-1)
    assert [each.code for each in found(cluster, is_broker=False)] == ["no_controller"]


def test_coordinators_that_load_are_waited_for_and_damaged_ones_are_reported() -> None:
    serving = SimpleNamespace(is_loaded=True, is_damaged=False)
    loading = SimpleNamespace(is_loaded=False, is_damaged=False)
    damaged = SimpleNamespace(is_loaded=False, is_damaged=True)
    assert found(Cluster(), [serving]) == []
    [problem] = found(Cluster(), [serving, loading, loading])
    assert (problem.code, problem.is_passing) == ("coordinators_loading", True)
    assert problem.message == "2 coordinators of groups are loading their partition of __consumer_offsets"
    [problem] = found(Cluster(), [serving, damaged])
    assert (problem.code, problem.is_passing) == ("coordinators_damaged", False)


def test_a_partition_that_is_led_here_and_not_served_is_reported() -> None:
    """Its log could not be made."""
    cluster = Cluster()
    cluster.create("orders", (1,), (1,))
    [problem] = found(cluster)
    assert problem.code == "partitions_unserved"
    assert "orders-0, orders-1" in problem.message


# -- the cluster around the node ---------------------------------------------------------------------------


def around(cluster: Cluster) -> dict[str, str]:
    """Messages by code."""
    answers: list[list[Problem]] = []

    def failed(error: Exception) -> None:
        raise error

    RunningSteps(cluster_problems(cluster.context), answers.append, failed)
    cluster.world.run_until(lambda: bool(answers))
    return {each.code: each.message for each in answers[0]}


def is_degraded(broker: Broker) -> bool:
    return bool(get_json(broker, "/health")[1]["status"] == "degraded")


def test_a_dead_broker_and_the_partitions_that_miss_it_are_named() -> None:
    cluster = Cluster((1, 2))
    cluster.create("orders", (1, 2), (1, 2), min_insync_replicas="2")
    cluster.create("clicks", (1, 2))
    cluster.create("alone", (2,))
    assert around(cluster) == {}
    cluster.fence(2)
    assert around(cluster) == {
        "brokers_fenced": "broker 2 is fenced: stopped, unreachable or starting",
        "partitions_offline": "no leader for alone-0",
        "partitions_under_min_isr": "fewer in-sync replicas than min.insync.replicas in orders-0, orders-1",
        "partitions_under_replicated": "a replica is not in sync in clicks-0",
    }


def test_a_node_whose_cluster_misses_a_broker_is_degraded_and_ready() -> None:
    with RealCluster(brokers=3, controllers=1, http=True) as cluster:
        cluster.brokers[2].stop()
        eventually(lambda: is_degraded(cluster.brokers[0]), "the cluster is degraded")
        for node in (*cluster.brokers[:2], *cluster.controllers):
            status, health = get_json(node, "/health")
            assert (status, health["status"], health["problems"]) == (200, "degraded", [])
            assert "broker 3" in health["cluster_problems"][0]["message"]
            assert get_json(node, "/health/ready") == (200, {"status": "ok", "problems": []})
