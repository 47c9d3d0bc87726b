"""Runs report to a topic, which every node and the command line show; secrets stay out, and failures do not matter."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import httpx
import pytest
from tests.gateway.peer_rpc.doors import doors, good
from tests.spark.pipeline.running import produce, written
from tests.spark.pipeline.test_progress import told
from typer.testing import CliRunner

from penstock.base.pipeline_report import (
    LOST_MS,
    PIPELINES_TOPIC,
    REPORT_BYTES_MAX,
    PipelineReport,
    ReportedBatch,
    ReportedFlow,
    read_report,
    write_report,
)
from penstock.cli.app import app
from penstock.client.cluster import Cluster
from penstock.client.pipeline_reports import ReportWriter, read_reports
from penstock.client.settings import parse_servers
from penstock.spark.pipeline import PipelineSpec, load
from penstock.spark.pipeline import report as reporting
from penstock.spark.pipeline.build import Builder
from penstock.spark.pipeline.options import Brokers
from penstock.spark.pipeline.progress import FlowProgress
from penstock.spark.pipeline.report import Reporter, fit, graph_of, reported_group
from penstock.spark.pipeline.run import Runner
from penstock.spark.pipeline.secrets import Redactor, redactor
from penstock.spark.pipeline.state import StatusFile
from penstock.testing import Broker, Security

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = """
pipeline: orders
checkpoint: state
conf: {{spark.hadoop.fs.s3a.secret.key: "${{env:S3_SECRET}}"}}
sources:
  orders: {{topic: orders, value: json, schema: "id BIGINT, amount DOUBLE"}}
  prices: {{files: "{directory}/prices", schema: "id BIGINT, price DOUBLE", static: true}}
views:
  paid: SELECT * FROM orders WHERE amount > 0
flows:
  archive: {{reads: orders, to: {{parquet: tables/orders}}}}
  spent: {{sql: "SELECT o.id, p.price FROM paid o JOIN prices p ON o.id = p.id", to: {{topic: spent}}}}
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PipelineSpec:
    monkeypatch.setenv("S3_SECRET", "open-sesame")
    return load(written(tmp_path, ORDERS.format(directory=tmp_path)))


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(http=True) as started:
        yield started


def get(broker: Broker, path: str) -> Any:
    with urlopen(f"{broker.http_url}{path}", timeout=30) as response:
        return json.load(response)


def reports(broker: Broker) -> list[PipelineReport]:
    with Cluster(parse_servers(broker.bootstrap)) as cluster:
        return read_reports(cluster)


# -- what a report has -------------------------------------------------------------------------------------------


def test_graph_has_sources_views_flows_and_sinks(spec: PipelineSpec) -> None:
    nodes, edges = graph_of(spec)
    assert {(each.id, tuple(each.topics)) for each in nodes} == {
        ("source:orders", ("orders",)),
        ("source:prices", ()),
        ("view:paid", ()),
        ("flow:archive", ()),
        ("flow:spent", ()),
        (f"sink:Parquet files in {spec.file.parent}/tables/orders", ()),
        ("sink:topic spent", ("spent",)),
    }
    assert {(each.source, each.target.partition(" ")[0]) for each in edges} == {
        ("source:orders", "view:paid"),
        ("source:orders", "flow:archive"),
        ("view:paid", "flow:spent"),
        ("source:prices", "flow:spent"),
        ("flow:archive", "sink:Parquet"),
        ("flow:spent", "sink:topic"),
    }
    assert [reported_group(spec, each) for each in spec.flows] == ["orders.archive", "orders.spent"]


def test_batches_are_kept_up_to_a_number(spec: PipelineSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "BATCHES_IN_ALL", 6)
    reporter = Reporter(spec, Brokers(), "local", pytest.fail)
    flow, other = FlowProgress("archive", "running"), FlowProgress("spent", "running")
    for batch in range(8):
        flow.take(told(batch, 10 + batch))
        made = reporter.report("running", [flow, other], None)
    reporter.report("running", [flow, other], None)  # without a new batch
    [first, second] = made.flows
    assert [each.rows for each in first.batches] == [13, 14, 15, 16, 17]
    assert (first.rows, first.batch, first.batch_ms, first.rows_per_s) == (108, 7, 12, 3.5)
    assert second.batches == []
    assert read_report(b"orders", write_report(made), made.updated_ms, made.updated_ms) == made


def test_a_flow_with_a_group_of_its_own_is_reported_with_it(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        """
pipeline: p
checkpoint: state
sources:
  named: {topic: a, options: {group: mine}}
  silent: {topic: b, options: {kafka.group.id: ""}}
  made: {rate: 1}
flows:
  one: {reads: named, to: {console: true}}
  two: {reads: silent, to: {console: true}}
  three: {reads: made, to: {console: true}}
""",
    )
    spec = load(file)
    assert [reported_group(spec, each) for each in spec.flows] == ["mine", None, None]


