"""Requests of clients, in any version, and how their replies are read.

kio has a class for each version of each message. Requests are built with one set of fields for all versions: fields
that a version does not have are left out. In replies, fields that a version lacks get a neutral value.
"""

from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.wire import Api, read_response, request_module, write_request
from penstock.wire.peers import Address

EARLIEST, LATEST = -2, -1
"""Timestamps with which ListOffsets returns an end of the log."""

TOPIC_IDS_FROM = {Api.PRODUCE: 13, Api.FETCH: 13}
"""First versions that use topic ids."""

TOPICS_DELETED_BY_ID_FROM = 6


R = TypeVar("R")


@cache
def _known(entity_type: type[Any]) -> frozenset[str]:
    return frozenset(field.name for field in fields(entity_type))


class RequestClasses:
    """The classes of one request in one version."""

    def __init__(self, api: Api, version: int) -> None:
        self.version = version
        self._module = request_module(api, version)

    def __getattr__(self, name: str) -> Any:
        entity_type = getattr(self._module, name)

        def make(**values: Any) -> Any:
            known = _known(entity_type)
            return entity_type(**{name: value for name, value in values.items() if name in known})

        setattr(self, name, make)
        return make


_request_classes = cache(RequestClasses)


class Request(NamedTuple, Generic[R]):
    """A request, before its version is chosen."""

    api: Api
    build: Callable[[RequestClasses], Any]
    read: Callable[[Any], R]
    """Returns the parts of the response that clients use."""

    def encode(self, version: int) -> bytes:
        return write_request(self.api, version, self.build(_request_classes(self.api, version)))

    def decode(self, version: int, body: memoryview) -> R:
        return self.read(read_response(self.api, version, body))


def whole_reply(api: Api, build: Callable[[RequestClasses], Any]) -> Request[Any]:
    """Return a request whose whole response is used."""
    return Request(api, build, lambda response: response)


def read_code(response: Any) -> int:
    return int(response.error_code)


def ms(count: int) -> timedelta:
    return timedelta(milliseconds=count)


class TopicName(NamedTuple):
    """Name and id of a topic."""

    name: str
    id: UUID | None


# -- ApiVersions, Metadata, CreateTopics, InitProducerId ----------------------------------------------------


API_VERSIONS: Request[dict[int, tuple[int, int]]] = Request(
    Api.API_VERSIONS,
    lambda make: make.ApiVersionsRequest(client_software_name="sim", client_software_version="1"),
    lambda response: {each.api_key: (each.min_version, each.max_version) for each in response.api_keys},
)


class TopicMetadata(NamedTuple):
    topic: TopicName
    code: int
    partitions: list[int]
    leaders: dict[int, Address]
    """Only partitions with a leader."""


def metadata(name: str, *, create: bool = False) -> Request[TopicMetadata]:
    """Describe a topic, and create it if necessary."""
    return Request(
        Api.METADATA,
        lambda make: make.MetadataRequest(
            topics=(make.MetadataRequestTopic(topic_id=None, name=name),),
            allow_auto_topic_creation=create,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        ),
        _read_metadata,
    )


def _read_metadata(response: Any) -> TopicMetadata:
    brokers = {each.node_id: Address(each.host, each.port) for each in response.brokers}
    (topic,) = response.topics
    leaders = {each.partition_index: each.leader_id for each in topic.partitions}
    return TopicMetadata(
        TopicName(topic.name, getattr(topic, "topic_id", None)),
        int(topic.error_code),
        sorted(leaders),
        {index: brokers[leader] for index, leader in leaders.items() if leader in brokers},
    )


class NewTopic(NamedTuple):
    name: str
    partition_count: int
    configs: dict[str, str]
    replication: int = 1


class TopicCreated(NamedTuple):
    code: int
    id: UUID | None


def create_topics(topics: list[NewTopic]) -> Request[dict[str, TopicCreated]]:
    return Request(
        Api.CREATE_TOPICS,
        lambda make: make.CreateTopicsRequest(
            topics=tuple(
                make.CreatableTopic(
                    name=each.name,
                    num_partitions=each.partition_count,
                    replication_factor=each.replication,
                    assignments=(),
                    configs=tuple(
                        make.CreatableTopicConfig(name=name, value=value)
                        for name, value in each.configs.items()
                    ),
                )
                for each in topics
            ),
            timeout=ms(5_000),
            validate_only=False,
        ),
        lambda response: {
            each.name: TopicCreated(int(each.error_code), getattr(each, "topic_id", None))
            for each in response.topics
        },
    )


