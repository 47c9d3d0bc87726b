"""A batch that was refused for a passing reason comes again: what is behind it gets the same error until then."""

import errno
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.handlers.test_produce import batch, result, send
from tests.nodes import StillClient, StillNode
from tests.wire_requests import fetch_all, produce_body

from penstock.base.errors import ErrorCode, KafkaError
from penstock.replica import Partition
from penstock.replica.refused_batches import HELD_BACK_MS_MAX, REFUSED_MAX
from penstock.vfs import FaultyDisk, MemoryDisk
from penstock.wire import Api

TAKEN = ErrorCode.NONE
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
UNKNOWN_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NOT_ENOUGH = ErrorCode.NOT_ENOUGH_REPLICAS
STORAGE = ErrorCode.KAFKA_STORAGE_ERROR
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


def sent(
    client: StillClient, sequence: int, *, epoch: int = 0, partition: int = 0, topic: str | bytes = "orders"
) -> ErrorCode:
    records = batch(b"%d" % sequence, producer=(5, epoch, sequence))
    send(client, (partition, records), topic=topic, version=13 if isinstance(topic, bytes) else 12)
    return ErrorCode(result(client.wait()).error_code.value)


def led(node: StillNode, number: int = 0) -> Partition:
    partition = node.node.context.replicas.led("orders", number)
    assert partition is not None
    return partition


def too_few(node: StillNode, client: StillClient, sequence: int, **kwargs: int) -> ErrorCode:
    """Send a batch while too few replicas are in sync."""
    partition = led(node, kwargs.get("partition", 0))
    partition.isr_size = 0
    try:
        return sent(client, sequence, **kwargs)  # type: ignore[arg-type]
    finally:
        partition.isr_size = 1


@pytest.mark.parametrize("before", [0, 3])
def test_what_is_behind_a_refused_batch_gets_its_error_until_that_is_there(before: int) -> None:
    """The log may know the producer or not; the others were under way when the first was refused."""
    node = StillNode()
    node.create_topic("orders")
    client = node.client()
    assert [sent(client, each) for each in range(before)] == [TAKEN] * before
    assert too_few(node, client, before) is NOT_ENOUGH
    assert [sent(client, before + each) for each in (1, 2, 3, 4)] == [NOT_ENOUGH] * 4
    assert [sent(client, before + each) for each in range(5)] == [TAKEN] * 5
    assert fetch_all(node, "orders", 0) == [b"%d" % each for each in range(before + 5)]
    assert not node.node.context.replicas.refused, "nothing is left to remember"


def test_the_same_where_the_topic_was_not_there_yet() -> None:
    node = StillNode()
    client = node.client()
    assert sent(client, 0) is UNKNOWN_TOPIC
    node.create_topic("orders")
    assert [sent(client, each) for each in (1, 2)] == [UNKNOWN_TOPIC] * 2
    assert [sent(client, each) for each in range(3)] == [TAKEN] * 3
    assert fetch_all(node, "orders", 0) == [b"0", b"1", b"2"]


def test_the_same_where_the_topic_goes_by_its_id() -> None:
    node = StillNode()
    node.create_topic("orders")
    topic_id = node.node.context.image.topics["orders"].id
    client = node.client()
    assert too_few(node, client, 0, topic=topic_id) is NOT_ENOUGH  # type: ignore[arg-type]
    assert sent(client, 1, topic=topic_id) is NOT_ENOUGH
    assert [sent(client, each, topic=topic_id) for each in range(2)] == [TAKEN] * 2


def test_an_id_that_was_unknown_may_be_a_partitions_later() -> None:
    node = StillNode()
    node.create_topic("orders")
    partition = led(node)
    replicas = node.node.context.replicas
    refused = KafkaError("no topic has this id", ErrorCode.UNKNOWN_TOPIC_ID)
    records = memoryview(batch(b"0", producer=(5, 0, 0)))
    replicas._held.clear()  # as on a broker that has not heard of the topic
    image, replicas._image = replicas._image, type(replicas._image)()
    replicas.note_refused(partition.topic_id, 0, records, refused)
    replicas._image = image
    assert sent(node.client(), 1) is ErrorCode.UNKNOWN_TOPIC_ID


