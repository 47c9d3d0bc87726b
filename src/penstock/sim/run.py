"""Runs a scenario from its first event to its result.

    1. clients work, nodes crash and restart, connections break; for a number of events or a virtual duration
    2. faults end; producers finish; everything is read
    3. the nodes stop; their disks are checked, and compared with what was read and with each other
    4. with rollbacks, all nodes lose their metadata at last, and must lose no record with it

A broken rule ends the run with a `Failure`, which has the command that reproduces it. The trace has a line for
everything that clients and operators saw; its hash is the fingerprint of the run.
"""

import gc
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.base.ids import Offset, TopicPartition
from penstock.server.node import Node
from penstock.sim.checkers import history
from penstock.sim.checkers.all_checkers import AllCheckers
from penstock.sim.checkers.disks import (
    are_records_sound,
    check_contents,
    check_disk,
    read_replicas,
)
from penstock.sim.checkers.node_watch import ClusterWatch
from penstock.sim.checkers.pauses import LOOK_EVERY, AckedInTime, ReplicatedInTime
from penstock.sim.checkers.rights import RightsWatch
from penstock.sim.checkers.violation import Violation
from penstock.sim.clients.all_clients import AllClients
from penstock.sim.clients.client import REQUEST_TIMEOUT_US, ClientContext
from penstock.sim.cluster_extras import Extra
from penstock.sim.cluster_plan import PowerCuts
from penstock.sim.faults.all_metadata_lost import LASTS_US, AllMetadataLost, TopicCreator
from penstock.sim.faults.crashes_and_cuts import Faults
from penstock.sim.faults.hole_trials import HoleTrials
from penstock.sim.final_audit import FinalAudit
from penstock.sim.scenario import Scenario
from penstock.sim.secured import APP, plain_login
from penstock.sim.world.loop_costs import LoopCosts, charging
from penstock.sim.world.machine import DOOR_PORTS, MakeNode, State
from penstock.sim.world.machines import SimCluster
from penstock.sim.world.network import Network
from penstock.sim.world.node_logs import UnexpectedError, logs_to_trace
from penstock.sim.world.schedule import Schedule

CLUSTER_REQUEST_TIMEOUT_US = 15_000_000
"""Longer than for one node, since a request may wait for another node that does not answer."""

CLUSTER_PATIENCE = 6

TAIL_LINES = 40
"""Last lines of the trace that a failure shows."""


_OF_A_NODE = history.Started, history.Killed, history.Stopped
"""Events that checkers ignore in a cluster, where other nodes have the same records. Power cuts are ignored too,
unless all nodes may lose power at once, and with it records that were read before they were synced."""


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Collect garbage rarely: a run keeps nearly all its objects, and the default takes a fifth of its time."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)


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
        return f"penstock sim run --seed {self.scenario.seed} {self.scenario.length} --trace"


@dataclass(frozen=True)
class RunOutcome:
    """Figures of a run without a violation."""

    seed: int
    fingerprint: str
    events: int
    virtual_ms: int
    processes: int
    power_cuts: int
    acked: int
    transactions: int
    """Committed transactions."""
    commits: int
    """Offset commits by members of groups."""
    read: int
    """Records at the end."""
    trace: list[str]


