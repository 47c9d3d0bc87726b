"""The demo topic `architecture.demo`, with segments so small that a viewer can watch them roll.

Its records are readings of a hundred meters, with the meter's name as the key. They are produced as usual: in batches,
each key to the partition that Kafka's partitioner chooses, with `acks=all`. Many records are written in portions, so
that other clients are served in between.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec import Struct

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.hashing import partition_of_key
from penstock.base.ids import Offset
from penstock.base.promise import Promise
from penstock.base.steps import Steps
from penstock.gateway.peer_rpc.client import peer_rpc_of
from penstock.gateway.peer_rpc.messages import RecordToWrite, Write, WriteResult
from penstock.gateway.peer_rpc.routed_partition import RoutedPartition, find_partition, look_up_bounds
from penstock.gateway.shared.controller_call import check, decide
from penstock.gateway.shared.new_records import append
from penstock.gateway.shared.topics import find_topic
from penstock.handlers.support.context import Context, Session
from penstock.metadata.controller.requests import CreateTopics, NewTopic
from penstock.metadata.image import Topic
from penstock.records import build_batch
from penstock.storage import Appended

DEMO: Final = "architecture.demo"
DEMO_PARTITIONS: Final = 3
DEMO_SETTINGS: Final = {"segment.bytes": "100000"}
"""Some 1,300 records a segment: the first thousand, over three partitions, leave each with one segment, and ten
thousand more roll each of them several times."""

SETUP_RECORDS: Final = 1_000
RECORDS_MAX: Final = 100_000
"""Records of one call: 8 MB."""

METERS: Final = 100
BATCH_RECORDS: Final = 25
"""A batch of 2 KB: smaller than `index.interval.bytes`, so that not every batch has an index entry."""
PORTION_RECORDS: Final = 500
"""Records in one portion: about 2 ms of work. The next portion starts when they are durable."""


class PartitionGrowth(Struct, rename="camel"):
    """What a call wrote to one partition."""

    partition: int
    records: int
    first_offset: int | None
    """Offset of the first record written; null if there is none."""
    last_offset: int | None
    segments_before: int
    segments: int


class DemoProduced(Struct, rename="camel"):
    topic: str
    produced: int
    partitions: list[PartitionGrowth]
    segments_before: int
    segments: int
    """Number of segments in all partitions now."""


class DemoSetup(Struct, rename="camel"):
    topic: str
    created: bool
    """False if the topic existed."""
    records_before: int
    """Number of records that it held. With any, no records are added."""
    produced: int
    partitions: list[PartitionGrowth]
    segments: int
    message: str
    """A summary."""


class Reading(NamedTuple):
    """A record of the demo."""

    key: bytes
    value: bytes


def reading(number: int) -> Reading:
    """The record with this number: always the same."""
    meter = number % METERS
    value = f'{{"reading":{number},"meter":{meter},"litres":{number * 7919 % 100_000 / 100},"valve":"open"}}'
    return Reading(b"meter-%d" % meter, value.encode())


class Explorer:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._is_setting_up = False
        self._waiting: list[Promise[None]] = []
        """Other setup calls, which wait for the current one."""

    def setup(self, session: Session) -> Steps[DemoSetup]:
        """Create the topic and write records to it, unless it has some."""
        while self._is_setting_up:
            previous_setup: Promise[None] = Promise()
            self._waiting.append(previous_setup)
            yield previous_setup
        self._is_setting_up = True
        try:
            return (yield from self._set_up(session))
        finally:
            self._is_setting_up = False
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                each.resolve(None)

    def _set_up(self, session: Session) -> Steps[DemoSetup]:
        is_new = DEMO not in self._context.image.topics
        if is_new:
            is_new = yield from self._create()
        partitions = self._partitions(find_topic(self._context, DEMO))
        yield from look_up_bounds(self._context, partitions)
        # A topic that was created and never written to gets its records now; deleted records count as written.
        records_before = sum(each.log_end for each in partitions)
        count = SETUP_RECORDS if not records_before else 0
        growth = yield from self._write(session, partitions, count)
        if is_new:
            message = f"{DEMO} was created with {len(partitions)} partitions, and {count} records are in it"
        elif count:
            message = f"{DEMO} was there without records, and {count} are in it now"
        else:
            message = f"{DEMO} was there with {records_before} records written to it; nothing was changed"
        return DemoSetup(
            topic=DEMO,
            created=is_new,
            records_before=records_before,
            produced=count,
            partitions=growth,
            segments=sum(each.segments for each in growth),
            message=message,
        )

    def _create(self) -> Steps[bool]:
        """Create the topic. False if it was created meanwhile."""
        wanted = NewTopic(DEMO, DEMO_PARTITIONS, configs=DEMO_SETTINGS)
        [created] = yield from decide(self._context, CreateTopics((wanted,)))
        if created.result.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            return False
        check(created.result, f"topic {DEMO!r} could not be created")
        return True

    def produce(self, session: Session, count: int) -> Steps[DemoProduced]:
        """Write `count` more records."""
        if DEMO not in self._context.image.topics:
            raise KafkaError(
                f"topic {DEMO!r} does not exist yet: POST /api/architecture/setup creates it",
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        growth = yield from self._write(session, self._partitions(find_topic(self._context, DEMO)), count)
        return DemoProduced(
            topic=DEMO,
            produced=count,
            partitions=growth,
            segments_before=sum(each.segments_before for each in growth),
            segments=sum(each.segments for each in growth),
        )

    def _partitions(self, topic: Topic) -> list[RoutedPartition]:
        return [find_partition(self._context, topic.name, number) for number in sorted(topic.partitions)]

    def _segments(self, partitions: list[RoutedPartition]) -> Steps[list[int]]:
        away = yield from look_up_bounds(self._context, partitions)
        return [
            away[each].segments if each in away else len(each.here.log.segments) if each.here else 0
            for each in partitions
        ]

    def _write(
        self, session: Session, partitions: list[RoutedPartition], count: int
    ) -> Steps[list[PartitionGrowth]]:
        """Write readings, numbered from the number of existing records on."""
        segments_before = yield from self._segments(partitions)
        written: list[list[Appended]] = [[] for _ in partitions]
        begin = sum(each.log_end for each in partitions)
        for start in range(begin, begin + count, PORTION_RECORDS):
            end = min(start + PORTION_RECORDS, begin + count)
            writes = [
                (index, self._append(session, partitions[index], readings))
                for index, readings in self._batches(range(start, end), len(partitions))
            ]
            for index, write in writes:
                written[index].append((yield write))
        segments = yield from self._segments(partitions)
        return [
            PartitionGrowth(
                partition=partition.number,
                records=sum(each.last_offset - each.base_offset + 1 for each in appended),
                first_offset=_first(appended),
                last_offset=appended[-1].last_offset if appended else None,
                segments_before=before,
                segments=after,
            )
            for partition, before, after, appended in zip(
                partitions, segments_before, segments, written, strict=True
            )
        ]

    def _append(
        self, session: Session, partition: RoutedPartition, readings: list[Reading]
    ) -> Promise[Appended]:
        """Write a batch to the partition's leader."""
        here = partition.here
        if here is not None:
            now_ms = self._context.world.now_ms()
            return append(self._context, here, bytearray(build_batch([(*each, now_ms) for each in readings])))
        answer: Promise[Appended] = Promise()

        def written(results: list[WriteResult]) -> None:
            error = results[0].error
            if error is not None:
                answer.fail(error)
            else:
                answer.resolve(Appended(results[0].offset, results[-1].offset))

        records = tuple(RecordToWrite(partition.number, *each) for each in readings)
        try:
            leader = partition.leader
        except KafkaError as error:
            answer.fail(error)
            return answer
        peer_rpc_of(self._context).send(
            leader,
            Write(partition.topic, partition.topic_id, records),
            session=session,
            order_key=partition.number,
        ).then(written, answer.fail)
        return answer

    @staticmethod
    def _batches(numbers: range, partitions: int) -> Iterator[tuple[int, list[Reading]]]:
        """Readings in batches, each with the index of its keys' partition."""
        gathered: list[list[Reading]] = [[] for _ in range(partitions)]
        for number in numbers:
            one = reading(number)
            gathered[partition_of_key(one.key, partitions)].append(one)
        for index, readings in enumerate(gathered):
            for at in range(0, len(readings), BATCH_RECORDS):
                yield index, readings[at : at + BATCH_RECORDS]


def _first(appended: list[Appended]) -> Offset | None:
    return appended[0].base_offset if appended else None
