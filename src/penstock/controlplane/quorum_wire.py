"""Converts the Raft core's requests to Kafka's wire requests, and responses to the core's replies.

    Vote 1-2              BeginQuorumEpoch 1      EndQuorumEpoch 1
    Fetch 17-18           FetchSnapshot 1         ApiVersions 4
    AddRaftVoter 1        RemoveRaftVoter 0       UpdateRaftVoter 0

These versions have directory ids (KIP-853). The other side is `handlers/raft` and `handlers/raft_voters`. All requests
but ApiVersions have the cluster id. The partition is __cluster_metadata-0; a reply about another one is malformed. A
top-level error means that the peer did not process the request (another cluster, no authorization): the core only
learns that the request failed.

A response has the leader's address but not its listener name, which is the one that the request was sent to.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from penstock import __version__
from penstock.base.errors import ErrorCode
from penstock.base.internal_topics import METADATA_TOPIC
from penstock.metadata.versions import KRAFT_VERSION
from penstock.raft.election import NO_LEADER
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.messages import (
    AddVoter,
    AskVersions,
    BeginQuorumEpoch,
    BeginQuorumEpochReply,
    EndQuorumEpoch,
    EndQuorumEpochReply,
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    LeaderHint,
    RemoveVoter,
    Reply,
    Request,
    UpdateVoter,
    VersionsReply,
    Vote,
    VoterChangeReply,
    VoteReply,
)
from penstock.raft.voters import NO_DIRECTORY, Endpoint, ReplicaKey
from penstock.wire import Api, FetchPartition, FetchRequest, FetchTopic, MalformedResponse
from penstock.wire.fetch import HIGH_WATERMARK_UNTOLD, NO_EPOCH
from penstock.wire.fetch_client import fetch_body, read_fetch_response
from penstock.wire.request import Request as WireRequest
from penstock.wire.request import through_kio

METADATA_TOPIC_ID: Final = UUID(int=1)
"""Kafka's topic id of the metadata log, the same in every cluster."""

UNKNOWN_LEADER: Final = LeaderHint(NO_EPOCH)
"""Older than any epoch, so that the core ignores it."""


class Refused(NamedTuple):
    """The peer rejected the request without processing it."""

    error: ErrorCode


Answer = Reply | Refused


def to_wire(request: Request, cluster_id: str | None, listener: str) -> WireRequest[Answer]:
    """The wire form of a request, which parses the response into the core's reply."""
    return _TO_WIRE[type(request)](request, cluster_id, listener)


# -- elections ------------------------------------------------------------------------------------------


def _vote(request: Vote, cluster_id: str | None, listener: str) -> WireRequest[Answer]:
    def build(make: Any) -> Any:
        asked = make.PartitionData(
            partition_index=0,
            replica_epoch=request.epoch,
            replica_id=request.candidate.id,
            replica_directory_id=_directory(request.candidate),
            voter_directory_id=_directory(request.voter),
            last_offset_epoch=request.end.epoch,
            last_offset=request.end.offset,
            pre_vote=request.pre_vote,
        )
        return make.VoteRequest(cluster_id=cluster_id, voter_id=request.voter.id, topics=_topics(make, asked))

    def parse(response: Any) -> Reply:
        answer, error, hint = _partition(Api.VOTE, response, listener)
        return VoteReply(request.request_id, error, hint, answer.vote_granted)

    return _through_kio(Api.VOTE, build, parse, version_min=2 if request.pre_vote else 1)


def _begin(request: BeginQuorumEpoch, cluster_id: str | None, listener: str) -> WireRequest[Answer]:
    def build(make: Any) -> Any:
        asked = make.PartitionData(
            partition_index=0,
            voter_directory_id=_directory(request.voter),
            leader_id=request.leader.leader_id,
            leader_epoch=request.leader.epoch,
        )
        return make.BeginQuorumEpochRequest(
            cluster_id=cluster_id,
            voter_id=request.voter.id,
            topics=_topics(make, asked),
            leader_endpoints=_endpoints(make.LeaderEndpoint, request.leader.endpoints),
        )

    def parse(response: Any) -> Reply:
        _, error, hint = _partition(Api.BEGIN_QUORUM_EPOCH, response, listener)
        return BeginQuorumEpochReply(request.request_id, error, hint)

    return _through_kio(Api.BEGIN_QUORUM_EPOCH, build, parse, version_min=1)


def _end(request: EndQuorumEpoch, cluster_id: str | None, listener: str) -> WireRequest[Answer]:
    def build(make: Any) -> Any:
        asked = make.PartitionData(
            partition_index=0,
            leader_id=request.leader.leader_id,
            leader_epoch=request.leader.epoch,
            preferred_candidates=tuple(
                make.ReplicaInfo(candidate_id=each.id, candidate_directory_id=_directory(each))
                for each in request.successors
            ),
        )
        return make.EndQuorumEpochRequest(
            cluster_id=cluster_id,
            topics=_topics(make, asked),
            leader_endpoints=_endpoints(make.LeaderEndpoint, request.leader.endpoints),
        )

    def parse(response: Any) -> Reply:
        _, error, hint = _partition(Api.END_QUORUM_EPOCH, response, listener)
        return EndQuorumEpochReply(request.request_id, error, hint)

    return _through_kio(Api.END_QUORUM_EPOCH, build, parse, version_min=1)


