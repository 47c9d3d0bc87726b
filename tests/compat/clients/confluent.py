"""confluent-kafka, which is librdkafka underneath."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from warnings import catch_warnings, simplefilter

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
    TopicMetadata,
)
from tests.compat.clients.driver import CODECS, SECONDS_MAX, Fetching, Got, Record, Refused, Sending

ASK_AGAIN_S = 15.0
"""After how long a question about topics is asked again."""

TIMESTAMP_TYPES = {1: 0, 2: 1}
"""librdkafka counts from 1: 0 is a record without a time."""


def refused(error: KafkaError) -> Refused:
    return Refused(error.code(), error.str())


def got(message: Message) -> Got:
    kind, timestamp_ms = message.timestamp()
    return Got(
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
        timestamp_ms,
        TIMESTAMP_TYPES[kind],
    )


class ConfluentReader:
    def __init__(self, consumer: Consumer, topic: str) -> None:
        self.consumer, self.topic = consumer, topic

    def next(self, seconds_max: float = SECONDS_MAX) -> Got | None:
        message = self.consumer.poll(seconds_max)
        if message is None:
            return None
        if message.error() is not None:
            raise refused(message.error())
        return got(message)

    def seek(self, partition: int, offset: int) -> None:
        self.consumer.seek(TopicPartition(self.topic, partition, offset))


class ConfluentDriver:
    name = "confluent-kafka"
    codecs = frozenset(CODECS)

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin: AdminClient | None = None

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            # It cannot be closed, outlives its server and would tell of that.
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self._admin

    def consumer(self, **settings: Any) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "by hand",  # the library wants one; nothing is committed to it
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )

    # -- records ---------------------------------------------------------------------------------------

    def producer(self, sending: Sending, **settings: Any) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "compression.type": sending.codec,
                "acks": sending.acks,
                "enable.idempotence": sending.is_idempotent,
                "linger.ms": sending.linger_ms,
                "message.max.bytes": sending.request_bytes_max,
                "message.timeout.ms": sending.give_up_ms,
                **settings,
            }
        )

    def produce(self, topic: str, records: Sequence[Record], sending: Sending = Sending()) -> list[int]:  # noqa: B008
        producer = self.producer(sending)
        offsets: dict[int, int] = {}
        failures: list[Refused] = []

        def delivered(index: int, error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(refused(error))
            else:
                offsets[index] = message.offset() if sending.acks != 0 else -1

        for index, record in enumerate(records):
            keywords: dict[str, Any] = {}
            if record.timestamp_ms is not None:
                keywords["timestamp"] = record.timestamp_ms
            try:
                producer.produce(
                    topic,
                    value=record.value,
                    key=record.key,
                    partition=record.partition,
                    headers=list(record.headers),
                    on_delivery=lambda error, message, index=index: delivered(index, error, message),
                    **keywords,
                )
            except KafkaException as error:
                raise refused(error.args[0]) from error
        left = producer.flush(SECONDS_MAX)
        if failures:
            raise failures[0]
        assert left == 0, f"{left} records were not acknowledged"
        return [offsets[index] for index in range(len(records))]

    @contextmanager
    def reader(
        self,
        topic: str,
        starts: Mapping[int, int],
        fetching: Fetching = Fetching(),  # noqa: B008
    ) -> Iterator[ConfluentReader]:
        consumer = self.consumer(
            max_partition_fetch_bytes=fetching.partition_bytes_max,
            fetch_wait_max_ms=fetching.wait_ms_max,
            fetch_min_bytes=fetching.bytes_min,
        )
        try:
            consumer.assign([TopicPartition(topic, number, start) for number, start in starts.items()])
            yield ConfluentReader(consumer, topic)
        finally:
            consumer.close()

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        consumer = self.consumer()
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=SECONDS_MAX)
        except KafkaException as error:
            raise refused(error.args[0]) from error
        finally:
            consumer.close()
        return low, high

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        consumer = self.consumer()
        try:
            [found] = consumer.offsets_for_times(
                [TopicPartition(topic, partition, timestamp_ms)], timeout=SECONDS_MAX
            )
        finally:
            consumer.close()
        if found.error is not None:
            raise refused(found.error)
        return found.offset if found.offset >= 0 else None

    # -- administration --------------------------------------------------------------------------------

    def create_topic(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None, replicas: int = 1
    ) -> None:
        wanted = NewTopic(topic, partitions, replicas, config=dict(configs or {}))
        self.settle(self.admin.create_topics([wanted]))

    def delete_topic(self, topic: str) -> None:
        self.settle(self.admin.delete_topics([topic]))

    def described(self, topic: str | None = None) -> dict[str, TopicMetadata]:
        """All topics, or one, by name, as any broker tells. librdkafka leaves a question on the queue of the broker
        that it chose, also where that one has just died, so one that stays without an answer is asked again."""
        for _ in range(int(SECONDS_MAX / ASK_AGAIN_S) - 1):
            try:
                return dict(self.admin.list_topics(topic, timeout=ASK_AGAIN_S).topics)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._TIMED_OUT:
                    raise
        return dict(self.admin.list_topics(topic, timeout=ASK_AGAIN_S).topics)

    def topics(self) -> set[str]:
        return set(self.described())

    def partition_count(self, topic: str) -> int:
        found = self.described(topic)[topic]
        if found.error is not None:
            raise refused(found.error)
        return len(found.partitions)

    def create_partitions(self, topic: str, total: int) -> None:
        self.settle(self.admin.create_partitions([NewPartitions(topic, total)]))

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        entries = self.settle(self.admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
        return {name: entry.value for name, entry in entries.items()}

    def replace_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource(ResourceType.TOPIC, topic, set_config=dict(configs))
        with catch_warnings():
            simplefilter(
                "ignore", DeprecationWarning
            )  # deprecated there, as AlterConfigs is in Kafka; still served
            self.settle(self.admin.alter_configs([resource]))

    def change_configs(self, topic: str, configs: Mapping[str, str | None]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            if value is not None
            else ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE)
            for name, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self.settle(self.admin.incremental_alter_configs([resource]))

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        done = self.settle(self.admin.delete_records([TopicPartition(topic, partition, before)]))
        return int(done.low_watermark)

    def brokers(self) -> set[int]:
        return {node.id for node in self.admin.describe_cluster().result(SECONDS_MAX).nodes}

    @staticmethod
    def settle(futures: Mapping[Any, Any]) -> Any:
        """Wait for the one thing that was asked for."""
        [future] = futures.values()
        try:
            return future.result(SECONDS_MAX)
        except KafkaException as error:
            raise refused(error.args[0]) from error
