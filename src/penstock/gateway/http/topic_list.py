"""The list of topics: in pages, by name; with sizes, rates and retention, filtered and sorted, on request."""

from heapq import nsmallest
from operator import itemgetter
from typing import Any, Final

import msgspec

from penstock.base.ids import uuid_text
from penstock.base.internal_topics import INTERNAL_TOPICS
from penstock.base.settings import LogSettings
from penstock.base.steps import Steps, next_tick
from penstock.gateway.http.protocol.messages import Query, Request, Response, Routes, json
from penstock.gateway.peer_rpc.cluster_topics import ClusterFigures, ClusterTopics
from penstock.gateway.shared.access import TOPIC, Need, Rule
from penstock.handlers.support.context import Context
from penstock.metadata.acls import Operation
from penstock.metadata.configs import log_defaults, log_settings
from penstock.metadata.controller.topics import NAME_LENGTH_MAX
from penstock.metadata.image import Topic

LISTED: Final = 1_000
LISTED_MAX: Final = 10_000

SKIPPED_MAX: Final = 10_000_000

NAMES_A_TICK: Final = 250
"""Topics that are filtered in one tick: a few milliseconds with ACLs."""

TOPICS_A_TICK: Final = 100
"""Topics that are described in one tick: a few milliseconds."""

ROUTES = Routes("topics")


class TopicListing(msgspec.Struct):
    """Fields from `under_replicated` on are null without `details=true`, and where they are not known: size and
    messages if a broker did not answer, rates also at a client's first request in a minute."""

    name: str
    id: str
    partitions: int
    """Number of partitions."""
    replication_factor: int
    internal: bool
    """Whether the topic holds state of the cluster."""
    under_replicated: int | None = None
    """Partitions with a replica that is not in sync."""
    offline: int | None = None
    """Partitions without a leader."""
    size_bytes: int | None = None
    """Size of all replicas in the cluster."""
    messages: int | None = None
    """Offsets between the log starts and the high watermarks. Transaction markers and compacted records count as
    well."""
    bytes_in_per_second: float | None = None
    """Written by clients, over the last 10 to 20 seconds."""
    messages_in_per_second: float | None = None
    cleanup_policy: list[str] | None = None
    retention_ms: int | None = None
    """-1 is forever."""
    retention_bytes: int | None = None
    """Of each partition; -1 is no limit."""


class TopicList(msgspec.Struct):
    topics: list[TopicListing]
    """In order of name, or of `sort`."""
    next: str | None
    """The `after` of the next page, in order of name; null on the last page, and in any other order."""
    total: int | None = None
    """With `details`: number of topics that match, on all pages."""
    unanswered: list[int] | None = None
    """With `details`: brokers that did not answer. What depends on them is null."""


SORTS: Final = (
    "name",
    "partitions",
    "under_replicated",
    "size_bytes",
    "messages",
    "bytes_in_per_second",
    "messages_in_per_second",
    "retention_ms",
)


