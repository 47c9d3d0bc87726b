"""One campaign, from the start of the brokers to the result.

    1. brokers and clients start; every client must make progress
    2. faults, one after the other; after each, within `ALLOWANCE_S`, every client must make progress and every replica
       be in sync
    3. clients finish; everything is read
    4. brokers stop; their files are checked, and compared with what was read and with each other

The first broken rule ends step 2. Steps 3 and 4 still follow as far as possible, since their findings often explain
it. Real processes are not deterministic: a seed decides the load and the faults, not how the system schedules them.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TextIO

from penstock.chaos import mounts
from penstock.chaos.brokers import BrokerFailed, Brokers
from penstock.chaos.faults import CLOCK_JUMP_S_MAX, KINDS, ClockJump, DiskFault, Fault, FaultContext, refusal
from penstock.chaos.load import PROBED, broker_settings, draw_load
from penstock.chaos.loop_ports import LoopNetwork, LoopScheduler
from penstock.chaos.mounts import MemoryMount
from penstock.chaos.namespaces import Network
from penstock.chaos.probe import Probe
from penstock.chaos.switches import Switches
from penstock.chaos.verdict import check_files, replicas_of, tracebacks
from penstock.client.admin import list_topics
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.settings import ClientSettings, parse_servers
from penstock.sim.checkers.all_checkers import AllCheckers
from penstock.sim.checkers.history import Acked, Audited, Event, Leased
from penstock.sim.checkers.violation import Violation
from penstock.sim.clients.all_clients import AllClients
from penstock.sim.clients.client import ClientContext
from penstock.sim.final_audit import FinalAudit
from penstock.sim.run import collecting_rarely

ALLOWANCE_S = 60.0
"""How long recovery may take after a fault. The longest known delay is that of a replica which returns to the ISR
after `replica.lag.time.max.ms`, 30 s by default; the rest is for busy machines."""

REQUEST_TIMEOUT_US = 20_000_000
PATIENCE = 3
LOOK_EVERY_S = 0.1
SESSION_MS_DEFAULT = 9_000
"""Kafka's `broker.session.timeout.ms`."""


@dataclass(frozen=True)
class Plan:
    """Parameters of a campaign."""

    seed: int
    seconds: float
    directory: Path
    brokers: int = 3
    faults: tuple[str, ...] = ()
    """Names of faults; if empty, all that this machine allows."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the brokers."""
    allows_root: bool = True
    """Whether to use network namespaces and mounts, which need root."""


@dataclass
class FaultReport:
    """A fault that was applied, and its effects."""

    name: str
    subject: str
    at_s: float
    lasted_s: float
    pause_s: float
    """Longest time in which a partition acknowledged nothing to the probe (acks=all)."""
    recovered_s: float
    """Time from its end until every client made progress and every replica was in sync."""


@dataclass
class CampaignResult:
    seed: int
    directory: Path
    seconds: float = 0.0
    acked: int = 0
    """Acknowledged records."""
    read: int = 0
    """Records at the end."""
    faults: list[FaultReport] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    """Faults that this machine does not allow, and why."""
    gave_up: int = 0
    """How often a broker exited while its disk failed."""
    violations: list[str] = field(default_factory=list)
    is_interrupted: bool = False

    def as_dict(self) -> dict[str, Any]:
        values = dict(vars(self))
        return values | {"directory": str(self.directory), "faults": [vars(each) for each in self.faults]}


