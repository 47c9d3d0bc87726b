"""Topics for partitions that were there before the cluster: of a directory that was imported, or whose metadata log
is gone. The first controller of a new cluster takes them in; after that, what is on disk and in no topic is a stray.

Only the partitions can be found on a disk. What the topics' settings were is not there: retention, compaction and the
rest are the defaults, which may delete what the settings would have kept.
"""

import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from penstock.base.ids import TopicPartition, random_uuid, uuid_from_text
from penstock.metadata import AnyRecord
from penstock.metadata.image import Partition
from penstock.metadata.records import TopicRecord
from penstock.metadata.snapshot import partition_record
from penstock.metadata.versions import METADATA_VERSION_LATEST
from penstock.storage import LogDirectory

if TYPE_CHECKING:
    from random import Random

logger = logging.getLogger(__name__)

NAMED_MAX: Final = 5
"""Topics that are named in a line of the log."""


def adopt(directory: LogDirectory, node_id: int, rng: "Random") -> list[AnyRecord]:
    """Records that make a topic of each complete set of partitions in the directory."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for topic, number in directory.logs:
        numbers[topic].append(number)
    records: list[AnyRecord] = []
    taken: list[str] = []
    for topic, found in sorted(numbers.items()):
        if sorted(found) != list(range(len(found))):
            logger.warning("of topic %s only partitions %s are here; it is not served", topic, sorted(found))
            continue
        records += _topic(directory, topic, len(found), node_id, rng)
        taken.append(f"{topic} ({len(found)} partitions)")
    if taken:
        shown = ", ".join(taken[:NAMED_MAX]) + (", ..." if len(taken) > NAMED_MAX else "")
        logger.warning(
            "%d topics were found on disk without metadata, and are served: %s. Their settings are not known and fall "
            "back to the broker's defaults, retention included: set them with `penstock configs` before records go",
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
        placed = Partition(
            replicas=(node_id,),
            directories=(uuid_from_text(directory.identity.directory_id),),
            isr=(node_id,),
            # The next leader's epoch is later than any that has written here.
            leader_epoch=max(directory.logs[name].epochs.latest, 0),
        )
        records.append(partition_record(topic_id, number, placed, METADATA_VERSION_LATEST))
    return records
