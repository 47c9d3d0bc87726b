"""Administration of logs.

DeleteRecords 0 to 2           move the start of partitions
DescribeLogDirs 1 to 5         log directories, and the sizes of logs
DescribeProducers 0            idempotent and transactional producers of partitions
"""

import logging
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, TopicPartition
from penstock.base.internal_topics import INTERNAL_TOPICS
from penstock.base.promise import Promise
from penstock.base.steps import Steps, next_tick
from penstock.base.world import Timer
from penstock.coordinator.transactions.hanging import producers_of
from penstock.metadata.acls import CLUSTER_NAME, AclResourceType, Operation
from penstock.metadata.controller.topics import check_name
from penstock.replica import Partition
from penstock.storage import Log
from penstock.wire import Api

from .support.context import Call, Context
from .support.response_fields import NO_THROTTLE
from .support.waiting import in_steps

logger = logging.getLogger(__name__)

TO_HIGH_WATERMARK: Offset = -1
NO_LOW_WATERMARK: Offset = -1
NO_LAG = -1
"""The lag of a log without a replica."""


def delete_records(context: Context, call: Call) -> Any | Promise[Any]:
    """DeleteRecords 0 to 2: move the log start offset of partitions; -1 means the high watermark. Needs DELETE on the
    topic.

    The result is the low watermark: the largest log start offset of all live replicas. Followers learn the new start
    from the leader's fetch responses and confirm it with their next fetch. A partition that they do not confirm within
    the request's timeout gets REQUEST_TIMED_OUT, and its records are deleted later. An offset above the high watermark
    gets OFFSET_OUT_OF_RANGE, a topic whose only cleanup policy is compaction POLICY_VIOLATION, an internal topic
    INVALID_TOPIC_EXCEPTION. One sync makes all new starts of a request durable before they take effect; retention
    deletes the files later.

    Version notes: 2 is flexible.
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
        context.replicas.directory.checkpoints.save_log_starts(starts)
    except KafkaError as error:
        logger.error("%s", error)
        refused.update(dict.fromkeys(starts, error))
        starts = {}
    deletion = _Deletion(context, call, refused)
    deletion.begin(starts)
    return deletion.later


class _Deletion:
    """Waits until followers have confirmed the new log start offsets of a request."""

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
                f"Not all replicas of {name} have deleted the records in time; they will later.",
                ErrorCode.REQUEST_TIMED_OUT,
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
        self.later.resolve(make.DeleteRecordsResponse(throttle_time=NO_THROTTLE, topics=tuple(topics)))


def new_start(context: Context, name: TopicPartition, offset: Offset, is_allowed: bool) -> Offset:
    """The new log start offset of a partition; raises if the request is invalid."""
    if not is_allowed:
        raise KafkaError(
            f"not authorized to delete records of {name.topic}", ErrorCode.TOPIC_AUTHORIZATION_FAILED
        )
    partition = context.replicas.find(*name)
    if name.topic in INTERNAL_TOPICS:
        raise KafkaError(
            f"{name.topic} is internal: its records cannot be deleted", ErrorCode.INVALID_TOPIC_EXCEPTION
        )
    settings = partition.log.settings
    if settings.is_compacted and not settings.is_deleted:
        raise KafkaError(
            f"{name.topic} is compacted; DeleteRecords needs cleanup.policy=delete",
            ErrorCode.POLICY_VIOLATION,
        )
    start = partition.high_watermark if offset == TO_HIGH_WATERMARK else offset
    if not 0 <= start <= partition.high_watermark:
        raise KafkaError(
            f"cannot delete records of {name} up to {offset}: the high watermark is {partition.high_watermark}",
            ErrorCode.OFFSET_OUT_OF_RANGE,
        )
    return max(start, partition.log.log_start)


LOGS_A_TURN: Final = 500
"""Logs described in one tick: some 4 ms."""


@in_steps
def describe_log_dirs(context: Context, call: Call) -> Steps[Any]:
    """DescribeLogDirs 1 to 5: the node's log directory, the space of its volume, and the sizes of its logs. Needs
    DESCRIBE on the cluster.

    A request without topics gets all logs; otherwise unknown partitions are left out. The lag is the distance to the
    leader's high watermark, -1 for a log without a replica. A directory that cannot be read gets KAFKA_STORAGE_ERROR.
    A node has one directory: no log is a future one, and no directory is cordoned.

    Version notes: 2 is flexible; 3 adds an error for the whole response (before, an unauthorized client gets no rows);
    4 the volume's size and free space (KIP-827); 5 whether the directory is cordoned (KIP-1066).
    """
    if not context.authorize(call.session, Operation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_NAME):
        return call.make.DescribeLogDirsResponse(
            throttle_time=NO_THROTTLE, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=()
        )
    make, directory = call.make, context.replicas.directory
    requested = call.message.topics
    if requested is None:
        logs = list(directory.logs.items())
    else:
        names = {TopicPartition(topic.topic, each): None for topic in requested for each in topic.partitions}
        logs = [(name, directory.logs[name]) for name in names if name in directory.logs]
    by_topic: dict[str, list[Any]] = defaultdict(list)
    for at, (name, log) in enumerate(logs, 1):
        if at % LOGS_A_TURN == 0:
            yield next_tick(context.world)
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
        logger.error("Cannot read the free space of %s: %s", directory.layout.logs, error.strerror or error)
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
        throttle_time=NO_THROTTLE, error_code=ErrorCode.NONE, results=(result,)
    )


def _lag(context: Context, name: TopicPartition, log: Log) -> int:
    partition = context.replicas.partitions.get(name)
    if partition is None:
        return NO_LAG
    known = partition.high_watermark if partition.is_leader else partition.leader_high_watermark
    return max(known - log.log_end, 0)


def describe_producers(context: Context, call: Call) -> Any:
    """DescribeProducers 0: the producer state of partitions, from their leader (KIP-664). Needs READ on the topic.

    A producer is listed until it has been idle for `producer.id.expiration.ms`: its epoch, the sequence and timestamp
    of its last batch, the epoch of the coordinator that ended its last transaction, and the first offset of its open
    transaction; -1 where a value is missing. A producer with a transaction in doubt (`storage.producers`) is listed
    with that transaction, and with the coordinator epoch by which a tool that aborts it accepts the loss. An invalid
    topic name gets INVALID_TOPIC_EXCEPTION.
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
                    raise KafkaError(
                        f"not authorized to read {topic.name}", ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    )
                producers = _producers(call, context.replicas.find(topic.name, number).log)
            except KafkaError as error:
                code, message = error.code, str(error)
            partitions.append(
                make.PartitionResponse(
                    partition_index=number, error_code=code, error_message=message, active_producers=producers
                )
            )
        topics.append(make.TopicResponse(name=topic.name, partitions=tuple(partitions)))
    return make.DescribeProducersResponse(throttle_time=NO_THROTTLE, topics=tuple(topics))


def _producers(call: Call, log: Log) -> tuple[Any, ...]:
    return tuple(
        call.make.ProducerState(
            producer_id=each.producer_id,
            producer_epoch=each.epoch,
            last_sequence=each.last_sequence,
            last_timestamp=each.last_timestamp,
            coordinator_epoch=each.coordinator_epoch,
            current_txn_start_offset=each.start_offset,
        )
        for each in producers_of(log)
    )


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.DELETE_RECORDS: delete_records,
    Api.DESCRIBE_LOG_DIRS: describe_log_dirs,
    Api.DESCRIBE_PRODUCERS: describe_producers,
}
