"""Changes of the voters of the metadata quorum (KIP-853).

    AddRaftVoter 0 to 1           by operators
    RemoveRaftVoter 0             by operators
    UpdateRaftVoter 0             by a voter whose endpoints or versions have changed; at controllers only

One change is made at a time, and answered when it is committed. Only the quorum's leader makes changes: a broker
forwards an operator's request to it, a controller that does not lead replies NOT_LEADER_OR_FOLLOWER. Operators need
ALTER on the cluster.

Errors: INCONSISTENT_CLUSTER_ID for another cluster; INVALID_REQUEST for a voter without id, directory or usable
endpoint, or without support for the quorum's kraft.version; DUPLICATE_VOTER; VOTER_NOT_FOUND; REQUEST_TIMED_OUT for a
voter that does not answer or has not caught up, or while an earlier change is not committed; UNSUPPORTED_VERSION where
the voters are configured statically and are not in the log.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.steps import Steps
from penstock.metadata.acls import CLUSTER_NAME, AclResourceType, Operation
from penstock.metadata.controller.requests import Result
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

from .raft import leader_endpoint, refused
from .support.context import Call, Context
from .support.controller_call import default_wait_ms, wait_ms_of
from .support.forwarding import forward
from .support.response_fields import DENIED_CLUSTER, NO_THROTTLE, refusal
from .support.waiting import in_steps, run


def add_raft_voter_here(context: Context, call: Call) -> Any:
    """AddRaftVoter 0 to 1: make a controller that follows the log a voter.

    Version notes: 1 can be acknowledged when the change is in the leader's log (KIP-1186).
    """
    message = call.message
    endpoints = _endpoints(message)
    key = _key(message)
    if key is None or not endpoints:
        why = "The voter has no id or no directory id." if key is None else "The voter has no endpoints."
        return run(_decide(context, call, Api.ADD_RAFT_VOTER, Result(ErrorCode.INVALID_REQUEST, why)))
    wait_ms = max(0, wait_ms_of(message.timeout))
    request = AddVoter(NOT_SENT, Voter(key, endpoints), wait_ms, getattr(message, "ack_when_committed", True))
    return run(_decide(context, call, Api.ADD_RAFT_VOTER, request))


def remove_raft_voter_here(context: Context, call: Call) -> Any:
    """RemoveRaftVoter 0: remove a voter. A leader that is removed resigns once the removal is committed."""
    key = _key(call.message)
    if key is None:
        why = "The voter has no id or no directory id."
        return run(_decide(context, call, Api.REMOVE_RAFT_VOTER, Result(ErrorCode.INVALID_REQUEST, why)))
    request = RemoveVoter(NOT_SENT, key, context.quorum.request_timeout_ms)
    return run(_decide(context, call, Api.REMOVE_RAFT_VOTER, request))


def add_raft_voter(context: Context, call: Call) -> Any:
    """AddRaftVoter 0 to 1 at a broker: forwarded to the active controller, unless that is this node."""
    wait_ms = wait_ms_of(call.message.timeout)
    return _forwarded(context, call, Api.ADD_RAFT_VOTER, wait_ms, add_raft_voter_here)


def remove_raft_voter(context: Context, call: Call) -> Any:
    """RemoveRaftVoter 0 at a broker: forwarded to the active controller, unless that is this node."""
    wait_ms = default_wait_ms(context)
    return _forwarded(context, call, Api.REMOVE_RAFT_VOTER, wait_ms, remove_raft_voter_here)


@in_steps
def update_raft_voter(context: Context, call: Call) -> Steps[Any]:
    """UpdateRaftVoter 0: a voter's endpoints, and the range of kraft.version it supports. Needs CLUSTER_ACTION."""
    make, message = call.make, call.message

    def respond(reply: Reply) -> Any:
        at = leader_endpoint(context, call.session, reply.leader.endpoints)
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
    return respond((yield context.quorum.receive(request)))


def _decide(context: Context, call: Call, api: Api, request: Request | Result) -> Steps[Any]:
    """The quorum's decision about an operator's request; a `Result` is the error of an invalid request."""
    cluster_id = call.message.cluster_id
    if not context.authorize(call.session, Operation.ALTER, AclResourceType.CLUSTER, CLUSTER_NAME):
        return _respond(call, api, DENIED_CLUSTER)
    if cluster_id is not None and cluster_id != context.cluster_id:
        why = f"This is cluster {context.cluster_id}, the request is for cluster {cluster_id}."
        return _respond(call, api, Result(ErrorCode.INCONSISTENT_CLUSTER_ID, why))
    if isinstance(request, Result):
        return _respond(call, api, request)
    reply: VoterChangeReply = yield context.quorum.receive(request)
    message = reply.message or None
    if reply.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and message is None:
        message = f"Node {reply.leader.leader_id} leads the metadata quorum; send the request there."
    return _respond(call, api, Result(reply.error, message))


def _forwarded(
    context: Context, call: Call, api: Api, wait_ms: int, here: Callable[[Context, Call], Any]
) -> Any:
    if context.quorum.is_leader:
        return here(context, call)
    if not context.authorize(call.session, Operation.ALTER, AclResourceType.CLUSTER, CLUSTER_NAME):
        return _respond(call, api, DENIED_CLUSTER)

    def steps() -> Steps[Any]:
        try:
            return (yield from forward(context, api, call, max(wait_ms, 0)))
        except KafkaError as error:
            return _respond(call, api, refusal(error))

    return run(steps())


def _respond(call: Call, api: Api, result: Result) -> Any:
    return getattr(call.make, f"{api.label}Response")(
        throttle_time=NO_THROTTLE, error_code=result.code, error_message=result.message
    )


def _key(message: Any) -> ReplicaKey | None:
    """The voter of a request; None if its id or directory id is missing."""
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
