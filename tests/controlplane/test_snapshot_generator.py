"""Snapshots of the metadata log: when they are taken, what goes for them, and what is made of bad ones."""

import errno
import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.controlplane.quorum_bench import ALONE, DIRECTORY, Bench, setting, settings_in

from penstock.controlplane.metadata_snapshots import SnapshotReader
from penstock.controlplane.snapshot_generator import CALM_MS, SNAPSHOT_BYTES_MIN
from penstock.metadata.records import BeginTransactionRecord, EndTransactionRecord
from penstock.storage.errors import StorageError
from penstock.vfs import FaultyDisk, File, MemoryDisk, read_file

SMALL = replace(ALONE, segment_bytes=2000, snapshot_bytes=1000, retention_bytes=4000)
FIRST = "00000000000000000000-0000000000.checkpoint"


def fill(bench: Bench, count: int) -> None:
    for number in range(count):
        bench.commit(setting(f"s{number % 7}", f"{number}{'x' * 100}"))


def snapshots(bench: Bench) -> list[str]:
    return bench.names(".checkpoint")


def first_segment(bench: Bench) -> int:
    return int(bench.names(".log")[0].removesuffix(".log"))


def test_enough_bytes_make_a_snapshot_that_the_next_start_loads() -> None:
    bench = Bench(settings=replace(ALONE, snapshot_bytes=1000)).start()
    fill(bench, 8)
    assert len(snapshots(bench)) == 2
    name = snapshots(bench)[-1]
    offset = int(name[:20])
    assert name == f"{offset:020d}-0000000001.checkpoint"
    fill(bench, 1)
    again = bench.restart()
    assert again.hearer.heard[0] == ("loaded", offset - 1)
    assert again.hearer.heard[1][0] == "committed"
    assert again.hearer.now == bench.hearer.now
    assert min(again.hearer.batches) >= offset


def test_a_snapshot_names_the_voters_and_the_time_of_its_last_record() -> None:
    bench = Bench(settings=replace(ALONE, snapshot_bytes=1)).start()
    bench.world.advance(5000)
    before = bench.world.now_ms()
    bench.commit(setting("a"))
    reader = SnapshotReader(bench.disk, f"{DIRECTORY}/{snapshots(bench)[-1]}")
    assert list(reader.records()) == [setting("a")]
    assert reader.timestamp == before
    assert reader.kraft_version == 1
    assert reader.voters == bench.quorum.voters


def test_time_makes_a_snapshot_where_there_is_something_new() -> None:
    bench = Bench().start()
    bench.world.advance(2 * ALONE.snapshot_interval_ms)
    assert snapshots(bench) == [FIRST]
    bench.commit(setting("a"))
    bench.world.advance(ALONE.snapshot_interval_ms)
    assert snapshots(bench) == [FIRST, "00000000000000000004-0000000001.checkpoint"]
    bench.world.advance(5 * ALONE.snapshot_interval_ms)
    assert len(snapshots(bench)) == 2
    assert bench.world.is_idle


def test_without_an_interval_time_makes_none() -> None:
    bench = Bench(settings=replace(ALONE, snapshot_interval_ms=0)).start()
    bench.commit(setting("a"))
    assert bench.world.is_idle
    assert snapshots(bench) == [FIRST]


