"""The metrics of this node in the last hour: a sample every 5 seconds, from the counters that `GET /metrics` shows.

Samples are taken at multiples of the interval of the wall clock, so that those of all brokers can be added up. Rates
are the difference of two counters. The traffic of a node is a sum over its partitions: they are read in slices, and
with many partitions not for each sample; in between, the last rates stand.
"""

from collections.abc import Iterable
from math import isnan
from typing import Final, NamedTuple

from penstock.base.ids import TimestampMs
from penstock.base.metrics import Meter
from penstock.base.steps import Steps, next_tick
from penstock.gateway.observing.partition_counts import PartitionCounter
from penstock.gateway.observing.periodic import Periodic, slot_ms
from penstock.gateway.observing.ring import COUNT, FLOAT, SampleRing
from penstock.gateway.observing.series import (
    BUCKETS,
    COLUMNS,
    INTERVAL_MS,
    KEPT_MS,
    REQUEST_KINDS,
    SERIES,
    bins,
    folded,
)
from penstock.gateway.peer_rpc.messages import GetHistory, NodeHistory
from penstock.gateway.shared.health import disk_usage
from penstock.handlers.support.context import Context
from penstock.replica import Partition
from penstock.storage import LogDirectory

PARTITIONS_A_TICK: Final = 250
"""Partitions that are read in one tick: less than half a millisecond."""

PARTITIONS_A_SAMPLE: Final = 5_000
"""With more partitions, traffic is read for every second, third ... sample. This many take about 5 ms."""

SIZES_EVERY: Final = 12
"""The sizes of logs are summed once for so many readings of traffic: a log has a size for each segment."""

_FETCH: Final = 1
_PRODUCE: Final = 0


class Readings(NamedTuple):
    """Counters that only grow, at one moment."""

    time_ms: TimestampMs
    counters: dict[str, float]
    counts: dict[str, list[int]]
    """Requests by duration, by kind."""


class TrafficSums:
    """Sums over the partitions of this node."""

    def __init__(self) -> None:
        self.bytes_in = self.bytes_out = self.messages_in = self.messages_out = 0
        self.under_replicated = self.under_min_isr = 0
        self.log_bytes = 0

    def add(self, partition: Partition) -> None:
        self.bytes_in += partition.bytes_in
        self.messages_in += partition.messages_in
        self.bytes_out += partition.bytes_out
        self.messages_out += partition.messages_out
        if partition.isr is not None:
            self.under_replicated += partition.is_under_replicated
            self.under_min_isr += partition.is_under_min_isr


