"""Plants a fault in the code under test: a function, method or property behaves wrongly for one test.

The target is passed as itself (`Partition.advance_high_watermark`) and not as a string, so that a rename follows it.
"""

import inspect
import sys
from functools import reduce

import pytest


def plant(monkeypatch: pytest.MonkeyPatch, target: object, fault: object, within: object = None) -> None:
    """Put `fault` in the place of `target`, where `target` is defined or in `within`: a module that imports it, or a
    class that inherits it."""
    function = target.fget if isinstance(target, property) else target
    assert inspect.isfunction(function)
    *path, name = function.__qualname__.split(".")
    owner = within or reduce(getattr, path, sys.modules[function.__module__])
    monkeypatch.setattr(owner, name, fault)
