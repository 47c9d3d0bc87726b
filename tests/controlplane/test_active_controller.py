"""What the active controller says in its log, and that it says it when it decides."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from tests.handlers.cluster import Cluster
from tests.worlds import StillWorld

from penstock.base.errors import ErrorCode
from penstock.controlplane.active_controller import ActiveController
from penstock.metadata.acls import Acl, AclFilter, AclResourceType, Operation, PatternType, Permission
from penstock.metadata.configs import BrokerSettings
from penstock.metadata.controller import requests as r
from penstock.metadata.records import AnyRecord


class Scene:
    """A controller that takes over a cluster of two brokers, with topics t (safe) and u (any leader will do)."""

    def __init__(self, **settings: str) -> None:
        self.world = StillWorld()
        self.cluster = Cluster(brokers=(1, 2), world=self.world)
        self.cluster.create("t", (1, 2))
        self.cluster.create("u", (1, 2), unclean_leader_election_enable="true")
        self.end = self.cluster.image.offset
        self.controller = ActiveController(
            self.world,  # type: ignore[arg-type]  # it needs no connections
            self._propose,
            cluster_id=self.cluster.context.cluster_id,
            settings=BrokerSettings(1, settings),
            session_timeout_ms=9000,
        )
        self.controller.lead(self.cluster.image, 2)

    def _propose(self, records: Sequence[AnyRecord], _: int) -> int:
        self.end += len(records)
        return self.end

    def fence(self, broker: int) -> None:
        self.controller.submit(r.FenceBroker(broker, self.cluster.image.brokers[broker].epoch))

    def beat(self, broker: int) -> None:
        epoch = self.cluster.image.brokers[broker].epoch
        self.controller.submit(r.BrokerHeartbeat(broker, epoch, self.end))

    def shrink(self, topic: str) -> None:
        """The ISR to its leader, 1."""
        held = self.cluster.image.topics[topic]
        change = r.IsrChange(held.id, 0, 0, 0, (r.IsrMember(1),))
        self.controller.submit(r.AlterPartition(1, self.cluster.image.brokers[1].epoch, (change,)))


def test_a_heartbeat_is_answered_when_all_is_committed_and_not_when_this_node_has_acted_on_it() -> None:
    """A broker beside the controller may have thousands of partitions to make first; others' sessions go on."""
    scene = Scene()
    topic = r.NewTopic("many", 5000, 1)
    created = scene.controller.submit(r.CreateTopics((topic,)))
    epoch = scene.cluster.image.brokers[2].epoch
    heard = scene.controller.submit(r.BrokerHeartbeat(2, epoch, scene.end))
    assert not heard.is_settled, "what it saw may never be true"
    scene.controller.committed(scene.end + 1)
    assert isinstance(heard.value, r.HeartbeatReply)
    assert not created.is_settled, "who asks here where the topic is would not find it"
    scene.controller.advanced(scene.end + 1)
    assert created.is_settled


ACL = Acl(
    AclResourceType.TOPIC, "t", PatternType.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW
)


@pytest.mark.parametrize("change", [r.CreateAcls((ACL,)), r.DeleteAcls((AclFilter(*ACL),))])
def test_a_change_of_acls_is_answered_when_every_broker_has_it(change: Any) -> None:
    scene = Scene()
    changed = scene.controller.submit(change)
    scene.controller.advanced(scene.end + 1)
    scene.beat(1)
    assert not changed.is_settled, "broker 2 decides by the old ones"
    scene.beat(2)
    assert changed.is_settled


def test_a_change_of_acls_waits_for_a_silent_broker_until_it_is_fenced_and_that_is_committed() -> None:
    scene = Scene()
    changed = scene.controller.submit(r.CreateAcls((ACL,)))
    scene.controller.advanced(scene.end + 1)
    scene.beat(1)
    scene.fence(2)
    assert not changed.is_settled, "the next controller may not know that it is fenced"
    scene.controller.advanced(scene.end + 1)
    assert changed.is_settled


def test_waiting_requests_are_answered_when_another_broker_leads() -> None:
    scene = Scene()
    created = scene.controller.submit(r.CreateTopics((r.NewTopic("many", 1, 1),)))
    heard = scene.controller.submit(r.BrokerHeartbeat(2, scene.cluster.image.brokers[2].epoch, scene.end))
    scene.controller.resign()
    assert {each.error and each.error.code for each in (created, heard)} == {ErrorCode.NOT_CONTROLLER}


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == level]


def test_a_partition_without_a_leader_is_an_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    scene = Scene()
    scene.shrink("t")
    scene.fence(1)
    assert lines(caplog, logging.ERROR) == ["t-0 has no leader: no in-sync replica is alive"]
    scene.beat(1)
    assert "broker 1 is leader of t-0, which had no leader" in lines(caplog, logging.INFO)


def test_each_unclean_election_is_a_warning_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.shrink("u")
    scene.fence(1)
    assert lines(caplog, logging.WARNING) == [
        "unclean election: broker 2 is leader of u-0; records acknowledged since it left the ISR may be lost"
    ]


def test_a_leader_that_gives_way_to_another_in_sync_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    Scene().fence(1)
    assert not caplog.records


def test_a_silent_broker_is_fenced_when_its_session_ends_and_not_some_time_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.world.advance(700)
    scene.beat(1)
    for _ in range(17):
        scene.world.advance(500)
        scene.beat(2)
    scene.world.advance(499)
    assert not lines(caplog, logging.WARNING)
    scene.world.advance(1)
    assert lines(caplog, logging.WARNING) == ["fenced broker 1: its session expired without a heartbeat"]


def test_silence_and_balance_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    scene = Scene(**{"leader.imbalance.check.interval.seconds": "20"})
    for _ in range(10):
        scene.world.advance(1000)
        scene.beat(2)
    assert "fenced broker 1: its session expired without a heartbeat" in lines(caplog, logging.WARNING)
    scene.beat(1)
    for name in ("t", "u"):
        held = scene.cluster.image.topics[name]
        both = (r.IsrMember(1), r.IsrMember(2))
        change = r.IsrChange(held.id, 0, 1, 1, both)
        scene.controller.submit(r.AlterPartition(2, scene.cluster.image.brokers[2].epoch, (change,)))
    for _ in range(15):
        scene.world.advance(1000)
        scene.beat(1)
        scene.beat(2)
    assert "moved the leadership of 2 partitions back to their preferred replicas" in lines(
        caplog, logging.INFO
    )
