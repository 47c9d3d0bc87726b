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
from typing import Any, NamedTuple, Protocol

from httptools import (
    HttpParserCallbackError,
    HttpParserError,
    HttpParserInvalidMethodError,
    HttpParserUpgrade,
    HttpRequestParser,
)

from penstock.base.world import Timer, World
from penstock.gateway.http.protocol.messages import HttpError

logger = logging.getLogger(__name__)

HEAD_BYTES_MAX = 64 * 1024
"""Request line and headers; what browsers and proxies send stays below 16 KB."""

HEADERS_MAX = 100
"""Of one request, trailers included; Apache's and uvicorn's users have lived with it."""

FRAMING_BYTES_PER_BYTE_MAX = 16
"""What a chunked body may have around each of its bytes: a chunk of one byte has 5 or more."""

SLICE_BYTES = 64 * 1024
"""What is parsed at once: small requests that came together do not all become objects together."""

REASON_CHARS_MAX = 100
"""Of what the parser says."""

RETRY_SECONDS = 1
"""What a client that finds no room for its body is told to wait."""

_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}) [!-~]+ HTTP/1\.[01]\r?\n")

_NOTHING = memoryview(b"")


class ParsedRequest(NamedTuple):
    """A request that has come in full; or what is wrong with it, in its place."""

    method: str
    target: bytes
    headers: Mapping[str, str]
    body: bytes
    is_kept_alive: bool
    is_old: bool
    """HTTP/1.0: no chunks, and it closes unless it says otherwise."""
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


class Shared(Protocol):
    """What the requests of all clients have in common."""

    names: dict[bytes, str]
    """Names of headers in lower case, by what was sent."""

    bodies: BodyRoom

    def name(self, raw: bytes) -> str:
        """A header's name that was not met before."""

    def body_bytes_max(self) -> int:
        """The largest body that is taken."""


