"""The clients of a campaign, as a scenario of the simulator.

It has every kind of client at once: idempotent, plain and transactional producers, workers that read, process and
write, groups of both protocols, read_committed and read_uncommitted consumers. There are few of each, and they are
slow: clients and checkers share one process, which must not become the bottleneck.
"""

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from penstock.records import Codec
from penstock.sim.checkers.history import Survives
from penstock.sim.clients.consumers import ConsumerPlan
from penstock.sim.clients.http_clients import DoorsPlan
from penstock.sim.clients.members import MemberPlan
from penstock.sim.clients.producers import ALL, ProducerPlan
from penstock.sim.clients.transactional import TransactionalPlan, WorkerPlan
from penstock.sim.clients.txn_plan import TxnSettings
from penstock.sim.cluster_plan import ClusterPlan, PowerCuts
from penstock.sim.coordination import SOURCE, TARGET, Coordination
from penstock.sim.scenario import Scenario, TopicPlan

ORDERS, PRICES, DOORS, PROBED = "orders", "prices", "doors", "probed"

SESSION_MS = 6_000
"""Session timeout of group members."""
TRANSACTION_MS = 10_000
TICK_US = 300_000

REPLICAS = 3


def draw_load(seed: int, brokers: int, settings: Mapping[str, str]) -> Scenario:
    rng = Random(f"{seed}/load")
    small = {"segment.bytes": str(rng.choice((50_000, 200_000)))}
    return Scenario(
        seed=seed,
        steps=0,
        settings=dict(settings),
        topics=(
            TopicPlan(ORDERS, 6, small, REPLICAS),
            TopicPlan(PRICES, 2, small | {"cleanup.policy": "compact"}, REPLICAS),
            TopicPlan(SOURCE, 3, {}, REPLICAS),
            TopicPlan(TARGET, 3, {}, REPLICAS),
            TopicPlan(DOORS, 3, {}, REPLICAS),
            TopicPlan(PROBED, 6, {}, REPLICAS),
        ),
        producers=tuple(_draw_producers(rng)),
        consumers=(
            _reader("reader", ORDERS, rng, isolation=0),
            _reader("careful-reader", ORDERS, rng, isolation=1),
            _reader("price-reader", PRICES, rng),
            _reader("result-reader", TARGET, rng, isolation=1),
        ),
        coordination=Coordination(
            (
                *_members("classic", ORDERS, 3, is_consumer_protocol=False),
                *_members("modern", ORDERS, 2, is_consumer_protocol=True),
            ),
            tuple(_transactional(number, rng) for number in range(2)),
            tuple(_worker(number, rng) for number in range(2)),
        ),
        doors=DoorsPlan(DOORS, 3),
        crash_us_mean=0,
        reset_us_mean=0,
        has_disk_faults=True,
        cluster=ClusterPlan(nodes=brokers, power_cuts=PowerCuts.NONE),
        duration_us=1,
    )


def broker_settings(more: Mapping[str, str]) -> dict[str, str]:
    """Return Kafka's defaults with three replicas, and with group sessions short enough for a campaign."""
    return {
        "default.replication.factor": str(REPLICAS),
        "min.insync.replicas": "2",
        "offsets.topic.replication.factor": str(REPLICAS),
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.replication.factor": str(REPLICAS),
        "transaction.state.log.min.isr": "2",
        "transaction.state.log.num.partitions": "3",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": str(SESSION_MS),
        "group.consumer.min.heartbeat.interval.ms": "500",
        "group.consumer.heartbeat.interval.ms": "1000",
        **more,
    }


def _draw_producers(rng: Random) -> list[ProducerPlan]:
    def plan(name: str, topic: str, acks: int, *, is_idempotent: bool = False, keys: int = 0) -> ProducerPlan:
        return ProducerPlan(
            name,
            topic,
            acks,
            Survives.POWER_CUT if acks == ALL else Survives.NOTHING,
            is_idempotent=is_idempotent,
            retries=is_idempotent or rng.random() < 0.5,
            key_count=keys,
            pace_us=rng.choice((100_000, 200_000)),
            timeout_ms=rng.choice((2_000, 5_000)),
            codec=rng.choice((Codec.NONE, *Codec)),
            drops_link=0.001,
        )

    return [
        plan("idempotent-1", ORDERS, ALL, is_idempotent=True),
        plan("idempotent-2", ORDERS, ALL, is_idempotent=True),
        plan("plain", ORDERS, ALL),
        plan("hasty", ORDERS, 1),
        plan("pricer", PRICES, ALL, is_idempotent=True, keys=20),
        plan("feeder", SOURCE, ALL, is_idempotent=True),
    ]


def _reader(name: str, topic: str, rng: Random, isolation: int | None = None) -> ConsumerPlan:
    return ConsumerPlan(
        name,
        topic,
        uses_session=rng.random() < 0.5,
        max_wait_ms=500,
        bytes_max=1 << 16,
        pause_us_max=200_000,
        drops_link=0.001,
        isolation=isolation,
    )


def _members(group: str, topic: str, count: int, *, is_consumer_protocol: bool) -> list[MemberPlan]:
    return [
        _member(f"{group}-{number}", group, topic, is_consumer_protocol=is_consumer_protocol)
        for number in range(1, count + 1)
    ]


def _member(name: str, group: str, topic: str, *, is_consumer_protocol: bool = False) -> MemberPlan:
    return MemberPlan(
        name,
        topic,
        group,
        is_consumer_protocol=is_consumer_protocol,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=2 * SESSION_MS,
        crashes=0.002,
        stalls=0.002,
        leaves=0.002,
        stall_ms_max=2 * SESSION_MS,
        tick_us=TICK_US,
        fetch=ConsumerPlan(
            name, topic, max_wait_ms=500, bytes_max=1 << 16, pause_us_max=200_000, isolation=1
        ),
    )


def _transactional(number: int, rng: Random) -> TransactionalPlan:
    return TransactionalPlan(
        name=f"transactional-{number}",
        txn=TxnSettings(
            f"transactional-{number}",
            rng.choice((ORDERS, SOURCE)),
            rng.random() < 0.6,
            TRANSACTION_MS,
            Survives.POWER_CUT,
        ),
        group=f"side-{number}",
        crashes=0.001,
        stalls=0.001,
        stall_ms_max=2 * TRANSACTION_MS,
        pace_us=300_000,
    )


def _worker(number: int, rng: Random) -> WorkerPlan:
    name = f"worker-{number}"
    txn = TxnSettings(name, TARGET, rng.random() < 0.6, TRANSACTION_MS, Survives.POWER_CUT)
    fetch = ConsumerPlan(name, SOURCE, max_wait_ms=500, bytes_max=1000, pause_us_max=100_000, isolation=1)
    member = replace(
        _member(name, "workers", SOURCE), commits=1.0, stall_ms_max=MemberPlan.stall_ms_max, fetch=fetch
    )
    return WorkerPlan(member, txn)
