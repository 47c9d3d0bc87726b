"""The simulator is tested too: a node with a fault planted in it is caught, and by the right rule.

Each fault is one that a change could bring in by mistake. Seeds are tried one after the other until one of them
complains; the node without the fault passes all of them in `test_seeds`.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tests.planting import plant
from tests.sim.rules import assert_caught

from penstock.handlers.producer_ids import ProducerIds
from penstock.replica.leader_syncs import LeaderSyncs
from penstock.replica.partition import Partition
from penstock.replica.pending_acks import PendingAcks
from penstock.server.connection import Connection
from penstock.sim.checkers.history import Survives
from penstock.sim.checkers.records import (
    AckedNotLost,
    HighWatermarkNeverBack,
    NoChangedRecord,
    NoDuplicate,
    ProducersRemembered,
)
from penstock.sim.checkers.replies import EveryRequestAnswered, RepliesInOrder
from penstock.sim.clients.consumers import ConsumerPlan
from penstock.sim.clients.producers import ALL, ProducerPlan
from penstock.sim.run import Simulation
from penstock.sim.scenario import Scenario, TopicPlan
from penstock.storage.indexes import OffsetIndex
from penstock.storage.producers import Producers
from penstock.storage.syncing import FlushWork
from penstock.vfs import MemoryDisk

SEEDS_MAX = 12

BUSY = Scenario(
    seed=0,
    steps=3000,
    settings={"durability.fsync": "alone"},
    topics=(TopicPlan("orders", 2, {"segment.bytes": "2000", "index.interval.bytes": "100"}),),
    producers=(
        ProducerPlan("durable", "orders", ALL, Survives.POWER_CUT, pace_us=2_000),
        ProducerPlan("quick", "orders", 1, Survives.KILL, pace_us=2_000),
        ProducerPlan("exact", "orders", ALL, Survives.POWER_CUT, is_idempotent=True, drops_link=0.05),
        ProducerPlan("precise", "orders", ALL, Survives.POWER_CUT, is_idempotent=True),
    ),
    consumers=(
        ConsumerPlan("reader", "orders", uses_session=True),
        ConsumerPlan("other", "orders", bytes_max=300),
    ),
    crash_us_mean=150_000,
    reset_us_mean=100_000,
)


def test_a_node_without_a_fault_passes() -> None:
    Simulation(BUSY).run()


def test_an_acknowledgement_before_the_sync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, PendingAcks.syncs_committed, property(lambda _: False))
    assert_caught(BUSY, by=AckedNotLost)


def test_a_sync_that_does_nothing_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mostly by the node itself, which does not start with a metadata log that is shorter than it was."""
    plant(monkeypatch, FlushWork.run, lambda _: None)
    assert_caught(BUSY, by="NodeLives")


def test_records_that_do_not_survive_a_kill_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if what is written stayed in the process."""
    rng = Random(1)
    plant(monkeypatch, MemoryDisk.kill_clone, lambda disk: disk.crash_clone(rng))
    assert_caught(BUSY, by=NoChangedRecord)


def test_replies_in_the_wrong_order_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def send_what_is_ready(connection: Connection, _: object) -> None:
        waiting = connection._open or ()
        connection._open = deque(each for each in waiting if not each.is_settled)
        for each in waiting:
            if each.is_settled:
                connection._send(each.value)

    plant(monkeypatch, Connection._settle, send_what_is_ready)
    assert_caught(BUSY, by=RepliesInOrder)


def test_batches_that_are_appended_again_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that does not look at sequences."""

    def check_nothing(*_: Any, **__: Any) -> None:
        return None

    plant(monkeypatch, Producers.check, check_nothing)
    assert_caught(BUSY, by=NoDuplicate)


def test_producer_ids_that_begin_again_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = ProducerIds.__init__

    def begin_with_a_block(ids: ProducerIds, *arguments: Any) -> None:
        begin(ids, *arguments)
        ids._block = range(1000)

    plant(monkeypatch, ProducerIds.__init__, begin_with_a_block)
    busier = [replace(BUSY.producers[2], name=f"exact-{number}") for number in range(6)]
    late = replace(BUSY, producers=(*BUSY.producers, *busier), crash_us_mean=40_000)
    assert_caught(late, by=ProducersRemembered)


def test_a_high_watermark_that_is_not_kept_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that follows the disk hides what was visible before the last kill."""
    advance = Partition.advance_high_watermark

    def advance_to_the_disk(partition: Partition) -> None:
        advance(partition)
        partition.high_watermark = max(partition.log.log_start, partition.log.flushed)

    plant(monkeypatch, Partition.advance_high_watermark, advance_to_the_disk)
    assert_caught(BUSY, by=HighWatermarkNeverBack)


def test_a_request_that_is_never_answered_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    settle = LeaderSyncs._settle_synced
    calls = 0

    def forget_some(commits: LeaderSyncs) -> None:
        nonlocal calls
        calls += 1
        if calls % 50 == 0 and commits.waiting:
            commits.waiting.popleft()
        settle(commits)

    plant(monkeypatch, LeaderSyncs._settle_synced, forget_some)
    quiet = replace(BUSY, crash_us_mean=0, reset_us_mean=0)
    assert_caught(quiet, by=EveryRequestAnswered)


def test_an_index_that_does_not_reach_its_file_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, OffsetIndex.write, lambda _: False)
    assert_caught(replace(BUSY, crash_us_mean=0), by="LogMatchesReads")


def test_an_exception_that_the_node_swallows_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble(*_: Sequence[object], **__: object) -> None:
        raise RuntimeError("a bug")

    plant(monkeypatch, Partition.watch, stumble)
    assert_caught(BUSY, by="NothingUnforeseen")
