"""Handlers that look after logs: records deleted, directories and producers described."""

import logging
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, TopicPartition
from penstock.metadata.controller.topics import check_name
from penstock.storage import Log
from penstock.wire import Api

from .context import CLUSTER_NAME, Call, Context, On, Operation
from .internal_topics import INTERNAL_TOPICS

logger = logging.getLogger(__name__)

TO_HIGH_WATERMARK: Offset = -1
NO_LOW_WATERMARK: Offset = -1
NO_LAG = -1
"""The lag of a log that no replica uses."""

_NO_THROTTLE = timedelta()


def delete_records(context: Context, call: Call) -> Any:
    """DeleteRecords 0 to 2: have partitions begin at an offset; -1 is the high watermark.

    The answer is where each partition begins now. An offset above the high watermark gets OFFSET_OUT_OF_RANGE, a
    topic that is compacted and never deleted from POLICY_VIOLATION, an internal topic INVALID_TOPIC_EXCEPTION. The new
    beginnings are durable before any of them shows, with one sync for the whole request; the files go later, when
    retention next looks.

    Each leader answers for its own log and does not wait for its followers, so the timeout is not needed.

    Version 2 is flexible.
    """
    make, request = call.make, call.message
    refused: dict[TopicPartition, KafkaError] = {}
    starts: dict[TopicPartition, Offset] = {}
    for topic in request.topics:
        is_allowed = context.authorize(call.session, Operation.DELETE, On.TOPIC, topic.name)
        for each in topic.partitions:
            name = TopicPartition(topic.name, each.partition_index)
            try:
                start = new_start(context, name, each.offset, is_allowed)
                starts[name] = max(start, starts.get(name, start))
            except KafkaError as error:
                refused[name] = error
    starts = {name: start for name, start in starts.items() if name not in refused}
    failure: KafkaError | None = None
    try:
        context.replicas.directory.save_log_starts(starts)
    except KafkaError as error:
        logger.error("%s", error)
        failure = error
    topics = []
    for topic in request.topics:
        partitions = []
        for each in topic.partitions:
            name = TopicPartition(topic.name, each.partition_index)
            low_watermark, refusal = NO_LOW_WATERMARK, refused.get(name) or failure
            if refusal is None:
                try:
                    low_watermark = context.replicas.find(*name).delete_records(starts[name])
                except KafkaError as error:
                    refusal = error
            partitions.append(
                make.DeleteRecordsPartitionResult(
                    partition_index=each.partition_index,
                    low_watermark=low_watermark,
                    error_code=ErrorCode.NONE if refusal is None else refusal.code,
                )
            )
        topics.append(make.DeleteRecordsTopicResult(name=topic.name, partitions=tuple(partitions)))
    return make.DeleteRecordsResponse(throttle_time=_NO_THROTTLE, topics=tuple(topics))


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


def describe_log_dirs(context: Context, call: Call) -> Any:
    """DescribeLogDirs 1 to 5: the node's log directory, how full its volume is, and the logs in it with their sizes.

    Without topics all logs are told, with them those that are there: nothing is said of one that is not. The lag is
    how far a log is behind its partition's high watermark, -1 for a log that no replica uses. A directory that cannot
    be looked at gets KAFKA_STORAGE_ERROR. Logs do not move between directories, so none is a future one, and none
    is cordoned.

    Version 2 is flexible, 3 has an error for the whole (who may not describe the cluster is told nothing before), 4
    the volume's size and room (KIP-827), 5 whether the directory is cordoned (KIP-1066).
    """
    make, directory = call.make, context.replicas.directory
    if not context.authorize(call.session, Operation.DESCRIBE, On.CLUSTER, CLUSTER_NAME):
        return make.DescribeLogDirsResponse(
            throttle_time=_NO_THROTTLE, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=()
        )
    wanted = call.message.topics
    if wanted is None:
        logs = list(directory.logs.items())
    else:
        names = {TopicPartition(topic.topic, each): None for topic in wanted for each in topic.partitions}
        logs = [(name, directory.logs[name]) for name in names if name in directory.logs]
    by_topic: dict[str, list[Any]] = defaultdict(list)
    for name, log in logs:
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
    return NO_LAG if partition is None else max(partition.high_watermark - log.log_end, 0)


def describe_producers(context: Context, call: Call) -> Any:
    """DescribeProducers 0: who writes to partitions, as their leader remembers it (KIP-664).

    A producer is told until it has been idle for `producer.id.expiration.ms`: its epoch, the sequence and timestamp of
    its last batch, the epoch of the coordinator that ended its last transaction, and where its open transaction
    began; -1 where there is no such thing. What cannot be a topic's name gets INVALID_TOPIC_EXCEPTION.
    """
    make = call.make
    topics = []
    for topic in call.message.topics:
        is_allowed = context.authorize(call.session, Operation.READ, On.TOPIC, topic.name)
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
    return tuple(
        call.make.ProducerState(
            producer_id=producer_id,
            producer_epoch=producer.epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.timestamp,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=-1 if producer.txn_first_offset is None else producer.txn_first_offset,
        )
        for producer_id, producer in sorted(log.producers.by_id.items())
    )


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.DELETE_RECORDS: delete_records,
    Api.DESCRIBE_LOG_DIRS: describe_log_dirs,
    Api.DESCRIBE_PRODUCERS: describe_producers,
}
