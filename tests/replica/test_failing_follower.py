"""A follower whose disk refuses to write or to sync: out of the ISR at once, not back before a trial write works."""

import errno
from itertools import pairwise
from typing import Any

import pytest
from tests.replica.fake_leader import topic_id
from tests.replica.leaders import Led
from tests.replica.test_replicas import ME, OTHER, THIRD, Broker, created

from penstock.base.errors import ErrorCode
from penstock.base.promise import Promise
from penstock.metadata.controller.requests import DAMAGED, UNWRITABLE, AlterPartition
from penstock.metadata.records import PartitionChangeRecord
from penstock.replica.failing_disk import BACKOFF_MS_MAX, BACKOFF_MS_MIN, FORGIVEN_MS, TRIAL_MS
from penstock.replica.pending_acks import OVERDUE_CHECK_MS, TOO_FEW_MS
from penstock.storage.trial import ROOM_BYTES_MIN, TRIAL_BYTES, TRIAL_FILE, trial_write
from penstock.vfs import FaultyDisk, MemoryDisk

LOG = "*.log"
SOON_MS = 100


class Desk:
    def __init__(self) -> None:
        self.asked: list[AlterPartition] = []

    def submit(self, request: AlterPartition) -> Promise[Any]:
        self.asked.append(request)
        later: Promise[Any] = Promise()
        later.resolve(())
        return later

    @property
    def wishes(self) -> list[tuple[tuple[int, ...], int]]:
        return [
            (tuple(member.broker_id for member in change.isr), change.recovery_state)
            for request in self.asked
            for change in request.changes
        ]


class Ailing(Broker):
    """A follower of a partition of three, all in sync, with a disk that can fail."""

    def __init__(self) -> None:
        self.faults = FaultyDisk(MemoryDisk())
        super().__init__(self.faults)  # type: ignore[arg-type]  # a disk around a memory disk
        self.desk = Desk()
        assert self.replicas.failing_disk is not None
        self.replicas.failing_disk._controller = self.desk
        self.led = self.leader.lead()
        self.leader.write(self.led)
        self.replay(*created(OTHER, replicas=(OTHER, ME, THIRD)))
        self.world.advance(SOON_MS)
        assert self.copied

    def write(self) -> None:
        self.leader.write(self.led)
        self.world.advance(SOON_MS)

    def isr(self, *members: int) -> None:
        self.replay(PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), isr=members))

    @property
    def fetches(self) -> int:
        """How often the leader was asked for the partition."""
        return sum(bool(topic.partitions) for each in self.leader.fetches for topic in each.topics)


def test_a_follower_that_cannot_write_asks_for_an_isr_without_it_until_it_is_out() -> None:
    broker = Ailing()
    broker.faults.fail("write", path=LOG, error=errno.ENOSPC)
    broker.write()
    assert broker.desk.wishes[0] == ((OTHER, THIRD), UNWRITABLE)
    asked = len(broker.desk.asked)
    assert asked > 1, "nobody has decided yet"
    broker.isr(OTHER, THIRD)
    broker.world.advance(SOON_MS)
    assert len(broker.desk.asked) <= asked + 1
    asked = len(broker.desk.asked)
    broker.world.advance(500)
    assert len(broker.desk.asked) == asked


def test_a_follower_that_was_taken_into_the_isr_while_its_disk_failed_leaves_it_again() -> None:
    """The leader had asked for it before, and the controller decided after."""
    broker = Ailing()
    broker.isr(OTHER, THIRD)
    broker.faults.fail("write", path=LOG, error=errno.ENOSPC)
    broker.write()
    broker.world.advance(SOON_MS)
    assert broker.desk.wishes == [], "it is in no ISR"
    broker.isr(OTHER, THIRD, ME)
    broker.world.advance(SOON_MS)
    assert broker.desk.wishes[0] == ((OTHER, THIRD), UNWRITABLE)


def test_a_follower_that_cannot_write_does_not_fetch_before_a_trial_write_works() -> None:
    """Else it would be in sync again as soon as there is nothing to copy."""
    broker = Ailing()
    log_rule = broker.faults.fail("write", path=LOG, error=errno.ENOSPC)
    trial_rule = broker.faults.fail("write", path=f"*{TRIAL_FILE}", error=errno.ENOSPC)
    broker.write()
    broker.isr(OTHER, THIRD)
    fetches = broker.fetches
    broker.world.advance(BACKOFF_MS_MIN + 3 * TRIAL_MS)
    assert trial_rule.hits >= 2
    assert broker.fetches == fetches
    log_rule.cancel()
    broker.world.advance(2 * TRIAL_MS)
    assert broker.fetches == fetches
    trial_rule.cancel()
    broker.world.advance(2 * TRIAL_MS)
    assert broker.fetches > fetches
    assert broker.copied
    assert not broker.held().has_failing_disk


