"""The docstrings of handlers state the APIs and versions that are served."""

from importlib import import_module
from pkgutil import iter_modules

import pytest

from penstock import handlers
from penstock.handlers.support.dispatch import CONTROLLER_RANGES, RANGES
from penstock.wire import Api

MODULES = [each.name for each in iter_modules(handlers.__path__) if not each.ispkg]
BY_HAND = {"produce": [Api.PRODUCE], "fetch": [Api.FETCH], "raft": [Api.FETCH]}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_states_its_apis_and_their_versions(name: str) -> None:
    module = import_module(f"penstock.handlers.{name}")
    tables = (getattr(module, "HANDLERS", {}), getattr(module, "AT_CONTROLLERS", {}))
    apis = {api for table in tables for api in table} | set(BY_HAND.get(name, []))
    assert apis, "modules that serve no API are in handlers/support"
    words = " ".join((module.__doc__ or "").split())
    for api in apis:
        versions = (RANGES | CONTROLLER_RANGES)[api]
        expected = f"{api.label} {versions.min}"
        if versions.max > versions.min:
            expected += f" to {versions.max}"
        assert expected in words
