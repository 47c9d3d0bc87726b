"""Passing a call on, as it came, to the active controller: for what only the leader of the quorum can answer."""

from typing import Any, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.wire import Api, read_response, write_request
from penstock.wire.peers import PeerFailed
from penstock.wire.request import Request

from .context import Call, Context

PURPOSE: Final = "forwarded"


def forward(context: Context, api: Api, call: Call, timeout_ms: float) -> Promise[Any | KafkaError]:
    """The active controller's response, in the call's version, or why there is none: NOT_LEADER_OR_FOLLOWER where it
    was not asked, REQUEST_TIMED_OUT where it may have been."""
    answer: Promise[Any | KafkaError] = Promise()
    to = context.quorum.leader_address
    if to is None or context.peers is None:
        answer.resolve(
            KafkaError("this node knows of no active controller", ErrorCode.NOT_LEADER_OR_FOLLOWER)
        )
        return answer
    request: Request[Any] = Request(
        api,
        call.version,
        call.version,
        lambda version: write_request(api, version, call.message),
        lambda body, version: read_response(api, version, body),
    )

    def answered(told: Any | PeerFailed) -> None:
        if isinstance(told, PeerFailed):
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if told.refused else ErrorCode.REQUEST_TIMED_OUT
            answer.resolve(KafkaError(str(told), code))
        else:
            answer.resolve(told)

    context.peers.ask(to, request, timeout_ms=timeout_ms, purpose=PURPOSE).then(answered)
    return answer
