"""A data directory: whose it is, who may open it, and what ties its partitions together."""

from dataclasses import replace
from random import Random

import pytest
from tests.storage.world import (
    NOW_MS,
    SMALL,
    P,
    append,
    batches_of,
    check_log,
    files_of,
    make_batch,
    open_small,
    put,
)

from penstock.base.ids import TopicPartition
from penstock.base.settings import LogSettings
from penstock.records import build_batch
from penstock.storage import checkpoints as ck
from penstock.storage.checkpoints import MetaProperties, decode_offsets, encode_offsets
from penstock.storage.directory import LogDirectory, open_directory
from penstock.storage.errors import DirectoryRefused, StorageError
from penstock.storage.layout import layout_of
from penstock.vfs import FaultyDisk, MemoryDisk

OTHER = TopicPartition("orders", 1)


def open_as(disk: MemoryDisk, node_id: int, path: str = "/data") -> LogDirectory:
    return open_directory(disk, path, now_ms=NOW_MS, rng=Random(5), node_id=node_id)


# -- identity and locks -------------------------------------------------------------------------------


def test_a_new_directory_gets_ids_and_keeps_them() -> None:
    disk = MemoryDisk()
    first = open_as(disk, 3)
    first.close()
    again = open_directory(disk, "/data", now_ms=NOW_MS, rng=Random(77), node_id=9)
    assert again.identity == first.identity
    assert again.identity.node_id == 3
    assert files_of(disk)["/data/meta/broker.id"] == b"3\n"


def test_a_directory_of_two_minds_is_refused() -> None:
    disk = MemoryDisk()
    open_as(disk, 3).close()
    put(disk, "/data/meta/broker.id", b"4\n")
    with pytest.raises(DirectoryRefused, match=r"broker\.id has 4, but node\.id .* is 3"):
        open_as(disk, 3)
    put(disk, "/data/meta/broker.id", b"3\n")
    open_as(disk, 3)


def test_meta_properties_that_say_nothing_are_refused() -> None:
    disk = MemoryDisk()
    open_as(disk, 3).close()
    put(disk, "/data/logs/meta.properties", b"cluster.id=x\n")
    with pytest.raises(DirectoryRefused, match=r"meta\.properties: node\.id is '', expected a number"):
        open_as(disk, 3)


def test_only_one_process_opens_a_directory() -> None:
    disk = MemoryDisk()
    first = open_as(disk, 3)
    with pytest.raises(DirectoryRefused, match="in use by another process"):
        open_as(disk, 3)
    first.close()
    open_as(disk, 3)


def test_a_lock_that_kafka_holds_keeps_us_out_and_leaves_nothing_locked() -> None:
    disk = MemoryDisk()
    open_as(disk, 3).close()
    kafkas = disk.lock("/data/logs/.lock")
    with pytest.raises(DirectoryRefused, match=r"holds the lock /data/logs/\.lock"):
        open_as(disk, 3)
    kafkas.release()
    open_as(disk, 3)


def test_a_directory_with_meta_properties_at_its_top_is_kafkas() -> None:
    disk = MemoryDisk()
    disk.make_dirs("/kafka-logs")
    put(disk, "/kafka-logs/meta.properties", MetaProperties("c", 8, "RElSRUNUT1JZIG9mIDggIQ").encode())
    assert layout_of(disk, "/kafka-logs/") == ("/kafka-logs", "/kafka-logs.meta")
    directory = open_as(disk, 1, "/kafka-logs")
    directory.create(P, now_ms=NOW_MS)
    directory.close()
    assert directory.identity.node_id == 8
    assert "/kafka-logs.meta/checkpoint.json" in files_of(disk, "/kafka-logs.meta")
    assert "/kafka-logs/orders-0/00000000000000000000.log" in files_of(disk, "/kafka-logs")


def test_what_is_not_a_partition_is_left_alone() -> None:
    disk = MemoryDisk()
    open_small(disk).close()
    for name in ("lost+found", "__cluster_metadata-0", f"t-0.{'0' * 32}-stray", f"t-0.{'0' * 32}-future"):
        disk.make_dirs(f"/data/logs/{name}")
        put(disk, f"/data/logs/{name}/file", b"x")
    directory = open_small(disk)
    assert directory.logs == {}
    directory.close()
    assert sum(name.endswith("/file") for name in files_of(disk)) == 4


# -- stopping and starting ----------------------------------------------------------------------------


