"""KIP-848: the consumer protocol, from its first heartbeat to its last."""

from dataclasses import replace
from typing import Any

import pytest
from tests.coordinator.groups.clients import Consumer, settle
from tests.coordinator.groups.world import Desk, topics

from penstock.base.errors import ErrorCode
from penstock.coordinator.groups.requests import (
    CommittedPartition,
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    DeleteGroups,
    ListGroups,
    OffsetCommit,
    OffsetFetch,
    TxnOffsetCommit,
    WantedOffset,
)
from penstock.coordinator.groups.schemas import decode
from penstock.coordinator.groups.settings import GroupSettings


def kinds(desk: Desk, since: int = 0) -> list[str]:
    found = []
    for each in desk.log[since:]:
        record = decode(each.key, each.value)
        assert record is not None
        found.append(
            type(record.key).__name__.removesuffix("Key") + ("" if record.value is not None else " gone")
        )
    return found


def described(desk: Desk, group: str = "g") -> Any:
    return desk.ask(ConsumerGroupDescribe((group,))).groups[0]


def test_the_first_member_gets_everything_at_once() -> None:
    desk = Desk()
    one = Consumer(desk, "one")
    reply = one.join()
    assert (reply.code, reply.member_id, reply.member_epoch) == (ErrorCode.NONE, "one", 2)
    assert reply.heartbeat_interval_ms == 5_000
    assert one.has() == [0, 1, 2, 3]
    assert kinds(desk) == [
        "ConsumerGroupMemberMetadata",
        "ConsumerGroupMetadata",
        "ConsumerGroupTargetAssignmentMember",
        "ConsumerGroupTargetAssignmentMetadata",
        "ConsumerGroupCurrentMemberAssignment",
    ], "as Kafka writes them"


def test_a_heartbeat_that_changes_nothing_writes_nothing() -> None:
    desk = Desk()
    one = Consumer(desk, "one")
    one.join()
    before = len(desk.log)
    reply = one.beat()
    assert reply.assignment is None
    assert len(desk.log) == before


def test_a_full_heartbeat_gets_the_assignment_again() -> None:
    desk = Desk()
    one = Consumer(desk, "one")
    one.join()
    reply = one.beat(full=True)
    assert reply.assignment is not None
    assert reply.member_epoch == one.epoch


def test_a_partition_is_granted_only_after_its_owner_gave_it_up() -> None:
    desk = Desk()
    one, two = Consumer(desk, "one"), Consumer(desk, "two")
    one.join()
    one.clings = True
    two.join()
    assert two.has() == []
    assert two.epoch == 3
    reply = one.beat(owned=tuple(one.owned.items()))
    assert reply.member_epoch == 2, "it stays in its epoch until it has given up"
    assert reply.assignment is not None
    assert sum(len(each) for _, each in reply.assignment) == 2
    two.beat()
    assert two.has() == [], "not given up yet"
    assert described(desk).state == "Reconciling"
    one.clings = False
    one.beat()
    assert one.beat().member_epoch == 3
    two.beat()
    assert sorted(one.has() + two.has()) == [0, 1, 2, 3]
    assert described(desk).state == "Stable"


def test_a_member_is_described_with_what_it_has_not_given_up_yet() -> None:
    """As Kafka 4.3 tells it: who asks who reads a partition is told who does."""
    desk = Desk()
    one, two = Consumer(desk, "one"), Consumer(desk, "two")
    one.join()
    two.join()
    one.clings = True
    one.beat()
    first, second = described(desk).members
    assert [each.partitions for each in first.assignment] == [(0, 1, 2, 3)]
    assert [len(each.partitions) for each in first.target] == [2]
    assert (second.assignment, [len(each.partitions) for each in second.target]) == ((), [2])
    one.clings = False
    settle(one, two)
    first, second = described(desk).members
    assert (first.assignment, second.assignment) == (first.target, second.target)


def test_a_member_that_does_not_give_up_in_time_is_out() -> None:
    desk = Desk()
    one, two = Consumer(desk, "one", rebalance_timeout_ms=20_000), Consumer(desk, "two")
    one.join()
    two.join()
    one.clings = True
    for _ in range(4):
        one.beat()
        two.beat()
        desk.advance(5_000)
    assert one.beat().code is ErrorCode.UNKNOWN_MEMBER_ID
    settle(two)
    assert two.has() == [0, 1, 2, 3]


