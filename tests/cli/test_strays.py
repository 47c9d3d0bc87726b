"""`penstock log strays`: what no topic claims is shown, put back, or deleted."""

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer
from tests.cli.conftest import Command
from tests.cli.data import NOW_MS, ORDERS, QUIET, open_data
from tests.cluster.views import Seen
from tests.gateway.scrapes import get_json, scrape

from penstock.storage.strays import Stray
from penstock.testing import Broker


def set_aside(data: Path) -> list[Stray]:
    """Make strays of both partitions, as a broker does."""
    directory = open_data(data)
    found = [
        directory.set_aside(name, Random(number), reason="no such topic", now_ms=NOW_MS)
        for number, name in enumerate((ORDERS, QUIET))
    ]
    directory.close()
    return found


def test_strays_are_listed_with_why_they_were_set_aside(penstock: Command, data: Path) -> None:
    strays = set_aside(data)
    outcome = penstock("log", "strays", "list", data)
    assert outcome.code == 0
    header, first, second = outcome.out.splitlines()
    assert header.split()[:2] == ["partition", "bytes"]
    assert "no such topic" in first
    assert strays[0].name in first
    assert strays[1].name in second
    document = penstock("log", "strays", "list", data / "logs", "--json").json()
    assert [each["partition"] for each in document["strays"]] == ["orders-0", "orders-1"]
    assert document["strays"][0]["sizeBytes"] == strays[0].size_bytes > 0
    assert penstock("log", "check", data).code == 0


def test_ls_shows_strays_too(penstock: Command, data: Path) -> None:
    (first, _) = set_aside(data)
    outcome = penstock("log", "ls", data)
    assert outcome.code == 0
    assert "penstock log strays list" in outcome.out
    assert first.name in outcome.out
    assert [each["topic"] for each in penstock("log", "ls", data, "--json").json()["strays"]] == [
        "orders"
    ] * 2


def test_no_strays_is_no_error(penstock: Command, data: Path) -> None:
    assert penstock("log", "strays", "list", data) == (0, "No strays.\n", "")
    assert penstock("log", "strays", "delete", data, "--all") == (0, "No strays.\n", "")
    assert penstock("log", "strays", "restore", data, "--all") == (0, "No strays.\n", "")


def test_a_stray_is_deleted_by_its_name_or_its_partitions(penstock: Command, data: Path) -> None:
    first, second = set_aside(data)
    assert penstock("log", "strays", "delete", data).err == "penstock: name the strays, or use --all\n"
    assert "there is no stray orders-7" in penstock("log", "strays", "delete", data, "orders-7").err
    assert penstock("log", "strays", "delete", data, "orders-0").out == f"{first.name}: deleted\n"
    assert not Path(first.path).exists()
    assert penstock("log", "strays", "delete", data, second.name, "--json").code == 0
    assert not Path(second.path).exists()


def test_without_metadata_a_stray_is_put_back_as_it_was(penstock: Command, data: Path) -> None:
    before = penstock("log", "ls", data, "--json").json()["partitions"]
    set_aside(data)
    assert penstock("log", "strays", "restore", data / "logs", "--all").code == 0
    after = penstock("log", "ls", data, "--json").json()
    assert after["strays"] == []
    for old, new in zip(before, after["partitions"], strict=True):
        assert {**new, "isClean": True} == old
    assert penstock("log", "check", data, "--deep").code == 0


# -- with a broker ---------------------------------------------------------------------------------------


def write(broker: Broker, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce("orders", b"%d" % number, partition=0)
    assert producer.flush(30) == 0


def lose_metadata(data: Path) -> None:
    shutil.rmtree(data / "logs" / "__cluster_metadata-0")
    for each in (data / "meta").glob("metadata-*"):
        each.unlink()


@pytest.fixture
def lost(tmp_path: Path) -> Callable[[], Path]:
    """A node's directory with 100 records in a stray: its metadata log went back to before the topic."""

    def make() -> Path:
        data = tmp_path / "lost"
        with Broker(data=data) as broker:
            broker.create_topic("first")
        shutil.copytree(data / "logs" / "__cluster_metadata-0", tmp_path / "copy")
        with Broker(data=data) as broker:
            broker.create_topic("orders", segment_bytes=1000)
            write(broker, 100)
        lose_metadata(data)
        shutil.copytree(tmp_path / "copy", data / "logs" / "__cluster_metadata-0")
        return data

    return make


def test_a_running_broker_tells_of_strays_until_they_are_deleted(
    penstock: Command, lost: Callable[[], Path]
) -> None:
    data = lost()
    with Broker(data=data, http=True) as broker:
        status, health = get_json(broker, "/health")
        assert (status, health["status"]) == (200, "ok")
        (warning,) = health["warnings"]
        assert warning["code"] == "strays"
        assert "orders-0" in warning["message"]
        assert scrape(broker).series["penstock_strays", frozenset()] == 1
        assert scrape(broker).series["penstock_stray_bytes", frozenset()] > 0
        outcome = penstock("log", "strays", "restore", data, "--all")
        assert outcome.code != 0
        assert "in use by another process" in outcome.err
        assert "stop the node that uses it first" in outcome.err
        assert penstock("log", "strays", "delete", data, "--all").code == 0
        assert get_json(broker, "/health")[1]["warnings"] == []
        assert scrape(broker).series["penstock_strays", frozenset()] == 0


def test_a_stray_becomes_a_partition_of_a_topic_that_was_made_anew(
    penstock: Command, lost: Callable[[], Path]
) -> None:
    data = lost()
    with Broker(data=data):
        pass
    outcome = penstock("log", "strays", "restore", data, "orders-0")
    assert outcome.code != 0
    assert (
        "has no topic orders: restore the metadata, or create the topic with 1 partitions or more"
        in outcome.err
    )
    with Broker(data=data) as broker:
        broker.create_topic("orders")
    assert penstock("log", "strays", "restore", data, "orders-0").code == 0
    with Broker(data=data) as broker:
        assert Seen(broker.bootstrap).driver.watermarks("orders", 0) == (0, 100)
        write(broker, 1)
        assert Seen(broker.bootstrap).driver.watermarks("orders", 0) == (0, 101)
    assert penstock("log", "check", data, "--deep").code == 0


def test_records_that_are_in_the_place_of_a_stray_are_not_lost_either(
    penstock: Command, lost: Callable[[], Path]
) -> None:
    data = lost()
    with Broker(data=data) as broker:
        broker.create_topic("orders")
        write(broker, 3)
    outcome = penstock("log", "strays", "restore", data, "orders-0")
    assert outcome.code != 0
    assert "has records from 0 to 3: --replace makes it a stray" in outcome.err
    assert penstock("log", "strays", "restore", data, "orders-0", "--replace").code == 0
    (kept,) = penstock("log", "strays", "list", data, "--json").json()["strays"]
    assert "was restored" in kept["reason"]
    with Broker(data=data) as broker:
        assert Seen(broker.bootstrap).driver.watermarks("orders", 0) == (0, 100)