def test_a_report_that_is_too_large_goes_without_batches_and_graph(spec: PipelineSpec) -> None:
    reporter = Reporter(spec, Brokers(), "local", pytest.fail)
    made = reporter.report("running", [FlowProgress("archive")], None)
    made.flows = [
        ReportedFlow(
            f"flow-{number}", "running", error="x" * 300, batches=[ReportedBatch(0, 1, 2, 3.0, 4)] * 50
        )
        for number in range(1_000)
    ]
    fitted = fit(made)
    assert len(write_report(fitted)) <= REPORT_BYTES_MAX
    assert len(fitted.flows) == 1_000
    assert read_report(b"orders", write_report(fitted), 0, 0) is not None


def test_secrets_are_kept_out(spec: PipelineSpec, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="alices-word";\nssl.truststore.password=store-word\n'
    )
    brokers = Brokers("127.0.0.1:1", {"clientConfig": str(config), "kafka.ssl.key.password": "key-word"})
    hide = redactor(spec, brokers)
    text = hide(
        "open-sesame alices-word store-word key-word s3a://me:pass@bucket/x sc://host:1/;token=abc password=xyz,"
    )
    assert text == "*** *** *** *** s3a://***@bucket/x sc://host:1/;token=*** password=***,"
    failed = FlowProgress("archive", "failed", error="cannot log in with open-sesame")
    made = Reporter(spec, brokers, "sc://h:1/;token=abc", pytest.fail).report(
        "failed", [failed], "open-sesame"
    )
    assert b"open-sesame" not in write_report(made)
    assert (made.error, made.spark) == ("***", "sc://h:1/;token=***")


def test_text_without_secrets_stays_as_it_is() -> None:
    text = "The column `token` is not one of id, amount; expected 3 of https://example.org/x@y"
    assert Redactor(["", "id"])(text) == text


def test_report_of_a_run_that_no_longer_reports_is_lost(spec: PipelineSpec) -> None:
    made = Reporter(spec, Brokers(), "local", pytest.fail).report(
        "running", [FlowProgress("archive", "running"), FlowProgress("spent", "failed")], None
    )
    data = write_report(made)
    late = read_report(b"orders", data, 1_000, 1_001 + LOST_MS)
    assert late is not None
    assert (late.state, [each.state for each in late.flows]) == ("lost", ["lost", "failed"])
    in_time = read_report(b"orders", data, 1_000, 1_000 + LOST_MS)
    assert in_time is not None
    assert in_time.state == "running"


@pytest.mark.parametrize(
    "value",
    [b"", b"{}", b"[]", b"\xff", b'{"pipeline": "other"}', b"[" * 100_000, b'{"pipeline": "p", "run": 3}'],
)
def test_what_is_not_a_report_is_none(value: bytes) -> None:
    assert read_report(b"p", value, 0, 0) is None


# -- a run -------------------------------------------------------------------------------------------------------


def test_reports_are_shown_by_the_node_and_the_command_line(spec: PipelineSpec, broker: Broker) -> None:
    warnings: list[str] = []
    assert get(broker, "/pipelines") == {"pipelines": [], "next": None}
    flows = [FlowProgress(each.name) for each in spec.flows]
    with Reporter(spec, Brokers(broker.bootstrap), "local[2]", warnings.append) as reporter:
        reporter.update("starting", flows)
        flows[0].state = "running"
        flows[0].take(told(0, 10))
        reporter.update("running", flows)
        flows[0].state, flows[0].error = "failed", "the disk is full"
        reporter.update("failed", flows, "flow archive failed: the disk is full")
    assert not warnings
    [row] = get(broker, "/pipelines")["pipelines"]
    assert (row["pipeline"], row["state"], row["flows"]) == ("orders", "failed", ["archive", "spent"])
    assert row["error"] == "flow archive failed: the disk is full"
    assert row["groups"] == ["orders.archive", "orders.spent"]
    shown = get(broker, "/pipelines/orders")
    assert shown["flows"][0]["batches"][0]["rows"] == 10
    assert len(shown["edges"]) == 6
    assert abs(shown["updated_ms"] - time.time() * 1000) < 60_000
    configs = get(broker, f"/topics/{PIPELINES_TOPIC}/configs")["configs"]
    assert {each["name"]: each["value"] for each in configs}["cleanup.policy"] == "compact"
    listed = CliRunner().invoke(app, ["pipeline", "list", "--server", broker.bootstrap])
    assert listed.exit_code == 0, listed.output
    assert "the disk is full" in listed.output
    one = CliRunner().invoke(app, ["pipeline", "show", "orders", "--server", broker.bootstrap, "--json"])
    assert json.loads(one.output)["flows"] == shown["flows"]
    none = CliRunner().invoke(app, ["pipeline", "show", "none", "--server", broker.bootstrap])
    assert none.exit_code != 0


