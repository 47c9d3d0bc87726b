"""Makes Spark run this Python: for the lookup of data sources, for planning and for tasks.

Spark starts `PYSPARK_DRIVER_PYTHON`, else `PYSPARK_PYTHON`, else the `python3` of the PATH, and looks there for
packages named `pyspark_*`. A script run as `.venv/bin/python job.py` without activating the environment has another
`python3` in its PATH, so the lookup ends in DATA_SOURCE_NOT_FOUND, and tasks miss their packages.

Spark's Java process inherits the environment when it starts, so the variables must be set before the first session.
`register` serves a session that exists already.
"""

import os
import shutil
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKERS: Final = "PYSPARK_PYTHON"
DRIVER: Final = "PYSPARK_DRIVER_PYTHON"


def set_default_python(environment: MutableMapping[str, str] | None = None) -> None:
    """Have sessions that start later run this Python, unless the environment names one or would find this one.

    Where `python3` of the PATH is this Python already (an activated environment), nothing is set: executors of a
    cluster then run the `python3` of their own PATH, as without Penstock.
    """
    environment = os.environ if environment is None else environment
    if WORKERS in environment or not sys.executable or _is_this_python(environment.get("PATH")):
        return
    environment[WORKERS] = sys.executable
    environment.setdefault(DRIVER, sys.executable)


def _is_this_python(path: str | None) -> bool:
    """Whether `python3` of a PATH is in the directory of this Python, and the same program.

    The directories are compared as well, since environments share the program that their links lead to.
    """
    found = shutil.which("python3", path=path)
    if found is None:
        return False
    try:
        return os.path.samefile(found, sys.executable) and os.path.samefile(
            Path(found).parent, Path(sys.executable).parent
        )
    except OSError:
        return False


def register(spark: "SparkSession") -> None:
    """Add `format("penstock")` to a session that exists, and have a local one run this Python from now on."""
    from penstock.spark.source import DefaultSource  # noqa: PLC0415  # needs pyspark

    context = getattr(spark, "_sc", None)  # Spark Connect has none: its server runs Python
    if context is not None and context.master.startswith("local"):
        context.pythonExec = os.environ.get(WORKERS, sys.executable)
    spark.dataSource.register(DefaultSource)
