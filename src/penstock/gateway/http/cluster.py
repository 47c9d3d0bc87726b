"""The cluster: its brokers and their disks, the active controller, the metadata quorum, and leader elections."""

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import uuid_text
from penstock.base.internal_topics import METADATA_TOPIC
from penstock.base.steps import Steps, next_tick
from penstock.gateway.http.protocol.messages import HttpError, Query, Request, Response, Routes, json
from penstock.gateway.http.protocol.parameters import PARTITION_MAX, TopicName
from penstock.gateway.peer_rpc.administration import ask_broker, ask_brokers
from penstock.gateway.peer_rpc.messages import GetLogDirectory, LogDirectory
from penstock.gateway.shared.access import ALTER_CLUSTER, DESCRIBE_CLUSTER, Rule
from penstock.gateway.shared.controller_call import decide
from penstock.handlers.cluster import quorum_of_leader
from penstock.handlers.support.context import Call, Context
from penstock.metadata.controller.requests import Election, ElectionResult, ElectLeaders
from penstock.metadata.image import Broker, ClusterImage
from penstock.wire import Api
from penstock.wire.catalogue import KAFKA_RANGES
from penstock.wire.messages import request_builder, response_builder

PARTITIONS_A_TICK: Final = 2_000
"""Partitions that are counted in one tick: some milliseconds."""

ELECTIONS_MAX: Final = 10_000
BROKER_ID_MAX: Final = 2**31 - 1

ROUTES = Routes("cluster")


class ListenerEndpoint(msgspec.Struct):
    listener: str
    host: str
    port: int


class BrokerDescription(msgspec.Struct):
    id: int
    rack: str | None
    fenced: bool
    """The broker is stopped, unreachable or starting: it leads no partition, and clients do not see it."""
    endpoints: list[ListenerEndpoint]
    """Addresses for Kafka clients."""


class ClusterDescription(msgspec.Struct):
    cluster_id: str
    node_id: int
    """The broker that answers."""
    controller: int | None
    """The active controller; null while there is none."""
    brokers: list[BrokerDescription]
    topics: int
    partitions: int
    """Number of partitions that the answering broker leads."""
    features: dict[str, int]
    """Finalized levels of the cluster's features, such as `metadata.version`."""


class Disk(msgspec.Struct):
    """The volume of a broker's log directory."""

    path: str
    total_bytes: int
    free_bytes: int
    logs_bytes: int
    """Size of the broker's logs."""


class BrokerDetails(msgspec.Struct):
    id: int
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    epoch: int
    """Rises with each start of the broker."""
    endpoints: list[ListenerEndpoint]
    is_controller: bool
    """Whether it is the active controller."""
    leaders: int
    """Partitions that it leads."""
    preferred_leaders: int
    """Partitions whose first replica it has."""
    replicas: int
    out_of_sync: int
    """Replicas that are not in the ISR."""
    disk: Disk | None
    """null for a broker that is fenced, or does not answer."""


class BrokerDetailsList(msgspec.Struct):
    brokers: list[BrokerDetails]


class TopicOnDisk(msgspec.Struct):
    topic: str
    partitions: int
    size_bytes: int


class BrokerLogs(msgspec.Struct):
    id: int
    disk: Disk
    partitions: int
    topics: list[TopicOnDisk]
    """The largest first."""


class QuorumReplica(msgspec.Struct):
    id: int
    directory_id: str | None
    log_end: int | None
    """Log end offset; null if the leader does not know it."""
    lag: int | None
    """Records behind the leader."""
    last_fetch_ms: int | None
    last_caught_up_ms: int | None
    """When it last had everything that the leader had."""
    endpoints: list[ListenerEndpoint]


class QuorumState(msgspec.Struct):
    leader: int
    epoch: int
    high_watermark: int
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]


class ElectionPartition(msgspec.Struct, forbid_unknown_fields=True):
    topic: TopicName
    partition: Annotated[int, Meta(ge=0, le=PARTITION_MAX)]


