"""Faults planted in coordinators and in what readers of committed records are told: each is caught, by the right rule.

As in `test_planted`, each fault is one that a change could bring in by mistake.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from tests.planting import plant
from tests.sim.rules import assert_caught

from penstock.base.ids import TopicPartition
from penstock.base.promise import Promise
from penstock.coordinator.groups.classic.membership import Membership
from penstock.coordinator.groups.classic.rebalance import Rebalances
from penstock.coordinator.groups.consumer import current_assignment as reconcile
from penstock.coordinator.groups.coordinator import GroupCoordinator
from penstock.coordinator.groups.offset_store import OffsetStore
from penstock.coordinator.runtime.transaction_markers import MarkerWriter
from penstock.coordinator.transactions import state as to
from penstock.coordinator.transactions.state import Transaction
from penstock.records import RecordBatch
from penstock.replica.partition import Partition
from penstock.replica.pending_acks import PendingAcks
from penstock.sim.checkers.groups import OffsetsNotLostOrRewound, OneOwner
from penstock.sim.checkers.history import Survives
from penstock.sim.checkers.replies import NoStrangeError
from penstock.sim.checkers.transactions import (
    CommittedNotHidden,
    EpochsRise,
    ExactlyOnce,
    NoAbortedRead,
    NoHalfTransaction,
)
from penstock.sim.clients.consumers import ConsumerPlan
from penstock.sim.clients.members import MemberPlan
from penstock.sim.clients.producers import ALL, ProducerPlan
from penstock.sim.clients.transactional import TransactionalPlan, WorkerPlan
from penstock.sim.clients.txn_plan import TxnSettings
from penstock.sim.coordination import SOURCE, TARGET, Coordination
from penstock.sim.run import Simulation
from penstock.sim.scenario import Scenario, TopicPlan
from penstock.storage.reader import LogReader

SETTINGS = {
    "durability.fsync": "alone",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.session.timeout.ms": "400",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.heartbeat.interval.ms": "50",
    "group.consumer.min.heartbeat.interval.ms": "10",
}
FEEDER = ProducerPlan("feeder", SOURCE, ALL, Survives.POWER_CUT, is_idempotent=True, pace_us=10_000)
READERS = (ConsumerPlan("reader", TARGET, isolation=1), ConsumerPlan("other", "orders", isolation=1))

BUSY = Scenario(
    seed=0,
    steps=5000,
    settings=SETTINGS,
    topics=(TopicPlan("orders", 3, {}), TopicPlan(SOURCE, 2, {}), TopicPlan(TARGET, 2, {})),
    producers=(FEEDER,),
    consumers=READERS,
    crash_us_mean=0,
    reset_us_mean=500_000,
)

TRANSACTIONS = replace(
    BUSY,
    coordination=Coordination(
        transactional=tuple(
            TransactionalPlan(
                f"transactional-{number}",
                TxnSettings(f"txn-{number}", "orders", number > 0, 500, Survives.POWER_CUT),
                group=f"side-{number}",
                stall_ms_max=1000,
            )
            for number in range(3)
        )
    ),
)


def workers(count: int = 2) -> tuple[WorkerPlan, ...]:
    return tuple(
        WorkerPlan(
            MemberPlan(
                f"worker-{number}",
                SOURCE,
                "workers",
                session_timeout_ms=300,
                rebalance_timeout_ms=300,
                commits=1.0,
                stalls=0.05,
                crashes=0.03,
                fetch=ConsumerPlan(
                    f"worker-{number}",
                    SOURCE,
                    max_wait_ms=50,
                    bytes_max=1000,
                    pause_us_max=5_000,
                    isolation=1,
                ),
            ),
            TxnSettings(f"worker-{number}", TARGET, number > 0, 3000, Survives.POWER_CUT),
        )
        for number in range(count)
    )


WORKERS = replace(BUSY, coordination=Coordination(workers=workers()))


def members(is_consumer_protocol: bool, count: int = 3) -> tuple[MemberPlan, ...]:
    return tuple(
        MemberPlan(
            f"member-{number}",
            SOURCE,
            "readers",
            is_consumer_protocol=is_consumer_protocol,
            session_timeout_ms=400,
            rebalance_timeout_ms=400,
            commits=0.6,
            crashes=0.02,
            stalls=0.02,
            leaves=0.02,
        )
        for number in range(count)
    )


CLASSIC = replace(BUSY, coordination=Coordination(members=members(is_consumer_protocol=False)))
CONSUMER = replace(BUSY, coordination=Coordination(members=members(is_consumer_protocol=True)))


def crashing(scenario: Scenario) -> Scenario:
    return replace(scenario, crash_us_mean=300_000)


@pytest.mark.parametrize("scenario", [TRANSACTIONS, WORKERS, CLASSIC, CONSUMER])
def test_a_node_without_a_fault_passes(scenario: Scenario) -> None:
    outcome = Simulation(crashing(scenario)).run()
    assert outcome.processes > 1
    assert outcome.transactions + outcome.commits > 0


# -- what readers of committed records are told -----------------------------------------------------------------


def test_aborted_transactions_that_readers_are_not_told_of_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch, LogReader.aborted, lambda *_: [])
    assert_caught(TRANSACTIONS, by=NoAbortedRead)


def test_records_of_open_transactions_that_are_read_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, Partition.last_stable, property(lambda partition: partition.high_watermark))
    assert_caught(TRANSACTIONS, by=NoAbortedRead)


# -- markers ------------------------------------------------------------------------------------------------


def plant_marker(monkeypatch: pytest.MonkeyPatch, decide: Callable[[TopicPartition, bool], bool]) -> None:
    append = MarkerWriter.append

    def append_other(
        writer: MarkerWriter,
        name: TopicPartition,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        commit: bool,
        **how: int,
    ) -> Promise[None]:
        return append(writer, name, producer_id, epoch, coordinator_epoch, decide(name, commit), **how)

    plant(monkeypatch, MarkerWriter.append, append_other)


def test_markers_that_abort_what_was_committed_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_marker(monkeypatch, lambda _, __: False)
    assert_caught(TRANSACTIONS, by=CommittedNotHidden)


def test_markers_that_commit_what_was_aborted_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_marker(monkeypatch, lambda _, __: True)
    assert_caught(TRANSACTIONS, by=NoAbortedRead)


def test_markers_that_differ_between_partitions_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_marker(monkeypatch, lambda name, commit: commit and name != TopicPartition("orders", 1))
    assert_caught(TRANSACTIONS, by=NoHalfTransaction)


def test_offsets_that_a_transaction_leaves_behind_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The records of a transaction are committed, and its offsets dropped."""
    plant_marker(monkeypatch, lambda name, commit: commit and name.topic != "__consumer_offsets")
    assert_caught(TRANSACTIONS, by=OffsetsNotLostOrRewound)


