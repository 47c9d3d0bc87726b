"""Transactions over the wire, on a whole node without sockets."""

from datetime import timedelta
from typing import Any

import pytest
from tests.handlers.producers import Txn, code_of, describe, find_coordinator, read_committed
from tests.nodes import StillNode
from tests.wire_requests import fetch_all

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.handlers import transaction_admin, transactions
from penstock.handlers.support.context import Context
from penstock.records import build_batch
from penstock.storage import Origin
from penstock.vfs import FaultyDisk, MemoryDisk
from penstock.wire import KAFKA_RANGES, Api, request_module

NONE, FENCED = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED
OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH
INVALID_TXN = ErrorCode.INVALID_TXN_STATE
FEW = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}
LONG = {**FEW, "transaction.max.timeout.ms": "1000000"}


@pytest.fixture(params=["alone", "never"])
def node(request: pytest.FixtureRequest) -> StillNode:
    node = StillNode(settings={**FEW, "durability.fsync": request.param})
    node.create_topic("orders", 3)
    return node


def settle(node: StillNode) -> None:
    """Let markers be written."""
    node.world.advance(100)


def versions(api: Api) -> range:
    return range(KAFKA_RANGES[api].min, KAFKA_RANGES[api].max + 1)


def group_offset(node: StillNode, group: str, topic: str = "orders", partition: int = 0) -> int | None:
    committed = node.node.context.groups.committed(group, topic, partition)
    return None if committed is None else committed.offset


# -- every API, in every version -------------------------------------------------------------------------


def test_every_api_of_transactions_is_asked_for_here() -> None:
    asked = {
        Api.ADD_PARTITIONS_TO_TXN,
        Api.ADD_OFFSETS_TO_TXN,
        Api.END_TXN,
        Api.TXN_OFFSET_COMMIT,
        Api.WRITE_TXN_MARKERS,
        Api.LIST_TRANSACTIONS,
        Api.DESCRIBE_TRANSACTIONS,
    }
    assert {*transactions.HANDLERS, *transaction_admin.HANDLERS} == asked


@pytest.mark.parametrize("version", versions(Api.INIT_PRODUCER_ID))
def test_a_transactional_producer_gets_its_id_in_every_version(node: StillNode, version: int) -> None:
    producer = Txn(node, "mine")
    assert producer.init(version) is NONE
    assert (producer.producer_id, producer.epoch) == (0, 0)
    assert producer.init(version) is NONE
    assert (producer.producer_id, producer.epoch) == (0, 1)


@pytest.mark.parametrize("version", versions(Api.ADD_PARTITIONS_TO_TXN))
def test_partitions_join_in_every_version(node: StillNode, version: int) -> None:
    producer = Txn(node, "mine")
    producer.init()
    assert producer.add(("orders", 0), ("orders", 2), version=version) is NONE
    described = describe(node, "mine")
    assert described.transaction_state == "Ongoing"
    assert [(each.topic, each.partitions) for each in described.topics] == [("orders", (0, 2))]


@pytest.mark.parametrize("version", versions(Api.ADD_PARTITIONS_TO_TXN))
def test_no_partition_joins_where_one_is_not_there(node: StillNode, version: int) -> None:
    producer = Txn(node, "mine")
    producer.init()
    assert producer.add(("orders", 0), ("orders", 7), version=version) is ErrorCode.OPERATION_NOT_ATTEMPTED
    assert producer.add(("gone", 0), version=version) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert describe(node, "mine").transaction_state == "Empty"


@pytest.mark.parametrize("version", [0, 3])
@pytest.mark.parametrize("number", [0, 999])
def test_a_client_cannot_have_an_internal_topic_join(node: StillNode, version: int, number: int) -> None:
    """KafkaApis.handleAddPartitionsToTxnRequest; whether the partition is there is not told."""
    producer = Txn(node, "mine")
    producer.init()
    for topic in ("__consumer_offsets", "__transaction_state"):
        code = producer.add((topic, number), version=version)
        assert code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    others = producer.add(("orders", 0), ("__transaction_state", number), version=version)
    assert others is ErrorCode.OPERATION_NOT_ATTEMPTED
    assert describe(node, "mine").transaction_state == "Empty"


