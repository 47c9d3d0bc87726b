"""Fetch requests for some partitions, without a session."""

from collections.abc import Mapping

from penstock.base.ids import Offset, TopicPartition
from penstock.wire import Api, FetchPartition, FetchRequest, FetchTopic
from penstock.wire.fetch import CONSUMER, NO_EPOCH, TOPIC_IDS, VERSION_MAX, VERSION_MIN
from penstock.wire.fetch_client import FetchResponse, fetch_body, read_fetch_response
from penstock.wire.request import Request

from .cluster import Cluster
from .topology import TopicKeys

_NO_SESSION, _NO_SESSION_EPOCH = 0, -1
_LOG_START_UNTOLD = -1


def fetch_request(
    cluster: Cluster,
    positions: Mapping[TopicPartition, Offset],
    *,
    wait_ms_max: int,
    bytes_max: int,
    isolation_level: int,
    partition_bytes_max: int | None = None,
    bytes_min: int = 1,
) -> Request[FetchResponse]:
    """A Fetch for partitions of one leader, whose topics are in the metadata. The reply has topic names."""
    limit = bytes_max if partition_bytes_max is None else partition_bytes_max
    topics: dict[str, list[FetchPartition]] = {}
    for partition, offset in positions.items():
        leader = cluster.leader(partition)
        epoch = NO_EPOCH if leader is None else leader.leader_epoch
        topics.setdefault(partition.topic, []).append(
            FetchPartition(partition.partition, epoch, offset, NO_EPOCH, _LOG_START_UNTOLD, limit)
        )
    keys = TopicKeys(cluster.info, topics)

    def write(version: int) -> bytes:
        named = [FetchTopic(keys.key(name, version >= TOPIC_IDS), topics[name]) for name in topics]
        request = FetchRequest(
            max_wait_ms=wait_ms_max,
            min_bytes=bytes_min,
            max_bytes=bytes_max,
            isolation_level=isolation_level,
            session_id=_NO_SESSION,
            session_epoch=_NO_SESSION_EPOCH,
            topics=named,
            forgotten=[],
            rack_id="",
            replica_id=CONSUMER,
            replica_epoch=NO_EPOCH,
            cluster_id=None,
        )
        return fetch_body(version, request)

    def read(body: memoryview, version: int) -> FetchResponse:
        response = read_fetch_response(body, version)
        return response._replace(topics=[(keys.name(key), inner) for key, inner in response.topics])

    return Request(Api.FETCH, VERSION_MIN, keys.newest(VERSION_MAX, TOPIC_IDS), write, read)
