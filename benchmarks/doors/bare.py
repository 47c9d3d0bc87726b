"""Bare servers: what is left of a door when there is no node behind it.

    python -m benchmarks.doors.bare http REPLY      the HTTP door of Penstock with one route, which has its reply ready
    python -m benchmarks.doors.bare line REPLY      a uvloop server that answers each command of a size with a line

They print their port when they listen.
"""

import asyncio
import sys
from typing import Any

import msgspec
import uvloop

from benchmarks.broker.echo import Echo
from penstock.base.metrics import Metrics
from penstock.gateway.http.produce import ProduceBody
from penstock.gateway.http.protocol.messages import Request, Response, Route
from penstock.gateway.http.protocol.routing import Router
from penstock.gateway.http.server import HttpServer
from penstock.metadata.configs import BrokerSettings
from penstock.metadata.image import EMPTY
from penstock.server.connections import LoginMemory
from penstock.server.doors import DoorConnection
from penstock.server.loop_tick import LoopTick
from penstock.server.world import LoopWorld


class NoNode:
    """As much of a gateway and of its context as a conversation looks at."""

    def __init__(self, world: LoopWorld) -> None:
        self.context = self
        self.world = world
        self.image = EMPTY
        self.settings = BrokerSettings(1, {})
        self.metrics = Metrics()
        self.authorizer = self.audit = self.quotas = None


class Everybody:
    """Takes every connection in."""

    login_memory = LoginMemory()

    def made(self, _connection: Any) -> str | None:
        return None

    def lost(self, _connection: Any) -> None:
        pass


def http(loop: asyncio.AbstractEventLoop, reply: bytes) -> Any:
    response = Response(200, reply)

    def answer(_gateway: object, _request: Request) -> Response:
        return response

    world = LoopWorld(loop)
    door = HttpServer(
        NoNode(world), Router([Route("POST", "/produce", answer, "bare", "Nothing.", body=ProduceBody)])
    )
    tick, owner = LoopTick(world), Everybody()
    return lambda: DoorConnection(tick, door, owner)


async def serve(kind: str, reply: bytes, request_bytes: int) -> None:
    loop = asyncio.get_running_loop()
    make = http(loop, reply) if kind == "http" else lambda: Echo(request_bytes, reply)
    server = await loop.create_server(make, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], msgspec.json.decode(sys.argv[2], type=str).encode(), int(sys.argv[3])))