@pytest.mark.parametrize("version", [4, 5])
def test_a_broker_may_have_an_internal_topic_join(node: StillNode, version: int) -> None:
    producer = Txn(node, "mine")
    producer.init()
    assert producer.add(("__transaction_state", 0), version=version) is NONE


@pytest.mark.parametrize("version", [4, 5])
def test_a_broker_is_told_which_partitions_are_in_a_transaction(node: StillNode, version: int) -> None:
    producer = Txn(node, "mine")
    producer.init()
    assert producer.add(("orders", 0)) is NONE
    assert producer.add(("orders", 0), version=version, verify_only=True) is NONE
    refused = producer.add(("orders", 1), version=version, verify_only=True)
    assert refused is ErrorCode.TRANSACTION_ABORTABLE
    assert describe(node, "mine").topics[0].partitions == (0,)


def test_a_broker_asks_for_several_transactions_at_once(node: StillNode) -> None:
    one, two = Txn(node, "one"), Txn(node, "two")
    one.init()
    two.init()
    module = request_module(Api.ADD_PARTITIONS_TO_TXN, 5)
    topics = (module.AddPartitionsToTxnTopic(name="orders", partitions=(0, 1)),)
    reply = node.client().call(
        Api.ADD_PARTITIONS_TO_TXN,
        5,
        transactions=tuple(
            module.AddPartitionsToTxnTransaction(
                transactional_id=each.transactional_id,
                producer_id=producer_id,
                producer_epoch=each.epoch,
                topics=topics,
            )
            for each, producer_id in ((one, one.producer_id), (two, 4711))
        ),
    )
    assert {
        each.transactional_id: {
            ErrorCode(result.partition_error_code.value)
            for topic in each.topic_results
            for result in topic.results_by_partition
        }
        for each in reply.results_by_transaction
    } == {"one": {NONE}, "two": {ErrorCode.INVALID_PRODUCER_ID_MAPPING}}


@pytest.mark.parametrize("version", versions(Api.ADD_OFFSETS_TO_TXN))
def test_a_groups_partition_joins_in_every_version(node: StillNode, version: int) -> None:
    producer = Txn(node, "mine")
    producer.init()
    assert producer.add_offsets("readers", version) is NONE
    [topic] = describe(node, "mine").topics
    assert topic.topic == "__consumer_offsets"
    find_coordinator(node.client(), "readers", 0)
    assert topic.partitions == (node.node.context.groups.shards.number_of("readers"),)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", versions(Api.END_TXN))
def test_a_transaction_ends_in_every_version(node: StillNode, version: int, commit: bool) -> None:
    producer = Txn(node, "mine", speaks=2 if version >= 5 else 1)
    producer.init()
    assert producer.send("orders", 0, b"a") is NONE
    assert producer.end(commit=commit, version=version) is NONE
    settle(node)
    assert producer.state() == ("CompleteCommit" if commit else "CompleteAbort")
    assert read_committed(node, "orders", 0) == ([b"a"] if commit else [])
    assert producer.epoch == (1 if version >= 5 else 0)


@pytest.mark.parametrize("version", versions(Api.TXN_OFFSET_COMMIT))
def test_offsets_are_committed_in_every_version(node: StillNode, version: int) -> None:
    producer = Txn(node, "mine", speaks=2 if version >= 5 else 1)
    producer.init()
    assert producer.commit_offsets("readers", "orders", 0, 17, version=version) is NONE
    assert group_offset(node, "readers") is None
    assert producer.end(commit=True) is NONE
    settle(node)
    assert group_offset(node, "readers") == 17


