"""Groups that change from the classic to the consumer protocol and back while they live (KIP-848)."""

from dataclasses import replace
from typing import Any

import pytest
from tests.coordinator.groups.clients import Classic, Consumer, settle
from tests.coordinator.groups.world import Desk, assignment, subscription, topics, value, waits

from penstock.base.errors import ErrorCode
from penstock.coordinator.groups.requests import (
    CommittedPartition,
    ConsumerGroupDescribe,
    DescribeGroups,
    Heartbeat,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetCommit,
    OffsetFetch,
    SyncGroup,
    WantedOffset,
)
from penstock.coordinator.groups.settings import GroupSettings


def classic_group(desk: Desk, *instances: str | None) -> list[Classic]:
    """A stable classic group that shares four partitions."""
    members = [Classic(desk, instance_id) for instance_id in instances]
    desk.is_still = True
    for member in members:
        member.join()
    desk.is_still = False
    desk.tick()
    for member in members:
        member.joined()
    share = 4 // len(members)
    given = {
        member.member_id: assignment(orders=range(share * n, share * (n + 1)))
        for n, member in enumerate(members)
    }
    leader = next(member for member in members if value(member.waiting).leader == member.member_id)
    others = [member for member in members if member is not leader]
    for member in others:
        member.sync()
    leader.sync(**given)
    for member in others:
        member.synced()
    return members


def live_together(classics: list[Classic], consumers: list[Consumer], rounds: int = 8) -> None:
    for _ in range(rounds):
        for classic in classics:
            classic.go_on()
        for consumer in consumers:
            assert consumer.beat().code is ErrorCode.NONE


def kind(desk: Desk) -> tuple[str, str]:
    (listed,) = desk.ask(ListGroups()).groups
    return listed.type, listed.state


def test_a_live_classic_group_becomes_a_consumer_group_when_a_member_of_the_new_protocol_comes() -> None:
    desk = Desk()
    old = classic_group(desk, None, None)
    assert [member.has() for member in old] == [[0, 1], [2, 3]]
    new = Consumer(desk, "new")
    reply = new.join()
    assert reply.code is ErrorCode.NONE
    assert reply.member_epoch == old[0].generation + 1
    assert kind(desk)[0] == "consumer"
    assert new.has() == [], "the others have all of it"
    assert old[0].beat() is ErrorCode.REBALANCE_IN_PROGRESS
    live_together(old, [new])
    assert sorted(old[0].has() + old[1].has() + new.has()) == [0, 1, 2, 3]
    assert new.has()
    assert kind(desk) == ("consumer", "Stable")
    described = desk.ask(ConsumerGroupDescribe(("g",))).groups[0]
    assert sorted(member.is_classic for member in described.members) == [False, True, True]


def test_who_waits_in_a_classic_round_is_sent_to_join_the_consumer_group() -> None:
    desk = Desk()
    one, two = classic_group(desk, None, None)
    one.topics = ("orders", "more")
    one.join()
    assert waits(one.waiting)
    new = Consumer(desk, "new")
    new.join()
    assert value(one.waiting).code is ErrorCode.REBALANCE_IN_PROGRESS
    live_together([one, two], [new])
    assert kind(desk) == ("consumer", "Stable")


def test_it_becomes_classic_again_when_the_last_of_the_new_protocol_goes() -> None:
    desk = Desk()
    old = classic_group(desk, None, None)
    new = Consumer(desk, "new")
    new.join()
    live_together(old, [new])
    new.leave()
    assert kind(desk) == ("classic", "PreparingRebalance")
    one, two = old
    assert one.beat() in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
    one.join()
    two.join()
    leader, other = (one, two) if value(one.waiting).leader == one.member_id else (two, one)
    leader.joined()
    other.joined()
    other.sync()
    leader.sync(**{one.member_id: assignment(orders=[0, 1]), two.member_id: assignment(orders=[2, 3])})
    assert other.synced() is ErrorCode.NONE
    assert kind(desk) == ("classic", "Stable")
    desk.reload()
    assert kind(desk) == ("classic", "Stable")


def test_a_reload_right_after_either_change_finds_the_group_that_was_written() -> None:
    desk = Desk()
    old = classic_group(desk, None, None)
    new = Consumer(desk, "new")
    new.join()
    desk.reload()
    assert kind(desk)[0] == "consumer"
    live_together(old, [new])
    assert sorted(old[0].has() + old[1].has() + new.has()) == [0, 1, 2, 3]
    new.leave()
    desk.reload()
    assert kind(desk)[0] == "classic"


