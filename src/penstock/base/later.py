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
    """An answer that may be large, or long in coming: the client's next request is not looked at before it."""

    __slots__ = ()
    holds = True
