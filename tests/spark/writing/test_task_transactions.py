"""The transactions of tasks: how long they may take, and what is found and aborted of those that nobody ends."""

from collections.abc import Iterator

import pytest

from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.errors import BrokerRefused
from penstock.client.settings import parse_servers
from penstock.client.transactional import OpenTransaction, add_partitions, describe_transactions
from penstock.spark.errors import BadOption
from penstock.spark.writing.sink_options import SinkOptions, read_sink_options
from penstock.spark.writing.transactions import abort_leftovers, fence_all, open_transaction, still_open
from penstock.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"transaction.max.timeout.ms": 60_000}) as running:
        running.create_topic("t")
        yield running


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(parse_servers(broker.bootstrap)) as connected:
        yield connected


def options_for(broker: Broker, **more: str) -> SinkOptions:
    named = {"kafka.bootstrap.servers": broker.bootstrap}
    return read_sink_options(named | {key.replace("__", "."): value for key, value in more.items()})


def opened(cluster: Cluster, broker: Broker, name: str) -> OpenTransaction:
    transaction = open_transaction(cluster, options_for(broker), name)
    add_partitions(cluster, transaction, [TopicPartition("t", 0)])
    return transaction


def test_a_transaction_may_take_as_long_as_the_broker_allows(broker: Broker, cluster: Cluster) -> None:
    open_transaction(cluster, options_for(broker), "long")
    assert 30_000 < describe_transactions(cluster, ["long"])["long"].timeout_ms <= 60_000


def test_a_timeout_that_was_asked_for_is_not_cut_short_silently(broker: Broker, cluster: Cluster) -> None:
    options = options_for(broker, kafka__transaction__timeout__ms="60001")
    with pytest.raises(
        BadOption, match=r"kafka\.transaction\.timeout\.ms is 60001, expected no more than the broker's"
    ):
        open_transaction(cluster, options, "too-long")


def test_what_nobody_ends_is_found_by_the_beginning_of_its_id(broker: Broker, cluster: Cluster) -> None:
    kept, left, other = (opened(cluster, broker, name) for name in ("a.b-1", "a.b-2", "aXb-3"))
    assert abort_leftovers(cluster, "a.b-", [kept], epoch_bumps=True) == [left]
    assert still_open(cluster, [kept, left, other]) == {kept, other}
    assert abort_leftovers(cluster, "a.b-", [kept], epoch_bumps=True) == []


def test_tasks_that_still_run_when_their_job_has_failed_can_begin_nothing(
    broker: Broker, cluster: Cluster
) -> None:
    open_one = opened(cluster, broker, "job-1")
    empty_one = open_transaction(cluster, options_for(broker), "job-2")
    fence_all(cluster, "job-")
    assert still_open(cluster, [open_one]) == set()
    for each in (open_one, empty_one):
        with pytest.raises(BrokerRefused, match="PRODUCER_FENCED"):
            add_partitions(cluster, each, [TopicPartition("t", 0)])


def test_one_that_was_opened_again_is_another(broker: Broker, cluster: Cluster) -> None:
    before = opened(cluster, broker, "again")
    after = opened(cluster, broker, "again")
    assert still_open(cluster, [before]) == set()
    assert still_open(cluster, [after]) == {after}
