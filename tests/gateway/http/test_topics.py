"""Topics over HTTP, and what Kafka clients see of them."""

from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka.admin import AdminClient
from tests.gateway.http.rest import client_of, error_of, write

from penstock.testing import Broker

pytestmark = pytest.mark.xdist_group("http-topics")
"""One broker serves them all."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http=True, settings={"num.partitions": 3}) as started:
        yield started


@pytest.fixture(scope="module")
def http(broker: Broker) -> Iterator[httpx.Client]:
    with client_of(broker) as client:
        yield client


def test_topic_created_over_http_is_there_for_kafka_clients(broker: Broker, http: httpx.Client) -> None:
    made = http.post("/topics", json={"name": "orders", "partitions": 5, "configs": {"retention.ms": 12345}})
    assert made.status_code == 201
    assert made.headers["location"] == "/topics/orders"
    assert made.json()["partitions"] == 5
    assert made.json()["replication_factor"] == 1
    seen = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=10).topics["orders"]
    assert sorted(seen.partitions) == [0, 1, 2, 3, 4]
    configs = {each["name"]: each for each in http.get("/topics/orders/configs").json()["configs"]}
    assert configs["retention.ms"]["value"] == "12345"


def test_topic_without_a_number_of_partitions_has_the_brokers_default(http: httpx.Client) -> None:
    assert http.post("/topics", json={"name": "plain"}).json()["partitions"] == 3


def test_topic_that_is_there_is_not_created_again(http: httpx.Client) -> None:
    http.post("/topics", json={"name": "once"})
    assert error_of(http.post("/topics", json={"name": "once"}), 409)["code"] == "topic_already_exists"


@pytest.mark.parametrize(
    "body",
    [
        {"name": "a b"},
        {"name": ""},
        {"name": "x" * 250},
        {"name": "x", "partitions": 0},
        {"name": "x", "partitions": 10**9},
        {"name": "x", "configs": {"no.such.setting": "1"}},
        {"name": "x", "configs": {"retention.ms": "soon"}},
        {"name": "x", "configs": {"retention.ms": None}},
        {"name": "x", "configs": {"retention.ms": 0.5}},
        {"name": ".."},
        {"name": "x", "surprise": 1},
        {},
    ],
)
def test_bad_topic_is_refused_and_nothing_is_made(http: httpx.Client, body: object) -> None:
    error_of(http.post("/topics", json=body), 400)
    assert http.get("/topics/x").status_code == 404


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"replication_factor": 2}, "invalid_replication_factor"),
        ({"configs": {"min.insync.replicas": 2}}, "not_enough_replicas"),
        ({"configs": {"min.compaction.lag.ms": 2, "max.compaction.lag.ms": 1}}, "invalid_config"),
    ],
)
def test_topic_that_does_not_go_with_what_there_is_is_a_conflict(
    http: httpx.Client, more: dict[str, object], code: str
) -> None:
    assert error_of(http.post("/topics", json={"name": "x", **more}), 409)["code"] == code
    assert http.get("/topics/x").status_code == 404


def test_topic_that_differs_in_a_dot_alone_is_a_conflict(http: httpx.Client) -> None:
    http.post("/topics", json={"name": "alike.one"})
    like = error_of(http.post("/topics", json={"name": "alike_one"}), 409)
    assert like["code"] == "invalid_topic_exception"
    produced = error_of(http.post("/produce", json={"topic": "alike_one", "value": None}), 409)
    assert produced["code"] == "invalid_topic_exception"


def test_number_without_anything_behind_its_point_is_whole(http: httpx.Client) -> None:
    """JSON Schema: 4.0 is an integer."""
    body = {"name": "floats", "partitions": 4.0, "configs": {"retention.ms": 12345.0}}
    assert http.post("/topics", json=body).json()["partitions"] == 4
    configs = {each["name"]: each for each in http.get("/topics/floats/configs").json()["configs"]}
    assert configs["retention.ms"]["value"] == "12345"
    for partitions in (4.5, "4", True):
        error_of(http.patch("/topics/floats", json={"partitions": partitions}), 400)


def test_description_says_who_leads_and_what_each_partition_holds(broker: Broker, http: httpx.Client) -> None:
    http.post("/topics", json={"name": "described", "partitions": 2})
    write(broker, "described", [b"one", b"two", b"three"], partition=1)
    described = http.get("/topics/described").json()
    first, second = described["partitions"]
    assert first["end"] == first["high_watermark"] == first["size_bytes"] == 0
    node = first["leader"]
    assert (second["leader"], second["replicas"], second["isr"]) == (node, [node], [node])
    assert (second["log_start"], second["end"], second["high_watermark"]) == (0, 3, 3)
    assert second["last_stable"] == 3
    assert second["size_bytes"] > 61
    assert not described["internal"]


def test_partitions_are_added_and_never_taken_away(http: httpx.Client) -> None:
    http.post("/topics", json={"name": "grows", "partitions": 2})
    grown = http.patch("/topics/grows", json={"partitions": 4})
    assert [each["partition"] for each in grown.json()["partitions"]] == [0, 1, 2, 3]
    assert http.patch("/topics/grows", json={"partitions": 4}).status_code == 200
    assert error_of(http.patch("/topics/grows", json={"partitions": 3}), 409)["code"] == "invalid_partitions"
    too_many = error_of(http.patch("/topics/grows", json={"partitions": 10_005}), 409)
    assert too_many["code"] == "policy_violation"


def test_deleted_topic_is_gone(http: httpx.Client) -> None:
    http.post("/topics", json={"name": "doomed"})
    assert http.delete("/topics/doomed").json() == {"status": "deleted"}
    for response in (http.get("/topics/doomed"), http.delete("/topics/doomed")):
        assert error_of(response, 404)["code"] == "unknown_topic_or_partition"


def test_list_is_in_pages_by_name(http: httpx.Client) -> None:
    for name in ("page-a", "page-b", "page-c"):
        http.post("/topics", json={"name": name})
    found, after = [], ""
    while after is not None:
        page = http.get("/topics", params={"limit": 2, "after": after}).json()
        assert len(page["topics"]) <= 2
        found += [each["name"] for each in page["topics"]]
        after = page["next"]
    assert found == sorted(found)
    assert {"page-a", "page-b", "page-c"} <= set(found)


def test_topics_of_the_cluster_itself_are_listed_only_on_request(http: httpx.Client) -> None:
    http.post("/topics", json={"name": "mine"})
    assert http.post("/groups/any/offsets", json={"topic": "mine", "to": "earliest"}).status_code == 200
    names = {each["name"] for each in http.get("/topics").json()["topics"]}
    every = {each["name"]: each for each in http.get("/topics?internal=true").json()["topics"]}
    assert "__consumer_offsets" not in names
    assert every["__consumer_offsets"]["internal"]
    assert error_of(http.delete("/topics/__consumer_offsets"), 403)["code"] == "invalid_topic_exception"


@pytest.mark.parametrize("query", ["limit=0", "limit=10001", "internal=yes", "unknown=1", "limit=1&limit=2"])
def test_bad_parameter_is_named(http: httpx.Client, query: str) -> None:
    assert query.partition("=")[0] in error_of(http.get(f"/topics?{query}"), 400)["message"]
