"""A node in a world that stands still, and its HTTP members, asked without HTTP."""

from collections.abc import Sequence
from random import Random
from typing import Any, TypeVar

from tests.nodes import StillNode

from penstock.base.errors import KafkaError
from penstock.base.steps import RunningSteps, Steps
from penstock.coordinator.groups.requests import (
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    DescribedConsumerGroup,
    JoinGroup,
    OffsetCommit,
)
from penstock.gateway.membership import Conflict, Consumed, Members
from penstock.gateway.membership.http_members import SESSION_MS
from penstock.gateway.peer_rpc.messages import Commit, Consume, Join, Leave
from penstock.gateway.shared.new_records import append
from penstock.handlers.support.context import Session
from penstock.records import build_batch

T = TypeVar("T")


class Call:
    """Steps under way; `value` or `error` is there when they are over."""

    def __init__(self, door: "Door", steps: Steps[Any]) -> None:
        self._door = door
        self.value: Any = None
        self.error: Exception | None = None
        self.running: RunningSteps[Any] = RunningSteps(steps, self._done, self._failed)

    def _done(self, value: Any) -> None:
        self.value = value

    def _failed(self, error: Exception) -> None:
        self.error = error

    def result(self, ms_max: int = 30_000) -> Any:
        for _ in range(ms_max):
            if self.running.is_over:
                break
            self._door.world.advance(1)
        assert self.running.is_over, f"no answer within {ms_max} ms"
        if self.error is not None:
            raise self.error
        return self.value


class Door:
    def __init__(self, **settings: str) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.node = StillNode(settings={"group.initial.rebalance.delay.ms": "0", **named})
        self._open()

    def _open(self) -> None:
        self.world = self.node.world
        self.context = self.node.node.context
        self.session = Session("127.0.0.1", 8080, "10.9.8.7:6543", "HTTP")
        self.members = Members(self.context)
        self.members.start()

    def restart(self) -> None:
        self.members.stop()
        self.node.stop()
        self.node.restart()
        self._open()

    def crash(self, rng: Random | None = None) -> None:
        self.node.crash(rng)
        self._open()

    # What consumers ask.

    def call(self, steps: Steps[Any]) -> Call:
        return Call(self, steps)

    def join(
        self,
        consumer: str,
        *topics: str,
        group: str = "g",
        session_ms: int = SESSION_MS,
    ) -> dict[str, Sequence[int]]:
        asked = Join(group, consumer, topics or ("orders",), session_ms)
        steps = self.members.join(self.session, asked)
        assignments: dict[str, Sequence[int]] = self.call(steps).result()
        return {topic: list(partitions) for topic, partitions in assignments.items()}

    def leave(self, consumer: str, group: str = "g") -> None:
        self.call(self.members.leave(self.session, Leave(group, consumer))).result()

    def consuming(
        self,
        consumer: str | None,
        partition: int,
        topic: str = "orders",
        group: str = "g",
        records_max: int = 100,
        wait_ms: int = 0,
    ) -> Call:
        asked = Consume(group, consumer, topic, partition, records_max, wait_ms)
        return self.call(self.members.consume(self.session, asked))

    def consume(self, consumer: str | None, partition: int, **more: Any) -> Consumed:
        consumed: Consumed = self.consuming(consumer, partition, **more).result()
        return consumed

    def values(self, consumer: str | None, partition: int, **more: Any) -> list[bytes | None]:
        return [each.value for each in self.consume(consumer, partition, **more).records]

    def commit(
        self,
        partition: int,
        offset: int,
        topic: str = "orders",
        group: str = "g",
        consumer: str | None = None,
    ) -> None:
        asked = Commit(group, consumer, topic, partition, offset)
        steps = self.members.commit(self.session, asked)
        self.call(steps).result()

    def conflict(self, steps: Steps[Any] | Call) -> Conflict:
        """What a call is refused with."""
        try:
            value = (steps if isinstance(steps, Call) else self.call(steps)).result()
        except Conflict as conflict:
            return conflict
        raise AssertionError(f"it was not refused: {value}")

    def refusal(self, steps: Steps[Any] | Call) -> KafkaError:
        try:
            value = (steps if isinstance(steps, Call) else self.call(steps)).result()
        except KafkaError as error:
            return error
        raise AssertionError(f"it was not refused: {value}")

    # What others see and do.

    def write(self, partition: int, *values: bytes, topic: str = "orders") -> None:
        batch = build_batch([(None, value, self.world.now_ms()) for value in values])
        written = append(self.context, self.context.replicas.find(topic, partition), batch)
        self.world.run_until(lambda: written.is_settled)
        assert written.error is None

    def ask(self, request: Any) -> Any:
        later = self.context.groups.handle(request.group, request)
        self.world.run_until(lambda: later.is_settled)
        return later.value

    def describe(self, group: str = "g") -> DescribedConsumerGroup:
        later = self.context.groups.handle(group, ConsumerGroupDescribe((group,)))
        self.world.run_until(lambda: later.is_settled)
        described: DescribedConsumerGroup = later.value.groups[0]
        return described

    def has(self, group: str = "g", topic: str = "orders") -> dict[str, list[int]]:
        """By member, as anybody can see it."""
        return {
            member.member_id: [
                number for each in member.assignment if each.topic == topic for number in each.partitions
            ]
            for member in self.describe(group).members
        }


class KafkaMember:
    """A client of the consumer protocol, which does what a test says."""

    def __init__(self, door: Door, name: str, group: str = "g", client_id: str = "rdkafka") -> None:
        self.door, self.name, self.group, self.client_id = door, name, group, client_id
        self.epoch = 0
        self.owned: tuple[Any, ...] = ()

    def beat(self, *, gives_up: bool = True) -> Any:
        asked = ConsumerGroupHeartbeat(
            self.group, self.name, self.epoch, self.client_id, "/10.1.1.1", owned=self.owned
        )
        if self.epoch == 0:
            asked = asked._replace(rebalance_timeout_ms=300_000, subscribed_names=("orders",))
        reply = self.door.ask(asked)
        assert reply.code.value == 0, reply
        self.epoch = reply.member_epoch
        if reply.assignment is not None and gives_up:
            self.owned = reply.assignment
        return reply

    def has(self) -> list[int]:
        return [number for _, numbers in self.owned for number in numbers]


__all__ = ["Call", "Door", "JoinGroup", "KafkaMember", "OffsetCommit"]
