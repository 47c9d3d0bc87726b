"""A cluster whose every node has all doors, and what is asked through them."""

import json
import socket
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from penstock.testing import Broker, Cluster

SETTINGS = {
    "default.replication.factor": 3,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.num.partitions": 6,
    "min.insync.replicas": 2,
}


def doors(**settings: object) -> Cluster:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Cluster(brokers=3, http=True, line=True, settings=SETTINGS | named)


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(broker: Broker, method: str, target: str, body: object = None) -> Answer:
    """One HTTP request, whatever comes of it."""
    connection = HTTPConnection(urlsplit(broker.http_url).netloc, timeout=90)
    try:
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, target, data, {"Content-Type": "application/json"} if data else {})
        response = connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read())
    finally:
        connection.close()


def good(broker: Broker, method: str, target: str, body: object = None) -> Any:
    answer = ask(broker, method, target, body)
    assert answer.status in (200, 201), answer.body
    return answer.json


def produce(
    broker: Broker, topic: str, value: str, *, seconds_max: float = 0, **more: object
) -> tuple[int, int]:
    """Where a record is now; `key` is text. A 503, of which nothing was written, is tried again for so long: on a busy
    machine an election may take longer than a node waits for it. So is a 504, which does not know, where there is an
    idempotency key."""
    key = more.pop("key", None)
    record = {"topic": topic, "value": b64encode(value.encode()).decode(), **more}
    if isinstance(key, str):
        record["key"] = b64encode(key.encode()).decode()
    again = (503, 504) if "idempotency_key" in more else (503,)
    until = time.monotonic() + seconds_max
    while (answer := ask(broker, "POST", "/produce", record)).status in again and time.monotonic() < until:
        pass  # the node has waited
    assert answer.status == 200, answer.body
    return answer.json["partition"], answer.json["offset"]


def values(broker: Broker, topic: str) -> list[str]:
    """Of all records of a topic, as one node shows them."""
    page = good(broker, "GET", f"/topics/{topic}/records?decode=text&limit=10000")
    assert page["next"] is None
    return [each["value"] for each in page["records"]]


def consumed(broker: Broker, group: str, topic: str, partition: int, **more: object) -> list[str]:
    query = "&".join(f"{name}={value}" for name, value in more.items())
    told = good(
        broker,
        "GET",
        f"/consume?group={group}&topic={topic}&partition={partition}" + (f"&{query}" if query else ""),
    )
    return [b64decode(each["value"]).decode() for each in told["messages"]]


def leaders(broker: Broker, topic: str) -> dict[int, int]:
    """By partition, the broker that leads it."""
    return {
        each["partition"]: each["leader"] for each in good(broker, "GET", f"/topics/{topic}")["partitions"]
    }


def eventually(is_so: Callable[[], bool], what: str, seconds_max: float = 90) -> None:
    """For what the cluster decides in its own time."""
    until = time.monotonic() + seconds_max
    while not is_so():
        assert time.monotonic() < until, f"not within {seconds_max} s: {what}"
        time.sleep(0.02)


class Events:
    """A topic's tail, as server-sent events."""

    def __init__(self, broker: Broker, target: str) -> None:
        self._connection = HTTPConnection(urlsplit(broker.http_url).netloc, timeout=90)
        self._connection.request("GET", target)
        self._response = self._connection.getresponse()
        assert self._response.status == 200, self._response.read()

    def next(self) -> Any:
        """The next record."""
        while True:
            line = self._response.readline()
            assert line, "the stream has ended"
            if line.startswith(b"data: "):
                return json.loads(line[6:])

    def close(self) -> None:
        self._connection.close()


@contextmanager
def tailing(broker: Broker, target: str) -> Iterator[Events]:
    events = Events(broker, target)
    try:
        yield events
    finally:
        events.close()


class Line:
    """A client of the line protocol."""

    def __init__(self, broker: Broker) -> None:
        self._socket = socket.create_connection(("127.0.0.1", broker.line_port), timeout=90)
        self._file = self._socket.makefile("rb")

    def say(self, text: str) -> None:
        self._socket.sendall(text.encode())

    def hear(self) -> str:
        return self._file.readline().decode().rstrip("\n")

    def message(self) -> tuple[int, str]:
        """The partition and the value of the next message, which is acknowledged; `+EMPTY` is passed over."""
        while (words := self.hear().split(" "))[0] == "+EMPTY":
            pass
        assert words[0] == "+MSG", words
        value = self._file.read(int(words[2])).decode()
        self.say("ACK\n")
        while (told := self.hear()) == "+EMPTY":
            pass
        assert told == "+OK", told
        return int(words[3]), value

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@contextmanager
def line(broker: Broker) -> Iterator[Line]:
    client = Line(broker)
    try:
        yield client
    finally:
        client.close()
