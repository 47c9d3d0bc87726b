"""The fast path of Produce stages and replies exactly as the parser path does, and leaves everything else to it."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.nodes import StillClient, StillNode
from tests.wire_requests import produce_body

from penstock.handlers.support.produce_fast_path import ProduceFastPath
from penstock.records import build_batch, seal
from penstock.vfs import FaultyDisk, MemoryDisk
from penstock.wire import Api, request_frame

NOW_MS = 1_700_000_000_000
TOPIC = "t"
SETTINGS = {
    "log.message.timestamp.after.max.ms": str(2**62),
    "log.message.timestamp.before.max.ms": str(2**62),
}


def batch(value: bytes = bytes(100), count: int = 1, timestamp: int = NOW_MS) -> bytes:
    return bytes(build_batch([(None, value, timestamp)] * count))


def request(
    records: bytes, *, version: int = 10, partition: int = 0, acks: int = 1, number: int = 7
) -> bytes:
    body = produce_body(version, [(TOPIC, [(partition, records)])], acks, 30_000)
    return request_frame(Api.PRODUCE, version, number, "test", body)


class Pair:
    """Two nodes that get the same requests; in one of them each comes over a new connection."""

    def __init__(self, **configs: str) -> None:
        self.nodes = [StillNode(settings=SETTINGS), StillNode(settings=SETTINGS)]
        for node in self.nodes:
            node.create_topic(TOPIC, 2, **configs)
        self.knowing = self.nodes[0].client()

    def send(self, frame: bytes) -> tuple[bytes, bool]:
        """The reply of both and whether the connection was closed, which must be the same."""
        told = []
        for client in (self.knowing, self.nodes[1].client()):
            client.feed(frame)
            client.node.world.advance(1)
            told.append((bytes(client.transport.received), client.transport.is_closed))
            client.transport.received.clear()
        assert told[0] == told[1]
        assert self.logs(self.nodes[0]) == self.logs(self.nodes[1])
        return told[0]

    @staticmethod
    def logs(node: StillNode) -> list[bytes]:
        disk = node.disk
        assert isinstance(disk, MemoryDisk)
        return [
            bytes(disk.open(f"/data/logs/{TOPIC}-{number}/{0:020d}.log").pread(1 << 20, 0))
            for number in (0, 1)
        ]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each request that came to the fast path, whether it was staged as a small batch."""
    seen: list[bool] = []
    take: Callable[[ProduceFastPath, memoryview], object] = ProduceFastPath.take
    repeat: Callable[[ProduceFastPath, memoryview], object] = ProduceFastPath._repeat

    def note_take(path: ProduceFastPath, frame: memoryview) -> object:
        seen.append(True)
        return take(path, frame)

    def note_repeat(path: ProduceFastPath, frame: memoryview) -> object:
        seen[-1] = False
        return repeat(path, frame)

    monkeypatch.setattr(ProduceFastPath, "take", note_take)
    monkeypatch.setattr(ProduceFastPath, "_repeat", note_repeat)
    return seen


ACKS = pytest.mark.parametrize("acks", [1, -1])


@ACKS
def test_the_third_small_batch_to_a_partition_takes_the_fast_path(acks: int, taken: list[bool]) -> None:
    pair = Pair()
    for number in range(4):
        reply, _ = pair.send(request(batch(), number=number, acks=acks))
        assert reply
    assert taken == [False, True, True], "the first request sets the prefix, the second the partition"


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(request(batch(b"")), id="a batch with a length of one byte"),
        pytest.param(request(batch(bytes(20_000))), id="a batch with a length of three bytes"),
        pytest.param(request(batch(), partition=1), id="another partition"),
        pytest.param(request(batch(), partition=9), id="a partition that is not there"),
        pytest.param(request(batch(), acks=-1), id="acks=all"),
        pytest.param(request(batch(), acks=0), id="acks=0"),
        pytest.param(request(batch(), version=9), id="another version"),
        pytest.param(request(batch(), version=8), id="a version that is not flexible"),
        pytest.param(request(batch() + batch()), id="two batches"),
        pytest.param(request(batch()[:-1]), id="a batch cut short"),
        pytest.param(request(batch()[:-1] + b"x"), id="a wrong CRC"),
        pytest.param(
            request(
                bytes(
                    build_batch(
                        [(None, bytes(100), NOW_MS)],
                        producer_id=5,
                        producer_epoch=0,
                        base_sequence=0,
                    )
                )
            ),
            id="an idempotent producer",
        ),
    ],
)
def test_what_is_out_of_the_ordinary_goes_the_ordinary_way(frame: bytes, taken: list[bool]) -> None:
    pair = Pair()
    for _ in range(3):
        pair.send(request(batch()))
    taken.clear()
    pair.send(frame)
    assert taken == [False]


