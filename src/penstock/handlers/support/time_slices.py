"""Long answers in small steps: a request for thousands of partitions must not keep everybody else waiting."""

from collections.abc import Generator
from typing import TypeVar

from penstock.base.promise import Promise
from penstock.base.world import World

T = TypeVar("T")


def in_turns(world: World, steps: Generator[None, None, T]) -> T | Promise[T]:
    """Run steps to their end; at each `yield` everybody else comes first.

    What has no `yield` to make is answered at once. Steps answer their own errors: nobody waits for what they raise.
    """
    try:
        next(steps)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    later: Promise[T] = Promise()

    def go_on() -> None:
        try:
            next(steps)
        except StopIteration as done:
            later.resolve(done.value)
            return
        world.call_soon(go_on)

    world.call_soon(go_on)
    return later
