"""Triggers the faults of a run at random times: crashes, stops, pauses, cuts, resets and disk faults."""

from collections.abc import Callable
from random import Random

from penstock.server.node import Node
from penstock.sim.cluster_plan import Harm
from penstock.sim.faults.disk_damage import PARTITIONS, QUORUM
from penstock.sim.faults.disk_troubles import DiskTroubles, draw_trouble
from penstock.sim.faults.metadata_loss import MetadataLoss
from penstock.sim.faults.rollbacks import Rollbacks
from penstock.sim.scenario import Scenario
from penstock.sim.world.machine import Machine, State
from penstock.sim.world.machines import SimCluster
from penstock.sim.world.network import CLIENTS, Network
from penstock.sim.world.schedule import Schedule

CUT_US_MAX = 10_000_000
PAUSE_US_MAX = 10_000_000
"""Longer than sessions and request timeouts."""
HARM_ATTEMPTS = 20
"""How often it is checked whether a disk may be harmed now, before its machine starts with the disk as it is."""


class Faults:
    def __init__(
        self,
        scenario: Scenario,
        schedule: Schedule,
        network: Network,
        cluster: SimCluster,
        trace: Callable[[str], None],
    ) -> None:
        self._scenario = scenario
        self._plan = scenario.cluster
        self._schedule = schedule
        self._network = network
        self._cluster = cluster
        self._trace = trace
        self._rng = schedule.rng("operator")
        self._is_over = False
        self._is_ending = False
        self._doomed: dict[Machine, Harm] = {}
        """Harm to do to the disks of machines once they are down."""
        self._disks = DiskTroubles(
            self._plan.disks, schedule.rng("disk troubles"), schedule.later, self._trouble_disk
        )
        self._losses = MetadataLoss(cluster, schedule.rng("lost metadata"))
        self.rollbacks = Rollbacks(cluster, schedule.rng("rollbacks"), trace)
        network.hiccups, network.splits = self._plan.hiccups, self._plan.splits
        cluster.when_down(self.start_again)

    def begin(self) -> None:
        for mean_us, strike in (
            (self._scenario.crash_us_mean, self._crash),
            (self._scenario.reset_us_mean, self._network.reset_one),
            (self._plan.cut_us_mean, self._cut),
            (self._plan.pause_us_mean, self._pause),
            (self._plan.harm_us_mean, self._harm),
            (self._plan.bad_sectors_us_mean, self._spoil),
        ):
            self._repeat(mean_us, strike, self._rng)
        self._disks.start()
        self._repeat(self._plan.lost_metadata_us_mean, self._losses.strike, self._losses.rng)
        self._repeat(self._plan.rollback_us_mean, self.rollbacks.strike, self.rollbacks.rng)

    def _repeat(self, mean_us: int, strike: Callable[[], None], rng: Random) -> None:
        """Strike at random intervals with this mean; 0 for never."""

        def again() -> None:
            if not self._is_over:
                strike()
                self._repeat(mean_us, strike, rng)

        if mean_us:
            self._schedule.later(round(rng.expovariate(1 / mean_us)) + 1, again)

    def end(self) -> None:
        """End all faults, and repair what is broken."""
        self._is_over = True
        self._network.is_calm = True
        self._network.heal()
        self._disks.end()
        self._losses.end()
        self.rollbacks.end()
        for machine in self._cluster.machines:
            machine.resume()
            machine.disarm()
            if machine.has_faults:
                machine.has_faults = False
                machine.kill()  # its remaining faults end with the process
            self.start_again(machine)

    def leave(self) -> None:
        """Do not restart machines any more."""
        self._is_ending = True

    # -- machines --------------------------------------------------------------------------------------

    def start_again(self, machine: Machine) -> None:
        self._losses.before_start(machine)
        if self._plan.rollback_us_mean and not self._is_over:
            self.rollbacks.before_start(machine)
        if machine.has_given_up:
            self._harm_soon(machine, Harm.WIPES, HARM_ATTEMPTS)
        elif machine in self._doomed and not self._is_over:
            self._harm_soon(machine, self._doomed[machine], HARM_ATTEMPTS)
        elif not self._is_ending:
            self._schedule.later(self._rng.randrange(*self._plan.down_us), machine.start)

    def _crash(self) -> None:
        rng = self._rng
        machine = rng.choice(self._cluster.machines)
        drawn = rng.random()

        def cuts_power() -> bool:
            return self._scenario.cuts_power and self._cluster.may_lose_power(machine)

        if not self._cluster.may_be_killed(machine):
            machine.stop()
        elif drawn < 0.25 or (drawn < 0.5 and not cuts_power()):
            machine.kill()
        elif drawn < 0.5:
            machine.cut_power()
        elif drawn < 0.65:
            machine.stop()
        else:
            machine.crash_within(
                rng.randrange(1, 60),
                is_power_cut=lambda: drawn < 0.85 and cuts_power(),
                happens=lambda: self._cluster.may_be_killed(machine),
            )

    def _pause(self) -> None:
        machine = self._rng.choice(self._cluster.machines)
        if machine.state in (State.UP, State.STARTING) and not machine.is_paused:
            machine.pause()
            self._schedule.later(self._rng.randrange(100_000, PAUSE_US_MAX), machine.resume)

    # -- disks -----------------------------------------------------------------------------------------

    def _harm(self) -> None:
        """Take a machine down, and harm its disk before it starts again."""
        rng = self._rng
        machine = rng.choice(self._cluster.machines)
        harm = self._plan.harm
        if harm is Harm.BOTH:
            harm = rng.choice((Harm.FLIPS, Harm.WIPES))
        drawn = rng.random()
        if machine.state is not State.UP or not self._cluster.may_be_harmed(machine):
            return
        self._doomed[machine] = harm
        if drawn < 0.4:
            machine.stop()
        elif drawn < 0.8:
            machine.kill()
        else:
            machine.cut_power()

    def _spoil(self) -> None:
        """Flip bits of a disk while its node runs."""
        machine = self._rng.choice(self._cluster.machines)
        node = machine.node
        if machine.state is State.UP and isinstance(node, Node) and self._cluster.may_be_harmed(machine):
            machine.flip_unread(node.context.replicas.directory.logs.values())

    def _trouble_disk(self, rng: Random) -> Callable[[], None] | None:
        """Make the disk of a broker fail; return the function that ends it, or None if no disk may fail now."""
        machine = rng.choice([each for each in self._cluster.machines if each.is_broker])
        node = machine.node
        if machine.state is not State.UP or not isinstance(node, Node):
            return None
        if not self._cluster.may_be_harmed(machine):
            return None
        logs = [str(each) for each in sorted(node.context.replicas.directory.logs)]
        machine.begin_trouble(draw_trouble(self._plan.disks, logs, rng))
        return machine.end_trouble

    def _harm_soon(self, machine: Machine, harm: Harm, attempts: int) -> None:
        """Harm a disk as soon as that is allowed, then start the machine; after `attempts`, start it unharmed."""

        def attempt() -> None:
            if machine.state is not State.DOWN:
                return
            may_wipe = self._cluster.may_lose_metadata(machine)
            may_be_harmed = self._cluster.may_be_harmed(machine)
            if machine.has_given_up and may_wipe and not may_be_harmed:
                # Its records may be the only copies.
                machine.lose_metadata()
                self._doomed.pop(machine, None)
                self.start_again(machine)
                return
            may = may_be_harmed and (may_wipe or harm in (Harm.FLIPS, Harm.HOLES))
            must_wait = machine.has_given_up or (attempts > 1 and not self._is_over)
            if must_wait and not may:
                self._harm_soon(machine, harm, attempts - 1)
                return
            self._doomed.pop(machine, None)
            if may and harm is Harm.WIPES:
                machine.wipe()
            elif may and harm is Harm.HOLES:
                machine.lose_files()
            elif may:
                machine.flip_bits(PARTITIONS + QUORUM if may_wipe else PARTITIONS)
            self.start_again(machine)

        self._schedule.later(self._rng.randrange(*self._plan.down_us), attempt)

    # -- the network -----------------------------------------------------------------------------------

    def _cut(self) -> None:
        """Cut some hosts from the others, both ways or one way; clients are on either side, or on both."""
        rng = self._rng
        hosts = [each.host for each in self._cluster.machines]
        some = rng.sample(hosts, rng.randint(1, max(1, len(hosts) // 2)))
        others = [each for each in hosts if each not in some]
        drawn = rng.random()
        if drawn < 0.3:
            others.append(CLIENTS)
        elif drawn < 0.4:
            some.append(CLIENTS)
        elif drawn < 0.5:
            others = [CLIENTS]
        way = rng.randrange(4)
        if way != 0:
            self._network.cut(some, others)
        if way != 1:
            self._network.cut(others, some)
        arrow = ("<-", "->", "--", "--")[way]
        self._trace(f"the network is cut: {', '.join(some)} {arrow} {', '.join(others)}")
        self._schedule.later(rng.randrange(100_000, CUT_US_MAX), self._heal)

    def _heal(self) -> None:
        if not self._is_over:
            self._trace("the network is healed")
            self._network.heal(breaks=0.3)
