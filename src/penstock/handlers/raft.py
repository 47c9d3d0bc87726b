"""Requests between the replicas of the metadata log, at the controllers' listeners (KIP-595, KIP-630, KIP-853).

    Vote 0 to 2                   between voters
    BeginQuorumEpoch 0 to 1
    EndQuorumEpoch 0 to 1
    Fetch 4 to 18                 the metadata log; from voters and observers (`fetch_metadata`)
    FetchSnapshot 0 to 1          snapshots of it

All need CLUSTER_ACTION on the cluster. A request for another cluster gets INCONSISTENT_CLUSTER_ID; one without a
cluster id is accepted, since its sender has a new directory. A node with a new directory does not know its cluster id
yet (`controlplane.cluster_naming`): it follows a leader of any cluster, but replies BROKER_NOT_AVAILABLE to other
requests with a cluster id. So a cluster starts only with a majority of voters with new directories, and continues only
with a majority of voters that have its id.

The only partition is __cluster_metadata-0: a request for another gets INVALID_REQUEST, FetchSnapshot
UNKNOWN_TOPIC_OR_PARTITION. The quorum checks the rest: a stale epoch gets FENCED_LEADER_EPOCH, a future one
UNKNOWN_LEADER_EPOCH, a request that names another voter INVALID_VOTER_KEY. Every reply has the epoch, the leader, and
the leader's endpoint.
"""

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from penstock.base.errors import ErrorCode
from penstock.base.internal_topics import METADATA_TOPIC
from penstock.base.promise import Promise
from penstock.base.steps import Steps
from penstock.metadata.acls import CLUSTER_NAME, AclResourceType, Operation
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.messages import (
    NOT_SENT,
    BeginQuorumEpoch,
    EndQuorumEpoch,
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    LeaderHint,
    Reply,
    Request,
    Vote,
    VoteReply,
)
from penstock.raft.voters import NO_DIRECTORY, Endpoint, ReplicaKey
from penstock.wire import (
    Api,
    CurrentLeader,
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResult,
    NodeEndpoint,
    Piece,
    RequestHeader,
    SnapshotId,
    TopicKey,
    fetch_reply,
    parse_fetch,
)
from penstock.wire.fetch import HIGH_WATERMARK_UNTOLD

from .support.context import Call, Context, Session
from .support.response_fields import NO_THROTTLE
from .support.waiting import in_steps, run

METADATA_TOPIC_ID: Final = UUID(int=1).bytes
"""The topic id of the metadata log, the same in every cluster, as in Kafka."""

PIECE_BYTES_MAX: Final = 8 << 20
"""Limit of one reply with records or a part of a snapshot. Kafka's batches of metadata are no larger."""


# -- elections ------------------------------------------------------------------------------------------


def vote(context: Context, call: Call) -> Any:
    """Vote 0 to 2: a candidate requests a vote.

    Version notes: 1 adds directory ids of the candidate and the voter; 2 pre-votes (KIP-996).
    """

    def request(asked: Any) -> Request:
        return Vote(
            NOT_SENT,
            asked.replica_epoch,
            ReplicaKey(asked.replica_id, _directory(asked, "replica_directory_id")),
            _voter_meant(context, call.message, asked),
            OffsetAndEpoch(asked.last_offset, asked.last_offset_epoch),
            getattr(asked, "pre_vote", False),
        )

    return run(_between_voters(context, call, "VoteResponse", request, call.message.cluster_id))


def begin_quorum_epoch(context: Context, call: Call) -> Any:
    """BeginQuorumEpoch 0 to 1: a leader announces itself.

    Version notes: 1 adds the leader's endpoints and the addressed voter.
    """

    def request(asked: Any) -> Request:
        hint = LeaderHint(asked.leader_epoch, asked.leader_id, _leader_endpoints(call.message))
        return BeginQuorumEpoch(NOT_SENT, hint, _voter_meant(context, call.message, asked))

    # A leader was elected by a majority of its cluster, which a node with a new directory may join.
    named = call.message.cluster_id if context.cluster_id else None
    return run(_between_voters(context, call, "BeginQuorumEpochResponse", request, named))


def end_quorum_epoch(context: Context, call: Call) -> Any:
    """EndQuorumEpoch 0 to 1: a leader resigns, and names its preferred successors.

    Version notes: 1 adds the successors' directory ids.
    """

    def request(asked: Any) -> Request:
        hint = LeaderHint(asked.leader_epoch, asked.leader_id, _leader_endpoints(call.message))
        if call.version >= 1:
            successors = tuple(
                ReplicaKey(each.candidate_id, _directory(each, "candidate_directory_id"))
                for each in asked.preferred_candidates
            )
        else:
            successors = tuple(ReplicaKey(each) for each in asked.preferred_successors)
        return EndQuorumEpoch(NOT_SENT, hint, successors)

    return run(_between_voters(context, call, "EndQuorumEpochResponse", request, call.message.cluster_id))


