"""Builds the entities of a response in one version.

kio has a class for each version of each message. A handler builds all versions with the same fields:

    make = response_builder(Api.METADATA, 12)
    make.MetadataResponseBroker(node_id=1, host="a", port=9092, rack=None)

Fields that the version does not have are left out. The latest version must have all fields, so that a test with it
finds a misspelled one.
"""

from dataclasses import fields
from functools import cache
from typing import Any

from penstock.wire import KAFKA_RANGES, Api, response_module


class ResponseBuilder:
    def __init__(self, api: Api, version: int) -> None:
        self._module = response_module(api, version)
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
def response_builder(api: Api, version: int) -> ResponseBuilder:
    return ResponseBuilder(api, version)
