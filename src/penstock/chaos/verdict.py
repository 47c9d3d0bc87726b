"""Checks the files and the log output of stopped brokers at the end of a campaign."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.base.ids import Offset, TopicPartition
from penstock.base.internal_topics import METADATA_TOPIC
from penstock.sim.checkers.disks import check_disk, read_batches
from penstock.sim.checkers.history import Audited, ReplicaRead
from penstock.sim.checkers.records import Rules
from penstock.sim.checkers.violation import Violation
from penstock.storage.layout import layout_of
from penstock.storage.names import parse_partition_dir
from penstock.vfs import RealDisk


def check_files(node_id: int, data: Path, audited: Sequence[Audited], rules: Rules) -> None:
    """Check that a broker's files are sound, and contain what the final audit read."""
    try:
        check_disk(RealDisk(), list(audited), rules, str(data))
    except Violation as violation:
        raise Violation(f"{violation} (node {node_id}, {data})") from violation


def replicas_of(data: dict[int, Path], audited: Sequence[Audited]) -> Iterator[ReplicaRead]:
    """Yield each broker's committed records of each partition.

    The final audit gives the committed end of topics. For internal topics it is the end that all replicas have.
    """
    disk = RealDisk()
    ends = {each.at: each.end for each in audited}
    found: dict[TopicPartition, list[ReplicaRead]] = {}
    for node_id, path in data.items():
        logs = layout_of(disk, str(path)).logs
        for entry in disk.list_dir(logs):
            at = parse_partition_dir(entry.name) if entry.is_dir else None
            if at is not None and at.topic != METADATA_TOPIC:
                batches = read_batches(disk, f"{logs}/{entry.name}")
                found.setdefault(at, []).append(ReplicaRead(node_id, at, batches))
    for at, replicas in found.items():
        end = ends.get(at, min(max(each.batches, default=-1) + 1 for each in replicas))
        for replica in replicas:
            yield replica._replace(batches=_before(end, replica))


def _before(end: Offset, replica: ReplicaRead) -> dict[Offset, tuple[int, bytes]]:
    return {offset: each for offset, each in replica.batches.items() if offset < end}


def tracebacks(log: Path) -> list[str]:
    """Return log lines with a traceback."""
    found = re.findall(
        r"^.*Traceback \(most recent call last\).*$", log.read_text("utf-8", "replace"), re.MULTILINE
    )
    return [line if len(line) <= 400 else f"{line[:200]} ... {line[-200:]}" for line in found]
