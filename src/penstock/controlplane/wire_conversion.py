"""Building blocks for requests to a controller on another node.

`wire_request` builds a request with kio and parses its response into what the controller in this process would have
returned. An error that rejects the whole request raises `RequestRejected`, which fails the request's promise.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Uuid
from penstock.metadata.controller.requests import Result
from penstock.records.structs import NO_UUID
from penstock.wire import Api, RequestRejected
from penstock.wire.request import Request, through_kio

TIMEOUT_MS_MAX = 2**31 - 1
"""The largest value of the timeout field."""

MISSING_RESULT = Result(
    ErrorCode.UNKNOWN_SERVER_ERROR, "the controller's response has no result for this item"
)
"""For an item that a response leaves out."""


def wire_request(
    api: Api, version_min: int, build: Callable[[Any], Any], parse: Callable[[Any], Any]
) -> Request[Any]:
    """A request whose reader returns what `parse` makes of the response."""
    plain = through_kio(api, build, version_min=version_min)
    return replace(plain, read=lambda body, version: parse(plain.read(body, version)))


def check_encodable(request: Request[Any]) -> None:
    """Raise if a value does not fit its wire field, such as a partition count beyond an int32."""
    try:
        request.write(request.version_max)
    except Exception as error:  # struct.error, OverflowError, ValueError: kio has no common one
        raise KafkaError(
            f"{request.api.label} cannot be encoded with these values: {error}", ErrorCode.INVALID_REQUEST
        ) from error


def error_code_of(part: Any) -> ErrorCode:
    return ErrorCode(part.error_code)


def result_of(part: Any) -> Result:
    return Result(error_code_of(part), getattr(part, "error_message", None))


def check_response(response: Any) -> None:
    """Raise the top-level error of a response."""
    code = error_code_of(response)
    if code is not ErrorCode.NONE:
        message = getattr(response, "error_message", None)
        raise RequestRejected(message or f"the controller returned {code.name}", code)


def check_is_controller(results: Iterable[Result]) -> None:
    """Raise NOT_CONTROLLER if each row of a response without a top-level error has that error."""
    rows = list(results)
    if rows and all(each.code is ErrorCode.NOT_CONTROLLER for each in rows):
        raise RequestRejected(
            rows[0].message or "the broker is not the active controller", ErrorCode.NOT_CONTROLLER
        )


def timeout_of(wait_ms: float) -> timedelta:
    return timedelta(milliseconds=min(max(int(wait_ms), 0), TIMEOUT_MS_MAX))


def uuid_to_wire(uuid: Uuid) -> UUID | None:
    return None if uuid == NO_UUID else UUID(bytes=uuid)


def uuid_from_wire(uuid: UUID | None) -> Uuid:
    return NO_UUID if uuid is None else uuid.bytes
