"""How long HTTP members stay: sessions, restarts and crashes, in a world whose time a test moves."""

from random import Random

import pytest
from tests.gateway.members_world import Door, KafkaMember

from penstock.base.errors import ErrorCode, KafkaError
from penstock.coordinator.groups.requests import LeaveGroup, LeavingMember
from penstock.gateway.membership import Members
from penstock.gateway.peer_rpc.messages import Commit, Join

MINUTE_MS = 60_000

SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 30))]


@pytest.fixture
def door() -> Door:
    return Door()


def test_a_member_of_which_nothing_is_heard_for_five_minutes_is_gone_and_others_have_its_share(
    door: Door,
) -> None:
    door.join("alice")
    door.join("bob")
    for _ in range(4):
        door.world.advance(MINUTE_MS)
        door.consume("alice", 0)
    assert door.has() == {"alice": [0, 2], "bob": [1]}, "Kafka's own session is much shorter, and was kept"
    door.world.advance(MINUTE_MS + 100)
    assert door.has() == {"alice": [0, 1, 2]}
    assert door.conflict(door.consuming("bob", 1)).reason == "unknown_member"
    door.world.advance(5 * MINUTE_MS)
    assert door.has() == {}
    assert door.members._http_members.count == 0


@pytest.mark.parametrize(
    "call", ["join", "consume", "refused", "no such partition", "commit", "commit by name", "no such commit"]
)
def test_any_call_of_a_member_renews_its_session(door: Door, call: str) -> None:
    door.join("alice", session_ms=10_000)
    door.join("bob", session_ms=100 * MINUTE_MS)
    for _ in range(5):
        door.world.advance(9_000)
        if call == "join":
            door.join("alice", session_ms=10_000)
        elif call == "consume":
            door.consume("alice", 0)
        elif call == "refused":
            door.conflict(door.consuming("alice", 1))
        elif call == "no such partition":
            door.refusal(door.consuming("alice", 9))
        elif call == "commit":
            door.commit(2, 0)
        elif call == "no such commit":
            door.refusal(door.members.commit(door.session, Commit("g", "alice", "orders", 9, 0)))
        else:
            door.commit(0, 0, consumer="alice")
    assert sorted(door.has()) == ["alice", "bob"]
    door.world.advance(10_100)
    assert sorted(door.has()) == ["bob"]


def test_calls_in_another_name_renew_nothing(door: Door) -> None:
    door.join("alice", session_ms=10_000)
    door.join("bob", session_ms=100 * MINUTE_MS)
    for _ in range(3):
        door.world.advance(4_000)
        door.consume("bob", 1)
        door.commit(1, 0)
        door.conflict(door.consuming("carol", 0))
    assert sorted(door.has()) == ["bob"]


def test_a_member_that_waits_longer_than_its_session_is_there(door: Door) -> None:
    door.join("alice", session_ms=2_000)
    call = door.consuming("alice", 0, wait_ms=30_000)
    door.world.advance(29_000)
    assert not call.running.is_over
    door.write(0, b"at last")
    assert [each.value for each in call.result().records] == [b"at last"]
    door.world.advance(1_900)
    assert door.has() == {"alice": [0, 1, 2]}
    door.world.advance(200)
    assert door.has() == {}


def test_a_client_that_goes_away_while_it_waits_has_its_session_run_again(door: Door) -> None:
    door.join("alice", session_ms=2_000)
    call = door.consuming("alice", 0, wait_ms=30_000)
    door.world.advance(10_000)
    call.running.cancel()
    door.world.advance(1_900)
    assert "alice" in door.has()
    door.world.advance(200)
    assert door.has() == {}


def test_joining_again_may_change_how_long_the_session_is(door: Door) -> None:
    door.join("alice", session_ms=2_000)
    door.join("alice", session_ms=20_000)
    door.world.advance(19_000)
    assert "alice" in door.has()
    door.join("alice", session_ms=2_000)
    door.world.advance(2_100)
    assert door.has() == {}


def test_who_comes_back_after_its_session_is_a_member_again(door: Door) -> None:
    door.join("alice", session_ms=2_000)
    door.write(0, b"a", b"b")
    door.commit(0, 1)
    door.world.advance(2_100)
    assert door.values("alice", 0) == [b"b"], "a group without members is anybody's to read"
    assert door.join("alice") == {"orders": [0, 1, 2]}
    assert door.values("alice", 0) == [b"b"]


def test_time_alone_writes_nothing(door: Door) -> None:
    """Twenty minutes of heartbeats for members who are there leave no trace in the log."""
    door.join("alice", session_ms=1000 * MINUTE_MS)
    door.join("bob", session_ms=1000 * MINUTE_MS)
    shard = door.context.groups.shards.of("g")
    door.world.advance(100)
    end = shard.log.partition.log.log_end
    door.world.advance(20 * MINUTE_MS)
    assert shard.log.partition.log.log_end == end
    assert door.has() == {"alice": [0, 2], "bob": [1]}


def test_after_a_restart_no_member_has_to_join_again(door: Door) -> None:
    door.join("alice")
    door.join("bob", session_ms=10 * MINUTE_MS)
    door.write(1, b"a")
    epoch = door.describe().group_epoch
    door.restart()
    door.world.advance(100)
    assert door.has() == {"alice": [0, 2], "bob": [1]}
    assert door.describe().group_epoch == epoch
    door.world.advance(4 * MINUTE_MS)
    assert door.values("bob", 1) == [b"a"]
    door.commit(1, 1)
    door.world.advance(2 * MINUTE_MS)
    assert door.has() == {"bob": [0, 1, 2]}, "each has the session that it asked for"
    door.world.advance(9 * MINUTE_MS)
    assert door.has() == {}


