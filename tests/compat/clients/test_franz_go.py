"""franz-go, the Go client, through the small program in `go/`.

The program is built once into `.cache/` and again when its sources change. Where there is no Go, or the modules
cannot be fetched, the test is skipped with the reason.
"""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.compat.clients.servers import Server
from tests.compat.kafka.peer import CACHE, locked

SOURCES = Path(__file__).resolve().parent / "go"
BUILD_SECONDS_MAX = 300.0
NOT_OURS = ("dial tcp", "no such host", "requires go", "toolchain not available")
"""How Go says that it has no network, or is too old."""


@pytest.fixture(scope="session")
def program() -> Path:
    if shutil.which("go") is None:
        pytest.skip("no go on the PATH to build a franz-go program with")
    contents = b"".join(path.read_bytes() for path in sorted(SOURCES.iterdir()))
    built = CACHE / f"franz-go-{hashlib.sha256(contents).hexdigest()[:16]}"
    with locked(CACHE / "franz-go.lock"):
        if not built.exists():
            _build(built)
    return built


def _build(target: Path) -> None:
    places = {"GOPATH": str(CACHE / "go"), "GOCACHE": str(CACHE / "go-build"), "GOFLAGS": "-modcacherw"}
    try:
        done = subprocess.run(
            # Not optimised: it runs for a moment, and is built in half the time.
            ["go", "build", "-gcflags=all=-N -l", "-o", str(target), "."],
            cwd=SOURCES,
            env={**os.environ, **places},
            capture_output=True,
            encoding="utf-8",
            timeout=BUILD_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"go did not build the program within {BUILD_SECONDS_MAX:.0f} s")
    if done.returncode != 0 and any(words in done.stderr for words in NOT_OURS):
        pytest.skip(f"franz-go cannot be built here: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_franz_go_produces_reads_waits_and_deletes(program: Path, server: Server, name: str) -> None:
    done = subprocess.run(
        [str(program), server.bootstrap, name], capture_output=True, encoding="utf-8", timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "records": 1000,
        "middle": 77,
        "waited": True,
        "too_large": True,
        "brokers": 1,
        "deleted": True,
    }
