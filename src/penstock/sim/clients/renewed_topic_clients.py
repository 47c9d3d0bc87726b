"""Clients of a topic that is renewed (`renewer`): some name it by its id, and with it one life of it, others by name.

By id, all is as it is with topics that stay; only that a life ends at any time. What was not acknowledged by then is
given up, and in the next life the producer goes on with the sequence that comes next, as clients do: a log that does
not know a producer lets it begin anywhere. For that reason nothing is sent behind the first batch of a life before
that one is acknowledged.

By name, whatever was sent may end up in any life that there is from then on. So nothing is said of what must be there;
only of what must not.
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
    """A client of a topic that may be another one when it is asked for again."""

    def refreshed(self, seen: TopicMetadata) -> None:
        if seen.topic.id == self.topic.id:
            super().refreshed(seen)
        elif not self.is_past(seen.topic):
            self.again_soon(self.ready)


class ById(RenewedTopicClient):
    """Says of which life all is. Never goes back to one that it has left, as a node may have it that is behind."""

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
            self.trace(f"has to do with {life} now")
            self.life_begins()

    def is_past(self, topic: TopicName) -> bool:
        return topic.id is not None and life_name(topic.name, topic.id) in self._left

    def life_begins(self) -> None:
        """All that was known of the topic is of another life of it."""


class ByName(RenewedTopicClient):
    """Has to do with whatever life there is."""

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
        """What is read may be of any life: nothing else is told of it than that."""
        if isinstance(event, FetchReceived):
            values = [(each.offset, each.value) for each in event.records]
            event = ReadByName(event.consumer, event.at, values)
        elif isinstance(event, FetchSent | Delivered):
            return
        super().record(event)


class LifeAuditor(ById, Auditor):
    """Reads the last life."""
