"""A node's part in the control of its cluster, from its settings on: who votes, who leads, who is told."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from tests.controlplane.quorum_network import FramePeers, Network, context_of
from tests.worlds import StillWorld

from penstock.handlers.support.dispatch import Dispatcher
from penstock.metadata.bootstrap import bootstrap_records
from penstock.metadata.configs import BrokerSettings
from penstock.metadata.controller.requests import CreateTopics, NewTopic
from penstock.metadata.image import EMPTY, ClusterImage
from penstock.metadata.records import AnyRecord
from penstock.server.config import config_from
from penstock.server.control_plane import ControlPlane, quorum_settings_of
from penstock.storage import open_directory
from penstock.vfs import MemoryDisk
from penstock.wire.peers import Address

CLUSTER = "cGVuc3RvY2stZ29sZGVuMA"
THREE = "1@n1:9093,2@n2:9093,3@n3:9093"


class Member:
    """A node without its brokers' half: it follows the metadata log, and acts on it by knowing it."""

    def __init__(self, network: Network, node_id: int, roles: str, **settings: str) -> None:
        world = network.world
        own = {name.replace("_", "."): value for name, value in settings.items()}
        own |= {"node.id": str(node_id), "process.roles": roles, "cluster.id": CLUSTER}
        at = f"n{node_id}:9093" if "controller" in roles else None
        config = config_from("/data", own, controller=at)
        disk, address = MemoryDisk(), Address(f"n{node_id}", 9093)
        self.network, self.address = network, address
        peers = FramePeers(network, address)
        self._image: ClusterImage = EMPTY
        self.failures: list[str] = []
        directory = open_directory(
            disk, "/data", now_ms=world.now_ms(), rng=Random(node_id), node_id=node_id, cluster_id=CLUSTER
        )
        told = BrokerSettings(node_id, own)
        self.control = ControlPlane(
            world, disk, directory, config, told, peers, lambda: self.context, listener=self
        )
        self.context = replace(
            context_of(world, node_id, self.control.quorum, cluster_id=CLUSTER, peers=peers),
            controller=self.control.router,
        )
        at_controller = replace(self.context, controller=self.control.active)
        if at is not None:
            network.dispatchers[address] = Dispatcher.for_controllers(at_controller)
        self.control.quorum.start()

    def stop(self) -> None:
        """Cleanly, as far as the quorum goes: another controller leads first."""
        done: list[bool] = []
        self.control.quorum.stop(lambda: done.append(True))
        self.network.world.run_until(lambda: bool(done))
        self.network.kill(self.address)

    # What the quorum tells.

    def loaded(self, image: ClusterImage) -> None:
        self._image = image

    def committed(self, records: Sequence[AnyRecord], offset: int, epoch: int) -> None:
        self._image = self._image.replay(records, offset, epoch)

    def advanced(self, high_watermark: int) -> None:
        self.context.image = self._image
        self.control.advanced(high_watermark)
        for watcher in list(self.context.image_watchers):
            watcher()

    def leading(self, epoch: int) -> None:
        self.control.lead(self._image, epoch)
        if not self._image.features:
            self.control.active.write(list(bootstrap_records()))

    def resigned(self, epoch: int) -> None:
        self.control.resign()

    def failed(self, reason: str) -> None:
        self.failures.append(reason)

    def image(self) -> ClusterImage:
        return self._image


def three(network: Network, **settings: str) -> list[Member]:
    told = {"controller_quorum_voters": THREE, **settings}
    return [Member(network, each, "controller", **told) for each in (1, 2, 3)]


def active(members: Sequence[Member]) -> list[int]:
    return [each.context.node_id for each in members if each.control.active.is_active]


@pytest.fixture
def network() -> Network:
    return Network(StillWorld(seed=3))


def test_the_voters_that_are_named_elect_one_controller(network: Network) -> None:
    members = three(network)
    network.world.advance(5000)
    assert len(active(members)) == 1
    for each in members:
        assert [voter.key.id for voter in each.control.quorum.voters] == [1, 2, 3]
        assert each.image() == members[0].image()
        assert not each.failures


