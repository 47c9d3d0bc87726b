"""Log-ins at SASL listeners.

    SaslHandshake 0 to 1        the client chooses a mechanism
    SaslAuthenticate 0 to 2     the client's tokens; after SaslHandshake 0 they come without Kafka's headers

A connection to a SASL listener begins with a `LoginDispatcher`, which accepts only ApiVersions and these two. When the
client has logged in, the connection is served by the node's dispatcher, as on any other listener, so a log-in costs
later requests nothing. If sessions expire (`connections.max.reauth.ms`, tokens), a dispatcher in between checks the
time.

Before its log-in a connection has small frames (`sasl.server.max.receive.size`) and `LOGIN_MS_MAX` of time. After a
failure the client is answered `connection.failed.authentication.delay.ms` later, and its connection is closed.
"""

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, Protocol

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import HoldingPromise, Promise
from penstock.base.world import Timer, World
from penstock.handlers.support.context import Call, Context, Session
from penstock.handlers.support.replies import NO_REPLY, Reply
from penstock.security.sasl.exchange import Accepted, Challenge, Refused, Undecided, Verdict
from penstock.security.sasl.login import Handshake, LoggedIn, LoginState, MakeExchange, SaslLogin
from penstock.wire import (
    KAFKA_RANGES,
    Api,
    Piece,
    RequestHeader,
    UnsupportedVersion,
    api_name,
    parse_header,
    read_request,
    response_frame,
    write_response,
)
from penstock.wire.messages import response_builder
from penstock.wire.primitives import INT32

logger = logging.getLogger(__name__)

LOGIN_MS_MAX: Final = 30_000
"""From the connection, or from the handshake of another log-in, to the end of the log-in. Kafka has only
`connections.max.idle.ms`, ten minutes; its clients give up after `socket.connection.setup.timeout.max.ms`, 30 s."""

AGAIN_NS_MIN: Final = 1_000_000_000
"""A connection may log in again once a second, as in Kafka."""

LOG_INTERVAL_NS: Final = 1_000_000_000
"""One line about failed log-ins in this time, with their number."""


class RequestDispatcher(Protocol):
    def dispatch(self, session: Session, frame: memoryview) -> Reply: ...

    def closed(self, session: Session) -> None: ...


class LoginConnection(Protocol):
    """The connection, as its log-in sees it."""

    def serve_before_login(self, dispatcher: RequestDispatcher, request_bytes_max: int) -> None:
        """Pass requests to this dispatcher from now on, with small frames and bounded memory."""

    def serve_after_login(self, dispatcher: RequestDispatcher) -> None: ...

    def end(self, why: str) -> None: ...

    def close(self) -> None:
        """Close after the output is sent."""

    def abort(self) -> None: ...


class FailedLogins:
    """Logs failed log-ins, in one line for those within a second, because a client can cause any number of them."""

    __slots__ = ("_count", "_logged_ns", "_world")

    def __init__(self, world: World) -> None:
        self._world = world
        self._count = 0
        self._logged_ns: int | None = None

    def add(self, session: Session, why: str) -> None:
        now_ns = self._world.clock_ns()
        if self._logged_ns is not None and now_ns - self._logged_ns < LOG_INTERVAL_NS:
            self._count += 1
            return
        more = f"; {self._count} more failed since the last line" if self._count else ""
        self._count, self._logged_ns = 0, now_ns
        logger.warning(
            "a log-in from %s at listener %s failed: %s%s", session.peer, session.listener, why, more
        )


class SaslListener:
    """What the connections to one listener share."""

    def __init__(
        self,
        context: Context,
        mechanisms: Mapping[str, MakeExchange],
        *,
        receive_bytes_max: int,
        failed_delay_ms: int,
        session_ms: Mapping[str, int],
        reached_latest: Callable[[], Promise[bool]],
    ) -> None:
        """`session_ms` has the lifetime of sessions by mechanism, 0 for no end; `reached_latest` waits for the
        controller's latest metadata."""
        self.world = context.world
        self.metrics = context.metrics
        self.audit = context.audit
        self.mechanisms = mechanisms
        self.receive_bytes_max = receive_bytes_max
        self.failed_delay_ms = failed_delay_ms
        self.session_ms = session_ms
        self.reached_latest = reached_latest
        self.failed = FailedLogins(context.world)


