"""PLAIN (RFC 4616): one token with a user name and a password, for users in the node's configuration.

Passwords are kept as keyed hashes, so that neither a dump of the memory nor a `repr` shows one. Hashes have equal
lengths and are compared in constant time. For an unknown user the same work is done.
"""

from collections.abc import Mapping

from penstock.security.sasl.exchange import Accepted, Refused, Verdict


class PlainUsers:
    __slots__ = ("_hashes", "_key", "_nobody")

    def __init__(self, passwords: Mapping[str, str], key: bytes) -> None:
        """`key` is a secret: random, or the same on nodes that share sessions of the console."""
        self._key = key
        self._hashes = {user: self._hash(password) for user, password in passwords.items()}
        self._nobody = key[:32].ljust(32, b"\0")
        """Compared with the password of an unknown user; the hash of no password."""

    def __repr__(self) -> str:
        return f"PlainUsers({', '.join(sorted(self._hashes))})"

    def __len__(self) -> int:
        return len(self._hashes)

    def knows(self, user: str, password: str) -> bool:
        import hmac  # noqa: PLC0415  (loads OpenSSL)

        is_right = hmac.compare_digest(self._hashes.get(user, self._nobody), self._hash(password))
        return is_right and user in self._hashes

    def kept(self, user: str) -> bytes | None:
        """The keyed hash of a user's password; None without such a user."""
        return self._hashes.get(user)

    def _hash(self, password: str) -> bytes:
        import hmac  # noqa: PLC0415  (loads OpenSSL)

        return hmac.digest(self._key, password.encode("utf-8", "surrogatepass"), "sha256")


class PlainExchange:
    __slots__ = ("_users",)

    needs_latest = False

    def __init__(self, users: PlainUsers) -> None:
        self._users = users

    def evaluate(self, token: bytes, *, is_latest: bool) -> Verdict:
        """As Kafka reads it: bytes that are no UTF-8 are replaced, and what follows a third NUL is ignored."""
        parts = token.decode("utf-8", "replace").split("\0", 3)
        on_behalf_of, user, password = (*parts, "", "", "")[:3]
        if not user or not password:
            return Refused("the client sent no user name or no password")
        if not self._users.knows(user, password):
            return Refused(
                "unknown user or wrong password", "Authentication failed: Invalid username or password", user
            )
        if on_behalf_of not in ("", user):
            return Refused(
                "the client wants to act as another user",
                "Authentication failed: Client requested an authorization id that is different from username",
                user,
            )
        return Accepted(user)
