"""A log that is one file is synced without a thread where the world has a way; all else is as it was."""

import errno
from collections.abc import Callable

from tests.replica.leaders import Waiting, new_log
from tests.worlds import START_MS, StillWorld

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.world import Syncable
from penstock.records import build_batch
from penstock.replica.delayed_operations import ALL_IN_SYNC, DelayedProduce
from penstock.replica.leader_syncs import LeaderSyncs
from penstock.replica.sync_lane import SyncLane
from penstock.storage import Log
from penstock.vfs import MemoryDisk


class KernelWorld(StillWorld):
    """Files are synced when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Syncable, Callable[[OSError | None], None]]] = []
        self.is_able = True

    def sync_file(self, file: object, done: Callable[[OSError | None], None]) -> bool:
        if self.is_able:
            self.asked.append((file, done))  # type: ignore[arg-type]
        return self.is_able

    def end_sync(self, error: OSError | None = None) -> None:
        file, done = self.asked.pop(0)
        if error is None:
            file.sync()
        done(error)


class Scene:
    def __init__(self) -> None:
        self.world = KernelWorld()
        self.log: Log = new_log(MemoryDisk())
        self.lane = SyncLane(self.world)
        self.syncs = LeaderSyncs(self.log, self.lane, self._settle)
        self.failed = 0
        self.log.files.sync_failed = self._sync_failed
        # The names of a new log are synced with its first records, which takes a thread.
        self.write()
        self.world.advance(1)
        assert self.log.flushed == 1
        assert self.world.asked == []

    def _settle(self, writer: DelayedProduce, error: KafkaError | None) -> None:
        writer.settle(error)

    def _sync_failed(self) -> None:
        self.failed += 1

    def write(self) -> Waiting:
        batch = build_batch([(b"k", b"v", START_MS)])
        appended = self.log.stage(bytearray(batch), leader_epoch=0, now_ms=START_MS)
        self.log.write_staged()
        waits = Waiting(appended, ALL_IN_SYNC, START_MS + 1000)
        self.syncs.waiting.append(waits)
        self.syncs.flush()
        return waits


def test_one_file_is_synced_without_a_thread() -> None:
    scene = Scene()
    waits = scene.write()
    assert scene.world.works == 0
    assert scene.lane.running == 1
    assert waits.answers == []
    scene.world.end_sync()
    assert waits.answers == [None]
    assert scene.log.flushed == 2
    assert scene.lane.running == 0
    assert scene.lane.syncs.count == 2


def test_what_is_written_while_it_runs_shares_the_next() -> None:
    scene = Scene()
    first, second, third = scene.write(), scene.write(), scene.write()
    assert len(scene.world.asked) == 1
    scene.world.end_sync()
    assert (first.answers, second.answers, third.answers) == ([None], [], [])
    scene.world.end_sync()
    assert (second.answers, third.answers) == ([None], [None])
    assert scene.world.asked == []


def test_after_a_failure_nothing_that_waited_is_acknowledged() -> None:
    scene = Scene()
    waits = scene.write()
    scene.world.end_sync(OSError(errno.EIO, "the disk is gone"))
    assert waits.answers == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert scene.log.flushed == 1
    assert scene.lane.syncs_failed == 1
    assert scene.failed == 1, "what the kernel has of the records is in doubt, and the directory must know"


def test_a_world_that_cannot_is_not_waited_for() -> None:
    scene = Scene()
    scene.world.is_able = False
    waits = scene.write()
    assert scene.lane.running == 1
    scene.world.advance(1)
    assert waits.answers == [None]
    assert scene.log.flushed == 2


def test_the_lane_is_idle_when_the_last_sync_of_either_kind_has_ended() -> None:
    scene = Scene()
    scene.write()
    idle: list[int] = []
    scene.lane.run(lambda: None, lambda _, _error: None)
    scene.lane.when_idle(lambda: idle.append(scene.lane.running))
    scene.world.advance(1)
    assert idle == []
    scene.world.end_sync()
    assert idle == [0]
