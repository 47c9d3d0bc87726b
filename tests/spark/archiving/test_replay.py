"""Replaying an archive to a real node, without Spark: everything once and in order, however often it is cut off."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spark.archiving.test_archive_table import rows, staged

from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.group_offsets import fetch_offsets
from penstock.client.groups import delete_group
from penstock.client.settings import parse_servers
from penstock.spark.archiving import replay as replaying
from penstock.spark.archiving.archive_table import Archive, files_of, install, write_archive
from penstock.spark.archiving.replay import ReplayJob, replay
from penstock.spark.errors import ArchiveFault
from penstock.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two partitions, with holes as transactions and compaction leave them, in several files."""
    monkeypatch.setattr(replaying, "CHUNK_BYTES", 1500)
    monkeypatch.setattr("penstock.spark.archiving.archive_table.BATCH_ROWS", 20)
    directory = str(tmp_path / "orders")
    write_archive(directory, Archive("orders", "id", 2, "read_committed"))
    install(directory, [staged(directory, range(5, 300)), staged(directory, range(0, 400, 3), partition=1)])
    monkeypatch.setattr("penstock.spark.archiving.archive_table.MERGED_BYTES_MAX", 0)
    install(directory, [staged(directory, range(310, 350))])
    return directory


WANTED = {0: [*range(5, 300), *range(310, 350)], 1: [*range(0, 400, 3)]}


def read(broker: Broker, topic: str, partition: int) -> list[tuple[Any, ...]]:
    """What a reader of committed records sees."""
    from confluent_kafka import Consumer  # noqa: PLC0415
    from confluent_kafka import TopicPartition as Assigned  # noqa: PLC0415

    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([Assigned(topic, partition, 0)])
    found = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            consumer.close()
            return found
        found.append((message.key(), message.value(), message.timestamp(), message.headers()))


def expected(partition: int) -> list[tuple[Any, ...]]:
    return [
        (
            row["key"],
            row["value"],
            (1, round(row["timestamp"].timestamp() * 1000)),
            [(each["key"], each["value"]) for each in row["headers"]] if row["headers"] else None,
        )
        for row in rows(WANTED[partition]).to_pylist()
    ]


def test_a_replay_brings_every_record_back_as_it_was(broker: Broker, table: str) -> None:
    done = replay(ReplayJob(table, "back", broker.bootstrap))
    assert done.records == len(WANTED[0]) + len(WANTED[1])
    for partition in WANTED:
        assert read(broker, "back", partition) == expected(partition)
    again = replay(ReplayJob(table, "back", broker.bootstrap))
    assert (again.records, again.skipped, again.is_resumed) == (0, 2, True)
    assert read(broker, "back", 0) == expected(0)
    with Cluster(parse_servers(broker.bootstrap)) as cluster:
        position = fetch_offsets(cluster, "penstock-replay-back")[TopicPartition("back", 0)]
    assert (position.offset, position.metadata) == (350, "orders id")


@pytest.mark.parametrize("step", ["init_transactions", "commit_in_transaction", "end_transactions", "after"])
def test_a_replay_that_is_cut_off_anywhere_goes_on_without_loss_or_repetition(
    broker: Broker, table: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"cut-{step}"
    name = "end_transactions" if step == "after" else step
    original = getattr(replaying, name)
    calls = [0]

    def cut(*arguments: Any, **named: Any) -> Any:
        calls[0] += 1
        if calls[0] % 3 == 0:
            if step == "after":
                original(*arguments, **named)
            raise KeyboardInterrupt
        return original(*arguments, **named)

    monkeypatch.setattr(replaying, name, cut)
    runs = 0
    while True:
        runs += 1
        try:
            replay(ReplayJob(table, topic, broker.bootstrap))
            break
        except KeyboardInterrupt:
            continue
    assert runs > 3
    for partition in WANTED:
        assert read(broker, topic, partition) == expected(partition)


def test_a_second_replay_shuts_out_the_first(
    broker: Broker, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which has its records on their way, and is not allowed to end its transaction any more."""
    original = replaying.commit_in_transaction
    job = ReplayJob(table, "twice", broker.bootstrap)
    calls = [0]

    def slow(*arguments: Any, **named: Any) -> None:
        calls[0] += 1
        original(*arguments, **named)
        if calls[0] == 2:
            monkeypatch.setattr(replaying, "commit_in_transaction", original)
            replay(job)

    monkeypatch.setattr(replaying, "commit_in_transaction", slow)
    with pytest.raises(ArchiveFault, match="another replay into topic twice has started"):
        replay(job)
    for partition in WANTED:
        assert read(broker, "twice", partition) == expected(partition)


def test_what_cannot_be_is_refused_in_one_sentence(broker: Broker, table: str, tmp_path: Path) -> None:
    def refusal(topic: str, directory: str = table) -> str:
        with pytest.raises(ArchiveFault) as caught:
            replay(ReplayJob(directory, topic, broker.bootstrap))
        return str(caught.value)

    broker.create_topic("narrow", partitions=1)
    assert "topic narrow has 1 partitions, expected at least 2" in refusal("narrow")
    broker.create_topic("stamped", partitions=2, message_timestamp_type="LogAppendTime")
    assert "expected CreateTime" in refusal("stamped")
    assert "is not an archive" in refusal("any", str(tmp_path))
    replay(ReplayJob(table, "taken", broker.bootstrap))
    other = str(tmp_path / "other")
    write_archive(other, Archive("payments", "other", 1, "read_committed"))
    install(other, [staged(other, range(10))])
    assert "was replayed from the archive of another topic, orders" in refusal("taken", other)
    replay(ReplayJob(other, "full", broker.bootstrap))
    with Cluster(parse_servers(broker.bootstrap)) as cluster:
        delete_group(cluster, "penstock-replay-full")
    assert "has records in partition 0 that no replay wrote" in refusal("full", other)


def test_records_that_retention_will_take_again_are_told_of(broker: Broker, table: str) -> None:
    broker.create_topic("short", partitions=3, retention_ms=1000)
    done = replay(ReplayJob(table, "short", broker.bootstrap))
    assert "retention.ms=1000: older records will be deleted again" in done.warning
    assert os.path.exists(files_of(table)[0][0].path)
