"""A request that can be written in several versions; the connection chooses one.

    Request(Api.FETCH, 4, 18, write=lambda version: ..., read=read_fetch_response)
    through_kio(Api.METADATA, lambda make: make.MetadataRequest(topics=None, ...))

kio has a class for each version of each message. `make` builds the entities of the chosen version, and leaves out
fields that it does not have.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Generic, TypeVar

from .catalogue import KAFKA_RANGES, Api
from .messages import read_response, request_module, write_request

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


class RequestBuilder:
    def __init__(self, api: Api, version: int) -> None:
        self.version = version
        self._module = request_module(api, version)
        self._is_strict = version == KAFKA_RANGES[api].max

    def __getattr__(self, name: str) -> Any:
        entity_type = getattr(self._module, name)
        known = frozenset(field.name for field in fields(entity_type))

        def make(**values: Any) -> Any:
            # The latest version must have all fields, so that a misspelled one is found.
            if not self._is_strict:
                values = {name: value for name, value in values.items() if name in known}
            return entity_type(**values)

        setattr(self, name, make)
        return make


@cache
def request_builder(api: Api, version: int) -> RequestBuilder:
    return RequestBuilder(api, version)


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
