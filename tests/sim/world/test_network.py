"""Connections: in order, late, in pieces, and how they end. The node's side here is a protocol that echoes."""

import asyncio

import pytest

from penstock.base.world import DIAL_MS_MAX
from penstock.sim.world.network import KERNEL_BYTES_MAX, Link, Network
from penstock.sim.world.process_world import SimWorld
from penstock.sim.world.schedule import Schedule
from penstock.wire.peers import Address

ADDRESS = Address("node-1", 9092)


class Echo(asyncio.BufferedProtocol):
    """Sends back what it receives. It has one buffer, which it uses again only in a later turn, as `LoopTick` does."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.buffer = bytearray(1000)
        self.received = bytearray()
        self.transport: asyncio.Transport | None = None
        self.lost: list[Exception | None] = []
        self.pauses = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        assert self.transport is not None
        self.received += self.buffer[:nbytes]
        self.transport.writelines([bytes(self.buffer[:nbytes])])

    def pause_writing(self) -> None:
        assert self.transport is not None
        self.pauses += 1
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        assert self.transport is not None
        self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class Caller:
    def __init__(self) -> None:
        self.link: Link | None = None
        self.heard = bytearray()
        self.pieces = 0
        self.ends = 0
        self.refusals = 0

    def connected(self, link: Link) -> None:
        self.link = link

    def refused(self) -> None:
        self.refusals += 1

    def received(self, link: Link, data: bytes) -> None:
        self.heard += data
        self.pieces += 1

    def closed(self, link: Link) -> None:
        self.ends += 1


class Scene:
    def __init__(self, seed: int) -> None:
        self.schedule = Schedule(seed)
        self.network = Network(self.schedule, lambda _: None)
        self.world = SimWorld(self.schedule, 1)
        self.protocols: list[Echo] = []
        self.caller = Caller()

    def listen(self) -> None:
        self.network.listen(self.world, ADDRESS.port, self._accept)

    def _accept(self) -> Echo:
        self.protocols.append(Echo(self.world))
        return self.protocols[-1]

    def connect(self) -> Link:
        self.listen()
        self.network.connect(self.caller, ADDRESS)
        self.run()
        assert self.caller.link is not None
        return self.caller.link

    def run(self, steps: int = 1_000_000) -> None:
        while steps and self.schedule.step():
            steps -= 1


@pytest.fixture(params=range(10))
def scene(request: pytest.FixtureRequest) -> Scene:
    return Scene(request.param)


def test_bytes_arrive_complete_and_in_order_both_ways(scene: Scene) -> None:
    link = scene.connect()
    sent = bytes(range(256)) * 1000
    for at in range(0, len(sent), 1700):
        link.send(sent[at : at + 1700])
    scene.run()
    assert scene.protocols[0].received == sent
    assert scene.caller.heard == sent
    assert scene.caller.pieces > 1


def test_without_a_listener_connections_are_refused(scene: Scene) -> None:
    scene.network.connect(scene.caller, ADDRESS)
    scene.run()
    assert scene.caller.refusals == 1


def test_a_client_that_closes_is_heard_of_after_its_last_byte(scene: Scene) -> None:
    link = scene.connect()
    link.send(b"all of it" * 100)
    link.close()
    scene.run()
    assert scene.protocols[0].received == b"all of it" * 100
    assert scene.protocols[0].lost == [None]
    assert scene.caller.ends == 0
    assert link.is_over


def test_a_node_that_closes_sends_what_it_has_first(scene: Scene) -> None:
    scene.connect()
    transport = scene.protocols[0].transport
    assert transport is not None
    transport.write(b"a last word" * 20_000)
    transport.close()
    scene.run()
    assert scene.caller.heard == b"a last word" * 20_000
    assert scene.caller.ends == 1
    assert scene.protocols[0].lost == [None]


def test_an_abort_loses_what_was_not_taken(scene: Scene) -> None:
    scene.connect()
    transport = scene.protocols[0].transport
    assert transport is not None
    transport.write(b"x" * (KERNEL_BYTES_MAX * 2))
    transport.abort()
    scene.run()
    assert scene.caller.heard == b""
    assert scene.caller.ends == 1


def test_a_reset_is_seen_on_both_sides(scene: Scene) -> None:
    link = scene.connect()
    link.send(b"half of it")
    scene.run(1)
    link.reset()
    scene.run()
    assert isinstance(scene.protocols[0].lost[0], ConnectionResetError)
    assert scene.caller.ends == 1
    assert b"half of it".startswith(scene.caller.heard)


def test_a_protocol_is_told_to_pause_while_nobody_reads(scene: Scene) -> None:
    scene.connect()
    protocol = scene.protocols[0]
    assert protocol.transport is not None
    for _ in range(10):
        protocol.transport.write(b"y" * 50_000)
    assert protocol.pauses == 1
    scene.run()
    assert len(scene.caller.heard) == 500_000
    assert protocol.transport.is_reading()


def test_a_dead_node_hears_nothing_and_what_it_sent_ends_anywhere() -> None:
    heard, silences = set(), 0
    for seed in range(60):
        scene = Scene(seed)
        link = scene.connect()
        transport = scene.protocols[0].transport
        assert transport is not None
        transport.write(b"0123456789")
        link.send(b"never heard")
        scene.world.end()
        scene.network.node_died("node-1", is_power_cut=seed % 2 == 0)
        transport.write(b"a ghost's word")
        scene.run()
        assert scene.protocols[0].received == b""
        assert b"0123456789".startswith(scene.caller.heard)
        heard.add(bytes(scene.caller.heard))
        silences += scene.caller.ends == 0
        assert seed % 2 == 0 or scene.caller.ends == 1
    assert len(heard) > 3
    assert 0 < silences < 30


def test_a_buffer_that_is_used_again_too_early_shows() -> None:
    """uvloop keeps the buffer that it is given, not a copy, when the kernel does not take it at once."""
    garbled = 0
    for seed in range(60):
        scene = Scene(seed)
        scene.connect()
        transport = scene.protocols[0].transport
        assert transport is not None
        buffer = bytearray(b"as it was written")
        transport.write(memoryview(buffer))
        buffer[:] = b"what came after it"[: len(buffer)]
        scene.run()
        garbled += scene.caller.heard != b"as it was written"
    assert 0 < garbled < 60


# -- between nodes ------------------------------------------------------------------------------------------


class Dialler(Echo):
    """A process's protocol that only listens."""

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self.buffer[:nbytes]

    def pause_writing(self) -> None:
        """It goes on reading: two that wait for each other would wait for ever."""


