"""`ssl.principal.mapping.rules`: from the subject of a client's certificate to the name of its principal.

    RULE:^CN=([^,]+),.*$/$1/L , DEFAULT

The first rule whose pattern matches the whole subject decides. Its replacement may refer to groups of the pattern as
$1; L and U make the name lower and upper case. DEFAULT takes the subject as it is. A client whose subject no rule
matches is not let in.

Patterns are RE2's, which match in linear time whatever a client's subject is. Java's look-around and back-references
within a pattern are rejected when the node starts.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import re2

from penstock.base.settings import BadSetting

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)"
_RULES = re.compile(rf"\s*(?:{_RULE})\s*(?:,|$)")
_REFERENCE = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)

Part = str | int
"""Literal text, or the number of a group."""


class _Rule(NamedTuple):
    pattern: Any
    replacement: tuple[Part, ...]
    change_case: Callable[[str], str]


Mapper = Callable[[str], str | None]
"""From a subject to the name of a principal; None if no rule matches."""


def mapper(text: str, setting: str = "ssl.principal.mapping.rules") -> Mapper:
    """Parse rules. `setting` is their name in errors."""
    rules = _parse(text.strip(), setting)
    return partial(_name, rules)


def _name(rules: list[_Rule | None], subject: str) -> str | None:
    for rule in rules:
        if rule is None:
            return subject
        if rule.pattern.fullmatch(subject) is not None:
            # As Kafka: every match is replaced, and a pattern without anchors may match in parts.
            return rule.change_case(rule.pattern.sub(partial(_replaced, rule.replacement), subject))
    return None


def _replaced(replacement: tuple[Part, ...], found: Any) -> str:
    return "".join(each if isinstance(each, str) else found.group(each) or "" for each in replacement)


def _parse(text: str, setting: str) -> list[_Rule | None]:
    """Rules in order; None is DEFAULT."""
    rules: list[_Rule | None] = []
    at = 0
    while at < len(text):
        found = _RULES.match(text, at)
        if found is None:
            raise BadSetting(
                f"{setting} has {text[at:]!r}, expected DEFAULT or RULE:pattern/replacement/, "
                "with L or U after the last slash, separated by commas"
            )
        is_default, pattern, replacement, case = found.groups()
        rules.append(None if is_default else _rule(pattern, replacement, case, setting))
        at = found.end()
    return rules or [None]


def _rule(pattern: str, replacement: str, case: str, setting: str) -> _Rule:
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options=options)
    except re2.error as error:
        why = error.args[0] if error.args else error
        why = why.decode("utf-8", "replace") if isinstance(why, bytes) else why
        raise BadSetting(f"{setting} has the pattern {pattern!r}, expected one of RE2: {why}") from error
    change_case = str.lower if case == "L" else str.upper if case == "U" else str
    return _Rule(compiled, _replacement(replacement, compiled.groups), change_case)


def _replacement(text: str, groups: int) -> tuple[Part, ...]:
    """Literals and groups of a replacement, as Java reads it: of $123 as many digits count as make a group that
    exists, and a reference to no group is text."""
    parts: list[Part] = []
    at = 0
    for found in _REFERENCE.finditer(text):
        parts.append(text[at : found.start()])
        at = found.end()
        if found[1] is not None:
            parts.append(found[1])
            continue
        digits = found[2]
        used = next((end for end in range(len(digits), 0, -1) if int(digits[:end]) <= groups), 0)
        if used:
            parts += [int(digits[:used]), digits[used:]]
        else:
            parts.append(found[0])
    parts.append(text[at:])
    return tuple(each for each in parts if each != "")
