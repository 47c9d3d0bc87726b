"""Who votes in the metadata quorum, changed: AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter (KIP-853).

Operators add and remove; a voter that listens elsewhere than the set says updates itself. One change is made at a
time, and answered when it is committed. Only the quorum's leader makes them: a broker passes an operator's request on
to it, a controller that does not lead answers NOT_LEADER_OR_FOLLOWER.

INCONSISTENT_CLUSTER_ID for a request to another cluster; INVALID_REQUEST where the voter has no id, no directory, does
not listen where the others would look for it, or does not support the quorum's kraft.version, for which it is asked;
DUPLICATE_VOTER, VOTER_NOT_FOUND; REQUEST_TIMED_OUT for a voter that does not answer or has not caught up, or while an
earlier change is not committed; UNSUPPORTED_VERSION where the voters are configured and not in the log.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.metadata import Result
from penstock.raft.messages import (
    NOT_SENT,
    AddVoter,
    LeaderHint,
    RemoveVoter,
    Reply,
    Request,
    UpdateVoter,
    VoterChangeReply,
)
from penstock.raft.voters import Endpoint, ReplicaKey, Voter
from penstock.wire import Api

from .raft import endpoint_for, refused
from .support.context import CLUSTER_NAME, AclResourceType, Call, Context, Operation
from .support.controller_call import default_wait_ms, wait_ms_of
from .support.forwarding import forward
from .support.response_fields import DENIED_CLUSTER, NO_THROTTLE, refusal
from .support.waiting import after


def add_raft_voter_here(context: Context, call: Call) -> Any | Promise[Any]:
    """AddRaftVoter 0 and 1: a controller that follows the log becomes a voter. From 1 on the caller may be content
    with the change being in the leader's log (KIP-1186)."""
    message = call.message
    endpoints = _endpoints(message)
    key = _key(message)
    if key is None or not endpoints:
        why = (
            "the voter has no id and directory" if key is None else "the voter is not said to listen anywhere"
        )
        return _ask(context, call, Api.ADD_RAFT_VOTER, Result(ErrorCode.INVALID_REQUEST, why))
    wait_ms = max(0, wait_ms_of(message.timeout))
    request = AddVoter(NOT_SENT, Voter(key, endpoints), wait_ms, getattr(message, "ack_when_committed", True))
    return _ask(context, call, Api.ADD_RAFT_VOTER, request)


def remove_raft_voter_here(context: Context, call: Call) -> Any | Promise[Any]:
    """RemoveRaftVoter 0: a voter votes no more; the leader itself resigns once its removal is committed."""
    key = _key(call.message)
    if key is None:
        why = "the voter has no id and directory"
        return _ask(context, call, Api.REMOVE_RAFT_VOTER, Result(ErrorCode.INVALID_REQUEST, why))
    request = RemoveVoter(NOT_SENT, key, context.quorum.request_timeout_ms)
    return _ask(context, call, Api.REMOVE_RAFT_VOTER, request)


def add_raft_voter(context: Context, call: Call) -> Any | Promise[Any]:
    """The same at a broker: passed on to the active controller, unless that is here."""
    wait_ms = wait_ms_of(call.message.timeout)
    return _passed_on(context, call, Api.ADD_RAFT_VOTER, wait_ms, add_raft_voter_here)


def remove_raft_voter(context: Context, call: Call) -> Any | Promise[Any]:
    """The same at a broker: passed on to the active controller, unless that is here."""
    wait_ms = default_wait_ms(context)
    return _passed_on(context, call, Api.REMOVE_RAFT_VOTER, wait_ms, remove_raft_voter_here)


