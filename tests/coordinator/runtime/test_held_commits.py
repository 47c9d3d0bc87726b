"""Commits that come in quick succession: held, decided together, and never told apart from what is decided at once."""

from typing import Any

import pytest
from tests.handlers.cluster import make_request
from tests.handlers.members import Groups, Member, ask, gather
from tests.nodes import StillClient

from penstock.base.errors import ErrorCode, KafkaError
from penstock.coordinator.groups.requests import CommittedPartition, OffsetCommit, PartitionsReply
from penstock.coordinator.runtime.group_service import HELD_PARTITIONS_MAX, GroupShard
from penstock.records import iter_batches
from penstock.wire import Api, write_request


def shard_of(scene: Groups) -> GroupShard:
    return scene.node.node.context.groups.shards.of("g")


def batches(scene: Groups) -> list[int]:
    """How many records each batch has."""
    log = shard_of(scene).log.partition.log
    data = log.read(log.log_start, 1 << 20, visible=log.log_end)
    return [sum(1 for _ in each.records()) for each in iter_batches(bytearray(data))]


def begin_gap(scene: Groups) -> None:
    """A write, and no time after it."""
    log = shard_of(scene).log
    scene.advance(100)
    assert scene.commit(partition=3) == 0
    assert log.begin_gathering(scene.node.world.now_ms())


