"""The metadata quorum over its log: one node that elects itself, commits, restarts, and fails as it should."""

import errno
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.controlplane.quorum_bench import ALONE, DIRECTORY, LOGS, Bench, Hearer, setting, settings_in

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset
from penstock.controlplane.quorum_records import BATCH_BYTES_MAX
from penstock.metadata.bootstrap import bootstrap_records
from penstock.metadata.image import EMPTY
from penstock.raft import quorum_state
from penstock.raft.errors import NotLeader
from penstock.raft.voters import ReplicaKey, Voter, VoterSet
from penstock.storage.errors import StorageError
from penstock.vfs import FaultyDisk, MemoryDisk, read_file


def test_a_new_directory_becomes_a_quorum_of_one_that_leads_its_first_epoch() -> None:
    bench = Bench().start()
    assert bench.hearer.heard == [("loaded", -1), ("advanced", 3), ("leading", 1)]
    assert bench.quorum.is_leader
    assert (bench.quorum.leader_id, bench.quorum.epoch) == (1, 1)
    assert bench.quorum.high_watermark == bench.quorum.end_offset == 3  # leader change, kraft.version, voters
    assert [voter.key.id for voter in bench.quorum.voters] == [1]
    assert bench.quorum.kraft_version == 1
    state = quorum_state.decode(read_file(bench.disk, f"{DIRECTORY}/quorum-state"))
    assert (state.epoch, state.leader_id) == (1, 1)


def test_a_first_start_costs_eight_syncs_and_a_later_one_six() -> None:
    """A node listens within half a second of the command, on disks that take 20 ms for a sync."""
    disk = MemoryDisk()
    disk.make_dirs(LOGS)
    syncs: list[str] = []
    disk.on_sync = syncs.append
    bench = Bench(disk).start()
    assert len(syncs) <= 8, syncs
    bench.stop()
    syncs.clear()
    bench.restart()
    assert len(syncs) <= 6, syncs


def test_proposed_records_are_committed_once_they_are_on_disk_and_not_before() -> None:
    bench = Bench().start()
    bench.hearer.heard.clear()
    assert bench.propose(setting("a"), setting("b")) == 4
    bench.world.advance(0)
    assert bench.hearer.heard == []
    bench.world.advance(1)
    assert bench.hearer.heard == [("committed", 2, 4, 1), ("advanced", 5)]
    assert settings_in(bench.hearer.now) == {"a": "1", "b": "1"}


def test_batches_proposed_in_one_turn_share_a_sync_and_those_during_a_sync_the_next() -> None:
    bench = Bench(disk := MemoryDisk()).start()
    syncs: list[str] = []
    disk.on_sync = syncs.append
    for name in "abc":
        bench.propose(setting(name))
    bench.world.advance(0)
    for name in "defg":
        bench.propose(setting(name))
    bench.world.advance(50)
    assert syncs == [f"{DIRECTORY}/00000000000000000000.log", f"{LOGS}.meta/metadata-synced"] * 2
    assert list(settings_in(bench.hearer.now)) == list("abcdefg")
    assert [each for each in bench.hearer.heard if each[0] == "advanced"][-2:] == [
        ("advanced", 6),
        ("advanced", 10),
    ]


def test_a_listener_may_propose_from_within_an_announcement() -> None:
    class Eager(Hearer):
        def leading(self, epoch: int) -> None:
            super().leading(epoch)
            bench.quorum.propose(tuple(bootstrap_records()), epoch)
            bench.quorum.propose([setting("second")], epoch)

    bench = Bench(listener=Eager())
    bench.start()
    assert [each[0] for each in bench.hearer.heard] == [
        "loaded", "advanced", "leading", "committed", "committed", "advanced"
    ]  # fmt: skip
    assert bench.hearer.now.features
    assert settings_in(bench.hearer.now)["second"] == "1"


def test_only_the_epoch_that_is_led_takes_proposals() -> None:
    bench = Bench()
    with pytest.raises(NotLeader):
        bench.quorum.propose([setting("early")], 1)
    bench.start()
    with pytest.raises(NotLeader):
        bench.quorum.propose([setting("late")], 0)
    end = bench.quorum.end_offset
    with pytest.raises(KafkaError) as refused:
        bench.quorum.propose([setting("large", "x" * BATCH_BYTES_MAX)], 1)
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    with pytest.raises(ValueError, match="at least one"):
        bench.quorum.propose([], 1)
    assert bench.quorum.end_offset == end
    bench.commit(setting("fine"))


