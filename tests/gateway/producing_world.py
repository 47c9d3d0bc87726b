"""A node in a world that stands still, and records that are written through its gateway."""

from random import Random
from typing import Any

import pytest
from tests.nodes import StillNode

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TopicPartition
from penstock.base.promise import Promise
from penstock.gateway.idempotency import HEADER
from penstock.gateway.idempotency.topic_keys import TopicKeys
from penstock.gateway.shared.producer import NewRecord, Producer, RecordPosition, RecordResult
from penstock.handlers.support.context import Session
from penstock.records import Record
from penstock.replica import Partition
from penstock.vfs import Vfs

TOPIC = "orders"

WEEK_MS = 7 * 24 * 60 * 60 * 1000


class Desk:
    """Where records are handed in."""

    def __init__(self, disk: Vfs | None = None, **settings: str) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.node = StillNode(disk, settings=named)
        self.session = Session("127.0.0.1", 8080, "10.0.0.1")
        self._open()

    def _open(self) -> None:
        self.world = self.node.world
        self.node.node.gateway.start()

    @property
    def producing(self) -> Producer:
        return self.node.node.gateway.producer

    # -- its lives -------------------------------------------------------------------------------------

    def kill(self) -> None:
        self.node.crash()
        self._open()

    def cut_power(self, seed: int) -> None:
        self.node.crash(Random(seed))
        self._open()

    def restart(self) -> None:
        self.node.stop()
        self.node.restart()
        self._open()

    # -- writing ---------------------------------------------------------------------------------------

    def begin(
        self, value: bytes | None = b"value", key: bytes | None = None, topic: str = TOPIC, **more: Any
    ) -> Promise[RecordPosition]:
        return self.producing.produce(self.session, topic, key, value, **more)

    def produce(
        self, value: bytes | None = b"value", key: bytes | None = None, topic: str = TOPIC, **more: Any
    ) -> RecordPosition:
        position: RecordPosition = self.outcome(self.begin(value, key, topic, **more))
        return position

    def outcome(self, promise: Promise[Any], ms_max: int = 40_000) -> Any:
        """The value of a promise. Raises its error."""
        for _ in range(ms_max):
            if promise.is_settled:
                if promise.error is not None:
                    raise promise.error
                return promise.value
            self.world.advance(1)
        raise AssertionError(f"no answer within {ms_max} ms")

    def produce_all(self, *records: NewRecord) -> list[RecordResult]:
        results: list[RecordResult] = self.outcome(self.producing.produce_all(self.session, records))
        return results

    def refusal(self, *args: Any, **more: Any) -> ErrorCode:
        return self.error(self.begin(*args, **more)).code

    def error(self, promise: Promise[Any]) -> KafkaError:
        """The error of a promise that fails."""
        with pytest.raises(KafkaError) as error:
            self.outcome(promise)
        return error.value

    # -- seeing ----------------------------------------------------------------------------------------

    def partition(self, number: int = 0, topic: str = TOPIC) -> Partition:
        return self.node.node.context.replicas.find(topic, number)

    def partitions(self, topic: str = TOPIC) -> list[Partition]:
        count = len(self.node.node.context.image.topics[topic].partitions)
        return [self.partition(number, topic) for number in range(count)]

    def records(self, number: int = 0, topic: str = TOPIC) -> list[Record]:
        return [
            record
            for batch in self.partition(number, topic).log.batches()
            for record in batch.records()
            if record.offset >= self.partition(number, topic).log.log_start
        ]

    def records_with(self, idempotency_key: str, topic: str = TOPIC) -> list[RecordPosition]:
        """Where records with this key are in the logs."""
        wanted = (HEADER, idempotency_key.encode())
        return [
            RecordPosition(partition.number, record.offset)
            for partition in self.partitions(topic)
            for record in self.records(partition.number, topic)
            if wanted in record.headers
        ]

    def keys(self, topic: str = TOPIC) -> TopicKeys:
        return self.producing.keys.ready(self.node.node.context.image.topics[topic])

    def save_keys(self) -> None:
        """Let the minute pass after which keys are saved, and logs checkpointed before that."""
        self.world.advance(130_000)

    def log_name(self, number: int = 0) -> TopicPartition:
        return self.partition(number).name
