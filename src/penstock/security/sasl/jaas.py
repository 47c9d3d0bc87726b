"""Kafka's `sasl.jaas.config` strings: one login module, a flag, and options.

    org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="s3cret" user_bob="pa55";
    org.apache.kafka.common.security.scram.ScramLoginModule required;

Only Kafka's own modules are known. No error shows any part of the string, since all of it may be secret.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.base.settings import BadSetting

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
USER_PREFIX: Final = "user_"
"""Of an option of PLAIN's module that names a user; its value is the password."""

_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)|"(?P<double>(?:\\.|[^"\\\n])*)"|'(?P<single>(?:\\.|[^'\\\n])*)'"""
    r"""|(?P<word>[^\s"'=;/]+)|(?P<sign>[=;])""",
    re.DOTALL,
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b"}


class LoginModule(NamedTuple):
    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name})"


def parse_jaas(text: str, what: str) -> LoginModule:
    """Parse a string; `what` names the setting in errors."""
    tokens = _tokens(text, what)
    if not tokens or tokens[-1] != (";", True):
        raise BadSetting(f"{what} does not end with a semicolon")
    *tokens, _ = tokens
    words = [text for text, is_sign in tokens[:2] if not is_sign]
    if len(words) < 2 or words[1].lower() not in _FLAGS:
        raise BadSetting(f"{what} does not begin with the class of a login module and `required`")
    options: dict[str, str] = {}
    rest = tokens[2:]
    for at in range(0, len(rest), 3):
        name, sign, value = (*rest[at : at + 3], ("", True), ("", True))[:3]
        if name[1] or sign != ("=", True) or value[1]:
            raise BadSetting(f'{what} has something else than NAME="VALUE" as its option {at // 3 + 1}')
        options[name[0]] = value[0]
    return LoginModule(words[0], options)


def jaas_text(module: str, options: Mapping[str, str]) -> str:
    """A string that `parse_jaas` reads, and Kafka too."""

    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    return (
        " ".join([module, "required", *(f"{name}={quoted(value)}" for name, value in options.items())]) + ";"
    )


def plain_passwords(module: LoginModule) -> dict[str, str]:
    """The users of PLAIN's module, with their passwords."""
    return {
        name.removeprefix(USER_PREFIX): value
        for name, value in module.options.items()
        if name.startswith(USER_PREFIX)
    }


def _tokens(text: str, what: str) -> list[tuple[str, bool]]:
    """Words and quoted texts, and signs, which are True."""
    found: list[tuple[str, bool]] = []
    at = 0
    while at < len(text):
        matched = _TOKEN.match(text, at)
        if matched is None:
            raise BadSetting(
                f"{what} has an unexpected character or an open quotation mark at position {at + 1}"
            )
        at = matched.end()
        if matched["sign"]:
            found.append((matched["sign"], True))
        elif matched["word"]:
            found.append((matched["word"], False))
        elif matched["space"] is None:
            quoted = matched["double"] if matched["double"] is not None else matched["single"]
            found.append((_unescape(quoted), False))
    return found


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text, flags=re.DOTALL)
