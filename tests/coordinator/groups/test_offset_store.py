"""Committed offsets: who may commit, what is told, transactions, and what expires when."""

from dataclasses import replace
from typing import Any

import pytest
from tests.coordinator.groups.world import Desk, subscription, value

from penstock.base.errors import ErrorCode
from penstock.coordinator.groups.requests import (
    CommittedPartition,
    DeleteGroups,
    DescribeGroups,
    FetchedOffset,
    ForgetPartitions,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    PartitionResult,
    TxnOffsetCommit,
    WantedOffset,
)
from penstock.coordinator.groups.schemas import OffsetCommitValue, decode
from penstock.coordinator.groups.settings import GroupSettings

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS


def commit(desk: Desk, offset: int, group: str = "g", topic: str = "orders", **said: Any) -> Any:
    partition = CommittedPartition(topic, 0, offset, 3, said.pop("metadata", "m"))
    return desk.ask(OffsetCommit(group, (partition,), **said))


def in_transaction(desk: Desk, offset: int, producer_id: int = 7, group: str = "g", **said: Any) -> Any:
    partitions = (CommittedPartition("orders", 0, offset),)
    return desk.ask(TxnOffsetCommit(group, partitions, producer_id, 0, **said))


def fetched(desk: Desk, group: str = "g", topic: str = "orders", stable: bool = False) -> FetchedOffset:
    reply = desk.ask(OffsetFetch(group, (WantedOffset(topic, 0),), require_stable=stable))
    assert reply.code is ErrorCode.NONE
    found: FetchedOffset = reply.offsets[0]
    return found


def test_a_simple_consumer_commits_without_joining() -> None:
    desk = Desk()
    assert commit(desk, 5).partitions == (PartitionResult("orders", 0),)
    assert fetched(desk) == FetchedOffset("orders", 0, 5, 3, "m")
    (listed,) = desk.ask(ListGroups()).groups
    assert (listed.group, listed.protocol_type, listed.state) == ("g", "", "Empty")


def test_the_empty_group_name_may_commit_too() -> None:
    """Kafka's old consumers had none."""
    desk = Desk()
    assert commit(desk, 5, "").code is ErrorCode.NONE
    assert fetched(desk, "").offset == 5


def test_an_unknown_group_has_no_offsets_which_is_no_error() -> None:
    desk = Desk()
    assert fetched(desk, "no") == FetchedOffset("orders", 0, -1, -1, "")
    assert desk.ask(OffsetFetch("no", None)).offsets == ()


def test_all_offsets_of_a_group_can_be_asked_for() -> None:
    desk = Desk()
    commit(desk, 5)
    commit(desk, 6, topic="more")
    assert {each.topic: each.offset for each in desk.ask(OffsetFetch("g", None)).offsets} == {
        "orders": 5,
        "more": 6,
    }


def test_a_commit_is_written_as_kafka_writes_it() -> None:
    desk = Desk()
    desk.ask(OffsetCommit("g", (CommittedPartition("orders", 2, 9, 4, None, b"t" * 16),)))
    record = decode(desk.log[0].key, desk.log[0].value)
    assert record is not None
    assert record.value == OffsetCommitValue(
        version=4, offset=9, leader_epoch=4, metadata="", commit_timestamp=desk.now_ms, topic_id=b"t" * 16
    )


def test_a_commit_with_a_retention_of_its_own_is_written_in_version_1() -> None:
    desk = Desk()
    commit(desk, 9, retention_ms=1_000)
    record = decode(desk.log[0].key, desk.log[0].value)
    assert record is not None
    assert isinstance(record.value, OffsetCommitValue)
    assert (record.value.version, record.value.expire_timestamp) == (1, desk.now_ms + 1_000)


def test_metadata_that_is_too_large_is_refused_for_its_partition_alone() -> None:
    desk = Desk(GroupSettings(offset_metadata_bytes_max=4))
    reply = desk.ask(
        OffsetCommit(
            "g", (CommittedPartition("a", 0, 1, -1, "12345"), CommittedPartition("b", 0, 2, -1, "1234"))
        )
    )
    assert [each.code for each in reply.partitions] == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
    assert len(desk.log) == 1


