"""What each figure must reach, as data.

A goal is held against the figure itself, against its multiple of the yardstick of the same run, or against what it
has above the yardstick. The peer's aims are what Penstock sets out to need of Apache Kafka's cost; they are
shown, and no run fails for them.
"""

from enum import Enum
from typing import NamedTuple


class Against(Enum):
    ITSELF = ""
    TIMES_YARDSTICK = " x the yardstick"
    ABOVE_YARDSTICK = " above the yardstick"


class Goal(NamedTuple):
    limit: float
    against: Against = Against.ITSELF
    at_least: bool = False

    def held(self, figure: float, yardstick: float | None) -> float | None:
        """What is compared with the limit; None where the yardstick was not measured."""
        if self.against is Against.ITSELF:
            return figure
        if yardstick is None:
            return None
        return figure / yardstick if self.against is Against.TIMES_YARDSTICK else figure - yardstick

    def is_met(self, held: float) -> bool:
        return held >= self.limit if self.at_least else held <= self.limit

    def __str__(self) -> str:
        return f"{'at least' if self.at_least else 'at most'} {self.limit:g}{self.against.value}"


GOALS = {
    "produce-64": Goal(1.9, Against.TIMES_YARDSTICK),
    "produce-pipelined": Goal(10),
    "produce-16k": Goal(1.5),
    "produce-128k": Goal(0.7),
    "fetch-1m": Goal(0.5),
    "poll-1": Goal(15 + 1.5 * 1, Against.ABOVE_YARDSTICK),
    "poll-10": Goal(15 + 1.5 * 10, Against.ABOVE_YARDSTICK),
    "poll-100": Goal(15 + 1.5 * 100, Against.ABOVE_YARDSTICK),
    "fsync-64": Goal(8, Against.TIMES_YARDSTICK, at_least=True),
    "settle-classic": Goal(5),
    "settle-consumer": Goal(5),
    "heartbeat-classic": Goal(60),
    "heartbeat-consumer": Goal(60),
    "commits-1000": Goal(15),
    "rest-start": Goal(0.5),
    "rest-idle": Goal(60),
    "rest-connection": Goal(3),
    "latency-1000": Goal(1),
}

AIMS = {"us": 1 / 2, "s/GB": 1 / 3}
"""By unit: the part of the peer's figure that Penstock is to stay below."""
