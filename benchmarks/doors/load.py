"""The load generator: many connections, one epoll, the same request again and again.

A reply is counted by the byte that it ends with, which it has nowhere else. One that says that something is wrong ends
the run: what is measured is work that was done.
"""

import os
import select
import socket
import time
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.broker.load import BadReply, cpu_seconds

RECEIVE_BYTES = 1 << 18
SILENCE_SECONDS_MAX = 20.0
"""A server that answers nothing for so long is taken for dead."""


class Load(NamedTuple):
    requests: Sequence[bytes]
    """One for each connection; connections take them in turn. All of one size."""
    connections: int
    in_flight: int
    """Of each connection."""
    end: bytes
    """The byte that ends a reply."""
    wrong: bytes
    """What no good reply has."""


class Measured(NamedTuple):
    requests: int
    seconds: float
    cpu_seconds: float
    """Of the server, all its threads."""


class _Client:
    __slots__ = ("open", "request", "socket")

    def __init__(self, port: int, request: bytes) -> None:
        self.request = request
        self.open = 0
        self.socket = socket.create_connection(("127.0.0.1", port), SILENCE_SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, times: int) -> None:
        self.open += times
        self.socket.sendall(self.request * times)


def drive(port: int, pid: int, load: Load, requests: int, requests_warm: int = 0) -> Measured:
    """Have requests answered, first some that do not count."""
    clients: dict[int, _Client] = {}
    try:
        with select.epoll() as poll:
            for number in range(load.connections):
                client = _Client(port, load.requests[number % len(load.requests)])
                clients[client.socket.fileno()] = client
                poll.register(client.socket, select.EPOLLIN)
            if requests_warm:
                _drive(poll, clients, load, requests_warm)
            cpu, began = cpu_seconds(pid), time.perf_counter()
            _drive(poll, clients, load, requests)
            seconds = time.perf_counter() - began
            return Measured(requests, seconds, cpu_seconds(pid) - cpu)
    finally:
        for client in clients.values():
            client.socket.close()


def _drive(poll: select.epoll, clients: dict[int, _Client], load: Load, requests: int) -> None:
    """From rest to rest."""
    left, answered = requests, 0
    for client in clients.values():
        first = min(load.in_flight, left)
        if first:
            client.ask(first)
            left -= first
    while answered < requests:
        events = poll.poll(SILENCE_SECONDS_MAX)
        if not events:
            raise BadReply(f"nothing was answered for {SILENCE_SECONDS_MAX:.0f} s")
        for descriptor, _ in events:
            client = clients[descriptor]
            data = os.read(descriptor, RECEIVE_BYTES)
            if not data or load.wrong in data:
                raise BadReply(f"a request was answered with {data[:500]!r}")
            done = data.count(load.end)
            client.open -= done
            answered += done
            more = min(done, left)
            if more:
                client.ask(more)
                left -= more
