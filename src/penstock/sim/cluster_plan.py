"""The cluster part of a scenario: nodes, clocks and faults."""

from dataclasses import dataclass
from enum import Enum

from penstock.sim.faults.disk_troubles import NO_TROUBLES, DiskPlan
from penstock.sim.world.process_world import TRUE, Clock

CLOCK_RATE_MAX = 1.02
"""Fastest rate of a clock; the slowest is the inverse."""


class Harm(Enum):
    """Harm to disks while their machines are down."""

    NONE = "none"
    FLIPS = "flips"
    """Bits of files change."""
    WIPES = "wipes"
    """The node starts again with an empty disk and its old id."""
    BOTH = "both"
    HOLES = "holes"
    """A partition loses a segment, a transaction marker, an index or a snapshot (`hole_trials.lose`)."""


class PowerCuts(Enum):
    NONE = "none"
    FEW = "few"
    """A node loses power only while every other node has recovered what it may have lost. Until it has recovered
    itself, no other node is killed, since the controller assumes that a killed broker has lost records."""
    SOME = "some"
    """As FEW, but other nodes may be killed at any time: a kill loses nothing."""
    ANY = "any"
    """At any time, also all at once: everything is synced before it is acknowledged."""


@dataclass(frozen=True)
class ClusterPlan:
    nodes: int = 1
    """Number of brokers."""
    controllers: int = 0
    """Number of dedicated controllers; 0 if each broker is a controller too."""
    clocks: tuple[Clock, ...] = (TRUE,)
    """Clocks of the brokers, then of the controllers."""
    power_cuts: PowerCuts = PowerCuts.ANY
    down_us: tuple[int, int] = (1_000, 200_000)
    """Shortest and longest time that a machine stays down."""
    cut_us_mean: int = 0
    """Mean time between two cuts of the network; 0 for none. The same holds for all `_us_mean` fields."""
    pause_us_mean: int = 0
    """Between two pauses of processes (SIGSTOP)."""
    operate_us_mean: int = 0
    """Between two actions of the operator on topics."""
    hiccups: float = 0.01
    """Probability that a piece of a stream is delayed for long."""
    splits: float = 0.3
    """Probability that only a part of the bytes in flight arrives."""
    has_racks: bool = False
    """Whether each node has its own rack, named after its id."""
    harm: Harm = Harm.NONE
    """Harm to one disk at a time; to the next one when the last node has recovered."""
    harm_us_mean: int = 0
    """Between two harms."""
    bad_sectors_us_mean: int = 0
    """Between two disks with flipped bits while their nodes run, one disk at a time."""
    lost_metadata_us_mean: int = 0
    """Between two voters that lose the end of their metadata log, one voter at a time."""
    voter_changes_us_mean: int = 0
    """Between two changes of the quorum's voters, which start with one; 0 if all controllers always vote."""
    voters_join: bool = False
    """Whether controllers add themselves to the voters, where voters change."""
    rollback_us_mean: int = 0
    """Between two machines whose files are removed, truncated or rolled back while they are down, one machine at a
    time. At the end, all machines lose their metadata."""
    is_named: bool = True
    """Whether the settings contain the cluster id; otherwise the first leader draws it."""
    faulty: int = 0
    """Node whose disk fails sometimes, if the scenario has disk faults; 0 for all nodes, -1 for none."""
    disks: DiskPlan = NO_TROUBLES
    """Troubles of disks while their nodes run, one disk at a time."""

    def skew_ms(self, duration_us: int) -> int:
        """Return the largest difference between two clocks within a duration."""
        ahead = [each.ahead_ms for each in self.clocks]
        rates = [each.rate for each in self.clocks]
        return round(max(ahead) - min(ahead) + (max(rates) - min(rates)) * duration_us / 1000)

    @property
    def replicas_min(self) -> int:
        """Fewest replicas with which records survive the run."""
        is_harmed = self.harm is not Harm.NONE or self.bad_sectors_us_mean or self.rollback_us_mean
        return 2 if is_harmed else 1

    @property
    def voting(self) -> range:
        """Ids of the nodes that vote, or may become voters."""
        first = self.nodes + 1 if self.controllers else 1
        return range(first, self.nodes + self.controllers + 1)

    @property
    def is_replicated(self) -> bool:
        return self.nodes > 1


ONE_NODE = ClusterPlan()
