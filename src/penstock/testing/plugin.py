"""The pytest fixtures. pytest loads this module in every run where Penstock is installed, so it imports little."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing.broker import Broker
    from penstock.testing.security import Security


@pytest.fixture(scope="session")
def penstock_settings() -> Mapping[str, object]:
    """Settings of the brokers below, by Kafka's names; define a fixture of this name to override them."""
    return {}


@pytest.fixture(scope="session")
def penstock_security() -> "Security | str | bool":
    """How clients of the brokers below connect; define a fixture of this name to override it."""
    return False


@pytest.fixture
def penstock_broker(
    penstock_settings: Mapping[str, object], penstock_security: "Security | str | bool"
) -> Iterator["Broker"]:
    """A Kafka broker for one test."""
    from penstock.testing.broker import Broker  # noqa: PLC0415

    with Broker(settings=penstock_settings, security=penstock_security) as broker:
        yield broker


@pytest.fixture(scope="session")
def penstock_session_broker(
    penstock_settings: Mapping[str, object], penstock_security: "Security | str | bool"
) -> Iterator["Broker"]:
    """A Kafka broker for the whole run, shared by all tests that use it."""
    from penstock.testing.broker import Broker  # noqa: PLC0415

    with Broker(settings=penstock_settings, security=penstock_security) as broker:
        yield broker
