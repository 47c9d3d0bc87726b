"""Connections: requests out of bytes however they arrive, replies in the order of the requests."""

import asyncio
import socket
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.metrics import Histogram, Metrics, RequestStart
from penstock.base.promise import HoldingPromise, Promise
from penstock.handlers.support.context import Session
from penstock.handlers.support.replies import NO_REPLY, Reply
from penstock.server.connection import OPEN_REQUESTS_MAX, OUT_BYTES_MAX, Connection, Pause
from penstock.server.loop_tick import SPARE_CHUNKS_MAX, LoopTick
from penstock.server.world import LoopWorld
from penstock.wire import Buffer, Piece

REQUEST_BYTES_MAX = 10_000_000


class Loop:
    """As much of a loop as a turn needs."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    now_ns = 1

    def clock_ns(self) -> int:
        return self.now_ns

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def run(self) -> None:
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()


class Transport:
    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.is_reading = True
        self.is_closed = False

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return {"peername": ("10.0.0.1", 4711), "sockname": ("10.0.0.2", 9092)}[name]

    def write(self, data: Buffer) -> None:
        self.sent.append(bytes(data))

    def writelines(self, buffers: list[Buffer]) -> None:
        self.sent.append(b"".join(bytes(each) for each in buffers))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


class Echo:
    """Answers a frame with itself; `wait...` and `hold...` later, `hush...` never, `part...` in two buffers."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.waiting: list[tuple[bytes, Promise[list[Piece]]]] = []
        self.closed_count = 0

    def dispatch(self, session: Session, frame: memoryview) -> Reply:
        data = bytes(frame)
        self.frames.append(data)
        if data.startswith((b"wait", b"hold")):
            later: Promise[list[Piece]] = HoldingPromise() if data.startswith(b"hold") else Promise()
            self.waiting.append((data, later))
            return later
        if data.startswith(b"hush"):
            return NO_REPLY
        return [data[:2], data[2:]] if data.startswith(b"part") else [data]

    def closed(self, session: Session) -> None:
        self.closed_count += 1

    def answer(self, data: bytes) -> None:
        [found] = [each for each in self.waiting if each[0] == data]
        self.waiting.remove(found)
        found[1].resolve([data])


class Client:
    """One end of a connection, driven by hand."""

    def __init__(self, chunk_bytes: int = 1 << 20) -> None:
        self.loop = Loop()
        self.tick = LoopTick(self.loop, chunk_bytes)  # type: ignore[arg-type]
        self.echo = Echo()
        self.transport = Transport()
        self.connection = Connection(self.tick, self.echo, REQUEST_BYTES_MAX)
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]

    def receive(self, data: bytes, *, step: int = 1 << 16) -> None:
        for start in range(0, len(data), step):
            piece = data[start : start + step]
            while piece:
                room = self.connection.get_buffer(-1)
                count = min(len(room), len(piece))
                room[:count] = piece[:count]
                del room
                self.connection.buffer_updated(count)
                piece = piece[count:]

    def end_turn(self) -> bytes:
        """Everything sent in this turn."""
        before = len(self.transport.sent)
        self.loop.run()
        assert len(self.transport.sent) - before <= 1, "one send a turn"
        return b"".join(self.transport.sent[before:])


