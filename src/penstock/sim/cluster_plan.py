"""What a scenario says of a cluster: how many nodes, what their clocks are like, and what befalls them."""

from dataclasses import dataclass
from enum import Enum

from penstock.sim.faults.disk_troubles import NO_TROUBLES, DiskPlan
from penstock.sim.world.process_world import TRUE, Clock

CLOCK_RATE_MAX = 1.02
"""How fast a clock may go; none is slower than the inverse."""


class Harm(Enum):
    """What happens to disks while their machines are down."""

    NONE = "none"
    FLIPS = "flips"
    """Bits of files change."""
    WIPES = "wipes"
    """Everything is gone: the node comes back with an empty disk, and the id that it had."""
    BOTH = "both"
    HOLES = "holes"
    """A partition loses a segment, a transaction marker, an index or a snapshot (`hole_trials.lose`)."""


class PowerCuts(Enum):
    NONE = "none"
    FEW = "few"
    """A node loses power only while every other has back what it may have lost; and until it has, no other is killed:
    who comes back from that is not believed to have what it has."""
    SOME = "some"
    """As few; but any number of others are killed, at any time: a kill takes nothing."""
    ANY = "any"
    """At any time, and all at once: everything is synced before it is acknowledged."""


@dataclass(frozen=True)
class ClusterPlan:
    nodes: int = 1
    """Brokers."""
    controllers: int = 0
    """Nodes that are controllers and nothing else; 0 where each broker is one too."""
    clocks: tuple[Clock, ...] = (TRUE,)
    """Of the brokers, then of the controllers."""
    power_cuts: PowerCuts = PowerCuts.ANY
    down_us: tuple[int, int] = (1_000, 200_000)
    """How long a machine stays down, at least and at most."""
    cut_us_mean: int = 0
    """Between two cuts of the network; 0 for none."""
    pause_us_mean: int = 0
    """Between two processes that are stopped where they are; 0 for none."""
    operate_us_mean: int = 0
    """Between two things that the operator does to topics; 0 for nothing."""
    hiccups: float = 0.01
    """How likely a piece of a stream is held up for long."""
    splits: float = 0.3
    """How likely only a part of what is on its way arrives."""
    has_racks: bool = False
    """Whether each node has a rack to itself, which has the number of the node."""
    harm: Harm = Harm.NONE
    """To one disk at a time: to the next one when the last has back what it may have lost."""
    harm_us_mean: int = 0
    """Between two machines that go down for it; 0 for none."""
    bad_sectors_us_mean: int = 0
    """Between two disks of which some bits change while their nodes run; 0 for none. As with `harm`, of one disk at a
    time."""
    lost_metadata_us_mean: int = 0
    """Between two voters that come back without the end of their metadata log; 0 for none. One voter at a time."""
    voter_changes_us_mean: int = 0
    """Between two changes of who votes in the quorum, which begins with one voter; 0 where all controllers vote from
    the beginning, and for ever."""
    voters_join: bool = False
    """Whether controllers without a vote ask for one by themselves, where voters change."""
    rollback_us_mean: int = 0
    """Between two machines whose files vanish, shrink or go back to an older state while they are down; 0 for none.
    One machine at a time. In the end, all lose their metadata."""
    is_named: bool = True
    """Whether the settings have the cluster's id; else its first leader draws it."""
    faulty: int = 0
    """The node whose disk fails now and then; 0 for none."""
    disks: DiskPlan = NO_TROUBLES
    """Which troubles disks get into while their nodes run, one disk at a time."""

    def skew_ms(self, duration_us: int) -> int:
        """How far two clocks are apart at most, for so long."""
        ahead = [each.ahead_ms for each in self.clocks]
        rates = [each.rate for each in self.clocks]
        return round(max(ahead) - min(ahead) + (max(rates) - min(rates)) * duration_us / 1000)

    @property
    def replicas_min(self) -> int:
        """How many replicas there must be of what is to be there in the end."""
        is_harmed = self.harm is not Harm.NONE or self.bad_sectors_us_mean or self.rollback_us_mean
        return 2 if is_harmed else 1

    @property
    def voting(self) -> range:
        """The nodes that vote, or may."""
        first = self.nodes + 1 if self.controllers else 1
        return range(first, self.nodes + self.controllers + 1)

    @property
    def is_replicated(self) -> bool:
        return self.nodes > 1


ONE_NODE = ClusterPlan()