def test_a_change_that_could_not_be_written_did_not_happen() -> None:
    desk = Desk()
    old = classic_group(desk, None, None)
    new = Consumer(desk, "new")
    desk.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert new.join().code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert kind(desk) == ("classic", "Stable")
    assert old[0].beat() is ErrorCode.NONE
    desk.refuses = None
    new.join()
    live_together(old, [new])
    desk.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    epoch = new.epoch
    assert new.leave().code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    desk.refuses = None
    assert kind(desk) == ("consumer", "Stable")
    new.epoch = epoch
    assert new.beat().code is ErrorCode.NONE


def test_offsets_stay_through_the_changes() -> None:
    desk = Desk()
    old = classic_group(desk, None)
    committed = (CommittedPartition("orders", 0, 7),)
    desk.ask(OffsetCommit("g", committed, old[0].member_id, old[0].generation))
    new = Consumer(desk, "new")
    new.join()

    def offset() -> int:
        return desk.ask(OffsetFetch("g", (WantedOffset("orders", 0),))).offsets[0].offset  # type: ignore[no-any-return]

    assert offset() == 7
    stale = desk.ask(OffsetCommit("g", committed, old[0].member_id, 99, knows_epochs=False))
    assert stale.code is ErrorCode.ILLEGAL_GENERATION, "a classic member knows generations"
    live_together(old, [new])
    new.leave()
    assert offset() == 7


@pytest.mark.parametrize("said", [{"upgrades": False}, {"consumer_size_max": 1}])
def test_settings_can_keep_a_group_classic(said: dict[str, Any]) -> None:
    desk = Desk(replace(GroupSettings(initial_rebalance_delay_ms=0), **said))
    classic_group(desk, None, None)
    assert Consumer(desk, "new").join().code is ErrorCode.GROUP_ID_NOT_FOUND
    assert kind(desk) == ("classic", "Stable")


def test_a_group_of_others_than_consumers_stays_classic() -> None:
    desk = Desk()
    desk.stable({"protocol_type": "connect", "protocols": (("x", b"y"),)})
    assert Consumer(desk, "new").join().code is ErrorCode.GROUP_ID_NOT_FOUND
    desk = Desk()
    desk.stable({"protocols": (("range", b"?"),)})
    assert Consumer(desk, "new").join().code is ErrorCode.GROUP_ID_NOT_FOUND


def test_settings_can_keep_a_group_on_the_consumer_protocol() -> None:
    desk = Desk(GroupSettings(initial_rebalance_delay_ms=0, downgrades=False))
    old = classic_group(desk, None)
    new = Consumer(desk, "new")
    new.join()
    live_together(old, [new])
    new.leave()
    live_together(old, [])
    assert kind(desk) == ("consumer", "Stable")
    assert old[0].has() == [0, 1, 2, 3]


def test_an_empty_classic_group_is_taken_over_with_its_offsets() -> None:
    desk = Desk()
    (one,) = desk.stable({})
    desk.ask(OffsetCommit("g", (CommittedPartition("orders", 0, 7),), one.member_id, one.generation))
    desk.ask(LeaveGroup("g", (LeavingMember(one.member_id),)))
    new = Consumer(desk, "new")
    assert new.join().member_epoch == 2
    assert kind(desk) == ("consumer", "Stable")
    assert desk.ask(OffsetFetch("g", None)).offsets[0].offset == 7
    desk.reload()
    assert kind(desk) == ("consumer", "Stable")


def test_a_simple_group_becomes_a_consumer_group() -> None:
    desk = Desk()
    desk.ask(OffsetCommit("g", (CommittedPartition("orders", 0, 7),)))
    Consumer(desk, "new").join()
    assert kind(desk) == ("consumer", "Stable")
    desk.reload()
    assert kind(desk) == ("consumer", "Stable")


def test_an_empty_consumer_group_becomes_classic_when_a_classic_member_comes() -> None:
    desk = Desk()
    new = Consumer(desk, "new")
    new.join()
    new.leave()
    (old,) = classic_group(desk, None)
    assert kind(desk) == ("classic", "Stable")
    desk.reload()
    assert kind(desk) == ("classic", "Stable")
    assert old.beat() is ErrorCode.NONE
    assert desk.ask(DescribeGroups(("g",))).groups[0].state == "Stable"


def test_an_empty_consumer_group_stays_if_the_classic_one_could_not_be_written() -> None:
    desk = Desk()
    new = Consumer(desk, "new")
    new.join()
    new.leave()
    desk.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert desk.join().code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    desk.refuses = None
    assert kind(desk) == ("consumer", "Empty")


