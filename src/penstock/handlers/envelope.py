"""Requests of HTTP and line protocol clients that another broker forwards.

    Envelope 0

Kafka's brokers send a client's request in an Envelope to the controller. Here brokers send envelopes to each other,
with messages of the gateway (`gateway.peer_rpc`): Kafka's protocol has no message for a record with an idempotency
key, or for a group member without a connection.
"""

from collections.abc import Callable
from typing import Any, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.steps import Steps
from penstock.metadata.acls import CLUSTER_NAME, AclResourceType, Operation
from penstock.wire import Api

from .support.context import Call, Context, Session
from .support.waiting import in_steps

TEXT_BYTES_MAX: Final = 4096
"""Limit of the principal, and of the client's address."""


@in_steps
def envelope(context: Context, call: Call) -> Steps[Any]:
    """Envelope 0: this node's gateway answers, as if the client had connected here.

    The principal and the address, in UTF-8, are those of the client at the forwarding broker. Only brokers may send
    envelopes (CLUSTER_AUTHORIZATION_FAILED). An envelope that cannot be read gets INVALID_REQUEST; errors of the
    request inside are part of the response data.
    """
    request = call.message

    def respond(code: ErrorCode, data: bytes | None = None) -> Any:
        return call.make.EnvelopeResponse(response_data=data, error_code=code)

    needed = Operation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME
    # The audit records what is inside; lines of the audit may be.
    if not context.permits(call.session, *needed) and not context.authorize(call.session, *needed):
        return respond(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    call.session.state.is_exempt = True
    if context.peer_gateway is None:
        return respond(ErrorCode.UNSUPPORTED_VERSION)
    try:
        client = _client(call.session, request.request_principal, request.client_host_address)
    except (UnicodeDecodeError, ValueError):
        return respond(ErrorCode.INVALID_REQUEST)
    try:
        data = yield context.peer_gateway().answer(client, request.request_data)
    except KafkaError as error:
        return respond(error.code)
    return respond(ErrorCode.NONE, data)


def _client(session: Session, principal: bytes | None, address: bytes) -> Session:
    """The session of the client at the other broker."""
    if max(len(principal or b""), len(address)) > TEXT_BYTES_MAX:
        raise ValueError(f"the principal or the address has more than {TEXT_BYTES_MAX} bytes")
    client = Session(session.host, session.port, address.decode(), session.listener)
    client.request = Api.ENVELOPE.label
    if principal is not None:
        client.principal = principal.decode()
    return client


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {Api.ENVELOPE: envelope}
