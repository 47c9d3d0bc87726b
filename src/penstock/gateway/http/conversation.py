"""HTTP/1.1 on a wire: requests in, one after the other; responses out, in their order.

    bytes --> parser --> [ request | request ]   parsed, and waiting for the one before
                 ^               |
    held bytes --+             begin --> route --> response, or steps, or a stream in steps
                                                       |
    send  <--------------------------------------------+ then the next request begins

The parser is llhttp (Node.js's, through httptools), which is strict about what could be read in two ways. One request
of a connection is worked on at a time: what a client sends after a write sees the write. While one is worked on,
nothing more is parsed, and nothing more is received than has come already.

All that a client can make grow is bounded: the head of a request, its body, what lies around a chunked body; and all
bodies together (`bodies`). Who is refused in the middle of sending is given a moment to finish, and what comes is
thrown away: a socket that is closed with unread bytes takes the refusal with it.
"""

import logging
import re
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from httptools import (
    HttpParserCallbackError,
    HttpParserError,
    HttpParserInvalidMethodError,
    HttpParserUpgrade,
    HttpRequestParser,
)

from penstock.base.errors import KafkaError
from penstock.base.later import Later
from penstock.base.world import Timer
from penstock.gateway.http import browsers, targets
from penstock.gateway.http.bodies import SMALL_BYTES, BodyRoom
from penstock.gateway.http.errors import error_response, from_kafka
from penstock.gateway.http.heads import CHUNKED, CLOSE, CONTINUE, KEEP_ALIVE, LAST_CHUNK, Heads, lines
from penstock.gateway.http.messages import Answer, HttpError, Response, Stream
from penstock.gateway.http.routing import Entry, Router
from penstock.gateway.steps import Running
from penstock.gateway.wire import Wire
from penstock.handlers.context import Context, Session
from penstock.metadata import ClusterImage
from penstock.metadata.configs import broker_setting

logger = logging.getLogger(__name__)

HEAD_BYTES_MAX = 64 * 1024
"""Request line and headers; what browsers and proxies send stays below 16 KB."""

HEADERS_MAX = 100
"""Of one request, trailers included; Apache's and uvicorn's users have lived with it."""

BATCHES_MAX = 16
"""How many batches of `message.max.bytes` a body may carry: a call may write to several partitions."""

FRAMING_BYTES_PER_BYTE_MAX = 16
"""What a chunked body may have around each of its bytes: a chunk of one byte has 5 or more."""

SLICE_BYTES = 64 * 1024
"""What is parsed at once: small requests that came together do not all become objects together."""

LINGER_MS = 1000
"""How long a refused client may go on sending before it is cut off."""

NAMES_MAX = 1000
"""Names of headers that are known in lower case; clients have a few dozen between them."""

WITHOUT_BODY: Final = frozenset({204, 304})

REASON_CHARS_MAX = 100
"""Of what the parser says."""

RETRY_SECONDS = 1
"""What a client that finds no room for its body is told to wait."""

_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}) [!-~]+ HTTP/1\.[01]\r?\n")

_NOTHING = memoryview(b"")
_READY: Later[None] = Later()
_READY.answer(None)


class _Parsed(NamedTuple):
    """A request that has come in full; or what is wrong with it, in its place."""

    method: str
    target: bytes
    headers: Mapping[str, str]
    body: bytes
    is_kept_alive: bool
    is_old: bool
    """HTTP/1.0: no chunks, and it closes unless it says otherwise."""
    wrong: HttpError | None = None


class HttpDoor:
    """JSON over HTTP, for all of its clients."""

    def __init__(
        self, gateway: Any, router: Router, give_back_memory: Callable[[], None] | None = None
    ) -> None:
        """`gateway` is what routes are called with; it has a `context`. `give_back_memory` hands what was freed to the
        system."""
        self.gateway = gateway
        self.router = router
        self.context: Context = gateway.context
        self.heads = Heads(self.context.world)
        self.bodies = BodyRoom(self.context.world, give_back_memory)
        self.names: dict[bytes, str] = {}
        """Names of headers in lower case, by what was sent."""
        self._image: ClusterImage | None = None
        """The one that the settings below were looked up in."""
        self._body_bytes_max = 0

    def converse(self, wire: Wire) -> "HttpConversation":
        return HttpConversation(self, wire)

    def body_bytes_max(self) -> int:
        """The largest body that is taken: room for some full batches, within what any request may have."""
        image, settings = self.context.image, self.context.settings
        if image is not self._image:
            self._image = image
            self._body_bytes_max = min(
                int(broker_setting("socket.request.max.bytes", image, settings) or 0),
                BATCHES_MAX * int(broker_setting("message.max.bytes", image, settings) or 0),
            )
        return self._body_bytes_max

    def hosts(self) -> list[str]:
        """Names of this server that browsers may use."""
        listed = broker_setting("http.hosts", self.context.image, self.context.settings) or ""
        return [browsers.name_of(each.strip().lower()) for each in listed.split(",") if each.strip()]

    def name(self, raw: bytes) -> str:
        """A header's name that was not met before."""
        name = raw.lower().decode("latin-1")
        if len(self.names) < NAMES_MAX:
            self.names[raw] = name
        return name