def test_a_clean_stop_leaves_kafkas_files() -> None:
    disk = MemoryDisk()
    directory = open_small(disk)
    log = directory.create(P, now_ms=NOW_MS, topic_id=bytes(range(16)))
    append(log, make_batch(5))
    log.advance_start(2)
    directory.checkpoints.high_watermarks[P] = 4
    directory.close()
    files = files_of(disk)
    assert files["/data/logs/.kafka_cleanshutdown"] == b'{"version":0,"brokerEpoch":-1}'
    for name, offset in ((ck.RECOVERY_POINTS, 5), (ck.LOG_STARTS, 2), (ck.HIGH_WATERMARKS, 4)):
        assert decode_offsets(files[f"/data/logs/{name}"], name) == {P: offset}
    assert files["/data/logs/orders-0/leader-epoch-checkpoint"] == b"0\n1\n0 2\n"

    again = open_small(disk)
    assert "/data/logs/.kafka_cleanshutdown" not in files_of(disk), "from here on a crash is a crash"
    assert again.logs[P].topic_id == bytes(range(16))
    assert again.logs[P].log_start == 2
    assert again.checkpoints.high_watermarks == {P: 4}


def test_a_high_watermark_never_lies_past_the_log_end() -> None:
    disk = MemoryDisk()
    directory = open_small(disk)
    append(directory.create(P, now_ms=NOW_MS), make_batch(5))
    directory.checkpoints.high_watermarks[P] = 5
    directory.checkpoint()
    log = directory.logs[P]
    log.truncate(0)
    assert open_small(disk.kill_clone()).checkpoints.high_watermarks == {P: 0}


def test_of_two_recovery_points_the_lower_counts() -> None:
    """Whoever lowered one had a reason: Kafka's file and ours are written by different programs."""
    disk = MemoryDisk()
    directory = open_small(disk, replace(SMALL, segment_bytes=100_000))
    log = directory.create(P, now_ms=NOW_MS)
    whole = [append(log, make_batch(2)) for _ in range(5)]
    directory.checkpoint()
    clone = disk.kill_clone()
    assert P not in open_small(clone).reports, "nothing to scan"

    for kafkas, scanned in ((4, whole[2:]), (0, whole), (10, []), (99, [])):
        clone = disk.kill_clone()
        put(clone, f"/data/logs/{ck.RECOVERY_POINTS}", encode_offsets({P: kafkas}))
        reopened = open_small(clone)
        report = reopened.reports.get(P)
        assert (report.bytes_scanned if report else 0) == sum(map(len, scanned))
        check_log(reopened.logs[P], whole)


def test_a_clean_shutdown_file_decides_whatever_our_checkpoint_says() -> None:
    disk = MemoryDisk()
    directory = open_small(disk)
    log = directory.create(P, now_ms=NOW_MS)
    append(log, make_batch(2))
    directory.close()
    disk.remove("/data/logs/.kafka_cleanshutdown")
    assert open_small(disk).logs[P].log_end == 2


def test_a_failed_stop_is_not_a_clean_one() -> None:
    disk = MemoryDisk()
    faults = FaultyDisk(disk)
    directory = open_small(faults)
    append(directory.create(P, now_ms=NOW_MS), make_batch(2))
    faults.fail("sync", path="*.log", times=1)
    with pytest.raises(StorageError):
        directory.close()
    assert "/data/logs/.kafka_cleanshutdown" not in files_of(disk)
    open_small(disk)


# -- partitions come and go ---------------------------------------------------------------------------


def test_a_partition_is_made_once() -> None:
    directory = open_small(MemoryDisk())
    directory.create(P, now_ms=NOW_MS)
    with pytest.raises(StorageError, match="orders-0 already exists in /data/logs"):
        directory.create(P, now_ms=NOW_MS)


def test_a_deleted_partition_is_gone_for_good_and_its_files_later() -> None:
    disk = MemoryDisk()
    directory = open_small(disk)
    append(directory.create(P, now_ms=NOW_MS), make_batch(2))
    kept = append(directory.create(OTHER, now_ms=NOW_MS), make_batch(1))
    directory.checkpoint()
    directory.delete(P, Random(1))
    reopened = open_small(disk.crash_clone(Random(0)))
    assert list(reopened.logs) == [OTHER]
    assert batches_of(reopened.logs[OTHER]) == [kept]
    assert len(reopened.leftovers) == 1
    for removal in reopened.leftovers:
        removal.run()
    assert not [name for name in files_of(reopened.vfs) if "-delete" in name]


def test_a_new_partition_of_an_old_name_is_not_taken_for_the_old_one() -> None:
    """Its recovery point, log start and high watermark are its own, even if a crash kept the old files."""
    disk = MemoryDisk()
    directory = open_small(disk)
    log = directory.create(P, now_ms=NOW_MS)
    for _ in range(5):
        append(log, make_batch(10))
    log.advance_start(45)
    directory.checkpoints.high_watermarks[P] = 50
    directory.checkpoint()

    clones = []
    disk.on_sync = disk.on_change = lambda _: clones.append(disk.crash_clone(Random(len(clones))))
    directory.delete(P, Random(1))
    disk.on_sync = disk.on_change = None
    clones.append(disk)
    for clone in clones:
        again = open_small(clone.kill_clone())
        if P in again.logs:
            continue
        new = again.create(P, now_ms=NOW_MS)
        whole = [append(new, make_batch(2))]
        new.flush()
        once_more = open_small(again.vfs.crash_clone(Random(3)))
        assert once_more.logs[P].log_start == 0
        check_log(once_more.logs[P], whole)


