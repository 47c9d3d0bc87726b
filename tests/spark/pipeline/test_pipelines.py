"""Pipelines on a real Spark: what Spark has to say is told with its place, runs resume, one failure stops all."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.client.cluster import Cluster
from penstock.client.group_offsets import fetch_offsets
from penstock.client.settings import parse_servers
from penstock.spark.pipeline import BadPipeline, CannotRun, FlowFailed, load
from penstock.spark.pipeline.build import Builder
from penstock.spark.pipeline.lag import commit_positions, lag_now
from penstock.spark.pipeline.options import Brokers
from penstock.spark.pipeline.run import prepare
from penstock.spark.pipeline.spec import BatchSink
from penstock.testing import Broker

from .running import consume, produce, run, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = """
pipeline: p
sources:
  rows: {files: in, format: json, schema: "id BIGINT, kind STRING, at TIMESTAMP"}
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "views:\n  v:\n    sql: SELECT nothing FROM rows\nflows:\n  f: {reads: v, to: {console: true}}\n",
            ":7: views.v.sql: A column, variable, or function parameter with name `nothing` cannot be resolved",
        ),
        (
            "flows:\n  f: {sql: SELEC 1, to: {console: true}}\n",
            ":6: flows.f.sql: Syntax error at or near 'SELEC'",
        ),
        (
            "flows:\n  f: {sql: SELECT * FROM other, to: {console: true}}\n",
            ":6: flows.f.sql: The table or view `other` cannot be found",
        ),
        (
            "flows:\n  f: {sql: 'SELECT kind, count(*) AS n FROM rows GROUP BY kind', to: {console: true}}\n",
            ":6: flows.f: an aggregation in mode append writes a group when it can no longer change",
        ),
        (
            "flows:\n  f: {sql: SELECT 1 AS one, to: {console: true}}\n",
            ":6: flows.f: reads only static sources, expected at least one that is not static",
        ),
        (
            "flows:\n  f:\n    reads: rows\n    to:\n      topic: t\n      key: nme\n",
            ":10: flows.f.to.key: 'nme' is not a column of the query, expected one of id, kind, at",
        ),
        (
            "flows:\n  f: {reads: rows, to: {parquet: out, partition_by: day}}\n",
            ":6: flows.f.to.partition_by: 'day' is not a column of the query, expected some of id, kind, at",
        ),
        (
            "views:\n  v: {sql: SELECT id FROM rows, watermark: {column: at, delay: 1 hour}}\n"
            "flows:\n  f: {reads: v, to: {console: true}}\n",
            ":6: views.v.watermark: 'at' is not one of its columns, expected one of id",
        ),
    ],
)
def test_what_spark_refuses_is_reported_with_its_place(
    spark: "SparkSession", tmp_path: Path, text: str, expected: str
) -> None:
    (tmp_path / "in").mkdir()
    spec = load(written(tmp_path, FILES + text))

    with pytest.raises(BadPipeline) as raised:
        prepare(spec, Builder(spec, spark))

    [problem] = raised.value.problems
    assert str(problem).removeprefix(str(spec.file)).startswith(expected)


def test_a_mistake_in_the_schema_of_json_is_reported(spark: "SparkSession", tmp_path: Path) -> None:
    text = (
        "pipeline: p\nsources:\n  s: {topic: t, value: json, schema: SCHEMA}\n"
        "flows: {f: {reads: s, to: {console: true}}}\n"
    )
    wrong = load(written(tmp_path, text.replace("SCHEMA", "id CHAR"), "a.yaml"))
    with pytest.raises(
        BadPipeline, match=r"a.yaml:3: sources.s.schema: 'id CHAR' is not a list of columns: "
    ):
        prepare(wrong, Builder(wrong, spark))
    taken = load(written(tmp_path, text.replace("SCHEMA", '"id BIGINT, _offset INT"'), "b.yaml"))
    with pytest.raises(
        BadPipeline, match=r"sources.s.schema: has the column _offset, which is a column of the record"
    ):
        prepare(taken, Builder(taken, spark))