def test_the_same_in_a_request_for_several_partitions() -> None:
    node = StillNode()
    client = node.client()
    codes = []
    for sequence in (0, 1, 0, 1):
        batches = [(each, batch(b"%d" % sequence, producer=(5, 0, sequence))) for each in (0, 1)]
        client.send(Api.PRODUCE, 12, produce_body(12, [("orders", batches)]))
        [topic] = client.wait().responses
        codes.append([ErrorCode(each.error_code.value) for each in topic.partition_responses])
        if len(codes) == 1:
            node.create_topic("orders", 2)
    assert codes == [[UNKNOWN_TOPIC] * 2, [UNKNOWN_TOPIC] * 2, [TAKEN] * 2, [TAKEN] * 2]


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("acks", [1, -1])
def test_a_write_that_fails_holds_back_what_comes_in_later_turns(before: int, acks: int) -> None:
    """What is written together fails together; what is behind may find room on the disk again."""
    disk = FaultyDisk(MemoryDisk())
    node = StillNode(disk)
    node.create_topic("orders")
    client = node.client()
    assert [sent(client, each) for each in range(before)] == [TAKEN] * before
    disk.fail("write", path="*.log", error=errno.ENOSPC, times=1)
    for each in (0, 1):  # in one turn
        send(client, (0, batch(b"x", producer=(5, 0, before + each))), acks=acks)
    assert [result(client.wait()).error_code.value for _ in (0, 1)] == [STORAGE] * 2
    assert [sent(client, before + each) for each in (2, 3)] == [STORAGE] * 2
    assert [sent(client, before + each) for each in range(4)] == [TAKEN] * 4


def test_a_segment_that_cannot_be_begun_holds_back_what_is_behind() -> None:
    disk = FaultyDisk(MemoryDisk())
    node = StillNode(disk)
    node.create_topic("orders", segment_bytes="1000")
    client = node.client()
    taken = 0
    disk.fail("open", path="*.log", error=errno.ENOSPC, times=1)
    while (code := sent(client, taken)) is TAKEN:
        taken += 1
        assert taken < 100
    assert code is STORAGE
    assert sent(client, taken + 1) is STORAGE
    assert [sent(client, taken + each) for each in (0, 1)] == [TAKEN] * 2


def test_a_batch_that_was_damaged_on_its_way_holds_back_what_is_behind() -> None:
    node = StillNode()
    node.create_topic("orders")
    client = node.client()
    damaged = bytearray(batch(b"0", producer=(5, 0, 0)))
    damaged[-1] ^= 1
    send(client, (0, bytes(damaged)))
    assert result(client.wait()).error_code.value == ErrorCode.CORRUPT_MESSAGE
    assert sent(client, 1) is ErrorCode.CORRUPT_MESSAGE
    assert [sent(client, each) for each in (0, 1)] == [TAKEN] * 2


def test_a_leader_that_steps_down_holds_back_what_is_behind_when_it_leads_again() -> None:
    """What waited for replicas may be cut off before this one leads again."""
    node = StillNode()
    node.create_topic("orders")
    client = node.client()
    assert sent(client, 0) is TAKEN
    partition = led(node)
    send(client, (0, batch(b"1", producer=(5, 0, 1))))
    placed = node.node.context.image.topics["orders"].partitions[0]
    partition.follow(2, placed.leader_epoch + 1, KafkaError("led elsewhere", NOT_LEADER))
    assert result(client.wait()).error_code.value == NOT_LEADER
    partition.lead(replace(placed, leader_epoch=placed.leader_epoch + 2), 1)
    assert sent(client, 2) is NOT_LEADER
    assert [sent(client, each) for each in (1, 2)] == [TAKEN] * 2


def test_another_connection_of_the_producer_is_held_back_too() -> None:
    """A client that reconnects sends what was refused first, and may be overtaken by what it sent before."""
    node = StillNode()
    node.create_topic("orders")
    assert too_few(node, node.client(), 0) is NOT_ENOUGH
    assert sent(node.client(), 1) is NOT_ENOUGH
    assert [sent(node.client(), each) for each in (0, 1)] == [TAKEN] * 2


def test_other_partitions_producers_and_epochs_go_on() -> None:
    node = StillNode()
    node.create_topic("orders", 2)
    client = node.client()
    assert too_few(node, client, 7) is NOT_ENOUGH
    assert sent(client, 8, partition=1) is TAKEN
    send(client, (0, batch(b"x", producer=(6, 0, 8))))
    assert result(client.wait()).error_code.value == TAKEN
    assert [sent(client, each) for each in (8, 6, 7, 8)] == [NOT_ENOUGH, *[TAKEN] * 3]
    assert too_few(node, client, 9) is NOT_ENOUGH
    assert [sent(client, each, epoch=1) for each in (0, 1)] == [TAKEN] * 2, "the batch was given up"
    assert sent(client, 10) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_topic_that_is_made_anew_is_not_held_back_by_what_its_former_self_refused() -> None:
    node = StillNode()
    node.create_topic("orders")
    client = node.client()
    assert too_few(node, client, 7) is NOT_ENOUGH
    node.client().call(Api.DELETE_TOPICS, 5, topic_names=("orders",), timeout=timedelta(seconds=5))
    node.create_topic("orders")
    assert sent(client, 8) is TAKEN