def _between_voters(
    context: Context,
    call: Call,
    response_name: str,
    request_of: Callable[[Any], Request],
    cluster_id: str | None,
) -> Steps[Any]:
    make = call.make
    make_response = getattr(make, response_name)
    asked = None
    error = refused(context, call.session, cluster_id)
    if error is ErrorCode.NONE:
        asked = _one_partition(call.message)
        error = ErrorCode.NONE if asked is not None else ErrorCode.INVALID_REQUEST
    if error is not ErrorCode.NONE:
        return make_response(error_code=error, topics=())
    reply: Reply = yield context.quorum.receive(request_of(asked))
    fields = {
        "partition_index": 0,
        "error_code": reply.error,
        "leader_id": reply.leader.leader_id,
        "leader_epoch": reply.leader.epoch,
    }
    if isinstance(reply, VoteReply):
        fields["vote_granted"] = reply.granted
    return make_response(
        error_code=ErrorCode.NONE,
        topics=(make.TopicData(topic_name=METADATA_TOPIC, partitions=(make.PartitionData(**fields),)),),
        **_where(context, call, reply.leader),
    )


def _one_partition(request: Any) -> Any | None:
    """The request's part about the metadata log; None if it names another partition."""
    rows = [(topic.topic_name, each) for topic in request.topics for each in topic.partitions]
    if len(request.topics) != 1 or len(rows) != 1:
        return None
    name, asked = rows[0]
    return asked if (name, asked.partition_index) == (METADATA_TOPIC, 0) else None


def _voter_meant(context: Context, request: Any, asked: Any) -> ReplicaKey:
    """The voter that the request addresses; this node, where it names none."""
    voter_id = getattr(request, "voter_id", -1)
    if voter_id < 0:
        return ReplicaKey(context.node_id)
    return ReplicaKey(voter_id, _directory(asked, "voter_directory_id"))


def _leader_endpoints(request: Any) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(each.name, each.host, each.port) for each in getattr(request, "leader_endpoints", ())
    )


def _where(context: Context, call: Call, leader: LeaderHint) -> dict[str, Any]:
    """The leader's endpoint, in versions that have the field."""
    endpoint = leader_endpoint(context, call.session, leader.endpoints)
    if call.version < 1 or endpoint is None:
        return {}
    make = call.make
    at = make.NodeEndpoint(node_id=leader.leader_id, host=endpoint.host, port=endpoint.port)
    return {"node_endpoints": (at,)}


# -- replication ----------------------------------------------------------------------------------------


def fetch_metadata(
    context: Context, session: Session, frame: memoryview, header: RequestHeader
) -> list[Piece] | Promise[list[Piece]]:
    """Fetch 4 to 18 of the metadata log: batches from an offset on, at once or when there are some.

    The replica names the epoch of its last batch. If its log diverges from the leader's, the reply has the diverging
    epoch; if the leader's log starts later, the snapshot to fetch. A fetch that names the replica's high watermark
    also waits for that to move (KIP-1166).

    Version notes: 12 has the epoch of the last batch, which is required (INVALID_REQUEST before); 13 the topic id; 15
    the replica id in a tag; 16 the leader's endpoint; 17 directory ids; 18 high watermarks.
    """
    version, correlation_id = header.api_version, header.correlation_id
    request = parse_fetch(frame, header.body_at, version)
    topic: TopicKey = METADATA_TOPIC_ID if version >= 13 else METADATA_TOPIC

    def refuse(error: ErrorCode) -> list[Piece]:
        context.metrics.fetch.fail(error)
        return fetch_reply(version, correlation_id, [], error_code=error)[0]

    error = refused(context, session, request.cluster_id)
    if error is not ErrorCode.NONE:
        return refuse(error)
    if [(each.topic, [one.partition for one in each.partitions]) for each in request.topics] != [
        (topic, [0])
    ]:
        return refuse(ErrorCode.INVALID_REQUEST)

    def respond(reply: FetchReply) -> list[Piece]:
        if reply.error is not ErrorCode.NONE:
            context.metrics.fetch.fail(reply.error)
        endpoint = leader_endpoint(context, session, reply.leader.endpoints)
        endpoints = (NodeEndpoint(reply.leader.leader_id, *endpoint[1:]),) if endpoint is not None else ()
        topics = [(topic, [_result(reply)])]
        return fetch_reply(version, correlation_id, topics, node_endpoints=endpoints)[0]

    (asked,) = request.topics[0].partitions
    if request.max_wait_ms < 0:
        return respond(FetchReply(NOT_SENT, ErrorCode.INVALID_REQUEST, _own_hint(context)))

    def steps() -> Steps[list[Piece]]:
        return respond((yield context.quorum.receive(_fetch(request, asked))))

    return run(steps())


def _fetch(request: FetchRequest, asked: FetchPartition) -> Fetch:
    directory = asked.replica_directory_id
    known = asked.high_watermark
    return Fetch(
        NOT_SENT,
        ReplicaKey(request.replica_id, NO_DIRECTORY if directory is None else UUID(bytes=directory)),
        asked.current_leader_epoch,
        asked.fetch_offset,
        asked.last_fetched_epoch,
        -1 if known == HIGH_WATERMARK_UNTOLD else max(known, 0),
        request.max_wait_ms,
        _bounded(min(request.max_bytes, asked.partition_bytes_max)),
    )


