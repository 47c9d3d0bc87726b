"""aiokafka, which is asyncio. Each call runs a loop of its own; a reader keeps one while it is open."""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import BrokerResponseError
from tests.compat.clients.driver import (
    CODECS,
    SECONDS_MAX,
    Fetching,
    Got,
    Record,
    Refused,
    Sending,
    Unsupported,
    first_of,
)

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T], runner: asyncio.Runner | None = None) -> T:
    async def in_time() -> T:
        return await asyncio.wait_for(work, SECONDS_MAX)

    try:
        return asyncio.run(in_time()) if runner is None else runner.run(in_time())
    except BrokerResponseError as error:
        raise Refused(error.errno, str(error)) from error


class AioReader:
    def __init__(self, consumer: AIOKafkaConsumer, topic: str, runner: asyncio.Runner) -> None:
        self.consumer, self.topic, self.runner = consumer, topic, runner

    def next(self, seconds_max: float = SECONDS_MAX) -> Got | None:
        async def one() -> Got | None:
            found = await self.consumer.getmany(timeout_ms=int(seconds_max * 1000), max_records=1)
            return first_of(found)

        return run(one(), self.runner)

    def seek(self, partition: int, offset: int) -> None:
        async def move() -> None:
            self.consumer.seek(TopicPartition(self.topic, partition), offset)

        run(move(), self.runner)


class AioDriver:
    name = "aiokafka"
    codecs = frozenset(CODECS)

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def consumer(self, **settings: Any) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            **settings,
        )

    # -- records ---------------------------------------------------------------------------------------

    def produce(self, topic: str, records: Sequence[Record], sending: Sending = Sending()) -> list[int]:  # noqa: B008
        if any(record.key is None and record.value is None for record in records):
            raise Unsupported("aiokafka sends no record with neither key nor value")
        return run(self._produce(topic, records, sending))

    async def _produce(self, topic: str, records: Sequence[Record], sending: Sending) -> list[int]:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks={-1: "all"}.get(sending.acks, sending.acks),
            enable_idempotence=sending.is_idempotent,
            compression_type=None if sending.codec == "none" else sending.codec,
            linger_ms=sending.linger_ms,
            max_request_size=sending.request_bytes_max,
            request_timeout_ms=sending.give_up_ms,
        )
        async with producer:
            futures = [
                await producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            done = await asyncio.gather(*futures, return_exceptions=True)
        for each in done:
            if isinstance(each, BaseException):
                raise each
        return [each.offset if sending.acks else -1 for each in done]  # type: ignore[union-attr]

    @contextmanager
    def reader(
        self,
        topic: str,
        starts: Mapping[int, int],
        fetching: Fetching = Fetching(),  # noqa: B008
    ) -> Iterator[AioReader]:
        async def begin() -> AIOKafkaConsumer:
            consumer = self.consumer(
                max_partition_fetch_bytes=fetching.partition_bytes_max,
                fetch_max_wait_ms=fetching.wait_ms_max,
                fetch_min_bytes=fetching.bytes_min,
            )
            await consumer.start()
            consumer.assign([TopicPartition(topic, number) for number in starts])
            for number, start in starts.items():
                consumer.seek(TopicPartition(topic, number), start)
            return consumer

        with asyncio.Runner() as runner:
            consumer = run(begin(), runner)
            try:
                yield AioReader(consumer, topic, runner)
            finally:
                run(consumer.stop(), runner)

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        async def ask() -> tuple[int, int]:
            place = TopicPartition(topic, partition)
            async with self.consumer() as consumer:
                low = await consumer.beginning_offsets([place])
                high = await consumer.end_offsets([place])
                return low[place], high[place]

        return run(ask())

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        async def ask() -> int | None:
            place = TopicPartition(topic, partition)
            async with self.consumer() as consumer:
                found = (await consumer.offsets_for_times({place: timestamp_ms}))[place]
                return None if found is None else found.offset

        return run(ask())

    # -- administration --------------------------------------------------------------------------------

    def _ask(self, method: str, *arguments: Any) -> Any:
        async def ask() -> Any:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
            await admin.start()
            try:
                return await getattr(admin, method)(*arguments)
            finally:
                await admin.close()

        return run(ask())

    def create_topic(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None, replicas: int = 1
    ) -> None:
        wanted = NewTopic(topic, partitions, replicas, topic_configs=dict(configs or {}))
        answer = self._ask("create_topics", [wanted])
        for name, code, *_ in answer.topic_errors:
            if code:
                raise Refused(code, name)

    def delete_topic(self, topic: str) -> None:
        answer = self._ask("delete_topics", [topic])
        for name, code, *_ in answer.topic_error_codes:
            if code:
                raise Refused(code, name)

    def topics(self) -> set[str]:
        return set(self._ask("list_topics"))

    def partition_count(self, topic: str) -> int:
        [found] = self._ask("describe_topics", [topic])
        if found["error_code"]:
            raise Refused(found["error_code"], topic)
        return len(found["partitions"])

    def create_partitions(self, topic: str, total: int) -> None:
        self._ask("create_partitions", {topic: NewPartitions(total)})

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        [answer] = self._ask("describe_configs", [ConfigResource(ConfigResourceType.TOPIC, topic)])
        [(code, said, _, _, entries, *_)] = answer.resources
        if code:
            raise Refused(code, said)
        return {name: value for name, value, *_ in entries}

    def replace_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))
        [answer] = self._ask("alter_configs", [resource])
        for code, said, *_ in answer.resources:
            if code:
                raise Refused(code, said)

    def change_configs(self, topic: str, configs: Mapping[str, str | None]) -> None:
        raise Unsupported("aiokafka has no IncrementalAlterConfigs")

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        place = TopicPartition(topic, partition)
        return int(self._ask("delete_records", {place: RecordsToDelete(before)})[place])

    def brokers(self) -> set[int]:
        return {broker["node_id"] for broker in self._ask("describe_cluster")["brokers"]}
