"""HTTP/1.1, byte by byte: what is taken, what is refused, in which order it is answered, and what it may cost."""

import logging
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.http.talking import Talk, request

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.base.steps import Steps
from penstock.gateway.http.protocol.conversation import LINGER_MS
from penstock.gateway.http.protocol.messages import (
    HttpError,
    Out,
    Query,
    Request,
    Response,
    Route,
    Stream,
    json,
)
from penstock.gateway.http.protocol.request_parser import HEAD_BYTES_MAX, HEADERS_MAX, SLICE_BYTES
from penstock.gateway.http.server import BATCHES_MAX


class Note(msgspec.Struct):
    text: str


class Routes:
    """Routes that do what a test tells them to."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.waiting: list[Promise[Any]] = []
        self.cancelled = 0
        self.outs: list[Out] = []

    def now(self, _gateway: object, request: Request) -> Response:
        self.asked.append(request)
        return json({"now": request.query["n"]})

    def note(self, _gateway: object, request: Request) -> Response:
        self.asked.append(request)
        return json({"text": request.body.text}, 201)

    def large(self, _gateway: object, request: Request) -> Response:
        self.asked.append(request)
        return Response(200, b"x" * 200_000, "text/plain")

    def steps(self, _gateway: object, request: Request) -> Steps[Response]:
        self.asked.append(request)
        later: Promise[Any] = Promise()
        self.waiting.append(later)
        try:
            value = yield later
        except GeneratorExit:
            self.cancelled += 1
            raise
        return json(value)

    def later(self, _gateway: object, request: Request) -> Promise[Any]:
        self.asked.append(request)
        self.waiting.append(Promise())
        return self.waiting[-1]

    def stream(self, _gateway: object, request: Request) -> Stream:
        self.asked.append(request)
        return Stream(self._write, "text/plain", headers=[("X-Kind", "stream")])

    def _write(self, out: Out) -> Steps[None]:
        self.outs.append(out)
        try:
            while True:
                yield out.ready()
                later: Promise[Any] = Promise()
                self.waiting.append(later)
                data = yield later
                if data is None:
                    return
                if isinstance(data, Exception):
                    raise data
                out.write(data)
        except GeneratorExit:
            self.cancelled += 1
            raise

    def fail(self, _gateway: object, request: Request) -> Response:
        kind = request.query["with"]
        if kind == "http":
            raise HttpError(409, "not_assigned", "it is another's", assignments={"orders": [1]})
        if kind == "kafka":
            raise KafkaError("no such topic: 'x'", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if kind == "header":
            return Response(200, b"", headers=[("X-Odd", "two\r\nlines")])
        raise ZeroDivisionError("a bug")

    def empty(self, _gateway: object, _request: Request) -> Response:
        return Response(204)

    @property
    def table(self) -> tuple[Route, ...]:
        number = Query("n", int, "A number.", default=0)
        kind = Query("with", str, "What.", is_required=True)
        return (
            Route("GET", "/now", self.now, "test", "Now.", query=[number]),
            Route("POST", "/notes", self.note, "test", "Keep.", body=Note, answer=Note, status=201),
            Route("GET", "/large", self.large, "test", "Much.", content_types=("text/plain",)),
            Route("GET", "/steps", self.steps, "test", "Wait."),
            Route("POST", "/steps", self.steps, "test", "Wait."),
            Route("GET", "/later", self.later, "test", "Wait."),
            Route("GET", "/stream", self.stream, "test", "Stream.", content_types=("text/plain",)),
            Route("GET", "/fail", self.fail, "test", "Fail.", query=[kind]),
            Route("DELETE", "/empty", self.empty, "test", "Nothing.", status=204),
        )


@pytest.fixture
def routes() -> Routes:
    return Routes()


@pytest.fixture
def talk(routes: Routes) -> Talk:
    return Talk(*routes.table)


def get(number: int) -> bytes:
    return request("GET", f"/now?n={number}")


# -- requests and responses ----------------------------------------------------------------------------


def test_a_request_is_answered_and_the_connection_stays(talk: Talk) -> None:
    for number in range(3):
        got = talk.ask("GET", f"/now?n={number}")
        assert (got.status, got.json) == (200, {"now": number})
        assert got.headers["content-type"] == "application/json"
        assert got.headers["date"] == "Tue, 14 Nov 2023 22:13:20 GMT"
        assert "connection" not in got.headers
    assert talk.conversation.is_idle
    assert not talk.wire.is_closed


MIXED = (
    get(1)
    + request("POST", "/notes", body=b'{"text":"a"}')
    + b"POST /notes HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'7;name=value\r\n{"text"\r\n5\r\n:"b"}\r\n0\r\nX-Trailer: t\r\n\r\n'
    + request("GET", "/nowhere")
    + request("POST", "/notes", "Connection: Upgrade", "Upgrade: h2c", body=b'{"text":"c"}')
    + request("GET", "/now?n=2", "Connection: Upgrade", "Upgrade: websocket")
    + get(3)
)


@pytest.mark.parametrize("piece_bytes", [1, 2, 7, 64, 1 << 20])
def test_requests_mean_the_same_however_they_arrive(talk: Talk, routes: Routes, piece_bytes: int) -> None:
    """Whole, byte by byte, and with a tail that belongs to the next."""
    talk.send(MIXED, piece_bytes)
    got = talk.responses(7)
    assert [each.status for each in got] == [200, 201, 201, 404, 201, 200, 200]
    assert [each.json for each in got if each.status != 404] == [
        {"now": 1},
        {"text": "a"},
        {"text": "b"},
        {"text": "c"},
        {"now": 2},
        {"now": 3},
    ]
    assert "x-trailer" not in routes.asked[2].headers


@given(st.lists(st.integers(1, 200), min_size=1, max_size=40))
def test_requests_mean_the_same_in_any_pieces(cuts: list[int]) -> None:
    routes = Routes()
    talk = Talk(*routes.table)
    rest = MIXED
    for cut in cuts:
        talk.send(rest[:cut])
        rest = rest[cut:]
    talk.send(rest)
    assert [each.status for each in talk.responses(7)] == [200, 201, 201, 404, 201, 200, 200]


@given(st.binary(max_size=300))
def test_noise_is_answered_or_waited_for_and_never_raises(noise: bytes) -> None:
    routes = Routes()
    talk = Talk(*routes.table)
    talk.send(get(1) + noise)
    first, *rest = talk.responses(len_of(talk))
    assert first.json == {"now": 1}
    assert all(each.status in (400, 404, 405, 414, 431, 505) for each in rest)


def len_of(talk: Talk) -> int:
    return bytes(talk.wire.sent).count(b"HTTP/1.1 ")


def test_headers_are_known_by_their_names_in_lower_case(talk: Talk, routes: Routes) -> None:
    talk.ask(
        "GET",
        "/now",
        "X-One: 1",
        "x-two: a",
        "X-TWO: b",
        "X-Latin: caf\xe9".encode("latin-1").decode("latin-1"),
    )
    headers = routes.asked[0].headers
    assert headers["x-one"] == "1"
    assert headers["x-two"] == "a, b"


def test_head_is_get_without_the_body(talk: Talk) -> None:
    whole = talk.ask("GET", "/now?n=5")
    got = talk.ask("HEAD", "/now?n=5")
    assert got.status == 200
    assert got.headers["content-length"] == str(len(whole.body))
    assert bytes(talk.wire.sent) == b""
    missing = talk.ask("HEAD", "/nowhere")
    assert missing.status == 404
    stream = talk.ask("HEAD", "/stream")
    assert (stream.status, stream.headers["x-kind"]) == (200, "stream")
    assert talk.conversation.is_idle


def test_a_response_without_a_body_says_no_length(talk: Talk) -> None:
    got = talk.ask("DELETE", "/empty")
    assert got.status == 204
    assert not {"content-length", "content-type"} & set(got.headers)
    assert talk.ask("GET", "/now").status == 200


def test_the_target_may_be_a_whole_address(talk: Talk) -> None:
    """RFC 9112, 3.2.2: a server must accept the absolute form."""
    assert talk.ask("GET", "http://penstock:8080/now?n=4").json == {"now": 4}
    assert talk.ask("GET", "http://penstock").status == 404
    assert talk.ask("OPTIONS", "*").code == "bad_target"


# -- keeping, closing ----------------------------------------------------------------------------------


def test_who_wants_the_connection_closed_has_it_closed(talk: Talk, routes: Routes) -> None:
    talk.send(request("GET", "/now", "Connection: close") + get(2))
    assert talk.response().headers["connection"] == "close"
    assert talk.wire.is_closed
    assert len(routes.asked) == 1


@pytest.mark.parametrize(
    ("header", "said", "is_closed"),
    [("", "close", True), ("Connection: keep-alive\r\n", "keep-alive", False)],
)
def test_an_old_client_closes_unless_it_says_otherwise(
    talk: Talk, header: str, said: str, is_closed: bool
) -> None:
    """HTTP/1.0 needs no Host either."""
    talk.send(f"GET /now HTTP/1.0\r\n{header}\r\n".encode())
    got = talk.response()
    assert (got.status, got.headers["connection"]) == (200, said)
    assert talk.wire.is_closed is is_closed


def test_a_stream_for_an_old_client_ends_with_the_connection(talk: Talk, routes: Routes) -> None:
    talk.send(b"GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    routes.waiting.pop().resolve(b"abc")
    routes.waiting.pop().resolve(None)
    got = talk.response()
    assert (got.body, got.headers["connection"]) == (b"abc", "close")
    assert "transfer-encoding" not in got.headers
    assert talk.wire.is_closed


def test_a_client_that_waits_to_send_its_body_gets_100_continue(talk: Talk) -> None:
    whole = request("POST", "/notes", "Expect: 100-continue", body=b'{"text":"a"}')
    at = whole.index(b"{")
    talk.send(whole[:at])
    assert bytes(talk.wire.sent) == b"HTTP/1.1 100 Continue\r\n\r\n"
    talk.wire.sent.clear()
    talk.send(whole[at:])
    assert talk.response().json == {"text": "a"}
    talk.send(whole)
    assert talk.response().status == 201  # who does not wait is not told


def test_a_client_that_waits_to_send_too_much_is_refused_before(talk: Talk) -> None:
    talk.send(b"POST /notes HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 999999999\r\n\r\n")
    assert talk.response().code == "body_too_large"


def test_another_expectation_is_not_met(talk: Talk) -> None:
    assert talk.ask("GET", "/now", "Expect: miracles").status == 417


# -- one after the other -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/steps", "/later"])
def test_what_comes_behind_a_request_waits_for_it(talk: Talk, routes: Routes, path: str) -> None:
    talk.send(request("GET", path) + get(1) + get(2))
    assert [len(routes.asked), len_of(talk)] == [1, 0]
    assert not talk.conversation.is_idle
    talk.send(get(3))
    assert not talk.wire.is_reading
    routes.waiting.pop().resolve({"waited": True} if path == "/steps" else json({"waited": True}))
    assert [each.json for each in talk.responses(4)] == [{"waited": True}, {"now": 1}, {"now": 2}, {"now": 3}]
    assert talk.wire.is_reading
    assert talk.conversation.is_idle


def test_many_small_requests_at_once_are_not_all_begun_at_once(talk: Talk, routes: Routes) -> None:
    """A client that does not read what it asked for is not answered on and on."""
    count = 4 * SLICE_BYTES // len(get(1))
    talk.send(request("GET", "/steps"))
    talk.send(get(1) * count)
    talk.wire.is_full = True
    routes.waiting.pop().resolve({})
    assert len(routes.asked) == 1
    talk.wire.is_full = False
    talk.conversation.drained()
    assert len(talk.responses(count + 1)) == len(routes.asked)


def test_a_large_response_fills_the_wire_and_the_next_waits(talk: Talk, routes: Routes) -> None:
    talk.wire.is_full = True
    talk.send(request("GET", "/large") + get(1))
    assert routes.asked == []
    talk.wire.is_full = False
    talk.conversation.drained()
    first, second = talk.responses(2)
    assert (len(first.body), second.json) == (200_000, {"now": 1})


def test_who_is_gone_is_worked_for_no_more(talk: Talk, routes: Routes) -> None:
    talk.send(request("POST", "/steps"))
    talk.conversation.ended()
    assert routes.cancelled == 1
    assert bytes(talk.wire.sent) == b""


def test_an_answer_to_a_closed_connection_is_dropped(talk: Talk, routes: Routes) -> None:
    talk.send(request("GET", "/later"))
    talk.conversation.ended()
    routes.waiting.pop().resolve(json({}))
    assert bytes(talk.wire.sent) == b""


def test_a_client_that_sends_no_more_gets_its_write_answered_and_its_reading_given_up(routes: Routes) -> None:
    writing, reading = Talk(*routes.table), Talk(*routes.table)
    writing.send(request("POST", "/steps"))
    writing.conversation.finished()
    routes.waiting.pop().resolve({"done": 1})
    assert writing.response().json == {"done": 1}
    reading.send(request("GET", "/steps"))
    reading.conversation.finished()
    assert reading.wire.is_closed
    assert routes.cancelled == 1


# -- streams -------------------------------------------------------------------------------------------


def test_a_stream_is_sent_in_chunks_as_it_is_written(talk: Talk, routes: Routes) -> None:
    talk.send(request("GET", "/stream") + get(1))
    for data in (b"abc", b"", b"x" * 100):
        routes.waiting.pop().resolve(data)
    assert bytes(talk.wire.sent).endswith(b"\r\n\r\n3\r\nabc\r\n64\r\n" + b"x" * 100 + b"\r\n")
    routes.waiting.pop().resolve(None)
    got, behind = talk.responses(2)
    assert got.headers["transfer-encoding"] == "chunked"
    assert (got.body, got.is_whole) == (b"abc" + b"x" * 100, True)
    assert behind.json == {"now": 1}


def test_a_stream_waits_for_a_client_that_does_not_read(talk: Talk, routes: Routes) -> None:
    talk.send(request("GET", "/stream"))
    talk.wire.is_full = True
    routes.waiting.pop().resolve(b"abc")
    assert routes.waiting == []
    talk.wire.is_full = False
    talk.conversation.drained()
    assert len(routes.waiting) == 1


def test_a_stream_to_a_closed_connection_ends(talk: Talk, routes: Routes) -> None:
    talk.send(request("GET", "/stream"))
    talk.conversation.ended()
    assert routes.cancelled == 1
    routes.outs[0].write(b"too late")


def test_a_stream_that_fails_has_no_end(talk: Talk, routes: Routes, caplog: pytest.LogCaptureFixture) -> None:
    talk.send(request("GET", "/stream"))
    routes.waiting.pop().resolve(b"abc")
    routes.waiting.pop().resolve(ZeroDivisionError("a bug"))
    got = talk.response()
    assert (got.body, got.is_whole) == (b"abc", False)
    assert talk.wire.is_closed
    assert "ZeroDivisionError" in caplog.text


# -- what is wrong -------------------------------------------------------------------------------------


def test_what_a_route_raises_is_answered(talk: Talk) -> None:
    conflict = talk.ask("GET", "/fail?with=http")
    assert (conflict.status, conflict.json["error"]["assignments"]) == (409, {"orders": [1]})
    missing = talk.ask("GET", "/fail?with=kafka")
    assert (missing.status, missing.code) == (404, "unknown_topic_or_partition")


@pytest.mark.parametrize("kind", ["bug", "header"])
def test_an_unexpected_error_is_500_and_a_log_line(
    talk: Talk, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    with caplog.at_level(logging.ERROR):
        got = talk.ask("GET", f"/fail?with={kind}")
    assert (got.status, got.code) == (500, "internal_error")
    assert "a bug" not in got.body.decode()
    assert [each.levelname for each in caplog.records] == ["ERROR"]
    assert talk.ask("GET", "/now").status == 200


def test_a_failed_promise_is_an_error_response(talk: Talk, routes: Routes) -> None:
    talk.send(request("GET", "/later"))
    routes.waiting.pop().fail(KafkaError("too few", ErrorCode.NOT_ENOUGH_REPLICAS))
    assert (got := talk.response()).status == 503
    assert got.code == "not_enough_replicas"


REFUSED = {
    "no HTTP": b"nonsense\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
    "Kafka": b"\x00\x00\x00\x14\x00\x12\x00\x04" + bytes(20),
    "two lengths": b"POST /notes HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "length and chunks": b"POST /notes HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a length that is none": b"POST /notes HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "a length beyond all": b"POST /notes HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
    "a bad chunk": b"POST /notes HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a folded header": b"GET /now HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n",
    "a zero byte": b"GET /now HTTP/1.1\r\nHost: x\0y\r\n\r\n",
    "a bare line feed in a header": b"GET /now HTTP/1.1\r\nHost: x\r\nA: b\nC: d\r\n\r\n",
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("piece_bytes", [1, 1 << 20])
def test_what_is_no_sound_request_is_refused_once_and_ends_it(
    talk: Talk, data: bytes, piece_bytes: int
) -> None:
    """What could be read in two ways is how requests are smuggled past a proxy."""
    talk.send(get(1) + data, piece_bytes)
    good, bad = talk.responses(2)
    assert good.status == 200
    assert (bad.status, bad.headers["connection"]) == (400, "close")
    assert bad.code == "bad_request"
    talk.send(get(1) * 10)
    assert bytes(talk.wire.sent) == b""


@pytest.mark.parametrize("coding", ["gzip, chunked", "gzip", "chunked, chunked", "identity"])
@pytest.mark.parametrize("piece_bytes", [1, 1 << 20])
def test_a_transfer_coding_that_is_not_understood_is_refused(
    talk: Talk, coding: str, piece_bytes: int
) -> None:
    """RFC 9112, 6.1: 501, or 400 where it leaves open how long the body is; and the connection closes."""
    head = f"POST /notes HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: {coding}\r\n\r\n".encode()
    talk.send(head + b'b\r\n{"text":""}\r\n0\r\n\r\n', piece_bytes)
    refused = talk.response()
    assert refused.status in (400, 501)
    assert refused.headers["connection"] == "close"
    if coding == "gzip, chunked":
        assert (refused.status, refused.code) == (501, "unsupported_encoding")


def test_a_request_without_a_host_is_refused(talk: Talk) -> None:
    talk.send(b"GET /now HTTP/1.1\r\n\r\n")
    assert talk.response().code == "no_host"


def test_a_page_of_another_site_is_refused(talk: Talk, routes: Routes) -> None:
    assert (
        talk.ask("POST", "/notes", "Origin: http://evil.example", body=b'{"text":"a"}').code == "cross_origin"
    )
    assert talk.ask("GET", "/now", "Origin: null").status == 403
    assert routes.asked == []
    assert talk.ask("GET", "/now", "Origin: http://penstock").status == 200


def test_who_is_refused_while_sending_may_finish(talk: Talk) -> None:
    """A socket that is closed with unread bytes takes the refusal with it."""
    talk.send(b"POST /notes HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n")
    got = talk.response()
    assert (got.status, got.json["error"]["max"]) == (413, BATCHES_MAX * (2**20 + 12))
    for _ in range(100):
        talk.send(b"x" * 10_000)
    assert not talk.wire.is_closed
    talk.world.advance(LINGER_MS)
    assert talk.wire.is_closed
    assert bytes(talk.wire.sent) == b""


def test_who_leaves_while_refused_is_not_waited_for(talk: Talk) -> None:
    talk.send(b"nonsense\r\n\r\n")
    talk.conversation.ended()
    talk.world.run_until_idle()
    assert not talk.wire.is_closed


# -- bounds --------------------------------------------------------------------------------------------


def test_a_body_is_as_large_as_the_settings_allow() -> None:
    routes = Routes()
    talk = Talk(*routes.table, settings={"message.max.bytes": "100"})
    body = msgspec.json.encode({"text": "x" * (100 * BATCHES_MAX - 11)})
    assert len(body) == 100 * BATCHES_MAX
    assert talk.ask("POST", "/notes", body=body).status == 201
    assert talk.ask("POST", "/notes", body=body + b" ").code == "body_too_large"
    chunked = b"POST /notes HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    for more, status in ((b"", 201), (b" ", 413)):
        talk = Talk(*routes.table, settings={"message.max.bytes": "100"})
        chunk = b"%x\r\n%s\r\n" % (len(body + more), body + more)
        talk.send(chunked + chunk + b"0\r\n\r\n", 100)
        assert talk.response().status == status
    talk = Talk(*routes.table, settings={"socket.request.max.bytes": "100"})
    assert talk.ask("POST", "/notes", body=body).json["error"]["max"] == 100


ENDLESS = {
    "a target": (b"GET /", b"x"),
    "the name of a header": (b"GET /now HTTP/1.1\r\n", b"x"),
    "a header": (b"GET /now HTTP/1.1\r\nHost: ", b"x"),
    "headers": (b"GET /now HTTP/1.1\r\n", b"X-Same: same\r\n"),
    "empty lines": (b"", b"\r\n"),
    "trailers": (
        b"POST /notes HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
        b"X-A: b\r\n",
    ),
    "a trailer": (b"POST /notes HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-A: ", b"b"),
    "a chunk's extension": (
        b"POST /notes HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;a=",
        b"b",
    ),
}


@pytest.mark.parametrize(("beginning", "more"), ENDLESS.values(), ids=ENDLESS.keys())
@pytest.mark.parametrize("piece_bytes", [1000, 1 << 20])
def test_what_has_no_end_is_refused(talk: Talk, beginning: bytes, more: bytes, piece_bytes: int) -> None:
    talk.send(beginning)
    sent = 0
    while not talk.wire.sent and sent < 4 * HEAD_BYTES_MAX:
        piece = more * max(1, piece_bytes // len(more))
        talk.send(piece)
        sent += len(piece)
    got = talk.response()
    assert got.status in (400, 414, 431)
    assert got.headers["connection"] == "close"
    assert sent <= 2 * HEAD_BYTES_MAX + piece_bytes


def test_as_many_headers_as_allowed_are_taken(talk: Talk) -> None:
    more = [f"X-{number}: {'v' * 600}" for number in range(HEADERS_MAX - 1)]
    assert talk.ask("GET", "/now", *more).status == 200
    assert talk.ask("GET", "/now", *more, "X-More: 1").status == 431


@pytest.mark.parametrize("piece_bytes", [10_000, 1 << 20])
def test_a_body_of_tiny_chunks_is_taken(talk: Talk, piece_bytes: int) -> None:
    """What is around a body is bounded by how much body there is, not as such."""
    text = msgspec.json.encode({"text": "x" * 100_000})
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in text)
    head = b"POST /notes HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    talk.send(head + chunks + b"0\r\n\r\n", piece_bytes)
    assert talk.response().status == 201


@pytest.fixture(autouse=True)
def nothing_is_left_begun(talk: Talk) -> Iterator[None]:
    yield
    talk.conversation.ended()
    talk.conversation.received(memoryview(get(1)))
