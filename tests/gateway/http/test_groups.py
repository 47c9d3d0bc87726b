"""Groups over HTTP: those of Kafka clients, of both protocols."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from confluent_kafka import Consumer
from tests.gateway.http.rest import client_of, error_of, write

from penstock.testing import Broker

pytestmark = pytest.mark.xdist_group("http-groups")
"""One broker serves them all."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http=True) as started:
        started.create_topic("orders", 2)
        write(started, "orders", [b"x"] * 5, partition=0)
        write(started, "orders", [b"x"] * 3, partition=1, timestamps=[1000, 2000, 3000])
        yield started


@pytest.fixture(scope="module")
def http(broker: Broker) -> Iterator[httpx.Client]:
    with client_of(broker) as client:
        yield client


@contextmanager
def member(broker: Broker, group: str, protocol: str) -> Iterator[Consumer]:
    """A consumer that has read everything, and has committed all but the last record of partition 0."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "client.id": "reader",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe(["orders"])
        left = 8
        while left:
            message = consumer.poll(10)
            assert message is not None
            assert message.error() is None
            left -= 1
            if (message.partition(), message.offset()) == (0, 3):
                consumer.commit(message, asynchronous=False)
        yield consumer
    finally:
        consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_of_kafka_clients_is_shown_with_members_and_lag(
    broker: Broker, http: httpx.Client, protocol: str
) -> None:
    group = f"readers-{protocol}"
    with member(broker, group, protocol):
        listed = {each["group"]: each for each in http.get("/groups").json()["groups"]}
        assert (listed[group]["state"], listed[group]["type"]) == ("Stable", protocol)
        described = http.get(f"/groups/{group}").json()
        assert (described["state"], described["type"]) == ("Stable", protocol)
        assert described["coordinator"] == http.get("/cluster").json()["node_id"]
        [shown] = described["members"]
        assert shown["client_id"] == "reader"
        assert "127.0.0.1" in shown["host"]
        assert shown["subscribed"] == ["orders"]
        assert {topic: sorted(each) for topic, each in shown["assignments"].items()} == {"orders": [0, 1]}
        lag = http.get(f"/groups/{group}/lag").json()
        rows = [
            (each["partition"], each["committed"], each["end"], each["lag"]) for each in lag["partitions"]
        ]
        assert rows == [(0, 4, 5, 1), (1, None, 3, 3)]
        assert lag["lag"] == 4
        seconds = [each["lag_seconds"] for each in lag["partitions"]]
        assert 0 < seconds[0] < 300
        assert seconds[1] == pytest.approx(time.time() - 1, abs=300), "its first record is of the year 1970"
        assert lag["lag_seconds"] == max(seconds)
        [row] = http.get("/groups", params={"lag": True, "contains": group.upper()}).json()["groups"]
        assert (row["group"], row["members"], row["topics"], row["lag"]) == (group, 1, ["orders"], 4)
        assert row["lag_seconds"] == pytest.approx(lag["lag_seconds"], abs=60)
        assert row["coordinator"] == http.get("/cluster").json()["node_id"]
        assert {each["member_id"] for each in lag["partitions"]} == {shown["member_id"]}
        assert error_of(http.delete(f"/groups/{group}"), 409)["code"] == "non_empty_group"
        moved = http.post(f"/groups/{group}/offsets", json={"topic": "orders", "to": "latest"})
        assert error_of(moved, 409)["code"] == "non_empty_group"
    assert http.get(f"/groups/{group}/lag").json()["partitions"][0]["committed"] == 4
    assert http.delete(f"/groups/{group}").json() == {"status": "deleted"}
    error_of(http.get(f"/groups/{group}"), 404)


@pytest.mark.parametrize(
    ("to", "offsets"),
    [
        ("earliest", [0, 0]),
        ("latest", [5, 3]),
        (2, [2, 2]),
        ("1970-01-01T00:00:02Z", [0, 1]),
        ("2000", [0, 1]),
        ("2100-01-01", [5, 3]),
    ],
)
def test_group_without_members_goes_on_where_it_is_told(
    http: httpx.Client, to: object, offsets: list[int]
) -> None:
    moved = http.post("/groups/moved/offsets", json={"topic": "orders", "to": to}).json()
    assert [each["offset"] for each in moved["partitions"]] == offsets
    lag = http.get("/groups/moved/lag").json()
    assert [each["committed"] for each in lag["partitions"]] == offsets
    assert lag["lag"] == 8 - sum(offsets)


def test_one_partition_can_be_moved_alone(http: httpx.Client) -> None:
    body = {"topic": "orders", "partition": 1, "to": 3}
    [moved] = http.post("/groups/alone/offsets", json=body).json()["partitions"]
    assert (moved["partition"], moved["offset"]) == (1, 3)
    assert len(http.get("/groups/alone/lag").json()["partitions"]) == 1


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"topic": "none", "to": "earliest"}, 404),
        ({"topic": "orders", "partition": 2, "to": "earliest"}, 404),
        ({"topic": "orders", "to": 4}, 409),
        ({"topic": "orders", "to": -1}, 400),
        ({"topic": "orders", "to": "yesterday"}, 400),
        ({"topic": "orders", "to": "0", "partition": "0"}, 400),
        ({"topic": "or ders", "to": "latest"}, 400),
        ({"topic": "orders"}, 400),
    ],
)
def test_place_that_is_not_there_is_refused(http: httpx.Client, body: object, status: int) -> None:
    error_of(http.post("/groups/refused/offsets", json=body), status)


def test_refusal_of_a_place_says_what_there_is(http: httpx.Client) -> None:
    body = {"topic": "orders", "to": "yesterday"}
    message = error_of(http.post("/groups/refused/offsets", json=body), 400)["message"]
    for word in ("'yesterday'", "earliest", "latest", "an offset", "a time", "2026-01-31T12:00:00Z"):
        assert word in message


def test_group_that_does_not_exist_is_not_found(http: httpx.Client) -> None:
    for response in (http.get("/groups/none"), http.get("/groups/none/lag"), http.delete("/groups/none")):
        assert error_of(response, 404)["code"] == "group_id_not_found"


def test_list_is_in_pages_and_can_be_narrowed(http: httpx.Client) -> None:
    for name in ("p1", "p2", "p3"):
        http.post(f"/groups/{name}/offsets", json={"topic": "orders", "to": "earliest"})
    page = http.get("/groups", params={"after": "p1", "limit": 1}).json()
    assert [each["group"] for each in page["groups"]] == ["p2"]
    assert page["next"] == "p2"
    assert http.get("/groups", params={"after": "p2"}).json()["next"] is None
    assert http.get("/groups", params={"state": "stable"}).json()["groups"] == []
    error_of(http.get("/groups?type=other"), 400)
    assert "PreparingRebalance" in error_of(http.get("/groups?state=bogus"), 400)["message"]
    assert http.get("/groups?state=CompletingRebalance").json()["groups"] == []
