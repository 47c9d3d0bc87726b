"""`penstock reassign` on brokers of Penstock's: one alone, and three among which partitions move."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli import reassign_tour
from tests.cli.conftest import Command
from tests.cli.wire_tour import Shell
from tests.compat.clients.patient import wait_until

from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster as Client
from penstock.client.reassignments import alter_reassignments
from penstock.client.settings import parse_servers
from penstock.testing import Broker, Cluster


def test_the_tour_of_a_broker_alone(
    penstock: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with Broker() as broker:
        reassign_tour.alone(Shell(penstock, broker.bootstrap, monkeypatch), tmp_path)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings={"auto.create.topics.enable": False}) as running:
        yield running
        for each in running.brokers:
            each.kill()  # nothing is to be kept


@pytest.fixture
def shell(penstock: Command, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(penstock, cluster.bootstrap, monkeypatch)


def described(shell: Shell, topic: str) -> list[dict[str, Any]]:
    partitions: list[dict[str, Any]] = shell.json("topics", "describe", topic)["topics"][0]["partitionList"]
    return partitions


def where_is(shell: Shell, topic: str) -> tuple[list[int], int]:
    """The replicas and the leader of a topic's only partition, as whichever broker is asked has it."""
    [partition] = described(shell, topic)
    return partition["replicas"], partition["leader"]


def brokers_known_to(broker: Broker) -> set[int]:
    with Client(parse_servers(broker.bootstrap)) as client:
        client.refresh([])
        return set(client.info.brokers)


def test_a_topic_moves_with_its_records_to_the_brokers_that_are_named(shell: Shell, tmp_path: Path) -> None:
    shell("topics", "create", "moves", "--partitions", 2, "--replication-factor", 2)
    shell("produce", "moves", stdin=b"one\ntwo\nthree\nfour\n")
    before = described(shell, "moves")
    file = tmp_path / "plan.json"
    shell("reassign", "plan", "moves", "--brokers", "1,2", "--replication-factor", 2)
    away = before[0]["replicas"][0]
    stay = [each for each in (1, 2, 3) if each != away]
    shell("reassign", "plan", "moves", "--brokers", ",".join(map(str, stay)), "--out", file)
    told = shell.json("reassign", "apply", file, "--throttle", 50_000_000, "--wait")
    assert told["done"] is True
    status = shell.json("reassign", "status", file)
    assert {each["state"] for each in status["partitions"]} == {"done"}

    def is_shown() -> bool:
        """By whichever broker is asked: each hears of it in its time."""
        return all(
            sorted(each["replicas"]) == sorted(each["isr"]) == stay
            and [replica["lag"] for replica in each["replicaList"]] == [0, 0]
            for each in described(shell, "moves")
        )

    wait_until(is_shown)
    assert sorted(shell.lines("consume", "moves")) == ["four", "one", "three", "two"]
    wait_until(lambda: reassign_tour.throttles(shell, stay[0], "moves") == {})


def test_a_plan_goes_back_to_how_it_was(shell: Shell, tmp_path: Path) -> None:
    shell("topics", "create", "returns", "--partitions", 1, "--replication-factor", 1)
    [before] = described(shell, "returns")
    target = 1 + before["replicas"][0] % 3
    file = tmp_path / "plan.json"
    shell("reassign", "plan", "returns", "--brokers", target, "--out", file)
    told = shell.json("reassign", "apply", file, "--wait")
    wait_until(lambda: where_is(shell, "returns") == ([target], target))
    back = tmp_path / "back.json"
    back.write_text(json.dumps(told["before"]))
    shell("reassign", "apply", back, "--wait")
    wait_until(lambda: where_is(shell, "returns")[0] == before["replicas"])


def test_a_move_to_a_broker_that_is_away_is_shown_and_can_be_taken_back(
    shell: Shell, cluster: Cluster, tmp_path: Path
) -> None:
    shell("topics", "create", "waits", "--partitions", 1, "--replication-factor", 1)
    [before] = described(shell, "waits")
    [here] = before["replicas"]
    away = 1 + here % 3
    file = tmp_path / "plan.json"
    row = {"topic": "waits", "partition": 0, "replicas": [away]}
    file.write_text(json.dumps({"version": 1, "partitions": [row]}))
    cluster.brokers[away - 1].stop()
    try:
        running = [each for each in cluster.brokers if each.is_running]
        wait_until(lambda: all(away not in brokers_known_to(each) for each in running))
        outcome = shell.try_("reassign", "apply", file)
        assert (outcome.code, outcome.out) == (2, "")
        assert f"there is no broker {away}; the cluster has" in outcome.err
        with Client(parse_servers(cluster.bootstrap)) as client:  # who insists on it may have it
            assert alter_reassignments(client, {TopicPartition("waits", 0): [away]}) == {
                TopicPartition("waits", 0): None
            }
        [moving] = shell.json("reassign", "status")["partitions"]
        assert (moving["state"], moving["replicas"]) == ("moving", [away])
        assert (moving["adding"], moving["removing"]) == ([away], [here])
        assert shell.lines("reassign", "status", file)[1].split() == [
            "waits-0",
            "moving",
            *map(str, (away, away, here)),
            "-",
        ]
        row["replicas"] = [here]
        file.write_text(json.dumps({"version": 1, "partitions": [row]}))
        busy = shell.try_("reassign", "apply", file)
        assert (busy.code, busy.err) == (
            2,
            "penstock: waits-0 is still moving; use --additional to start more moves\n",
        )
        assert shell.try_("reassign", "status", file).code == 1, "it goes elsewhere than this plan wants"
        assert shell("reassign", "cancel", "--all") == "1 partition keeps its replicas: waits-0.\n"
        assert shell("reassign", "status") == "Nothing moves.\n"
        wait_until(lambda: where_is(shell, "waits") == ([here], here))
    finally:
        cluster.brokers[away - 1].start()


def test_a_move_that_is_held_back_goes_on_when_it_is_let_go(
    shell: Shell, cluster: Cluster, tmp_path: Path
) -> None:
    shell("topics", "create", "heavy", "--partitions", 1, "--replication-factor", 1)
    line = b"x" * 100_000 + b"\n"
    shell("produce", "heavy", stdin=line * 60)
    [before] = described(shell, "heavy")
    target = 1 + before["replicas"][0] % 3
    file = tmp_path / "plan.json"
    shell("reassign", "plan", "heavy", "--brokers", target, "--out", file)
    shell("reassign", "apply", file, "--throttle", 1000)
    [held_back] = shell.json("reassign", "status", file)["partitions"]
    assert held_back["state"] == "moving"
    held = {"1000", f"0:{target}"}
    wait_until(lambda: set(reassign_tour.throttles(shell, target, "heavy").values()) >= held)
    shell("reassign", "apply", file, "--throttle", 10**9, "--additional", "--wait")
    [done] = shell.json("reassign", "status", file)["partitions"]
    assert (done["state"], done["replicas"]) == ("done", [target])
    wait_until(lambda: where_is(shell, "heavy") == ([target], target))
    [after] = described(shell, "heavy")
    assert after["endOffset"] == 60
    wait_until(lambda: reassign_tour.throttles(shell, target, "heavy") == {})
