"""`meta/metadata-synced`, and controllers whose metadata log ends before it."""

import logging
from random import Random

import pytest
from tests.controlplane.quorum_bench import DIRECTORY, LOGS, Bench, setting
from tests.controlplane.quorum_network import Quorums

from penstock.controlplane.synced_end import SLOT_BYTES, SyncedEndFile
from penstock.raft.log import OffsetAndEpoch
from penstock.vfs import MemoryDisk, make_dirs_durably, read_file

META = f"{LOGS}.meta"
PATH = f"{META}/metadata-synced"
LOG = f"{DIRECTORY}/00000000000000000000.log"


def file_on(disk: MemoryDisk) -> SyncedEndFile:
    make_dirs_durably(disk, META)
    return SyncedEndFile(disk, META)


def read(disk: MemoryDisk) -> OffsetAndEpoch | None:
    return SyncedEndFile(disk, META).read()


def flip(disk: MemoryDisk, path: str, position: int) -> None:
    file = disk.open(path, write=True)
    (byte,) = file.pread(1, position)
    file.pwrite([bytes([byte ^ 1])], position)
    file.sync()


# The file.


def test_a_directory_without_the_file_knows_nothing() -> None:
    assert read(MemoryDisk()) is None


def test_the_last_end_is_read_back_higher_or_lower() -> None:
    disk = MemoryDisk()
    file = file_on(disk)
    for end in (OffsetAndEpoch(3, 1), OffsetAndEpoch(7, 1), OffsetAndEpoch(5, 1), OffsetAndEpoch(6, 2)):
        file.write(end)
        assert file.end == read(disk) == end
        assert len(read_file(disk, PATH)) == 2 * SLOT_BYTES
    again = SyncedEndFile(disk, META)
    again.read()
    again.write(OffsetAndEpoch(8, 2))
    assert read(disk) == OffsetAndEpoch(8, 2)


def test_each_slot_is_a_line_that_people_can_read() -> None:
    disk = MemoryDisk()
    file_on(disk).write(OffsetAndEpoch(204, 21))
    assert b'{"sequence":1,"endOffset":204,"epoch":21}\n' in read_file(disk, PATH)


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_at_any_sync_leaves_an_end_that_was_written_last_or_is_being_written(seed: int) -> None:
    disk, rng = MemoryDisk(), Random(seed)
    file = file_on(disk)
    done: OffsetAndEpoch | None = None
    for number in range(1, 6):
        end = OffsetAndEpoch(number * 10, number)
        found: list[OffsetAndEpoch | None] = []
        disk.on_sync = lambda _, found=found: found.append(read(disk.crash_clone(rng)))  # type: ignore[misc]
        file.write(end)
        disk.on_sync = None
        assert all(each in (done, end) for each in found)
        done = end
        assert read(disk.crash_clone(rng)) == done