def test_each_controller_tells_the_cluster_where_it_listens(network: Network) -> None:
    [first, *_] = three(network)
    network.world.advance(5000)
    found = {number: each.endpoints[0] for number, each in first.image().controllers.items()}
    assert {number: (each.host, each.port) for number, each in found.items()} == {
        1: ("n1", 9093),
        2: ("n2", 9093),
        3: ("n3", 9093),
    }


def test_a_request_reaches_the_controller_wherever_it_is(network: Network) -> None:
    """From one that is not active; it is answered when its own image has the decision."""
    members = three(network)
    network.world.advance(5000)
    [leader] = active(members)
    other = next(each for each in members if each.context.node_id != leader)
    answer = other.control.router.submit(CreateTopics((NewTopic("t", assignments=((0, (1,)),)),)))
    network.world.advance(1000)
    [created] = answer.value
    assert created.name == "t"
    assert created.result.code.name == "INVALID_REPLICA_ASSIGNMENT", "there are no brokers"


def test_a_controller_that_stops_is_active_no_more_and_another_is(network: Network) -> None:
    members = three(network)
    network.world.advance(5000)
    [leader] = active(members)
    stopped = members[leader - 1]
    stopped.stop()
    network.world.advance(1000)
    assert not stopped.control.active.is_active
    [successor] = active(members)
    assert successor != leader


def test_a_broker_alone_follows_and_has_no_vote(network: Network) -> None:
    members = three(network)
    broker = Member(network, 7, "broker", controller_quorum_voters=THREE)
    network.world.advance(5000)
    [leader] = active(members)
    assert broker.control.quorum.leader_id == leader
    assert broker.image() == members[0].image() != EMPTY
    assert not broker.control.active.is_active
    assert [voter.key.id for voter in broker.control.quorum.voters] == [1, 2, 3]


def test_who_is_told_whom_to_ask_learns_the_quorum_from_there(network: Network) -> None:
    """controller.quorum.bootstrap.servers: a controller that may become a voter, and a broker."""
    alone = Member(network, 1, "controller")
    asking = {"controller_quorum_bootstrap_servers": "n1:9093"}
    others = [Member(network, 2, "controller", **asking), Member(network, 3, "broker", **asking)]
    network.world.advance(5000)
    for each in others:
        assert each.control.quorum.leader_id == 1
        assert each.image() == alone.image() != EMPTY
        assert [voter.key.id for voter in each.control.quorum.voters] == [1]
    assert active([alone, *others]) == [1]
    assert set(alone.image().controllers) == {1, 2}


def test_a_node_is_only_voter_where_nobody_else_has_a_say(network: Network) -> None:
    assert Member(network, 1, "broker,controller").control.is_only_voter
    assert not Member(network, 2, "controller", controller_quorum_voters=THREE).control.is_only_voter
    asking = {"controller_quorum_bootstrap_servers": "n1:9093"}
    assert not Member(network, 4, "controller", **asking).control.is_only_voter
    assert not Member(network, 5, "broker", **asking).control.is_only_voter


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "0.0.0.0:9093"),
        ({"controller.quorum.voters": "1@one:19093,2@two:9093"}, "one:19093"),
        (
            {
                "controller.quorum.voters": "1@one:19093,2@two:9093",
                "advertised.listeners": "CONTROLLER://outside:29093",
            },
            "outside:29093",
        ),
    ],
)
def test_others_are_told_of_a_controller_as_they_can_reach_it(settings: dict[str, str], told: str) -> None:
    """What is advertised, else what the voters' list says, else where it listens."""
    listeners = {
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://0.0.0.0:9093",
        "controller.listener.names": "CONTROLLER",
    }
    [found] = quorum_settings_of(config_from("/data", {**listeners, **settings}), 1).endpoints
    assert f"{found.host}:{found.port}" == told
