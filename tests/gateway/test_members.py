"""Members of groups that come over HTTP: what they get, read and commit, and what others see of them."""

from dataclasses import replace
from typing import Any

import pytest
from tests.gateway.members_world import Door, KafkaMember

from penstock.base.errors import ErrorCode
from penstock.coordinator.groups.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    write_assignment,
    write_subscription,
)
from penstock.coordinator.groups.requests import Heartbeat, JoinGroup, LeaveGroup, LeavingMember, SyncGroup
from penstock.gateway.membership import http_members as seats_module
from penstock.gateway.membership import members as members_module
from penstock.gateway.peer_rpc.messages import Commit, Join, Leave
from penstock.metadata.controller.requests import CreatePartitions, DeleteTopics, MorePartitions


@pytest.fixture
def door() -> Door:
    return Door()


# Coming and going.


def test_sticky_assignment_is_that_of_the_design(door: Door) -> None:
    """DESIGN section 2: alice [0, 2] and bob [1]; charlie joins: [0], [1], [2]."""
    assert door.join("alice") == {"orders": [0, 1, 2]}
    assert door.join("bob") == {"orders": [1]}
    assert door.has() == {"alice": [0, 2], "bob": [1]}
    assert door.join("charlie") == {"orders": [2]}
    assert door.has() == {"alice": [0], "bob": [1], "charlie": [2]}


def test_a_topic_appears_with_the_first_member_that_wants_it(door: Door) -> None:
    assert door.join("alice", "new", "newer") == {"new": [0, 1, 2], "newer": [0, 1, 2]}


def test_what_a_leaving_member_had_is_others_when_it_is_told_that_it_left(door: Door) -> None:
    door.join("alice")
    door.join("bob")
    door.leave("alice")
    assert door.has() == {"bob": [0, 1, 2]}
    door.leave("bob")
    assert door.describe().state == "Empty"


def test_who_is_not_there_cannot_leave(door: Door) -> None:
    refusal = door.refusal(door.members.leave(door.session, Leave("g", "alice")))
    assert refusal.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert "alice" in str(refusal)


def test_joining_again_under_the_same_name_is_the_same_member(door: Door) -> None:
    door.join("alice")
    door.join("bob")
    epoch = door.describe().group_epoch
    assert door.join("alice") == {"orders": [0, 2]}
    assert door.describe().group_epoch == epoch, "nothing has changed"
    assert len(door.describe().members) == 2


def test_joining_again_with_other_topics_is_a_change_of_the_subscription(door: Door) -> None:
    door.join("alice")
    assert door.join("alice", "orders", "payments") == {"orders": [0, 1, 2], "payments": [0, 1, 2]}
    assert door.join("alice", "payments") == {"payments": [0, 1, 2]}
    assert door.join("bob", "orders") == {"orders": [0, 1, 2]}


def test_a_member_without_partitions_gets_an_empty_assignment(door: Door) -> None:
    for name in ("alice", "bob", "charlie"):
        door.join(name)
    assert door.join("dora") == {"orders": []}


def test_members_are_described_with_their_address_and_where_they_came_in(door: Door) -> None:
    door.join("alice")
    [alice] = door.describe().members
    assert (alice.member_id, alice.client_id, alice.client_host) == ("alice", "http", "10.9.8.7")
    assert (door.describe().state, door.describe().assignor) == ("Stable", "uniform")


@pytest.mark.parametrize("moves_max", [1, 7, 100])
def test_many_members_share_many_partitions_evenly_and_at_once(
    door: Door, monkeypatch: pytest.MonkeyPatch, moves_max: int
) -> None:
    monkeypatch.setattr(seats_module, "MOVES_MAX", moves_max)
    door.node.create_topic("wide", 64)
    for number in range(20):
        had = door.join(f"c{number:02}", "wide")
        assert had == {"wide": door.has(topic="wide")[f"c{number:02}"]}
        assert door.describe().state == "Stable"
    shares = sorted(len(each) for each in door.has(topic="wide").values())
    assert shares == [3] * 16 + [4] * 4
    assert door.describe().state == "Stable"


def test_there_is_an_end_to_how_many_may_join(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members_module, "MEMBERS_MAX", 2)
    door.join("alice")
    door.join("bob")
    refusal = door.refusal(door.members.join(door.session, Join("h", "carol", ("orders",), 1000)))
    assert refusal.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    door.join("alice")
    door.leave("bob")
    door.join("carol")