def test_offsets_that_were_committed_for_another_topic_of_the_name_are_left_out() -> None:
    """KIP-848's OffsetFetch 10: a topic that was deleted and made again begins without offsets."""
    desk = Desk()
    desk.ask(OffsetCommit("g", (CommittedPartition("orders", 0, 9, topic_id=b"a" * 16),)))

    def offset(topic_id: bytes) -> int:
        return desk.ask(OffsetFetch("g", (WantedOffset("orders", 0, topic_id),))).offsets[0].offset  # type: ignore[no-any-return]

    assert offset(b"a" * 16) == 9
    assert offset(b"b" * 16) == -1
    assert offset(bytes(16)) == 9


def test_members_commit_in_their_generation() -> None:
    desk = Desk()
    (one,) = desk.stable({})
    me = {"member_id": one.member_id, "generation": one.generation}
    assert commit(desk, 5, **me).code is ErrorCode.NONE
    assert commit(desk, 6, **me | {"generation": 9}).code is ErrorCode.ILLEGAL_GENERATION
    assert commit(desk, 6, **me | {"member_id": "lost"}).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(desk, 6).code is ErrorCode.UNKNOWN_MEMBER_ID, "a stranger, while there are members"
    assert commit(desk, 6, **me, instance_id="i").code is ErrorCode.UNKNOWN_MEMBER_ID
    assert fetched(desk).offset == 5


def test_a_static_member_that_was_replaced_cannot_commit() -> None:
    desk = Desk()
    (one,) = desk.stable({"instance_id": "i"})
    value(desk.join(instance_id="i"))
    reply = commit(desk, 5, member_id=one.member_id, generation=one.generation, instance_id="i")
    assert reply.code is ErrorCode.FENCED_INSTANCE_ID


def test_a_member_of_a_group_that_is_not_there_cannot_commit() -> None:
    desk = Desk()
    assert commit(desk, 5, member_id="m", generation=1).code is ErrorCode.GROUP_ID_NOT_FOUND
    reply = commit(desk, 5, member_id="m", generation=1, knows_epochs=False)
    assert reply.code is ErrorCode.ILLEGAL_GENERATION


def test_commits_are_accepted_while_members_join_and_refused_while_they_wait_for_the_leader() -> None:
    """What was processed before the round can still be committed in it; then the partitions may be another's."""
    desk = Desk()
    one, two = desk.stable({}, {})
    leader, other = (one, two) if one.leader == one.member_id else (two, one)
    waiting = desk.join(member_id=leader.member_id)
    assert commit(desk, 5, member_id=other.member_id, generation=other.generation).code is ErrorCode.NONE
    value(desk.join(member_id=other.member_id))
    reply = commit(desk, 6, member_id=other.member_id, generation=value(waiting).generation)
    assert reply.code is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_keeps_the_session() -> None:
    desk = Desk()
    (one,) = desk.stable({"session_timeout_ms": 6_000})
    for offset in range(5):
        desk.advance(5_000)
        assert commit(desk, offset, member_id=one.member_id, generation=one.generation).code is ErrorCode.NONE
    assert desk.beat(one) is ErrorCode.NONE


def test_a_commit_that_could_not_be_written_does_not_count() -> None:
    desk = Desk()
    commit(desk, 5)
    desk.refuses = ErrorCode.KAFKA_STORAGE_ERROR
    assert commit(desk, 6).code is ErrorCode.NOT_COORDINATOR
    assert fetched(desk).offset == 5


def test_offsets_survive_a_reload() -> None:
    desk = Desk()
    commit(desk, 5)
    commit(desk, 7)
    commit(desk, 3)
    desk.reload()
    assert fetched(desk).offset == 3, "an offset may go back when its consumer says so"
    assert desk.coordinator.committed("g", "orders", 0) is not None
    assert desk.coordinator.committed("g", "orders", 1) is None


# Transactions.


