"""Plays a scenario from its first event to its verdict.

    1. clients work, the node crashes and comes back, connections break        for so many events
    2. nothing breaks any more; producers finish what they began; everything is read once more
    3. the node stops; its disk is checked, and held against what was read

Whatever is wrong ends the run with a `Failure`, which says how to see it again. The trace has a line for everything
that clients and the operator saw; its hash is the fingerprint of the run.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.base.ids import Offset, TopicPartition
from penstock.server.config import config_from
from penstock.server.node import Node
from penstock.sim import history
from penstock.sim.auditors import OffsetsAuditor
from penstock.sim.bench import Bench
from penstock.sim.checkers import Violation
from penstock.sim.classic_members import ClassicMember
from penstock.sim.client import Admin, Client, Stage
from penstock.sim.consumer_members import ConsumerMember
from penstock.sim.consumers import Auditor, Consumer
from penstock.sim.machine import Machine, MakeNode, State
from penstock.sim.members import Member
from penstock.sim.network import Network
from penstock.sim.producers import Producer
from penstock.sim.scenario import Scenario
from penstock.sim.schedule import Schedule
from penstock.sim.transactional import TransactionalProducer, Worker
from penstock.storage.check import Tally, check_directory
from penstock.storage.directory import layout_of
from penstock.storage.findings import read_through
from penstock.vfs import MemoryDisk

DATA = "/data"

SETTLE_US_MAX = 300_000_000
"""Virtual time that everyone has to finish when nothing breaks any more."""

TAIL_LINES = 40
"""Of the trace, shown with a failure."""


class Failure(Exception):
    """A run that broke a rule."""

    def __init__(self, scenario: Scenario, reason: str, trace: list[str]) -> None:
        super().__init__(reason)
        self.scenario = scenario
        self.reason = reason
        self.trace = trace

    def __str__(self) -> str:
        tail = "\n".join(f"    {line}" for line in self.trace[-TAIL_LINES:])
        return f"{tail}\nseed {self.scenario.seed}: {self.reason}\nto see it again: {self.command}"

    @property
    def command(self) -> str:
        return f"penstock sim run --seed {self.scenario.seed} --steps {self.scenario.steps} --trace"


@dataclass(frozen=True)
class Outcome:
    """What a run that went well was about."""

    seed: int
    fingerprint: str
    events: int
    virtual_ms: int
    processes: int
    power_cuts: int
    acked: int
    transactions: int
    """That were committed."""
    commits: int
    """Of offsets, by members of groups."""
    read: int
    """Records in the end."""
    trace: list[str]


class Simulation:
    """One run. Implements `Recorder`."""

    def __init__(self, scenario: Scenario, make_node: MakeNode = Node) -> None:
        self.scenario = scenario
        self.lines: list[str] = []
        self.unforeseen: Violation | None = None
        """Set when the node logs an exception; ends the run."""
        self._hash = hashlib.sha256()
        self._bench = Bench(scenario.rules)
        self._schedule = Schedule(scenario.seed)
        self._network = Network(self._schedule, self.trace)
        self._rng = self._schedule.rng("operator")
        self._machine = Machine(
            self._schedule,
            self._network,
            self,
            config_from(DATA, scenario.settings, kafka="127.0.0.1:9092"),
            make_node,
            has_faults=scenario.has_disk_faults,
        )
        self._machine.on_down = self._start_again
        self._stage = Stage(self._schedule, self._network, self)
        self._admin = Admin(
            self._stage, [(each.name, each.partition_count, each.configs) for each in scenario.topics]
        )
        self._producers = [Producer(plan, self._stage) for plan in scenario.producers]
        self._consumers = [Consumer(plan, self._stage) for plan in scenario.consumers]
        together = scenario.coordination
        self._members: list[Member] = [
            (ConsumerMember if plan.is_consumer_protocol else ClassicMember)(plan, self._stage)
            for plan in together.members
        ]
        self._transactional = [TransactionalProducer(plan, self._stage) for plan in together.transactional]
        self._workers = [Worker(plan, self._stage) for plan in together.workers]
        self._auditors: list[Auditor] = []
        self._offsets_auditors: list[OffsetsAuditor] = []
        self._audited: list[history.Audited] = []
        self._is_settling = False
        self._is_ending = False
        self._power_cuts = 0

    # -- what clients call -----------------------------------------------------------------------------

    def record(self, event: history.Event) -> None:
        if isinstance(event, history.PowerCut):
            self._power_cuts += 1
        self._bench.see(event)

    def trace(self, line: str) -> None:
        text = f"{self._schedule.now_us:>10} {line}"
        self.lines.append(text)
        self._hash.update(text.encode() + b"\n")

    @property
    def _clients(self) -> list[Client]:
        """All but the admin and the auditors."""
        return [
            *self._producers,
            *self._consumers,
            *self._members,
            *self._transactional,
            *self._workers,
        ]

    # -- the run ---------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        try:
            with self._listening_to_logs():
                self._work()
                self._settle()
                self._finish()
        except Failure:
            raise
        except Exception as error:
            name = "" if isinstance(error, Violation) else f"{type(error).__name__}: "
            raise Failure(self.scenario, f"{name}{error}", self.lines) from error
        return Outcome(
            seed=self.scenario.seed,
            fingerprint=self._hash.hexdigest(),
            events=self._schedule.steps,
            virtual_ms=self._schedule.now_us // 1000,
            processes=self._machine.incarnation,
            power_cuts=self._power_cuts,
            acked=sum(each.acked_count for each in self._producers),
            transactions=sum(each.transactor.committed_count for each in self._transactional)
            + sum(each.transactor.committed_count for each in self._workers),
            commits=sum(each.commit_count for each in self._members),
            read=sum(len(each.records) for each in self._audited),
            trace=self.lines,
        )

    def _work(self) -> None:
        self._machine.start()
        self._admin.start()
        for client in self._clients:
            client.start()
        self._plan_crash()
        self._plan_reset()
        while self._schedule.steps < self.scenario.steps:
            self._step()

    def _settle(self) -> None:
        """Let everyone finish, and read everything."""
        self.trace("everyone finishes")
        self._is_settling = True
        self._network.is_calm = True
        self._machine.has_faults = False
        self._machine.disarm()
        for producer in self._producers:
            producer.is_making = False
        for transactional in self._transactional:
            transactional.is_making = False
        for member in (*self._members, *self._workers):
            member.is_working = False
        if self.scenario.has_disk_faults:
            self._machine.kill()  # whatever is left of its faults goes with the process
        self._start_again()
        self._step_until(lambda: self._admin.is_done and self._is_idle, "producers finish")
        self.trace("everything is read")
        topics = [each.name for each in self.scenario.topics]
        self._auditors = [Auditor(each, self._stage) for each in topics]
        readers = (
            [Auditor(each, self._stage, isolation=1) for each in topics] if self._has_transactions else []
        )
        self._offsets_auditors = [
            OffsetsAuditor(*each, self._stage) for each in self.scenario.coordination.groups
        ]
        for client in (*self._auditors, *readers, *self._offsets_auditors):
            client.start()
        self._step_until(
            lambda: (
                all(each.is_done for each in (*self._auditors, *readers))
                and all(each.is_done for each in self._offsets_auditors)
            ),
            "everything is read",
        )
        for client in (*readers, *self._offsets_auditors):
            client.end()
        self._report()

    @property
    def _is_idle(self) -> bool:
        return (
            all(each.is_idle for each in self._producers)
            and all(each.is_idle for each in self._transactional)
            and all(each.is_idle for each in self._workers)
        )

    @property
    def _has_transactions(self) -> bool:
        return bool(self._transactional or self._workers)

    def _report(self) -> None:
        """Say what was found in the end."""
        self.record(history.Closed())
        for auditor in self._auditors:
            for audited in auditor.findings():
                self._audited.append(audited)
                self.trace(f"{audited.at} has {audited.start}..{audited.end}, {len(audited.records)} records")
                self.record(audited)

    def _step_until(self, is_done: Callable[[], bool], what: str) -> None:
        deadline_us = self._schedule.now_us + SETTLE_US_MAX
        while not is_done():
            if self._schedule.now_us > deadline_us:
                raise Violation(f"Progress: {SETTLE_US_MAX // 1_000_000} quiet seconds passed before {what}")
            self._step()

    def _step(self) -> None:
        self._machine.disk.now_ms = self._schedule.now_ms
        self._schedule.step()
        if self.unforeseen is not None:
            raise self.unforeseen

    def _finish(self) -> None:
        """Stop, and look at the disk; what a clean stop leaves survives a power cut."""
        self._is_ending = True
        self._step_until(lambda: self._machine.state is not State.STARTING, "the node is ready")
        self._machine.stop()
        self._step_until(lambda: self._machine.state is State.DOWN, "the node stops")
        for client in (*self._clients, *self._auditors, self._admin):
            client.end()
        check_disk(self._machine.disk.crash_clone(self._rng), self._audited, self.scenario)

    # -- what goes wrong -------------------------------------------------------------------------------

    def _around(self, mean_us: int) -> int:
        return round(self._rng.expovariate(1 / mean_us)) + 1

    def _plan_crash(self) -> None:
        if self.scenario.crash_us_mean:
            self._schedule.later(self._around(self.scenario.crash_us_mean), self._crash)

    def _crash(self) -> None:
        if self._is_settling:
            return
        machine, rng, cuts = self._machine, self._rng, self.scenario.cuts_power
        drawn = rng.random()
        if drawn < 0.25 or (drawn < 0.5 and not cuts):
            machine.kill()
        elif drawn < 0.5:
            machine.cut_power()
        elif drawn < 0.65:
            machine.stop()
        else:
            machine.crash_within(rng.randrange(1, 60), is_power_cut=cuts and drawn < 0.85)
        self._plan_crash()

    def _start_again(self) -> None:
        if not self._is_ending:
            self._schedule.later(self._rng.randrange(1_000, 200_000), self._machine.start)

    def _plan_reset(self) -> None:
        if self.scenario.reset_us_mean and not self._is_settling:
            self._schedule.later(self._around(self.scenario.reset_us_mean), self._reset)

    def _reset(self) -> None:
        self._network.reset_one()
        self._plan_reset()

    # -- the node's log --------------------------------------------------------------------------------

    @contextmanager
    def _listening_to_logs(self) -> Iterator[None]:
        """Have the node's warnings in the trace, and on nobody's screen."""
        logger = logging.getLogger("penstock")
        listener = _LogListener(self)
        before = logger.propagate, logger.level
        logger.propagate = False
        logger.setLevel(logging.WARNING)
        logger.addHandler(listener)
        try:
            yield
        finally:
            logger.removeHandler(listener)
            logger.propagate, logger.level = before


class Unforeseen(Violation):
    """The node met an exception that it has no better answer to than a log line."""


class _LogListener(logging.Handler):
    def __init__(self, simulation: Simulation) -> None:
        super().__init__(logging.WARNING)
        self._simulation = simulation

    def emit(self, record: logging.LogRecord) -> None:
        self._simulation.trace(f"log: {record.getMessage()}")
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self._simulation.unforeseen = Unforeseen(
                f"NothingUnforeseen: {record.getMessage()}: {type(error).__name__}: {error}"
            )
            self._simulation.unforeseen.__cause__ = error


def check_disk(disk: MemoryDisk, audited: list[history.Audited], scenario: Scenario) -> None:
    """LogMatchesReads: the files are sound, and have what was read."""
    layout = layout_of(disk, DATA)
    findings = [
        finding
        for finding in check_directory(disk, layout.logs, layout.meta, deep=True, tally=Tally())
        if finding.severity == "error"
    ]
    if findings:
        raise Violation(f"LogMatchesReads: {findings[0]} (and {len(findings) - 1} findings more)")
    for each in audited:
        on_disk = read_records(disk, f"{layout.logs}/{each.at}")
        read = {record.offset: record.value for record in each.records}
        _compare(each.at, on_disk, read, scenario)


def _compare(
    at: TopicPartition, on_disk: dict[Offset, bytes], read: dict[Offset, bytes], scenario: Scenario
) -> None:
    rules = scenario.rules
    for offset, value in sorted(read.items()):
        found = on_disk.get(offset)
        if found == value:
            continue
        if found is None and at.topic in rules.compacted | rules.shortened:
            continue
        raise Violation(f"LogMatchesReads: {at} at {offset} was read as {value!r}, on disk it is {found!r}")


def read_records(disk: MemoryDisk, directory: str) -> dict[Offset, bytes]:
    """Every record of a partition's files, by offset."""
    records: dict[Offset, bytes] = {}
    for entry in disk.list_dir(directory):
        if entry.name.endswith(".log"):
            file = disk.open(f"{directory}/{entry.name}")
            for piece in read_through(file, 0, file.size()):
                if piece.batch is not None:
                    records |= {record.offset: bytes(record.value or b"") for record in piece.batch.records()}
            file.close()
    return records
