"""Requests to the controller, for no longer than the client waits.

A decision needs a majority of the quorum: it is immediate on a single node, and may never come while most voters are
down. The wait ends after the request's `timeout_ms`, or `request.timeout.ms` where the API has no such field, with
REQUEST_TIMED_OUT. The controller may still decide afterwards.
"""

from datetime import timedelta
from typing import Any

from penstock.base.promise import Promise
from penstock.base.steps import in_time
from penstock.metadata.configs import broker_setting

from .context import Context, Session


def submit(context: Context, request: Any, wait_ms: int, by: Session | None = None) -> Promise[Any]:
    """The controller's reply. Fails with the error that rejects the whole request, or with REQUEST_TIMED_OUT. `by` is
    the client of a change that the audit records."""
    late = f"The controller did not decide within {wait_ms} ms; the change may still be made."
    reply = in_time(context.world, context.controller.submit(request), wait_ms, late)
    if by is not None and context.audit is not None:
        from .audited_changes import recorded  # noqa: PLC0415  # most nodes have no audit

        return recorded(context, context.audit, by, request, reply)
    return reply


def wait_ms_of(timeout: timedelta) -> int:
    return round(timeout.total_seconds() * 1000)


def default_wait_ms(context: Context) -> int:
    return int(broker_setting("request.timeout.ms", context.image, context.settings) or 0)
