"""The process that `penstock lab crash` kills: it appends and flushes until then.

It acknowledges each flush with a line on standard output, the offset. The content of a record follows from its offset,
so that a reader can verify it.
"""

import os
import random
import sys
import time

from penstock.base.ids import TopicPartition
from penstock.base.settings import LogSettings
from penstock.records import build_batch
from penstock.storage.directory import LogDirectory, open_directory
from penstock.vfs import RealDisk

PARTITION = TopicPartition("lab-crash", 0)
RECORDS_PER_BATCH = 5
BATCHES_PER_FLUSH = 3
FLUSHES_PER_CHECKPOINT = 25
BATCHES_MAX = 200_000
"""The writer ends here if it is not killed."""


def content(offset: int) -> tuple[bytes, bytes]:
    """Key and value of the record at an offset."""
    return b"key-%d" % (offset % 10), b"record %d of the crash lab" % offset


def settings_of(_: str) -> LogSettings:
    """Small segments, so that a little data makes many."""
    return LogSettings(segment_bytes=10_000, index_interval_bytes=1_000)


def open_lab(path: str) -> LogDirectory:
    return open_directory(
        RealDisk(), path, now_ms=time.time_ns() // 1_000_000, rng=random.Random(), settings_of=settings_of
    )


def new_batch(first_offset: int, now_ms: int) -> bytes:
    return build_batch(
        [(*content(offset), now_ms) for offset in range(first_offset, first_offset + RECORDS_PER_BATCH)]
    )


def main(path: str) -> None:
    directory = open_lab(path)
    log = directory.logs.get(PARTITION)
    if log is None:
        log = directory.create(PARTITION, now_ms=time.time_ns() // 1_000_000, topic_id=random.randbytes(16))
    for count in range(1, BATCHES_MAX):
        now_ms = time.time_ns() // 1_000_000
        log.append(new_batch(log.log_end, now_ms), leader_epoch=0, now_ms=now_ms)
        if count % BATCHES_PER_FLUSH == 0:
            log.flush()
            os.write(sys.stdout.fileno(), b"%d\n" % log.flushed)
        if count % (BATCHES_PER_FLUSH * FLUSHES_PER_CHECKPOINT) == 0:
            directory.checkpoint()


if __name__ == "__main__":
    main(sys.argv[1])
