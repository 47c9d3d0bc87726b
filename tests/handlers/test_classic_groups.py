"""Groups over the wire on a whole node: members gather, work, stall and leave, and the node dies in between."""

from collections.abc import Callable
from random import Random

import pytest
from tests.handlers.members import Groups, Member, dealt, gather
from tests.storage.world import put

from penstock.base.internal_topics import OFFSETS_TOPIC
from penstock.records import build_batch
from penstock.storage import Origin
from penstock.vfs import read_file
from penstock.wire import Api


def test_members_gather_work_and_leave() -> None:
    scene = Groups()
    one, two = scene.member(), scene.member()
    gather(one, two)
    assert one.leads != two.leads
    assert {one.assignment, two.assignment} == {dealt(0, 2), dealt(1, 3)}
    assert one.generation == two.generation == 1
    assert [one.heartbeat(), two.heartbeat()] == [0, 0]
    assert one.commit(42) == 0
    assert scene.committed() == 42
    assert two.leave() == 0
    assert one.heartbeat() == 27  # REBALANCE_IN_PROGRESS
    gather(one)
    assert (one.leads, one.generation) == (True, 2)
    assert one.leave() == 0
    assert scene.states() == {"g": "Empty"}
    assert scene.committed() == 42


@pytest.mark.parametrize("version", range(10))
def test_members_of_every_version_gather(version: int) -> None:
    scene = Groups()
    one, two = scene.member(version=version), scene.member(version=9)
    gather(two, one)
    assert two.others == [two.id, one.id]
    assert one.heartbeat() == 0
    assert one.leave() == 0
    assert two.heartbeat() == 27


def test_the_first_member_waits_for_others_as_long_as_the_setting_says() -> None:
    scene = Groups({"group.initial.rebalance.delay.ms": "3000"})
    one = scene.member()
    one.join()
    scene.advance(2990)
    assert one.client.reply() is None
    two = scene.member()
    two.join()
    assert [one.joined(), two.joined()] == [0, 0]
    assert one.generation == two.generation == 1


def test_a_stalled_member_is_out_after_its_session_and_the_rest_goes_on() -> None:
    scene = Groups()
    one, two = scene.member(), scene.member()
    gather(one, two)
    for _ in range(3):
        scene.advance(4000)
        one_says = one.heartbeat()
    assert one_says == 27
    gather(one)
    assert one.others == [one.id]
    assert two.heartbeat() == 25  # UNKNOWN_MEMBER_ID


def test_a_static_member_comes_back_without_a_round() -> None:
    scene = Groups()
    one, two = scene.member(instance="a"), scene.member(instance="b")
    gather(one, two)
    again = scene.member(instance="b")
    again.join()
    assert again.joined() == 0
    assert again.generation == two.generation
    assert again.id != two.id
    again.sync()
    assert (again.synced(), again.assignment) == (0, two.assignment)
    assert two.heartbeat() == 82  # FENCED_INSTANCE_ID
    assert one.heartbeat() == 0


def test_groups_of_other_partitions_do_not_meet() -> None:
    scene = Groups()
    members = [scene.member(group=f"g{number}") for number in range(8)]
    for each in members:
        gather(each)
    assert scene.states() == {f"g{number}": "Stable" for number in range(8)}
    shards = scene.node.node.context.groups.shards
    assert len({shards.number_of(each.group) for each in members}) == 3


# -- restarts ------------------------------------------------------------------------------------------


def stop(scene: Groups) -> None:
    scene.node.stop()
    scene.node.restart()


def kill(scene: Groups) -> None:
    scene.node.crash()


def cut_the_power(scene: Groups) -> None:
    scene.node.crash(Random(1))


@pytest.mark.parametrize("end", [stop, kill, cut_the_power])
def test_a_group_is_there_after_a_restart_and_its_members_go_on(end: Callable[[Groups], None]) -> None:
    scene = Groups()
    one, two = scene.member(), scene.member()
    gather(one, two)
    assert one.commit(42, metadata="so far") == 0
    end(scene)
    for each in (scene, one, two):
        each.reconnect()
    assert [one.heartbeat(), two.heartbeat()] == [0, 0]
    assert scene.states() == {"g": "Stable"}
    assert scene.committed() == 42
    assert one.commit(43) == 0
    three = scene.member()
    three.join()
    assert one.heartbeat() == 27
    gather(one, two)
    assert three.joined() == 0
    assert one.generation == three.generation == 2


@pytest.mark.parametrize("end", [stop, kill, cut_the_power])
def test_members_that_do_not_come_back_are_out_after_their_session(end: Callable[[Groups], None]) -> None:
    scene = Groups()
    gather(scene.member(), scene.member())
    end(scene)
    scene.reconnect()
    scene.advance(9000)
    assert len(scene.describe().members) == 2
    scene.advance(2000)
    assert scene.states() == {"g": "Empty"}


def test_a_round_that_the_node_died_in_is_begun_anew() -> None:
    scene = Groups()
    one, two = scene.member(), scene.member()
    for each in (one, two):
        each.join()
    assert [one.joined(), two.joined()] == [0, 0]
    kill(scene)
    for each in (scene, one, two):
        each.reconnect()
    one.sync()
    assert one.synced() == 25  # nobody is known: the generation was never synced
    one.id = two.id = ""
    gather(one, two)


@pytest.mark.parametrize("seed", range(8))
def test_what_was_committed_is_there_after_any_crash(seed: int) -> None:
    rng = Random(seed)
    scene = Groups()
    told = -1
    for offset in range(20):
        assert scene.commit(offset=offset) == 0
        told = offset
        if rng.random() < 0.2:
            scene.node.crash(rng if rng.random() < 0.5 else None)
            scene.reconnect()
            assert scene.committed() == told


