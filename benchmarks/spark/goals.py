"""What a run must reach, as data: each goal is a ratio of two sources' rates, in the same row of the same run."""

from typing import NamedTuple

from benchmarks.broker.goals import Goal

OWN, SCAN, NULL, PARQUET, CONNECTOR = "penstock", "scan", "null", "parquet", "connector"

NAMES = {
    OWN: "Penstock",
    SCAN: "direct scan",
    NULL: "null source",
    PARQUET: "Parquet",
    CONNECTOR: "Kafka connector",
}
SOURCES = (NULL, PARQUET, OWN, SCAN, CONNECTOR)
"""In the order of their turns."""
THEIR_OWN = (CONNECTOR,)
"""Those that run in the peer's session."""


class Ratio(NamedTuple):
    """One source's multiple of another's rate."""

    over: str
    under: str
    actions: tuple[str, ...]
    """The rows that it is held for."""
    goal: Goal

    def __str__(self) -> str:
        return f"{NAMES[self.over]} / {NAMES[self.under]}"


ALL = ("count", "sum", "write")

RATIOS = (
    Ratio(OWN, CONNECTOR, ALL, Goal(2.0, at_least=True)),
    Ratio(OWN, NULL, ALL, Goal(0.55, at_least=True)),
    # A count reads no rows from Parquet, and writing is the same work whatever was read.
    Ratio(OWN, PARQUET, ("sum",), Goal(0.5, at_least=True)),
    Ratio(SCAN, OWN, ALL, Goal(1.0, at_least=True)),
)
