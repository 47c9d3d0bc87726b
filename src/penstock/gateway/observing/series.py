"""The series of a node's history, and how samples are combined: over time to larger steps, and over brokers.

Rates are means. Counts of something bad are the largest of a step, so that a short trouble is not averaged away. A
latency percentile cannot be averaged at all: requests are counted by duration (`base.metrics.BOUNDS_NS`), these counts
are added up, and the percentile is computed last.
"""

from collections.abc import Callable, Mapping, Sequence
from math import isnan
from typing import Final, NamedTuple, TypeAlias

from penstock.base.ids import TimestampMs
from penstock.base.metrics import BOUNDS_NS

INTERVAL_MS: Final = 5_000
"""Between two samples. Steps are multiples of it."""

KEPT_MS: Final = 3_600_000

BUCKETS: Final = len(BOUNDS_NS) + 1

REQUEST_KINDS: Final = ("produce", "fetch", "other", "http", "line")
"""Kafka's Produce, Fetch and other requests, HTTP requests, and commands of the line protocol."""

Values: TypeAlias = Sequence[float]
Fold: TypeAlias = Callable[[Values], float]


def _mean(values: Values) -> float:
    return sum(values) / len(values)


def _last(values: Values) -> float:
    return values[-1]


class Series(NamedTuple):
    name: str
    unit: str
    what: str
    over_time: Fold = _mean
    over_brokers: Fold = sum
    requests: str = ""
    """For a percentile: the kind of requests."""
    quantile: float = 0.0
    """For a percentile."""


_PER_SECOND: Final = "per second"

_MEASURED: Final = (
    Series("bytes_in", "bytes per second", "Bytes of record batches that clients wrote."),
    Series("bytes_out", "bytes per second", "Bytes of record batches that clients read."),
    Series("messages_in", _PER_SECOND, "Records that clients wrote."),
    Series("messages_out", _PER_SECOND, "Records that clients read."),
    Series(
        "replication_bytes_in", "bytes per second", "Bytes fetched from the leaders of followed partitions."
    ),
    Series("replication_bytes_out", "bytes per second", "Bytes sent to followers."),
    *(
        Series(f"requests_{kind}", _PER_SECOND, f"Answered requests: {what}.")
        for kind, what in zip(
            REQUEST_KINDS,
            ("Produce", "Fetch", "other Kafka APIs", "HTTP", "commands of the line protocol"),
            strict=True,
        )
    ),
    Series("request_errors", _PER_SECOND, "Error codes in replies to Kafka clients."),
    Series("connections", "connections", "Open connections of Kafka, HTTP and line clients.", _last),
    Series("cpu", "cores", "CPU of the process, in cores: 1 is one core fully used."),
    Series("memory_bytes", "bytes", "Resident memory of the process.", _last),
    Series("log_bytes", "bytes", "Size of all logs of the broker.", _last),
    Series("disk_bytes", "bytes", "Size of the volume of the logs.", _last),
    Series("disk_usable_bytes", "bytes", "Space on that volume that the broker may still use.", _last),
    Series("under_replicated", "partitions", "Led partitions with a replica that is not in sync.", max),
    Series("under_min_isr", "partitions", "Led partitions below min.insync.replicas.", max),
    Series("offline", "partitions", "Partitions of the cluster without a leader.", max, max),
    Series(
        "loop_held_ms",
        "milliseconds",
        "Longest time that one callback held the event loop; 0 below 20.",
        max,
        max,
    ),
)

COLUMNS: Final = tuple(each.name for each in _MEASURED)
"""What is sampled, besides the counts of requests by duration."""

SERIES: Final[Mapping[str, Series]] = {
    each.name: each
    for each in (
        *_MEASURED,
        *(
            Series(
                f"{kind}_p{percent}_ms",
                "milliseconds",
                f"{percent}th percentile of the time from request to reply: {kind}.",
                requests=kind,
                quantile=percent / 100,
            )
            for kind in REQUEST_KINDS
            for percent in (50, 99)
        ),
    )
}


def bins(times: Sequence[TimestampMs], step_ms: int) -> list[tuple[TimestampMs, int, int]]:
    """Split rising moments into steps: the moment at which each step begins, and its first and last position.

    bins([5, 10, 15, 20], 10) -> [(0, 0, 1), (10, 1, 3), (20, 3, 4)]
    """
    found: list[tuple[TimestampMs, int, int]] = []
    for at, time_ms in enumerate(times):
        begin = time_ms // step_ms * step_ms
        if found and found[-1][0] == begin:
            found[-1] = begin, found[-1][1], at + 1
        else:
            found.append((begin, at, at + 1))
    return found


def folded(values: Values, fold: Fold) -> float | None:
    """Combine what was measured; None if nothing was."""
    known = [each for each in values if not isnan(each)]
    return fold(known) if known else None


def percentile_ms(counts: Sequence[int], quantile: float) -> float | None:
    """The percentile of durations that are counted by bucket, in milliseconds; None if there are none.

    Within a bucket durations are taken to be spread evenly, as Prometheus' `histogram_quantile` does.
    """
    total = sum(counts)
    if not total:
        return None
    rank = quantile * total
    below = 0
    for bucket, count in enumerate(counts):
        if count and below + count >= rank:
            if bucket == len(BOUNDS_NS):
                return BOUNDS_NS[-1] / 1e6  # longer than all bounds: how long is not known
            low = BOUNDS_NS[bucket - 1] if bucket else 0
            return (low + (BOUNDS_NS[bucket] - low) * (rank - below) / count) / 1e6
        below += count
    raise AssertionError("the last bucket reaches every rank")