class ElectLeadersRequest(msgspec.Struct, forbid_unknown_fields=True):
    partitions: Annotated[list[ElectionPartition], Meta(min_length=1, max_length=ELECTIONS_MAX)] | None = None
    """null elects in all partitions that another replica leads."""


class PartitionOutcome(msgspec.Struct):
    topic: str
    partition: int
    error: str | None = None
    """Why nothing was changed; null if it was."""


class ElectLeadersResponse(msgspec.Struct):
    elected: int
    """Number of partitions with another leader now."""
    partitions: list[PartitionOutcome]


def _endpoints(broker: Broker) -> list[ListenerEndpoint]:
    return [ListenerEndpoint(each.name, each.host, each.port) for each in broker.endpoints]


@ROUTES.add(
    "GET",
    "/cluster",
    "The cluster id, the brokers and the active controller.",
    answer=ClusterDescription,
    rule=Rule((DESCRIBE_CLUSTER,)),
)
def _describe(gateway: Any, _: Request) -> Response:
    context: Context = gateway.context
    leader = context.quorum.leader_id
    brokers = [
        BrokerDescription(broker_id, broker.rack, broker.fenced, _endpoints(broker))
        for broker_id, broker in sorted(context.image.brokers.items())
    ]
    return json(
        ClusterDescription(
            context.cluster_id,
            context.node_id,
            leader if leader >= 0 else None,
            brokers,
            len(context.image.topics),
            len(context.replicas.by_key) // 2,  # by name and by id
            dict(sorted(context.image.features.items())),
        )
    )


# -- brokers -------------------------------------------------------------------------------------------------


@ROUTES.add(
    "GET",
    "/brokers",
    "All brokers, also fenced ones: endpoints, partitions and disks.",
    answer=BrokerDetailsList,
    rule=Rule((DESCRIBE_CLUSTER,)),
)
def _brokers(gateway: Any, _: Request) -> Steps[Response]:
    context: Context = gateway.context
    directories = yield from ask_brokers(context, GetLogDirectory())
    image = context.image
    counted = yield from _counts(context, image)
    rows = []
    for broker_id, broker in sorted(image.brokers.items()):
        directory = directories.get(broker_id)
        counts = counted.get(broker_id, _NONE)
        rows.append(
            BrokerDetails(
                broker_id,
                broker.rack,
                broker.fenced,
                broker.in_controlled_shutdown,
                broker.epoch,
                _endpoints(broker),
                broker_id == context.quorum.leader_id,
                counts["leaders"],
                counts["preferred"],
                counts["replicas"],
                counts["out_of_sync"],
                _disk(directory) if isinstance(directory, LogDirectory) else None,
            )
        )
    return json(BrokerDetailsList(rows))


_NONE: Final[Counter[str]] = Counter()


def _counts(context: Context, image: ClusterImage) -> Steps[dict[int, Counter[str]]]:
    """Numbers of partitions, by broker."""
    counts: dict[int, Counter[str]] = {}
    seen = 0
    for topic in image.topics.values():
        for each in topic.partitions.values():
            if each.leader >= 0:
                counts.setdefault(each.leader, Counter())["leaders"] += 1
            counts.setdefault(each.replicas[0], Counter())["preferred"] += 1
            for replica in each.replicas:
                of_broker = counts.setdefault(replica, Counter())
                of_broker["replicas"] += 1
                of_broker["out_of_sync"] += replica not in each.isr
            seen += 1
            if seen % PARTITIONS_A_TICK == 0:
                yield next_tick(context.world)
    return counts


def _disk(directory: LogDirectory) -> Disk:
    return Disk(directory.path, directory.total_bytes, directory.free_bytes, directory.logs_bytes)