def delete_topic(name: str | None, topic_id: UUID | None = None) -> Request[int]:
    """Delete a topic by its name or its id; the reply is an error code."""

    def build(make: RequestClasses) -> Any:
        if make.version < TOPICS_DELETED_BY_ID_FROM:
            return make.DeleteTopicsRequest(topic_names=(name,), timeout=ms(5_000))
        topic = make.DeleteTopicState(name=name, topic_id=topic_id)
        return make.DeleteTopicsRequest(topics=(topic,), timeout=ms(5_000))

    def read(response: Any) -> int:
        (topic,) = response.responses
        return int(topic.error_code)

    return Request(Api.DELETE_TOPICS, build, read)


class InitProducerIdReply(NamedTuple):
    code: int
    producer_id: int
    epoch: int


def init_producer_id(
    transactional_id: str | None = None, timeout_ms: int = 60_000, expected: tuple[int, int] = (-1, -1)
) -> Request[InitProducerIdReply]:
    return Request(
        Api.INIT_PRODUCER_ID,
        lambda make: make.InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout=ms(timeout_ms),
            producer_id=expected[0],
            producer_epoch=expected[1],
        ),
        lambda response: InitProducerIdReply(
            int(response.error_code), response.producer_id, response.producer_epoch
        ),
    )


# -- Produce ------------------------------------------------------------------------------------------------


class PartitionProduced(NamedTuple):
    partition: int
    code: int
    base_offset: int
    message: str


def produce(
    acks: int,
    timeout_ms: int,
    topic: TopicName,
    batches: dict[int, bytes],
    transactional_id: str | None = None,
) -> Request[list[PartitionProduced]]:
    """Send one batch per partition."""
    return Request(
        Api.PRODUCE,
        lambda make: make.ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout=ms(timeout_ms),
            topic_data=(
                make.TopicProduceData(
                    name=topic.name,
                    topic_id=topic.id,
                    partition_data=tuple(
                        make.PartitionProduceData(index=index, records=records)
                        for index, records in batches.items()
                    ),
                ),
            ),
        ),
        lambda response: [
            PartitionProduced(
                each.index, int(each.error_code), each.base_offset, getattr(each, "error_message", "") or ""
            )
            for topic in response.responses
            for each in topic.partition_responses
        ],
    )


# -- Fetch and ListOffsets ----------------------------------------------------------------------------------


class PartitionFetch(NamedTuple):
    """One partition of a Fetch request."""

    partition: int
    offset: int
    bytes_max: int


class FetchLimits(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int


class PartitionFetched(NamedTuple):
    partition: int
    code: int
    high_watermark: int
    log_start: int
    """-1 if the version does not have it."""
    aborted: list[tuple[int, int]]
    """Transactions that were aborted in what was fetched: producer id and first offset."""
    records: bytes
    preferred: int
    """The node that it should rather be read from; -1 for this one."""


class FetchReply(NamedTuple):
    code: int
    session_id: int
    partitions: list[PartitionFetched]


def fetch(
    limits: FetchLimits,
    session: tuple[int, int],
    topic: TopicName,
    requested: list[PartitionFetch],
    rack: str = "",
) -> Request[FetchReply]:
    def build(make: RequestClasses) -> Any:
        partitions = tuple(
            make.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=bytes_max)
            for index, offset, bytes_max in requested
        )
        asked = make.FetchTopic(topic=topic.name, topic_id=topic.id, partitions=partitions)
        return make.FetchRequest(
            max_wait=ms(limits.max_wait_ms),
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            isolation_level=limits.isolation_level,
            session_id=session[0],
            session_epoch=session[1],
            topics=(asked,) if requested else (),
            forgotten_topics_data=(),
            rack_id=rack,
        )

    return Request(Api.FETCH, build, _read_fetch)


def _read_fetch(response: Any) -> FetchReply:
    return FetchReply(
        int(getattr(response, "error_code", ErrorCode.NONE)),
        getattr(response, "session_id", 0),
        [
            PartitionFetched(
                each.partition_index,
                int(each.error_code),
                each.high_watermark,
                getattr(each, "log_start_offset", -1),
                [(one.producer_id, one.first_offset) for one in each.aborted_transactions or ()],
                each.records or b"",
                getattr(each, "preferred_read_replica", -1),
            )
            for topic in response.responses
            for each in topic.partitions
        ],
    )


def list_offsets(at: TopicPartition, timestamp: int) -> Request[tuple[int, int]]:
    """Ask for the offset of a timestamp; the reply has an error code and the offset."""

    def build(make: RequestClasses) -> Any:
        asked = make.ListOffsetsPartition(partition_index=at.partition, timestamp=timestamp)
        return make.ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=(make.ListOffsetsTopic(name=at.topic, partitions=(asked,)),),
            timeout=ms(5_000),
        )

    def read(response: Any) -> tuple[int, int]:
        (topic,) = response.topics
        (partition,) = topic.partitions
        return int(partition.error_code), partition.offset

    return Request(Api.LIST_OFFSETS, build, read)
