"""A real Apache Kafka beside the tests: its jars, its broker, its kafka-dump-log.

The jars are what pom.xml names. Maven copies them once into `.cache/kafka-<version>/`
at the top of the repository; a lock file and a rename keep two workers that start
together from seeing half of them. Where Java, Maven or the jars cannot be had,
`jars()` raises KafkaUnavailable and says why, and tests skip with that sentence.

The broker runs in KRaft combined mode on 127.0.0.1, on ports that were free a moment
ago. It is ready when it logs that it has started. Leaving the `with` block stops it
with SIGTERM, which is Kafka's clean shutdown; `kill()` is the other way to go.
"""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.class_archives import archive_of, make_archive, with_archive

from penstock.server.ports import free_ports

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
CACHE = REPOSITORY / ".cache"

CLUSTER_ID = "cGVuc3RvY2stZ29sZGVuMA"
"""22 characters: 16 bytes in unpadded URL-safe base64, as Kafka's cluster ids are."""

FETCH_SECONDS_MAX = 300.0
START_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 60.0
TOOL_SECONDS_MAX = 120.0
START_ATTEMPTS_MAX = 3
"""A port that was free may be taken before Kafka binds it; nothing else is retried."""

JVM = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # these processes live for seconds: the second compiler never pays
    "-Xshare:auto",
    "-Djava.awt.headless=true",
    "-Dfile.encoding=UTF-8",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.showThreadName=false",
)

STARTED = "Kafka Server started"
PORT_TAKEN = "Address already in use"

BROKER_PROPERTIES: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # After a kill the next broker may register only when the session of the last one has run out.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # Tests write records with fixed timestamps, years old.
    "log.retention.ms": "-1",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.dedupe.buffer.size": "4194304",
}
"""What every broker of the harness is given; `running_kafka(properties=...)` wins over it."""

DUMP_PROBLEMS = (
    "Mismatches in",
    "Non-consecutive offsets in",
    "are not found in",
    "out of order timestamp",
    "timestamp mismatch",
    "invalid bytes at the end",
    "isvalid: false",
    "Exception",
    "Ignoring unknown file",
)
"""How kafka-dump-log says that something is wrong."""


class KafkaUnavailable(RuntimeError):
    """Apache Kafka cannot be run here; the message says what is missing."""


class KafkaError(RuntimeError):
    """A Kafka process ended badly; the message holds the end of what it said."""


def kafka_version() -> str:
    """Return the version that pom.xml asks for."""
    found = ET.parse(HERE / "pom.xml").findtext(".//{*}kafka.version")
    if found is None:
        raise KafkaUnavailable(f"{HERE / 'pom.xml'} has no <kafka.version>")
    return found


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file, across processes, waiting for it if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def jars() -> Path:
    """Return the directory of Kafka's jars, fetching them with Maven the first time."""
    if shutil.which("java") is None:
        raise KafkaUnavailable("no java on the PATH: Apache Kafka needs a JDK of version 17 or newer")
    home = CACHE / f"kafka-{kafka_version()}"
    if home.is_dir():
        return home
    with locked(CACHE / f"{home.name}.lock"):
        if not home.is_dir():
            _fetch(home)
    return home


def _fetch(home: Path) -> None:
    if shutil.which("mvn") is None:
        raise KafkaUnavailable(f"no jars in {home} and no mvn on the PATH to fetch them with")
    with tempfile.TemporaryDirectory(prefix=f"{home.name}.", dir=CACHE) as partial:
        copied = Path(partial) / "jars"
        command = ["mvn", "--quiet", "--batch-mode", "--file", str(HERE / "pom.xml")]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={copied}"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX, check=False
            )
        except subprocess.TimeoutExpired as late:
            raise KafkaUnavailable(
                f"Maven did not fetch Kafka's jars within {FETCH_SECONDS_MAX:.0f} s"
            ) from late
        if done.returncode != 0:
            errors = [line for line in done.stdout.splitlines() if line.startswith("[ERROR]")]
            reason = (errors or ["no reason given"])[0].removeprefix("[ERROR]").strip()
            raise KafkaUnavailable(f"Maven could not fetch Kafka's jars: {reason[:300]}")
        copied.rename(home)


