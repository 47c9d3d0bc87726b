"""Values of a file, taken key by key. What is wrong is noted with its place, and the check goes on.

A `Table` is a mapping under check: each key is taken by its kind, and `end` finds the keys that nobody took. A value
that is wrong is noted and its default given, so that one run of the check finds everything.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .errors import Problem

TEXT_CHARS_MAX = 100_000
"""Of one value; a query of a few thousand lines still fits."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


class Notes:
    """The problems of one file."""

    def __init__(self, file: Path, lines: Mapping[tuple[str, ...], int]) -> None:
        self.problems: list[Problem] = []
        self._file = file
        self._lines = lines

    def add(self, path: tuple[str, ...], sentence: str) -> None:
        line = next(
            (
                self._lines[path[:length]]
                for length in range(len(path), 0, -1)
                if path[:length] in self._lines
            ),
            None,
        )
        where = str(self._file) if line is None else f"{self._file}:{line}"
        self.problems.append(Problem(where, ".".join(path), sentence))


def shown(value: object) -> str:
    """A value in a sentence, short."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def one_of(names: Iterable[str]) -> str:
    """`a, b or c`."""
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last


class Table:
    def __init__(self, notes: Notes, path: tuple[str, ...], value: object) -> None:
        self.notes = notes
        self.path = path
        self._known: list[str] = []
        self._values: dict[str, Any] = {}
        self._bad: set[str] = set()
        if not isinstance(value, Mapping):
            notes.add(path, f"{shown(value)} is no mapping, expected keys with values")
            return
        for key, item in value.items():
            if isinstance(key, str):
                self._values[key] = item
            else:
                notes.add(path, f"{shown(key)} is no key, expected a word (put it in quotes if it is one)")

    def bad(self, key: str, sentence: str, *inside: str) -> None:
        """Note what is wrong with a value, or with something inside of it."""
        self._bad.add(key)
        self.notes.add((*self.path, key, *inside), sentence)

    def is_bad(self, key: str) -> bool:
        """Whether a value was refused: what follows from its default is then no news."""
        return key in self._bad

    def has(self, key: str) -> bool:
        """Whether the key is there with a value; a key with none is as if it were not there."""
        return self._values.get(key) is not None

    def any(self, key: str) -> Any:
        self._known.append(key)
        return self._values.get(key)

    def text(self, key: str, expected: str) -> str | None:
        value = self.any(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            self.bad(key, f"{shown(value)} is no text, expected {expected}")
            return None
        if len(value) > TEXT_CHARS_MAX:
            self.bad(key, f"has {len(value):,} characters, expected at most {TEXT_CHARS_MAX:,}")
            return None
        return value

    def required(self, key: str, expected: str) -> str:
        """A text that must be there; empty where it is not, and noted."""
        if not self.has(key):
            self._known.append(key)
            self.bad(key, f"is missing, expected {expected}")
            return ""
        return self.text(key, expected) or ""

    def choice(self, key: str, choices: tuple[str, ...], default: str) -> str:
        value = self.any(key)
        if value is None:
            return default
        if not isinstance(value, str) or value not in choices:
            self.bad(key, f"{shown(value)} is not known, expected {one_of(choices)}")
            return default
        return value

    def texts(self, key: str, expected: str) -> tuple[str, ...]:
        """One text, or a list of them."""
        value = self.any(key)
        if value is None:
            return ()
        items = value if isinstance(value, list | tuple) else [value]
        if not items or not all(isinstance(item, str) and item.strip() for item in items):
            self.bad(key, f"{shown(value)} does not fit, expected {expected}")
            return ()
        if len(set(items)) != len(items):
            self.bad(key, f"{shown(value)} has something twice, expected {expected}")
        return tuple(items)

    def number(self, key: str, default: int, smallest: int, largest: int) -> int:
        value = self.any(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not smallest <= value <= largest:
            self.bad(
                key, f"{shown(value)} does not fit, expected a whole number from {smallest} to {largest}"
            )
            return default
        return value

    def flag(self, key: str) -> bool:
        value = self.any(key)
        if value is None:
            return False
        if not isinstance(value, bool):
            self.bad(key, f"{shown(value)} is neither yes nor no, expected true or false")
            return False
        return value

    def settings(self, key: str, what: str) -> dict[str, str]:
        """Names with plain values, as Spark wants them: as text."""
        value = self.any(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.bad(key, f"{shown(value)} is no mapping, expected {what}: NAME: VALUE")
            return {}
        settings = {}
        for name, item in value.items():
            if not isinstance(name, str) or not isinstance(item, str | int | float | bool):
                self.bad(
                    key,
                    f"{shown(name)}: {shown(item)} does not fit, expected {what}: NAME: VALUE, each a plain value",
                )
            else:
                settings[name] = str(item).lower() if isinstance(item, bool) else str(item)
        return settings

    def only_one(self, keys: tuple[str, ...], what: str) -> str | None:
        """Which of these keys is there; exactly one must be."""
        present = [key for key in keys if self.has(key)]
        if len(present) == 1:
            return present[0]
        found = "none of them is there" if not present else f"found {' and '.join(present)}"
        self.notes.add(self.path, f"{what} has exactly one of {one_of(keys)}; {found}")
        self._known.extend(keys)
        return None

    def tables(self, key: str) -> list[tuple[str, Any]]:
        """Named things: each name must be one that SQL can use."""
        value = self.any(key)
        if value is None:
            return []
        if not isinstance(value, Mapping):
            self.bad(key, f"{shown(value)} is no mapping, expected names with what each is")
            return []
        named = []
        for name, item in value.items():
            if not isinstance(name, str) or NAME.fullmatch(name) is None:
                self.bad(
                    key,
                    f"{shown(name)} is no name, expected letters, digits and _, no digit first, at most 100",
                )
            else:
                named.append((name, item))
        return named

    def end(self) -> None:
        """Everything that is known was taken: what is left is a mistake."""
        known = sorted(set(self._known))
        for key in self._values:
            if key in known:
                continue
            near = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"expected {one_of(known)}"
            self.bad(key, f"is no key of this place; {hint}")
