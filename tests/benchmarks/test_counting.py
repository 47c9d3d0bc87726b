"""The benchmark of counting runs, and measures something. How cheap counting is, is not judged here."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_it_measures_each_crowd() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.counting", "--quick", "--no-goals"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    shown = {row[0]: [float(each.rstrip("%")) for each in row[1:]] for row in rows if row[0].isdigit()}
    assert list(shown) == ["1", "8", "64"]
    assert all(request_us > counting_us for request_us, counting_us, _ in shown.values())
