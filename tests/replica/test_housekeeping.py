"""What the clock brings, in a world whose clock stands still until it is told to go."""

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from tests.placing import placed
from tests.storage.world import files_of
from tests.worlds import START_MS, StillWorld

from penstock.base.ids import TopicPartition
from penstock.base.settings import LogSettings
from penstock.metadata.configs import BrokerSettings
from penstock.metadata.image import EMPTY
from penstock.records import build_batch
from penstock.replica.delayed_operations import Durability
from penstock.replica.housekeeping import PRODUCER_CHECK_INTERVAL_MS, REMOVAL_RETRY_MS, Housekeeping
from penstock.replica.partition import Partition
from penstock.replica.sync_lane import SyncLane
from penstock.storage import Log, LogDirectory, open_directory
from penstock.storage.checkpoints import decode_offsets
from penstock.vfs import FaultyDisk, MemoryDisk, read_file

P = TopicPartition("orders", 0)
MINUTE = 60_000
SMALL = LogSettings(segment_bytes=1000, index_interval_bytes=100, retention_ms=-1)
TABLE = LogSettings(
    segment_bytes=1000,
    cleanup_policy=("compact",),
    min_cleanable_dirty_ratio=0.01,
    file_delete_delay_ms=5000,
)


class House:
    """A node's logs and their housekeeping."""

    def __init__(self, settings: LogSettings = SMALL, disk: MemoryDisk | None = None, **broker: str) -> None:
        self.memory = disk or MemoryDisk()
        self.disk = FaultyDisk(self.memory)
        self.world = StillWorld()
        self.directory: LogDirectory = open_directory(
            self.disk, "/data", now_ms=START_MS, rng=Random(1), settings_of=lambda _: settings
        )
        self.lane = SyncLane(self.world)
        self.partitions: dict[TopicPartition, Partition] = {}
        for name in self.directory.logs:
            self.lead(name)
        static = {name.replace("_", "."): value for name, value in broker.items()}
        replicas: Any = SimpleNamespace(partitions=self.partitions, lane=self.lane)
        self.keeping = Housekeeping(
            self.world, self.directory, replicas, BrokerSettings(1, static), lambda: EMPTY
        )

    def make(self, name: TopicPartition = P) -> Log:
        self.directory.create(name, now_ms=START_MS)
        return self.lead(name)

    def lead(self, name: TopicPartition) -> Log:
        log = self.directory.logs[name]
        partition = Partition(log, bytes(16), self.world, self.lane, Durability.NEVER, self.world.call_soon)
        partition.lead(placed(), 1)
        self.partitions[name] = partition
        return log

    def delete(self, name: TopicPartition = P) -> None:
        del self.partitions[name]
        self.directory.delete(name, Random(2)).run()

    def write(self, log: Log, count: int = 1, *, keys: int = 1, start: int = 0, producer: int = -1) -> None:
        """Batches of one record, as old as the world is now, each key in its turn."""
        for i in range(start, start + count):
            options = (
                {"producer_id": producer, "producer_epoch": 0, "base_sequence": i} if producer >= 0 else {}
            )
            record = (b"%d" % (i % keys), b"v%d" % i + bytes(80), self.world.now_ms())
            log.append(
                bytearray(build_batch([record], **options)),  # type: ignore[arg-type]
                leader_epoch=0,
                now_ms=self.world.now_ms(),
            )
        self.partitions[log.partition].high_watermark = log.log_end

    def offsets(self, name: str) -> dict[TopicPartition, int]:
        """A checkpoint file, as any power cut now would leave it."""
        path = f"/data/logs/{name}"
        if self.memory.stat(path) is None:
            return {}
        found = read_file(self.memory, path)
        for seed in range(8):
            assert read_file(self.memory.crash_clone(Random(seed)), path) == found
        return decode_offsets(found, path)

    def files(self, suffix: str, name: TopicPartition = P) -> list[str]:
        return [
            entry.name
            for entry in self.disk.list_dir(self.directory.path_of(name))
            if entry.name.endswith(suffix)
        ]


def values(log: Log) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for batch in log.batches() for record in batch.records()}


