"""Runs of the simulator over HTTP."""

import errno
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from tests.server.test_door_security import SECONDS_MAX, ask, code_of, until

from penstock.base.errors import KafkaError
from penstock.gateway.http.labs import EXTRAS
from penstock.gateway.shared.simulations import EVENTS_MAX, Ended, parsed
from penstock.sim.cluster_extras import Extra
from penstock.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http=True) as made:
        yield made


@pytest.mark.long
def test_a_seed_is_replayed_as_the_command_replays_it(broker: Broker) -> None:
    answer = ask(broker, "/labs/simulation?seed=7&seconds=3&nodes=3")
    found = json.loads(answer.data)  # type: ignore[attr-defined]
    assert (answer.status, found["ok"], found["failure"]) == (200, True, None)
    command = found["command"].split()
    assert command[:4] == ["penstock", "sim", "run", "--seed"]
    own = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    lines = own.stdout.splitlines()
    assert [f"{each['us']:>10} {each['text']}" for each in found["events"]] == lines[:-1]
    assert found["fingerprint"][:16] in lines[-1]
    assert any("leads the quorum" in each["text"] for each in found["events"])


@pytest.mark.long
def test_there_is_one_simulation_at_a_time_and_it_ends_with_its_client(broker: Broker) -> None:
    port = int(broker.http_url.rpartition(":")[2])
    with closing(HTTPConnection("127.0.0.1", port, timeout=SECONDS_MAX)) as connection:
        connection.request("GET", "/labs/simulation?seed=1&seconds=30&nodes=5")
        until(lambda: bool(simulators()))
        [pid] = simulators()
        assert os.getpriority(os.PRIO_PROCESS, pid) >= 10
        second = ask(broker, "/labs/simulation?seed=2&seconds=1")
        assert code_of(second) == (429, "throttling_quota_exceeded")
        assert int(second.headers["Retry-After"]) > 0
    until(lambda: not simulators())
    until(lambda: ask(broker, "/labs/simulation?seed=2&seconds=1").status == 200)


@pytest.mark.long
@pytest.mark.parametrize("lacking", ["TemporaryFile", "Popen"])
def test_a_simulation_that_cannot_start_is_reported(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    """On a full disk, or when no more processes can be started."""

    def fails(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as during:
        during.setattr(tempfile if lacking == "TemporaryFile" else subprocess, lacking, fails)
        failed = ask(broker, "/labs/simulation?seed=2&seconds=1")
    assert failed.status == 500
    assert b"No space left on device" in failed.data  # type: ignore[attr-defined]
    assert ask(broker, "/labs/simulation?seed=2&seconds=1").status == 200


def simulators() -> list[int]:
    """Processes that this one has started for a simulation."""
    found = []
    for each in Path("/proc").iterdir():
        try:
            words = (each / "cmdline").read_bytes().split(b"\0") if each.name.isdigit() else []
            parent = int((each / "stat").read_text().rpartition(")")[2].split()[1]) if words else 0
        except (OSError, ValueError, IndexError):
            continue
        if b"sim" in words and b"run" in words and parent == os.getpid():
            found.append(int(each.name))
    return found


@pytest.mark.parametrize(
    "query", ["seconds=31", "nodes=2", "nodes=9", "seed=-1", "with=magic", "with=doors,doors"]
)
def test_what_a_simulation_may_cost_is_bounded(broker: Broker, query: str) -> None:
    assert code_of(ask(broker, f"/labs/simulation?{query}")) == (400, "bad_parameter")


def test_the_faults_are_those_of_the_simulator() -> None:
    assert set(EXTRAS) <= {each.value for each in Extra}


def line(us: int, text: str) -> str:
    return f"{us:>10} {text}"


def run(*lines: str, complaint: str = "") -> Any:
    return parsed(Ended(0, "\n".join(lines).encode(), complaint))


def test_output_is_read_whatever_it_is() -> None:
    found = run(line(5, "a"), "    of two lines", line(7, "b"), '{"ok": true}')
    assert found.events == [(5, "a\n    of two lines"), (7, "b")]
    assert not found.is_cut
    assert run(*[line(each, "x") for each in range(EVENTS_MAX + 1)], "{}").is_cut
    for lines in ((), ("garbage",), (line(1, "x"),)):
        with pytest.raises(KafkaError, match="the simulation failed: no such command"):
            run(*lines, complaint="no such command")
