"""A whole node in a world that stands still, and clients that speak to it without a socket.

node = StillNode(settings={"durability.fsync": "never"})
client = node.client()
client.send(Api.METADATA, 12, request)     what arrives in one go is one turn
node.world.advance(10)
reply = client.reply()                     None while there is none
"""

from collections import deque
from datetime import timedelta
from random import Random
from typing import Any

from tests.worlds import StillWorld

from penstock.server.config import config_from
from penstock.server.connection import Connection
from penstock.server.node import Node
from penstock.vfs import MemoryDisk, Vfs
from penstock.wire import (
    Api,
    Buffer,
    parse_response_header,
    read_response,
    request_frame,
    request_module,
    write_request,
)

START_MS_MAX = 1000


class StillTransport:
    def __init__(self) -> None:
        self.received = bytearray()
        self.is_reading = True
        self.is_closed = False
        self.sends = 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("10.0.0.1", 4711), "sockname": ("10.0.0.2", 9092)}.get(name, default)

    def write(self, data: Buffer) -> None:
        self.sends += 1
        self.received += data

    def writelines(self, buffers: list[Buffer]) -> None:
        self.write(b"".join(buffers))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close


class StillClient:
    """A connection to a node, driven by hand."""

    def __init__(self, node: "StillNode", listener: str = "PLAINTEXT") -> None:
        self.node = node
        self.transport = StillTransport()
        self.connection: Connection = node.node.connection(listener)
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]
        self._asked: deque[tuple[Api, int, int]] = deque()
        self._correlation_id = 0

    def feed(self, data: bytes) -> None:
        """Bytes arrive."""
        while data:
            room = self.connection.get_buffer(-1)
            count = min(len(room), len(data))
            room[:count] = data[:count]
            del room
            self.connection.buffer_updated(count)
            data = data[count:]

    def send(self, api: Api, version: int, body: bytes) -> None:
        """A request arrives, in a turn of its own unless another follows at once."""
        self._correlation_id += 1
        self._asked.append((api, version, self._correlation_id))
        self.feed(request_frame(api, version, self._correlation_id, "test", body))

    def ask(self, api: Api, version: int, **fields: Any) -> None:
        request = getattr(request_module(api, version), api.label + "Request")(**fields)
        self.send(api, version, write_request(api, version, request))

    def is_not_answered(self) -> None:
        """The request that was sent last gets no reply (acks 0)."""
        self._asked.pop()

    def reply(self) -> Any:
        """The next reply as kio reads it; None while there is none."""
        raw = self.raw_reply()
        if raw is None:
            return None
        api, version, frame, at = raw
        return read_response(api, version, memoryview(bytes(frame[at:])))

    def raw_reply(self) -> tuple[Api, int, bytes, int] | None:
        received = self.transport.received
        if len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            return None
        length = int.from_bytes(received[:4], "big")
        frame = bytes(received[4 : 4 + length])
        del received[: 4 + length]
        api, version, correlation_id = self._asked.popleft()
        found, at = parse_response_header(memoryview(frame), api, version)
        assert found == correlation_id, "replies come in the order of the requests"
        return api, version, frame, at

    def call(self, api: Api, version: int, **fields: Any) -> Any:
        """Ask, and let time pass until the answer is there."""
        self.ask(api, version, **fields)
        return self.wait()

    def wait(self, ms_max: int = 10_000) -> Any:
        for _ in range(ms_max):
            reply = self.reply()
            if reply is not None:
                return reply
            self.node.world.advance(1)
        raise AssertionError(f"no reply within {ms_max} ms")


class StillNode:
    def __init__(
        self,
        disk: Vfs | None = None,
        *,
        settings: dict[str, str] | None = None,
        seed: int = 0,
        world: StillWorld | None = None,
    ) -> None:
        self.disk = MemoryDisk() if disk is None else disk
        self.settings = settings or {}
        self.seed = seed
        self.failures: list[str] = []
        self._start(world or StillWorld(seed))

    def _start(self, world: StillWorld) -> None:
        self.world = world
        self.is_ready = False
        self.node = Node(world, self.disk, config_from("/data", self.settings))
        self.node.start(self._ready, self.failures.append)
        world.run_until(lambda: self.is_ready or bool(self.failures))
        assert not self.failures

    def _ready(self) -> None:
        self.is_ready = True

    def client(self, listener: str = "PLAINTEXT") -> StillClient:
        return StillClient(self, listener)

    def stop(self) -> None:
        stopped: list[bool] = []
        self.node.stop(lambda: stopped.append(True))
        self.world.run_until(lambda: bool(stopped))

    def restart(self) -> None:
        """Start again on the same disk, a while later."""
        self.seed += 1
        boot = self.world.boot
        self._start(StillWorld(self.seed, start_ms=self.world.now_ms() + 1000, boot=boot))

    def crash(self, rng: Random | None = None) -> None:
        """End as kill -9 does; with `rng`, as a power cut."""
        assert isinstance(self.disk, MemoryDisk)
        self.world.stop()
        if rng is not None and self.world.boot is not None:
            self.world.boot += ", and after a power cut"
        self.disk = self.disk.kill_clone() if rng is None else self.disk.crash_clone(rng)
        self.restart()

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        module = request_module(Api.CREATE_TOPICS, 7)
        topic = module.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=-1,
            assignments=(),
            configs=tuple(
                module.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ),
        )
        client = self.client()
        reply = client.call(
            Api.CREATE_TOPICS, 7, topics=(topic,), timeout=timedelta(seconds=5), validate_only=False
        )
        assert reply.topics[0].error_code.value == 0, reply
