"""What goes wrong with a pipeline, each as a sentence for whoever wrote its file or runs it.

Spark's own exceptions are pages: a class in brackets, a plan, a stack of Java and one of Python. `one_sentence`
finds the part that a person needs.
"""

import re
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


class CannotRun(Exception):
    """The file is sound, and still cannot be run here; the message is one sentence."""


class FlowFailed(Exception):
    """A flow stopped with an error, and the others were stopped with it; the message is one sentence."""

    def __init__(self, flow: str, why: str) -> None:
        super().__init__(f"flow {flow} failed: {why}")
        self.flow = flow
        self.why = why


SENTENCE_CHARS_MAX = 600
"""An exception may quote a record of a megabyte."""

_RAISED = re.compile(
    r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*(?:Error|Exception|Exit|Interrupt|[a-z])): (\S.*)$", re.MULTILINE
)
_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+)$", re.MULTILINE)
_STATE = re.compile(r"\s*SQLSTATE: \w{5}.*", re.DOTALL)
_CLASS = re.compile(r"^\[[A-Z_0-9.]+\]\s*")
_PLAIN_ERRORS = ("ValueError", "RuntimeError", "Exception", "AssertionError")


def one_sentence(error: object) -> str:
    """What an exception of Spark says, without its class, its plan and its stacks."""
    text = str(error).replace("\r\n", "\n").strip()
    if "Traceback (most recent call last)" in text:
        raised = _raised_in_python(text)
        if raised:
            return _shortened(raised)
    text = _STATE.sub("", text)
    lines = [line.strip() for line in text.split("\n")]
    said = next((line for line in lines if line), "") or type(error).__name__
    said = said.partition("; line ")[0] if said.endswith(";") else said
    said = _CLASS.sub("", re.sub(r"^(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): ", "", said))
    return _shortened(said.rstrip(";: "))


def _raised_in_python(text: str) -> str | None:
    """The last exception of the first stack of Python: what the worker, or the user's function, raised."""
    stack = text[text.index("Traceback (most recent call last)") :]
    # Java's own stack follows; what comes after it repeats the same.
    stack = re.split(r"\n\s*at [\w.$]+\(", stack)[0]
    found = _RAISED.findall(stack)
    if not found:
        return None
    kind, said = found[-1]
    said = _CLASS.sub("", _STATE.sub("", said))
    return said if kind in _PLAIN_ERRORS or " " in said else f"{kind}: {said}"


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SENTENCE_CHARS_MAX else text[:SENTENCE_CHARS_MAX] + "..."
