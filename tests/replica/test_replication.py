"""A follower beside a whole node that leads: what both do together, in one world."""

from collections import deque
from typing import Any, TypeVar

from tests.nodes import StillClient, StillNode
from tests.placing import placed
from tests.replica.fake_leader import SMALL, WHY, append, bytes_of, opened
from tests.wire_requests import produce_body
from tests.worlds import START_MS

from penstock.base.ids import TopicPartition
from penstock.base.promise import Promise
from penstock.metadata.config_table import BROKER_SETTINGS
from penstock.records import build_batch
from penstock.replica.delayed_operations import Durability
from penstock.replica.fetcher import ABANDON_MS
from penstock.replica.fetchers import Fetchers
from penstock.replica.partition import Partition
from penstock.replica.sync_lane import SyncLane
from penstock.vfs import MemoryDisk
from penstock.wire import KAFKA_RANGES, Api
from penstock.wire.request import Request

T = TypeVar("T")

LEADER, FOLLOWER = 1, 2
TOPIC = "orders"


class Link:
    """`BrokerClient` over clients of the node: one connection for each purpose, answers as they come."""

    def __init__(self, node: StillNode) -> None:
        self.node = node
        self.clients: dict[str, StillClient] = {}
        self.asked: dict[str, deque[tuple[Request[Any], Promise[Any]]]] = {}
        self.requests = 0
        self._poll()

    def send(
        self, broker_id: int, request: Request[T], *, timeout_ms: float, purpose: str = ""
    ) -> Promise[T]:
        assert broker_id == LEADER
        self.requests += 1
        answer: Promise[T] = Promise()
        if purpose not in self.clients:
            self.clients[purpose], self.asked[purpose] = self.node.client(), deque()
        self.asked[purpose].append((request, answer))
        version = min(request.version_max, KAFKA_RANGES[request.api].max)
        self.clients[purpose].send(request.api, version, request.write(version))
        return answer

    def _poll(self) -> None:
        for purpose, client in list(self.clients.items()):
            while (raw := client.raw_reply()) is not None:
                _, version, frame, at = raw
                request, answer = self.asked[purpose].popleft()
                answer.resolve(request.read(memoryview(frame)[at:], version))
        self.node.world.call_later(0.5, self._poll)


class Pair:
    def __init__(self, partitions: int = 1, **settings: str) -> None:
        self.node = StillNode(settings={"log.segment.bytes": "2000", **settings})
        self.world = self.node.world
        self.node.create_topic(TOPIC, partitions)
        self.replicas = self.node.node.context.replicas
        self.link = Link(self.node)
        self.epochs = dict.fromkeys(range(partitions), 0)
        self.directory = opened(MemoryDisk(), SMALL)
        lane = SyncLane(self.world)
        self.fetchers = Fetchers(
            self.world,
            FOLLOWER,
            self.link,  # type: ignore[arg-type]  # as far as it is used
            lane,
            Durability.ALONE,
            setting=lambda name: int(BROKER_SETTINGS[name].default or 0),
            broker_epoch=lambda: 5,
            save_log_starts=self.directory.checkpoints.save_log_starts,
        )
        self.copies = [
            Partition(
                self.directory.create(
                    TopicPartition(TOPIC, number), now_ms=START_MS, topic_id=self.led(number).topic_id
                ),
                self.led(number).topic_id,
                self.world,
                lane,
                Durability.ALONE,
                self.world.call_soon,
            )
            for number in range(partitions)
        ]

    def led(self, number: int = 0) -> Partition:
        return self.replicas.find(TOPIC, number)

    def lead(self, number: int = 0, *, isr: tuple[int, ...] = (LEADER, FOLLOWER)) -> None:
        """The node leads in a new epoch, and has a replica at the follower's."""
        self.epochs[number] += 1
        self.led(number).lead(
            placed(replicas=(LEADER, FOLLOWER), isr=isr, leader=LEADER, epoch=self.epochs[number]), 1
        )

    def follow(self, number: int = 0) -> None:
        copy = self.copies[number]
        copy.follow(LEADER, self.epochs[number], WHY)
        self.fetchers.follow(copy)

    def both(self, number: int = 0) -> None:
        self.lead(number)
        self.follow(number)

    def produce(self, number: int = 0, *, size: int = 100) -> StillClient:
        """With acks=all; the client has the answer when there is one."""
        data = build_batch([(b"k", bytes(size), self.world.now_ms())])
        client = self.node.client()
        client.send(Api.PRODUCE, 12, produce_body(12, [(TOPIC, [(number, data)])], -1))
        return client

    def is_copied(self, number: int = 0) -> bool:
        log, copy = self.led(number).log, self.copies[number].log
        return log.log_end == copy.log_end and bytes_of(log) == bytes_of(copy)


