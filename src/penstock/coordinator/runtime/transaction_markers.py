"""The ends of transactions, written to the partitions that took part, until every one of them has its marker.

A partition that is led here gets its marker appended, those of another broker go there in one request. A partition
that is no more has nothing to end. Anything else is tried again, for ever: readers wait for it. A marker on
`__consumer_offsets` is told to the group coordinator there, whose pending offsets it decides.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TopicPartition
from penstock.base.promise import Promise
from penstock.base.world import World
from penstock.coordinator.runtime.group_service import OFFSETS_TOPIC, GroupCoordinatorService
from penstock.coordinator.transactions import Markers
from penstock.coordinator.transactions.state import EPOCH_BUMP_VERSION
from penstock.metadata import ClusterImage
from penstock.records import end_txn_marker
from penstock.replica import ALL_IN_SYNC, Partition, Replicas
from penstock.replica.broker_client import BrokerClient
from penstock.storage import Appended, Origin
from penstock.storage.producers import ACCEPT_LOSS_EPOCH
from penstock.wire import Api
from penstock.wire.peers import PeerFailed
from penstock.wire.request import Request, through_kio

logger = logging.getLogger(__name__)

WRITE_MS_MAX: Final = 30_000
"""How long a marker may take to be written, as long as in Kafka (`request.timeout.ms`); then it is written again. A
partition takes a second one without harm."""

RETRY_MS: Final = 100
"""After how long a partition that could not be written is tried again."""

_DEPOSED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""What a partition says when a newer coordinator has ended the transaction."""

Done = Callable[[KafkaError | None], None]


class _MarkerWrite:
    """A `DelayedProduce`."""

    acks = ALL_IN_SYNC

    def __init__(self, appended: Appended, deadline_ms: int, done: Done) -> None:
        self.appended = appended
        self.deadline_ms = deadline_ms
        self.settle = done


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
        """Write them all; `written` is told of each. `is_over` says that nobody waits any more."""
        _Ending(self, markers, written, is_over).write(markers.partitions)

    def by_leader(self, names: Iterable[TopicPartition]) -> dict[int | None, list[TopicPartition]]:
        """Where markers go: None for partitions that are no more."""
        image = self._image()
        found: dict[int | None, list[TopicPartition]] = defaultdict(list)
        for name in sorted(names):
            partition = image.partition(name.topic, name.partition)
            found[None if partition is None else partition.leader].append(name)
        return found

    def is_here(self, leader: int) -> bool:
        return leader == self._node_id

    def ask(self, leader: int, markers: Markers, names: list[TopicPartition]) -> Promise[Any]:
        """Have another broker write them."""
        return self._broker_client.send(
            leader, _request(markers, names), timeout_ms=WRITE_MS_MAX, purpose="markers"
        )

    def again(self, call: Callable[[], None]) -> None:
        self._world.call_later(RETRY_MS, call)

    def append(
        self,
        name: TopicPartition,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        commit: bool,
        done: Done,
        *,
        version: int = 0,
    ) -> None:
        """Write one marker, of an end in a `transaction.version`; `done` is told when it is committed, or why not."""
        now_ms = self._world.now_ms()
        try:
            partition = self._replicas.find(name.topic, name.partition)
            if coordinator_epoch == ACCEPT_LOSS_EPOCH:
                _accept_loss(partition, producer_id, commit)
                done(None)
                return
            if version >= EPOCH_BUMP_VERSION:
                _check_epoch(partition, producer_id, epoch)
            marker = end_txn_marker(producer_id, epoch, commit, coordinator_epoch, now_ms)
            shard = self._groups.shards.at(name.partition) if name.topic == OFFSETS_TOPIC else None
            if shard is not None:
                shard.append_marker(marker, producer_id, commit, done)
                return
            appended = partition.stage(memoryview(bytearray(marker)), ALL_IN_SYNC, now_ms, Origin.COORDINATOR)
        except KafkaError as error:
            done(error)
            return
        partition.wait(_MarkerWrite(appended, now_ms + WRITE_MS_MAX, done))


def _accept_loss(partition: Partition, producer_id: int, commit: bool) -> None:
    """Let readers of committed records pass the oldest transaction of a producer that is in doubt."""
    if partition.may_be_deposed:
        raise KafkaError(
            f"This broker may no longer lead {partition.name}; refresh metadata and retry.",
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        )
    in_doubt = partition.log.producers.doubt_of(producer_id)
    if in_doubt is None or commit:
        raise KafkaError(
            f"{partition.name}: producer {producer_id} has no transaction in doubt that could be "
            f"{'committed' if commit else 'aborted'}; one in doubt can only be aborted",
            ErrorCode.INVALID_TXN_STATE,
        )
    partition.accept_loss(in_doubt.first_offset)
    logger.warning(
        "%s: the loss of the end of producer %d's transaction at offset %d is accepted; its records stay aborted, and "
        "readers of committed records go on to offset %d",
        partition.name,
        producer_id,
        in_doubt.first_offset,
        partition.last_stable,
    )


class _Ending:
    """One transaction's end, on its way to all of its partitions."""

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
                self._ask(leader, some)

    def _append(self, name: TopicPartition) -> None:
        markers = self._markers
        self._writer.append(
            name,
            markers.producer.producer_id,
            markers.producer.epoch,
            markers.coordinator_epoch,
            markers.commit,
            lambda error: self._settle({name: ErrorCode.NONE if error is None else error.code}),
            version=markers.version,
        )

    def _ask(self, leader: int, names: list[TopicPartition]) -> None:
        def answered(reply: Any) -> None:
            # Whoever is not answered for is asked for again, as all are where nobody answers.
            codes = dict.fromkeys(names, ErrorCode.NETWORK_EXCEPTION)
            if not isinstance(reply, PeerFailed):
                codes |= {
                    TopicPartition(topic.name, each.partition_index): ErrorCode(each.error_code)
                    for marker in reply.markers
                    for topic in marker.topics
                    for each in topic.partitions
                }
            self._settle({name: codes[name] for name in names})

        self._writer.ask(leader, self._markers, names).then(answered)

    def _settle(self, codes: dict[TopicPartition, ErrorCode]) -> None:
        left = []
        for name, code in codes.items():
            if code is ErrorCode.NONE:
                self._written(name)
            elif code in _DEPOSED:
                logger.warning("%s: another coordinator has ended %s", name, self._markers.transactional_id)
            else:
                left.append(name)
        if left:
            self._writer.again(lambda: self.write(left))


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
    """Refuse a marker that comes too late (KIP-1228): one whose epoch is that of the open transaction's records is of
    an earlier one. Where none is open, it is written once more, and harms nobody."""
    entry = partition.log.producers.by_id.get(producer_id)
    if entry is not None and entry.epoch == epoch and entry.txn_first_offset is not None:
        raise KafkaError(
            f"{partition.name}: a marker for producer {producer_id} has epoch {epoch}, "
            f"and so has the open transaction, which has another end",
            ErrorCode.INVALID_PRODUCER_EPOCH,
        )
