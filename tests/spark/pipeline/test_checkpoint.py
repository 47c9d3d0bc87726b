"""Where a flow is, by the files of its checkpoint."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.commands.pipeline import app as pipeline
from penstock.spark.pipeline import PipelineSpec, load
from penstock.spark.pipeline.checkpoint import positions_in
from penstock.spark.pipeline.progress import FlowProgress, Positions
from penstock.spark.pipeline.state import StatusFile
from penstock.testing import Broker

from .running import produce


@pytest.fixture
def spec(tmp_path: Path) -> PipelineSpec:
    file = tmp_path / "p.yaml"
    file.write_text(
        "pipeline: p\ncheckpoint: c\nsources: {s: {topic: t}}\nflows: {f: {reads: s, to: {console: true}}}\n"
    )
    return load(file)


def note(spec: PipelineSpec, kind: str, batch: int, *lines: str) -> None:
    file = Path(spec.checkpoint_of("f")) / kind / str(batch)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(("v1", "{}", *lines)))
    (file.parent / f".{batch}.crc").write_bytes(b"crc")


def found(spec: PipelineSpec) -> Positions | None:
    return positions_in(spec, spec.flows[0])


def test_a_flow_is_where_its_last_batch_that_is_done_ended(spec: PipelineSpec) -> None:
    assert found(spec) is None
    note(spec, "offsets", 0, '{"@start":{"t":{"0":3}},"t":{"0":7}}', "5")
    assert found(spec) == {"t": {0: 3}}, "nothing is done: where it began"
    note(spec, "commits", 0)
    assert found(spec) == {"t": {0: 7}}
    note(spec, "offsets", 9, '{"t":{"0":8,"1":2}}', '{"u":{"0":1}}')
    note(spec, "offsets", 10, '{"t":{"0":9,"1":2}}', '{"u":{"0":1}}')
    note(spec, "commits", 9)
    assert found(spec) == {"t": {0: 8, 1: 2}, "u": {0: 1}}


@pytest.mark.parametrize("line", ["", "{", "[1]", '{"t": 1}', '{"t": {"0": "x"}}', '{"@start": []}'])
def test_what_is_no_position_is_none(spec: PipelineSpec, line: str) -> None:
    note(spec, "offsets", 0, line)
    assert found(spec) is None
    note(spec, "commits", 0)
    assert found(spec) is None


def test_a_status_has_the_lag_of_a_flow_whose_first_batch_goes_on(spec: PipelineSpec) -> None:
    note(spec, "offsets", 0, '{"@start":{"t":{"0":1}},"t":{"0":2}}')
    spec.state.mkdir(exist_ok=True)
    StatusFile(spec, "local", "").write("running", [FlowProgress("f", state="running")])
    with Broker() as broker:
        broker.create_topic("t")
        produce(broker, "t", range(5))
        told = CliRunner().invoke(
            pipeline, ["status", str(spec.file), "--json", "-s", broker.bootstrap], catch_exceptions=False
        )

    assert json.loads(told.stdout)["flows"][0]["lag"] == 4