def error_of(client: StillClient) -> int | None:
    reply = client.reply()
    return None if reply is None else int(reply.responses[0].partition_responses[0].error_code)


def test_acks_all_is_answered_when_the_follower_has_the_record() -> None:
    pair = Pair()
    pair.lead()
    client = pair.produce()
    pair.world.advance(300)
    assert error_of(client) is None
    pair.follow()
    pair.world.advance(30)
    assert error_of(client) == 0
    assert pair.is_copied()


def test_a_record_that_was_only_staged_when_the_follower_asked_is_given_once_it_is_written() -> None:
    pair = Pair()
    pair.both()
    client = pair.produce()  # the fetch, and then the write, are still to come in this very turn
    pair.world.advance(20)
    assert error_of(client) == 0


def test_everything_that_is_produced_is_copied_and_what_is_committed_is_known() -> None:
    pair = Pair(partitions=3)
    for number in range(3):
        pair.both(number)
    clients = []
    for turn in range(60):
        clients.append(pair.produce(turn % 3, size=10 * turn))
        pair.world.advance(turn % 4)
    pair.world.advance(20)
    assert [error_of(client) for client in clients] == [0] * 60
    for number in range(3):
        assert pair.is_copied(number)
    pair.world.advance(1100)
    for number, copy in enumerate(pair.copies):
        assert copy.high_watermark == pair.led(number).high_watermark == 20


def test_an_idle_pair_costs_two_requests_a_second() -> None:
    pair = Pair(partitions=20)
    for number in range(20):
        pair.both(number)
    pair.world.advance(1000)
    before = pair.link.requests
    pair.world.advance(10_000)
    assert pair.link.requests - before <= 21


def test_producers_of_a_partition_that_is_new_to_a_follower_do_not_wait_for_others() -> None:
    pair = Pair(partitions=2)
    pair.both(0)
    pair.world.advance(700)
    pair.lead(1)
    client = pair.produce(1)
    pair.follow(1)
    pair.world.advance(ABANDON_MS + 10)
    assert error_of(client) == 0
    other = pair.produce(0)
    pair.world.advance(10)
    assert error_of(other) == 0
    assert len(pair.node.node.context.fetch_sessions) == 1


def test_partitions_that_come_one_after_the_other_do_not_wait_for_long_either() -> None:
    """Two connections are soon taken; a leader answers at once what was given up, and frees the first."""
    pair = Pair(partitions=6)
    pair.both(0)
    pair.world.advance(700)
    for number in range(1, 6):
        pair.lead(number)
        client = pair.produce(number)
        pair.follow(number)
        pair.world.advance(ABANDON_MS + 10)
        assert error_of(client) == 0


def test_logs_that_parted_are_the_leaders_again() -> None:
    pair = Pair()
    pair.both()
    for _ in range(5):
        pair.produce()
    pair.world.advance(1000)
    copy = pair.copies[0]
    pair.fetchers.forget(copy)
    for fill in range(3):
        append(copy.log, 2, fill=fill)  # it led for a while, and nobody heard of it
    pair.epochs[0] = 2
    pair.lead(isr=(LEADER,))
    for _ in range(2):
        pair.produce()
    pair.world.advance(10)
    assert copy.log.log_end == 8
    pair.follow()
    pair.world.advance(600)
    assert pair.is_copied()
    assert [each.epoch for each in copy.log.epochs.entries] == [1, 3]
    assert copy.high_watermark == 7


def test_a_follower_begins_where_the_leader_does_when_it_was_away_for_too_long() -> None:
    pair = Pair()
    pair.lead(isr=(LEADER,))
    for _ in range(30):
        pair.produce()
        pair.world.advance(2)
    pair.led().delete_records(25)
    append(pair.copies[0].log, 0)
    pair.follow()
    pair.world.advance(1000)
    copy = pair.copies[0].log
    assert (copy.log_start, copy.log_end) == (25, 30)
    assert pair.is_copied()


def test_a_leader_that_knows_nothing_of_the_session_any_more_is_told_everything_again() -> None:
    pair = Pair()
    pair.both()
    pair.world.advance(700)
    for session_id in list(pair.node.node.context.fetch_sessions._sessions):
        pair.node.node.context.fetch_sessions.close(session_id)
    pair.world.advance(700)
    client = pair.produce()
    pair.world.advance(20)
    assert error_of(client) == 0
    assert pair.is_copied()