class LoginDispatcher:
    """Serves one connection until it has logged in, and again while it logs in again."""

    __slots__ = (
        "_after",
        "_again_ns",
        "_connection",
        "_delay",
        "_is_closed",
        "_listener",
        "_login",
        "_timer",
    )

    def __init__(self, listener: SaslListener, connection: LoginConnection, after: RequestDispatcher) -> None:
        """`after` serves the connection when it has logged in."""
        self._listener = listener
        self._connection = connection
        self._after = after
        self._login = SaslLogin(listener.mechanisms)
        self._again_ns: int | None = None
        """When the connection last began to log in again."""
        self._delay: Timer | None = None
        """Runs between a failure and its answer."""
        self._is_closed = False
        self._timer: Timer | None = None
        self._begin()

    def _begin(self) -> None:
        self._timer = self._listener.world.call_later(LOGIN_MS_MAX, self._too_late)
        self._connection.serve_before_login(self, self._listener.receive_bytes_max)

    def _too_late(self) -> None:
        self._timer = None
        logger.debug("a connection is closed: it did not log in within %d ms", LOGIN_MS_MAX)
        self._connection.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def closed(self, session: Session) -> None:
        self._is_closed = True
        self._stop_timer()
        if self._delay is not None:
            self._delay.cancel()
        self._after.closed(session)

    # -- requests --------------------------------------------------------------------------------------

    def dispatch(self, session: Session, frame: memoryview) -> Reply:
        session.login = self
        try:
            return self._take(session, frame)
        except KafkaError as error:
            self._login.fail()
            self._listener.metrics.unanswerable += 1
            self._note_failed(session, str(error))
            self._connection.close()
            return NO_REPLY

    def _take(self, session: Session, frame: memoryview) -> Reply:
        login = self._login
        if login.takes_raw_tokens:
            return self._take_token(session, bytes(frame), None)
        header = parse_header(frame)
        if header.api_key == Api.API_VERSIONS:
            login.api_versions(header.api_version in KAFKA_RANGES[Api.API_VERSIONS])
            return self._after.dispatch(session, frame)
        if header.api_key == Api.SASL_HANDSHAKE:
            message = self._read(Api.SASL_HANDSHAKE, header, frame)
            make = response_builder(Api.SASL_HANDSHAKE, header.api_version)
            found = login.handshake(header.api_version, message.mechanism)
            response = make.SaslHandshakeResponse(error_code=found.code, mechanisms=found.mechanisms)
            reply = self._framed(Api.SASL_HANDSHAKE, header, response)
            return reply if not found.code else self._fail(session, reply, _off(message.mechanism))
        if header.api_key == Api.SASL_AUTHENTICATE:
            message = self._read(Api.SASL_AUTHENTICATE, header, frame)
            return self._take_token(session, message.auth_bytes, header)
        what = "authentication" if login.state is LoginState.TOKENS else "handshake"
        raise KafkaError(
            f"Unexpected Kafka request of type {api_name(header.api_key)} during SASL {what}.",
            ErrorCode.ILLEGAL_SASL_STATE,
        )

    @staticmethod
    def _read(api: Api, header: RequestHeader, frame: memoryview) -> Any:
        if header.api_version not in KAFKA_RANGES[api]:
            low, high = KAFKA_RANGES[api]
            raise UnsupportedVersion(
                f"{api.label} version {header.api_version} is not supported, expected {low} to {high}"
            )
        return read_request(api, header.api_version, frame[header.body_at :])

    def _framed(self, api: Api, header: RequestHeader, response: Any) -> list[Piece]:
        meter = self._listener.metrics.api(api)
        self._listener.metrics.answered(meter)
        if response.error_code:
            meter.fail(int(response.error_code))
        version = header.api_version
        return [response_frame(api, version, header.correlation_id, write_response(api, version, response))]

    # -- tokens ----------------------------------------------------------------------------------------

    def _take_token(self, session: Session, token: bytes, header: RequestHeader | None) -> Reply:
        """Take a token, with the header of its request or without one."""
        if not self._login.needs_latest:
            return self._answer(session, self._login.token(token, is_latest=True), header)
        later: HoldingPromise[list[Piece]] = HoldingPromise()

        def evaluate(is_latest: bool) -> None:
            if self._is_closed:
                return
            try:
                reply = self._answer(session, self._login.token(token, is_latest=is_latest), header)
            except KafkaError as error:
                self._connection.end(str(error))
                return
            if isinstance(reply, Promise):
                reply.then(later.resolve)
            elif isinstance(reply, list):
                later.resolve(reply)

        self._listener.reached_latest().then(evaluate)
        return later

    def _answer(self, session: Session, verdict: Verdict, header: RequestHeader | None) -> Reply:
        match verdict:
            case Challenge(token):
                return self._token_reply(header, token)
            case Accepted():
                return self._token_reply(header, verdict.token, self._logged_in(session, verdict))
            case Undecided(why):
                # Without an answer: clients try again, and give up after a refusal.
                self._connection.end(f"log-in: {why}")
                return HoldingPromise()
            case Refused(why, message, _):
                return self._fail(session, self._refusal(header, message), why, verdict.user)

    def _token_reply(self, header: RequestHeader | None, token: bytes, session_ms: int = 0) -> list[Piece]:
        if header is None:
            return [INT32.pack(len(token)) + token]
        response = response_builder(Api.SASL_AUTHENTICATE, header.api_version).SaslAuthenticateResponse(
            error_code=ErrorCode.NONE,
            error_message=None,
            auth_bytes=token,
            session_lifetime=timedelta(milliseconds=session_ms),
        )
        return self._framed(Api.SASL_AUTHENTICATE, header, response)

    def _refusal(self, header: RequestHeader | None, message: str | None) -> list[Piece]:
        if header is None:
            return []
        response = response_builder(Api.SASL_AUTHENTICATE, header.api_version).SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
            error_message=message,
            auth_bytes=b"",
            session_lifetime=timedelta(0),
        )
        return self._framed(Api.SASL_AUTHENTICATE, header, response)

    # -- ends of log-ins -------------------------------------------------------------------------------

    def _logged_in(self, session: Session, verdict: Accepted) -> int:
        """Serve the connection as the user. Returns the lifetime of the session, 0 for no end."""
        self._stop_timer()
        mechanism = self._login.mechanism
        session_ms = max(self._listener.session_ms.get(mechanism, 0), 0)
        user, expires_ms = verdict.user, verdict.expires_ms
        session.principal, session.is_by_token = f"User:{user}", verdict.is_by_token
        self._login = SaslLogin(self._listener.mechanisms, LoggedIn(mechanism, user))
        logger.debug("%s logged in as %s with %s", session.peer, session.principal, mechanism)
        if self._listener.audit is not None:
            self._listener.audit.logged_in(session, mechanism)
        if not session_ms and expires_ms is None:
            self._connection.serve_after_login(self._after)
            return 0
        world = self._listener.world
        end = SessionEnd(self._after, world, session_ms, expires_ms)
        self._connection.serve_after_login(end)
        return end.left_ms()

    def _note_failed(self, session: Session, why: str, user: str | None = None) -> None:
        self._listener.failed.add(session, why)
        if self._listener.audit is not None:
            self._listener.audit.login_failed(session, self._login.mechanism or None, why, user)

    def _fail(
        self, session: Session, reply: list[Piece], why: str, user: str | None = None
    ) -> Promise[list[Piece]]:
        """Answer after the delay, and close the connection."""
        self._stop_timer()
        self._login.fail()
        self._note_failed(session, why, user)
        later: HoldingPromise[list[Piece]] = HoldingPromise()

        def answer() -> None:
            self._delay = None
            later.resolve(reply)
            self._connection.close()

        self._delay = self._listener.world.call_later(self._listener.failed_delay_ms, answer)
        return later

    # -- logging in again ------------------------------------------------------------------------------

    def begin_again(self, call: Call) -> Any:
        """SaslHandshake of a connection that has logged in. None if the last one was less than a second ago."""
        now_ns = self._listener.world.clock_ns()
        if self._again_ns is not None and now_ns - self._again_ns < AGAIN_NS_MIN:
            return None
        self._again_ns = now_ns
        self._begin()
        mechanism = call.message.mechanism
        found = self._login.handshake(call.version, mechanism)
        response = _handshake_response(call, found)
        if not found.code:
            return response
        later: HoldingPromise[Any] = HoldingPromise()
        self._fail(call.session, [], _off(mechanism)).then(lambda _: later.resolve(response))
        return later


