"""Checks that a flow's checkpoint belongs to the flow in the file.

Spark stores positions by the index of a source in the query, not by its name: after a change of sources it would use
the positions of others, or fail with an obscure error. So a flow's checkpoint has a note with its sources, sink and
mode, which every start compares. Spark itself compares the types of state.

The note also has an id, which is deleted with the checkpoint. Sinks record batches under this id, because a new
checkpoint counts its batches from 0 again. A new checkpoint and an existing table would give wrong results: Spark's
Parquet sink skips the new batch 0 as a duplicate, and a Delta table gets every row twice. So a flow without a
checkpoint does not start while its table exists.
"""

import json
import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import CannotRun
from .spec import DeltaSink, Flow, ParquetSink, PipelineSpec, is_uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOTE = "penstock.json"
NOTE_BYTES_MAX = 1_000_000
PARQUET_LOG = "_spark_metadata"
"""Directory in which Spark's file sink records its batches."""
_ALIAS = re.compile(r"SubqueryAlias ([A-Za-z_]\w*)\b")


@dataclass(frozen=True)
class FlowIdentity:
    flow_id: str
    """PIPELINE.FLOW/ and a unique suffix: in a table, the first part identifies the flow, all of it the checkpoint."""
    sources: tuple[str, ...]
    """In the order of the plan; a source that is read twice is listed twice."""
    sink: str
    mode: str


def check_identity(spec: PipelineSpec, flow: Flow, rows: "DataFrame") -> FlowIdentity:
    """The note of a flow's checkpoint, existing or new. Raises CannotRun if it does not match; writes nothing."""
    sources = tuple(streams_in(spec, rows))
    file = _file(spec, flow)
    old = _read(file)
    if old is None and not is_uri(spec.checkpoint) and _has_begun(spec, flow):
        raise CannotRun(
            f"{spec.checkpoint_of(flow.name)} is not a checkpoint of this flow: it has no {NOTE}; "
            "expected an empty directory, or one that this flow created"
        )
    if old is None or not _has_begun(spec, flow):
        if not is_uri(spec.checkpoint):
            _check_table(spec, flow)
        flow_id = old.flow_id if old is not None else f"{spec.name}.{flow.name}/{uuid.uuid4().hex}"
        return FlowIdentity(flow_id, sources, flow.sink.identity, flow.mode)
    now = FlowIdentity(old.flow_id, sources, flow.sink.identity, flow.mode)
    for what, before, after in (
        ("reads", "; ".join(old.sources), "; ".join(now.sources)),
        ("writes to", old.sink, now.sink),
        ("writes in mode", old.mode, now.mode),
    ):
        if before != after:
            raise CannotRun(
                f"{spec.where('flows', flow.name)}: flow {flow.name} now {what} {after}, but its checkpoint was "
                f"created with {before}: change it back, give the flow another name, or remove "
                f"{spec.checkpoint_of(flow.name)}, and its table if it has one, to start over"
            )
    return now


def _check_table(spec: PipelineSpec, flow: Flow) -> None:
    """Raise CannotRun if a flow without a checkpoint would add to its table of another checkpoint."""
    sink = flow.sink
    if isinstance(sink, ParquetSink):
        is_there = not is_uri(sink.path) and _has_batches(Path(sink.path) / PARQUET_LOG)
    elif isinstance(sink, DeltaSink) and flow.mode == "append" and not sink.upsert:
        from .tables import has_rows_of  # noqa: PLC0415  # which needs pyspark and deltalake

        is_there = has_rows_of(sink.path, f"{spec.name}.{flow.name}")
    else:
        return
    if is_there:
        raise CannotRun(
            f"{spec.where('flows', flow.name, 'to')}: flow {flow.name} has no checkpoint, and {sink.path} has rows "
            "that were written with another one: remove that directory as well to start over, name another directory, "
            f"or restore the checkpoint in {spec.checkpoint_of(flow.name)}"
        )


def _has_batches(directory: Path) -> bool:
    return directory.is_dir() and any(each.name.partition(".")[0].isdigit() for each in directory.iterdir())


def save_identity(spec: PipelineSpec, flow: Flow, identity: FlowIdentity) -> None:
    """Write the note, before the first start."""
    file = _file(spec, flow)
    file.parent.mkdir(parents=True, exist_ok=True)
    replace(file, json.dumps(asdict(identity), indent=2) + "\n")


def replace(file: Path, text: str) -> None:
    """Replace a file atomically and durably."""
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    with beside.open("w", encoding="utf-8") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    beside.replace(file)


def streams_in(spec: PipelineSpec, rows: "DataFrame") -> list[str]:
    """The streaming sources of a query, in the order in which Spark numbers them."""
    followed: Mapping[str, str] = {
        each.name.lower(): f"{each.name} ({each.reads.identity})"
        for each in spec.sources
        if not each.is_static
    }
    text = _plan(rows)
    return [followed[name.lower()] for name in _ALIAS.findall(text) if name.lower() in followed]


def _plan(rows: "DataFrame") -> str:
    jdf: Any = getattr(rows, "_jdf", None)
    if jdf is not None:
        return str(jdf.queryExecution().analyzed().toString())
    whole = str(rows._explain_string(extended=True))  # type: ignore[operator]
    return whole.partition("== Analyzed Logical Plan ==")[2].partition("== Optimized Logical Plan ==")[0]


def _file(spec: PipelineSpec, flow: Flow) -> Path:
    checkpoint = spec.checkpoint_of(flow.name)
    return spec.state / f"{flow.name}.{NOTE}" if is_uri(checkpoint) else Path(checkpoint) / NOTE


def _has_begun(spec: PipelineSpec, flow: Flow) -> bool:
    """Whether Spark has positions there; assumed for directories on other machines."""
    checkpoint = spec.checkpoint_of(flow.name)
    return is_uri(checkpoint) or _has_batches(Path(checkpoint) / "offsets")


def _read(file: Path) -> FlowIdentity | None:
    try:
        if file.stat().st_size > NOTE_BYTES_MAX:
            raise CannotRun(f"{file}: has more than {NOTE_BYTES_MAX:,} bytes, expected a flow's note")
        data = json.loads(file.read_text(encoding="utf-8"))
        return FlowIdentity(
            str(data["flow_id"]), tuple(map(str, data["sources"])), str(data["sink"]), str(data["mode"])
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise CannotRun(
            f"{file}: is not a flow's note ({error}), expected JSON with flow_id, sources, sink and mode"
        ) from error