class Campaign:
    """Implements the simulator's `Recorder`."""

    def __init__(self, plan: Plan, say: Callable[[str], None]) -> None:
        self.plan = plan
        self.outcome = CampaignResult(plan.seed, plan.directory)
        self._work_task: asyncio.Task[None] | None = None
        self._say = say
        self._loop = asyncio.get_running_loop()
        self._rng = Random(f"{plan.seed}/faults")
        self._clock = LoopScheduler(plan.seed, self._loop)
        settings = broker_settings(plan.settings)
        self._scenario = draw_load(plan.seed, plan.brokers, settings)
        self._checkers = AllCheckers(self._scenario.rules)
        self._resources = ExitStack()
        plan.directory.mkdir(parents=True, exist_ok=True)
        self._trace: TextIO = self._resources.enter_context((plan.directory / "trace.log").open("a"))
        self._kinds, network, network_refusal = self._choose_faults()
        self._brokers = Brokers(plan.directory, plan.brokers, settings, self._clock, network, Random())
        session_ms = int(settings.get("broker.session.timeout.ms", SESSION_MS_DEFAULT))
        self._fault_context = FaultContext(self._brokers, session_ms / 1000, network, network_refusal)
        self._network = LoopNetwork(self._loop, self._brokers.at)
        self._context = ClientContext(
            self._clock,
            self._network,
            self,
            bootstrap=self._brokers.addresses(),
            http=self._brokers.addresses("http"),
            line=self._brokers.addresses("line"),
            skew_ms=1000 * CLOCK_JUMP_S_MAX if ClockJump in self._kinds else 0,
            request_timeout_us=REQUEST_TIMEOUT_US,
            patience=PATIENCE,
        )
        self._clients = AllClients(self._scenario, self._context)
        partitions = next(each.partition_count for each in self._scenario.topics if each.name == PROBED)
        self._probe = Probe(
            self._brokers.bootstrap, PROBED, range(partitions), self._record_soon, self._probe_failed
        )
        self._audited: list[Audited] = []
        self._broken: set[str] = set()
        """Names of broken rules."""

    # -- what clients call -----------------------------------------------------------------------------

    def record(self, event: Event) -> None:
        if isinstance(event, Leased):
            # Only the simulator knows exactly when a coordinator moved.
            return
        if isinstance(event, Acked):
            self.outcome.acked += len(event.batch.records)
        try:
            self._checkers.see(event)
        except Violation as violation:
            # The client continues: its later events often explain the violation.
            self._report_violation(str(violation))

    def trace(self, line: str) -> None:
        self._trace.write(f"{self._clock.now_us / 1_000_000:10.3f} {line}\n")

    def _record_soon(self, event: Event) -> None:
        self._loop.call_soon_threadsafe(self.record, event)

    def _probe_failed(self, reason: str) -> None:
        self._loop.call_soon_threadsafe(self._report_violation, f"Progress: the probe ended: {reason}")

    def _report_violation(self, text: str) -> None:
        """Note a violation; only the first of each rule, since the others mostly follow from it."""
        self.trace(f"VIOLATION {text}")
        rule = text.partition(":")[0]
        if rule not in self._broken:
            self._broken.add(rule)
            self.outcome.violations.append(text)
            self._say(f"VIOLATION: {text}")

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an exception in a callback of the loop: a violation, or an error in a client."""
        error = context.get("exception")
        if isinstance(error, Violation):
            self._report_violation(str(error))
        elif error is not None:
            self._report_violation(f"NothingUnforeseen: a client raised {type(error).__name__}: {error}")

    # -- setting up ------------------------------------------------------------------------------------

    def _choose_faults(self) -> tuple[list[type[Fault]], Network | None, str | None]:
        """Return the kinds of faults, the network that they need, and why there is none."""
        kinds = [KINDS[each] for each in self.plan.faults or KINDS]
        why: str | None = None
        network: Network | None = None
        if any(each.needs_network for each in kinds):
            why = Network.refusal() if self.plan.allows_root else "network namespaces are switched off"
            if why is None:
                network = self._resources.enter_context(Network(self.plan.brokers))
                self._resources.enter_context(network.inside(network.hub))
            else:
                self.outcome.left_out |= {each.name: why for each in kinds if each.needs_network}
                kinds = [each for each in kinds if not each.needs_network]
        return kinds, network, why

    def _prepare_disks(self) -> None:
        """Give brokers disks that can fail. The last one gets a disk that can really be full, if this is allowed."""
        if not any(issubclass(each, DiskFault | ClockJump) for each in self._kinds):
            return
        brokers = list(self._brokers.all)
        if "disk-full" in {each.name for each in self._kinds} and self.plan.allows_root:
            why = mounts.refusal(self.plan.directory)
            if why is None:
                last = brokers.pop()
                mount = self._fault_context.mounts[last.id] = MemoryMount(last.data)
                self._resources.callback(lambda: mount.close(keep=bool(self.outcome.violations)))
        for each in brokers:
            each.switches = Switches(self.plan.directory / f"node-{each.id}.switches")

    # -- the campaign ----------------------------------------------------------------------------------

    async def run(self) -> CampaignResult:
        began_s = time.monotonic()
        self._loop.set_exception_handler(self._on_loop_error)
        try:
            with self._resources, collecting_rarely():
                try:
                    self._prepare_disks()
                    self._work_task = self._loop.create_task(self._work())
                    await asyncio.wait([self._work_task])
                    if not self.outcome.is_interrupted:
                        self._work_task.result()
                finally:
                    self._network.close()
                    self._brokers.end()
                    self._probe.end()
        finally:
            self.outcome.seconds = time.monotonic() - began_s
            self.outcome.gave_up = sum(each.gave_up for each in self._brokers.all)
        return self.outcome

    def interrupt(self) -> None:
        """End the campaign now, without further checks."""
        self.outcome.is_interrupted = True
        if self._work_task is not None:
            self._work_task.cancel()

    async def _work(self) -> None:
        await self._guarded(self._begin)
        if not self._is_over:
            await self._guarded(self._strike_all)
        await self._guarded(self._close)
        await self._guarded(self._check)

    @property
    def _is_over(self) -> bool:
        """Whether a rule was broken."""
        return bool(self.outcome.violations)

    async def _guarded(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except (Violation, BrokerFailed) as error:
            name = "" if isinstance(error, Violation) else "Progress: "
            self._report_violation(f"{name}{error}")

    async def _begin(self) -> None:
        self._say(f"starting {self.plan.brokers} brokers in {self.plan.directory}")
        await self._brokers.start(*self._brokers.all)
        self._clients.start()
        await self._until(self._are_topics_there, "topics are there")
        self._probe.start()
        await self._until_all_get_on("the start")

    async def _strike_all(self) -> None:
        order: list[type[Fault]] = []
        deadline_s = time.monotonic() + self.plan.seconds
        while time.monotonic() < deadline_s and not self._is_over:
            if not order:
                order = self._rng.sample(self._kinds, len(self._kinds))
            kind = order.pop()
            if refusal(kind, self._fault_context) is None:
                await self._strike(kind(self._fault_context, self._rng), deadline_s)

    async def _strike(self, fault: Fault, deadline_s: float) -> None:
        began_s = time.monotonic()
        self.trace(f"{fault.name} of {fault.subject} for {fault.seconds:.1f} s")
        await fault.begin()
        try:
            await self._wait(fault.seconds)
        finally:
            if not self.outcome.is_interrupted:  # if interrupted, all processes are killed anyway
                await fault.end()
        self.trace(f"{fault.name} of {fault.subject} is over")
        ended_s = time.monotonic()
        await self._until_all_get_on(f"{fault.name} of {fault.subject}")
        report = FaultReport(
            fault.name,
            fault.subject,
            began_s - (deadline_s - self.plan.seconds),
            ended_s - began_s,
            self._probe.longest_pause_s(began_s),
            time.monotonic() - ended_s,
        )
        self.outcome.faults.append(report)
        self._say(
            f"{report.at_s:6.0f} s  {fault.name} of {fault.subject} for {report.lasted_s:.1f} s:"
            f" acks=all paused {report.pause_s:.1f} s, all recovered {report.recovered_s:.1f} s after it;"
            f" {self.outcome.acked:,} records acknowledged"
        )

    async def _close(self) -> None:
        """Let all clients finish, and read everything."""
        self.trace("clients finish")
        self._say("reading everything and checking the files")
        self._network.is_calm = True
        self._clients.finish()
        self._probe.finish()
        await self._until(
            lambda: self._clients.is_idle and self._probe.is_idle, "producers finish", of_end=True
        )
        self._probe.end()
        audit = FinalAudit(self._scenario, self._context, has_transactions=True)
        audit.start()
        await self._until(
            lambda: audit.is_done,
            lambda: f"{', '.join(audit.unfinished)} have read more",
            of_end=True,
            progress=lambda: audit.record_count,
        )
        audit.end()
        self._clients.end()
        for audited in audit.report(self.record, self.trace):
            self._audited.append(audited)
            self.outcome.read += len(audited.records)

    async def _check(self) -> None:
        """Stop the brokers, and check their files."""
        with suppress(Violation):  # it was reported already
            await self._until_in_sync("the end")
        for broker in self._brokers.all:
            await self._guarded(broker.stop)
        # A broker that could not start has no files; it was reported already.
        data = {each.id: each.data for each in self._brokers.all if (each.data / "logs").exists()}
        for node_id, path in data.items():
            await self._guarded(lambda node_id=node_id, path=path: self._check_files(node_id, path))  # type: ignore[misc]
        await self._guarded(lambda: self._check_replicas(data))
        for broker in self._brokers.all:
            for line in tracebacks(broker.log):
                self._report_violation(f"NothingUnforeseen: node {broker.id} logged an exception: {line}")

    async def _check_files(self, node_id: int, data: Path) -> None:
        check_files(node_id, data, self._audited, self._scenario.rules)

    async def _check_replicas(self, data: dict[int, Path]) -> None:
        for replica in replicas_of(data, self._audited):
            self.record(replica)

    # -- waiting ---------------------------------------------------------------------------------------

    async def _wait(self, seconds: float) -> None:
        """Wait, unless a violation happens."""
        deadline_s = time.monotonic() + seconds
        while time.monotonic() < deadline_s and not self._is_over:
            self._brokers.look()
            await asyncio.sleep(LOOK_EVERY_S)

    async def _until(
        self,
        is_done: Callable[[], bool],
        what: str | Callable[[], str],
        *,
        of_end: bool = False,
        progress: Callable[[], int] = lambda: 0,
    ) -> None:
        """Wait for a condition; with `of_end`, also after a violation. The allowance restarts when `progress`
        changes."""
        allowance_s = 2 * ALLOWANCE_S if of_end else ALLOWANCE_S
        deadline_s = time.monotonic() + allowance_s
        seen = progress()
        while not is_done():
            if self._is_over and not of_end:
                return
            self._brokers.look()
            if progress() != seen:
                seen, deadline_s = progress(), time.monotonic() + allowance_s
            if time.monotonic() > deadline_s:
                text = what if isinstance(what, str) else what()
                raise Violation(f"Progress: {ALLOWANCE_S * (1 + of_end):.0f} s passed before {text}")
            await asyncio.sleep(LOOK_EVERY_S)

    def _are_topics_there(self) -> bool:
        return self._clients.is_admin_done

    async def _until_all_get_on(self, after: str) -> None:
        """Wait until every client has made progress, and every replica is in sync."""
        before = self._counts()

        def stuck() -> list[str]:
            return [name for name, count in self._counts().items() if count <= before.get(name, 0)]

        await self._until(lambda: not stuck(), lambda: f"{', '.join(stuck())} made progress after {after}")
        if not self._is_over:
            await self._until_in_sync(after)

    def _counts(self) -> dict[str, int]:
        counts = self._clients.progress()
        return counts | {
            f"probe of partition {each}": count for each, count in self._probe.acked_counts.items()
        }

    async def _until_in_sync(self, after: str) -> None:
        deadline_s = time.monotonic() + ALLOWANCE_S
        while True:
            behind = await asyncio.to_thread(self._behind)
            if not behind:
                return
            self._brokers.look()
            if time.monotonic() > deadline_s:
                raise Violation(
                    f"Progress: {ALLOWANCE_S:.0f} s after {after} replicas are out of sync: {', '.join(behind[:5])}"
                )
            await asyncio.sleep(LOOK_EVERY_S)

    def _behind(self) -> Sequence[str]:
        """Return partitions without a leader, or with a replica that is not in sync."""
        settings = ClientSettings(client_id="chaos", connect_timeout_ms=2_000, api_timeout_ms=10_000)
        try:
            with Cluster(parse_servers(self._brokers.bootstrap), settings) as cluster:
                return [
                    f"{topic.name}-{each.partition} has {list(each.isr)} of {list(each.replicas)} in sync"
                    for topic in list_topics(cluster)
                    for each in topic.partitions.values()
                    if each.leader < 0 or len(each.isr) < len(each.replicas)
                ]
        except ClientError as error:
            return [str(error)]
