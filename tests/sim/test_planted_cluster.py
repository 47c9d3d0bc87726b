"""Faults planted in a cluster's nodes: each is caught, and by a rule that it breaks.

They are taken from what was found in Kafka, in KRaft and in other systems that replicate a log: an acknowledgement
that the ISR does not stand behind, a log that is not cut where it parts from its leader's (KIP-101, KIP-279), a
replica that lost what it had and leads all the same (KIP-966), a vote that a power cut takes back, and their like.
Seeds are tried one after the other until one of them complains; the nodes without the fault pass them.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from tests.planting import plant
from tests.sim.rules import assert_caught

from penstock.base.ids import Offset
from penstock.controlplane import quorum_state_file
from penstock.handlers.support import follower_fetch
from penstock.handlers.support.diverging_epoch import diverging_epoch
from penstock.metadata import replay
from penstock.metadata.controller import brokers
from penstock.metadata.controller.elections import PartitionEdit
from penstock.raft.follower import Follower
from penstock.raft.prospective import Prospective
from penstock.raft.replicas import Replicas as Quorum
from penstock.raft.resigned import Resigned
from penstock.raft.role import Role
from penstock.raft.unattached import Unattached
from penstock.raft.voters import ReplicaKey
from penstock.replica.fetcher import Fetcher
from penstock.replica.follower_replica import FollowerReplica
from penstock.replica.follower_syncs import FollowerSyncs
from penstock.replica.isr import Isr
from penstock.replica.partition import Partition
from penstock.sim.checkers.cluster import (
    HighWatermarkHeld,
    MetadataIdentical,
    OneLeaderPerEpoch,
    ReplicasAgree,
)
from penstock.sim.checkers.history import Survives
from penstock.sim.checkers.pauses import ReplicatedInTime
from penstock.sim.checkers.records import AckedNotLost, NoDuplicate
from penstock.sim.clients.consumers import ConsumerPlan
from penstock.sim.clients.producers import ALL, ProducerPlan
from penstock.sim.cluster_plan import ClusterPlan, PowerCuts
from penstock.sim.run import Simulation
from penstock.sim.scenario import Scenario, TopicPlan
from penstock.sim.world.process_world import TRUE
from penstock.storage import Log
from penstock.storage.producers import Producers
from penstock.storage.syncing import FlushWork
from penstock.vfs import Vfs, replace_file

SETTINGS = {
    "durability.fsync": "alone",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "1000",
    "replica.fetch.wait.max.ms": "200",
    "metadata.log.max.record.bytes.between.snapshots": "2000",
}

BUSY = Scenario(
    seed=0,
    steps=0,
    duration_us=12_000_000,
    settle_us_max=60_000_000,
    settings=SETTINGS,
    topics=(TopicPlan("orders", 2, {}, replication=3),),
    producers=(
        ProducerPlan("exact", "orders", ALL, Survives.POWER_CUT, is_idempotent=True, pace_us=40_000),
        ProducerPlan("durable", "orders", ALL, Survives.POWER_CUT, pace_us=60_000),
        ProducerPlan("quick", "orders", 1, Survives.NOTHING, pace_us=60_000),
    ),
    consumers=(ConsumerPlan("reader", "orders", max_wait_ms=500, pause_us_max=50_000),),
    crash_us_mean=1_500_000,
    reset_us_mean=0,
    cluster=ClusterPlan(
        nodes=3,
        clocks=(TRUE, TRUE, TRUE),
        power_cuts=PowerCuts.FEW,
        down_us=(10_000, 2_000_000),
        cut_us_mean=3_000_000,
        hiccups=0.01,
    ),
)
"""Nodes come and go all the time, and the network is cut as often as not."""

SYNCED = replace(
    BUSY,
    settings=SETTINGS | {"durability.fsync": "always"},
    crash_us_mean=400_000,
    cluster=replace(BUSY.cluster, power_cuts=PowerCuts.ANY, down_us=(10_000, 200_000), cut_us_mean=0),
)
"""Power is cut anywhere, at any time."""

SLOW = replace(
    BUSY,
    settings=SETTINGS | {"replica.fetch.max.bytes": "200", "replica.fetch.response.max.bytes": "200"},
    crash_us_mean=1_000_000,
    cluster=replace(BUSY.cluster, power_cuts=PowerCuts.NONE, hiccups=0.05),
)
"""Who was away takes long to catch up."""


@pytest.mark.parametrize("scenario", [BUSY, SYNCED], ids=["busy", "synced"])
def test_nodes_without_a_fault_pass(scenario: Scenario) -> None:
    outcome = Simulation(scenario).run()
    assert outcome.processes > 5
    assert outcome.acked > 20


# -- what is acknowledged -----------------------------------------------------------------------------------


def test_an_acknowledgement_before_the_isr_has_it_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The high watermark is the leader's own log end."""
    plant(monkeypatch, Isr.committed_end, lambda _, log_end, *__: log_end)
    assert_caught(BUSY, first=10, by=AckedNotLost)


@pytest.mark.long
def test_an_acknowledgement_with_too_few_in_sync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """`min.insync.replicas` is not looked at."""
    lead = Partition.lead
    plant(monkeypatch, Partition.lead, lambda partition, placed, _: lead(partition, placed, 1))
    plant(monkeypatch, Partition.require, lambda *_: None)
    assert_caught(BUSY, first=5, by=AckedNotLost)


