"""Writes the lines of the audit to a topic (`audit.topic`), as records without a key.

    lines --> queue --> batch of up to BATCH_RECORDS --> led by this broker: append | by another: send to the leader

Each node writes to one partition, so its records stay in order. One batch is under way at a time. If it cannot be
written it is tried again, for as long as the queue has room, so a batch whose acknowledgement was lost is there twice.
Nothing waits for it: beyond `QUEUE_MAX` lines are dropped and counted.

The leader takes such records from other brokers for the topic that its own `audit.topic` names, and for no other.
Clients cannot write to it.
"""

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.base.errors import KafkaError
from penstock.base.metrics import AuditMeter
from penstock.base.steps import RunningSteps, Steps, sleep
from penstock.gateway.peer_rpc.client import peer_rpc_of
from penstock.gateway.peer_rpc.messages import WriteAudit
from penstock.gateway.shared.controller_call import check, decide
from penstock.gateway.shared.new_records import append
from penstock.gateway.shared.topics import find_topic
from penstock.handlers.support.context import Context
from penstock.metadata.controller.requests import CreateTopics, NewTopic
from penstock.metadata.image import Topic
from penstock.records import BatchBuilder
from penstock.replica import Partition

logger = logging.getLogger(__name__)

QUEUE_MAX: Final = 10_000
BATCH_RECORDS: Final = 200
"""About 100 KB: far below `max.message.bytes`."""

REPLICAS_MAX: Final = 3
RETRY_MS, RETRY_MS_MAX = 500, 30_000


class AuditTopic:
    def __init__(self, context: Context, name: str, meter: AuditMeter) -> None:
        self._context = context
        self._name = name
        self._meter = meter
        self._queue: deque[str] = deque()
        self._writing: RunningSteps[None] | None = None

    def add(self, lines: Sequence[str]) -> None:
        room = QUEUE_MAX - len(self._queue)
        self._queue.extend(lines[:room])
        self._meter.dropped["topic"] += max(len(lines) - room, 0)
        if self._writing is None or self._writing.is_over:
            self._writing = RunningSteps(self._write_all(), lambda _: None, self._unexpected)

    def stop(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
        self._meter.dropped["topic"] += len(self._queue)
        self._queue.clear()

    def _unexpected(self, error: Exception) -> None:
        logger.error("the audit cannot be written to %s", self._name, exc_info=error)

    def _write_all(self) -> Steps[None]:
        pause_ms = RETRY_MS
        while self._queue:
            lines = [self._queue[at] for at in range(min(BATCH_RECORDS, len(self._queue)))]
            try:
                yield from self._write(lines)
            except KafkaError as error:
                logger.warning(
                    "%d lines of the audit wait, since topic %s cannot be written: %s",
                    len(self._queue),
                    self._name,
                    error,
                )
                yield sleep(self._context.world, pause_ms)
                pause_ms = min(2 * pause_ms, RETRY_MS_MAX)
                continue
            pause_ms = RETRY_MS
            for _ in lines:
                self._queue.popleft()

    def _write(self, lines: Sequence[str]) -> Steps[None]:
        context = self._context
        topic = yield from self._ensure_topic()
        number = context.node_id % len(topic.partitions)
        records = tuple(line.encode() for line in lines)
        leader = topic.partitions[number].leader
        if leader == context.node_id or len(context.image.brokers) <= 1:
            yield from write_lines(context, context.replicas.find(topic.name, number), records)
        else:
            yield peer_rpc_of(context).send(
                leader, WriteAudit(topic.name, topic.id, number, records), order_key=number
            )

    def _ensure_topic(self) -> Steps[Topic]:
        context = self._context
        topic: Topic | None = context.image.topics.get(self._name)
        if topic is not None:
            return topic
        replicas = min(REPLICAS_MAX, max(len(context.image.brokers), 1))
        [created] = yield from decide(context, CreateTopics((NewTopic(self._name, 1, replicas),)))
        if self._name not in context.image.topics:
            check(created.result, f"topic {self._name!r} could not be created")
        return find_topic(context, self._name)


def write_lines(context: Context, partition: Partition, lines: Iterable[bytes]) -> Steps[None]:
    """Append a batch with a record for each line."""
    builder, now_ms = BatchBuilder(), context.world.now_ms()
    for line in lines:
        builder.append(None, line, now_ms)
    yield append(context, partition, bytearray(builder.build()))
