"""Problems of pipeline files and exceptions of runs, each as a sentence for the user.

Spark's own exceptions are pages: a class in brackets, a plan, a stack of Java and one of Python. `one_sentence`
finds the part that a person needs.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple


class Problem(NamedTuple):
    """One thing that is wrong with a file."""

    where: str
    """The file, and the line where it is known: `orders.yaml:12`."""
    key: str
    """The way to the value, `sources.orders.value`; empty for the file as a whole."""
    sentence: str
    """The value that was found, and what was expected."""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.key, self.sentence) if part)


class BadPipeline(Exception):
    """A file that cannot be run as it stands; it has at least one problem."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(str(each) for each in problems))
        self.problems = tuple(problems)


class Problems:
    """What is wrong with one file, collected so that one check reports everything."""

    def __init__(self, file: Path, lines: Mapping[tuple[str, ...], int]) -> None:
        self.found: list[Problem] = []
        self._file = file
        self._lines = lines

    def add(self, path: tuple[str, ...], sentence: str) -> None:
        """Add a problem with the line of its key, or of the nearest key around it."""
        known = (path[:length] for length in range(len(path), 0, -1))
        line = next((self._lines[each] for each in known if each in self._lines), None)
        where = str(self._file) if line is None else f"{self._file}:{line}"
        self.found.append(Problem(where, ".".join(path), sentence))


def shown(value: object) -> str:
    """A value in a sentence, short."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def one_of(names: Iterable[str]) -> str:
    """`a, b or c`."""
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last


class CannotRun(Exception):
    """The file is sound, and still cannot be run here; the message is one sentence."""


class FlowFailed(Exception):
    """A flow stopped with an error, and the others were stopped with it; the message is one sentence."""

    def __init__(self, flow: str, why: str) -> None:
        super().__init__(f"flow {flow} failed: {why}")
        self.flow = flow
        self.why = why


TOO_SLOW = "Python worker failed to connect back"
"""Spark gives a Python process ten seconds to start, and a loaded machine may need more."""

BUSY = (
    f"{TOO_SLOW}: the machine is too busy to start Spark's Python processes in the 10 seconds that they have; "
    "nothing is lost, run it again when there is less beside it"
)

NO_WATERMARK = (
    "an aggregation in mode append gives a group when it can no longer change, which takes a watermark: expected "
    "`mode: update`, or a `watermark` at its source or view with that column, or a window over it, in GROUP BY"
)

SENTENCE_CHARS_MAX = 600
"""An exception may quote a record of a megabyte."""

_NO_WATERMARK = re.compile(r"Invalid streaming output mode: append\..*without watermark")
_STACK = "Traceback (most recent call last)"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_RAISED = re.compile(r"(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*)(?:: (.*))?")
_CALLING = "An error occurred while calling "
_LOST = re.compile(r"most recent failure: (?:Lost task|Exception) .*?\): (.+)")
_STATE = re.compile(r"\s*SQLSTATE: \w{5}.*", re.DOTALL)
_CLASS = re.compile(r"^\[[A-Z_0-9.]+\]\s*")
_PLAIN_ERRORS = ("ValueError", "RuntimeError", "Exception", "AssertionError")


def one_sentence(error: object) -> str:
    """What an exception of Spark says, without its class, its plan and its stacks."""
    text = str(error).replace("\r\n", "\n").strip()
    if TOO_SLOW in text:
        return BUSY
    if _NO_WATERMARK.search(text) is not None:
        return NO_WATERMARK
    if _STACK in text:
        raised = _raised_in_python(text)
        if raised:
            return _shortened(raised)
    text = _STATE.sub("", text)
    lines = [line.strip() for line in text.split("\n")]
    said = (
        next((line for line in lines if line and not line.startswith(_CALLING)), "") or type(error).__name__
    )
    lost = _LOST.search(said)
    said = lost[1] if lost is not None else said
    said = said.partition("; line ")[0] if said.endswith(";") else said
    said = _CLASS.sub("", re.sub(r"^(?:: )?(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): ", "", said))
    return _shortened(said.rstrip(";: "))


def _raised_in_python(text: str) -> str | None:
    """What the worker, or the user's function, raised: the line at the end of a stack of Python.

    An exception that came while another was handled has both stacks, one after the other; its own is the last.
    """
    lines = text[text.index(_STACK) :].split("\n")
    raised, goes_on = None, True
    for line in lines:
        if line.startswith(_CHAINED):
            goes_on = True
        elif goes_on and line and not line.startswith((_STACK, " ", "\t")):
            raised, goes_on = line, False
    found = None if raised is None else _RAISED.fullmatch(raised)
    if found is None:
        return raised
    kind, said = found[1], _CLASS.sub("", _STATE.sub("", found[2] or ""))
    if not said:
        return kind
    return said if kind in _PLAIN_ERRORS or " " in said else f"{kind}: {said}"


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SENTENCE_CHARS_MAX else text[:SENTENCE_CHARS_MAX] + "..."
