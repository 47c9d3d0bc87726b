"""Partitions that move: each step, what is refused, and what is left when a move is replaced or taken back."""

from typing import Any

import pytest
from tests.metadata.world import World, check_invariants

from penstock.base.errors import ErrorCode
from penstock.metadata import records as s
from penstock.metadata.controller import requests as r
from penstock.metadata.image import PartitionRegistration

E = ErrorCode


@pytest.fixture
def world() -> World:
    world = World((1, 2, 3, 4, 5))
    world.create("t", (1, 2, 3))
    return world


def move(world: World, *replicas: int, topic: str = "t", number: int = 0, **more: Any) -> r.Result:
    target = r.PartitionTarget(topic, number, replicas)
    (reply,) = world.ask(r.AlterReassignments((target,), **more))
    assert (reply.topic, reply.partition) == (topic, number)
    check_invariants(world.image)
    result: r.Result = reply.result
    return result


def cancel(world: World, topic: str = "t", number: int = 0) -> r.Result:
    (reply,) = world.ask(r.AlterReassignments((r.PartitionTarget(topic, number, None),)))
    check_invariants(world.image)
    result: r.Result = reply.result
    return result


def whereabouts(world: World) -> tuple[s.Ids, s.Ids, s.Ids]:
    held: PartitionRegistration = world.partition("t")
    return held.replicas, held.adding, held.removing


def test_a_move_keeps_all_replicas_until_the_new_ones_are_in_sync(world: World) -> None:
    assert move(world, 4, 2) == r.OK
    assert whereabouts(world) == ((4, 2, 1, 3), (4,), (1, 3))
    held = world.partition("t")
    assert (held.leader, held.leader_epoch, held.isr) == (1, 0, (1, 2, 3))
    assert world.shrink("t", 1, 2, 3, 4).result.code is E.NEW_LEADER_ELECTED
    assert whereabouts(world) == ((4, 2), (), ())
    held = world.partition("t")
    assert (held.leader, held.isr, held.leader_epoch) == (4, (2, 4), 1)


def test_a_partition_that_only_gains_replicas_keeps_its_leader(world: World) -> None:
    assert move(world, 1, 2, 3, 4, 5) == r.OK
    assert whereabouts(world) == ((1, 2, 3, 4, 5), (4, 5), ())
    world.shrink("t", 1, 2, 3, 4)
    assert world.partition("t").adding == (4, 5)
    world.shrink("t", 1, 2, 3, 4, 5)
    assert whereabouts(world) == ((1, 2, 3, 4, 5), (), ())
    assert world.partition("t").leader == 1


def test_another_order_of_preference_is_done_at_once(world: World) -> None:
    assert move(world, 3, 1, 2) == r.OK
    assert whereabouts(world) == ((3, 1, 2), (), ())
    assert world.partition("t").leader == 1


def test_fewer_replicas_are_had_at_once_where_those_that_stay_are_in_sync(world: World) -> None:
    assert move(world, 2) == r.OK
    assert whereabouts(world) == ((2,), (), ())
    assert (world.partition("t").leader, world.partition("t").isr) == (2, (2,))


def test_fewer_replicas_wait_until_all_that_stay_are_in_sync(world: World) -> None:
    """Else a partition could end with a single replica in sync that had three."""
    world.shrink("t", 1, 2)
    assert move(world, 2, 3) == r.OK
    assert whereabouts(world) == ((2, 3, 1), (), (1,))
    world.shrink("t", 1, 2, 3)
    assert whereabouts(world) == ((2, 3), (), ())


def test_what_goes_waits_where_nothing_else_is_in_sync(world: World) -> None:
    world.shrink("t", 1)
    assert move(world, 2, 3, 4) == r.OK
    assert whereabouts(world) == ((2, 3, 4, 1), (4,), (1,))
    world.shrink("t", 1, 4)
    assert whereabouts(world) == ((2, 3, 4), (), ())
    assert (world.partition("t").leader, world.partition("t").isr) == (4, (4,))


def test_a_move_that_is_replaced_starts_from_all_the_replicas_there_are(world: World) -> None:
    move(world, 1, 2, 4)
    assert move(world, 1, 2, 5) == r.OK
    assert whereabouts(world) == ((1, 2, 5, 3, 4), (5,), (3, 4))
    world.shrink("t", 1, 2, 3, 5)
    assert whereabouts(world) == ((1, 2, 5), (), ())


def test_a_replica_that_was_being_added_and_still_is_wanted_goes_on_being_waited_for(world: World) -> None:
    move(world, 4, 5)
    assert move(world, 1, 4) == r.OK
    assert whereabouts(world) == ((1, 4, 2, 3, 5), (4,), (2, 3, 5))
    assert move(world, 1, 2, 3, 4) == r.OK
    assert whereabouts(world) == ((1, 2, 3, 4, 5), (4,), (5,))
    world.shrink("t", 1, 2, 3, 4)
    assert whereabouts(world) == ((1, 2, 3, 4), (), ())


def test_going_back_by_hand_ends_the_move_at_once(world: World) -> None:
    move(world, 4, 5)
    assert move(world, 1, 2, 3) == r.OK
    assert whereabouts(world) == ((1, 2, 3), (), ())