class Simulation:
    """One run. Implements `Recorder`."""

    def __init__(self, scenario: Scenario, make_node: MakeNode | None = None) -> None:
        self.scenario = scenario
        self.lines: list[str] = []
        self._violation: Violation | None = None
        """The first broken rule, which ends the run; also an exception in a node's log."""
        self._hash = hashlib.sha256()
        self._checkers = AllCheckers(scenario.rules)
        self._schedule = Schedule(scenario.seed)
        if Extra.COSTLY_BATCHES.value in scenario.extras:
            self._schedule.costs = LoopCosts()
        self._network = Network(self._schedule, self.trace)
        is_cluster = scenario.cluster.is_replicated
        self._watch = ClusterWatch(self, self._schedule) if is_cluster else None
        make_node = make_node or (Node if self._watch is None else self._watch.make_node)
        self._cluster = SimCluster(scenario, self._schedule, self._network, self, make_node)
        self._faults = Faults(scenario, self._schedule, self._network, self._cluster, self.trace)
        if self._watch is not None:
            self._watch.begin(self._cluster.machines)
        self._pauses = (
            AckedInTime(
                (each.name for each in scenario.producers if each.is_idempotent),
                self._cluster.machines,
                lambda: self._schedule.now_us,
                lambda: self._network.is_whole,
            )
            if scenario.cluster.disks
            else None
        )
        self._replication = ReplicatedInTime(
            self._cluster.machines, lambda: self._schedule.now_us, lambda: self._network.is_whole
        )
        self._rights = (
            RightsWatch(
                self._cluster.machines, lambda: self._schedule.now_us, lambda: self._network.is_prompt
            )
            if scenario.security is not None
            else None
        )
        self._context = ClientContext(
            self._schedule,
            self._network,
            self,
            bootstrap=self._cluster.addresses,
            http=self._cluster.doors(DOOR_PORTS["http"]),
            line=self._cluster.doors(DOOR_PORTS["line"]),
            login=None if scenario.security is None else plain_login(APP),
            skew_ms=scenario.cluster.skew_ms(scenario.duration_us),
            request_timeout_us=CLUSTER_REQUEST_TIMEOUT_US if is_cluster else REQUEST_TIMEOUT_US,
            patience=CLUSTER_PATIENCE if is_cluster else 1,
        )
        self._clients = AllClients(scenario, self._context)
        self._audited: list[history.Audited] = []
        self._trials = (
            HoleTrials(self._schedule.rng("holes"), self.record, self.trace)
            if Extra.HOLES.value in scenario.extras
            else None
        )
        self._power_cuts = 0
        self._passed_over: tuple[type[history.Event], ...] = ()
        if is_cluster:
            is_firm = scenario.cluster.power_cuts is not PowerCuts.ANY
            self._passed_over = (*_OF_A_NODE, history.PowerCut) if is_firm else _OF_A_NODE

    # -- what clients call -----------------------------------------------------------------------------

    def record(self, event: history.Event) -> None:
        if isinstance(event, history.PowerCut):
            self._power_cuts += 1
        if self._trials is not None and isinstance(
            event, history.Killed | history.PowerCut | history.Stopped
        ):
            self._try_holes(event.incarnation)
        if self._pauses is not None:
            self._pauses.see(event)
        if isinstance(event, self._passed_over):
            return
        try:
            if self._rights is not None:
                self._rights.see(event)
            self._checkers.see(event)
        except Violation as violation:
            # If a node's code called the checker, it may catch the exception.
            self._violation = self._violation or violation
            raise

    def trace(self, line: str) -> None:
        text = f"{self._schedule.now_us:>10} {line}"
        self.lines.append(text)
        self._hash.update(text.encode() + b"\n")

    def _try_holes(self, incarnation: int) -> None:
        """Run a hole trial with the disk of a machine that has just gone down."""
        assert self._trials is not None
        for machine in self._cluster.machines:
            if machine.incarnation == incarnation:
                self._trials.run(machine.disk, machine.boot_id)

    # -- the run ---------------------------------------------------------------------------------------

    def run(self) -> RunOutcome:
        try:
            costs = self._schedule.costs
            with logs_to_trace(self.trace, self._stumble), collecting_rarely(), charging(costs):
                self._work()
                self._settle()
                self._finish()
                if self.scenario.cluster.rollback_us_mean:
                    self._forget()
        except Failure:
            raise
        except Exception as error:
            cause = self._violation or error
            name = "" if isinstance(cause, Violation) else f"{type(cause).__name__}: "
            raise Failure(self.scenario, f"{name}{cause}", self.lines) from cause
        clients = self._clients
        return RunOutcome(
            seed=self.scenario.seed,
            fingerprint=self._hash.hexdigest(),
            events=self._schedule.steps,
            virtual_ms=self._schedule.now_us // 1000,
            processes=self._cluster.process_count,
            power_cuts=self._power_cuts,
            acked=clients.acked_count,
            transactions=clients.transaction_count,
            commits=clients.commit_count,
            read=sum(len(each.records) for each in self._audited),
            trace=self.lines,
        )

    def _stumble(self, complaint: UnexpectedError) -> None:
        self._violation = self._violation or complaint

    def _work(self) -> None:
        for machine in self._cluster.machines:
            machine.start()
        self._clients.start()
        self._faults.begin()
        scenario, schedule = self.scenario, self._schedule
        while (
            schedule.now_us < scenario.duration_us
            if scenario.duration_us
            else schedule.steps < scenario.steps
        ):
            self._step()

    def _settle(self) -> None:
        """End the faults, let all clients finish, and read everything."""
        self.trace("clients finish")
        self._faults.end()
        self._clients.finish()
        self._step_until(lambda: self._clients.is_idle, "producers finish")
        self._step_until(lambda: self._cluster.are_all(State.UP), "every node is ready")
        if self._watch is not None:
            self._step_until(self._watch.are_all_in_sync, "every replica is in sync")
        self.trace("everything is read")
        audit = FinalAudit(self.scenario, self._context, has_transactions=self._clients.has_transactions)
        audit.start()
        self._step_until(lambda: audit.is_done, "everything is read")
        audit.end()
        for audited in audit.report(self.record, self.trace):
            self._audited.append(audited)

    def _step_until(self, is_done: Callable[[], bool], what: str) -> None:
        limit_us = self.scenario.settle_us_max
        deadline_us = self._schedule.now_us + limit_us
        while not is_done():
            if self._schedule.now_us > deadline_us:
                raise Violation(f"Progress: {limit_us // 1_000_000} quiet seconds passed before {what}")
            self._step()

    def _step(self) -> None:
        schedule = self._schedule
        schedule.step()
        if self._violation is not None:
            raise self._violation
        if self._watch is not None:
            self._watch.look()
        if schedule.steps % LOOK_EVERY == 0:
            if self._watch is not None:
                self._replication.look()
            if self._pauses is not None:
                self._pauses.look()
            if self._rights is not None:
                self._rights.look()

    def _finish(self) -> None:
        """Stop the nodes and check their disks; what a clean stop leaves must survive a power cut.

        In a cluster one node stops cleanly while the others can take over; the others are then killed.
        """
        machines = self._cluster.machines
        self._step_until(lambda: self._cluster.are_all(State.UP), "every node is ready")
        ends: dict[TopicPartition, Offset] = {}
        if self._watch is not None:
            # Reading everything may have found damage, and started its repair.
            self._step_until(self._watch.are_all_in_sync, "every replica is in sync")
            self._step_until(self._watch.do_all_know_the_same, "every node knows the same")
            if self.scenario.renewals:
                self._step_until(self._watch.is_nothing_left_behind, "what is of no topic is gone")
            self._watch.tell_images()
            ends = self._watch.committed_ends()
        self._faults.leave()
        stopped, *others = machines
        stopped.stop()
        self._step_until(lambda: stopped.state is State.DOWN, "the node stops")
        for machine in others:
            machine.kill()
        self._clients.end()
        rules, rng = self.scenario.rules, self._schedule.rng("last power cut")
        # Flipped bits may not have been read yet, and damaged files may be left for an operator to inspect.
        for machine in machines:
            if machine is stopped and not machine.is_spoilt:
                check_disk(machine.disk.crash_clone(rng), self._audited, rules)
            else:
                check_contents(machine.disk, self._audited, rules, is_spoilt=machine.is_spoilt)
        for machine in machines if ends else ():
            if machine.is_spoilt and not are_records_sound(machine.disk):
                continue
            for event in read_replicas(machine.disk, machine.number, ends):
                self.record(event)

    def _forget(self) -> None:
        """Make all nodes lose their metadata, and check that no record is lost with it."""
        rules, schedule = self.scenario.rules, self._schedule
        kept = [each for each in self.scenario.topics if not (each.is_compacted or each.is_shortened)]
        amnesia = AllMetadataLost(
            self._cluster.machines,
            self._faults.rollbacks.copies,
            {each.name for each in kept} - rules.compacted - rules.shortened,
            schedule.rng("amnesia"),
            self.trace,
        )
        amnesia.begin()
        creator = TopicCreator(kept, self._context)
        creator.start()
        deadline_us = schedule.now_us + LASTS_US
        while schedule.now_us < deadline_us:
            schedule.step()
        creator.end()
        for machine in self._cluster.machines:
            machine.kill()
        amnesia.check()
