"""The benchmark of security runs, and measures each row. How cheap security is, is not judged here."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_it_measures_each_row() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.security", "--rounds", "1", "--seconds", "0.02"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr  # 1: a goal is missed
    for row in ("Produce, 16 KB", "Fetch, 1 MB", "TLS and SCRAM log-in", "Produce, one record, ACLs"):
        assert row in done.stdout
