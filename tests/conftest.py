"""How Hypothesis runs, and which tests run in one process.

Hypothesis tries the same examples on every machine by default, many and new ones for `make test-long`.

With `--dist loadgroup` tests of one group run in one worker, one after the other: those that are marked, and those of
a module with fixtures of scope "module", which would be set up in every worker otherwise.
"""

from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=15,
    stateful_step_count=30,
    suppress_health_check=_SLOW,
)
settings.register_profile(
    "long", deadline=None, max_examples=500, stateful_step_count=60, suppress_health_check=_SLOW
)
settings.load_profile("ci")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist's, and after those of the directories below
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("xdist_group") is None and _has_fixtures_of_its_own(item.path):
            item.add_marker(pytest.mark.xdist_group(str(item.path.relative_to(item.config.rootpath))))


@cache
def _has_fixtures_of_its_own(module: Path) -> bool:
    return 'scope="module"' in module.read_text()
