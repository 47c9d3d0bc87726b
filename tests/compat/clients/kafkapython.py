"""kafka-python, which is pure Python."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any
from warnings import catch_warnings, simplefilter

from tests.compat.clients.driver import (
    SECONDS_MAX,
    Fetching,
    Got,
    Record,
    Refused,
    Sending,
    Unsupported,
    first_of,
)

with catch_warnings():
    simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a way that Python has deprecated
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType
    from kafka.codec import has_lz4, has_snappy, has_zstd
    from kafka.errors import BrokerResponseError


@contextmanager
def refusals() -> Iterator[None]:
    try:
        yield
    except BrokerResponseError as error:
        raise Refused(error.errno, str(error)) from error


class KafkaPythonReader:
    def __init__(self, consumer: KafkaConsumer, topic: str) -> None:
        self.consumer, self.topic = consumer, topic

    def next(self, seconds_max: float = SECONDS_MAX) -> Got | None:
        found = self.consumer.poll(timeout_ms=int(seconds_max * 1000), max_records=1)
        return first_of(found)

    def seek(self, partition: int, offset: int) -> None:
        self.consumer.seek(TopicPartition(self.topic, partition), offset)


class KafkaPythonDriver:
    name = "kafka-python"
    codecs = frozenset(
        {"none", "gzip"}
        | ({"snappy"} if has_snappy() else set())
        | ({"lz4"} if has_lz4() else set())
        | ({"zstd"} if has_zstd() else set())
    )

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @contextmanager
    def admin(self) -> Iterator[KafkaAdminClient]:
        with refusals(), closing(KafkaAdminClient(bootstrap_servers=self.bootstrap)) as admin:
            yield admin

    @contextmanager
    def consumer(self, **settings: Any) -> Iterator[KafkaConsumer]:
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            **settings,
        )
        with refusals(), closing(consumer):
            yield consumer

    # -- records ---------------------------------------------------------------------------------------

    def producer(self, sending: Sending, **settings: Any) -> KafkaProducer:
        settings = {
            "acks": sending.acks,
            "enable_idempotence": sending.is_idempotent,
            "compression_type": None if sending.codec == "none" else sending.codec,
            "linger_ms": sending.linger_ms,
            "max_request_size": sending.request_bytes_max,
            "delivery_timeout_ms": sending.give_up_ms,
            "request_timeout_ms": max(sending.give_up_ms - sending.linger_ms - 1, 1),
            "max_block_ms": sending.give_up_ms,
            **settings,
        }
        return KafkaProducer(bootstrap_servers=self.bootstrap, **settings)

    def produce(self, topic: str, records: Sequence[Record], sending: Sending = Sending()) -> list[int]:  # noqa: B008
        if any(value is None for record in records for _, value in record.headers):
            raise Unsupported("kafka-python sends no header without a value")
        if any(record.key is None and record.value is None for record in records):
            raise Unsupported("kafka-python sends no record with neither key nor value")
        with refusals(), closing(self.producer(sending)) as producer:
            futures = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=[(name, value) for name, value in record.headers if value is not None],
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            return [future.get(SECONDS_MAX).offset if sending.acks else -1 for future in futures]

    @contextmanager
    def reader(
        self,
        topic: str,
        starts: Mapping[int, int],
        fetching: Fetching = Fetching(),  # noqa: B008
    ) -> Iterator[KafkaPythonReader]:
        with self.consumer(
            max_partition_fetch_bytes=fetching.partition_bytes_max,
            fetch_max_wait_ms=fetching.wait_ms_max,
            fetch_min_bytes=fetching.bytes_min,
        ) as consumer:
            consumer.assign([TopicPartition(topic, number) for number in starts])
            for number, start in starts.items():
                consumer.seek(TopicPartition(topic, number), start)
            yield KafkaPythonReader(consumer, topic)

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        place = TopicPartition(topic, partition)
        with self.consumer() as consumer:
            return consumer.beginning_offsets([place])[place], consumer.end_offsets([place])[place]

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        place = TopicPartition(topic, partition)
        with self.consumer() as consumer:
            found = consumer.offsets_for_times({place: timestamp_ms})[place]
        return None if found is None else found.offset

    # -- administration --------------------------------------------------------------------------------

    def create_topic(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None, replicas: int = 1
    ) -> None:
        wanted = {
            "num_partitions": partitions,
            "replication_factor": replicas,
            "configs": dict(configs or {}),
        }
        with self.admin() as admin:
            admin.create_topics({topic: wanted})

    def delete_topic(self, topic: str) -> None:
        with self.admin() as admin:
            admin.delete_topics([topic])

    def topics(self) -> set[str]:
        with self.admin() as admin:
            return set(admin.list_topics())

    def partition_count(self, topic: str) -> int:
        with self.admin() as admin:
            [found] = admin.describe_topics([topic])
        if found["error_code"]:
            raise Refused(found["error_code"], topic)
        return len(found["partitions"])

    def create_partitions(self, topic: str, total: int) -> None:
        with self.admin() as admin:
            admin.create_partitions({topic: total})

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        with self.admin() as admin:
            found = admin.describe_configs(
                [ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all"
            )
        return {name: entry["value"] for name, entry in found["topic"][topic].items()}

    def replace_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        raise Unsupported("kafka-python adds the settings that are there to what AlterConfigs would replace")

    def change_configs(self, topic: str, configs: Mapping[str, str | None]) -> None:
        changes = {
            name: (AlterConfigOp.DELETE, None) if value is None else (AlterConfigOp.SET, value)
            for name, value in configs.items()
        }
        with self.admin() as admin:
            answer = admin.alter_configs(
                [ConfigResource(ConfigResourceType.TOPIC, topic, changes)], raise_on_unknown=False
            )
        said = answer["topic"][topic]
        if said != "OK":
            raise Refused(code_in(said), said)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        place = TopicPartition(topic, partition)
        with self.admin() as admin:
            return int(admin.delete_records({place: before})[place]["low_watermark"])

    def brokers(self) -> set[int]:
        with self.admin() as admin:
            return {broker["broker_id"] for broker in admin.describe_cluster()["brokers"]}


def code_in(said: str) -> int:
    """kafka-python tells what happened to settings in words only: `[Error 40] InvalidConfigurationError: ...`."""
    number = said.partition("]")[0].rpartition(" ")[2]
    return int(number)
