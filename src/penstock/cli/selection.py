"""Partitions on the command line, in Kafka's notation: `orders` is the whole topic, `orders:0,2` two partitions."""

from collections.abc import Iterable
from typing import NamedTuple

from penstock.base.ids import TopicPartition
from penstock.cli.output import Refused
from penstock.client.cluster import Cluster
from penstock.client.errors import no_partition

INT32_MAX = 2**31 - 1


class Selection(NamedTuple):
    topic: str
    partitions: tuple[int, ...] | None
    """None for all of them."""

    def takes(self, partition: TopicPartition) -> bool:
        is_topic = partition.topic == self.topic
        return is_topic and (self.partitions is None or partition.partition in self.partitions)


def parse_selection(text: str) -> Selection:
    topic, colon, numbers = text.partition(":")
    parts = [each.strip() for each in numbers.split(",")] if colon else []
    if not topic or not all(_is_partition(each) for each in parts):
        raise Refused(f"{text!r} names no partitions: expected TOPIC or TOPIC:0,1")
    return Selection(topic, tuple(sorted({int(each) for each in parts})) if colon else None)


def parse_partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition(":")
    if not topic or not _is_partition(number):
        raise Refused(f"{text!r} is not a partition: expected TOPIC:PARTITION")
    return TopicPartition(topic, int(number))


def _is_partition(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= INT32_MAX


def partitions_of(cluster: Cluster, selections: Iterable[Selection]) -> list[TopicPartition]:
    """The selected partitions. Fails if one does not exist."""
    found: dict[TopicPartition, None] = {}
    for topic, numbers in selections:
        known = cluster.topic(topic).partitions
        for number in sorted(known) if numbers is None else numbers:
            if number not in known:
                raise no_partition(topic, number, len(known))
            found[TopicPartition(topic, number)] = None
    return sorted(found)


def show_partitions(partitions: Iterable[TopicPartition]) -> str:
    """Partitions in short: orders:0,1 payments:3."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    return " ".join(f"{topic}:{','.join(map(str, sorted(each)))}" for topic, each in sorted(by_topic.items()))
