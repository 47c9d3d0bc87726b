"""A topic as it grows, as server-sent events."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import httpx
import pytest
from tests.gateway.http.rest import client_of, error_of, producer, write
from tests.nodes import StillNode

from penstock.base.promise import Promise
from penstock.base.steps import RunningSteps
from penstock.gateway.http.protocol.messages import Request, Stream
from penstock.gateway.http.tail import ALL_SENT, KEEP_ALIVE_MS, NOTHING_CAME, ROUTES
from penstock.gateway.shared.gateway import Gateway
from penstock.gateway.shared.topics import ensure_topic
from penstock.handlers.support.context import Session
from penstock.testing import Broker

pytestmark = pytest.mark.xdist_group("http-tail")
"""One broker serves them all."""


class Event(NamedTuple):
    id: str
    kind: str
    data: Any


class Events:
    """What an `EventSource` would see."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self.last_id = ""
        self.comments = 0

    def __next__(self) -> Event:
        """The next event that has data."""
        kind, data = "message", None
        for line in self._lines:
            name, _, value = line.partition(": ")
            if line.startswith(":"):
                self.comments += 1
            elif name == "id":
                self.last_id = value
            elif name == "event":
                kind = value
            elif name == "data":
                data = json.loads(value)
            elif not line and data is not None:
                return Event(self.last_id, kind, data)
        raise StopIteration

    def __iter__(self) -> "Events":
        return self

    def begin(self) -> "Events":
        """Read what comes before the first record: from there on all that is written is told."""
        for line in self._lines:
            if line.startswith("id: "):
                self.last_id = line.removeprefix("id: ")
            elif not line:
                return self
        raise AssertionError("the stream ended before it began")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http=True) as started:
        yield started


@contextmanager
def tail(broker: Broker, topic: str, query: str = "", last_id: str = "") -> Iterator[Events]:
    headers = {"Last-Event-ID": last_id} if last_id else {}
    with (
        client_of(broker) as http,
        http.stream("GET", f"/topics/{topic}/tail?{query}", headers=headers) as response,
    ):
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["cache-control"] == "no-store"
        yield Events(response.iter_lines()).begin()


def test_records_come_as_they_are_written_from_now_on(broker: Broker) -> None:
    broker.create_topic("live", 2)
    write(broker, "live", [b"before"])
    with tail(broker, "live", "decode=text") as events:
        write(broker, "live", [b"one"], key=b"k", timestamps=[1000], headers=[("h", b"v")])
        assert next(events).data == {
            "partition": 0,
            "offset": 1,
            "timestamp": 1000,
            "key": "k",
            "value": "one",
            "headers": [{"key": "h", "value": "v"}],
        }
        write(broker, "live", [b"two"], partition=1)
        event = next(events)
        assert (event.data["partition"], event.data["value"]) == (1, "two")
        assert event.id == "0:1,1:0"


def test_from_the_beginning_and_from_an_offset(broker: Broker) -> None:
    broker.create_topic("old", 2)
    write(broker, "old", [b"%d" % number for number in range(5)])
    with tail(broker, "old", "from=beginning&decode=json") as events:
        assert [next(events).data["value"] for _ in range(5)] == [0, 1, 2, 3, 4]
    with tail(broker, "old", "from=3&partition=0&decode=json") as events:
        event = next(events)
        assert (event.data["value"], event.id) == (3, "0:3")


def test_stream_ends_after_as_many_events_as_were_asked_for(broker: Broker) -> None:
    broker.create_topic("some", 1)
    write(broker, "some", [b"%d" % number for number in range(5)])
    with tail(broker, "some", "from=2&max_events=2&decode=json") as events:
        assert [next(events).data["value"] for _ in range(2)] == [2, 3]
        last = events.last_id
        assert next(events).data == {"reason": ALL_SENT}
        assert next(events, None) is None
    with tail(broker, "some", "max_events=1&decode=json", last) as events:
        assert next(events).data["value"] == 4