def send(client: StillClient, member: Member | None = None, partition: int = 0, offset: int = 5) -> None:
    request = make_request(
        Api.OFFSET_COMMIT,
        9,
        group_id="g",
        generation_id_or_member_epoch=-1 if member is None else member.generation,
        member_id="" if member is None else member.id,
        topics=[
            {
                "name": "t",
                "partitions": [
                    {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
                ],
            }
        ],
    )
    client.send(Api.OFFSET_COMMIT, 9, write_request(Api.OFFSET_COMMIT, 9, request))


def code(reply: Any) -> int:
    return int(reply.topics[0].partitions[0].error_code.value)


def test_what_comes_in_a_gap_is_one_batch_at_its_end() -> None:
    scene = Groups()
    begin_gap(scene)
    before = batches(scene)
    clients = [scene.node.client() for _ in range(5)]
    for number, each in enumerate(clients):
        send(each, offset=number)
    scene.advance(0)
    assert batches(scene) == before
    assert [each.reply() for each in clients] == [None] * 5
    assert [code(each.wait()) for each in clients] == [0] * 5
    assert batches(scene) == [*before, 5]
    assert scene.committed() == 4


def test_a_read_after_a_commit_sees_it() -> None:
    scene = Groups()
    begin_gap(scene)
    send(scene.client, offset=77)
    ask(
        scene.client,
        Api.OFFSET_FETCH,
        7,
        group_id="g",
        topics=[{"name": "t", "partition_indexes": [0]}],
        require_stable=True,
    )
    assert code(scene.client.wait()) == 0
    assert scene.client.wait().topics[0].partitions[0].committed_offset == 77


def test_a_commit_before_a_member_leaves_is_good_and_one_after_it_is_not() -> None:
    scene = Groups()
    member = scene.member()
    gather(member)
    shard = shard_of(scene)
    scene.advance(100)
    assert member.commit(1) == 0
    assert shard.log.begin_gathering(scene.node.world.now_ms())
    send(member.client, member, offset=2)
    ask(
        member.client,
        Api.LEAVE_GROUP,
        5,
        group_id="g",
        members=[{"member_id": member.id, "group_instance_id": None}],
    )
    send(member.client, member, offset=3)
    assert code(member.client.wait()) == 0
    assert member.client.wait().error_code.value == 0
    assert code(member.client.wait()) == 25  # UNKNOWN_MEMBER_ID
    assert scene.committed() == 2


def test_a_group_comes_of_the_first_commit_and_the_second_is_measured_by_it() -> None:
    """One who says that it is a member of a group that is not there is told so; of one that is, that it is unknown."""
    scene = Groups()
    begin_gap(scene)
    shard = shard_of(scene)
    row = (CommittedPartition("t", 0, 5, -1, ""),)
    told: list[PartitionsReply] = []
    for request in (
        OffsetCommit("new", row, "someone", 1),
        OffsetCommit("new", row),
        OffsetCommit("new", row, "someone", 1),
    ):
        shard.handle(request).then(told.append)
    assert told == []
    scene.advance(10)
    assert [each.code for each in told] == [
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]


def test_a_gap_in_which_all_is_refused_ends_without_a_write() -> None:
    scene = Groups()
    begin_gap(scene)
    before = batches(scene)
    told: list[PartitionsReply] = []
    row = (CommittedPartition("t", 0, 5, -1, ""),)
    shard_of(scene).handle(OffsetCommit("new", row, "someone", 1)).then(told.append)
    scene.advance(10)
    assert [each.code for each in told] == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert batches(scene) == before
    assert scene.commit(offset=9) == 0
    assert scene.committed() == 9


def test_a_member_that_commits_is_alive_even_if_its_commit_is_held() -> None:
    """Its session would be over within the gap; that it was heard of is decided first."""
    scene = Groups()
    member = scene.member()
    gather(member)
    shard = shard_of(scene)
    over_ms = shard.next_deadline_ms()
    assert over_ms is not None
    scene.advance(over_ms - 3 - scene.node.world.now_ms())
    shard.handle(OffsetCommit("another", (CommittedPartition("t", 0, 5, -1, ""),)))
    scene.advance(1)
    send(member.client, member)
    assert shard.log.begin_gathering(scene.node.world.now_ms())
    assert shard.coordinator.committed("g", "t", 0) is None
    scene.advance(2)
    assert shard.coordinator.committed("g", "t", 0) is not None, (
        "before the gap's end, since a session's was due"
    )
    assert code(member.client.wait()) == 0
    assert member.heartbeat() == 0


def test_many_offsets_are_not_held_to_the_end() -> None:
    scene = Groups()
    begin_gap(scene)
    shard = shard_of(scene)
    rows = tuple(CommittedPartition("t", number, 5, -1, "") for number in range(HELD_PARTITIONS_MAX + 1))
    shard.handle(OffsetCommit("g", rows))
    assert shard.coordinator.committed("g", "t", HELD_PARTITIONS_MAX) is not None


def test_who_is_held_is_sent_away_when_the_coordinator_goes() -> None:
    scene = Groups()
    begin_gap(scene)
    shard = shard_of(scene)
    told: list[PartitionsReply] = []
    shard.handle(OffsetCommit("g", (CommittedPartition("t", 0, 5, -1, ""),))).then(told.append)
    shards = scene.node.node.context.groups.shards
    shards.reload(shards.number_of("g"))
    assert [each.code for each in told] == [ErrorCode.NOT_COORDINATOR]
    scene.advance(10)
    assert scene.committed() == -1


def test_who_is_held_while_what_was_written_is_lost_is_asked_to_come_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Groups()
    begin_gap(scene)
    shard = shard_of(scene)
    told: list[PartitionsReply] = []
    shard.handle(OffsetCommit("g", (CommittedPartition("t", 0, 5, -1, ""),))).then(told.append)
    shard.lost(KafkaError("the disk is gone", ErrorCode.KAFKA_STORAGE_ERROR))
    shard.decide_held()
    assert [each.code for each in told] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert "loading the partition again" in caplog.text
    scene.advance(10)
    assert scene.commit(offset=6) == 0


def test_offsets_of_a_topic_that_is_deleted_in_the_gap_go_with_it() -> None:
    scene = Groups()
    begin_gap(scene)
    shard = shard_of(scene)
    shard.handle(OffsetCommit("g", (CommittedPartition("t", 0, 5, -1, ""),)))
    shard.forget_partitions((("t", 0),))
    scene.advance(10)
    assert scene.committed() == -1


def written_at(scene: Groups, come_at: list[int], until: int = 40) -> list[int]:
    """When the log grows, for commits that come so many milliseconds after a write."""
    shard = shard_of(scene)
    scene.advance(100)
    assert scene.commit(partition=3) == 0
    began_ms = shard.log._last_ms
    scene.advance(began_ms + 1 - scene.node.world.now_ms())
    ends: dict[int, int] = {}
    for now in range(1, until):
        assert scene.node.world.now_ms() - began_ms == now
        for _ in range(come_at.count(now)):
            shard.handle(OffsetCommit("g", (CommittedPartition("t", 0, now, -1, ""),)))
        scene.advance(0)
        ends.setdefault(shard.log.partition.log.log_end, now)
        scene.advance(1)
    return sorted(ends.values())[1:]


def test_a_gap_ends_on_time_where_few_come() -> None:
    assert written_at(Groups(), [1, 2, 6, 7, 11]) == [5, 10, 15]


def test_a_linger_window_is_extended_to_the_next_append_if_appends_are_frequent() -> None:
    """The second window would end at 11; the commit at 10 ends it, and its timer does not run."""
    scene = Groups()
    assert written_at(scene, list(range(1, 26))) == [5, 10, 15, 20, 25]
    assert shard_of(scene).log._windows_on_time == 0, "every extension of a window gained an append"


def test_after_waiting_in_vain_gaps_end_on_time_for_a_while() -> None:
    """Where all wait to be answered before they commit again, nobody comes at the end of a gap."""
    assert written_at(Groups(), [1, 1, 1, 6, 6, 6, 12, 12, 12, 17, 17, 17]) == [5, 11, 16, 21]


def test_large_commits_in_one_gap_are_more_than_one_batch() -> None:
    """No batch is to become larger than the topic takes, whatever the text that is committed along."""
    scene = Groups()
    begin_gap(scene)
    shard = shard_of(scene)
    before = batches(scene)
    told: list[PartitionsReply] = []
    for number in range(100):
        row = CommittedPartition("t", number, number, -1, "x" * 4000)
        shard.handle(OffsetCommit("g", (row,))).then(told.append)
    scene.advance(20)
    assert [each.partitions[0].code for each in told] == [ErrorCode.NONE] * 100
    assert sum(batches(scene)) == sum(before) + 100
    assert len(batches(scene)) > len(before) + 4
    offsets = [shard.coordinator.committed("g", "t", number) for number in range(100)]
    assert [each and each.offset for each in offsets] == list(range(100))
    log = shard.log.partition.log
    assert [each and each.record_offset for each in offsets] == list(range(log.log_end - 100, log.log_end))
