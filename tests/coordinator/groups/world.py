"""A driver for a group coordinator: a log in memory, time that a test moves, commits that come when it says."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.outcome import Outcome
from penstock.base.promise import Promise
from penstock.coordinator.groups.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    write_assignment,
    write_subscription,
)
from penstock.coordinator.groups.coordinator import GroupCoordinator
from penstock.coordinator.groups.requests import (
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    Request,
    SyncGroup,
    refusal,
    write_error,
)
from penstock.coordinator.groups.settings import GroupSettings

START_MS = 1_700_000_000_000


@dataclass(frozen=True)
class ATopic:
    name: str
    topic_id: bytes
    partitions: int
    where: tuple[frozenset[str], ...] = ()

    def racks(self, partition: int) -> frozenset[str]:
        return self.where[partition] if self.where else frozenset()


@dataclass(frozen=True)
class SomeTopics:
    version: int
    by_name: Mapping[str, ATopic]

    def by_id(self, topic_id: bytes) -> ATopic | None:
        return next((topic for topic in self.by_name.values() if topic.topic_id == topic_id), None)


def topics(version: int = 1, **partitions: int) -> SomeTopics:
    return SomeTopics(
        version, {name: ATopic(name, name.encode().ljust(16, b"\1"), n) for name, n in partitions.items()}
    )


class Logged(NamedTuple):
    key: bytes
    value: bytes | None
    producer_id: int = -1
    marker: bool | None = None
    """A commit (True) or an abort (False), and no record."""


class Refused(Exception):
    """Nothing was answered yet."""


@dataclass
class Desk:
    settings: GroupSettings = field(default_factory=lambda: GroupSettings(initial_rebalance_delay_ms=0))
    known: SomeTopics = field(default_factory=lambda: topics(orders=4))
    seed: int = 1
    now_ms: int = START_MS
    log: list[Logged] = field(default_factory=list)
    holds: bool = False
    """Appended records are not committed before `commit`."""
    refuses: ErrorCode | None = None
    """Why appends fail, if they do."""
    appended: int = 0
    is_still: bool = False
    """Time stands: what is due is not done yet."""

    def __post_init__(self) -> None:
        self._held: list[Outcome[Any]] = []
        self.rng = Random(self.seed)
        self.coordinator = GroupCoordinator(self.settings, self.known, self.rng)
        self.coordinator.loaded(self.now_ms)

    def ask(self, request: Request) -> Any:
        """The reply, or the Promise that will have it. With commits held back, every reply is a Promise."""
        outcome = self.coordinator.handle(request, self.now_ms)
        if not self._append(outcome):
            return refusal(request, write_error(self.refuses or ErrorCode.NONE))
        self.tick()
        if isinstance(outcome.reply, Promise) and outcome.reply.is_settled:
            return outcome.reply.value
        return outcome.reply

    def _append(self, outcome: Outcome[Any]) -> bool:
        if outcome.records:
            if self.refuses is not None:
                self.coordinator.settled(outcome, self.refuses, self.now_ms)
                return False
            base = len(self.log)
            producer = (
                -1
                if outcome.write is None or outcome.write.producer is None
                else outcome.write.producer.producer_id
            )
            self.log += (Logged(*record.encoded(), producer) for record in outcome.records)
            self.coordinator.written(outcome, base)
            self.appended += 1
        if self.holds:
            self._held.append(outcome)
        else:
            self.coordinator.settled(outcome, ErrorCode.NONE, self.now_ms)
        return True

    def commit(self) -> None:
        self.holds = False
        for outcome in self._held:
            self.coordinator.settled(outcome, ErrorCode.NONE, self.now_ms)
        self._held.clear()

    def marker(self, producer_id: int, committed: bool) -> None:
        self.log.append(Logged(b"", None, producer_id, committed))
        self.coordinator.end_transaction(producer_id, committed)

    def tick(self) -> None:
        while not self.is_still:
            deadline = self.coordinator.next_deadline_ms()
            if deadline is None or deadline > self.now_ms:
                return
            outcome = self.coordinator.tick(self.now_ms)
            if outcome is not None:
                self._append(outcome)

    def advance(self, ms: int) -> None:
        """Let time pass, and everything happen at its time."""
        until = self.now_ms + ms
        while True:
            deadline = self.coordinator.next_deadline_ms()
            if deadline is None or deadline > until:
                break
            self.now_ms = max(self.now_ms, deadline)
            self.tick()
        self.now_ms = until
        self.tick()

    def change_topics(self, known: SomeTopics) -> None:
        self.known = known
        self.coordinator.topics_changed(known)

    def reload(self) -> None:
        """The coordinator is gone, and another is made of its log."""
        self.coordinator.unload()
        self._held.clear()
        self.holds = False
        self.coordinator = load(self.settings, self.known, self.rng, self.log, self.now_ms)
        self.tick()

    # The classic protocol, in short.

    def join(self, group: str = "g", **said: Any) -> Any:
        return self.ask(join_request(group, **said))

    def joined(self, group: str = "g", **said: Any) -> Any:
        """Join as a client does: with the id that it is given, if it needs one."""
        reply = self.join(group, **said)
        if isinstance(reply, JoinReply) and reply.code is ErrorCode.MEMBER_ID_REQUIRED:
            return self.join(group, **{**said, "member_id": reply.member_id})
        return reply

    def sync(self, reply: JoinReply, group: str = "g", **assignments: bytes) -> Any:
        return self.ask(
            SyncGroup(group, reply.member_id, reply.generation, assignments=tuple(assignments.items()))
        )

    def lead(self, reply: JoinReply, assignments: Mapping[str, bytes], group: str = "g") -> Any:
        return self.ask(
            SyncGroup(group, reply.member_id, reply.generation, assignments=tuple(assignments.items()))
        )

    def beat(self, reply: JoinReply, group: str = "g", instance_id: str | None = None) -> ErrorCode:
        answer = self.ask(Heartbeat(group, reply.member_id, reply.generation, instance_id))
        assert isinstance(answer, HeartbeatReply)
        return answer.code

    def stable(self, *members: Any, group: str = "g") -> list[JoinReply]:
        """A group of so many members, joined and synced; a member is what it says when it joins."""
        self.is_still = True
        waiting = [self.joined(group, **said) for said in members]
        self.is_still = False
        self.advance(self.settings.initial_rebalance_delay_ms)
        replies = [value(each) for each in waiting]
        assignments = {reply.member_id: f"part {n}".encode() for n, reply in enumerate(replies)}
        leader = next(reply for reply in replies if reply.member_id == reply.leader)
        synced = [self.sync(reply, group) for reply in replies if reply is not leader]
        assert value(self.lead(leader, assignments, group)).code is ErrorCode.NONE
        assert all(value(each).code is ErrorCode.NONE for each in synced)
        return replies


def load(
    settings: GroupSettings, known: SomeTopics, rng: Random, log: Iterable[Logged], now_ms: int
) -> GroupCoordinator:
    coordinator = GroupCoordinator(settings, known, rng)
    for offset, (key, value_, producer_id, marker) in enumerate(log):
        if marker is not None:
            coordinator.end_transaction(producer_id, marker)
        else:
            coordinator.replay(key, value_, offset, producer_id)
    coordinator.loaded(now_ms)
    return coordinator


def join_request(group: str = "g", **said: Any) -> JoinGroup:
    fields: dict[str, Any] = {
        "client_id": "client",
        "client_host": "/127.0.0.1",
        "protocol_type": "consumer",
        "protocols": (("range", subscription("orders")),),
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
    }
    return JoinGroup(group, **(fields | said))


def subscription(*names: str) -> bytes:
    return write_subscription(Subscription(topics=names), 1)


def assignment(**partitions: Iterable[int]) -> bytes:
    given = tuple(TopicPartitions(topic=name, partitions=tuple(each)) for name, each in partitions.items())
    return write_assignment(Assignment(assigned_partitions=given), 1)


def value(reply: Any) -> Any:
    """What a Promise was answered with."""
    if isinstance(reply, Promise):
        if not reply.is_settled:
            raise Refused("it still waits")
        return reply.value
    return reply


def waits(reply: Any) -> bool:
    return isinstance(reply, Promise) and not reply.is_settled