def test_busy_topic_is_followed_with_gaps_that_are_counted(broker: Broker) -> None:
    """Everything is sent or counted, the newest is sent, and a reader that comes back misses no more."""
    broker.create_topic("busy", 2)
    with tail(broker, "busy", "max_rate=40&max_field_bytes=4&decode=text") as events:
        for partition in range(2):
            write(broker, "busy", [b"%06d" % number for number in range(500)], partition=partition)
        sent: list[dict[str, Any]] = []
        skipped = 0
        while len(sent) + skipped < 1000:
            event = next(events)
            if event.kind == "skipped":
                skipped += event.data["offsets"]
            else:
                sent.append(event.data)
        assert len(sent) + skipped == 1000
        assert skipped > 800
        assert {(each["partition"], each["offset"]) for each in sent} >= {(0, 499), (1, 499)}
        assert all(each["cut"] == {"value": 6} for each in sent)
    with tail(broker, "busy", "decode=text", events.last_id) as events:
        write(broker, "busy", [b"after"])
        assert next(events).data["value"] == "after"


def test_stream_without_waiting_has_what_is_there(broker: Broker) -> None:
    broker.create_topic("now", 2)
    write(broker, "now", [b"1", b"2"])
    with client_of(broker) as http:
        text = http.get("/topics/now/tail?from=beginning&wait_ms=0").text
        assert text.count('"offset":') == 2
        assert text.endswith(f'event: end\ndata: {{"reason":"{NOTHING_CAME}"}}\n\n')


def test_lost_connection_is_picked_up_behind_the_last_event(broker: Broker) -> None:
    """What was written meanwhile comes, to each partition, and nothing comes twice."""
    broker.create_topic("resumed", 3)
    with tail(broker, "resumed", "decode=text") as events:
        write(broker, "resumed", [b"seen"], partition=1)
        assert next(events).data["value"] == "seen"
        last_id = events.last_id
    for partition in (0, 1, 2):
        write(broker, "resumed", [b"missed %d" % partition], partition=partition)
    with tail(broker, "resumed", "decode=text", last_id) as events:
        assert {next(events).data["value"] for _ in range(3)} == {"missed 0", "missed 1", "missed 2"}
        write(broker, "resumed", [b"new"])
        assert next(events).data["value"] == "new"


def test_connection_that_breaks_before_the_first_record_misses_none(broker: Broker) -> None:
    broker.create_topic("early")
    write(broker, "early", [b"old"])
    with tail(broker, "early") as events:
        last_id = events.last_id
    write(broker, "early", [b"new"])
    with tail(broker, "early", "decode=text", last_id) as events:
        assert next(events).data["value"] == "new"


def test_undecided_records_come_when_they_are_committed_and_aborted_ones_never(broker: Broker) -> None:
    broker.create_topic("txn")
    client = producer(broker, **{"transactional.id": "tail"})
    client.init_transactions(10)
    with tail(broker, "txn", "decode=text") as events:
        for value, end in ((b"dropped", client.abort_transaction), (b"kept", client.commit_transaction)):
            client.begin_transaction()
            client.produce("txn", value, partition=0)
            client.flush(10)
            end(10)
        event = next(events)
        assert (event.data["value"], event.data["offset"]) == ("kept", 2)


def test_partition_that_the_topic_is_given_is_followed_from_its_beginning(broker: Broker) -> None:
    broker.create_topic("grows")
    with tail(broker, "grows", "decode=text") as events, client_of(broker) as http:
        http.patch("/topics/grows", json={"partitions": 2})
        write(broker, "grows", [b"in the new one"], partition=1)
        write(broker, "grows", [b"in the old one"], partition=0)
        assert {next(events).data["value"] for _ in range(2)} == {"in the new one", "in the old one"}


def test_stream_ends_with_a_word_when_its_topic_is_deleted(broker: Broker) -> None:
    broker.create_topic("doomed")
    with tail(broker, "doomed") as events, client_of(broker) as http:
        http.delete("/topics/doomed")
        [last] = list(events)
        assert (last.kind, last.data["reason"]) == ("end", "the topic was deleted")


