"""GET /cluster/events: what happened in the cluster; and the same as server-sent events.

Events come from several places: those of the cluster as this broker has noticed them, and those of each broker. A
cursor has the last id of each place that the client has seen:

    c:1234000,1:1760000000000000,2:1760000005000000

It is `next` of an answer, and the id of each server-sent event. A client that goes on after it, at this broker or
another, misses none.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from typing import Any, Final, NamedTuple

import msgspec

from penstock.base.steps import Steps, next_tick
from penstock.gateway.http.protocol.messages import (
    Answer,
    HttpError,
    Out,
    Query,
    Request,
    Response,
    Routes,
    Stream,
    json,
)
from penstock.gateway.http.tail import EVENTS, KEEP_ALIVE_MS, RETRY_MS, WAIT_MS_MAX
from penstock.gateway.observing.event import Event, Kind
from penstock.gateway.observing.event_feed import EVENTS_MAX, EventFeed
from penstock.gateway.observing.gathering import MissingBroker, gather
from penstock.gateway.peer_rpc.messages import GetEvents, NodeEvents
from penstock.gateway.peer_rpc.retry import is_alone
from penstock.gateway.shared.access import DESCRIBE_CLUSTER, GROUP, TOPIC, Need, Rule
from penstock.handlers.support.context import Context, Session
from penstock.metadata.acls import Operation

LISTED: Final = 100

STREAMED: Final = 100
"""Events that a stream sends before it waits for its client."""

EVENTS_A_TICK: Final = 50
"""Events that are looked at in a tick: for each of its topics, ACLs decide whether the client sees it."""

PEERS_MS: Final = 3_000
"""How often a stream asks the other brokers."""

CLUSTER: Final = "c"
"""The place of events of the cluster; those of a broker have its id."""

PLACES_MAX: Final = 200
"""Places that a cursor names: more brokers than a cluster has."""
_CURSOR: Final = f"^(c|[0-9]{{1,10}}):[0-9]{{1,18}}(,(c|[0-9]{{1,10}}):[0-9]{{1,18}}){{0,{PLACES_MAX - 1}}}$"
_CURSOR_CHARS_MAX: Final = 30 * PLACES_MAX

_RULE: Final = Rule(
    (DESCRIBE_CLUSTER,),
    shows=(Need(Operation.DESCRIBE, TOPIC, "topic"), Need(Operation.DESCRIBE, GROUP, "group")),
)

_encode = msgspec.json.Encoder().encode

ROUTES = Routes("cluster")


class ShownEvent(msgspec.Struct):
    id: str
    time: int
    """Milliseconds since 1970."""
    kind: str
    severity: str
    """`info`, `warning` or `error`."""
    text: str
    """What happened, in a sentence."""
    count: int
    """How many partitions, topics or groups the event is about."""
    broker: int | None
    topic: str | None
    group: str | None
    topics: list[str]
    """If it is about several topics: up to 20 of them."""


class EventList(msgspec.Struct):
    events: list[ShownEvent]
    """In order of time."""
    next: str
    """The `after` that continues after these."""
    missing: list[MissingBroker]
    """Brokers that did not answer, and why."""


class Cursor(dict[str, int]):
    """The last id that was seen, by place."""

    @classmethod
    def read(cls, text: str) -> "Cursor":
        found = cls()
        for word in text.split(","):
            place, _, number = word.partition(":")
            found[place] = int(number)
        return found

    def __str__(self) -> str:
        return ",".join(f"{place}:{number}" for place, number in self.items())


class EventPage(NamedTuple):
    events: list[tuple[ShownEvent, str]]
    """Each with the cursor after it."""
    cursor: Cursor
    missing: list[MissingBroker]


class Viewer:
    """Selects what one client sees."""

    def __init__(self, context: Context, session: Session, kinds: Sequence[str]) -> None:
        self._context = context
        self._session = session
        self._kinds = frozenset(kinds)

    @property
    def is_choosy(self) -> bool:
        """Whether the latest events may be none that the client sees."""
        return bool(self._kinds) or self._context.authorizer is not None

    def shown(self, place: str, event: Event) -> ShownEvent | None:
        """None for an event that the client did not ask for or may not see."""
        if self._kinds and event.kind not in self._kinds:
            return None
        permits, session = self._context.permits, self._session
        if event.topic is not None and not permits(session, Operation.DESCRIBE, TOPIC, event.topic):
            return None
        if event.group is not None and not permits(session, Operation.DESCRIBE, GROUP, event.group):
            return None
        topics = [each for each in event.topics if permits(session, Operation.DESCRIBE, TOPIC, each)]
        return ShownEvent(
            f"{place}:{event.id}",
            event.time_ms,
            event.kind,
            event.severity,
            event.text,
            event.count,
            event.broker,
            event.topic,
            event.group,
            topics,
        )


def latest(gateway: Any, viewer: Viewer, limit: int) -> Steps[EventPage]:
    """The last events of all brokers."""
    feed: EventFeed = gateway.events
    asked = GetEvents(0, EVENTS_MAX if viewer.is_choosy else max(limit, 1), of_cluster=True)
    replies, missing = yield from gather(gateway.context, asked, feed.since(asked))
    places = _by_place(replies)
    # What happened before this broker started is known to the one that has run longest.
    eldest = min(replies.values(), key=lambda each: each.since_ms)
    before = [each for each in eldest.cluster_events if each.id <= feed.since_id]
    places[CLUSTER] = [*before, *replies[gateway.context.node_id].cluster_events]
    cursor = Cursor({place: events[-1].id for place, events in places.items() if events})
    cursor[CLUSTER] = feed.cluster.last_id
    text = str(cursor)
    backwards = {place: events[::-1] for place, events in places.items()}
    found: list[ShownEvent] = []
    for number, (place, event) in enumerate(_in_order(backwards, is_backwards=True), 1):
        if len(found) >= limit:
            break
        shown = viewer.shown(place, event)
        if shown is not None:
            found.append(shown)
        if number % EVENTS_A_TICK == 0:
            yield next_tick(gateway.context.world)
    return EventPage([(each, text) for each in reversed(found)], cursor, missing)


def after(gateway: Any, viewer: Viewer, cursor: Cursor, limit: int, *, ask: bool = True) -> Steps[EventPage]:
    """The first events after a cursor. With `ask`, other brokers are asked for theirs."""
    context: Context = gateway.context
    feed: EventFeed = gateway.events
    cursor = Cursor(cursor)
    missing: list[MissingBroker] = []
    places = {
        CLUSTER: feed.cluster.after(cursor.get(CLUSTER, 0), limit),
        str(context.node_id): feed.own.after(cursor.get(str(context.node_id), 0), limit),
    }
    if ask and not is_alone(context):
        # Brokers are asked for what follows the earliest id that is known of any of them: ids are times.
        seen = [number for place, number in cursor.items() if place != CLUSTER]
        asked = GetEvents(min(seen, default=0), EVENTS_MAX)
        replies, missing = yield from gather(context, asked, feed.since(asked))
        for place, events in _by_place(replies).items():
            if place != str(context.node_id):
                places[place] = [each for each in events if each.id > cursor.get(place, 0)]
    found: list[tuple[ShownEvent, str]] = []
    for number, (place, event) in enumerate(_in_order(places), 1):
        if number % EVENTS_A_TICK == 0:
            yield next_tick(context.world)
        cursor[place] = event.id
        shown = viewer.shown(place, event)
        if shown is not None:
            found.append((shown, str(cursor)))
            if len(found) >= limit:
                break
    return EventPage(found, cursor, missing)


def _by_place(replies: Mapping[int, NodeEvents]) -> dict[str, list[Event]]:
    return {str(broker): reply.events for broker, reply in replies.items()}


def _in_order(
    places: Mapping[str, Sequence[Event]], *, is_backwards: bool = False
) -> Iterator[tuple[str, Event]]:
    """Events of all places by time; those of one place stay in their order."""
    queues = [[(place, each) for each in events] for place, events in places.items()]
    return merge(*queues, key=lambda each: each[1].time_ms, reverse=is_backwards)


_KINDS: Final = Query(
    "kind",
    list[str],
    "Only events of these kinds, comma-separated.",
    default=[],
    max=len(Kind),
    one_of=tuple(each.value for each in Kind),
    is_unique=True,
)
_AFTER: Final = Query(
    "after",
    str,
    "Only events after this point: `next` of an answer, or the id of a server-sent event.",
    max=_CURSOR_CHARS_MAX,
    pattern=_CURSOR,
)


@ROUTES.add(
    "GET",
    "/cluster/events",
    "What happened: elections, ISR changes, brokers, topics, settings, rebalances. By default the latest.",
    query=(
        _AFTER,
        _KINDS,
        Query("limit", int, "Maximum number of events.", default=LISTED, min=1, max=EVENTS_MAX),
    ),
    answer=EventList,
    rule=_RULE,
)
def _list(gateway: Any, request: Request) -> Steps[Response]:
    viewer = Viewer(gateway.context, request.session, request.query["kind"])
    limit, begin = request.query["limit"], request.query["after"]
    if begin is None:
        page = yield from latest(gateway, viewer, limit)
    else:
        page = yield from after(gateway, viewer, Cursor.read(begin), limit)
    return json(EventList([each for each, _ in page.events], str(page.cursor), page.missing))


@ROUTES.add(
    "GET",
    "/cluster/events/stream",
    "New events as server-sent events. A client that reconnects with `Last-Event-ID` misses none.",
    query=(
        _AFTER,
        _KINDS,
        Query(
            "wait_ms",
            int,
            "End when nothing happens for this long; 0 sends what has happened. By default the stream does not end.",
            min=0,
            max=WAIT_MS_MAX,
        ),
    ),
    content_types=(EVENTS,),
    rule=_RULE,
)
def _stream(gateway: Any, request: Request) -> Answer:
    begin = request.headers.get("last-event-id", "").strip() or request.query["after"]
    cursor = None if begin is None else _cursor(begin)
    viewer = Viewer(gateway.context, request.session, request.query["kind"])
    events = EventStream(gateway, viewer, cursor, request.query["wait_ms"])
    return Stream(events.write, EVENTS, headers=(("Cache-Control", "no-store"), ("X-Accel-Buffering", "no")))


def _cursor(text: str) -> Cursor:
    if len(text) > _CURSOR_CHARS_MAX or re.fullmatch(_CURSOR, text) is None:
        raise HttpError(
            400,
            "bad_event_id",
            f"Last-Event-ID is {text[:64]!r}, expected an id of this stream such as c:1234000,1:1760000000000000",
        )
    return Cursor.read(text)


class EventStream:
    """One client's stream."""

    def __init__(self, gateway: Any, viewer: Viewer, cursor: Cursor | None, wait_ms: int | None) -> None:
        self._gateway = gateway
        self._viewer = viewer
        self._cursor = cursor
        """None to begin with what happens from now on."""
        self._wait_ms = float("inf") if wait_ms is None else wait_ms
        """How long to wait for an event before the stream ends."""

    def write(self, out: Out) -> Steps[None]:
        feed: EventFeed = self._gateway.events
        world = self._gateway.context.world
        cursor = self._cursor
        if cursor is None:
            cursor = (yield from latest(self._gateway, self._viewer, 0)).cursor
        # The first id is the start: a client that reconnects before the first event misses none.
        out.write(b"retry: %d\nid: %s\n\n" % (RETRY_MS, str(cursor).encode()))
        sent_ms = said_ms = world.clock_ns() / 1e6
        asked_ms = sent_ms - PEERS_MS  # the others are asked at once
        while True:
            now_ms = world.clock_ns() / 1e6
            is_due = now_ms - asked_ms >= PEERS_MS - 1
            page = yield from after(self._gateway, self._viewer, cursor, STREAMED, ask=is_due)
            cursor = page.cursor
            if is_due:
                asked_ms = now_ms
            if page.events:
                out.write(b"".join(_written(each, text) for each, text in page.events))
                sent_ms = said_ms = now_ms
            elif now_ms - sent_ms >= self._wait_ms:
                out.write(b'event: end\ndata: {"reason":"nothing happened within wait_ms"}\n\n')
                return
            elif now_ms - said_ms >= KEEP_ALIVE_MS:
                out.write(b": keep-alive\n\n")
                said_ms = now_ms
            yield out.ready()
            if not feed.has_after(cursor.get(CLUSTER, 0), cursor.get(str(self._gateway.context.node_id), 0)):
                yield feed.more(min(PEERS_MS, max(self._wait_ms - (now_ms - sent_ms), 0)))


def _written(event: ShownEvent, cursor: str) -> bytes:
    return b"id: %s\ndata: %s\n\n" % (cursor.encode(), _encode(event))