@pytest.mark.parametrize("ending", ["stop", "abandon"])
def test_a_restart_leads_the_next_epoch_with_the_same_image(ending: str) -> None:
    bench = Bench().start()
    for number in range(10):
        bench.commit(setting(f"s{number}"), setting("last", str(number)))
    if ending == "stop":
        bench.stop()
        assert bench.hearer.heard[-1] == ("resigned", 1)
    again = bench.restart()
    assert again.hearer.epoch == 2
    assert again.hearer.now == bench.hearer.now
    assert again.hearer.batches == bench.hearer.batches
    assert again.hearer.heard[-1] == ("leading", 2)
    assert again.hearer.heard[-2] == ("advanced", 3 + 20 + 1)


def test_after_a_stop_nothing_is_taken_any_more() -> None:
    bench = Bench().start()
    bench.stop()
    assert not bench.quorum.is_leader
    with pytest.raises(NotLeader):
        bench.quorum.propose([setting("late")], 1)
    assert bench.world.is_idle


def test_a_stop_waits_for_the_sync_that_runs() -> None:
    bench = Bench().start()
    bench.propose(setting("a"))
    bench.world.advance(0)
    assert bench.world.works == 1
    bench.stop()
    assert settings_in(bench.restart().hearer.now) == {"a": "1"}


def test_a_stop_from_within_an_announcement_tells_the_rest_first() -> None:
    class Leaving(Hearer):
        def leading(self, epoch: int) -> None:
            super().leading(epoch)
            bench.quorum.stop(lambda: self.heard.append(("stopped",)))

    bench = Bench(listener=Leaving())
    bench.start()
    assert bench.hearer.heard[-3:] == [("leading", 1), ("resigned", 1), ("stopped",)]
    assert bench.world.is_idle


def test_describe_shows_the_leader_and_its_voters() -> None:
    bench = Bench().start()
    shown = bench.quorum.describe()
    assert (shown.leader_id, shown.epoch, shown.high_watermark) == (1, 1, 3)
    assert [voter.key.id for voter in shown.voters] == [1]
    assert shown.voters[0].log_end_offset == 3


# The disk fails.


@pytest.mark.parametrize("operation", ["sync", "write"])
def test_a_disk_that_fails_ends_the_quorum(operation: str) -> None:
    disk = FaultyDisk(MemoryDisk())
    bench = Bench(disk).start()
    disk.fail(operation, path="*.log", error=errno.EIO)  # type: ignore[arg-type]
    try:
        bench.propose(setting("lost"))
    except NotLeader:
        assert operation == "write"
    bench.world.advance(50)
    assert bench.hearer.failure is not None
    assert "cannot" in bench.hearer.failure
    assert settings_in(bench.hearer.now) == {}
    assert not bench.quorum.is_leader
    with pytest.raises(NotLeader):
        bench.quorum.propose([setting("later")], 1)
    bench.stop()  # done is called all the same


def test_a_vote_that_cannot_be_written_ends_the_quorum_before_anything_is_led() -> None:
    disk = FaultyDisk(MemoryDisk())
    disk.fail("sync", path="*quorum-state*", error=errno.EIO)
    bench = Bench(disk).start()
    assert bench.hearer.heard == [("loaded", -1), ("failed",)]
    assert bench.names(".log") == ["00000000000000000000.log"]
    assert bench.quorum.end_offset == 0


def test_a_listener_that_cannot_take_a_record_ends_the_quorum() -> None:
    class Picky(Hearer):
        def committed(self, *args: object) -> None:
            raise StorageError("no room")

    bench = Bench(listener=Picky()).start()
    bench.propose(setting("a"))
    bench.world.advance(50)
    assert bench.hearer.failure == "no room"


# Crashes.


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    pauses=st.lists(st.sampled_from([0, 0, 1, 50]), min_size=8, max_size=8),
    seed=st.integers(0, 2**32),
    small=st.booleans(),
)
def test_a_power_cut_at_any_sync_loses_nothing_committed(
    sizes: list[int], pauses: list[int], seed: int, small: bool
) -> None:
    """What was committed when the power went is there in the next life, and every offset has one value for good."""
    rng = Random(seed)
    settings = (
        replace(ALONE, segment_bytes=1000, snapshot_bytes=600, retention_bytes=1500) if small else ALONE
    )
    disk = MemoryDisk()
    crashes: list[tuple[MemoryDisk, Offset]] = []
    bench = Bench(disk, settings)

    def crash(path: str) -> None:
        crashes.append((disk.crash_clone(rng), bench.hearer.now.offset))

    bench.start()
    disk.on_sync = crash
    number = 0
    for size, pause in zip(sizes, pauses, strict=False):
        records = []
        for _ in range(size):
            number += 1
            records.append(setting(f"s{number % 5}", f"{number}{'x' * 60}"))
        bench.propose(*records)
        bench.world.advance(pause)
    bench.world.advance(100)
    crash("the end")
    values = dict(bench.hearer.batches)
    for left, known in rng.sample(crashes, min(6, len(crashes))):
        again = Bench(left, settings).start()
        assert again.hearer.failure is None
        assert again.hearer.epoch == 2
        for offset, found in again.hearer.batches.items():
            assert values[offset] == found  # proposed there before the crash, and nothing else
        assert again.hearer.now.offset >= known
        expected = EMPTY
        for offset in sorted(values):
            if offset <= again.hearer.now.offset:
                expected = expected.replay(values[offset], offset, 1)
        assert settings_in(again.hearer.now) == settings_in(expected)
        # Life goes on, and the third one sees it.
        again.commit(setting("second life"))
        third = again.restart()
        assert settings_in(third.hearer.now) == settings_in(again.hearer.now)


