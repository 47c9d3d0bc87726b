"""kafka-reassign-partitions and kafka-leader-election, from Kafka's jars, on a cluster of Penstock's."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.compat.clients.patient import wait_until
from tests.compat.kafka.peer import KafkaPeer

from penstock.client.admin import (
    ConfigSource,
    NewTopic,
    Resource,
    ResourceType,
    create_topics,
    describe_configs,
    describe_topics,
)
from penstock.client.cluster import Cluster as Client
from penstock.client.producer import Producer
from penstock.client.settings import parse_servers
from penstock.testing import Cluster

pytestmark = pytest.mark.kafka

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"

Tool = Callable[..., str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings={"auto.leader.rebalance.enable": False}) as running:
        yield running
        for each in running.brokers:
            each.kill()  # nothing is to be kept


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with Client(parse_servers(cluster.bootstrap)) as connected:
        yield connected


@pytest.fixture
def tool(kafka: KafkaPeer, cluster: Cluster) -> Tool:
    def run(name: str, *arguments: object) -> str:
        return kafka.java(name, "--bootstrap-server", cluster.bootstrap, *(str(each) for each in arguments))

    return run


def partitions_of(client: Client, topic: str) -> dict[int, Any]:
    [described] = describe_topics(client, [topic])
    return described.partitions


def throttled(client: Client, resource: Resource) -> set[str]:
    own = {ConfigSource.TOPIC, ConfigSource.BROKER}
    return {
        each.name
        for each in describe_configs(client, resource)
        if "throttled" in each.name and each.source in own
    }


@pytest.mark.long
def test_kafkas_tool_plans_moves_and_verifies(tool: Tool, client: Client, tmp_path: Path) -> None:
    [created] = create_topics(client, [NewTopic("moved", 2, 2)])
    assert created.error is None
    producer = Producer(client)
    for number in range(100):
        producer.send("moved", b"%d" % number, b"x")
    producer.flush()
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "moved"}]}))
    away = partitions_of(client, "moved")[0].replicas[0]
    stay = [each for each in (1, 2, 3) if each != away]
    told = tool(
        REASSIGN,
        "--generate",
        "--topics-to-move-json-file",
        topics,
        "--broker-list",
        ",".join(map(str, stay)),
    )
    proposed = told.split("Proposed partition reassignment configuration")[1].strip()
    plan = tmp_path / "plan.json"
    plan.write_text(proposed)

    told = tool(REASSIGN, "--execute", "--reassignment-json-file", plan, "--throttle", 100_000_000)
    assert "Successfully started partition reassignments for moved-0,moved-1" in told
    told = ""
    while "still in progress" in told or not told:
        told = tool(REASSIGN, "--verify", "--reassignment-json-file", plan)
    assert told.count("is completed") == 2
    assert "Clearing broker-level throttles" in told
    wait_until(
        lambda: all(
            sorted(each.replicas) == sorted(each.isr) == stay
            for each in partitions_of(client, "moved").values()
        )
    )
    wait_until(lambda: throttled(client, Resource(ResourceType.TOPIC, "moved")) == set())
    wait_until(lambda: throttled(client, Resource(ResourceType.BROKER, str(stay[0]))) == set())
    assert "No partition reassignments found." in tool(REASSIGN, "--list")


@pytest.mark.long
def test_kafkas_tool_elects_the_preferred_leader(tool: Tool, client: Client, tmp_path: Path) -> None:
    [created] = create_topics(client, [NewTopic("led", 1, 3)])
    assert created.error is None
    [first] = partitions_of(client, "led").values()
    other = next(each for each in first.replicas if each != first.leader)
    plan = tmp_path / "order.json"
    order = [other, *(each for each in first.replicas if each != other)]
    plan.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "led", "partition": 0, "replicas": order}]})
    )
    tool(REASSIGN, "--execute", "--reassignment-json-file", plan)
    assert partitions_of(client, "led")[0].leader == first.leader
    told = tool(ELECT, "--election-type", "preferred", "--topic", "led", "--partition", 0)
    assert re.search("Successfully completed leader election .*led-0", told)
    assert f"Leader: {other}" in tool(TOPICS, "--describe", "--topic", "led")
