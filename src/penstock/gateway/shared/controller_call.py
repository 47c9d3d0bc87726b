"""Controller requests, for routes and commands."""

from typing import Any

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.steps import Steps
from penstock.handlers.support.context import Context, Session
from penstock.handlers.support.controller_call import default_wait_ms, submit
from penstock.metadata.controller.requests import Result


def decide(context: Context, request: Any, session: Session | None = None) -> Steps[Any]:
    """The controller's reply. Raises an error that rejects the whole request, or REQUEST_TIMED_OUT. With the client's
    session, the change is recorded in the audit."""
    return (yield submit(context, request, default_wait_ms(context), session))


def check(result: Result, otherwise: str) -> None:
    """Raise the error of a result, with the message `otherwise` if it has none."""
    if result.code is not ErrorCode.NONE:
        raise KafkaError(result.message or otherwise, result.code)
