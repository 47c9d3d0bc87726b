"""A partition: staged, written, synced; and who is told when."""

import pytest
from tests.placing import placed
from tests.replica.leaders import TOPIC_ID, Waiting, new_log
from tests.worlds import START_MS, StillWorld

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.settings import LogSettings
from penstock.records import build_batch, end_txn_marker
from penstock.replica.delayed_operations import ALL_IN_SYNC, Durability
from penstock.replica.partition import Partition
from penstock.replica.sync_lane import SyncLane
from penstock.storage import Appended, Origin
from penstock.vfs import FaultyDisk, MemoryDisk


class Reader:
    def __init__(self) -> None:
        self.bytes_more = 0
        self.changes = 0
        self.decisions = 0

    def decided(self) -> None:
        self.decisions += 1

    def grew(self, bytes_more: int) -> None:
        self.bytes_more += bytes_more

    def changed(self) -> None:
        self.changes += 1


class Stage:
    """A partition, its world, and the end of the turn."""

    def __init__(
        self,
        settings: LogSettings | None = None,
        durability: Durability = Durability.ALONE,
        in_sync: int = 1,
        min_isr: int = 1,
    ) -> None:
        self.world = StillWorld()
        self.disk = FaultyDisk(MemoryDisk())
        log = new_log(self.disk, settings)
        self.lane = SyncLane(self.world)
        self.partition = Partition(log, TOPIC_ID, self.world, self.lane, durability, self.world.call_soon)
        self.partition.lead(placed(3, replicas=range(1, in_sync + 1)), min_isr)
        self.others = range(2, in_sync + 1)

    def replicate(self) -> None:
        """Let the other replicas have what is written."""
        for each in self.others:
            self.partition.fetched_by(each, -1, self.partition.log.log_end, 0, 0)

    def produce(self, acks: int, *, count: int = 1, producer: int = -1, timeout_ms: int = 1000) -> Waiting:
        records = [(b"k", b"v%d" % n, START_MS) for n in range(count)]
        if producer < 0:
            batch = build_batch(records)
        else:
            batch = build_batch(records, producer_id=producer, producer_epoch=0, base_sequence=0)
        appended = self.partition.stage(memoryview(bytearray(batch)), acks, self.world.now_ms())
        waiting = Waiting(appended, acks, self.world.now_ms() + timeout_ms)
        self.partition.wait(waiting)
        return waiting


@pytest.mark.parametrize("acks", [0, 1])
def test_a_write_that_asks_for_no_more_is_settled_when_it_is_written(acks: int) -> None:
    stage = Stage()
    waiting = stage.produce(acks)
    assert waiting.answers == []
    stage.world.advance(0)
    assert waiting.answers == [None]
    assert stage.world.works == 0


@pytest.mark.parametrize(
    ("durability", "in_sync", "synced"),
    [
        (Durability.ALONE, 1, True),
        (Durability.ALONE, 2, False),
        (Durability.ALWAYS, 1, True),
        (Durability.ALWAYS, 2, True),
        (Durability.NEVER, 1, False),
        (Durability.NEVER, 2, False),
    ],
)
def test_acks_all_waits_for_the_disk_as_durability_says(
    durability: Durability, in_sync: int, synced: bool
) -> None:
    stage = Stage(durability=durability, in_sync=in_sync)
    waiting = stage.produce(ALL_IN_SYNC)
    stage.world.advance(0)
    stage.replicate()
    assert waiting.answers == ([] if synced else [None])
    assert stage.partition.high_watermark == 1, "readers do not wait for the disk"

    stage.world.advance(1)
    assert waiting.answers == [None]
    assert stage.partition.log.flushed == (1 if synced else 0)


def test_one_sync_is_for_all_that_were_written_before_it_began() -> None:
    stage = Stage()
    first = stage.produce(ALL_IN_SYNC)
    stage.world.advance(0)
    later = [stage.produce(ALL_IN_SYNC) for _ in range(10)]
    stage.world.advance(0)
    assert stage.world.works == 1, "the sync that runs is for the first alone"

    stage.world.advance(1)
    assert first.answers == [None]
    assert [each.answers for each in later] == [[]] * 10
    stage.world.advance(1)
    assert [each.answers for each in later] == [[None]] * 10
    assert stage.world.works == 0


def test_flush_messages_syncs_whatever_acks_says() -> None:
    stage = Stage(LogSettings(flush_messages=2), Durability.NEVER)
    first = stage.produce(1)
    stage.world.advance(0)
    assert first.answers == [None]
    second = stage.produce(1)
    stage.world.advance(0)
    assert second.answers == []
    stage.world.advance(1)
    assert second.answers == [None]
    assert stage.partition.log.flushed == 2