def test_settings_are_asked_for_by_topic() -> None:
    asked = []

    def settings_of(topic: str) -> LogSettings:
        asked.append(topic)
        return SMALL

    disk = MemoryDisk()
    directory = open_directory(disk, "/data", now_ms=NOW_MS, rng=Random(0), settings_of=settings_of)
    directory.create(P, now_ms=NOW_MS)
    assert asked == ["orders"]


def test_a_lost_log_start_file_shows_no_deleted_record() -> None:
    """Kafka's file decides; where it is gone, the copy in ours of the last checkpoint does."""
    disk = MemoryDisk()
    directory = open_directory(disk, "/data", now_ms=1, rng=Random(1))
    log = directory.create(TopicPartition("t", 0), now_ms=1)
    for _ in range(10):
        log.append(build_batch([(b"k", b"v", 1)]), leader_epoch=0, now_ms=1)
    log.advance_start(4)
    directory.close()
    disk.remove("/data/logs/log-start-offset-checkpoint")

    reopened = open_directory(disk, "/data", now_ms=1, rng=Random(1))

    assert reopened.logs[TopicPartition("t", 0)].log_start == 4


# -- a cluster that is learnt later -----------------------------------------------------------------------


def open_new(disk: MemoryDisk) -> LogDirectory:
    return open_directory(disk, "/data", now_ms=NOW_MS, rng=Random(5), node_id=3, cluster_id="")


def test_a_new_directory_may_learn_its_cluster_later() -> None:
    disk = MemoryDisk()
    first = open_new(disk)
    assert first.identity.cluster_id == ""
    assert b"cluster.id" not in files_of(disk)["/data/logs/meta.properties"]
    first.abandon()
    again = open_new(disk)
    assert again.identity == first.identity, "its other ids are its own from the beginning"
    again.join_cluster("Q0xVU1RFUg")
    again.abandon()
    assert open_new(disk).identity == first.identity._replace(cluster_id="Q0xVU1RFUg")


def test_a_crash_between_meta_properties_and_their_copy_leaves_the_cluster_joined() -> None:
    disk = MemoryDisk()
    directory = open_new(disk)
    copy = files_of(disk)["/data/meta/identity.properties"]
    directory.join_cluster("Q0xVU1RFUg")
    directory.abandon()
    put(disk, "/data/meta/identity.properties", copy)
    again = open_new(disk)
    assert again.identity.cluster_id == "Q0xVU1RFUg"
    again.abandon()
    put(disk, "/data/logs/meta.properties", again.identity._replace(cluster_id="x").encode())
    with pytest.raises(DirectoryRefused, match=r"has cluster\.id 'x', expected 'Q0xVU1RFUg'"):
        open_new(disk)


# -- meta.properties that changed -------------------------------------------------------------------------


@pytest.mark.parametrize("place", range(0, 800, 7))
def test_a_flipped_bit_in_meta_properties_is_refused_with_a_sentence(place: int) -> None:
    """Each of its ids would be another's, and none has a checksum."""
    disk = MemoryDisk()
    first = open_as(disk, 3)
    first.close()
    data = bytearray(files_of(disk)["/data/logs/meta.properties"])
    at, bit = divmod(place % (8 * len(data)), 8)
    data[at] ^= 1 << bit
    put(disk, "/data/logs/meta.properties", bytes(data))
    try:
        found = open_as(disk, 3).identity
    except DirectoryRefused as error:
        said = str(error)
    else:
        assert found == first.identity, "what it says is the same"
        return
    assert "/data/logs/meta.properties" in said
    assert "/data/meta/identity.properties" in said


def test_meta_properties_that_vanished_are_not_made_up() -> None:
    disk = MemoryDisk()
    open_as(disk, 3).close()
    disk.remove("/data/logs/meta.properties")
    with pytest.raises(DirectoryRefused, match=r"meta\.properties is missing, .* restore it from the copy"):
        open_as(disk, 3)
    disk.remove("/data/meta/identity.properties")
    open_as(disk, 3)


def test_a_directory_of_a_kafka_that_knew_no_directory_ids_gets_one() -> None:
    disk = MemoryDisk()
    disk.make_dirs("/kafka-logs")
    put(disk, "/kafka-logs/meta.properties", b"#\nversion=1\nnode.id=8\ncluster.id=Q0xVU1RFUg\n")
    directory = open_as(disk, 1, "/kafka-logs")
    directory.close()
    assert len(directory.identity.directory_id) == 22
    assert open_as(disk, 1, "/kafka-logs").identity == directory.identity
