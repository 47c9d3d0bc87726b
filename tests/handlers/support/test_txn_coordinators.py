"""A leader asks the coordinator of a transaction, here or on another broker, whether a partition takes part."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.broker_clients import FakeBrokerClient, SentRequest
from tests.handlers.cluster import Cluster

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TopicPartition
from penstock.base.internal_topics import TRANSACTIONS_TOPIC
from penstock.base.promise import Promise
from penstock.coordinator.transactions.requests import (
    AddPartitions,
    ProducerEpoch,
    VerifyPartitions,
    VerifyReply,
)
from penstock.handlers.support.txn_coordinators import ask_coordinator
from penstock.wire import Api

PLACES = (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0))
PRODUCER = ProducerEpoch(7, 3)
ADDING = AddPartitions("mine", PRODUCER, frozenset(PLACES), 2)
VERIFYING = VerifyPartitions("mine", PRODUCER, frozenset(PLACES))


class Coordinators:
    """Those of this node; each id belongs to partition 0."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.answer: Promise[Any] = Promise()
        self.refusal: KafkaError | None = None
        self.shards = SimpleNamespace(number_of=self._number_of)

    def _number_of(self, transactional_id: str) -> int:
        if self.refusal is not None:
            raise self.refusal
        return 0

    def handle(self, transactional_id: str, request: Any) -> Promise[Any]:
        self.asked.append(request)
        return self.answer


class Asking:
    def __init__(self, leader: int) -> None:
        self.cluster = Cluster(brokers=(1, 2))
        self.cluster.create(TRANSACTIONS_TOPIC, (leader,))
        self.here, self.others = Coordinators(), FakeBrokerClient()
        self.cluster.context.transactions = cast(Any, self.here)
        self.cluster.context.broker_client = cast(Any, self.others)

    def ask(self, request: AddPartitions | VerifyPartitions) -> Promise[dict[TopicPartition, ErrorCode]]:
        return ask_coordinator(self.cluster.context, request)


def settle(
    request: SentRequest, codes: dict[TopicPartition, ErrorCode], whole: ErrorCode = ErrorCode.NONE
) -> None:
    def build(make: Any) -> Any:
        topics = tuple(
            make.AddPartitionsToTxnTopicResult(
                name=name.topic,
                results_by_partition=(
                    make.AddPartitionsToTxnPartitionResult(
                        partition_index=name.partition, partition_error_code=code
                    ),
                ),
            )
            for name, code in codes.items()
        )
        result = make.AddPartitionsToTxnResult(transactional_id="mine", topic_results=topics)
        return make.AddPartitionsToTxnResponse(
            throttle_time=timedelta(), error_code=whole, results_by_transaction=(result,)
        )

    request.answer(build)


@pytest.mark.parametrize("txn_request", [ADDING, VERIFYING])
def test_a_coordinator_that_is_here_is_asked_directly(txn_request: AddPartitions | VerifyPartitions) -> None:
    asking = Asking(leader=1)
    answer = asking.ask(txn_request)
    assert asking.here.asked == [txn_request]
    assert not asking.others.asked
    codes = dict.fromkeys(PLACES, ErrorCode.NONE)
    asking.here.answer.resolve(VerifyReply(codes))
    assert answer.value == codes


def test_what_refuses_all_refuses_each() -> None:
    asking = Asking(leader=1)
    answer = asking.ask(ADDING)
    asking.here.answer.resolve(SimpleNamespace(code=ErrorCode.INVALID_PRODUCER_EPOCH))
    assert answer.value == dict.fromkeys(PLACES, ErrorCode.INVALID_PRODUCER_EPOCH)


@pytest.mark.parametrize(("txn_request", "verify_only"), [(ADDING, False), (VERIFYING, True)])
def test_a_coordinator_elsewhere_is_asked_as_brokers_ask(
    txn_request: AddPartitions | VerifyPartitions, verify_only: bool
) -> None:
    asking = Asking(leader=2)
    answer = asking.ask(txn_request)
    assert not asking.here.asked
    [asked] = asking.others.waiting
    assert (asked.broker_id, asked.api) == (2, Api.ADD_PARTITIONS_TO_TXN)
    assert asked.version >= 4
    [transaction] = asked.message.transactions
    assert (transaction.transactional_id, transaction.verify_only) == ("mine", verify_only)
    assert (transaction.producer_id, transaction.producer_epoch) == (7, 3)
    assert {each.name: tuple(each.partitions) for each in transaction.topics} == {"a": (0, 1), "b": (0,)}
    codes = {
        PLACES[0]: ErrorCode.NONE,
        PLACES[1]: ErrorCode.TRANSACTION_ABORTABLE,
        PLACES[2]: ErrorCode.INVALID_TXN_STATE,
    }
    settle(asked, codes)
    assert answer.value == codes


def test_a_coordinator_that_cannot_be_reached_is_a_network_that_failed() -> None:
    asking = Asking(leader=2)
    answer = asking.ask(VERIFYING)
    asking.others.waiting[0].fail()
    assert answer.value == dict.fromkeys(PLACES, ErrorCode.NETWORK_EXCEPTION)


def test_what_it_refuses_as_a_whole_holds_for_each_that_it_does_not_name() -> None:
    asking = Asking(leader=2)
    answer = asking.ask(VERIFYING)
    settle(asking.others.waiting[0], {}, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert answer.value == dict.fromkeys(PLACES, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def test_a_partition_that_it_forgets_is_not_taken_for_one_that_may() -> None:
    asking = Asking(leader=2)
    answer = asking.ask(VERIFYING)
    settle(asking.others.waiting[0], {PLACES[0]: ErrorCode.NONE})
    assert answer.value == {
        PLACES[0]: ErrorCode.NONE,
        PLACES[1]: ErrorCode.UNKNOWN_SERVER_ERROR,
        PLACES[2]: ErrorCode.UNKNOWN_SERVER_ERROR,
    }


def test_while_nobody_coordinates_it_is_this_node_that_says_so() -> None:
    asking = Asking(leader=2)
    asking.cluster.fence(2)
    asking.ask(VERIFYING)
    assert asking.here.asked == [VERIFYING]
    assert not asking.others.asked


def test_without_the_transactions_topic_no_request_is_sent() -> None:
    asking = Asking(leader=2)
    asking.here.refusal = KafkaError("there is no such topic", ErrorCode.COORDINATOR_NOT_AVAILABLE)
    answer = asking.ask(ADDING)
    assert answer.value == dict.fromkeys(PLACES, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert not asking.others.asked
