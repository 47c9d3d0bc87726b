"""A node's counters and latency histograms.

Sizes, offsets, lag and queue lengths are not counted: `gateway/shared/metrics_page` reads them from the logs,
coordinators and connections when the metrics page is requested. Only events are counted here, in plain integers on
the loop's thread: no locks, and no lookup of labels while a client waits.

How the time of a request is measured:

    a tick begins     --> requests, each counts one up     --> logs written, replies sent --> the tick ends
    the clock is read                                                                         the clock is read

Every request that a tick answers is recorded with the duration of that tick. So the clock is read twice per tick, and
each API's histogram is updated once per tick, however many requests there were. A request that is answered in a later
tick keeps the time at which it arrived.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.base.loop_watch import HELD_NS, LoopWatch

BOUNDS_NS: Final = tuple(
    round(each * 1e9)
    for each in (
        *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
        *(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
    )
)
"""Upper bounds of a histogram's buckets, from a Produce answered within its tick (about 0.1 ms) to a Fetch with a long
`max_wait_ms`. Each bound is 2 to 2.5 times the previous one."""

TICK_NS_MAX: Final = 10_000_000
"""A tick that has run this long starts no further request, so that it stays below `loop_watch.HELD_NS`."""

_LIMITS_NS: Final = (*BOUNDS_NS, 2**64)

_FIRST_BUCKETS: Final = tuple(bisect_left(BOUNDS_NS, 1 << bits >> 1) for bits in range(65))
"""Maps a duration's bit length to the bucket of the smallest duration of that length. The right bucket is this one or
the next, since each bound is at least twice the previous one. Half the cost of a bisection, once per tick."""


class Histogram:
    """Counts of durations by bucket."""

    __slots__ = ("counts", "sum_ns")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_NS) + 1)
        """Per bucket, not cumulative. The last bucket counts durations above all bounds."""
        self.sum_ns = 0

    def observe(self, took_ns: int, times: int = 1) -> None:
        self.counts[bisect_left(BOUNDS_NS, took_ns)] += times
        self.sum_ns += took_ns * times

    def add(self, other: "Histogram") -> None:
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.sum_ns += other.sum_ns

    @property
    def count(self) -> int:
        return sum(self.counts)


class Meter:
    """Requests of one kind: a Kafka API, an HTTP route or a command of the line protocol."""

    __slots__ = ("errors", "in_tick", "times")

    def __init__(self) -> None:
        self.times = Histogram()
        self.in_tick = 0
        """Requests answered in this tick, and not yet in `times`."""
        self.errors: dict[int | str, int] = {}
        """Count by error code. One reply may carry several, one per partition."""

    def fail(self, code: int | str, times: int = 1) -> None:
        self.errors[code] = self.errors.get(code, 0) + times


class RequestStart(NamedTuple):
    """The meter and the arrival time of a request that is answered in a later tick."""

    meter: Meter
    since_ns: int


class DoorMeter:
    """Connections of one door (Kafka, HTTP or line protocol)."""

    __slots__ = ("accepted", "open", "refused")

    def __init__(self) -> None:
        self.open = 0
        self.accepted = 0
        self.refused = 0
        """Connections over the limit of the node or of their address."""


class TlsMeter:
    """TLS of one listener."""

    __slots__ = ("handshakes", "handshakes_failed", "is_stale", "not_after_ms", "reload_errors", "reloads")

    def __init__(self) -> None:
        self.handshakes = self.handshakes_failed = 0
        self.reloads = self.reload_errors = 0
        """Changed files that were taken into use, and those that could not be used."""
        self.is_stale = False
        """The files changed, and what they hold now cannot be used."""
        self.not_after_ms = 0
        """When the certificate in use expires, since 1970."""


THROTTLED_MAX: Final = 1000
"""Clients with separate metrics of quotas. Further ones are counted together, because a client can choose any client
id."""

LABEL_CHARACTERS_MAX: Final = 100


class Throttled(NamedTuple):
    """Who exceeded which quota."""

    quota: str
    """The key of the quota, or the name of a setting."""
    user: str = ""
    client_id: str = ""
    address: str = ""
    """The address of a client, or the name of a listener."""


class ThrottleMeter:
    """Of the clients that share a quota."""

    __slots__ = ("delay_ms", "times")

    def __init__(self) -> None:
        self.times = 0
        """Requests that exceeded the quota."""
        self.delay_ms = 0
        """Sum of their throttle times."""


class Traffic:
    """Bytes and messages written to logs and read from them."""

    __slots__ = ("bytes_in", "bytes_out", "messages_in", "messages_out")

    def __init__(self) -> None:
        self.bytes_in = self.bytes_out = self.messages_in = self.messages_out = 0

    def add(self, bytes_in: int, messages_in: int, bytes_out: int, messages_out: int) -> None:
        self.bytes_in += bytes_in
        self.messages_in += messages_in
        self.bytes_out += bytes_out
        self.messages_out += messages_out


class Elections:
    """Leader changes in the metadata log since this node joined the cluster."""

    __slots__ = ("changes", "unclean")

    def __init__(self) -> None:
        self.changes = 0
        """Leader changes of partitions."""
        self.unclean = 0
        """Unclean elections: the new leader may lack acknowledged records."""


class KeysMeter:
    """Of the keys that verify bearer tokens."""

    __slots__ = ("errors", "is_stale", "keys")

    def __init__(self) -> None:
        self.keys = 0
        self.is_stale = False
        """The last fetch failed, and the keys before it are in use."""
        self.errors = 0
        """Fetches that failed."""


class AuditMeter:
    """Events of the audit."""

    __slots__ = ("aggregated", "dropped", "events")

    def __init__(self) -> None:
        self.events: dict[str, int] = {}
        """By kind."""
        self.aggregated = 0
        """Events that have no line of their own: a later line has their number."""
        self.dropped = {"queue": 0, "file": 0, "topic": 0}
        """Lines that were not written, by what could not take them."""

    def count(self, kind: str) -> None:
        self.events[kind] = self.events.get(kind, 0) + 1


class Upkeep:
    """Work done by retention and compaction."""

    __slots__ = (
        "bytes_cleaned",
        "bytes_kept",
        "cleanings",
        "cleanings_failed",
        "records_cleaned",
        "records_kept",
        "segments_deleted",
    )

    def __init__(self) -> None:
        self.segments_deleted = 0
        """Segments that retention deleted."""
        self.cleanings = self.cleanings_failed = 0
        """Rounds of compaction."""
        self.records_cleaned = self.records_kept = 0
        """Records that compaction read, and how many of them it kept."""
        self.bytes_cleaned = self.bytes_kept = 0


class Metrics:
    """All counters of one node."""

    __slots__ = (
        "apis",
        "audit",
        "busy",
        "doors",
        "elections",
        "fetch",
        "http",
        "is_long_tick",
        "line",
        "oauth",
        "produce",
        "queues",
        "quotas",
        "replicated_bytes_out",
        "started_ns",
        "tick_began_ns",
        "ticks",
        "tls",
        "unanswerable",
        "upkeep",
        "watch",
    )

    def __init__(self) -> None:
        self.produce, self.fetch = Meter(), Meter()
        self.apis: dict[int, Meter] = {0: self.produce, 1: self.fetch}
        """Meters by API key. Produce and Fetch also have a field each, which saves the lookup on the hot path."""
        self.http: dict[tuple[str, str, int], Meter] = {}
        """Meters by method, declared route and status. The declared route bounds the number of entries."""
        self.line: dict[str, Meter] = {}
        """Meters by command of the line protocol."""
        self.doors: dict[str, DoorMeter] = {}
        self.tls: dict[str, TlsMeter] = {}
        """By name of the listener."""
        self.oauth: dict[str, KeysMeter] = {}
        """By the URL of the keys."""
        self.audit: AuditMeter | None = None
        """None if the audit is off."""
        self.quotas: dict[Throttled, ThrottleMeter] = {}
        self.queues: dict[str, Callable[[], int]] = {}
        """Functions that return the length of a queue, by the queue's name."""
        self.upkeep = Upkeep()
        self.elections = Elections()
        self.started_ns = 0
        """Start time of the node, by the world's clock."""
        self.replicated_bytes_out = 0
        """Bytes sent to followers."""
        self.unanswerable = 0
        """Requests that no reply can answer: their connection was closed."""
        self.tick_began_ns = 0
        """Start of the current tick, by the world's clock; 0 between ticks."""
        self.busy: list[Meter] = []
        """Meters whose `in_tick` is not 0."""
        self.is_long_tick = False
        """True once the tick has run for `TICK_NS_MAX`: requests that remain wait for the next tick."""
        self.ticks = Histogram()
        """Durations of ticks."""
        self.watch = LoopWatch()

    def api(self, key: int) -> Meter:
        meter = self.apis.get(key)
        if meter is None:
            meter = self.apis[key] = Meter()
        return meter

    def door(self, name: str) -> DoorMeter:
        return self.doors.setdefault(name, DoorMeter())

    def tls_listener(self, name: str) -> TlsMeter:
        return self.tls.setdefault(name, TlsMeter())

    def oauth_keys(self, url: str) -> KeysMeter:
        return self.oauth.setdefault(url, KeysMeter())

    def throttled(self, who: Throttled, delay_ms: int) -> None:
        """A client exceeded a quota, and has to wait."""
        meter = self.quotas.get(who)
        if meter is None:
            who = Throttled._make(each[:LABEL_CHARACTERS_MAX] for each in who)
            if len(self.quotas) >= THROTTLED_MAX and who not in self.quotas:
                who = Throttled(who.quota)
            meter = self.quotas.setdefault(who, ThrottleMeter())
        meter.times += 1
        meter.delay_ms += delay_ms

    def answered(self, meter: Meter) -> None:
        """Count a request that was answered in the tick in which it arrived."""
        if not meter.in_tick:
            self.busy.append(meter)
        meter.in_tick += 1

    def handled(self, by: str, began_ns: int, now_ns: int) -> None:
        """Note that one uninterrupted piece of work for a client ended."""
        if now_ns - began_ns > HELD_NS:
            self.watch.held(by, now_ns - began_ns, now_ns)
        if now_ns - self.tick_began_ns > TICK_NS_MAX and self.tick_began_ns:
            self.is_long_tick = True

    def tick_ended(self, now_ns: int, next_began_ns: int = 0) -> None:
        took_ns = now_ns - self.tick_began_ns
        bucket = _FIRST_BUCKETS[took_ns.bit_length()]
        if took_ns > _LIMITS_NS[bucket]:
            bucket += 1
        self.ticks.counts[bucket] += 1
        self.ticks.sum_ns += took_ns
        self.is_long_tick = False
        busy = self.busy
        if busy:
            for meter in busy:
                times = meter.times
                times.counts[bucket] += meter.in_tick
                times.sum_ns += took_ns * meter.in_tick
                meter.in_tick = 0
            busy.clear()
        self.tick_began_ns = next_began_ns

    def http_answered(self, method: str, route: str, status: int, took_ns: int) -> None:
        """Count an answered HTTP request; `route` is the declared path, never the path that the client sent."""
        key = method, route, status
        meter = self.http.get(key)
        if meter is None:
            meter = self.http[key] = Meter()
        meter.times.observe(took_ns)

    def line_answered(self, command: str, took_ns: int, times: int = 1, errors: int = 0) -> None:
        """Count answered commands of the line protocol; `command` is one of its keywords, never a client's text."""
        meter = self.line.get(command)
        if meter is None:
            meter = self.line[command] = Meter()
        meter.times.observe(took_ns, times)
        if errors:
            meter.fail("-ERR", errors)
