"""A leader whose disk refuses to write, to sync or to read: another replica leads, if one is in sync."""

import errno

import pytest
from tests.replica.leaders import Led

from penstock.base.errors import ErrorCode
from penstock.base.settings import LogSettings
from penstock.metadata.controller.requests import DAMAGED, UNWRITABLE
from penstock.replica.delayed_operations import Durability
from penstock.storage import StorageError


def asked(led: Led) -> list[tuple[tuple[int, ...], int]]:
    """ISRs that the controller is asked for, and the state in which the leader says to be."""
    led.world.advance(0)
    return [
        (tuple(member.broker_id for member in change.isr), change.recovery_state)
        for request, _ in led.desk.asked
        for change in request.changes
    ]


def test_a_leader_that_cannot_write_asks_for_another() -> None:
    led = Led()
    led.disk.fail("write", path="*.log", error=errno.ENOSPC)
    first = led.written()
    assert first.answers == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert asked(led) == [((2, 3), UNWRITABLE)]
    second = led.written()
    assert second.answers == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert asked(led) == [((2, 3), UNWRITABLE)], "once is enough"


def test_a_leader_that_cannot_sync_asks_for_another() -> None:
    led = Led(durability=Durability.ALWAYS)
    led.disk.fail("sync", path="*.log", error=errno.EIO)
    waiting = led.written()
    led.fetch(2)
    led.fetch(3)
    led.world.advance(10)
    assert waiting.answers == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert asked(led) == [((2, 3), DAMAGED)]


def test_a_leader_that_cannot_sync_what_nobody_waits_for_asks_for_another() -> None:
    led = Led(settings=LogSettings(flush_ms=100))
    led.disk.fail("sync", path="*.log", error=errno.EIO)
    assert led.written(acks=1).answers == [None]
    led.world.advance(200)
    assert asked(led) == [((2, 3), DAMAGED)]


def test_a_leader_that_cannot_read_asks_for_another() -> None:
    led = Led(before=3)
    led.disk.fail("read", path="*.log", error=errno.EIO)
    with pytest.raises(StorageError):
        led.partition.read_ahead(0, 1000, None)
    assert asked(led) == [((2, 3), DAMAGED)]


@pytest.mark.parametrize("replicas", [(1,), (1, 2)])
def test_a_leader_without_others_in_sync_goes_on(replicas: tuple[int, ...]) -> None:
    """What it can do yet is all that there is."""
    led = Led(replicas, isr=(1,))
    led.disk.fail("write", path="*.log", error=errno.ENOSPC, times=1)
    assert led.written().answers == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert asked(led) == []
    assert led.written(acks=1).answers == [None]


def test_a_leader_that_had_to_go_on_asks_again_when_the_disk_fails_again() -> None:
    led = Led()
    led.disk.fail("write", path="*.log", error=errno.ENOSPC)
    led.written()
    led.decide(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    assert asked(led) == []
    led.written()
    assert asked(led) == [((2, 3), UNWRITABLE)]
