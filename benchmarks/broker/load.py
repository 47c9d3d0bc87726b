"""The load generator: many connections, one epoll, requests that were made before.

Each connection has a ring of frames. Sending is a slice of the ring with new correlation ids patched in; a slot is
free again when its reply is there, and a ring has at least as many slots as requests may be in flight:

    ring   [ frame | frame | frame | frame ]
              ^sent           ^end             positions only grow; their place is the remainder

A load with a rate sends each request when it is due, on a connection that has none in flight; without one, the next is
sent as soon as a reply is there.

Replies of a row all have one size, learned from the first, so that counting bytes counts replies. A reply of another
size, or with an error code where there should be none, ends the run. Nothing is made per request, so that the
generator costs less than what it measures.
"""

import gc
import os
import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct
from threading import get_native_id
from typing import NamedTuple

from benchmarks.broker.frames import CORRELATION_AT

RECEIVE_BYTES = 1 << 20
SILENCE_SECONDS_MAX = 20.0
"""A server that answers nothing for so long is taken for dead."""
REST_SECONDS_MAX = 0.1
"""A server that goes on for so long after its last reply is read as it is."""

_ID = Struct(">i")


class Load(NamedTuple):
    """What to send. It is given to the generator's process, so it is plain data."""

    rings: Sequence[Sequence[bytes]]
    """Frames that a connection sends in turn; connections take the rings in turn. All of one size."""
    connections: int
    in_flight: int
    requests: int
    """How many are measured, unless the time is up before."""
    requests_warm: int
    """How many come first and are not."""
    error_at: int
    """Where a reply has an error code, which must be 0."""
    reply_bytes_min: int = 0
    """A reply that should carry records has at least so many bytes."""
    seconds_max: float = 60.0
    rate: float = 0.0
    """Requests a second over all connections, which have one in flight; 0 for as many as come back."""


class Measured(NamedTuple):
    requests: int
    seconds: float
    cpu_seconds: float
    """Of the server, all its threads."""
    load_cpu_seconds: float
    """Of the generator."""
    request_bytes: int
    reply_bytes: int


class BadReply(RuntimeError):
    """A server that is measured answered something else than success."""


def cpu_seconds(pid: int) -> float:
    """What a process has used so far, threads that ended included, to the nanosecond.

    The clock of another process, as clock_getcpuclockid(3) makes it: /proc/PID/stat has the same figure in
    hundredths of a second. The clock of a thread that is running moves at the kernel's ticks, several milliseconds
    apart, and when it gives up its core: so it is read once the process has nothing more to do.
    """
    rests_by = time.perf_counter() + REST_SECONDS_MAX
    while _is_running(pid) and time.perf_counter() < rests_by:
        os.sched_yield()
    return time.clock_gettime(~pid << 3 | 2)


def _is_running(pid: int) -> bool:
    """Whether a thread of a process is at work, other than the one that asks."""
    own = str(get_native_id())
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # a thread that ended meanwhile
            if task.name != own and (task / "stat").read_text().rpartition(")")[2].split()[0] == "R":
                return True
    return False


