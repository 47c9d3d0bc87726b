"""Extra faults and clients of a cluster, which `--with` adds to a scenario.

Each extra has its own random stream, so that the rest of the scenario stays the same.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import Enum
from random import Random

from penstock.records import Codec
from penstock.sim.checkers.history import Survives
from penstock.sim.clients.consumers import ConsumerPlan
from penstock.sim.clients.http_clients import DoorsPlan
from penstock.sim.clients.pipelined import ClientRules, PipelinedPlan
from penstock.sim.clients.producers import ALL
from penstock.sim.clients.slow_readers import SETTINGS
from penstock.sim.clients.topic_renewer import RenewalPlan
from penstock.sim.cluster_plan import Harm, PowerCuts
from penstock.sim.cluster_scenario import draw_clock, draw_consumer, draw_producer
from penstock.sim.faults.disk_troubles import FAILING, DiskPlan, Trouble
from penstock.sim.scenario import Scenario, TopicPlan
from penstock.sim.secured import GUARDED, NODE_SETTINGS, SecurityPlan
from penstock.sim.world.process_world import TRUE

CONTROLLERS = 3

TWO_COPIES = {"min.insync.replicas": "2", "transaction.state.log.min.isr": "2"}
"""Settings with which at least two replicas have every acknowledged record."""


class Extra(Enum):
    RENEWALS = "renewals"
    """Topics are deleted and created again under their names while clients write and read them."""
    BAD_SECTORS = "bad-sectors"
    """Bits of disks change while their nodes run; consumers read everything again and again."""
    APART = "apart"
    """Three dedicated controllers, beside the brokers."""
    FULL_DISKS = "full-disks"
    """Disks fill while their nodes run, and get room again later."""
    FAILING_DISKS = "failing-disks"
    """Disks become read-only for a while, or fail writes, syncs or reads of one log or of all."""
    SLOW_DISKS = "slow-disks"
    """A sync takes seconds for a while."""
    LOST_METADATA = "lost-metadata"
    """Voters restart without the end of their metadata log."""
    HOLES = "holes"
    """Nodes restart without a transaction marker, a segment or an index. Whenever a node goes down, a copy of its disk
    is damaged in this way and read."""
    PIPELINED = "pipelined"
    """Idempotent producers have several batches in flight to six partitions, as librdkafka and the Java client do."""
    VOTER_CHANGES = "voter-changes"
    """Controllers are added to the voters of the quorum and removed from them."""
    ROLLBACKS = "rollbacks"
    """Files of stopped nodes are removed, truncated or rolled back; at the end, the metadata of all nodes."""
    DOORS = "doors"
    """Clients of HTTP, with idempotency keys and as members of a group, and of the line protocol."""
    COSTLY_BATCHES = "costly-batches"
    """Producers send batches of thousands of records to a topic whose records are all decoded. Decoding on the event
    loop has a cost, and must not hold the loop for long."""
    SLOW_READERS = "slow-readers"
    """Consumers request everything, and do not read the response for seconds."""
    SECURITY = "security"
    """Nodes and clients log in and ACLs are on; an operator changes passwords, ACLs and quotas of guests."""
    UNNAMED = "unnamed"
    """The settings have no cluster id: the first leader draws it, and other nodes read it from the metadata log."""


ALONE = (Extra.HOLES,)
"""Extras that also work with a single node."""


def with_extras(scenario: Scenario, extras: Iterable[Extra]) -> Scenario:
    for extra in sorted(set(extras), key=list(Extra).index):
        rng = Random(f"{scenario.seed}/{extra.value}")
        scenario = replace(_ADD[extra](scenario, rng), extras=(*scenario.extras, extra.value))
    return scenario


def _add_renewals(scenario: Scenario, rng: Random) -> Scenario:
    replication = min(3, scenario.cluster.nodes)
    renewals = tuple(
        _draw_renewal(rng, f"renewed-{number}", replication) for number in range(rng.randint(1, 2))
    )
    return replace(scenario, renewals=renewals)


def _draw_renewal(rng: Random, name: str, replication: int) -> RenewalPlan:
    topic = TopicPlan(name, 1, {})
    producers = [
        replace(each, name=f"{each.name} of {name}")
        for each in (draw_producer(rng, topic, number) for number in range(3))
    ]
    consumers = [
        replace(each, name=f"{each.name} of {name}")
        for each in (draw_consumer(rng, topic, number) for number in range(2))
    ]
    return RenewalPlan(
        name,
        mean_us=rng.choice((1_000_000, 4_000_000, 12_000_000)),
        replication=replication,
        configs={
            "segment.bytes": str(rng.choice((2000, 1_000_000))),
            "file.delete.delay.ms": str(rng.choice((0, 1000, 60_000))),
        },
        producers=tuple(producers[:2]),
        producers_by_name=(replace(producers[2], survives=Survives.NOTHING),),
        consumers=tuple(consumers[:1]),
        consumers_by_name=tuple(consumers[1:]),
    )


def _add_bad_sectors(scenario: Scenario, rng: Random) -> Scenario:
    """At least two replicas have every acknowledged record, and no other disk fails: damage can be repaired."""
    rereaders = tuple(
        ConsumerPlan(
            f"rereader of {each.name}",
            each.name,
            max_wait_ms=2_000,
            bytes_max=1 << 20,
            pause_us_max=500_000,
            isolation=0,
            rack=rng.choice("123") if scenario.cluster.has_racks else "",
        )
        for each in scenario.topics
    )
    return replace(
        scenario,
        settings=scenario.settings | TWO_COPIES,
        has_disk_faults=False,
        rereaders=rereaders,
        cluster=replace(
            scenario.cluster, faulty=0, bad_sectors_us_mean=rng.choice((2_000_000, 5_000_000, 15_000_000))
        ),
    )


def _set_apart(scenario: Scenario, rng: Random) -> Scenario:
    plan = scenario.cluster
    drifts = any(each != TRUE for each in plan.clocks)
    clocks = tuple(draw_clock(rng) if drifts else TRUE for _ in range(CONTROLLERS))
    return replace(scenario, cluster=replace(plan, controllers=CONTROLLERS, clocks=(*plan.clocks, *clocks)))


def _fail_disks(scenario: Scenario, rng: Random) -> Scenario:
    """Records that a disk could not sync may be lost with its process. So at least two replicas have every
    acknowledged record, and no other node is killed until the node has recovered."""
    scenario = replace(
        scenario,
        settings=scenario.settings | TWO_COPIES,
        cluster=replace(scenario.cluster, power_cuts=PowerCuts.FEW),
    )
    return _with_troubles(scenario, rng, *FAILING)


def _with_troubles(scenario: Scenario, rng: Random, *troubles: Trouble) -> Scenario:
    """Without power cuts, which together with a failing disk could take all copies of a record."""
    plan = scenario.cluster
    disks = DiskPlan(troubles, mean_us=rng.choice((2_000_000, 5_000_000, 15_000_000)))
    power_cuts = plan.power_cuts if plan.power_cuts is PowerCuts.FEW else PowerCuts.NONE
    return replace(
        scenario,
        has_disk_faults=True,
        cuts_power=False,
        cluster=replace(plan, faulty=-1, power_cuts=power_cuts, disks=plan.disks.beside(disks)),
    )


def _lose_metadata(scenario: Scenario, rng: Random) -> Scenario:
    mean_us = rng.choice((2_000_000, 5_000_000, 15_000_000))
    return replace(scenario, cluster=replace(scenario.cluster, lost_metadata_us_mean=mean_us))


def _make_holes(scenario: Scenario, rng: Random) -> Scenario:
    """Damage one disk at a time, as with bad sectors. With a single node only copies of its disk are damaged."""
    if not scenario.cluster.is_replicated:
        return scenario
    plan = replace(
        scenario.cluster,
        faulty=0,
        harm=Harm.HOLES,
        harm_us_mean=rng.choice((3_000_000, 8_000_000)),
    )
    return replace(scenario, settings=scenario.settings | TWO_COPIES, has_disk_faults=False, cluster=plan)


def _add_pipelined(scenario: Scenario, rng: Random) -> Scenario:
    replication = min(3, scenario.cluster.nodes)
    topic = TopicPlan("pipelined", 6, {"segment.bytes": str(rng.choice((2000, 1_000_000)))}, replication)
    producers = tuple(
        PipelinedPlan(
            name=f"{rules.value}-{number}",
            topic=topic.name,
            acks=ALL,
            survives=Survives.POWER_CUT,
            is_idempotent=True,
            in_flight_max=rng.choice((5, 15, 30)),
            batch_records_max=rng.choice((1, 4)),
            pace_us=rng.choice((200_000, 500_000)),
            timeout_ms=rng.choice((500, 5_000)),
            drops_link=rng.choice((0.0, 0.01)),
            rules=rules,
        )
        for number, rules in enumerate(ClientRules)
    )
    return replace(scenario, topics=(*scenario.topics, topic), pipelined=producers)


def _open_doors(scenario: Scenario, rng: Random) -> Scenario:
    topic = TopicPlan("doors", rng.randint(1, 3), {}, min(3, scenario.cluster.nodes))
    plan = DoorsPlan(
        topic.name,
        topic.partition_count,
        producers=rng.randint(1, 2),
        members=rng.randint(1, 3),
        pace_us=rng.choice((200_000, 600_000)),
        repeats=rng.choice((0.1, 0.5)),
        drops_link=rng.choice((0.005, 0.05)),
        leaves=rng.choice((0.0, 0.02)),
    )
    return replace(scenario, topics=(*scenario.topics, topic), doors=plan)


def _change_voters(scenario: Scenario, rng: Random) -> Scenario:
    """Without lost disks: each would take a voter with it, and the operator would have to know which."""
    plan = replace(
        scenario.cluster,
        voter_changes_us_mean=rng.choice((500_000, 2_000_000, 5_000_000)),
        voters_join=rng.random() < 0.3,
        harm=Harm.NONE,
        harm_us_mean=0,
    )
    return replace(scenario, cluster=plan)


def _roll_back(scenario: Scenario, rng: Random) -> Scenario:
    """As with bad sectors, other replicas must have what is lost; disks of other extras fail one at a time."""
    mean_us = rng.choice((2_000_000, 5_000_000, 15_000_000))
    plan = scenario.cluster
    return replace(
        scenario,
        settings=scenario.settings | TWO_COPIES,
        has_disk_faults=bool(plan.disks),
        cluster=replace(plan, faulty=-1 if plan.disks else 0, rollback_us_mean=mean_us),
    )


def _add_costly_batches(scenario: Scenario, rng: Random) -> Scenario:
    topic = TopicPlan("costly", 2, {"record.validation": "full"}, min(3, scenario.cluster.nodes))
    producers = tuple(
        replace(
            draw_producer(rng, topic, number),
            name=f"costly-{number}",
            batch_records_max=rng.choice((4000, 8000)),
            value_bytes_max=20,
            pace_us=rng.choice((1_000_000, 4_000_000)),
            codec=rng.choice((Codec.NONE, Codec.ZSTD)),
        )
        for number in range(2)
    )
    return replace(scenario, topics=(*scenario.topics, topic), producers=(*scenario.producers, *producers))


def _add_slow_readers(scenario: Scenario, rng: Random) -> Scenario:
    """Also add producers of large batches, so that responses are large."""
    topic = scenario.topics[0]
    slow = tuple(
        ConsumerPlan(
            f"slow reader {number} of {each.name}",
            each.name,
            uses_session=rng.random() < 0.5,
            max_wait_ms=500,
            bytes_max=1 << 20,
            pause_us_max=300_000,
        )
        for each in scenario.topics
        for number in range(rng.randint(1, 2))
    )
    producers = tuple(
        replace(
            draw_producer(rng, topic, 900 + number),
            name=f"bulk {number}",
            survives=Survives.NOTHING,
            value_bytes_max=2000,
        )
        for number in range(2)
    )
    return replace(
        scenario,
        settings=scenario.settings | SETTINGS,
        slow_readers=slow,
        producers=(*scenario.producers, *producers),
    )


def _secure(scenario: Scenario, rng: Random) -> Scenario:
    topic = TopicPlan(GUARDED, rng.randint(1, 3), {}, min(3, scenario.cluster.nodes))
    plan = SecurityPlan(
        guests=rng.randint(2, 3),
        change_us_mean=rng.choice((150_000, 500_000, 1_500_000)),
        pace_us=rng.choice((100_000, 300_000)),
    )
    return replace(
        scenario,
        settings=scenario.settings | NODE_SETTINGS,
        topics=(*scenario.topics, topic),
        security=plan,
    )


def _leave_unnamed(scenario: Scenario, _: Random) -> Scenario:
    return replace(scenario, cluster=replace(scenario.cluster, is_named=False))


_ADD: dict[Extra, Callable[[Scenario, Random], Scenario]] = {
    Extra.COSTLY_BATCHES: _add_costly_batches,
    Extra.RENEWALS: _add_renewals,
    Extra.BAD_SECTORS: _add_bad_sectors,
    Extra.APART: _set_apart,
    Extra.FULL_DISKS: lambda scenario, rng: _with_troubles(scenario, rng, Trouble.FULL),
    Extra.FAILING_DISKS: _fail_disks,
    Extra.SLOW_DISKS: lambda scenario, rng: _with_troubles(scenario, rng, Trouble.SLOW),
    Extra.LOST_METADATA: _lose_metadata,
    Extra.HOLES: _make_holes,
    Extra.PIPELINED: _add_pipelined,
    Extra.VOTER_CHANGES: _change_voters,
    Extra.ROLLBACKS: _roll_back,
    Extra.DOORS: _open_doors,
    Extra.SLOW_READERS: _add_slow_readers,
    Extra.SECURITY: _secure,
    Extra.UNNAMED: _leave_unnamed,
}
