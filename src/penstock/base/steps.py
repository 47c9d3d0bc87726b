"""Multi-step work that waits between steps, written as a generator from top to bottom.

    def create_and_write(...) -> Steps[Offset]:
        topic = yield from ensure_topic(context, "orders")
        appended = yield append(context, partition, batch)      # a Promise: continues with its value
        return appended.base_offset

A promise that fails raises its error at the `yield`. No task or future is created: steps that never wait are finished
when the constructor of `RunningSteps` returns.
"""

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeAlias, TypeVar

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.base.world import World

T = TypeVar("T")

Steps: TypeAlias = Generator[Promise[Any], Any, T]


class RunningSteps(Generic[T]):
    """Runs steps to their end. Calls `done` or `failed` exactly once, unless the steps are cancelled."""

    __slots__ = ("_done", "_failed", "_steps")

    def __init__(
        self, steps: Steps[T], done: Callable[[T], None], failed: Callable[[Exception], None]
    ) -> None:
        self._steps: Steps[T] | None = steps
        self._done = done
        self._failed = failed
        self._resume(None)

    @property
    def is_over(self) -> bool:
        return self._steps is None

    def cancel(self) -> None:
        """Stop at the current step: run its `finally` clauses, and call neither `done` nor `failed`."""
        steps, self._steps = self._steps, None
        if steps is not None:
            steps.close()

    def _resume(self, value: Any) -> None:
        self._run(value, None)

    def _throw(self, error: KafkaError) -> None:
        self._run(None, error)

    def _run(self, value: Any, error: KafkaError | None) -> None:
        steps = self._steps
        while steps is not None and steps is self._steps:
            try:
                promise = steps.send(value) if error is None else steps.throw(error)
            except StopIteration as end:
                self._steps = None
                self._done(end.value)
                return
            except Exception as failure:
                self._steps = None
                self._failed(failure)
                return
            if not promise.is_settled:
                promise.then(self._resume, self._throw)
                return
            error = promise.error
            value = None if error is not None else promise.value


def sleep(world: World, delay_ms: float) -> Promise[None]:
    """A promise that resolves after the delay."""
    promise: Promise[None] = Promise()
    world.call_later(delay_ms, lambda: promise.resolve(None))
    return promise


def in_time(world: World, promise: Promise[T], wait_ms: float, late: str) -> Promise[T]:
    """A promise that settles as this one does, or fails with REQUEST_TIMED_OUT and the message after the wait."""
    if promise.is_settled:
        return promise
    reply: Promise[T] = Promise()
    timer = world.call_later(
        max(wait_ms, 0), lambda: reply.fail(KafkaError(late, ErrorCode.REQUEST_TIMED_OUT))
    )

    def resolved(value: T) -> None:
        if not reply.is_settled:
            timer.cancel()
            reply.resolve(value)

    def failed(error: KafkaError) -> None:
        if not reply.is_settled:
            timer.cancel()
            reply.fail(error)

    promise.then(resolved, failed)
    return reply


def beside(world: World, work: Callable[[], T], converted: Callable[[Exception], KafkaError]) -> Promise[T]:
    """The result of work on a thread. Fails with its KafkaError, or with another exception `converted` to one."""
    promise: Promise[T] = Promise()

    def done(result: T | None, error: Exception | None) -> None:
        if error is None:
            promise.resolve(result)  # type: ignore[arg-type]  # None only if the work returns None
        else:
            promise.fail(error if isinstance(error, KafkaError) else converted(error))

    world.beside(work, done)
    return promise


def next_tick(world: World) -> Promise[None]:
    """A promise that resolves in the next tick of the event loop, after all callbacks that are ready now."""
    promise: Promise[None] = Promise()
    world.call_soon(lambda: promise.resolve(None))
    return promise
