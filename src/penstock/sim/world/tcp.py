"""One simulated TCP connection: an ordered stream each way, delivered late and in pieces.

    near end --put--> [ in the kernel and in flight ] --take--> far end        and the same the other way

The near end connected (a client or a process of a node), the far end accepted (a process of a node). A link ends in
one of these ways:

- One side closes; the other side gets end of file after all bytes.
- The network resets it; bytes in flight are lost both ways.
- A process is killed; any prefix of the bytes in its kernel still arrives.
- A machine loses power; as with a kill, or nothing arrives until the machine is back.

While the network is cut in one direction, bytes of that direction wait.
"""

from typing import TYPE_CHECKING, Protocol

from penstock.sim.clients.ports import NetworkClient
from penstock.sim.world.process_world import SimWorld
from penstock.sim.world.schedule import Event

if TYPE_CHECKING:
    from penstock.sim.world.network import Network
    from penstock.sim.world.transport import NodeTransport

KERNEL_BYTES_MAX = 64 * 1024
"""Size of the kernel's send buffer."""

STALLED_BYTES_MAX = 2048
"""Send buffer while the client does not read: small, so that the node has to buffer the rest."""


class Endpoint(Protocol):
    """One end of a link."""

    host: str

    def bind(self, link: "Link") -> None: ...

    @property
    def is_there(self) -> bool:
        """Whether a live owner holds this end, or is about to get it."""

    @property
    def can_take(self) -> bool:
        """Whether it reads now. When it reads again, it calls `Link.nudge`."""

    def take(self, data: bytearray, count: int) -> int:
        """Take up to `count` bytes; return how many."""

    def end_of_input(self) -> None:
        """All bytes have arrived, and the other side has closed."""

    def has_room(self) -> None:
        """The kernel's send buffer has room again."""

    def broken(self) -> None:
        """The link was reset."""


class ClientEndpoint:
    """Implements `Endpoint` for a client, which is never killed and has an unlimited send buffer."""

    def __init__(self, caller: NetworkClient, host: str) -> None:
        self.host = host
        self.caller: NetworkClient | None = caller
        """None once the client has closed, or knows that the link has ended."""
        self._link: Link
        self._is_known = False
        """The client was notified that it is connected."""
        self.is_reading = True

    def bind(self, link: "Link") -> None:
        self._link = link

    @property
    def is_there(self) -> bool:
        return self.caller is not None

    @property
    def can_take(self) -> bool:
        return self.caller is not None and self.is_reading

    def connected(self) -> None:
        if self.caller is not None:
            self._is_known = True
            self.caller.connected(self._link)

    def take(self, data: bytearray, count: int) -> int:
        if self.caller is not None:
            self.caller.received(self._link, bytes(data[:count]))
        return count

    def end_of_input(self) -> None:
        caller, self.caller = self.caller, None
        if caller is not None and self._is_known:
            caller.closed(self._link)
        elif caller is not None:
            caller.refused()

    def has_room(self) -> None:
        """A client never waits for room."""

    def broken(self) -> None:
        self._link.network.soon(self.end_of_input)


class Stream:
    """One direction of a link."""

    def __init__(self, network: "Network", source: Endpoint, target: Endpoint, link: "Link") -> None:
        self.source = source
        self.target = target
        self.data = bytearray()
        self.is_finished = False
        """The source has closed or died; the target gets end of file after the last byte."""
        self.is_silent = False
        """Nothing arrives any more, not even end of file."""
        self._network = network
        self._link = link
        self._arrival: Event | None = None
        """Arrival of the next piece. One at a time keeps pieces in order."""

    def put(self, data: memoryview | bytes, bytes_max: int | None) -> int:
        """Return how many bytes the kernel took; all, if the target is gone."""
        count = len(data)
        if not self.target.is_there:
            return count
        room = count if bytes_max is None else max(0, bytes_max - len(self.data))
        if count > room:
            count = room
            data = data[:room]
        self.data += data
        self.nudge()
        return count

    def finish(self, *, is_abort: bool) -> None:
        self.is_finished = True
        if is_abort:
            self.data.clear()
        self.nudge()

    def nudge(self) -> None:
        if self._arrival is None and (self.data or self.is_finished) and not self.is_silent:
            network = self._network
            self._arrival = network.schedule.later(network.delay_us(), self._arrive)

    def _arrive(self) -> None:
        self._arrival = None
        network, target = self._network, self.target
        if self.is_silent:
            return
        if network.is_cut(self.source.host, target.host) or not target.can_take:
            # `nudge` is called when the cut is healed, or the target reads again.
            self._link.disturbed_us = network.schedule.now_us
            return
        if not self.data:
            if self.is_finished:
                target.end_of_input()
            return
        hiccup_us = network.hiccup_us()
        if hiccup_us:
            # A lost packet, or a busy reader: other links must continue meanwhile.
            self._arrival = network.schedule.later(hiccup_us, self._arrive)
            return
        count = target.take(self.data, network.piece(len(self.data)))
        del self.data[:count]
        self.source.has_room()
        self.nudge()


