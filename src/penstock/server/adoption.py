"""Topics for partitions that were there before the cluster: of a directory that was imported, or whose metadata log
is gone. The first controller of a new cluster takes them in; after that, what is on disk and in no topic is a stray.
"""

import logging
from collections import defaultdict
from typing import TYPE_CHECKING

from penstock.base.ids import TopicPartition, random_uuid, uuid_from_text
from penstock.metadata import AnyRecord
from penstock.metadata.image import Partition
from penstock.metadata.schema import TopicRecord
from penstock.metadata.snapshot import partition_record
from penstock.metadata.versions import METADATA_VERSION_LATEST
from penstock.storage import LogDirectory

if TYPE_CHECKING:
    from random import Random

logger = logging.getLogger(__name__)


def adopt(directory: LogDirectory, node_id: int, rng: "Random") -> list[AnyRecord]:
    """Records that make a topic of each complete set of partitions in the directory."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for topic, number in directory.logs:
        numbers[topic].append(number)
    records: list[AnyRecord] = []
    for topic, found in sorted(numbers.items()):
        if sorted(found) != list(range(len(found))):
            logger.warning("of topic %s only partitions %s are here; it is not served", topic, sorted(found))
            continue
        records += _topic(directory, topic, len(found), node_id, rng)
    return records


def _topic(directory: LogDirectory, topic: str, count: int, node_id: int, rng: "Random") -> list[AnyRecord]:
    first = directory.logs[TopicPartition(topic, 0)]
    topic_id = first.topic_id or random_uuid(rng)
    placed = Partition(
        replicas=(node_id,),
        directories=(uuid_from_text(directory.identity.directory_id),),
        isr=(node_id,),
    )
    records: list[AnyRecord] = [TopicRecord(name=topic, topic_id=topic_id)]
    for number in range(count):
        directory.set_topic_id(TopicPartition(topic, number), topic_id)
        records.append(partition_record(topic_id, number, placed, METADATA_VERSION_LATEST))
    logger.info("topic %s with %d partitions was found in the directory and is served", topic, count)
    return records