def test_an_offset_committed_in_a_transaction_counts_from_its_marker() -> None:
    """KIP-98."""
    desk = Desk()
    commit(desk, 5)
    assert in_transaction(desk, 8).code is ErrorCode.NONE
    assert fetched(desk).offset == 5
    assert desk.log[-1].producer_id == 7
    desk.marker(7, committed=True)
    assert fetched(desk).offset == 8


def test_an_aborted_transaction_leaves_the_offset_as_it_was() -> None:
    desk = Desk()
    commit(desk, 5)
    in_transaction(desk, 8)
    desk.marker(7, committed=False)
    assert fetched(desk).offset == 5


def test_a_fetch_of_stable_offsets_gets_an_error_while_transactions_are_open() -> None:
    """KIP-447."""
    desk = Desk()
    commit(desk, 5)
    in_transaction(desk, 8)
    assert fetched(desk, stable=True).code is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert fetched(desk, stable=True).offset == -1
    assert fetched(desk, topic="more", stable=True).code is ErrorCode.NONE
    desk.marker(7, committed=False)
    assert fetched(desk, stable=True) == fetched(desk)


def test_of_a_pending_and_an_ordinary_commit_the_later_in_the_log_wins() -> None:
    """KAFKA-5291's case: compaction would keep the later one."""
    desk = Desk()
    in_transaction(desk, 8)
    commit(desk, 9)
    desk.marker(7, committed=True)
    assert fetched(desk).offset == 9
    desk.reload()
    assert fetched(desk).offset == 9


def test_open_transactions_survive_a_reload() -> None:
    desk = Desk()
    in_transaction(desk, 8)
    desk.reload()
    assert fetched(desk, stable=True).code is ErrorCode.UNSTABLE_OFFSET_COMMIT
    desk.marker(7, committed=True)
    assert fetched(desk).offset == 8


def test_transactions_of_several_producers_do_not_mix() -> None:
    desk = Desk()
    in_transaction(desk, 8, producer_id=7)
    in_transaction(desk, 9, producer_id=8)
    desk.marker(8, committed=True)
    assert fetched(desk, stable=True).code is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert fetched(desk).offset == 9
    desk.marker(7, committed=False)
    assert fetched(desk, stable=True).offset == 9
    desk.marker(99, committed=True)


def test_a_transactional_commit_may_name_its_member_and_then_must_be_right() -> None:
    """KIP-447: producers that say the group's generation are fenced with it; those before it say nothing."""
    desk = Desk()
    (one,) = desk.stable({})
    assert in_transaction(desk, 1).code is ErrorCode.NONE
    me = {"member_id": one.member_id, "generation": one.generation}
    assert in_transaction(desk, 2, **me).code is ErrorCode.NONE
    assert in_transaction(desk, 2, **me | {"generation": 7}).code is ErrorCode.ILLEGAL_GENERATION
    assert in_transaction(desk, 2, **me | {"member_id": "x"}).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert in_transaction(desk, 2, group="no", generation=1).code is ErrorCode.ILLEGAL_GENERATION
    assert in_transaction(desk, 2, group="").code is ErrorCode.INVALID_GROUP_ID


# Deleted.


def test_offsets_of_topics_without_subscribers_can_be_deleted() -> None:
    """KIP-496."""
    desk = Desk()
    (one,) = desk.stable({"protocols": (("range", subscription("orders")),)})
    me = {"member_id": one.member_id, "generation": one.generation}
    commit(desk, 5, **me)
    commit(desk, 6, topic="old", **me)
    reply = desk.ask(OffsetDelete("g", (("orders", 0), ("old", 0), ("none", 0))))
    assert [each.code for each in reply.partitions] == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    assert fetched(desk).offset == 5
    assert fetched(desk, topic="old").offset == -1
    desk.reload()
    assert fetched(desk, topic="old").offset == -1


