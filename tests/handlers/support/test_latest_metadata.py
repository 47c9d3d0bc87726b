"""Waiting for the controller's latest metadata: when it is asked, how often, and what silence means."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.worlds import StillWorld

from penstock.base.errors import ErrorCode
from penstock.base.promise import Promise
from penstock.handlers.support.latest_metadata import WAIT_MS_MAX, LatestMetadata
from penstock.raft.messages import LeaderHint, ReadIndex, ReadIndexReply, Reply, Request
from penstock.raft.pending_reads import READ_INDEX_MS_MAX
from penstock.wire.peers import Address, PeerFailed


class Peers:
    """A controller that answers when a test lets it."""

    def __init__(self) -> None:
        self.asked: list[Promise[Any]] = []

    def ask(self, to: Address, request: Any, *, timeout_ms: float, purpose: str = "") -> Promise[Any]:
        self.asked.append(Promise())
        return self.asked[-1]

    def answer(self, end: int, code: int = 0, message: str | None = None) -> None:
        partition = SimpleNamespace(error_code=0, error_message=message, high_watermark=end)
        topics = () if code else (SimpleNamespace(partitions=(partition,)),)
        self.asked.pop(0).resolve(SimpleNamespace(error_code=code, topics=topics))


class Quorum:
    """The quorum of a node that leads if a test says so, and confirms it when the test lets it."""

    def __init__(self) -> None:
        self.is_leader = False
        self.leader_address: Address | None = Address("h", 1)
        self.reads: list[Promise[Reply]] = []

    def receive(self, request: Request) -> Promise[Reply]:
        assert isinstance(request, ReadIndex)
        self.reads.append(Promise())
        return self.reads[-1]

    def answer(self, end: int, error: ErrorCode = ErrorCode.NONE) -> None:
        self.reads.pop(0).resolve(ReadIndexReply(0, error, LeaderHint(1), end))


class Follower:
    def __init__(self, end: int = 10) -> None:
        self.world = StillWorld()
        self.peers = Peers()
        self.quorum = Quorum()
        self.context: Any = SimpleNamespace(
            world=self.world, quorum=self.quorum, peers=self.peers, metadata_end=end, image_watchers={}
        )
        self.latest = LatestMetadata(self.context)

    def applies(self, end: int) -> None:
        self.context.metadata_end = end
        for watcher in list(self.context.image_watchers):
            watcher()


def test_the_controllers_own_node_sends_no_request() -> None:
    node = Follower()
    node.quorum.is_leader = True
    reached = node.latest.reached()
    assert not reached.is_settled, "another node may have been elected"
    node.quorum.answer(10)
    assert reached.value is True
    assert node.peers.asked == []


def test_a_leader_that_cannot_confirm_that_it_leads_does_not_know() -> None:
    node = Follower()
    node.quorum.is_leader = True
    for error in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        reached = node.latest.reached()
        node.quorum.answer(-1, error)
        assert reached.value is False
        node.world.advance(1100)


@pytest.mark.parametrize(("end", "message"), [(10, "leadership is not confirmed"), (-1, None)])
def test_a_controller_that_may_be_deposed_or_has_committed_nothing_yet_is_no_answer(
    end: int, message: str | None
) -> None:
    node = Follower()
    reached = node.latest.reached()
    node.peers.answer(end, message=message)
    assert reached.value is False


def test_a_controller_replies_before_the_connection_is_given_up() -> None:
    assert READ_INDEX_MS_MAX < WAIT_MS_MAX


def test_another_node_waits_until_it_has_applied_what_is_committed() -> None:
    node = Follower(end=10)
    reached = node.latest.reached()
    node.peers.answer(12)
    assert not reached.is_settled
    node.applies(11)
    assert not reached.is_settled
    node.applies(12)
    assert reached.value is True


def test_a_crowd_costs_one_question_after_the_other() -> None:
    node = Follower()
    first = node.latest.reached()
    crowd = [node.latest.reached() for _ in range(100)]
    assert len(node.peers.asked) == 1
    node.peers.answer(10)
    assert first.value is True
    assert not any(each.is_settled for each in crowd), "what was committed since they asked is not known"
    assert len(node.peers.asked) == 1
    node.peers.answer(10)
    assert all(each.value for each in crowd)


def test_silence_is_no_answer_and_is_not_waited_for_again_at_once() -> None:
    node = Follower()
    asking, behind = node.latest.reached(), node.latest.reached()
    node.peers.asked.pop().fail(PeerFailed("no answer"))
    assert asking.value is False
    assert behind.value is False
    assert node.latest.reached().value is False
    assert node.peers.asked == []
    node.world.advance(1100)
    again = node.latest.reached()
    node.peers.answer(10)
    assert again.value is True


def test_a_node_that_is_not_the_controller_or_metadata_that_does_not_come_is_no_answer() -> None:
    node = Follower()
    reached = node.latest.reached()
    node.peers.answer(0, code=6)
    assert reached.value is False
    node.world.advance(1100)
    reached = node.latest.reached()
    node.peers.answer(50)
    node.world.advance(WAIT_MS_MAX + 10)
    assert reached.value is False
    node.quorum.leader_address = None
    node.world.advance(1100)
    assert node.latest.reached().value is False
