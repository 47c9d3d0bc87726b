"""Spark at secured brokers: the source, the sink, archives and pipelines log in, and secrets stay where they are."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from tests.spark.pipeline.running import run, written
from tests.spark.test_docs_spark import section

from penstock.base.errors import KafkaError
from penstock.spark.archiving import archive, audit, replay
from penstock.spark.errors import BadOption
from penstock.spark.pipeline import BadPipeline, CannotRun, load
from penstock.spark.pipeline.brokers import check_brokers
from penstock.spark.pipeline.options import Brokers
from penstock.spark.pipeline.packaging import session
from penstock.spark.reading.options import read_options
from penstock.spark.source import DefaultSource
from penstock.testing import Broker, Security

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLANTED = "planted-s3cret"
VARIABLE = "PENSTOCK_TEST_PASSWORD"
JAAS = "kafka.sasl.jaas.config"
JOB = Path(__file__).with_name("secured_job.py")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(security=Security(users={"admin": PLANTED, "alice": PLANTED})) as made:
        for topic in ("orders", "copies", "totals"):
            made.create_topic(topic)
        producer = Producer({**made.client().confluent_kafka, "log_level": 0})
        for number in range(3):
            producer.produce("orders", json.dumps({"id": number}).encode())
        assert producer.flush(30) == 0
        yield made


@pytest.fixture
def options(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Options with a reference in place of the password."""
    monkeypatch.setenv(VARIABLE, PLANTED)
    return referring(broker)


def literal(broker: Broker) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in broker.client().properties.items()}


def referring(broker: Broker) -> dict[str, str]:
    found = literal(broker)
    return found | {JAAS: found[JAAS].replace(PLANTED, f"${{env:{VARIABLE}}}")}


