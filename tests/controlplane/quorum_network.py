"""Quorums that talk in frames: real ones, with real dispatchers, joined by a network of the test's own.

Every request is written, cut into a frame, dispatched at the controllers' listener of whoever has the address, and its
answer is written and read back. A message takes a millisecond each way.
"""

from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields, replace
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from tests.controlplane.quorum_bench import ALONE, CLUSTER, Bench, settings_in
from tests.worlds import StillWorld

from penstock.base.metrics import Metrics
from penstock.base.promise import Promise
from penstock.controlplane.quorum import MetadataQuorum
from penstock.controlplane.quorum_settings import QuorumSettings
from penstock.controlplane.quorum_transport import PeerTransport
from penstock.handlers.support.context import Context, Session
from penstock.handlers.support.dispatch import Dispatcher
from penstock.handlers.support.replies import NoReply
from penstock.metadata.configs import BrokerSettings
from penstock.metadata.image import EMPTY
from penstock.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from penstock.vfs import MemoryDisk
from penstock.wire import parse_response_header, request_frame
from penstock.wire.peers import Address, PeerFailed, Peers
from penstock.wire.request import Request

T = TypeVar("T")

HOP_MS = 1
LISTENER = "CONTROLLER"


def directory_id(node_id: int) -> bytes:
    return bytes(15) + bytes([100 + node_id])


def voter(node_id: int) -> Voter:
    key = ReplicaKey(node_id, UUID(bytes=directory_id(node_id)))
    return Voter(key, (Endpoint(LISTENER, f"n{node_id}", 9093),))


def context_of(
    world: StillWorld,
    node_id: int,
    quorum: MetadataQuorum,
    *,
    cluster_id: str = CLUSTER,
    peers: Peers | None = None,
) -> Context:
    """As much of a node as controllers' handlers need; there is nothing else."""
    nothing: dict[str, Any] = {each.name: None for each in fields(Context) if each.default is MISSING}
    return Context(
        **{
            **nothing,
            "world": world,
            "node_id": node_id,
            "cluster_id": cluster_id,
            "settings": BrokerSettings(node_id, {}),
            "quorum": quorum,
            "image": EMPTY,
            "image_watchers": {},
            "advertised": {},
            "metrics": Metrics(),
            "peers": peers,
        }
    )


def dispatched(dispatcher: Dispatcher, request: Request[T], version: int | None = None) -> Promise[T]:
    """What a request is answered with, through both sides' codecs."""
    version = request.version_max if version is None else version
    frame = request_frame(request.api, version, 7, "tests", request.write(version))
    session = Session("127.0.0.1", 9093, "127.0.0.1:50000", LISTENER)
    answer: Promise[T] = Promise()

    def read(buffers: Iterable[Any]) -> None:
        whole = memoryview(b"".join(bytes(each) for each in buffers))[4:]
        correlation_id, at = parse_response_header(whole, request.api, version)
        assert correlation_id == 7
        answer.resolve(request.read(whole[at:], version))

    reply = dispatcher.dispatch(session, memoryview(frame)[4:])
    assert not isinstance(reply, NoReply)
    if isinstance(reply, Promise):
        reply.then(read)
    else:
        read(reply)
    return answer


class Network:
    def __init__(self, world: StillWorld) -> None:
        self.world = world
        self.dispatchers: dict[Address, Dispatcher] = {}
        self.cut: set[Address] = set()
        self.asked: list[tuple[Address, str, Request[Any]]] = []
        """Everything that was asked: of whom, and for which purpose."""
        self.open: dict[Address, list[Callable[[PeerFailed], None]]] = {}
        """Who waits for answers on a connection to an address."""

    def kill(self, address: Address) -> None:
        """Nobody listens there any more, and its connections break."""
        del self.dispatchers[address]
        for lose in self.open.pop(address, []):
            lose(PeerFailed(f"the connection to {address} is lost"))