RESUMED = """
pipeline: PIPELINE
checkpoint: state
sources:
  orders:
    topic: TOPIC
    value: json
    schema: id BIGINT, kind STRING
    bad_records: keep
  kinds: {files: kinds, format: csv, schema: "kind STRING, label STRING", static: true}
views:
  labelled: SELECT id, kind, label, _corrupt FROM orders LEFT JOIN kinds USING (kind)
flows:
  copies:
    sql: SELECT id, label FROM labelled WHERE _corrupt IS NULL
    to: {topic: TOPIC-copies, key: id}
  counts:
    sql: SELECT label, count(*) AS n FROM labelled GROUP BY label
    mode: update
    to: {topic: TOPIC-counts, key: label}
  table:
    sql: SELECT id, label FROM labelled WHERE _corrupt IS NULL
    to: {delta: out/table, partition_by: label}
  bad:
    sql: SELECT _corrupt AS text, id FROM labelled WHERE _corrupt IS NOT NULL
    to: {parquet: out/bad}
"""


@pytest.mark.long
def test_a_pipeline_goes_on_where_it_stopped_without_loss_or_repeat(
    spark: "SparkSession", spark_broker: Broker, tmp_path: Path, topic: str
) -> None:
    """Two runs, with records before each: every sink has every record once, and the groups show no lag."""
    from deltalake import DeltaTable  # noqa: PLC0415

    topic = topic[:40]
    spark_broker.create_topic(topic, partitions=2)
    (tmp_path / "kinds").mkdir()
    (tmp_path / "kinds" / "kinds.csv").write_text("a,first\nb,second\n")
    file = written(tmp_path, RESUMED.replace("TOPIC", topic).replace("PIPELINE", topic))
    spec = load(file)

    for part in range(2):
        produce(
            spark_broker,
            topic,
            [{"id": each, "kind": "abc"[each % 3]} for each in range(part * 60, part * 60 + 60)],
        )
        if part == 1:
            produce(spark_broker, topic, [b"no json"])
        runner = run(file, spark, spark_broker.bootstrap)
        assert [each.state for each in runner.flows] == ["finished"] * 4
        assert commit_positions(spec, runner.flows, Brokers(spark_broker.bootstrap)) == []

    labels = {0: "first", 1: "second", 2: None}
    expected = sorted((each, labels[each % 3]) for each in range(120))
    copies = consume(spark_broker, f"{topic}-copies")
    assert sorted((value["id"], value["label"]) for _, value in copies) == expected
    assert all(key == str(value["id"]).encode() for key, value in copies)
    counts = consume(spark_broker, f"{topic}-counts")
    said = [(value["label"], value["n"]) for _, value in counts]
    assert len(said) == len(set(said)), "a batch that is written twice would say a number twice"
    assert {label: max(n for each, n in said if each == label) for label, _ in said} == {
        "first": 40,
        "second": 40,
        None: 41,
    }
    table = DeltaTable(tmp_path / "out/table").to_pyarrow_table().to_pylist()
    assert sorted((each["id"], each["label"]) for each in table) == expected
    bad = spark.read.parquet(str(tmp_path / "out/bad")).collect()
    assert [(row["text"], row["id"]) for row in bad] == [("no json", None)]
    with Cluster(parse_servers(spark_broker.bootstrap)) as cluster:
        committed = fetch_offsets(cluster, f"{topic}.copies")
    assert sum(each.offset for each in committed.values()) == 121
    produce(spark_broker, topic, [{"id": 1, "kind": "a"}])
    assert lag_now(spec, spec.flows[0], runner.flows[0].positions, Brokers(spark_broker.bootstrap)) == 1

    text = file.read_text()
    file.write_text(text.replace(f"topic: {topic}-copies", f"topic: {topic}-others"))
    with pytest.raises(
        CannotRun,
        match=f"flow copies now writes to topic {topic}-others, but its checkpoint was created with topic {topic}-cop",
    ):
        run(file, spark, spark_broker.bootstrap)
    file.write_text(text.replace(f"topic: {topic}\n", f"topic: {topic}-counts\n"))
    with pytest.raises(
        CannotRun,
        match=rf"flow copies now reads orders \(topic {topic}-counts\), but its checkpoint was created",
    ):
        run(file, spark, spark_broker.bootstrap)


