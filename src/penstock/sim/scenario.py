"""Draws the scenario of a seed: settings, topics, producers, consumers, and the frequency of faults.

Segments are small, so that logs roll; retention, cleaning and checkpoints run often; a run of some virtual seconds has
several crashes of every kind. Even seeds also have groups and transactions (`coordination`). A scenario is plain data.
"""

from dataclasses import dataclass, replace
from random import Random

from penstock.records import Codec
from penstock.sim.checkers.history import Survives
from penstock.sim.checkers.records import Rules
from penstock.sim.clients.consumers import ConsumerPlan
from penstock.sim.clients.http_clients import DoorsPlan
from penstock.sim.clients.pipelined import PipelinedPlan
from penstock.sim.clients.producers import ALL, ProducerPlan
from penstock.sim.clients.topic_renewer import RenewalPlan
from penstock.sim.cluster_plan import ONE_NODE, ClusterPlan, PowerCuts
from penstock.sim.coordination import (
    NO_COORDINATION,
    SOURCE,
    TARGET,
    Coordination,
    draw_coordination,
    draw_settings,
)
from penstock.sim.secured import SecurityPlan

STEPS_DEFAULT = 4000
"""Events of a run before clients have to finish."""


@dataclass(frozen=True)
class TopicPlan:
    name: str
    partition_count: int
    configs: dict[str, str]
    replication: int = 1

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.configs.get("cleanup.policy", "")

    @property
    def is_shortened(self) -> bool:
        return "retention.bytes" in self.configs or "retention.ms" in self.configs


@dataclass(frozen=True)
class Scenario:
    seed: int
    steps: int
    settings: dict[str, str]
    topics: tuple[TopicPlan, ...]
    producers: tuple[ProducerPlan, ...]
    consumers: tuple[ConsumerPlan, ...]
    crash_us_mean: int
    """Mean time between two crashes, stops or power cuts; 0 for none."""
    reset_us_mean: int
    has_disk_faults: bool = False
    coordination: Coordination = NO_COORDINATION
    cuts_power: bool = True
    """Whether power cuts are among the crashes; otherwise kills take their place."""
    cluster: ClusterPlan = ONE_NODE
    rereaders: tuple[ConsumerPlan, ...] = ()
    """Consumers that start over at the beginning whenever they have read everything."""
    slow_readers: tuple[ConsumerPlan, ...] = ()
    """Consumers that stop reading their connection for seconds."""
    doors: DoorsPlan | None = None
    """Clients of HTTP and of the line protocol."""
    security: SecurityPlan | None = None
    """Clients log in, and users and ACLs change."""
    renewals: tuple[RenewalPlan, ...] = ()
    """Topics that are deleted and created again."""
    pipelined: tuple[PipelinedPlan, ...] = ()
    """Idempotent producers that follow the rules of real clients."""
    extras: tuple[str, ...] = ()
    """Names of extras (`--with`)."""
    duration_us: int = 0
    """Virtual time before clients have to finish; 0 if `steps` decides."""
    settle_us_max: int = 300_000_000
    """Virtual time in which clients must finish once faults have ended."""

    @property
    def length(self) -> str:
        """Options of the command line that reproduce the scenario's length and extras."""
        extras = "".join(f" --with {each}" for each in self.extras)
        if not self.duration_us:
            return f"--steps {self.steps}{extras}"
        return f"--minutes {self.duration_us / 60_000_000:g} --nodes {self.cluster.nodes}{extras}"

    @property
    def rules(self) -> Rules:
        return Rules(
            compacted=frozenset(each.name for each in self.topics if each.is_compacted),
            shortened=frozenset(each.name for each in self.topics if each.is_shortened),
            has_disk_faults=self.has_disk_faults,
            is_replicated=self.cluster.is_replicated,
            is_shaken=self.cluster.power_cuts is PowerCuts.ANY,
            offsets_partitions=int(self.settings.get("offsets.topic.num.partitions", 50)),
            has_doors=self.doors is not None,
            renewed=frozenset(each.topic for each in self.renewals),
            pipelined=frozenset(each.name for each in self.pipelined),
        )


def survives(settings: dict[str, str], topic: TopicPlan, acks: int) -> Survives:
    """Return what an acknowledged record must survive."""
    if acks == 0:
        return Survives.NOTHING
    if topic.configs.get("flush.messages") == "1":
        return Survives.POWER_CUT
    if acks == ALL and settings.get("durability.fsync") != "never":
        return Survives.POWER_CUT
    return Survives.KILL