# -- replication ----------------------------------------------------------------------------------------


def _fetch(request: Fetch, cluster_id: str | None, listener: str) -> WireRequest[Answer]:
    asked = FetchPartition(
        partition=0,
        current_leader_epoch=request.epoch,
        fetch_offset=request.fetch_offset,
        last_fetched_epoch=request.last_fetched_epoch,
        log_start_offset=-1,
        partition_bytes_max=request.bytes_max,
        replica_directory_id=request.replica.directory_id.bytes,
        high_watermark=request.high_watermark if request.high_watermark >= 0 else HIGH_WATERMARK_UNTOLD,
    )
    said = FetchRequest(
        max_wait_ms=request.wait_ms_max,
        min_bytes=0,
        max_bytes=request.bytes_max,
        isolation_level=0,
        session_id=0,
        session_epoch=NO_EPOCH,
        topics=[FetchTopic(METADATA_TOPIC_ID.bytes, [asked])],
        forgotten=[],
        rack_id="",
        replica_id=request.replica.id,
        replica_epoch=NO_EPOCH,
        cluster_id=cluster_id,
    )

    def read(body: memoryview, version: int) -> Answer:
        response = read_fetch_response(body, version)
        if response.error_code:
            return Refused(_code(response.error_code))
        found = [(topic, [each.partition for each in results]) for topic, results in response.topics]
        if found != [(METADATA_TOPIC_ID.bytes, [0])]:
            raise MalformedResponse(
                f"Fetch {version}: the answer is about {found}, expected the metadata log"
            )
        answer = response.topics[0][1][0]
        leader = UNKNOWN_LEADER
        if answer.current_leader is not None:
            leader_id, epoch = answer.current_leader
            leader = _hint(epoch, leader_id, response.node_endpoints, listener)
        diverging, snapshot = answer.diverging_epoch, answer.snapshot_id
        return FetchReply(
            request.request_id,
            _code(answer.error_code),
            leader,
            answer.high_watermark,
            answer.log_start_offset,
            OffsetAndEpoch(diverging.end_offset, diverging.epoch) if diverging is not None else None,
            OffsetAndEpoch(snapshot.end_offset, snapshot.epoch) if snapshot is not None else None,
            bytes(answer.records) if answer.records else None,
        )

    return WireRequest(Api.FETCH, 17, 18, lambda version: fetch_body(version, said), read)


def _fetch_snapshot(request: FetchSnapshot, cluster_id: str | None, listener: str) -> WireRequest[Answer]:
    def build(make: Any) -> Any:
        asked = make.PartitionSnapshot(
            partition=0,
            current_leader_epoch=request.epoch,
            snapshot_id=make.SnapshotId(
                end_offset=request.snapshot_id.offset, epoch=request.snapshot_id.epoch
            ),
            position=request.position,
            replica_directory_id=_directory(request.replica),
        )
        return make.FetchSnapshotRequest(
            cluster_id=cluster_id,
            replica_id=request.replica.id,
            max_bytes=request.bytes_max,
            topics=(make.TopicSnapshot(name=METADATA_TOPIC, partitions=(asked,)),),
        )

    def parse(response: Any) -> Reply:
        found = [(each.name, [one.index for one in each.partitions]) for each in response.topics]
        if found != [(METADATA_TOPIC, [0])]:
            raise MalformedResponse(f"FetchSnapshot: the answer is about {found}, expected the metadata log")
        answer = response.topics[0].partitions[0]
        leader = answer.current_leader
        return FetchSnapshotReply(
            request.request_id,
            _code(answer.error_code),
            _hint(leader.leader_epoch, leader.leader_id, response.node_endpoints, listener),
            OffsetAndEpoch(answer.snapshot_id.end_offset, answer.snapshot_id.epoch),
            answer.size,
            answer.position,
            bytes(answer.unaligned_records),
        )

    return _through_kio(Api.FETCH_SNAPSHOT, build, parse, version_min=1)


# -- voters ---------------------------------------------------------------------------------------------


def _update(request: UpdateVoter, cluster_id: str | None, listener: str) -> WireRequest[Answer]:
    voter = request.voter

    def build(make: Any) -> Any:
        low, high = voter.kraft_versions
        return make.UpdateRaftVoterRequest(
            cluster_id=cluster_id,
            current_leader_epoch=request.epoch,
            voter_id=voter.key.id,
            voter_directory_id=_directory(voter.key),
            listeners=_endpoints(make.Listener, voter.endpoints),
            k_raft_version_feature=make.KRaftVersionFeature(
                min_supported_version=low, max_supported_version=high
            ),
        )

    def read(body: memoryview, version: int) -> Answer:
        response = said.read(body, version)
        answer = response.current_leader
        endpoints = (Endpoint(listener, answer.host, answer.port),) if answer.host else ()
        hint = LeaderHint(answer.leader_epoch, answer.leader_id, endpoints)
        return VoterChangeReply(request.request_id, _code(response.error_code), hint)

    said = through_kio(Api.UPDATE_RAFT_VOTER, build)
    return replace(said, read=read)


