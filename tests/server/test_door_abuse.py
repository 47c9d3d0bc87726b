"""Clients that nobody wants at the other doors: web pages, and who sends for ever, or too much at once."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.http.talking import SmallContext, SmallGateway, responses
from tests.gateway.line.conversing import gateway_of
from tests.nodes import StillNode, StillTransport
from tests.processes import Process
from tests.worlds import StillWorld

from penstock.gateway.http.protocol import request_parser
from penstock.gateway.http.protocol.conversation import LINGER_MS
from penstock.gateway.http.protocol.messages import Request, Response, Route
from penstock.gateway.http.protocol.messages import json as in_json
from penstock.gateway.http.protocol.routing import Router
from penstock.gateway.http.server import HttpServer
from penstock.gateway.line.conversation import LineServer
from penstock.gateway.shared.wire import ProtocolServer
from penstock.handlers.support.context import Session
from penstock.server import connections, doors
from penstock.server.connections import UNFINISHED_LOOK_MS, Connections
from penstock.server.doors import UNFINISHED_BYTES_A_SECOND, UNFINISHED_MS_MAX, DoorConnection
from penstock.server.loop_tick import LoopTick
from penstock.testing import Broker

MB = 1 << 20


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http=True, line=True) as broker:
        yield broker


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def port_of(broker: Broker) -> int:
    return int(broker.http_url.rpartition(":")[2])


def everything(client: socket.socket) -> bytes:
    """All that is said until the end."""
    found = []
    with suppress(ConnectionResetError):
        while data := client.recv(65536):
            found.append(data)
    return b"".join(found)


def told(broker: Broker, data: bytes) -> bytes:
    """What a client is told that sends this and nothing more."""
    with connected(port_of(broker)) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        return everything(client)


def asked(broker: Broker, request_line: str, *headers: str, body: bytes = b"") -> tuple[int, str]:
    """Status, and the code of what is wrong."""
    length = [f"Content-Length: {len(body)}"] if body else []
    head = "\r\n".join([f"{request_line} HTTP/1.1", "Connection: close", *headers, *length, "", ""])
    [got] = responses(told(broker, head.encode() + body))
    return got.status, got.code if got.status >= 400 else ""


def topics(broker: Broker) -> set[str]:
    with connected(port_of(broker)) as client:
        client.sendall(b"GET /topics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        [got] = responses(everything(client))
    return {each["name"] for each in got.json["topics"]}


# -- pages that speak HTTP where it is not spoken ------------------------------------------------------


@pytest.mark.parametrize("method", [b"POST / HTTP/1.1", b"GET /a:b:0 HTTP/1.0", b"PUT /a:b:0:1 HTTP/1.1"])
def test_what_a_page_sends_to_the_line_port_is_not_carried_out(broker: Broker, method: bytes) -> None:
    body = b"\nTOPIC evil - 4\nevil\n"
    request = b"%s\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s"
    with connected(broker.line_port) as page:
        page.sendall(request % (method, len(body), body))
        answered = everything(page)
    assert answered == b"-ERR this port speaks the line protocol, not HTTP; the connection is closed\n"
    assert "evil" not in topics(broker)


def test_a_page_that_waits_with_its_body_is_not_listened_to_any_more(broker: Broker) -> None:
    with connected(broker.line_port) as page:
        page.sendall(b"TOPIC good - 4\ngood\nPOST / HTTP/1.1\r\n")
        answered = everything(page)
        with suppress(ConnectionError):
            page.sendall(b"Host: x\r\n\r\nTOPIC evil - 4\nevil\n")
    assert answered.startswith(b"+OFFSET 0\n-ERR this port speaks the line protocol")
    assert topics(broker) >= {"good"}
    assert "evil" not in topics(broker)


@pytest.mark.parametrize("method", [b"GET", b"POST", b"PUT", b"HEAD", b"OPTIONS", b"PATCH", b"DELETE"])
def test_http_at_the_kafka_port_is_a_frame_of_an_impossible_length(broker: Broker, method: bytes) -> None:
    """Four letters are more than a gigabyte."""
    with connected(broker.port) as page:
        page.sendall(b"%s / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n\0\0\0\0" % method)
        assert everything(page) == b""


# -- pages of others -----------------------------------------------------------------------------------

PAGES = ("Origin: http://{host}", "Sec-Fetch-Site: same-origin", "Accept-Language: en")
"""What a browser says of itself: with a write; to this machine; always."""


@pytest.mark.parametrize("sign", PAGES)
@pytest.mark.parametrize(
    "host", ["evil.example", "EVIL.example:8080", "127.0.0.1.evil.example", "evil.local."]
)
def test_a_page_whose_name_points_here_is_refused(broker: Broker, host: str, sign: str) -> None:
    """DNS rebinding: Origin and Host are the same, and reading has no Origin."""
    assert asked(broker, "GET /topics", f"Host: {host}", sign.format(host=host)) == (403, "unknown_host")
    assert asked(broker, "GET /topics", f"Host: {host}") == (200, "")


@pytest.mark.parametrize("sign", PAGES)
@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST:8080", "localhost.", "logs.localhost:80", "127.0.0.1", "127.8.8.8:80"),
        *("[::1]:8080", "192.168.1.5:8080", "penstock:8080"),
    ],
)
def test_a_browser_on_this_machine_is_served(broker: Broker, host: str, sign: str) -> None:
    assert asked(broker, "GET /topics", f"Host: {host}", sign.format(host=host)) == (200, "")


def test_a_page_of_another_site_is_refused_under_any_name(broker: Broker) -> None:
    got = asked(broker, "GET /topics", "Host: localhost", "Origin: http://evil.example")
    assert got == (403, "cross_origin")


def test_a_proxys_name_may_be_allowed() -> None:
    with Broker(http=True, settings={"http.hosts": "logs.example.com, Other.example"}) as broker:
        for host in ("logs.example.com", "LOGS.example.com:443", "other.example", "localhost"):
            assert asked(broker, "GET /topics", f"Host: {host}", f"Origin: https://{host}") == (200, "")
        got = asked(broker, "GET /topics", "Host: evil.example", "Origin: http://evil.example")
        assert got == (403, "unknown_host")
    with Broker(http=True, settings={"http.hosts": "*"}) as broker:
        assert asked(broker, "GET /topics", "Host: any.example", "Accept-Language: en") == (200, "")


# -- requests that nobody should send ------------------------------------------------------------------


def test_two_hosts_are_refused(broker: Broker) -> None:
    """RFC 9112, 3.2."""
    assert asked(broker, "GET /health/live", "Host: x", "Host: y") == (400, "bad_request")
    assert asked(broker, "GET /health/live", "Host: x", "host: x") == (400, "bad_request")


def test_an_unknown_method_is_distinguished_from_noise(broker: Broker) -> None:
    assert asked(broker, "FOO /topics", "Host: x") == (501, "unknown_method")
    assert asked(broker, "get /topics", "Host: x") == (501, "unknown_method")
    assert asked(broker, "PURGE /topics", "Host: x") == (405, "method_not_allowed")
    [got] = responses(told(broker, b"nonsense\r\n\r\n"))
    assert (got.status, got.code) == (400, "bad_request")


def test_a_compressed_body_is_refused(broker: Broker) -> None:
    body = json.dumps({"name": "compressed"}).encode()
    refused = asked(broker, "POST /topics", "Host: x", "Content-Encoding: gzip", body=body)
    assert refused == (415, "unsupported_encoding")
    assert asked(broker, "POST /topics", "Host: x", "Content-Encoding: identity", body=body) == (201, "")


def test_a_body_on_a_route_without_one_is_refused(broker: Broker) -> None:
    """Parameters that were sent as a form would be missing, or be taken for their defaults."""
    form = "Content-Type: application/x-www-form-urlencoded"
    join = "POST /join?group=forms&consumer=a&topic=forms"
    assert asked(broker, join, "Host: x", form, body=b"max_messages=5") == (400, "unexpected_body")
    assert asked(broker, "GET /health/live", "Host: x", body=b"x") == (400, "unexpected_body")
    assert asked(broker, join, "Host: x", form, "Content-Length: 0") == (200, "")
    assert asked(broker, join, "Host: x", body=b" {}\n") == (200, "")


def test_the_front_page_leads_to_the_console(broker: Broker) -> None:
    [got] = responses(told(broker, b"GET / HTTP/1.1\r\nHost: x\r\nAccept: text/html\r\n\r\n"))
    assert (got.status, got.headers["location"], got.body) == (307, "/console/", b"")
    assert asked(broker, "POST /", "Host: x") == (405, "method_not_allowed")


# -- too much at once ----------------------------------------------------------------------------------


def beginning_of_body(port: int, body_bytes: int) -> socket.socket:
    client = connected(port)
    client.sendall(b"POST /produce HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (body_bytes + 1))
    client.sendall(b" " * body_bytes)
    return client


def test_bodies_that_are_too_much_together_are_refused_and_small_ones_are_not(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_parser, "BODIES_BYTES_MAX", 3 * MB)
    small = json.dumps({"topic": "small", "value": "QUFB" * 5_000}).encode()
    large = json.dumps({"topic": "small", "value": "QUFB" * 200_000}).encode()
    with ExitStack() as crowd:
        # One after the other until one finds no room: they are all read before it is told so.
        for _ in range(10):
            client = crowd.enter_context(beginning_of_body(port_of(broker), MB))
            client.settimeout(0.2)
            with suppress(TimeoutError):
                answered = client.recv(65536)
                break
        else:
            raise AssertionError("there was room for all")
        [got] = responses(answered)
        assert (got.status, got.code) == (503, "too_busy")
        assert (got.headers["retry-after"], got.headers["connection"]) == ("1", "close")
        assert asked(broker, "POST /produce", "Host: x", body=small) == (200, "")
    deadline = time.monotonic() + 90
    while asked(broker, "POST /produce", "Host: x", body=large) != (200, ""):
        assert time.monotonic() < deadline, "the room of those who left is not free"


def test_room_is_free_again_whatever_became_of_the_body() -> None:
    world = StillWorld()
    door = HttpServer(SmallGateway(SmallContext(world, {})), Router([]))

    class Wire:
        peer, is_local, is_full = "?", True, False
        session = Session("", 0, "?")

        def holds_before_login(self, count: int) -> None: ...

        def send(self, data: bytes) -> None: ...

        def close(self) -> None: ...

        def stop_reading(self) -> None: ...

        def go_on_reading(self) -> None: ...

    head = b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
    for rest, left in (
        (b"x" * 70_000, 70_000),
        (b"x" * 60_000, 0),
        (b"x" * 100_000, 0),
        (b"x" * 100_000 + head + b"x" * 10_000, 0),
        (b"x" * 100_000 + head + b"x" * 70_000, 70_000),
        (b"x" * 100_000 + b"no HTTP\r\n\r\n", 0),
    ):
        conversation = door.converse(Wire())
        conversation.received(memoryview(head + rest))
        assert door.bodies.used_bytes == left
        conversation.ended()
        assert door.bodies.used_bytes == 0


def test_memory_is_given_back_when_bodies_are_gone() -> None:
    world = StillWorld()
    given: list[int] = []
    room = request_parser.BodyRoom(world, lambda: given.append(1))
    assert room.take(request_parser.GIVE_BACK_BYTES_MIN - 1)
    room.free(request_parser.GIVE_BACK_BYTES_MIN - 1)
    world.run_until_idle()
    assert given == []
    assert room.take(request_parser.BODIES_BYTES_MAX)
    assert not room.take(1)
    room.free(request_parser.BODIES_BYTES_MAX - 1)
    world.run_until_idle()
    assert given == []
    room.free(1)
    assert room.take(5)
    room.free(5)
    world.run_until_idle()
    assert given == [1]


def resident_bytes(process: Process) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="it reads /proc")
def test_the_memory_of_bodies_goes_back_to_the_system(tmp_path: Path) -> None:
    with Process(data=tmp_path, http=True) as process:
        port = int(process.http_url.rpartition(":")[2])
        before = resident_bytes(process)
        deadline = time.monotonic() + 60
        with ExitStack() as crowd:
            for _ in range(6):
                crowd.enter_context(beginning_of_body(port, 15 * MB))
            while resident_bytes(process) < before + 60 * MB:
                assert time.monotonic() < deadline, "what is received has to be somewhere"
                time.sleep(0.02)
        while resident_bytes(process) > before + 30 * MB:
            assert time.monotonic() < deadline, f"{resident_bytes(process) / MB:.0f} MB are left in use"
            time.sleep(0.05)


# -- too slow ------------------------------------------------------------------------------------------


class NoSocket:
    def setsockopt(self, *_: int) -> None: ...


class DoorTransport(StillTransport):
    """It has a socket, to which nothing that is said makes a difference."""

    def get_extra_info(self, name: str) -> Any:
        return NoSocket() if name == "socket" else super().get_extra_info(name)


class Slow:
    """A connection to a door, in a world that stands still."""

    def __init__(self, world: StillWorld, door: ProtocolServer) -> None:
        self.world = world
        settings = {"connections.max.idle.ms": 600_000, "socket.request.max.bytes": MB}
        self.kept = Connections(world, LoopTick(world), None, lambda name: settings.get(name, 1000))  # type: ignore[arg-type]
        self.transport = DoorTransport()
        self.connection: DoorConnection = self.kept.accept_at(door, "http")
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]

    def send(self, data: bytes) -> None:
        room = self.connection.get_buffer(-1)
        room[: len(data)] = data
        del room
        self.connection.buffer_updated(len(data))
        self.world.advance(0)

    def lives(self, ms: int, trickle: bytes = b"", every_ms: int = 1000) -> bool:
        """Whether it is still open after so long, in which the client sends a bit every now and then."""
        for _ in range(0, ms, every_ms):
            if trickle and not self.transport.is_closed:
                self.send(trickle)
            self.world.advance(every_ms)
        return not self.transport.is_closed

    @property
    def heard(self) -> bytes:
        found = bytes(self.transport.received)
        self.transport.received.clear()
        return found


def at_http() -> Slow:
    def answer(_gateway: object, request: Request) -> Response:
        return in_json({})

    world = StillWorld()
    routes = [
        Route("GET", "/now", answer, "test", "Now."),
        Route("POST", "/note", answer, "test", "", body=dict),
    ]
    return Slow(world, HttpServer(SmallGateway(SmallContext(world, {})), Router(routes)))


def at_line() -> Slow:
    node = StillNode()
    return Slow(node.world, LineServer(gateway_of(node)))


LATEST_MS = UNFINISHED_MS_MAX + 2 * UNFINISHED_LOOK_MS
"""When somebody who sends nothing more is told, at the latest: a look may be missed by little, at either end."""

NOW = b"GET /now HTTP/1.1\r\nHost: x\r\n\r\n"
NOTE = b"POST /note HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{"

HALVES = {
    "a head": (at_http, NOW[:9]),
    "a head behind another": (at_http, NOW + NOW[:20] + b"X: "),
    "a body": (at_http, NOTE),
    "a line": (at_line, b"TOPIC a"),
    "a message": (at_line, b"TOPIC a b 100\nabc"),
    "a message that is read over": (at_line, b"TOPIC a b 9000000\nabc"),
}


@pytest.mark.parametrize(("at", "half"), HALVES.values(), ids=HALVES.keys())
@pytest.mark.parametrize("trickle", [b"", b" "], ids=["nothing more", "a byte a second"])
def test_a_client_that_does_not_finish_gets_an_error_and_is_closed(
    at: Callable[[], Slow], half: bytes, trickle: bytes
) -> None:
    slow = at()
    slow.send(half)
    slow.transport.received.clear()
    assert slow.lives(UNFINISHED_MS_MAX, trickle)
    assert slow.heard == b""
    assert not slow.lives(2 * UNFINISHED_LOOK_MS + LINGER_MS, trickle)
    heard = slow.heard
    if at is at_http:
        [got] = responses(heard)
        assert (got.status, got.code, got.headers["connection"]) == (408, "request_timeout", "close")
    else:
        assert (
            heard == b"-ERR timed out waiting for the rest of a line or message; the connection is closed\n"
        )


@pytest.mark.parametrize(
    ("at", "beginning", "more"),
    [
        (at_http, NOTE, b" " * 100),
        (at_http, b"GET /now HTTP/1.1\r\nX: ", b"x" * 100),
        (at_line, b"TOPIC a b 100000\n", b"x" * 100),
    ],
)
def test_who_is_slow_but_sends_has_more_time_and_not_for_ever(
    at: Callable[[], Slow], beginning: bytes, more: bytes
) -> None:
    """A fifth of the rate: each second earns a fifth of one."""
    assert 5 * len(more) == UNFINISHED_BYTES_A_SECOND
    slow = at()
    slow.send(beginning)
    assert slow.lives(UNFINISHED_MS_MAX * 5 // 4, more)
    assert not slow.lives(2 * UNFINISHED_LOOK_MS + LINGER_MS, more)


def test_a_body_that_comes_at_the_rate_is_taken_however_long_it_takes() -> None:
    slow = at_http()
    slow.send(NOTE)
    assert slow.lives(5 * UNFINISHED_MS_MAX, b" " * UNFINISHED_BYTES_A_SECOND)
    slow.send(b"}" + b" " * 50_000)
    assert slow.heard.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(("at", "piece"), [(at_http, NOW), (at_line, b"a:b:c:d\n")])
def test_who_always_has_a_half_on_its_way_is_not_slow(at: Callable[[], Slow], piece: bytes) -> None:
    """Every time that it is looked, a request is there in part: each time another."""
    slow = at()
    slow.send(piece[:5])
    assert slow.lives(5 * LATEST_MS, piece[5:] + piece[:5], UNFINISHED_LOOK_MS)


@pytest.mark.parametrize(("at", "whole"), [(at_http, NOW), (at_line, b"TOPIC a b 5\n"), (at_line, b"")])
def test_who_has_said_nothing_by_half_may_be_silent(at: Callable[[], Slow], whole: bytes) -> None:
    """Somebody may sit at a keyboard, and type the message when its length is sent."""
    slow = at()
    slow.send(whole)
    assert slow.lives(5 * LATEST_MS)


def test_nobody_is_looked_at_where_nobody_is() -> None:
    slow = at_http()
    slow.connection.connection_lost(None)
    slow.world.run_until_idle()
    assert slow.world.is_idle


def test_slow_clients_of_a_real_node_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "UNFINISHED_LOOK_MS", 20)
    monkeypatch.setattr(doors, "UNFINISHED_MS_MAX", 200)
    with Broker(http=True, line=True) as broker:
        with connected(port_of(broker)) as head, connected(port_of(broker)) as body:
            head.sendall(NOW[:10])
            body.sendall(NOTE)
            for each in (head, body):
                [got] = responses(everything(each))
                assert (got.status, got.code) == (408, "request_timeout")
        with connected(broker.line_port) as line, connected(broker.port) as kafka:
            kafka.sendall(b"\0\0")
            line.sendall(b"TOPIC a b 100\nabc")
            assert everything(line).startswith(b"-ERR timed out waiting for the rest of a line or message")
            kafka.setblocking(False)
            with pytest.raises(BlockingIOError):
                kafka.recv(1)
        assert asked(broker, "GET /health/live", "Host: x") == (200, "")