def test_a_follower_that_fails_again_after_a_trial_rests_longer_each_time() -> None:
    broker = Ailing()
    broker.faults.fail("write", path=LOG, error=errno.EIO)
    broker.write()
    broker.isr(OTHER, THIRD)
    rests = []
    for _ in range(9):
        fetches, rested_ms = broker.fetches, 0
        while broker.fetches == fetches:
            broker.world.advance(SOON_MS)
            rested_ms += SOON_MS
        rests.append(rested_ms)
        broker.world.advance(SOON_MS)
        assert broker.held().has_failing_disk
    assert rests[0] < 3 * BACKOFF_MS_MIN
    assert all(later > sooner for sooner, later in pairwise(rests[1:6]))
    assert rests[-1] <= BACKOFF_MS_MAX + 2 * TRIAL_MS
    broker.faults.clear()
    broker.world.advance(BACKOFF_MS_MAX + 2 * TRIAL_MS)
    assert broker.copied
    broker.world.advance(FORGIVEN_MS + 1)
    broker.faults.fail("write", path=LOG, error=errno.EIO, times=1)
    broker.write()
    broker.world.advance(BACKOFF_MS_MIN + 2 * TRIAL_MS)
    assert not broker.held().has_failing_disk, "that was long ago"


def test_a_follower_that_cannot_sync_leaves_and_is_not_eligible() -> None:
    broker = Ailing()
    rule = broker.faults.fail("sync", error=errno.EIO)
    assert broker.replicas.fetchers is not None
    broker.leader.write(broker.led)
    broker.world.advance(SOON_MS)
    broker.replicas.fetchers.syncs._sync(broker.held(), lambda _: None)
    broker.world.advance(SOON_MS)
    assert broker.desk.wishes[0] == ((OTHER, THIRD), DAMAGED)
    broker.isr(OTHER, THIRD)
    fetches = broker.fetches
    broker.write()
    broker.world.advance(5 * TRIAL_MS)
    assert broker.fetches == fetches, "a trial is synced too"
    rule.cancel()
    broker.world.advance(5 * TRIAL_MS)
    assert broker.copied


def test_who_leaves_the_isr_by_itself_is_waited_for_no_more() -> None:
    """It was at the log end of late, and would be waited for as one that is about to join."""
    led = Led()
    led.fetch(2)
    led.fetch(3)
    waiting = led.written()
    led.fetch(2)
    assert waiting.answers == []
    led.lead(isr=(1, 2))
    led.world.advance(0)
    assert waiting.answers == [None]


def test_too_few_in_sync_is_said_at_once() -> None:
    led = Led(min_isr=2)
    led.fetch(2)
    led.fetch(3)
    waiting = led.written()
    led.lead(isr=(1,))
    led.world.advance(0)
    with pytest.raises(Exception, match="1 replicas in sync, 2 are needed") as refused:
        led.produce()
    assert getattr(refused.value, "code", None) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert waiting.answers == [], "it may yet be replicated"
    led.world.advance(TOO_FEW_MS + 3 * OVERDUE_CHECK_MS)
    assert waiting.answers == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND], "long before its time is up"


def test_a_short_lack_of_replicas_rejects_no_request() -> None:
    led = Led(min_isr=2)
    led.fetch(2)
    led.fetch(3)
    waiting = led.written()
    led.lead(isr=(1,))
    led.world.advance(TOO_FEW_MS // 2)
    led.lead(isr=(1, 2))
    led.world.advance(TOO_FEW_MS)
    assert waiting.answers == []
    led.fetch(2)
    assert waiting.answers == [None]


# -- the trial ---------------------------------------------------------------------------------------------


def test_a_trial_leaves_nothing_behind() -> None:
    disk = FaultyDisk(MemoryDisk())
    disk.make_dirs("/logs")
    trial_write(disk, "/logs", 5000)
    assert disk.list_dir("/logs") == []
    for operation in ("write", "sync"):
        disk.fail(operation, error=errno.EIO, times=1)  # type: ignore[arg-type]
        with pytest.raises(OSError, match="Input/output error"):
            trial_write(disk, "/logs", 0)
        assert disk.list_dir("/logs") == []


def test_a_trial_takes_no_room_that_others_need() -> None:
    disk = FaultyDisk(MemoryDisk())
    disk.make_dirs("/logs")
    disk.capacity = ROOM_BYTES_MIN - 1
    rule = disk.fail("open", times=0)
    with pytest.raises(OSError, match="bytes are free"):
        trial_write(disk, "/logs", 0)
    assert rule.hits == 0
    disk.capacity = ROOM_BYTES_MIN
    trial_write(disk, "/logs", 0)
    assert TRIAL_BYTES < ROOM_BYTES_MIN
