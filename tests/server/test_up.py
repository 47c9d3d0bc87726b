"""`penstock up` as a process: the ready line, signals, refusals, and a kill in the middle."""

import logging
import re
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.processes import Process, refusal

from penstock.client.admin import NewTopic, create_topics, list_topics
from penstock.client.cluster import Cluster
from penstock.client.settings import Address
from penstock.server.config import load
from penstock.server.process import OPEN_FILES_MIN, open_files_max
from penstock.server.up import OneLine
from penstock.storage.open_files import OPEN_FILES_MAX

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (DEBUG|INFO|WARNING|ERROR) [a-z_.]+: .+")


def cluster_of(process: Process) -> Cluster:
    return Cluster([Address("127.0.0.1", process.port)])


def test_a_node_serves_and_stops_cleanly(tmp_path: Path) -> None:
    with Process(data=tmp_path / "data") as process:
        with cluster_of(process) as cluster:
            [made] = create_topics(cluster, [NewTopic("orders", 2, 1)])
            assert made.error is None
        assert process.stop() == 0
        lines = process.stderr.splitlines()
        assert [each for each in lines if not LINE.fullmatch(each)] == []
        assert any("SIGTERM: stopping" in each for each in lines)
        assert lines[-1].endswith("stopped")
        assert (tmp_path / "data/logs/.kafka_cleanshutdown").exists()
        process.start()
        with cluster_of(process) as cluster:
            assert [each.name for each in list_topics(cluster)] == ["orders"]
        assert process.stop() == 0


def test_a_killed_node_starts_again_with_everything(tmp_path: Path) -> None:
    with Process(data=tmp_path) as process:
        for number in range(3):
            with cluster_of(process) as cluster:
                [made] = create_topics(cluster, [NewTopic(f"orders-{number}", 1, 1)])
                assert made.error is None
            process.kill()
            process.start()
        with cluster_of(process) as cluster:
            assert [each.name for each in list_topics(cluster)] == ["orders-0", "orders-1", "orders-2"]


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    """Two signals of different kinds, sent together, are both delivered."""
    with Process(data=tmp_path) as process:
        process.send(signal.SIGSTOP)
        process.send(signal.SIGTERM)
        process.send(signal.SIGINT)
        process.send(signal.SIGCONT)
        assert process.wait() in (128 + signal.SIGINT, 128 + signal.SIGTERM)
        assert "again: ending at once" in process.stderr
        process.start()
        assert process.stop() == 0


def test_two_nodes_do_not_share_a_directory(tmp_path: Path) -> None:
    with Process(data=tmp_path) as first:
        second = refusal(data=tmp_path)
        assert second.code == 2
        assert second.out == ""
        assert second.err.startswith("penstock: ")
        assert "is in use by another process" in second.err
        assert second.err.count("\n") == 1
        assert first.is_running


def test_a_port_that_is_taken_is_reported_and_nothing_is_made(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = refusal(data=tmp_path / "data", port=port)
    assert refused == (
        2,
        "",
        f"penstock: cannot listen on 127.0.0.1:{port}: the port is in use by another process; choose another port "
        "with --kafka\n",
    )
    assert not (tmp_path / "data").exists()


def test_a_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    with Process("--set", "node.id=3", data=tmp_path) as process:
        assert process.stop() == 0
    refused = refusal("--set", "node.id=4", data=tmp_path)
    assert refused.code == 2
    assert refused.err == f"penstock: {tmp_path}/logs belongs to node 3, but node.id is 4\n"


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = refusal(data=tmp_path / "file" / "data")
    assert (refused.code, refused.err) == (
        2,
        f"penstock: cannot open {tmp_path}/file/data: Not a directory\n",
    )


@pytest.mark.parametrize(
    ("arguments", "environment", "sentence"),
    [
        (("--set", "log.retention.mss=1"), {}, "did you mean log.retention.ms?"),
        (
            (),
            {"PENSTOCK_NUM_PARTITIONS": "none"},
            "num.partitions is 'none', expected a number (the environment's",
        ),
        ((), {"PENSTOCK_LOG": "loud"}, "PENSTOCK_LOG is 'loud', expected one of debug, info, warning, error"),
        (
            ("--http", "8080"),
            {},
            "--http is '8080', expected HOST:PORT, such as 127.0.0.1:8080 or :8080, or off",
        ),
        (("--line", "on"), {}, "--line is 'on', expected HOST:PORT, such as 127.0.0.1:9090 or :9090, or off"),
        (
            (),
            {"PENSTOCK_HTTP_LISTENER": "host"},
            "http.listener (the environment's PENSTOCK_HTTP_LISTENER) is 'host', expected HOST:PORT",
        ),
        (
            ("--http", ":0", "--set", "http.listener=off"),
            {},
            "--http is ':0' and http.listener is 'off', expected only one of them",
        ),
        (("--kafka", "off"), {}, "--kafka is 'off', expected HOST:PORT: every node serves Kafka clients"),
        (("--config", "nowhere.toml"), {}, "cannot read nowhere.toml: No such file or directory"),
        (("--nonsense",), {}, "No such option: --nonsense"),
    ],
)
def test_a_mistake_stops_the_start_with_one_sentence(
    tmp_path: Path, arguments: tuple[str, ...], environment: dict[str, str], sentence: str
) -> None:
    refused = refusal(*arguments, data=tmp_path / "data", environment=environment)
    assert refused.code == 2
    assert refused.out == ""
    assert refused.err.startswith("penstock: ")
    assert sentence in refused.err
    assert refused.err.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_settings_come_from_all_sources(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text("[num]\npartitions = 5\n[log]\nretention.hours = 3")
    flags = ("--config", str(tmp_path / "penstock.toml"), "--set", "log.segment.bytes=5000", "--http", "off")
    environment = {"PENSTOCK_NUM_PARTITIONS": "4", "PENSTOCK_LOG": "warning"}
    with Process(*flags, data=tmp_path / "data", environment=environment) as process:
        with cluster_of(process) as cluster:
            [made] = create_topics(cluster, [NewTopic("orders")])
            assert made.error is None
            [topic] = list_topics(cluster)
            assert len(topic.partitions) == 4
        assert process.stop() == 0
        assert process.stderr == ""


def test_files_and_clients_share_the_descriptors() -> None:
    assert open_files_max(1024) == 512
    assert open_files_max(1 << 20) == OPEN_FILES_MAX
    assert open_files_max(3) == OPEN_FILES_MIN


def test_a_log_line_is_one_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord("penstock.x", logging.ERROR, "x", 1, "a\r\nb", (), sys.exc_info())
    line = OneLine().format(record)
    assert LINE.fullmatch(line)
    assert "ValueError: two | lines" in line


PAGE = (Path(__file__).parents[2] / "docs/running.md").read_text()


def test_the_files_that_the_page_shows_are_taken(tmp_path: Path) -> None:
    for language in ("toml", "properties"):
        [block] = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
        file = tmp_path / f"shown.{language}"
        file.write_text(textwrap.dedent(block))
        assert load(file=str(file), environment={}).settings


def test_the_broker_that_the_page_shows_runs(tmp_path: Path) -> None:
    [block] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"127\.0\.0\.1:\d+\n", done.stdout)
