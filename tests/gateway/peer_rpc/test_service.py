"""Two nodes, each alone in a world that stands still; letters are carried from one to the other by hand."""

from dataclasses import replace
from typing import Any

import pytest
from tests.nodes import StillNode

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.base.steps import RunningSteps, Steps
from penstock.gateway.peer_rpc import messages
from penstock.gateway.peer_rpc.client import PeerRpc
from penstock.gateway.peer_rpc.messages import Conflict, Consume, GetBounds, Join, Leave, RecordToWrite, Write
from penstock.gateway.shared.topics import ensure_topic
from penstock.handlers.envelope import envelope
from penstock.handlers.support.context import Call, Session
from penstock.wire import Api, read_request
from penstock.wire.messages import response_builder
from penstock.wire.peers import PeerFailed
from penstock.wire.request import Request

SESSION = Session("", 0, "10.0.0.7:4711", "HTTP")


class Carrier:
    """`BrokerClient`: brings a request to another node, and its response back; or loses it."""

    def __init__(self, there: StillNode) -> None:
        self._there = there
        self.purposes: list[str] = []
        self.failure: PeerFailed | None = None

    def send(
        self, broker_id: int, request: Request[Any], *, timeout_ms: float, purpose: str = ""
    ) -> Promise[Any]:
        self.purposes.append(purpose)
        answer: Promise[Any] = Promise()
        if self.failure is not None:
            answer.fail(self.failure)
            return answer
        message = read_request(Api.ENVELOPE, 0, memoryview(request.write(0)))
        session = Session("127.0.0.1", 9092, "10.0.0.1:1", "PLAINTEXT")
        call = Call(session, 0, message, response_builder(Api.ENVELOPE, 0), None)
        told = envelope(self._there.node.context, call)
        if isinstance(told, Promise):
            told.then(answer.resolve)
        else:
            answer.resolve(told)
        return answer


class Pair:
    def __init__(self) -> None:
        self.here, self.there = StillNode(), StillNode()
        self.carrier = Carrier(self.there)
        context = replace(self.here.node.context, broker_client=self.carrier)  # type: ignore[arg-type]
        self.peer_rpc = PeerRpc(context, self.here.node.gateway)

    def do(self, steps: Steps[Any]) -> Any:
        found: list[Any] = []
        RunningSteps(steps, found.append, found.append)
        self.there.world.advance(200)
        assert found, "it is not over"
        return found[0]

    def ask(self, asked: Any, **more: Any) -> Any:
        answer = self.peer_rpc.send(2, asked, session=SESSION, **more)
        for _ in range(100):
            if answer.is_settled:
                return answer.value if answer.error is None else answer.error
            self.there.world.advance(10)
        raise AssertionError("no answer came")

    def topic(self, name: str = "orders") -> Any:
        return self.do(ensure_topic(self.there.node.context, SESSION, name))


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_records_are_written_where_they_are_sent(pair: Pair) -> None:
    topic = pair.topic()
    lines = (
        RecordToWrite(0, b"k", b"one"),
        RecordToWrite(2, None, b"two", (("h", b"x"),), "key"),
        RecordToWrite(9, None, b"nowhere"),
        RecordToWrite(2, None, b"again", (), "key"),
    )
    told = pair.ask(Write("orders", topic.id, lines))
    assert [(each.partition, each.offset) for each in told[:2]] == [(0, 0), (2, 0)]
    assert told[2].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not told[2].may_be_written
    assert (told[3].partition, told[3].offset) == (2, 0)
    log = pair.there.node.context.replicas.find("orders", 2).log
    [record] = [record for batch in log.batches() for record in batch.records()]
    assert (record.value, record.headers[0]) == (b"two", ("h", b"x"))


def test_a_topic_that_the_other_does_not_know_is_said_to_be_unknown(pair: Pair) -> None:
    """By id: one that was made again under the same name is another one."""
    pair.topic()
    for asked in (
        Write("orders", b"x" * 16, (RecordToWrite(0, None, b"v"),)),
        messages.FindKeys(b"x" * 16, (b"d" * 16,)),
    ):
        refused = pair.ask(asked)
        assert isinstance(refused, KafkaError)
        assert refused.code is ErrorCode.UNKNOWN_TOPIC_ID


def test_ends_are_reported_partition_by_partition(pair: Pair) -> None:
    topic = pair.topic()
    pair.ask(Write("orders", topic.id, (RecordToWrite(0, None, b"v"), RecordToWrite(0, None, b"w"))))
    known, unknown = pair.ask(GetBounds(((topic.id, 0), (b"x" * 16, 0)), (0, 2**62)))
    assert known.bounds is not None
    assert (known.bounds.log_start, known.bounds.last_stable, known.bounds.log_end) == (0, 2, 2)
    assert known.bounds.found == (0, None)
    assert unknown.error.code is ErrorCode.UNKNOWN_TOPIC_ID


def test_members_sit_where_they_are_sent(pair: Pair) -> None:
    topic = pair.topic()
    pair.ask(Write("orders", topic.id, (RecordToWrite(0, None, b"v", (("n\xfc", b"\0"),)),)))
    assert pair.ask(Join("g", "alice", ("orders",), 60_000)) == {"orders": [0, 1, 2]}
    told = pair.ask(Consume("g", "alice", "orders", 0, 10, 0))
    assert [(each.value, each.headers) for each in told.records] == [
        (b"v", (("n\xfc".encode(), b"\0"),)),
    ]
    refused = pair.ask(Consume("g", "bob", "orders", 0, 10, 0))
    assert isinstance(refused, Conflict)
    assert refused.reason == "unknown_member"
    members = pair.there.node.gateway.members
    described = pair.do(members.leave(SESSION, Leave("g", "alice")))
    assert described is None


def test_what_cannot_be_read_is_no_question(pair: Pair) -> None:
    answer = pair.there.node.gateway.peer_rpc.answer(SESSION, b"\x93abc")
    assert answer.error is not None
    assert answer.error.code is ErrorCode.INVALID_REQUEST


def test_an_address_without_end_is_refused(pair: Pair) -> None:
    session = Session("", 0, "x" * 5000)
    answer = pair.peer_rpc.send(2, messages.Leave("g", "alice"), session=session)
    assert answer.error is not None
    assert answer.error.code is ErrorCode.INVALID_REQUEST


def test_who_does_not_answer_fails_the_question(pair: Pair) -> None:
    pair.carrier.failure = PeerFailed("gone", refused=True)
    assert pair.ask(messages.Leave("g", "alice")) is pair.carrier.failure


def test_what_waits_has_a_connection_to_itself(pair: Pair) -> None:
    pair.topic()
    held = pair.peer_rpc.send(2, Consume("g", None, "orders", 0, 10, 500), session=SESSION, wait_ms=500)
    pair.peer_rpc.send(2, Consume("g", None, "orders", 1, 10, 500), session=SESSION, wait_ms=500)
    assert not held.is_settled
    pair.ask(GetBounds(()), order_key=3)
    waiting, another, quick = pair.carrier.purposes
    assert len({waiting, another, quick}) == 3
    pair.there.world.advance(1000)
    assert held.is_settled
    pair.ask(Consume("g", None, "orders", 0, 10, 1), wait_ms=1)
    assert pair.carrier.purposes[-1] in (waiting, another)
