"""Metadata while a leader may be gone: who is told at once, who waits, and whom clients are told of."""

from typing import Any

import pytest
from tests.handlers.cluster import Cluster

from penstock.base.promise import Promise
from penstock.handlers.support.client_view import VANISHES_MS
from penstock.handlers.support.context import Session
from penstock.handlers.support.metadata_delay import AGAIN_MS
from penstock.replica.broker_client import MAY_BE_DEAD_MS
from penstock.wire import Api
from penstock.wire.peers import Address


@pytest.fixture
def doubted(three: Cluster) -> Cluster:
    """Three brokers, of which 2 leads t; broker 1 is asked."""
    three.create("t", (2, 3))
    three.create("elsewhere", (3, 1))
    return three


def lose(cluster: Cluster, broker: int) -> None:
    """A connection from here to it breaks."""
    cluster.context.broker_client.lost(Address(f"host-{broker}", 9000 + broker))


def move(cluster: Cluster, dead: int) -> None:
    """The controller says that a broker is dead, and this one hears of it."""
    cluster.fence(dead)
    for watcher in list(cluster.context.image_watchers):
        watcher()


def ask(cluster: Cluster, *topics: str) -> Promise[Any]:
    named = [{"name": each} for each in topics]
    return cluster.ask(Api.METADATA, 9, topics=named, allow_auto_topic_creation=False)


def leader(answer: Promise[Any]) -> int:
    return int(answer.value.topics[0].partitions[0].leader_id)


def anew(cluster: Cluster) -> None:
    """Another client asks from now on."""
    cluster.session = Session("127.0.0.1", 9092, "127.0.0.1:50001")


def test_no_request_waits_without_faults(doubted: Cluster) -> None:
    assert leader(ask(doubted, "t")) == 2


def test_metadata_of_a_leader_that_was_just_lost_has_the_next_one(doubted: Cluster) -> None:
    lose(doubted, 2)
    answer = ask(doubted, "t")
    assert not answer.is_settled
    doubted.world.advance(30)
    move(doubted, 2)
    assert leader(answer) == 3
    assert not doubted.context.image_watchers


def test_news_of_other_leaders_are_no_answer(doubted: Cluster) -> None:
    lose(doubted, 2)
    answer = ask(doubted, "t")
    doubted.create("new", (1,))
    for watcher in list(doubted.context.image_watchers):
        watcher()
    assert not answer.is_settled


def test_a_broken_connection_alone_costs_half_a_second_at_most(doubted: Cluster) -> None:
    lose(doubted, 2)
    answer = ask(doubted, "t")
    doubted.world.advance(MAY_BE_DEAD_MS - 1)
    assert not answer.is_settled
    doubted.world.advance(1)
    assert leader(answer) == 2
    anew(doubted)
    assert ask(doubted, "t").is_settled, "the doubt is over"


def test_topics_of_other_leaders_are_reported_at_once(doubted: Cluster) -> None:
    lose(doubted, 2)
    assert leader(ask(doubted, "elsewhere")) == 3


def test_who_asks_again_at_once_may_know_more_than_we_do(doubted: Cluster) -> None:
    assert ask(doubted, "t").is_settled
    doubted.world.advance(10)
    answer = ask(doubted, "t")
    assert not answer.is_settled
    move(doubted, 2)
    assert leader(answer) == 3


def test_a_doubt_that_comes_up_while_a_client_waits_is_waited_for(doubted: Cluster) -> None:
    """The client's connection to the dead leader broke before ours did: its first question was answered wrongly."""
    assert leader(ask(doubted, "t")) == 2
    answer = ask(doubted, "t")
    lose(doubted, 2)
    doubted.world.advance(AGAIN_MS + 120)
    assert not answer.is_settled
    move(doubted, 2)
    assert leader(answer) == 3


def test_such_a_doubt_costs_half_a_second_at_most_as_well(doubted: Cluster) -> None:
    assert ask(doubted, "t").is_settled
    answer = ask(doubted, "t")
    doubted.world.advance(50)
    lose(doubted, 2)
    doubted.world.advance(MAY_BE_DEAD_MS - 51)
    assert not answer.is_settled
    doubted.world.advance(1)
    assert leader(answer) == 2


def test_a_client_in_a_hurry_is_held_back_for_a_moment(doubted: Cluster) -> None:
    assert ask(doubted, "t").is_settled
    answer = ask(doubted, "t")
    doubted.world.advance(AGAIN_MS)
    assert leader(answer) == 2
    doubted.world.advance(AGAIN_MS)
    assert ask(doubted, "t").is_settled


def test_who_asks_about_no_partition_has_nothing_to_wait_for(doubted: Cluster) -> None:
    lose(doubted, 2)
    assert ask(doubted).is_settled
    assert ask(doubted).is_settled


def test_another_client_in_the_same_moment_is_not(doubted: Cluster) -> None:
    assert ask(doubted, "t").is_settled
    anew(doubted)
    assert ask(doubted, "t").is_settled


def test_a_single_node_keeps_its_lease(cluster: Cluster) -> None:
    cluster.create("t", (1,))
    assert ask(cluster, "t").is_settled
    assert ask(cluster, "t").is_settled


# -- whom clients are told of --------------------------------------------------------------------------


def brokers(cluster: Cluster) -> list[int]:
    anew(cluster)
    return [each.node_id for each in ask(cluster).value.brokers]


def test_a_broker_that_has_just_died_is_told_of_for_a_while(doubted: Cluster) -> None:
    """With a broker that vanishes librdkafka forgets where its partitions have gone."""
    lose(doubted, 2)
    move(doubted, 2)
    assert brokers(doubted) == [1, 2, 3]
    anew(doubted)
    assert leader(ask(doubted, "t")) == 3, "it leads nothing"
    doubted.world.advance(VANISHES_MS)
    assert brokers(doubted) == [1, 3]


def test_a_broker_that_is_fenced_and_was_not_lost_vanishes_at_once(doubted: Cluster) -> None:
    move(doubted, 2)
    assert brokers(doubted) == [1, 3]


def test_a_broker_that_died_is_not_the_controller(doubted: Cluster) -> None:
    lose(doubted, 2)
    move(doubted, 2)
    anew(doubted)
    assert ask(doubted).value.controller_id == 1


def test_a_broker_without_the_clients_listener_is_never_told_of(doubted: Cluster) -> None:
    doubted.start(4, listener="INTERNAL")
    lose(doubted, 4)
    move(doubted, 4)
    assert brokers(doubted) == [1, 2, 3]
