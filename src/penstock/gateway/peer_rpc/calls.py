"""Calls to the gateways of other brokers.

Answers on one connection come in the order of the requests. So calls to a broker share a few connections, and a call
that may wait long has a connection of its own meanwhile, which is reused afterwards (`ConnectionPool`).
"""

from typing import Any, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.gateway.peer_rpc import messages as letters
from penstock.gateway.peer_rpc.answering import Answering
from penstock.gateway.peer_rpc.watching import Watching
from penstock.handlers.support.context import ANONYMOUS, Context, Session
from penstock.wire import Api
from penstock.wire.peers import PeerFailed
from penstock.wire.request import through_kio

SHARED: Final = 4
"""Connections for what is quick: one partition that is slow to replicate holds up a quarter of the others."""


class Lanes:
    def __init__(self) -> None:
        self._free: list[int] = []
        self._count = 0

    @staticmethod
    def shared(about: int) -> str:
        """The purpose of a request that is quick; the same for what is about the same thing, and so in order."""
        return f"doors-{about % SHARED}"

    def to_wait(self) -> str:
        """The purpose of one that waits; `free` it."""
        if not self._free:
            self._count += 1
            self._free.append(self._count)
        return f"doors-waiting-{self._free.pop()}"

    def free(self, lane: str) -> None:
        self._free.append(int(lane.rpartition("-")[2]))


ANSWER_MS_MAX: Final = 35_000
"""How long an answer may take that is worked on: a write takes up to 30 seconds, and is answered even then."""


class Elsewhere:
    """A `DoorsPort`. One for all doors of a node."""

    def __init__(self, context: Context, gateway: Any) -> None:
        self._context = context
        self._answering = Answering(context, gateway)
        self.lanes = Lanes()
        self.watching = Watching(context)

    def start(self) -> None:
        """Nothing is asked before somebody needs it."""

    def stop(self) -> None:
        self.watching.stop()

    def answer(self, session: Session, asked: bytes) -> Promise[bytes | KafkaError]:
        return self._answering.answer(session, asked)

    # -- one letter ------------------------------------------------------------------------------------

    def send(
        self,
        broker_id: int,
        asked: Any,
        *,
        session: Session | None = None,
        about: int = 0,
        wait_ms: int = 0,
        timeout_ms: int = ANSWER_MS_MAX,
    ) -> Promise[Any]:
        """Answered with the answer, or with a KafkaError or a Conflict; a `PeerFailed` where none came.

        What is `about` the same number is answered in its order. With `wait_ms` the other may wait so long for
        something to happen.
        """
        lane = self.lanes.to_wait() if wait_ms else None
        request = through_kio(
            Api.ENVELOPE,
            lambda make: make.EnvelopeRequest(
                request_data=letters.write(asked),
                request_principal=(session.principal if session else ANONYMOUS).encode(),
                client_host_address=(session.peer if session else "").encode(),
            ),
        )
        answer: Promise[Any] = Promise()

        def answered(response: Any) -> None:
            if lane is not None:
                self.lanes.free(lane)
            if isinstance(response, PeerFailed):
                answer.resolve(response)
            elif response.error_code:
                code = ErrorCode(int(response.error_code))
                answer.resolve(KafkaError(f"broker {broker_id} does not answer: {code.name}", code))
            else:
                answer.resolve(letters.read_reply(asked, response.response_data or b""))

        self._context.broker_client.send(
            broker_id,
            request,
            timeout_ms=timeout_ms + wait_ms,
            purpose=self.lanes.shared(about) if lane is None else lane,
        ).then(answered)
        return answer


def elsewhere_of(context: Context) -> Elsewhere:
    """The node's own."""
    assert context.doors is not None, "a node that has a gateway answers others"
    doors = context.doors()
    assert isinstance(doors, Elsewhere)
    return doors
