"""A reply that is not there yet: a value, or the error that came instead of it.

The side that gives a promise out calls `resolve` or `fail`, once. The side that waits is called with the value or with
the error: at once if the promise is settled already. `base.steps` waits for promises in code that reads from top to
bottom.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from penstock.base.errors import KafkaError
from penstock.base.metrics import Asked

T = TypeVar("T")


class Promise(Generic[T]):
    __slots__ = ("_on_error", "_on_value", "asked", "error", "is_settled", "value")

    value: T
    """Set once the promise is resolved."""
    holds = False
    """Whether the client's next request waits until this one is settled."""

    def __init__(self) -> None:
        self.is_settled = False
        self.error: KafkaError | None = None
        """Set once the promise has failed."""
        self._on_value: Callable[[T], Any] | None = None
        self._on_error: Callable[[KafkaError], Any] | None = None
        self.asked: Asked | None = None
        """Measures how long a client waits for its reply."""

    def resolve(self, value: T) -> None:
        """Settle with a value. A `KafkaError` as the value fails the promise."""
        if isinstance(value, KafkaError):
            self.fail(value)
            return
        assert not self.is_settled, "a promise is settled once"
        self.is_settled = True
        self.value = value
        if self._on_value is not None:
            self._on_value(value)

    def fail(self, error: KafkaError) -> None:
        assert not self.is_settled, "a promise is settled once"
        self.is_settled = True
        self.error = error
        self.value = error  # type: ignore[assignment]
        if self._on_value is not None:
            (self._on_error or self._on_value)(error)  # type: ignore[arg-type]

    def then(self, on_value: Callable[[T], Any], on_error: Callable[[KafkaError], Any] | None = None) -> None:
        """Call one of the two when the promise is settled. Without `on_error`, `on_value` gets the error. A promise
        has one waiter."""
        assert self._on_value is None, "a promise has one waiter"
        self._on_value, self._on_error = on_value, on_error
        if self.is_settled:
            if self.error is not None:
                (on_error or on_value)(self.error)  # type: ignore[arg-type]
            else:
                on_value(self.value)


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
