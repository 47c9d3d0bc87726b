"""Errors in a response are counted, wherever in it they are."""

from dataclasses import fields, is_dataclass
from inspect import getsource
from typing import Any, get_args

import pytest
from tests.handlers.cluster import Cluster, make_request

from penstock.base.errors import ErrorCode
from penstock.base.metrics import Meter, Metrics
from penstock.handlers.support.api_table import SERVED
from penstock.handlers.support.dispatch import Dispatcher
from penstock.handlers.support.error_counts import count_errors
from penstock.wire import Api, write_request
from penstock.wire.messages import response_module, response_type


def errors_in(response: Any) -> dict[int | str, int]:
    meter = Meter()
    count_errors(meter, response)
    return meter.errors


def test_an_error_at_the_top() -> None:
    make = response_module(Api.HEARTBEAT, 4)
    fine = make.HeartbeatResponse(throttle_time=None, error_code=0)
    assert errors_in(fine) == {}
    assert errors_in(make.HeartbeatResponse(throttle_time=None, error_code=27)) == {
        ErrorCode.REBALANCE_IN_PROGRESS: 1
    }


def test_errors_of_each_partition() -> None:
    make = response_module(Api.OFFSET_COMMIT, 8)
    codes = [0, 3, 3, 12]
    topics = tuple(
        make.OffsetCommitResponseTopic(
            name=name,
            partitions=tuple(
                make.OffsetCommitResponsePartition(partition_index=number, error_code=code)
                for number, code in enumerate(codes)
            ),
        )
        for name in ("orders", "refunds")
    )
    assert errors_in(make.OffsetCommitResponse(throttle_time=None, topics=topics)) == {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 4,
        ErrorCode.OFFSET_METADATA_TOO_LARGE: 2,
    }


@pytest.mark.parametrize("api", list(SERVED), ids=lambda api: api.label)
def test_in_every_response_each_error_code_is_found(api: Api) -> None:
    """By the schemas: as many as there are in the classes of a response, where each is there once."""
    versions, _ = SERVED[api]
    for version in range(versions.min, versions.max + 1):
        expected = getsource(response_module(api, version)).count('"kafka_type": "error_code"')
        found = errors_in(_filled(response_type(api, version)))
        assert sum(found.values()) == expected, f"{api.label} {version}"


def _filled(kind: type[Any]) -> Any:
    """A response in which every code is an error, and of every part there is one."""
    made = object.__new__(kind)
    for each in fields(kind):
        inner = next((part for part in _types(each.type) if is_dataclass(part)), None)
        value: Any = ErrorCode.INVALID_REQUEST
        if inner is not None:
            value = (
                (_filled(inner),) if any(part is Ellipsis for part in _types(each.type)) else _filled(inner)
            )
        object.__setattr__(made, each.name, value)
    return made


def _types(hint: Any) -> list[Any]:
    return [hint, *(each for part in get_args(hint) for each in _types(part))]


def test_an_error_that_a_client_is_told_is_counted_under_its_api(cluster: Cluster) -> None:
    cluster.context.metrics = Metrics()
    dispatcher = Dispatcher(cluster.context)
    body = write_request(
        Api.CREATE_TOPICS,
        7,
        make_request(
            Api.CREATE_TOPICS,
            7,
            topics=[{"name": "not a name", "num_partitions": 1, "replication_factor": 1}],
        ),
    )
    header = bytes.fromhex("0013 0007 00000001 ffff 00")
    dispatcher.dispatch(cluster.session, memoryview(header + body))
    meter = cluster.context.metrics.apis[Api.CREATE_TOPICS]
    assert meter.errors == {ErrorCode.INVALID_TOPIC_EXCEPTION: 1}
    assert meter.in_tick == 1