def test_flush_ms_syncs_in_time() -> None:
    stage = Stage(LogSettings(flush_ms=500), Durability.NEVER)
    stage.produce(1)
    stage.world.advance(499)
    assert stage.partition.log.flushed == 0
    stage.world.advance(2)
    assert stage.partition.log.flushed == 1


def test_a_failed_write_fails_all_of_its_turn_and_nothing_else() -> None:
    stage = Stage()
    before = stage.produce(1)
    stage.world.advance(0)
    stage.disk.fail("write", path="*.log", times=1)
    failed = [stage.produce(1), stage.produce(ALL_IN_SYNC)]
    stage.world.advance(5)
    after = stage.produce(1)
    stage.world.advance(5)

    assert before.answers == [None]
    assert [each.answers for each in failed] == [[ErrorCode.KAFKA_STORAGE_ERROR]] * 2
    assert after.answers == [None]
    assert after.appended.base_offset == 1, "the offsets of what failed are given again"
    assert stage.partition.high_watermark == 2


def test_a_failed_sync_acknowledges_nothing_and_the_next_one_may_succeed() -> None:
    stage = Stage()
    stage.disk.fail("sync", path="*.log", times=1)
    failed = stage.produce(ALL_IN_SYNC)
    stage.world.advance(0)
    behind = stage.produce(ALL_IN_SYNC)
    stage.world.advance(10)

    assert failed.answers == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert behind.answers == [None]
    assert stage.partition.log.flushed == 2


def test_a_batch_for_which_a_segment_cannot_be_begun_takes_down_what_was_staged_before_it() -> None:
    """And what is staged after it gets the offsets anew: nobody is told an offset that another has."""
    stage = Stage(LogSettings(segment_bytes=1000))
    waiting = [stage.produce(1, count=10) for _ in range(6)]
    stage.world.advance(0)
    stage.disk.fail("open", path="*.log", times=1)
    refused: list[ErrorCode] = []
    for _ in range(12):
        try:
            waiting.append(stage.produce(1, count=10))
        except KafkaError as error:
            refused.append(error.code)
    stage.world.advance(5)

    told = [each.appended.base_offset for each in waiting if each.answers == [None]]
    assert refused == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert all(len(each.answers) == 1 for each in waiting)
    assert told == list(range(0, 10 * len(told), 10)), "each offset once"
    assert stage.partition.log.log_end == 10 * len(told)


def test_a_retry_is_settled_with_its_first_copy() -> None:
    stage = Stage()
    first = stage.produce(ALL_IN_SYNC, producer=7)
    retry = stage.produce(ALL_IN_SYNC, producer=7)
    assert retry.appended.is_duplicate
    stage.world.advance(0)
    assert (first.answers, retry.answers) == ([], [])
    stage.world.advance(1)
    assert (first.answers, retry.answers) == ([None], [None])
    assert stage.partition.log.log_end == 1


def test_too_few_replicas_in_sync_refuse_acks_all_alone() -> None:
    stage = Stage()
    stage.partition.lead(placed(4, replicas=(1, 2), isr=(1,)), 2)
    with pytest.raises(KafkaError, match="has 1 replicas in sync, 2 are needed") as caught:
        stage.produce(ALL_IN_SYNC)
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert stage.produce(1).appended.base_offset == 0


def test_a_partition_with_fewer_replicas_than_must_be_in_sync_needs_all_of_them() -> None:
    """Kafka's `Partition.effectiveMinIsr`."""
    stage = Stage(in_sync=1, min_isr=2)
    waiting = stage.produce(ALL_IN_SYNC)
    stage.world.advance(10)
    assert waiting.answers == [None]


def test_a_request_that_times_out_on_a_slow_disk_gets_an_error() -> None:
    stage = Stage()
    stage.world.beside_ms = 1000
    hasty, patient = stage.produce(ALL_IN_SYNC, timeout_ms=150), stage.produce(ALL_IN_SYNC, timeout_ms=5000)
    stage.world.advance(500)
    assert hasty.answers == [ErrorCode.REQUEST_TIMED_OUT]
    assert patient.answers == []
    stage.world.advance(600)
    assert hasty.answers == [ErrorCode.REQUEST_TIMED_OUT]
    assert patient.answers == [None]


