"""The commands over the wire, on Apache Kafka: the tour that Penstock's own broker is taken through."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli import group_tour, reassign_tour, wire_tour
from tests.cli.conftest import Command, penstock
from tests.cli.wire_tour import Shell
from tests.compat.kafka.peer import KafkaPeer

__all__ = ["penstock"]

pytestmark = [pytest.mark.kafka, pytest.mark.long]


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


def test_partitions_are_reassigned(
    penstock: Command, server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reassign_tour.alone(Shell(penstock, server, monkeypatch), tmp_path)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_described_and_deleted(
    protocol: str, penstock: Command, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    group_tour.describing(Shell(penstock, server, monkeypatch), protocol)


def test_offsets_are_reset_in_every_way(
    penstock: Command, server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    group_tour.resetting(Shell(penstock, server, monkeypatch), tmp_path)


def test_transactions_are_listed_described_and_aborted(
    penstock: Command, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    group_tour.transacting(Shell(penstock, server, monkeypatch))


def test_a_transaction_that_hangs_is_found_and_ended(
    penstock: Command, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    group_tour.hanging(Shell(penstock, server, monkeypatch))


def test_quotas_are_set_listed_explained_and_removed(
    penstock: Command, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = Shell(penstock, server, monkeypatch)
    shell("quotas", "set", "producer_byte_rate=1000", "--user", "alice", "--client-id", "default")
    until = time.monotonic() + 20
    while not (found := shell.json("quotas", "list")) and time.monotonic() < until:
        pass  # Kafka's broker sees them a moment later
    assert [(each["quota"], each["limit"]) for each in found] == [("producer_byte_rate", 1000.0)]
    told = shell("quotas", "explain", "--user", "alice", "--client-id", "x")
    assert told.startswith("producer_byte_rate: 1000, the quota of user alice, default client-id\n")
    removed = shell("quotas", "remove", "--user", "alice", "--client-id", "default", "--yes")
    assert removed.startswith("removed 1")
