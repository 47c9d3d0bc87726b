"""`POST /produce`, driven from outside: what is written is read by Kafka's clients, and what is wrong is told."""

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.compat.clients.patient import wait_until
from tests.gateway.http.rest import client_of, error_of, producer

from penstock.base.hashing import partition_of_key
from penstock.gateway.http.produce import RECORDS_MAX
from penstock.gateway.idempotency import HEADER
from penstock.gateway.shared import producer as producing
from penstock.testing import Broker, Cluster


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http=True) as broker:
        yield broker


@pytest.fixture(scope="module")
def http(broker: Broker) -> Iterator[httpx.Client]:
    with client_of(broker) as client:
        yield client


def text(data: bytes) -> str:
    return b64encode(data).decode()


def produce(http: httpx.Client, topic: str, value: bytes | None = b"v", **more: Any) -> dict[str, Any]:
    body = {"topic": topic, "value": None if value is None else text(value), **more}
    response = http.post("/produce", json=body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    assert set(answer) == {"topic", "partition", "offset"}
    assert answer["topic"] == topic
    return answer


def read(broker: Broker, topic: str, count: int, partitions: int = 3) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "-", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        return consumer.consume(count, timeout=90)
    finally:
        consumer.close()


def test_a_record_is_read_by_a_kafka_client(broker: Broker, http: httpx.Client) -> None:
    placed = produce(
        http,
        "read-back",
        b"\x00value\xff",
        key=text(b"\x00key\xff"),
        headers=[{"key": "a", "value": text(b"1")}, {"key": "a", "value": None}],
        idempotency_key="i",
    )
    [message] = read(broker, "read-back", 1)
    assert (message.partition(), message.offset()) == (placed["partition"], placed["offset"])
    assert (message.key(), message.value()) == (b"\x00key\xff", b"\x00value\xff")
    assert message.headers() == [("a", b"1"), ("a", None), (HEADER, b"i")]


def test_headers_may_be_an_object(broker: Broker, http: httpx.Client) -> None:
    produce(http, "object-headers", headers={"trace": text(b"42"), "empty": None})
    [message] = read(broker, "object-headers", 1)
    assert message.headers() == [("trace", b"42"), ("empty", None)]


def test_headers_may_be_null(broker: Broker, http: httpx.Client) -> None:
    produce(http, "no-headers", headers=None, key=None, partition=None, idempotency_key=None)
    listed = http.post("/produce", json=[{"topic": "no-headers", "value": text(b"w"), "headers": None}])
    assert listed.status_code == 200
    assert [each.headers() for each in read(broker, "no-headers", 2)] == [None, None]


def test_null_is_a_tombstone(broker: Broker, http: httpx.Client) -> None:
    produce(http, "tombstones", None, key=text(b"k"))
    [message] = read(broker, "tombstones", 1)
    assert (message.key(), message.value()) == (b"k", None)


def test_keys_go_where_a_kafka_client_sends_them(broker: Broker, http: httpx.Client) -> None:
    """librdkafka's `murmur2_random` is the Java client's default."""
    produce(http, "keys")
    writer = producer(broker, partitioner="murmur2_random")
    theirs: dict[bytes, int] = {}
    keys = [f"customer-{number}".encode() for number in range(20)]
    for key in keys:
        writer.produce("keys", b"v", key, on_delivery=lambda _, m: theirs.update({m.key(): m.partition()}))
    assert writer.flush(20) == 0
    assert {key: produce(http, "keys", key=text(key))["partition"] for key in keys} == theirs


def test_records_without_a_key_are_spread_evenly(http: httpx.Client) -> None:
    assert Counter(produce(http, "evenly")["partition"] for _ in range(12)) == {0: 4, 1: 4, 2: 4}


def test_the_same_idempotency_key_gets_the_first_offset(broker: Broker, http: httpx.Client) -> None:
    first = produce(http, "once", b"first", idempotency_key="order 17 ä")
    assert first["partition"] == partition_of_key("order 17 ä".encode(), 3)
    assert produce(http, "once", b"second", idempotency_key="order 17 ä") == first
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions("once", 7)])["once"].result(20)
    assert produce(http, "once", b"third", idempotency_key="order 17 ä") == first
    produce(http, "once", b"last")
    assert sorted(each.value() for each in read(broker, "once", 2, partitions=7)) == [b"first", b"last"]


