"""Creates the Spark session of a pipeline, and ships packages to executors.

Locally, executors are threads and use this Python. On a cluster Penstock's packages are shipped with the session as a
zip of Python files. Their compiled dependencies are not: they must be installed in the Python of the executors, or in
a shipped environment (`spark.archives`). So before any flow starts, a small job checks the imports on the executors,
and an error names what is missing.
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

from penstock.base.settings import BadSetting
from penstock.client.referenced_values import resolve

from .errors import CannotRun, one_sentence
from .spec import DeltaSink, PipelineSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES: Final = ("penstock", "pyspark_penstock")
"""Penstock's packages, which are shipped."""

NEEDED: Final = ("cramjam", "crc32c", "kio", "msgspec", "numpy", "pandas", "pyarrow")
"""Compiled dependencies, which must be installed."""

DEFAULTS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.ui.showConsoleProgress": "false",
}
"""Defaults; the file's settings override them."""

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
    """A session for this pipeline, stopped at the end of the block. Java's output goes to `log`, if given."""
    from penstock.spark.session import light_session  # noqa: PLC0415

    # The failed flow reports an exception of the user's function once.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    is_local = remote is None and master.startswith("local")
    try:
        own = {
            name: resolve(value, f"{spec.where('conf', name)}: {name}") for name, value in spec.conf.items()
        }
    except BadSetting as error:
        raise CannotRun(str(error)) from error
    settings = {**DEFAULTS, **own, **(conf or {})}
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
    """Keep PySpark from logging a rejected query as JSON: the error is reported once, as a sentence."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _for_cluster(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Settings for a cluster. The workers of a cluster on this machine use this Python."""
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
        os.environ["PYSPARK_PYTHON"] = python  # the driver reads the executors' Python only from here
    return settings


def zipped(directory: Path) -> Path:
    """Penstock's packages as one importable zip.

    It also has each module compiled, so that Spark's many workers need not compile it. A
    Python of another version uses the source.
    """
    file = directory / "penstock-packages.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in PACKAGES:
            found = importlib.util.find_spec(name)
            assert found is not None  # this module is in one of them
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
    """Add the zip to the session: executors fetch it from the driver; a Spark Connect server gets a copy."""
    if not is_remote:
        spark.sparkContext.addPyFile(str(file))
        return
    spark.addArtifacts(str(file), pyfile=True)
    from penstock.spark.source import DefaultSource  # noqa: PLC0415

    spark.dataSource.register(DefaultSource)


def _check_executors(spark: "SparkSession", spec: PipelineSpec) -> None:
    """Check the imports on the executors; raise CannotRun if one is missing."""
    from pyspark.sql.functions import udf  # noqa: PLC0415

    wanted = [*NEEDED, *PACKAGES]
    if any(isinstance(flow.sink, DeltaSink) for flow in spec.flows):
        wanted.append("deltalake")

    def probe(_):  # type: ignore[no-untyped-def]  # Spark would use annotations to choose how to call it
        # Runs on executors, where Penstock may be missing.
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

    tasks = 8  # more than the executors of a small cluster, and still quick
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
    """Redirect the output of child processes that are started inside to this file."""
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
        # Java closes its end first, which the server would log as an error with a stack.
        server.handle_error = lambda *_: None
    spark.stop()
