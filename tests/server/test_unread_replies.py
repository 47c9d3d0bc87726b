"""A connection whose client does not take its replies: what it keeps, and how it goes on when it does."""

import pytest
from tests.server.test_connection import REQUEST_BYTES_MAX, Client, Echo, Loop, Transport, frame
from tests.worlds import StillWorld

from penstock.base.client_memory import ClientMemory
from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.handlers.support.context import Session
from penstock.handlers.support.replies import Reply
from penstock.server.connection import OUT_BYTES_MAX, PARTIAL_BYTES_FIRST, Connection
from penstock.server.loop_tick import LoopTick
from penstock.wire import Buffer, Piece, UnreadReply

MB = 1 << 20


class Unread:
    """A promise of zeros."""

    def __init__(self, size: int, breaks_at: int | None = None) -> None:
        self._size = self.left = size
        self._breaks_at = breaks_at
        self.steps: list[int] = []

    def __len__(self) -> int:
        return self._size

    def take(self, bytes_max: int) -> bytes:
        if self._breaks_at is not None and self._size - self.left >= self._breaks_at:
            raise KafkaError("the disk is gone", ErrorCode.KAFKA_STORAGE_ERROR)
        count = min(bytes_max, self.left)
        self.left -= count
        self.steps.append(count)
        return bytes(count)