def test_a_list_has_a_result_for_each_record(broker: Broker, http: httpx.Client) -> None:
    body = [
        {"topic": "lists", "value": text(b"0"), "partition": 0},
        {"topic": "lists", "value": text(b"1"), "partition": 0, "idempotency_key": "i"},
        {"topic": "lists", "value": text(b"2"), "partition": 1, "idempotency_key": "i"},
        {"topic": "lists", "value": text(b"3"), "partition": 99},
        {"topic": "other-lists", "value": text(b"4"), "partition": 2},
    ]
    response = http.post("/produce", json=body)
    assert response.status_code == 200
    first, second, third, fourth, fifth = response.json()
    assert first == {"topic": "lists", "partition": 0, "offset": 0}
    assert second == third == {"topic": "lists", "partition": 0, "offset": 1}
    assert (fourth["topic"], fourth["error"]["code"]) == ("lists", "unknown_topic_or_partition")
    assert set(fourth) == {"topic", "error"}
    assert fifth == {"topic": "other-lists", "partition": 2, "offset": 0}
    assert [each.value() for each in read(broker, "lists", 2)] == [b"0", b"1"]


def test_a_long_list_is_written(broker: Broker, http: httpx.Client) -> None:
    values = [b"%d" % number for number in range(RECORDS_MAX)]
    body = [{"topic": "long", "value": text(value), "key": text(b"k")} for value in values]
    response = http.post("/produce", json=body)
    assert response.status_code == 200, response.text
    places = response.json()
    assert [each["offset"] for each in places] == list(range(RECORDS_MAX))
    assert len({each["partition"] for each in places}) == 1
    assert [each.value() for each in read(broker, "long", RECORDS_MAX)] == values


def test_a_list_of_which_nothing_could_be_written_is_refused(http: httpx.Client) -> None:
    bad = {"topic": "no good", "value": text(b"v")}
    assert error_of(http.post("/produce", json=[bad, bad]), 400)["code"] == "invalid_topic_exception"


GOOD = {"topic": "refusals", "value": text(b"v")}

REFUSED: list[tuple[str, Any, int, str]] = [
    ("no body", b"", 400, ""),
    ("no JSON", b"{", 400, ""),
    ("a number", 17, 400, ""),
    ("an empty list", [], 400, ""),
    ("too many", [GOOD] * (RECORDS_MAX + 1), 400, "10000"),
    ("no topic", {"value": text(b"v")}, 400, "topic"),
    ("no value", {"topic": "refusals"}, 400, "value"),
    ("an unknown field", {**GOOD, "colour": "red"}, 400, "colour"),
    ("value that is no base64", {**GOOD, "value": "not base64!"}, 400, "value"),
    ("key that is no base64", {**GOOD, "key": "abc"}, 400, "key"),
    ("value that is no text", {**GOOD, "value": 17}, 400, "value"),
    ("value that is a number", {**GOOD, "value": 5}, 400, "Expected base64 text or null, got `int`"),
    ("value without its padding", {**GOOD, "value": "abc"}, 400, "base64 text, with `=`"),
    ("headers that are text", {**GOOD, "headers": "a"}, 400, "headers"),
    ("header that is no base64", {**GOOD, "headers": {"a": "*"}}, 400, "headers"),
    ("header without a key", {**GOOD, "headers": [{"value": None}]}, 400, "headers"),
    ("header of ours", {**GOOD, "headers": {HEADER: None}}, 400, HEADER),
    ("a bad name", {**GOOD, "topic": "a b"}, 400, "a b"),
    ("a long name", {**GOOD, "topic": "x" * 250}, 400, "249"),
    ("no name", {**GOOD, "topic": ""}, 400, "topic"),
    ("an internal topic", {**GOOD, "topic": "__consumer_offsets"}, 403, "__consumer_offsets"),
    ("a partition that is not there", {**GOOD, "partition": 3}, 404, "partition 3"),
    ("a partition below", {**GOOD, "partition": -1}, 400, "partition"),
    ("a partition beyond", {**GOOD, "partition": 2**31}, 400, "partition"),
    ("a partition with a comma", {**GOOD, "partition": 0.5}, 400, "partition"),
    ("an empty idempotency key", {**GOOD, "idempotency_key": ""}, 400, "idempotency_key"),
    ("a long idempotency key", {**GOOD, "idempotency_key": "x" * 257}, 400, "256"),
    ("one that is long in bytes", {**GOOD, "idempotency_key": "ä" * 129}, 400, "256"),
    ("a large record", {**GOOD, "value": text(b"x" * 1_100_000)}, 413, "1048588"),
]


