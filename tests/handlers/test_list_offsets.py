"""ListOffsets and OffsetForLeaderEpoch: where in a log something is."""

from datetime import timedelta
from typing import Any

import pytest
from tests.handlers.logs import Denying, Logs, append, end_transaction, entity
from tests.placing import placed
from tests.worlds import START_MS

from penstock.base.errors import ErrorCode
from penstock.base.promise import Promise
from penstock.base.settings import LogSettings
from penstock.handlers import list_offsets as offsets
from penstock.handlers.support.context import Call, Context, Session
from penstock.records import Codec
from penstock.wire import KAFKA_RANGES, Api
from penstock.wire.messages import response_builder

T = START_MS
VERSIONS = range(KAFKA_RANGES[Api.LIST_OFFSETS].min, KAFKA_RANGES[Api.LIST_OFFSETS].max + 1)
EPOCH_VERSIONS = range(
    KAFKA_RANGES[Api.OFFSET_FOR_LEADER_EPOCH].min, KAFKA_RANGES[Api.OFFSET_FOR_LEADER_EPOCH].max + 1
)
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = range(-1, -7, -1)


def request(
    version: int, *wanted: tuple[str, int, int], level: int = 0, replica: int = -1, epoch: int = -1
) -> Any:
    def make(kind: str, /, **values: Any) -> Any:
        return entity(Api.LIST_OFFSETS, version, kind, **values)

    topics = [
        make(
            "ListOffsetsTopic",
            name=topic,
            partitions=(
                make(
                    "ListOffsetsPartition",
                    partition_index=number,
                    current_leader_epoch=epoch,
                    timestamp=timestamp,
                ),
            ),
        )
        for topic, number, timestamp in wanted
    ]
    return make(
        "ListOffsetsRequest",
        replica_id=replica,
        isolation_level=level,
        topics=tuple(topics),
        timeout=timedelta(),
    )


def ask_all(
    logs: Logs,
    *wanted: tuple[str, int, int],
    version: int = 11,
    kind: type[Context] = Context,
    **options: Any,
) -> list[Any]:
    reply = logs.ask(
        offsets.list_offsets, Api.LIST_OFFSETS, version, request(version, *wanted, **options), kind
    )
    return [partition for topic in reply.topics for partition in topic.partitions]


def ask(logs: Logs, timestamp: int, **options: Any) -> tuple[int, int, int]:
    """Timestamp, offset and leader epoch found in the one partition of `orders`."""
    (found,) = ask_all(logs, ("orders", 0, timestamp), **options)
    assert found.error_code.value == ErrorCode.NONE
    return found.timestamp, found.offset, getattr(found, "leader_epoch", -1)


def refusal(logs: Logs, timestamp: int, topic: str = "orders", **options: Any) -> ErrorCode:
    (found,) = ask_all(logs, (topic, 0, timestamp), **options)
    assert (found.timestamp, found.offset) == (-1, -1)
    return ErrorCode(found.error_code.value)


@pytest.fixture
def logs() -> Logs:
    """One partition: offsets 0 to 2 of epoch 0, 3 to 6 of epoch 2, timestamps not in order."""
    logs = Logs()
    partition = logs.make("orders")
    append(partition, T + 10, T + 30, T + 20)
    partition.lead(placed(2), 1)
    append(partition, T + 40, T + 90, T + 50, codec=Codec.GZIP)
    append(partition, T + 60)
    return logs


@pytest.mark.parametrize("version", VERSIONS)
def test_both_ends_are_reported_in_every_version(logs: Logs, version: int) -> None:
    knows_epochs = version >= 4
    assert ask(logs, EARLIEST, version=version) == (-1, 0, 0 if knows_epochs else -1)
    assert ask(logs, LATEST, version=version) == (-1, 7, 2 if knows_epochs else -1)
    assert ask(logs, T + 25, version=version) == (T + 30, 1, 0 if knows_epochs else -1)


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [
        (0, (T + 10, 0, 0)),
        (T + 10, (T + 10, 0, 0)),
        (T + 11, (T + 30, 1, 0)),
        (T + 31, (T + 40, 3, 2)),
        (T + 41, (T + 90, 4, 2)),
        (T + 90, (T + 90, 4, 2)),
        (T + 91, (-1, -1, -1)),
        (2**63 - 1, (-1, -1, -1)),
    ],
)
def test_by_time_the_first_record_that_is_not_older_is_found(
    logs: Logs, timestamp: int, found: tuple[int, int, int]
) -> None:
    assert ask(logs, timestamp) == found


