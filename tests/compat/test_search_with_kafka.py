"""A topic with search indexes goes to Apache Kafka: it starts, serves the topic, and leaves the files alone."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.compat.kafka.peer import KafkaPeer
from tests.gateway.http.rest import write
from tests.gateway.test_search_indexing import WAIT_S

from penstock.gateway.search import indexing
from penstock.search import gram_index
from penstock.testing import Broker
from penstock.vfs import RealDisk

pytestmark = pytest.mark.kafka


@pytest.mark.long
def test_kafka_serves_a_topic_with_search_indexes(
    kafka: KafkaPeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "CHECK_MS", 3_600_000)
    data = tmp_path / "kafka"
    kafka.format_storage(data)
    with Broker(data=data) as ours:
        ours.create_topic("orders", segment_bytes=2**20, search_index=True)
        write(
            ours, "orders", [b"record %06d " % each * 60 for each in range(4_000)], **{"batch.size": 100_000}
        )
    directory = data / "orders-0"
    segments = sorted(directory.glob("*.log"))
    assert len(segments) > 2
    for each in segments[:-1]:
        assert gram_index.build(RealDisk(), str(directory), int(each.stem))
    with kafka.running_kafka(data) as theirs:
        consumer = Consumer({"bootstrap.servers": theirs.bootstrap, "group.id": "g"})
        consumer.assign([TopicPartition("orders", 0, 0)])
        read = 0
        while read < 4_000:
            message = consumer.poll(WAIT_S)
            assert message is not None
            assert not message.error()
            read += 1
        consumer.close()
        admin = AdminClient({"bootstrap.servers": theirs.bootstrap})

        def alter(name: str, value: str | None, operation: AlterConfigOpType) -> Exception | None:
            entry = ConfigEntry(name, value, incremental_operation=operation)
            change = ConfigResource(ResourceType.TOPIC, "orders", incremental_configs=[entry])
            [done] = admin.incremental_alter_configs([change]).values()
            error: Exception | None = done.exception(WAIT_S)
            return error

        assert alter("retention.ms", "-1", AlterConfigOpType.SET) is None
        assert "search.index" in str(alter("search.index", "false", AlterConfigOpType.SET)), (
            "unknown to Kafka"
        )
        assert alter("search.index", None, AlterConfigOpType.DELETE) is None
        assert not theirs.complaints()
        theirs.stop()
    assert len(list(directory.glob("*.searchindex"))) == len(segments) - 1