@pytest.mark.parametrize("version", versions(Api.WRITE_TXN_MARKERS))
def test_markers_are_written_in_every_version(node: StillNode, version: int) -> None:
    producer = Txn(node, "mine")
    producer.init()
    producer.send("orders", 0, b"a")
    codes = write_markers(
        node, producer.producer_id, producer.epoch, ("orders", 0), ("orders", 9), version=version
    )
    assert codes == [NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert read_committed(node, "orders", 0) == []
    assert node.node.context.replicas.find("orders", 0).last_stable == 2


@pytest.mark.parametrize("version", versions(Api.LIST_TRANSACTIONS))
def test_transactions_are_listed_in_every_version(node: StillNode, version: int) -> None:
    assert listed(node, version) == []
    for name in ("one", "two", "three"):
        Txn(node, name).init()
    two = Txn(node, "two")
    two.init()
    two.send("orders", 0, b"a")
    assert listed(node, version) == ["one", "three", "two"]
    assert listed(node, version, state_filters=("Ongoing", "Sleepy")) == ["two"]
    assert listed(node, version, producer_id_filters=(0,)) == ["one"]
    reply = node.client().call(Api.LIST_TRANSACTIONS, version, state_filters=("Sleepy",))
    assert reply.unknown_state_filters == ("Sleepy",)
    if version >= 1:
        open_ones = {"state_filters": ("Ongoing",)}
        assert listed(node, version, **open_ones, duration_filter=0) == ["two"]
        assert listed(node, version, **open_ones, duration_filter=3_600_000) == []
    if version >= 2:
        assert listed(node, version, transactional_id_pattern="t.*") == ["three", "two"]
        assert listed(node, version, transactional_id_pattern="t") == []
        bad = node.client().call(Api.LIST_TRANSACTIONS, version, transactional_id_pattern="(")
        assert code_of(bad) is ErrorCode.INVALID_REGULAR_EXPRESSION


def listed(node: StillNode, version: int, **filters: Any) -> list[str]:
    reply = node.client().call(Api.LIST_TRANSACTIONS, version, **filters)
    assert code_of(reply) is NONE
    return sorted(each.transactional_id for each in reply.transaction_states)


def test_a_transaction_is_described(node: StillNode) -> None:
    Txn(node, "idle").init()
    idle = describe(node, "idle")
    assert (idle.transaction_state, idle.producer_id, idle.producer_epoch, idle.topics) == ("Empty", 0, 0, ())
    assert code_of(describe(node, "unheard of")) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert code_of(describe(node, "")) is ErrorCode.INVALID_REQUEST
    busy = Txn(node, "busy", timeout_ms=5000)
    busy.init()
    began_ms = node.world.now_ms()
    busy.send("orders", 1, b"a")
    found = describe(node, "busy")
    assert found.transaction_timeout == timedelta(seconds=5)
    assert 0 <= int(found.transaction_start_time.timestamp() * 1000) - began_ms < 100


def test_nothing_is_known_where_nobody_ever_asked_for_a_coordinator(node: StillNode) -> None:
    client = node.client()
    reply = client.call(
        Api.INIT_PRODUCER_ID, 5, transactional_id="mine", transaction_timeout=timedelta(seconds=1)
    )
    assert code_of(reply) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert listed(node, 2) == []
    assert code_of(describe(node, "mine")) is ErrorCode.COORDINATOR_NOT_AVAILABLE


# -- all, or nothing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("speaks", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_a_reader_of_committed_data_sees_all_of_a_transaction_or_nothing(
    node: StillNode, speaks: int, commit: bool
) -> None:
    producer = Txn(node, "mine", speaks=speaks)
    producer.init()
    for number in range(3):
        assert producer.send("orders", number, b"%d" % number, b"x") is NONE
        assert producer.send("orders", number, b"y") is NONE
        assert read_committed(node, "orders", number) == []
        assert fetch_all(node, "orders", number) == [b"%d" % number, b"x", b"y"]
    assert producer.end(commit=commit) is NONE
    settle(node)
    for number in range(3):
        expected = [b"%d" % number, b"x", b"y"] if commit else []
        assert read_committed(node, "orders", number) == expected
    assert describe(node, "mine").topics == ()


@pytest.mark.parametrize("speaks", [1, 2])
def test_one_transaction_follows_another_with_no_pause(node: StillNode, speaks: int) -> None:
    """The end of the one may be under way when the next begins: CONCURRENT_TRANSACTIONS is asked again by itself."""
    producer = Txn(node, "mine", speaks=speaks)
    producer.init()
    expected = []
    for number in range(12):
        assert producer.send("orders", 0, b"%d" % number) is NONE
        commit = number % 3 != 1
        assert producer.end(commit=commit) is NONE
        expected += [b"%d" % number] if commit else []
    settle(node)
    assert read_committed(node, "orders", 0) == expected
    assert read_committed(node, "orders", 0, partition_bytes=1) == expected
    assert producer.epoch == (12 if speaks == 2 else 0)