class Link:
    """Both ends of one connection, and what is between them."""

    def __init__(self, network: "Network", number: int, near: Endpoint, far: "NodeTransport") -> None:
        self.network = network
        self.number = number
        self.near = near
        self.far = far
        self.disturbed_us = -1
        """When a cut or an unready target last delayed it."""
        self._out = Stream(network, near, far, self)
        self._back = Stream(network, far, near, self)
        near.bind(self)
        far.bind(self)

    @property
    def world(self) -> SimWorld:
        """World of the process at the far end."""
        return self.far.world

    @property
    def incarnation(self) -> int:
        return self.far.world.incarnation

    @property
    def is_node_there(self) -> bool:
        """Whether a live process holds the far end."""
        return self.far.is_there

    @property
    def is_over(self) -> bool:
        return not self.near.is_there and not self.far.is_there

    # -- what a client calls ---------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        self._out.put(data, None)

    def close(self) -> None:
        """Close the client's end. Bytes in flight may still reach the node."""
        assert isinstance(self.near, ClientEndpoint)
        self.near.caller = None
        if not self._out.is_finished:
            self.finish(self.near)

    def stop_reading(self) -> None:
        """Stop delivering bytes to the client."""
        assert isinstance(self.near, ClientEndpoint)
        self.near.is_reading = False

    def read_on(self) -> None:
        assert isinstance(self.near, ClientEndpoint)
        self.near.is_reading = True
        self._back.nudge()

    # -- what an end calls -----------------------------------------------------------------------------

    def put(self, source: Endpoint, data: memoryview) -> int:
        is_stalled = isinstance(self.near, ClientEndpoint) and not self.near.is_reading
        return self._from(source).put(data, STALLED_BYTES_MAX if is_stalled else KERNEL_BYTES_MAX)

    def finish(self, source: Endpoint, *, is_abort: bool = False) -> None:
        self._from(source).finish(is_abort=is_abort)

    def nudge(self, target: Endpoint) -> None:
        """Continue delivery to a target that reads again."""
        (self._out if target is self.far else self._back).nudge()

    def _from(self, source: Endpoint) -> Stream:
        return self._out if source is self.near else self._back

    # -- what happens to it ----------------------------------------------------------------------------

    def nudge_all(self) -> None:
        self._out.nudge()
        self._back.nudge()

    def reset(self) -> None:
        """Reset the connection; bytes in flight are lost."""
        self.network.trace(f"link {self.number} is reset")
        for stream in (self._out, self._back):
            stream.data.clear()
            stream.is_finished = True
        self.far.broken()
        self.near.broken()

    def lose(self, host: str, *, is_power_cut: bool) -> None:
        """The process on this host has ended."""
        rng = self.network.rng
        for stream in (self._out, self._back):
            if stream.source.host == host:
                # Any prefix of the kernel's buffer has left the machine.
                del stream.data[rng.randrange(len(stream.data) + 1) :]
                stream.is_finished = True
                stream.is_silent = is_power_cut and rng.random() < 0.5
                stream.nudge()

    def break_silence(self, host: str) -> None:
        """The machine is back and resets a connection that the other end kept open."""
        for stream in (self._out, self._back):
            if stream.source.host == host and stream.is_silent:
                stream.is_silent = False
                stream.data.clear()
                stream.target.broken()
