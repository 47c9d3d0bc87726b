"""kill -9 of a real process on a real disk: what it was told is durable, is there."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.storage.world import P, base_of, batches_of, check_log, end_of, open_small

from penstock.vfs import RealDisk

WRITER = """
import sys
from penstock.vfs import RealDisk
from tests.storage.world import NOW_MS, P, append, make_batch, open_small

directory = open_small(RealDisk(), path=sys.argv[1])
log = directory.logs.get(P) or directory.create(P, now_ms=NOW_MS)
n = 0
while True:
    append(log, make_batch(1 + n % 4, size=37 * (n % 9), timestamp=NOW_MS + n))
    if n % 3 == 0:
        log.flush()
        sys.stdout.write(f"{log.flushed}\\n")
        sys.stdout.flush()
    if n % 17 == 0:
        directory.checkpoint()
    n += 1
"""

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("acks", [1, 7, 40])
def test_everything_acknowledged_is_there_after_kill_9(tmp_path: Path, acks: int) -> None:
    flushed = end = 0
    for _ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        )
        assert writer.stdout is not None
        with writer.stdout:
            for _ in range(acks):
                flushed = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            # Acks that were in the pipe when it died count as much.
            flushed = max([flushed, *(int(line) for line in writer.stdout if line.endswith("\n"))])
        assert writer.wait() == -signal.SIGKILL

        directory = open_small(RealDisk(), path=str(tmp_path))
        log = directory.logs[P]
        assert log.log_end >= max(flushed, end)
        present = batches_of(log)
        assert base_of(present[0]) == 0
        assert end_of(present[-1]) == log.log_end
        check_log(log, present)
        end = log.log_end
        directory.abandon()
