"""JoinGroup in classic groups: ids, first rounds, leaders, protocols, sizes, and what is refused."""

from typing import Any

import pytest
from tests.coordinator.groups.world import Desk, join_request, subscription, topics, value, waits

from penstock.base.errors import ErrorCode
from penstock.coordinator.groups.requests import JoinReply, LeaveGroup, LeavingMember
from penstock.coordinator.groups.schemas import GroupMetadataValue, decode
from penstock.coordinator.groups.settings import GroupSettings


def groups_logged(desk: Desk) -> list[GroupMetadataValue | None]:
    records = (decode(each.key, each.value) for each in desk.log)
    return [
        each.value
        for each in records
        if each is not None and (each.value is None or isinstance(each.value, GroupMetadataValue))
    ]


def test_a_dynamic_member_gets_its_id_first_and_joins_with_it() -> None:
    """KIP-394: a client that is started again and again leaves no members behind."""
    desk = Desk()
    first = desk.join(client_id="reader")
    assert first.code is ErrorCode.MEMBER_ID_REQUIRED
    assert first.member_id.startswith("reader-")
    assert len(first.member_id) == len("reader-") + 36
    second = value(desk.join(member_id=first.member_id))
    assert (second.code, second.member_id, second.generation) == (ErrorCode.NONE, first.member_id, 1)
    assert second.leader == first.member_id
    assert [each.member_id for each in second.members] == [first.member_id]


def test_before_version_4_the_first_join_is_enough() -> None:
    reply = value(Desk().join(needs_member_id=False))
    assert reply.code is ErrorCode.NONE
    assert reply.generation == 1


def test_a_new_group_is_in_the_log_from_the_start() -> None:
    """As Kafka writes it: generation 0, no protocol, no members."""
    desk = Desk()
    desk.join()
    (group,) = groups_logged(desk)
    assert group is not None
    assert (group.version, group.generation, group.protocol_type, group.protocol) == (3, 0, "", None)
    assert group.current_state_timestamp == desk.now_ms


def test_a_member_id_without_a_second_join_is_forgotten_after_the_session_timeout() -> None:
    desk = Desk()
    first = desk.join(session_timeout_ms=6_000)
    desk.advance(6_000)
    assert value(desk.join(member_id=first.member_id)).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_round_waits_for_an_id_that_was_given_out() -> None:
    """Otherwise each member of a starting group would begin a round of its own."""
    desk = Desk()
    (one,) = desk.stable({})
    two = desk.join()
    again = desk.join(member_id=one.member_id)
    assert waits(again)
    joined = value(desk.join(member_id=two.member_id))
    assert joined.generation == value(again).generation == 2


def test_the_first_round_waits_for_more_members_and_longer_while_they_come() -> None:
    """KIP-134: `group.initial.rebalance.delay.ms`, prolonged by newcomers up to the rebalance timeout."""
    desk = Desk(GroupSettings(initial_rebalance_delay_ms=3_000))
    one = desk.joined(rebalance_timeout_ms=7_000)
    desk.advance(2_999)
    assert waits(one)
    two = desk.joined(rebalance_timeout_ms=7_000)
    desk.advance(1)
    assert waits(one), "a member came, so the delay begins again"
    three = desk.joined(rebalance_timeout_ms=7_000)
    desk.advance(3_000)
    assert waits(one), "and again, but no longer than the rebalance timeout allows"
    desk.advance(1_000)
    assert {value(each).generation for each in (one, two, three)} == {1}
    assert len(value(one).members) == 3


def test_without_newcomers_the_first_delay_is_the_only_one() -> None:
    desk = Desk(GroupSettings(initial_rebalance_delay_ms=3_000))
    one = desk.joined()
    desk.advance(3_000)
    assert value(one).generation == 1


def test_only_the_leader_gets_the_list_of_members() -> None:
    desk = Desk()
    replies = desk.stable({}, {}, {})
    leaders = [reply for reply in replies if reply.members]
    assert len(leaders) == 1
    assert leaders[0].member_id == leaders[0].leader
    assert {each.member_id for each in leaders[0].members} == {reply.member_id for reply in replies}


