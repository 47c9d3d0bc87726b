"""The commands over the wire, on Apache Kafka: the tour that Penstock's own broker is taken through."""

from collections.abc import Iterator

import pytest
from tests.cli import wire_tour
from tests.cli.conftest import Command, penstock
from tests.cli.wire_tour import Shell
from tests.compat.kafka.peer import KafkaPeer

__all__ = ["penstock"]

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def server(kafka: KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log_dir = tmp_path_factory.mktemp("cli") / "logs"
    kafka.format_storage(log_dir)
    with kafka.running_kafka(log_dir) as running:
        yield running.bootstrap


@pytest.mark.parametrize(
    "tour", [wire_tour.topics, wire_tour.configs, wire_tour.records, wire_tour.places, wire_tour.codecs]
)
def test_the_tour(tour, penstock: Command, server: str, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    tour(Shell(penstock, server, monkeypatch))
