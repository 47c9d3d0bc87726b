"""DeleteRecords, DescribeLogDirs and DescribeProducers."""

from datetime import timedelta
from typing import Any, cast

import pytest
from tests.handlers.logs import Denying, Logs, append, end_transaction, entity
from tests.placing import placed
from tests.worlds import START_MS

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TopicPartition
from penstock.base.settings import LogSettings
from penstock.handlers import log_admin
from penstock.handlers.support.context import Context
from penstock.metadata.image import Broker, ClusterImage
from penstock.metadata.maps import FrozenMap
from penstock.replica.delayed_operations import Durability
from penstock.replica.isr_changes import IsrChanges
from penstock.replica.partition import Partition
from penstock.replica.sync_lane import SyncLane
from penstock.wire import KAFKA_RANGES, Api

T = START_MS


def versions_of(api: Api) -> range:
    return range(KAFKA_RANGES[api].min, KAFKA_RANGES[api].max + 1)


@pytest.fixture
def logs() -> Logs:
    logs = Logs()
    partition = logs.make("orders")
    for i in range(5):
        append(partition, T + i, T + i)
    return logs


# -- DeleteRecords ------------------------------------------------------------------------------------


def delete(
    logs: Logs, *wanted: tuple[str, int, int], version: int = 2, kind: type[Context] = Context
) -> list[tuple[ErrorCode, int]]:
    """Code and low watermark of each partition asked about."""
    api = Api.DELETE_RECORDS
    topics = tuple(
        entity(
            api,
            version,
            "DeleteRecordsTopic",
            name=topic,
            partitions=(
                entity(api, version, "DeleteRecordsPartition", partition_index=number, offset=offset),
            ),
        )
        for topic, number, offset in wanted
    )
    request = entity(api, version, "DeleteRecordsRequest", topics=topics, timeout=timedelta(seconds=1))
    reply = logs.ask(log_admin.delete_records, api, version, request, kind)
    return [
        (ErrorCode(each.error_code.value), each.low_watermark)
        for topic in reply.topics
        for each in topic.partitions
    ]


@pytest.mark.parametrize("version", versions_of(Api.DELETE_RECORDS))
def test_a_partition_begins_at_the_offset_asked_for(logs: Logs, version: int) -> None:
    assert delete(logs, ("orders", 0, 3), version=version) == [(ErrorCode.NONE, 3)]
    assert logs.find("orders", 0).log.log_start == 3


def test_records_are_not_brought_back_and_all_can_go(logs: Logs) -> None:
    assert delete(logs, ("orders", 0, 4)) == [(ErrorCode.NONE, 4)]
    assert delete(logs, ("orders", 0, 2)) == [(ErrorCode.NONE, 4)]
    assert delete(logs, ("orders", 0, -1)) == [(ErrorCode.NONE, 10)]
    assert logs.find("orders", 0).log.log_start == 10


@pytest.mark.parametrize("offset", [11, 2**63 - 1, -2, -(2**63)])
def test_an_offset_that_is_not_there_is_refused(logs: Logs, offset: int) -> None:
    assert delete(logs, ("orders", 0, offset)) == [(ErrorCode.OFFSET_OUT_OF_RANGE, -1)]
    assert logs.find("orders", 0).log.log_start == 0


def test_what_is_not_committed_is_not_deleted(logs: Logs) -> None:
    partition = logs.find("orders", 0)
    append(partition, T, is_visible=False)
    assert delete(logs, ("orders", 0, 11)) == [(ErrorCode.OFFSET_OUT_OF_RANGE, -1)]
    assert delete(logs, ("orders", 0, -1)) == [(ErrorCode.NONE, 10)]


def test_each_partition_is_refused_for_its_own_reason(logs: Logs) -> None:
    logs.make("__consumer_offsets")
    compacted = logs.make("table")
    compacted.log.configure(LogSettings(cleanup_policy=("compact",)))
    both = logs.make("both")
    both.log.configure(LogSettings(cleanup_policy=("compact", "delete")))
    assert delete(
        logs,
        ("__consumer_offsets", 0, 0),
        ("table", 0, 0),
        ("both", 0, 0),
        ("nope", 0, 0),
        ("elsewhere", 0, 0),
        ("orders", 0, 1),
    ) == [
        (ErrorCode.INVALID_TOPIC_EXCEPTION, -1),
        (ErrorCode.POLICY_VIOLATION, -1),
        (ErrorCode.NONE, 0),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        (ErrorCode.NONE, 1),
    ]
    assert (
        delete(logs, ("orders", 0, 2), ("nope", 0, 2), kind=Denying)
        == [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)] * 2
    )
    assert logs.find("orders", 0).log.log_start == 1


