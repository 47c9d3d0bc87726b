"""What came out: medians, ratios, goals; as a table for people and as JSON for programs."""

import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.broker.goals import AIMS, GOALS, Against, Goal
from benchmarks.broker.rounds import YARDSTICK
from benchmarks.broker.rows import Line

OWN, PEER = "penstock", "kafka"


class Result(NamedTuple):
    line: Line
    rounds: Mapping[str, Sequence[float]]
    """By server, or YARDSTICK."""

    def median(self, server: str) -> float | None:
        values = self.rounds.get(server)
        return statistics.median(values) if values else None

    def ratio(self, server: str) -> float | None:
        """Penstock's multiple of another's figure: the median over the rounds, as each round was like for like."""
        own, other = self.rounds.get(OWN), self.rounds.get(server)
        if not own or not other:
            return None
        return statistics.median(a / b for a, b in zip(own, other, strict=True))

    @property
    def goal(self) -> Goal | None:
        return GOALS.get(self.line.key)

    @property
    def held(self) -> float | None:
        """What the goal is held against; None where there is no goal, or something was not measured."""
        figure = self.median(OWN)
        if self.goal is None or figure is None:
            return None
        if self.goal.against is Against.TIMES_YARDSTICK:
            return self.ratio(YARDSTICK)
        return self.goal.held(figure, self.median(YARDSTICK))

    @property
    def is_met(self) -> bool | None:
        return None if self.goal is None or self.held is None else self.goal.is_met(self.held)

    @property
    def is_aim_met(self) -> bool | None:
        ratio, aim = self.ratio(PEER), AIMS.get(self.line.unit)
        return None if ratio is None or aim is None else ratio <= aim

    def as_json(self) -> dict[str, Any]:
        return {
            "key": self.line.key,
            "work": self.line.work,
            "unit": self.line.unit,
            "medians": {server: self.median(server) for server in self.rounds},
            "rounds": {server: list(values) for server, values in self.rounds.items()},
            "times_yardstick": self.ratio(YARDSTICK),
            "times_peer": self.ratio(PEER),
            "goal": None if self.goal is None else str(self.goal),
            "is_met": self.is_met,
            "is_aim_met": self.is_aim_met,
        }


def machine() -> dict[str, Any]:
    return {"cpus": os.cpu_count(), "python": platform.python_version(), "kernel": platform.release()}


def print_table(results: Sequence[Result], *, has_peer: bool) -> None:
    columns = ["work", "unit", "yardstick", "Penstock", "x yardstick"]
    columns += ["Kafka", "Penstock / Kafka"] if has_peer else []
    table = Table(*columns, "goal", "", title="Penstock on the wire")
    for column in table.columns[2:-2]:
        column.justify = "right"
    for result in results:
        cells = [
            result.line.work,
            result.line.unit,
            _number(result.median(YARDSTICK)),
            _number(result.median(OWN)),
            _ratio(result.ratio(YARDSTICK)),
        ]
        if has_peer:
            cells += [
                _number(result.median(PEER)),
                _ratio(result.ratio(PEER)) + _mark(result.is_aim_met, "*", ""),
            ]
        goal = "" if result.goal is None else str(result.goal)
        table.add_row(*cells, goal, _mark(result.is_met, "[green]ok[/]", "[red]missed[/]"))
    console = Console(width=max(Console().width, 140))
    console.print(table)
    console.print(
        "CPU is the server's own, all threads. The yardstick is a uvloop server that answers frames of the same sizes "
        "and does nothing else; for fsync, one write and one fdatasync per message."
    )
    if has_peer:
        console.print("* within the aim: half of Kafka's CPU per request, a third per GB.")


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _mark(is_met: bool | None, yes: str, no: str) -> str:
    return "" if is_met is None else yes if is_met else no