def test_a_silent_member_is_out_after_the_session_timeout() -> None:
    desk = Desk()
    one, two = Consumer(desk, "one"), Consumer(desk, "two")
    one.join()
    two.join()
    settle(one, two)
    for _ in range(9):
        desk.advance(5_000)
        assert two.beat().code is ErrorCode.NONE
    assert one.beat().code is ErrorCode.UNKNOWN_MEMBER_ID
    settle(two)
    assert two.has() == [0, 1, 2, 3]


def test_who_leaves_frees_what_it_had() -> None:
    desk = Desk()
    one, two = Consumer(desk, "one"), Consumer(desk, "two")
    one.join()
    two.join()
    settle(one, two)
    before = len(desk.log)
    reply = one.leave()
    assert (reply.member_epoch, reply.assignment) == (-1, None)
    assert kinds(desk, before) == [
        "ConsumerGroupCurrentMemberAssignment gone",
        "ConsumerGroupTargetAssignmentMember gone",
        "ConsumerGroupMemberMetadata gone",
        "ConsumerGroupMetadata",
    ]
    settle(two)
    assert two.has() == [0, 1, 2, 3]
    two.leave()
    assert described(desk).state == "Empty"
    desk.reload()
    assert described(desk).state == "Empty"


def test_epochs_fence() -> None:
    desk = Desk()
    one = Consumer(desk, "one")
    one.join()
    one.epoch = 9
    assert one.beat().code is ErrorCode.FENCED_MEMBER_EPOCH
    one.epoch = 1
    assert one.beat().code is ErrorCode.FENCED_MEMBER_EPOCH
    assert one.join().code is ErrorCode.NONE, "a fenced member joins again"
    assert one.has() == [0, 1, 2, 3]


def test_a_member_whose_answer_was_lost_may_come_with_the_epoch_before() -> None:
    desk = Desk()
    one, two = Consumer(desk, "one"), Consumer(desk, "two")
    one.join()
    two.join()
    settle(one, two)
    desk.change_topics(topics(2, orders=6))
    old = one.epoch
    settle(one, two)
    assert one.epoch > old
    one.epoch = old
    assert one.beat(owned=()).code is ErrorCode.NONE
    assert one.epoch > old
    one.epoch = old
    everything = tuple((topic.topic_id, tuple(range(6))) for topic in desk.known.by_name.values())
    assert one.beat(owned=everything).code is ErrorCode.FENCED_MEMBER_EPOCH, "it has what it was never given"
    one.epoch = old
    assert one.beat(owned=None).code is ErrorCode.FENCED_MEMBER_EPOCH, "and this one does not say"


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"group": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_names": None}, ErrorCode.INVALID_REQUEST),
        ({"owned": None}, ErrorCode.INVALID_REQUEST),
        ({"owned": ((b"t" * 16, (0,)),)}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": 5}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ],
)
def test_bad_heartbeats_are_refused_with_kafkas_codes(said: dict[str, Any], code: ErrorCode) -> None:
    fields: dict[str, Any] = {
        "group": "g",
        "member_id": "m",
        "member_epoch": 0,
        "client_id": "c",
        "client_host": "/h",
        "rebalance_timeout_ms": 1_000,
        "subscribed_names": ("orders",),
        "owned": (),
    }
    desk = Desk()
    reply = desk.ask(ConsumerGroupHeartbeat(**(fields | said)))
    assert reply.code is code
    assert reply.message
    assert desk.log == []


def test_an_unknown_member_is_unknown() -> None:
    desk = Desk()
    Consumer(desk, "one").join()
    stranger = Consumer(desk, "two", epoch=2)
    assert stranger.beat().code is ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave().code is ErrorCode.UNKNOWN_MEMBER_ID


def test_in_version_0_the_coordinator_names_the_member() -> None:
    """KIP-1082 made clients name themselves, from version 1."""
    desk = Desk()
    reply = Consumer(desk, "").beat(needs_member_id=True)
    assert reply.code is ErrorCode.NONE
    assert reply.member_id


def test_a_full_group_takes_no_more_members() -> None:
    desk = Desk(GroupSettings(consumer_size_max=1))
    one = Consumer(desk, "one")
    one.join()
    assert Consumer(desk, "two").join().code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert one.join().code is ErrorCode.NONE


def test_members_are_spread_evenly_and_keep_what_they_have() -> None:
    desk = Desk(known=topics(orders=9))
    members = [Consumer(desk, f"m{n}") for n in range(3)]
    for member in members:
        member.join()
    settle(*members)
    assert [len(member.has()) for member in members] == [3, 3, 3]
    before = [set(member.has()) for member in members]
    late = Consumer(desk, "m3")
    late.join()
    settle(*members, late)
    assert sorted(len(member.has()) for member in (*members, late)) == [2, 2, 2, 3]
    assert all(set(member.has()) <= had for member, had in zip(members, before, strict=True))


