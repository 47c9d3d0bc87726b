"""Builds a response that reports one error for everything a request names.

Kafka's responses mirror their requests: an array of topics in the request is an array of topics in the response, and
the partitions in it likewise. So one rule serves every API. Arrays are paired in order, fields of the same name are
copied, the error code goes to the deepest level that has one, and the other fields get a neutral value.

Metadata is the exception: clients need its brokers even when a topic has an error. `with_topic_error` puts the error
into a response that the broker made.
"""

from dataclasses import MISSING, Field, fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin

from kio.schema.errors import ErrorCode as KioErrorCode

from penstock.base.errors import ErrorCode
from penstock.wire import Api
from penstock.wire.messages import response_type

ERROR_MESSAGE: Final = "this error was injected by a test"

_REPORTED_ABOVE: Final = {
    Api.LEAVE_GROUP: "members",
    Api.OFFSET_FETCH: "topics",
    Api.DESCRIBE_LOG_DIRS: "results",
}
"""Arrays whose items have an error code, although most errors are reported at the level above."""

_OTHER_NAMES: Final = {"partition": "partition_index", "partition_index": "partition", "index": "partition"}
"""Fields with another name in the request."""

_NOTHING: Final[dict[str, Any]] = {
    "bool": False,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": None,
    "float64": 0.0,
    "timedelta_i32": timedelta(0),
    "timedelta_i64": timedelta(0),
    "datetime_i64": datetime.fromtimestamp(0, UTC),
}
"""A neutral value for each of kio's types; integers are -1."""


def error_response(api: Api, version: int, request: Any, code: ErrorCode) -> Any:
    """Return a response of this version in which everything that the request names has failed with the code."""
    response, has_code = _mirror(api, response_type(api, version), request, KioErrorCode(int(code)))
    if not has_code:
        raise ValueError(f"{api.label} version {version} has no field for an error code")
    return response


def with_topic_error(response: Any, code: ErrorCode) -> Any:
    """Return a Metadata response in which every topic has the error and no partitions."""
    kio_code = KioErrorCode(int(code))
    topics = tuple(replace(each, error_code=kio_code, partitions=()) for each in response.topics)
    return replace(response, topics=topics)


def topic_names(request: Any) -> set[Any]:
    """Return the names and ids of all topics that a request contains, at any depth."""
    found: set[Any] = set()
    if isinstance(request, tuple):
        return found.union(*map(topic_names, request))
    if is_dataclass(request):
        is_topic = "topic" in type(request).__name__.lower()
        for field in fields(request):
            value = getattr(request, field.name)
            if field.name in {"topic", "topic_id", "topic_name"} or (field.name == "name" and is_topic):
                found.add(value)
            elif field.name in {"topic_names", "subscribed_topic_names"}:
                found.update(value or ())
            else:
                found |= topic_names(value)
    return found


def _mirror(api: Api, target: type[Any], source: Any, code: KioErrorCode) -> tuple[Any, bool]:
    """Return an entity of the target type, made from its counterpart in the request, and whether it has the code."""
    values: dict[str, Any] = {}
    arrays = _arrays_of(source)
    has_code = False
    for field in fields(target):
        item = _item_type(field)
        if isinstance(item, type) and is_dataclass(item) and _carries_code(item):
            entities = next(arrays, None) or ()
            if _REPORTED_ABOVE.get(api) == field.name and _error_field(target) is not None:
                entities = ()
            made = [_mirror(api, item, each, code) for each in entities]
            values[field.name] = tuple(entity for entity, _ in made)
            has_code = has_code or any(carried for _, carried in made)
    error_field = _error_field(target)
    is_here = error_field is not None and not has_code
    for field in fields(target):
        if field.name in values:
            continue
        if field.name == error_field:
            values[field.name] = code if is_here else KioErrorCode.none
        elif field.name == "error_message":
            values[field.name] = ERROR_MESSAGE if is_here else None
        else:
            _fill(values, field, source)
    if not is_dataclass(source):
        _identify(values, target, source)
    return target(**values), has_code or is_here


def _fill(values: dict[str, Any], field: Field[Any], source: Any) -> None:
    """Copy a plain field from the request, or use its default, or a neutral value."""
    if is_dataclass(source) and _item_type(field) is None and not is_dataclass(_inner(field.type)):
        for name in (field.name, _OTHER_NAMES.get(field.name, "")):
            if hasattr(source, name):
                values[field.name] = getattr(source, name)
                return
    if field.default is MISSING and field.default_factory is MISSING:
        values[field.name] = _nothing(field)


def _nothing(field: Field[Any]) -> Any:
    is_nullable = NoneType in get_args(field.type)
    if is_nullable:
        return None
    if _item_type(field) is not None:
        return ()
    inner = _inner(field.type)
    if is_dataclass(inner):
        return inner(  # type: ignore[operator]
            **{each.name: _nothing(each) for each in fields(inner) if each.default is MISSING}
        )
    kafka_type = field.metadata["kafka_type"]
    return KioErrorCode.none if kafka_type == "error_code" else _NOTHING.get(kafka_type, -1)


def _identify(values: dict[str, Any], target: type[Any], source: Any) -> None:
    """If the request has a bare name or number, put it into the first field of that type."""
    kinds = ("string",) if isinstance(source, str) else ("int32", "int64")
    for field in fields(target):
        if field.metadata.get("kafka_type") in kinds and field.name != "error_message":
            values[field.name] = source
            return


def _arrays_of(source: Any) -> Any:
    """Return the request's arrays, in order."""
    if not is_dataclass(source):
        return iter(())
    return iter([getattr(source, each.name) for each in fields(source) if _item_type(each) is not None])


@cache
def _carries_code(entity_type: type[Any]) -> bool:
    """Return whether entities of the type, or those in their arrays, have an error code."""
    if _error_field(entity_type) is not None:
        return True
    items = [_item_type(each) for each in fields(entity_type)]
    return any(_carries_code(item) for item in items if isinstance(item, type) and is_dataclass(item))


def _error_field(entity_type: type[Any]) -> str | None:
    names = [each.name for each in fields(entity_type)]
    return next((name for name in ("error_code", "partition_error_code") if name in names), None)


def _inner(annotation: Any) -> Any:
    """Return the type without None."""
    if get_origin(annotation) not in {UnionType, Union}:
        return annotation
    return next(each for each in get_args(annotation) if each is not NoneType)


def _item_type(field: Field[Any]) -> Any:
    """Return the type of an array's items; None for a field that is not an array."""
    inner = _inner(field.type)
    return _inner(get_args(inner)[0]) if get_origin(inner) is tuple else None
