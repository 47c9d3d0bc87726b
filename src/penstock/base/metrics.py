"""What a node counts while it works.

Most of what it shows is not counted at all: sizes, offsets, lag and queues are read off the logs, coordinators and
connections when somebody asks (`gateway/shared/metrics_page`). What would be gone by then is counted here, in plain
integers on the loop's one thread: no locks, and no labels to look up while a client waits.

The time of a request:

    a tick begins     --> requests, each counts one up     --> logs written, replies sent --> the tick ends
    the clock is read                                                                         the clock is read

All requests that a tick answers took as long as the tick did. So the clock is read twice a tick, and a histogram is
found once a tick and API, however many requests there were. A request that is answered later has its own beginning.
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
"""Upper bounds of a histogram's buckets: from a Produce that is answered within its tick (some 0.1 ms) to a fetch that
waits as long as clients let it; a step is 2 to 2.5 times the one before."""

TICK_NS_MAX: Final = 10_000_000
"""After so long in one tick no further request is begun, so that the tick stays below `loop_watch.HELD_NS`."""

_LIMITS_NS: Final = (*BOUNDS_NS, 2**64)

_FIRST_BUCKETS: Final = tuple(bisect_left(BOUNDS_NS, 1 << bits >> 1) for bits in range(65))
"""By a number's bits, the bucket of the smallest such number; the largest is in that one or the next, since bounds are
twice as far apart or more. Half the price of a bisection, which counts where each tick pays it."""


class Histogram:
    """How often something took how long."""

    __slots__ = ("counts", "sum_ns")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_NS) + 1)
        """In each bucket alone, not in those below it; the last is for what is over all bounds."""
        self.sum_ns = 0

    def observe(self, took_ns: int, times: int = 1) -> None:
        self.counts[bisect_left(BOUNDS_NS, took_ns)] += times
        self.sum_ns += took_ns * times

    def add(self, other: "Histogram") -> None:
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.sum_ns += other.sum_ns

    @property
    def count(self) -> int:
        return sum(self.counts)


class Meter:
    """Requests of one kind: an API of Kafka's, a route of HTTP, a command of the line protocol."""

    __slots__ = ("errors", "in_tick", "times")

    def __init__(self) -> None:
        self.times = Histogram()
        self.in_tick = 0
        """Answered in this tick, and not yet in `times`."""
        self.errors: dict[int | str, int] = {}
        """How often which code was answered; a reply for many partitions may have many."""

    def fail(self, code: int | str, times: int = 1) -> None:
        self.errors[code] = self.errors.get(code, 0) + times


class Asked(NamedTuple):
    """Of a request that is answered later: who counts it, and when it came."""

    meter: Meter
    since_ns: int


class DoorMeter:
    """Connections through one door."""

    __slots__ = ("accepted", "open", "refused")

    def __init__(self) -> None:
        self.open = 0
        self.accepted = 0
        self.refused = 0
        """One too many, for the node or for its address."""


class Traffic:
    """What went into logs and out of them."""

    __slots__ = ("bytes_in", "bytes_out", "messages_in", "messages_out")

    def __init__(self) -> None:
        self.bytes_in = self.bytes_out = self.messages_in = self.messages_out = 0

    def add(self, bytes_in: int, messages_in: int, bytes_out: int, messages_out: int) -> None:
        self.bytes_in += bytes_in
        self.messages_in += messages_in
        self.bytes_out += bytes_out
        self.messages_out += messages_out


class Elections:
    """What the metadata log has told of leaders since the node has its place in the cluster."""

    __slots__ = ("changes", "unclean")

    def __init__(self) -> None:
        self.changes = 0
        """Partitions that got another leader."""
        self.unclean = 0
        """Those whose new one may lack what was acknowledged."""


class Upkeep:
    """What retention and compaction have done."""

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
        """By retention."""
        self.cleanings = self.cleanings_failed = 0
        """Rounds of compaction."""
        self.records_cleaned = self.records_kept = 0
        """What those rounds read, and how much of it is still there."""
        self.bytes_cleaned = self.bytes_kept = 0


class Metrics:
    """One for a node."""

    __slots__ = (
        "apis",
        "busy",
        "doors",
        "elections",
        "fetch",
        "http",
        "is_long_tick",
        "line",
        "produce",
        "queues",
        "replicated_bytes_out",
        "started_ns",
        "tick_began_ns",
        "ticks",
        "unanswerable",
        "upkeep",
        "watch",
    )

    def __init__(self) -> None:
        self.produce, self.fetch = Meter(), Meter()
        self.apis: dict[int, Meter] = {0: self.produce, 1: self.fetch}
        """By Kafka's keys: these two, which come too often to be looked up, and what else was asked for."""
        self.http: dict[tuple[str, str, int], Meter] = {}
        """By method, route (as it is declared, so that there are as many as routes) and status."""
        self.line: dict[str, Meter] = {}
        """By command of the line protocol."""
        self.doors: dict[str, DoorMeter] = {}
        self.queues: dict[str, Callable[[], int]] = {}
        """What waits, by what it is; counted when asked."""
        self.upkeep = Upkeep()
        self.elections = Elections()
        self.started_ns = 0
        """When the node began, by the world's clock."""
        self.replicated_bytes_out = 0
        """What followers were given."""
        self.unanswerable = 0
        """Requests after which nothing was left but to close the connection."""
        self.tick_began_ns = 0
        """When what is handled now arrived, by the world's clock; 0 between turns."""
        self.busy: list[Meter] = []
        """Those with something `in_tick`."""
        self.is_long_tick = False
        """Whether so much was handled in this tick that the rest of what arrived waits for the next one."""
        self.ticks = Histogram()
        """How long turns took."""
        self.watch = LoopWatch()

    def api(self, key: int) -> Meter:
        meter = self.apis.get(key)
        if meter is None:
            meter = self.apis[key] = Meter()
        return meter

    def door(self, name: str) -> DoorMeter:
        return self.doors.setdefault(name, DoorMeter())

    def answered(self, meter: Meter) -> None:
        """A request was answered in the tick in which it came."""
        if not meter.in_tick:
            self.busy.append(meter)
        meter.in_tick += 1

    def handled(self, by: str, began_ns: int, now_ns: int) -> None:
        """Something that a client sent was handled, in one piece."""
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
        """A request to a route was answered; `route` is its declared path, never what a client sent."""
        key = method, route, status
        meter = self.http.get(key)
        if meter is None:
            meter = self.http[key] = Meter()
        meter.times.observe(took_ns)

    def line_answered(self, command: str, took_ns: int, times: int = 1, errors: int = 0) -> None:
        """Commands of the line protocol were answered, some of them with errors; `command` is one of its words, never
        what a client sent."""
        meter = self.line.get(command)
        if meter is None:
            meter = self.line[command] = Meter()
        meter.times.observe(took_ns, times)
        if errors:
            meter.fail("-ERR", errors)
