"""A controller with its log: what it decides is written, replayed, and can be looked at."""

from collections.abc import Iterable
from random import Random
from typing import Any

from penstock.metadata import records as s
from penstock.metadata.bootstrap import bootstrap_records
from penstock.metadata.configs import BrokerSettings
from penstock.metadata.controller import requests as r
from penstock.metadata.controller.controller import Controller
from penstock.metadata.image import EMPTY, Broker, PartitionRegistration
from penstock.metadata.versions import SUPPORTED

CLUSTER = "a-cluster-of-brokers00"
TIMEOUT_MS = 9000


def uuid(number: int) -> bytes:
    return (1_000 + number).to_bytes(16, "big")


class World:
    """Requests in, one batch of records out; the clock stands still unless moved."""

    def __init__(
        self, brokers: Iterable[int] = (1, 2, 3), seed: int = 0, features: dict[str, int] | None = None
    ) -> None:
        self.now_ms = 1_000_000
        self.log: list[s.AnyRecord] = []
        self.seed = seed
        self._incarnations = 0
        self.controller = self._controller(EMPTY)
        self.write(bootstrap_records(features))
        for broker in brokers:
            self.start(broker)

    def _controller(self, image: Any) -> Controller:
        return Controller(
            image,
            cluster_id=CLUSTER,
            rng=Random(self.seed),
            now_ms=self.now_ms,
            settings=BrokerSettings(None, {"num.partitions": "2"}),
            session_timeout_ms=TIMEOUT_MS,
        )

    def fail_over(self) -> None:
        """Another controller takes over, knowing what is in the log."""
        self.controller = self._controller(self.controller.image)

    def write(self, records: Iterable[s.AnyRecord]) -> None:
        batch = list(records)
        self.log += [s.decode(s.encode(record)) for record in batch]
        if batch:
            self.controller.replay(batch, len(self.log) - 1, 1)

    def ask(self, request: Any) -> Any:
        outcome = self.controller.handle(request, self.now_ms)
        self.write(outcome.records)
        return outcome.reply

    def tick(self, later_ms: int = 0) -> None:
        self.now_ms += later_ms
        self.write(self.controller.tick(self.now_ms).records)

    @property
    def image(self) -> Any:
        return self.controller.image

    def broker(self, broker_id: int) -> Broker:
        found: Broker = self.image.brokers[broker_id]
        return found

    def partition(self, topic: str, number: int = 0) -> PartitionRegistration:
        found: PartitionRegistration = self.image.topics[topic].partitions[number]
        return found

    def register(self, broker_id: int, /, clean: bool = True, rack: str | None = None, **changes: Any) -> int:
        self._incarnations += 1
        held = self.image.brokers.get(broker_id)
        request = r.RegisterBroker(
            broker_id=broker_id,
            cluster_id=CLUSTER,
            incarnation_id=uuid(10_000 + self._incarnations),
            endpoints=(s.Endpoint(name="PLAINTEXT", host="h", port=9092),),
            features=SUPPORTED,
            log_dirs=(uuid(broker_id),),
            rack=rack,
            previous_epoch=held.epoch if clean and held is not None else -1,
        )
        epoch: int = self.ask(request._replace(**changes))
        return epoch

    def beat(self, broker_id: int, **changes: Any) -> r.HeartbeatReply:
        request = r.BrokerHeartbeat(broker_id, self.broker(broker_id).epoch, self.image.offset)
        reply: r.HeartbeatReply = self.ask(request._replace(**changes))
        return reply

    def start(self, broker_id: int, clean: bool = True, rack: str | None = None) -> None:
        self.register(broker_id, clean, rack)
        self.beat(broker_id)

    def fence(self, broker_id: int) -> None:
        self.ask(r.FenceBroker(broker_id, self.broker(broker_id).epoch))

    def create(self, name: str, assignment: tuple[int, ...] | None = None, **configs: str) -> None:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        if assignment is None:
            topic = r.NewTopic(name, 1, 3, configs=named)
        else:
            topic = r.NewTopic(name, assignments=((0, assignment),), configs=named)
        (created,) = self.ask(r.CreateTopics((topic,)))
        assert created.result == r.OK, created

    def shrink(self, topic: str, *isr: int) -> r.IsrChanged:
        """The leader of partition 0 asks for another ISR."""
        held = self.partition(topic)
        change = r.IsrChange(
            self.image.topics[topic].id,
            0,
            held.leader_epoch,
            held.partition_epoch,
            tuple(r.IsrMember(each) for each in isr),
        )
        (reply,) = self.ask(r.AlterPartition(held.leader, self.broker(held.leader).epoch, (change,)))
        answered: r.IsrChanged = reply
        return answered


def check_invariants(image: Any) -> None:
    """What holds in every image that a controller made."""
    for name, topic in image.topics.items():
        assert image.topic_names[topic.id] == name
        assert sorted(topic.partitions) == list(range(len(topic.partitions)))
        for partition in topic.partitions.values():
            assert len(set(partition.replicas)) == len(partition.replicas) == len(partition.directories)
            assert set(partition.isr) <= set(partition.replicas)
            assert not set(partition.isr) & set(partition.elr)
            assert set(partition.elr) <= set(partition.replicas)
            assert partition.isr or partition.elr or partition.last_known_elr  # someone to wait for
            if partition.leader != s.NO_LEADER:
                assert partition.leader in partition.isr
                assert image.is_active(partition.leader)
    assert len(image.topic_names) == len(image.topics)


def check_only_grows(before: Any, after: Any) -> None:
    """Epochs and offsets never go back, and move when what they count changes."""
    assert after.offset >= before.offset
    assert after.next_producer_id >= before.next_producer_id
    for name, topic in after.topics.items():
        held = before.topics.get(name)
        if held is None or held.id != topic.id:
            continue
        assert len(topic.partitions) >= len(held.partitions)
        for number, old in held.partitions.items():
            new = topic.partitions[number]
            assert new.leader_epoch >= old.leader_epoch
            assert new.partition_epoch >= old.partition_epoch
            if new.leader != old.leader:
                assert new.leader_epoch > old.leader_epoch
            if new != old:
                assert new.partition_epoch > old.partition_epoch
    for broker_id, broker in after.brokers.items():
        old_broker = before.brokers.get(broker_id)
        if old_broker is not None:
            assert broker.epoch >= old_broker.epoch
            assert broker.epoch > old_broker.epoch or broker.incarnation_id == old_broker.incarnation_id
