"""Calls to the gateways of other brokers.

Answers on one connection come in the order of the requests. So calls to a broker share a few connections, and a call
that may wait long has a connection of its own meanwhile, which is reused afterwards (`ConnectionNames`).
"""

from typing import Any, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.gateway.peer_rpc import messages
from penstock.gateway.peer_rpc.remote_watch import RemoteWatcher
from penstock.gateway.peer_rpc.service import PeerService
from penstock.handlers.support.context import ANONYMOUS, Context, PeerGateway, Session
from penstock.wire import Api
from penstock.wire.request import through_kio

SHARED: Final = 4
"""Shared connections to each broker: a partition that is slow to replicate delays a quarter of the others."""


class ConnectionNames:
    """Names of connections (`purpose` of the broker client)."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._count = 0

    @staticmethod
    def shared(order_key: int) -> str:
        """The connection of a quick request. Requests with the same `order_key` share one, and stay in order."""
        return f"doors-{order_key % SHARED}"

    def to_wait(self) -> str:
        """A connection for a request that waits; `free` it."""
        if not self._free:
            self._count += 1
            self._free.append(self._count)
        return f"doors-waiting-{self._free.pop()}"

    def free(self, connection: str) -> None:
        self._free.append(int(connection.rpartition("-")[2]))


ANSWER_MS_MAX: Final = 35_000
"""Timeout of a call: a write takes up to 30 seconds, and is answered even then."""


class PeerRpc:
    """The `PeerGateway` of a node: sends calls, and answers those of other brokers."""

    def __init__(self, context: Context, gateway: Any) -> None:
        self._context = context
        self._service = PeerService(context, gateway)
        self.connections = ConnectionNames()
        self.watcher = RemoteWatcher(context)

    def start(self) -> None:
        """Nothing is sent before the first call."""

    def stop(self) -> None:
        self.watcher.stop()

    def answer(self, session: Session, request: bytes) -> Promise[bytes]:
        return self._service.answer(session, request)

    def send(
        self,
        broker_id: int,
        request: Any,
        *,
        session: Session | None = None,
        order_key: int = 0,
        wait_ms: int = 0,
        timeout_ms: int = ANSWER_MS_MAX,
    ) -> Promise[Any]:
        """Resolved with the reply. Fails with the other broker's error, or with `PeerFailed` if no answer came."""
        connection = self.connections.to_wait() if wait_ms else None
        envelope = through_kio(
            Api.ENVELOPE,
            lambda make: make.EnvelopeRequest(
                request_data=messages.write(request),
                request_principal=(session.principal if session else ANONYMOUS).encode(),
                client_host_address=(session.peer if session else "").encode(),
            ),
        )
        reply: Promise[Any] = Promise()

        def answered(response: Any) -> None:
            if connection is not None:
                self.connections.free(connection)
            if response.error_code:
                code = ErrorCode(int(response.error_code))
                reply.fail(KafkaError(f"broker {broker_id} returned {code.name}", code))
                return
            try:
                value = messages.read_reply(request, response.response_data or b"")
            except KafkaError as error:
                reply.fail(error)
            else:
                reply.resolve(value)

        def failed(error: KafkaError) -> None:
            if connection is not None:
                self.connections.free(connection)
            reply.fail(error)

        self._context.broker_client.send(
            broker_id,
            envelope,
            timeout_ms=timeout_ms + wait_ms,
            purpose=self.connections.shared(order_key) if connection is None else connection,
        ).then(answered, failed)
        return reply


def peer_rpc_of(context: Context) -> PeerGateway:
    """The node's `PeerRpc`."""
    assert context.peer_gateway is not None, "a node with a gateway answers other brokers"
    return context.peer_gateway()
