"""Sends requests to the coordinator of a group or a transactional id, to a partition's leader, or to every broker.

Each call looks its coordinator up, since it may have moved since the last call. If the broker is not the coordinator,
or is still loading, the coordinator is looked up again after a pause, until the call's timeout.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.wire import Api
from penstock.wire.request import Request, through_kio

from .cluster import Backoff, Cluster
from .errors import NETWORK_ERRORS, RETRIABLE, BrokerGone, code_of, no_partition, refused

T = TypeVar("T")

AGAIN = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Retriable errors of coordinators. UNKNOWN_TOPIC_OR_PARTITION is not one of them: a commit for an unknown topic has
a wrong name."""


class Kind(IntEnum):
    """Kinds of keys in FindCoordinator; the numbers are the protocol's."""

    GROUP = 0
    TRANSACTION = 1

    def __str__(self) -> str:
        return "group" if self is Kind.GROUP else "transactional id"


class Answer(NamedTuple, Generic[T]):
    node_id: int
    """The broker that answered."""
    reply: T


def find_coordinator(cluster: Cluster, kind: Kind, name: str, timeout_ms: float | None = None) -> int:
    """The coordinator of a group or a transactional id. The first request of its kind makes the cluster create the
    internal topic, which takes a moment."""

    def build(make: Any) -> Any:
        if make.version >= 4:
            return make.FindCoordinatorRequest(key_type=int(kind), coordinator_keys=(name,))
        return make.FindCoordinatorRequest(key_type=int(kind), key=name)

    request = through_kio(Api.FIND_COORDINATOR, build, version_min=0 if kind is Kind.GROUP else 1)
    backoff = cluster.backoff(timeout_ms)
    while True:
        reply = cluster.ask_any(request, backoff.left_ms)
        answer = reply.coordinators[0] if hasattr(reply, "coordinators") and reply.coordinators else reply
        code = int(answer.error_code)
        if not code:
            return int(answer.node_id)
        problem = refused(f"coordinator of {kind} {name}", code, getattr(answer, "error_message", None))
        if code not in AGAIN:
            raise problem
        backoff.pause(problem)


def ask_coordinator(
    cluster: Cluster, kind: Kind, name: str, request: Request[T], code_of: Callable[[T], int] = code_of
) -> Answer[T]:
    """Send a request to a coordinator. `code_of` returns the code of a reply; the request is retried while it is in
    AGAIN."""
    backoff = cluster.backoff()
    while True:
        node_id = find_coordinator(cluster, kind, name, backoff.left_ms)
        try:
            reply = _ask(cluster, node_id, request, backoff)
        except NETWORK_ERRORS as error:
            backoff.pause(error)
            continue
        code = code_of(reply)
        if code not in AGAIN:
            return Answer(node_id, reply)
        backoff.pause(refused(f"{kind} {name}", code))


def ask_brokers(cluster: Cluster, request: Request[Any], what: str) -> list[Answer[Any]]:
    """Send a request to every broker. Raises unless all answer.

    If a broker leaves the cluster meanwhile, its groups move to other brokers, which may have answered before: then
    the remaining brokers are asked again.
    """
    backoff = cluster.backoff()
    while True:
        cluster.refresh([], timeout_ms=backoff.left_ms)
        node_ids = sorted(cluster.info.brokers)
        try:
            return [Answer(each, _ask_broker(cluster, each, request, what, backoff)) for each in node_ids]
        except BrokerGone as error:
            backoff.pause(error)


def _ask_broker(cluster: Cluster, node_id: int, request: Request[Any], what: str, backoff: Backoff) -> Any:
    while True:
        reply = cluster.ask_node(node_id, request, backoff.left_ms)
        code = code_of(reply)
        if not code:
            return reply
        problem = refused(f"{what} of broker {node_id}", code)
        if code not in AGAIN:
            raise problem
        backoff.pause(problem)


def ask_leader(
    cluster: Cluster, partition: TopicPartition, request: Request[T], code_of: Callable[[T], int]
) -> T:
    """Send a request to the leader of a partition; refresh metadata and retry if it has moved."""
    backoff = cluster.backoff()
    topic = cluster.topic(partition.topic)
    if partition.partition not in topic.partitions:
        raise no_partition(partition.topic, partition.partition, len(topic.partitions))
    while True:
        leader = cluster.leader(partition)
        problem: Exception = refused(f"partition {partition}", ErrorCode.LEADER_NOT_AVAILABLE)
        if leader is not None:
            try:
                reply = _ask(cluster, leader.leader, request, backoff)
            except NETWORK_ERRORS as error:
                problem = error
            else:
                code = code_of(reply)
                if code not in RETRIABLE:
                    return reply
                problem = refused(f"partition {partition}", code)
        backoff.pause(problem)
        cluster.refresh([partition.topic], timeout_ms=backoff.left_ms)


def _ask(cluster: Cluster, node_id: int, request: Request[T], backoff: Backoff) -> T:
    if node_id not in cluster.info.brokers:
        cluster.refresh([], timeout_ms=backoff.left_ms)
    return cluster.link(node_id).ask(
        request, max(1.0, min(cluster.settings.request_timeout_ms, backoff.left_ms))
    )