@pytest.mark.parametrize(
    "configs",
    [
        {"cleanup_policy": "compact"},
        {"compression_type": "zstd"},
        {"message_timestamp_type": "LogAppendTime"},
        {"max_message_bytes": "120"},
        {"flush_messages": "1"},
    ],
    ids=lambda configs: next(iter(configs)),
)
@ACKS
def test_topics_that_want_more_of_a_batch_get_it(
    acks: int, configs: dict[str, str], taken: list[bool]
) -> None:
    pair = Pair(**configs)
    for _ in range(4):
        pair.send(request(batch(), acks=acks))
    assert True not in taken


@ACKS
def test_a_new_segment_begins_where_it_would_have_begun(acks: int) -> None:
    pair = Pair(segment_bytes="1000")
    for number in range(40):
        pair.send(request(batch(bytes(100 + number)), acks=acks))


def test_too_few_replicas_in_sync_are_reported(taken: list[bool]) -> None:
    pair = Pair()
    for _ in range(3):
        pair.send(request(batch(), acks=-1))
    for node in pair.nodes:
        node.node.context.replicas.find(TOPIC, 0).isr_size = 0
    taken.clear()
    reply, _ = pair.send(request(batch(), acks=-1))
    assert (taken, reply.count(b"replicas in sync")) == ([False], 1)


CHANGES = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=3)


@given(CHANGES, st.booleans(), st.sampled_from([100, 101, 300]), st.sampled_from([1, -1]))
def test_any_change_to_a_request_is_taken_as_the_ordinary_way_takes_it(
    changes: list[tuple[int, int]], sealed: bool, size: int, acks: int
) -> None:
    """The length in front is left alone: how much a connection waits for is another matter."""
    pair = Pair()
    for _ in range(3):
        pair.send(request(batch(), acks=acks))
    records = bytearray(batch(bytes(size)))
    frame = bytearray(request(bytes(records), acks=acks))
    batch_at = bytes(frame).index(records)
    for at, value in changes:
        frame[4 + at % (len(frame) - 4)] = value
    if sealed:  # a lie that has the right CRC
        seal(memoryview(frame)[batch_at : batch_at + len(records)])
    pair.send(bytes(frame))
    if not pair.knowing.transport.is_closed:
        pair.send(request(batch()))


@ACKS
def test_a_failed_write_is_told_to_everyone_of_the_turn(acks: int) -> None:
    disk = FaultyDisk(MemoryDisk())
    node = StillNode(disk)
    node.create_topic(TOPIC, 1)
    clients = [node.client() for _ in range(3)]

    def produce_all() -> list[int]:
        for client in clients:
            client.send(Api.PRODUCE, 10, produce_body(10, [(TOPIC, [(0, batch())])], acks, 30_000))
        node.world.advance(1)
        return [code_of(client) for client in clients]

    for _ in range(3):
        assert produce_all() == [0, 0, 0]
    disk.fail("write", path=f"*/{TOPIC}-0/*.log", times=1)
    assert produce_all() == [56, 56, 56], "KAFKA_STORAGE_ERROR"
    assert produce_all() == [0, 0, 0]


def test_a_failed_sync_is_told_to_all_that_waited_for_it() -> None:
    disk = FaultyDisk(MemoryDisk())
    node = StillNode(disk)
    node.create_topic(TOPIC, 1)
    client = node.client()

    def produce() -> int:
        client.send(Api.PRODUCE, 10, produce_body(10, [(TOPIC, [(0, batch())])], -1, 30_000))
        node.world.advance(1)
        return code_of(client)

    assert [produce() for _ in range(3)] == [0, 0, 0]
    disk.fail("sync", path=f"*/{TOPIC}-0/*.log", times=1)
    assert produce() == 56


def code_of(client: StillClient) -> int:
    reply = client.reply()
    return int(reply.responses[0].partition_responses[0].error_code.value)