def test_a_group_follows_its_topics() -> None:
    desk = Desk()
    one, two = Consumer(desk, "one", ("orders", "later")), Consumer(desk, "two", ("orders", "later"))
    one.join()
    two.join()
    settle(one, two)
    desk.change_topics(topics(2, orders=6, later=2))
    settle(one, two)
    assert sorted(one.has() + two.has()) == [0, 1, 2, 3, 4, 5]
    assert sorted(one.has("later") + two.has("later")) == [0, 1]
    desk.change_topics(topics(3, later=2))
    settle(one, two)
    assert len(one.owned) + len(two.owned) <= 2
    assert described(desk).state == "Stable"


def test_metadata_without_effect_on_members_writes_nothing() -> None:
    desk = Desk()
    one = Consumer(desk, "one")
    one.join()
    before = len(desk.log)
    desk.change_topics(topics(2, orders=4, other=1))
    one.beat()
    assert len(desk.log) == before


def test_a_member_that_changes_its_subscription_gives_up_what_it_no_longer_wants() -> None:
    desk = Desk(known=topics(orders=2, more=2))
    one = Consumer(desk, "one", ("orders", "more"))
    one.join()
    assert one.has("more") == [0, 1]
    one.topics = ("orders",)
    one.beat(full=True)
    settle(one)
    assert one.has("more") == []
    assert one.has() == [0, 1]
    one.topics = ()
    one.beat(full=True)
    settle(one)
    assert one.owned == {}


def test_members_with_different_subscriptions_get_only_what_they_want() -> None:
    desk = Desk(known=topics(a=4, b=4))
    one, two = Consumer(desk, "one", ("a", "b")), Consumer(desk, "two", ("b",))
    one.join()
    two.join()
    settle(one, two)
    assert one.has("a") == [0, 1, 2, 3]
    assert two.has("b") == [0, 1, 2, 3]


def test_the_assignor_that_most_members_name_is_used() -> None:
    desk = Desk(known=topics(a=3, b=3))
    members = [
        Consumer(desk, f"m{n}", ("a", "b"), assignor=name)
        for n, name in enumerate(("range", "range", "uniform"))
    ]
    for member in members:
        member.join()
    settle(*members)
    assert [member.has("a") for member in members] == [[0], [1], [2]]
    assert [member.has("b") for member in members] == [[0], [1], [2]], "the same partitions of every topic"
    assert described(desk).assignor == "range"


# Static members.


def test_a_static_member_that_went_for_a_while_gets_its_partitions_back() -> None:
    """KIP-848: epoch -2 keeps the place of the instance while its session lasts."""
    desk = Desk()
    one, two = Consumer(desk, "one", instance_id="a"), Consumer(desk, "two", instance_id="b")
    one.join()
    two.join()
    settle(one, two)
    had, epoch = one.has(), two.epoch
    assert one.leave(-2).member_epoch == -2
    two.beat()
    assert two.epoch == epoch
    back = Consumer(desk, "other", instance_id="a")
    back.join()
    assert back.has() == had
    two.beat()
    assert two.epoch == epoch, "nobody noticed"
    one.epoch = epoch
    assert one.beat().code is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_does_not_come_back_is_out_with_its_session() -> None:
    desk = Desk()
    one, two = Consumer(desk, "one", instance_id="a"), Consumer(desk, "two", instance_id="b")
    one.join()
    two.join()
    settle(one, two)
    one.leave(-2)
    for _ in range(9):
        desk.advance(5_000)
        two.beat()
    settle(two)
    assert two.has() == [0, 1, 2, 3]


def test_an_instance_that_has_not_left_cannot_be_taken_over() -> None:
    desk = Desk()
    Consumer(desk, "one", instance_id="a").join()
    assert Consumer(desk, "two", instance_id="a").join().code is ErrorCode.UNRELEASED_INSTANCE_ID
    assert Consumer(desk, "two", instance_id="b", epoch=2).beat().code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_leaves_for_good_with_epoch_minus_1() -> None:
    desk = Desk()
    one = Consumer(desk, "one", instance_id="a")
    one.join()
    one.leave()
    assert Consumer(desk, "two", instance_id="a").join().code is ErrorCode.NONE


# Regular expressions.


def test_a_subscription_by_expression_follows_the_topics_that_match() -> None:
    desk = Desk(known=topics(a1=1, a2=2, b=1))
    one = Consumer(desk, "one", None, regex="a\\d")
    one.join()
    assert (one.has("a1"), one.has("a2")) == ([0], [0, 1])
    assert "ConsumerGroupRegularExpression" in kinds(desk)
    desk.change_topics(topics(2, a1=1, a2=2, a3=1, b=1))
    desk.advance(10_000)
    settle(one)
    assert one.has("a3") == [0]
    assert b"b".ljust(16, b"\1") not in one.owned