def test_a_move_that_is_taken_back_leaves_what_was_there(world: World) -> None:
    move(world, 4, 2)
    assert cancel(world) == r.OK
    assert set(whereabouts(world)[0]) == {1, 2, 3}
    held = world.partition("t")
    assert (held.adding, held.removing, held.isr, held.leader) == ((), (), (1, 2, 3), 1)
    assert held.leader_epoch == 1, "4 must not be heard any more"


def test_a_replica_on_its_way_out_leads_again_when_the_new_leader_is_taken_back(world: World) -> None:
    move(world, 4, 5)
    world.shrink("t", 1, 2, 3, 4)
    for broker in (1, 2, 3):
        world.fence(broker)
    assert world.partition("t").leader == 4
    world.start(2)
    refused = cancel(world)
    assert refused.code is E.INVALID_REPLICA_ASSIGNMENT, "it would lose what only 4 has"
    world.shrink("t", 4, 2)
    assert cancel(world) == r.OK
    held = world.partition("t")
    assert (set(held.replicas), held.isr, held.leader) == ({1, 2, 3}, (2,), 2)


def test_where_unclean_elections_are_allowed_a_move_can_be_taken_back_at_any_price() -> None:
    world = World((1, 2, 3, 4, 5))
    world.create("t", (1, 2, 3), unclean_leader_election_enable="true")
    move(world, 4, 5)
    world.shrink("t", 1, 4)
    world.fence(1)
    world.shrink("t", 4)
    assert cancel(world) == r.OK
    held = world.partition("t")
    assert (set(held.replicas), held.adding) == ({1, 2, 3}, ())
    assert held.leader in (2, 3)
    assert held.isr == (held.leader,)
    assert held.recovery_state == s.RECOVERING


@pytest.mark.parametrize(
    ("target", "code"),
    [
        (r.PartitionTarget("none", 0, (1,)), E.UNKNOWN_TOPIC_OR_PARTITION),
        (r.PartitionTarget("t", 1, (1,)), E.UNKNOWN_TOPIC_OR_PARTITION),
        (r.PartitionTarget("t", -1, None), E.UNKNOWN_TOPIC_OR_PARTITION),
        (r.PartitionTarget("t", 0, None), E.NO_REASSIGNMENT_IN_PROGRESS),
        (r.PartitionTarget("t", 0, ()), E.INVALID_REPLICA_ASSIGNMENT),
        (r.PartitionTarget("t", 0, (1, 1)), E.INVALID_REPLICA_ASSIGNMENT),
        (r.PartitionTarget("t", 0, (1, 9)), E.INVALID_REPLICA_ASSIGNMENT),
        (r.PartitionTarget("t", 0, (1, -1)), E.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_cannot_be_moved_is_refused_and_hinders_nothing_else(
    world: World, target: r.PartitionTarget, code: ErrorCode
) -> None:
    world.create("other", (1, 2))
    fine = r.PartitionTarget("other", 0, (3, 4))
    bad, good = world.ask(r.AlterReassignments((target, fine)))
    assert (bad.result.code, good.result) == (code, r.OK)
    assert whereabouts(world) == ((1, 2, 3), (), ())
    assert world.partition("other").adding == (3, 4)


def test_a_partition_that_is_named_twice_does_not_move(world: World) -> None:
    targets = (r.PartitionTarget("t", 0, (4,)), r.PartitionTarget("t", 0, (5,)))
    replies = world.ask(r.AlterReassignments(targets))
    assert [each.result.code for each in replies] == [E.INVALID_REQUEST] * 2
    assert whereabouts(world) == ((1, 2, 3), (), ())


def test_another_replication_factor_can_be_forbidden(world: World) -> None:
    """KIP-860; a partition that moves is measured by where it moves to."""
    assert move(world, 1, 4, allow_factor_change=False).code is E.INVALID_REPLICATION_FACTOR
    assert move(world, 1, 4, 5, allow_factor_change=False) == r.OK
    assert move(world, 1, 2, 4, 5, allow_factor_change=False).code is E.INVALID_REPLICATION_FACTOR
    assert move(world, 1, 2, 4, 5) == r.OK
    assert move(world, 2, 3, 4, 5, allow_factor_change=False) == r.OK


def test_a_move_to_where_a_partition_is_writes_nothing(world: World) -> None:
    before = world.image
    assert move(world, 1, 2, 3) == r.OK
    assert world.image is before


def test_what_moves_is_listed(world: World) -> None:
    world.create("still", (1, 2))
    assert world.ask(r.ListReassignments()) == ()
    move(world, 4, 2)
    moving = r.Reassignment("t", 0, (4, 2, 1, 3), (4,), (1, 3))
    assert world.ask(r.ListReassignments()) == (moving,)
    asked = (("still", 0), ("t", 7), ("gone", 0), ("t", 0), ("t", 0))
    assert world.ask(r.ListReassignments(asked)) == (moving,)
    assert world.ask(r.ListReassignments((("still", 0),))) == ()
    assert world.ask(r.ListReassignments(())) == ()


def test_a_broker_that_comes_may_be_away_when_the_move_begins(world: World) -> None:
    world.fence(4)
    assert move(world, 1, 2, 4) == r.OK
    assert whereabouts(world) == ((1, 2, 4, 3), (4,), (3,))
    world.start(4)
    world.shrink("t", 1, 2, 3, 4)
    assert whereabouts(world) == ((1, 2, 4), (), ())
