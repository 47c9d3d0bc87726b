"""A node with a schema registry, and Confluent's client of it."""

from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from penstock.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http=True) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": broker.registry_url}) as made:
        yield made


@pytest.fixture
def rest(broker: Broker) -> Iterator[httpx.Client]:
    """Plain HTTP, for what the client does not send."""
    with httpx.Client(base_url=broker.registry_url, timeout=30) as made:
        yield made
