"""Regular expressions of subscriptions (KIP-848), compiled by RE2.

A client's pattern runs against every topic name, so matching takes time linear in the length of the name: RE2 has no
backtracking, no backreferences and no lookaround. Kafka uses RE2/J, with the same syntax. Memory and compile time are
bounded below. RE2 is imported when the first pattern arrives; most brokers never see one.
"""

import re
from functools import lru_cache
from typing import Any, Final

from penstock.base.errors import ErrorCode, KafkaError

MEMORY_BYTES_MAX: Final = 256 * 1024
"""Memory of one compiled pattern, with its matching tables. Enough for an alternation of some hundred topic names."""
TEXT_MAX: Final = 5_000
"""Characters of a pattern. Compiling that many takes some milliseconds, in which the broker serves no other client."""
UNICODE_CLASSES_MAX: Final = 16
"""Of the form `\\pL`: RE2 takes some 0.3 ms to read each."""
COMPILED_MAX: Final = 64
"""Compiled patterns that are kept."""

_ESCAPE: Final = re.compile(r"\\Q.*?(?:\\E|\Z)|\\(.)", re.DOTALL)
"""A quoted part, or an escape, whose letter is the group."""


class InvalidRegularExpression(KafkaError):
    code = ErrorCode.INVALID_REGULAR_EXPRESSION


class Pattern:
    """A compiled expression."""

    __slots__ = ("_compiled",)

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def matches(self, name: str) -> bool:
        """Whether the expression matches the whole name."""
        return self._compiled.fullmatch(name) is not None


@lru_cache(maxsize=COMPILED_MAX)
def compile_regex(text: str) -> Pattern:
    """Return the pattern, or raise InvalidRegularExpression with the reason."""
    import re2  # noqa: PLC0415  (takes 5 ms and 2 MB, which a broker without patterns saves)

    _check(text)
    options = re2.Options()
    options.max_mem = MEMORY_BYTES_MAX
    options.never_capture = True
    options.log_errors = False
    try:
        return Pattern(re2.compile(text, options))
    except re2.error as error:
        (reason,) = error.args
        raise _invalid(
            text, reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        ) from None
    except UnicodeEncodeError:
        raise _invalid(text, "not valid Unicode") from None
    finally:
        re2.purge()  # it keeps patterns of its own, which `COMPILED_MAX` would not bound


def _check(text: str) -> None:
    """Reject patterns that RE2 compiles and RE2/J does not, or that take too long to compile."""
    if len(text) > TEXT_MAX:
        raise _invalid(text, f"it has {len(text)} characters, more than {TEXT_MAX}")
    escapes = [match[1] for match in _ESCAPE.finditer(text)]
    if "C" in escapes:
        raise _invalid(text, "invalid escape sequence: \\C")  # one byte of a character; RE2/J refuses it
    classes = escapes.count("p") + escapes.count("P")
    if classes > UNICODE_CLASSES_MAX:
        raise _invalid(text, f"it has {classes} Unicode classes (\\p), more than {UNICODE_CLASSES_MAX}")


def _invalid(text: str, reason: str) -> InvalidRegularExpression:
    return InvalidRegularExpression(
        f"SubscribedTopicRegex {text[:200]!r} is not a valid regular expression: {reason}."
    )
