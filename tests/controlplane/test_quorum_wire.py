"""What the Raft core says, over the wire and back: written, framed, dispatched, handled, answered and read."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.controlplane.quorum_bench import CLUSTER
from tests.controlplane.quorum_network import LISTENER, context_of, dispatched
from tests.worlds import StillWorld

from penstock.base.errors import ErrorCode
from penstock.base.promise import Promise
from penstock.controlplane.quorum_wire import Answer, Refused, to_wire
from penstock.handlers.raft import PIECE_BYTES_MAX
from penstock.handlers.support.dispatch import Dispatcher
from penstock.raft.describe import QuorumDescription
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
from penstock.raft.voters import NO_DIRECTORY, Endpoint, ReplicaKey, Voter, VoterSet
from penstock.wire import write_response
from penstock.wire.errors import MalformedResponse
from penstock.wire.messages import response_builder
from penstock.wire.peers import Address

REQUEST_ID = 4711


class Scripted:
    """A quorum that notes what it is asked and answers as it was told."""

    is_leader = False
    leader_id = 2
    leader_address: Address | None = None
    epoch = 9
    voters = VoterSet()
    request_timeout_ms = 2000
    second_listeners: frozenset[str] = frozenset()

    def __init__(self, reply: Reply | None = None) -> None:
        self.reply = reply
        self.received: list[Request] = []

    def describe(self) -> QuorumDescription:
        return QuorumDescription(self.leader_id, self.epoch, 0)

    def receive(self, request: Request) -> Promise[Reply]:
        self.received.append(request)
        answer: Promise[Reply] = Promise()
        if self.reply is not None:
            answer.resolve(self.reply)
        return answer


def over_the_wire(
    request: Request, reply: Reply | None, version: int | None = None, cluster_id: str = CLUSTER
) -> tuple[list[Request], Promise[Answer]]:
    """What the peer's quorum is asked, and what the asker hears of its answer."""
    quorum = Scripted(reply)
    dispatcher = Dispatcher.for_controllers(context_of(StillWorld(), 3, quorum))
    answer = dispatched(dispatcher, to_wire(request, cluster_id, LISTENER), version)
    return quorum.received, answer


def round_trip(request: Request, reply: Reply, version: int | None = None) -> None:
    received, answer = over_the_wire(request, reply, version)
    assert received == [request._replace(request_id=-1)]
    assert answer.value == reply._replace(request_id=REQUEST_ID)


int32s = st.integers(0, 2**31 - 1)
int64s = st.integers(0, 2**63 - 2)
directories = st.one_of(st.just(NO_DIRECTORY), st.uuids().filter(lambda each: each != NO_DIRECTORY))
keys = st.builds(ReplicaKey, int32s, directories)
positions = st.builds(OffsetAndEpoch, int64s, int32s)
errors = st.sampled_from([each for each in ErrorCode if each <= ErrorCode.REBOOTSTRAP_REQUIRED])
hosts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
endpoints = st.builds(Endpoint, st.just(LISTENER), hosts, st.integers(1, 65535))
hints = st.one_of(
    st.builds(LeaderHint, int32s, st.just(NO_LEADER), st.just(())),
    st.builds(LeaderHint, int32s, int32s, st.one_of(st.just(()), st.tuples(endpoints))),
)
some_bytes = st.binary(min_size=1, max_size=300)


@given(
    st.builds(Vote, st.just(REQUEST_ID), int32s, keys, keys, positions, st.booleans()),
    st.builds(VoteReply, int32s, errors, hints, st.booleans()),
)
def test_votes(asked: Vote, reply: VoteReply) -> None:
    round_trip(asked, reply)
    if not asked.pre_vote:
        round_trip(asked, reply, version=1)


@given(
    st.builds(BeginQuorumEpoch, st.just(REQUEST_ID), hints, keys),
    st.builds(BeginQuorumEpochReply, int32s, errors, hints),
)
def test_beginnings_of_epochs(asked: BeginQuorumEpoch, reply: BeginQuorumEpochReply) -> None:
    round_trip(asked, reply)


