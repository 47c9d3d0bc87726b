"""Snapshots in place of a log that is gone (KIP-630)."""

from dataclasses import replace

import pytest
from tests.raft.bench import Bench, log_of, voter_set
from tests.raft.memlog import MemoryLog, Record, make_snapshot
from tests.raft.sim import voter

from penstock.base.errors import ErrorCode
from penstock.raft.config import RaftConfig
from penstock.raft.election import ElectionState
from penstock.raft.errors import LostCommit
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.messages import (
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    LeaderHint,
    SnapshotSlice,
)
from penstock.raft.voters import VoterSet

HINT = LeaderHint(5, 2, voter(2).endpoints)
ID = OffsetAndEpoch(10, 3)


def log_from(snapshot_id: OffsetAndEpoch, *epochs: int, voters: VoterSet | None = None) -> MemoryLog:
    """A log that begins at a snapshot."""
    records = [Record(epoch, f"r{place}") for place, epoch in enumerate(epochs)]
    return MemoryLog(
        start_offset=snapshot_id.offset,
        records=records,
        flushed=list(records),
        snapshots={snapshot_id: make_snapshot(42, voters)},
    )


def leader_from_snapshot() -> Bench:
    bench = Bench(log=log_from(ID, 3, 4), election=ElectionState(4))
    bench.become_leader()
    return bench


@pytest.mark.parametrize(
    ("offset", "epoch"),
    [
        (0, 0),  # empty
        (9, 2),  # before our log begins
        (10, 2),  # at its beginning, with another history
        (11, 2),  # in an epoch that was over when the snapshot was taken
    ],
)
def test_a_follower_that_is_behind_the_log_is_sent_to_the_snapshot(offset: int, epoch: int) -> None:
    """KIP-630: the answer names the latest snapshot."""
    bench = leader_from_snapshot()
    reply = bench.ask(bench.fetch(2, offset, last_epoch=epoch))
    assert isinstance(reply, FetchReply)
    assert (reply.snapshot, reply.records, reply.diverging) == (ID, None, None)


@pytest.mark.parametrize(("offset", "epoch"), [(10, 3), (11, 3), (12, 4)])
def test_a_follower_at_the_snapshots_end_is_served_from_the_log(offset: int, epoch: int) -> None:
    bench = leader_from_snapshot()
    reply = bench.ask(bench.fetch(2, offset, last_epoch=epoch))
    assert isinstance(reply, FetchReply)
    assert reply.snapshot is None
    assert reply.records is not None


def test_a_snapshot_is_served_piece_by_piece() -> None:
    bench = leader_from_snapshot()
    size = bench.log.snapshot_bytes(ID)
    assert size is not None

    def ask(position: int, snapshot_id: OffsetAndEpoch = ID, epoch: int = 5) -> FetchSnapshotReply:
        reply = bench.ask(FetchSnapshot(0, voter(2).key, epoch, snapshot_id, position, 4))
        assert isinstance(reply, FetchSnapshotReply)
        return reply

    reply = ask(3)
    assert (reply.size, reply.position, reply.data) == (size, 3, SnapshotSlice(ID, 3, 4))
    assert ask(size).error is ErrorCode.POSITION_OUT_OF_RANGE
    assert ask(-1).error is ErrorCode.POSITION_OUT_OF_RANGE
    assert ask(0, OffsetAndEpoch(8, 3)).error is ErrorCode.SNAPSHOT_NOT_FOUND
    assert ask(0, epoch=4).error is ErrorCode.FENCED_LEADER_EPOCH


def test_fetching_a_snapshot_keeps_the_leader_in_office() -> None:
    """Check quorum (KAFKA-15489) counts FetchSnapshot too."""
    bench = leader_from_snapshot()
    for _ in range(5):
        bench.later(2000)
        assert bench.node.is_leader
        bench.ask(FetchSnapshot(0, voter(2).key, 5, ID, 0))


def behind() -> tuple[Bench, Fetch]:
    bench = Bench(
        log=log_of(1, 1, 2), election=ElectionState(2), config=replace(RaftConfig(), snapshot_bytes_max=3)
    )
    bench.become_follower(leader_id=2, epoch=5)
    return bench, bench.sent_to(2, Fetch)


def test_a_follower_loads_a_snapshot_and_fetches_on_from_it() -> None:
    """KIP-630: the log is truncated fully and begins anew at the snapshot's end, all of it committed."""
    bench, request = behind()
    data = make_snapshot(42, voter_set(1, 2, 3)).data
    bench.step(FetchReply(request.request_id, ErrorCode.NONE, HINT, snapshot=ID))
    position = 0
    while position < len(data):
        ask = bench.sent_to(2, FetchSnapshot)
        assert (ask.snapshot_id, ask.position, ask.bytes_max) == (ID, position, 3)
        piece = data[position : position + 3]
        bench.step(FetchSnapshotReply(ask.request_id, ErrorCode.NONE, HINT, ID, len(data), position, piece))
        position += len(piece)
    assert bench.loaded == [ID]
    assert (bench.log.start_offset, bench.log.end_offset, bench.node.high_watermark) == (10, 10, 10)
    fetch = bench.sent_to(2, Fetch)
    assert (fetch.fetch_offset, fetch.last_fetched_epoch) == (10, 3)
    assert bench.node.voters == voter_set(1, 2, 3)


def test_a_snapshot_that_the_leader_no_longer_has_is_given_up() -> None:
    bench, request = behind()
    bench.step(FetchReply(request.request_id, ErrorCode.NONE, HINT, snapshot=ID))
    ask = bench.sent_to(2, FetchSnapshot)
    bench.step(FetchSnapshotReply(ask.request_id, ErrorCode.SNAPSHOT_NOT_FOUND, HINT))
    bench.later(20)
    assert bench.sent_to(2, Fetch).fetch_offset == 3


def test_a_piece_out_of_place_is_asked_for_again() -> None:
    bench, request = behind()
    bench.step(FetchReply(request.request_id, ErrorCode.NONE, HINT, snapshot=ID))
    ask = bench.sent_to(2, FetchSnapshot)
    bench.step(FetchSnapshotReply(ask.request_id, ErrorCode.NONE, HINT, ID, 9, 6, b"abc"))
    assert bench.sent_to(2, FetchSnapshot).position == 0
    assert not bench.ready.snapshot_chunks


def test_a_snapshot_of_less_than_is_committed_is_refused() -> None:
    bench, request = behind()
    bench.step(FetchReply(request.request_id, ErrorCode.NONE, HINT, high_watermark=3))
    request = bench.sent_to(2, Fetch)
    old = OffsetAndEpoch(2, 1)
    bench.step(FetchReply(request.request_id, ErrorCode.NONE, HINT, snapshot=old))
    ask = bench.sent_to(2, FetchSnapshot)
    with pytest.raises(LostCommit, match=r"ends at 2, below the high watermark 3"):
        bench.step(FetchSnapshotReply(ask.request_id, ErrorCode.NONE, HINT, old, 3, 0, b"abc"))


def test_what_a_snapshot_holds_is_committed_from_the_start() -> None:
    bench = Bench(log=log_from(ID, 3, 4), election=ElectionState(4))
    assert bench.node.high_watermark == 10
    assert bench.node.role.epoch == 4


def test_an_empty_log_after_a_snapshot_has_its_epoch() -> None:
    """Else the node would vote for a log that lacks what its snapshot has."""
    bench = Bench(log=log_from(ID), election=ElectionState(3))
    assert bench.node.tail.end == ID
