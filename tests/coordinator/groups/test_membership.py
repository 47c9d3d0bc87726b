"""SyncGroup, Heartbeat and LeaveGroup in classic groups, and what static members may do."""

from tests.coordinator.groups.world import Desk, assignment, subscription, value, waits

from penstock.base.errors import ErrorCode
from penstock.coordinator.groups.requests import (
    DescribeGroups,
    Heartbeat,
    JoinReply,
    LeaveGroup,
    LeavingMember,
    LeftMember,
    SyncGroup,
    SyncReply,
)
from penstock.coordinator.groups.schemas import GroupMetadataValue, decode


def last_group(desk: Desk) -> GroupMetadataValue:
    record = decode(desk.log[-1].key, desk.log[-1].value)
    assert record is not None
    assert isinstance(record.value, GroupMetadataValue)
    return record.value


def joined(desk: Desk, count: int) -> tuple[JoinReply, list[JoinReply]]:
    """A leader and the others, joined in one generation and not synced."""
    desk.stable(*({} for _ in range(count)))
    described = desk.ask(DescribeGroups(("g",))).groups[0]
    leader_id = last_group(desk).leader
    waiting = [
        desk.join(member_id=each.member_id)
        for each in sorted(described.members, key=lambda m: m.member_id != leader_id)
    ]
    replies = [value(each) for each in waiting]
    return replies[0], replies[1:]


def test_the_leader_assigns_and_every_member_gets_its_assignment() -> None:
    desk = Desk()
    leader, (other,) = joined(desk, 2)
    waiting = desk.sync(other)
    assert waits(waiting)
    reply = desk.lead(leader, {leader.member_id: b"mine", other.member_id: b"yours"})
    assert reply == SyncReply(ErrorCode.NONE, "consumer", "range", b"mine")
    assert value(waiting) == SyncReply(ErrorCode.NONE, "consumer", "range", b"yours")


def test_a_member_that_syncs_late_gets_what_holds() -> None:
    desk = Desk()
    leader, (other,) = joined(desk, 2)
    desk.lead(leader, {other.member_id: b"yours"})
    assert desk.sync(other).assignment == b"yours"
    assert desk.sync(leader).assignment == b"", "the leader forgot itself"


def test_an_assignment_is_sent_only_when_it_is_committed() -> None:
    desk = Desk()
    leader, (other,) = joined(desk, 2)
    desk.holds = True
    first = desk.sync(other)
    second = desk.lead(leader, {leader.member_id: b"mine", other.member_id: b"yours"})
    assert waits(first)
    assert waits(second)
    desk.commit()
    assert value(first).assignment == b"yours"
    assert value(second).assignment == b"mine"


def test_an_assignment_that_cannot_be_written_begins_another_round() -> None:
    desk = Desk()
    leader, (other,) = joined(desk, 2)
    waiting = desk.sync(other)
    desk.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    desk.lead(leader, {})
    assert value(waiting).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert desk.beat(other) is ErrorCode.REBALANCE_IN_PROGRESS


def test_an_assignment_that_is_committed_after_another_round_began_is_not_sent() -> None:
    desk = Desk()
    leader, (other,) = joined(desk, 2)
    desk.holds = True
    first = desk.sync(other)
    desk.lead(leader, {other.member_id: b"yours"})
    desk.join(member_id=other.member_id, protocols=(("range", subscription("new")),))
    assert value(first).code is ErrorCode.REBALANCE_IN_PROGRESS
    desk.commit()
    assert desk.beat(leader) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_round_while_members_wait_for_their_assignment_sends_them_to_join() -> None:
    desk = Desk()
    _leader, (other,) = joined(desk, 2)
    waiting = desk.sync(other)
    desk.join(needs_member_id=False)
    assert value(waiting).code is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_sync_of_another_generation_or_protocol_is_refused() -> None:
    desk = Desk()
    leader, (other,) = joined(desk, 2)
    me = other.member_id
    ask = desk.ask
    assert ask(SyncGroup("g", me, other.generation - 1)).code is ErrorCode.ILLEGAL_GENERATION
    assert ask(SyncGroup("g", "lost", other.generation)).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert ask(SyncGroup("no", me, other.generation)).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert ask(SyncGroup("", me, other.generation)).code is ErrorCode.INVALID_GROUP_ID
    wrong = SyncGroup("g", me, other.generation, protocol="sticky")
    assert ask(wrong).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    wrong = SyncGroup("g", me, other.generation, protocol_type="connect")
    assert ask(wrong).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    desk.join(member_id=leader.member_id, protocols=(("range", b"new"),))
    assert ask(SyncGroup("g", me, other.generation)).code is ErrorCode.REBALANCE_IN_PROGRESS


