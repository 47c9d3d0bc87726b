"""Work that waits in between, written from top to bottom.

    def create_and_write(...) -> Steps[Offset]:
        topic = yield from ensure_topic(context, "orders")
        appended = yield append(context, partition, batch)      # a Promise: go on when it is resolved
        return appended.base_offset

A `Promise` that fails raises its error where it is waited for. No task and no future is made, and
steps that never wait are over before `RunningSteps` returns.
"""

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeAlias, TypeVar

from penstock.base.errors import KafkaError
from penstock.base.promise import Promise
from penstock.base.world import World

T = TypeVar("T")

Steps: TypeAlias = Generator[Promise[Any], Any, T]


class RunningSteps(Generic[T]):
    """Steps on their way. One of `done` and `failed` is called, once, unless they are cancelled."""

    __slots__ = ("_done", "_failed", "_steps")

    def __init__(
        self, steps: Steps[T], done: Callable[[T], None], failed: Callable[[Exception], None]
    ) -> None:
        self._steps: Steps[T] | None = steps
        self._done = done
        self._failed = failed
        self._go_on(None)

    @property
    def is_over(self) -> bool:
        return self._steps is None

    def cancel(self) -> None:
        """Nobody waits for it any more: its `finally` clauses run, and nothing else."""
        steps, self._steps = self._steps, None
        if steps is not None:
            steps.close()

    def _go_on(self, value: Any) -> None:
        steps = self._steps
        while steps is not None and steps is self._steps:
            try:
                later = steps.throw(value) if isinstance(value, KafkaError) else steps.send(value)
            except StopIteration as over:
                self._steps = None
                self._done(over.value)
                return
            except Exception as error:
                self._steps = None
                self._failed(error)
                return
            if not later.is_settled:
                later.then(self._go_on)
                return
            value = later.value


def sleep(world: World, delay_ms: float) -> Promise[None]:
    """Answered when so much time has passed."""
    later: Promise[None] = Promise()
    world.call_later(delay_ms, lambda: later.resolve(None))
    return later
