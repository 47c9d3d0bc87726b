"""`penstock chaos` from outside: what it prints, how it ends, and that no process of it is left."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

COMMAND = (sys.executable, "-m", "penstock", "chaos")
WAIT_S_MAX = 300.0
QUICK = ("--set", "broker.session.timeout.ms=1500", "--set", "broker.heartbeat.interval.ms=300")
FAULTS = ("--fault", "kill", "--fault", "pause", "--fault", "disk-full")


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=WAIT_S_MAX
    )


def brokers_of(directory: Path) -> list[int]:
    """Processes that were started on this directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"penstock.chaos.node" in words and str(directory).encode() in words:
                found.append(int(entry.name))
    return found


def wait_until_gone(directory: Path) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while brokers_of(directory):
        assert time.monotonic() < deadline, f"{brokers_of(directory)} are left"
        time.sleep(0.05)


@contextmanager
def campaign(directory: Path) -> Iterator["subprocess.Popen[str]"]:
    """A campaign whose brokers have been started."""
    child = subprocess.Popen(
        [*COMMAND, "run", "--plain", "--fault", "kill", "--data", str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        deadline = time.monotonic() + WAIT_S_MAX
        while len(brokers_of(directory)) < 3:
            assert child.poll() is None, child.stdout and child.stdout.read()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def test_faults_are_listed_with_what_they_do() -> None:
    told = run("faults")
    assert told.returncode == 0
    for name in ("kill", "pause", "cut-one-way", "disk-full", "two-at-once"):
        assert name in told.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--fault", "rain"), "--fault is 'rain', expected one of kill, kill-all"),
        (("--data", "."), ". is not empty: expected a new or empty directory"),
        (("--set", "nonsense"), "nonsense"),
    ],
)
def test_what_cannot_be_run_is_refused_in_a_sentence(arguments: tuple[str, ...], expected: str) -> None:
    told = run("run", *arguments)
    assert told.returncode == 2
    assert expected in told.stderr
    assert "Traceback" not in told.stderr


def test_ctrl_c_ends_all_brokers(tmp_path: Path) -> None:
    with campaign(tmp_path / "data") as child:
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=WAIT_S_MAX)
    assert child.returncode == 130, out
    assert "interrupted" in out
    assert brokers_of(tmp_path / "data") == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's death")
def test_brokers_do_not_outlive_a_campaign_that_is_killed(tmp_path: Path) -> None:
    with campaign(tmp_path / "data") as child:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        wait_until_gone(tmp_path / "data")


def test_brokers_that_are_killed_paused_and_filled_keep_their_promises() -> None:
    told = run("run", "--plain", "--minutes", "0.1", "--seed", "1", "--json", *QUICK, *FAULTS)
    assert told.returncode == 0, told.stdout + told.stderr
    result = json.loads(told.stdout)
    assert result["ok"]
    assert result["violations"] == []
    assert result["seed"] == 1
    assert {each["name"] for each in result["faults"]} <= {"kill", "pause", "disk-full"}
    assert result["faults"]
    assert result["acked"] > 0
    assert result["read"] > 0
    assert not Path(result["directory"]).exists(), "what went well is not kept unless asked"
