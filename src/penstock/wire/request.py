"""A request that can be written in several versions; the connection chooses one.

    Request(Api.FETCH, 4, 18, write=lambda version: ..., read=read_fetch_response)
    through_kio(Api.METADATA, lambda make: make.MetadataRequest(topics=None, ...))

`make` is the `MessageBuilder` of the chosen version.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .catalogue import KAFKA_RANGES, Api
from .messages import read_response, request_builder, write_request

T = TypeVar("T")


@dataclass(frozen=True)
class Request(Generic[T]):
    api: Api
    version_min: int
    version_max: int
    write: Callable[[int], bytes]
    """From a version to the body."""
    read: Callable[[memoryview, int], T]
    """From the body of a response and its version to its value. Raises MalformedResponse, or RequestRejected."""
    has_response: bool = True
    """False for Produce with acks=0, which gets no response."""


def through_kio(
    api: Api, build: Callable[[Any], Any], *, version_min: int = 0, version_max: int = 32767
) -> Request[Any]:
    low, high = KAFKA_RANGES[api]
    return Request(
        api,
        max(low, version_min),
        min(high, version_max),
        lambda version: write_request(api, version, build(request_builder(api, version))),
        lambda body, version: read_response(api, version, body),
    )
