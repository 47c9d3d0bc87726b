"""/join, /consume, /commit and /leave, from outside, beside Kafka clients in the same groups."""

import json
import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.test_docs import ROOT, blocks

from penstock.testing import Broker

TIMEOUT_S = 90


class Answer(NamedTuple):
    status: int
    body: Any


class Caller:
    """Consumers over HTTP, with a connection for each call; a test has a group and a topic of its own."""

    def __init__(self, broker: Broker, name: str = "g") -> None:
        self.broker = broker
        self.group, self.topic = f"{name}-group", f"{name}-topic"

    def __call__(self, method: str, path: str, **query: Any) -> Answer:
        address = urlsplit(self.broker.http_url)
        assert address.hostname is not None
        connection = HTTPConnection(address.hostname, address.port, timeout=TIMEOUT_S)
        try:
            connection.request(method, f"{path}?{urlencode(query)}")
            response = connection.getresponse()
            assert response.getheader("content-type") == "application/json"
            return Answer(response.status, json.loads(response.read()))
        finally:
            connection.close()

    def join(self, consumer: str, **more: Any) -> list[int]:
        asked = {"group": self.group, "consumer": consumer, "topic": self.topic, **more}
        status, body = self("POST", "/join", **asked)
        assert (status, body["status"]) == (200, "joined"), body
        assigned: list[int] = body["assignments"][self.topic]
        return assigned

    def leave(self, consumer: str) -> Answer:
        return self("POST", "/leave", group=self.group, consumer=consumer)

    def consume(self, consumer: str, partition: int, **more: Any) -> Answer:
        asked = {"group": self.group, "consumer": consumer, "topic": self.topic, "partition": partition}
        return self("GET", "/consume", **asked, **more)

    def values(self, consumer: str, partition: int, **more: Any) -> list[bytes]:
        status, body = self.consume(consumer, partition, **more)
        assert status == 200, body
        return [b64decode(each["value"]) for each in body["messages"]]

    def commit(self, partition: int, offset: int, **more: Any) -> Answer:
        asked = {"group": self.group, "topic": self.topic, "partition": partition, "offset": offset}
        return self("POST", "/commit", **asked, **more)

    def write(self, partition: int, *values: bytes | None, **more: Any) -> None:
        """As a Kafka client does."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for value in values:
            producer.produce(self.topic, value, partition=partition, **more)
        assert producer.flush(TIMEOUT_S) == 0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http=True, settings={"group.consumer.heartbeat.interval.ms": 500}) as broker:
        yield broker


_numbers = count()


@pytest.fixture
def http(broker: Broker) -> Caller:
    return Caller(broker, f"test-{next(_numbers)}")


def test_the_calls_of_the_design_have_the_shapes_of_the_design(broker: Broker, http: Caller) -> None:
    """DESIGN section 2, Kafka-JR."""
    ask = {"group": http.group, "topic": http.topic}
    assert http("POST", "/join", consumer="alice", **ask) == (
        200,
        {"status": "joined", "assignments": {http.topic: [0, 1, 2]}},
    )
    assert http.join("bob") == [1]
    http.write(0, b"paid", key=b"customer-7", timestamp=1_700_000_000_000)
    consumed = http("GET", "/consume", consumer="alice", partition=0, max_messages=5, **ask)
    assert consumed == (
        200,
        {
            "messages": [
                {
                    "offset": 0,
                    "timestamp": 1_700_000_000_000,
                    "key": b64encode(b"customer-7").decode(),
                    "value": b64encode(b"paid").decode(),
                }
            ],
            "next_offset": 1,
        },
    )
    assert http("POST", "/commit", partition=0, offset=1, **ask) == (200, {"status": "committed"})
    assert http.consume("alice", 0) == (200, {"messages": [], "next_offset": 1})
    assert http.consume("alice", 1)[1]["error"]["assignments"] == {http.topic: [0, 2]}
    assert http.join("charlie") == [2]
    assert http.join("alice") == [0]
    assert http.leave("alice") == (200, {"status": "left"})
    assert http.consume("alice", 0).status == 409


def test_a_member_that_reads_what_is_not_its_own_is_told_what_is(http: Caller) -> None:
    http.join("alice")
    http.join("bob")
    status, body = http.consume("alice", 1)
    assert status == 409
    assert body["error"].pop("message")
    assert body == {"error": {"code": "not_assigned", "assignments": {http.topic: [0, 2]}}}
    status, body = http.consume("mallory", 1)
    assert (status, body["error"]["code"]) == (409, "unknown_member")


def test_keys_values_and_headers_that_are_not_there_and_bytes_of_any_kind(
    broker: Broker, http: Caller
) -> None:
    broker.create_topic(http.topic, 3)
    http.write(0, None, key=b"\xff\x00", headers=[("a", b"\x80"), ("b", None)])
    http.write(0, b"")
    status, body = http("GET", "/consume", group=http.group, topic=http.topic, partition=0)
    assert status == 200
    first, second = body["messages"]
    assert (first["key"], first["value"]) == ("/wA=", None)
    assert first["headers"] == [{"key": "a", "value": "gA=="}, {"key": "b", "value": None}]
    assert (second["key"], second["value"]) == (None, "")
    assert "headers" not in second


def test_records_of_an_aborted_transaction_are_not_shown_and_need_not_be_read_again(
    broker: Broker, http: Caller
) -> None:
    broker.create_topic(http.topic, 3)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": http.group})
    producer.init_transactions(TIMEOUT_S)
    for value, is_kept in ((b"no", False), (b"yes", True)):
        producer.begin_transaction()
        producer.produce(http.topic, value, partition=0)
        if is_kept:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.flush(TIMEOUT_S)
            producer.abort_transaction(TIMEOUT_S)
            asked = {"group": http.group, "topic": http.topic, "partition": 0}
            assert http("GET", "/consume", **asked) == (200, {"messages": [], "next_offset": 2})
    assert http.values("anybody", 0) == [b"yes"]
    assert http.consume("anybody", 0).body["next_offset"] == 4


def test_a_call_that_waits_is_answered_by_what_a_kafka_client_writes(broker: Broker, http: Caller) -> None:
    http.join("alice")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(http.values, "alice", 0, wait_ms=20_000)
        http.write(0, b"now")
        assert waiting.result(TIMEOUT_S) == [b"now"]


def test_a_call_that_waits_ends_when_its_partition_goes_to_another(http: Caller) -> None:
    http.join("alice")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(http.consume, "alice", 1, wait_ms=20_000)
        http.join("bob")
        status, body = waiting.result(TIMEOUT_S)
    assert (status, body["error"]["code"]) == (409, "not_assigned")
    assert body["error"]["assignments"] == {http.topic: [0, 2]}


JOIN = {"group": "shared-group", "consumer": "alice", "topic": "shared-topic"}
READ = {"group": "shared-group", "topic": "shared-topic", "partition": 0}
COMMIT = {**READ, "offset": 0}


@pytest.mark.parametrize(
    ("status", "method", "path", "query"),
    [
        (400, "POST", "/join", {"group": "g", "consumer": "alice"}),
        (400, "POST", "/join", {**JOIN, "group": ""}),
        (400, "POST", "/join", {**JOIN, "consumer": "x" * 250}),
        (400, "POST", "/join", {**JOIN, "topic": "no/such name"}),
        (400, "POST", "/join", {**JOIN, "topic": "a,,b"}),
        (400, "POST", "/join", {**JOIN, "topic": ",".join(f"t{number}" for number in range(101))}),
        (400, "POST", "/join", {**JOIN, "session_timeout_ms": 999}),
        (400, "POST", "/join", {**JOIN, "session_timeout_ms": "soon"}),
        (400, "POST", "/join", {**JOIN, "more": "less"}),
        (405, "GET", "/join", JOIN),
        (404, "POST", "/leave", {"group": "g", "consumer": "nobody"}),
        (400, "POST", "/leave", {"group": "g"}),
        (400, "GET", "/consume", {**READ, "partition": -1}),
        (400, "GET", "/consume", {**READ, "max_messages": 0}),
        (400, "GET", "/consume", {**READ, "max_messages": 10_001}),
        (400, "GET", "/consume", {**READ, "wait_ms": 60_001}),
        (404, "GET", "/consume", {**READ, "partition": 3}),
        (404, "GET", "/consume", {**READ, "topic": "other"}),
        (400, "POST", "/commit", {**COMMIT, "offset": -1}),
        (409, "POST", "/commit", {**COMMIT, "offset": 1}),
        (400, "POST", "/commit", {**COMMIT, "offset": 2**63}),
        (400, "POST", "/commit", READ),
        (404, "POST", "/commit", {**COMMIT, "partition": 3}),
    ],
)
def test_what_is_wrong_is_said_and_costs_nothing_else(
    shared: Caller, status: int, method: str, path: str, query: dict[str, Any]
) -> None:
    answer = shared(method, path, **query)
    assert answer.status == status, answer.body
    assert set(answer.body["error"]) == {"code", "message"}
    assert shared.commit(0, 0).status == 200


@pytest.fixture(scope="module")
def shared(broker: Broker) -> Caller:
    http = Caller(broker, "shared")
    broker.create_topic(http.topic, 3)
    return http


def test_names_may_be_anything(http: Caller) -> None:
    for name in ("älice & bob", "a/b?c=d", "名前", "-1"):
        assert http.join(name, group=f"of {name}") == [0, 1, 2]
        assert http("POST", "/leave", group=f"of {name}", consumer=name).status == 200


# What others see.


def test_members_are_seen_by_the_command_and_by_kafkas_administrators(broker: Broker, http: Caller) -> None:
    http.join("alice")
    http.join("bob")
    http.write(0, b"a", b"b", b"c")
    assert http.commit(0, 2).status == 200
    said = subprocess.run(
        [
            sys.executable,
            "-m",
            "penstock",
            "groups",
            "describe",
            http.group,
            "--json",
            "--server",
            broker.bootstrap,
        ],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    described = json.loads(said.stdout)
    [group] = described["groups"]
    assert (group["state"], group["type"]) == ("Stable", "consumer")
    seen = {
        each["memberId"]: (
            each["clientId"],
            each["host"],
            sorted(part["partition"] for part in each["assignment"]),
        )
        for each in group["members"]
    }
    assert seen == {"alice": ("http", "127.0.0.1", [0, 2]), "bob": ("http", "127.0.0.1", [1])}
    lags = {each["partition"]: (each["committedOffset"], each["lag"]) for each in group["partitions"]}
    assert lags[0] == (2, 1)

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    found = admin.describe_consumer_groups([http.group])[http.group].result(TIMEOUT_S)
    assert {each.member_id: each.client_id for each in found.members} == {"alice": "http", "bob": "http"}
    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(http.group)])[
        http.group
    ].result(TIMEOUT_S)
    assert [(each.partition, each.offset) for each in offsets.topic_partitions] == [(0, 2)]


# Beside Kafka clients.


def until(condition: Callable[[], bool], consumer: Consumer) -> list[Any]:
    """Poll until the condition holds; what was read meanwhile."""
    read = []
    for _ in range(TIMEOUT_S * 20):
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            read.append(message)
        if condition():
            return read
    raise AssertionError("it never came to be")


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
@pytest.mark.parametrize("first", ["http", "kafka"])
def test_each_record_is_read_by_its_owner_whoever_made_the_group(
    broker: Broker, http: Caller, protocol: str, first: str
) -> None:
    broker.create_topic(http.topic, 3)
    kafka: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": http.group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    if protocol == "classic":
        kafka |= {
            "heartbeat.interval.ms": 300,
            "partition.assignment.strategy": "cooperative-sticky",
        }
    consumer = Consumer(kafka)
    try:
        if first == "http":
            http.join("alice")
        consumer.subscribe([http.topic])
        has = lambda: sorted(each.partition for each in consumer.assignment())  # noqa: E731
        if first == "kafka":
            until(lambda: has() == [0, 1, 2], consumer)
        mine: list[int] = []

        def settled() -> bool:
            mine[:] = http.join("alice")
            return bool(mine) and bool(has()) and sorted([*mine, *has()]) == [0, 1, 2]

        until(settled, consumer)
        assert 1 <= len(mine) <= 2
        for partition in range(3):
            http.write(partition, *(b"%d-%d" % (partition, number) for number in range(10)))
        theirs: list[bytes] = []

        def all_read() -> bool:
            return len(theirs) >= 10 * len(has())

        for _ in range(TIMEOUT_S * 20):
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                theirs.append(message.value())
            if all_read():
                break
        consumer.commit(asynchronous=False)
        ours = [value for partition in mine for value in http.values("alice", partition)]
        for partition in mine:
            assert http.commit(partition, 10).status == 200
        for partition in has():
            assert http.consume("alice", partition).status == 409
            assert http.commit(partition, 0).body["error"]["code"] == "owned_elsewhere"
        assert sorted([*ours, *theirs]) == sorted(
            b"%d-%d" % (partition, number) for partition in range(3) for number in range(10)
        )
        committed = consumer.committed([TopicPartition(http.topic, each) for each in range(3)], TIMEOUT_S)
        assert [each.offset for each in committed] == [10, 10, 10]
        assert http.leave("alice").status == 200
        until(lambda: has() == [0, 1, 2], consumer)
    finally:
        consumer.close()
    assert http.join("alice") == [0, 1, 2]


# After a stop.


@pytest.mark.parametrize("how", [Broker.stop, Broker.kill])
def test_a_broker_that_comes_back_knows_its_members(
    broker: Broker, http: Caller, how: Callable[[Broker], None]
) -> None:
    http.join("alice")
    http.join("bob")
    http.write(1, b"a", b"b")
    assert http.commit(1, 1, consumer="bob").status == 200
    how(broker)
    broker.start()
    assert http.values("bob", 1) == [b"b"]
    assert http.consume("alice", 1).body["error"]["assignments"] == {http.topic: [0, 2]}
    assert http.join("charlie") == [2]


def test_a_session_that_is_over_frees_its_partitions(http: Caller) -> None:
    http.join("alice", session_timeout_ms=1_000)
    http.join("bob")
    http.consume("bob", 1, wait_ms=1_001)
    assert http.join("bob") == [0, 1, 2]


def test_the_commands_of_the_page_do_what_it_says(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("orders", 3)
    http = Caller(broker)
    http.topic = "orders"
    http.write(0, b"paid", key=b"customer-7")
    http.write(0, b"shipped")
    page = (ROOT / "docs/http-groups.md").read_text()
    [commands] = blocks("sh", page)
    script = commands.replace("http://127.0.0.1:8080", broker.http_url).replace("\ncurl", "\necho\ncurl")
    said = subprocess.run(
        ["sh", "-e", "-c", script],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        cwd=tmp_path,
    )
    assert said.returncode == 0, said.stderr
    joined, consumed, committed, left = (json.loads(line) for line in said.stdout.splitlines())
    shown = blocks("json", page)[0].replace(",\n ", ", ").splitlines()
    assert joined == json.loads(shown[0])
    expected = json.loads(shown[1])
    for message, wanted in zip(consumed["messages"], expected["messages"], strict=True):
        assert message.pop("timestamp") > 0
        assert wanted.pop("timestamp") > 0
        assert message == wanted
    assert consumed["next_offset"] == expected["next_offset"]
    assert [committed, left] == [json.loads(each) for each in shown[2:]]