class RequestParser:
    """One client's. Methods that begin with `on_` are the parser's to call."""

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
        "_shared",
        "_target",
        "_whole",
        "_wrong",
        "complete",
        "continue_due",
        "held",
        "is_refused",
        "is_shut",
    )

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._parser: Any = HttpRequestParser(self)
        self.complete: deque[ParsedRequest] = deque()
        """What has come in full, and nobody has taken. The same object at all times."""
        self.held: memoryview = _NOTHING
        """What was received and not parsed."""
        self.continue_due = False
        """The client waits to be told that it may send the body."""
        self.is_shut = False
        """No request can follow: what comes is thrown away."""
        self.is_refused = False
        """Because it was refused: the client may still be sending."""
        self._is_last = False
        """A request has come after which the client wants no other: what follows is nothing."""
        self._begun = self._whole = 0
        """How many have begun to arrive, and have arrived."""
        # The request that is being parsed.
        self._in_body = False
        self._target = b""
        self._headers: dict[str, str] = {}
        self._header_count = 0
        self._head_bytes = 0
        """Of its headers that are complete."""
        self._fed_bytes = 0
        """What the parser was given of a head that did not end with it."""
        self._body: list[bytes] = []
        self._body_bytes = self._body_bytes_max = 0
        self._counted_bytes = 0
        """What it has of the room for bodies, until it is answered: what follows it is small before that."""
        self._framing_bytes = 0
        """What came since the body began and is not of the body."""
        self._wrong: HttpError | None = None
        """Why the parser was stopped."""

    @property
    def unfinished(self) -> int | None:
        """The number of the request whose rest is waited for; None where none is."""
        return self._begun if self._begun != self._whole and not self.is_shut else None

    # -- bytes in --------------------------------------------------------------------------------------

    def hold(self, data: memoryview) -> None:
        """Keep what is not to be parsed yet, behind what is held already."""
        self.held = memoryview(b"".join((self.held, data)))

    def feed_held(self) -> None:
        """Parse a slice of what is held."""
        data, self.held = self.held[:SLICE_BYTES], self.held[SLICE_BYTES:]
        self.feed(data)

    def feed(self, data: memoryview | bytes) -> None:
        """Parse; what comes out of it is in `complete`."""
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
            # The parser keeps what it has of a header until its end comes: it must not grow.
            self._fed_bytes += len(data)
            if self._fed_bytes > HEAD_BYTES_MAX:
                self.refuse(_head_too_large())

    def _without_upgrade(self) -> None:
        """The client would rather speak something else, which nobody does here: the request is one without that wish.
        But the parser takes what follows for that other thing, the request's own body too."""
        wishing, self._parser = self._parser, HttpRequestParser(self)
        target, headers = self._target, self._headers
        framing = "".join(
            f"{name}: {headers[name]}\r\n"
            for name in ("content-length", "transfer-encoding")
            if name in headers
        )
        if not framing or wishing.get_method() == b"CONNECT":
            return
        self.complete.pop()
        self._parser.feed_data(b"%s / HTTP/1.1\r\n%s\r\n" % (wishing.get_method(), framing.encode("latin-1")))
        if self._in_body:
            self._target, self._headers = target, headers
        else:  # there is none: it is complete
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
            return  # a trailer, which nothing here has a use for
        key = self._shared.names.get(name) or self._shared.name(name)
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
            # RFC 9112, 6.1: whoever does not understand a coding says so, and does not take the body as it is.
            self._stop(
                HttpError(
                    501,
                    "unsupported_encoding",
                    f"Transfer-Encoding is {headers['transfer-encoding'][:64]!r}, expected chunked",
                )
            )
        if "content-length" in headers or "transfer-encoding" in headers:
            self._body_bytes_max = self._shared.body_bytes_max()
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
        self._in_body = self.continue_due = False
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
        """From within the parser: stop it."""
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
        """Take room for what has come and is not counted."""
        more = self._body_bytes - self._counted_bytes
        if not self._shared.bodies.take(more):
            error = HttpError(503, "too_busy", "too many large request bodies at the same time. Retry.")
            error.headers = (("Retry-After", str(RETRY_SECONDS)),)
            self._stop(error)
        self._counted_bytes += more

    def free_room(self) -> None:
        """The request that came last is answered: its body is needed no more."""
        if self._counted_bytes:
            self._shared.bodies.free(self._counted_bytes)
            self._counted_bytes = 0

    # -- the end ---------------------------------------------------------------------------------------

    def refuse(self, error: HttpError) -> None:
        """Nothing more of what this client sends can be understood; it is told so in its turn."""
        self.is_shut = True
        self.held = _NOTHING
        self.continue_due = False
        self._body = []
        self.free_room()
        if self._is_last:
            return
        self.is_refused = True
        self.complete.append(ParsedRequest("", b"", {}, b"", False, False, error))

    def shut(self) -> None:
        """Nothing more is wanted of this client."""
        self.is_shut = True
        self.held = _NOTHING
        self.complete.clear()

    def end(self) -> None:
        """The client is gone."""
        self.shut()
        self._parser = None
        self._body = []
        self.free_room()


def _head_too_large() -> HttpError:
    return HttpError(
        431, "head_too_large", f"more than {HEADERS_MAX} headers, or {HEAD_BYTES_MAX} bytes of headers"
    )


def _unknown_method(error: HttpParserError, data: memoryview | bytes) -> HttpError | None:
    """The data is a request, but for a method that nobody knows. It can be told from noise where its first line has
    come in one piece."""
    if not isinstance(error, HttpParserInvalidMethodError) or not _REQUEST_LINE.match(data):
        return None
    return HttpError(501, "unknown_method", "unknown method; see /docs")


def _not_http(error: HttpParserError) -> HttpError:
    if isinstance(error, HttpParserCallbackError):
        logger.error("request could not be parsed: unexpected error", exc_info=error)
        return HttpError(500, "internal_error", "internal error; see the broker's log")
    reason = str(error.args[0])[:REASON_CHARS_MAX] if error.args else type(error).__name__
    return HttpError(400, "bad_request", f"malformed HTTP request: {reason}")