def test_a_log_far_larger_than_its_snapshot_makes_one_when_things_are_calm() -> None:
    """Long before Kafka's limits: a start would read every change there ever was, to end up with a small image."""
    bench = Bench().start()
    half = "x" * (SNAPSHOT_BYTES_MIN // 2)
    bench.commit(setting("a", half))
    bench.world.advance(CALM_MS)
    assert snapshots(bench) == [FIRST], "it is not that large yet"
    bench.commit(setting("a", half))
    bench.commit(setting("a", "small"))
    assert snapshots(bench) == [FIRST]
    bench.world.advance(CALM_MS)
    assert len(snapshots(bench)) == 2
    again = bench.restart()
    assert again.hearer.now == bench.hearer.now
    assert not again.hearer.batches or min(again.hearer.batches) >= int(snapshots(again)[1][:20])


def test_an_open_transaction_is_waited_for() -> None:
    bench = Bench(settings=replace(ALONE, snapshot_bytes=1)).start()
    bench.commit(BeginTransactionRecord(name="long"), setting("a"))
    bench.commit(setting("b"))
    assert snapshots(bench) == [FIRST]
    end = bench.commit(EndTransactionRecord())
    assert snapshots(bench) == [FIRST, f"{end + 1:020d}-0000000001.checkpoint"]
    assert settings_in(bench.restart().hearer.now) == {"a": "1", "b": "1"}


def test_old_segments_and_snapshots_go_and_the_rest_serves() -> None:
    bench = Bench(settings=SMALL).start()
    fill(bench, 60)
    assert first_segment(bench) > 0
    assert FIRST not in snapshots(bench)
    assert bench.quorum.start_offset == int(snapshots(bench)[0][:20])
    assert sum(entry.size for entry in bench.disk.list_dir(DIRECTORY)) < 3 * SMALL.retention_bytes
    for ending in ("abandon", "stop"):
        if ending == "stop":
            bench.stop()
        again = bench.restart()
        assert again.hearer.now == bench.hearer.now
        assert again.quorum.start_offset == int(snapshots(bench)[0][:20])
        assert again.quorum.voters == bench.quorum.voters
        assert again.quorum.kraft_version == 1
        fill(again, 5)
        bench = again


def test_old_metadata_goes_by_time_too() -> None:
    bench = Bench(settings=replace(SMALL, retention_bytes=-1, retention_ms=1_000_000)).start()
    fill(bench, 20)
    kept = snapshots(bench)
    assert FIRST in kept
    bench.world.advance(1_000_001)
    fill(bench, 9)
    assert not set(kept[:-1]) & set(snapshots(bench))
    assert snapshots(bench)


def test_a_large_image_takes_several_batches() -> None:
    bench = Bench(settings=replace(ALONE, snapshot_bytes=3 << 20)).start()
    for number in range(4):
        bench.commit(*(setting(f"{number}-{each}", "x" * 10_000) for each in range(80)))
    again = bench.restart()
    assert again.hearer.heard[0] == ("loaded", 3 + 320 - 1)
    assert again.hearer.now == bench.hearer.now


def test_a_snapshot_that_cannot_be_written_is_tried_again() -> None:
    disk = FaultyDisk(MemoryDisk())
    bench = Bench(disk, replace(ALONE, snapshot_bytes=1000)).start()
    disk.fail("sync", path="*.part", error=errno.ENOSPC, times=1)
    fill(bench, 6)
    assert snapshots(bench) == [FIRST]
    assert bench.names(".part") == []
    fill(bench, 6)
    assert len(snapshots(bench)) == 2
    assert bench.hearer.failure is None


def test_a_stop_waits_for_the_snapshot_that_is_being_written() -> None:
    bench = Bench(settings=replace(ALONE, snapshot_bytes=1)).start()
    bench.propose(setting("a"))
    bench.world.run_until(lambda: bench.hearer.now.offset == 3)
    assert bench.world.works == 1
    assert snapshots(bench) == [FIRST]
    bench.stop()
    assert len(snapshots(bench)) == 2
    assert bench.world.is_idle


# What a start makes of what it finds.


def cut_short(file: File) -> None:
    file.truncate(file.size() - 30)


def flip(file: File) -> None:
    file.pwrite([bytes([file.pread(1, 150)[0] ^ 1])], 150)


def empty(file: File) -> None:
    file.truncate(0)


@pytest.mark.parametrize("spoil", [cut_short, flip, empty])
def test_a_bad_snapshot_is_left_aside_for_an_older_one(
    spoil: Callable[[File], None], caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(settings=replace(SMALL, retention_bytes=-1)).start()
    fill(bench, 30)
    bench.quorum.abandon()
    good, bad = snapshots(bench)[-2:]
    spoil(bench.disk.open(f"{DIRECTORY}/{bad}", write=True))
    with caplog.at_level(logging.WARNING):
        again = bench.restart()
    assert bad in caplog.text
    assert again.hearer.heard[0] == ("loaded", int(good[:20]) - 1)
    assert again.hearer.now == bench.hearer.now


def test_a_bad_first_snapshot_is_no_loss_once_the_log_has_the_voters() -> None:
    bench = Bench(settings=replace(ALONE, snapshot_bytes=1000)).start()
    fill(bench, 8)
    bench.quorum.abandon()
    empty(bench.disk.open(f"{DIRECTORY}/{FIRST}", write=True))
    again = bench.restart()
    assert again.quorum.voters == bench.quorum.voters
    assert again.quorum.kraft_version == 1
    assert again.hearer.now == bench.hearer.now


def test_a_log_whose_beginning_no_snapshot_covers_is_refused() -> None:
    bench = Bench(settings=SMALL).start()
    fill(bench, 60)
    bench.quorum.abandon()
    for name in snapshots(bench):
        empty(bench.disk.open(f"{DIRECTORY}/{name}", write=True))
    with pytest.raises(
        StorageError, match=f"starts at offset {first_segment(bench)}, and no readable snapshot"
    ):
        Bench(bench.disk, SMALL)


def test_a_log_that_ends_before_its_latest_snapshot_begins_anew_there() -> None:
    """KIP-630: a follower that crashed after it had fetched a snapshot and before it had cut its log."""
    bench = Bench(settings=replace(ALONE, snapshot_bytes=1000)).start()
    fill(bench, 8)
    latest = bench.quorum.latest_snapshot
    assert latest is not None
    bench.quorum.abandon()
    log = f"{DIRECTORY}/00000000000000000000.log"
    bench.disk.open(log, write=True).truncate(296)  # the first three records
    bench.disk.remove("/data.meta/metadata-synced")  # it never had more
    again = bench.restart()
    assert again.quorum.start_offset == latest.offset
    assert again.hearer.heard[0] == ("loaded", latest.offset - 1)
    assert again.hearer.epoch == 2
    again.commit(setting("onward"))
    assert settings_in(again.restart().hearer.now)["onward"] == "1"


def test_what_was_never_finished_is_removed() -> None:
    bench = Bench().start()
    bench.quorum.abandon()
    for suffix in (".part", ".deleted"):
        bench.disk.open(
            f"{DIRECTORY}/00000000000000000009-0000000001.checkpoint{suffix}", write=True, create=True
        )
    again = bench.restart()
    assert again.names() == bench.names()
    assert not again.names(".part")
    assert not again.names(".deleted")


def test_a_reader_sees_through_every_cut_of_a_snapshot() -> None:
    bench = Bench(settings=replace(ALONE, snapshot_bytes=1)).start()
    bench.commit(setting("a"), setting("b"))
    whole = read_file(bench.disk, f"{DIRECTORY}/{snapshots(bench)[-1]}")
    path = f"{DIRECTORY}/cut"
    file = bench.disk.open(path, write=True, create=True)
    for length in range(len(whole)):
        file.truncate(0)
        file.pwrite([whole[:length]], 0)
        with pytest.raises(StorageError, match=path):
            list(SnapshotReader(bench.disk, path).records())
    file.pwrite([whole, whole], 0)
    with pytest.raises(StorageError, match="after its footer"):
        list(SnapshotReader(bench.disk, path).records())
