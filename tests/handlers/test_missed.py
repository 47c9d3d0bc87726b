"""A batch that was refused comes again: what is behind it must not take its place."""

import pytest
from tests.handlers.test_produce import batch, result, send
from tests.nodes import StillClient, StillNode
from tests.wire_requests import fetch_all, produce_body

from penstock.base.errors import ErrorCode
from penstock.handlers.missed import MISSED_MAX
from penstock.wire import Api

IN_ORDER = ErrorCode.NONE
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
UNKNOWN_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def sent(client: StillClient, sequence: int, *, epoch: int = 0, partition: int = 0) -> ErrorCode:
    send(client, (partition, batch(b"%d" % sequence, producer=(5, epoch, sequence))))
    return ErrorCode(result(client.wait()).error_code.value)


def test_what_comes_behind_a_refused_first_batch_is_out_of_order_until_that_is_there() -> None:
    """Nothing is known of the producer, and the second batch was under way when the first was refused."""
    node = StillNode()
    client = node.client()
    assert sent(client, 0) is UNKNOWN_TOPIC
    node.create_topic("orders")
    assert sent(client, 1) is OUT_OF_ORDER
    assert sent(client, 2) is OUT_OF_ORDER
    assert [sent(client, each) for each in range(3)] == [IN_ORDER] * 3
    assert fetch_all(node, "orders", 0) == [b"0", b"1", b"2"]


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
    assert codes == [[UNKNOWN_TOPIC] * 2, [OUT_OF_ORDER] * 2, [IN_ORDER] * 2, [IN_ORDER] * 2]


def test_too_few_replicas_refuse_the_first_batch_and_hold_back_the_second() -> None:
    node = StillNode()
    node.create_topic("orders")
    client = node.client()
    partition = node.node.context.replicas.led("orders", 0)
    assert partition is not None
    partition.in_sync = 0
    assert sent(client, 0) is ErrorCode.NOT_ENOUGH_REPLICAS
    partition.in_sync = 1
    assert sent(client, 1) is OUT_OF_ORDER
    assert [sent(client, each) for each in range(2)] == [IN_ORDER] * 2


def test_a_producer_may_still_begin_anywhere_where_nothing_of_it_was_refused() -> None:
    """All its records may be gone, or the topic be another of the same name."""
    node = StillNode()
    client = node.client()
    assert sent(client, 7) is UNKNOWN_TOPIC
    node.create_topic("orders")
    assert sent(node.client(), 9) is IN_ORDER


def test_a_batch_before_the_refused_one_or_of_another_epoch_is_taken() -> None:
    node = StillNode()
    client = node.client()
    assert [sent(client, 7, epoch=epoch) for epoch in (0, 1)] == [UNKNOWN_TOPIC] * 2
    node.create_topic("orders")
    assert [sent(client, each) for each in (8, 6, 7, 8)] == [OUT_OF_ORDER, *[IN_ORDER] * 3]
    assert [sent(client, each, epoch=2) for each in (0, 1)] == [IN_ORDER] * 2


def test_a_batch_that_will_not_come_again_holds_nothing_up() -> None:
    """Clients give up on what is not sound."""
    node = StillNode()
    node.create_topic("orders", max_message_bytes="200")
    client = node.client()
    send(client, (0, batch(b"x" * 500, producer=(5, 0, 0))))
    assert result(client.wait()).error_code.value == ErrorCode.MESSAGE_TOO_LARGE
    assert sent(client, 1) is IN_ORDER


@pytest.mark.parametrize("records", [None, b"", b"x" * 30, b"x" * 200])
def test_what_is_no_batch_is_not_remembered(records: bytes | None) -> None:
    node = StillNode()
    client = node.client()
    send(client, (0, records))
    assert result(client.wait()).error_code.value == UNKNOWN_TOPIC
    node.create_topic("orders")
    assert sent(client, 1) is IN_ORDER


def test_a_connection_remembers_so_many_and_forgets_the_oldest() -> None:
    node = StillNode()
    client = node.client()
    batches = [(each, batch(b"0", producer=(5, 0, 0))) for each in range(MISSED_MAX + 1)]
    client.send(Api.PRODUCE, 12, produce_body(12, [("orders", batches)]))
    client.wait()
    node.create_topic("orders", 2)
    assert sent(client, 1, partition=0) is IN_ORDER
    assert sent(client, 1, partition=1) is OUT_OF_ORDER
