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

from .context import Context


def submit(context: Context, request: Any, wait_ms: int) -> Promise[Any]:
    """The controller's reply. Fails with the error that rejects the whole request, or with REQUEST_TIMED_OUT."""
    late = f"The controller did not decide within {wait_ms} ms; the change may still be made."
    return in_time(context.world, context.controller.submit(request), wait_ms, late)


def wait_ms_of(timeout: timedelta) -> int:
    return round(timeout.total_seconds() * 1000)


def default_wait_ms(context: Context) -> int:
    return int(broker_setting("request.timeout.ms", context.image, context.settings) or 0)