def test_members_that_never_sync_are_out_after_the_rebalance_timeout() -> None:
    """KAFKA-13636's rule: a member that joined and went away holds the group up for one timeout, not for ever."""
    desk = Desk()
    leader, (other,) = joined(desk, 2)
    desk.lead(leader, {})
    for _ in range(6):
        desk.advance(9_000)
        desk.beat(leader)
        desk.beat(other)
    desk.advance(6_000)
    assert desk.beat(other) is ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.beat(leader) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_heartbeat_keeps_a_session() -> None:
    desk = Desk()
    (one,) = desk.stable({"session_timeout_ms": 6_000})
    for _ in range(10):
        desk.advance(5_999)
        assert desk.beat(one) is ErrorCode.NONE
    desk.advance(6_000)
    assert desk.beat(one) is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_are_checked() -> None:
    desk = Desk()
    (one,) = desk.stable({})
    me = one.member_id
    assert desk.ask(Heartbeat("g", me, one.generation + 1)).code is ErrorCode.ILLEGAL_GENERATION
    assert desk.ask(Heartbeat("g", "lost", one.generation)).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.ask(Heartbeat("no", me, one.generation)).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.ask(Heartbeat("", me, one.generation)).code is ErrorCode.INVALID_GROUP_ID
    assert desk.ask(Heartbeat("g", me, one.generation, "i")).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_may_send_heartbeats_while_it_waits_for_its_assignment() -> None:
    desk = Desk()
    _, (other,) = joined(desk, 2)
    assert desk.beat(other) is ErrorCode.NONE


def test_a_member_that_waits_for_us_is_not_out_for_its_silence() -> None:
    desk = Desk()
    one, two = desk.stable({}, {})
    waiting = desk.join(member_id=one.member_id, protocols=(("range", subscription("x")),))
    for _ in range(3):
        desk.advance(9_000)
        desk.beat(two)
    desk.join(member_id=two.member_id)
    assert value(waiting).code is ErrorCode.NONE


def test_a_dead_member_begins_a_round_and_its_last_one_empties_the_group() -> None:
    desk = Desk()
    one, two = desk.stable({"session_timeout_ms": 20_000}, {"session_timeout_ms": 10_000})
    desk.advance(10_000)
    assert desk.beat(one) is ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.beat(two) is ErrorCode.UNKNOWN_MEMBER_ID
    desk.advance(20_000)
    group = last_group(desk)
    assert (group.members, group.protocol, group.leader) == ((), None, None)
    assert group.generation == one.generation + 1
    assert group.protocol_type == "consumer", "what kind of group it was is kept"


def test_who_leaves_begins_a_round_for_the_others() -> None:
    desk = Desk()
    one, two = desk.stable({}, {})
    reply = desk.ask(LeaveGroup("g", (LeavingMember(one.member_id), LeavingMember("lost"))))
    assert reply.members == (
        LeftMember(one.member_id, None),
        LeftMember("lost", None, ErrorCode.UNKNOWN_MEMBER_ID),
    )
    assert desk.beat(two) is ErrorCode.REBALANCE_IN_PROGRESS
    assert value(desk.join(member_id=two.member_id)).leader == two.member_id