def update_raft_voter(context: Context, call: Call) -> Any | Promise[Any]:
    """UpdateRaftVoter 0: where a voter listens now, and which versions of the quorum's records it can live with."""
    make, message = call.make, call.message

    def respond(reply: Reply) -> Any:
        at = endpoint_for(call.session, reply.leader.endpoints)
        return make.UpdateRaftVoterResponse(
            throttle_time=NO_THROTTLE,
            error_code=reply.error,
            current_leader=make.CurrentLeader(
                leader_id=reply.leader.leader_id,
                leader_epoch=reply.leader.epoch,
                host=at.host if at is not None else "",
                port=at.port if at is not None else 0,
            ),
        )

    def refuse(error: ErrorCode) -> Any:
        hint = LeaderHint(context.quorum.epoch, context.quorum.leader_id)
        return respond(VoterChangeReply(NOT_SENT, error, hint))

    error = refused(context, call.session, message.cluster_id)
    key, endpoints = _key(message), _endpoints(message)
    versions = message.k_raft_version_feature
    low, high = versions.min_supported_version, versions.max_supported_version
    if error is ErrorCode.NONE and (key is None or not endpoints or not 0 <= low <= high):
        error = ErrorCode.INVALID_REQUEST
    if error is not ErrorCode.NONE or key is None:
        return refuse(error)
    voter = Voter(key, endpoints, (low, high))
    timeout_ms = context.quorum.request_timeout_ms
    request = UpdateVoter(NOT_SENT, message.current_leader_epoch, voter, timeout_ms)
    return after(context.quorum.receive(request), respond)


def _ask(context: Context, call: Call, api: Api, request: Request | Result) -> Any | Promise[Any]:
    """Have the quorum decide, if this is its cluster, the operator may, and the request is none that is refused."""
    cluster_id = call.message.cluster_id
    if not context.authorize(call.session, Operation.ALTER, AclResourceType.CLUSTER, CLUSTER_NAME):
        return _respond(call, api, DENIED_CLUSTER)
    if cluster_id is not None and cluster_id != context.cluster_id:
        why = f"this is cluster {context.cluster_id}, and not {cluster_id}"
        return _respond(call, api, Result(ErrorCode.INCONSISTENT_CLUSTER_ID, why))
    if isinstance(request, Result):
        return _respond(call, api, request)

    def respond(reply: Reply) -> Any:
        assert isinstance(reply, VoterChangeReply)
        message = reply.message or None
        if reply.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and message is None:
            message = f"node {reply.leader.leader_id} leads the quorum"
        return _respond(call, api, Result(reply.error, message))

    return after(context.quorum.receive(request), respond)


def _passed_on(
    context: Context, call: Call, api: Api, wait_ms: int, here: Callable[[Context, Call], Any]
) -> Any | Promise[Any]:
    if context.quorum.is_leader:
        return here(context, call)
    if not context.authorize(call.session, Operation.ALTER, AclResourceType.CLUSTER, CLUSTER_NAME):
        return _respond(call, api, DENIED_CLUSTER)

    def respond(answer: Any) -> Any:
        return _respond(call, api, refusal(answer)) if isinstance(answer, KafkaError) else answer

    return after(forward(context, api, call, max(wait_ms, 0)), respond)


def _respond(call: Call, api: Api, result: Result) -> Any:
    return getattr(call.make, f"{api.label}Response")(
        throttle_time=NO_THROTTLE, error_code=result.code, error_message=result.message
    )


def _key(message: Any) -> ReplicaKey | None:
    """Which replica is meant; one without a directory is none."""
    directory: UUID | None = message.voter_directory_id
    if message.voter_id < 0 or directory is None:
        return None
    return ReplicaKey(message.voter_id, directory)


def _endpoints(message: Any) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(each.name, each.host, each.port) for each in message.listeners)


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.ADD_RAFT_VOTER: add_raft_voter,
    Api.REMOVE_RAFT_VOTER: remove_raft_voter,
}
AT_CONTROLLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.ADD_RAFT_VOTER: add_raft_voter_here,
    Api.REMOVE_RAFT_VOTER: remove_raft_voter_here,
    Api.UPDATE_RAFT_VOTER: update_raft_voter,
}
