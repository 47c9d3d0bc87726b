"""The floor: a uvloop server that reads frames of one size and answers each with zeros of another.

    python -m benchmarks.broker.echo REQUEST_BYTES REPLY_BYTES

It prints its port when it listens. It does for a request what no server on this loop can do without: one receive,
one call into Python, one send. What a broker costs above it is the broker's own.
"""

import asyncio
import sys
from typing import cast

import uvloop

RECEIVE_BYTES = 1 << 20
_received = memoryview(bytearray(RECEIVE_BYTES))
"""Shared by all connections, as a broker would; nobody looks at what is in it."""


class Echo(asyncio.BufferedProtocol):
    def __init__(self, request_bytes: int, reply: bytes) -> None:
        self._request_bytes = request_bytes
        self._reply = reply
        self._have = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _received

    def buffer_updated(self, nbytes: int) -> None:
        have = self._have + nbytes
        if have == self._request_bytes:
            self._have = 0
            self._transport.write(self._reply)
            return
        whole, self._have = divmod(have, self._request_bytes)
        if whole:
            self._transport.write(self._reply * whole)


async def serve(request_bytes: int, reply_bytes: int) -> None:
    reply = (reply_bytes - 4).to_bytes(4, "big") + bytes(reply_bytes - 4)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Echo(request_bytes, reply), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2])))