def test_all_of_a_request_is_durable_with_one_write(logs: Logs) -> None:
    for number in range(1, 50):
        append(logs.make("orders", number), T, T, T)
    memory = logs.disk.inner
    syncs = memory.sync_count  # type: ignore[attr-defined]
    assert delete(logs, *(("orders", number, 2) for number in range(50))) == [(ErrorCode.NONE, 2)] * 50
    assert memory.sync_count - syncs <= 2  # type: ignore[attr-defined]


def test_a_partition_named_twice_begins_at_the_larger_offset(logs: Logs) -> None:
    assert delete(logs, ("orders", 0, 5), ("orders", 0, 3)) == [(ErrorCode.NONE, 5)] * 2


def test_a_disk_that_fails_deletes_nothing(logs: Logs) -> None:
    logs.disk.fail("sync", path="*log-start-offset-checkpoint*", times=1)
    assert delete(logs, ("orders", 0, 3)) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]
    assert logs.find("orders", 0).log.log_start == 0
    assert delete(logs, ("orders", 0, 3)) == [(ErrorCode.NONE, 3)]


# -- DescribeLogDirs ----------------------------------------------------------------------------------


def describe_dirs(
    logs: Logs,
    wanted: dict[str, tuple[int, ...]] | None,
    *,
    version: int = 5,
    kind: type[Context] = Context,
) -> Any:
    api = Api.DESCRIBE_LOG_DIRS
    topics = wanted and tuple(
        entity(api, version, "DescribableLogDirTopic", topic=topic, partitions=numbers)
        for topic, numbers in wanted.items()
    )
    request = entity(
        api, version, "DescribeLogDirsRequest", topics=topics if wanted is None else topics or ()
    )
    return logs.ask(log_admin.describe_log_dirs, api, version, request, kind)


def sizes(reply: Any) -> dict[tuple[str, int], tuple[int, int]]:
    """Size and lag of each log told."""
    return {
        (topic.name, each.partition_index): (each.partition_size, each.offset_lag)
        for result in reply.results
        for topic in result.topics
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", versions_of(Api.DESCRIBE_LOG_DIRS))
def test_all_logs_are_reported_with_size_and_lag(logs: Logs, version: int) -> None:
    logs.make("orders", 1)
    reply = describe_dirs(logs, None, version=version)
    size = logs.find("orders", 0).log.size_bytes
    assert size > 500
    assert sizes(reply) == {("orders", 0): (size, 0), ("orders", 1): (0, 0)}
    (result,) = reply.results
    assert result.log_dir == "/data/logs"
    assert result.error_code.value == ErrorCode.NONE
    assert not any(each.is_future_key for topic in result.topics for each in topic.partitions)
    if version >= 4:
        usage = logs.disk.usage("/data/logs")
        assert (result.total_bytes, result.usable_bytes) == usage
    if version >= 5:
        assert not result.is_cordoned


def test_only_the_logs_asked_for_are_reported(logs: Logs) -> None:
    logs.make("orders", 1)
    logs.make("other")
    assert list(sizes(describe_dirs(logs, {"orders": (1, 7, 1), "nope": (0,)}))) == [("orders", 1)]
    assert sizes(describe_dirs(logs, {})) == {}
    assert len(describe_dirs(logs, {}).results) == 1


def test_a_log_that_no_replica_uses_has_no_lag(logs: Logs) -> None:
    logs.directory.create(TopicPartition("stray", 0), now_ms=T)
    assert sizes(describe_dirs(logs, None))["stray", 0] == (0, -1)


def test_a_directory_that_cannot_be_looked_at_is_reported_as_such(logs: Logs) -> None:
    logs.disk.fail("usage")
    (result,) = describe_dirs(logs, None).results
    assert result.error_code.value == ErrorCode.KAFKA_STORAGE_ERROR
    assert (result.topics, result.total_bytes, result.usable_bytes) == ((), -1, -1)


def test_without_describe_of_the_cluster_directories_are_hidden(logs: Logs) -> None:
    for version in versions_of(Api.DESCRIBE_LOG_DIRS):
        reply = describe_dirs(logs, None, version=version, kind=Denying)
        assert reply.results == ()
        if version >= 3:
            assert reply.error_code.value == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


# -- DescribeProducers --------------------------------------------------------------------------------


def producers(logs: Logs, *wanted: tuple[str, int], kind: type[Context] = Context) -> list[Any]:
    api = Api.DESCRIBE_PRODUCERS
    topics = tuple(
        entity(api, 0, "TopicRequest", name=topic, partition_indexes=(number,)) for topic, number in wanted
    )
    request = entity(api, 0, "DescribeProducersRequest", topics=topics)
    reply = logs.ask(log_admin.describe_producers, api, 0, request, kind)
    return [each for topic in reply.topics for each in topic.partitions]


def state(found: Any) -> tuple[int, ...]:
    return (
        found.producer_id,
        found.producer_epoch,
        found.last_sequence,
        found.last_timestamp,
        found.coordinator_epoch,
        found.current_txn_start_offset,
    )


def test_every_producer_is_reported_with_its_open_transaction(logs: Logs) -> None:
    partition = logs.find("orders", 0)
    append(partition, T + 1, T + 2, producer=(7, 3, 0))
    append(partition, T + 5, producer=(7, 3, 2))
    append(partition, T + 6, producer=(5, 0, 0), transactional=True)
    append(partition, T + 7, producer=(5, 0, 1), transactional=True)
    (found,) = producers(logs, ("orders", 0))
    assert (found.error_code.value, found.error_message) == (ErrorCode.NONE, None)
    assert [state(each) for each in found.active_producers] == [
        (5, 0, 1, T + 7, -1, 13),
        (7, 3, 2, T + 5, -1, -1),
    ]
    end_transaction(partition, 5, commit=False, coordinator_epoch=8)
    (found,) = producers(logs, ("orders", 0))
    assert state(found.active_producers[0]) == (5, 0, 1, T, 8, -1)


def test_producers_of_partitions_that_are_not_led_here_are_left_out(logs: Logs) -> None:
    found = producers(logs, ("orders", 0), ("nope", 0), ("elsewhere", 0))
    assert [each.error_code.value for each in found] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ]
    assert found[1].error_message == "there is no partition nope-0"
    for name in ("a b", ".", ""):
        (found,) = producers(logs, (name, 0))
        assert found.error_code.value == ErrorCode.INVALID_TOPIC_EXCEPTION
    (found,) = producers(logs, ("orders", 0), kind=Denying)
    assert found.error_code.value == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert found.active_producers == ()


