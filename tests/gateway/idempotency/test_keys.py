"""A record that is sent again with its idempotency key gets the place of the first, whatever happened in between."""

import errno
import logging
from datetime import timedelta

import pytest
from tests.gateway.producing_world import TOPIC, WEEK_MS, Desk

from penstock.base.errors import ErrorCode
from penstock.gateway.idempotency import HEADER, keys, log_reading, topic_keys
from penstock.gateway.shared.producer import NewRecord, RecordPosition
from penstock.records import Codec, build_batch
from penstock.replica import ALL_IN_SYNC
from penstock.vfs import MemoryDisk, read_file
from penstock.vfs.faulty import FaultyDisk
from penstock.wire import Api, request_module


def produce_from_outside(desk: Desk, *records: bytes, codec: Codec = Codec.NONE, number: int = 0) -> None:
    """As a Kafka client does."""
    batch = build_batch([(b"k", each, desk.world.now_ms()) for each in records], codec=codec)
    desk.partition(number).stage(memoryview(bytearray(batch)), ALL_IN_SYNC, desk.world.now_ms())
    desk.world.advance(10)


def key_files(desk: Desk) -> list[str]:
    directory = desk.keys().files.directory
    return [each.name for each in desk.node.disk.list_dir(directory) if each.name.endswith(".keys")]


# -- the same key again --------------------------------------------------------------------------------


def test_the_same_key_gets_the_first_place_and_nothing_is_written() -> None:
    desk = Desk()
    first = desk.produce(b"one", idempotency_key="i")
    assert [desk.produce(b"again", idempotency_key="i") for _ in range(3)] == [first] * 3
    assert desk.records_with("i") == [(first.partition, first.offset)]


def test_on_another_topic_it_is_another_key() -> None:
    desk = Desk()
    first = desk.produce(idempotency_key="i", topic="a", partition=0)
    assert desk.produce(idempotency_key="i", topic="b", partition=1) == (1, 0)
    assert desk.produce(idempotency_key="i", topic="a", partition=2) == first


def test_twice_in_one_call_it_is_one_record() -> None:
    desk = Desk()
    record = NewRecord(TOPIC, None, b"v", idempotency_key="i")
    first, second, other = desk.produce_all(record, record, record._replace(idempotency_key="j"))
    assert first == second != other
    assert desk.records_with("i") == [(first.partition, first.offset)]


def test_requests_during_the_first_write_wait_for_it() -> None:
    desk = Desk()
    desk.produce(idempotency_key="warm")
    first = desk.begin(idempotency_key="i")
    second = desk.begin(idempotency_key="i")
    assert not second.is_settled
    assert desk.outcome(first) == desk.outcome(second)
    assert len(desk.records_with("i")) == 1


def test_requests_before_the_topic_exists_wait_for_it() -> None:
    desk = Desk()
    laters = [desk.begin(idempotency_key="i") for _ in range(5)]
    outcomes = [desk.outcome(each) for each in laters]
    assert outcomes == outcomes[:1] * 5
    assert isinstance(outcomes[0], RecordPosition)
    assert len(desk.records_with("i")) == 1


def test_when_the_first_fails_they_all_do_and_the_next_writes_it() -> None:
    disk = FaultyDisk(MemoryDisk())
    desk = Desk(disk)
    desk.produce(idempotency_key="warm", partition=0)
    disk.fail("write", path="*.log", error=errno.ENOSPC)
    laters = [desk.begin(idempotency_key="i", partition=0) for _ in range(3)]
    for later in laters:
        assert desk.error(later).code is ErrorCode.KAFKA_STORAGE_ERROR
    disk.clear()
    assert desk.produce(idempotency_key="i", partition=0) == (0, 1)
    assert desk.records_with("i") == [(0, 1)]


def test_one_that_was_written_but_not_synced_is_not_written_again() -> None:
    """The client was told of a failure; the record is in the log all the same."""
    disk = FaultyDisk(MemoryDisk())
    desk = Desk(disk)
    desk.produce(idempotency_key="warm", partition=0)
    disk.fail("sync", path="*.log", times=1)
    assert desk.refusal(idempotency_key="i", partition=0) is ErrorCode.KAFKA_STORAGE_ERROR
    assert desk.produce(idempotency_key="i", partition=0) == (0, 1)
    assert desk.partition().log.flushed == 2, "and now it is durable"
    assert desk.records_with("i") == [(0, 1)]


