"""Messages through kio, whose classes are generated from Kafka's schemas: all but Produce and Fetch.

    read_request, write_response     the broker's side
    write_request, read_response     the client's side

kio is imported with the first message, and a version's classes (about 5 ms) when they are first used. Readers and
writers are cached by API and version.

As in kio, a uuid of zeros is None, a duration a timedelta, some timestamps are datetimes, and an error code is a
member of kio's enum. The enum has the codes of kio's release: a reply with a newer code is a MalformedResponse.
Messages in `plain_times` have plain milliseconds.
"""

import sys
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from importlib import import_module
from io import BytesIO
from struct import error as struct_error
from types import ModuleType
from typing import Any, Final, NamedTuple

from .catalogue import KAFKA_RANGES, Api
from .errors import MalformedRequest, MalformedResponse, UnsupportedVersion
from .outline import Survey, Walk, outline
from .plain_times import PLAIN_TIMES, with_plain_times
from .primitives import REQUEST_ITEMS_MAX, trailing

RESPONSE_ITEMS_MAX: Final = 2**22
"""Limit of the items in all arrays of one response, which may be the metadata of a whole cluster."""


def _import_kio() -> None:
    """Import the part of kio that imports Hypothesis, with Hypothesis hidden.

    Where Hypothesis is installed, kio imports it to register strategies for its types, which takes 0.15 s: more than
    all other imports of a node. If Hypothesis is already imported, it is not hidden.
    """
    if "hypothesis" in sys.modules or "kio.static._phantom" in sys.modules:
        return
    sys.modules["hypothesis"] = None  # type: ignore[assignment]  # an import of None raises ImportError
    try:
        import_module("kio.static._phantom")
    finally:
        del sys.modules["hypothesis"]


_import_kio()


load_module: Callable[[str], ModuleType] = import_module
"""Imports a version's classes. kio's packages import their own modules, which CPython may treat as a deadlock when two
threads import them: a process that runs several nodes replaces this with a function that takes a lock."""


class _Codec(NamedTuple):
    entity_type: type[Any]
    walk: Walk
    read: Callable[[Any, int], tuple[Any, int]]
    write: Callable[[Any, Any], None]


_codecs: dict[tuple[int, int, str], _Codec] = {}


def request_module(api: Api, version: int) -> ModuleType:
    """The module with the classes of a request, nested ones included."""
    return _module(api, version, "request")


def response_module(api: Api, version: int) -> ModuleType:
    """The module with the classes of a response: `response_module(Api.METADATA, 12).MetadataResponseBroker`."""
    return _module(api, version, "response")


def _module(api: Api, version: int, side: str) -> ModuleType:
    try:
        found = load_module(f"kio.schema.{api.name.lower()}.v{version}.{side}")
    except ModuleNotFoundError as error:
        raise UnsupportedVersion(f"{api.label} {version} is not known") from error
    return found if api not in PLAIN_TIMES else _with_plain_times(api, version, side)


@cache
def _with_plain_times(api: Api, version: int, side: str) -> ModuleType:
    found = load_module(f"kio.schema.{api.name.lower()}.v{version}.{side}")
    return with_plain_times(found, api.label + side.title())


class MessageBuilder:
    """Builds the entities of a request or a response in one version.

        make = response_builder(Api.METADATA, 12)
        make.MetadataResponseBroker(node_id=1, host="a", port=9092, rack=None)

    kio has a class for each version of each message. All versions are built with the same fields: those that the
    version does not have are left out. The latest version must have all fields, so that a misspelled one is found.
    """

    def __init__(self, api: Api, version: int, side: str) -> None:
        self.version = version
        self._module = _module(api, version, side)
        self._is_strict = version == KAFKA_RANGES[api].max

    def __getattr__(self, name: str) -> Any:
        entity_type = getattr(self._module, name)
        known = frozenset(field.name for field in fields(entity_type))
        is_strict = self._is_strict

        def make(**values: Any) -> Any:
            if not is_strict:
                values = {name: value for name, value in values.items() if name in known}
            return entity_type(**values)

        setattr(self, name, make)
        return make


