"""Which records of a call are tried again, and which had better not be."""

from typing import Any

import pytest
from tests.worlds import StillWorld

from penstock.base.errors import ErrorCode, KafkaError
from penstock.gateway.peer_rpc.retry import RETRIABLE, RETRY_MS, RETRY_MS_MAX
from penstock.gateway.shared.new_records import NewRecord, RecordPosition
from penstock.gateway.shared.produce_calls import ProduceCall
from penstock.handlers.support.context import Session
from penstock.wire.peers import PeerFailed

PLAIN = NewRecord("orders", None, b"v")
KEYED = NewRecord("orders", None, b"v", idempotency_key="k")


class Desk:
    def __init__(self, *records: NewRecord, retry_ms_max: int = RETRY_MS_MAX) -> None:
        self.world = StillWorld()
        self.tried: list[list[int]] = []
        self.call = ProduceCall(
            self.world,
            Session("", 0, "peer:1"),
            records,
            lambda _, places: self.tried.append(places),
            until_ms=self.world.now_ms() + retry_ms_max if retry_ms_max else 0,
        )

    def outcomes(self) -> list[Any]:
        assert self.call.is_settled
        return [
            RecordPosition(each.partition, each.offset) if each.error is None else each.error.code
            for each in self.call.value
        ]


@pytest.mark.parametrize("code", sorted(RETRIABLE))
@pytest.mark.parametrize("record", [PLAIN, KEYED])
def test_a_record_whose_leader_moves_is_tried_again(record: NewRecord, code: ErrorCode) -> None:
    desk = Desk(record, record)
    desk.call.failed(1, KafkaError("moved", code))
    desk.call.failed(0, KafkaError("moved", code))
    desk.world.advance(RETRY_MS)
    assert desk.tried == [[0, 1]]  # together, and in their order
    desk.call.written(0, RecordPosition(0, 5))
    desk.call.written(1, RecordPosition(0, 6))
    assert desk.outcomes() == [RecordPosition(0, 5), RecordPosition(0, 6)]


def test_a_record_that_may_be_written_is_tried_again_only_with_its_key() -> None:
    """Without one nobody could tell whether it is there."""
    desk = Desk(PLAIN, KEYED)
    for place in (0, 1):
        desk.call.failed(place, PeerFailed("lost"), may_be_written=True)
    desk.world.advance(RETRY_MS)
    assert desk.tried == [[1]]
    desk.call.written(1, RecordPosition(0, 5))
    assert desk.outcomes() == [ErrorCode.REQUEST_TIMED_OUT, RecordPosition(0, 5)]


@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE])
def test_what_would_be_refused_again_is_reported(code: ErrorCode) -> None:
    desk = Desk(KEYED)
    desk.call.failed(0, KafkaError("refused", code))
    assert desk.outcomes() == [code]


def test_nothing_is_tried_for_ever() -> None:
    desk = Desk(KEYED)
    while not desk.call.is_settled:
        desk.call.failed(0, KafkaError("moved", ErrorCode.NOT_LEADER_OR_FOLLOWER))
        desk.world.advance(RETRY_MS)
        assert len(desk.tried) <= RETRY_MS_MAX // RETRY_MS
    assert desk.outcomes() == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_node_that_was_sent_a_record_tries_once() -> None:
    """Who sent it tries again."""
    desk = Desk(KEYED, retry_ms_max=0)
    desk.call.failed(0, KafkaError("moved", ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert desk.outcomes() == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