def test_after_its_time_a_key_is_new_again() -> None:
    desk = Desk(idempotency_retention_ms="10000", log_retention_check_interval_ms="3600000")
    first = desk.produce(idempotency_key="i", partition=0)
    desk.world.advance(9000)
    assert desk.produce(idempotency_key="i", partition=0) == first
    desk.world.advance(2000)
    second = desk.produce(idempotency_key="i", partition=0)
    assert second.offset == first.offset + 1
    assert desk.produce(idempotency_key="i", partition=0) == second
    desk.kill()
    assert desk.produce(idempotency_key="i", partition=0) == second
    desk.save_keys()
    desk.kill()
    assert desk.produce(idempotency_key="i", partition=0).offset == 2, "which is later still"


def test_how_long_keys_are_kept_may_change_while_the_node_runs() -> None:
    desk = Desk()
    desk.produce(idempotency_key="i", partition=0)
    desk.world.advance(2000)
    module = request_module(Api.INCREMENTAL_ALTER_CONFIGS, 1)
    change = module.AlterableConfig(name="idempotency.retention.ms", config_operation=0, value="1000")
    broker = module.AlterConfigsResource(resource_type=4, resource_name="", configs=(change,))
    desk.node.client().call(Api.INCREMENTAL_ALTER_CONFIGS, 1, resources=(broker,), validate_only=False)
    assert desk.produce(idempotency_key="i", partition=0) == (0, 1)


def test_keys_are_kept_for_a_week() -> None:
    desk = Desk(log_retention_check_interval_ms=str(WEEK_MS))
    first = desk.produce(idempotency_key="i")
    desk.save_keys()
    desk.world._now_ms += WEEK_MS - 200_000
    assert desk.produce(idempotency_key="i") == first
    desk.world._now_ms += 200_000
    assert desk.produce(idempotency_key="i") != first


# -- after a crash -------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_saved", [False, True])
@pytest.mark.parametrize("end", ["kill", "restart", "cut_power"])
def test_keys_outlive_the_node(end: str, is_saved: bool) -> None:
    desk = Desk()
    places = {f"i{n}": desk.produce(b"%d" % n, idempotency_key=f"i{n}") for n in range(20)}
    if is_saved:
        desk.save_keys()
        places |= {f"j{n}": desk.produce(b"%d" % n, idempotency_key=f"j{n}") for n in range(5)}
    desk.cut_power(1) if end == "cut_power" else getattr(desk, end)()
    assert {key: desk.produce(idempotency_key=key) for key in places} == places
    assert sum(len(desk.records(number)) for number in range(3)) == len(places)


def test_one_that_a_killed_node_left_unsynced_is_answered_when_it_is_synced() -> None:
    desk = Desk()
    desk.produce(idempotency_key="warm", partition=0)
    later = desk.begin(idempotency_key="i", partition=0)
    desk.world.run_until(lambda: desk.partition().log.log_end == 2)
    assert not later.is_settled
    desk.kill()
    assert desk.partition().log.flushed < 2
    assert desk.produce(idempotency_key="i", partition=0) == (0, 1)
    assert desk.partition().log.flushed == 2


def test_a_start_reads_what_is_not_saved_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    for number in range(50):
        desk.produce(b"x" * 100, idempotency_key=f"i{number}", partition=0)
    desk.save_keys()
    desk.produce(idempotency_key="last", partition=0)
    desk.kill()
    read: list[tuple[int, int]] = []
    find_keys = log_reading.find_keys
    monkeypatch.setattr(
        log_reading,
        "find_keys",
        lambda log, start, end: read.append((start, end)) or find_keys(log, start, end),
    )
    assert desk.produce(idempotency_key="last", partition=0) == (0, 50)
    assert read == [(50, 51)]


