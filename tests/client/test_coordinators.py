"""Coordinators found, asked and looked for again; groups and transactions as older and stranger brokers tell them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from struct import pack
from typing import Any

import pytest
from tests.client.fake import FakeCluster, seeded

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.coordinators import Kind, find_coordinator
from penstock.client.errors import BrokerRefused, ConnectionLost, NotServed
from penstock.client.group_offsets import Committed, commit_offsets, fetch_offsets, known_offsets
from penstock.client.groups import delete_group, describe_group, find_group, list_groups
from penstock.client.transactions import (
    Filters,
    Transaction,
    describe_transaction,
    find_hanging,
    list_transactions,
    read_described,
)
from penstock.coordinator.groups.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    write_assignment,
    write_subscription,
)
from penstock.wire import Api, MalformedResponse
from penstock.wire.catalogue import VersionRange

NO_TIME = timedelta(0)


def client(fake: FakeCluster) -> Cluster:
    return Cluster(fake.addresses, network=fake, clock=fake.clock, rng=seeded())


def serve(fake: FakeCluster, api: Api, answer: Callable[[Any, Any, int], Any]) -> None:
    """Have every broker answer an API: from the request, the response's classes and the broker's id."""
    for node_id, broker in fake.brokers.items():

        def handle(request: Any, module: Any, code: int | None, node_id: int = node_id) -> Any:
            return answer(request, module, node_id)

        setattr(broker, api.name.lower(), handle)


def coordinate(fake: FakeCluster, *node_ids: int) -> None:
    """Let FindCoordinator name these brokers, one after the other; the last one for ever."""
    left = list(node_ids)

    def answer(request: Any, module: Any, _: int) -> Any:
        node_id = left.pop(0) if len(left) > 1 else left[0]
        broker = fake.brokers[node_id]
        told = {"node_id": node_id, "host": broker.address.host, "port": 9092, "error_code": ErrorCode.NONE}
        if hasattr(request, "key"):
            return module.FindCoordinatorResponse(throttle_time=NO_TIME, error_message=None, **told)
        coordinators = tuple(
            module.Coordinator(key=key, error_message=None, **told) for key in request.coordinator_keys
        )
        return module.FindCoordinatorResponse(throttle_time=NO_TIME, coordinators=coordinators)

    serve(fake, Api.FIND_COORDINATOR, answer)


def deleting(codes: dict[int, list[ErrorCode]]) -> Callable[[Any, Any, int], Any]:
    """DeleteGroups, with what each broker answers in turn."""

    def answer(request: Any, module: Any, node_id: int) -> Any:
        result = module.DeletableGroupResult(
            group_id=request.groups_names[0], error_code=codes[node_id].pop(0)
        )
        return module.DeleteGroupsResponse(throttle_time=NO_TIME, results=(result,))

    return answer


def asked(fake: FakeCluster, api: Api) -> list[int]:
    return [node_id for node_id, each in fake.requests if each is api]


def test_a_coordinator_that_moved_is_looked_up_again() -> None:
    fake = FakeCluster(brokers=3)
    coordinate(fake, 2, 3)
    serve(fake, Api.DELETE_GROUPS, deleting({2: [ErrorCode.NOT_COORDINATOR], 3: [ErrorCode.NONE]}))
    with client(fake) as cluster:
        delete_group(cluster, "g")
    assert asked(fake, Api.DELETE_GROUPS) == [2, 3]


def test_a_coordinator_that_loads_is_waited_for() -> None:
    fake = FakeCluster()
    coordinate(fake, 1)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    serve(fake, Api.DELETE_GROUPS, deleting({1: [loading, loading, loading, ErrorCode.NONE]}))
    with client(fake) as cluster:
        delete_group(cluster, "g")
    assert len(asked(fake, Api.DELETE_GROUPS)) == 4
    assert fake.clock.now_ms() > 300


def test_a_coordinator_that_is_gone_is_replaced() -> None:
    fake = FakeCluster(brokers=2)
    coordinate(fake, 2, 1)
    fake.brokers[2].is_up = False
    serve(fake, Api.DELETE_GROUPS, deleting({1: [ErrorCode.NONE]}))
    with client(fake) as cluster:
        delete_group(cluster, "g")
    assert asked(fake, Api.DELETE_GROUPS) == [1]


def test_a_refusal_that_no_try_cures_is_reported_at_once() -> None:
    fake = FakeCluster()
    coordinate(fake, 1)
    serve(fake, Api.DELETE_GROUPS, deleting({1: [ErrorCode.NON_EMPTY_GROUP]}))
    with client(fake) as cluster, pytest.raises(BrokerRefused, match="group g: the group has live members"):
        delete_group(cluster, "g")
    assert fake.clock.now_ms() == 0


def test_a_coordinator_that_never_comes_is_reported_when_the_time_is_over() -> None:
    fake = FakeCluster()

    def nobody(request: Any, module: Any, _: int) -> Any:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        told = module.Coordinator(
            key="g", node_id=-1, host="", port=-1, error_code=code, error_message="no leader yet"
        )
        return module.FindCoordinatorResponse(throttle_time=NO_TIME, coordinators=(told,))

    serve(fake, Api.FIND_COORDINATOR, nobody)
    with (
        client(fake) as cluster,
        pytest.raises(
            BrokerRefused, match=r"coordinator of group g: no leader yet \(COORDINATOR_NOT_AVAILABLE\)"
        ),
    ):
        find_coordinator(cluster, Kind.GROUP, "g")
    assert fake.clock.now_ms() > 50_000


def test_groups_are_gathered_from_every_broker() -> None:
    fake = FakeCluster(brokers=3)

    def answer(request: Any, module: Any, node_id: int) -> Any:
        group = module.ListedGroup(
            group_id=f"g-{4 - node_id}", protocol_type="consumer", group_state="Stable", group_type="Classic"
        )
        return module.ListGroupsResponse(throttle_time=NO_TIME, error_code=ErrorCode.NONE, groups=(group,))

    serve(fake, Api.LIST_GROUPS, answer)
    with client(fake) as cluster:
        found = list_groups(cluster)
    assert [(each.group_id, each.type, each.coordinator) for each in found] == [
        ("g-1", "classic", 3),
        ("g-2", "classic", 2),
        ("g-3", "classic", 1),
    ]


def test_a_broker_that_leaves_while_all_are_asked_has_handed_over_what_it_had() -> None:
    """What it coordinated may have gone to one that has answered already, so that one is asked again."""
    fake = FakeCluster(brokers=3)
    owners = {"g-1": 1, "g-2": 2, "g-3": 3}

    def answer(request: Any, module: Any, node_id: int) -> Any:
        if node_id == 2:
            fake.brokers[2].is_up = False
            owners["g-2"] = 1
            raise ConnectionLost("it dies")
        groups = tuple(
            module.ListedGroup(
                group_id=name, protocol_type="consumer", group_state="Stable", group_type="Classic"
            )
            for name, owner in owners.items()
            if owner == node_id
        )
        return module.ListGroupsResponse(throttle_time=NO_TIME, error_code=ErrorCode.NONE, groups=groups)

    serve(fake, Api.LIST_GROUPS, answer)
    with client(fake) as cluster:
        found = list_groups(cluster)
    assert [(each.group_id, each.coordinator) for each in found] == [("g-1", 1), ("g-2", 1), ("g-3", 3)]


def test_brokers_that_keep_leaving_are_reported_when_the_time_is_over() -> None:
    fake = FakeCluster(brokers=2)

    def answer(request: Any, module: Any, node_id: int) -> Any:
        fake.brokers[node_id].is_up = False
        fake.brokers[3 - node_id].is_up = True
        raise ConnectionLost("it dies")

    serve(fake, Api.LIST_GROUPS, answer)
    with client(fake) as cluster, pytest.raises(BrokerRefused, match="there is no broker"):
        list_groups(cluster)
    assert fake.clock.now_ms() > 50_000


# -- brokers of older versions ----------------------------------------------------------------------------


@pytest.fixture
def old() -> FakeCluster:
    """A broker of about Kafka 2.4: one coordinator a lookup, no states in lists, no consumer protocol."""
    fake = FakeCluster()
    fake.ranges = {
        **fake.ranges,
        Api.FIND_COORDINATOR: VersionRange(0, 2),
        Api.LIST_GROUPS: VersionRange(0, 2),
        Api.DESCRIBE_GROUPS: VersionRange(0, 4),
        Api.OFFSET_FETCH: VersionRange(1, 6),
        Api.OFFSET_COMMIT: VersionRange(2, 4),
    }
    del fake.ranges[Api.CONSUMER_GROUP_DESCRIBE]
    coordinate(fake, 1)
    return fake


def describing(state: str, protocol_type: str, members: tuple[tuple[bytes, bytes], ...] = ()) -> Any:
    def answer(request: Any, module: Any, _: int) -> Any:
        described = module.DescribedGroup(
            error_code=ErrorCode.NONE,
            group_id=request.groups[0],
            group_state=state,
            protocol_type=protocol_type,
            protocol_data="range",
            members=tuple(
                module.DescribedGroupMember(
                    member_id=f"m-{index}",
                    group_instance_id=None,
                    client_id="c",
                    client_host="/h",
                    member_metadata=metadata,
                    member_assignment=assignment,
                )
                for index, (metadata, assignment) in enumerate(members)
            ),
            authorized_operations=-(2**31),
        )
        return module.DescribeGroupsResponse(throttle_time=NO_TIME, groups=(described,))

    return answer


def test_an_old_broker_is_asked_in_its_own_words(old: FakeCluster) -> None:
    def groups(request: Any, module: Any, _: int) -> Any:
        group = module.ListedGroup(group_id="g", protocol_type="consumer")
        return module.ListGroupsResponse(throttle_time=NO_TIME, error_code=ErrorCode.NONE, groups=(group,))

    serve(old, Api.LIST_GROUPS, groups)
    subscription = write_subscription(Subscription(topics=("t",)), 0)
    assignment = write_assignment(
        Assignment(assigned_partitions=(TopicPartitions(topic="t", partitions=(1, 0)),)), 0
    )
    serve(old, Api.DESCRIBE_GROUPS, describing("Stable", "consumer", ((subscription, assignment),)))
    with client(old) as cluster:
        (listed,) = list_groups(cluster)
        assert (listed.type, listed.state) == (None, None)
        with pytest.raises(NotServed):
            list_groups(cluster, states=("Empty",))  # which it would not leave out
        group = describe_group(cluster, "g")
    assert (group.type, group.state, group.assignor) == ("classic", "Stable", "range")
    (member,) = group.members
    assert member.topics == ("t",)
    assert member.assignment == (TopicPartition("t", 0), TopicPartition("t", 1))


def test_a_dead_group_of_an_old_broker_is_one_that_is_not_there(old: FakeCluster) -> None:
    serve(old, Api.DESCRIBE_GROUPS, describing("Dead", ""))
    with client(old) as cluster:
        assert find_group(cluster, "g") is None


def test_members_that_are_no_consumers_keep_their_bytes_to_themselves(old: FakeCluster) -> None:
    serve(old, Api.DESCRIBE_GROUPS, describing("Stable", "connect", ((b"\xff\xff", b"\x00"),)))
    with client(old) as cluster:
        (member,) = describe_group(cluster, "g").members
    assert (member.topics, member.assignment) == ((), ())


def test_a_consumer_whose_bytes_are_nonsense_is_reported(old: FakeCluster) -> None:
    serve(old, Api.DESCRIBE_GROUPS, describing("Stable", "consumer", ((b"\x00\x00\x00\x00\x00\x09", b""),)))
    with client(old) as cluster, pytest.raises(BrokerRefused, match="member m-0: a list at byte 6 claims 9"):
        describe_group(cluster, "g")


def test_offsets_are_fetched_and_committed_in_old_versions(old: FakeCluster) -> None:
    kept: dict[TopicPartition, int] = {}

    def commit(request: Any, module: Any, _: int) -> Any:
        assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")
        topics = []
        for topic in request.topics:
            results = []
            for each in topic.partitions:
                kept[TopicPartition(topic.name, each.partition_index)] = each.committed_offset
                results.append(
                    module.OffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=ErrorCode.NONE
                    )
                )
            topics.append(module.OffsetCommitResponseTopic(name=topic.name, partitions=tuple(results)))
        return module.OffsetCommitResponse(throttle_time=NO_TIME, topics=tuple(topics))

    def fetch(request: Any, module: Any, _: int) -> Any:
        assert request.topics is None
        topics = tuple(
            module.OffsetFetchResponseTopic(
                name=name,
                partitions=(
                    module.OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=-1,
                        metadata=None,
                        error_code=ErrorCode.NONE,
                    ),
                ),
            )
            for (name, index), offset in kept.items()
        )
        return module.OffsetFetchResponse(throttle_time=NO_TIME, topics=topics, error_code=ErrorCode.NONE)

    serve(old, Api.OFFSET_COMMIT, commit)
    serve(old, Api.OFFSET_FETCH, fetch)
    with client(old) as cluster:
        commit_offsets(cluster, "g", {TopicPartition("t", 1): 7, TopicPartition("s", 0): 3})
        found = fetch_offsets(cluster, "g")
    assert found == {
        TopicPartition("s", 0): Committed(3, -1, ""),
        TopicPartition("t", 1): Committed(7, -1, ""),
    }
    assert list(found) == sorted(found)


def test_a_topic_that_is_gone_does_not_keep_the_rest_from_being_told() -> None:
    fake = FakeCluster()
    fake.add_topic("t", 2)
    with client(fake) as cluster:
        found = known_offsets(
            cluster, [TopicPartition("gone", 0), TopicPartition("t", 1), TopicPartition("t", 9)]
        )
    assert found == {TopicPartition("t", 1): 0}


# -- transactions -----------------------------------------------------------------------------------------


def described_body(started_ms: int = -1, code: int = 0) -> bytes:
    """DescribeTransactions 0, with one transaction of one topic and two partitions."""
    topic = b"\x02t" + b"\x03" + pack(">ii", 4, 2) + b"\x00"
    state = (
        pack(">h", code)
        + b"\x03id"
        + b"\x08Ongoing"
        + pack(">iqqh", 60_000, started_ms, 17, 3)
        + b"\x02"
        + topic
        + b"\x00"
    )
    return pack(">i", 0) + b"\x02" + state + b"\x00"


def test_a_description_is_read_whole() -> None:
    ((code, transaction),) = read_described(memoryview(described_body(1_234)), 0)
    partitions = (TopicPartition("t", 2), TopicPartition("t", 4))
    assert code == 0
    assert transaction == Transaction("id", "Ongoing", 17, 3, 60_000, 1_234, partitions)
    ((_, idle),) = read_described(memoryview(described_body(-1)), 0)
    assert idle.started_ms is None


def test_a_description_that_is_cut_or_has_a_tail_is_malformed() -> None:
    body = described_body(5)
    for size in range(len(body)):
        with pytest.raises(MalformedResponse, match="DescribeTransactions 0"):
            read_described(memoryview(body[:size]), 0)
    with pytest.raises(MalformedResponse):
        read_described(memoryview(body + b"\x00"), 0)


class Searched:
    """A cluster in which transactions are open: what partitions say, and what the coordinator knows."""

    def __init__(self) -> None:
        self.fake = FakeCluster()
        self.fake.add_topic("t", 4)
        self.open: dict[int, tuple[int, int]] = {}
        """By partition: the producer, and how long ago it wrote."""
        self.known: dict[str, tuple[int, tuple[int, ...]]] = {}
        """By transactional id: its producer, and the partitions without a marker."""
        coordinate(self.fake, 1)
        serve(self.fake, Api.DESCRIBE_PRODUCERS, self._producers)
        serve(self.fake, Api.LIST_TRANSACTIONS, self._list)
        serve(self.fake, Api.DESCRIBE_TRANSACTIONS, self._describe)

    def _producers(self, request: Any, module: Any, _: int) -> Any:
        def one(index: int) -> Any:
            states = ()
            if index in self.open:
                producer_id, age_ms = self.open[index]
                states = (
                    module.ProducerState(
                        producer_id=producer_id,
                        producer_epoch=0,
                        last_sequence=0,
                        last_timestamp=self.fake.clock.wall_ms() - age_ms,
                        coordinator_epoch=-1,
                        current_txn_start_offset=40 + index,
                    ),
                )
            return module.PartitionResponse(
                partition_index=index, error_code=ErrorCode.NONE, error_message=None, active_producers=states
            )

        topics = tuple(
            module.TopicResponse(
                name=each.name, partitions=tuple(one(index) for index in each.partition_indexes)
            )
            for each in request.topics
        )
        return module.DescribeProducersResponse(throttle_time=NO_TIME, topics=topics)

    def _list(self, request: Any, module: Any, _: int) -> Any:
        states = tuple(
            module.TransactionState(
                transactional_id=name, producer_id=producer_id, transaction_state="Ongoing"
            )
            for name, (producer_id, _) in self.known.items()
            if not request.producer_id_filters or producer_id in request.producer_id_filters
        )
        return module.ListTransactionsResponse(
            throttle_time=NO_TIME,
            error_code=ErrorCode.NONE,
            unknown_state_filters=tuple(each for each in request.state_filters if each == "Asleep"),
            transaction_states=states,
        )

    def _describe(self, request: Any, module: Any, _: int) -> Any:
        (name,) = request.transactional_ids
        producer_id, partitions = self.known[name]
        state = module.TransactionState(
            error_code=ErrorCode.NONE,
            transactional_id=name,
            transaction_state="Ongoing",
            transaction_timeout=timedelta(seconds=60),
            transaction_start_time=datetime(2026, 1, 1, tzinfo=UTC),
            producer_id=producer_id,
            producer_epoch=0,
            topics=(module.TopicData(topic="t", partitions=partitions),) if partitions else (),
        )
        return module.DescribeTransactionsResponse(throttle_time=NO_TIME, transaction_states=(state,))


def test_what_no_coordinator_will_end_hangs() -> None:
    """Kafka's find-hanging: open in a partition, and not among what a coordinator has still to mark."""
    world = Searched()
    hour_ms = 3_600_000
    world.open = {0: (10, hour_ms), 1: (11, hour_ms), 2: (12, hour_ms), 3: (13, 1_000)}
    world.known = {"whole": (10, (0,)), "partly": (11, (0, 3))}
    partitions = [TopicPartition("t", index) for index in range(4)]
    with client(world.fake) as cluster:
        cluster.refresh(["t"])
        found = find_hanging(cluster, partitions, 60_000)
        assert [(each.partition.partition, each.transactional_id) for each in found] == [
            (1, "partly"),
            (2, None),
        ]
        assert [each.producer.start_offset for each in found] == [41, 42]
        young = find_hanging(cluster, partitions, 0)
        assert [each.partition.partition for each in young] == [1, 2, 3]
        assert find_hanging(cluster, partitions, 2 * hour_ms) == []


def test_a_transaction_is_described_by_its_coordinator() -> None:
    world = Searched()
    world.known = {"whole": (10, (3, 1))}
    with client(world.fake) as cluster:
        told = describe_transaction(cluster, "whole")
    assert told.coordinator == 1
    assert told.partitions == (TopicPartition("t", 1), TopicPartition("t", 3))
    assert told.started_ms == 1_767_225_600_000


def test_a_state_that_a_broker_does_not_know_is_refused() -> None:
    world = Searched()
    with client(world.fake) as cluster, pytest.raises(BrokerRefused, match="'Asleep' is no state"):
        list_transactions(cluster, Filters(states=("Asleep",)))


def test_a_filter_that_a_broker_does_not_have_is_refused_not_ignored() -> None:
    world = Searched()
    world.fake.ranges = {**world.fake.ranges, Api.LIST_TRANSACTIONS: VersionRange(0, 0)}
    with client(world.fake) as cluster:
        assert list_transactions(cluster) == []
        for filters in (Filters(age_ms_min=5), Filters(pattern="x")):
            with pytest.raises(NotServed):
                list_transactions(cluster, filters)
