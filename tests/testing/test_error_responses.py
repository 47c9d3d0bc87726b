"""Responses that report an error for everything a request names, for every API and version that brokers serve."""

from dataclasses import Field, fields, is_dataclass
from datetime import timedelta
from typing import Any, get_args, get_origin
from uuid import UUID

import pytest

from penstock.base.errors import ErrorCode
from penstock.handlers.support.dispatch import RANGES
from penstock.testing.error_responses import error_response, topic_names, with_topic_error
from penstock.wire import Api, read_response, write_response
from penstock.wire.messages import request_type, response_module

SERVED = [(api, version) for api, served in RANGES.items() for version in range(served.min, served.max + 1)]
CODE = ErrorCode.NOT_CONTROLLER
TOPIC_ID = UUID(int=5)
SAMPLES = {"string": "name", "uuid": TOPIC_ID, "bool": True, "bytes": b"", "records": b"", "float64": 1.0}


def request_of(api: Api, version: int) -> Any:
    """A request in which every array has one item."""
    return _entity(request_type(api, version))


def _entity(entity_type: type[Any]) -> Any:
    return entity_type(**{each.name: _value(each) for each in fields(entity_type)})


def _value(field: Field[Any]) -> Any:
    inner = next((each for each in get_args(field.type) if get_origin(each) is tuple), field.type)
    if get_origin(inner) is tuple:
        item = get_args(inner)[0]
        return (_entity(item) if is_dataclass(item) else _sample(field),)  # type: ignore[arg-type]
    entity = next((each for each in (field.type, *get_args(field.type)) if is_dataclass(each)), None)
    return _sample(field) if entity is None else _entity(entity)  # type: ignore[arg-type]


def _sample(field: Field[Any]) -> Any:
    kafka_type = field.metadata["kafka_type"]
    return timedelta(0) if kafka_type.startswith("timedelta") else SAMPLES.get(kafka_type, 7)


def codes_in(entity: Any, path: str = "") -> dict[str, int]:
    """All error codes of a response, by the path of each."""
    found: dict[str, int] = {}
    if isinstance(entity, tuple):
        for each in entity:
            found |= codes_in(each, path)
    elif is_dataclass(entity):
        for field in fields(entity):
            value, name = getattr(entity, field.name), f"{path}/{field.name}"
            is_code = field.name in {"error_code", "partition_error_code"}
            found |= {name: int(value.value)} if is_code else codes_in(value, name)
    return found


def failed(api: Api, version: int, request: Any) -> Any:
    """The response as a client reads it."""
    made = error_response(api, version, request, CODE)
    return read_response(api, version, memoryview(write_response(api, version, made)))


@pytest.mark.parametrize(
    ("api", "version"), SERVED, ids=[f"{api.name.lower()}-{version}" for api, version in SERVED]
)
def test_every_response_can_carry_an_error_that_a_client_can_read(api: Api, version: int) -> None:
    codes = codes_in(failed(api, version, request_of(api, version)))
    assert list(codes.values()).count(CODE) == 1, codes


@pytest.mark.parametrize(
    ("api", "version", "where"),
    [
        (Api.PRODUCE, 9, "/responses/partition_responses/error_code"),
        (Api.FETCH, 12, "/responses/partitions/error_code"),
        (Api.CREATE_TOPICS, 7, "/topics/error_code"),
        (
            Api.ADD_PARTITIONS_TO_TXN,
            3,
            "/results_by_topic_v3_and_below/results_by_partition/partition_error_code",
        ),
        (Api.OFFSET_FETCH, 8, "/groups/error_code"),
        (Api.OFFSET_FETCH, 5, "/error_code"),
        (Api.LEAVE_GROUP, 5, "/error_code"),
        (Api.JOIN_GROUP, 9, "/error_code"),
        (Api.FIND_COORDINATOR, 4, "/coordinators/error_code"),
        (Api.FIND_COORDINATOR, 2, "/error_code"),
    ],
)
def test_the_error_is_where_clients_look_for_it(api: Api, version: int, where: str) -> None:
    codes = codes_in(failed(api, version, request_of(api, version)))
    assert [path for path, code in codes.items() if code == CODE] == [where]


def test_the_response_names_what_the_request_named() -> None:
    produced = failed(Api.PRODUCE, 9, request_of(Api.PRODUCE, 9))
    assert [(each.name, each.partition_responses[0].index) for each in produced.responses] == [("name", 7)]
    fetched = failed(Api.FETCH, 13, request_of(Api.FETCH, 13))
    assert [(each.topic_id, each.partitions[0].partition_index) for each in fetched.responses] == [
        (TOPIC_ID, 7)
    ]
    found = failed(Api.FIND_COORDINATOR, 4, request_of(Api.FIND_COORDINATOR, 4))
    assert [each.key for each in found.coordinators] == ["name"]
    described = failed(Api.DESCRIBE_GROUPS, 5, request_of(Api.DESCRIBE_GROUPS, 5))
    assert [each.group_id for each in described.groups] == ["name"]


def test_where_a_request_names_nothing_the_error_goes_to_the_whole_response() -> None:
    request = request_of(Api.FETCH, 12)
    unchanged = type(request)(
        **{each.name: getattr(request, each.name) for each in fields(request)} | {"topics": ()}
    )
    assert codes_in(failed(Api.FETCH, 12, unchanged)) == {"/error_code": CODE}


def test_topics_are_found_at_any_depth() -> None:
    assert topic_names(request_of(Api.PRODUCE, 9)) == {"name"}
    assert topic_names(request_of(Api.FETCH, 13)) == {TOPIC_ID}
    assert topic_names(request_of(Api.OFFSET_FETCH, 8)) == {"name"}
    assert topic_names(request_of(Api.HEARTBEAT, 4)) == set()
    assert topic_names(request_of(Api.JOIN_GROUP, 9)) == set()


def test_metadata_with_an_error_keeps_its_brokers() -> None:
    shapes = response_module(Api.METADATA, 12)
    broker = shapes.MetadataResponseBroker(node_id=1, host="h", port=2, rack=None)
    topic = error_response(Api.METADATA, 12, request_of(Api.METADATA, 12), ErrorCode.NONE).topics[0]
    response = shapes.MetadataResponse(
        throttle_time=timedelta(0), brokers=(broker,), cluster_id="c", controller_id=1, topics=(topic,)
    )
    changed = with_topic_error(response, CODE)
    assert changed.brokers == (broker,)
    assert codes_in(changed) == {"/topics/error_code": CODE}
