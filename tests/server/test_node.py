"""A whole node: starts, stops, crashes, and what it finds when it comes back."""

from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.nodes import StillNode
from tests.wire_requests import fetch_all, produce_body
from tests.worlds import START_MS, StillWorld

from penstock.base.ids import TopicPartition
from penstock.metadata.quotas import quota_record
from penstock.metadata.records import (
    RECOVERED,
    AccessControlEntryRecord,
    ConfigRecord,
)
from penstock.records import build_batch
from penstock.storage import DirectoryRefused, open_directory
from penstock.vfs import FaultyDisk, MemoryDisk
from penstock.wire import Api, request_module


def produce(node: StillNode, topic: str, *values: bytes, acks: int = -1) -> Any:
    client = node.client()
    data = build_batch([(None, value, START_MS) for value in values])
    client.send(Api.PRODUCE, 12, produce_body(12, [(topic, [(0, data)])], acks))
    return client.wait().responses[0].partition_responses[0]


def metadata(node: StillNode) -> Any:
    return node.client().call(
        Api.METADATA,
        12,
        topics=None,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )


def test_a_new_node_serves_at_once_and_tells_the_address_that_was_dialled() -> None:
    node = StillNode()
    reply = metadata(node)
    assert [(each.node_id, each.host, each.port) for each in reply.brokers] == [(1, "10.0.0.2", 9092)]
    assert reply.controller_id == 1
    assert reply.topics == ()


def test_an_advertised_address_wins_over_the_dialled_one() -> None:
    node = StillNode(settings={"advertised.listeners": "PLAINTEXT://broker.example:19092"})
    assert [(each.host, each.port) for each in metadata(node).brokers] == [("broker.example", 19092)]


@pytest.mark.parametrize("end", ["stop", "kill", "power cut"])
def test_what_was_acknowledged_is_there_after_a_restart(end: str) -> None:
    node = StillNode()
    node.create_topic("orders")
    before = metadata(node)
    assert produce(node, "orders", b"a", b"b").base_offset == 0
    if end == "stop":
        node.stop()
        node.restart()
    else:
        node.crash(Random(3) if end == "power cut" else None)

    assert fetch_all(node, "orders", 0) == [b"a", b"b"]
    assert produce(node, "orders", b"c").base_offset == 2
    after = metadata(node)
    assert after.cluster_id == before.cluster_id
    assert after.topics[0].topic_id == before.topics[0].topic_id
    assert after.topics[0].partitions[0].isr_nodes == (1,)


def test_a_clean_stop_is_trusted_and_a_crash_is_not() -> None:
    """Kafka tells them apart by the broker epoch in the clean-shutdown file."""
    node = StillNode()
    epoch = node.node.directory.broker_epoch
    node.stop()
    node.restart()
    assert node.node.directory.previous_broker_epoch == epoch > 0
    node.crash()
    assert node.node.directory.previous_broker_epoch == -1


def test_a_kill_loses_nothing_while_the_machine_keeps_running() -> None:
    node = StillNode(world=StillWorld(boot="monday"))
    node.create_topic("orders")
    produce(node, "orders", b"a", b"b")
    for _ in range(2):
        epoch = node.node.directory.broker_epoch
        node.crash()
        assert node.node.directory.previous_broker_epoch == epoch > 0
        held = node.node.context.image.topics["orders"].partitions[0]
        assert (held.leader, held.isr, held.recovery_state) == (1, (1,), RECOVERED)
    node.crash(Random(3))
    assert node.node.directory.previous_broker_epoch == -1


