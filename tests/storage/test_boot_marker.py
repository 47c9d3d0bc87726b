"""Who was killed has lost nothing, as long as its machine goes on and its disk can be trusted; else it may have."""

import json
from random import Random

import pytest
from tests.storage.world import NOW_MS, SMALL, P, append, files_of, make_batch, put

from penstock.storage.directory import LogDirectory, open_directory
from penstock.storage.errors import StorageError
from penstock.vfs import FaultyDisk, MemoryDisk, Vfs

FILE = "/data/meta/boot"
UNKNOWN = -1


def open_in(vfs: Vfs, boot_id: str | None = "monday", path: str = "/data") -> LogDirectory:
    return open_directory(
        vfs, path, now_ms=NOW_MS, rng=Random(1), settings_of=lambda _: SMALL, boot_id=boot_id
    )


def killed(boot_id: str | None = "monday") -> MemoryDisk:
    """What a broker left that was registered in epoch 7, wrote, and was killed."""
    disk = MemoryDisk()
    directory = open_in(disk, boot_id)
    log = directory.create(P, now_ms=NOW_MS)
    directory.registered(7)
    append(log, make_batch(3))
    append(log, make_batch(2))
    return disk.kill_clone()


# -- believed -----------------------------------------------------------------------------------------


def test_who_was_killed_while_its_machine_went_on_has_lost_nothing() -> None:
    directory = open_in(killed())
    assert directory.previous_broker_epoch == 7
    assert directory.logs[P].log_end == 5


def test_any_number_of_kills_before_the_next_registration_changes_nothing() -> None:
    disk = killed()
    for _ in range(3):
        directory = open_in(disk)
        directory.incarnation(Random(4))
        assert directory.previous_broker_epoch == 7
        disk = disk.kill_clone()


def test_after_a_clean_stop_a_kill_before_the_registration_is_trusted_in_any_boot() -> None:
    disk = killed()
    open_in(disk).close()  # before it was registered, and so without an epoch
    directory = open_in(disk)
    assert directory.previous_broker_epoch == 7
    directory.registered(8)
    directory.close()
    disk = disk.crash_clone(Random(1))
    assert open_in(disk, "tuesday").previous_broker_epoch == 8, "it stopped cleanly on monday"
    disk = disk.kill_clone()
    assert open_in(disk, "tuesday").previous_broker_epoch == 8
    assert open_in(disk.crash_clone(Random(2)), "wednesday").previous_broker_epoch == UNKNOWN


def test_a_batch_that_a_kill_cut_short_was_never_acknowledged() -> None:
    disk = killed()
    path = f"/data/logs/{P}/{0:020d}.log"
    put(disk, path, files_of(disk)[path] + bytes(make_batch(3))[:-20])
    assert open_in(disk).previous_broker_epoch == 7


# -- not believed -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_after_a_power_cut_whatever_is_left_of_the_file_is_of_another_boot(seed: int) -> None:
    disk = MemoryDisk()
    directory = open_in(disk)
    directory.create(P, now_ms=NOW_MS)
    directory.registered(7)
    disk = disk.crash_clone(Random(seed))
    assert open_in(disk, "tuesday").previous_broker_epoch == UNKNOWN


@pytest.mark.parametrize(("then", "now"), [("monday", None), (None, "monday"), (None, None)])
def test_where_the_machine_does_not_tell_its_boot_every_kill_is_unclean(
    then: str | None, now: str | None
) -> None:
    disk = killed(then)
    assert open_in(disk, now).previous_broker_epoch == UNKNOWN


def test_a_copy_elsewhere_on_the_machine_is_rejected() -> None:
    """It has what was there when it was made, and not what was written since."""
    disk = killed()
    for path, data in files_of(disk).items():
        copy = path.replace("/data", "/copy", 1)
        disk.make_dirs(copy.rpartition("/")[0])
        put(disk, copy, data)
    assert open_in(disk, path="/copy").previous_broker_epoch == UNKNOWN
    assert open_in(disk).previous_broker_epoch == 7


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"bootId": "monday", "directory": "/data/meta"}',
        b'{"bootId": "monday", "directory": "/data/meta", "brokerEpoch": "7"}',
        b'{"bootId": "monday", "directory": "/data/meta", "brokerEpoch": 7, "incarnationId": "?"}',
        b'{"bootId": "monday", "directory": "/data/meta", "brokerEpoch": -7}',
        b'{"bootId": "monday", "directory": "/data/meta", "brokerEpoch": 7}' + b" " * 10_000,
    ],
)
def test_a_file_that_is_torn_or_strange_says_nothing(said: bytes) -> None:
    disk = killed()
    assert json.loads(files_of(disk)[FILE])["brokerEpoch"] == 7
    put(disk, FILE, said)
    assert open_in(disk).previous_broker_epoch == UNKNOWN


