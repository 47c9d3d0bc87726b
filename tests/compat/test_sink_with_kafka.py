"""The Spark sink's transactions on Apache Kafka: exactly once there too, with either `transaction.version`."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest
from tests.compat.kafka.peer import KafkaPeer
from tests.spark.queries import Crash, Fault, commit_requests, new_query
from tests.spark.writing.test_sink_readers import COUNT, read_rows, row, write_rows

from penstock.client.admin import NewTopic, create_topics
from penstock.client.cluster import Cluster
from penstock.client.settings import parse_servers
from penstock.client.transactional import uses_epoch_bumps
from penstock.records import Codec
from penstock.spark.errors import WriteFailed
from penstock.wire import Api

pytestmark = [pytest.mark.kafka, pytest.mark.long]


@dataclass
class KafkaServer:
    bootstrap: str

    def create_topic(self, name: str, partitions: int = 1, **configs: object) -> None:
        texts = {key.replace("_", "."): str(value) for key, value in configs.items()}
        with Cluster(parse_servers(self.bootstrap)) as cluster:
            [outcome] = create_topics(cluster, [NewTopic(name, partitions, configs=texts)])
        assert outcome.error is None


@pytest.fixture(scope="module", params=[pytest.param(1, marks=pytest.mark.long), 2])
def server(
    request: pytest.FixtureRequest, kafka: KafkaPeer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaServer]:
    log_dir = tmp_path_factory.mktemp("sink") / "logs"
    kafka.format_storage(log_dir)
    with kafka.running_kafka(log_dir) as running:
        if request.param < 2:
            kafka.java(
                *("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", running.bootstrap),
                *("downgrade", "--feature", f"transaction.version={request.param}"),
            )
        with Cluster(parse_servers(running.bootstrap)) as cluster:
            assert uses_epoch_bumps(cluster) == (request.param == 2)
        yield KafkaServer(running.bootstrap)


def test_every_row_is_there_once_wherever_a_commit_crashes(server: KafkaServer) -> None:
    """From the record on: before, the ids are taken over and all is aborted."""
    requests = commit_requests(server, 2)
    ends = [at for at, api in enumerate(requests) if api is Api.END_TXN]
    assert len(ends) == 3
    for at in range(ends[0] - 1, len(requests)):
        for is_after in (False, True):
            query = new_query(server, [6, 3])
            results = query.write("run-1", 0, 2, 1, Fault())
            with pytest.raises(Crash):
                query.finish(0, results, Fault(at, is_after))
            query.live(3, seed=5)
            query.check()


def test_a_driver_that_sleeps_through_another_run_adds_nothing(server: KafkaServer) -> None:
    requests = commit_requests(server, 2)
    for at in range(len(requests)):
        query = new_query(server, [6])

        def another_run(query=query) -> None:  # type: ignore[no-untyped-def]
            query.live(3, seed=9)

        results = query.write("run-1", 0, 2, 1, Fault())
        with suppress(WriteFailed):  # it may be told that its time is over
            query.finish(0, results, Fault(at, action=another_run))
        query.check()


@pytest.mark.parametrize("codec", list(Codec))
def test_kafka_takes_every_codec_and_librdkafka_reads_it(server: KafkaServer, codec: Codec) -> None:
    """Kafka looks into each batch before it takes it."""
    topic = f"read-{codec.name.lower()}"
    server.create_topic(topic, 1)
    write_rows(server, topic, codec)
    assert read_rows(server, topic) == [row(each) for each in range(COUNT)]