@pytest.mark.parametrize(
    ("body", "status", "said"), [each[1:] for each in REFUSED], ids=[each[0] for each in REFUSED]
)
def test_what_is_wrong_is_reported_and_nothing_is_written(
    http: httpx.Client, body: Any, status: int, said: str
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    before = [produce(http, "refusals", partition=number)["offset"] for number in range(3)]
    response = http.post("/produce", content=content, headers={"content-type": "application/json"})
    error = error_of(response, status)
    assert said in error["message"]
    after = [produce(http, "refusals", partition=number)["offset"] for number in range(3)]
    assert after == [offset + 1 for offset in before]


def test_too_few_replicas_are_503() -> None:
    with Cluster(brokers=3, http=True) as cluster:
        cluster.create_topic("few", 1, 3, min_insync_replicas=3)
        cluster.brokers[2].stop()

        def in_sync(broker: Broker) -> int:
            shown = httpx.get(f"{broker.http_url}/topics/few", timeout=90).json()
            return len(shown["partitions"][0]["isr"])

        wait_until(lambda: all(in_sync(each) == 2 for each in cluster.brokers[:2]))
        response = httpx.post(
            f"{cluster.brokers[0].http_url}/produce",
            json={"topic": "few", "value": None, "key": text(b"k")},
            timeout=30,
        )
    assert error_of(response, 503)["code"] == "not_enough_replicas"


@pytest.mark.parametrize("behind", [b"", b"and more", b"\\u0041"])
def test_a_lone_surrogate_is_no_idempotency_key(http: httpx.Client, behind: bytes) -> None:
    body = b'{"topic": "refusals", "value": null, "idempotency_key": "\\ud800%b"}' % behind
    error = error_of(http.post("/produce", content=body, headers={"content-type": "application/json"}), 400)
    assert error["code"] == "bad_json"
    assert "surrogate pair" in error["message"]


def test_one_bad_record_of_a_list_does_not_keep_the_others_from_being_written(
    broker: Broker, http: httpx.Client
) -> None:
    broker.create_topic("compacted", cleanup_policy="compact")
    first = {"topic": "compacted", "value": text(b"1"), "key": text(b"x"), "idempotency_key": "a"}
    keyless = {"topic": "compacted", "value": text(b"2"), "idempotency_key": "b"}
    large = {**first, "value": text(b"x" * 1_100_000), "idempotency_key": "c"}
    last = {"topic": "compacted", "value": text(b"3"), "key": text(b"y"), "idempotency_key": "d"}

    for _ in range(2):  # the second time, those with a place keep it, and those without are refused again
        results = http.post("/produce", json=[first, keyless, large, last]).json()
        assert [each.get("offset") for each in results] == [0, None, None, 1]
        codes = [each["error"]["code"] for each in results if "error" in each]
        assert codes == ["invalid_record", "message_too_large"]
        assert "compacted" in results[1]["error"]["message"]

    assert produce(http, "compacted", b"2", key=text(b"z"), idempotency_key="b")["offset"] == 2
    assert [each.value() for each in read(broker, "compacted", 3, partitions=1)] == [b"1", b"3", b"2"]


def test_a_retry_finds_its_record_whatever_partition_it_names(http: httpx.Client) -> None:
    first = produce(http, "renamed", partition=2, idempotency_key="a")
    assert produce(http, "renamed", partition=99, idempotency_key="a") == first
    refused = http.post(
        "/produce", json={"topic": "renamed", "value": "", "partition": 99, "idempotency_key": "b"}
    )
    assert error_of(refused, 404)["code"] == "unknown_topic_or_partition"
    assert produce(http, "renamed", partition=0, idempotency_key="b")["partition"] == 0


def test_one_call_makes_no_more_topics_than_it_may(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producing, "TOPICS_MADE_MAX", 2)
    results = http.post("/produce", json=[{"topic": f"many-{n}", "value": ""} for n in range(4)]).json()
    assert ["offset" in each for each in results] == [True, True, False, False]
    assert {each["error"]["code"] for each in results[2:]} == {"policy_violation"}
    assert error_of(http.get("/topics/many-3"), 404)
