"""How Hypothesis runs, and which tests run in one process.

Hypothesis tries the same examples on every machine by default, many and new ones for `make test-long`.

With `--dist loadgroup` tests of one group run in one worker, one after the other: those that are marked, and those
that share a fixture of their module, which would be set up in every worker otherwise.
"""

import pytest
from _pytest.nodeid import NodeId
from hypothesis import HealthCheck, settings

_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=25,
    stateful_step_count=30,
    suppress_health_check=_SLOW,
)
settings.register_profile(
    "long", deadline=None, max_examples=500, stateful_step_count=60, suppress_health_check=_SLOW
)
settings.load_profile("ci")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> object:
    result = yield  # directories may mark their tests
    if getattr(config.option, "loadgroup", False):
        for item in items:
            _name_with_group(item)
    return result


def _name_with_group(item: pytest.Item) -> None:
    """The scheduler knows a group by the end of a test's id, `@group`.

    pytest-xdist writes it there for marked tests, but into a field that pytest no longer has since 9.2.
    """
    groups = {str(mark.args[0]) for mark in item.iter_markers("xdist_group")}
    if not groups and _shares_a_fixture_of_its_module(item):
        groups = {item.nodeid.partition("::")[0]}
    ending = f"@{'_'.join(sorted(groups))}"
    if groups and not item.nodeid.endswith(ending):
        item._id = NodeId.parse(item.nodeid + ending)


def _shares_a_fixture_of_its_module(item: pytest.Item) -> bool:
    info = getattr(item, "_fixtureinfo", None)
    return info is not None and any(
        definitions[-1].scope == "module" for definitions in info.name2fixturedefs.values() if definitions
    )