@given(seed=st.integers(0, 2**32), syncs=st.integers(0, 12))
def test_a_power_cut_during_the_first_start_leaves_a_directory_that_starts(seed: int, syncs: int) -> None:
    rng = Random(seed)
    disk = MemoryDisk()
    disk.make_dirs(LOGS)
    disk.sync_dir("/")
    clones: list[MemoryDisk] = [disk.crash_clone(rng)]
    disk.on_sync = lambda _: clones.append(disk.crash_clone(rng))
    Bench(disk).start()
    again = Bench(clones[syncs % len(clones)]).start()
    assert again.hearer.epoch in (1, 2)
    again.commit(setting("a"))


# Voters.


def test_a_static_quorum_of_one_keeps_kraft_version_0() -> None:
    voters = VoterSet.of([Voter(ReplicaKey(1), ALONE.endpoints)])
    static = replace(ALONE, voters=voters)
    bench = Bench(settings=static).start()
    assert bench.quorum.kraft_version == 0
    assert bench.quorum.end_offset == 1  # the leader change alone
    assert b'"currentVoters":[{"voterId":1}]' in read_file(bench.disk, f"{DIRECTORY}/quorum-state")
    bench.commit(setting("a"))
    # Without the setting the directory itself says that the node is alone.
    again = bench.restart(settings=ALONE)
    assert again.hearer.epoch == 2
    assert again.quorum.kraft_version == 0
    assert settings_in(again.hearer.now) == {"a": "1"}


def test_a_static_quorum_of_others_is_refused_in_one_sentence() -> None:
    voters = VoterSet.of(Voter(ReplicaKey(each), ALONE.endpoints) for each in (1, 2))
    bench = Bench(settings=replace(ALONE, voters=voters))
    bench.quorum.start()
    bench.world.advance(5000)
    assert not bench.quorum.is_leader
    assert [voter.key.id for voter in bench.quorum.voters] == [1, 2]
    bench.quorum.abandon()
    with pytest.raises(StorageError, match=r"names the voters \[1, 2\], expected only node 1"):
        Bench(bench.disk)


def test_a_node_that_is_to_join_others_forms_no_quorum_of_its_own() -> None:
    bench = Bench(settings=replace(ALONE, is_standalone=False)).start()
    bench.world.advance(10_000)
    assert not bench.quorum.is_leader
    assert bench.names(".checkpoint") == []


def test_a_directory_of_another_replica_is_not_led() -> None:
    """KIP-853: the id alone does not make a voter, its directory does."""
    bench = Bench().start()
    bench.stop()
    other = Bench(bench.disk, directory_id=bytes(15) + b"\x77").start()
    assert not other.quorum.is_leader
    assert [voter.key.directory_id.bytes for voter in other.quorum.voters] != [bytes(15) + b"\x77"]


# What is refused.


def _cut_the_first_snapshot(disk: MemoryDisk) -> None:
    path = f"{DIRECTORY}/00000000000000000000-0000000000.checkpoint"
    file = disk.open(path, write=True)
    file.truncate(file.size() - 10)
    disk.open(f"{DIRECTORY}/00000000000000000000.log", write=True).truncate(0)


def _damage_the_log(disk: MemoryDisk) -> None:
    file = disk.open(f"{DIRECTORY}/00000000000000000000.log", write=True)
    file.pwrite([b"\xff"], 100)


def _spoil_the_vote(disk: MemoryDisk) -> None:
    disk.open(f"{DIRECTORY}/quorum-state", write=True).pwrite([b"nonsense"], 0)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_cut_the_first_snapshot, "-0000000000.checkpoint"),
        (_damage_the_log, "committed metadata is damaged"),
        (_spoil_the_vote, "quorum-state is"),
    ],
)
def test_a_spoiled_directory_is_refused_in_one_sentence(
    spoil: Callable[[MemoryDisk], None], words: str
) -> None:
    bench = Bench(disk := MemoryDisk()).start()
    bench.commit(setting("a"))
    bench.commit(setting("b"))
    bench.quorum.abandon()
    spoil(disk)
    with pytest.raises(KafkaError, match=words):
        Bench(disk)
