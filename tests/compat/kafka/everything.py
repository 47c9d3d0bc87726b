"""What WriteEverything.java wrote, and what Kafka's own consumer read back.

A directory is written in two runs of the broker and stopped cleanly after each:

    run 1   retention is checked all the time: what DeleteRecords cut off really goes
    run 2   retention is not checked: whole segments lie below a log start offset;
            replaced segments (`.deleted`) and a deleted topic (`-delete`) still wait
            for their minute; a transaction is open. Then everything is read back.

The expectation is one JSON line a partition and one a record, in log order.
"""

import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.compat.kafka.peer import HERE, KafkaPeer, RunningKafka

PROGRAM = HERE / "WriteEverything.java"

RETENTION_NOW = {"log.initial.task.delay.ms": "100", "log.retention.check.interval.ms": "100"}
RETENTION_NEVER = {"log.initial.task.delay.ms": "3600000"}

SMALL_INDEXES = {"log.index.size.max.bytes": "4096"}
"""For a broker to be killed: active indexes keep the size they were preallocated with, by default 10 MB."""


@dataclass(frozen=True)
class ExpectedPartition:
    topic: str
    partition: int
    topic_id: str
    """As Kafka prints it: 22 characters of URL-safe base64."""
    log_start: int
    log_end: int
    last_stable: int
    """Where read_committed stops: `log_end`, unless a transaction is open."""
    max_timestamp_offset: int
    """What ListOffsets answers for the highest timestamp; -1 for an empty partition."""

    @property
    def directory(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True)
class ExpectedRecord:
    topic: str
    partition: int
    offset: int
    timestamp: int
    log_append_time: bool
    leader_epoch: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    committed: bool
    """Whether read_committed sees it too."""


@dataclass(frozen=True)
class Expected:
    partitions: tuple[ExpectedPartition, ...]
    records: tuple[ExpectedRecord, ...]
    """Every record that read_uncommitted sees; control records are never seen."""

    def partition(self, topic: str, partition: int = 0) -> ExpectedPartition:
        return next(each for each in self.partitions if (each.topic, each.partition) == (topic, partition))

    def of(self, topic: str, partition: int = 0, *, committed: bool = False) -> list[ExpectedRecord]:
        """Return one partition's records in offset order, as one of the isolation levels sees them."""
        return [
            each
            for each in self.records
            if (each.topic, each.partition) == (topic, partition) and (each.committed or not committed)
        ]


def write_everything(peer: KafkaPeer, log_dir: Path) -> str:
    """Format a directory, write everything into it, and return the expectation as JSON lines."""
    peer.format_storage(log_dir)
    with peer.running_kafka(log_dir, RETENTION_NOW) as broker:
        run_phase(peer, "write", broker)
    with peer.running_kafka(log_dir, RETENTION_NEVER) as broker:
        run_phase(peer, "append", broker)
        return run_phase(peer, "read", broker)


def write_and_kill(peer: KafkaPeer, log_dir: Path) -> str:
    """Write one small topic into a new directory, end the broker with SIGKILL, return the expectation."""
    peer.format_storage(log_dir)
    with peer.running_kafka(log_dir, SMALL_INDEXES) as broker:
        run_phase(peer, "crash", broker)
        lines = run_phase(peer, "read", broker)
        broker.kill()
    return lines


def run_phase(peer: KafkaPeer, phase: str, broker: RunningKafka) -> str:
    return peer.java(str(PROGRAM), phase, broker.bootstrap)


def parse_expected(lines: Iterable[str]) -> Expected:
    partitions: list[ExpectedPartition] = []
    records: list[ExpectedRecord] = []
    for line in lines:
        fields = json.loads(line)
        kind = fields.pop("kind")
        if kind == "partition":
            partitions.append(ExpectedPartition(**fields))
        else:
            records.append(_record(fields))
    return Expected(tuple(partitions), tuple(records))


def load_expected(path: Path) -> Expected:
    """Read an expectation from a file of JSON lines, gzipped if its name says so."""
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return parse_expected(text.decode().splitlines())


def _record(fields: dict[str, Any]) -> ExpectedRecord:
    headers = tuple((name, _bytes(value)) for name, value in fields.pop("headers"))
    key, value = _bytes(fields.pop("key")), _bytes(fields.pop("value"))
    return ExpectedRecord(**fields, key=key, value=value, headers=headers)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