def test_a_long_log_is_read_in_portions_and_memory_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    places = {f"i{n}": desk.produce(b"x" * 100, idempotency_key=f"i{n}", partition=0) for n in range(60)}
    desk.kill()
    monkeypatch.setattr("penstock.gateway.idempotency.log_reading.PORTION_BYTES", 1000)
    monkeypatch.setattr(topic_keys, "RECENT_MAX", 10)
    assert desk.produce(idempotency_key="i0", partition=0) == places["i0"]
    assert len(desk.keys().recent) < 20
    assert key_files(desk)
    assert {key: desk.produce(idempotency_key=key) for key in places} == places


def test_a_topic_that_never_had_a_key_costs_nothing() -> None:
    desk = Desk()
    desk.produce()
    desk.save_keys()
    assert desk.node.disk.stat("/data/meta/idempotency") is None
    desk.kill()
    assert desk.node.node._keys is None


def test_what_was_there_before_the_first_key_is_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    for _ in range(20):
        desk.produce(b"x" * 100, partition=0)
    desk.produce(idempotency_key="i", partition=0)
    desk.kill()
    starts: list[int] = []
    find_keys = log_reading.find_keys
    monkeypatch.setattr(
        log_reading, "find_keys", lambda log, start, end: starts.append(start) or find_keys(log, start, end)
    )
    assert desk.produce(idempotency_key="i", partition=0) == (0, 20)
    assert starts == [20]


@pytest.mark.parametrize("compression", ["producer", "zstd", "gzip"])
def test_keys_are_found_among_whatever_kafka_clients_write(compression: str) -> None:
    desk = Desk()
    desk.node.create_topic(TOPIC, 1, compression_type=compression)
    for number, codec in enumerate((Codec.NONE, Codec.ZSTD, Codec.SNAPPY)):
        produce_from_outside(desk, b"a" * 500, b"b" * 500, codec=codec)
        desk.produce(b"mine", b"k", idempotency_key=f"i{number}")
    desk.kill()
    assert [desk.produce(idempotency_key=f"i{n}") for n in range(3)] == [(0, 2), (0, 5), (0, 8)]


# -- what the log lets go ------------------------------------------------------------------------------


def test_keys_outlive_the_segments_that_retention_deletes() -> None:
    desk = Desk(log_retention_check_interval_ms="1000")
    desk.node.create_topic(TOPIC, 1, segment_bytes="1000", retention_ms="20000", file_delete_delay_ms="0")
    places = {f"i{n}": desk.produce(b"x" * 200, idempotency_key=f"i{n}") for n in range(20)}
    desk.world.advance(60_000)
    assert desk.partition().log.log_start == 20
    assert {key: desk.produce(idempotency_key=key) for key in places} == places
    desk.kill()
    assert desk.partition().log.first_kept == 20, "nothing is left to read them from"
    assert {key: desk.produce(idempotency_key=key) for key in places} == places


def test_nothing_is_deleted_before_its_keys_are_saved_even_if_nobody_asks_for_them() -> None:
    desk = Desk(log_retention_check_interval_ms="1000")
    desk.node.create_topic(TOPIC, 1, segment_bytes="1000", retention_ms="20000", file_delete_delay_ms="0")
    places = {f"i{n}": desk.produce(b"x" * 200, idempotency_key=f"i{n}") for n in range(20)}
    desk.kill()  # before anything was saved, and now nothing is known to be synced
    desk.world.advance(70_000)
    assert desk.partition().log.log_start == 20
    desk.kill()
    assert {key: desk.produce(idempotency_key=key) for key in places} == places


def test_they_are_saved_by_a_node_without_doors() -> None:
    desk = Desk(log_retention_check_interval_ms="1000")
    desk.node.create_topic(TOPIC, 1, segment_bytes="1000", retention_ms="20000", file_delete_delay_ms="0")
    places = {f"i{n}": desk.produce(b"x" * 200, idempotency_key=f"i{n}") for n in range(20)}
    desk.node.crash()
    assert "gateway" not in vars(desk.node.node)
    desk.node.world.advance(70_000)
    assert desk.partition().log.log_start == 20
    assert "gateway" not in vars(desk.node.node)
    desk.kill()
    assert {key: desk.produce(idempotency_key=key) for key in places} == places


