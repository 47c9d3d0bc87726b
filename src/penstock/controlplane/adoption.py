"""Creates topics for partitions that are on disk without metadata: of an imported directory, or after the metadata log
was removed. Only the first controller of a new cluster does this; later, a partition without a topic is a stray.

A disk does not contain topic settings: adopted topics get default retention and compaction, which may delete records
that their former settings kept.
"""

import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from penstock.base.ids import TopicPartition, random_uuid, uuid_from_text
from penstock.metadata.image import PartitionRegistration
from penstock.metadata.records import AnyRecord, TopicRecord
from penstock.metadata.snapshot import partition_record
from penstock.metadata.versions import METADATA_VERSION_LATEST
from penstock.storage import LogDirectory

if TYPE_CHECKING:
    from random import Random

logger = logging.getLogger(__name__)

NAMED_MAX: Final = 5
"""Topics that a log line lists by name."""


def adopt(directory: LogDirectory, node_id: int, rng: "Random") -> list[AnyRecord]:
    """Records that create a topic for each complete set of partitions in the directory."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for topic, number in directory.logs:
        numbers[topic].append(number)
    records: list[AnyRecord] = []
    taken: list[str] = []
    for topic, found in sorted(numbers.items()):
        if sorted(found) != list(range(len(found))):
            logger.warning(
                "topic %s has only partitions %s on disk and no metadata; it is not served",
                topic,
                sorted(found),
            )
            continue
        records += _topic(directory, topic, len(found), node_id, rng)
        taken.append(f"{topic} ({len(found)} partitions)")
    if taken:
        shown = ", ".join(taken[:NAMED_MAX]) + (", ..." if len(taken) > NAMED_MAX else "")
        logger.warning(
            "serving %d topics that were found on disk without metadata: %s. They have the broker's default settings, "
            "retention included: set theirs with `penstock configs` before retention deletes records",
            len(taken),
            shown,
        )
    return records


def _topic(directory: LogDirectory, topic: str, count: int, node_id: int, rng: "Random") -> list[AnyRecord]:
    first = directory.logs[TopicPartition(topic, 0)]
    topic_id = first.topic_id or random_uuid(rng)
    records: list[AnyRecord] = [TopicRecord(name=topic, topic_id=topic_id)]
    for number in range(count):
        name = TopicPartition(topic, number)
        directory.set_topic_id(name, topic_id)
        placed = PartitionRegistration(
            replicas=(node_id,),
            directories=(uuid_from_text(directory.identity.directory_id),),
            isr=(node_id,),
            # The next leader epoch must be later than every epoch in the log.
            leader_epoch=max(directory.logs[name].epochs.latest, 0),
        )
        records.append(partition_record(topic_id, number, placed, METADATA_VERSION_LATEST))
    return records