def test_a_door_that_opens_when_coordinators_are_loaded_finds_the_members_that_were_there(door: Door) -> None:
    """HTTP is loaded behind its socket, when Kafka clients are served already."""
    door.join("alice")
    door.members.stop()
    door.world.advance(10_000)
    door.members = Members(door.context)
    door.members.start()
    door.world.advance(4 * MINUTE_MS)
    assert door.has() == {"alice": [0, 1, 2]}
    door.world.advance(MINUTE_MS)
    assert door.has() == {}


def test_a_call_right_after_a_restart_waits_for_the_coordinator(door: Door) -> None:
    door.join("alice")
    door.write(0, b"a")
    door.restart()
    assert door.values("alice", 0) == [b"a"]
    assert door.join("bob") == {"orders": [1]}


def test_members_of_kafka_and_of_http_settle_after_a_restart(door: Door) -> None:
    door.join("alice")
    kafka = KafkaMember(door, "kafka")
    kafka.beat()
    door.restart()
    door.world.advance(100)
    kafka.beat()
    assert door.has() == {"alice": [0, 2], "kafka": [1]}


@pytest.mark.parametrize("seed", SEEDS)
def test_what_somebody_was_told_survives_a_power_cut(seed: int) -> None:
    """Joins, leaves and commits that were answered are on disk, whatever becomes of the rest."""
    rng = Random(seed)
    door = Door()
    present: set[str] = set()
    committed = 0
    door.join("anna", session_ms=100 * MINUTE_MS)
    door.write(0, *(b"%d" % number for number in range(20)))
    present.add("anna")
    for _ in range(6):
        for _ in range(rng.randrange(1, 5)):
            name = rng.choice(["anna", "bert", "cora", "dirk"])
            if name in present and len(present) > 1 and rng.random() < 0.4:
                door.leave(name)
                present.discard(name)
            else:
                door.join(name, session_ms=100 * MINUTE_MS)
                present.add(name)
            if rng.random() < 0.5:
                committed += 1
                door.commit(0, committed)
        begun = door.call(door.members.join(door.session, Join("g", "emma", ("orders",), 100 * MINUTE_MS)))
        door.world.advance(rng.randrange(12))
        told = begun.running.is_over
        door.crash(rng)
        door.world.advance(1_000)
        has = door.has()
        assert present <= set(has) <= present | {"emma"}
        assert "emma" in has or not told
        assert sorted(number for numbers in has.values() for number in numbers) == [0, 1, 2]
        found = door.context.groups.committed("g", "orders", 0)
        assert (0 if found is None else found.offset) == committed
        if "emma" in has:
            door.leave("emma")


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_each_partition_has_one_reader_and_all_have_the_same_share(seed: int) -> None:
    rng = Random(seed)
    door = Door()
    door.node.create_topic("orders", 7)
    names = [f"c{number}" for number in range(6)]
    door.join("c0", session_ms=10 * MINUTE_MS)
    for _ in range(60):
        drawn = rng.random()
        name = rng.choice(names)
        if drawn < 0.45:
            door.join(name, session_ms=rng.choice([1, 3, 10]) * MINUTE_MS)
        elif drawn < 0.6 and name in door.has():
            door.leave(name)
        elif drawn < 0.9:
            door.world.advance(rng.randrange(MINUTE_MS))
        elif drawn < 0.95:
            door.restart()
        else:
            door.crash()
        door.world.advance(200)
        has = door.has()
        assert door.members._http_members.count == len(has)
        if has:
            assert sorted(number for numbers in has.values() for number in numbers) == [*range(7)]
            shares = [len(numbers) for numbers in has.values()]
            assert max(shares) - min(shares) <= 1
            reader = rng.choice(sorted(has))
            for number in range(7):
                call = door.consuming(reader, number)
                if number in has[reader]:
                    call.result()
                else:
                    assert door.conflict(call).assignments == {"orders": has[reader]}


def test_a_coordinator_that_is_read_anew_finds_its_members_seated_once(door: Door) -> None:
    door.join("alice")
    door.join("bob")
    door.context.groups.shards.of("g").lost(KafkaError("the disk hiccuped", ErrorCode.KAFKA_STORAGE_ERROR))
    door.world.advance(1_000)
    assert door.members._http_members.count == 2
    assert door.has() == {"alice": [0, 2], "bob": [1]}
    assert door.join("charlie") == {"orders": [2]}


def test_a_call_while_the_coordinator_is_read_anew_waits_for_it(door: Door) -> None:
    door.join("alice")
    door.write(0, b"a")
    door.context.groups.shards.of("g").lost(KafkaError("the disk hiccuped", ErrorCode.KAFKA_STORAGE_ERROR))
    assert door.values("alice", 0) == [b"a"]


def test_a_member_that_is_removed_while_it_waits_gets_an_error(door: Door) -> None:
    door.join("alice")
    door.join("bob")
    call = door.consuming("alice", 0, wait_ms=30_000)
    door.world.advance(10)
    door.ask(LeaveGroup("g", (LeavingMember("alice"),)))
    door.world.advance(1)
    assert call.running.is_over
    assert door.conflict(call).reason == "unknown_member"


def test_when_the_door_closes_members_heartbeats_stop(door: Door) -> None:
    door.join("alice")
    door.members.stop()
    door.world.advance(46_000)
    assert door.has() == {}, "the coordinator's own session is over"