class Pair(Scene):
    """A node that dials another."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.other = SimWorld(self.schedule, 2, host="node-2", network=self.network)
        self.dialler = Dialler(self.other)
        self.failures: list[bool] = []

    def dial(self) -> asyncio.Transport:
        self.listen()
        self.try_to_dial()
        self.run()
        assert self.dialler.transport is not None
        return self.dialler.transport

    def try_to_dial(self) -> None:
        self.other.dial("node-1", 9092, self.dialler, self.failures.append)

    def run_until(self, at_us: int) -> None:
        self.schedule.later(at_us - self.schedule.now_us, lambda: None)
        while self.schedule.now_us < at_us:
            self.schedule.step()


@pytest.fixture(params=range(10))
def pair(request: pytest.FixtureRequest) -> Pair:
    return Pair(request.param)


def test_what_a_node_dials_carries_bytes_both_ways_in_order(pair: Pair) -> None:
    transport = pair.dial()
    sent = bytes(range(256)) * 1000
    for at in range(0, len(sent), 1700):
        transport.write(sent[at : at + 1700])
    pair.run()
    assert pair.protocols[0].received == sent
    assert pair.dialler.received == sent
    assert transport.get_extra_info("peername") == tuple(ADDRESS)


def test_a_connection_without_a_listener_is_reported(pair: Pair) -> None:
    pair.try_to_dial()
    pair.run()
    assert pair.failures == [True]


def test_a_machine_without_power_does_not_even_refuse(pair: Pair) -> None:
    pair.network.node_died("node-1", is_power_cut=True)
    pair.try_to_dial()
    pair.run()
    assert pair.failures == [False]
    assert pair.schedule.now_us >= DIAL_MS_MAX * 1000


def test_a_process_that_is_killed_is_heard_of_by_who_dialled_it(pair: Pair) -> None:
    pair.dial()
    pair.world.end()
    pair.network.node_died("node-1", is_power_cut=False)
    pair.run()
    assert pair.dialler.lost == [None]


def test_a_process_that_dialled_and_is_killed_is_heard_of_too(pair: Pair) -> None:
    pair.dial()
    pair.other.end()
    pair.network.node_died("node-2", is_power_cut=False)
    pair.run()
    assert pair.protocols[0].lost == [None]
    assert pair.dialler.lost == []


def test_a_cut_in_one_direction_holds_up_that_direction_alone(pair: Pair) -> None:
    transport = pair.dial()
    pair.network.cut(["node-1"], ["node-2"])
    transport.write(b"hello")
    pair.run_until(3_000_000)
    assert pair.protocols[0].received == b"hello"
    assert pair.dialler.received == b""
    pair.network.heal()
    pair.run()
    assert pair.dialler.received == b"hello"


def test_no_new_connection_crosses_a_cut(pair: Pair) -> None:
    """Not even if the way there is open: the answer would not come back."""
    pair.listen()
    pair.network.cut(["node-1"], ["node-2"])
    pair.try_to_dial()
    pair.run()
    assert pair.failures == [False]
    assert pair.dialler.transport is None


def test_a_cut_that_is_healed_in_time_only_delays_a_connection(pair: Pair) -> None:
    pair.listen()
    pair.network.cut(["node-2"], ["node-1"])
    pair.try_to_dial()
    pair.run_until(500_000)
    pair.network.heal()
    pair.run()
    assert pair.failures == []
    assert pair.dialler.transport is not None


def test_some_connections_do_not_outlive_a_cut(pair: Pair) -> None:
    pair.dial()
    pair.network.cut(["node-1"], ["node-2"])
    pair.run()
    pair.network.heal(breaks=1.0)
    pair.run()
    assert isinstance(pair.dialler.lost[0], ConnectionResetError)
    assert isinstance(pair.protocols[0].lost[0], ConnectionResetError)


def test_a_node_that_stands_still_receives_when_it_goes_on(pair: Pair) -> None:
    transport = pair.dial()
    pair.world.pause()
    transport.write(b"are you there?")
    pair.run_until(3_000_000)
    assert pair.protocols[0].received == b""
    pair.world.resume()
    pair.network.resumed("node-1")
    pair.run()
    assert pair.dialler.received == b"are you there?"


def test_a_connection_that_is_reset_before_it_is_known_is_a_failure() -> None:
    outcomes = set()
    for seed in range(40):
        pair = Pair(seed)
        pair.listen()
        pair.try_to_dial()
        pair.run_until(250)
        pair.network.reset_one()
        pair.run()
        outcomes.add((tuple(pair.failures), len(pair.dialler.lost)))
    assert outcomes <= {((), 0), ((), 1), ((False,), 0)}
    assert ((False,), 0) in outcomes
