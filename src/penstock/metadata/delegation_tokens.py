"""Delegation tokens (KIP-48): a name and a key that stand for a user, until they expire.

    token id    random, in the metadata log with owner, requester, renewers and times
    key         HMAC-SHA-512(delegation.token.secret.key, token id), as Kafka computes it; never stored

A client logs in with SCRAM, the token id as its user name and the key in base64 as its password. All nodes have the
same `delegation.token.secret.key`, so each can compute the key of every token. `hashlib` and `hmac` load OpenSSL, so a
node imports them only once it has a token.
"""

from base64 import b64encode
from collections.abc import Mapping
from typing import Final

from .configs import BrokerSettings
from .maps import FrozenMap
from .records import DelegationTokenRecord, UserScramCredentialRecord
from .scram import ITERATIONS_MIN, ScramMechanism, salted_password, server_key, stored_key

SECRET_KEYS: Final = ("delegation.token.secret.key", "delegation.token.master.key")
"""The setting, and its name before Kafka 3.0."""

CREDENTIALS_MAX: Final = 1000
"""SCRAM credentials that are kept in memory. To make one takes 1 to 4 ms, and clients may ask for it often."""

_USER: Final = "User:"


class TokenKeys:
    """The keys of all tokens."""

    __slots__ = ("_credentials", "_ids", "_secret")

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._ids: dict[bytes, str] = {}
        """Token ids by their keys, of tokens that were looked for."""
        self._credentials: dict[tuple[ScramMechanism, str], UserScramCredentialRecord] = {}

    def __repr__(self) -> str:
        return "TokenKeys()"

    def key(self, token_id: str) -> bytes:
        """The token's key, which is its password."""
        return self._digest(token_id.encode())

    def find(self, key: bytes, tokens: FrozenMap[str, DelegationTokenRecord]) -> DelegationTokenRecord | None:
        """The token with this key."""
        known = set(self._ids.values())
        for token_id in tokens:
            if token_id not in known:
                self._ids[self.key(token_id)] = token_id
        if len(self._ids) > 2 * len(tokens) + 100:
            self._ids = {own: token_id for own, token_id in self._ids.items() if token_id in tokens}
        found = self._ids.get(key)
        return None if found is None else tokens.get(found)

    def credential(self, mechanism: ScramMechanism, token_id: str) -> UserScramCredentialRecord:
        """What a log-in with SCRAM is checked by. The salt is secret until the first log-in, and always the same."""
        made = self._credentials.get((mechanism, token_id))
        if made is None:
            salt = self._digest(b"salt of " + token_id.encode())[:20]
            password = b64encode(self.key(token_id)).decode()
            salted = salted_password(mechanism, password, salt, ITERATIONS_MIN)
            made = UserScramCredentialRecord(
                name=token_id,
                mechanism=mechanism,
                salt=salt,
                stored_key=stored_key(mechanism, salted),
                server_key=server_key(mechanism, salted),
                iterations=ITERATIONS_MIN,
            )
            while len(self._credentials) >= CREDENTIALS_MAX:
                del self._credentials[next(iter(self._credentials))]
            self._credentials[mechanism, token_id] = made
        return made

    def _digest(self, message: bytes) -> bytes:
        import hmac  # noqa: PLC0415  (loads OpenSSL)

        return hmac.digest(self._secret, message, "sha512")


def token_keys(settings: BrokerSettings) -> TokenKeys | None:
    """The keys by a node's settings; None if tokens are off."""
    static: Mapping[str, str] = settings.static or {}
    for name in SECRET_KEYS:
        if static.get(name):
            return TokenKeys(static[name].encode())
    return None


def is_expired(token: DelegationTokenRecord, now_ms: int) -> bool:
    return token.max_timestamp < now_ms or token.expiration_timestamp < now_ms


def owner_name(token: DelegationTokenRecord) -> str | None:
    """The user that a client with this token is; None for a principal of another type."""
    return token.owner.removeprefix(_USER) if token.owner.startswith(_USER) else None


def concerned(token: DelegationTokenRecord) -> tuple[str, ...]:
    """Principals that see the token without a right of their own: its owner, requester and renewers."""
    return (token.owner, token.requester, *token.renewers)