def test_a_cluster_without_the_consumer_protocol_says_so(door: Door) -> None:
    door.context.image = replace(door.context.image, features={})
    conflict = door.conflict(door.members.join(door.session, Join("g", "alice", ("orders",), 1000)))
    assert "group.version" in str(conflict)


# Reading.


def test_reading_begins_at_the_earliest_record_and_then_where_the_group_has_committed(door: Door) -> None:
    door.join("alice")
    door.write(0, b"a", b"b", b"c")
    consumed = door.consume("alice", 0, records_max=2)
    assert [(each.offset, each.value) for each in consumed.records] == [(0, b"a"), (1, b"b")]
    assert consumed.next_offset == 2
    assert door.values("alice", 0, records_max=1) == [b"a"], "nothing was committed"
    door.commit(0, 2)
    assert door.values("alice", 0) == [b"c"]
    door.commit(0, 3)
    consumed = door.consume("alice", 0)
    assert (list(consumed.records), consumed.next_offset) == ([], 3)


def test_an_offset_that_is_no_longer_in_the_log_is_read_from_the_earliest(door: Door) -> None:
    door.join("alice")
    door.write(0, b"a")
    door.write(0, b"b")
    door.commit(0, 0)
    partition = door.context.replicas.find("orders", 0)
    partition.delete_records(1)
    assert door.values("alice", 0) == [b"b"]


def test_an_answer_has_no_more_bytes_than_it_should_but_always_a_record(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members_module, "BYTES_MAX", 250)
    door.join("alice")
    door.write(0, b"x" * 100, b"y" * 100, b"z" * 100)
    door.write(0, b"w" * 1000)
    consumed = door.consume("alice", 0)
    assert [each.offset for each in consumed.records] == [0, 1]
    assert consumed.next_offset == 2
    door.commit(0, 3)
    assert [each.offset for each in door.consume("alice", 0).records] == [3]


def test_an_answer_goes_on_over_several_portions_of_the_log(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members_module, "PORTION_BYTES", 100)
    door.join("alice")
    for number in range(10):
        door.write(0, b"%d" % number * 50)
    assert [each.offset for each in door.consume("alice", 0, records_max=7).records] == [*range(7)]


def test_a_call_that_waits_is_answered_when_there_is_something(door: Door) -> None:
    door.join("alice")
    call = door.consuming("alice", 0, wait_ms=20_000)
    door.world.advance(5_000)
    assert not call.running.is_over
    door.write(0, b"now")
    assert [each.value for each in call.result().records] == [b"now"]


def test_a_call_that_waits_in_vain_is_answered_with_nothing_when_the_time_is_up(door: Door) -> None:
    door.join("alice")
    call = door.consuming("alice", 0, wait_ms=2_000)
    door.world.advance(1_900)
    assert not call.running.is_over
    door.world.advance(200)
    assert call.result(0) == ((), 0)


def test_a_client_that_goes_away_while_it_waits_leaves_nothing_behind(door: Door) -> None:
    door.join("alice")
    partition = door.context.replicas.find("orders", 0)
    before = len(partition._fetches)
    call = door.consuming("alice", 0, wait_ms=20_000)
    door.world.advance(10)
    assert len(partition._fetches) == before + 1
    call.running.cancel()
    assert len(partition._fetches) == before
    assert not door.members._http_members._watches


def test_a_member_reads_only_what_is_assigned_to_it(door: Door) -> None:
    door.join("alice")
    door.join("bob")
    conflict = door.conflict(door.consuming("alice", 1))
    assert (conflict.reason, conflict.assignments) == ("not_assigned", {"orders": [0, 2]})
    conflict = door.conflict(door.consuming("mallory", 1))
    assert (conflict.reason, conflict.assignments) == ("unknown_member", None)
    conflict = door.conflict(door.consuming(None, 1))
    assert conflict.reason == "unknown_member"


def test_a_call_that_waits_ends_when_its_partition_is_taken_away(door: Door) -> None:
    door.join("alice")
    losing = door.consuming("alice", 1, wait_ms=20_000)
    keeping = door.consuming("alice", 0, wait_ms=20_000)
    door.world.advance(100)
    door.join("bob")
    door.world.advance(1)
    assert losing.running.is_over
    conflict = door.conflict(losing)
    assert (conflict.reason, conflict.assignments) == ("not_assigned", {"orders": [0, 2]})
    assert not keeping.running.is_over
    door.write(0, b"mine")
    assert [each.value for each in keeping.result().records] == [b"mine"]


