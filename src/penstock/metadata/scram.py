"""SCRAM's keys (RFC 5802), which stand for a user's password in the metadata log.

    salted password = PBKDF2(password, salt, iterations)      the client's work, also for a new user
    client key      = HMAC(salted password, "Client Key")     proves that a client knows the password
    stored key      = H(client key)                           checks the proof
    server key      = HMAC(salted password, "Server Key")     proves that a server knows the user

The log has salt, iterations, stored key and server key. `hashlib` and `hmac` load OpenSSL, so they are imported by a
node only once it has such a user.
"""

from enum import IntEnum
from typing import Final

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
"""Kafka's bounds. Each log-in costs the client that many hashes."""


UNKNOWN_USERS_SECRET: Final = "scram.unknown.users.secret"
"""The setting of all brokers that decides the salts of users that do not exist. The controller draws it with the first
user."""


class ScramMechanism(IntEnum):
    """By the numbers of the protocol."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def label(self) -> str:
        """The mechanism's name in SASL."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The hash, by its name in hashlib."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"


def digest(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    """HMAC with the mechanism's hash."""
    import hmac  # noqa: PLC0415  (loads OpenSSL)

    return hmac.digest(key, message, mechanism.hash_name)


def hashed(mechanism: ScramMechanism, data: bytes) -> bytes:
    """H, the mechanism's hash."""
    import hashlib  # noqa: PLC0415  (loads OpenSSL)

    return hashlib.new(mechanism.hash_name, data).digest()


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    import hashlib  # noqa: PLC0415  (loads OpenSSL)

    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def stored_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return hashed(mechanism, digest(mechanism, salted, b"Client Key"))


def server_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return digest(mechanism, salted, b"Server Key")