class NodeSampler:
    """A `Part`."""

    def __init__(self, context: Context, directory: LogDirectory, counter: PartitionCounter) -> None:
        self._context = context
        self._directory = directory
        self._counter = counter
        columns: dict[str | tuple[str, int], str] = dict.fromkeys(COLUMNS, FLOAT)
        columns |= dict.fromkeys(((kind, at) for kind in REQUEST_KINDS for at in range(BUCKETS)), COUNT)
        self._ring = SampleRing(columns, KEPT_MS // INTERVAL_MS)
        self._periodic = Periodic(context.world, INTERVAL_MS, self._sample, "a sample of metrics")
        self._before: Readings | None = None
        self._traffic: Readings | None = None
        """When traffic was last read."""
        self._stands: dict[str, float] = {}
        """What was found in partitions when they were last read."""
        self._samples = self._readings = 0

    def start(self) -> None:
        self._periodic.run()

    def stop(self) -> None:
        self._periodic.stop()

    # -- sampling --------------------------------------------------------------------------------------

    def _sample(self) -> Steps[None]:
        time_ms = slot_ms(self._context.world.now_ms(), INTERVAL_MS)
        every = 1 + len(self._context.replicas.partitions) // PARTITIONS_A_SAMPLE
        if self._samples % every == 0:
            yield from self._read_traffic()
            self._stands["offline"] = (yield from self._counter.counts()).offline
        self._samples += 1
        before, now = self._before, self._read()
        self._before = now
        if before is None or now.time_ms <= before.time_ms or time_ms == self._ring.last_ms:
            return  # the first one, or the clock went back
        values: dict[str | tuple[str, int], float] = {}
        for found in (self._stands, self._gauges(), _rates(before, now)):
            values.update(found)
        seconds = (now.time_ms - before.time_ms) / 1000
        for kind, counts in now.counts.items():
            values |= {(kind, at): max(count - before.counts[kind][at], 0) for at, count in enumerate(counts)}
            values[f"requests_{kind}"] = max(sum(counts) - sum(before.counts[kind]), 0) / seconds
        self._ring.add(time_ms, values)

    def _read_traffic(self) -> Steps[None]:
        """Read all partitions. Those that are deleted meanwhile are still read; `gone` is that of the beginning."""
        replicas, world = self._context.replicas, self._context.world
        gone = replicas.gone
        sums = TrafficSums()
        sums.bytes_in, sums.messages_in = gone.bytes_in, gone.messages_in
        sums.bytes_out, sums.messages_out = gone.bytes_out, gone.messages_out
        with_sizes = self._readings % SIZES_EVERY == 0
        self._readings += 1
        for number, partition in enumerate(list(replicas.partitions.values()), 1):
            sums.add(partition)
            if with_sizes:
                sums.log_bytes += partition.log.size_bytes
            if number % PARTITIONS_A_TICK == 0:
                yield next_tick(world)
        counters = {
            name: float(getattr(sums, name))
            for name in ("bytes_in", "bytes_out", "messages_in", "messages_out")
        }
        before, self._traffic = self._traffic, Readings(world.now_ms(), counters, {})
        if before is not None and self._traffic.time_ms > before.time_ms:
            self._stands |= _rates(before, self._traffic)
        self._stands |= {"under_replicated": sums.under_replicated, "under_min_isr": sums.under_min_isr}
        if with_sizes:
            self._stands["log_bytes"] = sums.log_bytes

    def _read(self) -> Readings:
        context = self._context
        metrics, fetchers = context.metrics, context.replicas.fetchers
        apis = metrics.apis
        used = context.world.process()
        others = [meter for key, meter in apis.items() if key not in (_PRODUCE, _FETCH)]
        counters = {
            "replication_bytes_in": float(fetchers.copied_bytes if fetchers is not None else 0),
            "replication_bytes_out": float(metrics.replicated_bytes_out),
            "request_errors": float(sum(sum(meter.errors.values()) for meter in apis.values())),
        }
        if used is not None:
            counters["cpu"] = used.cpu_seconds
            self._stands["memory_bytes"] = used.resident_bytes
        counts = {
            "produce": list(metrics.produce.times.counts),
            "fetch": list(metrics.fetch.times.counts),
            "other": _added(others),
            "http": _added(metrics.http.values()),
            "line": _added(metrics.line.values()),
        }
        return Readings(context.world.now_ms(), counters, counts)

    def _gauges(self) -> dict[str, float]:
        metrics = self._context.metrics
        found: dict[str, float] = {
            "connections": sum(each.open for each in metrics.doors.values()),
            "loop_held_ms": metrics.watch.take_recent_ns() / 1e6,
        }
        disk = disk_usage(self._directory)
        if disk is not None:
            found |= {"disk_bytes": disk.total_bytes, "disk_usable_bytes": disk.usable_bytes}
        return found

    # -- reading ---------------------------------------------------------------------------------------

    def latest(self) -> dict[str, float]:
        """The latest sample, by series."""
        found = {name: self._ring.latest(name) for name in COLUMNS}
        return {name: value for name, value in found.items() if not isnan(value)}

    def history(self, asked: GetHistory) -> Steps[NodeHistory]:
        """Samples by steps. Series that this release does not know are left out."""
        ring, since_ms = self._ring, asked.since_ms
        times = ring.times(since_ms)
        steps = bins(times, asked.step_ms)
        wanted = [SERIES[name] for name in dict.fromkeys(asked.series) if name in SERIES]
        # All columns are copied before the first wait, so that they are of the same samples.
        samples = {each: ring.values(each.name, len(times)) for each in wanted if not each.requests}
        kinds = dict.fromkeys(each.requests for each in wanted if each.requests)
        buckets = {kind: [ring.values((kind, at), len(times)) for at in range(BUCKETS)] for kind in kinds}
        values: dict[str, list[float | None]] = {}
        counts: dict[str, list[list[int]]] = {}
        for series, column in samples.items():
            values[series.name] = [folded(column[begin:end], series.over_time) for _, begin, end in steps]
            yield next_tick(self._context.world)
        for kind, columns in buckets.items():
            counts[kind] = [[int(sum(column[begin:end])) for column in columns] for _, begin, end in steps]
            yield next_tick(self._context.world)
        return NodeHistory([begin for begin, _, _ in steps], values, counts)


def _rates(before: Readings, now: Readings) -> dict[str, float]:
    """Growth of each counter that both have, per second."""
    seconds = (now.time_ms - before.time_ms) / 1000
    return {
        name: max(value - before.counters[name], 0.0) / seconds
        for name, value in now.counters.items()
        if name in before.counters
    }


def _added(meters: Iterable[Meter]) -> list[int]:
    """Requests of several meters by duration."""
    counts = [0] * BUCKETS
    for meter in meters:
        counts = [one + other for one, other in zip(counts, meter.times.counts, strict=True)]
    return counts