def test_a_damaged_slot_leaves_the_one_before(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    file = file_on(disk)
    file.write(OffsetAndEpoch(3, 1))
    file.write(OffsetAndEpoch(7, 1))
    for position in (2, SLOT_BYTES + 15):
        copy = disk.kill_clone()
        flip(copy, PATH, position)
        assert read(copy) == OffsetAndEpoch(3 if position >= SLOT_BYTES else 7, 1)
    assert "metadata-synced is damaged; the metadata log was synced to offset 3 at least" in caplog.text


def test_a_file_without_a_sound_slot_is_written_anew(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    disk.make_dirs(META)
    for content in (b"", b"\0" * 2000, b"nonsense", b"00000000 {}\n", b"zz"):
        disk.open(PATH, write=True, create=True).truncate(0)
        disk.open(PATH, write=True).pwrite([content], 0)
        file = SyncedEndFile(disk, META)
        assert file.read() is None
        file.write(OffsetAndEpoch(1, 1))
        assert read(disk) == OffsetAndEpoch(1, 1)
    assert "the log is accepted as it is" in caplog.text


# Controllers.


def test_records_count_only_once_the_file_says_that_they_are_synced() -> None:
    bench = Bench(disk := MemoryDisk()).start()
    for name in "abc":
        bench.commit(setting(name))
        assert read(disk) == OffsetAndEpoch(bench.quorum.high_watermark, 1)


@pytest.mark.parametrize("seed", range(10))
def test_a_power_cut_is_no_loss(seed: int) -> None:
    """What was cut off was never acknowledged: the node leads as before."""
    bench = Bench().start()
    rng = Random(seed)
    for name in "abcdef":
        bench.propose(setting(name))
        bench.world.advance(rng.randrange(3))
        bench = bench.restart(bench.disk.crash_clone(rng))  # type: ignore[attr-defined]
        assert bench.quorum.lost_end is None
        assert bench.hearer.epoch is not None


def test_a_controller_alone_that_lost_records_does_not_lead_and_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(disk := MemoryDisk()).start()
    for name in "abc":
        bench.commit(setting(name))
    bench.stop()
    size = disk.open(LOG).size()
    flip(disk, LOG, size - 5)
    again = bench.restart()
    again.world.advance(60_000)
    assert again.hearer.epoch is None
    assert again.quorum.is_recovering
    assert again.quorum.lost_end == OffsetAndEpoch(6, 1)
    assert (
        "ends at offset 5 in epoch 1, but was synced to offset 6 in epoch 1: its end is lost" in caplog.text
    )
    kept = [each.name for each in disk.list_dir(DIRECTORY) if each.name.endswith(".cut")]
    assert kept, "the bytes are set aside"


def test_a_controller_alone_whose_log_is_gone_is_not_taken_for_a_new_one() -> None:
    bench = Bench(disk := MemoryDisk()).start()
    bench.commit(setting("a"))
    bench.stop()
    for entry in disk.list_dir(DIRECTORY):
        disk.remove(f"{DIRECTORY}/{entry.name}")
    again = bench.restart()
    again.world.advance(60_000)
    assert again.hearer.epoch is None
    assert again.quorum.lost_end is not None
    assert again.quorum.lost_end.offset > 0


def test_who_removes_the_file_accepts_the_loss() -> None:
    bench = Bench(disk := MemoryDisk()).start()
    for name in "abc":
        bench.commit(setting(name))
    bench.stop()
    flip(disk, LOG, disk.open(LOG).size() - 5)
    disk.remove(PATH)
    assert bench.restart().hearer.epoch == 2


def test_a_voter_fetches_what_it_lost_and_leads_nobody_before(caplog: pytest.LogCaptureFixture) -> None:
    """Two of three have a record; one of them loses it, and is alone with the third, which never had it."""
    caplog.set_level(logging.WARNING)
    quorums = Quorums()
    leader = quorums.wait_for_leader()
    leader.propose(setting("kept"))
    quorums.settle()
    leader_id = quorums.id_of(leader)
    with_it, without_it = quorums.others(leader)
    quorums.kill(without_it)
    leader.propose(setting("committed by two"))
    quorums.settle()
    quorums.kill(leader_id)
    quorums.kill(with_it)
    disk = quorums.disks[with_it]
    flip(disk, LOG, disk.open(LOG).size() - 5)
    quorums.start(with_it)
    quorums.start(without_it)
    quorums.world.advance(30_000)
    assert quorums.leader is None
    assert quorums.benches[with_it].quorum.is_recovering
    quorums.start(leader_id)
    quorums.wait_for_leader().propose(setting("and on"))
    quorums.settle()
    assert quorums.check_alike() == dict.fromkeys(("kept", "committed by two", "and on"), "1")
    assert not quorums.benches[with_it].quorum.is_recovering
    assert "is complete again: the lost records were fetched" in caplog.text


def test_a_log_that_is_cut_for_a_leader_is_recorded_as_shorter() -> None:
    """What a deposed leader wrote alone was never committed: to lack it at the next start is no loss."""
    quorums = Quorums()
    old = quorums.wait_for_leader()
    old_id = quorums.id_of(old)
    quorums.network.cut.add(quorums.address(old_id))
    for number in range(5):
        old.propose(setting("lost", str(number)))
    quorums.world.run_until(lambda: quorums.leader is not None and quorums.leader is not old)
    quorums.settle()
    quorums.network.cut.clear()
    quorums.settle()
    ends = {SyncedEndFile(disk, META).read() for disk in quorums.disks.values()}
    assert ends == {OffsetAndEpoch(old.quorum.end_offset, old.quorum.epoch)}
