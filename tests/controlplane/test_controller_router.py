"""The way to the active controller: found where it is, asked again when it moves, and not for ever."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.controlplane.controllers import ADDRESS, OTHER, Asked, ControllerPeers, ScriptedPeers, make_router
from tests.handlers.cluster import CLUSTER_ID, Cluster, uuid
from tests.worlds import StillWorld

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.controlplane.active_controller import ActiveController
from penstock.metadata.bootstrap import bootstrap_records
from penstock.metadata.configs import BrokerSettings
from penstock.metadata.controller import requests as r
from penstock.metadata.image import EMPTY, ClusterImage, Resource, ResourceType
from penstock.metadata.records import AnyRecord
from penstock.wire.peers import Address

TOPIC = r.CreateTopics((r.NewTopic("a", 1, 1),))
BEAT = r.BrokerHeartbeat(1, 1, 1)
DEPOSED = KafkaError("the controller is elsewhere", ErrorCode.NOT_CONTROLLER)
CREATED = (r.CreatedTopic("a", r.OK, uuid(5), 1, 1),)


class Local:
    """The controller of this node with a log that commits when told to."""

    def __init__(self, world: StillWorld) -> None:
        self.end = -1
        self.controller = ActiveController(
            world,  # type: ignore[arg-type]  # it needs no connections
            self._propose,
            cluster_id=CLUSTER_ID,
            settings=BrokerSettings(1, {}),
            session_timeout_ms=9000,
        )

    def lead(self) -> None:
        image = EMPTY.replay(list(bootstrap_records()), 5, 1)
        self.end = 5
        self.controller.lead(image, 1)

    def commit(self) -> None:
        self.controller.advanced(self.end + 1)

    def _propose(self, records: Sequence[AnyRecord], _: int) -> int:
        self.end += len(records)
        return self.end


class Scene:
    def __init__(self, *, local: bool = False, image: Callable[[], ClusterImage] = lambda: EMPTY) -> None:
        self.world = StillWorld()
        self.peers = ScriptedPeers()
        self.leader: Address | None = ADDRESS
        self.local = Local(self.world)
        self.watchers: dict[Callable[[], None], None] = {}
        self.router = make_router(
            self.world,
            local=self.local.controller if local else None,
            peers=self.peers,
            leader=lambda: self.leader,
            image=image,
            watchers=self.watchers,
        )

    def last(self) -> Asked:
        return self.peers.asked[-1]

    @property
    def asked_of(self) -> list[Address]:
        return [each.to for each in self.peers.asked]


def code(answer: Promise[Any]) -> ErrorCode:
    assert answer.error is not None
    return answer.error.code


def test_the_controller_of_this_node_is_asked_while_it_is_active() -> None:
    scene = Scene(local=True)
    scene.local.lead()
    answer = scene.router.submit(r.UpdateFeatures((r.FeatureUpdate("group.version", 0, 3),)))
    assert not answer.is_settled
    scene.local.commit()
    assert answer.value == {"group.version": r.OK}
    assert not scene.peers.asked


def test_another_nodes_controller_is_asked_and_its_answer_given_on() -> None:
    scene = Scene()
    answer = scene.router.submit(r.AllocateProducerIds(1, 1))
    scene.last().answer.resolve(r.ProducerIdBlock(1000, 1000))
    assert answer.value == r.ProducerIdBlock(1000, 1000)
    assert scene.asked_of == [ADDRESS]


def test_a_refusal_is_final() -> None:
    scene = Scene()
    answer = scene.router.submit(r.UnregisterBroker(7))
    scene.last().answer.fail(KafkaError("not there", ErrorCode.BROKER_ID_NOT_REGISTERED))
    assert code(answer) is ErrorCode.BROKER_ID_NOT_REGISTERED


@pytest.mark.parametrize("how", ["deposed", "gone"])
def test_the_next_controller_gets_the_request_again(how: str) -> None:
    """Kafka's brokers do so too: NOT_CONTROLLER and a lost connection are followed by another try."""
    scene = Scene()
    answer = scene.router.submit(r.AllocateProducerIds(1, 1))
    if how == "deposed":
        scene.last().answer.fail(DEPOSED)
    else:
        scene.last().fail()
    scene.leader = OTHER
    scene.world.advance(60)
    assert scene.asked_of == [ADDRESS, OTHER]
    scene.last().answer.resolve(r.ProducerIdBlock(0, 1000))
    assert answer.value == r.ProducerIdBlock(0, 1000)
    scene.world.advance(100_000)
    assert scene.asked_of == [ADDRESS, OTHER]