def test_a_decision_that_is_reported_before_it_is_synced_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut the coordinator knows nothing of what it has said."""
    plant(
        monkeypatch,
        PendingAcks.syncs_committed,
        property(lambda acks: not acks._partition.topic.startswith("__")),
    )
    assert_caught(replace(TRANSACTIONS, crash_us_mean=100_000), first=5, by=NoStrangeError)


# -- who is who ---------------------------------------------------------------------------------------------


def test_an_epoch_that_does_not_rise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    initialised = to.initialised

    def stay(before: Transaction, epoch: int, *rest: Any) -> Transaction:
        return initialised(before, before.epoch, *rest)

    plant(monkeypatch, to.initialised, stay)
    assert_caught(TRANSACTIONS, by=EpochsRise)


# -- groups -------------------------------------------------------------------------------------------------


def test_sessions_that_heartbeats_do_not_renew_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    heartbeat = Membership.heartbeat

    def hear_and_forget(membership: Membership, request: Any, group: Any) -> Any:
        rebalances = membership._rebalances
        if request.member_id.startswith("member-0"):
            vars(rebalances)[Rebalances.renew.__name__] = lambda *_: None
        reply = heartbeat(membership, request, group)
        vars(rebalances).pop(Rebalances.renew.__name__, None)
        return reply

    plant(monkeypatch, Membership.heartbeat, hear_and_forget)
    calm = tuple(
        replace(each, crashes=0, stalls=0, leaves=0, commits=0) for each in CLASSIC.coordination.members
    )
    assert_caught(replace(CLASSIC, coordination=Coordination(members=calm), reset_us_mean=0), by=OneOwner)


def test_a_leader_of_an_earlier_round_that_is_listened_to_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody is given what the leader was given."""
    propagate = Rebalances._propagate

    def the_same_for_all(rebalances: Rebalances, group: Any, code: Any) -> None:
        leader = group.members.get(group.leader)
        for member in group.members.values():
            member.assignment = member.assignment if leader is None else leader.assignment
        propagate(rebalances, group, code)

    plant(monkeypatch, Rebalances._propagate, the_same_for_all)
    assert_caught(CLASSIC, by=OneOwner)


def test_a_partition_that_is_granted_before_it_is_free_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    move = reconcile._next

    def grant_at_once(*arguments: Any) -> Any:
        return move(*arguments[:-1], lambda *_: None)

    plant(monkeypatch, reconcile._next, grant_at_once)
    assert_caught(CONSUMER, by=OneOwner)


@pytest.mark.parametrize("scenario", [CLASSIC, CONSUMER])
def test_offsets_that_are_not_loaded_again_are_caught(
    monkeypatch: pytest.MonkeyPatch, scenario: Scenario
) -> None:
    load = GroupCoordinator.load

    def load_and_forget(coordinator: GroupCoordinator, batches: Iterable[RecordBatch]) -> None:
        load(coordinator, batches)
        for group in [*coordinator._state.offsets.groups()]:
            for place in coordinator._state.offsets.places(group):
                coordinator._state.offsets.remove(group, place)

    plant(monkeypatch, GroupCoordinator.load, load_and_forget)
    assert_caught(crashing(scenario), by=OffsetsNotLostOrRewound)


def test_commits_that_go_back_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was committed first stays."""
    put = OffsetStore.put

    def put_first(offsets: OffsetStore, group: str, place: Any, committed: Any) -> None:
        if offsets.get(group, place) is None:
            put(offsets, group, place, committed)

    plant(monkeypatch, OffsetStore.put, put_first)
    assert_caught(CLASSIC, by=OffsetsNotLostOrRewound)


# -- read, process, write -----------------------------------------------------------------------------------


def test_a_worker_that_is_late_and_not_refused_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that lets anyone commit offsets in a transaction, whatever the group has gone on to."""
    plant(monkeypatch, Membership.may_commit, lambda *_, **__: None)
    assert_caught(WORKERS, by=ExactlyOnce)


@pytest.mark.long
def test_offsets_that_are_read_while_a_transaction_is_open_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A member that takes over begins where the group was before the open transaction: both process the same."""
    plant(monkeypatch, OffsetStore.is_pending, lambda *_: False)
    assert_caught(replace(WORKERS, steps=12_000), first=17, by=ExactlyOnce)