def latest_offsets(log: Log, below: int = 1 << 62) -> dict[bytes | None, int]:
    """By key, the offset of its latest record below an offset."""
    return {
        record.key: record.offset
        for batch in log.batches()
        for record in batch.records()
        if record.offset < below
    }


# -- retention ----------------------------------------------------------------------------------------


def test_old_segments_go_when_retention_looks_and_their_files_later() -> None:
    house = House(
        LogSettings(segment_bytes=1000, retention_ms=10 * MINUTE, file_delete_delay_ms=30_000),
        log_retention_check_interval_ms=str(MINUTE),
    )
    log = house.make()
    house.write(log, 30)
    house.world.advance(10 * MINUTE)
    house.write(log, 3)
    house.keeping.start()
    house.world.advance(MINUTE - 1)
    assert log.log_start == 0
    house.world.advance(1000)
    assert 0 < log.log_start <= 30
    assert log.segments[0].base_offset == log.log_start
    assert house.files(".log.deleted")
    house.world.advance(30_000)
    assert not house.files(".deleted")
    assert not house.files(".tomb")
    assert house.offsets("log-start-offset-checkpoint")[P] == log.log_start
    found = House(disk=house.memory.crash_clone(Random(5))).directory.logs[P]
    assert (found.log_start, found.log_end) == (log.log_start, 33)


def test_nothing_above_the_high_watermark_is_deleted() -> None:
    house = House(LogSettings(segment_bytes=1000, retention_bytes=0))
    log = house.make()
    house.write(log, 40)
    house.partitions[P].high_watermark = 11
    house.keeping.start()
    house.world.advance(6 * MINUTE)
    assert 0 < log.log_start <= 11


def test_a_log_that_no_replica_uses_is_left_alone() -> None:
    house = House(LogSettings(segment_bytes=1000, retention_bytes=0))
    log = house.make()
    house.write(log, 40)
    house.partitions.clear()
    house.keeping.start()
    house.world.advance(6 * MINUTE)
    assert log.log_start == 0


def test_retention_of_many_segments_lets_others_have_their_turn() -> None:
    house = House(LogSettings(segment_bytes=1000, retention_bytes=0, file_delete_delay_ms=0))
    log = house.make()
    house.write(log, 300)
    count = len(log.segments)
    assert count > 30
    house.keeping.start()
    house.world.run_until(lambda: log.log_start > 0)
    assert len(log.segments) >= count - 4
    house.world.advance(100)
    assert len(log.segments) == 1
    house.world.advance(MINUTE)
    assert len(house.files(".log")) == 1


def test_retention_does_not_sync_logs_on_the_loop() -> None:
    """The recovery point is past what goes, because a checkpoint beside the loop brought it there first."""
    house = House(
        LogSettings(segment_bytes=1000, retention_bytes=0),
        log_flush_offset_checkpoint_interval_ms=str(60 * MINUTE),
    )
    log = house.make()
    house.write(log, 60)
    on_loop: list[str] = []
    is_beside = False
    run = house.world.beside

    def beside(work: Any, done: Any) -> None:
        def watched() -> Any:
            nonlocal is_beside
            is_beside = True
            try:
                return work()
            finally:
                is_beside = False

        run(watched, done)

    house.world.beside = beside  # type: ignore[method-assign]
    house.memory.on_sync = lambda path: None if is_beside else on_loop.append(path)
    house.keeping.start()
    house.world.advance(6 * MINUTE)
    assert log.log_start > 50
    allowed = (".tomb", "/orders-0", "log-start-offset-checkpoint.tmp", "/data/logs")
    assert [path for path in on_loop if not path.endswith(allowed)] == []


def test_files_that_cannot_be_removed_are_tried_again() -> None:
    house = House(LogSettings(segment_bytes=1000, retention_bytes=0, file_delete_delay_ms=1000))
    log = house.make()
    house.write(log, 40)
    house.keeping.start()
    rule = house.disk.fail("remove", path="*.deleted", times=1)
    house.world.run_until(lambda: rule.hits == 1)
    assert house.files(".deleted")
    house.world.advance(REMOVAL_RETRY_MS + 1000)
    assert not house.files(".deleted")


