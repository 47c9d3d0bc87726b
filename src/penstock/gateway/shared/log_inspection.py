"""Inspects the logs of a topic: replicas, segments and index entries, for the explorer and the console.

All values come from the live log, none from settings. State in memory is read on the loop, at one moment for all
partitions. Files (the indexes of a sealed segment are only on disk) are read on a thread.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, TopicPartition, uuid_text
from penstock.base.steps import Steps, beside
from penstock.gateway.shared.topics import no_partition
from penstock.handlers.support.context import Context
from penstock.metadata.configs import Source, describe, log_settings, min_insync_replicas
from penstock.metadata.image import Broker, PartitionRegistration, Resource, ResourceType, Topic
from penstock.records.batch import COUNT_AT
from penstock.replica import Partition
from penstock.storage import StorageError
from penstock.storage.findings import OFFSET_ENTRY, TIME_ENTRY
from penstock.storage.scan import walk_headers
from penstock.storage.segment import Segment

SHAPING = (
    "segment.bytes",
    "segment.ms",
    "segment.index.bytes",
    "index.interval.bytes",
    "retention.ms",
    "retention.bytes",
    "cleanup.policy",
    "max.message.bytes",
    "min.insync.replicas",
)
"""The settings that decide how a partition's directory looks, and what a write waits for."""

BATCHES_COUNTED_MAX: Final = 10_000
"""Batches whose records are counted for one request: some 30 ms on a thread."""

SOURCES = {
    Source.UNKNOWN: "unknown",
    Source.TOPIC: "topic",
    Source.DYNAMIC_BROKER: "broker",
    Source.DYNAMIC_DEFAULT_BROKER: "all_brokers",
    Source.STATIC_BROKER: "file",
    Source.DEFAULT: "default",
}
"""Names of the sources, the same as in `GET /topics/{topic}/configs`."""


# -- what is shown ----------------------------------------------------------------------------------------


class OffsetIndexEntry(Struct, rename="camel"):
    offset: int
    """The last offset of a batch."""
    position: int
    """The position of that batch in the segment's file, in bytes."""


class TimeIndexEntry(Struct, rename="camel"):
    timestamp: int
    """The largest timestamp of the segment up to this batch."""
    offset: int
    """The last offset of the batch with that timestamp."""


class OffsetIndexView(Struct, rename="camel"):
    file: str
    entries: int
    """Number of entries. The newest ones of an active segment may be in memory only."""
    size_bytes: int
    first: list[OffsetIndexEntry]
    """The first entries, as many as `entries` of the request says."""


class TimeIndexView(Struct, rename="camel"):
    file: str
    entries: int
    size_bytes: int
    first: list[TimeIndexEntry]


class SegmentView(Struct, rename="camel"):
    file: str
    base_offset: int
    """Offset of its first record. The file name has it."""
    end_offset: int
    """The base offset of the next segment, or the log end offset."""
    size_bytes: int
    is_active: bool
    """Whether it is the last segment, to which records are appended."""
    largest_timestamp: int
    """-1 if it holds no record."""
    offset_index: OffsetIndexView
    time_index: TimeIndexView
    first_timestamp: int = -1
    """The timestamp of its first batch; -1 if it holds no record."""
    is_compacted: bool = False
    """Whether compaction has been through it."""
    records: int | None = None
    """Number of records, transaction markers included. null if it is compacted and too many batches would have to be
    counted."""


class EpochView(Struct, rename="camel"):
    epoch: int
    start_offset: int
    """Offset of the first record of this leader epoch."""


class PartitionView(Struct, rename="camel"):
    partition: int
    leader: int
    """-1 if there is none."""
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    """In-sync replicas."""
    directory: str | None
    """Name of the directory of its log. This and all that follows is null or empty if the broker has no replica."""
    log_start_offset: int | None
    log_end_offset: int | None
    high_watermark: int | None
    """The first offset that is not on every in-sync replica. Consumers read below it."""
    last_stable_offset: int | None
    """`read_committed` consumers read below it."""
    flushed_offset: int | None
    """The first offset that is not synced to disk."""
    leader_epochs: list[EpochView]
    size_bytes: int | None
    segment_count: int
    segments: list[SegmentView]
    """The newest segments, as many as `segments` of the request says, in offset order."""


class SettingView(Struct, rename="camel"):
    name: str
    value: str | None
    source: str
    """Where it is set: `topic`, `broker` or `all_brokers` (at run time), `file` (at the node's start), `default`."""
    what: str
    """Its meaning."""


