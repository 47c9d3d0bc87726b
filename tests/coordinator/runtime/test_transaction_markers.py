"""Markers of partitions that other brokers lead: one request each, and again until every partition has its own."""

from typing import Any, cast

import pytest
from tests.broker_clients import FakeBrokerClient, SentRequest
from tests.handlers.cluster import Cluster

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.coordinator.runtime.transaction_markers import RETRY_MS, MarkerWriter
from penstock.coordinator.transactions.requests import Markers, ProducerEpoch
from penstock.wire import Api


def place(topic: str, number: int = 0) -> TopicPartition:
    return TopicPartition(topic, number)


class Ending:
    """A transaction's end, on its way."""

    def __init__(self, cluster: Cluster, *partitions: TopicPartition, commit: bool = True) -> None:
        self.world = cluster.world
        self.others = FakeBrokerClient()
        self.written: list[TopicPartition] = []
        self.is_over = False
        nothing = cast(Any, None)
        writer = MarkerWriter(
            cluster.world, nothing, nothing, 1, lambda: cluster.image, cast(Any, self.others)
        )
        markers = Markers("mine", 1, ProducerEpoch(7, 3), 5, commit, frozenset(partitions), 2)
        writer.write(markers, self.written.append, lambda: self.is_over)

    def again(self) -> None:
        self.world.advance(RETRY_MS)


def asked_for(question: SentRequest) -> dict[str, list[int]]:
    assert question.api is Api.WRITE_TXN_MARKERS
    [marker] = question.message.markers
    return {topic.name: sorted(topic.partition_indexes) for topic in marker.topics}


def settle(question: SentRequest, codes: dict[TopicPartition, ErrorCode]) -> None:
    def build(make: Any) -> Any:
        topics = tuple(
            make.WritableTxnMarkerTopicResult(
                name=name.topic,
                partitions=(
                    make.WritableTxnMarkerPartitionResult(partition_index=name.partition, error_code=code),
                ),
            )
            for name, code in codes.items()
        )
        result = make.WritableTxnMarkerResult(producer_id=7, topics=topics)
        return make.WriteTxnMarkersResponse(markers=(result,))

    question.answer(build)


@pytest.fixture
def placed(three: Cluster) -> Cluster:
    three.create("a", (2, 3), (2, 3))
    three.create("b", (3, 2))
    return three


@pytest.fixture
def three() -> Cluster:
    return Cluster(brokers=(1, 2, 3))


@pytest.mark.parametrize("commit", [True, False])
def test_each_leader_gets_one_request_for_all_of_its_partitions(placed: Cluster, commit: bool) -> None:
    ending = Ending(placed, place("a"), place("a", 1), place("b"), commit=commit)
    asked = {each.broker_id: asked_for(each) for each in ending.others.waiting}
    assert asked == {2: {"a": [0, 1]}, 3: {"b": [0]}}
    [marker] = ending.others.waiting[0].message.markers
    assert (marker.producer_id, marker.producer_epoch) == (7, 3)
    assert (marker.transaction_result, marker.coordinator_epoch) == (commit, 5)
    for question in ending.others.waiting:
        names = [place(topic, each) for topic, numbers in asked_for(question).items() for each in numbers]
        settle(question, dict.fromkeys(names, ErrorCode.NONE))
    assert sorted(ending.written) == [place("a"), place("a", 1), place("b")]
    ending.again()
    assert not ending.others.waiting


def test_only_what_failed_is_asked_for_again(placed: Cluster) -> None:
    ending = Ending(placed, place("a"), place("a", 1))
    settle(
        ending.others.waiting[0], {place("a"): ErrorCode.NONE, place("a", 1): ErrorCode.NOT_ENOUGH_REPLICAS}
    )
    assert ending.written == [place("a")]
    assert not ending.others.waiting, "not at once"
    ending.again()
    [question] = ending.others.waiting
    assert asked_for(question) == {"a": [1]}


def test_what_an_answer_leaves_out_is_asked_for_again(placed: Cluster) -> None:
    ending = Ending(placed, place("a"), place("a", 1))
    settle(ending.others.waiting[0], {place("a"): ErrorCode.NONE})
    ending.again()
    assert asked_for(ending.others.waiting[0]) == {"a": [1]}


def test_a_leader_that_dies_is_not_asked_again_but_the_next_one_is(placed: Cluster) -> None:
    ending = Ending(placed, place("a"))
    [question] = ending.others.waiting
    assert question.broker_id == 2
    placed.fence(2)
    question.fail()
    ending.again()
    [question] = ending.others.waiting
    assert question.broker_id == 3
    settle(question, {place("a"): ErrorCode.NONE})
    assert ending.written == [place("a")]


def test_a_partition_without_a_leader_is_waited_for(placed: Cluster) -> None:
    placed.create("alone", (2,))
    placed.fence(2)
    ending = Ending(placed, place("alone"))
    [question] = ending.others.waiting
    assert question.broker_id == -1, "which nobody has"
    question.fail()
    placed.start(2)
    ending.again()
    assert [each.broker_id for each in ending.others.waiting] == [2]


def test_a_partition_that_is_no_more_has_nothing_to_end(placed: Cluster) -> None:
    ending = Ending(placed, place("gone"))
    assert ending.written == [place("gone")]
    assert not ending.others.asked


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_who_was_deposed_neither_asks_again_nor_calls_it_written(placed: Cluster, code: ErrorCode) -> None:
    ending = Ending(placed, place("a"))
    settle(ending.others.waiting[0], {place("a"): code})
    ending.again()
    assert ending.written == []
    assert not ending.others.waiting


def test_nothing_is_asked_again_for_a_coordinator_that_is_here_no_more(placed: Cluster) -> None:
    ending = Ending(placed, place("a"))
    ending.is_over = True
    ending.others.waiting[0].fail()
    ending.again()
    assert not ending.others.waiting