def test_the_special_timestamps_of_a_log_without_tiers(logs: Logs) -> None:
    """UnifiedLog.fetchOffsetByTimestamp: without remote storage local is all, and tiered is nothing."""
    assert ask(logs, MAX_TIMESTAMP) == (T + 90, 4, 2)
    assert ask(logs, EARLIEST_LOCAL) == (-1, 0, 0)
    assert ask(logs, LATEST_TIERED) == (-1, -1, -1)
    assert ask(logs, EARLIEST_PENDING) == (-1, -1, -1)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("timestamp", "since"),
    [
        (MAX_TIMESTAMP, 7),
        (EARLIEST_LOCAL, 8),
        (LATEST_TIERED, 9),
        (EARLIEST_PENDING, 11),
        (-7, 99),
        (-(2**63), 99),
    ],
)
def test_a_special_timestamp_younger_than_the_version_is_refused(
    logs: Logs, version: int, timestamp: int, since: int
) -> None:
    """ReplicaManager.isListOffsetsTimestampUnsupported."""
    (found,) = ask_all(logs, ("orders", 0, timestamp), version=version)
    expected = ErrorCode.NONE if version >= since else ErrorCode.UNSUPPORTED_VERSION
    assert found.error_code.value == expected


def test_an_empty_log_begins_where_it_ends_and_has_no_times() -> None:
    logs = Logs()
    logs.make("orders", epoch=5)
    assert ask(logs, EARLIEST) == (-1, 0, 5)
    assert ask(logs, LATEST) == (-1, 0, 5)
    assert ask(logs, MAX_TIMESTAMP) == (-1, -1, -1)
    assert ask(logs, 0) == (-1, -1, -1)


def test_consumers_get_nothing_above_the_high_watermark(logs: Logs) -> None:
    partition = logs.find("orders", 0)
    append(partition, T + 200, T + 300, is_visible=False)
    assert ask(logs, LATEST) == (-1, 7, 2)
    assert ask(logs, T + 100) == (-1, -1, -1)
    assert ask(logs, MAX_TIMESTAMP) == (-1, -1, -1)
    assert ask(logs, T + 55) == (T + 90, 4, 2)


def test_replicas_get_everything_up_to_the_log_end(logs: Logs) -> None:
    partition = logs.find("orders", 0)
    append(partition, T + 200, T + 300, is_visible=False)
    for replica in (3, -2):
        assert ask(logs, LATEST, replica=replica) == (-1, 9, 2)
        assert ask(logs, T + 100, replica=replica) == (T + 200, 7, 2)
        assert ask(logs, MAX_TIMESTAMP, replica=replica) == (T + 300, 8, 2)


def test_readers_of_committed_data_stop_at_an_open_transaction(logs: Logs) -> None:
    partition = logs.find("orders", 0)
    append(partition, T + 200, producer=(9, 0, 0), transactional=True)
    append(partition, T + 300)
    assert ask(logs, LATEST, level=0) == (-1, 9, 2)
    assert ask(logs, LATEST, level=1) == (-1, 7, 2)
    assert ask(logs, T + 100, level=0) == (T + 200, 7, 2)
    assert ask(logs, T + 100, level=1) == (-1, -1, -1)
    end_transaction(partition, 9, commit=True, coordinator_epoch=1)
    assert ask(logs, LATEST, level=1) == (-1, 10, 2)
    assert ask(logs, T + 100, level=1) == (T + 200, 7, 2)


def test_deleted_records_are_not_found(logs: Logs) -> None:
    logs.find("orders", 0).delete_records(4)
    assert ask(logs, EARLIEST) == (-1, 4, 2)
    assert ask(logs, 0) == (T + 90, 4, 2)