@ROUTES.add(
    "GET",
    "/brokers/{broker}/logs",
    "The disk of a broker, and the sizes of its logs by topic.",
    query=(Query("limit", int, "Maximum number of topics.", default=1_000, min=1, max=10_000),),
    answer=BrokerLogs,
    errors=(404,),
    rule=Rule((DESCRIBE_CLUSTER,)),
)
def _logs(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    broker_id = broker_in(context, request)
    directory: LogDirectory = yield from ask_broker(context, broker_id, GetLogDirectory(with_topics=True))
    largest = sorted(directory.topics, key=lambda each: (-each.size_bytes, each.topic))
    rows = [
        TopicOnDisk(each.topic, each.partitions, each.size_bytes)
        for each in largest[: request.query["limit"]]
    ]
    return json(BrokerLogs(broker_id, _disk(directory), directory.partitions, rows))


def broker_in(context: Context, request: Request) -> int:
    """The id of a registered broker in the path."""
    text = request.path["broker"]
    if text.isascii() and text.isdigit() and len(text) <= 10 and int(text) in context.image.brokers:
        return int(text)
    known = ", ".join(str(each) for each in sorted(context.image.brokers))
    raise HttpError(404, "unknown_broker", f"there is no broker {text[:20]!r}; the cluster has {known}")


# -- the quorum ----------------------------------------------------------------------------------------------


@ROUTES.add(
    "GET",
    "/quorum",
    "The metadata quorum: its leader, voters and observers, and how far each has replicated the metadata log.",
    answer=QuorumState,
    rule=Rule((DESCRIBE_CLUSTER,)),
)
def _quorum(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    version = KAFKA_RANGES[Api.DESCRIBE_QUORUM].max
    ask = request_builder(Api.DESCRIBE_QUORUM, version)
    message = ask.DescribeQuorumRequest(
        topics=(ask.TopicData(topic_name=METADATA_TOPIC, partitions=(ask.PartitionData(partition_index=0),)),)
    )
    make = response_builder(Api.DESCRIBE_QUORUM, version)
    reply = yield from quorum_of_leader(context, Call(request.session, version, message, make, None))
    if int(reply.error_code):
        code = ErrorCode(int(reply.error_code))
        raise KafkaError(reply.error_message or "the quorum has no leader that answers. Retry.", code)
    [[state]] = (topic.partitions for topic in reply.topics)
    endpoints = {
        node.node_id: [ListenerEndpoint(each.name, each.host, each.port) for each in node.listeners]
        for node in reply.nodes
    }
    end = max(
        (each.log_end_offset for each in state.current_voters if each.replica_id == state.leader_id),
        default=-1,
    )

    def rows(replicas: Iterable[Any]) -> list[QuorumReplica]:
        return [
            QuorumReplica(
                each.replica_id,
                None if each.replica_directory_id is None else uuid_text(each.replica_directory_id.bytes),
                _known(each.log_end_offset),
                max(end - each.log_end_offset, 0) if min(end, each.log_end_offset) >= 0 else None,
                _known(each.last_fetch_timestamp),
                _known(each.last_caught_up_timestamp),
                endpoints.get(each.replica_id, []),
            )
            for each in replicas
        ]

    return json(
        QuorumState(
            state.leader_id,
            state.leader_epoch,
            state.high_watermark,
            rows(state.current_voters),
            rows(state.observers),
        )
    )


def _known(value: Any) -> int | None:
    return int(value) if value is not None and int(value) >= 0 else None


# -- elections -----------------------------------------------------------------------------------------------


@ROUTES.add(
    "POST",
    "/elections",
    "Elect the preferred leaders of partitions: the first of their replicas.",
    body=ElectLeadersRequest,
    answer=ElectLeadersResponse,
    rule=Rule((ALTER_CLUSTER,)),
)
def _elect(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    wanted: ElectLeadersRequest = request.body
    partitions = None
    if wanted.partitions is not None:
        partitions = tuple(dict.fromkeys((each.topic, each.partition) for each in wanted.partitions))
    results: tuple[ElectionResult, ...] = yield from decide(
        context, ElectLeaders(Election.PREFERRED, partitions)
    )
    rows = [outcome(each.topic, each.partition, each.result) for each in results]
    return json(ElectLeadersResponse(sum(each.error is None for each in rows), rows))


def outcome(topic: str, partition: int, result: Any) -> PartitionOutcome:
    if result.code is ErrorCode.NONE:
        return PartitionOutcome(topic, partition)
    return PartitionOutcome(topic, partition, result.message or result.code.name)
