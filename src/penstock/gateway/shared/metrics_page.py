"""The metrics of a node, as one page for `GET /metrics`.

The page is bounded: partitions are summed by topic, and listed one by one only on request; the number of topics and
groups is limited (`penstock_series_omitted` counts the rest). Thousands of partitions or offsets are read in slices,
and clients are served in between.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from penstock import __version__
from penstock.base.errors import ErrorCode
from penstock.base.loop_watch import Held
from penstock.base.metrics import AuditMeter, Histogram, Meter, Metrics, Traffic
from penstock.base.steps import Steps, next_tick
from penstock.base.world import World
from penstock.coordinator.runtime.coordinator_shard import CoordinatorShard
from penstock.gateway.shared import cluster_metrics as cluster_page
from penstock.gateway.shared.exposition import Labels, Page, rendered
from penstock.gateway.shared.group_lag_metrics import Lags, group_lags, show_lags
from penstock.handlers.support.context import Context
from penstock.replica import Partition
from penstock.vfs import Usage
from penstock.wire import api_name

TOPICS_MAX: Final = 1000
"""Topics with their own series, the first by name: 8,000 lines, half a megabyte."""

PARTITIONS_MAX: Final = 10_000
"""Partitions on a page that lists them one by one."""

_DAY_MS: Final = 86_400_000

ITEMS_A_TICK: Final = 250
"""Partitions or committed offsets that are read in one tick: half a millisecond."""


class TopicSums:
    """Sums over the partitions of a topic on this node."""

    __slots__ = (
        "bytes",
        "end",
        "partitions",
        "segments",
        "start",
        "traffic",
        "under_min_isr",
        "under_replicated",
        "waiting",
    )

    def __init__(self) -> None:
        self.partitions = self.segments = self.bytes = self.start = self.end = self.waiting = 0
        self.under_replicated = self.under_min_isr = 0
        self.traffic = Traffic()

    def add(self, partition: Partition) -> None:
        log = partition.log
        segments = log.segments
        self.partitions += 1
        self.segments += len(segments)
        self.bytes += segments.active.size if len(segments) == 1 else log.size_bytes
        self.start += log.log_start
        self.end += log.log_end
        self.waiting += partition.waiting
        if partition.isr is not None:
            self.under_replicated += partition.is_under_replicated
            self.under_min_isr += partition.is_under_min_isr
        self.traffic.add(
            partition.bytes_in, partition.messages_in, partition.bytes_out, partition.messages_out
        )


def collect(context: Context, disk: Usage | None, *, is_open: bool, by_partition: bool) -> Steps[Page]:
    """Build the page. `disk` is the volume of the logs."""
    page = Page(is_open=is_open)
    partitions = [context.replicas.partitions[name] for name in sorted(context.replicas.partitions)]
    topics = yield from _topics(context.world, partitions)
    lags = yield from group_lags(context)
    sums = yield from cluster_page.partition_sums(context, ITEMS_A_TICK)
    _requests(page, context)
    _traffic(page, context, topics)
    _logs(page, context, topics)
    cluster_page.replication(
        page,
        context,
        sum(each.under_replicated for each in topics.values()),
        sum(each.under_min_isr for each in topics.values()),
    )
    cluster_page.quorum(page, context)
    cluster_page.cluster(page, context, sums)
    if by_partition:
        yield from _partitions(page, context.world, partitions[:PARTITIONS_MAX])
    _waiting(page, context, topics)
    _groups(page, context, lags)
    _upkeep(page, context)
    _node(page, context, disk)
    page.gauge(
        "penstock_series_omitted",
        "Series that are left out because of the limits of this page.",
        [
            ((("of", "topics"),), max(0, len(topics) - TOPICS_MAX)),
            ((("of", "group lags"),), lags.left_out),
            ((("of", "partitions"),), max(0, len(partitions) - PARTITIONS_MAX) if by_partition else 0),
        ],
    )
    return page


# -- requests ------------------------------------------------------------------------------------------


def _requests(page: Page, context: Context) -> None:
    metrics = context.metrics
    by_api: list[tuple[Labels, Meter]] = [
        ((("api", api_name(key)),), meter) for key, meter in sorted(metrics.apis.items())
    ]
    page.counter(
        "penstock_requests_total",
        "Answered requests of Kafka clients.",
        [(labels, meter.times.count) for labels, meter in by_api],
    )
    page.histogram(
        "penstock_request_seconds",
        "Time from a request's arrival to its reply, including the wait for records, replicas and the disk.",
        [(labels, meter.times) for labels, meter in by_api],
    )
    page.counter(
        "penstock_request_errors_total",
        "Error codes in replies to Kafka clients, one for each partition concerned.",
        [
            ((*labels, ("error", _error_name(code))), count)
            for labels, meter in by_api
            for code, count in sorted(meter.errors.items(), key=str)
        ],
    )
    page.counter(
        "penstock_requests_unanswerable_total",
        "Requests of Kafka clients that closed their connection: malformed, unsupported, or failed with acks=0.",
        metrics.unanswerable,
    )
    _loop(page, context)
    by_route: list[tuple[Labels, Meter]] = [
        ((("method", method), ("route", route), ("status", str(status))), meter)
        for (method, route, status), meter in sorted(metrics.http.items())
    ]
    page.counter(
        "penstock_http_requests_total",
        "Answered HTTP requests.",
        [(labels, meter.times.count) for labels, meter in by_route],
    )
    page.histogram(
        "penstock_http_request_seconds",
        "Time from an HTTP request's arrival to its response, or to the start of a stream.",
        _times_by_route(metrics),
    )
    by_command: list[tuple[Labels, Meter]] = [
        ((("command", command),), meter) for command, meter in sorted(metrics.line.items())
    ]
    page.counter(
        "penstock_line_commands_total",
        "Answered commands of the line protocol.",
        [(labels, meter.times.count) for labels, meter in by_command],
    )
    page.histogram(
        "penstock_line_command_seconds",
        "Time from a command's arrival to its reply.",
        [(labels, meter.times) for labels, meter in by_command],
    )
    page.counter(
        "penstock_line_errors_total",
        "Commands of the line protocol answered with -ERR.",
        [(labels, sum(meter.errors.values())) for labels, meter in by_command],
    )


def _loop(page: Page, context: Context) -> None:
    metrics, inspections = context.metrics, context.replicas.inspections
    page.histogram(
        "penstock_loop_turn_seconds",
        "Duration of event loop ticks with client input, up to the last send.",
        [((), metrics.ticks)],
    )
    held: list[tuple[Labels, Held]] = [((("by", by),), each) for by, each in sorted(metrics.watch.by.items())]
    page.counter(
        "penstock_loop_held_total",
        "Times that one callback blocked the event loop for more than 20 ms.",
        [(labels, each.times) for labels, each in held],
    )
    page.gauge(
        "penstock_loop_held_longest_seconds",
        "Longest time that one callback blocked the event loop since the node started.",
        [(labels, each.longest_ns / 1e9) for labels, each in held],
    )
    page.counter(
        "penstock_batches_inspected_total",
        "Produced batches whose records were validated or recompressed in a helper process.",
        inspections.inspected,
    )
    page.gauge(
        "penstock_batches_inspecting",
        "Produced batches that wait for validation in a helper process, or are in it.",
        inspections.waiting,
    )


def _times_by_route(metrics: Metrics) -> list[tuple[Labels, Histogram]]:
    """One histogram for all statuses of a route: it has 20 lines, and the counters have the statuses."""
    found: dict[tuple[str, str], Histogram] = {}
    for (method, route, _), meter in sorted(metrics.http.items()):
        found.setdefault((method, route), Histogram()).add(meter.times)
    return [((("method", method), ("route", route)), times) for (method, route), times in found.items()]


def _error_name(code: int | str) -> str:
    try:
        return ErrorCode(int(code)).name
    except ValueError:
        return str(code)


# -- topics --------------------------------------------------------------------------------------------


def _topics(world: World, partitions: list[Partition]) -> Steps[dict[str, TopicSums]]:
    topics: dict[str, TopicSums] = {}
    for number, partition in enumerate(partitions, 1):
        sums = topics.get(partition.topic)
        if sums is None:
            sums = topics[partition.topic] = TopicSums()
        sums.add(partition)
        if number % ITEMS_A_TICK == 0:
            yield next_tick(world)
    return topics


def _shown(topics: dict[str, TopicSums]) -> Iterator[tuple[Labels, TopicSums]]:
    for name in sorted(topics)[:TOPICS_MAX]:
        yield (("topic", name),), topics[name]


def _traffic(page: Page, context: Context, topics: dict[str, TopicSums]) -> None:
    whole = Traffic()
    for each in (context.replicas.gone, *(sums.traffic for sums in topics.values())):
        whole.add(each.bytes_in, each.messages_in, each.bytes_out, each.messages_out)
    shown = [(labels, sums.traffic) for labels, sums in _shown(topics)]
    for name, what in (
        ("bytes_in", "Bytes of record batches written to partitions that this node leads"),
        ("messages_in", "Records written to partitions that this node leads"),
        ("bytes_out", "Bytes of record batches sent to clients"),
        ("messages_out", "Records sent to clients"),
    ):
        page.counter(f"penstock_{name}_total", f"{what}, including deleted topics.", getattr(whole, name))
        page.counter(
            f"penstock_topic_{name}_total",
            f"{what}, by topic.",
            [(labels, getattr(traffic, name)) for labels, traffic in shown],
        )


def _logs(page: Page, context: Context, topics: dict[str, TopicSums]) -> None:
    shown = list(_shown(topics))
    for name, field, what in (
        ("topic_partitions", "partitions", "Partitions of a topic on this node."),
        ("topic_log_bytes", "bytes", "Size of a topic's logs."),
        ("topic_log_segments", "segments", "Segments of a topic's logs."),
        ("topic_log_start_offsets", "start", "Sum of the first offsets of a topic's partitions."),
        ("topic_log_end_offsets", "end", "Sum of the next offsets of a topic's partitions."),
    ):
        page.gauge(f"penstock_{name}", what, [(labels, getattr(sums, field)) for labels, sums in shown])
    page.gauge("penstock_topics", "Topics on this node.", len(topics))
    page.gauge("penstock_partitions", "Partitions on this node.", len(context.replicas.partitions))
    page.gauge(
        "penstock_partitions_led",
        "Partitions that this node leads and serves.",
        len(context.replicas.by_key) // 2,
    )
    page.gauge("penstock_log_bytes", "Size of all logs.", sum(sums.bytes for sums in topics.values()))
    page.gauge(
        "penstock_log_segments", "Segments of all logs.", sum(sums.segments for sums in topics.values())
    )


_OF_PARTITIONS: Final[dict[str, tuple[Callable[[Partition], int], str]]] = {
    "bytes_in_total": (
        lambda each: each.bytes_in,
        "Bytes of record batches written to a partition while this node led it.",
    ),
    "messages_in_total": (
        lambda each: each.messages_in,
        "Records written to a partition while this node led it.",
    ),
    "bytes_out_total": (
        lambda each: each.bytes_out,
        "Bytes of record batches of a partition sent to clients.",
    ),
    "messages_out_total": (lambda each: each.messages_out, "Records of a partition sent to clients."),
    "log_bytes": (lambda each: each.log.size_bytes, "Size of a partition's log."),
    "log_segments": (lambda each: len(each.log.segments), "Segments of a partition's log."),
    "log_start_offset": (lambda each: each.log.log_start, "First offset of a partition."),
    "log_end_offset": (lambda each: each.log.log_end, "Next offset of a partition."),
    "high_watermark": (
        lambda each: each.high_watermark,
        "High watermark of a partition: the first offset that consumers do not see yet.",
    ),
    "in_sync_replicas": (lambda each: each.isr_size, "In-sync replicas of a partition."),
}


def _partitions(page: Page, world: World, partitions: list[Partition]) -> Steps[None]:
    """One family after the other, as the format requires, so that the values of one partition are of different
    moments."""
    labels = [rendered((("topic", each.topic), ("partition", str(each.number)))) for each in partitions]
    for name, (value_of, what) in _OF_PARTITIONS.items():
        family = f"penstock_partition_{name}"
        page.begin(family, what)
        for at in range(0, len(partitions), ITEMS_A_TICK):
            some = map(value_of, partitions[at : at + ITEMS_A_TICK])
            page.add_rendered(family, zip(labels[at : at + ITEMS_A_TICK], some, strict=True))
            yield next_tick(world)


# -- groups --------------------------------------------------------------------------------------------


def _groups(page: Page, context: Context, lags: Lags) -> None:
    show_lags(page, lags)
    states = Counter(
        str(group.state) for shard in context.groups.shards for group in shard.coordinator.groups
    )
    page.gauge(
        "penstock_groups",
        "Groups that this node coordinates, by state.",
        [((("state", state),), count) for state, count in sorted(states.items())],
    )
    page.gauge(
        "penstock_coordinators",
        "Partitions of the coordinators' topics that this node leads, by the state of their coordinator.",
        [
            ((("topic", shards.topic), ("state", state)), count)
            for shards in (context.groups.shards, context.transactions.shards)
            for state, count in sorted(coordinator_states(shards).items())
        ],
    )


def coordinator_states(shards: Iterable[CoordinatorShard]) -> Counter[str]:
    """The number of coordinators that are loading, serving, or damaged."""
    return Counter(
        "damaged" if each.is_damaged else "serving" if each.is_loaded else "loading" for each in shards
    )


# -- queues, syncs and connections ---------------------------------------------------------------------


def _waiting(page: Page, context: Context, topics: dict[str, TopicSums]) -> None:
    lane = context.replicas.lane
    queues: dict[str, float] = {
        "produces": sum(sums.waiting for sums in topics.values()),
        "syncs": lane.running,
        **{name: count() for name, count in context.metrics.queues.items()},
    }
    page.gauge(
        "penstock_waiting",
        "Waiting items: requests for their reply, fetches for records, batches for a sync, syncs for the disk.",
        [((("what", name),), value) for name, value in sorted(queues.items())],
    )
    page.histogram(
        "penstock_fsync_seconds", "Duration of log syncs that producers wait for.", [((), lane.syncs)]
    )
    page.counter("penstock_fsync_errors_total", "Failed log syncs.", lane.syncs_failed)
    doors = [((("door", name),), door) for name, door in sorted(context.metrics.doors.items())]
    page.gauge(
        "penstock_connections",
        "Open connections.",
        [(labels, door.open) for labels, door in doors],
    )
    page.counter(
        "penstock_connections_accepted_total",
        "Accepted connections.",
        [(labels, door.accepted) for labels, door in doors],
    )
    page.counter(
        "penstock_connections_refused_total",
        "Connections refused because of a limit (max.connections, max.connections.per.ip, connection_creation_rate, "
        "open files).",
        [(labels, door.refused) for labels, door in doors],
    )
    if context.metrics.tls:
        _tls(page, context)
    if context.metrics.oauth:
        _oauth(page, context)
    if context.metrics.audit is not None:
        _audit(page, context.metrics.audit)
    if context.metrics.quotas:
        _quotas(page, context)
    memory = context.client_memory
    if memory is not None:
        page.gauge(
            "penstock_client_buffer_bytes",
            "Bytes buffered for clients: incomplete requests, and replies that are not read.",
            memory.total,
        )
        page.counter(
            "penstock_connections_closed_for_memory_total",
            "Stalled connections closed because penstock_client_buffer_bytes exceeded client.buffers.max.bytes.",
            memory.closed,
        )


def _tls(page: Page, context: Context) -> None:
    meters = [((("listener", name),), meter) for name, meter in sorted(context.metrics.tls.items())]
    now_ms = context.world.now_ms()
    page.gauge(
        "penstock_tls_certificate_expiry_days",
        "Days until the certificate of a listener expires; negative if it has.",
        [(label, (meter.not_after_ms - now_ms) / _DAY_MS) for label, meter in meters],
    )
    page.gauge(
        "penstock_tls_certificate_stale",
        "1 while the files of a listener hold a key or certificate that cannot be used, and the old one is.",
        [(label, int(meter.is_stale)) for label, meter in meters],
    )
    page.counter(
        "penstock_tls_reloads_total",
        "Changed keys and certificates that were taken into use.",
        [(label, meter.reloads) for label, meter in meters],
    )
    page.counter(
        "penstock_tls_reload_errors_total",
        "Changed keys and certificates that could not be used.",
        [(label, meter.reload_errors) for label, meter in meters],
    )
    page.counter(
        "penstock_tls_handshakes_total",
        "Completed TLS handshakes.",
        [(label, meter.handshakes) for label, meter in meters],
    )
    page.counter(
        "penstock_tls_handshakes_failed_total",
        "Failed TLS handshakes.",
        [(label, meter.handshakes_failed) for label, meter in meters],
    )


def _audit(page: Page, meter: AuditMeter) -> None:
    page.counter(
        "penstock_audit_events_total",
        "Events of the audit.",
        [((("event", kind),), count) for kind, count in sorted(meter.events.items())],
    )
    page.counter(
        "penstock_audit_aggregated_total",
        "Events of the audit without a line of their own: a later line has their number.",
        meter.aggregated,
    )
    page.counter(
        "penstock_audit_dropped_total",
        "Lines of the audit that were not written.",
        [((("to", name),), count) for name, count in sorted(meter.dropped.items())],
    )


def _quotas(page: Page, context: Context) -> None:
    meters = [(tuple(who._asdict().items()), meter) for who, meter in sorted(context.metrics.quotas.items())]
    page.counter(
        "penstock_quota_throttled_total",
        "Requests and connections of clients that exceeded a quota.",
        [(labels, meter.times) for labels, meter in meters],
    )
    page.counter(
        "penstock_quota_throttle_seconds_total",
        "Sum of the throttle times of these clients.",
        [(labels, meter.delay_ms / 1000) for labels, meter in meters],
    )


def _oauth(page: Page, context: Context) -> None:
    meters = [((("url", url),), meter) for url, meter in sorted(context.metrics.oauth.items())]
    page.gauge(
        "penstock_oauth_keys",
        "Keys that verify bearer tokens.",
        [(label, meter.keys) for label, meter in meters],
    )
    page.gauge(
        "penstock_oauth_keys_stale",
        "1 while the keys of bearer tokens cannot be fetched, and those fetched before are used.",
        [(label, int(meter.is_stale)) for label, meter in meters],
    )
    page.counter(
        "penstock_oauth_keys_errors_total",
        "Fetches of the keys of bearer tokens that failed.",
        [(label, meter.errors) for label, meter in meters],
    )


def _upkeep(page: Page, context: Context) -> None:
    upkeep = context.metrics.upkeep
    for name, value, what in (
        ("retention_segments_deleted", upkeep.segments_deleted, "Segments deleted by retention."),
        ("cleaner_rounds", upkeep.cleanings, "Finished rounds of compaction."),
        ("cleaner_errors", upkeep.cleanings_failed, "Failed rounds of compaction."),
        ("cleaner_records_read", upkeep.records_cleaned, "Records read by compaction."),
        ("cleaner_records_kept", upkeep.records_kept, "Records kept by compaction."),
        ("cleaner_bytes_read", upkeep.bytes_cleaned, "Bytes read by compaction."),
        ("cleaner_bytes_kept", upkeep.bytes_kept, "Bytes kept by compaction."),
    ):
        page.counter(f"penstock_{name}_total", what, value)


# -- the node ------------------------------------------------------------------------------------------


def _node(page: Page, context: Context, disk: Usage | None) -> None:
    page.gauge(
        "penstock_build_info",
        "Always 1; the labels name the versions, the cluster and the node.",
        [
            (
                (
                    ("version", __version__),
                    ("python", ".".join(map(str, sys.version_info[:3]))),
                    ("cluster", context.cluster_id),
                    ("node", str(context.node_id)),
                ),
                1,
            )
        ],
    )
    page.gauge(
        "penstock_uptime_seconds",
        "Time since the node started.",
        (context.world.clock_ns() - context.metrics.started_ns) / 1e9,
    )
    if disk is not None:
        page.gauge("penstock_disk_bytes", "Size of the volume of the logs.", disk.total_bytes)
        page.gauge(
            "penstock_disk_usable_bytes",
            "Space on that volume that this node may still use.",
            disk.usable_bytes,
        )
    strays = context.replicas.directory.strays_left()
    page.gauge("penstock_strays", "Partition directories on disk that belong to no topic.", len(strays))
    page.gauge(
        "penstock_stray_bytes",
        "Size of the logs in penstock_strays.",
        sum(each.size_bytes for each in strays),
    )
    used = context.world.process()
    if used is None:
        return
    page.counter("process_cpu_seconds_total", "CPU time of the process, user and system.", used.cpu_seconds)
    for name, value, what in (
        ("resident_memory_bytes", used.resident_bytes, "Resident memory of the process."),
        ("virtual_memory_bytes", used.virtual_bytes, "Virtual memory of the process."),
        ("open_fds", used.open_files, "Open file descriptors of the process."),
        ("max_fds", used.open_files_max, "Limit of open file descriptors of the process."),
        ("start_time_seconds", used.started_seconds, "Start of the process, in seconds since 1970."),
    ):
        page.gauge(f"process_{name}", what, value)
