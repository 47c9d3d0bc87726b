"""Draws groups, transactional producers, and workers that read, process and write.

Internal topics have small segments and are cleaned often. Sessions and transactions are short, so that a stalled
client is often late. Without syncs there are no power cuts, since transactions guarantee nothing then.
"""

from dataclasses import dataclass, replace
from random import Random

from penstock.sim.checkers.history import Survives
from penstock.sim.clients.consumers import ConsumerPlan
from penstock.sim.clients.members import TICK_US, MemberPlan
from penstock.sim.clients.transactional import TransactionalPlan, WorkerPlan
from penstock.sim.clients.txn_plan import TxnSettings

SOURCE, TARGET = "source", "target"
"""Topics of workers, without retention and compaction."""


@dataclass(frozen=True)
class Coordination:
    members: tuple[MemberPlan, ...] = ()
    transactional: tuple[TransactionalPlan, ...] = ()
    workers: tuple[WorkerPlan, ...] = ()

    @property
    def groups(self) -> list[tuple[str, str]]:
        """Each group and its topic."""
        named = {(each.group, each.topic) for each in self.members}
        named |= {(each.group, each.txn.topic) for each in self.transactional if each.group}
        named |= {(each.member.group, each.member.topic) for each in self.workers}
        return sorted(named)


NO_COORDINATION = Coordination()


def draw_settings(rng: Random, slower: int = 1) -> dict[str, str]:
    """`slower` multiplies the timeouts used for a single node."""
    session_ms = rng.choice((300, 1000)) * slower
    return {
        "offsets.topic.num.partitions": str(rng.randint(1, 3)),
        "offsets.topic.segment.bytes": str(rng.choice((1000, 5000, 100_000))),
        "transaction.state.log.num.partitions": str(rng.randint(1, 3)),
        "transaction.state.log.segment.bytes": str(rng.choice((1000, 5000, 100_000))),
        "group.initial.rebalance.delay.ms": str(rng.choice((0, 100))),
        "group.min.session.timeout.ms": "100",
        "group.consumer.session.timeout.ms": str(session_ms),
        "group.consumer.min.session.timeout.ms": "100",
        "group.consumer.heartbeat.interval.ms": str(session_ms // 5),
        "group.consumer.min.heartbeat.interval.ms": "10",
    }


def draw_coordination(
    rng: Random, settings: dict[str, str], topics: list[str], survives: Survives, slower: int = 1
) -> Coordination:
    members: list[MemberPlan] = []
    for number in range(rng.randint(1, 2)):
        members += _draw_group(rng, settings, f"group-{number}", rng.choice(topics), slower)
    transactional = [
        _draw_transactional(rng, survives, rng.choice([*topics, SOURCE]), number, slower)
        for number in range(rng.randint(1, 3))
    ]
    if rng.random() < 0.4:
        # A second producer with the same transactional id: each fences the other.
        shared = replace(transactional[0].txn, is_shared=True)
        other = transactional[0] = replace(transactional[0], txn=shared)
        transactional.append(replace(other, name=f"{other.name}-twin"))
    workers = [_draw_worker(rng, survives, number, slower) for number in range(rng.randint(1, 3))]
    return Coordination(tuple(members), tuple(transactional), tuple(workers))


def _draw_group(
    rng: Random, settings: dict[str, str], group: str, topic: str, slower: int
) -> list[MemberPlan]:
    is_consumer_protocol = rng.random() < 0.5
    session_ms = rng.choice((200, 500, 1000)) * slower
    if is_consumer_protocol:
        session_ms = int(settings["group.consumer.session.timeout.ms"])
    return [
        MemberPlan(
            name=f"{group}-member-{number}",
            topic=topic,
            group=group,
            is_consumer_protocol=is_consumer_protocol,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=session_ms * rng.choice((1, 2)),
            commits=rng.choice((0.1, 0.5)),
            crashes=rng.choice((0.0, 0.02)),
            stalls=rng.choice((0.0, 0.02)),
            leaves=rng.choice((0.0, 0.02)),
            stall_ms_max=3 * session_ms,
            tick_us=TICK_US * slower,
            fetch=_patient(f"{group}-member-{number}", topic) if slower > 1 else None,
        )
        for number in range(rng.randint(1, 3))
    ]


def _patient(name: str, topic: str) -> ConsumerPlan:
    """Return a plan with long fetch waits instead of frequent fetches."""
    return ConsumerPlan(name, topic, max_wait_ms=2_000, pause_us_max=200_000, isolation=1)


def _draw_transactional(
    rng: Random, survives: Survives, topic: str, number: int, slower: int
) -> TransactionalPlan:
    timeout_ms = rng.choice((300, 1000, 5000)) * slower
    return TransactionalPlan(
        name=f"transactional-{number}",
        txn=TxnSettings(f"txn-{number}", topic, rng.random() < 0.6, timeout_ms, survives),
        group=f"side-{number}" if rng.random() < 0.5 else None,
        stall_ms_max=2 * timeout_ms,
        pace_us=rng.choice((2_000, 10_000, 40_000)) * (1 if slower == 1 else 10 * slower),
        key_count=rng.choice((3, 20)),
    )


def _draw_worker(rng: Random, survives: Survives, number: int, slower: int) -> WorkerPlan:
    session_ms = rng.choice((300, 1000)) * slower
    name = f"worker-{number}"
    txn = TxnSettings(name, TARGET, rng.random() < 0.6, rng.choice((500, 2000)) * slower, survives)
    max_wait_ms, pause_us_max = (50, 5_000) if slower == 1 else (2_000, 100_000)
    member = MemberPlan(
        name,
        SOURCE,
        "workers",
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=session_ms * rng.choice((1, 2)),
        commits=1.0,
        crashes=0.02,
        stalls=0.02,
        tick_us=TICK_US * slower,
        fetch=ConsumerPlan(
            name, SOURCE, max_wait_ms=max_wait_ms, bytes_max=1000, pause_us_max=pause_us_max, isolation=1
        ),
    )
    return WorkerPlan(member, txn)