class FullTransport(Transport):
    """Its kernel takes so many bytes; the rest waits until `drain`."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self.unsent = 0
        self.taken = 0
        self.protocol: Connection
        self.is_paused = self.is_aborted = False

    def write(self, data: Buffer) -> None:
        self.writelines([data])

    def writelines(self, buffers: list[Buffer]) -> None:
        self.unsent += sum(map(len, buffers))
        self._send()
        if self.unsent > 16 * 1024 and not self.is_paused:
            self.is_paused = True
            self.protocol.pause_writing()

    def drain(self, room: int) -> None:
        self.room += room
        self._send()
        if self.is_paused and self.unsent <= 4 * 1024:
            self.is_paused = False
            self.protocol.resume_writing()

    def _send(self) -> None:
        count = min(self.room, self.unsent)
        self.room -= count
        self.unsent -= count
        self.taken += count

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def abort(self) -> None:
        self.is_aborted = self.is_closed = True


class Promising(Echo):
    """Answers `promise` with what is prepared, and anything else as `Echo` does; `large` with much."""

    def __init__(self) -> None:
        super().__init__()
        self.promised: list[Unread] = []

    def dispatch(self, session: Session, frame: memoryview) -> Reply:
        if bytes(frame) == b"promise":
            self.frames.append(b"promise")
            return UnreadReply([b"head", self.promised[len(self.frames) - 1], b"tail"])
        if bytes(frame) == b"large":
            self.frames.append(b"large")
            return [bytes(50_000)]
        return super().dispatch(session, frame)


class SlowClient(Client):
    def __init__(self, room: int, memory: ClientMemory | None = None) -> None:
        self.world = StillWorld()
        self.loop = Loop()
        self.memory = ClientMemory(self.world) if memory is None else memory
        self.tick = LoopTick(self.loop, memory=self.memory)  # type: ignore[arg-type]
        self.echo: Promising = Promising()
        self.transport: FullTransport = FullTransport(room)
        self.connection = Connection(self.tick, self.echo, REQUEST_BYTES_MAX)
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]

    def run(self) -> None:
        while self.loop.soon:
            self.loop.run()


def test_records_are_read_in_steps_as_the_client_takes_them() -> None:
    client = SlowClient(room=2 * MB + 1000)
    records = Unread(50 * MB)
    client.echo.promised = [records]
    client.receive(frame(b"promise"))
    client.run()
    assert sum(records.steps) <= 3 * MB
    assert client.transport.unsent < MB
    assert client.memory.total == MB, "while some of a step is not sent, all of it is in memory"
    for _ in range(60):
        client.transport.drain(MB)
        client.run()
        assert client.transport.unsent <= MB + 16 * 1024
    assert client.transport.taken == 50 * MB + 8
    assert records.left == 0
    assert client.memory.total == 0


def test_steps_are_small_while_many_bytes_are_kept_for_others() -> None:
    client = SlowClient(room=0)
    client.memory.keeps(SlowClient(room=0).connection, 40 * MB)
    client.echo.promised = [Unread(50 * MB)]
    client.receive(frame(b"promise"))
    client.run()
    assert client.transport.unsent <= 64 * 1024 + 8
    assert client.memory.total <= 40 * MB + 64 * 1024 + 8


def test_one_turn_reads_a_bounded_number_of_bytes_for_all_clients() -> None:
    clients = [SlowClient(room=100 * MB) for _ in range(10)]
    shared = clients[0]
    for client in clients[1:]:
        client.connection._tick = shared.tick
    for client in clients:
        client.echo.promised = [Unread(2 * MB)]
        client.receive(frame(b"promise"))
    shared.loop.run()
    assert sum(client.transport.taken for client in clients) <= 4 * MB + MB
    shared.run()
    assert [client.transport.taken for client in clients] == [2 * MB + 8] * 10


def test_the_next_request_waits_for_records_that_are_not_read_yet() -> None:
    client = SlowClient(room=1000)
    client.echo.promised = [Unread(3 * MB), Unread(10)]
    client.receive(frame(b"promise") + frame(b"promise"))
    client.run()
    assert client.echo.frames == [b"promise"]
    assert not client.transport.is_reading
    while len(client.echo.frames) < 2 and client.transport.taken < 4 * MB:
        client.transport.drain(100_000)
        client.run()
    client.transport.drain(4 * MB)
    client.run()
    assert client.transport.taken == 3 * MB + 10 + 16
    assert client.transport.is_reading


def test_a_step_that_cannot_be_read_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    client = SlowClient(room=100 * MB)
    client.echo.promised = [Unread(3 * MB, breaks_at=2 * MB)]
    client.receive(frame(b"promise"))
    client.run()
    assert client.transport.is_aborted
    assert "connection from 10.0.0.1:4711 closed: the disk is gone" in caplog.text


def test_a_connection_that_closes_sends_what_it_promised_first() -> None:
    client = SlowClient(room=1000)
    client.echo.promised = [Unread(3 * MB)]
    client.receive(frame(b"promise"))
    client.run()
    client.connection.close()
    assert not client.transport.is_closed
    while client.transport.taken < 3 * MB + 8:
        client.transport.drain(MB)
        client.run()
    assert client.transport.is_closed


def test_replies_that_are_ready_and_wait_for_another_are_bounded() -> None:
    """Without it, each of a thousand requests behind one that waits could be answered with megabytes."""
    client = SlowClient(room=100 * MB)
    client.receive(frame(b"wait") + frame(b"large") * 100)
    client.run()
    assert client.echo.frames == [b"wait", *[b"large"] * 2]
    assert 100_000 <= client.memory.total < OUT_BYTES_MAX + 50_000 + 10_000
    client.echo.answer(b"wait")
    client.run()
    assert client.echo.frames.count(b"large") == 100
    assert client.transport.taken == 100 * 50_000 + 4
    assert client.memory.total == 0


def test_a_reply_that_waited_behind_another_is_not_counted_any_more() -> None:
    client = SlowClient(room=100 * MB)
    later: list[Promise[list[Piece]]] = []
    for _ in range(3):
        each: Promise[list[Piece]] = Promise()
        later.append(each)
        client.connection._answer(each)
    for number in (2, 1, 0):
        later[number].resolve([bytes(60_000)])
    assert client.connection._queued_bytes == 0
    client.run()
    assert client.transport.taken == 180_000
    assert client.memory.total == 0


def test_replies_for_a_client_that_does_not_read_wait_outside_of_the_transport() -> None:
    client = SlowClient(room=0)
    client.receive(frame(b"wait1") + frame(b"wait2"))
    client.connection._send([bytes(50_000)])
    client.run()
    assert client.transport.is_paused
    client.echo.answer(b"wait1")
    client.run()
    assert client.transport.unsent == 50_000
    client.transport.drain(50_000)
    client.run()
    assert client.transport.unsent == 5


def test_a_request_that_stops_half_way_costs_what_has_come_of_it() -> None:
    client = SlowClient(room=MB)
    announced = (9_000_000).to_bytes(4, "big")
    client.receive(announced + b"x")
    assert client.memory.total == 0
    assert len(client.connection._partial or b"") == PARTIAL_BYTES_FIRST
    client.receive(bytes(100_000))
    assert 100_000 < client.memory.total < 300_000
    client.connection.connection_lost(None)
    assert client.memory.total == 0


def test_a_large_request_waits_while_the_memory_is_full() -> None:
    memory = ClientMemory(StillWorld(), 2 * MB)
    favoured, waiting = SlowClient(MB, memory), SlowClient(MB, memory)
    whole = frame(bytes(1_500_000))
    favoured.receive(whole[:1_400_000])
    waiting.receive(whole[:900_000])
    assert memory.total > memory.bytes_max
    assert waiting.transport.is_reading
    room = len(waiting.connection.get_buffer(-1))
    if room + 900_000 < len(whole):
        waiting.receive(whole[900_000 : 900_000 + room])
        assert not waiting.transport.is_reading or favoured.transport.is_reading
    favoured.receive(whole[1_400_000:])
    assert waiting.transport.is_reading, "the other one is finished"


def test_a_client_that_takes_nothing_is_seen_not_to_move() -> None:
    client = SlowClient(room=0)
    client.connection._send([bytes(500_000)])
    client.run()
    client.connection.moved_bytes()
    assert client.connection.moved_bytes() == 0
    client.transport.room = 100_000
    client.transport._send()
    assert client.connection.moved_bytes() == 100_000
    assert client.connection.moved_bytes() == 0


def test_a_client_that_sends_one_request_after_the_other_moves() -> None:
    client = SlowClient(room=MB)
    whole = frame(bytes(200_000))
    client.receive(whole[:150_000])
    client.connection.moved_bytes()
    assert client.connection.moved_bytes() == 0
    client.receive(whole[150_000:] + whole[:20_000])
    assert client.connection.moved_bytes() > 100_000
