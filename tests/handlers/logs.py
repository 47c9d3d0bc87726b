"""A node with logs and nothing else, for the handlers that look into them."""

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from tests.placing import placed
from tests.worlds import START_MS, StillWorld

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TopicPartition
from penstock.base.promise import Promise
from penstock.base.settings import LogSettings
from penstock.handlers.support.context import Call, Context, Session
from penstock.records import build_batch, end_txn_marker
from penstock.replica.delayed_operations import Durability
from penstock.replica.partition import Partition
from penstock.replica.sync_lane import SyncLane
from penstock.storage.directory import open_directory
from penstock.storage.rules import Origin
from penstock.vfs import FaultyDisk, MemoryDisk
from penstock.wire import Api, read_request, read_response, request_module, write_request, write_response
from penstock.wire.messages import response_builder

Handler = Callable[[Context, Call], Any]


class Denying(Context):
    """A node whose ACLs allow nothing."""

    def authorize(self, *_: object) -> bool:
        return False

    permits = authorize


class Logs:
    """Stands in for `Replicas`: partitions over real logs, on a disk in memory."""

    def __init__(self, settings: LogSettings | None = None) -> None:
        self.world = StillWorld()
        self.disk = FaultyDisk(MemoryDisk())
        self.directory = open_directory(
            self.disk,
            "/data",
            now_ms=START_MS,
            rng=Random(1),
            settings_of=lambda _: settings or LogSettings(index_interval_bytes=200),
        )
        self.partitions: dict[TopicPartition, Partition] = {}
        self.led_elsewhere = {TopicPartition("elsewhere", 0)}

    def find(self, topic: str | bytes, number: int) -> Partition:
        name = TopicPartition(str(topic), number)
        if name in self.led_elsewhere:
            raise KafkaError(f"this broker does not lead {name}", ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if name not in self.partitions:
            raise KafkaError(f"there is no partition {name}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.partitions[name]

    def held(self, topic: str | bytes, number: int) -> Partition | None:
        return self.partitions.get(TopicPartition(str(topic), number))

    def make(self, topic: str, number: int = 0, *, epoch: int = 0) -> Partition:
        name = TopicPartition(topic, number)
        log = self.directory.create(name, now_ms=START_MS)
        partition = Partition(
            log, bytes(16), self.world, SyncLane(self.world), Durability.NEVER, self.world.call_soon
        )
        partition.lead(placed(epoch), 1)
        self.partitions[name] = partition
        return partition

    def context(self, kind: type[Context] = Context) -> Context:
        nothing = cast(Any, SimpleNamespace())
        return kind(
            world=self.world,
            node_id=1,
            cluster_id="c",
            settings=nothing,
            replicas=cast(Any, self),
            controller=nothing,
            quorum=nothing,
            fetch_sessions=nothing,
            producer_ids=nothing,
            groups=nothing,
            transactions=nothing,
            markers=nothing,
            broker_client=nothing,
            image=nothing,
        )

    def ask(
        self, handler: Handler, api: Api, version: int, request: Any, kind: type[Context] = Context
    ) -> Any:
        """The response, as a client reads it; the request too goes over the wire."""
        message = read_request(api, version, memoryview(write_request(api, version, request)))
        call = Call(Session("a", 9092, "b"), version, message, response_builder(api, version), None)
        answer = handler(self.context(kind), call)
        if isinstance(answer, Promise):
            self.world.run_until(lambda: answer.is_settled)
            answer = answer.value
        return read_response(api, version, memoryview(write_response(api, version, answer)))


def entity(api: Api, version: int, name: str, /, **values: Any) -> Any:
    """Part of a request, with the fields that the version has."""
    kind = getattr(request_module(api, version), name)
    return kind(**{key: value for key, value in values.items() if key in kind.__dataclass_fields__})


def append(
    partition: Partition,
    *timestamps: int,
    epoch: int | None = None,
    producer: tuple[int, int, int] | None = None,
    is_visible: bool = True,
    **options: Any,
) -> None:
    """A batch with a record for each timestamp; `producer` is its id, epoch and sequence."""
    if producer is not None:
        names = ("producer_id", "producer_epoch", "base_sequence")
        options |= dict(zip(names, producer, strict=True))
    records = [(b"k", b"v" * 50, timestamp) for timestamp in timestamps]
    partition.log.append(
        bytearray(build_batch(records, **options)),
        leader_epoch=partition.leader_epoch if epoch is None else epoch,
        now_ms=START_MS,
    )
    if is_visible:
        partition.high_watermark = partition.log.log_end


def end_transaction(partition: Partition, producer_id: int, *, commit: bool, coordinator_epoch: int) -> None:
    marker = end_txn_marker(producer_id, 0, commit, coordinator_epoch, START_MS)
    partition.log.append(bytearray(marker), leader_epoch=0, now_ms=START_MS, origin=Origin.COORDINATOR)
    partition.high_watermark = partition.log.log_end
