"""Decides about logs on disk that the cluster image does not place on this broker.

    a RemoveTopicRecord deleted its topic id     deleted
    it never had a record                        deleted
    anything else                                set aside as a stray, and kept (`storage.strays`)

An image without a topic does not prove that the topic was deleted: the controllers may have lost the end of their log,
or all of it, and then every broker has the same incomplete image. The record does prove it, because no two topics have
the same id. Nor does an image that places the partition on other brokers prove that they have its records: if metadata
went back, they had them once. Kafka turns all of these into strays at start.

A log with a later leader epoch than the image has for the partition is set aside too, and replicated again: the
metadata is older than the log, and replicas would truncate what was written since.

If the first image after a start has the topic of a stray again, since the metadata was restored, the stray is taken
back.
"""

import logging
from collections.abc import Iterable
from itertools import islice
from typing import Final

from penstock.base.ids import LeaderEpoch, TopicPartition, Uuid
from penstock.base.world import World
from penstock.metadata.image import ClusterImage, Topic
from penstock.storage import Log, LogDirectory, StorageError

logger = logging.getLogger(__name__)

NAMED_MAX: Final = 5
"""How many partitions a log line names."""


class Unclaimed:
    def __init__(self, world: World, directory: LogDirectory) -> None:
        self._world = world
        self._directory = directory
        self._deleted: set[Uuid] = set()
        """Topics that a metadata record deleted: all since the start until `settled`, then those of one image."""
        self._is_settled = False
        """All logs that the start found on disk are decided."""
        self._is_synced = True
        """All renames are durable."""

    def follow(self, deleted: Iterable[Uuid]) -> None:
        """A new image is applied, which deletes these topics by RemoveTopicRecord."""
        if self._is_settled:
            self._deleted.clear()
        self._deleted.update(deleted)

    def settled(self) -> None:
        self._is_settled = True
        self._deleted.clear()

    def may_be_deleted(self, log: Log) -> bool:
        """Whether the log is empty, or its topic deleted."""
        return log.log_end == 0 or log.topic_id in self._deleted

    def is_ahead(self, log: Log, epoch: LeaderEpoch) -> bool:
        """Whether a log that the start found has a later leader epoch than the image: metadata went back. No checksum
        covers the epoch of a batch: a single batch with a later epoch counts as damage instead."""
        if self._is_settled or log.epochs.latest <= epoch:
            return False
        late = next(each for each in log.epochs.entries if each.epoch > epoch)
        try:
            found = [batch.leader_epoch > epoch for batch in islice(log.batches(late.offset), 2)]
        except (StorageError, OSError):
            return False
        return found == [True, True] or (found == [True] and late in log.flusher.epochs_saved)

    def log_strays(self, names: list[TopicPartition]) -> None:
        """Log that partitions become strays, and what can be done about them."""
        logger.error(
            "%d partitions on disk are not placed on this broker by the cluster's metadata, and no record deleted "
            "their topics: %s. They are kept as strays and are not served. `penstock log strays list %s` shows "
            "them; with the node stopped, `penstock log strays restore` puts them back, and `penstock log strays "
            "delete` frees their space",
            len(names),
            named(names),
            self._directory.layout.logs,
        )

    def set_aside(self, name: TopicPartition, image: ClusterImage, *, sync: bool = False) -> None:
        """Keep a log as a stray; durable when this returns if `sync`, or after `LogDirectory.sync_deleted`."""
        log = self._directory.logs[name]
        why = reason(name, log, image)
        now_ms = self._world.now_ms()
        self._directory.set_aside(name, self._world.rng, reason=why, now_ms=now_ms, sync=sync)
        self._is_synced &= sync

    @property
    def is_synced(self) -> bool:
        return self._is_synced

    def synced(self) -> None:
        self._is_synced = True

    def take_back(self, name: TopicPartition, topic: Topic) -> Log | None:
        """The log of this topic, if it was set aside as a stray; the newest if there are several. Only for the first
        image after a start: opening a log may take long."""
        if self._is_settled:
            return None
        found = [
            each
            for each in self._directory.strays.values()
            if each.partition == name
            and each.topic_id == topic.id
            and each.epoch <= topic.partitions[name.partition].leader_epoch
        ]
        if not found:
            return None
        stray = max(found, key=lambda each: each.set_aside_ms)
        log = self._directory.take_back(stray, now_ms=self._world.now_ms())
        logger.warning("the cluster's metadata has %s again: it is served from what was %s", name, stray.name)
        return log


def reason(name: TopicPartition, log: Log, image: ClusterImage) -> str:
    """Why the image does not claim a log, as a clause for the stray's description."""
    topic, topic_id = image.topics.get(name.topic), log.topic_id
    if topic is None:
        return "the cluster's metadata has no topic of that name"
    if topic_id is None:
        return "it has no topic id"
    if topic.id != topic_id:
        return "the topic of that name has another id"
    placed = topic.partitions.get(name.partition)
    if placed is None:
        return "the topic has no such partition"
    if log.epochs.latest > placed.leader_epoch:
        return (
            f"it has records of leader epoch {log.epochs.latest}, and the cluster's metadata knows of "
            f"{placed.leader_epoch} at most"
        )
    return f"the cluster's metadata has it on brokers {list(placed.replicas)}"


def named(names: list[TopicPartition]) -> str:
    shown = ", ".join(str(each) for each in names[:NAMED_MAX])
    return shown if len(names) <= NAMED_MAX else f"{shown} and {len(names) - NAMED_MAX} more"
