"""Draws the scenario of a seed for a cluster of several nodes.

The rules that must hold depend on what may be lost, so the `ClusterKind` is drawn first and everything else within it.
Clients are slower than with one node, and timeouts are closer to production values: the faults of interest take
elections and sessions, not microseconds, and a virtual minute must run in seconds.
"""

from dataclasses import dataclass, replace
from random import Random

from penstock.metadata.config_table import RACK_AWARE
from penstock.sim.checkers.history import Survives
from penstock.sim.clients.consumers import ConsumerPlan
from penstock.sim.clients.producers import ALL, ProducerPlan
from penstock.sim.cluster_plan import CLOCK_RATE_MAX, ClusterPlan, Harm, PowerCuts
from penstock.sim.coordination import (
    NO_COORDINATION,
    SOURCE,
    TARGET,
    draw_coordination,
    draw_settings,
)
from penstock.sim.scenario import Scenario, TopicPlan
from penstock.sim.world.process_world import Clock

SLOWER = 6
"""Factor by which sessions of groups and transactions are longer than with one node."""

MINUTE_US = 60_000_000


@dataclass(frozen=True)
class ClusterKind:
    """Durability settings of a cluster, and the faults that it must therefore survive."""

    fsync: str
    min_in_sync: int
    power_cuts: PowerCuts
    has_disk_faults: bool = False
    harm: Harm = Harm.NONE


KINDS = (
    ClusterKind("alone", 2, PowerCuts.FEW),
    ClusterKind("alone", 2, PowerCuts.SOME),
    ClusterKind("never", 2, PowerCuts.FEW),
    ClusterKind("always", 2, PowerCuts.ANY),
    ClusterKind("always", 1, PowerCuts.ANY),
    ClusterKind("alone", 1, PowerCuts.NONE),
    ClusterKind("alone", 2, PowerCuts.NONE, has_disk_faults=True),
)

HARMED = (
    ClusterKind("alone", 2, PowerCuts.SOME, harm=Harm.FLIPS),
    ClusterKind("alone", 2, PowerCuts.SOME, harm=Harm.WIPES),
    ClusterKind("always", 2, PowerCuts.ANY, harm=Harm.BOTH),
)
"""Kinds that harm one disk at a time; at least two replicas have every acknowledged record."""


