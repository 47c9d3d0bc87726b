"""`import penstock.spark` makes Spark run this Python, whatever `python3` of the PATH is."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.spark.topics import Topics, numbers

from penstock.spark.executable import set_default_python
from penstock.spark.java import prepare_java

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
RUN_S_MAX = 180
QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Scripts of a few seconds end before the better compiler pays."""


@pytest.fixture
def other_python(tmp_path: Path) -> str:
    """A PATH whose `python3` has none of this environment's packages."""
    link = tmp_path / "bin" / "python3"
    link.parent.mkdir()
    link.symlink_to(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")
    return f"{link.parent}:{os.environ['PATH']}"


def run_script(directory: Path, script: str, path: str) -> str:
    (directory / "job.py").write_text(script)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK", "SPARK", "VIRTUAL_ENV"))}
    ran = subprocess.run(
        [sys.executable, "job.py"],
        cwd=directory,
        env=kept
        | prepare_java()
        | {"PATH": path, "SPARK_LOCAL_IP": "127.0.0.1", "JDK_JAVA_OPTIONS": QUICK_JAVA},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_first_example_of_the_docs_runs_without_activating_the_environment(
    topics: Topics, tmp_path: Path, other_python: str
) -> None:
    topics.broker.create_topic("first-example")
    topics.produce("first-example", numbers(5))
    example = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    assert example.startswith("import penstock.spark\n")

    printed = run_script(
        tmp_path,
        example.replace("127.0.0.1:9092", topics.broker.bootstrap).replace('"orders"', '"first-example"'),
        other_python,
    )

    assert printed.splitlines()[-1] == "5"


@pytest.mark.long
def test_a_session_that_exists_already_is_registered_with(
    topics: Topics, tmp_path: Path, other_python: str
) -> None:
    topics.broker.create_topic("older")
    topics.produce("older", numbers(5))
    example = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    _, _, rest = example.partition("\n")
    late = rest.replace("orders = (", "import penstock.spark\npenstock.spark.register(spark)\norders = (")

    printed = run_script(
        tmp_path,
        late.replace("127.0.0.1:9092", topics.broker.bootstrap).replace('"orders"', '"older"'),
        other_python,
    )

    assert printed.splitlines()[-1] == "5"


def test_both_variables_are_set_where_the_path_has_another_python(other_python: str) -> None:
    environment = {"PATH": other_python}

    set_default_python(environment)

    assert environment["PYSPARK_PYTHON"] == environment["PYSPARK_DRIVER_PYTHON"] == sys.executable


def test_a_python_that_the_user_names_is_kept(other_python: str) -> None:
    workers = {"PATH": other_python, "PYSPARK_PYTHON": "/opt/python"}
    driver = {"PATH": other_python, "PYSPARK_DRIVER_PYTHON": "/opt/python"}

    set_default_python(workers)
    set_default_python(driver)

    assert workers == {"PATH": other_python, "PYSPARK_PYTHON": "/opt/python"}
    assert driver["PYSPARK_DRIVER_PYTHON"] == "/opt/python"


def test_nothing_is_set_in_an_activated_environment() -> None:
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    expected = dict(environment)

    set_default_python(environment)

    assert environment == expected
