"""HTTP/1.1 on one connection: requests are handled one after the other, in their order.

    bytes --> parser  --> [ request | request ]    complete, and waiting for the one before
                                   |
                                 begin --> route --> response, or steps, or a stream in steps
                                                         |
    send  <----------------------------------------------+ then the next request begins

A connection has one request in progress, so that a request after a write sees the write. During a request nothing is
parsed, and reading from the socket stops.

A client that gets an error while it sends its body has a moment to finish, and the rest of the body is dropped:
closing a socket with unread bytes would discard the error response.
"""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock.base.errors import KafkaError
from penstock.base.promise import Promise
from penstock.base.steps import RunningSteps, sleep
from penstock.base.world import Timer
from penstock.gateway.http.protocol import browsers, console_requests
from penstock.gateway.http.protocol.authentication import HEADER
from penstock.gateway.http.protocol.errors import error_response, from_kafka
from penstock.gateway.http.protocol.messages import (
    CHUNKED,
    CLOSE,
    CONTINUE,
    KEEP_ALIVE,
    LAST_CHUNK,
    Answer,
    HttpError,
    Request,
    Response,
    Stream,
    lines,
)
from penstock.gateway.http.protocol.request_guard import RequestGuard
from penstock.gateway.http.protocol.request_parser import SLICE_BYTES, ParsedRequest, RequestParser
from penstock.gateway.http.protocol.routing import BoundRoute, split_target
from penstock.gateway.shared.door_quotas import DoorQuota
from penstock.gateway.shared.login import Login, SessionCookie
from penstock.gateway.shared.wire import Wire
from penstock.handlers.support.context import Session

if TYPE_CHECKING:
    from penstock.gateway.http.server import HttpServer

logger = logging.getLogger(__name__)

LINGER_MS = 1000
"""How long a client may go on sending after an error response, before the connection is closed."""

JOINED_BYTES_MAX = 64 * 1024
"""A body of up to this size is joined with its head, and sent in one piece."""

WITHOUT_BODY: Final = frozenset({204, 304})

_READY: Promise[None] = Promise()
_READY.resolve(None)


