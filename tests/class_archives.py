"""Archives of classes, with which Java starts on half the work.

A JVM that is given an archive of the classes that it will load maps them into memory, where it would have to find,
parse and verify each of them: Kafka's broker and a Spark session are there in half the time. The first run that wants
an archive makes it, from a JVM that is put through its paces and writes the classes that it has loaded when it ends;
it stays in `.cache/` at the top of the repository.

Java itself sees to it that an archive fits: where the class path, a jar or the Java is another one, or the file is not
there yet, it starts as it would without.
"""

import fcntl
import os
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

CACHE = Path(__file__).resolve().parents[1] / ".cache"
QUIET = "-Xlog:disable"
"""Else Java tells on standard output of each class that it leaves out, and of an archive that does not fit."""


def archive_of(name: str, *parts: str) -> Path:
    """Where the archive is for a class path, told by its parts, and the Java of the path."""
    java = Path(os.environ.get("JAVA_HOME") or "/") / "bin" / "java"
    program = str(java) if java.exists() else shutil.which("java") or ""
    told = [*parts, os.path.realpath(program), str(os.stat(program).st_mtime_ns) if program else ""]
    digest = sha256("\0".join(told).encode()).hexdigest()
    return CACHE / f"{name}-{digest[:12]}.jsa"


def with_archive(archive: Path) -> tuple[str, ...]:
    """Options for a JVM that is to use it; nothing is wrong where it is not there."""
    return ("-Xshare:auto", f"-XX:SharedArchiveFile={archive}", QUIET)


def make_archive(archive: Path, exercise: Callable[[tuple[str, ...]], None]) -> None:
    """Have a JVM exercised with the options that make it write the archive, unless that is done.

    While another process does it nobody waits: what is started meanwhile starts without.
    """
    if archive.exists():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    with archive.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if archive.exists():
            return
        partial = archive.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        exercise((f"-XX:ArchiveClassesAtExit={partial}", QUIET))
        if not partial.exists():
            partial.touch()  # a Java that cannot: it does without an empty one too, and is not asked again
        partial.rename(archive)
