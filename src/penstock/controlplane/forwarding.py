"""Requests of clients that a broker forwards to a controller on another node, with the client's principal.

Most requests to the controller are the broker's own: the broker has authorized the client, and sends what the client
asked for. If the controller needs the client's principal, the request is sent in an Envelope, as all are in Kafka.
"""

from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.metadata.controller import requests as r
from penstock.metadata.records import DelegationTokenRecord
from penstock.wire import (
    Api,
    RequestRejected,
    parse_response_header,
    read_response,
    request_frame,
    write_request,
)
from penstock.wire.messages import request_builder
from penstock.wire.principals import ForwardedPrincipal, write_principal
from penstock.wire.request import Request

from .wire_conversion import check_response, wire_request


def create_delegation_token(request: r.CreateDelegationToken) -> Request[Any]:
    owner_type, _, owner_name = request.owner.partition(":")

    def build(make: Any) -> Any:
        return make.CreateDelegationTokenRequest(
            owner_principal_type=owner_type,
            owner_principal_name=owner_name,
            renewers=tuple(
                make.CreatableRenewers(principal_type=kind, principal_name=name)
                for kind, _, name in (each.partition(":") for each in request.renewers)
            ),
            max_lifetime=request.max_lifetime_ms,
        )

    def parse(response: Any) -> r.DelegationToken:
        check_response(response)
        record = DelegationTokenRecord(
            owner=f"{response.principal_type}:{response.principal_name}",
            requester=f"{response.token_requester_principal_type}:{response.token_requester_principal_name}",
            renewers=request.renewers,
            issue_timestamp=response.issue_timestamp,
            max_timestamp=response.max_timestamp,
            expiration_timestamp=response.expiry_timestamp,
            token_id=response.token_id,
        )
        return r.DelegationToken(record, response.hmac)

    return _forwarded(Api.CREATE_DELEGATION_TOKEN, 3, request.requester, request.client_host, build, parse)


def renew_delegation_token(request: r.RenewDelegationToken) -> Request[Any]:
    def build(make: Any) -> Any:
        return make.RenewDelegationTokenRequest(hmac=request.key, renew_period=request.period_ms)

    return _forwarded(
        Api.RENEW_DELEGATION_TOKEN, 2, request.requester, request.client_host, build, _expiry_ms
    )


def expire_delegation_token(request: r.ExpireDelegationToken) -> Request[Any]:
    def build(make: Any) -> Any:
        return make.ExpireDelegationTokenRequest(hmac=request.key, expiry_time_period=request.period_ms)

    return _forwarded(
        Api.EXPIRE_DELEGATION_TOKEN, 2, request.requester, request.client_host, build, _expiry_ms
    )


def _expiry_ms(response: Any) -> int:
    check_response(response)
    return int(response.expiry_timestamp)


def _forwarded(
    api: Api,
    version: int,
    principal: str,
    client_host: str,
    build: Callable[[Any], Any],
    parse: Callable[[Any], Any],
) -> Request[Any]:
    def envelope(make: Any) -> Any:
        body = write_request(api, version, build(request_builder(api, version)))
        return make.EnvelopeRequest(
            request_data=request_frame(api, version, 0, None, body)[4:],
            request_principal=write_principal(ForwardedPrincipal(principal, False)),
            client_host_address=_packed(client_host),
        )

    def read(response: Any) -> Any:
        check_response(response)
        if response.response_data is None:
            raise RequestRejected("the controller's envelope has no response", ErrorCode.UNKNOWN_SERVER_ERROR)
        frame = memoryview(response.response_data)
        _, at = parse_response_header(frame, api, version)
        return parse(read_response(api, version, frame[at:]))

    return wire_request(Api.ENVELOPE, 0, envelope, read)


def _packed(host: str) -> bytes:
    """The address of a client, which may have a zone."""
    try:
        return ip_address(host.partition("%")[0]).packed
    except ValueError:
        return bytes(4)
