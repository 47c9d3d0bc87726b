"""Whether a flow's checkpoint belongs to the flow as the file has it now.

Spark keeps positions by the place of a source in the query, not by its name: after a change of sources it would go on
with the positions of others, or fail with a puzzle. So a flow's checkpoint holds a note of what it was begun with, and
a start compares. What state a query keeps is compared by Spark itself, as far as its types go.

The note also has an id of its own. It lives and dies with the checkpoint: sinks remember by it which batches they
have, and a checkpoint that is begun anew counts its batches from 0 again. A table to which rows are added and that an
earlier checkpoint has written would get wrong by that: Spark's Parquet sink takes the new batch 0 for one that it
has, and leaves it out; a Delta table would have every row twice. So a flow does not begin anew while its table is
there.
"""

import json
import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import CannotRun
from .spec import DeltaSink, Flow, ParquetSink, PipelineSpec, is_uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOTE = "penstock.json"
NOTE_BYTES_MAX = 1_000_000
PARQUET_LOG = "_spark_metadata"
"""Where Spark's file sink notes the batches that a directory has."""
_ALIAS = re.compile(r"SubqueryAlias ([A-Za-z_]\w*)\b")


@dataclass(frozen=True)
class FlowIdentity:
    flow_id: str
    """PIPELINE.FLOW/, and what no other has: a table tells by the first part whose it is, by all of it when."""
    sources: tuple[str, ...]
    """In the order of the plan; one that is read twice is there twice."""
    sink: str
    mode: str


def check_identity(spec: PipelineSpec, flow: Flow, rows: "DataFrame") -> FlowIdentity:
    """The note of a flow's checkpoint, new or as it was. Raises CannotRun where it no longer fits; writes nothing."""
    sources = tuple(streams_in(spec, rows))
    file = _file(spec, flow)
    old = _read(file)
    if old is None and not is_uri(spec.checkpoint) and _has_begun(spec, flow):
        raise CannotRun(
            f"{spec.checkpoint_of(flow.name)} is a checkpoint of something else: it has no {NOTE}; "
            "expected an empty directory, or one that this flow has begun"
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
                f"{spec.where('flows', flow.name)}: flow {flow.name} now {what} {after}, and its checkpoint was begun "
                f"with {before}: change it back, give the flow another name, or remove "
                f"{spec.checkpoint_of(flow.name)}, and its table if it has one, to begin anew"
            )
    return now


def _check_table(spec: PipelineSpec, flow: Flow) -> None:
    """Whether a flow that begins adds to nothing that it has written with another checkpoint."""
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
            "that were written with another one: remove that directory as well to begin anew, name another directory, "
            f"or restore the checkpoint in {spec.checkpoint_of(flow.name)}"
        )


def _has_batches(directory: Path) -> bool:
    return directory.is_dir() and any(each.name.partition(".")[0].isdigit() for each in directory.iterdir())


def save_identity(spec: PipelineSpec, flow: Flow, identity: FlowIdentity) -> None:
    """Write the note, before the first start."""
    file = _file(spec, flow)
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(
        {
            "flow_id": identity.flow_id,
            "sources": identity.sources,
            "sink": identity.sink,
            "mode": identity.mode,
        },
        indent=2,
    )
    replace(file, text + "\n")


def replace(file: Path, text: str) -> None:
    """A file replaced whole, or not at all, and there after a crash."""
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
    """Whether Spark has positions there; elsewhere than on this machine it is taken for granted."""
    checkpoint = spec.checkpoint_of(flow.name)
    if is_uri(checkpoint):
        return True
    offsets = Path(checkpoint) / "offsets"
    return _has_batches(offsets)


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
            f"{file}: is no flow's note ({error}), expected JSON with flow_id, sources, sink and mode"
        ) from error
