"""HTTP/1.1 requests: bytes in; complete requests out, or errors, in order.

    bytes --> hold --> feed --> parser --on_url, on_header, on_body--> [ request | request | error ]   `complete`

The parser is llhttp (of Node.js, through httptools), which rejects ambiguous messages. Routing is done elsewhere.

Everything that a client can make grow is bounded: the head of a request, its body, the framing of a chunked body, and
all bodies together (`BodyRoom`). After a message that cannot be parsed nothing more is parsed, since the start of the
next request is unknown.
"""

import logging
import re
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from httptools import (
    HttpParserCallbackError,
    HttpParserError,
    HttpParserInvalidMethodError,
    HttpParserUpgrade,
    HttpRequestParser,
)

from penstock.base.world import Timer, World
from penstock.gateway.http.protocol.messages import HttpError

if TYPE_CHECKING:
    from penstock.gateway.http.server import HttpServer

logger = logging.getLogger(__name__)

HEAD_BYTES_MAX = 64 * 1024
"""Request line and headers; what browsers and proxies send stays below 16 KB."""

HEADERS_MAX = 100
"""Headers of one request, trailers included; the limit of Apache."""

FRAMING_BYTES_PER_BYTE_MAX = 16
"""Bytes of chunk framing for each byte of a body. A chunk of one byte has at least 5."""

SLICE_BYTES = 64 * 1024
"""Bytes that are parsed in one step, which bounds the number of small requests that are parsed but not handled."""

REASON_CHARS_MAX = 100
"""Characters of a parser error that are passed on to the client."""

RETRY_SECONDS = 1
"""`Retry-After` of the response if there is no room for a body."""

_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}) [!-~]+ HTTP/1\.[01]\r?\n")

_NOTHING = memoryview(b"")


class ParsedRequest(NamedTuple):
    """A complete request; or the error instead of it."""

    method: str
    target: bytes
    headers: Mapping[str, str]
    body: bytes
    is_kept_alive: bool
    is_old: bool
    """HTTP/1.0: no chunked response, and the connection closes unless the client asks for keep-alive."""
    wrong: HttpError | None = None


BODIES_BYTES_MAX = 256 * 2**20
"""All counted bodies together: 16 of the largest at the default settings."""

SMALL_BYTES = 64 * 1024
"""A body below this size is not counted."""

GIVE_BACK_BYTES_MIN = 32 * 2**20
"""Memory is given back only if this much was in use."""

GIVE_BACK_MS = 1000
"""Delay of giving memory back after the last body: refused clients retry."""


class BodyRoom:
    """Bounds the memory for request bodies of all clients.

    A body counts from its first received byte until its request is answered. A body that does not fit is refused with
    503 instead of delayed: bodies that each hold a part of the room and wait for each other would wait forever."""

    def __init__(self, world: World, give_back: Callable[[], None] | None = None) -> None:
        """`give_back` hands freed memory to the system; it runs beside the loop."""
        self._world = world
        self._give_back = give_back
        self.used_bytes = 0
        self._most_bytes = 0
        """The largest `used_bytes` since memory was last given back."""
        self._timer: Timer | None = None

    def take(self, count: int) -> bool:
        """Reserve bytes; False if there is no room."""
        used_bytes = self.used_bytes + count
        if used_bytes > BODIES_BYTES_MAX:
            return False
        self.used_bytes = used_bytes
        self._most_bytes = max(self._most_bytes, used_bytes)
        return True

    def free(self, count: int) -> None:
        self.used_bytes -= count
        if (
            not self.used_bytes
            and self._most_bytes >= GIVE_BACK_BYTES_MIN
            and self._give_back is not None
            and self._timer is None
        ):
            self._timer = self._world.call_later(GIVE_BACK_MS, self._quiet)

    def _quiet(self) -> None:
        self._timer = None
        give_back = self._give_back
        if not self.used_bytes and give_back is not None:
            self._most_bytes = 0
            self._world.beside(give_back, lambda _, _error: None)