def test_offset_delete_is_checked() -> None:
    desk = Desk()
    assert desk.ask(OffsetDelete("no", ())).code is ErrorCode.GROUP_ID_NOT_FOUND
    assert desk.ask(OffsetDelete("", ())).code is ErrorCode.INVALID_GROUP_ID
    desk.stable({"protocol_type": "connect", "protocols": (("x", b"\1"),)})
    assert desk.ask(OffsetDelete("g", (("a", 0),))).code is ErrorCode.NON_EMPTY_GROUP


def test_a_deleted_offset_takes_what_transactions_hold_with_it() -> None:
    desk = Desk()
    in_transaction(desk, 8)
    desk.ask(OffsetDelete("g", (("orders", 0),)))
    desk.marker(7, committed=True)
    assert fetched(desk, stable=True) == FetchedOffset("orders", 0)


def test_an_empty_group_can_be_deleted_and_its_offsets_go_with_it() -> None:
    """KIP-229."""
    desk = Desk()
    (one,) = desk.stable({})
    commit(desk, 5, member_id=one.member_id, generation=one.generation)
    reply = desk.ask(DeleteGroups(("g", "no")))
    assert [each.code for each in reply.groups] == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
    desk.ask(LeaveGroup("g", (LeavingMember(one.member_id),)))
    assert [each.code for each in desk.ask(DeleteGroups(("g",))).groups] == [ErrorCode.NONE]
    for _ in range(2):
        assert desk.ask(ListGroups()).groups == ()
        assert fetched(desk).offset == -1
        assert desk.ask(DescribeGroups(("g",))).groups[0].state == "Dead"
        desk.reload()
    assert sum(each.value is None for each in desk.log) == 2


def test_offsets_of_deleted_partitions_go_from_every_group() -> None:
    desk = Desk()
    commit(desk, 5)
    commit(desk, 6, "h")
    commit(desk, 7, "h", topic="more")
    in_transaction(desk, 8, group="i")
    desk.ask(ForgetPartitions((("orders", 0), ("orders", 1))))
    assert [fetched(desk, group).offset for group in "ghi"] == [-1, -1, -1]
    assert fetched(desk, "h", "more").offset == 7
    assert fetched(desk, "i", stable=True).code is ErrorCode.NONE


# Expired.


def test_offsets_of_a_simple_group_expire_after_their_commit_and_the_group_with_the_last() -> None:
    """KIP-211."""
    desk = Desk()
    commit(desk, 5)
    desk.advance(3 * DAY_MS)
    commit(desk, 6, topic="more")
    desk.advance(4 * DAY_MS)
    assert fetched(desk).offset == -1
    assert fetched(desk, topic="more").offset == 6
    desk.advance(3 * DAY_MS)
    assert desk.ask(ListGroups()).groups == ()
    desk.reload()
    assert desk.ask(ListGroups()).groups == ()


