"""SCRAM users of a new cluster, which its first controller writes with the first records (KIP-900).

    SCRAM-SHA-256=[name=broker,password=broker-secret]
    SCRAM-SHA-512=[name=admin,iterations=8192,salt="c2FsdA==",saltedpassword="..."]

The form is that of `--add-scram` of Kafka's `kafka-storage.sh format`. A value may be in double quotes, and then have
commas and brackets; a quote or backslash in it follows a backslash. No error shows a password.
"""

import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from typing import Final

from penstock.base.settings import BadSetting

from .records import UserScramCredentialRecord
from .scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramMechanism,
    salted_password,
    server_key,
    stored_key,
)

SALT_BYTES: Final = 20

_EXAMPLE: Final = "SCRAM-SHA-256=[name=alice,password=alice-secret]"
_MECHANISMS: Final = {each.label: each for each in ScramMechanism}
_PARTS: Final = frozenset({"name", "password", "salt", "saltedpassword", "iterations"})
_PART: Final = re.compile(r'\s*([a-z]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^",\[\]]*?))\s*(,|$)', re.DOTALL)
_USER: Final = re.compile(
    r'\s*([A-Z0-9-]+)\s*=\s*\[((?:[^"\]]|"(?:[^"\\]|\\.)*")*)\]\s*(?:[,;]|$)', re.DOTALL
)


def parse_users(
    text: str, what: str, make_salt: Callable[[int], bytes]
) -> tuple[UserScramCredentialRecord, ...]:
    """Users separated by commas or semicolons. `what` names the source in errors. Raises BadSetting."""
    found: list[UserScramCredentialRecord] = []
    for number, (mechanism, inner) in enumerate(_users(text, what), 1):
        found.append(_record(mechanism, inner, f"user {number} of {what}", make_salt))
    for each in found:
        if sum(other.name == each.name and other.mechanism == each.mechanism for other in found) > 1:
            raise BadSetting(f"{what} has the user {each.name} twice with one mechanism, expected once")
    return tuple(found)


def _users(text: str, what: str) -> Iterator[tuple[ScramMechanism, str]]:
    at = 0
    while at < len(text.rstrip()):
        matched = _USER.match(text, at)
        if matched is None:
            raise BadSetting(f"{what} is not written as expected, which is {_EXAMPLE}")
        mechanism = _MECHANISMS.get(matched[1])
        if mechanism is None:
            raise BadSetting(f"{what} has the mechanism {matched[1]}, expected {' or '.join(_MECHANISMS)}")
        yield mechanism, matched[2]
        at = matched.end()


def _record(
    mechanism: ScramMechanism, inner: str, what: str, make_salt: Callable[[int], bytes]
) -> UserScramCredentialRecord:
    parts = _parts(inner, what)
    name = parts.get("name", "")
    if not name:
        raise BadSetting(f"{what} has no name, expected {_EXAMPLE}")
    iterations = parts.get("iterations", str(ITERATIONS_MIN))
    if not iterations.isdecimal() or not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
        raise BadSetting(
            f"{what} has {iterations[:10]} iterations, expected {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        )
    password, salted = parts.get("password"), parts.get("saltedpassword")
    if bool(password) == bool(salted):
        raise BadSetting(f"{what} has both or neither of password and saltedpassword, expected one of them")
    if salted and "salt" not in parts:
        raise BadSetting(f"{what} has a saltedpassword without a salt, expected both")
    salt = _decoded(parts["salt"], "salt", what) if "salt" in parts else make_salt(SALT_BYTES)
    key = (
        _decoded(salted, "saltedpassword", what)
        if salted
        else salted_password(mechanism, password or "", salt, int(iterations))
    )
    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism,
        salt=salt,
        stored_key=stored_key(mechanism, key),
        server_key=server_key(mechanism, key),
        iterations=int(iterations),
    )


def _parts(inner: str, what: str) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    while at < len(inner):
        matched = _PART.match(inner, at)
        if matched is None or matched[1] not in _PARTS or matched[1] in found:
            raise BadSetting(f"{what} is not written as expected, which is {_EXAMPLE}")
        quoted = matched[2]
        found[matched[1]] = matched[3] if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
        at = matched.end()
    return found


def _decoded(text: str, part: str, what: str) -> bytes:
    try:
        data = b64decode(text, validate=True)
    except ValueError:
        data = b""
    if not data:
        raise BadSetting(f"{what} has a {part} that is not base64, expected base64")
    return data
