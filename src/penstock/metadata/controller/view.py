"""What every role of the controller looks at when it decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from penstock.base.errors import ErrorCode, KafkaError
from penstock.metadata.configs import BrokerSettings
from penstock.metadata.image import Broker, ClusterImage, Partition, Resource, Topic
from penstock.metadata.records import AnyRecord

if TYPE_CHECKING:
    from random import Random

Validate: TypeAlias = Callable[[Resource, Mapping[str, str]], None]
"""Raises where a resource may not have these settings."""


@dataclass(frozen=True, slots=True)
class ControllerView:
    image: ClusterImage
    settings: BrokerSettings
    """Of the controller's own node: the defaults of what it creates."""
    validate: Validate
    rng: Random
    cluster_id: str
    """As the directory of the controller's node has it; where `image` has one, that is the same, or not yet here."""

    def after(self, records: list[AnyRecord]) -> ControllerView:
        """The view once the records hold, for a decision that builds on another."""
        image = self.image
        return replace(self, image=image.replay(records, image.offset + len(records), image.epoch))

    def broker(self, broker_id: int, epoch: int) -> Broker:
        """The broker, if it is the one that is registered and not a former life of it."""
        broker: Broker | None = self.image.brokers.get(broker_id)
        if broker is None:
            raise KafkaError(f"broker {broker_id} is not registered", ErrorCode.STALE_BROKER_EPOCH)
        if broker.epoch != epoch:
            raise KafkaError(
                f"broker {broker_id} has epoch {epoch}, expected {broker.epoch}", ErrorCode.STALE_BROKER_EPOCH
            )
        return broker

    def partitions(self) -> Iterator[tuple[Topic, int, Partition]]:
        """Every partition, in the order of names and numbers."""
        for _, topic in sorted(self.image.topics.entries()):
            for number, partition in sorted(topic.partitions.entries()):
                yield topic, number, partition