def _draw_kind(seed: int, rng: Random) -> ClusterKind:
    """Every fifth seed harms disks; the other seeds draw as if such kinds did not exist."""
    kind = rng.choice(KINDS)
    return HARMED[seed // 5 % len(HARMED)] if seed % 5 == 1 else kind


def draw_cluster(seed: int, nodes: int, duration_us: int) -> Scenario:
    rng = Random(f"{seed}/cluster of {nodes}")
    kind = _draw_kind(seed, rng)
    replication = min(3, nodes)
    min_in_sync = min(kind.min_in_sync, replication)
    settings = _draw_settings(rng, kind, replication, min_in_sync)
    topics = tuple(_draw_topic(rng, f"topic-{number}", replication) for number in range(rng.randint(1, 2)))
    producers = tuple(draw_producer(rng, rng.choice(topics), number) for number in range(rng.randint(2, 4)))
    consumers = tuple(draw_consumer(rng, rng.choice(topics), number) for number in range(rng.randint(1, 3)))
    scenario = Scenario(
        seed=seed,
        steps=0,
        duration_us=duration_us,
        settings=settings,
        topics=topics,
        producers=producers,
        consumers=consumers,
        crash_us_mean=rng.choice((0, 5_000_000, 10_000_000, 20_000_000)),
        reset_us_mean=rng.choice((0, 1_000_000, 10_000_000)),
        has_disk_faults=kind.has_disk_faults,
        coordination=NO_COORDINATION,
        cuts_power=kind.power_cuts is not PowerCuts.NONE,
        cluster=_draw_plan(rng, kind, nodes),
    )
    scenario = scenario if seed % 2 else _with_coordination(scenario, rng, replication)
    return _with_racks(scenario) if seed % 5 == 4 else scenario


def _draw_settings(rng: Random, kind: ClusterKind, replication: int, min_in_sync: int) -> dict[str, str]:
    session_ms = rng.choice((1500, 3000, 9000))
    return {
        "durability.fsync": kind.fsync,
        "default.replication.factor": str(replication),
        "min.insync.replicas": str(min_in_sync),
        "offsets.topic.replication.factor": str(replication),
        "transaction.state.log.replication.factor": str(replication),
        "transaction.state.log.min.isr": str(min_in_sync),
        "broker.session.timeout.ms": str(session_ms),
        "broker.heartbeat.interval.ms": str(session_ms // 4),
        "replica.lag.time.max.ms": str(rng.choice((2_000, 5_000, 30_000))),
        "replica.fetch.wait.max.ms": str(rng.choice((100, 500, 500))),
        "log.retention.check.interval.ms": "5000",
        "log.cleaner.backoff.ms": "5000",
        "log.flush.offset.checkpoint.interval.ms": str(rng.choice((1000, 60_000))),
        "log.flush.start.offset.checkpoint.interval.ms": str(rng.choice((1000, 60_000))),
        "replica.high.watermark.checkpoint.interval.ms": str(rng.choice((500, 5000))),
        "metadata.log.segment.bytes": str(rng.choice((1000, 10_000))),
        "metadata.log.max.record.bytes.between.snapshots": str(rng.choice((2000, 20_000))),
        "max.incremental.fetch.session.cache.slots": str(rng.choice((0, 3, 1000))),
        "leader.imbalance.check.interval.seconds": str(rng.choice((5, 300))),
        "num.partitions": "2",
    }


def _draw_plan(rng: Random, kind: ClusterKind, nodes: int) -> ClusterPlan:
    drifts = rng.random() < 0.5
    return ClusterPlan(
        nodes=nodes,
        clocks=tuple(draw_clock(rng) if drifts else Clock() for _ in range(nodes)),
        power_cuts=kind.power_cuts,
        down_us=rng.choice(((10_000, 1_000_000), (10_000, 1_000_000), (500_000, 10_000_000))),
        cut_us_mean=rng.choice((0, 10_000_000, 20_000_000)),
        pause_us_mean=rng.choice((0, 0, 10_000_000, 30_000_000)),
        operate_us_mean=rng.choice((0, 3_000_000, 10_000_000)),
        hiccups=rng.choice((0.0, 0.002, 0.02)),
        splits=rng.choice((0.0, 0.02, 0.3)),
        faulty=rng.randint(1, nodes) if kind.has_disk_faults else 0,
        harm=kind.harm,
        harm_us_mean=10_000_000 if kind.harm is not Harm.NONE else 0,
    )


def draw_clock(rng: Random) -> Clock:
    """Draw a clock that is wrong."""
    return Clock(rng.randrange(-5_000, 5_000), rng.uniform(1 / CLOCK_RATE_MAX, CLOCK_RATE_MAX))


def _draw_topic(rng: Random, name: str, replication: int) -> TopicPlan:
    configs = {
        "segment.bytes": str(rng.choice((2000, 20_000, 1_000_000))),
        "index.interval.bytes": str(rng.choice((100, 4096))),
        "file.delete.delay.ms": "1000",
    }
    drawn = rng.random()
    if drawn < 0.15:
        configs |= {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    elif drawn < 0.25:
        configs["retention.bytes"] = "10000"
    return TopicPlan(name, rng.randint(1, 3), configs, replication)


def draw_producer(rng: Random, topic: TopicPlan, number: int) -> ProducerPlan:
    is_idempotent = rng.random() < 0.6
    acks = ALL if is_idempotent else rng.choice((0, 1, ALL))
    return ProducerPlan(
        name=f"{'idempotent' if is_idempotent else 'plain'}-{number}",
        topic=topic.name,
        acks=acks,
        survives=Survives.POWER_CUT if acks == ALL else Survives.NOTHING,
        is_idempotent=is_idempotent,
        retries=is_idempotent or rng.random() < 0.5,
        in_flight_max=rng.choice((1, 3, 5)),
        batch_records_max=rng.choice((1, 5)),
        key_count=rng.choice((3, 20)) if topic.is_compacted else 0,
        pace_us=rng.choice((100_000, 300_000, 600_000)),
        timeout_ms=rng.choice((500, 5_000)),
        drops_link=0.002,
    )


def draw_consumer(rng: Random, topic: TopicPlan, number: int) -> ConsumerPlan:
    return ConsumerPlan(
        name=f"consumer-{number}",
        topic=topic.name,
        uses_session=rng.random() < 0.6,
        max_wait_ms=2_000,
        min_bytes=rng.choice((1, 1, 2000)),
        bytes_max=rng.choice((4096, 1 << 20)),
        pause_us_max=rng.choice((50_000, 300_000)),
        drops_link=0.005,
    )


def _with_racks(scenario: Scenario) -> Scenario:
    """Add racks, and consumers that read from the replica in their rack."""
    rng = Random(f"{scenario.seed}/racks")
    racks = [str(number) for number in range(1, scenario.cluster.nodes + 1)]
    return replace(
        scenario,
        settings=scenario.settings | {"replica.selector.class": RACK_AWARE},
        consumers=tuple(replace(each, rack=rng.choice(racks)) for each in scenario.consumers),
        cluster=replace(scenario.cluster, has_racks=True),
    )


def _with_coordination(scenario: Scenario, rng: Random, replication: int) -> Scenario:
    """Add groups and transactions; other clients become fewer."""
    settings = scenario.settings | draw_settings(rng, SLOWER)
    topics = (
        *scenario.topics,
        TopicPlan(SOURCE, rng.randint(1, 3), {}, replication),
        TopicPlan(TARGET, rng.randint(1, 3), {}, replication),
    )
    feeder = ProducerPlan(
        "feeder",
        SOURCE,
        ALL,
        Survives.POWER_CUT,
        is_idempotent=True,
        batch_records_max=3,
        pace_us=rng.choice((200_000, 500_000)),
    )
    return replace(
        scenario,
        settings=settings,
        topics=topics,
        producers=(*scenario.producers[:1], feeder),
        consumers=(
            *scenario.consumers[:1],
            ConsumerPlan("reader", TARGET, isolation=1, max_wait_ms=2_000, pause_us_max=200_000),
        ),
        coordination=draw_coordination(
            rng, settings, [each.name for each in scenario.topics], Survives.POWER_CUT, SLOWER
        ),
    )
