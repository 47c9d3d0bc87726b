"""Changes between two images, on which a broker acts when it gets a new image.

Images share unchanged parts, so the cost of a delta depends on the number of changes, not on the size of the image.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from .image import ClusterImage, PartitionRegistration, Resource, Topic


@dataclass(frozen=True, slots=True)
class PartitionDelta:
    topic: Topic
    """The new state."""
    number: int
    old: PartitionRegistration | None
    """None for a new partition."""
    new: PartitionRegistration


@dataclass(frozen=True, slots=True)
class ImageDelta:
    """A topic that was deleted and created again under its name is in both lists, with different ids."""

    topics_created: tuple[Topic, ...]
    topics_deleted: tuple[Topic, ...]
    partitions: tuple[PartitionDelta, ...]
    """Changed partitions of existing and of created topics."""
    configs: frozenset[Resource]
    brokers: frozenset[int]
    """Brokers that were registered, changed or unregistered."""
    features: frozenset[str]

    @property
    def is_empty(self) -> bool:
        changed = (self.topics_deleted, self.topics_created, self.partitions, self.configs)
        return not any(changed) and not self.brokers and not self.features


def delta(old: ClusterImage, new: ClusterImage) -> ImageDelta:
    created: list[Topic] = []
    deleted: list[Topic] = []
    partitions: list[PartitionDelta] = []
    for name in sorted(old.topics.differing(new.topics)):
        before: Topic | None = old.topics.get(name)
        after: Topic | None = new.topics.get(name)
        if before is not None and (after is None or before.id != after.id):
            deleted.append(before)
            before = None
        if after is not None:
            if before is None:
                created.append(after)
            partitions.extend(_partitions(before, after))
    return ImageDelta(
        topics_created=tuple(created),
        topics_deleted=tuple(deleted),
        partitions=tuple(partitions),
        configs=frozenset(old.configs.differing(new.configs)),
        brokers=frozenset(old.brokers.differing(new.brokers)),
        features=frozenset(old.features.differing(new.features)),
    )


def _partitions(before: Topic | None, after: Topic) -> Iterator[PartitionDelta]:
    if before is None:
        for number in sorted(after.partitions):
            yield PartitionDelta(after, number, None, after.partitions[number])
        return
    for number in sorted(before.partitions.differing(after.partitions)):
        yield PartitionDelta(after, number, before.partitions.get(number), after.partitions[number])