def delete_records(desk: Desk, offset: int) -> None:
    module = request_module(Api.DELETE_RECORDS, 2)
    partition = module.DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = module.DeleteRecordsTopic(name=TOPIC, partitions=(partition,))
    reply = desk.node.client().call(Api.DELETE_RECORDS, 2, topics=(topic,), timeout=timedelta(seconds=5))
    assert reply.topics[0].partitions[0].error_code.value == 0


@pytest.mark.parametrize("is_removed", [False, True])
def test_keys_outlive_delete_records(is_removed: bool) -> None:
    desk = Desk(log_retention_check_interval_ms="1000" if is_removed else "100000000")
    desk.node.create_topic(TOPIC, 1, segment_bytes="1000", file_delete_delay_ms="0")
    places = {f"i{n}": desk.produce(b"x" * 200, idempotency_key=f"i{n}") for n in range(20)}
    delete_records(desk, 20)
    if is_removed:
        desk.world.advance(10_000)
    desk.kill()
    assert (desk.partition().log.first_kept > 0) is is_removed
    assert desk.partition().log.log_start == 20
    assert {key: desk.produce(idempotency_key=key) for key in places} == places


def test_keys_outlive_compaction() -> None:
    desk = Desk(log_cleaner_backoff_ms="1000")
    desk.node.create_topic(
        TOPIC, 1, segment_bytes="1000", cleanup_policy="compact", min_cleanable_dirty_ratio="0"
    )
    places = {f"i{n}": desk.produce(b"x" * 200, b"one key", idempotency_key=f"i{n}") for n in range(20)}
    desk.world.advance(30_000)
    assert len(desk.records()) < 10
    assert {key: desk.produce(key=b"k", idempotency_key=key) for key in places} == places
    desk.kill()
    assert {key: desk.produce(key=b"k", idempotency_key=key) for key in places} == places
    assert len(desk.records()) < 10


def test_nothing_is_compacted_before_its_keys_are_saved() -> None:
    disk = FaultyDisk(MemoryDisk())
    desk = Desk(disk, log_cleaner_backoff_ms="100000")
    desk.node.create_topic(
        TOPIC, 1, segment_bytes="1000", cleanup_policy="compact", min_cleanable_dirty_ratio="0"
    )
    for number in range(20):
        desk.produce(b"x" * 200, b"one key", idempotency_key=f"i{number}")
    log = desk.partition().log
    housekeeping = desk.node.node._housekeeping
    assert housekeeping._cleanable(desk.log_name()) == 0
    desk.world.advance(100)
    assert housekeeping._cleanable(desk.log_name()) == log.segments.active.base_offset


def test_a_disk_that_takes_no_keys_does_not_hold_the_log_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    """A full disk must be able to become empty."""
    disk = FaultyDisk(MemoryDisk())
    desk = Desk(disk, log_retention_check_interval_ms="1000")
    desk.node.create_topic(TOPIC, 1, segment_bytes="1000", retention_ms="20000", file_delete_delay_ms="0")
    for number in range(20):
        desk.produce(b"x" * 200, idempotency_key=f"i{number}")
    disk.fail("write", path="*/idempotency/*", error=errno.ENOSPC)
    with caplog.at_level(logging.ERROR):
        desk.world.advance(60_000)
    assert desk.partition().log.log_start == 20
    assert "whose idempotency keys could not be saved" in caplog.text
    assert desk.produce(idempotency_key="i0") == (0, 0), "while the node lives, it knows"


# -- topics that change --------------------------------------------------------------------------------


def add_partitions(desk: Desk, count: int) -> None:
    module = request_module(Api.CREATE_PARTITIONS, 3)
    topic = module.CreatePartitionsTopic(name=TOPIC, count=count, assignments=None)
    reply = desk.node.client().call(
        Api.CREATE_PARTITIONS, 3, topics=(topic,), timeout=timedelta(seconds=5), validate_only=False
    )
    assert reply.results[0].error_code.value == 0


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_retry_meets_the_first_although_partitions_were_added(is_killed: bool) -> None:
    desk = Desk()
    places = {f"i{n}": desk.produce(idempotency_key=f"i{n}") for n in range(20)}
    add_partitions(desk, 7)
    if is_killed:
        desk.kill()
    assert {key: desk.produce(idempotency_key=key) for key in places} == places
    more = {f"j{n}": desk.produce(idempotency_key=f"j{n}") for n in range(20)}
    assert {each.partition for each in more.values()} - {0, 1, 2}
    desk.save_keys()
    desk.kill()
    everything = places | more
    assert {key: desk.produce(idempotency_key=key) for key in everything} == everything


