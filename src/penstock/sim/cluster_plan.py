"""What a scenario says of a cluster: how many nodes, what their clocks are like, and what befalls them."""

from dataclasses import dataclass
from enum import Enum

from penstock.sim.world import TRUE, Clock

CLOCK_RATE_MAX = 1.02
"""How fast a clock may go; none is slower than the inverse."""


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
    clocks: tuple[Clock, ...] = (TRUE,)
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
    faulty: int = 0
    """The node whose disk fails now and then; 0 for none."""

    @property
    def is_replicated(self) -> bool:
        return self.nodes > 1


ONE_NODE = ClusterPlan()
