"""An HTTP conversation without a socket: what is sent to it, and what it says.

talk = Talk(Router(routes))
talk.send(b"GET /now HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
response = talk.response()
"""

from typing import Any, NamedTuple

import msgspec
from httptools import HttpResponseParser
from tests.worlds import StillWorld

from penstock.base.metrics import Metrics
from penstock.gateway.http.protocol.messages import Route
from penstock.gateway.http.protocol.routing import Router
from penstock.gateway.http.server import HttpServer
from penstock.handlers.support.context import Session
from penstock.metadata.configs import BrokerSettings
from penstock.metadata.image import EMPTY


class StillWire:
    """A `Wire` that keeps what it is told to send."""

    def __init__(self) -> None:
        self.peer = "10.0.0.1:4711"
        self.session = Session("", 0, self.peer, "HTTP")
        self.held_before_login = 0
        self.is_local = True
        self.is_full = False
        self.sent = bytearray()
        self.is_closed = False
        self.is_reading = True

    def send(self, data: bytes) -> None:
        if not self.is_closed:
            self.sent += data

    def close(self) -> None:
        self.is_closed = True

    def holds_before_login(self, count: int) -> None:
        self.held_before_login = count

    def stop_reading(self) -> None:
        assert self.is_reading, "it does not read already"
        self.is_reading = False

    def go_on_reading(self) -> None:
        assert not self.is_reading, "it reads already"
        self.is_reading = True


class SmallContext:
    """As much of a node as a conversation looks at."""

    def __init__(self, world: StillWorld, settings: dict[str, str]) -> None:
        self.world = world
        self.image = EMPTY
        self.settings = BrokerSettings(1, settings)
        self.metrics = Metrics()
        self.authorizer = self.audit = self.quotas = None


class SmallGateway:
    def __init__(self, context: SmallContext) -> None:
        self.context = context


class Got(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes
    is_whole: bool
    """Its end has come."""

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str:
        """Of what is wrong."""
        assert set(self.json) == {"error"}
        assert self.json["error"]["message"]
        return str(self.json["error"]["code"])


class Talk:
    def __init__(self, *routes: Route, settings: dict[str, str] | None = None) -> None:
        self.world = StillWorld()
        self.gateway = SmallGateway(SmallContext(self.world, settings or {}))
        self.door = HttpServer(self.gateway, Router(routes))
        self.wire = StillWire()
        self.conversation = self.door.converse(self.wire)

    def send(self, data: bytes, piece_bytes: int = 1 << 30) -> "Talk":
        """Bytes arrive, in pieces of a size; the memory that they lie in is used again afterwards."""
        for at in range(0, len(data), piece_bytes):
            piece = bytearray(data[at : at + piece_bytes])
            self.conversation.received(memoryview(piece))
            piece[:] = b"\xff" * len(piece)
        return self

    def ask(self, method: str, target: str, *headers: str, body: bytes | None = None) -> Got:
        self.send(request(method, target, *headers, body=body))
        return self.response(is_head=method == "HEAD")

    def response(self, *, is_head: bool = False) -> Got:
        """The next response, which must be there."""
        [got] = self.responses(1, is_head=is_head)
        return got

    def responses(self, count: int, *, is_head: bool = False) -> list[Got]:
        """All that was sent, which must be so many."""
        found = responses(bytes(self.wire.sent), is_head=is_head)
        self.wire.sent.clear()
        assert len(found) == count, found
        return found


def request(method: str, target: str, *headers: str, body: bytes | None = None) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: penstock", *headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


class _Reader:
    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.body = b""
        self.is_whole = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode().lower()] = value.decode()

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.is_whole = True


def responses(data: bytes, *, is_head: bool = False) -> list[Got]:
    """What a client understands of these bytes."""
    found = []
    while data:
        if is_head:
            head, _, data = data.partition(b"\r\n\r\n")
            whole = head + b"\r\n\r\n"
        else:
            whole, data = _cut(data)
        reader = _Reader()
        parser = HttpResponseParser(reader)
        if is_head:
            for line in whole.split(b"\r\n")[1:-2]:
                reader.on_header(*line.split(b": ", 1))
            status, reader.is_whole = int(whole.split()[1]), True
        else:
            parser.feed_data(whole)
            status = parser.get_status_code()
        found.append(Got(status, reader.headers, reader.body, reader.is_whole))
    return found


def _cut(data: bytes) -> tuple[bytes, bytes]:
    """The first response, and what follows it."""
    head, _, rest = data.partition(b"\r\n\r\n")
    fields = {
        name.lower(): value for name, _, value in (line.partition(b": ") for line in head.split(b"\r\n")[1:])
    }
    if b"content-length" in fields:
        length = int(fields[b"content-length"])
    elif b"transfer-encoding" in fields:
        length = rest.find(b"0\r\n\r\n") + 5 if b"0\r\n\r\n" in rest else len(rest)
    elif head.split()[1] in (b"100", b"204", b"304"):
        length = 0
    else:
        length = len(rest)
    at = len(head) + 4 + length
    return data[:at], data[at:]