def test_expressions_are_not_matched_again_with_every_change() -> None:
    desk = Desk(known=topics(a1=1))
    one = Consumer(desk, "one", None, regex="a.*")
    one.join()
    desk.advance(9_999)
    desk.change_topics(topics(2, a1=1, a2=1))
    one.beat()
    assert one.has("a2") == []
    desk.advance(1)
    settle(one)
    assert one.has("a2") == [0]


def test_an_expression_without_subscribers_is_deleted() -> None:
    desk = Desk(known=topics(a=1, b=1))
    one, two = Consumer(desk, "one", None, regex="a"), Consumer(desk, "two", None, regex="b")
    one.join()
    two.join()
    settle(one, two)
    before = len(desk.log)
    two.regex = "a"
    two.beat(full=True)
    assert "ConsumerGroupRegularExpression gone" in kinds(desk, before)
    before = len(desk.log)
    two.leave()
    assert "ConsumerGroupRegularExpression gone" not in kinds(desk, before)
    one.leave()
    assert "ConsumerGroupRegularExpression gone" in kinds(desk, before)


def test_names_and_expressions_go_together() -> None:
    desk = Desk(known=topics(a=1, b=1, c=1))
    one = Consumer(desk, "one", ("c",), regex="a")
    one.join()
    assert (one.has("a"), one.has("b"), one.has("c")) == ([0], [], [0])
    one.regex = ""
    one.beat(full=True)
    settle(one)
    assert (one.has("a"), one.has("c")) == ([], [0])


# Offsets.


def commit(desk: Desk, member: Consumer, epoch: int, partition: int = 0, **said: Any) -> ErrorCode:
    partitions = (CommittedPartition("orders", partition, 5),)
    code: ErrorCode = desk.ask(
        OffsetCommit("g", partitions, member_id=member.member_id, generation=epoch, **said)
    ).code
    return code


