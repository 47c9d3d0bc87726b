"""Coordinators whose writes take longer than anybody waits: all are answered in time, and what was written counts."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.handlers.members import Groups, Member, ask, gather
from tests.handlers.producers import Txn, describe
from tests.nodes import StillClient, StillNode

from penstock.base.errors import ErrorCode, KafkaError
from penstock.coordinator.runtime.group_service import GroupShard
from penstock.coordinator.runtime.write_timeouts import WAIT_MS_MAX
from penstock.records import end_txn_marker
from penstock.wire import Api

NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
SLOW_MS = 8000


@contextmanager
def slow_disk(node: StillNode) -> Iterator[None]:
    """What is synced meanwhile takes longer than anybody waits, and is on disk when this is over."""
    world = node.world
    world.beside_ms = SLOW_MS
    yield
    world.beside_ms = 1
    world.run_until(lambda: not world.works)
    world.advance(100)


def waited(node: StillNode, since_ms: int) -> bool:
    """Whether as much time has passed as anybody waits."""
    return abs(node.world.now_ms() - since_ms - WAIT_MS_MAX) <= 2


def send_commit(client: StillClient, offset: int, member: Member | None = None) -> None:
    row = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    ask(
        client,
        Api.OFFSET_COMMIT,
        9,
        group_id="g",
        generation_id_or_member_epoch=-1 if member is None else member.generation,
        member_id="" if member is None else member.id,
        topics=[{"name": "t", "partitions": [row]}],
    )


def send_fetch(client: StillClient) -> None:
    topics = [{"name": "t", "partition_indexes": [0]}]
    ask(client, Api.OFFSET_FETCH, 7, group_id="g", topics=topics, require_stable=True)


def code_of_commit(client: StillClient) -> int:
    return int(client.wait().topics[0].partitions[0].error_code.value)


def shard_of(scene: Groups) -> GroupShard:
    return scene.node.node.context.groups.shards.of("g")


def test_a_commit_that_takes_long_is_refused_in_time_and_counts_when_it_is_written() -> None:
    """What was refused may come to be. The coordinator stays the one it was: nothing is read anew."""
    scene = Groups()
    shard = shard_of(scene)
    with slow_disk(scene.node):
        began_ms = scene.node.world.now_ms()
        assert scene.commit(offset=7) == NOT_AVAILABLE
        assert waited(scene.node, began_ms)
        assert scene.node.world.works, "it is still being written"
    assert scene.committed() == 7
    assert shard_of(scene) is shard
    assert scene.commit(offset=8) == 0


def test_commits_that_share_a_batch_are_refused_together() -> None:
    scene = Groups()
    clients = [scene.node.client() for _ in range(3)]
    scene.advance(100)
    with slow_disk(scene.node):
        began_ms = scene.node.world.now_ms()
        send_commit(scene.client, 1)
        for offset, each in enumerate(clients, 2):
            send_commit(each, offset)
        assert [code_of_commit(each) for each in (scene.client, *clients)] == [NOT_AVAILABLE] * 4
        assert scene.node.world.now_ms() - began_ms <= WAIT_MS_MAX + 10, "the gap between two writes included"
    assert scene.committed() == 4


def test_who_only_asks_waits_no_longer_either() -> None:
    """A reply rests on what was written before it. Consumers before 3.9 ask for offsets again only if they hear that
    the coordinator is elsewhere: GroupCoordinatorService.handleOffsetFetchException."""
    scene = Groups()
    member = scene.member(session_ms=60_000)
    gather(member)
    with slow_disk(scene.node):
        other = scene.node.client()
        send_fetch(other)
        assert other.wait().error_code.value == 0, "nothing is being written"
        send_commit(scene.client, 9, member)
        send_fetch(other)
        assert member.heartbeat() == NOT_AVAILABLE
        assert other.wait().error_code.value == NOT_COORDINATOR
        assert code_of_commit(scene.client) == NOT_AVAILABLE
    assert member.heartbeat() == 0
    assert scene.committed() == 9


def test_the_first_member_of_a_group_gets_its_reply_in_time_and_may_join_again() -> None:
    scene = Groups()
    member = scene.member(version=3)
    with slow_disk(scene.node):
        member.join()
        assert member.joined() == NOT_AVAILABLE
    assert set(scene.states()) == {"g"}, "it is in the log"
    member.join()
    assert member.joined() == 0


def test_members_wait_for_what_their_leader_has_assigned_no_longer_than_for_anything() -> None:
    """Kafka: what the leader assigned was not written in time, so another round begins."""
    scene = Groups()
    one, two = scene.member(session_ms=60_000), scene.member(session_ms=60_000)
    one.join()
    two.join()
    assert (one.joined(), two.joined()) == (0, 0)
    leader, follower = (one, two) if one.leads else (two, one)
    ids, generation = {one.id, two.id}, one.generation
    follower.sync()
    scene.advance(10)
    with slow_disk(scene.node):
        began_ms = scene.node.world.now_ms()
        leader.sync()
        assert follower.synced() == NOT_AVAILABLE
        assert leader.synced() == NOT_AVAILABLE
        assert waited(scene.node, began_ms)
    assert follower.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    gather(one, two)
    assert {one.id, two.id} == ids
    assert (one.generation, two.generation) == (generation + 1, generation + 1)
    assert one.assignment != two.assignment


def test_a_write_that_fails_after_all_is_read_anew_and_nobody_is_answered_twice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Groups()
    shard = shard_of(scene)
    with slow_disk(scene.node):
        assert scene.commit(offset=7) == NOT_AVAILABLE
        write = shard.log._last
        assert write is not None
        write.settle(KafkaError("the disk is gone", ErrorCode.KAFKA_STORAGE_ERROR))
        scene.advance(10)
        assert "loading the partition again: the disk is gone" in caplog.text
        assert shard_of(scene) is not shard
        assert scene.commit(offset=8) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, (
            "nothing is answered from it yet"
        )


def test_a_marker_that_is_slow_to_commit_fails_once() -> None:
    scene = Groups()
    assert scene.commit() == 0
    scene.advance(100)
    marker = end_txn_marker(7, 0, True, 1, scene.node.world.now_ms())
    with slow_disk(scene.node):
        committed = shard_of(scene).append_marker(marker, 7, True)
        scene.advance(WAIT_MS_MAX)
        assert committed.error is not None
        assert committed.error.code is ErrorCode.REQUEST_TIMED_OUT


def test_a_transactional_id_is_busy_until_what_it_was_refused_for_is_written() -> None:
    """The producer's first change takes long. It is told in time, and what it asked for comes to be."""
    node = StillNode(settings={"transaction.state.log.num.partitions": "2"})
    node.create_topic("orders", 1)
    producer = Txn(node, "mine")
    node.world.advance(100)
    assert producer.init(once=True) is ErrorCode.NONE
    with slow_disk(node):
        began_ms = node.world.now_ms()
        assert producer.add(("orders", 0)) is NOT_AVAILABLE
        assert waited(node, began_ms)
        assert producer.add(("orders", 0)) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert describe(node, "mine").transaction_state == "Empty"
    assert describe(node, "mine").transaction_state == "Ongoing"
    assert producer.add(("orders", 0)) is ErrorCode.NONE
    assert producer.end(commit=False) is ErrorCode.NONE
