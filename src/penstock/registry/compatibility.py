"""The seven compatibility levels, for any format.

    BACKWARD    the new schema reads what the last version wrote
    FORWARD     the last version reads what the new schema writes
    FULL        both
    ..._TRANSITIVE   with all versions instead of the last
    NONE        anything goes

A format says whether one schema can read what another wrote, and why not.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

NONE, BACKWARD, FORWARD, FULL = "NONE", "BACKWARD", "FORWARD", "FULL"
_TRANSITIVE: Final = "_TRANSITIVE"
LEVELS: Final = (NONE, *(f"{each}{more}" for each in (BACKWARD, FORWARD, FULL) for more in ("", _TRANSITIVE)))

MESSAGES_MAX: Final = 100
"""Reasons that an answer lists."""

S = TypeVar("S")


class Difference(NamedTuple):
    """Why the reader cannot read what the writer wrote."""

    kind: str
    """Confluent's name, such as READER_FIELD_MISSING_DEFAULT_VALUE."""
    description: str
    """A sentence with `{reader}` and `{writer}` for the two schemas: "new" or "old"."""
    info: str = ""

    def text(self, *, reader: str, writer: str) -> str:
        sentence = self.description.replace("{reader}", reader).replace("{writer}", writer)
        more = f", additionalInfo:'{self.info}'" if self.info else ""
        return f"{{errorType:'{self.kind}', description:'{sentence}'{more}}}"


def previous_of(level: str, versions: Sequence[S]) -> Sequence[S]:
    """The versions, oldest first, that a level compares with."""
    if level == NONE:
        return ()
    return versions if level.endswith(_TRANSITIVE) else versions[-1:]


def check(
    level: str, new: S, previous: Sequence[tuple[int, S]], differences: Callable[[S, S], Sequence[Difference]]
) -> list[str]:
    """Why a schema is not compatible with previous ones, given with their versions; empty if it is.
    `differences(reader, writer)` is the format's rule."""
    direction = level.removesuffix(_TRANSITIVE)
    for number, old in reversed(previous):
        found: list[str] = []
        if direction in (BACKWARD, FULL):
            found += [each.text(reader="new", writer="old") for each in differences(new, old)]
        if direction in (FORWARD, FULL):
            found += [each.text(reader="old", writer="new") for each in differences(old, new)]
        if found:
            omitted = len(found) - MESSAGES_MAX
            shown = found[:MESSAGES_MAX]
            if omitted > 0:
                shown.append(f"{{{omitted} more}}")
            return [*shown, f"{{oldSchemaVersion: {number}}}", f"{{compatibility: '{level}'}}"]
    return []
