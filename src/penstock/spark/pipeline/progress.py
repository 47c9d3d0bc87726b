"""Extracts numbers from Spark's progress report of each micro-batch.

The report is a page of JSON. This module keeps rows, rate, lag, and the size of the state. It also keeps
positions, so that another process can compute the current lag from the brokers.
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
    """waiting, running, finished (nothing left to read), stopped or failed."""
    batch: int | None = None
    """Number of the last completed micro-batch."""
    rows: int = 0
    """Rows read in this run."""
    rows_last: int = 0
    rows_per_s: float = 0.0
    """Rate of the last batch during its processing."""
    batch_ms: int | None = None
    lag: int | None = None
    """Records between the position and the end when the batch started; None if a source has no offsets."""
    state_rows: int | None = None
    """Rows in the state of aggregations, joins and deduplication; None if there are none of these."""
    watermark: str | None = None
    positions: Positions = field(default_factory=dict)
    error: str | None = None

    def take(self, progress: Mapping[str, Any]) -> bool:
        """Add a progress report; return whether it is new. Spark may report a batch again, without rows."""
        batch = _whole(progress.get("batchId"))
        if batch is None:
            return False
        sources = progress.get("sources") or []
        # Summed here, because Spark Connect does not report the sum.
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
    """Offsets of a topic source, `{"orders": {"0": 12}}`; None for other sources."""
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
            continue  # internal data of the source; not a valid topic name
        if not isinstance(partitions, Mapping):
            return None
        for partition, offset in partitions.items():
            number = _whole(offset)
            if number is None or not str(partition).isdigit():
                return None
            found.setdefault(str(topic), {})[int(partition)] = number
    return found or None


def behind(positions: Positions, ends: Positions) -> int:
    """Number of records between positions and ends; partitions without a position are not counted."""
    return sum(
        max(0, ends.get(topic, {}).get(partition, offset) - offset)
        for topic, partitions in positions.items()
        for partition, offset in partitions.items()
    )


def _rate(value: object) -> float:
    return float(value) if isinstance(value, int | float) and isfinite(value) else 0.0


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