@given(
    st.builds(EndQuorumEpoch, st.just(REQUEST_ID), hints, st.lists(keys, max_size=5).map(tuple)),
    st.builds(EndQuorumEpochReply, int32s, errors, hints),
)
def test_ends_of_epochs(asked: EndQuorumEpoch, reply: EndQuorumEpochReply) -> None:
    round_trip(asked, reply)


@given(
    st.builds(
        Fetch,
        st.just(REQUEST_ID),
        keys,
        int32s,
        int64s,
        int32s,
        st.integers(-1, 2**63 - 2),
        int32s,
        st.integers(0, PIECE_BYTES_MAX),
    ),
    st.builds(
        FetchReply,
        int32s,
        errors,
        hints,
        st.integers(-1, 2**63 - 1),
        st.integers(-1, 2**63 - 1),
        st.none() | positions,
        st.none() | positions,
        st.none() | some_bytes,
    ),
    st.sampled_from([17, 18]),
)
def test_fetches(asked: Fetch, reply: FetchReply, version: int) -> None:
    if version == 17:  # it cannot tell (KIP-1166)
        asked = asked._replace(high_watermark=-1)
    round_trip(asked, reply, version)


@given(
    st.builds(
        FetchSnapshot,
        st.just(REQUEST_ID),
        keys,
        int32s,
        positions,
        int64s,
        st.integers(0, PIECE_BYTES_MAX),
    ),
    st.builds(
        FetchSnapshotReply, int32s, errors, hints, positions, int64s, int64s, some_bytes | st.just(b"")
    ),
)
def test_fetches_of_snapshots(asked: FetchSnapshot, reply: FetchSnapshotReply) -> None:
    round_trip(asked, reply)


@given(
    st.builds(
        UpdateVoter,
        st.just(REQUEST_ID),
        int32s,
        st.builds(
            Voter,
            st.builds(ReplicaKey, int32s, st.uuids().filter(lambda each: each != NO_DIRECTORY)),
            st.lists(endpoints, min_size=1, max_size=3).map(tuple),
            st.integers(0, 5).flatmap(lambda low: st.tuples(st.just(low), st.integers(low, 32767))),
        ),
        st.just(Scripted.request_timeout_ms),
    ),
    st.builds(VoterChangeReply, int32s, errors, hints, st.just("")),
)
def test_voters_that_move(asked: UpdateVoter, reply: VoterChangeReply) -> None:
    round_trip(asked, reply)


FETCH = Fetch(REQUEST_ID, ReplicaKey(1, UUID(int=5)), 9, 10, 8)
REQUESTS: list[Request] = [
    Vote(REQUEST_ID, 9, ReplicaKey(1), ReplicaKey(3), OffsetAndEpoch(10, 8), True),
    BeginQuorumEpoch(REQUEST_ID, LeaderHint(9, 1), ReplicaKey(3)),
    EndQuorumEpoch(REQUEST_ID, LeaderHint(9, 1), ()),
    FETCH,
    FetchSnapshot(REQUEST_ID, ReplicaKey(1), 9, OffsetAndEpoch(5, 4), 0),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: type(each).__name__)
def test_another_clusters_request_does_not_reach_the_quorum(request_: Request) -> None:
    received, answer = over_the_wire(request_, None, cluster_id="another-cluster-000000")
    assert received == []
    assert answer.value == Refused(ErrorCode.INCONSISTENT_CLUSTER_ID)


def test_another_clusters_voter_does_not_change_ours() -> None:
    request = UpdateVoter(REQUEST_ID, 9, Voter(ReplicaKey(1, UUID(int=5)), (Endpoint(LISTENER, "a", 1),)), 5)
    received, answer = over_the_wire(request, None, cluster_id="another-cluster-000000")
    assert received == []
    assert answer.value == VoterChangeReply(REQUEST_ID, ErrorCode.INCONSISTENT_CLUSTER_ID, LeaderHint(9, 2))


