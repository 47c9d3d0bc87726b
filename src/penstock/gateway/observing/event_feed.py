"""The latest events, as this broker has noticed them.

    cluster events    from metadata images: every broker notices the same ones
    own events        rebalances of groups that it coordinates, failures of its disk, its start

Events of the cluster are identified by the offset of the metadata log, so that a client can go on at another broker.
Events of a broker are identified by the time, in units that leave room for several in a millisecond; so ids rise also
across restarts.
"""

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import Final

from penstock import __version__
from penstock.base.ids import TimestampMs
from penstock.base.promise import Promise
from penstock.base.steps import RunningSteps, Steps
from penstock.base.world import Timer
from penstock.gateway.observing.cluster_events import ClusterChanges
from penstock.gateway.observing.event import Event, Kind, Severity
from penstock.gateway.observing.group_events import GroupChanges
from penstock.gateway.peer_rpc.messages import GetEvents, NodeEvents
from penstock.handlers.support.context import Context
from penstock.metadata.image import ClusterImage

logger = logging.getLogger(__name__)

EVENTS_MAX: Final = 1_000
"""Events of each of the two kinds that are kept: half a megabyte."""

GATHER_MS: Final = 500
"""Changes are gathered for this long before they become events."""

LOOK_MS: Final = 1_000
"""How often the broker looks at what nobody reports: its controller and its disk."""

FAILURES_EVERY_MS: Final = 60_000
"""Failures of a disk that goes on failing are told once in this time."""

IDS_AN_OFFSET: Final = 1_000
IDS_A_MS: Final = 1_000


class EventRing:
    """Invariant: ids rise, and there are `capacity` events at most."""

    def __init__(self, capacity: int = EVENTS_MAX) -> None:
        self._events: deque[Event] = deque(maxlen=capacity)
        self._last_id = 0

    def next_id(self, at_least: int) -> int:
        self._last_id = max(self._last_id + 1, at_least)
        return self._last_id

    def add(self, event: Event) -> None:
        self._events.append(event)

    def __len__(self) -> int:
        return len(self._events)

    @property
    def last_id(self) -> int:
        return self._last_id

    def after(self, event_id: int, limit: int) -> list[Event]:
        """The first events after an id."""
        events = list(self._events)
        begin = bisect_right(events, event_id, key=lambda each: each.id)
        return events[begin : begin + limit]

    def latest(self, limit: int) -> list[Event]:
        """The last events, in order."""
        return list(self._events)[-limit:]