def test_readers_hear_of_what_they_can_see_and_of_its_end() -> None:
    stage = Stage()
    reader = Reader()
    stage.partition.watch(reader)
    stage.produce(1)
    assert reader.bytes_more == 0
    stage.world.advance(0)
    assert reader.bytes_more == stage.partition.log.size_bytes > 0
    stage.partition.delete_records(-1)
    assert reader.changes == 1
    stage.partition.step_down(KafkaError("gone", ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert reader.changes == 2


def test_stepping_down_fails_all_waiting_requests() -> None:
    stage = Stage()
    syncing = stage.produce(ALL_IN_SYNC)
    stage.world.advance(0)
    unwritten = stage.produce(1)
    stage.partition.step_down(KafkaError("gone", ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert syncing.answers == unwritten.answers == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    stage.world.advance(5)
    assert syncing.answers == unwritten.answers == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_what_was_not_written_before_stepping_down_never_is() -> None:
    """Its bytes are a connection's, which receives other requests into them."""
    stage = Stage()
    stage.produce(1)
    stage.world.advance(0)
    batch = bytearray(
        build_batch([(b"k", b"late", START_MS)], producer_id=7, producer_epoch=0, base_sequence=0)
    )
    stage.partition.stage(memoryview(batch), 0, stage.world.now_ms())
    stage.partition.step_down(KafkaError("gone", ErrorCode.NOT_LEADER_OR_FOLLOWER))
    batch[:] = b"?" * len(batch)
    stage.world.advance(5)
    log = stage.partition.log
    log.checkpoint(is_last=True)
    assert [each.base_offset for each in log.batches()] == [0]
    assert not log.producers.by_id
    stage.partition.lead(placed(4), 1)
    again = stage.produce(1)
    stage.world.advance(0)
    assert again.appended.base_offset == 1
    assert again.answers == [None]


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(-1, None), (3, None), (2, ErrorCode.FENCED_LEADER_EPOCH), (4, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_epochs_are_checked_as_kip_320_says(epoch: int, code: ErrorCode | None) -> None:
    stage = Stage()
    if code is None:
        stage.partition.check_epoch(epoch)
        return
    with pytest.raises(KafkaError) as caught:
        stage.partition.check_epoch(epoch)
    assert caught.value.code is code


@pytest.mark.parametrize(("offset", "start"), [(-1, 3), (0, 0), (2, 2), (3, 3)])
def test_records_are_deleted_up_to_the_high_watermark(offset: int, start: int) -> None:
    stage = Stage()
    stage.produce(1, count=3)
    stage.world.advance(0)
    assert stage.partition.delete_records(offset) == start


@pytest.mark.parametrize("offset", [-2, 4])
def test_records_that_are_not_there_cannot_be_deleted(offset: int) -> None:
    stage = Stage()
    stage.produce(1, count=3)
    stage.world.advance(0)
    with pytest.raises(KafkaError) as caught:
        stage.partition.delete_records(offset)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_lane_knows_when_nothing_runs() -> None:
    stage = Stage()
    calls: list[int] = []
    stage.lane.when_idle(lambda: calls.append(1))
    assert calls == [1]
    stage.produce(ALL_IN_SYNC)
    stage.world.advance(0)
    stage.lane.when_idle(lambda: calls.append(2))
    assert calls == [1]
    stage.world.advance(1)
    assert calls == [1, 2]


def test_readers_continue_when_a_transaction_ends() -> None:
    stage = Stage()
    reader = Reader()
    stage.partition.watch(reader)
    batch = build_batch(
        [(None, b"v", START_MS)], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    stage.partition.stage(memoryview(bytearray(batch)), 1, START_MS)
    stage.world.advance()
    assert (reader.bytes_more, reader.decisions) == (len(batch), 0)
    marker = end_txn_marker(7, 0, True, 0, START_MS)
    stage.partition.stage(memoryview(bytearray(marker)), 1, START_MS, Origin.COORDINATOR)
    assert stage.partition.last_stable == 0
    stage.world.advance()
    assert (reader.bytes_more, reader.decisions) == (len(batch), 1)
    assert stage.partition.last_stable == 2


@pytest.mark.parametrize("durability", [Durability.ALONE, Durability.NEVER])
def test_what_is_in_the_log_already_can_be_waited_for(durability: Durability) -> None:
    stage = Stage(durability=durability)
    stage.partition.stage(memoryview(bytearray(build_batch([(None, b"v", START_MS)]))), 1, START_MS)
    stage.world.advance()
    assert stage.partition.log.flushed == 0
    writer = Waiting(Appended(0, 0), ALL_IN_SYNC, START_MS + 1000)
    stage.partition.wait_for_written(writer)
    stage.world.advance(10)
    assert writer.answers == [None]
    assert stage.partition.log.flushed == (1 if durability is Durability.ALONE else 0)
