"""Histories: members come, go, stall, lose answers and commit, while the coordinator crashes and comes back.

What must hold in all of them: a partition has one owner in a generation; after the dust settles every partition
has an owner; committed offsets are what was last acknowledged; and a coordinator made of the log is the one that
wrote it.
"""

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.coordinator.groups.clients import Classic, Consumer
from tests.coordinator.groups.world import Desk, assignment, load, topics, value, waits

from penstock.base.errors import ErrorCode
from penstock.coordinator.groups.classic.group import ClassicGroup, State
from penstock.coordinator.groups.consumer.group import ConsumerGroup
from penstock.coordinator.groups.consumer_protocol import read_assignment
from penstock.coordinator.groups.coordinator import GroupCoordinator
from penstock.coordinator.groups.requests import (
    CommittedPartition,
    Heartbeat,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetFetch,
    SyncGroup,
    TxnOffsetCommit,
    WantedOffset,
)
from penstock.coordinator.groups.settings import GroupSettings

PARTITIONS = 4


def written_state(coordinator: GroupCoordinator) -> dict[str, Any]:
    """What must be the same in a coordinator and in one that is made of its log."""
    state = coordinator._state
    found: dict[str, Any] = {"offsets": state.offsets}
    for group_id, group in state.groups.items():
        if isinstance(group, ConsumerGroup):
            found[group_id] = replace(group, checked_version=-1, regexes_checked=(-1, -1))
        elif group.state is State.STABLE:
            members = {each.member_id: (each.instance_id, each.assignment) for each in group.members.values()}
            found[group_id] = (group.generation, group.protocol, group.leader, members)
    return found