def test_transactions_of_several_producers_lie_side_by_side(node: StillNode) -> None:
    one, two, three = (Txn(node, name) for name in ("one", "two", "three"))
    for each in (one, two, three):
        each.init()
        each.send("orders", 0, each.transactional_id.encode())
    one.send("orders", 0, b"more of one")
    assert two.end(commit=True) is NONE
    settle(node)
    assert read_committed(node, "orders", 0) == []
    assert one.end(commit=False) is NONE
    settle(node)
    assert read_committed(node, "orders", 0) == [b"two"]
    assert three.end(commit=True) is NONE
    settle(node)
    assert read_committed(node, "orders", 0) == [b"two", b"three"]
    assert read_committed(node, "orders", 0, partition_bytes=1) == [b"two", b"three"]


@pytest.mark.parametrize("speaks", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_offsets_of_a_group_count_when_the_transaction_commits(
    node: StillNode, speaks: int, commit: bool
) -> None:
    producer = Txn(node, "mine", speaks=speaks)
    producer.init()
    assert producer.commit_offsets("readers", "orders", 0, 5) is NONE
    assert producer.send("orders", 1, b"out") is NONE
    assert group_offset(node, "readers") is None
    assert producer.end(commit=commit) is NONE
    settle(node)
    assert group_offset(node, "readers") == (5 if commit else None)
    assert read_committed(node, "orders", 1) == ([b"out"] if commit else [])
    node.crash()
    settle(node)
    assert group_offset(node, "readers") == (5 if commit else None)


def test_offsets_that_cannot_be_are_refused_one_by_one(node: StillNode) -> None:
    producer = Txn(node, "mine")
    producer.init()
    assert producer.commit_offsets("readers", "gone", 0, 5) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.commit_offsets("readers", "orders", 9, 5) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.txn_offset_commit("", "orders", 0, 5) is ErrorCode.INVALID_GROUP_ID
    assert describe(node, "mine").transaction_state == "Empty"
    stranger = producer.commit_offsets("readers", "orders", 0, 5, generation_id=3, member_id="who")
    assert stranger is ErrorCode.ILLEGAL_GENERATION


def test_offsets_are_refused_where_their_partition_is_not_in_the_transaction(node: StillNode) -> None:
    producer = Txn(node, "mine", speaks=1)
    producer.init()
    find_coordinator(producer.client, "readers", 0)
    codes = {
        version: producer.txn_offset_commit("readers", "orders", 0, 5, version=version) for version in (3, 4)
    }
    assert codes == {3: INVALID_TXN, 4: ErrorCode.TRANSACTION_ABORTABLE}
    producer.epoch += 1
    assert producer.txn_offset_commit("readers", "orders", 0, 5, version=4) is OLD_EPOCH


def test_a_topic_that_is_deleted_does_not_hold_up_the_end(node: StillNode) -> None:
    node.create_topic("brief")
    producer = Txn(node, "mine")
    producer.init()
    assert producer.send("brief", 0, b"a") is NONE
    assert producer.send("orders", 0, b"b") is NONE
    module = request_module(Api.DELETE_TOPICS, 6)
    node.client().call(
        Api.DELETE_TOPICS,
        6,
        topics=(module.DeleteTopicState(name="brief", topic_id=None),),
        timeout=timedelta(seconds=5),
    )
    assert producer.end(commit=True) is NONE
    settle(node)
    assert producer.state() == "CompleteCommit"
    assert read_committed(node, "orders", 0) == [b"b"]


# -- fencing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("speaks", [1, 2])
def test_a_second_producer_of_the_same_id_fences_the_first(node: StillNode, speaks: int) -> None:
    first, second = Txn(node, "mine", speaks=speaks), Txn(node, "mine", speaks=speaks)
    first.init()
    assert first.send("orders", 0, b"lost") is NONE
    assert second.init() is NONE
    assert second.epoch > first.epoch
    assert read_committed(node, "orders", 0) == []
    first.produce("orders", 0, b"late")
    assert first.sent() is OLD_EPOCH
    assert first.end(commit=True) is FENCED
    assert first.init(goes_on=True) is FENCED
    assert second.send("orders", 0, b"kept") is NONE
    assert second.end(commit=True) is NONE
    settle(node)
    assert read_committed(node, "orders", 0) == [b"kept"]


@pytest.mark.parametrize(
    ("api", "since"),
    [
        (Api.INIT_PRODUCER_ID, 4),
        (Api.ADD_PARTITIONS_TO_TXN, 2),
        (Api.ADD_OFFSETS_TO_TXN, 2),
        (Api.END_TXN, 2),
    ],
    ids=lambda each: str(getattr(each, "label", each)),
)
def test_older_clients_are_fenced_with_a_code_that_they_know(node: StillNode, api: Api, since: int) -> None:
    """KIP-588."""
    old = Txn(node, "mine")
    old.init()
    Txn(node, "mine").init()
    ask = {
        Api.INIT_PRODUCER_ID: lambda version: old.init(version, goes_on=True),
        Api.ADD_PARTITIONS_TO_TXN: lambda version: old.add(("orders", 0), version=version),
        Api.ADD_OFFSETS_TO_TXN: lambda version: old.add_offsets("g", version),
        Api.END_TXN: lambda version: old.end(commit=True, version=version),
    }[api]
    lowest = 3 if api is Api.INIT_PRODUCER_ID else 0
    for version in range(lowest, KAFKA_RANGES[api].max + 1):
        assert ask(version) is (FENCED if version >= since else OLD_EPOCH), version


def test_a_late_batch_of_an_earlier_transaction_does_not_get_into_the_next_one(node: StillNode) -> None:
    """KIP-890: every end moves the epoch."""
    producer, late = Txn(node, "mine"), Txn(node, "mine")
    producer.init()
    late.producer_id, late.epoch = producer.producer_id, producer.epoch
    late.sequences = {("orders", 0): 1}
    assert producer.send("orders", 0, b"a") is NONE
    assert producer.end(commit=True) is NONE
    settle(node)
    late.produce("orders", 0, b"late")
    assert late.sent() is OLD_EPOCH
    assert producer.send("orders", 0, b"b") is NONE
    late.produce("orders", 0, b"late")
    assert late.sent() is OLD_EPOCH
    assert producer.end(commit=True) is NONE
    settle(node)
    assert read_committed(node, "orders", 0) == [b"a", b"b"]


def test_a_repeated_end_gets_the_answer_of_the_first(node: StillNode) -> None:
    producer = Txn(node, "mine")
    producer.init()
    producer.send("orders", 0, b"a")
    assert producer.end(commit=True) is NONE
    settle(node)
    producer.epoch -= 1
    assert producer.end(commit=True) is NONE
    assert producer.epoch == 1
    producer.epoch -= 1
    assert producer.end(commit=False) is INVALID_TXN


def test_an_end_without_a_transaction_is_refused(node: StillNode) -> None:
    producer = Txn(node, "mine")
    producer.init()
    assert producer.end(commit=True) is INVALID_TXN
    assert producer.end(commit=False) is NONE
    old = Txn(node, "old", speaks=1)
    old.init()
    assert old.end(commit=True) is INVALID_TXN
    stranger = Txn(node, "stranger")
    stranger.producer_id, stranger.epoch = 99, 0
    assert stranger.end(commit=True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_beyond_the_limit_is_refused(node: StillNode, timeout_ms: int) -> None:
    assert Txn(node, "mine", timeout_ms=timeout_ms).init() is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_the_longest_timeout_is_what_the_setting_says() -> None:
    for settings, code in ((FEW, ErrorCode.INVALID_TRANSACTION_TIMEOUT), (LONG, NONE)):
        node = StillNode(settings=settings)
        assert Txn(node, "mine", timeout_ms=1_000_000).init() is code


@pytest.mark.parametrize("speaks", [1, 2])
def test_a_transaction_that_lasts_too_long_is_aborted(node: StillNode, speaks: int) -> None:
    producer = Txn(node, "mine", timeout_ms=5000, speaks=speaks)
    producer.init()
    assert producer.send("orders", 0, b"slow") is NONE
    node.world.advance(4000)
    assert producer.state() == "Ongoing"
    node.world.advance(1200)
    assert producer.state() == "CompleteAbort"
    assert read_committed(node, "orders", 0) == []
    assert node.node.context.replicas.find("orders", 0).last_stable == 2
    # With version 2 this is what a repeated end would look like, of a transaction that ended otherwise.
    assert producer.end(commit=True) is (INVALID_TXN if speaks == 2 else FENCED)
    producer.produce("orders", 0, b"late")
    assert producer.sent() is OLD_EPOCH
    assert producer.init() is NONE
    assert producer.send("orders", 0, b"quick") is NONE
    assert producer.end(commit=True) is NONE
    settle(node)
    assert read_committed(node, "orders", 0) == [b"quick"]


# -- what hangs ------------------------------------------------------------------------------------------------


def write_markers(
    node: StillNode,
    producer_id: int,
    epoch: int,
    *partitions: tuple[str, int],
    version: int = 2,
    commit: bool = False,
    transaction_version: int = 0,
) -> list[ErrorCode]:
    module = request_module(Api.WRITE_TXN_MARKERS, version)
    known = {"transaction_version": transaction_version} if version >= 2 else {}
    marker = module.WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=tuple(
            module.WritableTxnMarkerTopic(name=topic, partition_indexes=(number,))
            for topic, number in partitions
        ),
        coordinator_epoch=0,
        **known,
    )
    reply = node.client().call(Api.WRITE_TXN_MARKERS, version, markers=(marker,))
    return [
        ErrorCode(each.error_code.value) for topic in reply.markers[0].topics for each in topic.partitions
    ]


def test_a_transaction_that_hangs_is_seen_and_ended_from_outside() -> None:
    """KIP-664: a batch that no coordinator knows of, as older brokers let them be written."""
    node = StillNode(settings={**FEW, "transaction.partition.verification.enable": "false"})
    node.create_topic("orders")
    producer = Txn(node, "mine", speaks=1)
    producer.init()
    producer.produce("orders", 0, b"hangs")
    assert producer.sent() is NONE
    Txn(node, "mine").init()
    settle(node)
    partition = node.node.context.replicas.find("orders", 0)
    assert partition.last_stable == 0
    module = request_module(Api.DESCRIBE_PRODUCERS, 0)
    topics = (module.TopicRequest(name="orders", partition_indexes=(0,)),)
    [found] = (
        node.client().call(Api.DESCRIBE_PRODUCERS, 0, topics=topics).topics[0].partitions[0].active_producers
    )
    assert found.current_txn_start_offset == 0
    assert write_markers(node, found.producer_id, found.producer_epoch, ("orders", 0)) == [NONE]
    assert read_committed(node, "orders", 0) == []
    assert partition.last_stable == 2


def test_a_marker_that_comes_too_late_is_refused(node: StillNode) -> None:
    """KIP-1228: from `transaction.version` 2 on, a marker's epoch is above that of the records it ends."""
    producer = Txn(node, "mine")
    producer.init()
    producer.send("orders", 0, b"a")
    late = write_markers(node, producer.producer_id, producer.epoch, ("orders", 0), transaction_version=2)
    assert late == [OLD_EPOCH]
    assert node.node.context.replicas.find("orders", 0).last_stable == 0
    assert producer.end(commit=True) is NONE
    settle(node)
    again = write_markers(
        node, producer.producer_id, producer.epoch, ("orders", 0), transaction_version=2, commit=True
    )
    assert again == [NONE], "where nothing is open it is the same marker once more"
    assert write_markers(node, producer.producer_id, 0, ("orders", 0)) == [OLD_EPOCH]
    assert read_committed(node, "orders", 0) == [b"a"]


@pytest.mark.parametrize("is_short", [True, False])
def test_an_unused_id_is_forgotten(is_short: bool) -> None:
    """Looked for every hour; a week is the default."""
    node = StillNode(settings={**FEW, "transactional.id.expiration.ms": "1000000"} if is_short else FEW)
    node.create_topic("orders")
    idle, busy = Txn(node, "idle"), Txn(node, "busy", timeout_ms=900_000)
    idle.init()
    busy.init()
    for _ in range(5):
        node.world.advance(800_000)
        busy.connect()  # an idle connection is closed
        busy.send("orders", 0, b"a")
        busy.end(commit=True)
    assert code_of(describe(node, "idle")) is (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if is_short else NONE)
    assert code_of(describe(node, "busy")) is NONE
    if not is_short:
        return
    idle.connect()
    assert idle.end(commit=False) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    node.crash()
    settle(node)
    assert code_of(describe(node, "idle")) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.parametrize("operation", ["write", "sync"])
@pytest.mark.parametrize("path", ["*__transaction_state-*", "*orders-1/*"])
def test_a_disk_that_fails_for_a_while_leaves_nothing_half_decided(operation: str, path: str) -> None:
    disk = FaultyDisk(MemoryDisk())
    node = StillNode(disk, settings=FEW)
    node.create_topic("orders", 3)
    producer = Txn(node, "mine")
    producer.init()
    for number in range(3):
        assert producer.send("orders", number, b"a") is NONE
    trouble = disk.fail(operation, path=path)
    code = producer.end(commit=True)
    node.world.advance(500)
    assert (code is NONE) is (path == "*orders-1/*"), "the decision is in one partition"
    if (operation, path) != ("sync", "*orders-1/*"):  # a marker is seen when it is written, as records are
        assert read_committed(node, "orders", 1) == []
    trouble.cancel()
    while code is not NONE:
        node.world.advance(50)
        code = producer.end(commit=True)
    node.world.advance(3000)
    assert [read_committed(node, "orders", number) for number in range(3)] == [[b"a"]] * 3
    assert producer.state() == "CompleteCommit"
    assert producer.epoch == 1


def test_a_damaged_partition_stops_its_own_transactions_alone(node: StillNode) -> None:
    names = [f"id-{number}" for number in range(8)]
    for name in names:
        Txn(node, name).init()
    shards = node.node.context.transactions.shards
    broken = node.node.context.replicas.find("__transaction_state", 0)
    kept = {name: shards.number_of(name) for name in names}
    assert set(kept.values()) == {0, 1}
    batch = build_batch([(b"\0\0\0\x01x", b"\0\1nonsense", node.world.now_ms())])
    broken.log.append(bytearray(batch), leader_epoch=0, now_ms=node.world.now_ms(), origin=Origin.COORDINATOR)
    broken.log.flush()
    node.crash()
    settle(node)
    codes = {name: code_of(describe(node, name)) for name in names}
    assert codes == {
        name: ErrorCode.COORDINATOR_NOT_AVAILABLE if number == 0 else NONE for name, number in kept.items()
    }
    assert listed(node, 2) == sorted(name for name, number in kept.items() if number == 1)
    assert TopicPartition("orders", 0) in node.node.context.replicas.partitions


class Denying(Context):
    """A node whose ACLs allow nothing."""

    __slots__ = ()

    def authorize(self, *_: object) -> bool:
        return False

    permits = authorize


@pytest.mark.parametrize("version", [0, 99])
def test_a_client_without_permissions_gets_an_error_and_changes_nothing(version: int) -> None:
    """In the first and in the last version of each API."""
    node = StillNode(settings=FEW)
    node.create_topic("orders", 3)
    producer = Txn(node, "mine", speaks=1)
    producer.init()
    assert producer.send("orders", 0, b"a") is NONE

    def of(api: Api) -> int:
        return min(max(version, KAFKA_RANGES[api].min), KAFKA_RANGES[api].max)

    node.node.context.__class__ = Denying
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert producer.init(of(Api.INIT_PRODUCER_ID)) is refused
    assert producer.add_offsets("g", of(Api.ADD_OFFSETS_TO_TXN)) is refused
    assert producer.txn_offset_commit("g", "orders", 0, 1, version=of(Api.TXN_OFFSET_COMMIT)) is refused
    assert producer.end(commit=True, version=of(Api.END_TXN)) is refused
    assert code_of(describe(node, "mine")) is refused
    assert listed(node, of(Api.LIST_TRANSACTIONS)) == []
    assert producer.add(("orders", 1), version=3) is refused
    by_broker = producer.call(Api.ADD_PARTITIONS_TO_TXN, 5, transactions=())
    assert code_of(by_broker) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    codes = write_markers(
        node, producer.producer_id, producer.epoch, ("orders", 0), version=of(Api.WRITE_TXN_MARKERS)
    )
    assert codes == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    node.node.context.__class__ = Context
    found = describe(node, "mine")
    assert (found.transaction_state, found.topics[0].partitions) == ("Ongoing", (0,))
    assert node.node.context.replicas.find("orders", 0).last_stable == 0
