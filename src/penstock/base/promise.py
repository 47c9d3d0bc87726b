"""A reply that is not known yet: later a value, or the error instead of it.

The side that returns a promise calls `resolve` or `fail`, once. The side that waits passes two callbacks to `then`, of
which one is called when the promise is settled, or at once if it already is. An error goes to `on_error` only.
`base.steps` waits for promises in code that reads from top to bottom, and raises their errors there.
"""

import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from penstock.base.errors import KafkaError
from penstock.base.metrics import RequestStart

T = TypeVar("T")

logger = logging.getLogger(__name__)


def _log_unexpected(error: KafkaError) -> None:
    logger.error("a promise without an error handler failed: %s", error, exc_info=error)


class Promise(Generic[T]):
    __slots__ = ("_on_error", "_on_value", "error", "is_settled", "request_start", "value")

    value: T
    """Set when the promise is resolved. A failed promise has none."""
    holds = False
    """Whether the client's next request waits until this one is settled."""

    def __init__(self) -> None:
        self.is_settled = False
        self.error: KafkaError | None = None
        """Set when the promise fails."""
        self._on_value: Callable[[T], Any] | None = None
        self._on_error: Callable[[KafkaError], Any] | None = None
        self.request_start: RequestStart | None = None
        """Measures how long a client waits for its reply."""

    def resolve(self, value: T) -> None:
        assert not self.is_settled, "a promise is settled once"
        self.is_settled = True
        self.value = value
        if self._on_value is not None:
            self._on_value(value)

    def fail(self, error: KafkaError) -> None:
        assert not self.is_settled, "a promise is settled once"
        self.is_settled = True
        self.error = error
        if self._on_error is not None:
            self._on_error(error)

    def then(
        self, on_value: Callable[[T], Any], on_error: Callable[[KafkaError], Any] = _log_unexpected
    ) -> None:
        """Call one of the two when the promise is settled. A promise has one waiter.

        Leave out `on_error` only if the promise never fails: an error is then a fault of the program, and is logged.
        """
        assert self._on_value is None, "a promise has one waiter"
        self._on_value, self._on_error = on_value, on_error
        if self.is_settled:
            if self.error is None:
                on_value(self.value)
            else:
                on_error(self.error)


class HoldingPromise(Promise[T]):
    """The promise of a reply that may be large, or long in coming: the client's next request is not read before the
    promise is settled, or before `let_go`."""

    __slots__ = ("_on_let_go", "is_let_go")
    holds = True

    def __init__(self) -> None:
        super().__init__()
        self.is_let_go = False
        self._on_let_go: Callable[[], None] | None = None

    def let_go(self) -> None:
        """Let the client's next request be read although this promise is not settled."""
        if not self.is_let_go:
            self.is_let_go = True
            if self._on_let_go is not None:
                self._on_let_go()

    def when_let_go(self, call: Callable[[], None]) -> None:
        """Call this once `let_go` is called."""
        self._on_let_go = call