def test_a_retry_may_hear_of_what_the_first_question_did() -> None:
    """As in Kafka: the topic is there, and whoever asked is told that it exists."""
    there = Cluster()

    class Lossy(ControllerPeers):
        lost = False

        def ask(self, *args: Any, **options: Any) -> Any:
            answer = super().ask(*args, **options)
            if not self.lost:
                self.lost = True
                asked = Asked(ADDRESS, args[1], 0, "")
                asked.fail()
                return asked.answer
            return answer

    world = StillWorld()
    peers = Lossy({ADDRESS: there})
    router = make_router(world, peers=peers, leader=lambda: ADDRESS, image=lambda: there.image)
    answer = router.submit(TOPIC)
    assert not answer.is_settled
    world.advance(60)
    assert answer.value[0].result.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert "a" in there.image.topics


def test_a_question_waits_for_a_leader() -> None:
    scene = Scene()
    scene.leader = None
    answer = scene.router.submit(r.AllocateProducerIds(1, 1))
    scene.world.advance(5000)
    assert not scene.peers.asked
    scene.leader = ADDRESS
    scene.world.advance(60)
    scene.last().answer.resolve(r.ProducerIdBlock(0, 1000))
    assert answer.is_settled


def test_who_waits_is_asked_for_at_once_when_somebody_says_who_leads() -> None:
    scene = Scene(local=True)
    scene.leader = None
    answer = scene.router.submit(r.AllocateProducerIds(1, 1))
    scene.local.lead()
    scene.router.look_again()
    scene.local.commit()
    assert code(answer) is ErrorCode.STALE_BROKER_EPOCH


def test_nobody_leads_for_too_long() -> None:
    scene = Scene()
    scene.leader = None
    answer = scene.router.submit(TOPIC)
    scene.world.advance(29_999)
    assert not answer.is_settled
    scene.world.advance(1)
    assert code(answer) is ErrorCode.NOT_CONTROLLER


def test_the_controller_does_not_answer_for_too_long() -> None:
    scene = Scene()
    answer = scene.router.submit(TOPIC)
    assert scene.last().timeout_ms == pytest.approx(30_000)
    scene.world.advance(30_000)
    assert code(answer) is ErrorCode.REQUEST_TIMED_OUT
    scene.last().answer.resolve(CREATED)  # too late, and nobody minds


def test_a_question_that_hangs_at_an_old_leader_goes_to_the_new_one() -> None:
    """A controller that stands still says nothing, and its connection does not break."""
    scene = Scene()
    answer = scene.router.submit(r.AllocateProducerIds(1, 1))
    first = scene.last()
    scene.world.advance(1000)
    assert scene.asked_of == [ADDRESS]
    scene.leader = OTHER
    scene.world.advance(60)
    assert scene.asked_of == [ADDRESS, OTHER]
    assert scene.last().timeout_ms == pytest.approx(29_000, abs=100)
    first.answer.resolve(r.ProducerIdBlock(0, 1000))
    assert not answer.is_settled, "what is heard of the old one does not count any more"
    scene.last().answer.resolve(r.ProducerIdBlock(1000, 1000))
    assert answer.value == r.ProducerIdBlock(1000, 1000)


def test_what_waits_here_when_this_node_resigns_is_asked_elsewhere() -> None:
    scene = Scene(local=True)
    scene.leader = None
    scene.local.lead()
    answer = scene.router.submit(r.UpdateFeatures((r.FeatureUpdate("group.version", 0, 3),)))
    scene.local.controller.resign()
    scene.leader = OTHER
    scene.world.advance(60)
    assert not answer.is_settled
    assert scene.asked_of == [OTHER]


def test_a_heartbeat_is_tried_once_and_does_not_wait() -> None:
    scene = Scene()
    answer = scene.router.submit(BEAT)
    assert (scene.last().purpose, scene.last().timeout_ms) == ("heartbeat", pytest.approx(2000))
    scene.last().fail()
    assert code(answer) is ErrorCode.NETWORK_EXCEPTION
    scene.leader = None
    assert code(scene.router.submit(BEAT)) is ErrorCode.NOT_CONTROLLER
    assert len(scene.peers.asked) == 1


