"""Writes the markers that end a transaction to each of its partitions.

Partitions that this broker leads get their marker appended; for the others, each leader gets one WriteTxnMarkers
request. A deleted partition needs no marker. Any other failure is retried without limit, because readers of committed
records wait for the marker. A marker on `__consumer_offsets` goes through the group coordinator of that partition,
which commits or drops the transaction's pending offsets.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TopicPartition
from penstock.base.internal_topics import OFFSETS_TOPIC
from penstock.base.promise import Promise
from penstock.base.world import World
from penstock.coordinator.runtime.group_service import GroupCoordinatorService
from penstock.coordinator.transactions.requests import Markers
from penstock.coordinator.transactions.state import EPOCH_BUMP_VERSION
from penstock.metadata.image import ClusterImage
from penstock.records import end_txn_marker
from penstock.replica import ALL_IN_SYNC, Partition, Replicas
from penstock.replica.broker_client import BrokerClient
from penstock.storage import Appended, Origin
from penstock.storage.producers import ACCEPT_LOSS_EPOCH
from penstock.wire import Api
from penstock.wire.request import Request, through_kio

logger = logging.getLogger(__name__)

WRITE_MS_MAX: Final = 30_000
"""How long a marker may take to be committed, as in Kafka (`request.timeout.ms`); then it is written again. A second
marker does no harm."""

RETRY_MS: Final = 100
"""Pause before a failed partition is retried."""

_DEPOSED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""Errors of a partition where a newer coordinator has already ended the transaction."""


class _MarkerWrite:
    """A `DelayedProduce`."""

    acks = ALL_IN_SYNC

    def __init__(self, appended: Appended, deadline_ms: int, committed: Promise[None]) -> None:
        self.appended = appended
        self.deadline_ms = deadline_ms
        self._committed = committed

    def settle(self, error: KafkaError | None) -> None:
        if error is None:
            self._committed.resolve(None)
        else:
            self._committed.fail(error)


class MarkerWriter:
    def __init__(
        self,
        world: World,
        replicas: Replicas,
        groups: GroupCoordinatorService,
        node_id: int,
        image: Callable[[], ClusterImage],
        broker_client: BrokerClient,
    ) -> None:
        self._world = world
        self._replicas = replicas
        self._groups = groups
        self._node_id = node_id
        self._image = image
        self._broker_client = broker_client

    def write(
        self, markers: Markers, written: Callable[[TopicPartition], None], is_over: Callable[[], bool]
    ) -> None:
        """Write a marker to each partition, and call `written` for each one committed. Stops retrying when
        `is_over`."""
        _Ending(self, markers, written, is_over).write(markers.partitions)

    def by_leader(self, names: Iterable[TopicPartition]) -> dict[int | None, list[TopicPartition]]:
        """The partitions by leader; None for deleted ones."""
        image = self._image()
        found: dict[int | None, list[TopicPartition]] = defaultdict(list)
        for name in sorted(names):
            partition = image.partition(name.topic, name.partition)
            found[None if partition is None else partition.leader].append(name)
        return found

    def is_here(self, leader: int) -> bool:
        return leader == self._node_id

    def send(self, leader: int, markers: Markers, names: list[TopicPartition]) -> Promise[Any]:
        """Have another broker write the markers."""
        return self._broker_client.send(
            leader, _request(markers, names), timeout_ms=WRITE_MS_MAX, purpose="markers"
        )

    def retry(self, call: Callable[[], None]) -> None:
        self._world.call_later(RETRY_MS, call)

    def append(
        self,
        name: TopicPartition,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        commit: bool,
        *,
        version: int = 0,
    ) -> Promise[None]:
        """Append one marker, of a transaction that ends under this `transaction.version`. Resolved when it is
        committed."""
        now_ms = self._world.now_ms()
        committed: Promise[None] = Promise()
        try:
            partition = self._replicas.find(name.topic, name.partition)
            if coordinator_epoch == ACCEPT_LOSS_EPOCH:
                _accept_loss(partition, producer_id, commit)
                committed.resolve(None)
                return committed
            if version >= EPOCH_BUMP_VERSION:
                _check_epoch(partition, producer_id, epoch)
            marker = end_txn_marker(producer_id, epoch, commit, coordinator_epoch, now_ms)
            shard = self._groups.shards.at(name.partition) if name.topic == OFFSETS_TOPIC else None
            if shard is not None:
                return shard.append_marker(marker, producer_id, commit)
            appended = partition.stage(memoryview(bytearray(marker)), ALL_IN_SYNC, now_ms, Origin.COORDINATOR)
        except KafkaError as error:
            committed.fail(error)
            return committed
        partition.wait(_MarkerWrite(appended, now_ms + WRITE_MS_MAX, committed))
        return committed


