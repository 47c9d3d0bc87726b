"""What is shipped to executors can be imported there, and nothing else is needed of this installation."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark.pipeline.packaging import quiet_queries, zipped


@pytest.mark.long
def test_the_shipped_packages_are_imported_from_the_zip_compiled(tmp_path: Path) -> None:
    file = zipped(tmp_path)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import penstock.spark.reading.fetch, penstock.spark.pipeline.tables, pyspark_penstock\n"
        "print(penstock.spark.reading.fetch.__file__, penstock.spark.reading.fetch.__cached__)\n"
        "print(pyspark_penstock.DefaultSource.name())\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, str(file)], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith(str(file / "penstock" / "spark" / "reading" / "fetch.pyc"))
    assert done.stdout.splitlines()[1] == "penstock"


def test_a_query_that_spark_refuses_is_no_page_of_json_on_the_terminal(
    capfd: pytest.CaptureFixture[str],
) -> None:
    from pyspark.logger import PySparkLogger  # noqa: PLC0415

    quiet_queries()
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).exception("no such column", errorClass="UNRESOLVED_COLUMN")
    PySparkLogger.getLogger("another of PySpark").error("is heard")

    assert capfd.readouterr().err.count('"msg"') == 1