def draw(seed: int, steps: int = STEPS_DEFAULT) -> Scenario:
    rng = Random(f"{seed}/scenario")
    settings = {
        "durability.fsync": rng.choices(("alone", "always", "never"), (7, 1, 2))[0],
        "log.retention.check.interval.ms": str(rng.choice((200, 1000))),
        "log.cleaner.backoff.ms": str(rng.choice((100, 500))),
        "log.flush.offset.checkpoint.interval.ms": str(rng.choice((300, 2000))),
        "log.flush.start.offset.checkpoint.interval.ms": str(rng.choice((300, 2000))),
        "metadata.log.segment.bytes": str(rng.choice((1000, 10_000))),
        "metadata.log.max.record.bytes.between.snapshots": str(rng.choice((500, 2000, 20_000))),
        "max.incremental.fetch.session.cache.slots": str(rng.choice((0, 1, 1000))),
        "num.partitions": "2",
    }
    topics = tuple(_draw_topic(rng, f"topic-{number}") for number in range(rng.randint(1, 3)))
    producers = tuple(
        _draw_producer(rng, settings, rng.choice(topics), number) for number in range(rng.randint(2, 5))
    )
    consumers = tuple(_draw_consumer(rng, rng.choice(topics), number) for number in range(rng.randint(1, 4)))
    scenario = Scenario(
        seed=seed,
        steps=steps,
        settings=settings,
        topics=topics,
        producers=producers,
        consumers=consumers,
        crash_us_mean=rng.choice((0, 300_000, 800_000, 800_000, 2_000_000)),
        reset_us_mean=rng.choice((0, 100_000, 1_000_000)),
        has_disk_faults=rng.random() < 0.15,
    )
    return scenario if seed % 2 else _with_coordination(scenario)


def _with_coordination(scenario: Scenario) -> Scenario:
    """Add groups and transactions; other clients become fewer and slower."""
    rng = Random(f"{scenario.seed}/coordination")
    settings = scenario.settings | draw_settings(rng)
    plain = {"segment.bytes": str(rng.choice((1000, 5000, 20_000)))}
    topics = (
        *scenario.topics,
        TopicPlan(SOURCE, rng.randint(1, 3), plain),
        TopicPlan(TARGET, rng.randint(1, 3), plain),
    )
    syncs = settings["durability.fsync"] != "never"
    feeder = ProducerPlan(
        "feeder",
        SOURCE,
        ALL,
        Survives.POWER_CUT if syncs else Survives.KILL,
        is_idempotent=True,
        batch_records_max=3,
        pace_us=rng.choice((10_000, 40_000)),
        drops_link=0.01,
    )
    slower = tuple(replace(each, pace_us=20_000) for each in scenario.producers[:2])
    return replace(
        scenario,
        settings=settings,
        topics=topics,
        producers=(*slower, feeder),
        consumers=(*scenario.consumers[:1], ConsumerPlan("reader", TARGET, isolation=1)),
        coordination=draw_coordination(
            rng,
            settings,
            [each.name for each in scenario.topics],
            Survives.POWER_CUT if syncs else Survives.KILL,
        ),
        has_disk_faults=scenario.has_disk_faults and syncs,
        cuts_power=syncs,
    )


def _draw_topic(rng: Random, name: str) -> TopicPlan:
    configs = {
        "segment.bytes": str(rng.choice((1000, 2000, 5000, 20_000))),
        "index.interval.bytes": str(rng.choice((0, 100, 1000))),
        "file.delete.delay.ms": str(rng.choice((0, 100))),
    }
    drawn = rng.random()
    if drawn < 0.2:
        configs |= {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    elif drawn < 0.35:
        configs["retention.bytes"] = str(rng.choice((2000, 10_000)))
    elif drawn < 0.45:
        configs["retention.ms"] = str(rng.choice((300, 2000)))
    if rng.random() < 0.3:
        configs["flush.messages"] = str(rng.choice((1, 1, 7)))
    if rng.random() < 0.1:
        configs["flush.ms"] = "50"
    if rng.random() < 0.2:
        configs["message.timestamp.type"] = "LogAppendTime"
    if rng.random() < 0.15:
        configs["compression.type"] = rng.choice(("zstd", "lz4", "snappy", "gzip", "uncompressed"))
    if rng.random() < 0.2:
        configs["record.validation"] = "full"
    return TopicPlan(name, rng.randint(1, 4), configs)


def _draw_producer(rng: Random, settings: dict[str, str], topic: TopicPlan, number: int) -> ProducerPlan:
    is_idempotent = rng.random() < 0.5
    acks = ALL if is_idempotent else rng.choice((0, 1, ALL))
    return ProducerPlan(
        name=f"{'idempotent' if is_idempotent else 'plain'}-{number}",
        topic=topic.name,
        acks=acks,
        survives=survives(settings, topic, acks),
        is_idempotent=is_idempotent,
        retries=is_idempotent or rng.random() < 0.5,
        in_flight_max=rng.choice((1, 3, 5)),
        batch_records_max=rng.choice((1, 5)),
        key_count=rng.choice((3, 20)) if topic.is_compacted or rng.random() < 0.5 else 0,
        pace_us=rng.choice((1_000, 4_000, 20_000)),
        timeout_ms=rng.choice((50, 5_000)),
        codec=rng.choice((Codec.NONE, Codec.NONE, *Codec)),
    )


def _draw_consumer(rng: Random, topic: TopicPlan, number: int) -> ConsumerPlan:
    return ConsumerPlan(
        name=f"consumer-{number}",
        topic=topic.name,
        uses_session=rng.random() < 0.6,
        max_wait_ms=rng.choice((0, 50, 500)),
        min_bytes=rng.choice((1, 1, 2000, 100_000)),
        bytes_max=rng.choice((200, 4096, 1 << 20)),
        pause_us_max=rng.choice((500, 5_000, 50_000)),
    )
