"""A cluster of three over HTTP: brokers, disks, configs, the quorum, moves of partitions and elections.

Requests go to a broker that often is not the one concerned."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from tests.gateway.http.rest import error_of, write

from penstock.testing import Cluster

pytestmark = pytest.mark.xdist_group("http-cluster-admin")

SECONDS_MAX = 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, http=True) as started:
        yield started


@pytest.fixture(scope="module")
def http(cluster: Cluster) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=cluster.brokers[0].http_url, timeout=SECONDS_MAX) as client:
        yield client


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + SECONDS_MAX
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def replicas_of(http: httpx.Client, topic: str) -> list[list[int]]:
    return [each["replicas"] for each in http.get(f"/topics/{topic}").json()["partitions"]]


def test_brokers_have_their_disks_and_partitions(cluster: Cluster, http: httpx.Client) -> None:
    cluster.create_topic("counted", 3, 3)
    write(cluster.brokers[0], "counted", [b"x" * 10_000])
    rows = http.get("/brokers").json()["brokers"]
    assert [each["id"] for each in rows] == [1, 2, 3]
    assert sum(each["is_controller"] for each in rows) == 1
    for each in rows:
        assert each["replicas"] >= 3
        assert each["out_of_sync"] == 0
        assert 0 < each["disk"]["free_bytes"] <= each["disk"]["total_bytes"]
        assert each["endpoints"]
    assert sum(each["leaders"] for each in rows) == sum(each["preferred_leaders"] for each in rows)
    for broker in (1, 3):
        logs = http.get(f"/brokers/{broker}/logs").json()
        [counted] = [each for each in logs["topics"] if each["topic"] == "counted"]
        assert counted["partitions"] == 3
        assert logs["topics"][0]["size_bytes"] == max(each["size_bytes"] for each in logs["topics"])
    for path in ("/brokers/9/logs", "/brokers/x/configs", "/brokers/-1/logs"):
        assert error_of(http.get(path), 404)["code"] == "unknown_broker"


def test_configs_of_one_broker_are_its_own(http: httpx.Client) -> None:
    def configs(broker: int) -> dict[str, Any]:
        rows = http.get(f"/brokers/{broker}/configs").json()["configs"]
        return {each["name"]: each for each in rows}

    assert configs(1)["node.id"]["value"] == "1"
    assert configs(3)["node.id"]["value"] == "3"
    change = {"configs": {"log.retention.ms": 77_000}}
    dry = http.patch("/brokers/3/configs?dry_run=true", json=change)
    assert dry.status_code == 200
    assert configs(3)["log.retention.ms"]["source"] != "broker"
    changed = http.patch("/brokers/3/configs", json=change).json()["configs"]
    [mine] = [each for each in changed if each["name"] == "log.retention.ms"]
    assert (mine["value"], mine["source"]) == ("77000", "broker")
    assert configs(1)["log.retention.ms"]["source"] != "broker"
    assert http.patch("/brokers/3/configs", json={"configs": {"log.retention.ms": None}}).status_code == 200
    wrong = {"configs": {"log.retention.ms": "soon"}}
    assert "log.retention.ms" in error_of(http.patch("/brokers/3/configs", json=wrong), 400)["message"]
    fixed = {"configs": {"node.id": 4}}
    assert "node.id" in error_of(http.patch("/brokers/3/configs", json=fixed), 400)["message"]


def test_the_quorum_is_shown_by_every_broker(cluster: Cluster) -> None:
    for broker in cluster.brokers:
        with httpx.Client(base_url=broker.http_url, timeout=SECONDS_MAX) as http:
            state = http.get("/quorum").json()
        assert [each["id"] for each in state["voters"]] == [1, 2, 3]
        assert state["leader"] in (1, 2, 3)
        assert state["high_watermark"] > 0
        [leader] = [each for each in state["voters"] if each["id"] == state["leader"]]
        assert leader["lag"] == 0
        assert all(each["last_caught_up_ms"] for each in state["voters"])


def test_a_plan_drains_a_broker_and_its_moves_complete(cluster: Cluster, http: httpx.Client) -> None:
    cluster.create_topic("moved", 4, 2)
    write(cluster.brokers[0], "moved", [b"x" * 1000] * 100)
    plan = http.post("/reassignments/plan", json={"topics": ["moved"], "drain": [3]}).json()
    assert plan["partitions"]
    assert plan["copies"] == sum(len(each["adding"]) for each in plan["partitions"])
    for each in plan["partitions"]:
        assert 3 not in each["replicas"]
        assert each["size_bytes"] is not None
    assert any(3 in each for each in replicas_of(http, "moved")), "a plan changes nothing"

    wanted = [
        {name: each[name] for name in ("topic", "partition", "replicas")} for each in plan["partitions"]
    ]
    done = http.post("/reassignments", json={"partitions": wanted}).json()
    assert done["changed"] == len(wanted)
    assert all(each["error"] is None for each in done["partitions"])
    until(lambda: http.get("/reassignments").json()["partitions"] == [])
    until(lambda: not any(3 in each for each in replicas_of(http, "moved")))
    again = http.post("/reassignments/plan", json={"topics": ["moved"], "drain": [3]}).json()
    assert (again["partitions"], again["unchanged"]) == ([], 4)


def test_moves_in_progress_are_shown_and_cancelled(cluster: Cluster, http: httpx.Client) -> None:
    """A broker that is cut off cannot take its replica, so the move stays in progress."""
    cluster.create_topic("slow", 1, 1)
    write(cluster.brokers[0], "slow", [b"x" * 1000] * 50)
    [[before]] = replicas_of(http, "slow")
    target = next(each for each in (2, 3) if each != before)
    throttle = {"configs": {"follower.replication.throttled.rate": 1, "leader.replication.throttled.rate": 1}}
    for broker in (1, 2, 3):
        assert http.patch(f"/brokers/{broker}/configs", json=throttle).status_code == 200
    names = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
    everyone = {"configs": dict.fromkeys(names, "*")}
    assert http.patch("/topics/slow/configs", json=everyone).status_code == 200
    move = {"partitions": [{"topic": "slow", "partition": 0, "replicas": [target]}]}
    assert http.post("/reassignments", json=move).json()["changed"] == 1
    [row] = http.get("/reassignments").json()["partitions"]
    assert (row["topic"], row["adding"], row["removing"]) == ("slow", [target], [before])
    cancelled = http.post("/reassignments/cancel", json={}).json()
    assert cancelled["changed"] == 1
    assert http.get("/reassignments").json()["partitions"] == []
    assert replicas_of(http, "slow") == [[before]]
    none = http.post("/reassignments/cancel", json={"partitions": [{"topic": "slow", "partition": 0}]})
    assert error_of(none, 409)["code"] == "no_reassignment_in_progress"
    undo = {"configs": dict.fromkeys(throttle["configs"])}
    for broker in (1, 2, 3):
        assert http.patch(f"/brokers/{broker}/configs", json=undo).status_code == 200


def test_preferred_leaders_are_elected(cluster: Cluster, http: httpx.Client) -> None:
    cluster.create_topic("led", 2, 3)
    first = replicas_of(http, "led")[0]
    cluster.move_leader("led", 0, to=first[1])
    assert http.get("/topics/led").json()["partitions"][0]["leader"] == first[1]
    # Moving the leader has changed the order of replicas: put the other one first again.
    now = replicas_of(http, "led")[0]
    other = [each for each in now if each != now[0]]
    order = {"partitions": [{"topic": "led", "partition": 0, "replicas": [*other, now[0]]}]}
    assert http.post("/reassignments", json=order).json()["changed"] == 1
    until(lambda: replicas_of(http, "led")[0] == [*other, now[0]])
    one = {"partitions": [{"topic": "led", "partition": 0}]}
    elected = http.post("/elections", json=one).json()
    assert elected == {"elected": 1, "partitions": [{"topic": "led", "partition": 0, "error": None}]}
    until(lambda: http.get("/topics/led").json()["partitions"][0]["leader"] == other[0])
    again = http.post("/elections", json=one).json()
    assert again["elected"] == 0
    assert again["partitions"][0]["error"]
    # Of all partitions: on a busy machine another one may have lost its preferred leader meanwhile.
    until(lambda: http.post("/elections", json={}).json()["elected"] == 0)


def test_what_cannot_be_planned_or_moved_is_said_in_a_sentence(cluster: Cluster, http: httpx.Client) -> None:
    cluster.create_topic("still", 1, 1)

    def refused(path: str, body: Any, status: int) -> str:
        return error_of(http.post(path, json=body), status)["message"]

    assert "no broker 9" in refused("/reassignments/plan", {"drain": [9]}, 404)
    assert "nothing" in refused("/reassignments/plan", {"topics": ["nothing"]}, 404)
    many = {"topics": ["still"], "replication_factor": 4}
    assert refused("/reassignments/plan", many, 409) == (
        "4 replicas of a partition need 4 brokers, but the plan has 3"
    )
    assert refused("/reassignments/plan", {"drain": [1, 2, 3]}, 409) == "no broker is left for the replicas"
    assert "invalid body" in refused("/reassignments/plan", {"drain": ["one"]}, 400)

    def move(replicas: list[int], topic: str = "still") -> dict[str, Any]:
        return {"partitions": [{"topic": topic, "partition": 0, "replicas": replicas}]}

    assert "still-0" in refused("/reassignments", move([7]), 409)
    assert "still-0" in refused("/reassignments", move([1, 1]), 409)
    assert refused("/reassignments", move([1], "nothing"), 404)
    twice = {"partitions": move([1])["partitions"] * 2}
    assert refused("/reassignments", twice, 409) == "a partition is named twice"


def test_transactions_of_all_coordinators_are_listed_and_aborted_from_any_broker(cluster: Cluster) -> None:
    cluster.create_topic("sales", 3, 3)
    producers = []
    for number in range(3):
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "transactional.id": f"sale-{number}", "linger.ms": 0}
        )
        producer.init_transactions(SECONDS_MAX)
        producer.begin_transaction()
        producer.produce("sales", b"maybe", partition=number)
        assert producer.flush(SECONDS_MAX) == 0
        producers.append(producer)
    for number, broker in enumerate(cluster.brokers):
        with httpx.Client(base_url=broker.http_url, timeout=SECONDS_MAX) as http:
            rows = http.get("/transactions", params={"state": "Ongoing"}).json()["transactions"]
            names = {each["transactional_id"] for each in rows}
            assert f"sale-{number}" in names
            [producer] = http.get(f"/topics/sales/partitions/{number}/producers").json()["producers"]
            assert producer["start_offset"] == 0
            assert http.get("/hanging-transactions?older_than_ms=0").json() == {
                "transactions": [],
                "unavailable": [],
            }
            aborted = http.post(f"/transactions/sale-{number}/abort")
            assert aborted.json()["partitions"] == [{"topic": "sales", "partition": number}], aborted.text
            [producer] = http.get(f"/topics/sales/partitions/{number}/producers").json()["producers"]
            assert producer["start_offset"] is None
    del producers


def test_a_fenced_broker_stays_visible(cluster: Cluster, http: httpx.Client) -> None:
    """The last test: a broker is stopped."""
    cluster.nodes[3].stop()

    def of_broker() -> dict[str, Any]:
        row: dict[str, Any] = http.get("/brokers").json()["brokers"][2]
        return row

    row = until(lambda: (each := of_broker())["fenced"] and each)
    assert (row["id"], row["leaders"], row["disk"]) == (3, 0, None)
    assert row["out_of_sync"] > 0
    assert error_of(http.get("/brokers/3/configs"), 503)["code"] == "broker_not_available"
    assert http.get("/hanging-transactions").json()["unavailable"] == [3]
    plan = http.post("/reassignments/plan", json={"topics": ["moved"]}).json()
    assert all(3 not in each["replicas"] for each in plan["partitions"])
