"""A pipeline's file is checked without Spark: every mistake is told with its line, its key, and what was expected."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark.pipeline import BadPipeline, load
from penstock.spark.pipeline.ddl import wrong_in_schema
from penstock.spark.pipeline.load import FILE_BYTES_MAX
from penstock.spark.pipeline.spec import (
    BatchSink,
    Call,
    ConsoleSink,
    DeltaSink,
    FileSource,
    ParquetSink,
    RateSource,
    Reads,
    Sql,
    TopicSink,
    TopicSource,
    Watermark,
)

WHOLE = """
pipeline: orders
bootstrap: 127.0.0.1:9092
checkpoint: state
conf: {spark.sql.shuffle.partitions: 4, spark.ui.enabled: false}
trigger: 10 seconds
sources:
  orders:
    topic: [orders, old-orders]
    value: json
    schema: id BIGINT, at TIMESTAMP
    watermark: {column: at, delay: 1 hour 30 minutes}
    deduplicate: id
    options: {maxOffsetsPerTrigger: 1000}
  clicks: {pattern: "clicks-.*", value: string, bootstrap: "127.0.0.1:9093"}
  people: {files: people, format: csv, schema: id BIGINT, static: true}
  ticks: {rate: 5}
views:
  late: SELECT * FROM orders
  seen: {sql: SELECT * FROM late, deduplicate: [id, at]}
flows:
  to_topic: {reads: seen, to: {topic: out, key: id}, trigger: available now}
  to_text: {sql: SELECT 1 AS line FROM ticks, to: {topic: out, value: string, column: line}}
  by_row: {reads: clicks, to: {topics: by row, value: raw, options: {kafka.compression.type: zstd}}}
  files: {reads: ORDERS, to: {parquet: out/files, partition_by: id}}
  table: {reads: orders, mode: complete, to: {delta: out/table}}
  merged: {reads: orders, mode: update, to: {delta: out/merged, upsert: [id]}}
  shown: {reads: orders, mode: update, to: {console: true, rows: 5}}
