"""Tasks of a batch job that fails: whenever they come, nothing of them stays open."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.spark.sinks import committed, everything, values

from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.transactions import list_transactions
from penstock.spark.errors import WriteFailed
from penstock.spark.writing.job import abort_job, commit_job, write_job_rows
from penstock.spark.writing.sink_options import SinkOptions, read_sink_options
from penstock.testing import Broker

ROWS = pa.record_batch({"value": pa.array([b"a", b"b"])})


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def options(broker: Broker, request: pytest.FixtureRequest) -> SinkOptions:
    topic = request.node.name[:200]
    broker.create_topic(topic, 1)
    named = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}
    return read_sink_options(named | {"kafka.batch.size": "1"})  # rows leave as soon as they come


@pytest.fixture
def cluster(options: SinkOptions) -> Iterator[Cluster]:
    with Cluster(options.servers, options.client) as connected:
        yield connected


def open_ids(cluster: Cluster) -> list[str]:
    return [each.transactional_id for each in list_transactions(cluster) if each.state == "Ongoing"]


def test_a_task_that_begins_when_its_job_is_aborted_writes_nothing(
    broker: Broker, cluster: Cluster, options: SinkOptions
) -> None:
    abort_job(cluster, options, "late", [])
    with pytest.raises(WriteFailed, match="the job has failed in another task"):
        write_job_rows(cluster, options, "late", "0", [ROWS])
    assert options.topic is not None
    assert values(everything(broker, options.topic)) == []
    assert open_ids(cluster) == []


def test_a_task_that_is_at_work_when_its_job_is_aborted_is_fenced(
    broker: Broker, cluster: Cluster, options: SinkOptions
) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield ROWS
        abort_job(cluster, options, "midway", [])
        yield ROWS

    with pytest.raises((ClientError, WriteFailed)):
        write_job_rows(cluster, options, "midway", "0", rows())
    assert options.topic is not None
    assert values(everything(broker, options.topic)) != [], "some of its rows are in the log"
    assert values(committed(broker, options.topic)) == []
    assert open_ids(cluster) == []


def test_another_job_has_nothing_to_do_with_it(
    broker: Broker, cluster: Cluster, options: SinkOptions
) -> None:
    abort_job(cluster, options, "one", [])
    result = write_job_rows(cluster, options, "two", "0", [ROWS])
    commit_job(cluster, options, "two", [result])
    assert options.topic is not None
    assert values(committed(broker, options.topic)) == [b"a", b"b"]
