"""The requests by which a connection logs in, as steps without a connection.

    SaslHandshake 1 --> SaslAuthenticate, one for each token of the mechanism --> lifetime of the session

Every failure is final: another attempt with the same credentials would fail too. A broker that cannot decide, for
example because the user is being changed, closes the connection instead of answering, and the client retries.
"""

from collections.abc import Generator
from datetime import timedelta
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.security.sasl.client import ClientLogin, ServerNotBelieved
from penstock.wire import Api
from penstock.wire.request import Request, through_kio

from .errors import LoginFailed, error_name


def log_in(peer: str, login: ClientLogin) -> Generator[Request[Any], Any, float]:
    """Yield requests, and receive their replies. Returns the lifetime of the session in milliseconds, 0 for no end."""
    shaken = yield sasl_handshake(login.mechanism)
    _check_handshake(peer, login.mechanism, int(shaken.error_code), shaken.mechanisms)
    exchange = login.begin()
    token: bytes | None = exchange.first()
    session = timedelta(0)
    while token is not None:
        reply = yield _authenticate(token)
        if reply.error_code:
            raise _refused(peer, login, int(reply.error_code), reply.error_message)
        session = getattr(reply, "session_lifetime", session)
        try:
            token = exchange.respond(reply.auth_bytes)
        except ServerNotBelieved as error:
            raise LoginFailed(f"{peer} is not trusted with the log-in of {login.who}: {error}") from error
    return session.total_seconds() * 1000


def sasl_handshake(mechanism: str) -> Request[Any]:
    return through_kio(
        Api.SASL_HANDSHAKE, lambda make: make.SaslHandshakeRequest(mechanism=mechanism), version_min=1
    )


def _authenticate(token: bytes) -> Request[Any]:
    return through_kio(Api.SASL_AUTHENTICATE, lambda make: make.SaslAuthenticateRequest(auth_bytes=token))


def _check_handshake(peer: str, mechanism: str, code: int, enabled: tuple[str, ...]) -> None:
    if not code:
        return
    if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise LoginFailed(
            f"{peer} does not take the SASL mechanism {mechanism}, it takes {', '.join(enabled) or 'none'}; set "
            "sasl.mechanism to one of these",
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        )
    if code == ErrorCode.ILLEGAL_SASL_STATE:
        raise LoginFailed(
            f"{peer} does not ask for a log-in; set security.protocol to one without SASL_, or use another listener",
            ErrorCode.ILLEGAL_SASL_STATE,
        )
    raise LoginFailed(f"{peer} refused to begin a log-in ({error_name(code)})")


def _refused(peer: str, login: ClientLogin, code: int, message: str | None) -> LoginFailed:
    why = (message or "it gives no reason").rstrip(".")
    return LoginFailed(
        f"{peer} refused the log-in of {login.who} with {login.mechanism}: {why} ({error_name(code)})"
    )