def test_a_disk_that_fails_stops_no_retention_for_good() -> None:
    house = House(LogSettings(segment_bytes=1000, retention_bytes=0))
    log = house.make()
    other = house.make(TopicPartition("other", 0))
    house.write(log, 40)
    house.write(other, 40)
    house.disk.fail("open", path="*orders-0/*.tomb", times=1)
    house.keeping.start()
    house.world.advance(6 * MINUTE)
    assert other.log_start > 30
    house.write(log, 40)
    house.world.advance(6 * MINUTE)
    assert log.log_start > 70


# -- checkpoints --------------------------------------------------------------------------------------


def test_recovery_points_are_noted_every_minute_and_bear_a_power_cut() -> None:
    house = House()
    log = house.make()
    house.write(log, 30)
    house.keeping.start()
    house.world.advance(MINUTE - 1)
    assert house.offsets("recovery-point-offset-checkpoint").get(P, 0) == 0
    house.world.advance(1000)
    assert log.recovery_point.offset == log.flushed == 30
    assert house.offsets("recovery-point-offset-checkpoint") == {P: 30}
    files = files_of(house.memory)
    for seed in range(8):
        clone = house.memory.crash_clone(Random(seed))
        assert files_of(clone) == files
        found = House(disk=clone)
        assert found.directory.reports == {}
        assert found.directory.logs[P].log_end == 30


def test_an_idle_node_syncs_nothing() -> None:
    house = House()
    house.write(house.make(), 5)
    house.keeping.start()
    house.world.advance(10 * MINUTE)
    before = house.memory.sync_count, house.memory.change_count
    house.world.advance(60 * MINUTE)
    assert (house.memory.sync_count, house.memory.change_count) == before


def test_high_watermarks_are_noted_every_five_seconds() -> None:
    house = House()
    log = house.make()
    house.write(log, 7)
    house.keeping.start()
    house.world.advance(5100)
    assert house.offsets("replication-offset-checkpoint") == {P: 7}
    house.write(log, 2, start=7)
    house.world.advance(5100)
    assert house.offsets("replication-offset-checkpoint") == {P: 9}


@pytest.mark.parametrize(
    "pattern", ["*.log", "*.index", "*recovery-point*", "*checkpoint.json*", "*replication*"]
)
def test_a_sync_that_fails_is_done_again(pattern: str, caplog: pytest.LogCaptureFixture) -> None:
    house = House(log_flush_offset_checkpoint_interval_ms="10000")
    log = house.make()
    house.write(log, 30)
    rule = house.disk.fail("sync", path=pattern, times=1)
    house.keeping.start()
    house.world.advance(11_000)
    assert rule.hits == 1
    assert "cannot" in caplog.text
    house.write(log, 1, start=30)
    house.world.advance(21_000)
    assert house.offsets("recovery-point-offset-checkpoint") == {P: 31}
    assert house.offsets("replication-offset-checkpoint") == {P: 31}


def test_all_logs_are_checkpointed_in_one_round() -> None:
    house = House()
    names = [TopicPartition("orders", number) for number in range(25)]
    for name in names:
        house.write(house.make(name), 2)
    house.keeping.start()
    house.world.advance(MINUTE + 1000)
    assert house.offsets("recovery-point-offset-checkpoint") == dict.fromkeys(names, 2)


def test_a_partition_deleted_and_made_anew_meanwhile_is_not_taken_for_the_old_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = House()
    house.write(house.make(), 30)
    house.keeping.start()
    house.world.run_until(lambda: house.world.works > 0 and house.world.now_ms() >= START_MS + MINUTE)
    house.delete()
    log = house.make()
    house.world.advance(1000)
    assert log.recovery_point.offset == 0
    assert house.offsets("recovery-point-offset-checkpoint").get(P, 0) == 0
    house.write(log, 3)
    house.world.advance(2 * MINUTE)
    assert house.offsets("recovery-point-offset-checkpoint") == {P: 3}
    found = House(disk=house.memory.crash_clone(Random(4))).directory.logs[P]
    assert [each.epoch for each in found.epochs.entries] == [0]
    assert found.log_end == 3
    assert "cannot" not in caplog.text


# -- compaction ---------------------------------------------------------------------------------------


