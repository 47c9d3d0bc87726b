"""Produce requests: built, waited for, and their results read.

Shared by `producer`, which has one request at a time for each broker, and by Spark's sink, which has several batches
of a partition in flight. Each keeps its own queues and decides when a batch leaves.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from penstock.base.ids import TopicPartition
from penstock.wire import Api, NodeEndpoint, ProducePartition, ProduceRequest, ProduceResult, ProduceTopic
from penstock.wire.produce import TOPIC_IDS, VERSION_MAX, VERSION_MIN
from penstock.wire.produce_client import ProduceResponse, produce_body, read_produce_response
from penstock.wire.request import Request

from .cluster import Cluster
from .connection import Call
from .errors import NETWORK_ERRORS, ClientError, refused
from .network import Link
from .topology import TopicKeys

ACKS_ALL = -1
REFRESH_MS = 5_000
"""Time limit of one metadata refresh; another follows."""


class Flight(Protocol):
    """A request on its way."""

    @property
    def link(self) -> Link: ...
    @property
    def call(self) -> Call[ProduceResponse]: ...
    @property
    def started_ms(self) -> float: ...


def produce_request(
    cluster: Cluster,
    contents: Mapping[TopicPartition, bytes],
    *,
    acks: int = ACKS_ALL,
    transactional_id: str | None = None,
    version_min: int = VERSION_MIN,
    version_max: int = VERSION_MAX,
) -> Request[ProduceResponse]:
    topics: dict[str, list[ProducePartition]] = {}
    for (topic, partition), encoded in contents.items():
        topics.setdefault(topic, []).append(ProducePartition(partition, memoryview(encoded)))
    keys = TopicKeys(cluster.info, topics)
    timeout_ms = cluster.settings.request_timeout_ms

    def write(version: int) -> bytes:
        named = [ProduceTopic(keys.key(name, version >= TOPIC_IDS), topics[name]) for name in topics]
        return produce_body(version, ProduceRequest(transactional_id, acks, timeout_ms, named))

    def read(body: memoryview, version: int) -> ProduceResponse:
        response = read_produce_response(body, version)
        return response._replace(topics=[(keys.name(key), inner) for key, inner in response.topics])

    newest = min(keys.newest(VERSION_MAX, TOPIC_IDS), version_max)
    return Request(Api.PRODUCE, version_min, newest, write, read, is_settled=acks != 0)


def read_replies(cluster: Cluster, flights: Collection[Flight], wait_ms: float) -> None:
    """Wait for a reply to one of these requests; close the connection of a request that is overdue."""
    links = {id(each.link): each.link for each in flights if each.link.is_open}
    for link in cluster.network.wait(list(links.values()), wait_ms):
        with suppress(*NETWORK_ERRORS):  # its calls carry the error
            link.read()
    now_ms = cluster.clock.now_ms()
    for flight in flights:
        # The broker waits up to the request timeout for its followers, so its reply gets a little more time.
        limit_ms = cluster.settings.request_timeout_ms * 1.5
        if not flight.call.is_done and now_ms - flight.started_ms > limit_ms:
            flight.link.close()


def error_of(partition: TopicPartition, result: ProduceResult) -> ClientError:
    """The error of a batch that the broker refused."""
    messages = "; ".join(dict.fromkeys(each.message for each in result.record_errors if each.message))
    return refused(f"partition {partition}", result.error_code, messages or result.error_message)


def learn_leader(
    cluster: Cluster, partition: TopicPartition, result: ProduceResult, endpoints: Sequence[NodeEndpoint]
) -> bool:
    """Take the leader that a refusal names, if any; otherwise metadata must be refreshed."""
    return result.current_leader is not None and cluster.learn(partition, result.current_leader, endpoints)


def retry_time_ms(cluster: Cluster, attempts: int) -> float:
    """When to send a batch again: exponential backoff with jitter."""
    client = cluster.settings
    pause_ms = min(client.retry_backoff_ms * 2 ** min(attempts, 10), client.retry_backoff_ms_max)
    return float(cluster.clock.now_ms() + pause_ms * cluster.rng.uniform(0.8, 1.2))
