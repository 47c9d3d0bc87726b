"""What came out: rates by source, ratios of the same rounds, goals; as tables for people and as JSON for programs."""

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.spark.goals import NAMES, OWN, RATIOS, SOURCES, Ratio
from benchmarks.spark.rows import Line

MS = "ms"


class Held(NamedTuple):
    """A goal beside what was reached."""

    line: Line
    ratio: Ratio
    value: float
    """The median over the rounds, as each round was like for like."""

    @property
    def is_met(self) -> bool:
        return self.ratio.goal.is_met(self.value)


def held(line: Line) -> list[Held]:
    """The goals of a line whose sources were both measured."""
    found = []
    for ratio in RATIOS:
        over, under = line.figures.get(ratio.over), line.figures.get(ratio.under)
        if line.action in ratio.actions and over and under:
            value = statistics.median(a / b for a, b in zip(over, under, strict=True))
            found.append(Held(line, ratio, value))
    return found


def as_json(line: Line) -> dict[str, Any]:
    return {
        "key": line.key,
        "work": line.work,
        "unit": line.unit,
        "medians": {source: statistics.median(values) for source, values in line.figures.items()},
        "rounds": line.figures,
        "mb_s": {
            source: statistics.median(values) * line.row_bytes for source, values in line.figures.items()
        }
        if line.row_bytes
        else {},
        "cpu_us_a_row": {source: statistics.median(values) for source, values in line.cpu_us.items()},
        "goals": [
            {
                "what": str(each.ratio),
                "value": each.value,
                "goal": str(each.ratio.goal),
                "is_met": each.is_met,
            }
            for each in held(line)
        ],
    }


def print_tables(lines: Sequence[Line]) -> None:
    console = Console(width=max(Console().width, 150))
    measured = [source for source in SOURCES if any(source in line.figures for line in lines)]
    rates = [line for line in lines if line.unit != MS]
    if rates:
        console.print(_rates(rates, measured))
    if any(line.cpu_us for line in rates):
        console.print(_cpu([line for line in rates if line.cpu_us], measured))
    goals = [each for line in rates for each in held(line)]
    if goals:
        console.print(_goals(goals))
    phases = [line for line in lines if line.unit == MS]
    if phases:
        console.print(_phases(phases, [source for source in measured if source in phases[0].figures]))


def _rates(lines: Sequence[Line], sources: Sequence[str]) -> Table:
    table = Table("work", *(NAMES[each] for each in sources), title="Spark: M rows/s (MB/s of values)")
    for column in table.columns[1:]:
        column.justify = "right"
    for line in lines:
        cells = []
        for source in sources:
            values = line.figures.get(source)
            rate = statistics.median(values) if values else None
            cells.append("" if rate is None else f"{rate:.2f} ({rate * line.row_bytes:,.0f})")
        table.add_row(line.work, *cells)
    return table


def _cpu(lines: Sequence[Line], sources: Sequence[str]) -> Table:
    title = "CPU a row, us: the session with all its processes, and the node"
    table = Table("work", *(NAMES[each] for each in sources), title=title)
    for column in table.columns[1:]:
        column.justify = "right"
    for line in lines:
        table.add_row(line.work, *(f"{statistics.median(line.cpu_us[each]):.2f}" for each in sources))
    return table


def _goals(goals: Sequence[Held]) -> Table:
    table = Table("work", "ratio", "reached", "goal", "", title="Ratios in the same rounds")
    for each in goals:
        mark = "[green]ok[/]" if each.is_met else "[red]missed[/]"
        table.add_row(each.line.work, str(each.ratio), f"{each.value:.2f}", str(each.ratio.goal), mark)
    return table


def _phases(lines: Sequence[Line], sources: Sequence[str]) -> Table:
    table = Table("work", *(NAMES[each] for each in sources or [OWN]), title="Micro-batches, ms (medians)")
    for line in lines:
        table.add_row(line.work, *(f"{statistics.median(line.figures[each]):.0f}" for each in sources))
    return table