def _add(request: AddVoter, cluster_id: str | None, _: str) -> WireRequest[Answer]:
    voter = request.voter

    def build(make: Any) -> Any:
        return make.AddRaftVoterRequest(
            cluster_id=cluster_id,
            timeout=timedelta(milliseconds=request.timeout_ms),
            voter_id=voter.key.id,
            voter_directory_id=_directory(voter.key),
            listeners=_endpoints(make.Listener, voter.endpoints),
            ack_when_committed=request.ack_when_committed,
        )

    return _through_kio(Api.ADD_RAFT_VOTER, build, _accepted(request), version_min=1)


def _remove(request: RemoveVoter, cluster_id: str | None, _: str) -> WireRequest[Answer]:
    def build(make: Any) -> Any:
        return make.RemoveRaftVoterRequest(
            cluster_id=cluster_id,
            voter_id=request.voter.id,
            voter_directory_id=_directory(request.voter),
        )

    return _through_kio(Api.REMOVE_RAFT_VOTER, build, _accepted(request), version_min=0)


def _accepted(request: AddVoter | RemoveVoter) -> Callable[[Any], Reply]:
    return lambda _: VoterChangeReply(request.request_id, ErrorCode.NONE, UNKNOWN_LEADER)


def _ask_versions(request: AskVersions, *_: str | None) -> WireRequest[Answer]:
    def build(make: Any) -> Any:
        return make.ApiVersionsRequest(client_software_name="penstock", client_software_version=__version__)

    def parse(response: Any) -> Reply:
        found = (each for each in response.supported_features if each.name == KRAFT_VERSION)
        versions = next(((each.min_version, each.max_version) for each in found), None)
        return VersionsReply(request.request_id, ErrorCode.NONE, kraft_versions=versions)

    return _through_kio(Api.API_VERSIONS, build, parse, version_min=4)


_TO_WIRE: Final[dict[type[Request], Callable[[Any, str | None, str], WireRequest[Answer]]]] = {
    Vote: _vote,
    BeginQuorumEpoch: _begin,
    EndQuorumEpoch: _end,
    Fetch: _fetch,
    FetchSnapshot: _fetch_snapshot,
    UpdateVoter: _update,
    AddVoter: _add,
    RemoveVoter: _remove,
    AskVersions: _ask_versions,
}


# -- what they have in common ---------------------------------------------------------------------------


def _through_kio(
    api: Api, build: Callable[[Any], Any], parse: Callable[[Any], Reply], *, version_min: int
) -> WireRequest[Answer]:
    said = through_kio(api, build, version_min=version_min)

    def read(body: memoryview, version: int) -> Answer:
        response = said.read(body, version)
        error = _code(response.error_code)
        return Refused(error) if error is not ErrorCode.NONE else parse(response)

    return replace(said, read=read)


def _topics(make: Any, asked: Any) -> tuple[Any, ...]:
    return (make.TopicData(topic_name=METADATA_TOPIC, partitions=(asked,)),)


def _partition(api: Api, response: Any, listener: str) -> tuple[Any, ErrorCode, LeaderHint]:
    """The metadata log's part of a response, its error, and the leader that it names."""
    found = [(each.topic_name, [one.partition_index for one in each.partitions]) for each in response.topics]
    if found != [(METADATA_TOPIC, [0])]:
        raise MalformedResponse(f"{api.label}: the response is about {found}, expected {METADATA_TOPIC}-0")
    answer = response.topics[0].partitions[0]
    hint = _hint(answer.leader_epoch, answer.leader_id, response.node_endpoints, listener)
    return answer, _code(answer.error_code), hint


def _hint(epoch: int, leader_id: int, endpoints: Sequence[Any], listener: str) -> LeaderHint:
    if leader_id < 0:
        return LeaderHint(epoch, NO_LEADER)
    found = (Endpoint(listener, each.host, each.port) for each in endpoints if each.node_id == leader_id)
    return LeaderHint(epoch, leader_id, tuple(found))


def _endpoints(make_one: Callable[..., Any], endpoints: Sequence[Endpoint]) -> tuple[Any, ...]:
    return tuple(make_one(name=each.listener, host=each.host, port=each.port) for each in endpoints)


def _directory(replica: ReplicaKey) -> UUID | None:
    return None if replica.directory_id == NO_DIRECTORY else replica.directory_id


def _code(code: int) -> ErrorCode:
    try:
        return ErrorCode(int(code))
    except ValueError:  # newer than this code
        return ErrorCode.UNKNOWN_SERVER_ERROR
