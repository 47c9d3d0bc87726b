"""Questions to other nodes over real connections."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from penstock.base.promise import Promise
from penstock.server import world
from penstock.server.peers import PeerConnections
from penstock.server.world import LoopWorld
from penstock.testing import Broker
from penstock.wire import Api
from penstock.wire.peers import Address, PeerFailed
from penstock.wire.request import Request, through_kio

CLUSTER = through_kio(
    Api.DESCRIBE_CLUSTER,
    lambda make: make.DescribeClusterRequest(
        include_cluster_authorized_operations=False, endpoint_type=1, include_fenced_brokers=False
    ),
)
METADATA = through_kio(
    Api.METADATA,
    lambda make: make.MetadataRequest(
        topics=(),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    ),
)


def run(scene: Callable[[PeerConnections], Awaitable[None]]) -> None:
    async def main() -> None:
        loop_world = LoopWorld(asyncio.get_running_loop())
        peers = PeerConnections(loop_world, "test")
        try:
            await scene(peers)
        finally:
            peers.close()
            loop_world.close()

    uvloop.run(main())


async def answered(later: Promise[Any]) -> Any:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    later.then(future.set_result, future.set_result)
    return await asyncio.wait_for(future, 30)


@pytest.fixture(scope="module")
def node() -> Any:
    with Broker() as broker:
        yield Address("127.0.0.1", broker.port)


def test_questions_are_answered_in_their_order_also_those_asked_before_there_is_a_connection(
    node: Address,
) -> None:
    async def scene(peers: PeerConnections) -> None:
        first = peers.ask(node, CLUSTER, timeout_ms=10_000)
        second = peers.ask(node, METADATA, timeout_ms=10_000)
        other = peers.ask(node, CLUSTER, timeout_ms=10_000, purpose="another")
        assert (await answered(first)).brokers[0].port == node.port
        assert (await answered(second)).brokers[0].port == node.port
        assert (await answered(other)).brokers[0].port == node.port
        assert (await answered(peers.ask(node, CLUSTER, timeout_ms=10_000))).brokers[0].port == node.port

    run(scene)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux has TCP_USER_TIMEOUT")
def test_the_kernel_breaks_a_connection_whose_bytes_are_not_acknowledged(node: Address) -> None:
    async def scene(peers: PeerConnections) -> None:
        await answered(peers.ask(node, CLUSTER, timeout_ms=10_000))
        (connection,) = peers._open.values()
        assert connection._transport is not None
        end = connection._transport.get_extra_info("socket")
        assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == world.UNACKNOWLEDGED_MS_MAX

    run(scene)


def test_no_listener() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        to = Address("127.0.0.1", bound.getsockname()[1])

        async def scene(peers: PeerConnections) -> None:
            failed = await answered(peers.ask(to, CLUSTER, timeout_ms=10_000))
            assert isinstance(failed, PeerFailed)
            assert failed.refused
            again = await answered(peers.ask(to, CLUSTER, timeout_ms=10_000))
            assert again.refused

        run(scene)


def test_a_connection_attempt_without_an_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel drops SYN packets while the queue of a listening socket is full."""
    monkeypatch.setattr(world, "DIAL_MS_MAX", 50)
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for each in (first, second):
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        to = Address("127.0.0.1", full.getsockname()[1])

        async def scene(peers: PeerConnections) -> None:
            failed = await answered(peers.ask(to, CLUSTER, timeout_ms=60_000))
            assert isinstance(failed, PeerFailed)
            assert not failed.refused
            assert "unreachable" in str(failed)

        run(scene)


def test_a_peer_that_says_nothing_is_given_up_with_all_that_wait_for_it() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        to = Address("127.0.0.1", silent.getsockname()[1])

        async def scene(peers: PeerConnections) -> None:
            patient = peers.ask(to, METADATA, timeout_ms=60_000)
            hasty = peers.ask(to, CLUSTER, timeout_ms=20)
            failed = await answered(hasty)
            assert isinstance(failed, PeerFailed)
            assert not failed.refused
            assert "has not answered" in str(failed)
            assert await answered(patient) is failed

        run(scene)


def test_a_peer_that_does_not_serve_what_is_asked_goes_on_serving_the_rest(node: Address) -> None:
    unknown: Request[Any] = Request(Api.FETCH, 90, 91, write=lambda _: b"", read=lambda body, _: bytes(body))

    async def scene(peers: PeerConnections) -> None:
        refused = peers.ask(node, unknown, timeout_ms=10_000)
        served = peers.ask(node, CLUSTER, timeout_ms=10_000)
        assert "expected one of 90 to 91" in str(await answered(refused))
        assert (await answered(served)).brokers[0].port == node.port

    run(scene)


def test_a_peer_that_speaks_something_else_is_given_up() -> None:
    async def scene(peers: PeerConnections) -> None:
        async def babble(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"\x00\x00\x00\x08nonsense")
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(babble, "127.0.0.1", 0)
        to = Address("127.0.0.1", server.sockets[0].getsockname()[1])
        failed = await answered(peers.ask(to, CLUSTER, timeout_ms=10_000))
        assert isinstance(failed, PeerFailed)
        server.close()
        await server.wait_closed()

    run(scene)


def test_nothing_is_asked_after_the_end(node: Address) -> None:
    async def scene(peers: PeerConnections) -> None:
        waiting = peers.ask(node, CLUSTER, timeout_ms=10_000)
        peers.close()
        assert isinstance(await answered(waiting), PeerFailed)
        assert isinstance(await answered(peers.ask(node, CLUSTER, timeout_ms=10_000)), PeerFailed)

    run(scene)
