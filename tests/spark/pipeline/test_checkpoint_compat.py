"""A flow does not begin anew into a table that it has written with another checkpoint."""

from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from penstock.spark.pipeline import CannotRun, PipelineSpec, load
from penstock.spark.pipeline.checkpoint_compat import FlowIdentity, check_identity, save_identity
from penstock.spark.pipeline.tables import DeltaWriter, arrow_schema

from .test_run import Rows

SCHEMA = StructType([StructField("id", LongType())])


def spec_of(directory: Path, to: str, mode: str = "append") -> PipelineSpec:
    file = directory / "p.yaml"
    file.write_text(
        "pipeline: p\ncheckpoint: state\nsources: {s: {rate: 1}}\n"
        f"flows:\n  f:\n    reads: s\n    mode: {mode}\n    to: {{{to}}}\n"
    )
    return load(file)


def fitted(spec: PipelineSpec) -> FlowIdentity:
    return check_identity(spec, spec.flows[0], cast(Any, Rows()))


def begin(spec: PipelineSpec) -> FlowIdentity:
    """As a first start leaves its checkpoint."""
    identity = fitted(spec)
    save_identity(spec, spec.flows[0], identity)
    offsets = Path(spec.checkpoint_of("f")) / "offsets"
    offsets.mkdir()
    (offsets / "0").write_text("v1\n{}\n{}\n")
    return identity


def forget(spec: PipelineSpec) -> None:
    checkpoint = Path(spec.checkpoint_of("f"))
    (checkpoint / "offsets" / "0").unlink()
    (checkpoint / "offsets").rmdir()
    (checkpoint / "penstock.json").unlink()


def delta_batch(path: Path, identity: FlowIdentity) -> None:
    writer = DeltaWriter(str(path), identity.flow_id, (), SCHEMA, False)
    rows = pa.RecordBatch.from_pylist([{"id": 1}], arrow_schema(SCHEMA))
    writer.commit([writer.write(iter([rows]))], 0)


REFUSED = (
    r"p.yaml:8: flow f has no checkpoint, and .*out has rows that were written with another one: remove that "
)


def test_parquet_files_of_another_checkpoint_are_not_added_to(tmp_path: Path) -> None:
    """Spark's file sink would find batch 0 in its log, and leave the new one out without a word."""
    spec = spec_of(tmp_path, "parquet: out")
    identity = begin(spec)
    log = tmp_path / "out" / "_spark_metadata"
    log.mkdir(parents=True)
    assert fitted(spec) == identity
    (log / "9.compact").write_text("v1\n")
    assert fitted(spec) == identity, "its own checkpoint goes on"

    forget(spec)

    with pytest.raises(CannotRun, match=REFUSED):
        fitted(spec)
    (log / "9.compact").unlink()
    assert fitted(spec).flow_id != identity.flow_id


def test_a_delta_table_of_another_checkpoint_is_not_added_to(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "delta: out")
    identity = begin(spec)
    delta_batch(tmp_path / "out", identity)
    assert fitted(spec) == identity

    forget(spec)

    with pytest.raises(CannotRun, match=REFUSED):
        fitted(spec)
    for to, mode in (("delta: out, upsert: id", "update"), ("delta: out", "complete")):
        assert fitted(spec_of(tmp_path, to, mode)).flow_id, "rows that replace rows are not there twice"


def test_a_delta_table_of_others_is_added_to(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "delta: out")
    delta_batch(tmp_path / "out", FlowIdentity("q.f/1", (), "", "append"))

    assert fitted(spec).flow_id.startswith("p.f/")