class HttpConversation:
    """A `Conversation`."""

    __slots__ = (
        "_began_ns",
        "_complete",
        "_entry",
        "_guard",
        "_is_busy",
        "_is_going_on",
        "_is_head",
        "_is_kept_alive",
        "_is_old",
        "_is_over",
        "_is_paused",
        "_is_reading",
        "_linger",
        "_login",
        "_parser",
        "_quota",
        "_room",
        "_running",
        "_server",
        "_session",
        "_wire",
    )

    def __init__(self, server: "HttpServer", wire: Wire) -> None:
        self._server = server
        self._wire = wire
        self._session = wire.session
        """As connected: of requests that need no log-in."""
        self._session.end = self._end
        self._login: tuple[bytes, Login, Session] | None = None
        """The fingerprint of the last log-in's `Authorization` header, what it showed, and the user's session."""
        self._parser = RequestParser(server)
        self._complete = self._parser.complete
        """Requests that wait for the one in progress."""
        self._is_over = False
        """Whether the connection is closed."""
        self._linger: Timer | None = None
        self._is_paused = False
        """Whether reading from the socket is paused."""
        self._is_going_on = False
        # The request in progress.
        self._is_busy = False
        """Whether there is one."""
        self._entry: BoundRoute | None = None
        """Its route; None for a request without one."""
        self._began_ns = 0
        self._is_head = False
        self._is_reading = False
        """Whether its method is GET or HEAD, which change nothing."""
        self._is_old = False
        self._is_kept_alive = True
        self._running: RunningSteps[Any] | None = None
        self._room: Promise[None] | None = None
        """Resolved when a stream may write more."""
        self._quota = DoorQuota(server.context)
        self._guard = RequestGuard(server, self._give_up)

    # -- what the wire calls ---------------------------------------------------------------------------

    def received(self, data: memoryview) -> None:
        parser = self._parser
        if parser.is_shut:
            return
        if self._is_busy or parser.held:
            parser.hold(data)
            if not self._is_paused:
                self._is_paused = True
                self._wire.stop_reading()
            if self.is_guest:
                self._wire.holds_before_login(parser.kept_bytes)
            return
        if len(data) > SLICE_BYTES:
            parser.hold(data)
        else:
            parser.feed(data)
        self._go_on()
        if self.is_guest:
            self._wire.holds_before_login(parser.kept_bytes)

    def drained(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.resolve(None)
        self._go_on()

    def finished(self) -> None:
        """Cancel a request that only reads. A write is finished and answered, and so are the requests after it."""
        if self._is_busy and self._is_reading:
            self._give_up()

    def ended(self) -> None:
        self._is_over = True
        self._parser.end()
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        self._guard.end()
        self._quota.leave()
        if self._running is not None:
            self._running.cancel()
            self._running = None

    @property
    def is_guest(self) -> bool:
        return self._server.logins is not None and self._login is None

    @property
    def is_idle(self) -> bool:
        return not self._is_busy and not self._complete and not self._parser.held

    @property
    def unfinished(self) -> int | None:
        return self._parser.unfinished if self.is_idle else None

    def give_up_waiting(self) -> None:
        self._parser.refuse(
            HttpError(408, "request_timeout", "timed out waiting for the rest of the request")
        )
        self._go_on()

    def _end(self, why: str) -> None:
        logger.warning("HTTP connection from %s closed: %s", self._wire.peer, why)
        self._close()

    def _close(self) -> None:
        self._parser.shut()
        self._wire.close()

    # -- requests --------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Start the next request, if possible. A nested call returns, and the outer call goes on."""
        if self._is_going_on:
            return
        self._is_going_on = True
        parser = self._parser
        try:
            while not self._is_busy and not self._is_over and not self._wire.is_full:
                if self._complete:
                    self._begin(self._complete.popleft())
                elif parser.login_due:
                    self._log_in_before_body()
                elif parser.held:
                    parser.feed_held()
                else:
                    break
        finally:
            self._is_going_on = False
        if self._is_busy or self._is_over:
            return
        if parser.continue_due and not self._complete:
            parser.continue_due = False
            self._wire.send(CONTINUE)
        if self._is_paused and not parser.held and not parser.is_shut:
            self._is_paused = False
            self._wire.go_on_reading()

    def _begin(self, parsed: ParsedRequest) -> None:
        method, target, headers, body, self._is_kept_alive, self._is_old, wrong = parsed
        self._is_busy = True
        self._entry = None
        self._began_ns = self._server.context.world.clock_ns()
        self._is_head = method == "HEAD"
        self._is_reading = method in ("GET", "HEAD")
        try:
            if wrong is not None:
                raise wrong
            path, query = split_target(target)
            if "host" not in headers and not self._is_old:
                raise HttpError(400, "no_host", "the request has no Host header")
            if browsers.is_browser(headers):
                browsers.check(headers, self._server.hosts(), is_local=self._wire.is_local)
            entry, parameters = self._server.router.find(method, path)
            self._entry = entry
        except Exception as error:
            self._fail(error)
            return
        server = self._server
        logins = server.logins
        is_open = logins is None or (HEADER not in headers and server.is_open(entry.route.rule))
        if logins is None or (is_open and logins.session_cookie(headers) is None):
            self._handle(self._session, entry, parameters, query, headers, body)
            return

        def refused(error: HttpError) -> None:
            """What needs no log-in is answered to a user whose session is over, too."""
            if is_open and error.status == 401:
                self._handle(self._session, entry, parameters, query, headers, body)
            else:
                self._fail(error)

        self._log_in(
            headers,
            lambda session: self._handle(session, entry, parameters, query, headers, body),
            refused,
        )

    def _handle(
        self,
        session: Session,
        entry: BoundRoute,
        parameters: Mapping[str, str],
        query: bytes,
        headers: Mapping[str, str],
        body: bytes,
    ) -> None:
        """Handle a request of a client that is known: here a request of this door begins."""
        server, known = self._server, self._login
        by_session = known is not None and session is known[2] and known[1].is_session
        if server.context.audit is not None:
            route = entry.route
            session = session.within(f"{route.method} {route.path}", headers.get("user-agent"))
        try:
            if not self._is_reading and (by_session or console_requests.HEADER in headers):
                console_requests.check_change(headers, entry.route, is_read_only=server.is_read_only())
            if body and (entry.route.body is None or "content-encoding" in headers):
                _check_body(entry, headers, body)
            request = entry.request(session, parameters, query, headers, body)
            if self._is_head:
                request = request._replace(is_head=True)
            if server.is_guarded:
                login = None if self._login is None else self._login[1]
                self._guard.begin(entry.route, request, login, is_reading=self._is_reading)
            if server.context.quotas is None:
                answer = entry.handle(server.gateway, request)
            else:
                answer = self._handle_within_quotas(entry, request, len(body))
        except Exception as error:
            self._fail(error)
            return
        if isinstance(answer, Response | Stream):
            self._answered(answer)
        elif isinstance(answer, Promise):
            answer.then(self._answered, self._fail)
        else:
            running: RunningSteps[Any] = RunningSteps(answer, self._answered, self._fail)
            if not running.is_over and not self._is_over:
                self._running = running

    def _handle_within_quotas(self, entry: BoundRoute, request: Request, body_bytes: int) -> Any:
        """As on the Kafka port, a request that exceeds a quota is handled; the next one has to wait."""
        quota = self._quota
        share = quota.of(request.session, request.headers.get("user-agent"))
        if share is None or self._server.is_open(entry.route.rule):
            return entry.handle(self._server.gateway, request)
        quota.check(reads=entry.reads_records, writes=entry.writes_records)
        if entry.writes_records:
            quota.wrote(body_bytes)
        began_ns = quota.now_ns()
        answer = entry.handle(self._server.gateway, request)
        quota.worked(began_ns)
        return answer

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
        """Send an error response. An unexpected error is logged."""
        self._running = None
        if self._is_over or not self._is_busy:
            return
        if isinstance(error, KafkaError):
            error = from_kafka(error)
        if not isinstance(error, HttpError):
            logger.error("request from %s failed: unexpected error", self._wire.peer, exc_info=error)
            error = HttpError(500, "internal_error", "internal error; see the broker's log")
        dialect = self._server.router.dialect if self._entry is None else self._entry.route.dialect
        self._respond(error_response(error) if dialect is None else dialect.error_response(error))

    # -- log-ins ---------------------------------------------------------------------------------------

    def _log_in(
        self,
        headers: Mapping[str, str],
        then: Callable[[Session], None],
        refused: Callable[[HttpError], None],
    ) -> None:
        """Call `then` with the session of the user that the headers show. A connection logs in with the first request,
        and again if a request has other credentials or the user has changed."""
        logins, world = self._server.logins, self._server.context.world
        assert logins is not None
        cookie = logins.session_cookie(headers) if HEADER not in headers else None
        given = logins.fingerprint(headers.get(HEADER, "") if cookie is None else f"cookie {cookie}")
        known = self._login
        if known is not None and given == known[0] and known[1].is_current(world.now_ms()):
            then(known[2])
            return
        try:
            credentials = logins.credentials(headers) if cookie is None else SessionCookie(cookie)
        except HttpError as error:
            refused(error)
            return

        def accepted(login: Login) -> None:
            if not self._is_over and self._is_busy:
                session = login.session_of(self._session)
                self._login = given, login, session
                self._wire.holds_before_login(0)
                then(session)

        def failed(error: KafkaError) -> None:
            if not self._is_over and self._is_busy:
                self._is_kept_alive = self._is_kept_alive and cookie is not None
                refused(logins.refusal(error, headers))

        logins.check(credentials, self._session).then(accepted, failed)

    def _log_in_before_body(self) -> None:
        """So that a body is received of users only."""
        parser = self._parser
        self._is_busy = True

        def accepted(_: Session) -> None:
            parser.login_due = self._is_busy = False
            self._go_on()

        def refused(error: HttpError) -> None:
            self._is_busy = False
            parser.refuse(error)
            self._go_on()

        self._log_in(parser.headers, accepted, refused)

    # -- answering -------------------------------------------------------------------------------------

    def _respond(self, response: Response) -> None:
        status, body, content_type, headers = response
        self._count(status)
        if self._entry is not None and self._entry.reads_records:
            self._quota.read(len(body))
        head = self._server.heads.of(status, content_type if status not in WITHOUT_BODY else "")
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
        elif len(body) <= JOINED_BYTES_MAX:
            self._wire.send(b"%sContent-Length: %d\r\n\r\n%s" % (head, len(body), body))
        else:
            self._wire.send(b"%sContent-Length: %d\r\n\r\n" % (head, len(body)))
            self._wire.send(body)
        self._done()

    def _count(self, status: int) -> None:
        """Count the response in metrics. Requests without a route are counted together."""
        server = self._server
        entry = self._entry
        method, path = ("-", "-") if entry is None else (entry.route.method, entry.route.path)
        took_ns = server.context.world.clock_ns() - self._began_ns
        server.context.metrics.http_answered(method, path, status, took_ns)

    def _stream(self, stream: Stream) -> None:
        self._count(stream.status)
        is_measured = any(name.lower() == "content-length" for name, _ in stream.headers)
        is_chunked = not is_measured and not self._is_old
        if not is_measured and self._is_old:
            self._is_kept_alive = False  # closing the connection ends the body
        head = self._server.heads.of(stream.status, stream.content_type) + lines(stream.headers)
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

        running = RunningSteps(stream.write(out), over, self._stream_failed)
        if not running.is_over:
            self._running = running

    def _stream_failed(self, error: Exception) -> None:
        """Close the connection: the missing end of the body shows the error to the client."""
        self._running = None
        if isinstance(error, HttpError | KafkaError):
            logger.warning("stream to %s ended early: %s", self._wire.peer, error)
        else:
            logger.error("stream to %s failed: unexpected error", self._wire.peer, exc_info=error)
        self._guard.end()
        self._is_busy = False
        self._close()

    def send(self, data: bytes) -> None:
        """Send bytes of a stream."""
        if not self._is_over:
            self._wire.send(data)
            if self._entry is not None and self._entry.reads_records:
                self._quota.read(len(data))

    def room(self) -> Promise[None]:
        """Resolved when a stream may send more."""
        if not self._wire.is_full:
            delay_ms = self._quota.read_delay_ms()
            return sleep(self._server.context.world, delay_ms) if delay_ms else _READY
        if self._room is None:
            self._room = Promise()
        return self._room

    def _give_up(self) -> None:
        if self._running is not None:
            self._running.cancel()
            self._running = None
        self._guard.end()
        self._is_busy = False
        self._close()

    def _done(self) -> None:
        self._is_busy = False
        self._guard.end()
        self._parser.free_room()
        if self._is_kept_alive:
            self._go_on()
        elif self._parser.is_refused:
            self._linger = self._server.context.world.call_later(LINGER_MS, self._wire.close)
        else:
            self._close()


class _Plain:
    """The body of a response with a Content-Length, or one that ends with the connection."""

    __slots__ = ("_conversation",)

    def __init__(self, conversation: HttpConversation) -> None:
        self._conversation = conversation

    def write(self, data: bytes) -> None:
        self._conversation.send(data)

    def ready(self) -> Promise[None]:
        return self._conversation.room()


class _Chunks(_Plain):
    """The chunked body of a response of unknown length."""

    __slots__ = ()

    def write(self, data: bytes) -> None:
        if data:  # an empty chunk would be the last
            self._conversation.send(b"%x\r\n%s\r\n" % (len(data), data))


def _check_body(entry: BoundRoute, headers: Mapping[str, str], body: bytes) -> None:
    """Raise if the body is compressed, or if the route takes none."""
    encoding = headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        message = "Content-Encoding is not supported: send the body uncompressed"
        raise HttpError(415, "unsupported_encoding", message, (("Accept-Encoding", "identity"),))
    if entry.route.body is None and body.strip() != b"{}":
        raise HttpError(
            400,
            "unexpected_body",
            f"{entry.route.method} {entry.route.path} takes no body. Send parameters in the query string.",
        )