@ROUTES.add(
    "GET",
    "/topics",
    "List topics in order of name; with `details`, sizes, rates and retention, in any order.",
    query=(
        Query("after", str, "Only names after this one.", max=NAME_LENGTH_MAX),
        Query("limit", int, "Maximum number of topics.", default=LISTED, min=1, max=LISTED_MAX),
        Query("internal", bool, "Include internal topics, such as `__consumer_offsets`.", default=False),
        Query("details", bool, "Include size, messages, rates and retention of each topic.", default=False),
        Query("contains", str, "Only names that contain this text, in any case.", max=NAME_LENGTH_MAX),
        Query(
            "sort",
            str,
            "Order of the topics. All but `name` include `details`.",
            default="name",
            one_of=SORTS,
        ),
        Query("descending", bool, "The other way round.", default=False),
        Query("skip", int, "Leave out so many topics at the beginning.", default=0, min=0, max=SKIPPED_MAX),
    ),
    answer=TopicList,
    rule=Rule(shows=(Need(Operation.DESCRIBE, TOPIC, "topic"),)),
)
def _list(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    query = request.query
    sort, is_descending = query["sort"], query["descending"]
    is_detailed = query["details"] or sort != "name"
    names = yield from _names(context, request)
    skip, limit = query["skip"], query["limit"]
    if not is_detailed and not is_descending:
        found = nsmallest(skip + limit + 1, names)[skip:]
        rows = [_plain(context.image.topics[name]) for name in found[:limit]]
        return json(TopicList(rows, found[limit - 1] if len(found) > limit else None))
    if not is_detailed:
        shown = sorted(names, reverse=True)[skip : skip + limit]
        return json(TopicList([_plain(context.image.topics[name]) for name in shown], None))
    topics: ClusterTopics = gateway.cluster_topics
    figures: ClusterFigures = yield topics.figures()
    details = _Details(context, topics, figures)
    return json((yield from details.page(names, sort, is_descending, skip, limit)))


def _names(context: Context, request: Request) -> Steps[list[str]]:
    """The topics that match and that the client may see, in any order."""
    query = request.query
    after, internal = query["after"], query["internal"]
    contains = (query["contains"] or "").lower()
    found = []
    for count, name in enumerate(list(context.image.topics), 1):
        if (
            (after is None or name > after)
            and (internal or name not in INTERNAL_TOPICS)
            and (not contains or contains in name.lower())
            and context.permits(request.session, Operation.DESCRIBE, TOPIC, name)
        ):
            found.append(name)
        if count % NAMES_A_TICK == 0:
            yield next_tick(context.world)
    return [each for each in found if each in context.image.topics]


def _plain(topic: Topic) -> TopicListing:
    return TopicListing(
        topic.name,
        uuid_text(topic.id),
        len(topic.partitions),
        len(topic.partitions[0].replicas),
        topic.name in INTERNAL_TOPICS,
    )


def listing(gateway: Any, topic: Topic) -> Steps[TopicListing]:
    """The row of one topic, with details."""
    topics: ClusterTopics = gateway.cluster_topics
    figures: ClusterFigures = yield topics.figures()
    return _Details(gateway.context, topics, figures).row(topic)


class _Details:
    def __init__(self, context: Context, topics: ClusterTopics, figures: ClusterFigures) -> None:
        self._context = context
        self._topics = topics
        self._figures = figures
        self._defaults: LogSettings = log_defaults(context.image, context.settings)

    def page(
        self, names: list[str], sort: str, is_descending: bool, skip: int, limit: int
    ) -> Steps[TopicList]:
        """Rows of one page. In order of name, only they are described; in any other order, all topics are."""
        names.sort(reverse=is_descending)
        if sort == "name":
            rows = yield from self._rows(names[skip : skip + limit])
        else:
            rows = yield from self._rows(names)
            known = [(getattr(row, sort), row) for row in rows if getattr(row, sort) is not None]
            known.sort(key=itemgetter(0), reverse=is_descending)  # equal ones stay in order of name
            unknown = [row for row in rows if getattr(row, sort) is None]
            rows = [*(row for _, row in known), *unknown][skip : skip + limit]
        is_more = sort == "name" and not is_descending and len(names) > skip + limit
        return TopicList(
            rows,
            names[skip + limit - 1] if is_more else None,
            len(names),
            sorted(self._figures.unanswered),
        )

    def _rows(self, names: list[str]) -> Steps[list[TopicListing]]:
        rows = []
        for count, name in enumerate(names, 1):
            topic = self._context.image.topics.get(name)
            if topic is not None:
                rows.append(self.row(topic))
            if count % TOPICS_A_TICK == 0:
                yield next_tick(self._context.world)
        return rows

    def row(self, topic: Topic) -> TopicListing:
        placed = self._topics.placement(topic)
        totals = self._figures.of(placed)
        rules = log_settings(topic.name, self._context.image, self._context.settings, self._defaults)
        row = _plain(topic)
        row.under_replicated, row.offline = placed.under_replicated, placed.offline
        row.size_bytes, row.messages = totals.size_bytes, totals.messages
        row.bytes_in_per_second, row.messages_in_per_second = totals.bytes_in, totals.messages_in
        row.cleanup_policy = list(rules.cleanup_policy)
        row.retention_ms, row.retention_bytes = rules.retention_ms, max(rules.retention_bytes, -1)
        return row