def test_garbage_in_the_topic_is_passed_over_and_a_tombstone_removes_a_pipeline(
    spec: PipelineSpec, broker: Broker
) -> None:
    made = Reporter(spec, Brokers(), "local", pytest.fail).report("finished", [], None)
    with Cluster(parse_servers(broker.bootstrap)) as cluster:
        ReportWriter(cluster).write(made)
    produce(broker, PIPELINES_TOPIC, [b"garbage", {"pipeline": "x", "run": None}], key=None)
    with httpx.Client(base_url=broker.http_url) as http:
        assert [each["pipeline"] for each in http.get("/pipelines").json()["pipelines"]] == ["orders"]
        for bad in ("/pipelines?limit=0", "/pipelines?after=" + "x" * 301):
            assert http.get(bad).status_code == 400
        assert http.get("/pipelines/none").json()["error"]["code"] == "resource_not_found"
        http.post(
            "/produce", json={"topic": PIPELINES_TOPIC, "key": "b3JkZXJz", "value": None}
        ).raise_for_status()
        assert http.get("/pipelines").json()["pipelines"] == []
        assert http.get("/pipelines/orders").status_code == 404
    assert reports(broker) == []


def test_every_node_of_a_cluster_shows_pipelines(spec: PipelineSpec) -> None:
    with doors() as cluster:
        for number in range(3):
            made = Reporter(spec, Brokers(), "local", pytest.fail).report("running", [], None)
            made.pipeline = f"p{number}"
            with Cluster(parse_servers(cluster.brokers[number].bootstrap)) as client:
                ReportWriter(client).write(made)
            for broker in cluster.brokers:
                rows = good(broker, "GET", "/pipelines")["pipelines"]
                assert [each["pipeline"] for each in rows] == [f"p{each}" for each in range(number + 1)]


def test_a_pipeline_without_brokers_runs_on_and_says_so_once(
    spec: PipelineSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting, "RETRY_S", 0.0)
    warnings: list[str] = []
    warned = threading.Event()

    def warn(text: str) -> None:
        warnings.append(text)
        warned.set()

    with Reporter(spec, Brokers("127.0.0.1:1"), "local", warn) as reporter:
        reporter.update("starting", [])
        assert warned.wait(30)
        reporter.update("running", [])
    assert len(warnings) == 1
    assert PIPELINES_TOPIC in warnings[0]


def test_a_pipeline_is_reported_again_while_it_does_nothing(
    spec: PipelineSpec, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting, "HEARTBEAT_MS", 100)
    with Reporter(spec, Brokers(broker.bootstrap), "local", pytest.fail) as reporter:
        reporter.update("running", [])
        seen: set[int] = set()
        until = time.monotonic() + 60
        while len(seen) < 3 and time.monotonic() < until:
            seen |= {each["updated_ms"] for each in get(broker, "/pipelines")["pipelines"]}
    assert len(seen) >= 3


def test_a_user_without_rights_is_warned_once(spec: PipelineSpec, tmp_path: Path) -> None:
    users = {"admin": "admin-secret", "alice": "alice-secret"}
    with Broker(security=Security(users=users)) as broker:
        config = broker.client("alice").write(tmp_path / "alice.properties")
        warnings: list[str] = []
        brokers = Brokers(broker.bootstrap, {"clientConfig": config})
        with Reporter(spec, brokers, "local", warnings.append) as reporter:
            reporter.update("running", [])
            reporter.update("finished", [])
        [warning] = warnings
        assert "AUTHORIZATION_FAILED" in warning or "not authorized" in warning


def test_a_run_on_spark_is_reported(tmp_path: Path, spark: "SparkSession", broker: Broker) -> None:
    broker.create_topic("orders")
    produce(broker, "orders", [{"id": number} for number in range(20)])
    file = written(
        tmp_path,
        """
pipeline: reported
checkpoint: state
sources: {orders: {topic: orders, value: json, schema: id BIGINT}}
flows:
  copy: {reads: orders, to: {parquet: out}}
""",
    )
    spec = load(file)
    spec.state.mkdir()
    brokers = Brokers.of(spec, broker.bootstrap, {})
    with Reporter(spec, brokers, "local[2]", pytest.fail) as reporter:
        Runner(
            spec,
            Builder(spec, spark, brokers),
            StatusFile(spec, "local", ""),
            once=True,
            report=reporter.update,
        ).run(threading.Event())
    shown = get(broker, "/pipelines/reported")
    [flow] = shown["flows"]
    assert (shown["state"], flow["state"], flow["rows"], flow["group"]) == (
        "finished",
        "finished",
        20,
        "reported.copy",
    )
    assert sum(each["rows"] for each in flow["batches"]) == 20
    assert all(each["ms"] > 0 for each in flow["batches"])
    assert flow["lag"] == 0