def frame(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def test_replies_of_a_turn_leave_with_one_send() -> None:
    client = Client()
    client.receive(frame(b"one") + frame(b"partly") + frame(b"three"))
    assert client.transport.sent == []

    assert client.end_turn() == b"onepartlythree"


def test_a_reply_waits_for_those_before_it() -> None:
    client = Client()
    client.receive(frame(b"wait1") + frame(b"now2") + frame(b"wait3") + frame(b"hush") + frame(b"now4"))
    assert client.end_turn() == b""

    client.echo.answer(b"wait3")
    assert client.end_turn() == b""
    client.echo.answer(b"wait1")
    assert client.end_turn() == b"wait1now2wait3now4"


@given(st.lists(st.binary(max_size=50), max_size=20), st.integers(1, 70), st.sampled_from([4, 100, 1 << 20]))
def test_frames_are_the_same_however_the_bytes_arrive(
    bodies: list[bytes], step: int, chunk_bytes: int
) -> None:
    client = Client(chunk_bytes)
    client.receive(b"".join(frame(body) for body in bodies), step=step)

    assert client.echo.frames == bodies


@pytest.mark.parametrize("size", [100_000, 3_000_000])
def test_a_frame_may_be_larger_than_the_chunk(size: int) -> None:
    client = Client(chunk_bytes=1 << 16)
    body = bytes(i % 251 for i in range(size))
    client.receive(frame(b"first") + frame(body) + frame(b"last"))
    while client.end_turn():
        pass

    assert client.echo.frames == [b"first", body, b"last"]


def test_a_length_alone_buys_no_memory() -> None:
    """Ten megabytes are announced, ten bytes are sent."""
    client = Client()
    client.receive((10_000_000).to_bytes(4, "big") + b"0123456789")

    assert len(client.connection.get_buffer(-1)) <= 64 * 1024


@pytest.mark.parametrize("length", [REQUEST_BYTES_MAX + 1, 2**31 - 1, -1, -(2**31)])
def test_an_impossible_length_ends_the_connection(length: int, caplog: pytest.LogCaptureFixture) -> None:
    client = Client()
    client.receive(length.to_bytes(4, "big", signed=True) + b"GET / HTTP/1.1")

    assert client.transport.is_closed
    assert f"10.0.0.1:4711 closed: A frame has length {length}, expected" in caplog.text


def test_a_client_that_does_not_read_its_replies_is_not_read_from() -> None:
    client = Client()
    client.connection.pause_writing()
    assert not client.transport.is_reading
    client.connection.resume_writing()
    assert client.transport.is_reading


def test_a_client_with_too_many_open_requests_waits_until_half_are_answered() -> None:
    client = Client()
    bodies = [b"wait%d" % number for number in range(OPEN_REQUESTS_MAX + 1)]
    client.receive(b"".join(frame(body) for body in bodies))
    assert not client.transport.is_reading

    for body in bodies[: OPEN_REQUESTS_MAX // 2]:
        client.echo.answer(body)
    assert not client.transport.is_reading
    client.echo.answer(bodies[OPEN_REQUESTS_MAX // 2])
    assert client.transport.is_reading


def test_reading_goes_on_only_when_every_reason_against_it_is_gone() -> None:
    client = Client()
    client.connection.stop_reading(Pause.NO_ROOM)
    client.connection.pause_writing()
    client.connection.resume_writing()
    assert not client.transport.is_reading
    client.connection.go_on_reading(Pause.NO_ROOM)
    assert client.transport.is_reading


def test_what_follows_a_request_that_holds_is_looked_at_when_that_is_answered() -> None:
    """A long poll may be answered with megabytes; a thousand of them at once may not."""
    client = Client()
    client.receive(frame(b"hold1") + frame(b"hold2") + frame(b"now3"))
    client.receive(frame(b"now4"))
    assert client.echo.frames == [b"hold1"]
    assert not client.transport.is_reading

    client.echo.answer(b"hold1")
    assert client.end_turn() == b"hold1"
    assert client.echo.frames == [b"hold1", b"hold2"]
    client.echo.answer(b"hold2")
    assert client.end_turn() == b"hold2"
    assert client.end_turn() == b"now3now4"
    assert client.transport.is_reading


def test_a_client_is_answered_in_portions_that_fit_in_memory() -> None:
    client = Client()
    big = b"x" * (OUT_BYTES_MAX + 1)
    client.receive(frame(big) + frame(big), step=1 << 20)
    client.receive(frame(b"small"))

    sent = []
    while portion := client.end_turn():
        sent.append(len(portion))
    assert sent == [len(big), len(big), 5]


def test_nothing_is_looked_at_while_the_client_does_not_read() -> None:
    client = Client()
    client.connection.pause_writing()
    client.receive(frame(b"later"))
    assert client.echo.frames == []
    client.connection.resume_writing()
    assert client.end_turn() == b"later"


def test_a_fault_of_ours_ends_the_connection_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    client = Client()

    def fail(session: Session, frame: memoryview) -> Reply:
        raise ZeroDivisionError

    client.echo.dispatch = fail  # type: ignore[method-assign]
    client.receive(frame(b"one") + frame(b"two"))

    assert client.transport.is_closed
    assert "ZeroDivisionError" in caplog.text


def test_a_reply_to_a_client_that_has_gone_is_dropped() -> None:
    client = Client()
    client.receive(frame(b"wait"))
    client.connection.connection_lost(None)

    client.echo.answer(b"wait")
    assert client.end_turn() == b""
    assert client.echo.closed_count == 1


def test_what_is_written_is_written_before_the_replies_leave() -> None:
    """One write a log and turn; the views of the shared chunk are good until then."""
    client = Client()
    events: list[str] = []
    client.receive(frame(b"produce"))
    client.tick.write_later(lambda: events.append(f"written, {len(client.transport.sent)} sent"))

    assert client.end_turn() == b"produce"
    assert events == ["written, 0 sent"]


def test_the_chunk_is_used_again_in_the_next_turn() -> None:
    client = Client()
    first = client.tick.room
    client.receive(frame(b"x" * 1000))
    assert len(client.tick.room) == len(first) - 1004
    client.end_turn()
    assert len(client.tick.room) == len(first)


def test_full_chunks_are_used_again_after_their_turn_and_not_before() -> None:
    tick = Client(chunk_bytes=100).tick
    turns: list[list[memoryview]] = []
    for turn in range(3):
        views: list[memoryview] = []
        for number in range(5):
            tick.room[:100] = bytes([turn * 10 + number]) * 100
            views.append(tick.keep(100))
        assert [bytes(view) for view in views] == [bytes([turn * 10 + number]) * 100 for number in range(5)]
        turns.append(views)
        tick._end()
    chunks = [{id(view.obj) for view in views} for views in turns]
    assert len(chunks[1] & chunks[2]) == SPARE_CHUNKS_MAX


class Counting(Echo):
    """Counts as the real dispatcher does."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__()
        self.metrics = metrics

    def dispatch(self, session: Session, frame: memoryview) -> Reply:
        reply = super().dispatch(session, frame)
        if isinstance(reply, Promise):
            reply.request_start = RequestStart(self.metrics.produce, self.metrics.tick_began_ns)
        else:
            self.metrics.answered(self.metrics.produce)
        return reply


def counting_client() -> tuple[Client, Histogram]:
    client = Client()
    metrics = client.tick.metrics
    client.echo = Counting(metrics)
    client.connection = Connection(client.tick, client.echo, REQUEST_BYTES_MAX)
    client.connection.connection_made(client.transport)  # type: ignore[arg-type]
    return client, metrics.produce.times


def test_requests_of_a_turn_take_from_the_first_arrival_to_the_end_of_the_turn() -> None:
    client, times = counting_client()
    client.loop.now_ns = 1_000
    client.receive(frame(b"one") + frame(b"two"))
    client.loop.now_ns = 51_000
    client.receive(frame(b"three"))
    client.loop.now_ns = 101_000
    client.end_turn()
    assert (times.count, times.sum_ns) == (3, 3 * 100_000)


def test_a_request_that_waits_takes_from_its_arrival_to_its_reply() -> None:
    client, times = counting_client()
    client.loop.now_ns = 1_000
    client.receive(frame(b"wait a"))
    client.end_turn()
    client.loop.now_ns = 8_000_000
    client.receive(frame(b"wait b"))
    client.end_turn()
    assert times.count == 0
    client.loop.now_ns = 9_000_000
    client.echo.answer(b"wait b")
    assert times.count == 0, "it waits for the reply before it"
    client.loop.now_ns = 10_001_000
    client.echo.answer(b"wait a")
    client.end_turn()
    assert (times.count, times.sum_ns) == (2, 10_000_000 + 2_001_000)


def test_a_request_that_comes_in_pieces_has_arrived_when_it_is_whole() -> None:
    client, times = counting_client()
    data = frame(b"wait" + bytes(1000))
    client.loop.now_ns = 1_000
    client.receive(data[:100])
    client.end_turn()
    client.loop.now_ns = 5_000_000
    client.receive(data[100:])
    client.loop.now_ns = 7_000_000
    client.echo.answer(data[4:])
    client.end_turn()
    assert (times.count, times.sum_ns) == (1, 2_000_000)


def test_a_request_behind_one_that_holds_it_back_is_counted_when_it_is_looked_at() -> None:
    client, times = counting_client()
    client.receive(frame(b"hold") + frame(b"next"))
    client.end_turn()
    client.loop.now_ns = 5_000_001
    client.echo.answer(b"hold")
    client.end_turn()
    client.end_turn()
    assert client.echo.frames == [b"hold", b"next"]
    assert times.count == 2
    assert 5_000_000 <= times.sum_ns < 6_000_000


def test_over_a_real_socket() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        tick, echo = LoopTick(LoopWorld(loop)), Echo()
        server = await loop.create_server(
            lambda: Connection(tick, echo, REQUEST_BYTES_MAX), "127.0.0.1", 0, family=socket.AF_INET
        )
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        bodies = [b"%d" % number * (number * 37 % 5000) for number in range(1, 300)]
        writer.write(b"".join(frame(body) for body in bodies))
        expected = b"".join(bodies)
        assert await asyncio.wait_for(reader.readexactly(len(expected)), 20) == expected
        writer.write((2**31 - 1).to_bytes(4, "big"))
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()
        server.close()
        await server.wait_closed()
        assert echo.closed_count == 1

    asyncio.run(main())
