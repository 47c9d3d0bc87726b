"""Creates a small Spark session on one machine, or a plain one elsewhere.

With a `local` master Spark runs in one Java process. Its defaults are for servers; these are for a
laptop or a test: no web interface, little memory, few shuffle partitions, loopback only, and the collector that starts
fastest. Settings of the caller override them. On a cluster, and through Spark Connect, only the caller's
settings are set, and that plans do not show secrets among the options of a source.

pyspark is imported with the first session; if it is missing, the error says what to install.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.base.extras import install_hint
from penstock.spark.errors import SparkMissing
from penstock.spark.home import quick_home
from penstock.spark.java import cache_directory, prepare_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOGGING = "-Dlog4j2.configurationFile="

LIGHT: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    _JAVA_OPTIONS: "-XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Defaults for a local master."""

HIDDEN_OPTIONS: Final = {"spark.sql.redaction.options.regex": r"(?i)url|jaas[.]config|ssl[.]keystore[.]key"}
"""Options that Spark hides in plans by their names, beside those with a word such as `password` in name or value.
`url` is Spark's default."""

QUICK_START: Final = {_JAVA_OPTIONS: "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
"""For short runs, such as tests: Java compiles faster, to slower code."""


def light_session(
    app_name: str,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
    remote: str | None = None,
) -> "SparkSession":
    """Get the running session or create one; `remote` is a Spark Connect server (`sc://HOST:PORT`).

    Raises SparkMissing if pyspark or a suitable Java is missing.
    """
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415
    except ImportError as error:
        raise _missing("spark", error) from error
    builder = SparkSession.builder.appName(app_name)
    settings = HIDDEN_OPTIONS | dict(conf or {})
    if remote is not None:
        try:
            return _configured(builder.remote(remote), settings).getOrCreate()
        except ImportError as error:
            raise SparkMissing(
                f"Spark Connect needs {error.name or 'a package that is not installed'}: {install_hint('connect')}"
            ) from error
    os.environ.update(prepare_java())
    if master.startswith("local"):
        settings = LIGHT | settings
        settings[_JAVA_OPTIONS] = _quiet(settings[_JAVA_OPTIONS])
        os.environ.setdefault(
            "SPARK_LOCAL_IP", "127.0.0.1"
        )  # otherwise Spark logs several lines about its choice
        # Workers use this Python; the default, `python3` of the PATH, may be another one.
        if os.environ.setdefault("PYSPARK_PYTHON", sys.executable) == sys.executable:
            _take_quick_home()
    return _configured(builder.master(master), settings).getOrCreate()


def _take_quick_home() -> None:
    """Set SPARK_HOME, unless the user has set it."""
    import pyspark  # noqa: PLC0415

    home = quick_home(Path(pyspark.__file__).parent, cache_directory())
    if home is not None:
        os.environ.setdefault("SPARK_HOME", str(home))


def _quiet(java_options: str) -> str:
    """Let Spark log only errors, unless the caller configures logging. A zip has no file to point to."""
    file = Path(__file__).with_name("log4j2.properties")
    if _LOGGING in java_options or not file.is_file():
        return java_options
    return f'{java_options} "{_LOGGING}{file.as_uri()}"'


def _configured(builder: "SparkSession.Builder", settings: Mapping[str, str]) -> "SparkSession.Builder":
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder


def _missing(extra: str, error: ImportError) -> SparkMissing:
    what = error.name or "pyspark"
    return SparkMissing(f"Spark is not installed ({what} is missing): {install_hint(extra)}")
