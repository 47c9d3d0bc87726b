"""A session for a pipeline wherever it runs, and what executors need to have there.

Locally, executors are threads beside this process and run this very Python. On a cluster the packages of Penstock are
shipped with the session, as a zip of Python files; what they are built on has compiled parts and is not: it must be
installed in the Python that executors run, or come with a Python of its own (`spark.archives`). So before anything is
started, a small job asks the executors what they can import, and says what is missing in one sentence.
"""

import importlib.util
import json
import logging
import os
import py_compile
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import TYPE_CHECKING, Final

from .errors import CannotRun, one_sentence
from .spec import DeltaSink, PipelineSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES: Final = ("penstock", "pyspark_penstock")
"""Ours, shipped."""

NEEDED: Final = ("cramjam", "crc32c", "kio", "msgspec", "numpy", "pandas", "pyarrow")
"""Others', compiled: they have to be there."""

DEFAULTS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.ui.showConsoleProgress": "false",
}
"""Whatever the file sets wins."""

_LOOPBACK: Final = ("spark://127.0.0.1:", "spark://localhost:")


@contextmanager
def session(
    spec: PipelineSpec,
    *,
    master: str = "local[*]",
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> "Iterator[SparkSession]":
    """A session for this pipeline, ended with the block. Java's own output goes to `log`, where there is one."""
    from penstock.spark.session import light_session  # noqa: PLC0415

    # An exception of the user's function is reported once, by the flow that failed.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    is_local = remote is None and master.startswith("local")
    settings = {**DEFAULTS, **spec.conf, **(conf or {})}
    if remote is None and not is_local:
        settings = _for_cluster(master, settings)
    try:
        with _output_to(log):
            spark = light_session(spec.name, master, settings, remote)
    except CannotRun:
        raise
    except Exception as error:
        from penstock.spark.errors import SparkMissing  # noqa: PLC0415

        if isinstance(error, SparkMissing):
            raise CannotRun(str(error)) from error
        where = remote or master
        raise CannotRun(f"no Spark session could be started at {where}: {one_sentence(error)}") from error
    quiet_queries()
    with tempfile.TemporaryDirectory(prefix="penstock-ship-") as directory:
        try:
            if not is_local:
                _ship(spark, zipped(Path(directory)), is_remote=remote is not None)
                _check_executors(spark, spec)
            yield spark
        finally:
            _end(spark)


def quiet_queries() -> None:
    """Keep PySpark from printing a refused query as a page of JSON: the error is reported once, in a sentence."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _for_cluster(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """What a driver must tell a cluster. The workers of a cluster on this machine run this Python."""
    ours = {}
    if master.startswith(_LOOPBACK):
        ours = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.pyspark.python": sys.executable,
        }
    settings = {**ours, **settings}
    python = settings.get("spark.pyspark.python")
    if python is not None:
        os.environ["PYSPARK_PYTHON"] = python  # the driver looks nowhere else for what executors are to run
    return settings


def zipped(directory: Path) -> Path:
    """The packages of Penstock as one zip that Python can import from.

    Each module is in it compiled as well, so that workers, of which Spark starts many, need not do that themselves. A
    Python of another version than this one's takes the source.
    """
    file = directory / "penstock-packages.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in PACKAGES:
            found = importlib.util.find_spec(name)
            assert found is not None  # this very code is in one of them
            assert found.origin is not None
            root = Path(found.origin).parent
            for path in sorted(root.rglob("*.py")):
                inside = f"{name}/{path.relative_to(root)}"
                archive.write(path, inside)
                compiled = directory / "compiled.pyc"
                py_compile.compile(
                    str(path),
                    str(compiled),
                    inside,
                    True,
                    invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
                )
                archive.write(compiled, f"{inside}c")
    return file


def _ship(spark: "SparkSession", file: Path, *, is_remote: bool) -> None:
    """Executors fetch the file from the driver whenever one of them starts; a server of Spark Connect is given it."""
    if not is_remote:
        spark.sparkContext.addPyFile(str(file))
        return
    spark.addArtifacts(str(file), pyfile=True)
    from penstock.spark.source import DefaultSource  # noqa: PLC0415

    spark.dataSource.register(DefaultSource)


def _check_executors(spark: "SparkSession", spec: PipelineSpec) -> None:
    """Ask executors what they can import; raise CannotRun where something is missing."""
    from pyspark.sql.functions import udf  # noqa: PLC0415

    wanted = [*NEEDED, *PACKAGES]
    if any(isinstance(flow.sink, DeltaSink) for flow in spec.flows):
        wanted.append("deltalake")

    def probe(_):  # type: ignore[no-untyped-def]  # Spark would take types for a choice of how to call it
        # Runs in executors, where nothing of Penstock may be taken for granted.
        import importlib  # noqa: PLC0415
        import json  # noqa: PLC0415
        import platform  # noqa: PLC0415

        missing = []
        for name in wanted:
            try:
                importlib.import_module(name)
            except ImportError:
                missing.append(name)
        return json.dumps([platform.node(), platform.python_version(), missing])

    tasks = 8  # more than the executors of a small cluster, few enough to take no time
    try:
        asked = spark.range(0, tasks, 1, tasks).select(udf(probe)("id").alias("probed")).distinct().collect()
    except Exception as error:
        raise CannotRun(f"executors cannot run Python: {one_sentence(error)}") from error
    for row in asked:
        host, version, missing = json.loads(row["probed"])
        if missing:
            raise CannotRun(
                f"executors cannot import {', '.join(missing)} (Python {version} on {host}): "
                "install Penstock with its extra `spark` there, "
                "name another Python with --conf spark.pyspark.python=PATH, or ship one with "
                "--conf spark.archives=FILE"
            )


@contextmanager
def _output_to(log: Path | None) -> Iterator[None]:
    """Whatever is started inside writes to this file; this process itself goes on as before."""
    if log is None:
        yield
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [(stream, os.dup(stream)) for stream in (1, 2)]
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        for stream, _ in kept:
            os.dup2(file, stream)
        yield
    finally:
        for stream, copy in kept:
            os.dup2(copy, stream)
            os.close(copy)
        os.close(file)


def _end(spark: "SparkSession") -> None:
    context = getattr(spark, "_sc", None)
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        # Java closes its end first, which the server would report with a stack as if something were wrong.
        server.handle_error = lambda *_: None
    spark.stop()
