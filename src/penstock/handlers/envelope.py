"""Envelopes: what another broker was asked through one of its other doors, and cannot answer itself.

Kafka's brokers send such envelopes to their controller, with a client's request in it as it came. Here brokers send
them to each other, and what is in them is the gateway's own (`gateway.peer_rpc`): Kafka's protocol has no words for a
record with an idempotency key, nor for a group's member that has no connection.
"""

from collections.abc import Callable
from typing import Any, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.wire import Api

from .support.context import CLUSTER_NAME, AclResourceType, Call, Context, Operation, Session

TEXT_BYTES_MAX: Final = 4096
"""Of a principal, and of a client's address."""


def envelope(context: Context, call: Call) -> Any | Promise[Any]:
    """Envelope 0: have the gateway of this node answer, as if the client had come here.

    The principal and the address are the client's, in UTF-8, as the broker that sends them saw it; nobody but a broker
    may send them (CLUSTER_AUTHORIZATION_FAILED). What is not understood gets INVALID_REQUEST; what is wrong with what
    was asked is part of the answer.
    """
    request = call.message

    def respond(answer: bytes | KafkaError) -> Any:
        if isinstance(answer, KafkaError):
            return call.make.EnvelopeResponse(response_data=None, error_code=answer.code)
        return call.make.EnvelopeResponse(response_data=answer, error_code=ErrorCode.NONE)

    if not context.authorize(call.session, Operation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME):
        return respond(KafkaError("not authorized", ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    if context.peer_gateway is None:
        return respond(KafkaError("there is no gateway here", ErrorCode.UNSUPPORTED_VERSION))
    try:
        asker = _asker(call.session, request.request_principal, request.client_host_address)
    except (UnicodeDecodeError, ValueError) as error:
        return respond(KafkaError(str(error), ErrorCode.INVALID_REQUEST))
    response: Promise[Any] = Promise()
    context.peer_gateway().answer(asker, request.request_data).then(
        lambda reply: response.resolve(respond(reply)), lambda error: response.resolve(respond(error))
    )
    return response


def _asker(session: Session, principal: bytes | None, address: bytes) -> Session:
    """The client, as a session of its own."""
    if max(len(principal or b""), len(address)) > TEXT_BYTES_MAX:
        raise ValueError(f"a principal or an address has more than {TEXT_BYTES_MAX} bytes")
    asker = Session(session.host, session.port, address.decode(), session.listener)
    if principal is not None:
        asker.principal = principal.decode()
    return asker


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {Api.ENVELOPE: envelope}
