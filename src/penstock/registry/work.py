"""What a helper process does with schemas. Importing this module imports no library that parses them.

Hostile input cannot use the process up: a call that takes more than `CALL_SECONDS_MAX` of processor time ends it. The
caller reports that, and the next call starts a new process. Parsed schemas are kept for the next call.
"""

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, NamedTuple

from penstock.base.extras import install_hint
from penstock.registry.compatibility import check
from penstock.registry.errors import RegistryError, invalid_schema
from penstock.registry.schema import ResolvedSchema

CALL_SECONDS_MAX: Final = 20
"""A schema takes milliseconds; a `.proto` file of the largest size ten seconds."""

PARSED_MAX: Final = 256
"""Schemas that the process keeps."""


class Prepared(NamedTuple):
    text: str
    """Canonical, or normalized."""
    equal: int | None
    """Which of the candidates is the same schema."""
    messages: list[str]
    """Why it is not compatible."""


@contextmanager
def _limits() -> Iterator[None]:
    signal.setitimer(signal.ITIMER_PROF, CALL_SECONDS_MAX)
    try:
        yield
    except RecursionError:
        raise invalid_schema("The schema is nested too deeply") from None
    except ModuleNotFoundError as error:
        raise RegistryError(
            50100, f"This needs {error.name}: {install_hint('schemas')} on all nodes and restart them"
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


@lru_cache(PARSED_MAX)
def _parsed(schema: ResolvedSchema, is_new: bool) -> Any:
    from penstock.registry.formats import parse  # noqa: PLC0415  # only the helper imports the libraries

    return parse(schema, is_new=is_new)


def prepare(
    schema: ResolvedSchema,
    *,
    is_new: bool,
    is_normalized: bool = False,
    candidates: Sequence[ResolvedSchema] = (),
    level: str = "",
    previous: Sequence[tuple[int, ResolvedSchema]] = (),
) -> Prepared:
    """Parse a schema. Find it among candidates, and compare it with previous versions if it is not one of them. Raises
    `RegistryError` if it is not a schema."""
    with _limits():
        from penstock.registry.formats import format_of  # noqa: PLC0415

        new = _parsed(schema, is_new)
        text = new.normalized if is_normalized else new.canonical
        if is_normalized:
            new = _parsed(ResolvedSchema(schema.type, text, schema.references), False)
        equal = next(
            (number for number, each in enumerate(candidates) if _is_equal(schema.type, new, each)), None
        )
        if equal is not None:
            return Prepared(text, equal, [])
        messages: list[str] = []
        readable = []
        for number, each in reversed(previous):
            if each.type != schema.type:
                messages = [
                    f"{{errorType:'SCHEMA_TYPE_CHANGED', description:'Version {number} is of type {each.type}'}}",
                    f"{{compatibility: '{level}'}}",
                ]
                break
            old = _parsed(each, False)
            if old.identity != new.identity:
                readable.append((number, old))
        if not messages and readable:
            messages = check(level, new, readable[::-1], format_of(schema.type).differences)
        return Prepared(text, None, messages)


def _is_equal(kind: str, new: Any, other: ResolvedSchema) -> bool:
    if other.type != kind:
        return False
    try:
        return bool(_parsed(other, False).identity == new.identity)
    except RegistryError:  # of a registry that was taken over
        return False


def serialized(schema: ResolvedSchema) -> str:
    """A Protobuf schema as base64 of its descriptor."""
    with _limits():
        text: str = _parsed(schema, False).serialized
        return text