"""


def written(directory: Path, text: str, name: str = "p.yaml") -> Path:
    file = directory / name
    file.write_text(text)
    return file


def problems(directory: Path, text: str, name: str = "p.yaml") -> list[str]:
    file = written(directory, text, name)
    with pytest.raises(BadPipeline) as raised:
        load(file)
    return [str(each).replace(str(file), name) for each in raised.value.problems]


def test_everything_that_a_file_can_say_is_in_its_model(tmp_path: Path) -> None:
    spec = load(written(tmp_path, WHOLE))

    assert (spec.name, spec.bootstrap, spec.checkpoint) == (
        "orders",
        "127.0.0.1:9092",
        str(tmp_path / "state"),
    )
    assert spec.conf == {"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "false"}
    orders, clicks, people, ticks = spec.sources
    assert isinstance(orders.reads, TopicSource)
    assert orders.reads.topics == ("orders", "old-orders")
    assert (orders.reads.value, orders.reads.key, orders.reads.bad_records) == ("json", "string", "fail")
    assert orders.reads.options == {"maxOffsetsPerTrigger": "1000"}
    assert orders.watermark == Watermark("at", "1 hour 30 minutes")
    assert orders.deduplicate == ("id",)
    assert isinstance(clicks.reads, TopicSource)
    assert (clicks.reads.pattern, clicks.reads.bootstrap) == ("clicks-.*", "127.0.0.1:9093")
    assert people.reads == FileSource(str(tmp_path / "people"), "csv", "id BIGINT", {})
    assert people.is_static
    assert ticks.reads == RateSource(5, {})
    late, seen = spec.views
    assert late.query == Sql("SELECT * FROM orders")
    assert seen.deduplicate == ("id", "at")
    to_topic, to_text, by_row, files, table, merged, shown = spec.flows
    assert to_topic.query == Reads("seen")
    assert to_topic.sink == TopicSink("out", None, "json", "id", "value", {})
    assert to_topic.trigger == "available now"
    assert to_text.sink == TopicSink("out", None, "string", None, "line", {})
    assert to_text.trigger == "10 seconds"
    assert by_row.sink == TopicSink(None, None, "raw", None, "value", {"kafka.compression.type": "zstd"})
    assert files.query == Reads("orders"), "names are alike in any case, as in SQL"
    assert files.sink == ParquetSink(str(tmp_path / "out/files"), ("id",), {})
    assert table.sink == DeltaSink(str(tmp_path / "out/table"), (), ())
    assert merged.sink == DeltaSink(str(tmp_path / "out/merged"), (), ("id",))
    assert shown.sink == ConsoleSink(5)


HEAD = "pipeline: p\nsources:\n  s: {rate: 1}\n"
FLOW = "flows:\n  f: {reads: s, to: {console: true}}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "p.yaml: None is not a pipeline, expected the keys pipeline, sources and flows"),
        ("- a", "p.yaml: ['a'] is not a pipeline, expected the keys pipeline, sources and flows"),
        (
            "a: [",
            "p.yaml:1: is not YAML: while parsing a flow node expected the node content, but found '<stream end>'",
        ),
        (HEAD, "p.yaml: flows: is missing, expected at least one flow"),
        (
            HEAD + "flows:\n  f: {reads: s}\n",
            "p.yaml:5: flows.f.to: is missing, expected where the rows go: topic, parquet, delta or console",
        ),
        (HEAD + FLOW + "flow: 1\n", "p.yaml:6: flow: is not a valid key here; did you mean flows?"),
        (HEAD + FLOW + "pipeline: q\n", "p.yaml:6: pipeline: is a duplicate key, first in line 1"),
        (
            HEAD + "flows:\n  f:\n    reads: t\n    to: {console: true}\n",
            "p.yaml:6: flows.f.reads: 't' is not a source or view above it, expected s",
        ),
        (
            HEAD + "views:\n  a: SELECT * FROM b\n  b: SELECT * FROM s\n" + FLOW,
            "p.yaml:5: views.a.sql: reads b, which is declared below it; expected it above",
        ),
        (
            HEAD + "views:\n  S: SELECT 1\n" + FLOW,
            "p.yaml:5: views.S: S is already declared as s; expected another name",
        ),
        (
            "pipeline: p\nsources:\n  s:\n    topic: t\n    value: jsn\n" + FLOW,
            "p.yaml:5: sources.s.value: 'jsn' is not valid, expected 'json', 'string' or 'raw'",
        ),
        (
            "pipeline: p\nsources:\n  s: {topic: t, value: json}\n" + FLOW,
            "p.yaml:3: sources.s.schema: is missing, expected the columns of the JSON with types, ",
        ),
        (
            "pipeline: p\nsources:\n  s: {topic: t, pattern: u}\n" + FLOW,
            "p.yaml:3: sources.s: a source has exactly one of topic, pattern, files or rate; found topic and pattern",
        ),
        (
            "pipeline: p\nsources:\n  s: {topic: a b}\n" + FLOW,
            "p.yaml:3: sources.s.topic: 'a b' is not a topic, expected letters, digits, '.', '_' and '-', at most 249",
        ),
        (
            "pipeline: p\nsources:\n  s: {topic: t, options: {subscribe: u}}\n" + FLOW,
            "p.yaml:3: sources.s.options.subscribe: is set by the key topic; use that key",
        ),
        (
            "pipeline: p\nsources:\n  s: {rate: 0}\n" + FLOW,
            "p.yaml:3: sources.s.rate: 0 is not valid, expected a whole number from 1 to 10000000",
        ),
        (
            "pipeline: p\nsources:\n  1s: {rate: 1}\n" + FLOW,
            "p.yaml:2: sources: '1s' is not a valid name, expected letters, digits and _, no digit first, at most 100",
        ),
        (
            "pipeline: p\nsources:\n  s: {rate: 1, watermark: {column: timestamp, delay: ten}}\n" + FLOW,
            "p.yaml:3: sources.s.watermark.delay: 'ten' is not an interval, expected one such as `10 minutes`",
        ),
        (
            HEAD + "flows:\n  f: {reads: s, mode: update, to: {parquet: out}}\n",
            "p.yaml:5: flows.f.mode: update cannot be written to Parquet files, expected append",
        ),
        (
            HEAD + "flows:\n  f: {reads: s, mode: update, to: {delta: out}}\n",
            "p.yaml:5: flows.f.mode: update writes a row again when it changes, expected `upsert` in `to`",
        ),
        (
            HEAD + "flows:\n  f: {reads: s, trigger: often, to: {console: true}}\n",
            "p.yaml:5: flows.f.trigger: 'often' is not a trigger, expected `available now` or an interval ",
        ),
        (
            HEAD + "flows:\n  f: {reads: s, to: {topic: t, options: {kafka.acks: [1]}}}\n",
            "p.yaml:5: flows.f.to.options.kafka.acks: [1] is not valid, expected NAME: VALUE, each a plain value",
        ),
        (
            HEAD + "flows:\n  f: {reads: s, to: 5}\n",
            "p.yaml:5: flows.f.to: 5 is not a mapping, expected keys with values",
        ),
        (HEAD + FLOW + "1: 2\n", "p.yaml:6: 1: 1 is not valid: keys should be strings"),
        (
            HEAD + FLOW + "conf: 7\n",
            "p.yaml:6: conf: 7 is not valid, expected NAME: VALUE, each a plain value",
        ),
        (
            HEAD + "flows:\n  f: {reads: s, to: {delta: x, upsert: [a, a]}}\n",
            "p.yaml:5: flows.f.to.upsert: ['a', 'a'] has duplicates, expected each item once",
        ),
        (
            HEAD + "flows:\n  f: {sql: 7, to: {console: true}}\n",
            "p.yaml:5: flows.f.sql: 7 is not valid, expected a query",
        ),
        (
            HEAD + "flows:\n  f: {reads: s, to: {console: false}}\n",
            "p.yaml:5: flows.f.to.console: False is not valid, expected True",
        ),
        (
            "pipeline: p\nsources:\n  s: {topic: t, watermark: {colum: at, delay: 1 hour}}\n" + FLOW,
            "p.yaml:3: sources.s.watermark.colum: is not a valid key here; did you mean column?",
        ),
        (
            HEAD + "bootstrap: nowhere:port\n" + FLOW,
            "p.yaml:4: bootstrap: ",
        ),
        (
            HEAD + "flows:\n  f: {reads: s, to: {parquet: out}}\n  g: {reads: s, to: {parquet: ./out}}\n",
            "p.yaml:6: flows.g.to.parquet: ",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_place(tmp_path: Path, text: str, expected: str) -> None:
    found = problems(tmp_path, text)

    assert any(each.startswith(expected) for each in found), found


SOURCE = "pipeline: p\nsources:\n  s:\n    topic: t\n    options:\n      OPTION\n" + FLOW
SINK = HEAD + "flows:\n  f:\n    reads: s\n    to:\n      topic: t\n      options: {OPTION}\n"


@pytest.mark.parametrize(
    ("text", "option", "expected"),
    [
        (
            SOURCE,
            "startingOffset: latest",
            "6: sources.s.options.startingOffset: there is no option startingOffset, ",
        ),
        (
            SOURCE,
            "minPartitions: 0",
            "6: sources.s.options.minPartitions: option minPartitions is '0', expected a ",
        ),
        (
            SOURCE,
            "endingOffsets: latest",
            "6: sources.s.options.endingOffsets: option endingOffsets is not for ",
        ),
        (
            SOURCE,
            "startingTimestamp: noon",
            "6: sources.s.options.startingTimestamp: option startingTimestamp is ",
        ),
        (
            SOURCE.replace("    topic", "    static: true\n    topic"),
            "startingOffsets: latest",
            "7: sources.s.options.startingOffsets: option startingOffsets is latest, expected earliest or offsets",
        ),
        (
            SOURCE,
            "value.format: avro",
            "6: sources.s.options.value.format: option value.format is not for pipeline ",
        ),
        (
            SINK,
            "value.format: avro",
            "9: flows.f.to.options.value.format: option value.format is not for pipeline ",
        ),
        (SINK, "kafka.linger: 5", "9: flows.f.to.options.kafka.linger: the sink has no option kafka.linger"),
        (
            SINK,
            "kafka.acks: 1",
            "9: flows.f.to.options.kafka.acks: option kafka.acks is '1', expected all or -1",
        ),
    ],
)
def test_options_that_the_source_or_the_sink_refuses_are_reported_without_spark(
    tmp_path: Path, text: str, option: str, expected: str
) -> None:
    [problem] = problems(tmp_path, text.replace("OPTION", option))

    assert problem.startswith(f"p.yaml:{expected}")


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("id BIGIN", "'id BIGIN' has the unknown type BIGIN; did you mean BIGINT?"),
        ("id BIGINT, tags ARRAY<STRING", "has a < that is not closed, expected columns with types, such as "),
        ("id BIGINT), n INT", "has a ) that was not opened"),
        ("id", "'id' has 'id' for a column, expected columns with types"),
        ("id BIGINT,", "has '' for a column"),
        ("struct<a: INT>", "has 'struct<a: INT>' for a column"),
        ("at STRUCT<a: INT, b: NUMBER>", "has the unknown type NUMBER"),
    ],
)
def test_a_mistake_in_a_schema_is_seen_without_spark(tmp_path: Path, schema: str, expected: str) -> None:
    text = f'pipeline: p\nsources:\n  s:\n    topic: t\n    value: json\n    schema: "{schema}"\n' + FLOW

    [problem] = problems(tmp_path, text)

    assert problem.startswith("p.yaml:6: sources.s.schema: ")
    assert expected in problem


@pytest.mark.parametrize(
    "schema",
    [
        "id BIGINT NOT NULL COMMENT 'a, b <', `a, b` string, n DECIMAL(10, 2)",
        "a: INT, b: STRUCT<c: MAP<STRING, ARRAY<INT>>, d: STRUCT<e: DATE>>, f INTERVAL DAY TO SECOND",
        "1st INT,\n  größe DOUBLE, v VARIANT, s STRING COLLATE UTF8_LCASE, e STRUCT<>",
    ],
)
def test_a_schema_that_spark_takes_is_taken(schema: str) -> None:
    assert wrong_in_schema(schema) is None


@pytest.mark.parametrize(
    "text",
    [
        "pipeline: p\nsources: {s: {topic: t, value: jsn, schema: id INT, bad_records: keep}}\n" + FLOW,
        "pipeline: p\nsources: {s: {topic: t, value: raw, key: jsn, key_schema: id INT}}\n" + FLOW,
        HEAD + "flows: {f: {reads: s, to: {topic: t, value: strng, column: a}}}\n",
        HEAD + "flows: {f: {reads: s, to: {topics: by row, value: rw}}}\n",
    ],
)
def test_one_mistake_is_one_complaint(tmp_path: Path, text: str) -> None:
    [problem] = problems(tmp_path, text)

    assert "is not valid, expected 'json', 'string' or 'raw'" in problem


def test_a_package_that_is_not_there_is_reported_with_what_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)

    [problem] = problems(tmp_path, "\nfrom deltalake import DeltaTable\n", "p.py")

    assert problem.startswith("p.py:2: raised ModuleNotFoundError: ")
    assert problem.endswith(": install Penstock with its extra `delta` (see Install in README.md)")


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    text = (
        "pipeline: p\nsources:\n  s: {topic: t, vlaue: raw}\n"
        "flows:\n  f: {reads: s, to: {topic: x, key: [k]}}\n  g: {}\n"
    )

    found = problems(tmp_path, text)

    assert sorted(each.split(":")[1] for each in found) == ["3", "5", "6", "6"]
    assert any("sources.s.vlaue: is not a valid key here; did you mean value?" in each for each in found)
    assert any(
        "flows.f.to.key: ['k'] is not valid, expected the column that becomes the key" in each
        for each in found
    )


def test_pydantic_is_imported_only_to_read_a_file() -> None:
    """Executors import modules of this package and do without it."""
    code = "import sys, penstock.spark.pipeline.tables; print('pydantic' in sys.modules)"

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout.strip() == "False"


def test_a_file_of_anchors_in_anchors_is_refused(tmp_path: Path) -> None:
    bomb = "a0: &a0 {x: 1}\n"
    for level in range(1, 9):
        bomb += f"a{level}: &a{level} {{{', '.join(f'k{each}: *a{level - 1}' for each in range(9))}}}\n"

    [problem] = problems(tmp_path, bomb)

    assert problem == "p.yaml: has more than 10,000 keys, counting anchors at every use"


def test_a_file_that_is_too_large_or_of_another_kind_is_refused(tmp_path: Path) -> None:
    [large] = problems(tmp_path, "#" * (FILE_BYTES_MAX + 1))
    [other] = problems(tmp_path, "{}", "p.json")

    assert large == "p.yaml: has 1,000,001 bytes, expected at most 1,000,000"
    assert other == "p.json: is not a pipeline file, expected .yaml, .yml or .py"


PYTHON = """
from penstock.spark.pipeline import Pipeline