@dataclass(frozen=True)
class Dump:
    """What kafka-dump-log said. It exits with 0 whatever it found, so ask for `problems()`."""

    text: str
    """Its standard output: the contents, file by file."""
    complaints: str
    """Its standard error: where an index and its log disagree, and where offsets have holes."""

    def problems(self, *, gaps: bool = False) -> list[str]:
        """Return the lines that tell of a fault; none for healthy files.

        With gaps=True holes between offsets are no fault: a compacted log has them.
        """
        wanted = [words for words in DUMP_PROBLEMS if not (gaps and words.startswith("Non-consecutive"))]
        lines = [*self.text.split("\n"), *self.complaints.split("\n")]
        return [line for line in lines if any(words in line for words in wanted)]

    def by_file(self) -> dict[str, str]:
        """Cut the text into one a file, by the name that `dump_log` was given."""
        texts: dict[str, list[str]] = {}
        name = ""
        for line in self.text.split("\n"):
            if line.startswith("Dumping "):
                name = line.removeprefix("Dumping ")
            texts.setdefault(name, []).append(line)
        return {name: "\n".join(lines).rstrip("\n") + "\n" for name, lines in texts.items() if name}


@dataclass
class RunningKafka:
    """One broker process, from its start to its end."""

    bootstrap: str
    """Where clients connect: `127.0.0.1:<port>`."""
    log_dir: Path
    process: subprocess.Popen[str]
    started: threading.Event = field(default_factory=threading.Event)
    """Set when Kafka says that it serves, and also when it ends without having done so."""
    lines: list[str] = field(default_factory=list)
    """What it has logged so far, a line each."""

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        for line in stream:
            self.lines.append(line.rstrip("\n"))
            if STARTED in line:
                self.started.set()
        self.started.set()

    def wait_started(self) -> None:
        if not self.started.wait(START_SECONDS_MAX):
            self.kill()
            raise KafkaError(f"Kafka did not start within {START_SECONDS_MAX:.0f} s:\n{self.tail()}")
        if not self.logged(STARTED):
            self.process.wait()
            self._release()
            raise KafkaError(f"Kafka ended with status {self.process.returncode}:\n{self.tail()}")

    def logged(self, pattern: str) -> list[str]:
        """Return the lines logged so far that a regular expression finds."""
        return [line for line in list(self.lines) if re.search(pattern, line)]

    def complaints(self) -> list[str]:
        """Return the errors logged so far.

        But for one that is Kafka's own: a node that starts quickly registers its controller with itself before that
        knows that it is the active one, is told NotControllerException, and asks again.
        """
        lines = list(self.lines)
        return [
            line
            for line, after in zip(lines, [*lines[1:], ""], strict=True)
            if re.search("ERROR|FATAL", line)
            and not ("apiKey=CONTROLLER_REGISTRATION" in line and "NotControllerException" in after)
        ]

    def tail(self, count: int = 40) -> str:
        return "\n".join(self.lines[-count:])

    def stop(self) -> None:
        """Shut down cleanly: indexes trimmed, checkpoints and the clean-shutdown file written."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise KafkaError(f"Kafka did not stop within {STOP_SECONDS_MAX:.0f} s:\n{self.tail()}") from None
        self._release()
        if self.process.returncode not in (0, 143):  # 143: a JVM that SIGTERM ended
            raise KafkaError(f"Kafka stopped with status {self.process.returncode}:\n{self.tail()}")

    def kill(self) -> None:
        """End it with SIGKILL: nothing is trimmed, written or closed."""
        self.process.kill()
        self.process.wait()
        self._release()

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def _release(self) -> None:
        self._reader.join()
        if self.process.stdout is not None:
            self.process.stdout.close()


@dataclass(frozen=True)
class KafkaPeer:
    """Kafka's programs, run from one directory of jars."""

    jar_dir: Path
    jvm: Sequence[str] = JVM
    """What every `java` is started with."""

    @classmethod
    def find(cls) -> "KafkaPeer":
        found = cls(jars())
        archive = archive_of(found.jar_dir.name, str(found.jar_dir))
        make_archive(archive, found._exercise)
        return found._with_options(with_archive(archive))

    def _with_options(self, options: Sequence[str]) -> "KafkaPeer":
        return replace(self, jvm=(*self.jvm, *options))

    def _exercise(self, options: Sequence[str]) -> None:
        """Run a broker, from a new directory to a clean stop."""
        with tempfile.TemporaryDirectory(prefix="kafka-peer-") as scratch:
            log_dir = Path(scratch) / "logs"
            self.format_storage(log_dir)
            with self._with_options(options).running_kafka(log_dir):
                pass

    def java(self, *arguments: str, seconds_max: float = TOOL_SECONDS_MAX) -> str:
        """Run `java` with Kafka's jars on its class path and return its standard output."""
        return self._run(arguments, "warn", None, seconds_max).stdout

    def format_storage(self, log_dir: Path, cluster_id: str = CLUSTER_ID, node_id: int = 1) -> None:
        """Make an empty directory one that a broker starts on: kafka-storage format."""
        log_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="kafka-peer-") as scratch:
            settings = Path(scratch) / "server.properties"
            _write_properties(settings, _broker_properties(log_dir, node_id, 9092, 9093))
            self.java("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(settings))

    @contextmanager
    def running_kafka(
        self, log_dir: Path, properties: Mapping[str, str] | None = None, node_id: int = 1
    ) -> Iterator[RunningKafka]:
        """Run a broker on a formatted directory and stop it cleanly at the end, unless it ended before."""
        with tempfile.TemporaryDirectory(prefix="kafka-peer-") as scratch:
            broker = self._start(log_dir, Path(scratch), properties or {}, node_id)
            try:
                yield broker
            except BaseException:
                broker.kill()
                raise
            if not broker.ended:
                broker.stop()

    def dump_log(self, files: Sequence[Path], *arguments: str, cwd: Path | None = None) -> Dump:
        """Return what kafka-dump-log prints about files of any kind that it knows.

        Good arguments: --deep-iteration, --print-data-log, --verify-index-only, --index-sanity-check,
        --offsets-decoder, --transaction-log-decoder, --cluster-metadata-decoder. An index is compared
        with the `.log` beside it.
        """
        if not files:
            raise ValueError("dump_log needs at least one file")
        names = ",".join(str(path) for path in files)
        command = ["org.apache.kafka.tools.DumpLogSegments", *arguments, "--files", names]
        # Logging is off, so that standard error holds the tool's own words alone.
        done = self._run(command, "off", cwd, TOOL_SECONDS_MAX)
        return Dump(done.stdout, done.stderr)

    def _run(
        self, arguments: Sequence[str], log_level: str, cwd: Path | None, seconds_max: float
    ) -> subprocess.CompletedProcess[str]:
        try:
            done = subprocess.run(
                [*self._java_command(log_level), *arguments],
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                cwd=cwd,
                timeout=seconds_max,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            raise KafkaError(f"java {' '.join(arguments[:2])} ran longer than {seconds_max:.0f} s") from late
        if done.returncode != 0:
            said = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
            raise KafkaError(f"java {' '.join(arguments)} ended with status {done.returncode}:\n{said}")
        return done

    def _start(
        self, log_dir: Path, scratch: Path, properties: Mapping[str, str], node_id: int
    ) -> RunningKafka:
        settings = scratch / "server.properties"
        for attempt in range(1, START_ATTEMPTS_MAX + 1):
            port, controller_port = free_ports(2)
            _write_properties(
                settings, {**_broker_properties(log_dir, node_id, port, controller_port), **properties}
            )
            process = subprocess.Popen(
                [*self._java_command("info"), "kafka.Kafka", str(settings)],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                cwd=scratch,
            )
            broker = RunningKafka(f"127.0.0.1:{port}", log_dir, process)
            try:
                broker.wait_started()
            except KafkaError:
                if attempt == START_ATTEMPTS_MAX or not broker.logged(PORT_TAKEN):
                    raise
            except BaseException:
                broker.kill()
                raise
            else:
                return broker
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _java_command(self, level: str) -> list[str]:
        log_level = f"-Dorg.slf4j.simpleLogger.defaultLogLevel={level}"
        return ["java", *self.jvm, log_level, "-cp", os.path.join(self.jar_dir, "*")]


def _broker_properties(log_dir: Path, node_id: int, port: int, controller_port: int) -> dict[str, str]:
    return {
        **BROKER_PROPERTIES,
        "node.id": str(node_id),
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.quorum.voters": f"{node_id}@127.0.0.1:{controller_port}",
        "log.dirs": str(log_dir.resolve()),
    }


def _write_properties(path: Path, properties: Mapping[str, str]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
