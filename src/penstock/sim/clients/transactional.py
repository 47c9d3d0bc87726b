"""Clients that write in transactions.

A transactional producer writes to some partitions, sometimes commits offsets of a group too, and commits or aborts. A
worker is a member of a group that reads records, writes a result for each, and commits its offsets, all in one
transaction: each input record must have exactly one result.

Both crash and forget everything, or stall and continue.
"""

from dataclasses import dataclass

from penstock.sim.checkers.history import Derived, ProducedRecord, ReadRecord, Txn, TxnEnd
from penstock.sim.clients.classic_members import ClassicMember
from penstock.sim.clients.client import Client, ClientContext
from penstock.sim.clients.group_messages import STABLE_FROM, Membership, Position
from penstock.sim.clients.members import TICK_US, MemberPlan
from penstock.sim.clients.messages import TopicName
from penstock.sim.clients.transactor import Transactor
from penstock.sim.clients.txn_plan import TxnSettings, TxnWork
from penstock.wire import Api

MEMBERS_FROM = 3
"""First version of TxnOffsetCommit with the member's id and generation: a coordinator can reject stale members."""


@dataclass(frozen=True)
class TransactionalPlan:
    name: str
    txn: TxnSettings
    group: str | None = None
    """Group whose offsets it commits, without being a member."""
    aborts: float = 0.3
    crashes: float = 0.02
    stalls: float = 0.02
    """Probabilities per tick."""
    stall_ms_max: int = 4_000
    pace_us: int = 10_000
    rounds_max: int = 3
    key_count: int = 0


