"""Requests to the controller, for no longer than the client waits.

A decision needs a majority of the quorum: it is immediate on a single node, and may never come while most voters are
down. The wait ends after the request's `timeout_ms`, or `request.timeout.ms` where the API has no such field, with
REQUEST_TIMED_OUT. The controller may still decide afterwards.
"""

from datetime import timedelta
from typing import Any

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.metadata.configs import broker_setting

from .context import Context


def submit(context: Context, request: Any, wait_ms: int) -> Promise[Any]:
    """The controller's reply. Fails with the error that rejects the whole request, or with REQUEST_TIMED_OUT."""
    decision = context.controller.submit(request)
    if decision.is_settled:
        return decision
    reply: Promise[Any] = Promise()

    def time_out() -> None:
        why = f"The controller did not decide within {wait_ms} ms; the change may still be made."
        reply.fail(KafkaError(why, ErrorCode.REQUEST_TIMED_OUT))

    timer = context.world.call_later(max(wait_ms, 0), time_out)

    def decided(answer: Any) -> None:
        if not reply.is_settled:
            timer.cancel()
            reply.resolve(answer)

    def rejected(error: KafkaError) -> None:
        if not reply.is_settled:
            timer.cancel()
            reply.fail(error)

    decision.then(decided, rejected)
    return reply


def wait_ms_of(timeout: timedelta) -> int:
    return round(timeout.total_seconds() * 1000)


def default_wait_ms(context: Context) -> int:
    return int(broker_setting("request.timeout.ms", context.image, context.settings) or 0)
