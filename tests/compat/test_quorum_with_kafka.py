"""The metadata quorum and Apache Kafka take turns on one directory, and each reads what the other wrote."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.compat.kafka.everything import Expected
from tests.compat.kafka.peer import CLUSTER_ID, KafkaPeer
from tests.controlplane.quorum_bench import ALONE, Bench, settings_in
from tests.worlds import StillWorld

from penstock.base.ids import uuid_from_text
from penstock.metadata.records import AnyRecord, ConfigRecord, NoOpRecord, TopicRecord
from penstock.storage.checkpoints import META_PROPERTIES, MetaProperties
from penstock.vfs import RealDisk

pytestmark = pytest.mark.kafka

SNAPSHOTS = replace(ALONE, snapshot_bytes=1)
"""After every commit there is a snapshot."""

NODE_ID = 1


def threads(count: int) -> AnyRecord:
    """A setting of all brokers that Kafka takes at any time."""
    return ConfigRecord(resource_type=4, resource_name="", name="background.threads", value=str(count))


def open_quorum(log_dir: Path) -> Bench:
    """Ours, as the node that the directory belongs to. Time goes on from where Kafka, on the real clock, left it."""
    path = log_dir / META_PROPERTIES
    identity = MetaProperties.decode(path.read_bytes(), str(path))
    latest = max(each.stat().st_mtime for each in log_dir.rglob("*"))
    bench = Bench(
        RealDisk(),
        SNAPSHOTS,
        world=StillWorld(start_ms=int(latest * 1000) + 1),
        node_id=NODE_ID,
        directory_id=uuid_from_text(identity.directory_id),
        logs=str(log_dir),
    )
    return bench.start()


def check_dump(kafka: KafkaPeer, log_dir: Path) -> str:
    """Kafka's own tool reads the log and the latest snapshot; what it prints."""
    directory = log_dir / "__cluster_metadata-0"
    logs = sorted(directory.glob("*.log"))
    snapshots = sorted(directory.glob("*.checkpoint"))
    dump = kafka.dump_log([*logs, snapshots[-1]], "--cluster-metadata-decoder")
    assert dump.problems(gaps=True) == []
    # The tool takes the first offset of a segment that does not begin at 0 for a gap.
    gaps = [line.strip() for line in dump.complaints.splitlines() if "followed by" in line]
    assert all(gap.startswith("-1 is") for gap in gaps)
    return dump.text


@pytest.mark.long
def test_a_directory_of_kafka_goes_on_here_and_back_there(
    kafka: KafkaPeer, kafka_directory_copy: tuple[Path, Expected]
) -> None:
    """Static voters, `kraft.version` 0: the voters are in no record."""
    log_dir, _ = kafka_directory_copy
    bench = open_quorum(log_dir)
    assert bench.hearer.epoch is not None
    assert bench.quorum.kraft_version == 0
    topics = set(bench.hearer.now.topics)
    assert {each.name.rsplit("-", 1)[0] for each in log_dir.glob("*-0") if each.is_dir()} >= topics
    assert len(topics) > 5
    assert [record.name for record in bench.quorum.bootstrap][:1] == ["metadata.version"]  # type: ignore[union-attr]
    bench.commit(threads(7), NoOpRecord())
    bench.commit(threads(8))
    epoch, image = bench.hearer.epoch, bench.hearer.now
    bench.stop()
    text = check_dump(kafka, log_dir)
    assert '"name":"background.threads","value":"8"' in text
    assert "SnapshotFooter" in text

    with kafka.running_kafka(log_dir) as broker:
        assert not broker.complaints()

    again = open_quorum(log_dir)
    assert again.hearer.epoch is not None
    assert again.hearer.epoch > epoch + 1  # Kafka led between
    assert set(again.hearer.now.topics) == set(image.topics)
    assert settings_in(again.hearer.now)["background.threads"] == "8"
    again.stop()


@pytest.mark.long
def test_a_standalone_directory_that_kafka_formatted_starts_here_first(
    kafka: KafkaPeer, tmp_path: Path
) -> None:
    """Dynamic voters, `kraft.version` 1: they are in the snapshot that formatting leaves."""
    log_dir = tmp_path / "standalone"
    log_dir.mkdir()
    settings = tmp_path / "server.properties"
    settings.write_text(
        f"process.roles=broker,controller\nnode.id={NODE_ID}\nlog.dirs={log_dir}\n"
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\ncontroller.listener.names=CONTROLLER\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:9093\n"
    )
    kafka.java("kafka.tools.StorageTool", "format", "--standalone", "-t", CLUSTER_ID, "-c", str(settings))

    bench = open_quorum(log_dir)
    assert bench.hearer.epoch == 1
    assert bench.quorum.kraft_version == 1
    assert [(each.key.id, each.endpoints[0].port) for each in bench.quorum.voters] == [(NODE_ID, 9093)]
    bench.commit(*bench.quorum.bootstrap, threads(9))
    bench.commit(TopicRecord(name="ours", topic_id=bytes(range(16))))
    bench.stop()
    text = check_dump(kafka, log_dir)
    assert '"name":"ours"' in text
    assert "KRaftVoters" in text

    with kafka.running_kafka(log_dir) as broker:
        assert not broker.complaints()

    again = open_quorum(log_dir)
    assert again.hearer.epoch == 3
    assert "ours" in again.hearer.now.topics
    assert set(again.hearer.now.brokers) == {NODE_ID}
    again.stop()


@pytest.mark.long
def test_kafka_starts_on_a_directory_that_was_made_here(kafka: KafkaPeer, tmp_path: Path) -> None:
    log_dir = tmp_path / "ours"
    kafka.format_storage(log_dir)  # meta.properties and bootstrap.checkpoint; nothing of a quorum
    bench = open_quorum(log_dir)
    assert bench.quorum.kraft_version == 1
    bench.commit(*bench.quorum.bootstrap, NoOpRecord(cluster_id=CLUSTER_ID), threads(5))
    assert bench.quorum.cluster_id_in_log == CLUSTER_ID
    assert '"type":"NO_OP_RECORD"' in check_dump(kafka, log_dir)
    bench.quorum.abandon()  # as after kill -9
    with kafka.running_kafka(log_dir) as broker:
        assert not broker.complaints()
    again = open_quorum(log_dir)
    assert again.hearer.epoch == 3
    assert settings_in(again.hearer.now)["background.threads"] == "5"
    assert set(again.hearer.now.brokers) == {NODE_ID}
    again.stop()
