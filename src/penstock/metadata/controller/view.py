"""The input of the controller's decisions, besides the request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from penstock.base.errors import ErrorCode, KafkaError
from penstock.metadata.configs import BrokerSettings
from penstock.metadata.image import Broker, ClusterImage, PartitionRegistration, Resource, Topic
from penstock.metadata.records import AnyRecord

if TYPE_CHECKING:
    from random import Random

Validate: TypeAlias = Callable[[Resource, Mapping[str, str]], None]
"""Raise if a resource may not have these settings."""


@dataclass(frozen=True, slots=True)
class ControllerView:
    image: ClusterImage
    settings: BrokerSettings
    """Settings of the controller's node: defaults of new topics."""
    validate: Validate
    rng: Random
    cluster_id: str
    """From the directory of the controller's node. The image has the same id, or none yet."""

    def after(self, records: list[AnyRecord]) -> ControllerView:
        """Return the view after these records, for a decision that builds on another."""
        image = self.image
        return replace(self, image=image.replay(records, image.offset + len(records), image.epoch))

    def broker(self, broker_id: int, epoch: int) -> Broker:
        """Return the registered broker, if it has this epoch; raise STALE_BROKER_EPOCH otherwise."""
        broker: Broker | None = self.image.brokers.get(broker_id)
        if broker is None:
            raise KafkaError(f"broker {broker_id} is not registered", ErrorCode.STALE_BROKER_EPOCH)
        if broker.epoch != epoch:
            raise KafkaError(
                f"broker {broker_id} has epoch {epoch}, expected {broker.epoch}", ErrorCode.STALE_BROKER_EPOCH
            )
        return broker

    def partitions(self) -> Iterator[tuple[Topic, int, PartitionRegistration]]:
        """Yield every partition, by name and number."""
        for _, topic in sorted(self.image.topics.entries()):
            for number, partition in sorted(topic.partitions.entries()):
                yield topic, number, partition
