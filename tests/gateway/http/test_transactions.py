"""Transactions over HTTP: those of a real producer, and one that hangs."""

from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka import KafkaException, Producer
from tests.cli.group_tour import produced_code, stray_batch
from tests.gateway.http.rest import client_of, error_of

from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.coordinators import ask_leader
from penstock.client.settings import parse_servers
from penstock.testing import Broker

pytestmark = pytest.mark.xdist_group("http-transactions")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http=True) as started:
        yield started


@pytest.fixture(scope="module")
def http(broker: Broker) -> Iterator[httpx.Client]:
    with client_of(broker) as client:
        yield client


def begin(broker: Broker, name: str, topic: str) -> Producer:
    """A producer with an open transaction, whose record is written."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"maybe", partition=0)
    assert producer.flush(20) == 0
    return producer


def test_there_is_nothing_before_the_first_transaction() -> None:
    with Broker(http=True) as broker, client_of(broker) as http:
        assert http.get("/transactions").json() == {"transactions": [], "next": None}
        assert http.get("/hanging-transactions").json() == {"transactions": [], "unavailable": []}
        assert error_of(http.get("/transactions/nobody"), 404)["code"] == "transactional_id_not_found"
        assert error_of(http.post("/transactions/nobody/abort"), 404)["code"] == "transactional_id_not_found"


def test_an_open_transaction_is_shown_and_an_abort_ends_it(broker: Broker, http: httpx.Client) -> None:
    broker.create_topic("orders")
    producer = begin(broker, "billing/1", "orders")
    [row] = http.get("/transactions", params={"state": "Ongoing", "older_than_ms": 0}).json()["transactions"]
    assert (row["transactional_id"], row["state"], row["coordinator"]) == ("billing/1", "Ongoing", 1)
    described = http.get("/transactions/billing%2F1").json()
    assert described["partitions"] == [{"topic": "orders", "partition": 0}]
    assert described["is_open"]
    assert described["started_ms"] == row["started_ms"] > 0
    [known] = http.get("/topics/orders/partitions/0/producers").json()["producers"]
    assert (known["producer_id"], known["start_offset"]) == (row["producer_id"], 0)

    aborted = http.post("/transactions/billing%2F1/abort").json()
    assert (aborted["status"], aborted["partitions"]) == ("aborted", [{"topic": "orders", "partition": 0}])
    assert aborted["producer_epoch"] > described["producer_epoch"]
    with pytest.raises(KafkaException):
        producer.commit_transaction(20)
    [known] = http.get("/topics/orders/partitions/0/producers").json()["producers"]
    assert known["start_offset"] is None
    assert not http.get("/transactions/billing%2F1").json()["is_open"]
    assert http.get("/transactions", params={"state": "Ongoing"}).json()["transactions"] == []
    again = error_of(http.post("/transactions/billing%2F1/abort"), 409)
    assert again["code"] == "no_open_transaction"
    partition = broker_bounds(http, "orders")
    assert partition["last_stable"] == partition["high_watermark"]


def broker_bounds(http: httpx.Client, topic: str) -> dict[str, int]:
    return http.get(f"/topics/{topic}").json()["partitions"][0]


def test_a_page_of_transactions_ends_where_the_next_begins(broker: Broker, http: httpx.Client) -> None:
    broker.create_topic("pages")
    producers = [begin(broker, f"page-{number}", "pages") for number in range(3)]
    first = http.get("/transactions", params={"after": "page-", "limit": 2}).json()
    assert [each["transactional_id"] for each in first["transactions"]] == ["page-0", "page-1"]
    rest = http.get("/transactions", params={"after": first["next"], "limit": 2}).json()
    assert ([each["transactional_id"] for each in rest["transactions"]], rest["next"]) == (["page-2"], None)
    for each in producers:
        each.abort_transaction(20)


def test_a_hanging_transaction_is_found_and_aborted_where_it_hangs(
    broker: Broker, http: httpx.Client
) -> None:
    broker.create_topic("stuck")
    check = "transaction.partition.verification.enable"  # which keeps such a write out
    assert http.patch("/cluster/configs", json={"configs": {check: False}}).status_code == 200
    with Cluster(parse_servers(broker.bootstrap)) as cluster:
        reply = ask_leader(cluster, TopicPartition("stuck", 0), stray_batch(987_654), produced_code)
    assert produced_code(reply) == 0
    assert http.patch("/cluster/configs", json={"configs": {check: None}}).status_code == 200
    open_one = begin(broker, "not-hanging", "stuck")

    [found] = http.get("/hanging-transactions", params={"older_than_ms": 0}).json()["transactions"]
    assert (found["topic"], found["partition"], found["start_offset"]) == ("stuck", 0, 0)
    assert (found["producer_id"], found["transactional_id"]) == (987_654, None)
    later = {"older_than_ms": 2**60}
    assert http.get("/hanging-transactions", params=later).json()["transactions"] == []

    path = "/topics/stuck/partitions/0/producers/abort"
    wrong = error_of(http.post(path, json={"start_offset": 77}), 409)
    assert wrong["message"] == "no open transaction begins at offset 77 of stuck-0: they begin at 0, 1"
    aborted = http.post(path, json={"start_offset": 0}).json()
    assert (aborted["producer_id"], aborted["status"]) == (987_654, "aborted")
    assert http.get("/hanging-transactions", params={"older_than_ms": 0}).json()["transactions"] == []
    open_one.commit_transaction(20)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/transactions?state=Open", "bad_parameter"),
        ("/transactions?older_than_ms=-1", "bad_parameter"),
        ("/transactions?state=Ongoing,Ongoing", "bad_parameter"),
        ("/hanging-transactions?older_than_ms=soon", "bad_parameter"),
        ("/topics/orders/partitions/x/producers", "bad_parameter"),
    ],
)
def test_a_wrong_parameter_is_named(http: httpx.Client, path: str, code: str) -> None:
    assert error_of(http.get(path), 400)["code"] == code


def test_producers_of_what_does_not_exist_are_404(http: httpx.Client) -> None:
    assert error_of(http.get("/topics/nothing/partitions/0/producers"), 404)
    assert error_of(http.get("/topics/stuck/partitions/9/producers"), 404)
