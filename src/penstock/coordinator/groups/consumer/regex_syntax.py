"""RE2's syntax, read into a tree. What RE2J, which Kafka uses, refuses is refused here."""

import unicodedata
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

REPEAT_MAX = 1_000
DEPTH_MAX = 100
"""Of parentheses. RE2J allows a thousand; nobody nests so far, and each costs stack."""


class SyntaxFault(Exception):
    """Why a pattern cannot be read."""


class AssertionKind(Enum):
    START = auto()
    END = auto()
    BOUNDARY = auto()
    NO_BOUNDARY = auto()


class CharSet(NamedTuple):
    mask: int
    """A bit for each ASCII character that is in it."""


class Assertion(NamedTuple):
    kind: AssertionKind


class Sequence(NamedTuple):
    of: "tuple[Node, ...]"


class Alternatives(NamedTuple):
    of: "tuple[Node, ...]"


class Repeat(NamedTuple):
    of: "Node"
    least: int
    most: int | None


Node: TypeAlias = CharSet | Assertion | Sequence | Alternatives | Repeat

_ALL = (1 << 128) - 1
_DIGITS = sum(1 << code for code in range(ord("0"), ord("9") + 1))
_UPPER = sum(1 << code for code in range(ord("A"), ord("Z") + 1))
_LOWER = sum(1 << code for code in range(ord("a"), ord("z") + 1))
_WORD = _DIGITS | _UPPER | _LOWER | 1 << ord("_")
_SPACE = sum(1 << ord(char) for char in "\t\n\f\r ")
_PRINT = sum(1 << code for code in range(0x20, 0x7F))
_ALNUM = _DIGITS | _UPPER | _LOWER
_PERL = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_POSIX: dict[str, int] = {
    "alnum": _ALNUM,
    "alpha": _UPPER | _LOWER,
    "ascii": _ALL,
    "blank": 1 << 9 | 1 << 32,
    "cntrl": sum(1 << code for code in (*range(0x20), 0x7F)),
    "digit": _DIGITS,
    "graph": _PRINT & ~(1 << 32),
    "lower": _LOWER,
    "print": _PRINT,
    "punct": _PRINT & ~(1 << 32) & ~_ALNUM,
    "space": _SPACE | 1 << 0x0B,
    "upper": _UPPER,
    "word": _WORD,
    "xdigit": _DIGITS | sum(1 << ord(char) for char in "abcdefABCDEF"),
}
_CONTROL = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_SCRIPTS = {
    "Any": _ALL,
    "Latin": _UPPER | _LOWER,
    "Common": _ALL & ~(_UPPER | _LOWER),
    "Greek": 0,
    "Cyrillic": 0,
}


def is_word(char: str) -> bool:
    return char < "\x80" and bool(_WORD >> ord(char) & 1)


def _bit(code: int) -> int:
    return 1 << code if code < 128 else 0


def _folded(mask: int) -> int:
    """With the other case of every letter."""
    return mask | (mask & _UPPER) << 32 | (mask & _LOWER) >> 32


