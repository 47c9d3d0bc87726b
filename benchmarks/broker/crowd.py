"""A group that gathers: each member on a connection of its own, all of them in one process on one epoll.

A JoinGroup is answered when the group has its generation, and a server answers the requests of a connection in their
order; so members cannot share connections. One member is there before the others come: a group that is
not empty has no first delay (`group.initial.rebalance.delay.ms`), which is a wait and no work.

The group has settled when all members are in one generation, or epoch, each partition is with exactly one of them, and
no member has two more than another.
Until then a member that has nothing else to do sends a heartbeat every quarter of a second. A client would wait 3 or 5
seconds, and most of the time of a rebalance is that; here the broker is measured.
"""

import gc
import select
import socket
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from benchmarks.broker.admin import Admin
from benchmarks.broker.load import SILENCE_SECONDS_MAX, BadReply, cpu_seconds
from benchmarks.broker.members import MEMBERS, Group, Joined, Member, leave

HEARTBEAT_SECONDS = 0.25
SETTLE_SECONDS_MAX = 60.0
RECEIVE_BYTES = 1 << 16


class Settled(NamedTuple):
    seconds: float
    """From the first request of those who come to the last one's assignment."""
    cpu_seconds: float
    """Of the server, all its threads."""
    requests: int
    members: tuple[Joined, ...]


class _Seat:
    """A member and its connection. One request is in flight, or none."""

    __slots__ = ("_received", "held", "member", "socket")

    def __init__(self, port: int, member: Member) -> None:
        self.member = member
        self.held = 0
        """How many partitions the member counts for."""
        self._received = bytearray()
        self.socket = socket.create_connection(("127.0.0.1", port), SILENCE_SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def receive(self) -> memoryview | None:
        """The reply without its length, once it is whole."""
        some = self.socket.recv(RECEIVE_BYTES)
        if not some:
            raise BadReply(f"the connection of a member of {self.member.group.name} was closed")
        self._received += some
        received = self._received
        if len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            return None
        self._received = bytearray()
        return memoryview(received)[4:]


class Crowd:
    def __init__(self, port: int, group: Group) -> None:
        self.requests = 0
        self._port, self._group = port, group
        self._poll = select.epoll()
        self._seats: dict[int, _Seat] = {}
        self._resting: deque[tuple[float, _Seat]] = deque()
        """By when their heartbeats are due."""
        self._held = 0

    def close(self) -> None:
        self._poll.close()
        for seat in self._seats.values():
            seat.socket.close()

    def add(self, count: int) -> list[_Seat]:
        """So many are connected, and have not joined."""
        added = [_Seat(self._port, MEMBERS[self._group.protocol](self._group)) for _ in range(count)]
        for seat in added:
            self._seats[seat.socket.fileno()] = seat
            self._poll.register(seat.socket, select.EPOLLIN)
        return added

    def settle(self, joining: Sequence[_Seat]) -> None:
        """Let them join, and go on until every partition has its owner."""
        for seat in joining:
            self._send(seat, seat.member.join())
        ends_at = time.perf_counter() + SETTLE_SECONDS_MAX
        while not self._has_settled():
            now = time.perf_counter()
            if now > ends_at:
                raise BadReply(f"{self._group.name} has not settled in {SETTLE_SECONDS_MAX:.0f} s")
            while self._resting and self._resting[0][0] <= now:
                _, seat = self._resting.popleft()
                self._send(seat, seat.member.heartbeat())
            wait = self._resting[0][0] - now if self._resting else SILENCE_SECONDS_MAX
            for descriptor, _ in self._poll.poll(wait):
                self._hear(self._seats[descriptor])

    def joined(self) -> tuple[Joined, ...]:
        return tuple(seat.member.joined() for seat in self._seats.values())

    def _hear(self, seat: _Seat) -> None:
        frame = seat.receive()
        if frame is None:
            return
        more = seat.member.told(frame)
        held = len(seat.member.partitions)
        self._held += held - seat.held
        seat.held = held
        if more is None:
            self._resting.append((time.perf_counter() + HEARTBEAT_SECONDS, seat))
        else:
            self._send(seat, more)

    def _send(self, seat: _Seat, frame: bytes) -> None:
        """Requests are smaller than what a socket takes at once, but for a leader's, which may block for a moment."""
        self.requests += 1
        seat.socket.sendall(frame)

    def _has_settled(self) -> bool:
        if self._held != self._group.partitions:
            return False
        members = [seat.member for seat in self._seats.values()]
        if len({each.generation for each in members}) != 1:
            return False
        shares = [len(each.partitions) for each in members]
        if max(shares) - min(shares) > 1:
            return False  # a coordinator may take members in first, and share anew a little later
        return len({number for each in members for number in each.partitions}) == self._group.partitions


def settle(port: int, pid: int, group: Group, members: int) -> Settled:
    """A group gathers, and goes again; runs in a process of its own."""
    gc.disable()
    crowd = Crowd(port, group)
    try:
        with Admin(port) as admin:
            admin.await_coordinator(group.name)
            crowd.settle(crowd.add(1))
            coming, asked = crowd.add(members - 1), crowd.requests
            used, started = cpu_seconds(pid), time.perf_counter()
            crowd.settle(coming)
            seconds, used = time.perf_counter() - started, cpu_seconds(pid) - used
            settled = Settled(seconds, used, crowd.requests - asked, crowd.joined())
            leave(admin, group.protocol, settled.members)
    finally:
        crowd.close()
        gc.enable()
    return settled


@contextmanager
def gathered(port: int, groups: Sequence[Group], members: int) -> Iterator[tuple[Joined, ...]]:
    """Groups of so many members each, settled; they are members until the end, and their connections are closed."""
    joined: list[Joined] = []
    with Admin(port) as admin:
        for group in groups:
            crowd = Crowd(port, group)
            try:
                admin.await_coordinator(group.name)
                for count in (1, members - 1):
                    crowd.settle(crowd.add(count))
                joined += crowd.joined()
            finally:
                crowd.close()
        yield tuple(joined)
        for group in groups:
            leave(admin, group.protocol, [each for each in joined if each.group == group.name])
