"""The flags of `penstock up`, read without the parser and with it."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.app import Root
from penstock.cli.command_group import load
from penstock.cli.up import LISTED, VALUED, Flags, plain_flags


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        ([], Flags()),
        (["--data", "d", "--kafka=:0"], Flags(data="d", kafka=":0")),
        (["--set", "a=1", "--set=b=2", "--verbose"], Flags(settings=["a=1", "b=2"], verbose=True)),
        (
            ["--http", "off", "--line=off", "--config", "x.toml"],
            Flags(http="off", line="off", config="x.toml"),
        ),
        (["--data", "--kafka"], Flags(data="--kafka")),
        (["--data", "a", "--data", "b"], Flags(data="b")),
        (["--help"], None),
        (["--brokers", "3"], None),
        (["--data"], None),
        (["--set"], None),
        (["--nonsense", "x"], None),
        (["x"], None),
        (["--verbose=yes"], None),
        (["--dat", "x"], None),
    ],
)
def test_plain_flags_are_read_at_once_and_the_rest_is_left_to_the_parser(
    words: list[str], flags: Flags | None
) -> None:
    assert plain_flags(words) == flags


def test_the_parser_knows_the_same_flags() -> None:
    command = load("up", Root.table["up"])
    known = {name for each in command.params for name in each.opts}
    assert known - {"--help", "--brokers"} == {
        *VALUED,
        *LISTED,
        "--verbose",
    }  # those two are the parser's alone


def test_a_plain_start_loads_neither_the_parser_nor_what_only_others_need(tmp_path: Path) -> None:
    """It is refused as late as can be told from outside: the directory is a file."""
    (tmp_path / "data").write_text("")
    probe = (
        "import sys; from penstock.cli.main import run\n"
        f"run(['up', '--data', {str(tmp_path / 'data')!r}, '--kafka', ':0', '--http', ':0', '--line', ':0'])\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert "Not a directory" in done.stderr
    loaded = set(done.stdout.split())
    assert "penstock.server.node" in loaded
    unneeded = {
        "typer",
        "pydantic",
        "rich",
        "tomllib",
        "difflib",
        "hypothesis",
        "multiprocessing",
        "kio.schema",
        "httptools",
        "cryptography",
        "re2",
        "penstock.server.tls",
        "penstock.gateway.http.protocol.conversation",
        "penstock.gateway.line.conversation",
    }
    assert not unneeded & loaded