# Classic members in a consumer group.


def test_a_classic_member_joins_a_consumer_group() -> None:
    desk = Desk()
    new = Consumer(desk, "new")
    new.join()
    old = Classic(desk)
    reply = old.join()
    assert (reply.code, reply.leader, reply.members) == (ErrorCode.NONE, "", ())
    assert (reply.protocol_type, reply.protocol) == ("consumer", "range")
    assert old.sync() is ErrorCode.NONE
    assert old.has() == []
    live_together([old], [new])
    assert sorted(old.has() + new.has()) == [0, 1, 2, 3]
    assert (len(old.has()), len(new.has())) == (2, 2)
    assert desk.coordinator.owner_of("g", "orders", old.has()[0]) == old.member_id


def test_classic_members_in_a_consumer_group_are_checked() -> None:
    desk = Desk()
    new = Consumer(desk, "new")
    new.join()
    assert desk.join(protocol_type="connect").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert desk.join(protocols=()).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (
        desk.join(protocols=(("range", b"?"),), needs_member_id=False).code
        is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    old = Classic(desk)
    old.join()
    me, generation = old.member_id, old.generation
    other = (("sticky", subscription("orders")),)
    assert desk.join(protocols=other).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def sync(**said: Any) -> ErrorCode:
        fields: dict[str, Any] = {"group": "g", "member_id": me, "generation": generation}
        code: ErrorCode = desk.ask(SyncGroup(**(fields | said))).code
        return code

    assert sync(generation=99) is ErrorCode.ILLEGAL_GENERATION
    assert sync(member_id="no") is ErrorCode.UNKNOWN_MEMBER_ID
    assert sync(member_id="new", generation=new.epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    assert sync(protocol="sticky") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sync(protocol_type="connect") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sync() is ErrorCode.NONE
    assert desk.ask(Heartbeat("g", me, 99)).code is ErrorCode.ILLEGAL_GENERATION
    assert desk.ask(Heartbeat("g", "new", new.epoch)).code is ErrorCode.UNKNOWN_MEMBER_ID
    Consumer(desk, "third").join()
    assert sync() is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_classic_member_that_does_not_join_again_or_sync_in_time_is_out() -> None:
    desk = Desk()
    new = Consumer(desk, "new")
    new.join()
    old = Classic(desk)
    old.join()
    for _ in range(12):
        desk.advance(5_000)
        new.beat()
        old.beat()
    assert old.beat() is ErrorCode.UNKNOWN_MEMBER_ID, "it joined, and never asked what it got"


def test_a_silent_classic_member_is_out_after_its_own_session_timeout() -> None:
    desk = Desk()
    new = Consumer(desk, "new")
    new.join()
    old = Classic(desk)
    old.join()
    old.sync()
    desk.advance(10_000)
    settle(new)
    assert old.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert new.has() == [0, 1, 2, 3]


def test_classic_members_leave_a_consumer_group() -> None:
    desk = Desk()
    new = Consumer(desk, "new")
    new.join()
    old = Classic(desk)
    old.join()
    old.sync()
    reply = desk.ask(LeaveGroup("g", (LeavingMember(old.member_id), LeavingMember("no"))))
    assert [each.code for each in reply.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    settle(new)
    assert new.has() == [0, 1, 2, 3]


def test_a_static_member_changes_to_the_consumer_protocol_and_keeps_its_place() -> None:
    desk = Desk()
    one, two = classic_group(desk, "a", "b")
    new = Consumer(desk, "new", instance_id="a")
    new.join()
    live_together([two], [new])
    assert (new.has(), two.has()) == (one.has(), [2, 3])
    assert one.beat() is ErrorCode.FENCED_INSTANCE_ID


def test_the_last_static_member_of_the_consumer_protocol_comes_back_as_a_classic_one() -> None:
    desk = Desk()
    _one, two = classic_group(desk, "a", "b")
    new = Consumer(desk, "new", instance_id="a")
    new.join()
    live_together([two], [new])
    had = new.has()
    back = Classic(desk, "a")
    assert back.join().code is ErrorCode.NONE
    assert kind(desk) == ("classic", "Stable")
    assert back.sync() is ErrorCode.NONE
    assert back.has() == had
    assert back.beat() is ErrorCode.NONE
    desk.reload()
    assert kind(desk) == ("classic", "Stable")
    assert back.beat() is ErrorCode.NONE
    assert topics(orders=4).version == 1
