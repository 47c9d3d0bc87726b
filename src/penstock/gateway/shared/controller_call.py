"""Authorization and controller requests, for routes and commands."""

from typing import Any

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.steps import Steps
from penstock.handlers.support.context import Context, Session
from penstock.handlers.support.controller_call import default_wait_ms, submit
from penstock.metadata.acls import CLUSTER_NAME, AclResourceType, Operation
from penstock.metadata.controller.requests import Result

_DENIED = {
    AclResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


def allow(
    context: Context, session: Session, operation: Operation, on: AclResourceType, name: str = CLUSTER_NAME
) -> None:
    """Raise if the client is not authorized."""
    if not context.authorize(session, operation, on, name):
        what = f"{on.name.lower()} {name!r}" if on is not AclResourceType.CLUSTER else "the cluster"
        raise KafkaError(f"not authorized: {operation.name.lower()} on {what}", _DENIED[on])


def decide(context: Context, request: Any) -> Steps[Any]:
    """The controller's reply. Raises an error that rejects the whole request, or REQUEST_TIMED_OUT."""
    return (yield submit(context, request, default_wait_ms(context)))


def check(result: Result, otherwise: str) -> None:
    """Raise the error of a result, with the message `otherwise` if it has none."""
    if result.code is not ErrorCode.NONE:
        raise KafkaError(result.message or otherwise, result.code)