class HttpConversation:
    """One client's. Methods that begin with `on_` are the parser's to call."""

    __slots__ = (
        "_began_ns",
        "_begun",
        "_body",
        "_body_bytes",
        "_body_bytes_max",
        "_continue_due",
        "_counted_bytes",
        "_door",
        "_entry",
        "_fed_bytes",
        "_framing_bytes",
        "_head_bytes",
        "_header_count",
        "_headers",
        "_held",
        "_in_body",
        "_is_broken",
        "_is_busy",
        "_is_going_on",
        "_is_head",
        "_is_kept_alive",
        "_is_last",
        "_is_old",
        "_is_over",
        "_is_paused",
        "_is_reading",
        "_is_refused",
        "_linger",
        "_parser",
        "_room",
        "_running",
        "_session",
        "_target",
        "_waiting",
        "_whole",
        "_wire",
        "_wrong",
    )

    def __init__(self, door: HttpDoor, wire: Wire) -> None:
        self._door = door
        self._wire = wire
        self._session = Session("", 0, wire.peer, "HTTP", self._end)
        self._parser: Any = HttpRequestParser(self)
        self._entry: Entry | None = None
        """Who answers; None where nobody does."""
        self._began_ns = 0
        self._is_over = False
        """The client is gone."""
        self._is_broken = False
        """No request can follow: what comes is thrown away."""
        self._is_refused = False
        """Because it was refused: it may still be sending."""
        self._linger: Timer | None = None
        # The request that is being parsed.
        self._begun = self._whole = 0
        """How many have begun to arrive, and have arrived."""
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
        self._continue_due = False
        """The client waits to be told that it may send the body."""
        self._wrong: HttpError | None = None
        """Why the parser was stopped."""
        self._is_last = False
        """A request has come after which the client wants no other: what follows is nothing."""
        # Requests that follow it.
        self._waiting: deque[_Parsed] = deque()
        self._held: memoryview = _NOTHING
        """What was received and not parsed."""
        self._is_paused = False
        self._is_going_on = False
        # The request that is worked on.
        self._is_busy = False
        self._is_head = False
        self._is_reading = False
        """It changes nothing here, by its method."""
        self._is_old = False
        self._is_kept_alive = True
        self._running: Running[Any] | None = None
        self._room: Later[None] | None = None
        """Answered when a stream may write more."""

    # -- what the wire calls ---------------------------------------------------------------------------

    def received(self, data: memoryview) -> None:
        if self._is_broken or self._is_over:
            return
        if self._is_busy or self._held:
            self._hold(data)
            return
        if len(data) > SLICE_BYTES:
            self._held = memoryview(bytes(data))
        else:
            self._feed(data)
        self._go_on()

    def drained(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.answer(None)
        self._go_on()

    def finished(self) -> None:
        """What only reads is given up; a write is answered, whether or not anybody listens, and what was sent after
        it as well."""
        if self._is_busy and self._is_reading:
            self._give_up()

    def ended(self) -> None:
        self._is_over = self._is_broken = True
        self._parser = None
        self._held = _NOTHING
        self._waiting.clear()
        self._body = []
        self._free_room()
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        if self._running is not None:
            self._running.cancel()
            self._running = None

    @property
    def is_idle(self) -> bool:
        return not self._is_busy and not self._waiting and not self._held

    @property
    def unfinished(self) -> int | None:
        return self._begun if self._begun != self._whole and not self._is_broken and self.is_idle else None

    def give_up_waiting(self) -> None:
        self._refuse(HttpError(408, "request_timeout", "the rest of the request did not come in time"))
        self._go_on()

    def _end(self, why: str) -> None:
        logger.warning("HTTP connection from %s closed: %s", self._wire.peer, why)
        self._close()

    def _close(self) -> None:
        self._is_broken = True
        self._held = _NOTHING
        self._waiting.clear()
        self._wire.close()

    # -- parsing ---------------------------------------------------------------------------------------

    def _feed(self, data: "memoryview | bytes") -> None:
        """Parse; what comes out of it is in `_waiting`."""
        was_in_body = self._in_body
        was_between = self._begun == self._whole
        body_bytes = self._body_bytes
        waiting = len(self._waiting)
        try:
            while True:
                try:
                    self._parser.feed_data(data)
                    break
                except HttpParserUpgrade as upgrade:
                    data = data[upgrade.args[0] :]
                    self._without_upgrade()
        except HttpParserError as error:
            is_first = was_between and len(self._waiting) == waiting
            self._refuse(self._wrong or _unknown_method(error, data if is_first else b"") or _not_http(error))
            return
        if len(self._waiting) > waiting:
            return
        if self._in_body:
            if was_in_body:
                self._framing_bytes += len(data) - (self._body_bytes - body_bytes)
                if self._framing_bytes > HEAD_BYTES_MAX + FRAMING_BYTES_PER_BYTE_MAX * self._body_bytes:
                    self._refuse(HttpError(400, "bad_request", "there is too much around the body"))
        else:
            # The parser keeps what it has of a header until its end comes: it must not grow.
            self._fed_bytes += len(data)
            if self._fed_bytes > HEAD_BYTES_MAX:
                self._refuse(_head_too_large())

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
        self._waiting.pop()
        self._parser.feed_data(b"%s / HTTP/1.1\r\n%s\r\n" % (wishing.get_method(), framing.encode("latin-1")))
        if self._in_body:
            self._target, self._headers = target, headers
        else:  # there is none: it is complete
            self._waiting[-1] = self._waiting[-1]._replace(target=target, headers=headers)

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
        key = self._door.names.get(name) or self._door.name(name)
        text = value.decode("latin-1")
        headers = self._headers
        if key not in headers:
            headers[key] = text
        elif key == "host":
            self._stop(HttpError(400, "bad_request", "there is more than one Host header"))
        else:
            headers[key] = f"{headers[key]}, {text}"

    def on_headers_complete(self) -> None:
        self._in_body = True
        headers = self._headers
        if "content-length" in headers or "transfer-encoding" in headers:
            self._body_bytes_max = self._door.body_bytes_max()
            length = headers.get("content-length", "")
            if length.isdigit() and int(length[:20]) > self._body_bytes_max:
                self._stop(self._body_too_large())
        if "expect" in headers:
            if headers["expect"].lower() != "100-continue":
                self._stop(HttpError(417, "expectation_failed", "no expectation but 100-continue is met"))
            self._continue_due = self._parser.get_http_version() == "1.1"

    def on_body(self, body: bytes) -> None:
        self._continue_due = False
        self._body_bytes += len(body)
        if self._body_bytes > self._body_bytes_max:
            self._stop(self._body_too_large())
        if self._body_bytes > SMALL_BYTES:
            self._count_body()
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._whole = self._begun
        self._in_body = self._continue_due = False
        self._fed_bytes = 0
        parser = self._parser
        version = parser.get_http_version()
        body, self._body = self._body, []
        is_kept_alive = parser.should_keep_alive()
        self._is_last = not is_kept_alive
        self._waiting.append(
            _Parsed(
                parser.get_method().decode("latin-1"),
                self._target,
                self._headers,
                body[0] if len(body) == 1 else b"".join(body),
                is_kept_alive,
                version == "1.0",
                None
                if version in ("1.1", "1.0")
                else HttpError(505, "bad_version", "HTTP/1.1 is spoken here"),
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
        if not self._door.bodies.take(more):
            error = HttpError(503, "too_busy", "there are too many large bodies at once: send it again")
            error.headers = (("Retry-After", str(RETRY_SECONDS)),)
            self._stop(error)
        self._counted_bytes += more

    def _free_room(self) -> None:
        if self._counted_bytes:
            self._door.bodies.free(self._counted_bytes)
            self._counted_bytes = 0

    def _refuse(self, error: HttpError) -> None:
        """Nothing more of what this client sends can be understood; it is told so in its turn."""
        self._is_broken = True
        self._held = _NOTHING
        self._continue_due = False
        self._body = []
        self._free_room()
        if self._is_last:
            return
        self._is_refused = True
        self._waiting.append(_Parsed("", b"", {}, b"", False, False, error))

    # -- one after the other ---------------------------------------------------------------------------

    def _hold(self, data: memoryview) -> None:
        self._held = memoryview(b"".join((self._held, data)))
        if not self._is_paused:
            self._is_paused = True
            self._wire.stop_reading()

    def _go_on(self) -> None:
        """Begin what can be begun. Called again from within, it leaves the work to the call that is under way."""
        if self._is_going_on:
            return
        self._is_going_on = True
        try:
            while not self._is_busy and not self._is_over and not self._wire.is_full:
                if self._waiting:
                    self._begin(self._waiting.popleft())
                elif self._held:
                    data, self._held = self._held[:SLICE_BYTES], self._held[SLICE_BYTES:]
                    self._feed(data)
                else:
                    break
        finally:
            self._is_going_on = False
        if self._is_busy or self._is_over:
            return
        if self._continue_due and not self._waiting:
            self._continue_due = False
            self._wire.send(CONTINUE)
        if self._is_paused and not self._held and not self._is_broken:
            self._is_paused = False
            self._wire.go_on_reading()

    def _begin(self, parsed: _Parsed) -> None:
        method, target, headers, body, self._is_kept_alive, self._is_old, wrong = parsed
        self._is_busy = True
        self._entry = None
        self._began_ns = self._door.context.world.clock_ns()
        self._is_head = method == "HEAD"
        self._is_reading = method in ("GET", "HEAD")
        try:
            if wrong is not None:
                raise wrong
            path, query = targets.split(target)
            if "host" not in headers and not self._is_old:
                raise HttpError(400, "no_host", "the request has no Host header")
            if browsers.is_browser(headers):
                browsers.check(headers, self._door.hosts(), is_local=self._wire.is_local)
            entry, parameters = self._door.router.find(method, path)
            self._entry = entry
            if body and (entry.route.body is None or "content-encoding" in headers):
                _check_body(entry, headers, body)
            request = entry.request(self._session, parameters, query, headers, body)
            if self._is_head:
                request = request._replace(is_head=True)
            answer = entry.handle(self._door.gateway, request)
        except Exception as error:
            self._fail(error)
            return
        if isinstance(answer, Response | Stream):
            self._answered(answer)
        elif isinstance(answer, Later):
            answer.then(self._answered_later)
        else:
            running: Running[Any] = Running(answer, self._answered, self._fail)
            if not running.is_over and not self._is_over:
                self._running = running

    def _answered_later(self, answer: Any) -> None:
        if isinstance(answer, Exception):
            self._fail(answer)
        else:
            self._answered(answer)

    def _answered(self, answer: Answer) -> None:
        self._running = None
        if self._is_over or not self._is_busy:
            return
        try:
            if isinstance(answer, Stream):
                self._stream(answer)
            else:
                self._respond(answer)
        except Exception as error:  # a header that cannot be sent
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Tell the client what is wrong; what nobody foresaw is told to the operator."""
        self._running = None
        if self._is_over or not self._is_busy:
            return
        if isinstance(error, KafkaError):
            error = from_kafka(error)
        if not isinstance(error, HttpError):
            logger.error(
                "a request from %s failed in a way that nobody foresaw", self._wire.peer, exc_info=error
            )
            error = HttpError(500, "internal_error", "the request could not be handled; the log says why")
        self._respond(error_response(error))

    # -- answering -------------------------------------------------------------------------------------

    def _respond(self, response: Response) -> None:
        status, body, content_type, headers = response
        self._count(status)
        head = self._door.heads.of(status, content_type if status not in WITHOUT_BODY else "")
        if headers:
            head += lines(headers)
        if not self._is_kept_alive:
            head += CLOSE
        elif self._is_old:
            head += KEEP_ALIVE
        if status in WITHOUT_BODY:
            self._wire.send(head + b"\r\n")
        elif self._is_head:
            self._wire.send(b"%sContent-Length: %d\r\n\r\n" % (head, len(body)))
        elif len(body) <= SLICE_BYTES:
            self._wire.send(b"%sContent-Length: %d\r\n\r\n%s" % (head, len(body), body))
        else:
            self._wire.send(b"%sContent-Length: %d\r\n\r\n" % (head, len(body)))
            self._wire.send(body)
        self._done()

    def _count(self, status: int) -> None:
        """For metrics; what has no route is counted together, whatever it was."""
        door = self._door
        entry = self._entry
        method, path = ("-", "-") if entry is None else (entry.route.method, entry.route.path)
        took_ns = door.context.world.clock_ns() - self._began_ns
        door.context.metrics.http_answered(method, path, status, took_ns)

    def _stream(self, stream: Stream) -> None:
        self._count(stream.status)
        is_measured = any(name.lower() == "content-length" for name, _ in stream.headers)
        is_chunked = not is_measured and not self._is_old
        if not is_measured and self._is_old:
            self._is_kept_alive = False  # its end is the end of the connection
        head = self._door.heads.of(stream.status, stream.content_type) + lines(stream.headers)
        if is_chunked:
            head += CHUNKED
        if not self._is_kept_alive:
            head += CLOSE
        elif self._is_old:
            head += KEEP_ALIVE
        self._wire.send(head + b"\r\n")
        if self._is_head:
            self._done()
            return
        out = _Chunks(self) if is_chunked else _Plain(self)

        def over(_: None) -> None:
            self._running = None
            if not self._is_over:
                if is_chunked:
                    self._wire.send(LAST_CHUNK)
                self._done()

        running = Running(stream.write(out), over, self._stream_failed)
        if not running.is_over:
            self._running = running

    def _stream_failed(self, error: Exception) -> None:
        """The client has the beginning already: that there is no end tells it."""
        self._running = None
        if isinstance(error, HttpError | KafkaError):
            logger.warning("a stream for %s ended early: %s", self._wire.peer, error)
        else:
            logger.error(
                "a stream for %s failed in a way that nobody foresaw", self._wire.peer, exc_info=error
            )
        self._is_busy = False
        self._close()

    def send(self, data: bytes) -> None:
        """Of a stream."""
        if not self._is_over:
            self._wire.send(data)

    def room(self) -> Later[None]:
        """Answered when a stream may send more."""
        if not self._wire.is_full:
            return _READY
        if self._room is None:
            self._room = Later()
        return self._room

    def _give_up(self) -> None:
        if self._running is not None:
            self._running.cancel()
            self._running = None
        self._is_busy = False
        self._close()

    def _done(self) -> None:
        self._is_busy = False
        self._free_room()
        if self._is_kept_alive:
            self._go_on()
        elif self._is_refused:
            self._linger = self._door.context.world.call_later(LINGER_MS, self._wire.close)
        else:
            self._close()


class _Plain:
    """The body of a response that says how long it is, or ends with the connection."""

    __slots__ = ("_conversation",)

    def __init__(self, conversation: HttpConversation) -> None:
        self._conversation = conversation

    def write(self, data: bytes) -> None:
        self._conversation.send(data)

    def ready(self) -> Later[None]:
        return self._conversation.room()


class _Chunks(_Plain):
    """The body of a response whose length nobody knows."""

    __slots__ = ()

    def write(self, data: bytes) -> None:
        if data:  # an empty chunk would be the last
            self._conversation.send(b"%x\r\n%s\r\n" % (len(data), data))


def _check_body(entry: Entry, headers: Mapping[str, str], body: bytes) -> None:
    """There is one: whether it can be read, and whether anybody would."""
    encoding = headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        error = HttpError(415, "unsupported_encoding", "a body is taken as it is, without Content-Encoding")
        error.headers = (("Accept-Encoding", "identity"),)
        raise error
    if entry.route.body is None and body.strip() != b"{}":
        raise HttpError(
            400,
            "unexpected_body",
            f"{entry.route.method} {entry.route.path} takes no body; parameters go behind the ?",
        )


def _head_too_large() -> HttpError:
    return HttpError(
        431, "head_too_large", f"there are more than {HEADERS_MAX} headers, or {HEAD_BYTES_MAX} bytes of them"
    )


def _unknown_method(error: HttpParserError, data: "memoryview | bytes") -> HttpError | None:
    """The data is a request, but for a method that nobody knows. It can be told from noise where its first line has
    come in one piece."""
    if not isinstance(error, HttpParserInvalidMethodError) or not _REQUEST_LINE.match(data):
        return None
    return HttpError(501, "unknown_method", "there is no such method; /docs has those that there are")


def _not_http(error: HttpParserError) -> HttpError:
    if isinstance(error, HttpParserCallbackError):
        logger.error("a request could not be taken in a way that nobody foresaw", exc_info=error)
        return HttpError(500, "internal_error", "the request could not be handled; the log says why")
    reason = str(error.args[0])[:REASON_CHARS_MAX] if error.args else type(error).__name__
    return HttpError(400, "bad_request", f"this is not HTTP: {reason}")
