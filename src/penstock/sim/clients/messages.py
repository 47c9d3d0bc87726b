"""Builds requests and parses replies of clients, in any version.

kio has a class for each version of each message. Requests are built with one set of fields for all versions: fields
that a version does not have are left out. In replies, fields that a version lacks get a neutral value.
"""

from dataclasses import fields
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.wire import Api, read_response, request_module, write_request
from penstock.wire.peers import Address

EARLIEST, LATEST = -2, -1
"""Timestamps with which ListOffsets returns an end of the log."""

TOPIC_IDS_FROM = {Api.PRODUCE: 13, Api.FETCH: 13}
"""First versions that use topic ids."""


@cache
def _known(entity_type: type[Any]) -> frozenset[str]:
    return frozenset(field.name for field in fields(entity_type))


class RequestClasses:
    """The classes of one request in one version."""

    def __init__(self, api: Api, version: int) -> None:
        self._module = request_module(api, version)

    def __getattr__(self, name: str) -> Any:
        entity_type = getattr(self._module, name)

        def make(**values: Any) -> Any:
            known = _known(entity_type)
            return entity_type(**{name: value for name, value in values.items() if name in known})

        setattr(self, name, make)
        return make


@cache
def request_classes(api: Api, version: int) -> RequestClasses:
    return RequestClasses(api, version)


def ms(count: int) -> timedelta:
    return timedelta(milliseconds=count)


class TopicName(NamedTuple):
    """Name and id of a topic."""

    name: str
    id: UUID | None


# -- ApiVersions, Metadata, CreateTopics, InitProducerId ----------------------------------------------------


def api_versions(version: int) -> bytes:
    make = request_classes(Api.API_VERSIONS, version)
    entity = make.ApiVersionsRequest(client_software_name="sim", client_software_version="1")
    return write_request(Api.API_VERSIONS, version, entity)


def read_api_versions(version: int, body: memoryview) -> dict[int, tuple[int, int]]:
    response = read_response(Api.API_VERSIONS, version, body)
    return {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}


def metadata(version: int, names: list[str], *, create: bool) -> bytes:
    make = request_classes(Api.METADATA, version)
    entity = make.MetadataRequest(
        topics=tuple(make.MetadataRequestTopic(topic_id=None, name=name) for name in names),
        allow_auto_topic_creation=create,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    return write_request(Api.METADATA, version, entity)


class TopicMetadata(NamedTuple):
    topic: TopicName
    code: int
    partitions: list[int]
    leaders: dict[int, Address]
    """Only partitions with a leader."""


def read_metadata(version: int, body: memoryview) -> list[TopicMetadata]:
    response = read_response(Api.METADATA, version, body)
    brokers = {each.node_id: Address(each.host, each.port) for each in response.brokers}
    return [
        TopicMetadata(
            TopicName(each.name, getattr(each, "topic_id", None)),
            int(each.error_code),
            sorted(partition.partition_index for partition in each.partitions),
            {
                partition.partition_index: brokers[partition.leader_id]
                for partition in each.partitions
                if partition.leader_id in brokers
            },
        )
        for each in response.topics
    ]


class NewTopic(NamedTuple):
    name: str
    partition_count: int
    configs: dict[str, str]
    replication: int = 1


def create_topics(version: int, topics: list[NewTopic]) -> bytes:
    make = request_classes(Api.CREATE_TOPICS, version)
    entity = make.CreateTopicsRequest(
        topics=tuple(
            make.CreatableTopic(
                name=each.name,
                num_partitions=each.partition_count,
                replication_factor=each.replication,
                assignments=(),
                configs=tuple(
                    make.CreatableTopicConfig(name=name, value=value) for name, value in each.configs.items()
                ),
            )
            for each in topics
        ),
        timeout=ms(5_000),
        validate_only=False,
    )
    return write_request(Api.CREATE_TOPICS, version, entity)


def read_create_topics(version: int, body: memoryview) -> dict[str, int]:
    """Return the error code of each topic."""
    response = read_response(Api.CREATE_TOPICS, version, body)
    return {each.name: int(each.error_code) for each in response.topics}


def init_producer_id(
    version: int,
    transactional_id: str | None = None,
    timeout_ms: int = 60_000,
    expected: tuple[int, int] = (-1, -1),
) -> bytes:
    make = request_classes(Api.INIT_PRODUCER_ID, version)
    entity = make.InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout=ms(timeout_ms),
        producer_id=expected[0],
        producer_epoch=expected[1],
    )
    return write_request(Api.INIT_PRODUCER_ID, version, entity)


class InitProducerIdReply(NamedTuple):
    code: int
    producer_id: int
    epoch: int


def read_init_producer_id(version: int, body: memoryview) -> InitProducerIdReply:
    response = read_response(Api.INIT_PRODUCER_ID, version, body)
    return InitProducerIdReply(int(response.error_code), response.producer_id, response.producer_epoch)


# -- Produce ------------------------------------------------------------------------------------------------


def produce(
    version: int,
    acks: int,
    timeout_ms: int,
    topic: TopicName,
    batches: dict[int, bytes],
    transactional_id: str | None = None,
) -> bytes:
    """Return the body of a Produce with one batch per partition."""
    make = request_classes(Api.PRODUCE, version)
    entity = make.ProduceRequest(
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
    )
    return write_request(Api.PRODUCE, version, entity)


class PartitionProduced(NamedTuple):
    partition: int
    code: int
    base_offset: int
    message: str


def read_produce(version: int, body: memoryview) -> list[PartitionProduced]:
    response = read_response(Api.PRODUCE, version, body)
    return [
        PartitionProduced(
            each.index, int(each.error_code), each.base_offset, getattr(each, "error_message", "") or ""
        )
        for topic in response.responses
        for each in topic.partition_responses
    ]


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


def fetch(
    version: int,
    limits: FetchLimits,
    session: tuple[int, int],
    topic: TopicName,
    requested: list[PartitionFetch],
    rack: str = "",
) -> bytes:
    make = request_classes(Api.FETCH, version)
    partitions = tuple(
        make.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=bytes_max)
        for index, offset, bytes_max in requested
    )
    asked = make.FetchTopic(topic=topic.name, topic_id=topic.id, partitions=partitions)
    entity = make.FetchRequest(
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
    return write_request(Api.FETCH, version, entity)


class PartitionFetched(NamedTuple):
    partition: int
    code: int
    high_watermark: int
    log_start: int
    """-1 if the version does not have it."""
    aborted: list[tuple[int, int]]
    """Transactions that were aborted in what was fetched: producer id and first offset."""
    records: bytes
    preferred: int = -1
    """The node that it should rather be read from; -1 for this one."""


class FetchReply(NamedTuple):
    code: int
    session_id: int
    partitions: list[PartitionFetched]


def read_fetch(version: int, body: memoryview) -> FetchReply:
    response = read_response(Api.FETCH, version, body)
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


def list_offsets(version: int, at: TopicPartition, timestamp: int) -> bytes:
    make = request_classes(Api.LIST_OFFSETS, version)
    asked = make.ListOffsetsPartition(partition_index=at.partition, timestamp=timestamp)
    entity = make.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=(make.ListOffsetsTopic(name=at.topic, partitions=(asked,)),),
        timeout=ms(5_000),
    )
    return write_request(Api.LIST_OFFSETS, version, entity)


def read_list_offsets(version: int, body: memoryview) -> tuple[int, int]:
    """The error code and the offset of the one partition that was asked about."""
    response = read_response(Api.LIST_OFFSETS, version, body)
    (topic,) = response.topics
    (partition,) = topic.partitions
    return int(partition.error_code), partition.offset
