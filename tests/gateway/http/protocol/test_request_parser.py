"""HTTP/1.1 as it comes in: however the bytes arrive, the same requests come out, or the same refusal."""

from collections.abc import Sequence

import pytest
from tests.worlds import StillWorld

from penstock.gateway.http.protocol.request_parser import SLICE_BYTES, SMALL_BYTES, BodyRoom, RequestParser


class Limits:
    """What requests have in common, without a port."""

    logins = None

    def __init__(self, body_bytes_max: int = 1 << 20) -> None:
        self.names: dict[bytes, str] = {}
        self.bodies = BodyRoom(StillWorld())
        self._body_bytes_max = body_bytes_max

    def name(self, raw: bytes) -> str:
        return raw.lower().decode()

    def body_bytes_max(self) -> int:
        return self._body_bytes_max


def fed(pieces: Sequence[bytes], limits: Limits | None = None) -> RequestParser:
    arriving = RequestParser(limits or Limits())
    for each in pieces:
        if not arriving.is_shut:
            arriving.feed(each)
    return arriving


def post(body: bytes) -> bytes:
    return b"POST /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


CHUNKED = b"PUT /d HTTP/1.1\r\nHOST: y\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
UPGRADE = b"GET /e HTTP/1.1\r\nHost: z\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"


@pytest.mark.parametrize("size", [1, 7, 1000], ids=["byte by byte", "in pieces", "whole"])
def test_requests_come_out_in_their_order_however_their_bytes_come_in(size: int) -> None:
    data = post(b"hello") + CHUNKED + UPGRADE + post(b"")
    arriving = fed([data[at : at + size] for at in range(0, len(data), size)])
    assert [(each.method, each.target, each.headers["host"], each.body) for each in arriving.complete] == [
        ("POST", b"/a?b=c", "x", b"hello"),
        ("PUT", b"/d", "y", b"abcde"),
        ("GET", b"/e", "z", b""),
        ("POST", b"/a?b=c", "x", b""),
    ]
    assert all(each.wrong is None and each.is_kept_alive for each in arriving.complete)
    assert arriving.unfinished is None


def test_what_is_not_http_is_refused_behind_what_came_before_it_and_ends_it_all() -> None:
    arriving = fed([post(b"hello") + b"\x00\x01\x02\r\n", post(b"too late")])
    good, refusal = arriving.complete
    assert good.wrong is None
    assert refusal.wrong is not None
    assert refusal.wrong.status == 400
    assert arriving.is_shut
    assert arriving.is_refused


def test_each_request_whose_rest_is_waited_for_has_its_own_number() -> None:
    first = fed([b"GET / HT"])
    second = fed([post(b"hello") + post(b"hello")[:-2]])
    assert (first.unfinished, second.unfinished) == (1, 2)
    second.feed(b"lo")
    assert second.unfinished is None


def test_what_is_held_is_parsed_a_slice_at_a_time() -> None:
    one = post(b"hello")
    count = 2 * SLICE_BYTES // len(one)
    arriving = RequestParser(Limits())
    arriving.hold(memoryview(one))
    arriving.hold(memoryview(one * (count - 1)))
    arriving.feed_held()
    assert len(arriving.complete) == SLICE_BYTES // len(one)
    while arriving.held:
        arriving.feed_held()
    assert len(arriving.complete) == count


def test_a_large_body_has_room_of_all_bodies_until_it_is_answered() -> None:
    limits = Limits()
    arriving = fed([post(b"x" * (SMALL_BYTES + 1))[:-1]], limits)
    assert limits.bodies.used_bytes == 0, "what a head announces is not counted"
    arriving.feed(b"x")
    assert limits.bodies.used_bytes == SMALL_BYTES + 1
    arriving.free_room()
    assert limits.bodies.used_bytes == 0


def test_a_client_that_is_gone_leaves_no_body_behind() -> None:
    limits = Limits()
    arriving = fed([post(b"x" * (2 * SMALL_BYTES))[:-1]], limits)
    assert limits.bodies.used_bytes > 0
    arriving.end()
    assert limits.bodies.used_bytes == 0
    assert arriving.is_shut


def test_a_body_that_may_not_come_is_refused_before_it_does() -> None:
    head = post(b"x" * 101).partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    [refusal] = fed([head], Limits(body_bytes_max=100)).complete
    assert refusal.wrong is not None
    assert (refusal.wrong.status, refusal.wrong.code) == (413, "body_too_large")
