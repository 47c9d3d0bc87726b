"""A controller elsewhere: its listener's dispatcher, asked in frames, as another node would ask it.

there = Cluster(brokers=(1, 2, 3))
peers = ControllerPeers({ADDRESS: there})
router = make_router(world, peers=peers, leader=lambda: ADDRESS)
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.handlers.cluster import Cluster
from tests.worlds import StillWorld

from penstock.base.promise import Promise
from penstock.controlplane.active_controller import ActiveController
from penstock.controlplane.controller_router import ControllerRouter
from penstock.handlers.support.context import Session
from penstock.handlers.support.dispatch import Dispatcher
from penstock.metadata.image import EMPTY, ClusterImage
from penstock.wire import KAFKA_RANGES, RequestRejected, parse_response_header, request_frame
from penstock.wire.peers import Address, PeerFailed
from penstock.wire.request import Request

ADDRESS = Address("controller-1", 9093)
OTHER = Address("controller-2", 9093)


class ControllerPeers:
    """`Peers` whose nodes are controllers in this process."""

    def __init__(self, nodes: dict[Address, Cluster], version_max: int | None = None) -> None:
        self._dispatchers = {
            address: Dispatcher.for_controllers(cluster.context) for address, cluster in nodes.items()
        }
        self._version_max = version_max
        self.session = Session("controller-1", 9093, "127.0.0.1:50000", "CONTROLLER")
        self.purposes: list[str] = []

    def ask(
        self, to: Address, request: Request[Any], *, timeout_ms: float, purpose: str = ""
    ) -> Promise[Any]:
        self.purposes.append(purpose)
        version = min(request.version_max, KAFKA_RANGES[request.api].max)
        if self._version_max is not None:
            version = max(request.version_min, min(version, self._version_max))
        frame = request_frame(request.api, version, 7, "tests", request.write(version))
        reply: Any = self._dispatchers[to].dispatch(self.session, memoryview(frame)[4:])
        answer: Promise[Any] = Promise()

        def read(buffers: Any) -> None:
            body = memoryview(b"".join(buffers))[4:]
            _, at = parse_response_header(body, request.api, version)
            try:
                answer.resolve(request.read(body[at:], version))
            except RequestRejected as error:
                answer.fail(error)

        if isinstance(reply, Promise):
            reply.then(read)
        else:
            read(reply)
        return answer


@dataclass
class Asked:
    """A question that a test answers."""

    to: Address
    request: Request[Any]
    timeout_ms: float
    purpose: str
    answer: Promise[Any] = field(default_factory=Promise)

    def fail(self, *, refused: bool = False) -> None:
        self.answer.fail(PeerFailed("it is gone", refused=refused))


class ScriptedPeers:
    """`Peers` that answer when a test says so."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []

    def ask(
        self, to: Address, request: Request[Any], *, timeout_ms: float, purpose: str = ""
    ) -> Promise[Any]:
        asked = Asked(to, request, timeout_ms, purpose)
        self.asked.append(asked)
        return asked.answer


def make_router(
    world: StillWorld,
    *,
    local: ActiveController | None = None,
    peers: Any = None,
    leader: Callable[[], Address | None] = lambda: None,
    image: Callable[[], ClusterImage] = lambda: EMPTY,
    watchers: dict[Callable[[], None], None] | None = None,
    timeout_ms: int = 30_000,
) -> ControllerRouter:
    seen: dict[Callable[[], None], None] = {} if watchers is None else watchers
    return ControllerRouter(
        world,  # type: ignore[arg-type]  # it needs no connections
        local,
        peers,
        leader_address=leader,
        image=image,
        watchers=lambda: seen,
        timeout_ms=lambda: timeout_ms,
        heartbeat_interval_ms=2000,
    )