class EventFeed:
    """A `Part`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.cluster = EventRing()
        self.own = EventRing()
        self.since_ms: TimestampMs = 0
        """Since when events are noted."""
        self.since_id = 0
        """Events of the cluster with a larger id are noted."""
        self._seen: ClusterImage = context.image
        self._changes = ClusterChanges()
        self._groups = GroupChanges(context, self._gather)
        self._gathering: Timer | None = None
        self._began_ms: TimestampMs = 0
        """When the changes that are being gathered began."""
        self._look: Timer | None = None
        self._running: RunningSteps[None] | None = None
        self._leader = (-1, -1)
        self._failing = 0
        self._syncs_failed = 0
        self._failure_told_ms: TimestampMs | None = None
        self._waiting: dict[Callable[[], None], None] = {}

    # -- start and stop --------------------------------------------------------------------------------

    def start(self) -> None:
        context = self._context
        now_ms = context.world.now_ms()
        up_ms = (context.world.clock_ns() - context.metrics.started_ns) // 1_000_000
        self.since_ms = now_ms
        self._seen = context.image
        self.since_id = self.cluster.next_id(context.image.offset * IDS_AN_OFFSET)
        self._leader = context.quorum.leader_id, context.quorum.epoch
        self._syncs_failed = context.replicas.lane.syncs_failed
        context.image_watchers[self._image_changed] = None
        context.groups.listeners[self._groups] = None
        for shard in context.groups.shards:
            if shard.is_loaded:
                self._groups.loaded(shard.coordinator)
        text = f"Broker {context.node_id} started (version {__version__})"
        self._add_own(now_ms - up_ms, Kind.NODE_STARTED, Severity.INFO, text)
        self._look = context.world.call_later(LOOK_MS, self._look_around)

    def stop(self) -> None:
        self._context.image_watchers.pop(self._image_changed, None)
        self._context.groups.listeners.pop(self._groups, None)
        for timer in (self._gathering, self._look):
            if timer is not None:
                timer.cancel()
        self._gathering = self._look = None
        if self._running is not None:
            self._running.cancel()

    # -- noticing --------------------------------------------------------------------------------------

    def _image_changed(self) -> None:
        self._gather()
        if self._running is None or self._running.is_over:
            self._running = RunningSteps(self._compare(), lambda _: None, self._failed)

    def _compare(self) -> Steps[None]:
        while self._seen is not self._context.image:
            old, self._seen = self._seen, self._context.image
            yield from self._changes.compare(self._context.world, old, self._seen)

    @staticmethod
    def _failed(error: Exception) -> None:
        logger.error("changes of the metadata could not be turned into events", exc_info=error)

    def _gather(self) -> None:
        if self._gathering is None:
            world = self._context.world
            self._began_ms = world.now_ms()
            self._gathering = world.call_later(GATHER_MS, self._tell)

    def _tell(self) -> None:
        """Make events of what was gathered."""
        self._gathering = None
        if self._running is not None and not self._running.is_over:
            self._gather()  # a large change is still being compared
            return
        changes, self._changes = self._changes, ClusterChanges()
        for event in changes.events(self._began_ms, self._next_cluster_id):
            self.cluster.add(event)
        for event in self._groups.events(self._began_ms, self._next_own_id):
            self.own.add(event)
        self._wake()

    def _next_cluster_id(self) -> int:
        return self.cluster.next_id(self._seen.offset * IDS_AN_OFFSET)

    def _next_own_id(self) -> int:
        return self.own.next_id(self._context.world.now_ms() * IDS_A_MS)

    def _add_own(self, time_ms: TimestampMs, kind: Kind, severity: Severity, text: str) -> None:
        node_id = self._context.node_id
        self.own.add(Event(self._next_own_id(), time_ms, kind, severity, text, broker=node_id))
        self._wake()

    def _look_around(self) -> None:
        world = self._context.world
        self._look = world.call_later(LOOK_MS, self._look_around)
        self._look_at_controller()
        self._look_at_disk(world.now_ms())

    def _look_at_controller(self) -> None:
        quorum = self._context.quorum
        leader, epoch = quorum.leader_id, quorum.epoch
        if leader < 0 or (leader, epoch) == self._leader:
            return
        former, self._leader = self._leader[0], (leader, epoch)
        text = f"Node {leader} is the active controller, in epoch {epoch}"
        if former not in (-1, leader):
            text += f"; it was node {former}"
        now_ms = self._context.world.now_ms()
        self.cluster.add(
            Event(
                self._next_cluster_id(),
                now_ms,
                Kind.CONTROLLER_CHANGED,
                Severity.WARNING,
                text,
                broker=leader,
            )
        )
        self._wake()

    def _look_at_disk(self, now_ms: TimestampMs) -> None:
        replicas, node_id = self._context.replicas, self._context.node_id
        disk = replicas.failing_disk
        failing, failed = 0 if disk is None else disk.count, replicas.lane.syncs_failed
        is_new = failing > self._failing or failed > self._syncs_failed
        is_over = self._failing and not failing
        syncs = failed - self._syncs_failed
        self._failing = failing
        if is_over:
            text = f"The disk of broker {node_id} works again: its replicas catch up"
            self._add_own(now_ms, Kind.DISK_RECOVERED, Severity.INFO, text)
            self._failure_told_ms = None
        told_ms = self._failure_told_ms
        if is_new and (told_ms is None or now_ms - told_ms >= FAILURES_EVERY_MS):
            what = f"{failing} replicas left their ISR" if failing else f"{syncs} syncs of logs failed"
            text = f"The disk of broker {node_id} fails: {what}"
            self._add_own(now_ms, Kind.DISK_FAILED, Severity.ERROR, text)
            self._failure_told_ms = now_ms
        self._syncs_failed = failed

    # -- reading ---------------------------------------------------------------------------------------

    def since(self, asked: GetEvents) -> Steps[NodeEvents]:
        """Events for another broker: those after an id; without one, the latest."""
        cluster = self.cluster.latest(asked.limit) if asked.of_cluster else []
        own = self.own.after(asked.after, asked.limit) if asked.after else self.own.latest(asked.limit)
        return NodeEvents(self.since_ms, own, cluster)
        yield  # makes this a generator; it never waits

    def has_after(self, cluster_id: int, own_id: int) -> bool:
        """Whether there are events after these ids."""
        return self.cluster.last_id > cluster_id or self.own.last_id > own_id

    def more(self, wait_ms: float) -> Promise[None]:
        """Resolved when there is another event, or after the wait."""
        later: Promise[None] = Promise()

        def over() -> None:
            timer.cancel()
            if self._waiting.pop(over, ...) is None:
                later.resolve(None)

        timer = self._context.world.call_later(wait_ms, over)
        self._waiting[over] = None
        return later

    def _wake(self) -> None:
        for each in list(self._waiting):
            each()
