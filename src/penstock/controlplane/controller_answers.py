"""How questions to a controller elsewhere are put together: a request in kio's words, and its answer in plain ones.

A `Request` made here is read as what the controller in this process would have answered: the plain reply, or the
`KafkaError` that refuses all of the request.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Uuid
from penstock.metadata import NO_UUID, Result
from penstock.wire import Api
from penstock.wire.request import Request, through_kio

TIMEOUT_MS_MAX = 2**31 - 1
"""What the protocol's field holds."""

UNANSWERED = Result(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller has said nothing about it")
"""For what an answer leaves out."""


def said(
    api: Api, version_min: int, build: Callable[[Any], Any], understand: Callable[[Any], Any]
) -> Request[Any]:
    """A request that is read as whatever `understand` makes of the response."""
    plain = through_kio(api, build, version_min=version_min)
    return replace(plain, read=lambda body, version: understand(plain.read(body, version)))


def check_sayable(request: Request[Any]) -> None:
    """Raise where what is asked for has no place in Kafka's words, such as a number of partitions beyond an int32."""
    try:
        request.write(request.version_max)
    except Exception as error:  # struct.error, OverflowError, ValueError: kio has no common one
        raise KafkaError(
            f"{request.api.label} cannot be asked with these values: {error}", ErrorCode.INVALID_REQUEST
        ) from error


def code_of(part: Any) -> ErrorCode:
    return ErrorCode(part.error_code)


def result_of(part: Any) -> Result:
    return Result(code_of(part), getattr(part, "error_message", None))


def refusal_of(response: Any) -> KafkaError | None:
    """The error of a whole response."""
    code = code_of(response)
    if code is ErrorCode.NONE:
        return None
    told = getattr(response, "error_message", None)
    return KafkaError(told or f"the controller answers {code.name}", code)


def deposed(results: Iterable[Result]) -> KafkaError | None:
    """Where a response has errors in its rows alone, one who is not the controller says so in each of them."""
    rows = list(results)
    if rows and all(each.code is ErrorCode.NOT_CONTROLLER for each in rows):
        return KafkaError(rows[0].message or "the controller is elsewhere", ErrorCode.NOT_CONTROLLER)
    return None


def wait_of(wait_ms: float) -> timedelta:
    return timedelta(milliseconds=min(max(int(wait_ms), 0), TIMEOUT_MS_MAX))


def uuid_said(uuid: Uuid) -> UUID | None:
    return None if uuid == NO_UUID else UUID(bytes=uuid)


def uuid_heard(uuid: UUID | None) -> Uuid:
    return NO_UUID if uuid is None else uuid.bytes
