"""A server at rest: how long it takes to start, what it holds when idle, what an idle connection costs it.

Each round starts a server of its own on an empty directory. A server counts as idle when a first client has made a
topic: one that has never been asked anything may not have loaded what it needs. An idle connection has sent
ApiVersions and been answered, as every client's has.
"""

import socket
from pathlib import Path
from typing import NamedTuple

from benchmarks.broker.admin import Admin, api_versions_frame
from benchmarks.broker.load import receive_frame
from benchmarks.broker.rows import Line
from benchmarks.broker.servers import start

CONNECTIONS = 5000

LINES = [
    Line("rest-start", "start to ready, empty directory", "s", yardstick=""),
    Line("rest-idle", "resident memory, idle", "MB", yardstick=""),
    Line("rest-connection", "memory for each idle connection", "KB", yardstick=""),
]


class AtRest(NamedTuple):
    start_seconds: float
    idle_bytes: int
    connection_bytes: float

    def figures(self) -> dict[str, float]:
        return {
            "rest-start": self.start_seconds,
            "rest-idle": self.idle_bytes / 1e6,
            "rest-connection": self.connection_bytes / 1e3,
        }


def at_rest(kind: str, data: Path, connections: int) -> AtRest:
    frame = api_versions_frame()
    with start(kind, data) as server:
        with Admin(server.port) as admin:
            admin.create_topic("idle", 1, {})
        idle = server.rss_bytes()
        held: list[socket.socket] = []
        try:
            for _ in range(connections):
                made = socket.create_connection(("127.0.0.1", server.port), 20)
                held.append(made)
                made.sendall(frame)
                receive_frame(made)
            each = (server.rss_bytes() - idle) / connections
        finally:
            for made in held:
                made.close()
    return AtRest(server.start_seconds, idle, each)
