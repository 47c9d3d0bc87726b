"""SASL log-ins of a client: its tokens, and the checks of the server's. No IO.

    exchange = login.begin()
    exchange.first()                the first token
    exchange.respond(challenge)     the next token; None if the log-in is complete and the server is verified

A `ClientLogin` has the credentials and begins one exchange for each log-in of a connection. Neither its `repr` nor
any error shows a password or token.

SCRAM authenticates both sides: a server that does not have the user's keys cannot sign the exchange, and is rejected.
The salted password is kept for the next log-in, since it takes the client thousands of hashes to compute.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from penstock.base.errors import ErrorCode, KafkaError
from penstock.metadata.scram import (
    ITERATIONS_MIN,
    ScramMechanism,
    digest,
    hashed,
    salted_password,
    server_key,
)

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
SCRAMS: Final[Mapping[str, ScramMechanism]] = {each.label: each for each in ScramMechanism}

ITERATIONS_ACCEPTED_MAX: Final = 100_000
"""A server that asks for more is refused: each log-in would take this client seconds. Kafka's brokers have at most
16384."""

_BASE64: Final = r"[a-zA-Z0-9/+]+={0,2}"
_SERVER_FIRST: Final = re.compile(rf"r=([\x21-\x2b\x2d-\x7e]+),s=({_BASE64}),i=([0-9]{{1,9}})(?:,.*)?")
_SERVER_FINAL: Final = re.compile(rf"(?:v=({_BASE64})|e=([^,]*))(?:,.*)?")

_SEPARATOR: Final = "\x01"
"""Between the parts of a message of OAUTHBEARER (RFC 7628)."""


class ServerNotBelieved(KafkaError):
    """The server's part of the exchange is not what a server that knows the user would send."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class ClientExchange(Protocol):
    def first(self) -> bytes: ...

    def respond(self, challenge: bytes) -> bytes | None:
        """Take the server's answer to the last token. Raises ServerNotBelieved."""


class ClientLogin(Protocol):
    @property
    def mechanism(self) -> str: ...

    @property
    def who(self) -> str:
        """The user, for errors."""

    def begin(self) -> ClientExchange: ...


# -- PLAIN ---------------------------------------------------------------------------------------------


class PlainLogin:
    __slots__ = ("_password", "who")

    mechanism: Final = PLAIN

    def __init__(self, user: str, password: str) -> None:
        self.who = user
        self._password = password

    def __repr__(self) -> str:
        return f"PlainLogin({self.who!r})"

    def begin(self) -> ClientExchange:
        return _OneToken(f"\0{self.who}\0{self._password}".encode())


class _OneToken:
    __slots__ = ("_token",)

    def __init__(self, token: bytes) -> None:
        self._token = token

    def first(self) -> bytes:
        return self._token

    def respond(self, challenge: bytes) -> bytes | None:
        return None


# -- SCRAM ---------------------------------------------------------------------------------------------


class ScramLogin:
    __slots__ = (
        "_make_nonce",
        "_password",
        "_salted",
        "_scram",
        "is_delegation_token",
        "iterations_max",
        "mechanism",
        "who",
    )

    def __init__(
        self,
        mechanism: str,
        user: str,
        password: str,
        make_nonce: Callable[[], str],
        *,
        is_delegation_token: bool = False,
        iterations_max: int = ITERATIONS_ACCEPTED_MAX,
    ) -> None:
        """`make_nonce` returns random text without commas, new for each exchange. With `is_delegation_token`, the
        user and the password are the id and the HMAC of a delegation token. A server that asks for more iterations
        than `iterations_max` is not believed."""
        self.mechanism = mechanism
        self.who = user
        self.is_delegation_token = is_delegation_token
        self.iterations_max = iterations_max
        self._scram = SCRAMS[mechanism]
        self._password = password
        self._make_nonce = make_nonce
        self._salted: tuple[bytes, int, bytes] | None = None
        """Salt, iterations and salted password of the last exchange."""

    def __repr__(self) -> str:
        return f"ScramLogin({self.mechanism}, {self.who!r})"

    def begin(self) -> ClientExchange:
        return _ScramExchange(self, self._scram, self._make_nonce())

    def salted(self, salt: bytes, iterations: int) -> bytes:
        if self._salted is None or self._salted[:2] != (salt, iterations):
            salted = salted_password(self._scram, self._password, salt, iterations)
            self._salted = (salt, iterations, salted)
        return self._salted[2]


