"""What Spark tells of a query after each micro-batch, as numbers for people.

Spark's progress is a page of JSON. What matters of it: how many rows, how fast, how far behind the end of what is
read, and how much is remembered. Positions are kept too, so that another process can ask the brokers how far behind
they are by now.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

Positions = dict[str, dict[int, int]]
"""The next offset to read, by topic and partition."""


@dataclass
class FlowProgress:
    flow: str
    state: str = "waiting"
    """waiting, running, finished (there was nothing left to read), stopped or failed."""
    batch: int | None = None
    """The last micro-batch that ended."""
    rows: int = 0
    """Read in this run."""
    rows_last: int = 0
    rows_per_s: float = 0.0
    """Of the last batch, while it was worked on."""
    batch_ms: int | None = None
    lag: int | None = None
    """Records between the position and the end when the batch began; None where a source has no offsets."""
    state_rows: int | None = None
    """Rows that aggregations, joins and deduplication remember; None where there are none of these."""
    watermark: str | None = None
    positions: Positions = field(default_factory=dict)
    error: str | None = None

    def take(self, progress: Mapping[str, Any]) -> bool:
        """Add a progress report of Spark; return whether it is new. Spark may report a batch again, without rows."""
        batch = _whole(progress.get("batchId"))
        if batch is None:
            return False
        sources = progress.get("sources") or []
        # Summed here: through Spark Connect there is no sum.
        rows = sum(_whole(each.get("numInputRows")) or 0 for each in sources)
        is_news = self.batch is None or batch > self.batch or rows > 0
        self.batch = batch
        self.rows += rows
        self.rows_last = rows
        self.rows_per_s = sum(_rate(each.get("processedRowsPerSecond")) for each in sources)
        self.batch_ms = _whole(progress.get("batchDuration"))
        operators = progress.get("stateOperators") or []
        self.state_rows = (
            sum(_whole(each.get("numRowsTotal")) or 0 for each in operators) if operators else None
        )
        self.watermark = (progress.get("eventTime") or {}).get("watermark")
        self._take_offsets(sources)
        return is_news

    def _take_offsets(self, sources: list[Mapping[str, Any]]) -> None:
        lags: list[int] = []
        self.positions = {}
        for source in sources:
            end, latest = offsets(source.get("endOffset")), offsets(source.get("latestOffset"))
            if end is None:
                continue
            for topic, partitions in end.items():
                self.positions.setdefault(topic, {}).update(partitions)
            if latest is not None:
                lags.append(behind(end, latest))
        self.lag = sum(lags) if lags else None

    def as_json(self) -> dict[str, Any]:
        return {
            "flow": self.flow,
            "state": self.state,
            "batch": self.batch,
            "rows": self.rows,
            "rows_last": self.rows_last,
            "rows_per_s": round(self.rows_per_s, 1),
            "batch_ms": self.batch_ms,
            "lag": self.lag,
            "state_rows": self.state_rows,
            "watermark": self.watermark,
            "positions": {
                topic: {str(partition): offset for partition, offset in sorted(partitions.items())}
                for topic, partitions in sorted(self.positions.items())
            },
            "error": self.error,
        }


def offsets(value: object) -> Positions | None:
    """Offsets of a topic source, `{"orders": {"0": 12}}`; None for what other sources have."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if not isinstance(value, Mapping) or not value:
        return None
    found: Positions = {}
    for topic, partitions in value.items():
        if str(topic).startswith("@"):
            continue  # what the source notes for itself; no topic is called so
        if not isinstance(partitions, Mapping):
            return None
        for partition, offset in partitions.items():
            number = _whole(offset)
            if number is None or not str(partition).isdigit():
                return None
            found.setdefault(str(topic), {})[int(partition)] = number
    return found or None


def behind(positions: Positions, ends: Positions) -> int:
    """How many records are between positions and ends; a partition that has no position yet is not counted."""
    return sum(
        max(0, ends.get(topic, {}).get(partition, offset) - offset)
        for topic, partitions in positions.items()
        for partition, offset in partitions.items()
    )


def _rate(value: object) -> float:
    return float(value) if isinstance(value, int | float) and isfinite(value) else 0.0


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
