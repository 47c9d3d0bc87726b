"""A cluster as a client sees it: brokers, leaders, connections and retries.

There is one connection per address, made when needed and kept. Metadata is cached by topic, and refreshed when a
broker rejects a request as misdirected, when it is old, or when a topic is unknown. A call is retried after a
retriable error, with growing pauses, until its timeout; then the last error is raised. If no bootstrap server
could ever be reached, there is no retry: a mistyped address fails at once.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition, Uuid
from penstock.wire import Api, CurrentLeader, NodeEndpoint
from penstock.wire.request import Request, through_kio

from .errors import (
    NETWORK_ERRORS,
    RETRIABLE,
    BrokerGone,
    ClientError,
    Unreachable,
    refused,
)
from .network import Link, Network, SocketNetwork
from .settings import Address, ClientSettings, Clock, Closing, SystemClock, listing
from .topology import NO_NODE, BrokerInfo, ClusterInfo, PartitionInfo, TopicInfo, read_metadata

T = TypeVar("T")


class Backoff:
    """Pauses between tries, which double each time, with 20% jitter, until a deadline."""

    def __init__(
        self,
        settings: ClientSettings,
        clock: Clock,
        rng: random.Random,
        timeout_ms: float,
        on_retry: Callable[[Exception], None],
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._on_retry = on_retry
        self._pause_ms = float(settings.retry_backoff_ms)
        self._pause_ms_max = float(settings.retry_backoff_ms_max)
        self.deadline_ms = clock.now_ms() + timeout_ms

    @property
    def left_ms(self) -> float:
        return self.deadline_ms - self._clock.now_ms()

    def next_pause_ms(self) -> float:
        pause_ms = self._pause_ms * self._rng.uniform(0.8, 1.2)
        self._pause_ms = min(2 * self._pause_ms, self._pause_ms_max)
        return pause_ms

    def pause(self, error: Exception) -> None:
        """Sleep before the next try; raise the error if there is no time left."""
        pause_ms = self.next_pause_ms()
        if pause_ms >= self.left_ms:
            raise error
        self._on_retry(error)
        self._clock.sleep_ms(pause_ms)


class Cluster(Closing):
    def __init__(
        self,
        servers: Sequence[Address],
        settings: ClientSettings | None = None,
        *,
        network: Network | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        retries_bootstrap: bool = False,
        on_retry: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        """With `retries_bootstrap`, retry also if no bootstrap server has ever answered; else that fails at once."""
        self.settings = settings or ClientSettings()
        self.clock = clock or SystemClock()
        self.rng = rng or random.Random()
        self.network: Network = network or SocketNetwork(self.settings, self.clock)
        self.info = ClusterInfo(None, NO_NODE, {}, {})
        """The last metadata, with all topics requested so far."""
        self._servers = list(servers)
        self._links: dict[Address, Link] = {}
        self._has_answered = retries_bootstrap
        self.on_retry = on_retry
        """Called with the error before each retry of a call or of a produced batch."""
        self._refreshed_ms: dict[str, float] = {}

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()

    def backoff(self, timeout_ms: float | None = None) -> Backoff:
        limit = self.settings.api_timeout_ms if timeout_ms is None else timeout_ms
        return Backoff(self.settings, self.clock, self.rng, limit, self.on_retry)

    # -- connections ----------------------------------------------------------------------------------

    def link_to(self, address: Address) -> Link:
        link = self._links.get(address)
        if link is None or not link.is_open:
            link = self._links[address] = self.network.connect(address)
            self._has_answered = True
        return link

    def link(self, node_id: int) -> Link:
        """The connection to a broker. Raises Unreachable if it is unknown or does not answer."""
        broker = self.info.brokers.get(node_id)
        if broker is None:
            raise Unreachable(f"broker {node_id} is not known to the cluster")
        return self.link_to(broker.address)

    def _candidates(self) -> list[Address]:
        """All addresses: open connections first, then brokers in random order, then bootstrap servers."""
        is_open = [address for address, link in self._links.items() if link.is_open]
        known = [each.address for each in self.info.brokers.values()]
        self.rng.shuffle(known)
        return list(dict.fromkeys([*is_open, *known, *self._servers]))

    # -- calls ----------------------------------------------------------------------------------------

    def ask_any(self, request: Request[T], timeout_ms: float | None = None) -> T:
        """Send a request to any broker."""
        backoff = self.backoff(timeout_ms)
        while True:
            errors: list[ClientError] = []
            candidates = self._candidates()
            for address in candidates:
                try:
                    return self.link_to(address).ask(request, self._share(backoff))
                except NETWORK_ERRORS as error:
                    errors.append(error)
            if not self._has_answered:
                raise errors[0] if len(errors) == 1 else _none_of(candidates, errors)
            backoff.pause(errors[-1])

    def ask_node(self, node_id: int, request: Request[T], timeout_ms: float | None = None) -> T:
        """Send a request to one broker; refresh its address and retry if it does not answer."""
        backoff = self.backoff(timeout_ms)
        while True:
            if node_id not in self.info.brokers:
                self.refresh([], timeout_ms=backoff.left_ms)
                if node_id not in self.info.brokers:
                    ids = ", ".join(str(each) for each in sorted(self.info.brokers))
                    raise BrokerGone(
                        f"there is no broker {node_id}, the cluster has {ids}", ErrorCode.BROKER_NOT_AVAILABLE
                    )
            try:
                return self.link(node_id).ask(request, self._share(backoff))
            except NETWORK_ERRORS as error:
                backoff.pause(error)
                self.refresh([], timeout_ms=backoff.left_ms)

    def ask_controller(
        self, request: Request[T], code_of: Callable[[T], int], timeout_ms: float | None = None
    ) -> T:
        """Send a change of metadata to the controller. `code_of` returns the error code of a reply."""
        backoff = self.backoff(timeout_ms)
        if not self.info.brokers:
            self.refresh([], timeout_ms=backoff.left_ms)
        while True:
            controller = self.info.controller_id
            is_known = controller in self.info.brokers
            try:
                reply = (
                    self.ask_node(controller, request, backoff.left_ms)
                    if is_known
                    else self.ask_any(request, backoff.left_ms)
                )
            except BrokerGone as error:  # the controller has moved, or is about to
                backoff.pause(error)
            else:
                code = code_of(reply)
                if code not in RETRIABLE or code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    return reply
                backoff.pause(refused(request.api.label, code))
            self.refresh([], timeout_ms=backoff.left_ms)

    def _share(self, backoff: Backoff) -> float:
        """Timeout of one request: at least 1 ms, so that the last try is made."""
        return max(1.0, min(self.settings.request_timeout_ms, backoff.left_ms))

    # -- metadata -------------------------------------------------------------------------------------

    def refresh(
        self, topics: Iterable[str] | None, *, create: bool = False, timeout_ms: float | None = None
    ) -> ClusterInfo:
        """Fetch metadata of some topics, or of all if None. Returns the metadata of this response."""
        names = None if topics is None else list(dict.fromkeys(topics))
        # Version 4 is the first with allow_auto_topic_creation.
        request = through_kio(Api.METADATA, lambda make: _metadata(make, names, create), version_min=4)
        latest = read_metadata(self.ask_any(request, timeout_ms))
        now_ms = self.clock.now_ms()
        known = dict(self.info.topics) if names is not None else {}
        for name, topic in latest.topics.items():
            known[name] = _newer(known.get(name), topic)
            self._refreshed_ms[name] = now_ms
        # A broker that has just started may report no brokers; then the known ones are the best guess.
        brokers = latest.brokers or self.info.brokers
        self.info = ClusterInfo(latest.cluster_id, latest.controller_id, brokers, known)
        return latest._replace(topics={name: known[name] for name in latest.topics})

    def topic(self, name: str, *, create: bool = False, wait_ms: float = 0) -> TopicInfo:
        """Metadata of a topic. Raises after wait_ms if the topic does not exist."""
        known = self.info.topics.get(name)
        age_ms = self.clock.now_ms() - self._refreshed_ms.get(name, 0.0)
        if known is not None and not known.error_code and age_ms < self.settings.metadata_age_ms_max:
            return known
        backoff = self.backoff(wait_ms)
        patient = self.backoff()
        while True:
            found = self.refresh([name], create=create, timeout_ms=patient.left_ms).topics.get(name)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if found is None else found.error_code
            if found is not None and not code:
                return found
            problem = refused(f"topic {name}", code)
            if code == ErrorCode.LEADER_NOT_AVAILABLE:
                patient.pause(problem)  # it is being created
            elif code in RETRIABLE:
                backoff.pause(problem)
            else:
                raise problem

    def leader(self, partition: TopicPartition) -> PartitionInfo | None:
        """Metadata of a partition; None unless its leader is a known broker."""
        topic = self.info.topics.get(partition.topic)
        found = None if topic is None else topic.partitions.get(partition.partition)
        return found if found is not None and found.leader in self.info.brokers else None

    def topic_name(self, topic_id: Uuid) -> str | None:
        return next((each.name for each in self.info.topics.values() if each.topic_id == topic_id), None)

    def learn(
        self, partition: TopicPartition, leader: CurrentLeader, endpoints: Sequence[NodeEndpoint]
    ) -> bool:
        """Apply the new leader that a response reports (KIP-951). Return whether it was not known."""
        topic = self.info.topics.get(partition.topic)
        known = None if topic is None else topic.partitions.get(partition.partition)
        if topic is None or known is None or leader.leader_epoch <= known.leader_epoch:
            return False
        for node_id, host, port, rack in endpoints:
            self.info.brokers[node_id] = BrokerInfo(node_id, Address(host, port), rack)
        topic.partitions[partition.partition] = known._replace(
            leader=leader.leader_id, leader_epoch=leader.leader_epoch, error_code=0
        )
        return leader.leader_id in self.info.brokers


def _metadata(make: Any, names: list[str] | None, create: bool) -> Any:
    fields: dict[str, Any] = {
        "allow_auto_topic_creation": create,
        "include_topic_authorized_operations": False,
    }
    if make.version <= 10:  # newer versions have it in DescribeCluster
        fields["include_cluster_authorized_operations"] = False
    topics = None
    if names is not None:
        topics = tuple(make.MetadataRequestTopic(topic_id=None, name=name) for name in names)
    return make.MetadataRequest(topics=topics, **fields)


def _newer(known: TopicInfo | None, latest: TopicInfo) -> TopicInfo:
    """Merge metadata. A broker may lag: a leader of an older epoch than the known one is ignored."""
    if known is None or known.topic_id is None or known.topic_id != latest.topic_id:
        return latest
    for index, before in known.partitions.items():
        now = latest.partitions.get(index)
        if now is not None and 0 <= now.leader_epoch < before.leader_epoch:
            latest.partitions[index] = before
    return latest


def _none_of(addresses: Sequence[Address], errors: Sequence[ClientError]) -> Unreachable:
    reasons = list(dict.fromkeys(str(each).rpartition(": ")[2] for each in errors))
    return Unreachable(f"cannot reach any of {listing(addresses)}: {', '.join(reasons)}")