def test_offsets_of_an_empty_group_expire_after_it_became_empty() -> None:
    desk = Desk()
    (one,) = desk.stable({"session_timeout_ms": 1_800_000})
    commit(desk, 5, member_id=one.member_id, generation=one.generation)
    for _ in range(10 * 48):
        desk.advance(DAY_MS // 50)
        desk.beat(one)
    assert fetched(desk).offset == 5, "a live group keeps what it is subscribed to"
    desk.ask(LeaveGroup("g", (LeavingMember(one.member_id),)))
    desk.advance(6 * DAY_MS)
    desk.reload()
    desk.advance(DAY_MS - 600_000)
    assert fetched(desk).offset == 5
    desk.advance(1_200_000)
    assert fetched(desk).offset == -1
    assert desk.ask(ListGroups()).groups == ()


def test_a_live_group_loses_offsets_of_topics_that_it_is_not_subscribed_to() -> None:
    desk = Desk(replace(GroupSettings(initial_rebalance_delay_ms=0), offsets_retention_ms=3_600_000))
    (one,) = desk.stable({"session_timeout_ms": 1_800_000})
    me = {"member_id": one.member_id, "generation": one.generation}
    commit(desk, 5, **me)
    commit(desk, 6, topic="old", **me)
    for _ in range(5):
        desk.advance(1_000_000)
        desk.beat(one)
    assert fetched(desk).offset == 5
    assert fetched(desk, topic="old").offset == -1


def test_a_group_whose_subscriptions_cannot_be_read_loses_nothing_while_it_lives() -> None:
    desk = Desk(replace(GroupSettings(initial_rebalance_delay_ms=0), offsets_retention_ms=3_600_000))
    (one,) = desk.stable({"session_timeout_ms": 1_800_000, "protocols": (("range", b"?"),)})
    commit(desk, 5, member_id=one.member_id, generation=one.generation)
    for _ in range(8):
        desk.advance(1_000_000)
        assert desk.beat(one) is ErrorCode.NONE
    assert fetched(desk).offset == 5


def test_a_retention_that_the_client_named_counts_instead() -> None:
    desk = Desk()
    commit(desk, 5, retention_ms=DAY_MS)
    commit(desk, 6, topic="more")
    desk.advance(DAY_MS + 600_000)
    assert fetched(desk).offset == -1
    assert fetched(desk, topic="more").offset == 6


def test_an_offset_that_a_transaction_is_about_to_move_does_not_expire() -> None:
    desk = Desk()
    commit(desk, 5)
    in_transaction(desk, 8)
    desk.advance(2 * WEEK_MS)
    assert fetched(desk).offset == 5
    desk.marker(7, committed=False)
    desk.advance(600_000)
    assert fetched(desk).offset == -1


def test_a_group_without_joins_is_deleted_at_the_next_check() -> None:
    desk = Desk()
    desk.join()
    desk.advance(1_200_000)
    assert desk.ask(ListGroups()).groups == ()
    assert desk.log[-1].value is None


@pytest.mark.parametrize("states", [frozenset({"stable"}), frozenset({"empty"}), frozenset()])
def test_groups_are_listed_by_state(states: frozenset[str]) -> None:
    """KIP-518."""
    desk = Desk()
    desk.stable({}, group="live")
    commit(desk, 5, "simple")
    found = {each.group for each in desk.ask(ListGroups(states)).groups}
    assert found == {frozenset({"stable"}): {"live"}, frozenset({"empty"}): {"simple"}}.get(
        states, {"live", "simple"}
    )


def test_groups_are_listed_by_type() -> None:
    """KIP-848."""
    desk = Desk()
    commit(desk, 5)
    assert [each.type for each in desk.ask(ListGroups(types=frozenset({"classic"}))).groups] == ["classic"]
    assert desk.ask(ListGroups(types=frozenset({"consumer"}))).groups == ()


def test_a_stable_group_is_described_with_what_its_members_have() -> None:
    desk = Desk()
    one, two = desk.stable({}, {"instance_id": "i", "client_id": "other"})
    described = desk.ask(DescribeGroups(("g",))).groups[0]
    assert (described.state, described.protocol_type, described.protocol) == ("Stable", "consumer", "range")
    assert [each.member_id for each in described.members] == [one.member_id, two.member_id]
    assert [each.assignment for each in described.members] == [b"part 0", b"part 1"]
    assert described.members[1].instance_id == "i"
    assert described.members[1].client_id == "other"
    desk.join(needs_member_id=False)
    described = desk.ask(DescribeGroups(("g",))).groups[0]
    assert (described.state, described.protocol) == ("PreparingRebalance", "")
    assert {each.metadata for each in described.members} == {b""}
    assert [each.assignment for each in described.members] == [b"part 0", b"part 1", b""], (
        "as Kafka 4.3 tells it: the old members read on until they have joined again"
    )


def test_a_group_that_is_not_there_is_described_as_dead() -> None:
    """KIP-1043: since version 6 it is an error, too."""
    described = Desk().ask(DescribeGroups(("no",))).groups[0]
    assert (described.code, described.state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert described.message == "Group no not found."


def test_a_group_with_a_pending_join_is_not_deleted() -> None:
    desk = Desk()
    desk.advance(599_000)
    first = desk.join()
    desk.advance(1_000)
    assert value(desk.join(member_id=first.member_id)).code is ErrorCode.NONE
