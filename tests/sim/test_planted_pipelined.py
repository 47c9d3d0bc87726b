"""Idempotent producers that follow the rules of librdkafka and of the Java client, and what makes them write twice."""

from dataclasses import replace
from itertools import count

import pytest
from tests.planting import plant
from tests.sim.rules import assert_caught
from tests.sim.test_planted_cluster import BUSY

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.records import RecordBatch
from penstock.replica.append_path import AppendPath
from penstock.sim.checkers import all_checkers
from penstock.sim.checkers.history import (
    Acked,
    Audited,
    Batch,
    EpochBumped,
    ProducedRecord,
    ReadRecord,
    Sent,
    Survives,
)
from penstock.sim.checkers.pipelined import DeliveredIsThere, EpochKept, InOrderOverEpochs, OnceOverEpochs
from penstock.sim.checkers.records import Rules, Violation
from penstock.sim.clients.pipelined import ClientRules, PipelinedPlan
from penstock.sim.clients.producers import ALL
from penstock.sim.cluster_extras import Extra
from penstock.sim.cluster_plan import PowerCuts
from penstock.sim.play import play_cluster
from penstock.sim.run import Simulation
from penstock.sim.scenario import TopicPlan
from penstock.storage import Log, StorageError
from penstock.storage.producers import KeptBatch, Producers

PIPELINED = replace(
    BUSY,
    duration_us=6_000_000,
    topics=(TopicPlan("orders", 6, {}, replication=3),),
    producers=(),
    consumers=(),
    pipelined=tuple(
        PipelinedPlan(
            rules.value,
            "orders",
            ALL,
            Survives.POWER_CUT,
            is_idempotent=True,
            in_flight_max=30,
            pace_us=40_000,
            timeout_ms=200,
            drops_link=0.02,
            rules=rules,
        )
        for rules in ClientRules
    ),
    has_disk_faults=True,
    crash_us_mean=2_000_000,
    cluster=replace(
        BUSY.cluster, power_cuts=PowerCuts.NONE, down_us=(10_000, 300_000), cut_us_mean=0, hiccups=0.01
    ),
)

FAILS_EVERY = 30


@pytest.fixture(autouse=True)
def disks_that_are_full_for_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    writes = count(1)
    write = Log.write_staged

    def write_or_fail(log: Log) -> None:
        if log._staged and log.partition.topic == "orders" and next(writes) % FAILS_EVERY == 0:
            log.drop_staged()
            raise StorageError(f"cannot write {log.partition}: no space left on device; nothing was appended")
        write(log)

    plant(monkeypatch, Log.write_staged, write_or_fail)


@pytest.mark.long
def test_producers_keep_their_epochs_whatever_they_are_refused_for() -> None:
    told = "".join("\n".join(Simulation(replace(PIPELINED, seed=seed)).run().trace) for seed in range(3))
    for what in (
        "KAFKA_STORAGE_ERROR",
        "NOT_LEADER_OR_FOLLOWER",
        "which was refused and must be sent again first",
    ):
        assert what in told, what


def test_a_node_that_calls_out_of_order_what_is_behind_a_refused_batch_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch, AppendPath.check_refused, lambda *_: None)
    assert_caught(PIPELINED, by=EpochKept)


def test_records_that_a_needless_new_epoch_writes_twice_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, AppendPath.check_refused, lambda *_: None)
    assert_caught(PIPELINED, by=OnceOverEpochs)


@pytest.mark.long
def test_records_that_a_needless_new_epoch_puts_behind_later_ones_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch, AppendPath.check_refused, lambda *_: None)
    assert_caught(PIPELINED, by=InOrderOverEpochs)


@pytest.mark.long
def test_a_batch_that_is_taken_in_place_of_the_refused_one_before_it_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """librdkafka reports the refused one as delivered then."""

    def known(producers: Producers, batch: RecordBatch) -> KeptBatch | None:
        producer = producers.by_id.get(batch.producer_id)
        return None if producer is None else producer.duplicate_of(batch)

    plant(monkeypatch, AppendPath.check_refused, lambda *_: None)
    plant(monkeypatch, Producers.check, known)
    assert_caught(replace(PIPELINED, pipelined=PIPELINED.pipelined[:1]), by=DeliveredIsThere)


# -- histories made by hand ---------------------------------------------------------------------------------


AT = TopicPartition("orders", 0)


class Told:
    """What a producer did, as its rules see it: batches of one record each, numbered."""

    def __init__(self) -> None:
        self.checkers = all_checkers.AllCheckers(Rules(is_replicated=True, pipelined=frozenset({"p"})))
        self.batches: dict[int, Batch] = {}

    def send(self, number: int, epoch: int = 0) -> None:
        made = Batch("p", number, AT, ALL, [ProducedRecord(None, b"p/%d" % number, number)])
        batch = self.batches.setdefault(number, made)
        batch.sends += 1
        batch.identities.append((7, epoch, number))
        self.checkers.see(Sent(batch))

    def ack(self, number: int, offset: int) -> None:
        self.checkers.see(Acked(self.batches[number], offset, Survives.POWER_CUT, 1))

    def end(self, *numbers: int) -> None:
        """In the end these lie in the log, in this order."""
        records = [ReadRecord(at, None, b"p/%d" % number) for at, number in enumerate(numbers)]
        self.checkers.see(Audited(AT, 0, len(records), records))


def test_in_order_and_once_is_as_it_should_be() -> None:
    told = Told()
    for number in (0, 1, 2):
        told.send(number)
    told.ack(2, 2)
    told.ack(0, -1)
    told.end(0, 1, 2)


def test_a_new_epoch_is_a_violation() -> None:
    with pytest.raises(Violation, match="EpochKept: p got OUT_OF_ORDER_SEQUENCE_NUMBER"):
        Told().checkers.see(EpochBumped("p", 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))


def test_a_record_that_is_there_once_for_each_of_two_epochs_is_a_violation() -> None:
    told = Told()
    told.send(0)
    told.send(0, epoch=1)
    with pytest.raises(Violation, match=r"OnceOverEpochs: .* expected at most 1 copies"):
        told.end(0, 0)


def test_a_record_behind_a_later_one_is_a_violation() -> None:
    told = Told()
    told.send(0)
    told.send(1)
    with pytest.raises(
        Violation, match="InOrderOverEpochs: orders-0 has record 0 of p at 1, after record 1 at 0"
    ):
        told.end(1, 0)


def test_a_missing_record_that_counts_as_delivered_is_a_violation() -> None:
    told = Told()
    told.send(0)
    told.send(1)
    told.ack(0, -1)
    with pytest.raises(Violation, match=r"DeliveredIsThere: p #0 .* counts as delivered"):
        told.end(1)


def test_a_minute_with_pipelined_producers_goes_well() -> None:
    result = play_cluster(1031, 0.5, extras=[Extra.PIPELINED])
    assert result.failure is None, f"{result.failure}\nto see it again: {result.command}"
