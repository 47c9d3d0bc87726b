"""Reads a flow's position from its checkpoint without Spark, for the status before its first batch has ended.

Spark writes the end of a batch to `offsets/N` before the batch starts, and `commits/N` when it is done. `offsets/N`
has a line with a version, one with JSON of Spark, and one for each source. The end of the first batch includes its
start (`penstock.spark.reading.stream`).
"""

import json
from pathlib import Path
from typing import Final

from penstock.spark.reading.offset_json import START_KEY

from .progress import Positions, offsets
from .spec import Flow, PipelineSpec, is_uri

FILE_BYTES_MAX: Final = 50_000_000


def positions_in(spec: PipelineSpec, flow: Flow) -> Positions | None:
    """The position of a flow in its topics; None if it has not started, or its checkpoint is not on this machine."""
    checkpoint = spec.checkpoint_of(flow.name)
    if is_uri(checkpoint):
        return None
    done, begun = _last(Path(checkpoint) / "commits"), _last(Path(checkpoint) / "offsets")
    if done is not None:
        return _read(Path(checkpoint) / "offsets" / str(done), is_start=False)
    if begun == 0:
        return _read(Path(checkpoint) / "offsets" / "0", is_start=True)
    return None


def _last(directory: Path) -> int | None:
    try:
        return max((int(each.name) for each in directory.iterdir() if each.name.isdigit()), default=None)
    except OSError:
        return None


def _read(file: Path, *, is_start: bool) -> Positions | None:
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            return None
        lines = file.read_text(encoding="utf-8").splitlines()[2:]
    except (OSError, UnicodeDecodeError):
        return None
    found: Positions = {}
    for line in lines:
        for topic, partitions in (offsets(_start_of(line) if is_start else line) or {}).items():
            found.setdefault(topic, {}).update(partitions)
    return found or None


def _start_of(line: str) -> object:
    try:
        end = json.loads(line)
    except ValueError:
        return None
    return end.get(START_KEY) if isinstance(end, dict) else None
