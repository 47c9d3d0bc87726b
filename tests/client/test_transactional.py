"""Transactions from a producer's side: opened here, ended there, and what the answers mean."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.client.fake import FakeCluster
from tests.client.test_coordinators import asked, client, coordinate, serve

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.errors import BrokerRefused
from penstock.client.identity import init_transactions
from penstock.client.settings import parse_servers
from penstock.client.transactional import (
    OpenTransaction,
    add_partitions,
    describe_transactions,
    end_transactions,
    uses_epoch_bumps,
)
from penstock.testing import Broker
from penstock.wire import Api
from penstock.wire.catalogue import VersionRange

NO_TIME = timedelta(0)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("t", 2)
        yield running


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(parse_servers(broker.bootstrap)) as connected:
        yield connected


def opened(cluster: Cluster, name: str) -> OpenTransaction:
    """With a partition in it: as good as a record."""
    identity = init_transactions(cluster, name, 60_000)
    transaction = OpenTransaction(name, identity.producer_id, identity.epoch)
    add_partitions(cluster, transaction, [TopicPartition("t", 0), TopicPartition("t", 1)])
    return transaction


def test_the_cluster_says_how_transactions_are_spoken(cluster: Cluster) -> None:
    assert uses_epoch_bumps(cluster)


@pytest.mark.parametrize("epoch_bumps", [False, True])
def test_an_end_may_be_said_twice_and_not_changed(cluster: Cluster, epoch_bumps: bool) -> None:
    transaction = opened(cluster, f"twice-{epoch_bumps}")
    for _ in range(2):
        assert end_transactions(cluster, [transaction], commit=True, epoch_bumps=epoch_bumps) == {}
    gone = end_transactions(cluster, [transaction], commit=False, epoch_bumps=epoch_bumps)
    assert gone == {transaction: ErrorCode.INVALID_TXN_STATE}


@pytest.mark.parametrize("epoch_bumps", [False, True])
def test_who_takes_an_id_over_aborts_and_fences(cluster: Cluster, epoch_bumps: bool) -> None:
    name = f"taken-{epoch_bumps}"
    transaction = opened(cluster, name)
    after = init_transactions(cluster, name, 60_000)
    assert after.epoch > transaction.epoch
    [code] = end_transactions(cluster, [transaction], commit=True, epoch_bumps=epoch_bumps).values()
    assert code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    with pytest.raises(BrokerRefused) as refusal:
        add_partitions(cluster, transaction, [TopicPartition("t", 0)])
    assert refusal.value.code == ErrorCode.PRODUCER_FENCED


def test_many_are_described_and_ended_together(cluster: Cluster) -> None:
    transactions = [opened(cluster, f"many-{each}") for each in range(7)]
    names = [each.transactional_id for each in transactions]
    told = describe_transactions(cluster, [*names, "nobody"])
    assert sorted(told) == sorted(names)
    assert {each.state for each in told.values()} == {"Ongoing"}
    assert {(each.producer_id, each.producer_epoch) for each in told.values()} == {
        (each.producer_id, each.epoch) for each in transactions
    }
    assert end_transactions(cluster, transactions, commit=False, epoch_bumps=True) == {}
    unknown = OpenTransaction("nobody", 1, 0)
    assert end_transactions(cluster, [unknown], commit=True, epoch_bumps=True) == {
        unknown: ErrorCode.INVALID_PRODUCER_ID_MAPPING
    }


def test_partitions_that_are_not_there_join_nothing(cluster: Cluster) -> None:
    identity = init_transactions(cluster, "absent", 60_000)
    transaction = OpenTransaction("absent", identity.producer_id, identity.epoch)
    with pytest.raises(BrokerRefused) as refusal:
        add_partitions(cluster, transaction, [TopicPartition("t", 0), TopicPartition("t", 9)])
    assert refusal.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_timeout_that_the_broker_does_not_allow_is_reported(cluster: Cluster) -> None:
    with pytest.raises(BrokerRefused) as refusal:
        init_transactions(cluster, "patient", 2**31 - 1)
    assert refusal.value.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


# -- what coordinators answer that another try cures ------------------------------------------------------


def ending(codes: dict[str, list[ErrorCode]]) -> Any:
    """EndTxn, with what is answered about each id in turn."""

    def answer(request: Any, module: Any, node_id: int) -> Any:
        del node_id
        return module.EndTxnResponse(throttle_time=NO_TIME, error_code=codes[request.transactional_id].pop(0))

    return answer


def test_only_those_that_are_not_ready_are_asked_again() -> None:
    fake = FakeCluster(brokers=2)
    coordinate(fake, *[2] * 9)
    busy, moved = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR
    codes = {"a": [ErrorCode.NONE], "b": [busy, busy, ErrorCode.NONE], "c": [moved, ErrorCode.NONE]}
    serve(fake, Api.END_TXN, ending(codes))
    transactions = [OpenTransaction(name, 1, 0) for name in "abc"]
    with client(fake) as cluster:
        assert end_transactions(cluster, transactions, commit=True, epoch_bumps=False) == {}
    assert len(asked(fake, Api.END_TXN)) == 6
    assert all(not left for left in codes.values())


def test_a_broker_that_knows_one_key_at_a_time_is_asked_for_one_at_a_time() -> None:
    """FindCoordinator before 4, Kafka 2.8 and older."""
    fake = FakeCluster()
    coordinate(fake, *[1] * 9)
    fake.ranges[Api.FIND_COORDINATOR] = VersionRange(0, 3)
    serve(fake, Api.END_TXN, ending({"a": [ErrorCode.NONE], "b": [ErrorCode.NONE]}))
    with client(fake) as cluster:
        transactions = [OpenTransaction(name, 1, 0) for name in "ab"]
        assert end_transactions(cluster, transactions, commit=True, epoch_bumps=False) == {}
    assert len(asked(fake, Api.FIND_COORDINATOR)) == 2


def test_a_refusal_that_no_try_cures_is_raised() -> None:
    fake = FakeCluster()
    coordinate(fake, *[1] * 9)
    denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    serve(fake, Api.END_TXN, ending({"a": [denied]}))
    with client(fake) as cluster, pytest.raises(BrokerRefused) as refusal:
        end_transactions(cluster, [OpenTransaction("a", 1, 0)], commit=True, epoch_bumps=False)
    assert refusal.value.code == denied
