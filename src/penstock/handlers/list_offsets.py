"""Offsets by time, at the ends of a log, and by leader epoch.

    ListOffsets 1 to 11
    OffsetForLeaderEpoch 2 to 4

A look-up by time finds a batch through the indexes, then reads and decompresses that batch on the event loop: some
tens of microseconds for a small batch, milliseconds for one of a megabyte. After `LOOKUPS_A_TURN` look-ups of one
request other clients are served.
"""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import NO_LEADER_EPOCH, NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs, TopicPartition
from penstock.base.steps import Steps, next_tick
from penstock.metadata.acls import CLUSTER_NAME, AclResourceType, Operation
from penstock.wire import Api

from .support.context import Call, Context
from .support.response_fields import NO_THROTTLE
from .support.waiting import in_steps

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
"""The version that introduced each special timestamp."""

_INDEPENDENT_OF_ISOLATION = (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD)
"""Special timestamps whose offset does not depend on the high watermark or last stable offset."""

CONSUMER = -1
"""The replica id of consumers."""

DEBUGGER = -2
"""The replica id of a client that reads any replica up to its log end."""

READ_COMMITTED = 1

LOOKUPS_A_TURN = 16
"""Look-ups that may decompress a batch in one tick: with batches of a megabyte some 50 ms."""


class FoundOffset(NamedTuple):
    """The result for one partition; the defaults mean that nothing was found."""

    timestamp: TimestampMs = NO_TIMESTAMP
    offset: Offset = -1
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


NOTHING = FoundOffset()


@in_steps
def list_offsets(context: Context, call: Call) -> Steps[Any]:
    """ListOffsets 1 to 11: the offset for a timestamp, or at one of the log's ends. Needs DESCRIBE on the topic.

    A consumer gets offsets below the high watermark, with READ_COMMITTED below the last stable offset; if the record
    is above, offset and timestamp are -1. A replica (a replica id other than -1) gets offsets up to the log end. Only
    the leader answers, except for replica id -2, which any replica answers.

    The ends have no timestamp. The leader epoch is that of the record; with LATEST it is the current one. A leader
    whose high watermark has not reached the start of its epoch replies OFFSET_NOT_AVAILABLE, so that LATEST never
    moves back when the leader changes (KIP-207).

    A partition that is named twice gets INVALID_REQUEST, in one row. An unknown special timestamp, or one of a later
    version, gets UNSUPPORTED_VERSION.

    Version notes: 2 adds isolation levels; 4 leader epochs; 5 OFFSET_NOT_AVAILABLE (before, LEADER_NOT_AVAILABLE); 7
    MAX_TIMESTAMP (KIP-734); 8 EARLIEST_LOCAL (KIP-405); 9 LATEST_TIERED (KIP-1005); 10 a timeout for remote storage;
    11 EARLIEST_PENDING_UPLOAD (KIP-1023). Remote storage is not supported: the local log is the whole log, tiered
    offsets are -1, and the timeout is ignored.
    """
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
                        f"not authorized to describe {topic.name}", ErrorCode.TOPIC_AUTHORIZATION_FAILED
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
                yield next_tick(context.world)
        if partitions:
            topics.append(make.ListOffsetsTopicResponse(name=topic.name, partitions=tuple(partitions)))
    return make.ListOffsetsResponse(throttle_time=NO_THROTTLE, topics=tuple(topics))


def _may_read_batch(timestamp: TimestampMs) -> bool:
    return timestamp >= 0 or timestamp == MAX_TIMESTAMP


def _in_version(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.OFFSET_NOT_AVAILABLE and version < 5:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return code


def _find_offset(context: Context, call: Call, name: TopicPartition, wanted: Any) -> FoundOffset:
    if wanted.timestamp < 0 and call.version < _SINCE_VERSION.get(wanted.timestamp, call.version + 1):
        raise KafkaError(
            f"ListOffsets {call.version} has no special timestamp {wanted.timestamp}",
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
    if wanted.timestamp not in _INDEPENDENT_OF_ISOLATION and (found == NOTHING or found.offset == visible):
        _check_end_is_known(partition)
    return found


def _check_end_is_known(partition: "Partition") -> None:
    """Raise where offsets above the high watermark may have been visible under the previous leader."""
    if partition.high_watermark < partition.epoch_start:
        raise KafkaError(
            f"The high watermark of {partition.name}, {partition.high_watermark}, has not reached the start of the "
            f"leader's epoch, {partition.epoch_start}; retry.",
            ErrorCode.OFFSET_NOT_AVAILABLE,
        )


def _offset_for(partition: "Partition", timestamp: TimestampMs, visible: Offset) -> FoundOffset:
    """The first record at or after a timestamp, or the end that a special one names, below offset `visible`."""
    log = partition.log
    if timestamp == LATEST:
        return FoundOffset(NO_TIMESTAMP, visible, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return FoundOffset(NO_TIMESTAMP, log.log_start, log.epochs.epoch_at(log.log_start))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING
    record = (
        log.reader.latest_timestamp()
        if timestamp == MAX_TIMESTAMP
        else log.reader.offset_for_timestamp(timestamp)
    )
    if record is None or record.offset >= visible:
        return NOTHING
    return FoundOffset(*record)


def offset_for_leader_epoch(context: Context, call: Call) -> Any:
    """OffsetForLeaderEpoch 2 to 4: where a leader epoch ended, for followers and consumers that check their position.

    The result is the largest epoch at or below the requested one, and its end: the start of the next epoch, or the log
    end for the current one. An epoch above the current one, and -1, gets -1 and -1; one before the log's first epoch
    gets itself and the start of the first (KIP-101, KIP-279).

    Needs CLUSTER_ACTION on the cluster or DESCRIBE on the topic.

    Version notes: 3 adds the replica id, which is ignored; 4 is flexible.
    """
    make = call.make
    is_peer = context.permits(call.session, Operation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME)
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
                        f"not authorized to describe {topic.topic}", ErrorCode.TOPIC_AUTHORIZATION_FAILED
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
    return make.OffsetForLeaderEpochResponse(throttle_time=NO_THROTTLE, topics=tuple(topics))


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.LIST_OFFSETS: list_offsets,
    Api.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
}