def test_the_protocol_is_the_one_that_all_know_and_most_prefer() -> None:
    def knows(*names: str) -> dict[str, Any]:
        return {"protocols": tuple((name, name.encode()) for name in names)}

    desk = Desk()
    replies = desk.stable(knows("a", "b", "c"), knows("c", "b"), knows("c", "b", "a"))
    assert {reply.protocol for reply in replies} == {"c"}
    leader = next(reply for reply in replies if reply.members)
    assert {each.metadata for each in leader.members} == {b"c"}


def test_a_member_without_a_protocol_in_common_is_refused() -> None:
    desk = Desk()
    desk.stable({"protocols": (("range", b""),)})
    reply = desk.join(protocols=(("other", b""),))
    assert reply.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert desk.join(protocol_type="connect").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("said", [{"protocols": ()}, {"protocol_type": ""}])
def test_a_new_group_needs_a_protocol_and_a_type(said: dict[str, Any]) -> None:
    desk = Desk()
    assert desk.join(**said).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert desk.log == []


@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001, -1, 0])
def test_a_session_timeout_outside_the_brokers_limits_is_refused(timeout_ms: int) -> None:
    assert Desk().join(session_timeout_ms=timeout_ms).code is ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_group_needs_a_name() -> None:
    assert Desk().join("").code is ErrorCode.INVALID_GROUP_ID


def test_a_member_of_a_group_that_is_not_there_is_unknown() -> None:
    desk = Desk()
    reply = desk.join(member_id="lost")
    assert (reply.code, reply.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "lost")
    assert desk.log == []


def test_an_unknown_member_of_a_known_group_is_unknown() -> None:
    desk = Desk()
    desk.stable({})
    assert desk.join(member_id="lost").code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_no_more_members() -> None:
    """KIP-389: `group.max.size`."""
    desk = Desk(GroupSettings(initial_rebalance_delay_ms=0, size_max=2))
    desk.stable({}, {})
    assert desk.join(needs_member_id=False).code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert desk.join().code is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_lowered_limit_leaves_out_the_last_to_join_again() -> None:
    desk = Desk()
    replies = desk.stable({}, {}, {})
    desk.settings = GroupSettings(initial_rebalance_delay_ms=0, size_max=2)
    desk.reload()
    first, second = (desk.join(member_id=reply.member_id) for reply in replies[:2])
    assert desk.join(member_id=replies[2].member_id).code is ErrorCode.GROUP_MAX_SIZE_REACHED
    desk.advance(60_000)
    assert value(first).generation == value(second).generation == 2


def test_a_member_that_did_not_get_its_answer_may_ask_again() -> None:
    desk = Desk()
    first = value(desk.joined())
    again = desk.join(member_id=first.member_id)
    assert again == first


def test_a_join_takes_the_place_of_an_earlier_one_of_the_same_member() -> None:
    desk = Desk()
    one, two = desk.stable({}, {})
    first = desk.join(member_id=one.member_id)
    assert waits(first)
    second = desk.join(member_id=one.member_id)
    assert value(first).code is ErrorCode.REBALANCE_IN_PROGRESS, "its client has given up on it"
    desk.join(member_id=two.member_id)
    assert value(second).generation == one.generation + 1


def test_a_follower_that_joins_again_unchanged_is_told_what_holds() -> None:
    desk = Desk()
    replies = desk.stable({}, {})
    follower = next(reply for reply in replies if reply.member_id != reply.leader)
    again = desk.join(member_id=follower.member_id)
    assert (again.code, again.generation) == (ErrorCode.NONE, follower.generation)


def test_a_leader_that_joins_again_begins_a_round() -> None:
    """It may have seen new partitions, which the coordinator does not look at."""
    desk = Desk()
    replies = desk.stable({}, {})
    leader = next(reply for reply in replies if reply.member_id == reply.leader)
    assert waits(desk.join(member_id=leader.member_id))
    other = next(reply for reply in replies if reply is not leader)
    assert desk.beat(other) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_follower_that_changed_its_metadata_begins_a_round() -> None:
    desk = Desk()
    replies = desk.stable({}, {})
    follower = next(reply for reply in replies if reply.member_id != reply.leader)
    assert waits(
        desk.join(member_id=follower.member_id, protocols=(("range", subscription("orders", "more")),))
    )