def test_a_compacted_log_is_cleaned_and_nothing_of_it_is_lost() -> None:
    house = House(TABLE)
    log = house.make()
    house.write(log, 100, keys=5)
    before = values(log)
    size = log.size_bytes
    house.keeping.start()
    house.world.advance(16_000)
    assert log.size_bytes < size / 3
    assert values(log) == before
    assert log.clean_to == log.segments.active.base_offset > 0
    assert house.offsets("cleaner-offset-checkpoint") == {P: log.clean_to}
    assert house.files(".deleted")
    house.world.advance(6000)
    assert not house.files(".deleted")
    found = House(TABLE, disk=house.memory.crash_clone(Random(4))).directory.logs[P]
    assert values(found) == before


def test_nothing_is_cleaned_where_cleaning_is_off() -> None:
    house = House(TABLE, log_cleaner_enable="false")
    log = house.make()
    house.write(log, 100, keys=5)
    house.keeping.start()
    house.world.advance(MINUTE)
    assert log.clean_to == 0


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_as_many_logs_are_cleaned_at_once_as_may_be(threads: int) -> None:
    house = House(TABLE, log_cleaner_threads=str(threads))
    logs = [house.make(TopicPartition("table", number)) for number in range(7)]
    for log in logs:
        house.write(log, 50, keys=3)
        log.checkpoint()
    running = most = 0
    run = house.world.in_child

    def in_child(work: Any, done: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)

        def finished(result: Any, error: Any) -> None:
            nonlocal running
            running -= 1
            done(result, error)

        run(work, finished)

    house.world.in_child = in_child  # type: ignore[method-assign]
    house.keeping.start()
    house.world.advance(30_000)
    assert most == threads
    assert all((log.clean_to > 0) == (threads > 0) for log in logs)


def test_a_cleaner_that_fails_is_tried_again_after_its_rest() -> None:
    house = House(TABLE)
    log, other = house.make(), house.make(TopicPartition("other", 0))
    for each in (log, other):
        house.write(each, 100, keys=5)
    rule = house.disk.fail("open", path="*orders-0/*.cleaned", times=1)
    house.keeping.start()
    house.world.advance(16_000)
    assert rule.hits == 1
    assert log.clean_to == 0
    assert other.clean_to > 0
    house.world.advance(16_000)
    assert log.clean_to > 0
    assert rule.hits == 1


