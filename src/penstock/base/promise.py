"""An answer that is not there yet."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from penstock.base.metrics import Asked

T = TypeVar("T")


class Later(Generic[T]):
    """Whoever gives it out calls `answer` once; whoever waits is called with the answer, at once if it is there."""

    __slots__ = ("_then", "asked", "is_answered", "value")

    value: T
    holds = False
    """Whether what the same client asked next must wait for this."""

    def __init__(self) -> None:
        self.is_answered = False
        self._then: Callable[[T], Any] | None = None
        self.asked: Asked | None = None
        """Whoever answers a client with it counts how long that took."""

    def answer(self, value: T) -> None:
        assert not self.is_answered, "a question is answered once"
        self.is_answered = True
        self.value = value
        if self._then is not None:
            self._then(value)

    def then(self, call: Callable[[T], Any]) -> None:
        """Have somebody called with the answer; one at most."""
        assert self._then is None, "one waits for an answer"
        self._then = call
        if self.is_answered:
            call(self.value)


class HoldingLater(Later[T]):
    """An answer that may be large, or long in coming: the client's next request is not looked at before it, or before
    `let_go`."""

    __slots__ = ("_freed", "is_let_go")
    holds = True

    def __init__(self) -> None:
        super().__init__()
        self.is_let_go = False
        self._freed: Callable[[], None] | None = None

    def let_go(self) -> None:
        """Have the client's next request looked at, though this one is not answered yet."""
        if not self.is_let_go:
            self.is_let_go = True
            if self._freed is not None:
                self._freed()

    def when_let_go(self, call: Callable[[], None]) -> None:
        """Have somebody called by `let_go`; one at most."""
        self._freed = call
