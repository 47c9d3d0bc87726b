"""Spark's own Kafka connector beside Penstock's source: where it comes from, and sessions to ask either.

The connector is a jar, built for one version of Spark, and that Spark is rarely the newest. So it gets a Python
environment of its own, with the PySpark that it was built for, and the jars that pom.xml names. Both are put once into
`.cache/spark-connector-<version>/` at the top of the repository, under a lock; a stamp says that they are whole. Where
pip, Maven or Java cannot do that, `Connector.find()` raises ConnectorUnavailable and says why.

A session is a child process that runs session.py. `ask()` sends it a command and waits for the answer.
"""

import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import venv
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from tests.compat.kafka.peer import CACHE, REPOSITORY, locked

from penstock.spark.errors import SparkMissing
from penstock.spark.home import quick_home
from penstock.spark.java import cache_directory, prepare_java
from penstock.spark.session import LIGHT

HERE = Path(__file__).resolve().parent

FETCH_SECONDS_MAX = 900.0
"""PySpark has half a gigabyte."""
ANSWER_SECONDS_MAX = 600.0
STOP_SECONDS_MAX = 60.0

QUIET = f'"-Dlog4j2.configurationFile={(REPOSITORY / "src/penstock/spark/log4j2.properties").as_uri()}"'


class ConnectorUnavailable(RuntimeError):
    """Spark's Kafka connector cannot be run here; the message says what is missing."""


class SessionError(RuntimeError):
    """A session did not start, ended, or could not do what it was told."""


# -- the connector -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Connector:
    python: Path
    """With the PySpark that the jars are for."""
    jars: Sequence[Path]

    @classmethod
    def find(cls) -> "Connector":
        """The connector, fetched the first time."""
        home = CACHE / f"spark-connector-{spark_version()}"
        stamp = home / "complete"
        if not stamp.exists():
            with locked(CACHE / f"{home.name}.lock"):
                if not stamp.exists():
                    _fetch(home)
                    stamp.touch()
        return cls(home / "venv" / "bin" / "python", sorted((home / "jars").glob("*.jar")))

    @property
    def conf(self) -> dict[str, str]:
        return {"spark.jars": ",".join(map(str, self.jars))}


def spark_version() -> str:
    """The version that pom.xml asks for."""
    found = ET.parse(HERE / "pom.xml").findtext(".//{*}spark.version")
    if found is None:
        raise ConnectorUnavailable(f"{HERE / 'pom.xml'} has no <spark.version>")
    return found


def _fetch(home: Path) -> None:
    if shutil.which("mvn") is None:
        raise ConnectorUnavailable(f"no jars in {home} and no mvn on the PATH to fetch them with")
    shutil.rmtree(home, ignore_errors=True)  # of a time when it was interrupted
    copy = ["mvn", "--quiet", "--batch-mode", "--file", str(HERE / "pom.xml"), "dependency:copy"]
    _run([*copy, f"-DoutputDirectory={home / 'jars'}"], "Maven could not fetch the connector's jars")
    try:
        venv.create(home / "venv", with_pip=True)
    except subprocess.CalledProcessError as error:
        raise ConnectorUnavailable(f"no Python environment could be made in {home}: {error}") from error
    install = [str(home / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    _run([*install, f"pyspark=={spark_version()}"], "pip could not install PySpark")


def _run(command: Sequence[str], problem: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired as late:
        raise ConnectorUnavailable(f"{problem} within {FETCH_SECONDS_MAX:.0f} s") from late
    if done.returncode != 0:
        said = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
        reason = (said or ["no reason given"])[0].replace("[ERROR]", "").strip()
        raise ConnectorUnavailable(f"{problem}: {reason[:300]}")


# -- sessions ----------------------------------------------------------------------------------------------


class SparkChild:
    """One session in a process of its own, asked one thing at a time."""

    def __init__(self, process: "subprocess.Popen[str]", log: Any) -> None:
        self._process = process
        self._log = log
        self.version = str(self._answer())

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, name: str, /, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        try:
            print(json.dumps({"do": name, **arguments}), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise SessionError(f"the session has ended; it said:\n{self._said()}") from None
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(ANSWER_SECONDS_MAX):
                raise SessionError(f"no answer within {ANSWER_SECONDS_MAX:.0f} s; it said:\n{self._said()}")
        line = self._process.stdout.readline()
        if not line:
            raise SessionError(f"the session has ended; it said:\n{self._said()}")
        answer = json.loads(line)
        if "error" in answer:
            raise SessionError(answer["error"])
        return answer["answer"]

    def _said(self) -> str:
        self._log.seek(0)
        return str(self._log.read()[-4000:]).strip() or "nothing"


@contextmanager
def spark_session(
    scratch: Path,
    conf: Mapping[str, str],
    connector: Connector | None = None,
    sources: Sequence[str] = (),
) -> Iterator[SparkChild]:
    """A session of this Python's Spark, or of the connector's; both are light and otherwise set alike.

    `sources` are data sources to register, each `module:class` from the repository. What Spark keeps on disk is
    kept in `scratch`.
    """
    try:
        java = prepare_java()
    except SparkMissing as missing:
        raise ConnectorUnavailable(str(missing)) from missing
    scratch.mkdir(parents=True, exist_ok=True)
    python = Path(sys.executable) if connector is None else connector.python
    settings = {
        **LIGHT,
        "spark.local.dir": str(scratch),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        **({} if connector is None else connector.conf),
        **conf,
    }
    options = "spark.driver.extraJavaOptions"
    settings[options] = f"{settings[options]} {QUIET}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    environment = {**kept, **java, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PYTHONPATH"] = str(REPOSITORY) if connector is None else ""
    home = quick_home(Path(pyspark.__file__).parent, cache_directory()) if connector is None else None
    if home is not None:  # as light_session has it
        environment["SPARK_HOME"] = str(home)
    command = [str(python), str(HERE / "session.py"), json.dumps(settings), *sources]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=scratch,
            env=environment,
        )
        try:
            yield SparkChild(process, log)
        finally:
            _end(process)


def _end(process: "subprocess.Popen[str]") -> None:
    """Its commands end, and so does it."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()  # Java notices that its standard input is closed
        process.wait()
    process.stdout.close()
