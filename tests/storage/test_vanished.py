"""Partitions whose directories are gone between two lives: the node says so, and is not believed to have them."""

import logging

import pytest
from tests.storage.world import NOW_MS, P, append, make_batch, open_small

from penstock.vfs import MemoryDisk, remove_tree


def stopped_with_records() -> MemoryDisk:
    disk = MemoryDisk()
    directory = open_small(disk)
    append(directory.create(P, now_ms=NOW_MS), make_batch(3))
    directory.broker_epoch = 42
    directory.close()
    return disk


def test_a_stop_is_clean_while_everything_is_there() -> None:
    assert open_small(stopped_with_records()).previous_broker_epoch == 42


def test_a_directory_that_vanished_is_reported_and_the_stop_counts_as_unclean(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Else a replica with an empty log would be in the ISR, and the others would follow it."""
    disk = stopped_with_records()
    remove_tree(disk, "/data/logs/orders-0")
    again = open_small(disk)
    assert again.previous_broker_epoch == -1
    (told,) = (each for each in caplog.records if each.levelno == logging.ERROR)
    assert (
        "/data/logs/orders-0 is missing; the checkpoint has records in it up to offset 3" in told.getMessage()
    )


@pytest.mark.parametrize("state", ["delete", "stray"])
def test_a_directory_that_was_deleted_or_set_aside_is_none_of_these(state: str) -> None:
    disk = stopped_with_records()
    disk.rename("/data/logs/orders-0", f"/data/logs/orders-0.{'ab' * 16}-{state}")
    assert open_small(disk).previous_broker_epoch == 42