def test_a_follower_that_counts_before_it_has_synced_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though everything is to be synced before it is acknowledged."""

    def at_once(
        _: FollowerSyncs, partitions: Iterable[Partition], then: Callable[[list[Any]], None], **__: bool
    ) -> None:
        list(partitions)
        then([])

    plant(monkeypatch, FollowerSyncs.written, at_once)
    assert_caught(SYNCED, first=25, by=AckedNotLost)


@pytest.mark.long
def test_consumers_that_read_what_is_not_committed_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Partition._commit

    def show_all(partition: Partition, isr: Isr) -> None:
        commit(partition, isr)
        partition.high_watermark = max(partition.high_watermark, partition.log.log_end)

    plant(monkeypatch, Partition._commit, show_all)
    assert_caught(BUSY, first=3, by=HighWatermarkHeld)


def test_a_follower_that_does_not_fetch_again_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """After one failed request it waits for ever, and the high watermark with it."""
    settings = BUSY.settings | {"replica.lag.time.max.ms": "30000"}
    plant(monkeypatch, Fetcher._backed_off, lambda _: None)
    assert_caught(replace(BUSY, crash_us_mean=0, settings=settings), first=117, by=ReplicatedInTime)


# -- who is in sync, and who may lead -----------------------------------------------------------------------


def test_an_isr_that_takes_in_who_has_not_caught_up_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def may_join(in_sync: Isr, follower: Any, *_: object) -> bool:
        return in_sync.pending is None and follower.broker_id not in in_sync.committed

    plant(monkeypatch, Isr.may_join, may_join)
    assert_caught(SLOW, by=AckedNotLost)


@pytest.mark.long
def test_a_replica_that_lost_what_it_had_and_stays_in_sync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an unclean stop it is taken back as if nothing had been (KIP-966)."""
    plant(monkeypatch, brokers._former_life, lambda *_: ())
    plant(monkeypatch, brokers._fenced, _fence_and_keep)
    assert_caught(BUSY, first=12, by=AckedNotLost)


def _fence_and_keep(_: object, broker: Any) -> Iterable[Any]:
    """The broker is fenced, and stays in the ISRs that it is in."""
    yield brokers.s.BrokerRegistrationChangeRecord(
        version=0, broker_id=broker.id, broker_epoch=broker.epoch, fenced=1
    )


@pytest.mark.long
def test_a_leader_that_was_never_in_sync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any replica that is alive may lead."""
    plant(monkeypatch, PartitionEdit._may_lead, lambda edit, replica: edit.acceptable(replica))
    assert_caught(BUSY, first=1, by="Progress")


def test_an_election_without_an_epoch_of_its_own_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    merge = replay.merge

    def stay(partition: Any, change: Any) -> Any:
        return replace(merge(partition, change), leader_epoch=partition.leader_epoch)

    plant(monkeypatch, replay.merge, stay)
    assert_caught(BUSY, by=OneLeaderPerEpoch)


# -- where logs part ----------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_log_that_is_not_cut_where_it_parts_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader does not look at the epoch of what a follower has."""
    plant(monkeypatch, diverging_epoch, lambda *_: None, within=follower_fetch)
    assert_caught(BUSY, first=5, by=ReplicasAgree)


@pytest.mark.long
def test_a_truncation_that_is_skipped_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The follower hears where the logs part, and keeps what it has."""
    plant(monkeypatch, FollowerReplica.truncate_diverging, lambda *_: None)
    assert_caught(replace(BUSY, settle_us_max=15_000_000), first=5, by="Progress")


def test_followers_that_do_not_remember_producers_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    stage_replicated = Log.stage_replicated
    apply = Producers.apply

    def stage_and_forget(log: Log, *data: Any, **how: Any) -> None:
        plant(monkeypatch, apply, lambda *_: None)
        try:
            stage_replicated(log, *data, **how)
        finally:
            plant(monkeypatch, apply, apply)

    plant(monkeypatch, Log.stage_replicated, stage_and_forget)
    assert_caught(BUSY, first=12, by=NoDuplicate)


# -- the quorum ---------------------------------------------------------------------------------------------


def test_a_vote_that_is_not_synced_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def replace_unsynced(vfs: Vfs, path: str, data: bytes) -> None:
        file = vfs.open(f"{path}.new", write=True, create=True)
        file.pwrite([data], 0)
        file.truncate(len(data))
        file.close()
        vfs.rename(f"{path}.new", path)

    plant(monkeypatch, replace_file, replace_unsynced, within=quorum_state_file)
    assert_caught(SYNCED, by="NodeLives")


@pytest.mark.long
def test_metadata_that_is_not_synced_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a node tells the leader that it has, a power cut takes."""
    run = FlushWork.run

    def run_unless_metadata(work: FlushWork) -> None:
        if not any("__cluster_metadata" in segment.ref.path for segment, _ in work.segments):
            run(work)

    plant(monkeypatch, FlushWork.run, run_unless_metadata)
    assert_caught(SYNCED, by="LogMatchesReads")


@pytest.mark.long
def test_a_vote_for_a_log_that_lacks_something_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raft 5.4.1: a log that is not up to date gets no vote; here every log seems to be."""
    for role in (Unattached, Follower, Prospective, Resigned):
        would_grant = role.would_grant

        def grant_all(
            role: Role, candidate: ReplicaKey, _: bool, pre_vote: bool, would_grant: Any = would_grant
        ) -> Any:
            return would_grant(role, candidate, True, pre_vote)

        plant(monkeypatch, role.would_grant, grant_all, within=role)
    assert_caught(BUSY, first=41, by=MetadataIdentical)


@pytest.mark.long
def test_metadata_that_is_committed_without_a_majority_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def reached_by_one(_: Quorum, __: object, local_flushed: Offset) -> Offset:
        return local_flushed

    plant(monkeypatch, Quorum.reached_by_majority, reached_by_one)
    assert_caught(BUSY, by=MetadataIdentical)