def test_a_fetch_is_answered_when_the_quorum_does() -> None:
    quorum = Scripted()
    dispatcher = Dispatcher.for_controllers(context_of(StillWorld(), 3, quorum))
    later: Promise[Reply] = Promise()
    quorum.receive = lambda request: later  # type: ignore[method-assign]  # noqa: ARG005
    answer = dispatched(dispatcher, to_wire(FETCH, CLUSTER, LISTENER))
    assert not answer.is_settled
    later.resolve(FetchReply(0, ErrorCode.NONE, LeaderHint(9, 3), 10, 0))
    assert answer.value == FetchReply(REQUEST_ID, ErrorCode.NONE, LeaderHint(9, 3), 10, 0)


@pytest.mark.parametrize("wanted", [-1, 2**31 - 1])
def test_no_client_gets_more_than_a_piece_at_once(wanted: int) -> None:
    bounded = {-1: 0, 2**31 - 1: PIECE_BYTES_MAX}[wanted]
    (fetch,), _ = over_the_wire(FETCH._replace(bytes_max=wanted), None)
    assert isinstance(fetch, Fetch)
    assert fetch.bytes_max == bounded
    snapshot = FetchSnapshot(REQUEST_ID, ReplicaKey(1), 9, OffsetAndEpoch(5, 4), 0, wanted)
    (asked,), _ = over_the_wire(snapshot, None)
    assert isinstance(asked, FetchSnapshot)
    assert asked.bytes_max == bounded


def test_a_leader_that_listens_under_several_names_is_told_under_the_askers() -> None:
    names = (Endpoint("OTHER", "a", 1), Endpoint(LISTENER, "b", 2))
    _, answer = over_the_wire(FETCH, FetchReply(0, ErrorCode.NONE, LeaderHint(9, 2, names)))
    assert isinstance(answer.value, FetchReply)
    assert answer.value.leader == LeaderHint(9, 2, (Endpoint(LISTENER, "b", 2),))


@pytest.mark.parametrize(
    "request_",
    [
        AddVoter(REQUEST_ID, Voter(ReplicaKey(1, UUID(int=5)), (Endpoint(LISTENER, "a", 1),)), 5, False),
        RemoveVoter(REQUEST_ID, ReplicaKey(1, UUID(int=5)), 2000),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_controller_that_wants_to_vote(request_: Request) -> None:
    reply = VoterChangeReply(0, ErrorCode.NONE, LeaderHint(9, 2))
    received, answer = over_the_wire(request_, reply)
    assert received == [request_._replace(request_id=-1)]
    assert answer.value == VoterChangeReply(REQUEST_ID, ErrorCode.NONE, LeaderHint(-1))
    _, answer = over_the_wire(request_, reply._replace(error=ErrorCode.REQUEST_TIMED_OUT))
    assert answer.value == Refused(ErrorCode.REQUEST_TIMED_OUT)


def test_a_controller_says_which_versions_of_the_quorums_records_it_understands() -> None:
    """By ApiVersions, which needs no quorum."""
    received, answer = over_the_wire(AskVersions(REQUEST_ID), None)
    assert received == []
    assert answer.value == VersionsReply(REQUEST_ID, ErrorCode.NONE, kraft_versions=(0, 1))


def test_a_node_that_knows_of_no_such_versions_says_none() -> None:
    wire: Any = to_wire(AskVersions(REQUEST_ID), CLUSTER, LISTENER)
    make = response_builder(wire.api, wire.version_max)
    response = make.ApiVersionsResponse(
        error_code=ErrorCode.NONE, api_keys=(), supported_features=(), throttle_time=timedelta(0)
    )
    body = memoryview(write_response(wire.api, wire.version_max, response))
    assert wire.read(body, wire.version_max) == VersionsReply(REQUEST_ID, ErrorCode.NONE)


@pytest.mark.parametrize("request_", REQUESTS[:3], ids=lambda each: type(each).__name__)
def test_an_answer_about_something_else_is_none(request_: Request) -> None:
    wire: Any = to_wire(request_, CLUSTER, LISTENER)
    make = response_builder(wire.api, wire.version_max)
    response = getattr(make, f"{wire.api.label}Response")(error_code=ErrorCode.NONE, topics=())
    body = memoryview(write_response(wire.api, wire.version_max, response))
    with pytest.raises(MalformedResponse, match="__cluster_metadata-0"):
        wire.read(body, wire.version_max)