def test_any_client_reads_and_commits_a_group_without_members(door: Door) -> None:
    door.node.create_topic("orders", 3)
    door.write(1, b"a", b"b")
    assert door.values(None, 1) == [b"a", b"b"]
    assert door.values("whoever", 1) == [b"a", b"b"]
    door.commit(1, 1)
    assert door.values(None, 1) == [b"b"]


def test_who_reads_a_group_without_members_stops_when_one_comes(door: Door) -> None:
    door.node.create_topic("orders", 3)
    call = door.consuming(None, 1, wait_ms=20_000)
    door.world.advance(100)
    door.join("alice")
    door.world.advance(1)
    assert call.running.is_over
    assert door.conflict(call).reason == "unknown_member"


def test_partitions_that_are_added_are_read_without_delay(door: Door) -> None:
    door.join("alice")
    add_partitions(door, "orders", 4)
    door.write(3, b"new")
    assert door.values("alice", 3) == [b"new"]
    assert door.join("alice") == {"orders": [0, 1, 2, 3]}


def test_a_topic_that_is_deleted_while_somebody_waits_is_reported_as_gone(door: Door) -> None:
    door.join("alice")
    call = door.consuming("alice", 0, wait_ms=20_000)
    door.world.advance(100)
    delete_topic(door, "orders")
    door.world.advance(1)
    assert call.running.is_over
    assert door.refusal(call).code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_there_is_no_such_partition(door: Door) -> None:
    door.join("alice")
    assert door.refusal(door.consuming("alice", 3)).code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (
        door.refusal(door.consuming("alice", 0, topic="other")).code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )


# Committing.


def test_commits_are_those_of_the_owner_and_everybody_sees_them(door: Door) -> None:
    door.join("alice")
    door.join("bob")
    door.write(1, b"a", b"b")
    door.commit(1, 2)
    committed = door.context.groups.committed("g", "orders", 1)
    assert committed is not None
    assert (committed.offset, committed.topic_id) == (2, door.context.image.topics["orders"].id)


def test_who_says_its_name_commits_only_what_it_has(door: Door) -> None:
    door.join("alice")
    door.join("bob")
    door.commit(1, 0, consumer="bob")
    conflict = door.conflict(door.members.commit(door.session, Commit("g", "alice", "orders", 1, 0)))
    assert (conflict.reason, conflict.assignments) == ("not_assigned", {"orders": [0, 2]})


def test_offsets_that_were_not_read_cannot_be_committed(door: Door) -> None:
    door.join("alice")
    door.write(0, b"a")
    door.commit(0, 1)
    assert (
        door.refusal(door.members.commit(door.session, Commit("g", None, "orders", 0, 2))).code
        is ErrorCode.OFFSET_OUT_OF_RANGE
    )


def test_a_topic_that_no_member_wants_is_not_committed(door: Door) -> None:
    door.node.create_topic("other", 1)
    door.join("alice")
    conflict = door.conflict(door.members.commit(door.session, Commit("g", None, "other", 0, 0)))
    assert conflict.reason == "not_assigned"


# Beside Kafka clients.


def test_a_kafka_client_shares_a_group_that_was_made_over_http(door: Door) -> None:
    door.join("alice")
    kafka = KafkaMember(door, "kafka")
    kafka.beat()
    kafka.beat()  # alice has given it up in the meantime
    assert kafka.has() == [1]
    assert door.has() == {"alice": [0, 2], "kafka": [1]}
    conflict = door.conflict(door.members.commit(door.session, Commit("g", None, "orders", 1, 0)))
    assert (conflict.reason, "kafka" in str(conflict)) == ("owned_elsewhere", True)
    assert door.conflict(door.consuming("kafka", 1)).reason == "unknown_member", "it reads for itself"
    conflict = door.conflict(door.members.join(door.session, Join("g", "kafka", ("orders",), 1000)))
    assert conflict.reason == "name_taken"


def test_what_a_kafka_client_must_give_up_first_comes_when_it_has(door: Door) -> None:
    door.node.create_topic("orders", 3)
    door.join("nobody")  # so that there is a coordinator
    door.leave("nobody")
    kafka = KafkaMember(door, "kafka")
    kafka.beat()
    assert kafka.has() == [0, 1, 2]
    assert door.join("alice") == {"orders": []}
    kafka.beat(gives_up=False)
    assert door.has()["alice"] == [], "it has been told, and still has it"
    kafka.owned = ((kafka.owned[0][0], (0, 2)),)
    kafka.beat()
    door.world.advance(1)
    assert door.has() == {"kafka": [0, 2], "alice": [1]}
    door.write(1, b"a")
    assert door.values("alice", 1) == [b"a"]


