"""SCRAM (RFC 5802, RFC 7677) as a server, for users in the metadata.

    client: n,,n=alice,r=NONCE                   server: r=NONCE+OWN,s=SALT,i=4096
    client: c=biws,r=NONCE+OWN,p=PROOF           server: v=SIGNATURE

The password does not travel. The proof shows that the client knows it, the signature that the server knows the user.

An unknown user gets a challenge too, which looks like one for a user that exists (`unknown_users`), and is refused by
its proof; both cost the same. So a stranger cannot tell which users exist. Proofs are compared in constant time.

With the extension `tokenauth=true` the name is that of a delegation token and the password its key. The client is then
the token's owner, until the token expires.

The first token is answered by the controller's latest committed metadata, if it can be had, so that a user that was
just created or changed can log in, and one that was just removed cannot. Where that is not certain, or the user
changed since, a proof that does not match proves nothing: the exchange ends undecided.
"""

import re
from base64 import b64decode, b64encode
from typing import Final, NamedTuple, Protocol

from penstock.base.ids import TimestampMs
from penstock.metadata.records import UserScramCredentialRecord
from penstock.metadata.scram import ITERATIONS_MIN, ScramMechanism, digest, hashed
from penstock.security.sasl.exchange import Accepted, Challenge, Refused, Undecided, Verdict

_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE: Final = r"[\x01-\x2b\x2d-\x7f]+"
_NONCE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64: Final = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS: Final = rf"((?:,[A-Za-z]+={_VALUE})*)"
_FIRST: Final = re.compile(rf"n,(?:a=({_NAME}))?,((?:m={_VALUE},)?n=({_NAME}),r=({_NONCE}){_EXTENSIONS})")
_FINAL: Final = re.compile(rf"(c={_BASE64},r=({_NONCE}){_EXTENSIONS}),p=({_BASE64})")

TOKEN_BYTES_MAX: Final = 4096
"""Longer than any message with a name of 255 characters; Kafka has no limit but the frame's."""

_TOKEN_AUTH: Final = ",tokenauth=true"
"""The extension by which a client logs in with a delegation token instead of a password."""


class KnownUser(NamedTuple):
    """Whom a name stands for."""

    user: str
    credential: UserScramCredentialRecord
    expires_ms: TimestampMs | None = None
    """Of a delegation token."""


class ScramUsers(Protocol):
    """The users and delegation tokens of the current metadata."""

    def user(self, mechanism: ScramMechanism, name: str) -> KnownUser | None: ...

    def token(self, mechanism: ScramMechanism, token_id: str) -> KnownUser | None:
        """The owner of a token that has not expired."""

    def challenge(self, mechanism: ScramMechanism, name: str) -> tuple[bytes, int]:
        """Salt and iterations for the name of an unknown user."""

    def secret(self) -> bytes:
        """Used in place of the stored key of an unknown user."""


class ScramExchange:
    __slots__ = (
        "_bare",
        "_first",
        "_found",
        "_is_latest",
        "_is_token",
        "_mechanism",
        "_name",
        "_nonce",
        "_users",
    )

    def __init__(self, mechanism: ScramMechanism, users: ScramUsers, nonce: str) -> None:
        """`nonce` is random text without commas, new for each exchange."""
        self._mechanism = mechanism
        self._users = users
        self._nonce = nonce
        """The server's part; with the client's before it once that is known."""
        self._name: str | None = None
        """None until the first message is read."""
        self._found: KnownUser | None = None
        """None if the user is unknown."""
        self._is_latest = False
        self._is_token = False
        """The name is that of a delegation token."""
        self._bare = self._first = ""
        """The client's first message without its header, and the server's: both are part of what is proved."""

    @property
    def needs_latest(self) -> bool:
        return self._name is None

    def evaluate(self, token: bytes, *, is_latest: bool) -> Verdict:
        if len(token) > TOKEN_BYTES_MAX:
            return Refused(f"a message has {len(token)} bytes, expected at most {TOKEN_BYTES_MAX}")
        text = token.decode("utf-8", "replace")
        return self._answer_first(text, is_latest) if self._name is None else self._answer_final(text)

    def _answer_first(self, text: str, is_latest: bool) -> Verdict:
        matched = _FIRST.fullmatch(text)
        if matched is None:
            return Refused("the first message is not one of SCRAM without channel binding")
        on_behalf_of, bare, name, nonce, extensions = matched.groups()
        user = name.replace("=2C", ",").replace("=3D", "=")
        if on_behalf_of is not None and on_behalf_of != user:
            return Refused(
                "the client wants to act as another user",
                "Authentication failed: Client requested an authorization id that is different from username",
                user,
            )
        self._name, self._bare, self._is_latest = user, bare, is_latest
        self._nonce = nonce + self._nonce
        self._is_token = _TOKEN_AUTH in extensions.lower()
        self._found = self._found_now()
        if self._found is not None:
            salt, iterations = self._found.credential.salt, self._found.credential.iterations
        else:
            salt, iterations = self._users.challenge(self._mechanism, user)
        self._first = f"r={self._nonce},s={b64encode(salt).decode()},i={iterations}"
        return Challenge(self._first.encode())

    def _found_now(self) -> KnownUser | None:
        """Whom the name stands for, in the current metadata."""
        assert self._name is not None
        look = self._users.token if self._is_token else self._users.user
        found = look(self._mechanism, self._name)
        return found if found is not None and found.credential.iterations >= ITERATIONS_MIN else None

    def _answer_final(self, text: str) -> Verdict:
        matched = _FINAL.fullmatch(text)
        if matched is None:
            return Refused("the final message is not one of SCRAM")
        proved, nonce, _, proof = matched.groups()
        if nonce != self._nonce:
            return Refused("the final message has another nonce")
        exchange = f"{self._bare},{self._first},{proved}".encode()
        if not self._is_proved(exchange, b64decode(proof)):
            return self._refused()
        assert self._found is not None
        user, credential, expires_ms = self._found
        signature = digest(self._mechanism, credential.server_key, exchange)
        return Accepted(user, b"v=" + b64encode(signature), expires_ms, self._is_token)

    def _is_proved(self, exchange: bytes, proof: bytes) -> bool:
        import hmac  # noqa: PLC0415  (loads OpenSSL)

        known = self._found is not None
        stored = (
            self._found.credential.stored_key
            if self._found is not None
            else hashed(self._mechanism, self._users.secret())
        )
        signature = digest(self._mechanism, stored, exchange)
        if len(proof) != len(signature):
            return False
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        return hmac.compare_digest(hashed(self._mechanism, client_key), stored) and known

    def _refused(self) -> Verdict:
        if not self._is_latest:
            return Undecided("the proof does not match, and the controller's latest metadata is not known")
        if self._found_now() != self._found:
            return Undecided("the user changed during the log-in")
        return Refused("unknown user or wrong password", user=self._name)