def test_leader_epochs_grow_over_restarts() -> None:
    node = StillNode()
    node.create_topic("orders")
    epochs = []
    for _ in range(3):
        epochs.append(metadata(node).topics[0].partitions[0].leader_epoch)
        node.crash()
    assert epochs == sorted(set(epochs))


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_a_power_cut_at_any_moment_loses_nothing_that_was_acknowledged(seed: int, steps: int) -> None:
    node = StillNode(seed=seed)
    node.create_topic("orders")
    client = node.client()
    for number in range(5):
        data = build_batch([(None, b"%d" % number, START_MS)])
        client.send(Api.PRODUCE, 12, produce_body(12, [("orders", [(0, data)])], -1))
    acknowledged = 0
    for _ in range(steps):
        node.world.step()
        while client.reply() is not None:
            acknowledged += 1
    node.crash(Random(seed))
    found = fetch_all(node, "orders", 0)
    assert found == [b"%d" % number for number in range(len(found))]
    assert len(found) >= acknowledged


def test_a_topic_that_was_deleted_is_gone_from_disk_and_comes_back_empty() -> None:
    node = StillNode()
    node.create_topic("orders", file_delete_delay_ms="1000")
    produce(node, "orders", b"old")
    node.client().call(Api.DELETE_TOPICS, 5, topic_names=("orders",), timeout=timedelta(seconds=5))
    logs = node.node.directory.layout.logs
    assert [each.name for each in node.disk.list_dir(logs) if each.name.endswith("-delete")]
    node.world.advance(2000)
    assert [each.name for each in node.disk.list_dir(logs) if each.name.startswith("orders")] == []

    node.create_topic("orders")
    assert fetch_all(node, "orders", 0) == []


def test_a_topic_of_many_partitions_is_deleted_with_no_more_syncs_than_one() -> None:
    node = StillNode()
    assert isinstance(node.disk, MemoryDisk)
    counts = []
    for name, partitions in (("few", 1), ("many", 40)):
        node.create_topic(name, partitions)
        made: list[str] = []
        node.disk.on_sync = made.append
        node.client().call(Api.DELETE_TOPICS, 5, topic_names=(name,), timeout=timedelta(seconds=5))
        node.disk.on_sync = None
        counts.append(len(made))
    assert counts[0] == counts[1]
    node.crash(Random(1))
    assert [each for each in node.node.directory.logs if each.topic == "many"] == []


def test_files_of_a_deleted_topic_stay_while_its_names_are_not_durably_gone() -> None:
    """They go at the next start, which finds them under their last names, or the partition whole."""
    disk = FaultyDisk(MemoryDisk())
    node = StillNode(disk)
    node.create_topic("orders", file_delete_delay_ms="0")
    logs = node.node.directory.layout.logs
    disk.fail("sync_dir", path=logs, times=1)
    node.client().call(Api.DELETE_TOPICS, 5, topic_names=("orders",), timeout=timedelta(seconds=5))
    node.world.advance(1000)
    [left] = [each.name for each in disk.list_dir(logs) if each.name.startswith("orders")]
    assert left.endswith("-delete")
    node.stop()
    node.restart()
    node.world.advance(1000)
    assert [each.name for each in disk.list_dir(logs) if each.name.startswith("orders")] == []


def test_partitions_that_were_there_before_the_cluster_become_topics() -> None:
    """Of a directory that was imported, or has lost its metadata log."""
    disk = MemoryDisk()
    directory = open_directory(disk, "/data", now_ms=START_MS, rng=Random(1))
    for number in range(2):
        log = directory.create(TopicPartition("found", number), now_ms=START_MS)
        log.append(build_batch([(None, b"old%d" % number, START_MS)]), leader_epoch=0, now_ms=START_MS)
    directory.create(TopicPartition("partial", 1), now_ms=START_MS)
    directory.close()

    node = StillNode(disk)
    assert [(each.name, len(each.partitions)) for each in metadata(node).topics] == [("found", 2)]
    assert fetch_all(node, "found", 0) == [b"old0"]
    assert produce(node, "found", b"new").base_offset == 1
    node.crash()
    assert fetch_all(node, "found", 0) == [b"old0", b"new"]
    assert fetch_all(node, "found", 1) == [b"old1"]


