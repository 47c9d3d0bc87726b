"""Whatever is in the files, a command ends with an exit code and never with a traceback."""

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.cli.main import run

garbage = st.one_of(
    st.binary(max_size=200),
    st.binary(min_size=1, max_size=40).map(lambda data: data * 50),
    st.just(bytes(4096)),
    st.just(b""),
)
damage = st.one_of(
    st.tuples(st.just("replace"), garbage, st.just(0)),
    st.tuples(st.just("append"), garbage, st.just(0)),
    st.tuples(st.just("write"), garbage, st.integers(0, 2000)),
    st.tuples(st.just("cut"), st.just(b""), st.integers(0, 2000)),
)


def harm(path: Path, how: str, data: bytes, position: int) -> None:
    whole = path.read_bytes()
    position %= len(whole) + 1
    if how == "replace":
        path.write_bytes(data)
    elif how == "append":
        path.write_bytes(whole + data)
    elif how == "write":
        path.write_bytes(whole[:position] + data + whole[position + len(data) :])
    else:
        path.write_bytes(whole[:position])


@settings(
    max_examples=settings.default.max_examples // 2,  # each is seven commands
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(harms=st.lists(st.tuples(st.integers(0, 10**6), damage), min_size=1, max_size=3))
def test_garbage_in_any_file_gives_no_traceback(
    written: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    harms: list[tuple[int, tuple[str, bytes, int]]],
) -> None:
    data = tmp_path / "data"
    shutil.rmtree(data, ignore_errors=True)
    shutil.copytree(written, data)
    files = sorted(each for each in data.rglob("*") if each.is_file() and "lock" not in each.name)
    harmed = []
    for number, (how, content, position) in harms:
        path = files[number % len(files)]
        harm(path, how, content, position)
        harmed.append(str(path))
    for command in (
        ["log", "ls", str(data), "--segments"],
        ["log", "ls", str(data / "logs" / "orders-0"), "--json"],
        ["log", "dump", "--records", *harmed],
        ["log", "dump", "--json", "--records", *harmed],
        ["log", "check", "--deep", str(data)],
        ["log", "rebuild", str(data)],
    ):
        assert run(command) in (0, 1, 2), command
        assert "Traceback" not in capsys.readouterr().err
    # What was rebuilt is right, as far as indexes go.
    run(["log", "check", str(data)])
    errors = [line for line in capsys.readouterr().out.splitlines() if line.startswith("error")]
    assert not [line for line in errors if "index" in line.partition(": ")[2].partition(" ")[0]]
