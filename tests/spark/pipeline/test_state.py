"""What a runner leaves for other processes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark.pipeline import CannotRun, PipelineSpec, load
from penstock.spark.pipeline.progress import FlowProgress
from penstock.spark.pipeline.state import RunLock, StatusFile, is_running, read_status


@pytest.fixture
def spec(tmp_path: Path) -> PipelineSpec:
    file = tmp_path / "p.yaml"
    file.write_text(
        "pipeline: p\nsources: {s: {rate: 1}}\nflows: {f: {reads: s, to: {console: true}}}\ncheckpoint: c\n"
    )
    return load(file)


def test_a_pipeline_runs_once_at_a_time(spec: PipelineSpec) -> None:
    assert not is_running(spec)
    with RunLock(spec):
        assert is_running(spec)
        with (
            pytest.raises(
                CannotRun, match=r"pipeline p is already running: .*run.lock is locked by another process"
            ),
            RunLock(spec),
        ):
            pass
    assert not is_running(spec)


def test_a_runner_that_was_killed_is_distinguished_from_one_that_runs(spec: PipelineSpec) -> None:
    progress = FlowProgress("f", state="running", batch=3)
    with RunLock(spec):
        StatusFile(spec, "local", "x").write("running", [progress])
        found = read_status(spec)
        assert found is not None
        assert (found["state"], found["flows"][0]["state"], found["flows"][0]["batch"]) == (
            "running",
            "running",
            3,
        )

    found = read_status(spec)  # the lock is gone, as the kernel sees to when a process dies

    assert found is not None
    assert (found["state"], found["flows"][0]["state"]) == ("died", "died")


def test_a_status_that_is_none_is_an_error_and_a_missing_one_is_not(spec: PipelineSpec) -> None:
    assert read_status(spec) is None
    spec.state.mkdir()
    for text in ("{", "[]", "{}"):
        (spec.state / "status.json").write_text(text)
        with pytest.raises(CannotRun, match=r"status.json: is not "):
            read_status(spec)


def penstock(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_commands_that_need_no_spark_answer_without_it(spec: PipelineSpec) -> None:
    quick = penstock("pipeline", "validate", str(spec.file), "--quick")
    none = penstock("pipeline", "status", str(spec.file))
    spec.state.mkdir()
    StatusFile(spec, "local[*]", "127.0.0.1:1").write(
        "stopped", [FlowProgress("f", state="stopped", batch=7, rows=70)]
    )
    status = penstock("pipeline", "status", str(spec.file))
    as_json = penstock("pipeline", "status", str(spec.file), "--json")

    assert (quick.returncode, quick.stdout) == (0, f"{spec.file}: pipeline p is sound: 1 flow (f)\n"), (
        quick.stderr
    )
    assert none.returncode == 2
    assert none.stderr == f"penstock: pipeline p has not run yet: there is no status in {spec.state}\n"
    assert status.returncode == 0, status.stderr
    assert "pipeline p: stopped, pid " in status.stdout
    assert status.stdout.splitlines()[2].split() == ["f", "stopped", "7", "70", "0", "-", "-", "-"]
    assert json.loads(as_json.stdout)["flows"][0]["rows"] == 70


def test_the_command_line_tells_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("pipeline: p\nflows: {f: {reads: s, to: {console: yes}}}\n")

    bad = penstock("pipeline", "run", str(file), "--json")
    both = penstock("pipeline", "run", str(file), "--master", "local", "--remote", "sc://x")
    gone = penstock("pipeline", "validate", str(tmp_path / "q.yaml"))

    assert bad.returncode == 1
    assert bad.stderr.startswith(
        f"penstock: {file}:2: flows.f.reads: 's' is not a source or view above it, expected a source"
    )
    assert json.loads(bad.stdout)["problems"][0]["key"] == "flows.f.reads"
    assert (both.returncode, both.stderr) == (
        2,
        "penstock: --master and --remote exclude each other: give one of them\n",
    )
    assert (gone.returncode, gone.stderr) == (
        2,
        f"penstock: {tmp_path / 'q.yaml'}: No such file or directory\n",
    )
