"""A costly result that is computed once for everyone who asks at about the same time.

    figures = KeptResult(context.world)
    value = yield figures.get(compute())

While a computation runs, further callers wait for it. Its result is kept for a second, or for twenty times as long as
the computation took: so however many clients poll, it takes at most a twentieth of the time.
"""

from typing import Final, Generic, TypeVar

from penstock.base.errors import KafkaError
from penstock.base.promise import Promise
from penstock.base.steps import RunningSteps, Steps
from penstock.base.world import World

T = TypeVar("T")

KEEP_MS: Final = 1_000
KEEP_MS_MAX: Final = 10_000
KEEP_SHARE: Final = 20


class KeptResult(Generic[T]):
    def __init__(self, world: World) -> None:
        self._world = world
        self._value: T | None = None
        self._until_ns = 0
        """When the kept value is too old."""
        self._began_ns: int | None = None
        """When the running computation began; None if none runs."""
        self._waiting: list[Promise[T]] = []

    def get(self, compute: Steps[T]) -> Promise[T]:
        """The kept result, or that of these steps. They run to their end even if the caller no longer waits."""
        promise: Promise[T] = Promise()
        now_ns = self._world.clock_ns()
        if self._began_ns is None and self._value is not None and now_ns < self._until_ns:
            compute.close()
            promise.resolve(self._value)
            return promise
        self._waiting.append(promise)
        if self._began_ns is None:
            self._began_ns = now_ns
            RunningSteps(compute, self._computed, self._failed)
        else:
            compute.close()
        return promise

    def _computed(self, value: T) -> None:
        now_ns = self._world.clock_ns()
        assert self._began_ns is not None, "it was running"
        took_ns = now_ns - self._began_ns
        self._value = value
        self._until_ns = now_ns + min(max(KEEP_MS * 1_000_000, took_ns * KEEP_SHARE), KEEP_MS_MAX * 1_000_000)
        for each in self._ended():
            each.resolve(value)

    def _failed(self, error: Exception) -> None:
        waiting = self._ended()
        wrong = error if isinstance(error, KafkaError) else KafkaError(f"{type(error).__name__}: {error}")
        for each in waiting:
            each.fail(wrong)

    def _ended(self) -> list[Promise[T]]:
        self._began_ns = None
        waiting, self._waiting = self._waiting, []
        return waiting