@pytest.mark.parametrize(
    ("version", "code"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
def test_a_leader_that_does_not_know_its_end_yet_says_so(logs: Logs, version: int, code: ErrorCode) -> None:
    """KIP-207: the high watermark is below the start of the leader's epoch."""
    partition = logs.find("orders", 0)
    partition.lead(placed(3, replicas=(1, 2)), 1)
    partition.high_watermark = 5
    assert refusal(logs, LATEST, version=version) == code
    assert refusal(logs, T + 91, version=version) == code
    assert ask(logs, EARLIEST, version=version)[1] == 0
    assert ask(logs, T + 55, version=version)[1] == 4
    assert ask(logs, LATEST, version=version, replica=3)[1] == 7
    assert ask(logs, LATEST_TIERED) == (-1, -1, -1)
    partition.high_watermark = 7
    assert ask(logs, LATEST, version=version)[1] == 7


def test_other_epochs_are_refused(logs: Logs) -> None:
    assert refusal(logs, LATEST, epoch=1) == ErrorCode.FENCED_LEADER_EPOCH
    assert refusal(logs, EARLIEST, epoch=3) == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert ask(logs, LATEST, epoch=2)[1] == 7


def test_partitions_that_are_not_here_get_their_own_codes(logs: Logs) -> None:
    codes = [
        found.error_code.value
        for found in ask_all(logs, ("orders", 0, LATEST), ("nope", 0, LATEST), ("elsewhere", 0, 5))
    ]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_partition_named_twice_is_refused_once(logs: Logs) -> None:
    logs.make("orders", 1)
    found = ask_all(logs, ("orders", 0, LATEST), ("orders", 1, LATEST), ("orders", 0, EARLIEST))
    assert [(each.partition_index, each.error_code.value) for each in found] == [
        (0, ErrorCode.INVALID_REQUEST),
        (1, ErrorCode.NONE),
    ]


def test_without_describe_a_topic_is_hidden(logs: Logs) -> None:
    for topic in ("orders", "nope"):
        assert refusal(logs, LATEST, topic, kind=Denying) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_disk_that_fails_is_reported_and_the_others_are_answered(logs: Logs) -> None:
    append(logs.make("orders", 1), T)
    logs.disk.fail("read", path="*orders-0*.log")
    broken, whole = ask_all(logs, ("orders", 0, T + 50), ("orders", 1, T))
    assert broken.error_code.value == ErrorCode.KAFKA_STORAGE_ERROR
    assert (whole.error_code.value, whole.offset) == (ErrorCode.NONE, 0)


def test_records_are_found_over_many_segments() -> None:
    logs = Logs(LogSettings(segment_bytes=1000, index_interval_bytes=100))
    partition = logs.make("orders")
    for i in range(60):
        append(partition, T + 10 * i, T + 10 * i + 5)
    assert len(partition.log.segments) > 5
    for i in range(60):
        assert ask(logs, T + 10 * i + 1) == (T + 10 * i + 5, 2 * i + 1, 0)


def test_a_request_for_many_partitions_lets_others_have_their_turn() -> None:
    logs = Logs()
    count = 2 * offsets.LOOKUPS_A_TURN + 5
    for number in range(count):
        append(logs.make("orders", number), T + number)
    wanted = [("orders", number, T) for number in range(count)]
    call = Call(Session("a", 1, "b"), 11, request(11, *wanted), response_builder(Api.LIST_OFFSETS, 11), None)
    answer = offsets.list_offsets(logs.context(), call)
    assert isinstance(answer, Promise)
    turns = 0
    while not answer.is_settled:
        turns += 1
        logs.world.step()
    assert turns == 2
    assert [topic.partitions[0].timestamp for topic in answer.value.topics] == [T + n for n in range(count)]


def test_the_ends_of_many_partitions_are_reported_at_once() -> None:
    logs = Logs()
    logs.make("orders")
    wanted = [("orders", number, LATEST) for number in range(1000)]
    call = Call(Session("a", 1, "b"), 11, request(11, *wanted), response_builder(Api.LIST_OFFSETS, 11), None)
    answer = offsets.list_offsets(logs.context(), call)
    assert len(answer.topics) == 1000


# -- OffsetForLeaderEpoch -----------------------------------------------------------------------------


def end_of(
    logs: Logs,
    epoch: int,
    *,
    topic: str = "orders",
    version: int = 4,
    current: int = -1,
    kind: type[Context] = Context,
) -> tuple[ErrorCode, int, int]:
    def make(kind: str, /, **values: Any) -> Any:
        return entity(Api.OFFSET_FOR_LEADER_EPOCH, version, kind, **values)

    wanted = make("OffsetForLeaderPartition", partition=0, current_leader_epoch=current, leader_epoch=epoch)
    reply = logs.ask(
        offsets.offset_for_leader_epoch,
        Api.OFFSET_FOR_LEADER_EPOCH,
        version,
        make(
            "OffsetForLeaderEpochRequest",
            replica_id=-1,
            topics=(make("OffsetForLeaderTopic", topic=topic, partitions=(wanted,)),),
        ),
        kind,
    )
    (found,) = reply.topics[0].partitions
    assert (reply.topics[0].topic, found.partition) == (topic, 0)
    return ErrorCode(found.error_code.value), found.leader_epoch, found.end_offset


@pytest.mark.parametrize("version", EPOCH_VERSIONS)
@pytest.mark.parametrize(
    ("epoch", "found"),
    [
        (0, (0, 3)),  # where the next one began
        (1, (0, 3)),  # the largest at or below
        (2, (2, 7)),  # the current one: the log end
        (3, (-1, -1)),  # not heard of yet
        (-1, (-1, -1)),
    ],
)
def test_an_epoch_ends_where_the_next_began(
    logs: Logs, version: int, epoch: int, found: tuple[int, int]
) -> None:
    """LeaderEpochFileCache.endOffsetFor; KIP-279."""
    assert end_of(logs, epoch, version=version) == (ErrorCode.NONE, *found)


def test_the_current_epoch_ends_at_the_log_end_not_at_the_high_watermark(logs: Logs) -> None:
    append(logs.find("orders", 0), T + 100, is_visible=False)
    assert end_of(logs, 2) == (ErrorCode.NONE, 2, 8)


def test_an_epoch_from_before_the_log_ended_where_the_log_begins() -> None:
    logs = Logs()
    partition = logs.make("orders", epoch=4)
    append(partition, T, T)
    partition.delete_records(1)
    assert end_of(logs, 2) == (ErrorCode.NONE, 2, 1)


def test_epochs_are_returned_only_for_the_right_leader_epoch(logs: Logs) -> None:
    assert end_of(logs, 0, current=1) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert end_of(logs, 0, current=3) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert end_of(logs, 0, current=2) == (ErrorCode.NONE, 0, 3)
    assert end_of(logs, 0, topic="nope") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert end_of(logs, 0, topic="elsewhere") == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)
    assert end_of(logs, 0, kind=Denying) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, -1)