def test_a_kafka_client_may_call_itself_http_and_speaks_for_itself(door: Door) -> None:
    door.join("alice")
    kafka = KafkaMember(door, "kafka", client_id="http")
    kafka.beat()
    kafka.beat()
    door.restart()
    door.world.advance(100)
    assert door.members._http_members.count == 1
    door.world.advance(60_000)
    assert door.has() == {"alice": [0, 1, 2]}, "nobody else sent its heartbeats"


def test_groups_of_kafka_clients_alone_are_assigned_as_before(door: Door) -> None:
    """Kafka's uniform assignor leaves the first of three members' partitions, and not the dealt ones."""
    door.join("nobody")
    door.leave("nobody")
    one, two = KafkaMember(door, "a", group="k"), KafkaMember(door, "b", group="k")
    one.beat()
    two.beat()
    one.beat()
    one.beat()
    two.beat()
    assert (one.has(), two.has()) == ([0, 1], [2])


def classic_member(door: Door, protocol_type: str = "consumer") -> str:
    """A client of the classic protocol that has all of the topic."""
    metadata = write_subscription(Subscription(topics=("orders",)), 1)
    asked = JoinGroup(
        "c", "rdkafka", "/10.1.1.1", protocol_type, (("range", metadata),), 30_000, needs_member_id=False
    )
    reply = door.ask(asked)
    assert reply.code is ErrorCode.NONE
    everything = Assignment(assigned_partitions=(TopicPartitions(topic="orders", partitions=(0, 1, 2)),))
    synced = door.ask(
        SyncGroup(
            "c",
            reply.member_id,
            reply.generation,
            assignments=((reply.member_id, write_assignment(everything, 1)),),
        )
    )
    assert synced.code is ErrorCode.NONE
    member_id: str = reply.member_id
    return member_id


def test_a_live_group_of_the_classic_protocol_is_joined_by_upgrading_it(door: Door) -> None:
    """KIP-848: online migration."""
    door.join("nobody")
    door.leave("nobody")
    kafka = classic_member(door)
    assert door.join("alice", group="c") == {"orders": []}, "the Kafka client must give something up first"
    assert sorted(door.has("c")) == sorted(["alice", kafka])
    reply = door.ask(Heartbeat("c", kafka, 1))
    assert reply.code is ErrorCode.REBALANCE_IN_PROGRESS
    door.ask(LeaveGroup("c", (LeavingMember(kafka),)))
    door.world.advance(1)
    assert door.has("c") == {"alice": [0, 1, 2]}


def test_a_group_that_may_not_be_upgraded_says_why() -> None:
    door = Door(group_consumer_migration_policy="disabled")
    door.join("nobody")
    door.leave("nobody")
    classic_member(door)
    conflict = door.conflict(door.members.join(door.session, Join("c", "alice", ("orders",), 1000)))
    assert (conflict.reason, "switched off" in str(conflict)) == ("group_of_another_kind", True)
    assert door.members._http_members.count == 0


def test_a_group_of_something_else_than_consumers_is_left_alone(door: Door) -> None:
    door.join("nobody")
    door.leave("nobody")
    classic_member(door, "connect")
    conflict = door.conflict(door.members.join(door.session, Join("c", "alice", ("orders",), 1000)))
    assert "not consumers" in str(conflict)


def test_an_administrator_can_take_a_member_out(door: Door) -> None:
    door.join("alice")
    door.join("bob")
    door.ask(LeaveGroup("g", (LeavingMember("alice"),)))
    door.world.advance(1)
    assert door.has() == {"bob": [0, 1, 2]}
    assert door.members._http_members.count == 1
    assert door.conflict(door.consuming("alice", 0)).reason == "unknown_member"


# The cluster's changes.


def add_partitions(door: Door, topic: str, count: int) -> None:
    submit(door, CreatePartitions((MorePartitions(topic, count),)))


def delete_topic(door: Door, topic: str) -> None:
    submit(door, DeleteTopics((topic,)))


def submit(door: Door, request: Any) -> None:
    later = door.context.controller.submit(request)
    door.world.run_until(lambda: later.is_settled)