class TopicView(Struct, rename="camel"):
    name: str
    topic_id: str
    partitions: list[PartitionView]
    segments: int
    """Number of segments in the partitions shown."""
    size_bytes: int
    segment_bytes: int
    retention_ms: int
    min_insync_replicas: int
    settings: list[SettingView]


class ListenerView(Struct, rename="camel"):
    name: str
    host: str
    port: int


class NodeView(Struct, rename="camel"):
    id: int
    host: str
    port: int
    """Address of its first listener, for Kafka clients."""
    listeners: list[ListenerView]
    rack: str | None
    is_fenced: bool
    """The broker is stopped, unreachable or starting: it leads no partition."""


class QuorumView(Struct, rename="camel"):
    leader_id: int
    epoch: int
    high_watermark: int
    """The first offset of the metadata log that is not committed."""
    voters: list[int]


class ClusterView(Struct, rename="camel"):
    cluster_id: str
    controller: int
    """The active controller."""
    nodes: list[NodeView]
    answered_by: int
    """The broker that answers."""
    log_directory: str
    """The log directory of that broker."""
    topics: int
    partitions: int
    quorum: QuorumView


class ViewLimits(NamedTuple):
    """How much of a topic is shown."""

    segments_max: int
    """Of each partition."""
    entries_max: int
    """Of each index."""
    partition: int | None = None
    """This one alone."""


# -- the cluster ------------------------------------------------------------------------------------------


def view_cluster(context: Context) -> ClusterView:
    image = context.image
    quorum = context.quorum.describe()
    return ClusterView(
        cluster_id=context.cluster_id,
        controller=quorum.leader_id,
        nodes=[_node(broker) for _, broker in sorted(image.brokers.items())],
        answered_by=context.node_id,
        log_directory=context.replicas.directory.layout.logs,
        topics=len(image.topics),
        partitions=sum(len(topic.partitions) for topic in image.topics.values()),
        quorum=QuorumView(
            leader_id=quorum.leader_id,
            epoch=quorum.epoch,
            high_watermark=quorum.high_watermark,
            voters=[voter.key.id for voter in quorum.voters],
        ),
    )


def _node(broker: Broker) -> NodeView:
    listeners = [ListenerView(each.name, each.host, each.port) for each in broker.endpoints]
    return NodeView(
        id=broker.id,
        host=listeners[0].host if listeners else "",
        port=listeners[0].port if listeners else -1,
        listeners=listeners,
        rack=broker.rack,
        is_fenced=broker.fenced,
    )


# -- a topic ----------------------------------------------------------------------------------------------


def view_partitions(
    context: Context, topic: Topic, wanted: ViewLimits, numbers: Sequence[int]
) -> Steps[list[PartitionView]]:
    """Some partitions of a topic, as far as this node has them."""
    glimpses = list(_glimpse(context, topic, wanted, numbers))
    views: list[PartitionView] = yield beside(
        context.world, lambda: _view_all(glimpses, wanted), reading_error
    )
    return views


def whole_view(context: Context, topic: Topic, partitions: list[PartitionView]) -> TopicView:
    name = topic.name
    rules = log_settings(name, context.image, context.settings)
    return TopicView(
        name=name,
        topic_id=uuid_text(topic.id),
        partitions=partitions,
        segments=sum(each.segment_count for each in partitions),
        size_bytes=sum(each.size_bytes or 0 for each in partitions),
        segment_bytes=rules.segment_bytes,
        retention_ms=rules.retention_ms,
        min_insync_replicas=min_insync_replicas(name, context.image, context.settings),
        settings=_settings(context, name),
    )


def _settings(context: Context, topic: str) -> list[SettingView]:
    resource = Resource(ResourceType.TOPIC, topic)
    found = {
        each.name: each for each in describe(resource, context.image, context.settings, frozenset(SHAPING))
    }
    return [
        SettingView(name, found[name].value, SOURCES[found[name].source], found[name].documentation)
        for name in SHAPING
    ]


class _SegmentGlimpse(NamedTuple):
    segment: Segment
    end_offset: Offset
    size_bytes: int
    is_active: bool
    is_compacted: bool


class _Glimpse(NamedTuple):
    """A partition at one moment, as far as memory knows it."""

    view: PartitionView
    """Without its segments."""
    segments: list[_SegmentGlimpse]


def _glimpse(
    context: Context, topic: Topic, wanted: ViewLimits, numbers: Sequence[int]
) -> Iterator[_Glimpse]:
    for number in numbers:
        if number not in topic.partitions:
            raise no_partition(topic, number)
        here = context.replicas.partitions.get(TopicPartition(topic.name, number))
        yield _glimpse_partition(number, topic.partitions[number], here, wanted)