@cache
def request_builder(api: Api, version: int) -> MessageBuilder:
    return MessageBuilder(api, version, "request")


@cache
def response_builder(api: Api, version: int) -> MessageBuilder:
    return MessageBuilder(api, version, "response")


def request_type(api: Api, version: int) -> type[Any]:
    return _codec(api, version, "request").entity_type


def response_type(api: Api, version: int) -> type[Any]:
    return _codec(api, version, "response").entity_type


def _codec(api: Api, version: int, side: str) -> _Codec:
    codec = _codecs.get((api, version, side))
    return codec if codec is not None else _make_codec(api, version, side)


def _make_codec(api: Api, version: int, side: str) -> _Codec:
    from kio.serial import entity_reader, entity_writer  # noqa: PLC0415 (15 ms, and asyncio with it)

    entity_type = getattr(_module(api, version, side), api.label + side.title())
    made = _Codec(entity_type, outline(entity_type), entity_reader(entity_type), entity_writer(entity_type))
    _codecs[api, version, side] = made
    return made


def read_request(api: Api, version: int, body: memoryview, items_max: int = REQUEST_ITEMS_MAX) -> Any:
    """The request at the start of a body.

    Trailing bytes are ignored, as in Kafka: librdkafka's Metadata 9 and later has three bytes too many when it
    requests all topics (its issue 5049).
    """
    codec = _codec(api, version, "request")
    try:
        return _read(codec, body, items_max, is_whole=False)
    except MalformedRequest as error:
        raise MalformedRequest(f"{api.label} {version}: {error}") from error


def read_response(api: Api, version: int, body: memoryview, items_max: int = RESPONSE_ITEMS_MAX) -> Any:
    """The response that fills a body."""
    codec = _codec(api, version, "response")
    try:
        return _read(codec, body, items_max, is_whole=True)
    except MalformedRequest as error:
        raise MalformedResponse(f"{api.label} {version}: {error}") from error


def _read(codec: _Codec, body: memoryview, items_max: int, *, is_whole: bool) -> Any:
    survey = Survey(items_max)
    try:
        stop = codec.walk(body, 0, survey)
    except (IndexError, struct_error) as error:
        raise MalformedRequest(f"the message of {len(body)} bytes is cut short") from error
    if is_whole and stop != len(body):
        raise trailing(body, stop)
    cut = survey.cut(body[:stop])
    try:
        entity, size = codec.read(cut, 0)
    except Exception as error:  # SerialError, ValueError, KeyError, OverflowError: kio has no common one
        raise MalformedRequest(str(error)) from error
    if size != len(cut):
        raise MalformedRequest(f"the message ends at byte {size}, expected {len(cut)}")
    return entity


def write_request(api: Api, version: int, entity: Any) -> bytes:
    """The body of a request."""
    return _write(_codec(api, version, "request"), entity)


def write_response(api: Api, version: int, entity: Any) -> bytes:
    """The body of a response."""
    return _write(_codec(api, version, "response"), entity)


WRITTEN_MAX = 1000
WRITTEN_BYTES_MAX = 500
"""The number and size of responses whose bytes are cached: a few megabytes in all."""
_written: dict[tuple[Api, int, Any], bytes] = {}


def write_frequent_response(api: Api, version: int, entity: Any) -> bytes:
    """The body of a response, cached for APIs with few distinct responses (heartbeats, commits): a look-up takes a
    fifth of the time."""
    key = api, version, entity
    body = _written.get(key)
    if body is None:
        body = write_response(api, version, entity)
        if len(body) <= WRITTEN_BYTES_MAX:
            if len(_written) >= WRITTEN_MAX:
                _written.clear()
            _written[key] = body
    return body


def _write(codec: _Codec, entity: Any) -> bytes:
    if type(entity) is not codec.entity_type:
        raise TypeError(f"a {type(entity).__module__} was given, expected {codec.entity_type.__module__}")
    body = BytesIO()
    codec.write(body, entity)
    return body.getvalue()