class RequestParser:
    """The parser of one client. llhttp calls the methods that begin with `on_`."""

    __slots__ = (
        "_begun",
        "_body",
        "_body_bytes",
        "_body_bytes_max",
        "_counted_bytes",
        "_fed_bytes",
        "_framing_bytes",
        "_head_bytes",
        "_header_count",
        "_headers",
        "_in_body",
        "_is_last",
        "_parser",
        "_server",
        "_target",
        "_whole",
        "_wrong",
        "complete",
        "continue_due",
        "held",
        "is_refused",
        "is_shut",
        "login_due",
    )

    def __init__(self, server: "HttpServer") -> None:
        self._server = server
        self._parser: Any = HttpRequestParser(self)
        self.complete: deque[ParsedRequest] = deque()
        """Complete requests that are not handled yet. Always the same object."""
        self.held: memoryview = _NOTHING
        """Received bytes that are not parsed yet."""
        self.continue_due = False
        """Whether the client waits for `100 Continue` before it sends the body."""
        self.login_due = False
        """Whether the client has to log in before its body is received."""
        self.is_shut = False
        """Whether no request can follow: further input is dropped."""
        self.is_refused = False
        """Whether that is because of an error: the client may still be sending."""
        self._is_last = False
        """Whether the last request ended keep-alive: further input is ignored."""
        self._begun = self._whole = 0
        """Number of requests that have begun, and that are complete."""
        # The request that is being parsed.
        self._in_body = False
        self._target = b""
        self._headers: dict[str, str] = {}
        self._header_count = 0
        self._head_bytes = 0
        """Bytes of its complete headers."""
        self._fed_bytes = 0
        """Bytes of an incomplete head that the parser was fed."""
        self._body: list[bytes] = []
        self._body_bytes = self._body_bytes_max = 0
        self._counted_bytes = 0
        """Bytes of its body that are reserved in `BodyRoom`, until it is answered. The next request is small until
        then."""
        self._framing_bytes = 0
        """Bytes of chunk framing since the start of the body."""
        self._wrong: HttpError | None = None
        """The error that stopped the parser."""

    @property
    def unfinished(self) -> int | None:
        """The number of the request whose rest is missing; None if there is none."""
        return self._begun if self._begun != self._whole and not self.is_shut else None

    @property
    def headers(self) -> Mapping[str, str]:
        """Of the request that is being parsed."""
        return self._headers

    @property
    def kept_bytes(self) -> int:
        """Bytes of requests that are not complete or not handled."""
        held = len(self.held)
        if self._begun == self._whole:
            return held
        return held + max(self._fed_bytes, self._head_bytes + len(self._target)) + self._body_bytes

    # -- bytes in --------------------------------------------------------------------------------------

    def hold(self, data: memoryview) -> None:
        """Keep bytes to be parsed later, after those that are held already."""
        self.held = memoryview(b"".join((self.held, data)))

    def feed_held(self) -> None:
        """Parse a slice of the held bytes."""
        data, self.held = self.held[:SLICE_BYTES], self.held[SLICE_BYTES:]
        self.feed(data)

    def feed(self, data: memoryview | bytes) -> None:
        """Parse bytes; complete requests are appended to `complete`."""
        was_in_body = self._in_body
        was_between = self._begun == self._whole
        body_bytes = self._body_bytes
        complete = len(self.complete)
        try:
            while True:
                try:
                    self._parser.feed_data(data)
                    break
                except HttpParserUpgrade as upgrade:
                    data = data[upgrade.args[0] :]
                    self._without_upgrade()
        except HttpParserError as error:
            is_first = was_between and len(self.complete) == complete
            self.refuse(self._wrong or _unknown_method(error, data if is_first else b"") or _not_http(error))
            return
        if len(self.complete) > complete:
            return
        if self._in_body:
            if was_in_body:
                self._framing_bytes += len(data) - (self._body_bytes - body_bytes)
                if self._framing_bytes > HEAD_BYTES_MAX + FRAMING_BYTES_PER_BYTE_MAX * self._body_bytes:
                    self.refuse(
                        HttpError(400, "bad_request", "the chunks of the body have too much overhead")
                    )
        else:
            # The parser buffers an incomplete header, so its size is bounded here.
            self._fed_bytes += len(data)
            if self._fed_bytes > HEAD_BYTES_MAX:
                self.refuse(_head_too_large())

    def _without_upgrade(self) -> None:
        """Ignore an Upgrade header: no other protocol is supported. The parser has stopped before the body, so a new
        one parses it."""
        previous, self._parser = self._parser, HttpRequestParser(self)
        target, headers = self._target, self._headers
        framing = "".join(
            f"{name}: {headers[name]}\r\n"
            for name in ("content-length", "transfer-encoding")
            if name in headers
        )
        if not framing or previous.get_method() == b"CONNECT":
            return
        self.complete.pop()
        self._parser.feed_data(
            b"%s / HTTP/1.1\r\n%s\r\n" % (previous.get_method(), framing.encode("latin-1"))
        )
        if self._in_body:
            self._target, self._headers = target, headers
        else:  # without a body, the request is complete
            self.complete[-1] = self.complete[-1]._replace(target=target, headers=headers)

    # -- what the parser calls -------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._begun += 1
        self._in_body = False
        self._target = b""
        self._headers = {}
        self._header_count = self._head_bytes = self._fed_bytes = 0
        self._body_bytes = self._framing_bytes = 0
        self._body = []

    def on_url(self, url: bytes) -> None:
        self._target += url
        if len(self._target) > HEAD_BYTES_MAX:
            self._stop(HttpError(400, "target_too_long", f"the target has more than {HEAD_BYTES_MAX} bytes"))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        self._head_bytes += len(name) + len(value)
        if self._header_count > HEADERS_MAX or self._head_bytes > HEAD_BYTES_MAX:
            self._stop(_head_too_large())
        if self._in_body:
            return  # trailers are ignored
        key = self._server.names.get(name) or self._server.name(name)
        text = value.decode("latin-1")
        headers = self._headers
        if key not in headers:
            headers[key] = text
        elif key == "host":
            self._stop(HttpError(400, "bad_request", "more than one Host header"))
        else:
            headers[key] = f"{headers[key]}, {text}"

    def on_headers_complete(self) -> None:
        self._in_body = True
        headers = self._headers
        if headers.get("transfer-encoding", "chunked").strip().lower() != "chunked":
            # RFC 9112, 6.1: a server responds with 501 to a transfer coding that it does not understand.
            self._stop(
                HttpError(
                    501,
                    "unsupported_encoding",
                    f"Transfer-Encoding is {headers['transfer-encoding'][:64]!r}, expected chunked",
                )
            )
        if "content-length" in headers or "transfer-encoding" in headers:
            self._body_bytes_max = self._server.body_bytes_max()
            if self._server.logins is not None:
                small_max = self._server.log_in_bytes_max(self._parser.get_method(), self._target)
                self._body_bytes_max = small_max or self._body_bytes_max
                self.login_due = not small_max
            length = headers.get("content-length", "")
            if length.isdigit() and int(length[:20]) > self._body_bytes_max:
                self._stop(self._body_too_large())
        if "expect" in headers:
            if headers["expect"].lower() != "100-continue":
                self._stop(
                    HttpError(417, "expectation_failed", "unsupported Expect header, expected 100-continue")
                )
            self.continue_due = self._parser.get_http_version() == "1.1"

    def on_body(self, body: bytes) -> None:
        self.continue_due = False
        self._body_bytes += len(body)
        if self._body_bytes > self._body_bytes_max:
            self._stop(self._body_too_large())
        if self._body_bytes > SMALL_BYTES:
            self._count_body()
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._whole = self._begun
        self._in_body = self.continue_due = self.login_due = False
        self._fed_bytes = 0
        parser = self._parser
        version = parser.get_http_version()
        body, self._body = self._body, []
        is_kept_alive = parser.should_keep_alive()
        self._is_last = not is_kept_alive
        self.complete.append(
            ParsedRequest(
                parser.get_method().decode("latin-1"),
                self._target,
                self._headers,
                body[0] if len(body) == 1 else b"".join(body),
                is_kept_alive,
                version == "1.0",
                None
                if version in ("1.1", "1.0")
                else HttpError(505, "bad_version", "unsupported protocol version, expected HTTP/1.1"),
            )
        )

    def _stop(self, error: HttpError) -> None:
        """Stop the parser, from one of its callbacks."""
        self._wrong = error
        raise error

    def _body_too_large(self) -> HttpError:
        return HttpError(
            413,
            "body_too_large",
            f"the body is larger than {self._body_bytes_max} bytes",
            max=self._body_bytes_max,
        )

    def _count_body(self) -> None:
        """Reserve room for the received bytes that are not counted yet."""
        more = self._body_bytes - self._counted_bytes
        if not self._server.bodies.take(more):
            message = "too many large request bodies at the same time. Retry."
            self._stop(HttpError(503, "too_busy", message, (("Retry-After", str(RETRY_SECONDS)),)))
        self._counted_bytes += more

    def free_room(self) -> None:
        """The last request is answered: release the room of its body."""
        if self._counted_bytes:
            self._server.bodies.free(self._counted_bytes)
            self._counted_bytes = 0

    # -- the end ---------------------------------------------------------------------------------------

    def refuse(self, error: HttpError) -> None:
        """Stop parsing this client's input. The error is sent after the responses to earlier requests."""
        self.is_shut = True
        self.held = _NOTHING
        self.continue_due = self.login_due = False
        self._body = []
        self.free_room()
        if self._is_last:
            return
        self.is_refused = True
        self.complete.append(ParsedRequest("", b"", {}, b"", False, False, error))

    def shut(self) -> None:
        """Drop all further input of this client."""
        self.is_shut = True
        self.held = _NOTHING
        self.complete.clear()

    def end(self) -> None:
        """The connection is closed."""
        self.shut()
        self._parser = None
        self._body = []
        self.free_room()


def _head_too_large() -> HttpError:
    return HttpError(
        431, "head_too_large", f"more than {HEADERS_MAX} headers, or {HEAD_BYTES_MAX} bytes of headers"
    )


def _unknown_method(error: HttpParserError, data: memoryview | bytes) -> HttpError | None:
    """The error for a valid request with an unknown method. It is recognised only if the request line has arrived in
    one piece."""
    if not isinstance(error, HttpParserInvalidMethodError) or not _REQUEST_LINE.match(data):
        return None
    return HttpError(501, "unknown_method", "unknown method; see /docs")


def _not_http(error: HttpParserError) -> HttpError:
    if isinstance(error, HttpParserCallbackError):
        logger.error("request could not be parsed: unexpected error", exc_info=error)
        return HttpError(500, "internal_error", "internal error; see the broker's log")
    reason = str(error.args[0])[:REASON_CHARS_MAX] if error.args else type(error).__name__
    return HttpError(400, "bad_request", f"malformed HTTP request: {reason}")
