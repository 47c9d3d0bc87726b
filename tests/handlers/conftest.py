"""A cluster of one broker, and one of three."""

import pytest
from tests.handlers.cluster import Cluster


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def three() -> Cluster:
    return Cluster(brokers=(1, 2, 3))