def test_a_name_that_was_unknown_is_forgotten_when_the_topic_is_deleted() -> None:
    """Another broker may have taken the batch, and those behind it, before the topic was made anew."""
    node = StillNode()
    client = node.client()
    assert sent(client, 7) is UNKNOWN_TOPIC
    node.create_topic("orders")
    assert sent(client, 8) is UNKNOWN_TOPIC
    node.client().call(Api.DELETE_TOPICS, 5, topic_names=("orders",), timeout=timedelta(seconds=5))
    node.create_topic("orders")
    assert sent(client, 8) is TAKEN


def test_a_gap_that_is_no_refusals_is_out_of_order() -> None:
    node = StillNode()
    node.create_topic("orders")
    client = node.client()
    assert [sent(client, each) for each in (0, 2)] == [TAKEN, OUT_OF_ORDER]
    assert too_few(node, client, 1) is NOT_ENOUGH
    assert [sent(client, each) for each in (2, 1, 3)] == [NOT_ENOUGH, TAKEN, OUT_OF_ORDER]


def test_a_refusal_behind_one_that_was_taken_since_begins_anew() -> None:
    node = StillNode()
    node.create_topic("orders")
    client = node.client()
    assert too_few(node, client, 0) is NOT_ENOUGH
    assert sent(client, 0) is TAKEN
    assert too_few(node, client, 1) is NOT_ENOUGH
    assert [sent(client, each) for each in (2, 1, 2)] == [NOT_ENOUGH, TAKEN, TAKEN]


def test_what_is_behind_is_held_back_for_so_long_and_asking_again_prolongs_nothing() -> None:
    """A client that never sends the refused batch again is told the truth in the end."""
    node = StillNode()
    node.create_topic("orders")
    client = node.client()
    assert sent(client, 0) is TAKEN
    assert too_few(node, client, 1) is NOT_ENOUGH
    node.world.advance(HELD_BACK_MS_MAX - 5000)
    assert sent(client, 2) is NOT_ENOUGH
    node.world.advance(5000)
    assert sent(client, 2) is OUT_OF_ORDER
    assert [sent(client, each) for each in (1, 2)] == [TAKEN] * 2


def test_a_batch_that_will_not_come_again_holds_nothing_up() -> None:
    """Clients give up on what is not sound."""
    node = StillNode()
    node.create_topic("orders", max_message_bytes="200")
    client = node.client()
    send(client, (0, batch(b"x" * 500, producer=(5, 0, 0))))
    assert result(client.wait()).error_code.value == ErrorCode.MESSAGE_TOO_LARGE
    assert sent(client, 1) is TAKEN


@pytest.mark.parametrize("records", [None, b"", b"x" * 30, b"x" * 200])
def test_what_is_no_batch_is_not_remembered(records: bytes | None) -> None:
    node = StillNode()
    client = node.client()
    send(client, (0, records))
    assert result(client.wait()).error_code.value == UNKNOWN_TOPIC
    node.create_topic("orders")
    assert sent(client, 1) is TAKEN


def test_after_the_largest_sequence_comes_0() -> None:
    node = StillNode()
    node.create_topic("orders")
    client = node.client()
    largest = 2**31 - 1
    assert sent(client, largest - 1) is TAKEN
    assert too_few(node, client, largest) is NOT_ENOUGH
    assert [sent(client, each) for each in (0, 1)] == [NOT_ENOUGH] * 2
    assert [sent(client, each) for each in (largest, 0, 1)] == [TAKEN] * 3


def test_a_node_remembers_so_many_and_forgets_the_oldest() -> None:
    node = StillNode()
    client = node.client()
    batches = [(each, batch(b"0", producer=(5, 0, 0))) for each in range(REFUSED_MAX + 1)]
    client.send(Api.PRODUCE, 12, produce_body(12, [("orders", batches)]))
    client.wait()
    assert len(node.node.context.replicas.refused) == REFUSED_MAX
    node.create_topic("orders", 2)
    assert sent(client, 1, partition=0) is TAKEN
    assert sent(client, 1, partition=1) is UNKNOWN_TOPIC