def test_a_kill_right_after_a_failed_sync_is_unclean() -> None:
    """The kernel may show what the disk does not have, and drop it. The node has not heard of the failure yet."""
    disk = MemoryDisk()
    faults = FaultyDisk(disk)
    directory = open_in(faults)
    log = directory.create(P, now_ms=NOW_MS)
    directory.registered(7)
    append(log, make_batch(3))
    work = log.prepare_flush()
    assert work is not None
    faults.fail("sync", path="*.log", times=1)
    with pytest.raises(OSError, match="Input/output error"):
        work.run()
    assert open_in(disk.kill_clone()).previous_broker_epoch == UNKNOWN


def test_a_life_with_a_failed_sync_stays_in_doubt_until_the_next_registration() -> None:
    disk = MemoryDisk()
    faults = FaultyDisk(disk)
    directory = open_in(faults)
    log = directory.create(P, now_ms=NOW_MS)
    append(log, make_batch(3))
    faults.fail("sync", path="*.log", times=1)
    with pytest.raises(StorageError):
        log.flush()
    directory.registered(7)
    assert FILE not in files_of(disk)
    disk = disk.kill_clone()
    directory = open_in(disk)
    directory.registered(8)
    assert open_in(disk.kill_clone()).previous_broker_epoch == 8


@pytest.mark.parametrize("at", [70, -5])
def test_a_damaged_log_is_no_work_of_a_kill(at: int) -> None:
    disk = killed()
    path = f"/data/logs/{P}/{0:020d}.log"
    data = bytearray(files_of(disk)[path])
    data[at] ^= 1
    put(disk, path, bytes(data))
    assert open_in(disk).previous_broker_epoch == UNKNOWN
    assert open_in(disk.kill_clone()).previous_broker_epoch == UNKNOWN, "nor at the next start"


def test_a_file_that_cannot_be_written_is_not_left_to_speak_of_the_past() -> None:
    disk = killed()
    faults = FaultyDisk(disk)
    directory = open_in(faults)
    directory.incarnation(Random(4))
    faults.fail("rename", path="*/boot*", times=1)
    directory.registered(8)
    assert FILE not in files_of(disk)


# -- registrations nobody heard of --------------------------------------------------------------------


def test_who_has_not_heard_of_its_registration_asks_again_as_the_same() -> None:
    disk = killed()
    directory = open_in(disk)
    asked_as = directory.incarnation(Random(4))
    disk = disk.kill_clone()
    directory = open_in(disk)
    assert directory.incarnation(Random(5)) == asked_as
    assert directory.previous_broker_epoch == 7
    directory.registered(9)
    directory = open_in(disk.kill_clone())
    assert directory.incarnation(Random(6)) != asked_as
    assert directory.previous_broker_epoch == 9


def test_in_another_boot_it_asks_as_another() -> None:
    disk = killed()
    asked_as = open_in(disk).incarnation(Random(4))
    directory = open_in(disk.kill_clone(), "tuesday")
    assert directory.incarnation(Random(5)) != asked_as
    assert directory.previous_broker_epoch == UNKNOWN


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_a_log_that_ends_before_what_was_committed_has_lost_something(
    is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker registers as one that lost records: it leaves the ISRs that count on it."""
    disk = MemoryDisk()
    directory = open_in(disk)
    log = directory.create(P, now_ms=NOW_MS)
    directory.registered(7)
    append(log, make_batch(3))
    size = log.size_bytes
    append(log, make_batch(2))
    directory.checkpoints.high_watermarks[P] = 5
    directory.checkpoints.write_offsets()
    if is_clean:
        directory.close()
    disk = disk.kill_clone()
    disk.open(f"/data/logs/{P}/{0:020d}.log", write=True).truncate(size)
    directory = open_in(disk)
    assert directory.logs[P].log_end == 3
    assert directory.previous_broker_epoch == UNKNOWN
    assert "ends at offset 3, below its high watermark 5: committed records are missing" in caplog.text
