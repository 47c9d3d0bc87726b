"""Handlers that say where in a log something is: by time, at one of its ends, by leader epoch.

A look-up by time finds a batch through the indexes, and reads and decompresses that one batch to find the record: some
tens of microseconds for a small one, milliseconds for one of a megabyte. That happens on the loop. A request may
name thousands of partitions, so it is answered in turns: after `LOOKUPS_A_TURN` of them everybody else comes first.
"""

from collections import Counter
from collections.abc import Callable, Generator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import NO_LEADER_EPOCH, NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs, TopicPartition
from penstock.base.promise import Promise
from penstock.wire import Api

from .support.context import CLUSTER_NAME, AclResourceType, Call, Context, Operation
from .support.time_slices import in_turns

if TYPE_CHECKING:
    from penstock.replica import Partition

LATEST: TimestampMs = -1
EARLIEST: TimestampMs = -2
MAX_TIMESTAMP: TimestampMs = -3
EARLIEST_LOCAL: TimestampMs = -4
LATEST_TIERED: TimestampMs = -5
EARLIEST_PENDING_UPLOAD: TimestampMs = -6

_SINCE_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The version from which each of the special timestamps may be asked for."""

_WHATEVER_IS_VISIBLE = (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD)
"""Special timestamps whose answer does not depend on how far consumers see."""

CONSUMER = -1
"""The replica id of a client that is not a replica."""

DEBUGGER = -2
"""The replica id of a client that asks any replica, for what that one has."""

READ_COMMITTED = 1

LOOKUPS_A_TURN = 16
"""Look-ups that may decompress a batch, before others get their turn: with batches of a megabyte some 50 ms."""

_NO_THROTTLE = timedelta()


class FoundOffset(NamedTuple):
    """The answer for one partition; as it is, nothing was found."""

    timestamp: TimestampMs = NO_TIMESTAMP
    offset: Offset = -1
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


NOTHING = FoundOffset()


def list_offsets(context: Context, call: Call) -> Any | Promise[Any]:
    """ListOffsets 1 to 11: the offset for a time, or at one of the ends.

    A consumer is told no more than it could fetch: up to the high watermark, or with isolation level READ_COMMITTED
    up to the last stable offset. What lies above counts as not found: offset and timestamp are -1. A replica (any
    replica id but -1) is told of everything up to the log end. Leaders answer; replica id -2 has an answer from any
    replica that it asks.

    The ends come without a timestamp. The leader epoch is that of the record found; with LATEST it is the current
    one. A leader whose high watermark has not reached the start of its own epoch does not know yet where consumers
    end: it answers OFFSET_NOT_AVAILABLE, so that LATEST never goes back when leaders change (KIP-207).

    A partition that is named twice gets INVALID_REQUEST, and one answer. A special timestamp that is unknown, or
    younger than the version, gets UNSUPPORTED_VERSION.

    Version 2 brings isolation levels, 4 leader epochs, 5 OFFSET_NOT_AVAILABLE (LEADER_NOT_AVAILABLE before), 7
    MAX_TIMESTAMP (KIP-734), 8 EARLIEST_LOCAL (KIP-405), 9 LATEST_TIERED (KIP-1005), 10 a timeout for remote storage,
    11 EARLIEST_PENDING_UPLOAD (KIP-1023). There is no remote storage: the local log is the whole log, the offsets of
    the tiered part are -1, and nothing needs the timeout.
    """
    return in_turns(context.world, _list_offsets(context, call))


def _list_offsets(context: Context, call: Call) -> Generator[None, None, Any]:
    make, request = call.make, call.message
    named = Counter(
        TopicPartition(topic.name, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
    )
    answered: set[TopicPartition] = set()
    lookups = 0
    topics = []
    for topic in request.topics:
        is_allowed = context.authorize(call.session, Operation.DESCRIBE, AclResourceType.TOPIC, topic.name)
        partitions = []
        for each in topic.partitions:
            name = TopicPartition(topic.name, each.partition_index)
            if name in answered:
                continue
            answered.add(name)
            found, code = NOTHING, ErrorCode.NONE
            try:
                if not is_allowed:
                    raise KafkaError(
                        f"{topic.name} may not be described", ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    )
                if named[name] > 1:
                    raise KafkaError(f"{name} is named {named[name]} times", ErrorCode.INVALID_REQUEST)
                found = _find_offset(context, call, name, each)
            except KafkaError as error:
                code = _in_version(error.code, call.version)
            partitions.append(
                make.ListOffsetsPartitionResponse(
                    partition_index=each.partition_index, error_code=code, **found._asdict()
                )
            )
            lookups += _may_read_batch(each.timestamp)
            if lookups >= LOOKUPS_A_TURN:
                lookups = 0
                yield
        if partitions:
            topics.append(make.ListOffsetsTopicResponse(name=topic.name, partitions=tuple(partitions)))
    return make.ListOffsetsResponse(throttle_time=_NO_THROTTLE, topics=tuple(topics))


def _may_read_batch(timestamp: TimestampMs) -> bool:
    return timestamp >= 0 or timestamp == MAX_TIMESTAMP


def _in_version(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.OFFSET_NOT_AVAILABLE and version < 5:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return code


def _find_offset(context: Context, call: Call, name: TopicPartition, wanted: Any) -> FoundOffset:
    if wanted.timestamp < 0 and call.version < _SINCE_VERSION.get(wanted.timestamp, call.version + 1):
        raise KafkaError(
            f"the special timestamp {wanted.timestamp} is not of ListOffsets {call.version}",
            ErrorCode.UNSUPPORTED_VERSION,
        )
    partition = None
    if call.message.replica_id == DEBUGGER:
        partition = context.replicas.held(name.topic, name.partition)
    if partition is None:
        partition = context.replicas.find(name.topic, name.partition)
    partition.check_epoch(getattr(wanted, "current_leader_epoch", NO_LEADER_EPOCH))
    if call.message.replica_id != CONSUMER:
        return _offset_for(partition, wanted.timestamp, partition.log.log_end)
    is_committed = getattr(call.message, "isolation_level", 0) == READ_COMMITTED
    visible = partition.last_stable if is_committed else partition.high_watermark
    found = _offset_for(partition, wanted.timestamp, visible)
    if wanted.timestamp not in _WHATEVER_IS_VISIBLE and (found == NOTHING or found.offset == visible):
        _check_end_is_known(partition)
    return found


def _check_end_is_known(partition: "Partition") -> None:
    """Refuse where what is not visible here yet may have been visible under the last leader."""
    if partition.high_watermark < partition.epoch_start:
        raise KafkaError(
            f"{partition.name} is visible up to {partition.high_watermark}, and its leader's epoch began at "
            f"{partition.epoch_start}",
            ErrorCode.OFFSET_NOT_AVAILABLE,
        )


def _offset_for(partition: "Partition", timestamp: TimestampMs, visible: Offset) -> FoundOffset:
    """What a timestamp, special or not, stands for, below what is visible."""
    log = partition.log
    if timestamp == LATEST:
        return FoundOffset(NO_TIMESTAMP, visible, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return FoundOffset(NO_TIMESTAMP, log.log_start, log.epochs.epoch_at(log.log_start))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING
    record = log.latest_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    if record is None or record.offset >= visible:
        return NOTHING
    return FoundOffset(*record)


def offset_for_leader_epoch(context: Context, call: Call) -> Any:
    """OffsetForLeaderEpoch 2 to 4: where a leader epoch ended, for replicas and consumers that check their position.

    The answer is the largest epoch at or below the one asked for, and the first offset after it: where the next one
    began, or the log end (not the high watermark) for the current one. An epoch that nobody has heard of yet, and -1,
    get -1 and -1; one from before the log's first, itself and the first one's start (KIP-101, KIP-279).

    Who may act for the cluster may ask about every topic; others about those they may describe.

    Version 3 brings the replica id, which changes nothing in the answer, 4 is flexible.
    """
    make = call.make
    is_peer = context.authorize(call.session, Operation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME)
    topics = []
    for topic in call.message.topics:
        is_allowed = is_peer or context.authorize(
            call.session, Operation.DESCRIBE, AclResourceType.TOPIC, topic.topic
        )
        partitions = []
        for each in topic.partitions:
            epoch, end, code = NO_LEADER_EPOCH, -1, ErrorCode.NONE
            try:
                if not is_allowed:
                    raise KafkaError(
                        f"{topic.topic} may not be described", ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    )
                partition = context.replicas.find(topic.topic, each.partition)
                partition.check_epoch(each.current_leader_epoch)
                epoch, end = partition.log.epochs.end_of(each.leader_epoch, partition.log.log_end)
            except KafkaError as error:
                code = error.code
            partitions.append(
                make.EpochEndOffset(
                    error_code=code, partition=each.partition, leader_epoch=epoch, end_offset=end
                )
            )
        topics.append(make.OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(partitions)))
    return make.OffsetForLeaderEpochResponse(throttle_time=_NO_THROTTLE, topics=tuple(topics))


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.LIST_OFFSETS: list_offsets,
    Api.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
}
