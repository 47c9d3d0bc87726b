"""Members as clients play them, of both protocols."""

from dataclasses import dataclass, field
from typing import Any

from tests.coordinator.groups.world import Desk, value, waits

from penstock.base.errors import ErrorCode
from penstock.coordinator.groups.consumer_protocol import (
    Subscription,
    TopicPartitions,
    read_assignment,
    write_subscription,
)
from penstock.coordinator.groups.requests import (
    ConsumerGroupHeartbeat,
    ConsumerHeartbeatReply,
    Heartbeat,
    JoinReply,
    SyncGroup,
)


@dataclass
class Consumer:
    """A client of the consumer protocol, which gives up at once what it is told to."""

    desk: Desk = field(repr=False)
    member_id: str
    topics: tuple[str, ...] | None = ("orders",)
    group: str = "g"
    regex: str | None = None
    instance_id: str | None = None
    rack_id: str | None = None
    assignor: str | None = None
    rebalance_timeout_ms: int = 60_000
    epoch: int = 0
    owned: dict[bytes, tuple[int, ...]] = field(default_factory=dict)
    told: dict[bytes, tuple[int, ...]] = field(default_factory=dict)
    """What it was last told to have."""
    clings: bool = False
    """It does not give up what it is told to."""
    is_unsure: bool = False
    """An answer was lost: it says everything again, and is told everything."""

    def join(self) -> ConsumerHeartbeatReply:
        self.forget()
        return self.beat(full=True)

    def forget(self) -> None:
        self.epoch, self.owned, self.told = 0, {}, {}

    def beat(self, full: bool = False, **said: Any) -> ConsumerHeartbeatReply:
        fields: dict[str, Any] = {"instance_id": self.instance_id, "owned": tuple(self.owned.items())}
        if full or self.epoch == 0 or self.is_unsure:
            fields |= {
                "rebalance_timeout_ms": self.rebalance_timeout_ms,
                "subscribed_names": self.topics,
                "subscribed_regex": self.regex,
                "rack_id": self.rack_id,
                "assignor": self.assignor,
            }
        request = ConsumerGroupHeartbeat(
            self.group, self.member_id, self.epoch, "client", "/127.0.0.1", **(fields | said)
        )
        reply: ConsumerHeartbeatReply = self.desk.ask(request)
        if reply.code is ErrorCode.NONE:
            self.is_unsure = False
            self.epoch = reply.member_epoch
            if reply.assignment is not None:
                self.told = dict(reply.assignment)
            if self.clings:
                for topic_id, partitions in self.told.items():
                    self.owned[topic_id] = tuple(sorted({*self.owned.get(topic_id, ()), *partitions}))
            else:
                self.owned = dict(self.told)
        return reply

    def leave(self, epoch: int = -1) -> ConsumerHeartbeatReply:
        self.epoch = epoch
        return self.beat(owned=None)

    def has(self, topic: str = "orders") -> list[int]:
        return list(self.owned.get(self.desk.known.by_name[topic].topic_id, ()))


def settle(*consumers: Consumer, rounds: int = 6) -> None:
    for _ in range(rounds):
        for consumer in consumers:
            reply = consumer.beat()
            assert reply.code is ErrorCode.NONE, (consumer.member_id, reply)


class Classic:
    """A client of the classic protocol with cooperative rebalances: it tells what it owns when it joins."""

    def __init__(
        self, desk: Desk, instance_id: str | None = None, topics: tuple[str, ...] = ("orders",)
    ) -> None:
        self.desk, self.instance_id, self.topics = desk, instance_id, topics
        self.member_id, self.generation = "", -1
        self.owned: dict[str, tuple[int, ...]] = {}
        self.waiting: Any = None

    def join(self) -> JoinReply:
        owned = tuple(TopicPartitions(topic=name, partitions=each) for name, each in self.owned.items())
        metadata = write_subscription(Subscription(topics=self.topics, owned_partitions=owned), 1)
        said: dict[str, Any] = {"protocols": (("range", metadata),), "instance_id": self.instance_id}
        reply = self.desk.join(member_id=self.member_id, **said)
        if isinstance(reply, JoinReply) and reply.code is ErrorCode.MEMBER_ID_REQUIRED:
            reply = self.desk.join(member_id=reply.member_id, **said)
        self.waiting = reply
        return self.joined() if not waits(reply) else JoinReply(ErrorCode.REBALANCE_IN_PROGRESS)

    def joined(self) -> JoinReply:
        reply: JoinReply = value(self.waiting)
        if reply.code is ErrorCode.NONE:
            self.member_id, self.generation = reply.member_id, reply.generation
        return reply

    def sync(self, **assignments: bytes) -> ErrorCode:
        request = SyncGroup(
            "g",
            self.member_id,
            self.generation,
            self.instance_id,
            "consumer",
            "range",
            tuple(assignments.items()),
        )
        self.waiting = self.desk.ask(request)
        return self.synced() if not waits(self.waiting) else ErrorCode.NONE

    def synced(self) -> ErrorCode:
        reply = value(self.waiting)
        if reply.code is ErrorCode.NONE:
            given = read_assignment(reply.assignment).assigned_partitions
            self.owned = {each.topic: each.partitions for each in given}
        code: ErrorCode = reply.code
        return code

    def beat(self) -> ErrorCode:
        code: ErrorCode = self.desk.ask(
            Heartbeat("g", self.member_id, self.generation, self.instance_id)
        ).code
        return code

    def go_on(self) -> None:
        """What a client does with a heartbeat's answer."""
        code = self.beat()
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            if self.join().code is ErrorCode.NONE:
                self.sync()
        else:
            assert code is ErrorCode.NONE, code

    def has(self) -> list[int]:
        return list(self.owned.get("orders", ()))