p = Pipeline("orders", checkpoint="state", trigger="1 minute")
p.source("orders", topic="orders", value="json", schema="id BIGINT")

@p.view
def small(orders):
    return orders

@p.view("named", deduplicate=("id",))
def another(small, spark):
    return small

p.view("counted", sql="SELECT count(*) FROM named")
p.flow("out", reads="counted", mode="complete", to={"console": True})

@p.flow(to={"topic": "copies"})
def copies(named):
    return named

@p.each_batch(reads="small")
def keep(batch, batch_id):
    pass
"""


def test_a_python_file_has_the_same_model_and_functions(tmp_path: Path) -> None:
    spec = load(written(tmp_path, PYTHON, "p.py"))

    small, named, counted = spec.views
    assert isinstance(small.query, Call)
    assert (small.name, small.query.parameters) == ("small", ("orders",))
    assert isinstance(named.query, Call)
    assert (named.name, named.query.parameters, named.deduplicate) == ("named", ("small", "spark"), ("id",))
    assert counted.query == Sql("SELECT count(*) FROM named")
    out, copies, keep = spec.flows
    assert (out.mode, out.trigger, out.sink) == ("complete", "1 minute", ConsoleSink(20))
    assert isinstance(copies.query, Call)
    assert copies.sink == TopicSink("copies", None, "json", None, "value", {})
    assert isinstance(keep.sink, BatchSink)
    assert keep.query == Reads("small")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\n", 'p.py: has 0 pipelines at its top level, expected one: pipeline = Pipeline("name")'),
        ("def (\n", "p.py:1: is not Python: "),
        ("\n1 / 0\n", "p.py:2: raised ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)\n", "p.py:1: ended with exit code 3"),
        (
            PYTHON.replace("def small(orders)", "def small(order)"),
            "p.py:7: views.small.function: 'order' is not a source or view above it, expected orders",
        ),
        (PYTHON.replace('"complete"', '"whole"'), "p.py:16: flows.out.mode: 'whole' is not valid, expected "),
        (
            PYTHON + 'p.flow("out", reads="small", to={})\n',
            "p.py:25: flows.out: is declared twice, expected another name",
        ),
    ],
)
def test_a_mistake_in_a_python_file_is_reported_with_its_line(
    tmp_path: Path, text: str, expected: str
) -> None:
    found = problems(tmp_path, text, "p.py")

    assert any(each.startswith(expected) for each in found), found


def test_a_checkpoint_elsewhere_keeps_the_runners_own_files_here(tmp_path: Path) -> None:
    spec = load(written(tmp_path, HEAD + FLOW + "checkpoint: hdfs://name/node\n"))

    assert spec.checkpoint_of("f") == "hdfs://name/node/f"
    assert spec.state == tmp_path / ".p.state"
