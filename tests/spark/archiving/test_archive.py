"""A topic kept as a table by a Spark stream, and held against its log; through real Spark and a real node."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark.topics import Topics

from penstock.spark.archiving.archive import ArchiveJob, claim, look, start
from penstock.spark.archiving.archive_table import files_of, locked
from penstock.spark.archiving.audit import AuditJob, Difference, audit
from penstock.spark.errors import ArchiveFault
from penstock.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMANDS_S_MAX = 300


def run(spark: "SparkSession", job: ArchiveJob, records_max: int = 1_000_000) -> None:
    """As `penstock archive --once`, in the tests' own session."""
    wanted = look(job)
    with locked(job.directory, "archive.lock"):
        claim(job, wanted)
        query = start(spark, job, every=None, records_max=records_max)
        query.awaitTermination()


def fill(topics: Topics, topic: str, count: int) -> None:
    """Two partitions: nulls, headers, times, and transactions of both kinds."""
    values = [None if each % 7 == 0 else b"v%d" % each for each in range(count)]
    topics.produce(topic, values[: count // 2], headers=[("n", b"1"), ("none", None)])
    topics.produce(topic, values[count // 2 :], partition=1, key=b"key", timestamp=1_794_000_000_000)
    for commits in (True, False):
        producer = topics.transaction(topic, [b"t%d" % each for each in range(20)])
        (producer.commit_transaction if commits else producer.abort_transaction)()


def rows_of(spark: "SparkSession", broker: Broker, topic: str) -> list[tuple[object, ...]]:
    log = (
        spark.read.format("penstock")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .options(subscribe=topic, includeHeaders="true")
        .option("isolation.level", "read_committed")
        .load()
    )
    return sorted((tuple(row) for row in log.select(*NAMES).collect()), key=lambda row: row[:2])


NAMES = ("partition", "offset", "timestamp", "timestampType", "key", "value", "headers")


@pytest.mark.long
def test_an_archived_topic_is_whole_and_an_audit_says_so(
    spark: "SparkSession", spark_broker: Broker, topic: str, tmp_path: Path
) -> None:
    spark_broker.create_topic(topic, partitions=2)
    job = ArchiveJob(topic, str(tmp_path / "table"), spark_broker.bootstrap)
    by_broker = AuditJob(topic, job.directory, spark_broker.bootstrap)
    with Topics(spark_broker) as topics:
        fill(topics, topic, 600)
        run(spark, job, records_max=400)  # in several batches, whose files are put together
        table = spark.read.parquet(job.directory).select(*NAMES).collect()
        assert sorted((tuple(row) for row in table), key=lambda row: row[:2]) == rows_of(
            spark, spark_broker, topic
        )
        assert len(table) == 620
        assert len(list(Path(job.directory).rglob("*.parquet"))) <= 6

        topics.produce(topic, [b"later"] * 10)
        topics.cut(topic, 50, partition=1)
        verdict = audit(spark, by_broker)
        assert (verdict.compared, verdict.pending, verdict.below_start) == (570, 10, 50)
        assert verdict.is_whole
        assert str(verdict) == (
            f"{topic}: all 570 records of 2 partitions are in {job.directory}, once and unchanged; "
            "10 not archived yet, 50 older ones in the table alone"
        )


@pytest.mark.long
def test_an_audit_finds_rows_that_are_missing_changed_or_repeated(
    spark: "SparkSession", spark_broker: Broker, topic: str, tmp_path: Path
) -> None:
    spark_broker.create_topic(topic, partitions=2)
    job = ArchiveJob(topic, str(tmp_path / "table"), spark_broker.bootstrap)
    by_broker = AuditJob(topic, job.directory, spark_broker.bootstrap)
    with Topics(spark_broker) as topics:
        fill(topics, topic, 600)
        topics.produce(topic, [b"later"] * 10)
        topics.cut(topic, 50, partition=1)
        run(spark, job)
        spoil(job.directory)
        verdict = audit(spark, by_broker)
        assert (verdict.pending, verdict.compared) == (0, 580)
        assert not verdict.is_whole
        assert (verdict.missing, verdict.changed, verdict.repeated, verdict.extra) == (1, 1, 1, 0)
        assert sorted(map(str, verdict.differences)) == [
            f"partition 0 offset {each}" for each in (10, 20, 30)
        ]
        assert "1 missing (first partition 0 offset 10)" in str(verdict)

        os.unlink(files_of(job.directory)[1][-1].path)
        verdict = audit(spark, AuditJob(topic, job.directory, path=spark_broker.data))
        assert verdict.missing == 251
        assert Difference("missing", 1, 50, 299) in verdict.differences
        assert verdict.as_json()["whole"] is False


def spoil(directory: str) -> None:
    """Lose a row, change one, and have one twice."""
    for file in files_of(directory)[0]:
        table = pq.read_table(file.path, partitioning=None)
        rows = [row for row in table.to_pylist() if row["offset"] != 10]
        for row in rows:
            if row["offset"] == 20:
                row["headers"] = [{"key": "n", "value": b"2"}, {"key": "none", "value": None}]
        rows += [row for row in rows if row["offset"] == 30]
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), file.path)


def test_a_directory_is_the_archive_of_one_topic(spark_broker: Broker, topic: str, tmp_path: Path) -> None:
    def refusal(job: ArchiveJob) -> str:
        with pytest.raises(ArchiveFault) as caught:
            look(job)
        return str(caught.value)

    spark_broker.create_topic(topic, partitions=1)
    spark_broker.create_topic(f"{topic}-2", partitions=1)
    job = ArchiveJob(topic, str(tmp_path / "table"), spark_broker.bootstrap)
    claim(job, look(job))
    other = ArchiveJob(f"{topic}-2", job.directory, spark_broker.bootstrap)
    assert f"is the archive of topic {topic}, not of {topic}-2" in refusal(other)
    uncommitted = ArchiveJob(topic, job.directory, spark_broker.bootstrap, "read_uncommitted")
    assert "was archived with read_committed" in refusal(uncommitted)
    with Topics(spark_broker) as topics:
        topics.delete(topic)
    spark_broker.create_topic(topic, partitions=1)
    assert "was deleted and created again since it was archived" in refusal(job)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    full = ArchiveJob(topic, str(tmp_path / "full"), spark_broker.bootstrap)
    assert "has other files" in refusal(full)


# -- the commands -----------------------------------------------------------------------------------------


def penstock(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def told(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=COMMANDS_S_MAX)
    return process.returncode, out, err


@pytest.mark.long
def test_an_archive_killed_again_and_again_is_whole_in_the_end_and_comes_back(tmp_path: Path) -> None:
    """kill -9 of the command and all it has started, at whatever it is doing after its first files."""
    table = str(tmp_path / "table")
    with Broker() as broker, Topics(broker) as topics:
        broker.create_topic("orders", partitions=3)
        for partition in range(3):
            topics.produce("orders", [b"%d" % each for each in range(20_000)], partition=partition, key=b"k")
        command = ("archive", "orders", "--to", table, "--once", "--server", broker.bootstrap)
        for kills in range(2):
            process = penstock(*command, "--batch-records", "3000")
            before = set(Path(table).rglob("*"))
            deadline = time.monotonic() + COMMANDS_S_MAX
            while process.poll() is None and set(Path(table).rglob("*.parquet")) <= before:
                assert time.monotonic() < deadline
                time.sleep(0.01)  # there is no event to wait for: another process makes the files
            assert process.poll() is None, f"it was over before kill {kills}"
            os.killpg(process.pid, signal.SIGKILL)
            told(process)
        assert not told(penstock("audit", "orders", table, "--server", broker.bootstrap, "--json"))[0]
        code, out, err = told(penstock(*command))
        assert (code, err) == (0, "")
        code, out, _ = told(penstock("audit", "orders", table, "--server", broker.bootstrap))
        assert (code, out.count("\n")) == (0, 1)
        assert out.startswith("orders: all 60,000 records of 3 partitions are in ")
        code, out, err = told(penstock("replay", table, "--to", "again", "--server", broker.bootstrap))
        assert (code, err) == (0, "")
        assert out.startswith("again: 60,000 records brought back from ")
        os.unlink(max(Path(table).rglob("*.parquet")))
        code, out, _ = told(penstock("audit", "orders", table, "--server", broker.bootstrap))
        assert (code, out.count("\n")) == (1, 1)
        assert "is incomplete: of 60,000 records" in out


def test_what_cannot_be_done_is_a_sentence_and_exit_code_2(tmp_path: Path, spark_broker: Broker) -> None:
    for arguments, sentence in (
        (("audit", "orders", str(tmp_path)), f"penstock: {tmp_path} is not an archive"),
        (("replay", str(tmp_path), "--to", "x"), f"penstock: {tmp_path} is not an archive"),
        (
            ("archive", "no-such-topic", "--to", f"{tmp_path}/x", "--every", "1ms"),
            "penstock: --every is '1ms'",
        ),
        (("archive", "no-such-topic", "--to", f"{tmp_path}/x"), "penstock: topic no-such-topic"),
    ):
        code, out, err = told(penstock(*arguments, "--server", spark_broker.bootstrap))
        assert (code, out) == (2, "")
        assert err.startswith(sentence), err
        assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