def test_a_directory_of_another_node_is_refused() -> None:
    node = StillNode(settings={"node.id": "7"})
    node.stop()
    with pytest.raises(DirectoryRefused, match=r"belongs to node 7, but node\.id is 8"):
        StillNode(node.disk, settings={"node.id": "8"})
    assert metadata(StillNode(node.disk)).brokers[0].node_id == 7


def test_min_insync_replicas_asks_for_no_more_than_there_are() -> None:
    """As Kafka: a topic of one replica takes acks=all whatever `min.insync.replicas` is."""
    node = StillNode()
    node.create_topic("strict", min_insync_replicas="2")
    assert produce(node, "strict", b"x").error_code.value == 0


def test_settings_changed_at_run_time_hold_at_once_and_after_a_restart() -> None:
    node = StillNode()
    node.create_topic("orders")
    module = request_module(Api.INCREMENTAL_ALTER_CONFIGS, 1)
    change = module.AlterableConfig(name="max.message.bytes", config_operation=0, value="100")
    resource = module.AlterConfigsResource(resource_type=2, resource_name="orders", configs=(change,))
    node.client().call(Api.INCREMENTAL_ALTER_CONFIGS, 1, resources=(resource,), validate_only=False)
    for _ in range(2):
        assert produce(node, "orders", b"x" * 200).error_code.value == 10
        node.crash()


def test_connections_beyond_the_limits_are_closed() -> None:
    node = StillNode(settings={"max.connections.per.ip": "2"})
    clients = [node.client() for _ in range(3)]
    assert [each.transport.is_closed for each in clients] == [False, False, True]
    clients[0].connection.connection_lost(None)
    assert not node.client().transport.is_closed


def test_a_connection_that_is_made_after_the_end_is_closed() -> None:
    """It was taken in the turn before."""
    node = StillNode()
    node.node.abandon()
    assert node.client().transport.is_closed


def test_idle_connections_are_closed_and_waiting_ones_are_not() -> None:
    node = StillNode(settings={"connections.max.idle.ms": "1000"})
    node.create_topic("orders")
    idle, busy = node.client(), node.client()
    for _ in range(4):
        busy.call(Api.API_VERSIONS, 0)
        node.world.advance(400)
    assert (idle.transport.is_closed, busy.transport.is_closed) == (True, False)


@pytest.mark.parametrize("phase_ms", range(0, 4500, 450))
def test_a_node_that_stood_still_does_not_fence_itself(
    phase_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a SIGSTOP, or while it made ten thousand partitions."""
    node = StillNode()
    node.create_topic("orders")
    node.world.advance(20_000 + phase_ms)
    end = node.node.context.image.offset
    node.world.stall(60_000)
    node.world.advance(20_000)
    assert node.node.context.image.offset == end, "nothing was written about it"
    assert "is fenced" not in caplog.text


SECRETS = {
    "ACLs": AccessControlEntryRecord(id=bytes(16), resource_name="orders"),
}


@pytest.mark.parametrize("what", SECRETS)
def test_a_cluster_that_keeps_people_out_is_not_served(what: str) -> None:
    node = StillNode()
    node.node._control_plane.active.write([SECRETS[what]])
    node.world.advance(1000)
    node.stop()
    with pytest.raises(AssertionError):
        node.restart()
    [why] = node.failures
    assert what in why
    assert "every client would have full access" in why


def test_what_is_kept_and_not_acted_on_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    node = StillNode()
    setting = ConfigRecord(
        resource_type=32, resource_name="g", name="consumer.session.timeout.ms", value="50000"
    )
    of_host = quota_record((("ip", "gateway.example"),), "connection_creation_rate", 5.0)
    node.node._control_plane.active.write([setting, of_host])
    node.world.advance(1000)
    node.stop()
    node.restart()
    assert "1 groups with their own settings, which are kept but not enforced yet" in caplog.text
    assert "quotas of 1 host names, gateway.example among them" in caplog.text
