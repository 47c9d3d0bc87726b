"""Regular expressions that subscriptions may have: RE2's syntax, matched in time that grows with the name alone.

A client's pattern runs here, against every topic, so a matcher that goes back and forth is out of the question:
`(a+)+b` would stop the broker. As RE2 does, a pattern becomes an automaton, and a name walks through it once; sets of
states are remembered as they are met, so that each character of the next name is a look-up. What RE2 has not
(backward references, looking around) is refused, and so is a pattern whose automaton would be too large.

Topic names have no characters beyond ASCII, so a set of characters is a number of 128 bits. A pattern must match a
whole name. Greed, capture and lines make no difference to whether it does.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from penstock.base.errors import ErrorCode, KafkaError

from .regex_syntax import (
    Alternatives,
    Assertion,
    AssertionKind,
    CharSet,
    Node,
    Repeat,
    Sequence,
    SyntaxFault,
    is_word,
    parse,
)

STATES_MAX = 5_000
"""RE2 bounds memory, this bounds states: enough for an alternative of some hundred whole topic names."""
TEXT_MAX = 5_000
"""Characters. Reading them takes time, in which nobody else is served: this many, less than a tenth of a second."""
REMEMBERED_MAX = 2_000
"""Sets of states; beyond it they are forgotten, and met again."""


class InvalidRegularExpression(KafkaError):
    code = ErrorCode.INVALID_REGULAR_EXPRESSION


class _Eat(NamedTuple):
    mask: int
    then: int


class _Split(NamedTuple):
    ways: tuple[int, ...]


class _If(NamedTuple):
    kind: AssertionKind
    then: int


_State: TypeAlias = _Eat | _Split | _If | None
"""None is the end: what stands there has matched."""
_MATCH = 0


class _Context(NamedTuple):
    """What an assertion may ask about a place in the name."""

    is_start: bool
    is_end: bool
    is_boundary: bool

    def holds(self, kind: AssertionKind) -> bool:
        if kind is AssertionKind.START:
            return self.is_start
        if kind is AssertionKind.END:
            return self.is_end
        return self.is_boundary is (kind is AssertionKind.BOUNDARY)


class _Builder:
    """From the last state to the first: each part is told where to go on."""

    def __init__(self) -> None:
        self.states: list[_State] = [None]

    def add(self, state: _State) -> int:
        if len(self.states) == STATES_MAX:
            raise SyntaxFault(f"it takes more than {STATES_MAX} states")
        self.states.append(state)
        return len(self.states) - 1

    def build(self, node: Node, then: int) -> int:
        if isinstance(node, CharSet):
            return self.add(_Eat(node.mask, then))
        if isinstance(node, Assertion):
            return self.add(_If(node.kind, then))
        if isinstance(node, Alternatives):
            return self.add(_Split(tuple(self.build(each, then) for each in node.of)))
        if isinstance(node, Sequence):
            for each in reversed(node.of):
                then = self.build(each, then)
            return then
        return self._repeat(node, then)

    def _repeat(self, node: Repeat, then: int) -> int:
        if node.most is None:
            loop = self.add(None)
            again = self.build(node.of, loop)
            self.states[loop] = _Split((again, then))
            then = loop
        else:
            end = then
            for _ in range(node.most - node.least):
                then = self.add(_Split((self.build(node.of, then), end)))
        for _ in range(node.least):
            then = self.build(node.of, then)
        return then


@dataclass(slots=True, eq=False)
class Pattern:
    """A compiled expression."""

    text: str
    _states: list[_State]
    _start: int
    _closures: dict[tuple[frozenset[int], _Context], frozenset[int]]
    _steps: dict[tuple[frozenset[int], str], frozenset[int]]

    def matches(self, name: str) -> bool:
        """Whether it matches all of a name."""
        current = frozenset((self._start,))
        before_is_word = False
        end = len(name)
        for at, char in enumerate(name):
            word = is_word(char)
            closed = self._closed(current, _Context(at == 0, False, word is not before_is_word))
            current = self._step(closed, char)
            if not current:
                return False
            before_is_word = word
        return _MATCH in self._closed(current, _Context(end == 0, True, before_is_word))

    def _closed(self, states: frozenset[int], context: _Context) -> frozenset[int]:
        """What can be reached without eating a character."""
        found = self._closures.get((states, context))
        if found is None:
            seen: dict[int, None] = {}
            todo = [*states]
            while todo:
                number = todo.pop()
                if number in seen:
                    continue
                seen[number] = None
                state = self._states[number]
                if isinstance(state, _Split):
                    todo += state.ways
                elif isinstance(state, _If) and context.holds(state.kind):
                    todo.append(state.then)
            found = frozenset(
                number for number in seen if number == _MATCH or isinstance(self._states[number], _Eat)
            )
            self._remember()
            self._closures[states, context] = found
        return found

    def _step(self, states: frozenset[int], char: str) -> frozenset[int]:
        found = self._steps.get((states, char))
        if found is None:
            bit = 1 << ord(char) if char < "\x80" else 0
            reached = []
            for number in states:
                state = self._states[number]
                if isinstance(state, _Eat) and state.mask & bit:
                    reached.append(state.then)
            found = frozenset(reached)
            self._remember()
            self._steps[states, char] = found
        return found

    def _remember(self) -> None:
        if len(self._closures) + len(self._steps) >= REMEMBERED_MAX:
            self._closures.clear()
            self._steps.clear()


@lru_cache(maxsize=64)
def compile_regex(text: str) -> Pattern:
    """The pattern, or InvalidRegularExpression, which says why."""
    builder = _Builder()
    try:
        if len(text) > TEXT_MAX:
            raise SyntaxFault(f"it has {len(text)} characters, {TEXT_MAX} are the most")
        start = builder.build(parse(text), _MATCH)
    except SyntaxFault as fault:
        raise InvalidRegularExpression(
            f"the regular expression {text[:200]!r} is not valid: {fault}"
        ) from None
    return Pattern(text, builder.states, start, {}, {})
