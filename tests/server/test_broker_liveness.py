"""The watch over brokers: the dead are fenced at once, and nobody else."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.handlers.cluster import CLUSTER_ID, Cluster, uuid
from tests.worlds import StillWorld

from penstock.base.errors import ErrorCode, KafkaError
from penstock.handlers.support.context import Session
from penstock.handlers.support.dispatch import Dispatcher
from penstock.metadata.controller.requests import BrokerHeartbeat, FenceBroker, RegisterBroker
from penstock.metadata.versions import SUPPORTED
from penstock.server.broker_liveness import PROBE_MS_MAX, PROBE_MS_MIN, BrokerLiveness
from penstock.wire import Api, request_frame
from penstock.wire.messages import request_module, write_request


class Transport:
    def __init__(self) -> None:
        self.is_open = True

    def abort(self) -> None:
        self.is_open = False


class DiallingWorld(StillWorld):
    """Every address opens, refuses, or says nothing, as a test has it."""

    def __init__(self) -> None:
        super().__init__()
        self.refusing: set[str] = set()
        self.silent: set[str] = set()
        self.dialled: list[tuple[str, int]] = []
        self.transports: list[Transport] = []

    def dial(self, host: str, port: int, protocol: Any, failed: Callable[[bool], None]) -> None:
        self.dialled.append((host, port))

        def happen() -> None:
            if host in self.refusing:
                failed(True)
            elif host in self.silent:
                failed(False)
            else:
                self.transports.append(Transport())
                protocol.connection_made(self.transports[-1])

        self.call_later(1, happen)


class Active:
    """What a liveness needs of the active controller."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.is_active = True
        self.submit = cluster.port.submit
        self.cut = cluster.controller.cut


