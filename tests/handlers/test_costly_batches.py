"""Batches that take long to look at: they are inspected beside the event loop, and nobody else waits for it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.handlers.producers import Txn
from tests.nodes import StillClient, StillNode
from tests.wire_requests import produce_body
from tests.worlds import START_MS

from penstock.base.errors import ErrorCode, KafkaError
from penstock.records import HEADER, Codec, build_batch, compress, iter_batches, seal
from penstock.records.validate import RECORDS_ON_LOOP_MAX
from penstock.replica import inspections
from penstock.storage.inspection import Inspection
from penstock.wire import Api

VERSION = 9
MANY = RECORDS_ON_LOOP_MAX + 1
COMPACTED = {"log.cleanup.policy": "compact", "durability.fsync": "never"}


def make(count: int, *, producer: tuple[int, int, int] | None = None, codec: Codec = Codec.ZSTD) -> bytes:
    """So many records with keys."""
    options: dict[str, Any] = {}
    if producer is not None:
        options = dict(zip(("producer_id", "producer_epoch", "base_sequence"), producer, strict=True))
    records = [(b"%d" % each, b"v", START_MS) for each in range(count)]
    return bytes(build_batch(records, codec=codec, **options))


def bomb(count: int, unpacked: bytes, codec: Codec = Codec.ZSTD) -> bytes:
    """A header that counts so many records, before data that unpacks to something else."""
    data = bytearray(61) + compress(codec, unpacked)
    HEADER.pack_into(data, 0, 0, 0, -1, 2, 0, codec, count - 1, START_MS, START_MS, -1, -1, -1, count)
    seal(data)
    return bytes(data)


def send(client: StillClient, *batches: bytes, topic: str = "orders", acks: int = -1) -> None:
    body = produce_body(VERSION, [(topic, list(enumerate(batches)))], acks=acks)
    client.send(Api.PRODUCE, VERSION, body)


def answered(client: StillClient) -> list[tuple[ErrorCode, int]]:
    (topic,) = client.wait().responses
    return [(ErrorCode(each.error_code.value), each.base_offset) for each in topic.partition_responses]


@pytest.fixture
def node() -> StillNode:
    node = StillNode(settings=COMPACTED)
    node.create_topic("orders", 3)
    return node


def test_a_large_batch_is_inspected_and_its_client_waits_for_it_and_nobody_else(node: StillNode) -> None:
    slow, other = node.client(), node.client()
    send(slow, make(MANY))
    send(slow, make(1))
    send(other, make(2))
    node.world.advance(0)
    assert node.node.context.replicas.inspections.waiting == 1
    assert other.reply() is not None
    assert slow.reply() is None
    assert answered(slow) == [(ErrorCode.NONE, 2)]
    assert answered(slow) == [(ErrorCode.NONE, 2 + MANY)]


def test_sequences_behind_a_batch_that_is_inspected_stay_in_order(node: StillNode) -> None:
    client = node.client()
    producer = client.call(
        Api.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout=timedelta(minutes=1)
    )
    identity = producer.producer_id, producer.producer_epoch
    send(client, make(MANY, producer=(*identity, 0)))
    send(client, make(3, producer=(*identity, MANY)))
    send(client, make(MANY, producer=(*identity, MANY + 3)))
    assert [answered(client) for _ in range(3)] == [
        [(ErrorCode.NONE, 0)],
        [(ErrorCode.NONE, MANY)],
        [(ErrorCode.NONE, MANY + 3)],
    ]


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_every_acks_is_served_also_for_several_partitions(node: StillNode, acks: int) -> None:
    client = node.client()
    send(client, make(MANY), make(1), make(MANY), acks=acks)
    if acks:
        assert answered(client) == [(ErrorCode.NONE, 0)] * 3
    else:
        client.is_not_answered()
    send(client, make(1), make(1), make(1), acks=1)
    assert answered(client) == [(ErrorCode.NONE, MANY), (ErrorCode.NONE, 1), (ErrorCode.NONE, MANY)]
    assert client.transport.is_reading


def test_a_faulty_batch_is_refused_and_looking_stops_soon(node: StillNode) -> None:
    client = node.client()
    record = bytes([12, 0, 0, 0, 0, 1, 0])  # every one says that it is the first
    send(client, bomb(100_000, 100_000 * record))
    assert answered(client) == [(ErrorCode.INVALID_RECORD, -1)]
    send(client, make(1))
    assert answered(client) == [(ErrorCode.NONE, 0)]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4])
def test_what_unpacks_beyond_the_limit_is_refused_where_records_are_not_looked_at(codec: Codec) -> None:
    """A reader would find out, and every reader after it."""
    node = StillNode(settings={"durability.fsync": "never"})
    node.create_topic("orders", 1)
    client = node.client()
    send(client, bomb(1, bytes(129 << 20), codec))
    assert answered(client) == [(ErrorCode.MESSAGE_TOO_LARGE, -1)]


def test_a_count_that_the_bytes_cannot_hold_is_refused_at_once() -> None:
    node = StillNode(settings={"durability.fsync": "never"})
    node.create_topic("orders", 1)
    client = node.client()
    send(client, bomb(100, bytes(700), Codec.NONE))
    assert answered(client)[0][0] is ErrorCode.NONE
    send(client, bomb(101, bytes(700), Codec.NONE))
    assert answered(client)[0][0] is ErrorCode.INVALID_RECORD
    send(client, bomb(2**31 - 1, bytes(700), Codec.ZSTD))
    assert answered(client)[0][0] is ErrorCode.MESSAGE_TOO_LARGE


def test_small_batches_of_a_known_producer_are_refused_for_the_same(node: StillNode) -> None:
    """They have a way of their own (`handlers.support.produce_fast_path`)."""
    node.create_topic("plain", 1, cleanup_policy="delete")
    client = node.client()
    sound = make(10, codec=Codec.NONE)
    for _ in range(3):
        send(client, sound, topic="plain", acks=1)
        assert answered(client)[0][0] is ErrorCode.NONE
    send(client, bomb(100, bytes(699), Codec.NONE), topic="plain", acks=1)
    assert answered(client)[0][0] is ErrorCode.INVALID_RECORD
    send(client, bomb(1, bytes(200 << 20), Codec.ZSTD), topic="plain", acks=1)
    assert answered(client)[0][0] is ErrorCode.MESSAGE_TOO_LARGE


def test_a_partition_that_goes_while_its_batch_is_inspected_says_so(node: StillNode) -> None:
    client = node.client()
    send(client, make(MANY))
    node.world.advance(0)
    node.node.context.replicas.find("orders", 0).step_down(KafkaError("it is gone"))
    assert answered(client) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]


def test_a_batch_is_inspected_again_when_the_settings_change_meanwhile(
    node: StillNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = node.client()
    inspected: list[str] = []
    call = Inspection.__call__

    def counted(inspection: Inspection) -> Any:
        inspected.append(inspection.settings.compression_type)
        return call(inspection)

    monkeypatch.setattr(Inspection, "__call__", counted)
    send(client, make(MANY))
    node.world.advance(0)
    for partition in node.node.context.replicas.partitions.values():
        partition.log.configure(replace(partition.log.settings, compression_type="gzip"))
    assert answered(client) == [(ErrorCode.NONE, 0)]
    assert inspected == ["producer", "gzip"]
    data = node.node.context.replicas.find("orders", 0).log.read(0, 1 << 20)
    assert [each.codec for each in iter_batches(data)] == [Codec.GZIP]


def test_batches_wait_within_a_limit_and_are_refused_for_now_beyond(
    node: StillNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = make(MANY)
    monkeypatch.setattr(inspections, "INSPECTED_BYTES_MAX", 2 * len(batch))
    clients = [node.client() for _ in range(3)]
    for client in clients:
        send(client, batch)
    assert answered(clients[2]) == [(ErrorCode.REQUEST_TIMED_OUT, -1)]
    assert answered(clients[0]) == [(ErrorCode.NONE, 0)]
    assert answered(clients[1]) == [(ErrorCode.NONE, MANY)]


def test_many_small_batches_of_one_turn_are_inspected_once_the_time_for_them_is_up(
    node: StillNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspections, "LOOK_NS_MAX", 0)
    client = node.client()
    send(client, make(1))
    node.world.advance(0)
    assert node.node.context.replicas.inspections.waiting == 1
    assert answered(client) == [(ErrorCode.NONE, 0)]


@pytest.mark.parametrize("speaks", [1, 2])
def test_a_transaction_that_ends_while_its_batch_is_inspected_does_not_hang(
    node: StillNode, speaks: int
) -> None:
    """What was allowed before the inspection is asked for again after it: a marker may have come meanwhile."""
    txn = Txn(node, "mover", speaks=speaks)
    assert txn.init() is ErrorCode.NONE
    if speaks < 2:
        assert txn.add(("orders", 0)) is ErrorCode.NONE
    records = [(b"%d" % each, b"v", START_MS) for each in range(MANY)]
    batch = build_batch(
        records, producer_id=txn.producer_id, producer_epoch=txn.epoch, base_sequence=0, transactional=True
    )
    body = produce_body(12, [("orders", [(0, bytes(batch))])], transactional_id="mover")
    node.world.beside_ms = 500
    txn.client.send(Api.PRODUCE, 12 if speaks >= 2 else 11, body)
    node.world.run_until(lambda: node.node.context.replicas.inspections.waiting > 0)
    ending = Txn(node, "mover", speaks=speaks)
    ending.producer_id, ending.epoch = txn.producer_id, txn.epoch
    assert ending.end(commit=False) is ErrorCode.NONE
    assert txn.sent() is not ErrorCode.NONE
    log = node.node.context.replicas.find("orders", 0).log
    assert log.last_stable == log.log_end


def test_what_a_helper_process_cannot_do_is_tried_again_by_the_client(
    node: StillNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(_: Inspection) -> Any:
        raise RuntimeError("the child process exited with status -9 before it answered")

    monkeypatch.setattr(Inspection, "__call__", die)
    client = node.client()
    send(client, make(MANY))
    assert answered(client) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]
