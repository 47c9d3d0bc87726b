"""Clients of a topic that is deleted and created again (`topic_renewer`), by its id or by its name.

The id means one life of the topic. By id, all rules of other topics hold within a life, which may end at any time.
Unacknowledged batches are then dropped, and in the next life the producer continues with its next sequence, as real
clients do: a log that does not know a producer accepts any first sequence. So a producer sends its second batch in a
life only after the first was acknowledged.

By name, a batch may end up in the current or any later life. So no rule says what must be there, only what must not.
"""

from typing import Any

from penstock.sim.checkers.history import (
    Batch,
    Delivered,
    Event,
    FetchReceived,
    FetchSent,
    Refused,
    TopicDescribed,
)
from penstock.sim.clients.client import TopicClient
from penstock.sim.clients.consumers import Auditor, Consumer
from penstock.sim.clients.messages import TOPIC_IDS_FROM, TopicMetadata, TopicName
from penstock.sim.clients.producers import Producer
from penstock.sim.topic_lives import ReadByName, life_name
from penstock.wire import Api


class RenewedTopicClient(TopicClient):
    """A client of a topic whose id may change."""

    def refreshed(self, seen: TopicMetadata) -> None:
        if seen.topic.id == self.topic.id:
            super().refreshed(seen)
        elif not self.is_past(seen.topic):
            self.again_soon(self.ready)


class ById(RenewedTopicClient):
    """Names the topic's life in its events. Never returns to an earlier life that a stale node may still describe."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._left: set[str] = set()

    def narrow(self, api: Api, low: int, high: int) -> tuple[int, int]:
        return max(low, TOPIC_IDS_FROM.get(api, 0)), high

    def meet(self, seen: TopicMetadata) -> None:
        assert seen.topic.id is not None
        life = life_name(seen.topic.name, seen.topic.id)
        self.record(TopicDescribed(life, seen.topic.id, len(seen.partitions)))
        if life != self.scope:
            self._left.add(self.scope)
            self.scope = life
            self.trace(f"uses {life} now")
            self.life_begins()

    def is_past(self, topic: TopicName) -> bool:
        return topic.id is not None and life_name(topic.name, topic.id) in self._left

    def life_begins(self) -> None:
        """Forget what is known of the previous life."""


class ByName(RenewedTopicClient):
    """Uses the topic by name, in whichever life it is."""

    def narrow(self, api: Api, low: int, high: int) -> tuple[int, int]:
        return low, min(high, TOPIC_IDS_FROM.get(api, high + 1) - 1)

    def meet(self, seen: TopicMetadata) -> None:
        pass


class ProducerById(ById, Producer):
    def life_begins(self) -> None:
        for queue in self._queues.values():
            queue.waiting.clear()
            queue.flying.clear()
            queue.is_blocked = queue.is_known = False
        self._sequences.clear()

    def _next(self, partition: int) -> Batch | None:
        queue = self._queues[partition]
        return None if queue.flying and not queue.is_known else super()._next(partition)

    def _acked(self, batch: Batch, base_offset: int) -> None:
        super()._acked(batch, base_offset)
        if self._is_of_now(batch):
            self._queues[batch.at.partition].is_known = True

    def _failed(self, batch: Batch, code: int) -> None:
        if self._is_of_now(batch):
            super()._failed(batch, code)
        else:
            self.record(Refused(batch, code, False, self.incarnation))

    def _lost(self, batches: list[Batch], sent_as: tuple[int, int] | None) -> None:
        super()._lost([each for each in batches if self._is_of_now(each)], sent_as)

    def _is_of_now(self, batch: Batch) -> bool:
        return batch.at.topic == self.scope


class ProducerByName(ByName, Producer):
    def _send_some(self) -> None:
        for partition, queue in self._queues.items():
            if partition not in self.partitions:
                queue.waiting.clear()  # this life of the topic has fewer
        super()._send_some()


class ConsumerById(ById, Consumer):
    def life_begins(self) -> None:
        self.positions.clear()


class ConsumerByName(ByName, Consumer):
    def record(self, event: Event) -> None:
        """Record reads as `ReadByName`, since the life is unknown."""
        if isinstance(event, FetchReceived):
            values = [(each.offset, each.value) for each in event.records]
            event = ReadByName(event.consumer, event.at, values)
        elif isinstance(event, FetchSent | Delivered):
            return
        super().record(event)


class LifeAuditor(ById, Auditor):
    """Reads the last life of a topic."""