def test_stream_ends_without_one_when_the_node_stops() -> None:
    """So that an EventSource comes back, and goes on."""
    with Broker(http=True) as broker:
        broker.create_topic("orders")
        with tail(broker, "orders", "decode=text") as events:
            write(broker, "orders", [b"one"])
            next(events)
            broker.stop()
            with suppress(httpx.RemoteProtocolError):  # closed before the stream's end was sent
                assert list(events) == []
        broker.start()
        write(broker, "orders", [b"two"])
        with tail(broker, "orders", "decode=text", events.last_id) as events:
            assert next(events).data["value"] == "two"


def test_client_that_does_not_read_holds_nobody_up_and_gets_all_in_the_end(broker: Broker) -> None:
    broker.create_topic("slow")
    with socket.create_connection(("127.0.0.1", int(broker.http_url.rpartition(":")[2])), timeout=30) as lazy:
        lazy.sendall(b"GET /topics/slow/tail?from=beginning HTTP/1.1\r\nHost: x\r\n\r\n")
        # Far more than the sockets' buffers take, while nobody reads.
        write(broker, "slow", [b"%06d" % number + b"x" * 10_000 for number in range(2_000)])
        with client_of(broker) as http:
            assert http.get("/topics/slow").json()["partitions"][0]["end"] == 2_000
        found = b""
        while b'"offset":1999,' not in found:
            found = found[-1000:] + lazy.recv(1 << 20)


@pytest.mark.parametrize(
    ("query", "last_id", "status"),
    [
        ("from=middle", "", 400),
        ("from=3", "", 409),
        ("from=99&partition=0", "", 409),
        ("partition=7", "", 404),
        ("partition=-1", "", 400),
        ("max_events=0", "", 400),
        ("wait_ms=-1", "", 400),
        ("decode=x", "", 400),
        ("", "junk", 400),
        ("", "0:x", 400),
        ("", "0:" + "9" * 30, 400),
    ],
)
def test_bad_request_is_refused(broker: Broker, query: str, last_id: str, status: int) -> None:
    with client_of(broker) as http:
        if http.get("/topics/refused").status_code == 404:
            broker.create_topic("refused")
        headers = {"Last-Event-ID": last_id} if last_id else {}
        error_of(http.get(f"/topics/refused/tail?{query}", headers=headers), status)
        error_of(http.get("/topics/none/tail"), 404)


def test_id_of_a_topic_that_was_made_anew_begins_at_the_beginning(broker: Broker) -> None:
    broker.create_topic("anew")
    write(broker, "anew", [b"first"])
    with tail(broker, "anew", "decode=text", "0:41") as events:
        assert next(events).data["value"] == "first"


# -- in a world that stands still -----------------------------------------------------------------------


class Kept:
    """An `Out` that keeps what is written."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    def ready(self) -> Any:
        later: Promise[None] = Promise()
        later.resolve(None)
        return later


def test_silence_is_broken_by_comments_and_by_nothing_else() -> None:
    node = StillNode()
    context = node.node.context
    gateway = Gateway(context, context.replicas.directory, context.replicas.directory.vfs)
    created = RunningSteps(
        ensure_topic(context, Session("", 0, "peer:1"), "quiet"),
        lambda _: None,
        lambda error: pytest.fail(f"the topic was not created: {error}"),
    )
    node.world.advance(100)
    assert created.is_over
    request = Request(
        Session("", 0, "peer:1"),
        {"topic": "quiet"},
        {
            "from": "end",
            "partition": None,
            "decode": "text",
            "max_events": None,
            "wait_ms": None,
            "max_field_bytes": None,
            "max_rate": None,
        },
        {},
        None,
    )
    stream = ROUTES[0].handle(gateway, request)
    assert isinstance(stream, Stream)
    out = Kept()
    running = RunningSteps(stream.write(out), lambda _: None, lambda error: pytest.fail(str(error)))
    first = out.data
    node.world.advance(KEEP_ALIVE_MS - 1)
    assert out.data == first
    node.world.advance(KEEP_ALIVE_MS * 2 + 1)
    assert out.data == first + b": keep-alive\n\n" * 3
    running.cancel()
    node.world.advance(KEEP_ALIVE_MS)
    assert out.data == first + b": keep-alive\n\n" * 3
    assert not context.replicas.find("quiet", 0)._fetches