def test_the_last_to_leave_empties_the_group_at_once() -> None:
    desk = Desk()
    (one,) = desk.stable({})
    desk.ask(LeaveGroup("g", (LeavingMember(one.member_id),)))
    assert last_group(desk).members == ()


def test_leaving_a_group_that_is_not_there_is_unknown() -> None:
    reply = Desk().ask(LeaveGroup("no", (LeavingMember("me"),)))
    assert reply.code is ErrorCode.UNKNOWN_MEMBER_ID


# Static members.


def test_a_static_member_that_comes_back_gets_its_assignment_without_a_round() -> None:
    """KIP-345."""
    desk = Desk()
    one, two = desk.stable({"instance_id": "a"}, {"instance_id": "b"})
    assert one.member_id.startswith("a-")
    back = value(desk.join(instance_id="b"))
    assert back.code is ErrorCode.NONE
    assert back.member_id not in (one.member_id, two.member_id)
    assert back.generation == two.generation
    assert desk.beat(one, instance_id="a") is ErrorCode.NONE
    assert desk.sync(back).assignment == b"part 1"


def test_a_static_member_is_replaced_in_the_log_before_the_reply() -> None:
    desk = Desk()
    desk.stable({"instance_id": "a"})
    desk.holds = True
    waiting = desk.join(instance_id="a")
    assert waits(waiting)
    desk.commit()
    back = value(waiting)
    assert last_group(desk).members[0].member_id == back.member_id
    assert last_group(desk).members[0].assignment == b"part 0"


def test_a_static_leader_that_returns_skips_the_assignment() -> None:
    """KIP-814: it is the leader, and sees the members, but skips the assignment."""
    desk = Desk()
    (one,) = desk.stable({"instance_id": "a"})
    back = value(desk.join(instance_id="a"))
    assert back.skip_assignment
    assert back.leader == back.member_id != one.member_id
    assert len(back.members) == 1


def test_a_static_leader_that_cannot_be_told_so_is_told_that_another_leads() -> None:
    desk = Desk()
    (one,) = desk.stable({"instance_id": "a"})
    back = value(desk.join(instance_id="a", may_skip_assignment=False))
    assert not back.skip_assignment
    assert back.leader == one.member_id
    assert back.members == ()


def test_the_predecessor_of_a_static_member_is_fenced() -> None:
    desk = Desk()
    (one,) = desk.stable({"instance_id": "a"})
    desk.join(instance_id="a")
    assert desk.beat(one, instance_id="a") is ErrorCode.FENCED_INSTANCE_ID
    assert desk.beat(one) is ErrorCode.UNKNOWN_MEMBER_ID
    fenced = desk.ask(SyncGroup("g", one.member_id, one.generation, "a"))
    assert fenced.code is ErrorCode.FENCED_INSTANCE_ID
    again = desk.join(member_id=one.member_id, instance_id="a")
    assert again.code is ErrorCode.FENCED_INSTANCE_ID
    left = desk.ask(LeaveGroup("g", (LeavingMember(one.member_id, "a"),))).members
    assert left == (LeftMember(one.member_id, "a", ErrorCode.FENCED_INSTANCE_ID),)


def test_a_predecessor_that_still_waits_is_fenced_at_once() -> None:
    desk = Desk()
    one, _two = desk.stable({"instance_id": "a"}, {"instance_id": "b"})
    first = desk.join(member_id=one.member_id, instance_id="a", protocols=(("range", subscription("x")),))
    assert waits(first)
    second = desk.join(instance_id="a", protocols=(("range", subscription("x")),))
    assert value(first).code is ErrorCode.FENCED_INSTANCE_ID
    assert waits(second)


