"""The explorer: a look into a topic's segments and indexes, each partition seen by its leader. See
`docs/internals.md`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from penstock.base.errors import KafkaError
from penstock.base.ids import INT64_MAX
from penstock.base.steps import Steps
from penstock.gateway.http.protocol.messages import Answer, Query, Request, Response, Routes, json
from penstock.gateway.http.protocol.parameters import MOMENT, PARTITION_MAX, number_in, parse_moment
from penstock.gateway.peer_rpc.client import peer_rpc_of
from penstock.gateway.peer_rpc.messages import Inspect, InspectBatches, InspectIndexes, InspectLookup, View
from penstock.gateway.peer_rpc.routed_partition import RoutedPartition, find_partition
from penstock.gateway.shared.access import DESCRIBE_CLUSTER, TOPIC, Need, Rule
from penstock.gateway.shared.explorer import DEMO, RECORDS_MAX, DemoProduced, DemoSetup
from penstock.gateway.shared.log_inspection import (
    ClusterView,
    PartitionView,
    TopicView,
    ViewLimits,
    view_cluster,
    view_partitions,
    whole_view,
)
from penstock.gateway.shared.segment_inspection import (
    BatchPage,
    IndexView,
    Lookup,
    inspect_batches,
    inspect_indexes,
    inspect_lookup,
)
from penstock.gateway.shared.topics import find_topic
from penstock.handlers.support.context import Context, Session
from penstock.metadata.acls import Operation
from penstock.replica import Partition

if TYPE_CHECKING:
    from penstock.gateway.shared.gateway import Gateway


T = TypeVar("T")

ROUTES = Routes("explorer")

_WRITE_DEMO = Need(Operation.WRITE, TOPIC, name=DEMO)


def view_anywhere(
    context: Context, session: Session, name: str, wanted: ViewLimits, partitions: range | None = None
) -> Steps[TopicView]:
    """Of a partition whose leader does not answer, what this node has of it."""
    topic = find_topic(context, name)
    numbers = sorted(topic.partitions) if wanted.partition is None else [wanted.partition]
    if partitions is not None:
        numbers = [each for each in numbers if each in partitions]
    views = yield from view_partitions(context, topic, wanted, numbers)
    found = {each.partition: each for each in views}
    by_leader: dict[int, list[int]] = {}
    for number in numbers:
        leader = topic.partitions[number].leader
        if leader not in (context.node_id, -1):
            by_leader.setdefault(leader, []).append(number)
    asked = [
        peer_rpc_of(context).send(
            leader,
            View(topic.id, tuple(those), wanted.segments_max, wanted.entries_max),
            session=session,
        )
        for leader, those in by_leader.items()
    ]
    for answer in asked:
        try:
            there: list[PartitionView] = yield answer
        except KafkaError:
            continue
        found |= {each.partition: each for each in there}
    return whole_view(context, topic, [found[number] for number in numbers])


@ROUTES.add(
    "POST",
    "/api/architecture/setup",
    "Create the topic `architecture.demo`, with small segments, and write records to it, unless it exists.",
    answer=DemoSetup,
    rule=Rule((Need(Operation.CREATE, TOPIC, name=DEMO, or_on_cluster=True), _WRITE_DEMO)),
)
def setup(gateway: "Gateway", request: Request) -> Steps[Answer]:
    return json((yield from gateway.explorer.setup(request.session)))


@ROUTES.add(
    "GET",
    "/api/architecture/cluster-info",
    "The cluster id, the active controller, the brokers, and the log directory of this one.",
    answer=ClusterView,
    rule=Rule((DESCRIBE_CLUSTER,)),
)
def cluster_info(gateway: "Gateway", _: Request) -> Response:
    return json(view_cluster(gateway.context))


@ROUTES.add(
    "GET",
    "/api/architecture/topics/{name}",
    "A topic from the inside: leaders, in-sync replicas, segments, index entries, configs.",
    query=(
        Query("partition", int, "Only this partition.", min=0, max=PARTITION_MAX),
        Query("from", int, "Only partitions from this number on.", default=0, min=0, max=PARTITION_MAX),
        Query("partitions", int, "Maximum number of partitions; all without it.", min=1, max=PARTITION_MAX),
        Query(
            "segments",
            int,
            "Number of segments to show for each partition, the newest.",
            default=100,
            min=0,
            max=10_000,
        ),
        Query(
            "entries",
            int,
            "Number of entries to show for each index, the first.",
            default=3,
            min=0,
            max=1_000,
        ),
    ),
    answer=TopicView,
    errors=(404,),
    rule=Rule(
        (Need(Operation.DESCRIBE, TOPIC, "name"), Need(Operation.DESCRIBE_CONFIGS, TOPIC, "name")),
    ),
)
def topic(gateway: "Gateway", request: Request) -> Steps[Answer]:
    context, name = gateway.context, request.path["name"]
    query = request.query
    wanted = ViewLimits(query["segments"], query["entries"], query["partition"])
    first = query["from"]
    chosen = range(first, first + query["partitions"] if query["partitions"] else PARTITION_MAX)
    return json((yield from view_anywhere(context, request.session, name, wanted, chosen)))


# -- one segment ------------------------------------------------------------------------------------------

_DESCRIBE = Rule((Need(Operation.DESCRIBE, TOPIC, "name"),))
_OFFSET = Query("offset", int, "An offset in the segment.", is_required=True, min=0, max=INT64_MAX)


def _at_leader(
    gateway: "Gateway",
    request: Request,
    asked: Callable[[RoutedPartition], Inspect],
    here: Callable[[Partition], Steps[T]],
) -> Steps[Answer]:
    """Inspect a partition where it is led."""
    context = gateway.context
    partition = find_partition(context, find_topic(context, request.path["name"]).name, number_in(request))
    led = partition.here
    if led is not None:
        return json((yield from here(led)))
    return json(
        (
            yield peer_rpc_of(context).send(
                partition.leader, asked(partition), session=request.session, order_key=partition.number
            )
        )
    )


@ROUTES.add(
    "GET",
    "/api/architecture/topics/{name}/partitions/{partition}/batches",
    "The batches of a segment, in pages, from the one that holds an offset on.",
    query=(
        _OFFSET,
        Query("limit", int, "Maximum number of batches.", default=100, min=1, max=1_000),
    ),
    answer=BatchPage,
    errors=(404, 409),
    rule=_DESCRIBE,
)
def batches(gateway: "Gateway", request: Request) -> Steps[Answer]:
    offset, limit = request.query["offset"], request.query["limit"]
    return _at_leader(
        gateway,
        request,
        lambda each: InspectBatches(each.topic_id, each.number, offset, limit),
        lambda led: inspect_batches(gateway.context, led, offset, limit),
    )


@ROUTES.add(
    "GET",
    "/api/architecture/topics/{name}/partitions/{partition}/indexes",
    "Entries of a segment's offset index and time index around an offset.",
    query=(
        _OFFSET,
        Query("limit", int, "Maximum number of entries of each index.", default=20, min=1, max=1_000),
    ),
    answer=IndexView,
    errors=(404, 409),
    rule=_DESCRIBE,
)
def indexes(gateway: "Gateway", request: Request) -> Steps[Answer]:
    offset, limit = request.query["offset"], request.query["limit"]
    return _at_leader(
        gateway,
        request,
        lambda each: InspectIndexes(each.topic_id, each.number, offset, limit),
        lambda led: inspect_indexes(gateway.context, led, offset, limit),
    )


@ROUTES.add(
    "GET",
    "/api/architecture/topics/{name}/partitions/{partition}/lookup",
    "How the log finds the first record at or after an offset or a time: segment, index entries, scanned batches, "
    "record.",
    query=(
        Query("offset", int, "The offset to look up.", default=0, min=0, max=INT64_MAX),
        Query(
            "time",
            str,
            "The time to look up, instead of an offset: ISO 8601, or milliseconds since 1970.",
            pattern=MOMENT,
        ),
    ),
    answer=Lookup,
    errors=(404, 409),
    rule=_DESCRIBE,
)
def lookup(gateway: "Gateway", request: Request) -> Steps[Answer]:
    offset, text = request.query["offset"], request.query["time"]
    time = None if text is None else parse_moment("time", text)
    return _at_leader(
        gateway,
        request,
        lambda each: InspectLookup(each.topic_id, each.number, offset, 1, time),
        lambda led: inspect_lookup(gateway.context, led, offset, time),
    )


@ROUTES.add(
    "POST",
    "/api/architecture/produce",
    "Write more records to `architecture.demo`. 10,000 records roll several segments.",
    query=(Query("count", int, "Number of records.", default=1_000, min=1, max=RECORDS_MAX),),
    answer=DemoProduced,
    errors=(404,),
    rule=Rule((_WRITE_DEMO,)),
)
def produce(gateway: "Gateway", request: Request) -> Steps[Answer]:
    return json((yield from gateway.explorer.produce(request.session, request.query["count"])))