def _glimpse_partition(
    number: int, placed: PartitionRegistration, here: Partition | None, wanted: ViewLimits
) -> _Glimpse:
    view = PartitionView(
        partition=number,
        leader=placed.leader,
        leader_epoch=placed.leader_epoch,
        replicas=list(placed.replicas),
        isr=list(placed.isr),
        directory=None,
        log_start_offset=None,
        log_end_offset=None,
        high_watermark=None,
        last_stable_offset=None,
        flushed_offset=None,
        leader_epochs=[],
        size_bytes=None,
        segment_count=0,
        segments=[],
    )
    if here is None:
        return _Glimpse(view, [])
    log = here.log
    view.directory = log.directory.rpartition("/")[2]
    view.log_start_offset, view.log_end_offset = log.log_start, log.log_end
    view.high_watermark, view.last_stable_offset = here.high_watermark, here.last_stable
    view.flushed_offset = log.flushed
    view.leader_epochs = [EpochView(each.epoch, each.offset) for each in log.epochs.entries]
    view.size_bytes = log.size_bytes
    segments = log.segments
    view.segment_count = len(segments)
    return _Glimpse(
        view,
        [
            _SegmentGlimpse(
                segments[index],
                segments.end_of(index),
                segments[index].size,
                index == len(segments) - 1,
                log.log_start < segments.end_of(index) <= log.clean_to,
            )
            for index in range(max(0, len(segments) - wanted.segments_max), len(segments))
        ],
    )


# -- beside the loop --------------------------------------------------------------------------------------


def reading_error(error: Exception) -> KafkaError:
    if isinstance(error, OSError):
        return StorageError(f"cannot read a segment: {error.strerror or error}")
    return KafkaError(str(error), ErrorCode.UNKNOWN_SERVER_ERROR)


class _Budget:
    """How many batches may still be counted for one request."""

    __slots__ = ("batches",)

    def __init__(self) -> None:
        self.batches = BATCHES_COUNTED_MAX


def _view_all(glimpses: list[_Glimpse], wanted: ViewLimits) -> list[PartitionView]:
    budget = _Budget()
    return [_view_partition(each, wanted, budget) for each in glimpses]


def _view_partition(glimpse: _Glimpse, wanted: ViewLimits, budget: _Budget) -> PartitionView:
    view = glimpse.view
    for each in glimpse.segments:
        try:
            view.segments.append(_view_segment(each, wanted.entries_max, budget))
        except FileNotFoundError:
            if not each.segment.gone:
                raise
            # Retention was quicker: the segment is no part of the log any more.
            view.segment_count -= 1
    return view


def _view_segment(glimpse: _SegmentGlimpse, entries_max: int, budget: _Budget) -> SegmentView:
    segment = glimpse.segment
    segment.index_bytes()  # which rebuilds lost indexes
    index, time_index = segment.index, segment.time_index
    return SegmentView(
        file=_name(segment.ref.path),
        base_offset=segment.base_offset,
        end_offset=glimpse.end_offset,
        size_bytes=glimpse.size_bytes,
        is_active=glimpse.is_active,
        largest_timestamp=segment.largest().timestamp,
        offset_index=OffsetIndexView(
            _name(index.ref.path),
            index.size_bytes() // OFFSET_ENTRY.size,
            index.size_bytes(),
            [OffsetIndexEntry(*each) for each in index.window(0, entries_max)],
        ),
        time_index=TimeIndexView(
            _name(time_index.ref.path),
            time_index.size_bytes() // TIME_ENTRY.size,
            time_index.size_bytes(),
            [TimeIndexEntry(*each) for each in time_index.window(0, entries_max)],
        ),
        first_timestamp=segment.first_timestamp(),
        is_compacted=glimpse.is_compacted,
        # Offsets have gaps only where compaction has removed records.
        records=_count(glimpse, budget) if glimpse.is_compacted else glimpse.end_offset - segment.base_offset,
    )


def _count(glimpse: _SegmentGlimpse, budget: _Budget) -> int | None:
    """The records of a segment; None if it has more batches than may be counted."""
    file, records = glimpse.segment.file(), 0
    for spot in walk_headers(file, 0, glimpse.size_bytes):
        if not budget.batches:
            return None
        budget.batches -= 1
        records += int.from_bytes(file.pread(4, spot.position + COUNT_AT), "big")
    return records


def _name(path: str) -> str:
    return path.rpartition("/")[2]