def parse(text: str) -> Node:
    parser = _Parser(text)
    node = parser.alternatives(0, False)
    if parser.at < len(text):
        raise SyntaxFault("a ) without its (")
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _take(self, expected: str) -> bool:
        if self.text.startswith(expected, self.at):
            self.at += len(expected)
            return True
        return False

    def alternatives(self, depth: int, fold: bool) -> Node:
        if depth > DEPTH_MAX:
            raise SyntaxFault(f"parentheses nest more than {DEPTH_MAX} deep")
        ways: list[Node] = []
        while True:
            node, fold = self._sequence(depth, fold)
            ways.append(node)
            if not self._take("|"):
                return ways[0] if len(ways) == 1 else Alternatives(tuple(ways))

    def _sequence(self, depth: int, fold: bool) -> tuple[Node, bool]:
        """Flags that a sequence sets hold to the end of its group, over the next | too."""
        parts: list[Node] = []
        can_repeat = False
        while self.at < len(self.text) and self._peek() not in "|)":
            start = self.at
            repeat = self._repetition()
            if repeat is not None:
                if not can_repeat:
                    raise SyntaxFault(f"nothing to repeat before {self.text[start : self.at]}")
                parts[-1] = Repeat(parts[-1], *repeat)
                can_repeat = False
                continue
            if self._take("\\Q"):
                end = self.text.find("\\E", self.at)
                literal = self.text[self.at : None if end < 0 else end]
                self.at = len(self.text) if end < 0 else end + 2
                parts += (self._literal(ord(char), fold) for char in literal)
                can_repeat = bool(literal)
                continue
            if self._peek() == "(":
                node, fold = self._group(depth, fold)
                if node is not None:
                    parts.append(node)
                can_repeat = node is not None
                continue
            parts.append(self._atom(fold))
            can_repeat = True
        return (parts[0] if len(parts) == 1 else Sequence(tuple(parts))), fold

    def _repetition(self) -> tuple[int, int | None] | None:
        found: tuple[int, int | None] | None = None
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                found = bounds
                break
        if found is None and self._peek() == "{":
            found = self._braces()
        if found is not None:
            self._take("?")  # as few as possible: the same names match
        return found

    def _braces(self) -> tuple[int, int | None] | None:
        """{n}, {n,} or {n,m}; anything else is the character itself."""
        end = self.text.find("}", self.at)
        least, comma, most = self.text[self.at + 1 : max(end, 0)].partition(",")
        if end < 0 or not _is_number(least) or (most and not _is_number(most)):
            return None
        self.at = end + 1
        low = int(least)
        high = low if not comma else int(most) if most else None
        if low > REPEAT_MAX or (high is not None and (high > REPEAT_MAX or high < low)):
            raise SyntaxFault(f"it repeats {{{least}{comma}{most}}}, at most {REPEAT_MAX} times are allowed")
        return low, high

    def _group(self, depth: int, fold: bool) -> tuple[Node | None, bool]:
        """A group, or None for flags alone, which hold from here on."""
        self.at += 1
        inner = fold
        if self._take("?"):
            if self._take("P<") or (not self.text.startswith(("<=", "<!"), self.at) and self._take("<")):
                name, _, _ = self.text[self.at :].partition(">")
                if not name.isascii() or not name.replace("_", "a").isalnum():
                    raise SyntaxFault("a group has no valid name")
                self.at += len(name)
                if not self._take(">"):
                    raise SyntaxFault("the name of a group does not end")
            else:
                inner = self._flags(fold)
                if self._take(")"):
                    return None, inner
                if not self._take(":"):
                    raise SyntaxFault("RE2 has no such group")
        node = self.alternatives(depth + 1, inner)
        if not self._take(")"):
            raise SyntaxFault("a ( without its )")
        return node, fold

    def _flags(self, fold: bool) -> bool:
        """Of the flags only `i` matters: names have no lines, and greed does not change what matches."""
        value = True
        seen = False
        while self._peek() and self._peek() in "imsU-":
            flag = self._peek()
            self.at += 1
            if flag == "-":
                if not value:
                    raise SyntaxFault("flags are taken away twice")
                value = False
                continue
            seen = True
            if flag == "i":
                fold = value
        if not value and not seen:
            raise SyntaxFault("no flag follows the -")
        return fold

    def _atom(self, fold: bool) -> Node:
        char = self._peek()
        if char == "[":
            return self._class(fold)
        if char == "\\":
            return self._escape(fold)
        self.at += 1
        if char == ".":
            return CharSet(_ALL)
        if char == "^":
            return Assertion(AssertionKind.START)
        if char == "$":
            return Assertion(AssertionKind.END)
        return self._literal(ord(char), fold)

    @staticmethod
    def _literal(code: int, fold: bool) -> CharSet:
        mask = _bit(code)
        return CharSet(_folded(mask) if fold else mask)

    def _escape(self, fold: bool) -> Node:
        for escaped, kind in (
            ("\\A", AssertionKind.START),
            ("\\z", AssertionKind.END),
            ("\\b", AssertionKind.BOUNDARY),
            ("\\B", AssertionKind.NO_BOUNDARY),
        ):
            if self._take(escaped):
                return Assertion(kind)
        mask = self._escaped_set()
        return self._literal(self._escaped_code(), fold) if mask is None else CharSet(mask)

    def _escaped_set(self) -> int | None:
        kind = self.text[self.at + 1 : self.at + 2]
        if kind and kind in "dwsDWS":
            self.at += 2
            mask = _PERL[kind.lower()]
            return mask if kind.islower() else _ALL & ~mask
        if kind and kind in "pP":
            self.at += 2
            return self._property(negated=kind == "P")
        return None

    def _property(self, negated: bool) -> int:
        if self._take("{"):
            name, _, rest = self.text[self.at :].partition("}")
            if not rest and not self.text.endswith("}"):
                raise SyntaxFault("a \\p{ without its }")
            self.at += len(name) + 1
        else:
            name = self._peek()
            self.at += 1
        if name.startswith("^"):
            name, negated = name[1:], not negated
        if name in _SCRIPTS:
            mask = _SCRIPTS[name]
        elif len(name) in (1, 2) and name[:1] in "LMNPSZC" and name[:1]:
            mask = sum(1 << code for code in range(128) if unicodedata.category(chr(code)).startswith(name))
        else:
            raise SyntaxFault(f"there is no property {name!r} here")
        return _ALL & ~mask if negated else mask

    def _escaped_code(self) -> int:
        self.at += 1
        char = self._peek()
        self.at += 1
        if char in _CONTROL:
            return _CONTROL[char]
        if char == "x":
            return self._hexadecimal()
        if char and char in "01234567":
            digits = char
            while len(digits) < 3 and self._peek() and self._peek() in "01234567":
                digits += self._peek()
                self.at += 1
            if char != "0" and len(digits) == 1:
                raise SyntaxFault(f"RE2 has no backward references: \\{char}")
            return int(digits, 8)
        if not char or (char.isascii() and char.isalnum()):
            raise SyntaxFault(f"there is no escape \\{char}")
        return ord(char)

    def _hexadecimal(self) -> int:
        if self._take("{"):
            digits, _, _ = self.text[self.at :].partition("}")
            self.at += len(digits) + 1
        else:
            digits = self.text[self.at : self.at + 2]
            self.at += 2
            if len(digits) < 2:
                raise SyntaxFault("\\x is followed by two digits")
        if self.at > len(self.text) or not digits or not set(digits) <= set("0123456789abcdefABCDEF"):
            raise SyntaxFault(f"\\x{digits} is no character")
        code = int(digits, 16)
        if code > 0x10FFFF:
            raise SyntaxFault(f"\\x{digits} is no character")
        return code

    def _class(self, fold: bool) -> CharSet:
        self.at += 1
        negated = self._take("^")
        mask = 0
        is_first = True
        while is_first or self._peek() != "]":
            if self.at >= len(self.text):
                raise SyntaxFault("a [ without its ]")
            is_first = False
            if self._take("[:"):
                mask |= self._posix()
                continue
            escaped = self._escaped_set() if self._peek() == "\\" else None
            if escaped is not None:
                mask |= escaped
                continue
            low = self._class_code()
            high = low
            if self._peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self._class_code()
                if high < low:
                    raise SyntaxFault("a range in [] runs backward")
            for code in range(low, min(high, 127) + 1):
                mask |= _bit(code)
        self.at += 1
        if fold:
            mask = _folded(mask)
        return CharSet(_ALL & ~mask if negated else mask)

    def _class_code(self) -> int:
        if self._peek() == "\\":
            return self._escaped_code()
        char = self._peek()
        if not char:
            raise SyntaxFault("a [ without its ]")
        self.at += 1
        return ord(char)

    def _posix(self) -> int:
        end = self.text.find(":]", self.at)
        name = self.text[self.at : max(end, 0)]
        negated = name.startswith("^")
        mask = _POSIX.get(name.removeprefix("^"))
        if end < 0 or mask is None:
            raise SyntaxFault(f"there is no class [:{name}:]")
        self.at = end + 2
        return _ALL & ~mask if negated else mask


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5