def test_damage_that_a_cleaner_meets_is_known_to_the_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica in sync that lacks a record must not be counted on: see `Partition.damage_found`."""
    told: list[TopicPartition] = []
    monkeypatch.setattr(Partition, "damage_found", lambda partition: told.append(partition.name))
    house = House(TABLE)
    log = house.make()
    house.write(log, 100, keys=5)
    file = house.memory.open(log.segments[0].ref.path, write=True)
    (byte,) = file.pread(1, 70)
    file.pwrite([bytes([byte ^ 1])], 70)
    house.keeping.start()
    house.world.advance(16_000)
    assert log.is_damaged
    assert told == [P]
    assert log.clean_to == 0


def test_a_partition_deleted_while_it_is_cleaned_does_no_harm() -> None:
    house = House(TABLE)
    log = house.make()
    house.write(log, 100, keys=5)
    log.checkpoint()
    house.keeping.start()
    house.world.run_until(lambda: house.world.works > 0 and house.world.now_ms() >= START_MS + 15_000)
    house.delete()
    fresh = house.make()
    house.write(fresh, 3, keys=5)
    house.world.advance(MINUTE)
    assert (fresh.log_start, fresh.log_end, len(values(fresh))) == (0, 3, 3)
    house.write(fresh, 97, keys=5, start=3)
    house.world.advance(MINUTE)
    assert fresh.clean_to > 0
    assert len(values(fresh)) == 5
    assert not house.files(".cleaned")


def test_what_was_cleaned_of_a_deleted_partition_is_not_put_into_its_successor() -> None:
    house = House(TABLE)
    log = house.make()
    house.write(log, 100, keys=5)
    log.checkpoint()
    house.keeping.start()
    house.world.run_until(lambda: house.world.works > 0 and house.world.now_ms() >= START_MS + 15_000)
    house.delete()
    fresh = house.make()
    house.write(fresh, 100, keys=5)  # the cleaner finds files of the names and sizes that it expects
    segments = list(fresh.segments)
    house.world.advance(100)
    assert list(fresh.segments) == segments
    for suffix in (".cleaned", ".swap", ".deleted"):
        assert not house.files(suffix)
    assert len(values(fresh)) == 5
    assert fresh.clean_to == 0


def test_writers_go_on_while_a_log_is_cleaned() -> None:
    house = House(TABLE)
    log = house.make()
    house.write(log, 100, keys=5)
    log.checkpoint()
    house.keeping.start()
    house.world.run_until(lambda: house.world.works > 0 and house.world.now_ms() >= START_MS + 15_000)
    house.write(log, 50, keys=7, start=100)
    before = values(log)
    house.world.advance(MINUTE)
    assert values(log) == before
    assert log.log_end == 150


# -- the rest -----------------------------------------------------------------------------------------


def test_producers_are_forgotten_when_they_have_been_idle_for_long() -> None:
    house = House(producer_id_expiration_ms=str(30 * MINUTE))
    log = house.make()
    house.write(log, producer=5)
    house.keeping.start()
    house.world.advance(20 * MINUTE)
    house.write(log, producer=6)
    assert log.producers.by_id.keys() == {5, 6}
    house.world.advance(PRODUCER_CHECK_INTERVAL_MS + 1000)
    assert log.producers.by_id.keys() == {6}


def test_what_deleted_partitions_left_behind_is_removed() -> None:
    house = House()
    for number in range(3):
        name = TopicPartition("gone", number)
        house.write(house.make(name), 3)
        del house.partitions[name]
        house.directory.delete(name, Random(number))  # and the node dies before it removes the files
    after = House(disk=house.memory.kill_clone())
    assert len(after.directory.leftovers) == 3
    after.disk.fail("remove", path="*gone-1*", times=1)
    after.keeping.start()
    after.world.advance(10)
    assert [entry.name.partition(".")[0] for entry in after.disk.list_dir("/data/logs") if entry.is_dir] == [
        "gone-1"
    ]
    after.world.advance(REMOVAL_RETRY_MS + 10)
    assert not any(entry.is_dir for entry in after.disk.list_dir("/data/logs"))


def test_after_a_stop_nothing_happens_any_more() -> None:
    house = House(TABLE)
    log = house.make()
    house.write(log, 100, keys=5)
    house.keeping.start()
    house.world.run_until(lambda: house.world.works > 0)
    house.keeping.stop()
    house.world.run_until_idle()
    assert house.directory.checkpoints.high_watermarks == {P: 100}
    assert (log.clean_to, log.recovery_point.offset) == (0, 0)
    house.directory.close()
    found = House(TABLE, disk=house.memory.crash_clone(Random(4)))
    assert found.directory.logs[P].log_end == 100
    assert found.directory.checkpoints.high_watermarks == {P: 100}


@pytest.mark.parametrize("seed", range(15))
def test_a_power_cut_at_any_moment_of_housekeeping_costs_nothing_that_was_synced(seed: int) -> None:
    rng = Random(seed)
    house = House(
        LogSettings(
            segment_bytes=1000,
            cleanup_policy=("compact", "delete"),
            min_cleanable_dirty_ratio=0.01,
            retention_bytes=4000,
            file_delete_delay_ms=500,
        ),
        log_retention_check_interval_ms="700",
        log_flush_offset_checkpoint_interval_ms="400",
        replica_high_watermark_checkpoint_interval_ms="300",
        log_cleaner_backoff_ms="500",
    )
    log = house.make()
    house.keeping.start()
    written = 0
    for _ in range(40):
        count = rng.randrange(8)
        house.write(log, count, keys=9, start=written)
        written += count
        if rng.random() < 0.3:
            log.flush()
        for _ in range(rng.randrange(12)):
            house.world.step()
        if rng.random() < 0.3:
            found = House(disk=house.memory.crash_clone(rng)).directory.logs[P]
            assert found.log_end >= log.flushed
            kept = latest_offsets(found)
            for key, offset in latest_offsets(log, below=log.flushed).items():
                assert offset < found.log_start or kept[key] >= offset
    assert written > 100
