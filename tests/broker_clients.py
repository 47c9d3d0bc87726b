"""Other brokers that answer when a test says so: a `BrokerClient` whose questions are written and read as on the wire.

others = FakeBrokerClient()
writer = MarkerWriter(..., broker_client=others)
[question] = others.waiting
question.message                                        the request, as the other broker reads it
question.answer(lambda make: make.Response(...))         its reply, through both sides' codecs
question.fail()                                         nobody answers
"""

from collections.abc import Callable
from typing import Any, TypeVar

from penstock.base.promise import Promise
from penstock.wire import read_request, write_response
from penstock.wire.messages import response_builder
from penstock.wire.peers import PeerFailed
from penstock.wire.request import Request

T = TypeVar("T")


class SentRequest:
    def __init__(self, broker_id: int, request: Request[Any], purpose: str) -> None:
        self.broker_id = broker_id
        self.api = request.api
        self.version = request.version_max
        self.purpose = purpose
        self.message: Any = read_request(
            request.api, self.version, memoryview(bytearray(request.write(self.version)))
        )
        self.later: Promise[Any] = Promise()
        self._request = request

    def answer(self, build: Callable[[Any], Any]) -> None:
        """`build` is given the classes of the response."""
        response = build(response_builder(self.api, self.version))
        body = write_response(self.api, self.version, response)
        self.later.resolve(self._request.read(memoryview(bytearray(body)), self.version))

    def fail(self) -> None:
        self.later.fail(PeerFailed(f"broker {self.broker_id} is gone"))


class FakeBrokerClient:
    def __init__(self) -> None:
        self.asked: list[SentRequest] = []

    @property
    def waiting(self) -> list[SentRequest]:
        return [each for each in self.asked if not each.later.is_settled]

    def send(
        self, broker_id: int, request: Request[T], *, timeout_ms: float, purpose: str = ""
    ) -> Promise[T]:
        assert timeout_ms > 0
        self.asked.append(SentRequest(broker_id, request, purpose))
        return self.asked[-1].later
