"""Handlers that look after logs: records deleted, directories and producers described."""

import logging
from collections import defaultdict
from collections.abc import Callable, Generator
from datetime import timedelta
from functools import partial
from typing import Any, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, TopicPartition
from penstock.base.promise import Promise
from penstock.base.world import Timer
from penstock.metadata.controller.topics import check_name
from penstock.replica import Partition
from penstock.storage import Log
from penstock.storage.producers import ACCEPT_LOSS_EPOCH, UNKNOWN_PRODUCER
from penstock.wire import Api

from .support.context import CLUSTER_NAME, AclResourceType, Call, Context, Operation
from .support.internal_topics import INTERNAL_TOPICS
from .support.time_slices import in_turns

logger = logging.getLogger(__name__)

TO_HIGH_WATERMARK: Offset = -1
NO_LOW_WATERMARK: Offset = -1
NO_LAG = -1
"""The lag of a log that no replica uses."""

_NO_THROTTLE = timedelta()


def delete_records(context: Context, call: Call) -> Any | Promise[Any]:
    """DeleteRecords 0 to 2: have partitions begin at an offset; -1 is the high watermark.

    The answer is the low watermark of each partition: where it begins on every replica that is alive. Followers hear
    of the new beginning from their leader and say when they have it; what they have not said within the request's
    timeout is REQUEST_TIMED_OUT, and comes later. An offset above the high watermark gets OFFSET_OUT_OF_RANGE, a topic
    that is compacted and never deleted from POLICY_VIOLATION, an internal topic INVALID_TOPIC_EXCEPTION. The new
    beginnings are durable before any of them shows, with one sync for the whole request; the files go later, when
    retention next looks.

    Version 2 is flexible.
    """
    request = call.message
    refused: dict[TopicPartition, KafkaError] = {}
    starts: dict[TopicPartition, Offset] = {}
    for topic in request.topics:
        is_allowed = context.authorize(call.session, Operation.DELETE, AclResourceType.TOPIC, topic.name)
        for each in topic.partitions:
            name = TopicPartition(topic.name, each.partition_index)
            try:
                start = new_start(context, name, each.offset, is_allowed)
                starts[name] = max(start, starts.get(name, start))
            except KafkaError as error:
                refused[name] = error
    starts = {name: start for name, start in starts.items() if name not in refused}
    try:
        context.replicas.directory.save_log_starts(starts)
    except KafkaError as error:
        logger.error("%s", error)
        refused.update(dict.fromkeys(starts, error))
        starts = {}
    deletion = _Deletion(context, call, refused)
    deletion.begin(starts)
    return deletion.later


class _Deletion:
    """A request whose partitions begin where they should here, and perhaps not yet elsewhere."""

    def __init__(self, context: Context, call: Call, refused: dict[TopicPartition, KafkaError]) -> None:
        self.later: Promise[Any] = Promise()
        self._context = context
        self._call = call
        self._refused = refused
        self._low_watermarks: dict[TopicPartition, Offset] = {}
        self._waiting: dict[TopicPartition, None] = {}
        self._timer: Timer | None = None

    def begin(self, starts: dict[TopicPartition, Offset]) -> None:
        self._waiting = dict.fromkeys(starts)
        for name, start in starts.items():
            try:
                partition = self._context.replicas.find(*name)
                partition.delete_records(start)
            except KafkaError as error:
                self._settled(name, None, error)
            else:
                partition.when_low(start, partial(self._settled, name, partition))
        if self._waiting:
            timeout_ms = self._call.message.timeout / timedelta(milliseconds=1)
            self._timer = self._context.world.call_later(max(timeout_ms, 0), self._time_is_up)
        elif not starts:
            self._answer()

    def _settled(self, name: TopicPartition, partition: Partition | None, error: KafkaError | None) -> None:
        if name not in self._waiting:
            return
        del self._waiting[name]
        if error is not None:
            self._refused[name] = error
        elif partition is not None:
            self._low_watermarks[name] = partition.low_watermark
        if not self._waiting:
            self._answer()

    def _time_is_up(self) -> None:
        for name in self._waiting:
            self._refused[name] = KafkaError(
                f"replicas of {name} have not deleted records in time", ErrorCode.REQUEST_TIMED_OUT
            )
        self._waiting = {}
        self._answer()

    def _answer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        make = self._call.make
        topics = []
        for topic in self._call.message.topics:
            partitions = []
            for each in topic.partitions:
                name = TopicPartition(topic.name, each.partition_index)
                refusal = self._refused.get(name)
                partitions.append(
                    make.DeleteRecordsPartitionResult(
                        partition_index=each.partition_index,
                        low_watermark=self._low_watermarks.get(name, NO_LOW_WATERMARK),
                        error_code=ErrorCode.NONE if refusal is None else refusal.code,
                    )
                )
            topics.append(make.DeleteRecordsTopicResult(name=topic.name, partitions=tuple(partitions)))
        self.later.resolve(make.DeleteRecordsResponse(throttle_time=_NO_THROTTLE, topics=tuple(topics)))


