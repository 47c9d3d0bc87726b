"""A data directory with a bit of everything, and ways to damage it."""

import shutil
import tarfile
from pathlib import Path
from random import Random

from penstock.base.ids import TopicPartition
from penstock.base.settings import LogSettings
from penstock.records import build_batch, end_txn_marker
from penstock.storage.directory import LogDirectory, open_directory
from penstock.storage.log import Log
from penstock.storage.rules import Origin
from penstock.vfs import RealDisk

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "kafka"

NOW_MS = 1_700_000_000_000
INTERVAL_BYTES = 300
SETTINGS = LogSettings(segment_bytes=1500, index_interval_bytes=INTERVAL_BYTES)

ORDERS = TopicPartition("orders", 0)
QUIET = TopicPartition("orders", 1)


def open_data(path: Path) -> LogDirectory:
    return open_directory(RealDisk(), str(path), now_ms=NOW_MS, rng=Random(7), settings_of=lambda _: SETTINGS)


def append_orders(log: Log, *, keys: int = 20, from_sequence: int = 0) -> None:
    """Plain, idempotent and transactional batches, commits and aborts, in two leader epochs.

    110 offsets; each of two producers uses 40 sequence numbers.
    """
    sequences = {1: from_sequence, 2: from_sequence}
    first_epoch = from_sequence // 40
    clock = NOW_MS

    def append(data: bytes, epoch: int, origin: Origin = Origin.CLIENT) -> None:
        log.append(data, leader_epoch=epoch, now_ms=clock, origin=origin)

    for turn in range(20):
        epoch = first_epoch + turn // 10
        for producer_id in (1, 2):
            clock += 7
            batch = build_batch(
                [
                    (b"key-%d" % (turn % keys), b"value %d of %d" % (number, turn), clock)
                    for number in range(2)
                ],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequences[producer_id],
                transactional=True,
            )
            append(batch, epoch)
            sequences[producer_id] += 2
        append(build_batch([(b"plain", b"plain", clock - 3, [("trace", b"\x00\xff")])]), epoch)
        if turn % 4 == 3:
            for producer_id in (2, 1):
                clock += 1
                is_commit = (turn + producer_id) % 3 == 0
                append(end_txn_marker(producer_id, 0, is_commit, 5, clock), epoch, Origin.COORDINATOR)


def write_data(path: Path) -> Path:
    """A data directory that was stopped cleanly; return it."""
    directory = open_data(path)
    topic_id = Random(1).randbytes(16)
    append_orders(directory.create(ORDERS, now_ms=NOW_MS, topic_id=topic_id))
    quiet = directory.create(QUIET, now_ms=NOW_MS, topic_id=topic_id)
    quiet.append(build_batch([(b"k", b"v", NOW_MS)]), leader_epoch=0, now_ms=NOW_MS)
    directory.close()
    return path


def copy_golden(target: Path) -> Path:
    shutil.copytree(GOLDEN / "logs", target)
    return target


def unpack_unclean(target: Path) -> Path:
    """The directory of a Kafka that was killed."""
    with tarfile.open(GOLDEN / "unclean.tar.gz") as archive:
        archive.extractall(target, filter="data")
    return target / "unclean"


def flip(path: Path, position: int, mask: int = 0x01) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(data)


def tree(path: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a directory, with its time and content."""
    return {
        str(each.relative_to(path)): (each.stat().st_mtime_ns, each.read_bytes())
        for each in sorted(path.rglob("*"))
        if each.is_file()
    }
