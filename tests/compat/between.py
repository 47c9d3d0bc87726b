"""A man in the middle: clients connect here, and what they say to the broker can be acted on at that very moment.

Frames are passed on as they come. Before a request goes on, and before an answer comes back, a rule may be asked; it
sees which client asked what, and says what to do: pass it on, or drop it, after having done something to somebody.
That is how a kill lands inside a request and not only near it.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from types import TracebackType


class Key(IntEnum):
    """The APIs that rules are about."""

    OFFSET_COMMIT = 8
    END_TXN = 26


FRAME_BYTES_MAX = 100 << 20


@dataclass(frozen=True)
class Moment:
    client: str
    key: int
    is_answer: bool


Rule = Callable[[Moment], bool]
"""Whether the frame goes on. Runs on the loop of the middle: nothing passes meanwhile."""


class Between:
    """Listens on a port of its own. The broker may die and come back at the other end."""

    def __init__(self, broker_port: int) -> None:
        self.broker_port = broker_port
        self.port = 0
        self.rule: Rule | None = None
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._run)
        self._is_listening = threading.Event()
        self._is_over = asyncio.Event()

    def __enter__(self) -> "Between":
        self._thread.start()
        assert self._is_listening.wait(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._is_over.set)
        self._thread.join()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            self.port = listener.getsockname()[1]
            self._is_listening.set()
            await self._accept(listener)
        # Nothing is cancelled: a task whose connections are gone ends by itself, and has closed them.
        while self._tasks:
            for writer in self._writers:
                writer.transport.abort()
            await asyncio.wait(self._tasks, timeout=0.05)
        await asyncio.sleep(0)  # the turn in which the last transports are closed

    async def _accept(self, listener: socket.socket) -> None:
        """Take in whoever comes, until it is over. asyncio's own server loses those that come as it is closed."""
        over = asyncio.ensure_future(self._is_over.wait())
        while not over.done():
            coming = asyncio.ensure_future(self._loop.sock_accept(listener))
            await asyncio.wait({coming, over}, return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                task = asyncio.ensure_future(self._serve_one(coming.result()[0]))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                coming.cancel()

    @contextmanager
    def _kept(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        """Known while it is open, and closed in the end."""
        self._writers.add(writer)
        try:
            yield
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _serve_one(self, accepted: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=accepted)
        with self._kept(writer):
            try:
                there, back = await asyncio.open_connection("127.0.0.1", self.broker_port)
            except OSError:
                return  # the broker is down, and so is the way to it
            with self._kept(back):
                await self._pass_on(reader, writer, there, back)

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: asyncio.StreamReader,
        back: asyncio.StreamWriter,
    ) -> None:
        asked: dict[int, Moment] = {}
        """By correlation id: answers name nothing else."""

        async def go() -> None:
            while True:
                frame = await _frame(reader)
                key = int.from_bytes(frame[:2], "big")
                length = int.from_bytes(frame[8:10], "big", signed=True)
                moment = Moment(frame[10 : 10 + max(length, 0)].decode(), key, is_answer=False)
                asked[int.from_bytes(frame[4:8], "big")] = moment
                if self._passes(moment):
                    back.write(len(frame).to_bytes(4, "big") + frame)
                    await back.drain()

        async def come() -> None:
            while True:
                frame = await _frame(there)
                moment = asked.pop(int.from_bytes(frame[:4], "big"))
                if self._passes(Moment(moment.client, moment.key, is_answer=True)):
                    writer.write(len(frame).to_bytes(4, "big") + frame)
                    await writer.drain()

        both = [asyncio.ensure_future(go()), asyncio.ensure_future(come())]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for each in both:
            each.cancel()
        await asyncio.gather(*both, return_exceptions=True)

    def _passes(self, moment: Moment) -> bool:
        rule = self.rule
        return rule is None or rule(moment)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    length = int.from_bytes(await reader.readexactly(4), "big")
    if length > FRAME_BYTES_MAX:
        raise ConnectionError(f"a frame of {length} bytes")
    return await reader.readexactly(length)
