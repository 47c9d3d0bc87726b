"""Responses that are written in slices have the bytes that kio gives them."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tests.wire.entities import EVERY_VERSION, make

from penstock.wire import Api, write_response
from penstock.wire.messages import response_module, response_type
from penstock.wire.sliced import LARGE_PARTS_MIN, SLICE_BYTES, is_large, write_response_in_slices


def in_slices(api: Api, version: int, entity: Any) -> tuple[bytes, int]:
    steps = write_response_in_slices(api, version, entity, lambda: None)
    slices = 1
    while True:
        try:
            next(steps)
        except StopIteration as over:
            return over.value, slices
        slices += 1


def test_every_response_is_written_as_kio_writes_it() -> None:
    rng = Random(1)
    for api, version in EVERY_VERSION:
        try:
            kind = response_type(api, version)
        except Exception:  # kio does not know all of them
            continue
        entity = make(kind, rng)
        assert in_slices(api, version, entity)[0] == write_response(api, version, entity), (api, version)


@pytest.mark.parametrize("version", [1, 12])
def test_a_large_response_is_written_in_many_slices(version: int) -> None:
    module = response_module(Api.METADATA, version)
    rng = Random(2)
    partitions = tuple(make(module.MetadataResponsePartition, rng) for _ in range(400))
    one = make(module.MetadataResponseTopic, rng)
    topics = tuple(replace(one, partitions=partitions) for _ in range(10))
    response = make(module.MetadataResponse, rng)
    response = replace(response, topics=topics)
    assert is_large(response)
    body, slices = in_slices(Api.METADATA, version, response)
    assert body == write_response(Api.METADATA, version, response)
    assert slices >= len(body) // SLICE_BYTES


def test_a_response_is_large_by_the_parts_of_its_parts() -> None:
    module = response_module(Api.METADATA, 12)
    rng = Random(3)
    partitions = tuple(make(module.MetadataResponsePartition, rng) for _ in range(LARGE_PARTS_MIN))
    one = make(module.MetadataResponseTopic, rng)
    response = make(module.MetadataResponse, rng)
    few = replace(response, brokers=(), topics=())
    assert not is_large(few)
    assert is_large(replace(few, topics=(replace(one, partitions=partitions),)))
