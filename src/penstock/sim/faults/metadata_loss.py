"""Voters that lose the end of their metadata log while they are down.

The last segment of the metadata log is truncated somewhere, or bits near its end flip. The lost records may have been
synced, acknowledged and committed. Other voters have them: until the machine has fetched them again, no other machine
loses any of its metadata log.
"""

from random import Random

from penstock.server.node import Node
from penstock.sim.faults.disk_damage import cut_metadata
from penstock.sim.world.machine import Machine, State
from penstock.sim.world.machines import SimCluster


class MetadataLoss:
    def __init__(self, cluster: SimCluster, rng: Random) -> None:
        self.rng = rng
        self._cluster = cluster
        self._machines = [each for each in cluster.machines if each.is_voter]
        self._chosen: Machine | None = None
        """The machine that goes down to lose the end of its log."""

    def end(self) -> None:
        self._chosen = None

    def strike(self) -> None:
        machine, drawn = self.rng.choice(self._machines), self.rng.random()
        if self._chosen is None and machine.state is State.UP and self._may_lose(machine):
            self._chosen = machine
            if drawn < 0.5 or not self._cluster.may_be_killed(machine):
                machine.stop()
            else:
                machine.kill()

    def before_start(self, machine: Machine) -> None:
        """Damage the log of the chosen machine before it starts again."""
        if machine is not self._chosen:
            return
        self._chosen = None
        if self._may_lose(machine):
            machine.spoil_metadata(cut_metadata(machine.disk, self.rng))

    def _may_lose(self, machine: Machine) -> bool:
        if any(has_lost_metadata(each) for each in self._machines if each is not machine):
            return False
        # Where voters change, those that have the lost records may be removed.
        return not self._cluster.changes_voters or self._cluster.can_vote_without(machine)


def has_lost_metadata(machine: Machine) -> bool:
    """Return whether a machine lost the end of its metadata log, and is not known to have it back."""
    if not machine.lacks_metadata:
        return False
    node = machine.node
    if machine.state is State.UP and isinstance(node, Node) and not node.quorum.is_recovering:
        machine.lacks_metadata = node.quorum.lost_end is not None
    return machine.lacks_metadata