class SessionEnd:
    """Serves a connection until its session ends; then the connection must log in again.

    `connections.max.reauth.ms` is a duration. A token expires at a time of the wall clock.
    """

    __slots__ = ("_after", "_end_ns", "_expires_ms", "_world")

    def __init__(
        self, after: RequestDispatcher, world: World, session_ms: int, expires_ms: int | None
    ) -> None:
        """`session_ms` is 0 for a session that only what the client logged in with ends."""
        self._after = after
        self._world = world
        self._end_ns = world.clock_ns() + session_ms * 1_000_000 if session_ms else None
        self._expires_ms = expires_ms

    def left_ms(self) -> int:
        """Time to the end of the session; at least 1, since 0 says that it does not end."""
        left = []
        if self._end_ns is not None:
            left.append((self._end_ns - self._world.clock_ns()) // 1_000_000)
        if self._expires_ms is not None:
            left.append(self._expires_ms - self._world.now_ms())
        return max(min(left), 1)

    def _has_ended(self) -> bool:
        world = self._world
        return (self._end_ns is not None and world.clock_ns() > self._end_ns) or (
            self._expires_ms is not None and world.now_ms() >= self._expires_ms
        )

    def dispatch(self, session: Session, frame: memoryview) -> Reply:
        if frame[:2] != _SASL_HANDSHAKE_KEY and self._has_ended():
            raise KafkaError(
                "the session has ended (connections.max.reauth.ms, or what the client logged in with has expired), "
                "and the client did not log in again"
            )
        return self._after.dispatch(session, frame)

    def closed(self, session: Session) -> None:
        self._after.closed(session)


_SASL_HANDSHAKE_KEY: Final = int(Api.SASL_HANDSHAKE).to_bytes(2, "big")


def _off(mechanism: str) -> str:
    return f"mechanism {mechanism[:40]!r} is not enabled"


def _handshake_response(call: Call, found: Handshake) -> Any:
    return call.make.SaslHandshakeResponse(error_code=found.code, mechanisms=found.mechanisms)


def sasl_handshake(_: Context, call: Call) -> Any:
    """SaslHandshake 0 to 1, of a connection that needs no log-in or has logged in: begin to log in again (KIP-368).

    Returns UNSUPPORTED_SASL_MECHANISM, and closes the connection, for a mechanism that is not enabled.
    ILLEGAL_SASL_STATE on a listener without SASL, and within a second after the last such request.

    Version notes: after 0 the tokens come without Kafka's headers; 1 is followed by SaslAuthenticate (KIP-152).
    """
    login = call.session.login
    response = None if login is None else login.begin_again(call)
    if response is not None:
        return response
    return _handshake_response(call, Handshake(ErrorCode.ILLEGAL_SASL_STATE, ()))


def sasl_authenticate(_: Context, call: Call) -> Any:
    """SaslAuthenticate 0 to 2, of a connection that is not logging in: ILLEGAL_SASL_STATE.

    Version notes: 1 adds the lifetime of the session (KIP-368).
    """
    return call.make.SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
        auth_bytes=b"",
        session_lifetime=timedelta(0),
    )


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.SASL_HANDSHAKE: sasl_handshake,
    Api.SASL_AUTHENTICATE: sasl_authenticate,
}