class World(RuleBasedStateMachine):
    """What both protocols have in common."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk(GroupSettings(initial_rebalance_delay_ms=1_000), topics(orders=PARTITIONS))
        self.turn = 0
        self.committed: dict[int, tuple[int, int]] = {}
        """By partition, when in the log and what. Of two that count the later one in the log does."""
        self.held: dict[tuple[int, int], tuple[int, int]] = {}
        """What open transactions hold, by producer and partition."""
        self.was_refused = False

    @rule(ms=st.sampled_from([1, 500, 1_000, 3_000, 9_000, 20_000, 61_000]))
    def wait(self, ms: int) -> None:
        self.desk.advance(ms)

    @rule()
    def crash(self) -> None:
        before = written_state(self.desk.coordinator)
        self.check_log(before)
        self.desk.reload()

    def check_log(self, before: dict[str, Any]) -> None:
        loaded = load(self.desk.settings, self.desk.known, self.desk.rng, self.desk.log, self.desk.now_ms)
        after = written_state(loaded)
        for group_id, group in before.items():
            if group_id == "offsets" or isinstance(group, ConsumerGroup) or not self.was_refused:
                assert after[group_id] == group

    @rule(partition=st.integers(0, PARTITIONS - 1), producer_id=st.integers(7, 8), offset=st.integers(0, 99))
    def commit_in_transaction(self, partition: int, producer_id: int, offset: int) -> None:
        reply = self.desk.ask(
            TxnOffsetCommit("g", (CommittedPartition("orders", partition, offset),), producer_id, 0)
        )
        if reply.code is ErrorCode.NONE:
            self.turn += 1
            self.held[producer_id, partition] = (self.turn, offset)

    @rule(producer_id=st.integers(7, 8), commits=st.booleans())
    def end_transaction(self, producer_id: int, commits: bool) -> None:
        self.desk.marker(producer_id, commits)
        for held in [each for each in self.held if each[0] == producer_id]:
            offset = self.held.pop(held)
            if commits:
                self.committed[held[1]] = max(offset, self.committed.get(held[1], offset))

    @rule(partition=st.integers(0, PARTITIONS - 1), offset=st.integers(0, 99))
    def commit_by_hand(self, partition: int, offset: int) -> None:
        """Accepted while the group has no members."""
        self.commit_as("", -1, partition, offset)

    def commit_as(self, member_id: str, generation: int, partition: int, offset: int) -> None:
        committed = (CommittedPartition("orders", partition, offset),)
        reply = self.desk.ask(OffsetCommit("g", committed, member_id, generation))
        if reply.code is ErrorCode.NONE:
            self.turn += 1
            self.committed[partition] = (self.turn, offset)

    @invariant()
    def offsets_are_what_was_acknowledged(self) -> None:
        wanted = tuple(WantedOffset("orders", partition) for partition in range(PARTITIONS))
        found = self.desk.ask(OffsetFetch("g", wanted)).offsets
        assert [each.offset for each in found] == [
            self.committed.get(n, (0, -1))[1] for n in range(PARTITIONS)
        ]


class EagerClient:
    """A classic client that gives up everything before it joins, and assigns when it leads."""

    def __init__(self, desk: Desk, name: str, instance_id: str | None) -> None:
        self.desk, self.name, self.instance_id = desk, name, instance_id
        self.member_id = ""
        self.generation = -1
        self.waiting: Any = None
        self.is_synced = False
        self.owned: frozenset[int] = frozenset()

    def step(self) -> None:
        """The next thing that a client does."""
        if self.waiting is not None:
            if not waits(self.waiting):
                self.take(value(self.waiting))
        elif self.is_synced:
            request = Heartbeat("g", self.member_id, self.generation, self.instance_id)
            self.react(self.desk.ask(request).code)
        else:
            self.owned = frozenset()
            self.waiting = self.desk.join(
                client_id=self.name,
                member_id=self.member_id,
                instance_id=self.instance_id,
                session_timeout_ms=10_000,
            )

    def react(self, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            return
        self.is_synced = False
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.ILLEGAL_GENERATION):
            self.owned = frozenset()
            if code is not ErrorCode.ILLEGAL_GENERATION:
                self.member_id = ""

    def take(self, reply: Any) -> None:
        self.waiting = None
        if reply.code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
        elif reply.code is not ErrorCode.NONE:
            self.react(reply.code)
        elif hasattr(reply, "members"):
            self.member_id, self.generation = reply.member_id, reply.generation
            assignments: dict[str, bytes] = {}
            if reply.leader == reply.member_id and not reply.skip_assignment:
                ids = sorted(each.member_id for each in reply.members)
                assignments = {
                    member_id: assignment(orders=range(n, PARTITIONS, len(ids)))
                    for n, member_id in enumerate(ids)
                }
            self.waiting = self.desk.ask(
                SyncGroup(
                    "g",
                    self.member_id,
                    self.generation,
                    self.instance_id,
                    assignments=tuple(assignments.items()),
                )
            )
        else:
            given = read_assignment(reply.assignment).assigned_partitions
            self.owned = frozenset(partition for each in given for partition in each.partitions)
            self.is_synced = True


class ClassicHistories(World):
    def __init__(self) -> None:
        super().__init__()
        self.clients: list[EagerClient] = []
        self.owners: dict[tuple[int, int], str] = {}
        """Who was told that a partition is its, by generation and partition."""
        self.names = 0

    @precondition(lambda self: len(self.clients) < 5)
    @rule(instance_id=st.sampled_from([None, None, "a", "b"]))
    def start(self, instance_id: str | None) -> None:
        self.names += 1
        self.clients.append(EagerClient(self.desk, f"c{self.names}", instance_id))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), steps=st.integers(1, 4))
    def go_on(self, data: st.DataObject, steps: int) -> None:
        client = data.draw(st.sampled_from(self.clients))
        for _ in range(steps):
            self.step(client)

    def step(self, client: EagerClient) -> None:
        client.step()
        for partition in client.owned if client.is_synced else ():
            owner = self.owners.setdefault((client.generation, partition), client.name)
            if owner != client.name:
                # A static member that is started again under the same instance has its predecessor's.
                assert client.instance_id is not None

    @rule(rounds=st.integers(1, 3))
    def all_go_on(self, rounds: int) -> None:
        for _ in range(rounds):
            for client in self.clients:
                self.step(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), politely=st.booleans())
    def stop(self, data: st.DataObject, politely: bool) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.clients.remove(client)
        if politely and client.member_id and client.instance_id is None:
            self.desk.ask(LeaveGroup("g", (LeavingMember(client.member_id),)))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), offset=st.integers(0, 99))
    def commit(self, data: st.DataObject, offset: int) -> None:
        client = data.draw(st.sampled_from(self.clients))
        for partition in client.owned:
            self.commit_as(client.member_id, client.generation, partition, offset)

    @rule()
    def lose_the_log_for_a_moment(self) -> None:
        self.was_refused = True
        self.desk.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        for client in self.clients:
            client.step()
        self.desk.refuses = None

    @invariant()
    def members_are_counted_right(self) -> None:
        group = self.desk.coordinator._state.groups.get("g")
        if isinstance(group, ClassicGroup):
            assert group.joins_awaited == sum(each.awaits_join is not None for each in group.members.values())
            assert set(group.statics.values()) <= set(group.members)
            assert all(group.members[member].instance_id == each for each, member in group.statics.items())
            assert group.leader is None or group.leader in group.members
            assert (group.state is State.EMPTY) <= (not group.members)
            assert set(group.pending_syncs) <= set(group.members)
            assert not set(group.pending_joins) & set(group.members)

    def teardown(self) -> None:
        """After the dust settles, the live members share everything."""
        by_instance: dict[str, EagerClient] = {}
        for client in self.clients:
            if client.instance_id is not None:
                by_instance[client.instance_id] = client  # of two with one instance, one is fenced for ever
        live = [
            each for each in self.clients if each.instance_id is None or by_instance[each.instance_id] is each
        ]
        for _ in range(60):
            for client in live:
                self.step(client)
                self.step(client)
            self.desk.advance(3_000)
        if live:
            owned = [partition for client in live for partition in client.owned]
            assert sorted(owned) == list(range(PARTITIONS))
            assert len({client.generation for client in live}) == 1
        self.was_refused = False
        self.check_log(written_state(self.desk.coordinator))


class ConsumerHistories(World):
    def __init__(self) -> None:
        super().__init__()
        self.consumers: list[Consumer] = []
        self.classics: list[Classic] = []
        self.names = 0
        self.version = 1
        self.partitions = PARTITIONS

    @precondition(lambda self: len(self.consumers) < 4)
    @rule(instance=st.booleans(), assignor=st.sampled_from([None, "range", "uniform"]), regex=st.booleans())
    def start(self, instance: bool, assignor: str | None, regex: bool) -> None:
        self.names += 1
        name = f"c{self.names}"
        self.consumers.append(
            Consumer(
                self.desk,
                name,
                None if regex else ("orders",),
                regex="ord.*" if regex else None,
                instance_id=name if instance else None,
                assignor=assignor,
                rebalance_timeout_ms=30_000,
            )
        )

    @precondition(lambda self: len(self.classics) < 2)
    @rule()
    def start_classic(self) -> None:
        self.classics.append(Classic(self.desk))

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), lossy=st.booleans())
    def go_on(self, data: st.DataObject, lossy: bool) -> None:
        self.beat(data.draw(st.sampled_from(self.consumers)), lossy)

    @staticmethod
    def beat(consumer: Consumer, lossy: bool = False) -> None:
        if lossy and consumer.epoch:
            before = consumer.epoch, dict(consumer.owned), dict(consumer.told)
            consumer.beat()
            consumer.epoch, consumer.owned, consumer.told = before
            consumer.is_unsure = True
            return
        reply = consumer.beat() if consumer.epoch > 0 else consumer.join()
        if reply.code in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.GROUP_ID_NOT_FOUND,
        ):
            consumer.forget()

    @rule()
    def classics_go_on(self) -> None:
        for classic in self.classics:
            self.classic_step(classic)

    def classic_step(self, classic: Classic) -> None:
        if classic.waiting is not None and waits(classic.waiting):
            return
        if classic.member_id == "" or classic.generation == -1:
            reply = classic.join()
            if reply.code is ErrorCode.UNKNOWN_MEMBER_ID:
                classic.member_id, classic.owned = "", {}
        else:
            code = classic.beat()
            if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
                classic.member_id, classic.owned, classic.generation = "", {}, -1
                return
            if code is ErrorCode.NONE:
                return
            if classic.join().code is not ErrorCode.NONE:
                classic.generation = -1
                return
        self.finish_round(classic)

    def finish_round(self, classic: Classic) -> None:
        """Sync, as the leader if it is one: in a classic group the members assign."""
        if waits(classic.waiting):
            return
        reply = classic.joined()
        if reply.code is not ErrorCode.NONE:
            return
        given: dict[str, bytes] = {}
        if reply.leader == reply.member_id:
            ids = [each.member_id for each in reply.members]
            given = {
                each: assignment(orders=range(n, self.partitions, len(ids))) for n, each in enumerate(ids)
            }
        classic.sync(**given)
        classic.waiting = None

    @rule()
    def all_go_on(self) -> None:
        for consumer in self.consumers:
            self.beat(consumer)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def cling(self, data: st.DataObject) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        consumer.clings = not consumer.clings

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), epoch=st.sampled_from([-1, -2, None]))
    def stop(self, data: st.DataObject, epoch: int | None) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        self.consumers.remove(consumer)
        if epoch == -1 or (epoch == -2 and consumer.instance_id is not None):
            consumer.leave(epoch)

    @rule()
    def classics_stop(self) -> None:
        self.classics.clear()

    @precondition(lambda self: self.partitions < 9)
    @rule()
    def more_partitions(self) -> None:
        self.partitions += 1
        self.version += 1
        self.desk.change_topics(topics(self.version, orders=self.partitions))

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), offset=st.integers(0, 99))
    def commit(self, data: st.DataObject, offset: int) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        for partition in consumer.has()[:PARTITIONS]:
            if partition < PARTITIONS:
                self.commit_as(consumer.member_id, consumer.epoch, partition, offset)

    @rule()
    def lose_the_log_for_a_moment(self) -> None:
        self.was_refused = True
        self.desk.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        for consumer in self.consumers:
            self.beat(consumer)
        self.desk.refuses = None

    @invariant()
    def a_partition_has_one_owner(self) -> None:
        group = self.desk.coordinator._state.groups.get("g")
        if not isinstance(group, ConsumerGroup):
            return
        held = [
            (topic_id, partition)
            for member in group.members.values()
            for part in (member.assigned, member.revoking)
            for topic_id, partitions in part.items()
            for partition in partitions
        ]
        assert len(held) == len(set(held)) == len(group.owners)
        topic_id = self.desk.known.by_name["orders"].topic_id
        believed = [
            partition
            for consumer in self.consumers
            if (member := group.members.get(consumer.member_id)) is not None
            and consumer.epoch in (member.epoch, member.previous_epoch)
            for partition in consumer.owned.get(topic_id, ())
        ]
        assert len(believed) == len(set(believed)), "two members think that a partition is theirs"
        assert all(member.epoch <= group.epoch for member in group.members.values())
        assert group.target_epoch <= group.epoch
        assert set(group.regexes) == {member.regex for member in group.members.values() if member.regex}

    def teardown(self) -> None:
        for consumer in self.consumers:
            consumer.clings = False
        self.classics.clear()
        for _ in range(40):
            for consumer in self.consumers:
                self.beat(consumer)
            self.desk.advance(5_000)
        if self.consumers:
            owned = [partition for consumer in self.consumers for partition in consumer.has()]
            assert sorted(owned) == list(range(self.partitions))
            loads = [len(consumer.has()) for consumer in self.consumers]
            assert max(loads) - min(loads) <= 1
        self.check_log(written_state(self.desk.coordinator))


ClassicHistories.TestCase.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
ConsumerHistories.TestCase.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
TestClassicHistories = ClassicHistories.TestCase
TestConsumerHistories = ConsumerHistories.TestCase