def _accept_loss(partition: Partition, producer_id: int, commit: bool) -> None:
    """Let readers of committed records pass the oldest in-doubt transaction of a producer."""
    if partition.may_be_deposed:
        raise KafkaError(
            f"This broker may no longer lead {partition.name}; refresh metadata and retry.",
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        )
    in_doubt = partition.log.producers.doubt_of(producer_id)
    if in_doubt is None or commit:
        raise KafkaError(
            f"{partition.name}: producer {producer_id} has no transaction in doubt to "
            f"{'commit' if commit else 'abort'}; a transaction in doubt can only be aborted.",
            ErrorCode.INVALID_TXN_STATE,
        )
    partition.accept_loss(in_doubt.first_offset)
    logger.warning(
        "%s: accepted the loss of the end of producer %d's transaction at offset %d; its records stay aborted, and "
        "readers of committed records continue to offset %d",
        partition.name,
        producer_id,
        in_doubt.first_offset,
        partition.last_stable,
    )


class _Ending:
    """One transaction's markers, until every partition has its own."""

    def __init__(
        self,
        writer: MarkerWriter,
        markers: Markers,
        written: Callable[[TopicPartition], None],
        is_over: Callable[[], bool],
    ) -> None:
        self._writer = writer
        self._markers = markers
        self._written = written
        self._is_over = is_over

    def write(self, names: Iterable[TopicPartition]) -> None:
        if self._is_over():
            return
        for leader, some in self._writer.by_leader(names).items():
            if leader is None:
                for name in some:
                    self._written(name)
            elif self._writer.is_here(leader):
                for name in some:
                    self._append(name)
            else:
                self._send(leader, some)

    def _append(self, name: TopicPartition) -> None:
        markers = self._markers
        self._writer.append(
            name,
            markers.producer.producer_id,
            markers.producer.epoch,
            markers.coordinator_epoch,
            markers.commit,
            version=markers.version,
        ).then(lambda _: self._settle({name: ErrorCode.NONE}), lambda error: self._settle({name: error.code}))

    def _send(self, leader: int, names: list[TopicPartition]) -> None:
        def on_reply(reply: Any) -> None:
            codes = {
                TopicPartition(topic.name, each.partition_index): ErrorCode(each.error_code)
                for marker in reply.markers
                for topic in marker.topics
                for each in topic.partitions
            }
            # A partition that the reply leaves out is retried.
            self._settle({name: codes.get(name, ErrorCode.NETWORK_EXCEPTION) for name in names})

        def on_error(_: KafkaError) -> None:
            self._settle(dict.fromkeys(names, ErrorCode.NETWORK_EXCEPTION))

        self._writer.send(leader, self._markers, names).then(on_reply, on_error)

    def _settle(self, codes: dict[TopicPartition, ErrorCode]) -> None:
        left = []
        for name, code in codes.items():
            if code is ErrorCode.NONE:
                self._written(name)
            elif code in _DEPOSED:
                logger.warning(
                    "%s: a newer coordinator already ended the transaction of transactional id %s",
                    name,
                    self._markers.transactional_id,
                )
            else:
                left.append(name)
        if left:
            self._writer.retry(lambda: self.write(left))


def _request(markers: Markers, names: list[TopicPartition]) -> Request[Any]:
    topics: dict[str, list[int]] = defaultdict(list)
    for name in names:
        topics[name.topic].append(name.partition)

    def build(make: Any) -> Any:
        marker = make.WritableTxnMarker(
            producer_id=markers.producer.producer_id,
            producer_epoch=markers.producer.epoch,
            transaction_result=markers.commit,
            topics=tuple(
                make.WritableTxnMarkerTopic(name=topic, partition_indexes=tuple(numbers))
                for topic, numbers in topics.items()
            ),
            coordinator_epoch=markers.coordinator_epoch,
            transaction_version=markers.version,
        )
        return make.WriteTxnMarkersRequest(markers=(marker,))

    return through_kio(Api.WRITE_TXN_MARKERS, build)


def _check_epoch(partition: Partition, producer_id: int, epoch: int) -> None:
    """Reject a late marker (KIP-1228): a marker with the epoch of the open transaction's records ends an earlier one.
    If no transaction is open, the marker is written again, which does no harm."""
    entry = partition.log.producers.by_id.get(producer_id)
    if entry is not None and entry.epoch == epoch and entry.txn_first_offset is not None:
        raise KafkaError(
            f"{partition.name}: the marker of producer {producer_id} has epoch {epoch}, the epoch of the open "
            f"transaction; expected a later epoch.",
            ErrorCode.INVALID_PRODUCER_EPOCH,
        )