def test_members_commit_with_their_epoch() -> None:
    desk = Desk()
    one = Consumer(desk, "one")
    one.join()
    assert commit(desk, one, one.epoch) is ErrorCode.NONE
    assert commit(desk, one, one.epoch + 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(desk, one, one.epoch, knows_epochs=False) is ErrorCode.UNSUPPORTED_VERSION
    assert commit(desk, Consumer(desk, "no"), 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert (
        desk.ask(OffsetCommit("g", (CommittedPartition("orders", 0, 5),))).code is ErrorCode.UNKNOWN_MEMBER_ID
    )


def test_a_late_commit_counts_for_what_the_member_has_had_since() -> None:
    """KIP-1251: a commit that was on its way when the epoch grew is not lost."""
    desk = Desk()
    one, two = Consumer(desk, "one"), Consumer(desk, "two")
    one.join()
    before = one.epoch
    two.join()
    settle(one, two)
    kept, lost = one.has()[0], two.has()[0]
    assert one.epoch > before
    assert commit(desk, one, before, kept) is ErrorCode.NONE
    assert commit(desk, one, before, lost) is ErrorCode.STALE_MEMBER_EPOCH, "it is another's now"
    assert commit(desk, two, 1, lost) is ErrorCode.STALE_MEMBER_EPOCH, "it had it not yet then"


def test_offsets_are_fetched_with_the_epoch_where_one_is_named() -> None:
    desk = Desk()
    one = Consumer(desk, "one")
    one.join()

    def fetch(member_id: str | None, epoch: int) -> ErrorCode:
        code: ErrorCode = desk.ask(OffsetFetch("g", (WantedOffset("orders", 0),), member_id, epoch)).code
        return code

    assert fetch(None, -1) is ErrorCode.NONE
    assert fetch("one", one.epoch) is ErrorCode.NONE
    assert fetch("one", one.epoch + 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert fetch("no", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_transaction_is_told_generations_and_not_epochs() -> None:
    desk = Desk()
    one = Consumer(desk, "one")
    one.join()
    partitions = (CommittedPartition("orders", 0, 5),)

    def commit_in(**said: Any) -> ErrorCode:
        code: ErrorCode = desk.ask(TxnOffsetCommit("g", partitions, 7, 0, **said)).code
        return code

    assert commit_in(member_id="one", generation=one.epoch) is ErrorCode.NONE
    assert commit_in(member_id="one", generation=9) is ErrorCode.ILLEGAL_GENERATION
    assert commit_in() is ErrorCode.NONE


def test_an_empty_consumer_group_expires_with_its_offsets() -> None:
    desk = Desk()
    one = Consumer(desk, "one")
    one.join()
    commit(desk, one, one.epoch)
    assert [each.code for each in desk.ask(DeleteGroups(("g",))).groups] == [ErrorCode.NON_EMPTY_GROUP]
    one.leave()
    desk.advance(8 * 86_400_000)
    assert desk.ask(ListGroups()).groups == ()
    desk.reload()
    assert desk.ask(ListGroups()).groups == ()


def test_an_empty_consumer_group_can_be_deleted() -> None:
    desk = Desk()
    one = Consumer(desk, "one")
    one.join()
    one.leave()
    assert [each.code for each in desk.ask(DeleteGroups(("g",))).groups] == [ErrorCode.NONE]
    assert desk.ask(ListGroups()).groups == ()
    assert described(desk).code is ErrorCode.GROUP_ID_NOT_FOUND


# Seen from outside, and after a crash.


def test_a_group_is_described() -> None:
    desk = Desk()
    one = Consumer(desk, "one", instance_id="i", rack_id="r")
    one.join()
    group = described(desk)
    assert (group.state, group.group_epoch, group.assignment_epoch, group.assignor) == (
        "Stable",
        2,
        2,
        "uniform",
    )
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("one", "i", "r", 2)
    assert member.subscribed_names == ("orders",)
    assert [(each.topic, each.partitions) for each in member.assignment] == [("orders", (0, 1, 2, 3))]
    assert member.assignment == member.target
    assert not member.is_classic
    (listed,) = desk.ask(ListGroups(types=frozenset({"consumer"}))).groups
    assert (listed.type, listed.state, listed.protocol_type) == ("consumer", "Stable", "consumer")


def test_a_partition_has_an_owner_that_may_read_it() -> None:
    desk = Desk()
    one, two = Consumer(desk, "one"), Consumer(desk, "two")
    one.join()
    assert desk.coordinator.owner_of("g", "orders", 0) == "one"
    two.join()
    one.clings = True
    one.beat()
    owners = [desk.coordinator.owner_of("g", "orders", partition) for partition in range(5)]
    assert owners.count("one") == 2
    assert owners.count(None) == 3, "two are being given up, and one is not there"


def test_a_group_goes_on_after_a_reload_in_the_middle_of_a_revocation() -> None:
    desk = Desk()
    one, two = Consumer(desk, "one"), Consumer(desk, "two")
    one.join()
    one.clings = True
    two.join()
    one.beat()
    desk.reload()
    two.beat()
    assert two.has() == []
    one.clings = False
    reply = one.beat(full=True)
    assert reply.code is ErrorCode.NONE
    settle(one, two)
    assert sorted(one.has() + two.has()) == [0, 1, 2, 3]


def test_a_revocation_has_its_time_after_a_reload_too() -> None:
    desk = Desk()
    one, two = Consumer(desk, "one", rebalance_timeout_ms=30_000), Consumer(desk, "two")
    one.join()
    two.join()
    one.clings = True
    one.beat()
    desk.reload()
    for _ in range(6):
        desk.advance(5_000)
        one.beat()
        two.beat()
    assert one.beat().code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_that_could_not_be_written_changed_nothing() -> None:
    desk = Desk()
    one, two = Consumer(desk, "one"), Consumer(desk, "two")
    one.join()
    desk.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert two.join().code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    desk.change_topics(topics(2, orders=8))
    assert one.beat().code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    desk.refuses = None
    assert [member.member_id for member in described(desk).members] == ["one"]
    settle(one)
    assert len(one.has()) == 8


def test_settings_decide_timeouts_and_the_first_assignor() -> None:
    desk = Desk(
        replace(
            GroupSettings(),
            consumer_session_timeout_ms=10_000,
            consumer_heartbeat_interval_ms=1_000,
            consumer_assignors=("range",),
        )
    )
    one = Consumer(desk, "one")
    assert one.join().heartbeat_interval_ms == 1_000
    assert described(desk).assignor == "range"
    desk.advance(10_000)
    assert one.beat().code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_could_not_be_put_out_gets_another_session_and_is_put_out_then() -> None:
    desk = Desk()
    one, two = Consumer(desk, "one"), Consumer(desk, "two")
    one.join()
    two.join()
    settle(one, two)
    desk.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    desk.advance(45_000)
    desk.refuses = None
    assert len(described(desk).members) == 2
    desk.advance(45_000)
    assert described(desk).members == ()
