"""Files of a log that has lost a segment, or a marker: a scan of committed records stops where it is in doubt."""

from pathlib import Path
from random import Random

import pytest
from tests.storage.test_holes import SETTINGS
from tests.storage.world import NOW_MS, P, append, make_batch

from penstock.arrow.scan.log_dirs import find_logs
from penstock.arrow.scan.log_files import with_view
from penstock.arrow.scan.transaction_outcomes import replay_transactions
from penstock.records import end_txn_marker, iter_batches
from penstock.storage.directory import open_directory
from penstock.vfs import RealDisk


def write(data: Path, *, clean: bool) -> list[Path]:
    """Segments at 0, 3 and 6; the middle one begins with the marker that aborts offset 0."""
    directory = open_directory(
        RealDisk(), str(data), now_ms=NOW_MS, rng=Random(1), settings_of=lambda _: SETTINGS
    )
    log = directory.create(P, now_ms=NOW_MS)
    append(log, make_batch(1, producer=(7, 0, 0), transactional=True))
    append(log, make_batch(2))
    log.roll(NOW_MS)
    append(log, bytearray(end_txn_marker(7, 0, False, 0, NOW_MS)), marker=True)
    append(log, make_batch(2))
    log.roll(NOW_MS)
    append(log, make_batch(1, producer=(7, 0, 1), transactional=True))
    append(log, bytearray(end_txn_marker(7, 0, True, 0, NOW_MS)), marker=True)
    if clean:
        directory.close()
    else:
        log.flush()
        directory.abandon()
    return sorted((data / "logs" / "orders-0").glob("*.log"))


def last_stable(data: Path) -> int:
    (location,) = find_logs(RealDisk(), str(data))
    return with_view(RealDisk(), location, lambda view: replay_transactions(RealDisk(), view)).last_stable


@pytest.mark.parametrize("clean", [True, False])
def test_a_whole_log_is_read_to_its_end(tmp_path: Path, clean: bool) -> None:
    write(tmp_path / "data", clean=clean)
    assert last_stable(tmp_path / "data") == 8


def test_a_scan_stops_where_a_transaction_began_whose_end_is_in_a_missing_segment(tmp_path: Path) -> None:
    segments = write(tmp_path / "data", clean=True)
    segments[1].unlink()
    assert last_stable(tmp_path / "data") == 0


def test_a_scan_stops_where_a_transaction_began_whose_marker_is_damaged(tmp_path: Path) -> None:
    segments = write(tmp_path / "data", clean=False)
    for snapshot in (tmp_path / "data" / "logs" / "orders-0").glob("*.snapshot"):
        snapshot.unlink()  # so that the markers are read
    content = bytearray(segments[1].read_bytes())
    marker = next(iter_batches(bytes(content)))
    assert marker.is_control
    content[marker.size - 1] ^= 1
    segments[1].write_bytes(content)
    assert last_stable(tmp_path / "data") == 0
