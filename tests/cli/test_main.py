"""The command as a process: exit codes, pipes, signals, and how quickly it answers."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Command
from tests.cli.data import GOLDEN

import penstock as package
from penstock.cli import app

PENSTOCK = [sys.executable, "-c", "from penstock.cli.main import main; main()"]
LOGS = sorted(str(each) for each in (GOLDEN / "logs").glob("*/*.log"))


def test_the_version_is_said_and_little_is_loaded() -> None:
    probe = "import sys; from penstock.cli.main import run; run(['--version']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    version, modules = done.stdout.splitlines()
    assert version == f"penstock {package.__version__}"
    assert not {"typer", "rich", "msgspec", "penstock.storage"} & set(modules.split())


def test_help_loads_no_storage() -> None:
    probe = "import sys; from penstock.cli.main import run; run(['log', '--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert not {"rich", "msgspec", "penstock.storage", "cramjam"} & set(done.stdout.split())


@pytest.mark.parametrize(
    "command", [(), ("log",), ("log", "ls"), ("log", "dump"), ("log", "check"), ("lab", "crash")]
)
def test_every_command_has_help_with_an_example_or_a_reason(
    penstock: Command, command: tuple[str, ...]
) -> None:
    outcome = penstock(*command, "--help")
    assert outcome.code == 0
    assert outcome.out.startswith("Usage: penstock")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("log", "bogus"), "No such command 'bogus'."),
        (("log", "ls"), "Missing argument 'DIR'."),
        (("log", "ls", "nowhere"), "nowhere: no such directory"),
        (("log", "check", __file__), "is a file, not a directory"),
        (("log", "check", str(Path(__file__).parent)), "is not a log directory: expected a data directory"),
        (("log", "rebuild", "nowhere"), "nowhere: no such directory"),
        (("log", "dump", "nowhere.log"), "nowhere.log: no such file"),
        (("log", "ls", "--nonsense", "x"), "No such option: --nonsense"),
        (("log", "dump", "x.log", "--max-batches", "none"), "--max-batches"),
    ],
)
def test_an_error_is_one_sentence(penstock: Command, arguments: tuple[str, ...], sentence: str) -> None:
    outcome = penstock(*arguments)
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith("penstock: ")
    assert sentence in outcome.err
    assert outcome.err.count("\n") == 1


def test_without_a_command_the_help_is_shown(penstock: Command) -> None:
    outcome = penstock()
    assert outcome.code == 2
    assert outcome.err.startswith("Usage: penstock")


def test_a_directory_that_may_not_be_read_is_one_sentence(
    penstock: Command, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", str(data))

    monkeypatch.setattr("penstock.vfs.RealDisk.list_dir", refuse)
    outcome = penstock("log", "ls", data)
    assert (outcome.code, outcome.err) == (2, f"penstock: {data}: Permission denied\n")


def test_a_reader_that_goes_away_is_no_reason_to_complain() -> None:
    """`penstock log dump ... | head -1`"""
    command = [*PENSTOCK, "log", "dump", "--records", *LOGS * 20]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline().startswith(b"Dumping ")
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 141


def test_an_interrupt_ends_it_quietly() -> None:
    command = [*PENSTOCK, "log", "dump", "--records", *LOGS * 20]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  # a background job ignores it
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()  # it runs, and cannot end before more of it is read
        child.send_signal(signal.SIGINT)
        _, complaint = child.communicate()
    assert complaint == b""
    assert child.returncode == 130


def test_a_name_that_is_no_text_can_be_shown(tmp_path: Path) -> None:
    path = bytes(tmp_path) + b"/\xff\x1b[31m.index"
    with open(path, "wb") as file:
        file.write(bytes(3))
    done = subprocess.run([*PENSTOCK, "log", "dump", path], capture_output=True, check=False)
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr


def test_exit_codes_are_what_the_process_ends_with(data: Path, orders: Path) -> None:
    next(iter(orders.glob("*.index"))).unlink()
    done = subprocess.run([*PENSTOCK, "log", "check", data], capture_output=True, check=False)
    assert done.returncode == 1


def test_the_entry_point_is_installed() -> None:
    assert callable(app.invoke)
