"""The fixtures as a user has them: in a project of their own, without an import."""

import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = """
import pytest

@pytest.fixture(scope="session")
def penstock_settings():
    return {"num.partitions": 2, "auto.create.topics.enable": False}

@pytest.fixture(scope="session")
def penstock_security():
    return "SASL_PLAINTEXT"
"""

TESTS = """
import socket

seen = []

def test_a_broker_for_this_test(penstock_broker, penstock_session_broker):
    assert penstock_broker.port != penstock_session_broker.port
    assert penstock_broker.settings["num.partitions"] == "2"
    penstock_broker.create_topic("orders", partitions=3, retention_ms=1000)
    assert penstock_broker.client().properties["security.protocol"] == "SASL_PLAINTEXT"
    seen.append((penstock_broker.port, penstock_session_broker.port, penstock_broker.data))

def test_another_one_for_the_next(penstock_broker, penstock_session_broker):
    [(_, session_port, data)] = seen
    assert penstock_broker.data != data
    assert penstock_session_broker.port == session_port
    penstock_broker.create_topic("orders")
    socket.create_connection(("127.0.0.1", session_port), timeout=30).close()
"""


@pytest.mark.long
def test_fixtures_are_there_in_any_project(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_theirs.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


@pytest.mark.long
def test_a_run_that_does_not_use_it_pays_for_nothing(tmp_path: Path) -> None:
    """pytest loads the plugin in every run of everybody who has Penstock installed."""
    (tmp_path / "test_theirs.py").write_text(
        "import sys\n"
        "def test_it():\n"
        "    assert 'penstock.testing.plugin' in sys.modules\n"
        "    loaded = {each for each in sys.modules if each.partition('.')[0] in ('penstock', 'kio', 'uvloop')}\n"
        "    assert loaded == {'penstock', 'penstock.testing', 'penstock.testing.plugin'}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
