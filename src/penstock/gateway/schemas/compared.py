"""The versions that a schema is compared with, and the texts of what they refer to.

A subject may have thousands of versions, and each may have many references: they are resolved a few in each tick. All
of their texts go to the helper process, so together they are bounded.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from penstock.base.steps import Steps, next_tick
from penstock.handlers.support.context import Context
from penstock.registry import decisions
from penstock.registry.errors import RegistryError, too_large
from penstock.registry.schema import ResolvedSchema
from penstock.registry.view import RegistryView, Version

COMPARED_CHARACTERS_MAX: Final = 8 * 1024 * 1024
"""Of all versions together. They are copied within one tick: that takes some 5 ms."""

VERSIONS_A_TICK: Final = 200
"""Without references."""


class Compared:
    """Of one request."""

    def __init__(self, context: Context, view: RegistryView) -> None:
        self._world = context.world
        self._view = view
        self._texts: set[str] = set()
        self._characters = 0

    def candidates(
        self, versions: Sequence[Version], kind: str
    ) -> Steps[tuple[list[ResolvedSchema], list[Version]]]:
        """Versions that may be the same schema, resolved; those whose references are gone are not."""
        found, those = [], []
        for number, each in enumerate(versions):
            if each.schema.type == kind:
                try:
                    resolved = self._resolved(each)
                except RegistryError:
                    continue
                self._count(each, resolved)
                found.append(resolved)
                those.append(each)
            yield from self._tick(number, each)
        return found, those

    def previous(self, versions: Iterable[Version]) -> Steps[list[tuple[int, ResolvedSchema]]]:
        """Versions that a schema must be compatible with, and their numbers."""
        found = []
        for number, each in enumerate(versions):
            resolved = self._resolved(each)
            self._count(each, resolved)
            found.append((each.version, resolved))
            yield from self._tick(number, each)
        return found

    def _resolved(self, version: Version) -> ResolvedSchema:
        return decisions.resolve(self._view, version.subject, version.schema)

    def _count(self, version: Version, resolved: ResolvedSchema) -> None:
        for text in (resolved.text, *(text for _, text in resolved.references)):
            if text not in self._texts:
                self._texts.add(text)
                self._characters += len(text)
        if self._characters > COMPARED_CHARACTERS_MAX:
            raise too_large(
                f"The versions of subject {version.subject} and the schemas they refer to have more than "
                f"{COMPARED_CHARACTERS_MAX} characters. Delete versions permanently, or use another subject."
            )

    def _tick(self, number: int, version: Version) -> Steps[None]:
        if version.schema.references or number % VERSIONS_A_TICK == VERSIONS_A_TICK - 1:
            yield next_tick(self._world)
