"""The timestamps of records at given offsets, read from the brokers.

No API of Kafka's tells the timestamp of an offset, so the first batch at each offset is fetched. Partitions are read a
few at a time, so that large batches of many partitions are not held at once.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Final

from penstock.base.ids import Offset, TimestampMs, TopicPartition

from .cluster import Cluster
from .consumer import Consumer, ConsumerSettings, Reset
from .errors import ClientError

PARTITIONS_AT_ONCE: Final = 32
WAIT_MS_MAX: Final = 5_000
"""For these partitions; what has not come by then is left out."""


def record_times(
    cluster: Cluster, offsets: Mapping[TopicPartition, Offset]
) -> dict[TopicPartition, TimestampMs]:
    """The timestamp of the first record at or after an offset of each partition, as far as it can be read."""
    found: dict[TopicPartition, TimestampMs] = {}
    left = iter(offsets.items())
    while some := dict(islice(left, PARTITIONS_AT_ONCE)):
        try:
            found |= _read(cluster, some)
        except ClientError:
            continue  # a leader is away, or records are damaged: the others are still told
    return found


def _read(cluster: Cluster, offsets: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, TimestampMs]:
    settings = ConsumerSettings(reset=Reset.EARLIEST, partition_bytes_max=1 << 10, failing_ms_max=WAIT_MS_MAX)
    consumer = Consumer(cluster, offsets, settings)
    found: dict[TopicPartition, TimestampMs] = {}
    until_ms = cluster.clock.now_ms() + WAIT_MS_MAX
    while len(found) < len(offsets) and (wait_ms := until_ms - cluster.clock.now_ms()) > 0:
        for each in consumer.poll(wait_ms):
            if each.records:
                found.setdefault(each.partition, each.records[0].timestamp)
                consumer.drop(each.partition)
    return found