def _result(reply: FetchReply) -> FetchResult:
    diverging, snapshot, records = reply.diverging, reply.snapshot, reply.records
    assert records is None or isinstance(records, bytes)
    return FetchResult(
        0,
        reply.error,
        reply.high_watermark,
        -1,
        reply.log_start_offset,
        records or b"",
        diverging_epoch=EpochEndOffset(diverging.epoch, diverging.offset) if diverging is not None else None,
        current_leader=CurrentLeader(reply.leader.leader_id, reply.leader.epoch),
        snapshot_id=SnapshotId(snapshot.offset, snapshot.epoch) if snapshot is not None else None,
    )


@in_steps
def fetch_snapshot(context: Context, call: Call) -> Steps[Any]:
    """FetchSnapshot 0 to 1: a part of a snapshot that a Fetch reply named.

    A snapshot that does not exist any more gets SNAPSHOT_NOT_FOUND, a position beyond its end POSITION_OUT_OF_RANGE.

    Version notes: 1 adds the replica's directory id and the leader's endpoint.
    """
    make, message = call.make, call.message
    rows = [(topic.name, each) for topic in message.topics for each in topic.partitions]
    error = refused(context, call.session, message.cluster_id)
    if error is ErrorCode.NONE and len(rows) != 1:
        error = ErrorCode.INVALID_REQUEST
    if error is not ErrorCode.NONE:
        return make.FetchSnapshotResponse(throttle_time=NO_THROTTLE, error_code=error, topics=())
    ((name, asked),) = rows

    def respond(reply: FetchSnapshotReply) -> Any:
        snapshot_id = reply.snapshot_id or OffsetAndEpoch(-1, -1)
        snapshot = make.PartitionSnapshot(
            index=asked.partition,
            error_code=reply.error,
            snapshot_id=make.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch),
            current_leader=make.LeaderIdAndEpoch(
                leader_id=reply.leader.leader_id, leader_epoch=reply.leader.epoch
            ),
            size=reply.size,
            position=reply.position,
            unaligned_records=reply.data if isinstance(reply.data, bytes) else b"",
        )
        return make.FetchSnapshotResponse(
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.NONE,
            topics=(make.TopicSnapshot(name=name, partitions=(snapshot,)),),
            **_where(context, call, reply.leader),
        )

    if (name, asked.partition) != (METADATA_TOPIC, 0):
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return respond(FetchSnapshotReply(NOT_SENT, unknown, _own_hint(context)))
    request = FetchSnapshot(
        NOT_SENT,
        ReplicaKey(message.replica_id, _directory(asked, "replica_directory_id")),
        asked.current_leader_epoch,
        OffsetAndEpoch(asked.snapshot_id.end_offset, asked.snapshot_id.epoch),
        asked.position,
        _bounded(message.max_bytes),
    )
    return respond((yield context.quorum.receive(request)))


# -- shared ---------------------------------------------------------------------------------------------


def refused(context: Context, session: Session, cluster_id: str | None) -> ErrorCode:
    """The error that rejects a request before the quorum sees it, or NONE."""
    if not context.authorize(session, Operation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if cluster_id is None or cluster_id == context.cluster_id:
        return ErrorCode.NONE
    if context.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    # The sender may know before this node does that the id is committed.
    return (
        ErrorCode.NONE if cluster_id == context.quorum.cluster_id_in_log else ErrorCode.BROKER_NOT_AVAILABLE
    )


def endpoint_for(session: Session, endpoints: tuple[Endpoint, ...]) -> Endpoint | None:
    """A node's endpoint for this client: the one of the client's listener, or else the first."""
    named = (each for each in endpoints if each.listener == session.listener)
    return next(named, next(iter(endpoints), None))


def leader_endpoint(context: Context, session: Session, endpoints: tuple[Endpoint, ...]) -> Endpoint | None:
    """The leader's endpoint for another controller or broker. If it connected to a listener that this node does not
    use itself, as while TLS is introduced, an endpoint of another name would have another protocol: none then."""
    found = endpoint_for(session, endpoints)
    if found is not None and found.listener != session.listener:
        return None if session.listener in context.quorum.second_listeners else found
    return found


def _own_hint(context: Context) -> LeaderHint:
    return LeaderHint(context.quorum.epoch, context.quorum.leader_id)


def _bounded(wanted: int) -> int:
    return max(0, min(wanted, PIECE_BYTES_MAX))


def _directory(part: Any, name: str) -> UUID:
    return getattr(part, name, None) or NO_DIRECTORY


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.VOTE: vote,
    Api.BEGIN_QUORUM_EPOCH: begin_quorum_epoch,
    Api.END_QUORUM_EPOCH: end_quorum_epoch,
    Api.FETCH_SNAPSHOT: fetch_snapshot,
}
"""Without Fetch, which `dispatch` passes to `fetch_metadata`."""
