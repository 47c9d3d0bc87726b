"""Requests of clients that a broker forwards to this controller.

    Envelope 0, at controllers

Kafka's brokers forward all administration like this. Here a broker sends most of it as its own request, and forwards
what the controller must know the client of (`controlplane.forwarding`). At brokers' listeners envelopes have another
use (`handlers.envelope`).
"""

from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.base.steps import Steps
from penstock.metadata.acls import CLUSTER_NAME, AclResourceType, Operation
from penstock.wire import (
    KAFKA_RANGES,
    Api,
    MalformedRequest,
    parse_header,
    read_request,
    response_frame,
    write_response,
)
from penstock.wire.messages import response_builder
from penstock.wire.principals import read_principal

from . import delegation_tokens
from .support.context import Call, Context, Session
from .support.waiting import in_steps

FORWARDED: Final = {
    api: delegation_tokens.HANDLERS[api]
    for api in (Api.CREATE_DELEGATION_TOKEN, Api.RENEW_DELEGATION_TOKEN, Api.EXPIRE_DELEGATION_TOKEN)
}
"""What may be in an envelope."""


@in_steps
def envelope(context: Context, call: Call) -> Steps[Any]:
    """Envelope 0: answer the request inside as if the client had sent it here. Needs CLUSTER_ACTION on the cluster.

    PRINCIPAL_DESERIALIZATION_FAILURE for a principal that cannot be read, INVALID_REQUEST for a request that cannot be
    read or may not be forwarded. Errors of the request are part of the response data.
    """
    message = call.message

    def respond(code: ErrorCode, data: bytes | None = None) -> Any:
        return call.make.EnvelopeResponse(response_data=data, error_code=code)

    if not context.authorize(call.session, Operation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME):
        return respond(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        client = _client(call.session, message.request_principal, message.client_host_address)
    except (MalformedRequest, ValueError):
        return respond(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
    frame = memoryview(message.request_data)
    try:
        header = parse_header(frame)
        api = Api(header.api_key)
        handler = FORWARDED[api]
        if header.api_version not in KAFKA_RANGES[api]:
            return respond(ErrorCode.UNSUPPORTED_VERSION)
        request = read_request(api, header.api_version, frame[header.body_at :])
    except (KafkaError, KeyError, ValueError):
        return respond(ErrorCode.INVALID_REQUEST)
    client.request, client.client_id = api.label, header.client_id
    inner = Call(
        client, header.api_version, request, response_builder(api, header.api_version), header.client_id
    )
    answer = handler(context, inner)
    response = (yield answer) if isinstance(answer, Promise) else answer
    if response.error_code == ErrorCode.NOT_CONTROLLER:
        return respond(ErrorCode.NOT_CONTROLLER)
    body = write_response(api, header.api_version, response)
    return respond(ErrorCode.NONE, response_frame(api, header.api_version, header.correlation_id, body)[4:])


def _client(session: Session, principal: bytes | None, address: bytes) -> Session:
    """The session of the client at its broker."""
    if principal is None:
        raise MalformedRequest("a forwarded request has no principal")
    found = read_principal(principal)
    client = Session(session.host, session.port, f"{ip_address(address)}:0", session.listener)
    client.principal, client.is_by_token, client.is_forwarded = found.principal, found.is_by_token, True
    return client


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {Api.ENVELOPE: envelope}
