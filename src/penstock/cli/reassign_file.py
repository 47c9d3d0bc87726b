"""Assignments as kafka-reassign-partitions writes and reads them.

    {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [2, 3], "log_dirs": ["any", "any"]}]}

Unknown keys are ignored, as in Kafka's tool, so the output of `penstock reassign plan --json` is such a file too.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

from penstock.base.ids import TopicPartition
from penstock.cli.output import Refused
from penstock.metadata.reassignment_plan import Assignment

VERSION = 1
ANY = "any"
"""Instead of a log directory: the broker chooses."""


def document_of(assignment: Mapping[TopicPartition, tuple[int, ...]]) -> dict[str, Any]:
    rows = [
        {
            "topic": topic,
            "partition": number,
            "replicas": list(replicas),
            "log_dirs": [ANY] * len(replicas),
        }
        for (topic, number), replicas in sorted(assignment.items())
    ]
    return {"version": VERSION, "partitions": rows}


def read_file(file: Path) -> Assignment:
    """Read an assignment from a file; `-` is standard input."""
    name = "standard input" if str(file) == "-" else str(file)
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")
        return parse(json.loads(text))
    except (UnicodeDecodeError, RecursionError, json.JSONDecodeError) as error:
        raise Refused(f"{name} is not JSON: {error}") from error
    except _Unsound as error:
        raise Refused(f"{name} is not a reassignment file: {error}") from error


class _Unsound(ValueError):
    pass


def parse(document: Any) -> Assignment:
    if not isinstance(document, dict) or not isinstance(document.get("partitions"), list):
        raise _Unsound('expected {"version": 1, "partitions": [...]}')
    if document.get("version", VERSION) != VERSION:
        raise _Unsound(f"its version is {document['version']!r}, expected {VERSION}")
    found: Assignment = {}
    for row in document["partitions"]:
        partition, replicas = _parse_row(row)
        if partition in found:
            raise _Unsound(f"{partition.topic}-{partition.partition} is listed twice")
        found[partition] = replicas
    if not found:
        raise _Unsound("it has no partitions")
    return found


def _parse_row(row: Any) -> tuple[TopicPartition, tuple[int, ...]]:
    if not isinstance(row, dict):
        raise _Unsound(f"{row!r} is not a partition")
    topic, number, replicas = (row.get(name) for name in ("topic", "partition", "replicas"))
    if not isinstance(topic, str) or not topic:
        raise _Unsound(f"a partition's topic is {topic!r}, expected a name")
    if not _is_id(number):
        raise _Unsound(f"a partition of {topic} is {number!r}, expected a number of at least 0")
    if not isinstance(replicas, list) or not replicas or not all(_is_id(each) for each in replicas):
        raise _Unsound(f"the replicas of {topic}-{number} are {replicas!r}, expected broker ids")
    if len(set(replicas)) != len(replicas):
        raise _Unsound(f"the replicas of {topic}-{number} list a broker twice: {replicas}")
    directories = row.get("log_dirs", [ANY] * len(replicas))
    if not isinstance(directories, list) or len(directories) != len(replicas):
        raise _Unsound(f"{topic}-{number} has {len(replicas)} replicas, but log_dirs is {directories!r}")
    if any(each != ANY for each in directories):
        raise _Unsound(f"{topic}-{number} names log directories, expected only {ANY!r}: a broker has one")
    return TopicPartition(topic, number), tuple(replicas)


def _is_id(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
