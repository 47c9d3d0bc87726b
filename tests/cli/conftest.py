"""A command line as a user types it, and directories to point it at."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.cli.data import write_data

from penstock.cli.main import run


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Command = Callable[..., Outcome]


@pytest.fixture
def penstock(capsys: pytest.CaptureFixture[str]) -> Command:
    """`penstock log ls DIR` as `penstock("log", "ls", DIR)`, through everything but the process."""

    def command(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = run([str(each) for each in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return command


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory after a clean stop; only to be read."""
    return write_data(tmp_path_factory.mktemp("written") / "data")


@pytest.fixture
def data(written: Path, tmp_path: Path) -> Path:
    """A copy of it, to do with as one likes."""
    return Path(shutil.copytree(written, tmp_path / "data"))


@pytest.fixture
def orders(data: Path) -> Path:
    return data / "logs" / "orders-0"