def test_a_static_member_that_changes_the_protocol_begins_a_round() -> None:
    desk = Desk()
    both = (("range", b""), ("sticky", b""))
    desk.stable({"instance_id": "a", "protocols": both}, {"instance_id": "b", "protocols": both})
    assert waits(desk.join(instance_id="b", protocols=(("sticky", b""),)))


def test_a_static_member_that_comes_back_while_the_leader_assigns_begins_a_round() -> None:
    desk = Desk()
    one, _two = desk.stable({"instance_id": "a"}, {"instance_id": "b"})
    leader = one if one.leader == one.member_id else _two
    instance = "a" if leader is one else "b"
    other = "b" if leader is one else "a"
    rejoined = desk.join(member_id=leader.member_id, instance_id=instance)
    desk.join(instance_id=other)
    assert value(rejoined).code is ErrorCode.NONE
    waiting = desk.join(instance_id=other)
    assert waits(waiting)


def test_a_static_member_that_could_not_be_written_stays_who_it_was() -> None:
    desk = Desk()
    (one,) = desk.stable({"instance_id": "a"})
    desk.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert desk.join(instance_id="a").code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert desk.beat(one, instance_id="a") is ErrorCode.NONE


def test_a_static_member_is_not_out_for_missing_a_round_only_for_its_session() -> None:
    desk = Desk()
    one, _two = desk.stable(
        {"instance_id": "a", "session_timeout_ms": 30_000, "rebalance_timeout_ms": 5_000},
        {"instance_id": "b", "session_timeout_ms": 30_000, "rebalance_timeout_ms": 5_000},
    )
    waiting = desk.join(
        member_id=one.member_id,
        instance_id="a",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=5_000,
        protocols=(("range", subscription("x")),),
    )
    desk.advance(5_000)
    reply = value(waiting)
    assert len(desk.ask(DescribeGroups(("g",))).groups[0].members) == 2
    assert reply.generation == one.generation + 1


def test_an_administrator_removes_static_members_by_their_instance() -> None:
    """KIP-571."""
    desk = Desk()
    desk.stable({"instance_id": "a"}, {"instance_id": "b"})
    reply = desk.ask(LeaveGroup("g", (LeavingMember("", "a"), LeavingMember("", "no"), LeavingMember(""))))
    assert [each.code for each in reply.members] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]


# After a crash.


def test_a_stable_group_goes_on_after_a_reload() -> None:
    desk = Desk()
    one, two = desk.stable({}, {"instance_id": "i"})
    desk.reload()
    assert desk.beat(one) is ErrorCode.NONE
    assert desk.beat(two, instance_id="i") is ErrorCode.NONE
    assert desk.sync(one).assignment == b"part 0"
    desk.advance(10_000)
    assert desk.beat(one) is ErrorCode.UNKNOWN_MEMBER_ID, "a session begins with the load"


def test_a_generation_that_was_not_synced_is_not_there_after_a_reload() -> None:
    desk = Desk()
    leader, (other,) = joined(desk, 2)
    desk.reload()
    assert desk.beat(leader) is ErrorCode.ILLEGAL_GENERATION
    assert desk.beat(other) is ErrorCode.ILLEGAL_GENERATION
    assert waits(desk.join(member_id=leader.member_id))


def test_the_owner_of_a_partition_is_the_member_in_the_assignment() -> None:
    desk = Desk()
    leader, (other,) = joined(desk, 2)
    desk.lead(
        leader,
        {leader.member_id: assignment(orders=[0, 2]), other.member_id: assignment(orders=[1], more=[0])},
    )
    owner_of = desk.coordinator.owner_of
    assert owner_of("g", "orders", 2) == leader.member_id
    assert owner_of("g", "orders", 1) == other.member_id
    assert owner_of("g", "more", 0) == other.member_id
    assert owner_of("g", "orders", 3) is None
    assert owner_of("no", "orders", 0) is None
    desk.reload()
    assert desk.coordinator.owner_of("g", "orders", 2) == leader.member_id