class _Connection:
    __slots__ = ("_ring", "_ring_bytes", "_view", "end", "frame_bytes", "have", "sent", "socket", "waits")

    def __init__(self, address: tuple[str, int], frames: Sequence[bytes], in_flight: int) -> None:
        self.frame_bytes = len(frames[0])
        if any(len(each) != self.frame_bytes for each in frames):
            raise ValueError("the frames of a ring have different sizes")
        self._ring = bytearray(b"".join(frames) * -(-in_flight // len(frames)))
        self._ring_bytes = len(self._ring)
        self._view = memoryview(self._ring)
        self.sent = self.end = 0
        self.have = 0
        """Bytes of a reply that has not arrived whole."""
        self.waits = False
        """The socket took less than it was given; epoll will say when it takes more."""
        self.socket = socket.create_connection(address, SILENCE_SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def add(self, correlation_id: int) -> None:
        _ID.pack_into(self._ring, self.end % self._ring_bytes + CORRELATION_AT, correlation_id)
        self.end += self.frame_bytes

    def send(self) -> bool:
        """Send what was added; False if some of it has to wait."""
        while self.sent < self.end:
            start = self.sent % self._ring_bytes
            stop = min(self._ring_bytes, start + self.end - self.sent)
            try:
                self.sent += self.socket.send(self._view[start:stop])
            except BlockingIOError:
                return False
        return True

    def ask(self) -> bytes:
        """One request and its whole reply, before the socket stops blocking."""
        self.add(0)
        self.send()
        return receive_frame(self.socket)


def receive_frame(connected: socket.socket) -> bytes:
    """A frame, its length included."""
    received = bytearray()
    wanted = 4
    while len(received) < wanted:
        some = connected.recv(wanted - len(received))
        if not some:
            raise BadReply(
                f"the connection was closed with {len(received)} of {wanted} bytes of a reply sent"
            )
        received += some
        if len(received) == 4:
            wanted = 4 + int.from_bytes(received, "big")
    return bytes(received)


class _Generator:
    def __init__(self, port: int, load: Load) -> None:
        self._load = load
        self._poll = select.epoll()
        self._connections: dict[int, _Connection] = {}
        self._buffer = bytearray(RECEIVE_BYTES)
        self._idle: deque[_Connection] = deque()
        """Where there is a rate: who may be next."""
        self._asked = self._asked_at_most = self.done = 0
        self._port = port

    def connect(self) -> None:
        """Make the connections, and learn from each one's first request how large a reply is."""
        load, port = self._load, self._port
        sizes = set()
        for number in range(load.connections):
            made = _Connection(("127.0.0.1", port), load.rings[number % len(load.rings)], load.in_flight)
            self._connections[made.socket.fileno()] = made
            first = made.ask()
            self.request_bytes, self.reply_bytes = made.frame_bytes, len(first)
            self._head = first[:4]
            sizes.add((made.frame_bytes, len(first)))
            if len(first) < max(load.reply_bytes_min, load.error_at + 2):
                raise BadReply(f"the first reply has {len(first)} bytes only: {first[:60].hex(' ')}")
            self._check(first, len(first))
        if len(sizes) != 1:
            raise BadReply(f"requests and replies of several sizes: {sorted(sizes)}")
        for made in self._connections.values():
            made.socket.setblocking(False)
            self._poll.register(made.socket, select.EPOLLIN)

    def run(self, requests: int, ends_at: float) -> int:
        """Send so many and receive their replies, fewer if the time is up; at the end none is in flight."""
        done = self.done
        self._asked_at_most = done + requests
        if self._load.rate:
            self._idle = deque(self._connections.values())
            self._due = time.perf_counter()
        else:
            for each in self._connections.values():
                self._ask(each, self._load.in_flight)
        while self.done < self._asked_at_most:
            if time.perf_counter() >= ends_at:
                self._asked_at_most = self._asked
            self._turn()
        return self.done - done

    def close(self) -> None:
        self._poll.close()
        for each in self._connections.values():
            each.socket.close()

    def _turn(self) -> None:
        """Receive what there is, and send as much again."""
        connections, poll = self._connections, self._poll
        paced = self._load.rate > 0 and self._asked < self._asked_at_most
        if paced:
            self._ask_who_is_due()
        events = poll.poll(0 if paced else SILENCE_SECONDS_MAX)
        if not events and not paced:
            raise BadReply(f"no reply within {SILENCE_SECONDS_MAX:.0f} s")
        for descriptor, event in events:
            connection = connections[descriptor]
            if event & select.EPOLLIN:
                whole = self._receive(connection)
                if paced:
                    self._idle.extend([connection] * whole)
                elif whole:
                    self._ask(connection, whole)
            if event & select.EPOLLOUT and connection.send():
                connection.waits = False
                poll.modify(descriptor, select.EPOLLIN)

    def _receive(self, connection: _Connection) -> int:
        """How many replies are whole now."""
        count = connection.socket.recv_into(self._buffer)
        have = connection.have
        if have == 0:
            self._check(self._buffer, count)
        whole, connection.have = divmod(have + count, self.reply_bytes)
        self.done += whole
        return whole

    def _ask_who_is_due(self) -> None:
        """Send what is due, and wait until something else is, or a reply comes."""
        now = time.perf_counter()
        while self._idle and self._due <= now:
            self._ask(self._idle.popleft(), 1)
            self._due += 1 / self._load.rate
        wait = max(0.0, self._due - now) if self._idle else SILENCE_SECONDS_MAX
        # An epoll waits for whole milliseconds only; select waits for the epoll, and to the microsecond.
        ready, _, _ = select.select([self._poll], [], [], wait)
        if not ready and not self._idle:
            raise BadReply(f"no reply within {SILENCE_SECONDS_MAX:.0f} s")

    def _ask(self, connection: _Connection, count: int) -> None:
        for _ in range(min(count, self._asked_at_most - self._asked)):
            self._asked += 1
            connection.add(self._asked & 0x7FFFFFFF)
        if not connection.waits and not connection.send():
            connection.waits = True
            self._poll.modify(connection.socket, select.EPOLLIN | select.EPOLLOUT)

    def _check(self, buffer: bytes | bytearray, count: int) -> None:
        """Look at the beginnings of all replies in what was received, the first of which is at 0."""
        if not count:
            raise BadReply("the connection was closed")
        error_at, head = self._load.error_at, self._head
        for at in range(0, count, self.reply_bytes):
            if at + error_at + 2 > count:
                return
            if buffer[at : at + 4] != head:
                raise BadReply(
                    f"a reply of {int.from_bytes(buffer[at : at + 4], 'big')} bytes, expected {head!r}"
                )
            if buffer[at + error_at] or buffer[at + error_at + 1]:
                code = int.from_bytes(buffer[at + error_at : at + error_at + 2], "big", signed=True)
                raise BadReply(f"a reply has error code {code}, expected 0")


def drive(port: int, pid: int, load: Load) -> Measured:
    """Put a server under load and say what it cost; runs in a process of its own."""
    gc.disable()
    generator = _Generator(port, load)
    try:
        generator.connect()
        ends_at = time.perf_counter() + load.seconds_max
        generator.run(load.requests_warm, ends_at)
        if time.perf_counter() >= ends_at:
            raise BadReply(f"{load.seconds_max:.1f} s were over before anything was measured")
        used, own, started = cpu_seconds(pid), time.process_time(), time.perf_counter()
        done = generator.run(load.requests, ends_at)
        seconds, own = time.perf_counter() - started, time.process_time() - own
        used = cpu_seconds(pid) - used
    except ConnectionError as error:
        raise BadReply(f"the connection was closed: {error}") from error
    finally:
        generator.close()
        gc.enable()
    return Measured(done, seconds, used, own, generator.request_bytes, generator.reply_bytes)