# -- what may go wrong ---------------------------------------------------------------------------------


def test_a_byte_that_changed_on_disk_is_found_before_anybody_goes_on_from_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Groups()
    number = scene.node.node.context.groups.shards.number_of("g")
    assert scene.commit("g", offset=5) == 0
    scene.node.stop()
    disk = scene.node.disk
    path = f"/data/logs/{OFFSETS_TOPIC}-{number}/{0:020d}.log"
    data = bytearray(read_file(disk, path))
    data[bytes(data).rindex((5).to_bytes(8, "big")) + 7] ^= 8
    put(disk, path, bytes(data))
    scene.node.restart()
    scene.reconnect()
    scene.advance(100)
    assert (
        f"{OFFSETS_TOPIC}-{number} cannot be read; its groups or transactions are not available: "
        in caplog.text
    )
    assert scene.commit("g") == 15  # COORDINATOR_NOT_AVAILABLE


def test_a_record_that_cannot_be_read_stops_that_partitions_groups_and_no_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Groups()
    shards = scene.node.node.context.groups.shards
    number = shards.number_of("g")
    other = next(f"other{each}" for each in range(9) if shards.number_of(f"other{each}") != number)
    for group in ("g", other):
        assert scene.commit(group) == 0
    partition = scene.node.node.context.replicas.find(OFFSETS_TOPIC, number)
    offset = partition.log.log_end
    batch = build_batch([(b"\x00\x01\x00\x09short", b"\x00\x01", scene.node.world.now_ms())])
    partition.stage(memoryview(bytearray(batch)), -1, scene.node.world.now_ms(), Origin.COORDINATOR)
    stop(scene)
    scene.reconnect()
    scene.advance(100)
    assert (
        f"{OFFSETS_TOPIC}-{number} cannot be read; its groups or transactions are not available: "
        in caplog.text
    )
    assert f"the record at offset {offset}: " in caplog.text
    assert scene.commit("g") == 15  # COORDINATOR_NOT_AVAILABLE
    assert scene.describe("g").error_code.value == 15
    assert scene.committed(other) == 5
    assert scene.commit(other, offset=6) == 0
    assert scene.states() == {other: "Empty"}
    member = scene.member(group=other)
    gather(member)


def test_offsets_of_a_deleted_topic_are_gone() -> None:
    scene = Groups()
    scene.node.create_topic("u")
    for topic in ("t", "u"):
        assert scene.commit(topic=topic) == 0
    reply = scene.call(Api.DELETE_TOPICS, 5, topic_names=["u"])
    assert reply.responses[0].error_code.value == 0
    scene.advance(10)
    assert [scene.committed(topic=name) for name in ("t", "u")] == [5, -1]
    kill(scene)
    scene.reconnect()
    assert [scene.committed(topic=name) for name in ("t", "u")] == [5, -1]


def test_offsets_of_a_topic_that_is_deleted_while_they_are_read_are_gone() -> None:
    scene = Groups()
    assert scene.commit() == 0
    groups = scene.node.node.context.groups
    number = groups.shards.number_of("g")
    groups.shards.reload(number)
    shard = groups.shards.at(number)
    assert shard is not None
    shard.forget_partitions((("t", 0),))
    scene.advance(10)
    assert scene.committed() == -1


def test_a_client_that_is_gone_does_not_hold_its_group_up() -> None:
    scene = Groups()
    one, two = scene.member(), scene.member()
    gather(one)
    two.join()  # and waits for the one
    two.client.connection.connection_lost(None)
    assert one.heartbeat() == 27
    gather(one)
    assert one.others == [one.id, two.id]
    scene.advance(5000)
    assert one.heartbeat() == 0
    scene.advance(6000)
    assert one.heartbeat() == 27, "its session is over"
    gather(one)
    assert one.others == [one.id]


def test_a_limit_on_members_is_kept() -> None:
    scene = Groups({"group.max.size": "1"})
    gather(scene.member())
    two = scene.member()
    two._join()
    assert two.joined() == 81  # GROUP_MAX_SIZE_REACHED


def test_members_say_where_they_are_as_kafka_writes_it() -> None:
    scene = Groups()
    gather(scene.member())
    described = scene.describe()
    [member] = described.members
    assert (member.client_id, member.client_host) == ("test", "/10.0.0.1")
    assert (described.group_state, described.protocol_type, described.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    assert bytes(member.member_assignment) == dealt(0, 1, 2, 3)


def test_who_owns_a_partition_is_known() -> None:
    """For doors whose requests name a group."""
    scene = Groups()
    one, two = scene.member(), scene.member()
    gather(one, two)
    groups = scene.node.node.context.groups
    assert [groups.owner_of("g", "t", number) for number in range(4)] == [one.id, two.id, one.id, two.id]
    assert groups.owner_of("nobody", "t", 0) is None
    assert scene.commit("other", offset=3) == 0
    found = groups.committed("other", "t", 0)
    assert found is not None
    assert found.offset == 3


def test_unknown_members_and_stale_generations_get_errors() -> None:
    scene = Groups()
    one = scene.member()
    gather(one)
    ghost = Member(scene)
    ghost.id, ghost.generation = "nobody", one.generation
    assert ghost.heartbeat() == 25
    assert ghost.leave() == 25
    assert ghost.commit(1) == 25
    one.generation += 1
    assert one.heartbeat() == 22  # ILLEGAL_GENERATION
    assert one.commit(1) == 22
    one.sync()
    assert one.synced() == 22
