"""The servers and the clients. Every case runs on Penstock; `make test-long` runs it on Apache Kafka too, which keeps
the tests honest about what Kafka does. A few are marked `beside_kafka` and run on both every time.
"""

import gc
import itertools
from collections.abc import Callable, Iterator

import pytest
from tests.compat.clients.aio import AioDriver
from tests.compat.clients.confluent import ConfluentDriver
from tests.compat.clients.driver import Driver
from tests.compat.clients.kafkapython import KafkaPythonDriver
from tests.compat.clients.patient import Patient
from tests.compat.clients.servers import Server, running_kafka, running_penstock

DRIVERS: dict[str, Callable[[str], Driver]] = {
    "confluent": ConfluentDriver,
    "kafka-python": KafkaPythonDriver,
    "aiokafka": AioDriver,
}

_numbers = itertools.count()


@pytest.fixture
def leaked_sockets_collected() -> Iterator[None]:
    """Collect what a client left open within its test, where the warning is ignored, not in another test."""
    yield
    gc.collect()


@pytest.hookimpl(tryfirst=True)  # before groups are looked for
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A run needs one Kafka: those that share it run in one worker."""
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        if parameters.get("server") == "kafka":
            item.add_marker(pytest.mark.xdist_group("clients-kafka"))


@pytest.fixture(
    scope="session",
    params=["penstock", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.long])],
)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running server, for all tests of a run: topics need names of their own."""
    if request.param == "kafka":
        kafka = request.getfixturevalue("kafka")
        with running_kafka(kafka, tmp_path_factory.mktemp("kafka-clients")) as running:
            yield running
    else:
        with running_penstock() as running:
            yield running


@pytest.fixture(params=list(DRIVERS))
def driver(request: pytest.FixtureRequest, server: Server) -> Driver:
    made = DRIVERS[request.param](server.bootstrap)
    return Patient(made) if server.is_kafka else made


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test has."""
    return f"{request.node.originalname}-{next(_numbers)}"


@pytest.fixture
def topic(driver: Driver, name: str) -> str:
    """A topic with one partition."""
    driver.create_topic(name)
    return name
