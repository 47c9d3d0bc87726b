"""Metrics as text, in Prometheus's format 0.0.4 or in OpenMetrics 1.0.0.

    # HELP penstock_requests_total Answered requests of Kafka clients.
    # TYPE penstock_requests_total counter
    penstock_requests_total{api="Produce"} 1024

Written by hand: the format is simple, and `prometheus_client`, whose registry of locked objects is not needed, would
add 160 ms to the start and some megabytes of memory. The tests parse every page with that library.
"""

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from penstock.base.metrics import BOUNDS_NS, Histogram

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

Labels: TypeAlias = Sequence[tuple[str, str]]
Sample: TypeAlias = tuple[Labels, float]

_BOUNDS: Final = tuple(repr(each / 1e9) for each in BOUNDS_NS)
_TOTAL: Final = "_total"


class Page:
    """The body of a scrape. Each family is added once, as a whole."""

    def __init__(self, *, is_open: bool = False) -> None:
        """`is_open`: in OpenMetrics, which names a counter's family without `_total`, and marks the end."""
        self._is_open = is_open
        self._lines: list[str] = []
        self._names: set[str] = set()

    @property
    def content_type(self) -> str:
        return OPEN_METRICS if self._is_open else TEXT

    def counter(self, name: str, what: str, samples: Iterable[Sample] | float) -> None:
        """Add a counter with these samples, or with one value and no labels."""
        assert name.endswith(_TOTAL)
        self._head(name.removesuffix(_TOTAL) if self._is_open else name, "counter", what)
        self._add(name, samples)

    def gauge(self, name: str, what: str, samples: Iterable[Sample] | float) -> None:
        self._head(name, "gauge", what)
        self._add(name, samples)

    def begin(self, name: str, what: str) -> None:
        """Start a family whose samples are added with `add_rendered`: a counter if its name ends in `_total`."""
        if name.endswith(_TOTAL):
            self.counter(name, what, ())
        else:
            self.gauge(name, what, ())

    def add_rendered(self, name: str, samples: Iterable[tuple[str, float]]) -> None:
        """Add samples with labels that are already `rendered`, because many families share them."""
        self._lines += [f"{name}{{{labels}}} {value!r}" for labels, value in samples]

    def histogram(self, name: str, what: str, samples: Iterable[tuple[Labels, Histogram]]) -> None:
        """Add a histogram of seconds."""
        self._head(name, "histogram", what)
        append = self._lines.append
        for labels, histogram in samples:
            inner = rendered(labels)
            comma = "," if inner else ""
            below = 0
            for bound, count in zip(_BOUNDS, histogram.counts, strict=False):
                below += count
                append(f'{name}_bucket{{{inner}{comma}le="{bound}"}} {below}')
            below += histogram.counts[-1]
            append(f'{name}_bucket{{{inner}{comma}le="+Inf"}} {below}')
            shown = f"{{{inner}}}" if inner else ""
            append(f"{name}_sum{shown} {histogram.sum_ns / 1e9!r}")
            append(f"{name}_count{shown} {below}")

    def encoded(self) -> bytes:
        end = "# EOF\n" if self._is_open else ""
        return ("\n".join(self._lines) + "\n" + end).encode()

    def _head(self, family: str, kind: str, what: str) -> None:
        assert family not in self._names, f"{family} is added twice"
        self._names.add(family)
        self._lines.append(f"# HELP {family} {what}")
        self._lines.append(f"# TYPE {family} {kind}")

    def _add(self, name: str, samples: Iterable[Sample] | float) -> None:
        if isinstance(samples, int | float):
            self._lines.append(f"{name} {samples!r}")
        else:
            self._lines += [f"{name}{{{rendered(labels)}}} {value!r}" for labels, value in samples]


def rendered(labels: Labels) -> str:
    """Labels in the form that goes between the braces."""
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)


def _escaped(value: str) -> str:
    if value.isalnum():
        return value
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