class TestReplicatedPartitions:
    """Records are deleted when every replica that is alive begins behind them."""

    def replicated(self) -> tuple[Logs, Partition]:
        logs = Logs()
        name = TopicPartition("orders", 0)
        image = ClusterImage(
            brokers=FrozenMap({each: Broker(each, each, bytes(16), fenced=False) for each in (1, 2)})
        )
        changes = IsrChanges(logs.world, cast(Any, None), 1, lambda: 1, lambda: image, 30_000)
        partition = Partition(
            logs.directory.create(name, now_ms=T),
            bytes(16),
            logs.world,
            SyncLane(logs.world),
            Durability.NEVER,
            logs.world.call_soon,
            changes,
        )
        partition.lead(placed(replicas=(1, 2)), 1)
        logs.partitions[name] = partition
        append(partition, T, T, T, T, T)
        partition.fetched_by(2, 2, 5, 0, 0)
        return logs, partition

    def test_a_follower_that_has_not_deleted_them_is_waited_for(self) -> None:
        logs, partition = self.replicated()
        logs.world.call_later(300, lambda: partition.fetched_by(2, 2, 5, 3, 0))
        began_ms = logs.world.now_ms()
        assert delete(logs, ("orders", 0, 3)) == [(ErrorCode.NONE, 3)]
        assert logs.world.now_ms() - began_ms == 300

    def test_a_follower_that_takes_too_long_is_not(self) -> None:
        logs, partition = self.replicated()
        assert delete(logs, ("orders", 0, 3)) == [(ErrorCode.REQUEST_TIMED_OUT, -1)]
        assert partition.log.log_start == 3, "here they are gone"

    def test_who_leads_no_more_says_so(self) -> None:
        logs, partition = self.replicated()
        gone = KafkaError("led elsewhere", ErrorCode.NOT_LEADER_OR_FOLLOWER)
        logs.world.call_later(100, lambda: partition.follow(2, 1, gone))
        assert delete(logs, ("orders", 0, 3)) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]


def test_a_follower_is_as_far_behind_as_its_leader_said(logs: Logs) -> None:
    partition = logs.find("orders", 0)
    gone = KafkaError("led elsewhere", ErrorCode.NOT_LEADER_OR_FOLLOWER)
    partition.follow(2, 5, gone)
    partition.follow_high_watermark(partition.log.log_end + 40, 0)
    assert sizes(describe_dirs(logs, None))["orders", 0][1] == 40