class Scene:
    def __init__(self) -> None:
        self.world = DiallingWorld()
        self.cluster = Cluster(brokers=(1, 2, 3), world=self.world)
        self.active = Active(self.cluster)
        self.liveness = BrokerLiveness(
            self.world,
            self.active,  # type: ignore[arg-type]
            lambda: self.cluster.image,
            node_id=1,
            listener="PLAINTEXT",
        )
        self.cluster.context.liveness = self.liveness
        self.dispatcher = Dispatcher.for_controllers(self.cluster.context)

    def beat(self, broker: int, session: Session | None = None) -> Session:
        """A heartbeat in a frame, on a connection that is given back."""
        session = session or Session("controller", 9093, "10.0.0.1:5000", "CONTROLLER")
        make = request_module(Api.BROKER_HEARTBEAT, 1)
        request = make.BrokerHeartbeatRequest(
            broker_id=broker,
            broker_epoch=self.cluster.image.brokers[broker].epoch,
            current_metadata_offset=self.cluster.image.offset,
            want_fence=False,
            want_shut_down=False,
        )
        body = write_request(Api.BROKER_HEARTBEAT, 1, request)
        frame = request_frame(Api.BROKER_HEARTBEAT, 1, 1, "tests", body)
        self.dispatcher.dispatch(session, memoryview(frame)[4:])
        return session

    def is_fenced(self, broker: int) -> bool:
        fenced: bool = self.cluster.image.brokers[broker].fenced
        return fenced


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_broker_whose_connection_breaks_and_whose_port_refuses_is_dead_now(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    session = scene.beat(2)
    scene.world.refusing = {"host-2"}
    scene.dispatcher.closed(session)
    scene.world.advance(1)
    assert scene.is_fenced(2)
    assert scene.world.dialled == [("host-2", 9002)]
    assert "broker 2 is dead, host-2:9002 refuses connections" in caplog.text
    scene.world.advance(10_000)
    assert len(scene.world.dialled) == 1


def test_a_port_that_outlives_the_connections_for_a_moment_is_tried_again(scene: Scene) -> None:
    """A process that dies is taken apart piece by piece."""
    session = scene.beat(2)
    scene.dispatcher.closed(session)
    scene.world.advance(1)
    assert not scene.is_fenced(2)
    scene.world.refusing = {"host-2"}
    scene.world.advance(PROBE_MS_MIN + 2)
    assert scene.is_fenced(2)


def test_a_broker_that_lost_its_connection_alone_goes_on(scene: Scene) -> None:
    scene.dispatcher.closed(scene.beat(2))
    scene.world.advance(100)
    scene.beat(2)
    knocks = len(scene.world.dialled)
    scene.world.refusing = {"host-2"}
    scene.world.advance(10_000)
    assert len(scene.world.dialled) == knocks
    assert not scene.is_fenced(2)
    assert not any(each.is_open for each in scene.world.transports)


def test_one_that_does_not_answer_has_the_time_of_its_session(scene: Scene) -> None:
    scene.world.silent = {"host-2"}
    scene.dispatcher.closed(scene.beat(2))
    scene.world.advance(8000)
    assert not scene.is_fenced(2)
    assert 8 <= len(scene.world.dialled) <= 20, "knocks become rare"
    assert PROBE_MS_MAX == 1000


def test_the_end_of_an_old_connection_says_nothing(scene: Scene) -> None:
    old = scene.beat(2)
    scene.beat(2)
    scene.world.refusing = {"host-2"}
    scene.dispatcher.closed(old)
    scene.world.advance(1000)
    assert not scene.world.dialled


def test_a_broker_that_has_stopped_as_it_should_is_left_alone(scene: Scene) -> None:
    session = scene.beat(2)
    scene.cluster.fence(2)
    scene.dispatcher.closed(session)
    scene.world.advance(1000)
    assert not scene.world.dialled


def test_a_broker_that_restarts_in_time_is_not_taken_for_its_former_self(scene: Scene) -> None:
    """It need not wait for the end of its former self's session either: nobody else can listen at its address."""
    session = scene.beat(2)
    registration = RegisterBroker(
        2, CLUSTER_ID, uuid(999), scene.cluster.image.brokers[2].endpoints, SUPPORTED, (uuid(2),)
    )
    with pytest.raises(KafkaError) as refusal:
        scene.cluster.decide(registration)
    assert refusal.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    scene.dispatcher.closed(session)
    epoch = scene.cluster.decide(registration)
    scene.cluster.decide(BrokerHeartbeat(2, epoch, scene.cluster.image.offset))
    scene.world.refusing = {"host-2"}
    scene.world.advance(1000)
    assert not scene.is_fenced(2)


def test_a_new_controller_knocks_at_every_broker_but_its_own(scene: Scene) -> None:
    """It has no connection that could break: the broker that died with the old controller is found in this way."""
    scene.world.refusing = {"host-3"}
    scene.liveness.begin()
    assert scene.world.dialled == [("host-2", 9002), ("host-3", 9003)]
    scene.world.advance(1)
    assert [scene.is_fenced(each) for each in (1, 2, 3)] == [False, False, True]


def test_who_was_heard_is_not_knocked_at(scene: Scene) -> None:
    scene.beat(2)
    scene.liveness.begin()
    assert scene.world.dialled == [("host-3", 9003)]


@pytest.mark.parametrize("how", ["told", "not told"])
def test_a_controller_that_is_deposed_watches_no_more(scene: Scene, how: str) -> None:
    session = scene.beat(2)
    scene.dispatcher.closed(session)
    if how == "told":
        scene.liveness.end()
    scene.active.is_active = False
    scene.world.refusing = {"host-2"}
    scene.world.advance(10_000)
    assert not any(isinstance(each, FenceBroker) for each in scene.cluster.port.asked)
    assert not scene.is_fenced(2)
    assert len(scene.world.dialled) == 1


def test_the_listener_of_brokers_is_where_it_knocks() -> None:
    scene = Scene()
    scene.cluster.start(4, listener="REPLICATION")
    scene.dispatcher.closed(scene.beat(4))
    scene.world.advance(0)
    assert scene.world.dialled == [("host-4", 9004)]
