"""A leader that lost its controller and its followers sends clients to look for the next leader."""

import pytest
from tests.placing import placed
from tests.replica.leaders import Led, Waiting
from tests.worlds import START_MS

from penstock.base.errors import ErrorCode, KafkaError
from penstock.records import build_batch
from penstock.replica.delayed_operations import ALL_IN_SYNC
from penstock.replica.stalled_commit import STALLED_MS_MAX

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
REQUEST_TIMEOUT_MS = 30_000
ANSWERED_MS = STALLED_MS_MAX + 200
"""The stall is looked for every 100 ms, from the first look on."""


def cut_off(led: Led) -> None:
    """The lease is over: no heartbeat was answered for half a session."""
    led.changes.has_lease = lambda: False


def patient(led: Led) -> Waiting:
    return led.written(1, timeout_ms=REQUEST_TIMEOUT_MS)


def send(led: Led, sequence: int) -> Waiting:
    """A batch of an idempotent producer."""
    data = build_batch([(None, b"x", START_MS)], producer_id=7, producer_epoch=0, base_sequence=sequence)
    view = memoryview(bytearray(data))
    led.partition.check_refused(view)
    appended = led.partition.stage(view, ALL_IN_SYNC, led.world.now_ms())
    waiting = Waiting(appended, ALL_IN_SYNC, led.world.now_ms() + REQUEST_TIMEOUT_MS)
    led.partition.wait(waiting)
    led.world.advance(0)
    return waiting


def test_a_client_that_waits_is_sent_to_look_for_the_leader_once_the_lease_is_over() -> None:
    led = Led()
    waiting = patient(led)
    led.world.advance(4000)
    assert waiting.answers == [], "until then nobody else can lead"
    cut_off(led)
    led.world.advance(ANSWERED_MS)
    assert waiting.answers == [NOT_LEADER]


def test_a_client_that_comes_later_is_answered_as_promptly() -> None:
    led = Led()
    cut_off(led)
    for _ in range(3):
        waiting = patient(led)
        led.world.advance(ANSWERED_MS)
        assert waiting.answers == [NOT_LEADER]


def test_a_leader_whose_followers_fetch_goes_on_without_a_controller() -> None:
    led = Led()
    cut_off(led)
    for _ in range(20):
        waiting = patient(led)
        led.world.advance(STALLED_MS_MAX / 2)
        led.fetch(2)
        led.fetch(3)
        assert waiting.answers == [None]


def test_a_leader_with_its_lease_waits_for_slow_followers() -> None:
    led = Led()
    waiting = patient(led)
    led.world.advance(REQUEST_TIMEOUT_MS - 1000)
    assert waiting.answers == []


def test_a_stall_that_began_within_the_lease_does_not_count() -> None:
    """A lease that is over for a moment, after a late heartbeat, sends nobody away."""
    led = Led()
    waiting = patient(led)
    led.world.advance(3000)
    cut_off(led)
    led.world.advance(STALLED_MS_MAX - 200)
    led.changes.has_lease = lambda: True
    led.world.advance(3000)
    assert waiting.answers == []


def test_what_a_coordinator_writes_is_waited_for() -> None:
    led = Led()
    cut_off(led)
    coordinator = led.produce(1)
    coordinator.deadline_ms = 2**63 - 1
    led.world.advance(10_000)
    assert coordinator.answers == []
    led.fetch(2)
    led.fetch(3)
    assert coordinator.answers == [None]


def test_a_retry_of_a_batch_that_is_still_there_is_answered_with_its_offset() -> None:
    led = Led()
    cut_off(led)
    first = send(led, 0)
    led.world.advance(ANSWERED_MS)
    assert first.answers == [NOT_LEADER]
    retry = send(led, 0)
    behind = send(led, 1)
    assert led.partition.log.log_end == 2, "neither is written twice"
    led.fetch(2)
    led.fetch(3)
    assert (retry.answers, behind.answers) == ([None], [None])
    assert retry.appended.base_offset == first.appended.base_offset


def test_a_batch_behind_a_refused_one_that_was_cut_off_is_refused_in_the_same_way() -> None:
    """The batch was pipelined, and arrives when this broker leads again, without what it had alone."""
    led = Led()
    cut_off(led)
    first = send(led, 0)
    led.world.advance(ANSWERED_MS)
    assert first.answers == [NOT_LEADER]
    led.partition.follow(2, 4, KafkaError("orders-0 is led elsewhere now", NOT_LEADER))
    led.partition.log.truncate(0)
    led.epoch = 5
    led.partition.lead(placed(5, replicas=led.replicas, isr=led.isr, partition_epoch=9), led.min_isr)
    with pytest.raises(KafkaError) as refused:
        send(led, 1)
    assert refused.value.code is NOT_LEADER
    assert send(led, 0).appended.base_offset == 0
    assert send(led, 1).appended.base_offset == 1