class TransactionalProducer(Client):
    def __init__(self, plan: TransactionalPlan, context: ClientContext) -> None:
        super().__init__(plan.name, context)
        self.plan = plan
        self.transactor = Transactor(self, plan.txn, self._ended)
        self._asleep_until_us = 0
        self._records = 0
        self._names = 0

    def _ended(self, txn: Txn) -> None:
        """Do nothing: the next transaction begins at a tick."""

    @property
    def is_idle(self) -> bool:
        return self.transactor.txn is None

    def start(self) -> None:
        super().start()
        self.later(self.plan.pace_us, self._tick)

    def narrow(self, api: Api, low: int, high: int) -> tuple[int, int]:
        return self.transactor.narrow(api, low, high)

    def ready(self) -> None:
        self.transactor.resume()

    def disconnected(self) -> None:
        self.transactor.lose()

    def _tick(self) -> None:
        pace_us = self.plan.pace_us
        self.later(self.rng.randrange(pace_us // 2, pace_us * 2), self._tick)
        if not self.is_working or self.context.schedule.now_us < self._asleep_until_us or self.link is None:
            return
        drawn = self.rng.random() * TICK_US / pace_us
        if drawn < self.plan.crashes:
            self.trace("crashes")
            self.transactor.forget()
            self.disconnect()
        elif drawn < self.plan.crashes + self.plan.stalls:
            duration_us = self.rng.randrange(1, 1000 * self.plan.stall_ms_max)
            self.trace(f"stalls for {duration_us // 1000} ms")
            self._asleep_until_us = self.context.schedule.now_us + duration_us
            self.transactor.pause(duration_us)
        elif self.transactor.is_ready:
            self.transactor.begin(self._work())

    def _work(self) -> TxnWork:
        rng, plan = self.rng, self.plan
        partitions = self.transactor.partitions
        rounds = []
        for _ in range(rng.randint(1, plan.rounds_max)):
            chosen = rng.sample(partitions, rng.randint(1, len(partitions)))
            rounds.append({each: self._make(each) for each in sorted(chosen)})
        work = TxnWork(rounds, commit=rng.random() >= plan.aborts)
        if plan.group is not None and rng.random() < 0.5:
            work.member = Membership(plan.group)
            work.topic = TopicName(plan.txn.topic, None)
            for partition in partitions:
                self._names += 1
                work.positions[partition] = Position(rng.randrange(1000), f"{self.name}/{self._names}")
        return work

    def _make(self, partition: int) -> list[ProducedRecord]:
        made = []
        for _ in range(self.rng.randint(1, 3)):
            key = f"k{self.rng.randrange(self.plan.key_count)}".encode() if self.plan.key_count else None
            made.append(
                ProducedRecord(key, f"{self.name}/{partition}/{self._records}".encode(), self._records)
            )
            self._records += 1
        return made


@dataclass(frozen=True)
class WorkerPlan:
    member: MemberPlan
    """Its topic is read; at every tick it commits what was read."""
    txn: TxnSettings


class Worker(ClassicMember):
    """A group member that reads, processes and writes in transactions which include its offsets."""

    def __init__(self, plan: WorkerPlan, context: ClientContext) -> None:
        super().__init__(plan.member, context)
        self.transactor = Transactor(self, plan.txn, self._ended)
        self._read: list[tuple[int, ReadRecord]] = []
        self._records = 0

    @property
    def is_idle(self) -> bool:
        return self.transactor.txn is None

    def narrow(self, api: Api, low: int, high: int) -> tuple[int, int]:
        if api is Api.TXN_OFFSET_COMMIT:
            low = max(low, MEMBERS_FROM)
        elif api is Api.OFFSET_FETCH:
            low = max(low, STABLE_FROM)
        return self.transactor.narrow(api, low, high)

    def topic_ready(self) -> None:
        super().topic_ready()
        self.transactor.resume()

    def disconnected(self) -> None:
        super().disconnected()
        self.transactor.lose()

    # -- reading, and giving up ------------------------------------------------------------------------

    def delivered(self, partition: int, records: list[ReadRecord]) -> None:
        self._read += [(partition, each) for each in records]

    def give_up(self) -> None:
        super().give_up()
        self._read.clear()
        self.transactor.abort()

    def crash(self) -> None:
        self._read.clear()
        self.transactor.forget()
        super().crash()

    def stall(self) -> None:
        super().stall()
        self.transactor.pause(self._asleep_until_us - self.now_us)

    def woken(self) -> None:
        if self.transactor.txn is None:
            super().woken()

    def find_positions(self) -> None:
        if self.transactor.txn is not None:
            return  # follows when the transaction has ended
        super().find_positions()

    def positioned(self) -> None:
        self._read.clear()

    # -- transactions ----------------------------------------------------------------------------------

    def commit(self) -> None:
        """Write the results of the records read, and commit their offsets."""
        if not (self.is_working and self._read and self._is_positioned and self.transactor.is_ready):
            return
        self.stop_fetching()
        read, self._read = self._read, []
        targets = self.transactor.partitions
        written: dict[int, list[ProducedRecord]] = {}
        for partition, seen in read:
            target = targets[(partition + seen.offset) % len(targets)]
            value = f"{self.name}/{self._records} from {self._at(partition)}@{seen.offset}".encode()
            self.record(Derived(value, self.member.group, self._at(partition), seen.offset, seen.value))
            written.setdefault(target, []).append(ProducedRecord(None, value, self._records))
            self._records += 1
        positions = {}
        for partition in sorted({partition for partition, _ in read}):
            self._names += 1
            positions[partition] = Position(self.positions[partition], f"{self.name}/{self._names}")
        self.transactor.begin(
            TxnWork([written], commit=True, member=self.member, topic=self.topic, positions=positions)
        )

    def rebalancing(self) -> None:
        self.give_up()

    def _ended(self, txn: Txn) -> None:
        if txn.end is TxnEnd.COMMITTED and self._is_positioned:
            if not self.is_asleep:
                self.begin_fetching()
            return
        # The group's offsets must be fetched again.
        self._is_positioned = False
        turn = self._turn

        def ask() -> None:
            if turn == self._turn and not self._is_positioned:
                self.find_positions()

        self.again_soon(ask)