def test_what_is_urgent_has_a_connection_of_its_own() -> None:
    scene = Scene()
    for request in (TOPIC, r.AlterPartition(1, 1, ()), BEAT):
        scene.router.submit(request)
    assert [each.purpose for each in scene.peers.asked] == ["controller", "alter-partition", "heartbeat"]


def test_only_the_controllers_own_process_fences_a_broker() -> None:
    scene = Scene()
    assert code(scene.router.submit(r.FenceBroker(1, 1))) is ErrorCode.NOT_CONTROLLER
    assert not scene.peers.asked


def test_a_node_that_stops_fails_waiting_requests() -> None:
    scene = Scene()
    answer = scene.router.submit(TOPIC)
    scene.router.close()
    assert code(answer) is ErrorCode.NOT_CONTROLLER
    assert code(scene.router.submit(TOPIC)) is ErrorCode.NOT_CONTROLLER
    assert scene.world.is_idle


# -- seen here -----------------------------------------------------------------------------------------

T = Resource(ResourceType.TOPIC, "t")
SEEN: dict[str, Any] = {
    "a topic": r.CreateTopics((r.NewTopic("a"),)),
    "a topic less": r.DeleteTopics(("t",)),
    "partitions": r.CreatePartitions((r.MorePartitions("t", 4),)),
    "settings": r.AlterConfigs({T: {"retention.ms": "5"}}),
    "a setting": r.IncrementalAlterConfigs(
        {
            T: (
                r.ConfigChange("retention.ms", r.ConfigOp.SET, "5"),
                r.ConfigChange("segment.bytes", r.ConfigOp.DELETE),
                r.ConfigChange("cleanup.policy", r.ConfigOp.APPEND, "compact"),
            )
        }
    ),
    "a part of a setting less": r.IncrementalAlterConfigs(
        {T: (r.ConfigChange("leader.replication.throttled.replicas", r.ConfigOp.SUBTRACT, "0:1"),)}
    ),
    "a feature": r.UpdateFeatures((r.FeatureUpdate("group.version", 0, 3),)),
    "a broker less": r.UnregisterBroker(3),
    "preferred leaders": r.ElectLeaders(r.Election.PREFERRED, (("t", 0),)),
    "any leader": r.ElectLeaders(r.Election.UNCLEAN, (("w", 0),)),
}


def away() -> Cluster:
    """Broker 1 was away, so that t is led by 2; w has lost its one replica, and may be led by 1."""
    made = Cluster(brokers=(1, 2, 3))
    made.create(
        "t", (1, 2, 3), segment_bytes="1048576", leader_replication_throttled_replicas="0:1,0:2",
    )  # fmt: skip
    made.create("w", (3, 1))
    held = made.image.topics["w"]
    change = r.IsrChange(held.id, 0, 0, 0, (r.IsrMember(3),))
    made.decide(r.AlterPartition(3, made.image.brokers[3].epoch, (change,)))
    made.fence(1)
    made.start(1)
    topic = made.image.topics["t"]
    placed = topic.partitions[0]
    members = tuple(r.IsrMember(each) for each in (1, 2, 3))
    change = r.IsrChange(topic.id, 0, placed.leader_epoch, placed.partition_epoch, members)
    made.decide(r.AlterPartition(2, made.image.brokers[2].epoch, (change,)))
    made.fence(3)
    return made


@pytest.mark.parametrize("name", SEEN)
def test_an_answer_waits_until_this_nodes_image_shows_what_was_done(name: str) -> None:
    there = away()
    image = there.image
    watchers: dict[Callable[[], None], None] = {}
    world = StillWorld()
    router = make_router(
        world,
        peers=ControllerPeers({ADDRESS: there}),
        leader=lambda: ADDRESS,
        image=lambda: image,
        watchers=watchers,
    )
    answer = router.submit(SEEN[name])
    assert there.image.offset > image.offset, "it is decided"
    assert not answer.is_settled
    for look in list(watchers):
        look()
    assert not answer.is_settled
    image = there.image
    for look in list(watchers):
        look()
    assert answer.is_settled
    assert answer.error is None
    assert not watchers


def test_a_node_that_is_far_behind_answers_all_the_same() -> None:
    """What was decided is committed: to say that it timed out would be a lie."""
    there = Cluster()
    world = StillWorld()
    router = make_router(world, peers=ControllerPeers({ADDRESS: there}), leader=lambda: ADDRESS)
    answer = router.submit(TOPIC)
    world.advance(29_000)
    assert not answer.is_settled
    world.advance(1001)
    assert answer.value[0].result == r.OK
