"""Handles log lines of nodes: warnings go into the trace, and a logged exception is a violation."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.sim.checkers.violation import Violation


class UnexpectedError(Violation):
    """A node logged an exception."""


@contextmanager
def logs_to_trace(
    trace: Callable[[str], None], unforeseen: Callable[[UnexpectedError], None]
) -> Iterator[None]:
    """Write the nodes' warnings to the trace instead of the terminal."""
    logger = logging.getLogger("penstock")
    listener = _TraceHandler(trace, unforeseen)
    before = logger.propagate, logger.level
    logger.propagate = False
    logger.setLevel(logging.WARNING)
    logger.addHandler(listener)
    try:
        yield
    finally:
        logger.removeHandler(listener)
        logger.propagate, logger.level = before


class _TraceHandler(logging.Handler):
    def __init__(self, trace: Callable[[str], None], unforeseen: Callable[[UnexpectedError], None]) -> None:
        super().__init__(logging.WARNING)
        self._trace = trace
        self._unforeseen = unforeseen

    def emit(self, record: logging.LogRecord) -> None:
        self._trace(f"log: {record.getMessage()}")
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            complaint = UnexpectedError(
                f"NothingUnforeseen: {record.getMessage()}: {type(error).__name__}: {error}"
            )
            complaint.__cause__ = error
            self._unforeseen(complaint)
