"""Problems of pipeline files and exceptions of runs, each as a sentence for the user.

Spark's exceptions are long: a class in brackets, a plan, stacks of Java and Python. `one_sentence`
extracts the message.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple


class Problem(NamedTuple):
    """A problem of a file."""

    where: str
    """The file, and the line if known: `orders.yaml:12`."""
    key: str
    """Path of the value, `sources.orders.value`; empty for the whole file."""
    sentence: str
    """The value found, and what was expected."""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.key, self.sentence) if part)


class BadPipeline(Exception):
    """A file is invalid; it has at least one problem."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(str(each) for each in problems))
        self.problems = tuple(problems)


class Problems:
    """Collects the problems of a file, so that one check reports all."""

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
    """A value, shortened for a sentence."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def one_of(names: Iterable[str]) -> str:
    """`a, b or c`."""
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last


class CannotRun(Exception):
    """The file is valid but cannot run here; the message is one sentence."""


class FlowFailed(Exception):
    """A flow stopped with an error, and the others were stopped with it; the message is one sentence."""

    def __init__(self, flow: str, why: str) -> None:
        super().__init__(f"flow {flow} failed: {why}")
        self.flow = flow
        self.why = why


TOO_SLOW = "Python worker failed to connect back"
"""Spark's error if a Python process needs more than ten seconds to start, as on a busy machine."""

BUSY = (
    f"{TOO_SLOW}: the machine is too busy to start Spark's Python processes within 10 seconds; "
    "nothing is lost, run it again with less load on the machine"
)

NO_WATERMARK = (
    "an aggregation in mode append writes a group when it can no longer change, which needs a watermark: expected "
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
    """The message of a Spark exception, without its class, plan and stacks."""
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
    """The exception of the worker or the user's function: the last line of a Python stack.

    If an exception was raised while another was handled, the text has both stacks; its own is the last.
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