def delete_topic(desk: Desk) -> None:
    reply = desk.node.client().call(Api.DELETE_TOPICS, 5, topic_names=(TOPIC,), timeout=timedelta(seconds=5))
    assert reply.responses[0].error_code.value == 0


def test_a_topic_that_is_made_again_has_no_keys() -> None:
    desk = Desk()
    for number in range(5):
        desk.produce(idempotency_key=f"i{number}", partition=0)
    desk.save_keys()
    old = desk.keys().files.directory
    delete_topic(desk)
    assert desk.produce(idempotency_key="i4", partition=0) == (0, 0)
    assert desk.produce(idempotency_key="i4", partition=1) == (0, 0)
    desk.save_keys()
    assert desk.node.disk.stat(old) is None, "what was kept for the old one is gone"
    desk.kill()
    assert desk.produce(idempotency_key="i4", partition=1) == (0, 0)


def test_keys_of_a_topic_that_was_deleted_go_at_the_next_life_too(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    desk.produce(idempotency_key="i")
    desk.save_keys()
    old = desk.keys().files.directory
    delete_topic(desk)
    with caplog.at_level(logging.WARNING):
        desk.kill()
        desk.save_keys()
    assert desk.node.disk.stat(old) is None
    assert "idempotency" not in caplog.text


# -- files that are not what they were -----------------------------------------------------------------


def saved_desk(count: int = 20) -> tuple[Desk, dict[str, RecordPosition], str]:
    desk = Desk()
    places = {f"i{n}": desk.produce(idempotency_key=f"i{n}") for n in range(count)}
    desk.save_keys()
    return desk, places, desk.keys().files.directory


def damage(desk: Desk, path: str, at: int) -> None:
    file = desk.node.disk.open(path, write=True)
    file.pwrite([bytes([file.pread(1, at)[0] ^ 0xFF])], at)


@pytest.mark.parametrize("at", [0, 20, 4096, 5000])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_damaged_key_file_is_made_anew_from_the_log(
    at: int, is_restarted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    desk, places, directory = saved_desk()
    damage(desk, f"{directory}/{key_files(desk)[0]}", at)
    if is_restarted:
        desk.kill()
    else:
        for file in desk.keys().files.opened:
            file.forget()
    with caplog.at_level(logging.ERROR):
        error = desk.error(desk.begin(idempotency_key="i3"))
    assert error.code is ErrorCode.KAFKA_STORAGE_ERROR, "the client tries again"
    assert "from its log instead" in caplog.text
    assert {key: desk.produce(idempotency_key=key) for key in places} == places
    desk.save_keys()
    desk.kill()
    assert {key: desk.produce(idempotency_key=key) for key in places} == places


@pytest.mark.parametrize("how", ["damaged", "gone", "empty"])
def test_a_lost_manifest_is_made_anew(how: str, caplog: pytest.LogCaptureFixture) -> None:
    desk, places, directory = saved_desk()
    path = f"{directory}/keys.json"
    if how == "damaged":
        damage(desk, path, 40)
    elif how == "gone":
        desk.node.disk.remove(path)
    else:
        desk.node.disk.open(path, write=True).truncate(0)
    with caplog.at_level(logging.WARNING):
        desk.kill()
    assert "reading the whole log for idempotency keys" in caplog.text
    assert {key: desk.produce(idempotency_key=key) for key in places} == places


def test_with_a_lost_manifest_keys_that_only_files_have_are_not_lost() -> None:
    desk = Desk(log_retention_check_interval_ms="1000")
    desk.node.create_topic(TOPIC, 1, segment_bytes="1000", retention_ms="20000", file_delete_delay_ms="0")
    places = {f"i{n}": desk.produce(b"x" * 200, idempotency_key=f"i{n}") for n in range(20)}
    desk.world.advance(60_000)
    assert desk.partition().log.log_start == 20
    desk.node.disk.remove(f"{desk.keys().files.directory}/keys.json")
    desk.kill()
    assert {key: desk.produce(idempotency_key=key) for key in places} == places


def test_keys_of_records_that_the_log_lost_do_not_count(caplog: pytest.LogCaptureFixture) -> None:
    """A disk may lose what it has synced, and somebody may cut a file: the log is the truth."""
    desk = Desk()
    places = {f"i{n}": desk.produce(idempotency_key=f"i{n}", partition=0) for n in range(20)}
    desk.save_keys()
    log = desk.partition().log
    spot = log.segments.active.find(10)
    assert spot is not None
    path = log.segments.active.ref.path
    desk.world.stop()
    desk.node.disk.open(path, write=True).truncate(spot.position)
    with caplog.at_level(logging.WARNING):
        desk.kill()
    assert "lost records that had idempotency keys" in caplog.text
    assert desk.partition().log.log_end == 10
    for _ in range(15):  # others take their offsets
        produce_from_outside(desk, b"x")
    assert {k: desk.produce(idempotency_key=k, partition=0) for k in list(places)[:10]} == dict(
        list(places.items())[:10]
    )
    assert desk.produce(idempotency_key="i15", partition=0) == (0, 25)
    desk.save_keys()
    desk.kill()
    assert desk.produce(idempotency_key="i15", partition=0) == (0, 25)
    assert desk.produce(idempotency_key="i16", partition=0) == (0, 26)


# -- bounds --------------------------------------------------------------------------------------------


def test_keys_in_memory_are_bounded_and_the_others_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_keys, "RECENT_MAX", 20)
    desk = Desk()
    places = {}
    for number in range(300):
        places[f"i{number}"] = desk.produce(idempotency_key=f"i{number}")
        assert len(desk.keys().recent) <= 40
    assert 1 <= len(key_files(desk)) <= 8, "files are merged"
    assert {key: desk.produce(idempotency_key=key) for key in places} == places
    desk.kill()
    assert {key: desk.produce(idempotency_key=key) for key in places} == places


def test_keys_of_all_topics_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "RECENT_TOTAL_MAX", 40)
    monkeypatch.setattr(keys, "TOTAL_CHECK", 5)
    desk = Desk()
    for number in range(200):
        desk.produce(idempotency_key=f"i{number}", topic=f"t{number % 7}")
        assert sum(len(desk.keys(f"t{n}").recent) for n in range(min(number + 1, 7))) <= 60


