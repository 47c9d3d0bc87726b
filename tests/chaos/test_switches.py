"""Faults of a disk that another process switches on and off."""

import errno
import os
import pickle
from pathlib import Path

import pytest

from penstock.chaos.switches import Switch, SwitchedDisk, Switches


@pytest.fixture
def switches(tmp_path: Path) -> Switches:
    return Switches(tmp_path / "switches")


@pytest.fixture
def disk(switches: Switches) -> SwitchedDisk:
    return SwitchedDisk(str(switches.path))


def failure(disk: SwitchedDisk, path: Path) -> int | None:
    """The errno of a write."""
    file = disk.open(str(path), write=True, create=True)
    try:
        file.pwrite([b"x"], 0)
    except OSError as error:
        return error.errno
    finally:
        file.close()
    return None


@pytest.mark.parametrize(
    ("switch", "expected"),
    [
        (Switch.FULL, errno.ENOSPC),
        (Switch.READ_ONLY, errno.EROFS),
        (Switch.FAIL_WRITES, errno.EIO),
        (Switch.FAIL_SYNCS, None),
        (Switch.FAIL_READS, None),
    ],
)
def test_a_write_fails_while_its_switch_is_on(
    tmp_path: Path, switches: Switches, disk: SwitchedDisk, switch: Switch, expected: int | None
) -> None:
    path = tmp_path / "file"
    assert failure(disk, path) is None
    switches.set(switch)
    assert failure(disk, path) == expected
    switches.clear()
    assert failure(disk, path) is None


def test_a_full_disk_still_removes_files(tmp_path: Path, switches: Switches, disk: SwitchedDisk) -> None:
    assert failure(disk, tmp_path / "file") is None
    switches.set(Switch.FULL)
    disk.remove(str(tmp_path / "file"))
    assert not os.path.exists(tmp_path / "file")


def test_the_quorums_log_can_be_spared(tmp_path: Path, switches: Switches, disk: SwitchedDisk) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    switches.set(Switch.FAIL_WRITES)
    switches.set(Switch.SPARES_METADATA)
    assert failure(disk, directory / "file") is None
    assert failure(disk, tmp_path / "file") == errno.EIO


def test_a_child_process_that_is_handed_the_disk_has_the_same_faults(
    tmp_path: Path, switches: Switches, disk: SwitchedDisk
) -> None:
    copy = pickle.loads(pickle.dumps(disk))
    switches.set(Switch.FULL)
    assert failure(copy, tmp_path / "file") == errno.ENOSPC


def test_clearing_the_disks_faults_leaves_the_clock(switches: Switches) -> None:
    switches.set(Switch.CLOCK_AHEAD_MS, -5000)
    switches.clear()
    assert switches.get(Switch.CLOCK_AHEAD_MS) == -5000
