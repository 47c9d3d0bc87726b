"""Hands schemas to the helper process that parses them, and keeps results for the same request.

Serializers register or look up the same few schemas whenever a client starts: their texts are known then.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

from penstock.base.errors import KafkaError
from penstock.base.promise import Promise
from penstock.base.steps import Steps
from penstock.base.world import SCHEMAS
from penstock.handlers.support.context import Context
from penstock.registry.errors import RegistryError
from penstock.registry.schema import ResolvedSchema
from penstock.registry.work import CALL_SECONDS_MAX, Prepared, prepare, serialized

logger = logging.getLogger(__name__)

T = TypeVar("T")

WAITING_MAX: Final = 64
WAITING_CHARACTERS_MAX: Final = 32 * 1024 * 1024
"""Calls that wait for the helper process and the size of their texts, beyond which requests are refused."""

KNOWN_MAX: Final = 1000
KNOWN_CHARACTERS_MAX: Final = 4 * 1024 * 1024
"""Results that are kept, and the size of their texts."""


class SchemaWork:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._waiting = 0
        self._waiting_characters = 0
        self._canonical: dict[tuple[ResolvedSchema, bool], str] = {}
        """By schema and whether it is normalized; the oldest is dropped first."""
        self._serialized: dict[ResolvedSchema, str] = {}
        self._characters = 0

    def known(self, schema: ResolvedSchema, *, is_normalized: bool) -> str | None:
        """The canonical text of a schema that was parsed before."""
        return self._canonical.get((schema, is_normalized))

    def prepare(
        self,
        schema: ResolvedSchema,
        *,
        is_new: bool,
        is_normalized: bool,
        candidates: Sequence[ResolvedSchema] = (),
        level: str = "",
        previous: Sequence[tuple[int, ResolvedSchema]] = (),
    ) -> Steps[Prepared]:
        prepared: Prepared = yield self._call(
            partial(
                prepare,
                schema,
                is_new=is_new,
                is_normalized=is_normalized,
                candidates=tuple(candidates),
                level=level,
                previous=tuple(previous),
            ),
            _characters((schema, *candidates, *(each for _, each in previous))),
        )
        self._keep(schema, len(prepared.text))
        self._canonical[schema, is_normalized] = prepared.text
        return prepared

    def serialized(self, schema: ResolvedSchema) -> Steps[str]:
        known = self._serialized.get(schema)
        if known is None:
            known = yield self._call(partial(serialized, schema), _characters((schema,)))
            self._keep(schema, len(known))
            self._serialized[schema] = known
        return known

    def _keep(self, schema: ResolvedSchema, characters: int) -> None:
        """Make room for a result."""
        size = len(schema.text) + characters
        if self._characters + size > KNOWN_CHARACTERS_MAX or len(self._canonical) >= KNOWN_MAX:
            self._canonical.clear()
            self._serialized.clear()
            self._characters = 0
        self._characters += size

    def _call(self, work: Callable[[], T], characters: int) -> Promise[T]:
        promise: Promise[T] = Promise()
        is_full = self._waiting_characters + characters > WAITING_CHARACTERS_MAX
        if self._waiting and (is_full or self._waiting >= WAITING_MAX):
            promise.fail(
                RegistryError(42901, f"{self._waiting} schemas wait to be parsed on this node. Retry later.")
            )
            return promise
        self._waiting += 1
        self._waiting_characters += characters

        def done(result: T | None, error: Exception | None) -> None:
            self._waiting -= 1
            self._waiting_characters -= characters
            if error is None:
                promise.resolve(result)  # type: ignore[arg-type]  # it is not None
            elif isinstance(error, KafkaError) and isinstance(error, RegistryError):
                promise.fail(error)
            else:
                logger.warning("a process that parsed a schema failed: %s", error)
                promise.fail(
                    RegistryError(
                        42201,
                        f"The schema could not be parsed within {CALL_SECONDS_MAX} seconds, or its process failed "
                        f"({error})",
                    )
                )

        self._context.world.in_helper(work, done, SCHEMAS)
        return promise


def _characters(schemas: Iterable[ResolvedSchema]) -> int:
    """The size of the texts of a call; each is sent once."""
    texts = {text for each in schemas for text in (each.text, *(text for _, text in each.references))}
    return sum(map(len, texts))