class FramePeers:
    """One node's way to the others: a `Peers`."""

    def __init__(self, network: Network, own: Address) -> None:
        self._network = network
        self._own = own

    def ask(self, to: Address, request: Request[T], *, timeout_ms: float, purpose: str = "") -> Promise[T]:
        network = self._network
        network.asked.append((to, purpose, request))
        answer: Promise[T] = Promise()

        def fail(error: PeerFailed) -> None:
            if not answer.is_settled:
                timer.cancel()
                answer.fail(error)

        def arrive() -> None:
            dispatcher = network.dispatchers.get(to)
            if dispatcher is None:
                fail(PeerFailed(f"{to} refused the connection", refused=True))
            elif not {to, self._own} & network.cut:
                network.open.setdefault(to, []).append(fail)
                dispatched(dispatcher, request).then(
                    lambda reply: network.world.call_later(HOP_MS, partial(come_back, reply))
                )

        def come_back(reply: T) -> None:
            if not {to, self._own} & network.cut and not answer.is_settled:
                timer.cancel()
                answer.resolve(reply)

        timer = network.world.call_later(timeout_ms, lambda: fail(PeerFailed(f"{to} is silent")))
        network.world.call_later(HOP_MS, arrive)
        return answer


class Quorums:
    def __init__(self, ids: tuple[int, ...] = (1, 2, 3), settings: QuorumSettings | None = None) -> None:
        self.world = StillWorld(seed=5)
        self.network = Network(self.world)
        voters = VoterSet.of(Voter(ReplicaKey(each), voter(each).endpoints) for each in ids)
        self.settings = settings or replace(ALONE, voters=voters)
        self.disks: dict[int, MemoryDisk] = {}
        self.benches: dict[int, Bench] = {}
        self.brokers: dict[int, Dispatcher] = {}
        """What the same nodes serve at a broker's listener."""
        for each in ids:
            self.start(each)

    @staticmethod
    def address(node_id: int) -> Address:
        return Address(f"n{node_id}", 9093)

    def start(
        self,
        node_id: int,
        settings: QuorumSettings | None = None,
        *,
        cluster_id: str = CLUSTER,
        directory: UUID | None = None,
    ) -> Bench:
        settings = replace(settings or self.settings, endpoints=voter(node_id).endpoints)
        peers = FramePeers(self.network, self.address(node_id))
        self.benches[node_id] = bench = Bench(
            self.disks.setdefault(node_id, MemoryDisk()),
            settings,
            world=self.world,
            node_id=node_id,
            directory_id=directory_id(node_id) if directory is None else directory.bytes,
            transport=PeerTransport(peers, cluster_id, settings.raft, LISTENER),
        )
        context = context_of(self.world, node_id, bench.quorum, cluster_id=cluster_id, peers=peers)
        self.network.dispatchers[self.address(node_id)] = Dispatcher.for_controllers(context)
        self.brokers[node_id] = Dispatcher(context)
        bench.quorum.start()
        return bench

    def kill(self, node_id: int) -> None:
        self.benches.pop(node_id).quorum.abandon()
        del self.brokers[node_id]
        self.network.kill(self.address(node_id))

    @property
    def leader(self) -> Bench | None:
        leading = [bench for bench in self.benches.values() if bench.hearer.epoch is not None]
        return max(leading, key=lambda bench: bench.hearer.epoch or 0, default=None)

    def wait_for_leader(self) -> Bench:
        self.world.run_until(lambda: self.leader is not None)
        assert self.leader is not None
        return self.leader

    def id_of(self, bench: Bench) -> int:
        return next(node_id for node_id, each in self.benches.items() if each is bench)

    def others(self, bench: Bench) -> list[int]:
        return [node_id for node_id, each in self.benches.items() if each is not bench]

    def settle(self) -> None:
        self.world.advance(3000)

    def check_alike(self) -> dict[str, str]:
        """All nodes have the same image; what is in it."""
        for bench in self.benches.values():
            assert bench.hearer.failure is None
        images = [bench.hearer.now for bench in self.benches.values()]
        assert all(image == images[0] for image in images)
        return settings_in(images[0])
