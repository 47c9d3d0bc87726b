"""Whom to ask, and for how long; offsets; addresses."""

import pytest
from tests.client.fake import FakeCluster, on, seeded

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.errors import BrokerRefused, Unreachable, refused
from penstock.client.offsets import EARLIEST, LATEST, list_offsets
from penstock.client.settings import Address, ClientSettings, parse_servers
from penstock.wire import Api, CurrentLeader, NodeEndpoint
from penstock.wire.request import through_kio

ORDERS = TopicPartition("orders", 0)


def make(brokers: int = 1, **settings: int) -> tuple[FakeCluster, Cluster]:
    fake = FakeCluster(brokers)
    fake.add_topic("orders", 2)
    cluster = Cluster(
        fake.addresses,
        ClientSettings(**settings),  # type: ignore[arg-type]
        network=fake,
        clock=fake.clock,
        rng=seeded(),
    )
    return fake, cluster


def test_a_mistyped_address_is_reported_at_once() -> None:
    fake, _ = make()
    cluster = Cluster([Address("nowhere", 1)], network=fake, clock=fake.clock)
    with pytest.raises(Unreachable, match="cannot reach nowhere:1: connection refused"):
        cluster.refresh(None)
    assert fake.clock.time_ms == 0


def test_of_several_addresses_one_is_enough() -> None:
    fake, _ = make(2)
    fake.brokers[1].is_up = False
    cluster = Cluster(fake.addresses, network=fake, clock=fake.clock)
    assert list(cluster.refresh(None).topics) == ["orders"]
    fake.brokers[2].is_up = False
    fresh = Cluster(fake.addresses, network=fake, clock=fake.clock)
    with pytest.raises(
        Unreachable, match="cannot reach any of broker-1:9092, broker-2:9092: connection refused"
    ):
        fresh.refresh(None)


def test_a_cluster_that_answered_once_is_waited_for() -> None:
    fake, cluster = make(api_timeout_ms=5000)
    cluster.refresh(None)
    fake.brokers[1].is_up = False
    cluster.close()
    with pytest.raises(Unreachable):
        cluster.refresh(None)
    assert 3000 < fake.clock.time_ms <= 5000


def test_retries_bootstrap_waits_for_servers_that_have_never_answered() -> None:
    fake, _ = make()
    settings = ClientSettings(api_timeout_ms=5000)
    cluster = Cluster(fake.addresses, settings, network=fake, clock=fake.clock, retries_bootstrap=True)
    fake.brokers[1].is_up = False
    with pytest.raises(Unreachable):
        cluster.refresh(None)
    assert 3000 < fake.clock.time_ms <= 5000
    fake.brokers[1].is_up = True
    assert list(cluster.refresh(None).topics) == ["orders"]


def test_a_broken_connection_is_made_again() -> None:
    fake, cluster = make()
    fake.faults += [on(Api.METADATA, "before"), on(Api.METADATA, "after")]
    assert list(cluster.refresh(None).topics) == ["orders"]


def test_a_leader_of_an_older_epoch_is_rejected() -> None:
    fake, cluster = make(2)
    fake.move(ORDERS, 2)
    cluster.refresh(["orders"])
    log = fake.logs[ORDERS]
    log.leader, log.epoch = 1, 0
    cluster.refresh(["orders"])
    leader = cluster.leader(ORDERS)
    assert leader is not None
    assert (leader.leader, leader.leader_epoch) == (2, 1)


def test_a_hint_is_taken_if_it_is_newer() -> None:
    _, cluster = make()
    cluster.refresh(["orders"])
    endpoints = [NodeEndpoint(9, "far", 1)]
    assert not cluster.learn(ORDERS, CurrentLeader(9, 0), endpoints)
    assert cluster.learn(ORDERS, CurrentLeader(9, 4), endpoints)
    leader = cluster.leader(ORDERS)
    assert leader is not None
    assert (leader.leader, cluster.info.brokers[9].address) == (9, Address("far", 1))


def test_a_broker_that_is_not_there_is_told_with_those_that_are() -> None:
    _, cluster = make(2)
    with pytest.raises(BrokerRefused, match="there is no broker 7, the cluster has 1, 2"):
        cluster.ask_node(7, through_kio(Api.METADATA, lambda make: make.MetadataRequest()))


def test_a_controller_that_leaves_under_a_question_is_not_the_end_of_it() -> None:
    """The others name it for a while when it has died; the fake's do so for ever."""
    fake, cluster = make(3)
    request = through_kio(
        Api.METADATA,
        lambda make: make.MetadataRequest(
            topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False
        ),
    )
    cluster.refresh([])
    fake.brokers[1].is_up = False
    cluster.close()
    reply = cluster.ask_controller(request, lambda _: ErrorCode.NONE)
    assert [each.node_id for each in reply.brokers] == [2, 3]


def test_old_metadata_is_asked_for_again() -> None:
    fake, cluster = make(metadata_age_ms_max=1000)
    cluster.topic("orders")
    cluster.topic("orders")
    assert len(fake.requests) == 1
    fake.clock.time_ms += 1000
    cluster.topic("orders")
    assert len(fake.requests) == 2


def test_offsets_are_asked_of_leaders_and_again_when_they_moved() -> None:
    fake, cluster = make(2)
    other = TopicPartition("orders", 1)
    cluster.topic("orders")
    fake.move(other, 2)
    fake.logs[other].start = 5
    fake.faults.append(on(Api.LIST_OFFSETS, int(ErrorCode.OFFSET_NOT_AVAILABLE)))
    found = list_offsets(cluster, {ORDERS: LATEST, other: EARLIEST})
    assert {where: each.offset for where, each in found.items()} == {ORDERS: 0, other: 5}


def test_offsets_of_a_partition_that_is_not_there_are_refused_at_once() -> None:
    fake, cluster = make()
    with pytest.raises(BrokerRefused, match="topic orders has no partition 5: it has 2 partitions"):
        list_offsets(cluster, {TopicPartition("orders", 5): LATEST})
    assert fake.clock.time_ms == 0


def test_a_time_that_no_record_has_reached_has_no_offset() -> None:
    _, cluster = make()
    assert list_offsets(cluster, {ORDERS: 10**12})[ORDERS].offset == -1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:1", [Address("a", 1)]),
        ("a", [Address("a", 9092)]),
        (" a:1 , b:2 ", [Address("a", 1), Address("b", 2)]),
        ("[::1]:99", [Address("::1", 99)]),
        ("[::1]", [Address("::1", 9092)]),
    ],
)
def test_servers_are_read(text: str, expected: list[Address]) -> None:
    assert parse_servers(text) == expected


@pytest.mark.parametrize(
    "text", ["", ",", ":9", "a:", "a:b", "a:0", "a:65536", "a:1:2", "[::1", "[::1]9", "a:²"]
)
def test_what_is_no_server_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected HOST:PORT"):
        parse_servers(text)


def test_a_refusal_names_what_was_asked_and_the_code() -> None:
    assert str(refused("topic a", 17, "Bad name.")) == "topic a: Bad name (INVALID_TOPIC_EXCEPTION)"
    assert str(refused("topic a", 17, "Topic a is bad.")) == "Topic a is bad (INVALID_TOPIC_EXCEPTION)"
    assert str(refused("x", 9999)) == "x: the broker refused (error 9999)"
    assert refused("x", 9999).code == ErrorCode.UNKNOWN_SERVER_ERROR