def test_changed_order_of_sources_does_not_fit_a_checkpoint(spark: "SparkSession", tmp_path: Path) -> None:
    """Spark numbers sources by their place in the plan: of a common table expression, by where it is defined."""
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.json").write_text('{"id": 1}\n')
    x, y = "x AS (SELECT id FROM a)", "y AS (SELECT id FROM b)"
    text = (
        "pipeline: p\nsources:\n  a: {files: a, schema: id BIGINT}\n  b: {files: b, schema: id BIGINT}\n"
        f"flows:\n  f:\n    sql: WITH {x}, {y} SELECT * FROM x UNION ALL SELECT * FROM y\n    to: {{parquet: out}}\n"
    )
    run(written(tmp_path, text), spark)

    with pytest.raises(CannotRun, match=r"flow f now reads b \(json files in .*/b\); a \(json"):
        run(written(tmp_path, text.replace(f"{x}, {y}", f"{y}, {x}")), spark)


FAILING = """
from penstock.spark.pipeline import Pipeline

pipeline = Pipeline("failing", checkpoint="state")
pipeline.source("ticks", rate=100)
pipeline.flow("good", reads="ticks", to={"parquet": "out"})

@pipeline.each_batch(reads="ticks")
def bad(batch, batch_id):
    if batch_id == 1:
        raise ValueError("the fifth of the customers has no name")
"""


def test_one_flow_that_fails_stops_the_others_and_says_why(spark: "SparkSession", tmp_path: Path) -> None:
    states: dict[str, str] = {}

    with pytest.raises(FlowFailed) as raised:
        run(
            written(tmp_path, FAILING, "p.py"),
            spark,
            once=False,
            tell=lambda progress: states.update({progress.flow: progress.state}),
        )

    assert str(raised.value) == (
        "flow bad failed: the fifth of the customers has no name "
        f"(the full error is in {tmp_path / 'state' / 'bad.error.txt'})"
    )
    assert states == {"good": "stopped", "bad": "failed"}
    assert "def bad" not in str(raised.value)
    assert "Traceback" in (tmp_path / "state" / "bad.error.txt").read_text()
    assert [each.name for each in spark.streams.active if (each.name or "").startswith("failing.")] == []


SLOW = """
import threading
from penstock.spark.pipeline import Pipeline

pipeline = Pipeline("slow", checkpoint="state")
pipeline.source("ticks", rate=100)
began, may_end, ended, batches = threading.Event(), threading.Event(), threading.Event(), []

@pipeline.each_batch(reads="ticks")
def slow(batch, batch_id):
    batches.append(batch_id)
    batch.count()
    began.set()
    assert may_end.wait(60)
    ended.set()
"""


def test_a_stop_lets_a_function_finish_its_batch_and_gives_it_no_other(
    spark: "SparkSession", tmp_path: Path
) -> None:
    spec, stop = load(written(tmp_path, SLOW, "p.py")), threading.Event()
    sink = spec.flows[0].sink
    assert isinstance(sink, BatchSink)
    told = sink.function.__globals__
    failures: list[BaseException] = []

    def run_it() -> None:
        try:
            run(spec, spark, once=False, stop=stop)
        except BaseException as error:
            failures.append(error)
            told["began"].set()

    runs = threading.Thread(target=run_it)
    runs.start()
    assert told["began"].wait(60)
    stop.set()
    runs.join(0.5)
    assert runs.is_alive(), f"the stop waits for the batch: {failures}"
    told["may_end"].set()
    runs.join(60)

    assert not runs.is_alive()
    assert failures == []
    assert told["ended"].is_set()
    assert told["batches"] == [0]
