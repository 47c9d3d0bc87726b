"""Writes and reads reports of pipelines (`base/pipeline_report.py`) with a Kafka client."""

from typing import Final

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.base.pipeline_report import PIPELINES_TOPIC, PipelineReport, read_report, write_report

from .admin import NewTopic, create_topics, describe_topics
from .cluster import Cluster
from .consumer import Consumer, ConsumerSettings, Reset
from .errors import TimedOut, check
from .offsets import EARLIEST, LATEST, list_offsets
from .producer import Producer, ProducerSettings

TOPIC_CONFIGS: Final = {
    "cleanup.policy": "compact",
    # The broker's clock tells how old a report is, whatever the clock of the runner says.
    "message.timestamp.type": "LogAppendTime",
    # Small segments, soon compacted: a node reads the whole topic once.
    "segment.bytes": str(4 * 2**20),
    "segment.ms": str(3_600_000),
    "min.cleanable.dirty.ratio": "0.1",
}

DELIVERY_MS_MAX: Final = 10_000
READ_MS_MAX: Final = 20_000


class ReportWriter:
    """Writes reports; creates the topic if it does not exist. Every call may raise a KafkaError."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._producer: Producer | None = None

    def close(self) -> None:
        self._cluster.close()

    def write(self, report: PipelineReport) -> None:
        """Returns when the report is on all in-sync replicas."""
        if self._producer is None:
            _ensure_topic(self._cluster)
            # A report that is there twice does no harm, so the producer needs no id.
            settings = ProducerSettings(
                is_idempotent=False, linger_ms=0, create_topics=False, delivery_timeout_ms=DELIVERY_MS_MAX
            )
            self._producer = Producer(self._cluster, settings)
        self._producer.send(PIPELINES_TOPIC, report.pipeline.encode(), write_report(report))
        self._producer.flush()


def _ensure_topic(cluster: Cluster) -> None:
    [topic] = describe_topics(cluster, [PIPELINES_TOPIC])
    if topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return  # it exists, or the first report tells what is wrong
    [created] = create_topics(cluster, [NewTopic(PIPELINES_TOPIC, 1, configs=TOPIC_CONFIGS)])
    if created.error is not None and created.error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
        raise created.error


def read_reports(cluster: Cluster) -> list[PipelineReport]:
    """The last report of each pipeline, in order of name. Raises TimedOut if brokers do not answer."""
    [topic] = describe_topics(cluster, [PIPELINES_TOPIC])
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return []
    check(f"topic {PIPELINES_TOPIC}", topic)
    names = [TopicPartition(PIPELINES_TOPIC, number) for number in topic.partitions]
    starts = {
        name: each.offset for name, each in list_offsets(cluster, dict.fromkeys(names, EARLIEST)).items()
    }
    ends = {name: each.offset for name, each in list_offsets(cluster, dict.fromkeys(names, LATEST)).items()}
    consumer = Consumer(cluster, starts, ConsumerSettings(reset=Reset.EARLIEST))
    found: dict[bytes, PipelineReport] = {}
    clock = cluster.clock
    deadline_ms = clock.now_ms() + READ_MS_MAX
    while any(offset < ends[name] for name, offset in consumer.positions.items()):
        if clock.now_ms() > deadline_ms:
            raise TimedOut(f"topic {PIPELINES_TOPIC} could not be read within {READ_MS_MAX / 1000:g} s")
        for fetched in consumer.poll(deadline_ms - clock.now_ms()):
            for record in fetched.records:
                key = bytes(record.key or b"")
                found.pop(key, None)
                if record.value is not None:
                    report = read_report(key, bytes(record.value), record.timestamp, clock.wall_ms())
                    if report is not None:
                        found[key] = report
    return sorted(found.values(), key=lambda each: each.pipeline)
