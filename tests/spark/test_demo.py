"""`make run`, as it runs where nobody sits in front of it."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = (sys.executable, "-m", "penstock", "demo", "--rate", "200")
WAIT_S_MAX = 400.0


def test_it_shows_results_for_a_while_and_ends_with_every_order_in_both_places(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "--data", tmp_path, "--seconds", "1"],
        capture_output=True,
        text=True,
        timeout=WAIT_S_MAX,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    counts = re.search(r"([\d,]+) orders made, ([\d,]+) summed up, ([\d,]+) in the table", done.stdout)
    assert counts is not None, done.stdout
    assert counts[1] != "0"
    assert counts[1] == counts[2] == counts[3]
    assert list((tmp_path / "table").glob("*.parquet"))


@pytest.mark.long
def test_ctrl_c_ends_all_of_it(tmp_path: Path) -> None:
    with subprocess.Popen([*COMMAND, "--data", tmp_path], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        first = next(line for line in child.stdout if "in the table" in line)
        assert "orders made" in first
        child.send_signal(signal.SIGINT)
        told = child.stdout.read()
        assert child.wait(WAIT_S_MAX) == 0
    assert "everything is in" in told