def test_the_source_and_the_sink_log_in_and_show_no_secret(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    """With the secret in a file, since Spark's Python has the environment of its start."""
    options = {"clientConfig": broker.client().write(tmp_path / "admin.properties")}
    rows = spark.read.format("penstock").options(**options).option("subscribe", "orders").load()
    assert rows.count() == 3
    sink = {**options, "topic": "copies"}
    rows.select("value").write.format("penstock").options(**sink).mode("append").save()
    stream = spark.readStream.format("penstock").options(**options)
    stream = stream.option("subscribe", "orders").option("startingOffsets", "earliest")
    writer = stream.load().select("value").writeStream.format("penstock").options(**sink)
    query = writer.option("checkpointLocation", f"{tmp_path}/checkpoint").trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    copies = spark.read.format("penstock").options(**options).option("subscribe", "copies").load()
    assert copies.count() == 6
    shown = rows._jdf.queryExecution().toString() + str(query.lastProgress)
    for file in (tmp_path / "checkpoint").rglob("*"):
        shown += file.read_text("latin-1") if file.is_file() else ""
    wrong = tmp_path / "wrong.properties"
    wrong.write_text((tmp_path / "admin.properties").read_text().replace(PLANTED, f"{PLANTED}-wrong"))
    bad = spark.read.format("penstock").option("clientConfig", str(wrong)).option("subscribe", "orders")
    with pytest.raises(Exception, match="refused the log-in of admin with SCRAM-SHA-512") as refused:
        bad.load().count()
    assert PLANTED not in shown + str(refused.value)


def test_what_travels_to_executors_does_not_show_its_secret(options: dict[str, str]) -> None:
    read = read_options({**options, "subscribe": "orders"})
    source = DefaultSource({**options, "subscribe": "orders"})
    assert read.client.security.login is not None
    assert PLANTED not in f"{read!r} {source.__dict__!r}"


def test_a_missing_variable_is_named(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(BadOption, match=f"needs the environment variable {VARIABLE}, which is not set"):
        read_options({**referring(broker), "subscribe": "orders"})


def test_an_archive_is_written_compared_and_replayed(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    client = {"clientConfig": broker.client().write(tmp_path / "admin.properties")}
    table = str(tmp_path / "table")
    job = archive.ArchiveJob("orders", table, broker.bootstrap, client=client)
    archive.claim(job, archive.look(job))
    assert archive.start(spark, job, every=None).awaitTermination(120)
    compared = audit.AuditJob("orders", table, broker.bootstrap, client=client)
    assert audit.audit(spark, compared).is_whole
    done = replay.replay(replay.ReplayJob(table, "again", broker.bootstrap, client=client))
    assert done.records == 3
    with pytest.raises(KafkaError, match="asks for TLS"):
        archive.look(archive.ArchiveJob("orders", table, broker.bootstrap))


PIPELINE = """
pipeline: secured
bootstrap: {bootstrap}
client_config: admin.properties
sources:
  orders: {{topic: orders, value: json, schema: id BIGINT}}
flows:
  totals:
    sql: SELECT id * 10 AS id FROM orders
    to: {{topic: totals}}
"""


def test_a_pipeline_logs_in(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    broker.client().write(tmp_path / "admin.properties")
    spec = load(written(tmp_path, PIPELINE.format(bootstrap=broker.bootstrap)))
    brokers = Brokers.of(spec, None, {})
    assert brokers.client == {"clientConfig": str(tmp_path / "admin.properties")}
    check_brokers(spec, brokers)
    run(spec, spark)
    rows = spark.read.format("penstock").options(**brokers.options).option("subscribe", "totals").load()
    assert sorted(json.loads(row.value)["id"] for row in rows.collect()) == [0, 10, 20]
    for file in tmp_path.rglob("*"):
        assert file.name == "admin.properties" or file.is_dir() or PLANTED.encode() not in file.read_bytes()


def test_a_pipeline_says_what_does_not_fit(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PIPELINE.format(bootstrap=broker.bootstrap).replace("client_config: admin.properties\n", "")
    with pytest.raises(CannotRun, match=r"p\.yaml:\d+: .* asks for TLS"):
        check_brokers(load(written(tmp_path, text)), Brokers(broker.bootstrap))
    option = (
        f"options: {{kafka.security.protocol: SASL_SSL, kafka.sasl.mechanism: PLAIN, kafka.sasl.username: a, \
kafka.sasl.password: '${{env:{VARIABLE}}}'}}"
    )
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(BadPipeline) as bad:
        load(written(tmp_path, text.replace("schema: id BIGINT", f"schema: id BIGINT, {option}")))
    [problem] = bad.value.problems
    assert "kafka.sasl.password" in problem.key
    assert f"needs the environment variable {VARIABLE}, which is not set" in problem.sentence


def test_a_secret_among_sparks_settings_may_stand_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    conf = f"conf: {{spark.hadoop.fs.s3a.secret.key: '${{env:{VARIABLE}}}'}}\nsources:"
    spec = load(written(tmp_path, PIPELINE.format(bootstrap="one:9092").replace("sources:", conf)))
    sentence = rf"p\.yaml:\d+: spark.hadoop.fs.s3a.secret.key needs the environment variable {VARIABLE}"
    with pytest.raises(CannotRun, match=sentence), session(spec):
        pass


def test_other_brokers_do_not_get_the_credentials_of_the_pipelines(tmp_path: Path) -> None:
    text = PIPELINE.format(bootstrap="one:9092").replace(
        "to: {topic: totals}", "to: {topic: totals, bootstrap: 'two:9092'}"
    )
    spec = load(written(tmp_path, text))
    brokers = Brokers.of(spec, "three:9092", {"clientConfig": "/x"})
    [source], [flow] = spec.sources, spec.flows
    assert brokers.of_part(source.reads) == Brokers("three:9092", {"clientConfig": "/x"})  # type: ignore[arg-type]
    assert brokers.of_part(flow.sink) == Brokers("two:9092", {})  # type: ignore[arg-type]


def test_the_example_of_the_documentation_runs(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    [example] = re.findall(r"```python\n(.*?)```", section("Secured brokers"), re.DOTALL)
    (tmp_path / "password").write_text(PLANTED)
    here = (
        example.replace("broker.example.org:9094", broker.bootstrap)
        .replace("/etc/penstock/ca.pem", broker.client().properties["ssl.truststore.location"])
        .replace("${env:ORDERS_PASSWORD}", f"${{dir:{tmp_path}:password}}")
    )
    names: dict[str, object] = {"spark": spark}
    exec(here, names)
    assert names["orders"].isStreaming  # type: ignore[attr-defined]


@pytest.mark.long
@pytest.mark.parametrize("place", ["reference", "file", "option", "keystore"])
def test_plans_logs_checkpoints_events_and_pages_have_no_secret(
    broker: Broker, tmp_path: Path, place: str
) -> None:
    """The whole of what a job leaves behind, its log at debug level. Spark itself hides a password in an option."""
    directory = tmp_path / "job"
    directory.mkdir()
    wrong = literal(broker) | {JAAS: literal(broker)[JAAS].replace(PLANTED, f"{PLANTED}-wrong")}
    found = literal(broker) if place == "option" else referring(broker)
    if place == "file":
        found = {"clientConfig": broker.client().write(tmp_path / "admin.properties")}
    elif place == "keystore":  # a private key has no word by which Spark would hide it
        found["kafka.ssl.keystore.type"] = "PEM"
        found["kafka.ssl.keystore.key"], found["kafka.ssl.keystore.certificate.chain"] = _own_key()
    done = subprocess.run(
        [sys.executable, str(JOB), str(directory), json.dumps(found), json.dumps(wrong)],
        env={**os.environ, VARIABLE: PLANTED},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    files = [each for each in directory.rglob("*") if each.is_file()]
    assert {"spark.log", "shown.txt", "metadata"} <= {each.name for each in files}
    assert any(each.name.startswith("events_") for each in files)
    whole = b"".join(each.read_bytes() for each in files) + (done.stdout + done.stderr).encode()
    assert b"RelationV2" in whole
    assert PLANTED.encode() not in whole
    if place == "keystore":
        assert b"PRIVATE KEY" not in whole


def _own_key() -> tuple[str, str]:
    from penstock.server.certificate_authority import CertificateAuthority  # noqa: PLC0415

    certified = CertificateAuthority.create("of nobody", days=1).issue("client", days=1)
    return certified.key.decode(), certified.chain.decode()
