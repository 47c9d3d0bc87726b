"""Forwards a call unchanged to the active controller, for requests that only the leader of the quorum can answer."""

from typing import Any, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.steps import Steps
from penstock.wire import Api, read_response, write_request
from penstock.wire.peers import PeerFailed
from penstock.wire.request import Request

from .context import Call, Context

PURPOSE: Final = "forwarded"


def forward(context: Context, api: Api, call: Call, timeout_ms: float) -> Steps[Any]:
    """The active controller's response, in the call's version. Raises NOT_LEADER_OR_FOLLOWER where the request was
    not sent, and REQUEST_TIMED_OUT where it may have been."""
    to = context.quorum.leader_address
    if to is None or context.peers is None:
        raise KafkaError(
            f"Node {context.node_id} does not know the active controller; retry.",
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        )
    request: Request[Any] = Request(
        api,
        call.version,
        call.version,
        lambda version: write_request(api, version, call.message),
        lambda body, version: read_response(api, version, body),
    )
    try:
        return (yield context.peers.ask(to, request, timeout_ms=timeout_ms, purpose=PURPOSE))
    except PeerFailed as failed:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if failed.refused else ErrorCode.REQUEST_TIMED_OUT
        raise KafkaError(str(failed), code) from failed