class _ScramExchange:
    __slots__ = ("_bare", "_login", "_nonce", "_scram", "_signature")

    def __init__(self, login: ScramLogin, scram: ScramMechanism, nonce: str) -> None:
        self._login = login
        self._scram = scram
        self._nonce = nonce
        name = login.who.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}{',tokenauth=true' if login.is_delegation_token else ''}"
        """The first message without its header."""
        self._signature: bytes | None = None
        """What the server will prove itself with, once the client has proved itself."""

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        text = challenge.decode("utf-8", "replace")
        if self._signature is None:
            return self._prove(text)
        self._check_signature(text)
        return None

    def _prove(self, server_first: str) -> bytes:
        matched = _SERVER_FIRST.fullmatch(server_first)
        if matched is None:
            raise ServerNotBelieved("its first message is not one of SCRAM")
        nonce, salt, iterations = matched[1], _decoded(matched[2]), int(matched[3])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ServerNotBelieved("its nonce does not continue the client's")
        accepted_max = self._login.iterations_max
        if not ITERATIONS_MIN <= iterations <= accepted_max:
            raise ServerNotBelieved(
                f"it asks for {iterations} iterations, expected {ITERATIONS_MIN} to {accepted_max}"
            )
        salted = self._login.salted(salt, iterations)
        without_proof = f"c=biws,r={nonce}"
        exchange = f"{self._bare},{server_first},{without_proof}".encode()
        client_key = digest(self._scram, salted, b"Client Key")
        signature = digest(self._scram, hashed(self._scram, client_key), exchange)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = digest(self._scram, server_key(self._scram, salted), exchange)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def _check_signature(self, server_final: str) -> None:
        import hmac  # noqa: PLC0415  (loads OpenSSL)

        matched = _SERVER_FINAL.fullmatch(server_final)
        if matched is None:
            raise ServerNotBelieved("its final message is not one of SCRAM")
        if matched[1] is None:
            raise ServerNotBelieved(f"it reports {matched[2]!r}")
        assert self._signature is not None
        if not hmac.compare_digest(_decoded(matched[1]), self._signature):
            raise ServerNotBelieved(
                "its signature is wrong: it does not know the keys of this user, and may be an impostor"
            )


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise ServerNotBelieved("its message is not base64 where SCRAM has it") from None


# -- OAUTHBEARER ---------------------------------------------------------------------------------------


class BearerLogin:
    __slots__ = ("_extensions", "_token")

    mechanism: Final = OAUTHBEARER
    who: Final = "the bearer token"

    def __init__(self, token: Callable[[], str], extensions: Mapping[str, str] | None = None) -> None:
        """`token` returns a token that is valid now, and is called for each log-in. `extensions` are those of
        KIP-342."""
        self._token = token
        self._extensions = dict(extensions or {})

    def __repr__(self) -> str:
        return "BearerLogin()"

    def begin(self) -> ClientExchange:
        parts = [
            f"auth=Bearer {self._token()}",
            *(f"{key}={value}" for key, value in self._extensions.items()),
        ]
        return _BearerExchange(f"n,,{_SEPARATOR}{_SEPARATOR.join(parts)}{_SEPARATOR}{_SEPARATOR}".encode())


class _BearerExchange(_OneToken):
    __slots__ = ()

    def respond(self, challenge: bytes) -> bytes | None:
        """A server that accepts the token sends nothing. Its error is acknowledged, and then it refuses the log-in
        with a message for people."""
        return _SEPARATOR.encode() if challenge else None