def test_a_member_that_does_not_join_in_time_is_out() -> None:
    desk = Desk()
    one, two = desk.stable({"rebalance_timeout_ms": 30_000}, {"rebalance_timeout_ms": 20_000})
    stayed, gone = (one, two) if one.member_id == one.leader else (two, one)
    waiting = desk.join(member_id=stayed.member_id, rebalance_timeout_ms=30_000)
    for _ in range(5):
        desk.advance(5_000)
        assert desk.beat(gone) is ErrorCode.REBALANCE_IN_PROGRESS, "it lives, but it does not join"
    desk.advance(5_000)
    assert [each.member_id for each in value(waiting).members] == [stayed.member_id]
    assert desk.beat(gone) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_join_in_time_is_followed_by_one_that_did() -> None:
    desk = Desk()
    replies = desk.stable({}, {})
    follower = next(reply for reply in replies if reply.member_id != reply.leader)
    waiting = desk.join(member_id=follower.member_id, protocols=(("range", subscription("other")),))
    desk.advance(60_000)
    reply = value(waiting)
    assert reply.leader == follower.member_id
    assert len(reply.members) == 1


def test_a_new_member_that_is_not_heard_of_for_five_minutes_is_out() -> None:
    """It does not know its id, so it cannot send heartbeats, and a client that is gone must not stay for ever."""
    desk = Desk()
    one = desk.stable({"rebalance_timeout_ms": 900_000})[0]
    waiting = desk.join(needs_member_id=False, rebalance_timeout_ms=900_000)
    for _ in range(50):
        desk.advance(6_000)
        desk.beat(one)
    assert value(waiting) == JoinReply(ErrorCode.UNKNOWN_MEMBER_ID)


def test_before_version_1_the_session_timeout_is_the_rebalance_timeout_too() -> None:
    desk = Desk()
    one = desk.stable({"rebalance_timeout_ms": -1, "session_timeout_ms": 8_000})[0]
    waiting = desk.join(needs_member_id=False, rebalance_timeout_ms=-1, session_timeout_ms=8_000)
    desk.advance(4_000)
    desk.beat(one)
    desk.advance(4_000)
    assert value(waiting).code is ErrorCode.NONE


def test_a_group_that_could_not_be_written_is_not_there() -> None:
    desk = Desk(refuses=ErrorCode.NOT_ENOUGH_REPLICAS)
    assert desk.join().code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert desk.join(needs_member_id=False).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    desk.refuses = None
    desk.advance(600_000)
    assert desk.log == []


def test_who_waits_when_the_coordinator_moves_is_sent_to_the_new_one() -> None:
    desk = Desk(GroupSettings(initial_rebalance_delay_ms=3_000))
    waiting = desk.joined()
    desk.coordinator.unload()
    assert value(waiting).code is ErrorCode.NOT_COORDINATOR
    assert desk.join().code is ErrorCode.NOT_COORDINATOR


def test_a_lone_pending_member_that_leaves_is_forgotten() -> None:
    desk = Desk()
    first = desk.join()
    reply = desk.ask(LeaveGroup("g", (LeavingMember(first.member_id),)))
    assert [each.code for each in reply.members] == [ErrorCode.NONE]
    assert desk.join(member_id=first.member_id).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_was_given_to_a_dynamic_member_is_not_for_a_static_one() -> None:
    desk = Desk()
    first = desk.join()
    assert desk.join(member_id=first.member_id, instance_id="i").code is ErrorCode.UNKNOWN_MEMBER_ID


def test_ids_are_drawn_from_the_chance_that_was_passed_in() -> None:
    assert Desk(seed=7).join() == Desk(seed=7).join()
    assert Desk(seed=7).join() != Desk(seed=8).join()
    assert join_request().group == "g"
    assert topics(a=1).by_id(b"a".ljust(16, b"\1")) is not None
