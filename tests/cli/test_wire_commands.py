"""topics, configs, produce and consume, against a broker of Penstock's in this process."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli import wire_tour
from tests.cli.conftest import Command
from tests.cli.test_main import PENSTOCK
from tests.cli.wire_tour import Shell

from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.consumer import Consumer
from penstock.client.settings import parse_servers
from penstock.server.ports import hold_port
from penstock.testing import Broker

SERVER_VARIABLE = "PENSTOCK_SERVER"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"auto.create.topics.enable": False}) as running:
        yield running


@pytest.fixture
def shell(penstock: Command, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(penstock, broker.bootstrap, monkeypatch)


@pytest.mark.parametrize(
    "tour", [wire_tour.topics, wire_tour.configs, wire_tour.records, wire_tour.places, wire_tour.codecs]
)
def test_the_tour(tour, shell: Shell) -> None:  # type: ignore[no-untyped-def]
    tour(shell)


def test_the_server_may_come_from_the_environment(
    penstock: Command, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SERVER_VARIABLE, f"127.0.0.1:1,{broker.bootstrap}")
    assert penstock("topics", "list").code == 0


def test_a_server_that_is_not_there_is_one_sentence(penstock: Command) -> None:
    with hold_port() as held:  # and nothing listens there
        port = held.getsockname()[1]
        for command in (("topics", "list"), ("consume", "a"), ("produce", "a"), ("configs", "describe")):
            outcome = penstock(*command, "--server", f"127.0.0.1:{port}")
            assert (outcome.code, outcome.out) == (2, "")
            assert outcome.err.startswith(f"penstock: cannot reach 127.0.0.1:{port}: connection refused; ")
            assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("topics", "list", "--server", "a:b"), "'a:b' is no server, expected HOST:PORT"),
        (
            ("topics", "create", "x", "--config", "nonsense"),
            "'nonsense' is not a setting: expected NAME=VALUE",
        ),
        (("configs", "set", "topic"), "topic needs a name: topic NAME"),
        (("configs", "set", "broker", "x", "a=b"), "broker needs an id: broker ID"),
        (("configs", "set", "topic", "x"), "nothing to set, expected NAME=VALUE"),
        (("configs", "unset", "brokers"), "nothing to unset, expected names of settings"),
        (("consume", "x", "--from", "yesterday"), "'yesterday' is not a position in a log"),
        (("consume", "x", "--format", "yaml"), "--format is 'yaml', expected one of text, full, json"),
        (("consume", "x", "--format", "%y"), "--format has %y, expected one of %t"),
        (("consume", "x", "--format", "a%"), "--format ends with %"),
        (("produce", "x", "--acks", "2"), "--acks is '2', expected 0, 1 or all"),
        (("produce", "x", "--compression", "zip"), "--compression is 'zip', expected one of none, gzip"),
        (("produce", "x", "--acks", "1", "--idempotent"), "--idempotent needs --acks all, and --acks is 1"),
        (("produce", "x", "--key-separator", ""), "--key-separator is empty"),
        (("produce", "x", "y.txt", "--size", "9"), "--size generates records, and cannot be used with files"),
        (
            ("produce", "x", "y.txt", "--file", "z"),
            "either files of lines or --file for whole files, not both",
        ),
        (("produce", "x", "--format", "json", "-K", ":"), "--format json cannot be used with separators"),
        (("produce", "x", "--header", "=v"), "--header: '=v' is not a header: expected NAME=VALUE"),
    ],
)
def test_a_mistake_is_one_sentence(shell: Shell, arguments: tuple[str, ...], sentence: str) -> None:
    shell("topics", "create", "x", "--if-not-exists", "--partitions", 1)
    server = () if "--server" in arguments else ("--server", shell.server)
    outcome = shell._penstock(*arguments, *server)
    assert (outcome.code, outcome.out) == (2, "")
    assert sentence in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_bad_timestamp_or_partition_is_one_sentence(shell: Shell) -> None:
    shell("topics", "create", "w", "--partitions", 2)
    outcome = shell.try_("produce", "w", "--timestamp", "soon")
    assert "--timestamp is 'soon', expected milliseconds" in outcome.err
    outcome = shell.try_("produce", "w", "--partition", 2, stdin=b"a\n")
    assert "topic w has no partition 2: it has 2 partitions, counted from 0" in outcome.err
    outcome = shell.try_("consume", "w", "--partition", 2)
    assert "topic w has no partition 2" in outcome.err
    assert "there is no such topic" in shell.try_("consume", "nope").err


def test_a_bad_line_is_reported_and_what_came_before_is_sent(shell: Shell) -> None:
    shell("topics", "create", "lines", "--partitions", 1)
    outcome = shell.try_("produce", "lines", "-K", ":", stdin=b"a:1\nb:2\nc\n")
    assert (outcome.code, outcome.err) == (
        2,
        "penstock: standard input, line 3: expected ':' after the key\n",
    )
    assert "produced 2 records" in outcome.out
    assert shell.lines("consume", "lines") == ["1", "2"]


def test_files_are_read_as_lines_or_whole(shell: Shell, tmp_path: Path) -> None:
    shell("topics", "create", "files", "--partitions", 1)
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo")
    (tmp_path / "b.bin").write_bytes(b"three\nfour\0\xff")
    shell("produce", "files", tmp_path / "a.txt")
    shell("produce", "files", "--file", tmp_path / "b.bin", "--key", "b")
    documents = [json.loads(line) for line in shell.lines("consume", "files", "--json")]
    assert [each.get("value") for each in documents] == ["one", "two", None]
    assert documents[2]["valueBase64"] == "dGhyZWUKZm91cgD/"
    assert documents[2]["key"] == "b"
    missing = shell.try_("produce", "files", tmp_path / "none.txt")
    assert missing.code == 2
    assert "none.txt: No such file or directory" in missing.err


def test_a_rate_is_kept_by_the_clock(shell: Shell) -> None:
    shell("topics", "create", "rate", "--partitions", 1)
    told = shell.json("produce", "rate", "--count", 11, "--size", 10, "--rate", 50)
    assert told["records"] == 11
    assert told["seconds"] >= 0.2


def test_a_record_larger_than_the_topic_allows_is_reported(shell: Shell) -> None:
    shell("topics", "create", "small", "--partitions", 1, "--config", "max.message.bytes=1000")
    outcome = shell.try_("produce", "small", "--count", 1, "--size", 2000)
    assert outcome.code == 2
    assert "MESSAGE_TOO_LARGE" in outcome.err
    shell("produce", "small", "--count", 50, "--size", 300)
    assert len(shell.lines("consume", "small")) == 50


def test_the_full_format_tells_where_a_record_is(shell: Shell) -> None:
    shell("topics", "create", "full", "--partitions", 1)
    shell("produce", "full", "--key", "k", "--timestamp", "2026-01-02T03:04:05Z", stdin=b"a\nb\nc\n")
    lines = shell.lines("consume", "full", "--until", 2, "--format", "full")
    assert lines == ["full-0:0 2026-01-02 03:04:05.000Z k a", "full-0:1 2026-01-02 03:04:05.000Z k b"]


def test_a_typed_line_is_sent_without_waiting_for_the_next(broker: Broker) -> None:
    broker.create_topic("typed")
    command = [*PENSTOCK, "produce", "typed", "--server", broker.bootstrap]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child,
        Cluster(parse_servers(broker.bootstrap)) as cluster,
    ):
        assert child.stdin is not None
        child.stdin.write(b"first\n")
        child.stdin.flush()
        cluster.topic("typed")
        consumer = Consumer(cluster, {TopicPartition("typed", 0): 0})
        (fetched,) = consumer.poll(60_000)
        assert [record.value for record in fetched.records] == [b"first"]
        assert child.poll() is None
        out, _ = child.communicate(b"second")
    assert child.returncode == 0
    assert out.startswith(b"produced 2 records, 11 bytes")


def test_following_goes_on_until_it_is_interrupted(broker: Broker, shell: Shell) -> None:
    shell("topics", "create", "followed", "--partitions", 1)
    command = [*PENSTOCK, "consume", "followed", "--follow", "--server", broker.bootstrap]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  # a background job ignores it
    ) as child:
        assert child.stdout is not None
        for line in (b"one\n", b"two\n"):
            shell("produce", "followed", stdin=line)
            assert child.stdout.readline() == line
        child.send_signal(signal.SIGINT)
        _, complaint = child.communicate()
    assert complaint == b""
    assert child.returncode == 130


def test_a_reader_that_goes_away_is_no_reason_to_complain(broker: Broker, shell: Shell) -> None:
    """`penstock consume ... | head -1`"""
    shell("topics", "create", "piped", "--partitions", 1)
    shell("produce", "piped", "--count", 2000, "--size", 1000)
    command = [*PENSTOCK, "consume", "piped", "--server", broker.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline().startswith(b"0 ")
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 141


def test_a_restart_between_is_not_noticed(
    tmp_path: Path, penstock: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker(data=tmp_path / "data") as own:
        there = Shell(penstock, own.bootstrap, monkeypatch)
        there("topics", "create", "kept", "--partitions", 1)
        there("produce", "kept", stdin=b"a\n")
        own.restart()
        there("produce", "kept", stdin=b"b\n")
        assert there.lines("consume", "kept") == ["a", "b"]


def test_a_closed_standard_input_is_one_sentence(shell: Shell, broker: Broker) -> None:
    shell("topics", "create", "closed", "--partitions", 1)
    for arguments, code in (("produce", 2), ("topics delete", 0)):
        command = f'exec "$@" {arguments} closed --server {broker.bootstrap} <&-'
        done = subprocess.run(
            ["sh", "-c", command, "sh", *PENSTOCK], capture_output=True, text=True, check=False
        )
        assert done.returncode == code
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("topics",),
        *(("topics", each) for each in ("create", "list", "describe", "alter", "delete")),
        ("configs",),
        *(("configs", each) for each in ("describe", "set", "unset")),
        ("produce",),
        ("consume",),
    ],
)
def test_every_command_has_help_with_an_example(penstock: Command, command: tuple[str, ...]) -> None:
    outcome = penstock(*command, "--help")
    assert outcome.code == 0
    assert f"\n  penstock {' '.join(command)}" in outcome.out


def test_the_list_of_commands_loads_none_of_them() -> None:
    probe = "import sys; from penstock.cli.main import run; run(['--help']); print(*sys.modules)"
    done = subprocess.run([PENSTOCK[0], "-c", probe], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not {"rich", "msgspec", "cramjam"} & loaded
    assert {each for each in loaded if each.startswith("penstock.")} == {
        "penstock.cli",
        "penstock.cli.app",
        "penstock.cli.command_group",
        "penstock.cli.main",
        "penstock.cli.output",
    }