def test_a_disk_that_takes_no_keys_ends_with_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_keys, "RECENT_MAX", 5)
    monkeypatch.setattr(topic_keys, "RECENT_LIMIT", 30)
    disk = FaultyDisk(MemoryDisk())
    desk = Desk(disk)
    desk.produce(idempotency_key="warm")
    disk.fail("write", path="*/idempotency/*", error=errno.ENOSPC)
    for number in range(29):
        desk.produce(idempotency_key=f"i{number}")
    assert desk.refusal(idempotency_key="more") is ErrorCode.KAFKA_STORAGE_ERROR
    assert desk.produce(idempotency_key="i3"), "what is known is known"
    assert desk.produce(), "and who has no key does not mind"
    disk.clear()
    desk.save_keys()
    assert desk.produce(idempotency_key="more")


def test_what_a_crash_left_behind_is_swept_away() -> None:
    desk, places, directory = saved_desk()
    desk.node.disk.open(f"{directory}/0000000099.keys.tmp", write=True, create=True)
    desk.node.disk.open(f"{directory}/0000000098.keys", write=True, create=True)
    desk.kill()
    assert {key: desk.produce(idempotency_key=key) for key in places} == places
    assert {each.name for each in desk.node.disk.list_dir(directory)} == {"keys.json", *key_files(desk)}
    assert len(key_files(desk)) == 1


def test_the_manifest_says_what_is_covered() -> None:
    desk, _, directory = saved_desk()
    text = read_file(desk.node.disk, f"{directory}/keys.json").decode()
    assert f'"topic": "{TOPIC}"' in text
    assert '"covered"' in text
    assert HEADER not in text
