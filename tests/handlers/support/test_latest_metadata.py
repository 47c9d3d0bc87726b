"""Waiting for the controller's latest metadata: when it is asked, how often, and what silence means."""

from types import SimpleNamespace
from typing import Any

from tests.worlds import StillWorld

from penstock.base.promise import Promise
from penstock.handlers.support.latest_metadata import WAIT_MS_MAX, LatestMetadata
from penstock.wire.peers import Address, PeerFailed


class Peers:
    """A controller that answers when a test lets it."""

    def __init__(self) -> None:
        self.asked: list[Promise[Any]] = []

    def ask(self, to: Address, request: Any, *, timeout_ms: float, purpose: str = "") -> Promise[Any]:
        self.asked.append(Promise())
        return self.asked[-1]

    def answer(self, end: int, code: int = 0) -> None:
        partition = SimpleNamespace(error_code=0, high_watermark=end)
        topics = () if code else (SimpleNamespace(partitions=(partition,)),)
        self.asked.pop(0).resolve(SimpleNamespace(error_code=code, topics=topics))


class Follower:
    def __init__(self, end: int = 10) -> None:
        self.world = StillWorld()
        self.peers = Peers()
        self.quorum = SimpleNamespace(is_leader=False, leader_address=Address("h", 1), high_watermark=end)
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
    assert node.latest.reached().value is True
    assert node.peers.asked == []


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