def new_start(context: Context, name: TopicPartition, offset: Offset, is_allowed: bool) -> Offset:
    """Where a partition is to begin; refuses what may not be."""
    if not is_allowed:
        raise KafkaError(f"records of {name.topic} may not be deleted", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    partition = context.replicas.find(*name)
    if name.topic in INTERNAL_TOPICS:
        raise KafkaError(f"{name.topic} is internal", ErrorCode.INVALID_TOPIC_EXCEPTION)
    settings = partition.log.settings
    if settings.is_compacted and not settings.is_deleted:
        raise KafkaError(
            f"{name.topic} is compacted, and nothing else deletes from it", ErrorCode.POLICY_VIOLATION
        )
    start = partition.high_watermark if offset == TO_HIGH_WATERMARK else offset
    if not 0 <= start <= partition.high_watermark:
        raise KafkaError(
            f"{name} is visible up to {partition.high_watermark}, and cannot begin at {offset}",
            ErrorCode.OFFSET_OUT_OF_RANGE,
        )
    return max(start, partition.log.log_start)


LOGS_A_TURN: Final = 500
"""Logs that are told of before others are served: some 4 ms."""


def describe_log_dirs(context: Context, call: Call) -> Any:
    """DescribeLogDirs 1 to 5: the node's log directory, how full its volume is, and the logs in it with their sizes.

    Without topics all logs are told, with them those that are there: nothing is said of one that is not. The lag is
    how far a log is behind its leader's high watermark, -1 for a log that no replica uses. A directory that cannot
    be looked at gets KAFKA_STORAGE_ERROR. Logs do not move between directories, so none is a future one, and none
    is cordoned.

    Version 2 is flexible, 3 has an error for the whole (who may not describe the cluster is told nothing before), 4
    the volume's size and room (KIP-827), 5 whether the directory is cordoned (KIP-1066).
    """
    if not context.authorize(call.session, Operation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_NAME):
        return call.make.DescribeLogDirsResponse(
            throttle_time=_NO_THROTTLE, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=()
        )
    return in_turns(context.world, _describe_log_dirs(context, call))


def _describe_log_dirs(context: Context, call: Call) -> Generator[None, None, Any]:
    make, directory = call.make, context.replicas.directory
    wanted = call.message.topics
    if wanted is None:
        logs = list(directory.logs.items())
    else:
        names = {TopicPartition(topic.topic, each): None for topic in wanted for each in topic.partitions}
        logs = [(name, directory.logs[name]) for name in names if name in directory.logs]
    by_topic: dict[str, list[Any]] = defaultdict(list)
    for at, (name, log) in enumerate(logs, 1):
        if at % LOGS_A_TURN == 0:
            yield
        by_topic[name.topic].append(
            make.DescribeLogDirsPartition(
                partition_index=name.partition,
                partition_size=log.size_bytes,
                offset_lag=_lag(context, name, log),
                is_future_key=False,
            )
        )
    topics = [
        make.DescribeLogDirsTopic(name=topic, partitions=tuple(partitions))
        for topic, partitions in by_topic.items()
    ]
    code, total, usable = ErrorCode.NONE, -1, -1
    try:
        total, usable = directory.vfs.usage(directory.layout.logs)
    except OSError as error:
        logger.error("cannot look at %s: %s", directory.layout.logs, error.strerror or error)
        code, topics = ErrorCode.KAFKA_STORAGE_ERROR, []
    result = make.DescribeLogDirsResult(
        error_code=code,
        log_dir=directory.layout.logs,
        topics=tuple(topics),
        total_bytes=total,
        usable_bytes=usable,
        is_cordoned=False,
    )
    return make.DescribeLogDirsResponse(
        throttle_time=_NO_THROTTLE, error_code=ErrorCode.NONE, results=(result,)
    )


def _lag(context: Context, name: TopicPartition, log: Log) -> int:
    partition = context.replicas.partitions.get(name)
    if partition is None:
        return NO_LAG
    known = partition.high_watermark if partition.is_leader else partition.leader_high_watermark
    return max(known - log.log_end, 0)


def describe_producers(context: Context, call: Call) -> Any:
    """DescribeProducers 0: who writes to partitions, as their leader remembers it (KIP-664).

    A producer is told until it has been idle for `producer.id.expiration.ms`: its epoch, the sequence and timestamp of
    its last batch, the epoch of the coordinator that ended its last transaction, and where its open transaction
    began; -1 where there is no such thing. Of a producer with a transaction in doubt (`storage.producers`) that one is
    told, with the coordinator epoch by which a tool that aborts it accepts the loss. What cannot be a topic's name
    gets INVALID_TOPIC_EXCEPTION.
    """
    make = call.make
    topics = []
    for topic in call.message.topics:
        is_allowed = context.authorize(call.session, Operation.READ, AclResourceType.TOPIC, topic.name)
        partitions = []
        for number in topic.partition_indexes:
            producers: tuple[Any, ...] = ()
            code, message = ErrorCode.NONE, None
            try:
                check_name(topic.name)
                if not is_allowed:
                    raise KafkaError(f"{topic.name} may not be read", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                producers = _producers(call, context.replicas.find(topic.name, number).log)
            except KafkaError as error:
                code, message = error.code, str(error)
            partitions.append(
                make.PartitionResponse(
                    partition_index=number, error_code=code, error_message=message, active_producers=producers
                )
            )
        topics.append(make.TopicResponse(name=topic.name, partitions=tuple(partitions)))
    return make.DescribeProducersResponse(throttle_time=_NO_THROTTLE, topics=tuple(topics))


def _producers(call: Call, log: Log) -> tuple[Any, ...]:
    producers = log.producers

    def state(producer_id: int) -> Any:
        producer = producers.by_id.get(producer_id, UNKNOWN_PRODUCER)
        in_doubt = producers.doubt_of(producer_id) if producers.in_doubt else None
        epoch, coordinator_epoch, first_offset = (
            (producer.epoch, producer.coordinator_epoch, producer.txn_first_offset)
            if in_doubt is None
            else (in_doubt.epoch, ACCEPT_LOSS_EPOCH, in_doubt.first_offset)
        )
        return call.make.ProducerState(
            producer_id=producer_id,
            producer_epoch=epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.timestamp,
            coordinator_epoch=coordinator_epoch,
            current_txn_start_offset=-1 if first_offset is None else first_offset,
        )

    known = {*producers.by_id, *(each.producer_id for each in producers.in_doubt.values())}
    return tuple(state(producer_id) for producer_id in sorted(known))


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.DELETE_RECORDS: delete_records,
    Api.DESCRIBE_LOG_DIRS: describe_log_dirs,
    Api.DESCRIBE_PRODUCERS: describe_producers,
}
