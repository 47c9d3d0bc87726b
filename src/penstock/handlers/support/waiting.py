"""How a handler waits: as steps (`base.steps`), read from top to bottom.

    @in_steps
    def unregister_broker(context: Context, call: Call) -> Steps[Any]:
        try:
            yield submit(context, UnregisterBroker(call.message.broker_id), wait_ms)
        except KafkaError as error:
            return ...
        return call.make.UnregisterBrokerResponse(...)

A promise that fails raises its error at the `yield`. Steps that never wait return their reply at once, without a
promise. A handler with much to do yields `next_tick` between portions of its work, so that other clients are served.
"""

from __future__ import annotations  # those of nested functions would be evaluated in each call

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TypeVar

from penstock.base.errors import KafkaError
from penstock.base.promise import Promise
from penstock.base.steps import RunningSteps, Steps

from .context import Call, Context

T = TypeVar("T")


def in_steps(handler: Callable[[Context, Call], Steps[T]]) -> Callable[[Context, Call], T | Promise[T]]:
    """Make a handler out of steps."""

    @wraps(handler)
    def handle(context: Context, call: Call) -> T | Promise[T]:
        return run(handler(context, call))

    return handle


def run(steps: Steps[T], reply: Promise[T] | None = None) -> T | Promise[T]:
    """Run steps: their value where they never wait, else `reply`, or a new promise. What they raise before they first
    wait is raised here; a KafkaError after that fails the promise."""
    promise: Promise[T] = Promise() if reply is None else reply
    is_waiting = False

    def failed(error: Exception) -> None:
        if not is_waiting or not isinstance(error, KafkaError):
            raise error
        promise.fail(error)

    RunningSteps(steps, promise.resolve, failed)
    is_waiting = True
    return promise.value if promise.is_settled else promise


def settled(value: T) -> Promise[T]:
    promise: Promise[T] = Promise()
    promise.resolve(value)
    return promise


def all_of(promises: Sequence[Promise[T]]) -> Promise[list[T]]:
    """The values of promises, in their order, once all are settled. Fails with the first of their errors."""
    whole: Promise[list[T]] = Promise()
    left = sum(not each.is_settled for each in promises)

    def finish() -> None:
        errors = [each.error for each in promises if each.error is not None]
        if errors:
            whole.fail(errors[0])
        else:
            whole.resolve([each.value for each in promises])

    def one_settled(_: object) -> None:
        nonlocal left
        left -= 1
        if not left:
            finish()

    for each in promises:
        if not each.is_settled:
            each.then(one_settled, one_settled)
    if not left and not whole.is_settled:
        finish()
    return whole
