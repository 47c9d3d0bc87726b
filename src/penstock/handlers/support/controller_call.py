"""Asking the controller, and not for longer than the client waits.

A decision takes as long as the quorum does: nothing where it is this node alone, forever where most of it is gone.
The client said how long it waits (`timeout_ms`); where its API has no such field, `request.timeout.ms` is taken. After
that it is told REQUEST_TIMED_OUT, and whatever is decided later is decided without it.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.metadata.configs import broker_setting

from .context import Context

T = TypeVar("T")


def ask(context: Context, request: Any, wait_ms: int, respond: Callable[[Any], T]) -> T | Promise[T]:
    """The response to what the controller answers: its reply, or the KafkaError that refuses all of the request."""
    decision = context.controller.submit(request)
    if decision.is_settled:
        return respond(decision.value)
    reply: Promise[T] = Promise()

    def time_out() -> None:
        reply.resolve(
            respond(KafkaError(f"nothing was decided in {wait_ms} ms", ErrorCode.REQUEST_TIMED_OUT))
        )

    timer = context.world.call_later(max(wait_ms, 0), time_out)

    def decided(answer: Any) -> None:
        if not reply.is_settled:
            timer.cancel()
            reply.resolve(respond(answer))

    decision.then(decided)
    return reply


def wait_ms_of(timeout: timedelta) -> int:
    return round(timeout.total_seconds() * 1000)


def default_wait_ms(context: Context) -> int:
    return int(broker_setting("request.timeout.ms", context.image, context.settings) or 0)
