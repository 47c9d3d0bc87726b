"""A batch that takes seconds to look at, sent to a node that really runs: others are served meanwhile."""

from collections.abc import Iterator

import pytest
from tests.handlers.test_costly_batches import bomb
from tests.server.raw import RawClient
from tests.wire_requests import produce_body

from penstock.base.errors import ErrorCode
from penstock.testing import Broker
from penstock.wire import Api, read_response
from penstock.wire.frames import parse_response_header, request_frame

RECORDS = 300_000


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(settings={"log.record.validation": "full"}) as broker:
        broker.create_topic("orders", partitions=1)
        yield broker


def test_others_are_served_while_a_batch_of_many_records_is_validated(broker: Broker) -> None:
    with RawClient(broker.port) as slow, RawClient(broker.port) as other:
        records = b"".join(_record(each) for each in range(RECORDS))
        slow.send(
            request_frame(
                Api.PRODUCE, 9, 1, "slow", produce_body(9, [("orders", [(0, bomb(RECORDS, records))])])
            )
        )
        other.send(
            request_frame(
                Api.PRODUCE, 9, 1, "other", produce_body(9, [("orders", [(0, bomb(1, _record(0)))])])
            )
        )
        assert _result(other) == (ErrorCode.NONE, 0), "it did not wait for the one before it"
        assert _result(slow) == (ErrorCode.NONE, 1)


def _record(offset: int) -> bytes:
    """As small as a record with a key can be."""
    delta = offset << 1
    encoded = bytearray()
    while delta >= 0x80:
        encoded.append(delta & 0x7F | 0x80)
        delta >>= 7
    encoded.append(delta)
    body = bytes((0, 0, *encoded, 2, 65, 1, 0))
    return bytes((len(body) << 1,)) + body


def _result(client: RawClient) -> tuple[ErrorCode, int]:
    frame = client.receive_frame()
    assert frame is not None
    _, at = parse_response_header(memoryview(frame), Api.PRODUCE, 9)
    [topic] = read_response(Api.PRODUCE, 9, memoryview(frame)[at:]).responses
    [result] = topic.partition_responses
    return ErrorCode(result.error_code.value), result.base_offset
