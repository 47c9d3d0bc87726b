"""Following a leader: what is copied, what is cut off, and what an error costs whom."""

import logging
from errno import EIO, ENOSPC
from random import Random
from typing import Any

import pytest
from tests.replica.fake_leader import (
    BROKER_EPOCH,
    FOLLOWER,
    LEADER,
    SMALL,
    WHY,
    Scene,
    append,
    bytes_of,
    topic_id,
)
from tests.worlds import START_MS

from penstock.base.errors import ErrorCode
from penstock.base.settings import LogSettings
from penstock.records import Codec, build_batch, end_txn_marker
from penstock.replica.delayed_operations import Durability
from penstock.replica.fetcher import ABANDON_MS, TRUNCATIONS_PER_TICK
from penstock.storage import Origin
from penstock.vfs import FaultyDisk, MemoryDisk
from penstock.wire import FetchPartition

E = ErrorCode


def asked(scene: Scene) -> list[FetchPartition]:
    """What was said of partitions, fetch after fetch."""
    return [each for fetch in scene.leader.fetches for topic in fetch.topics for each in topic.partitions]


# -- copying -------------------------------------------------------------------------------------------


def test_a_follower_has_the_leaders_batches_byte_for_byte() -> None:
    scene = Scene()
    led, partition = scene.both()
    for number in range(40):
        scene.leader.write(led, 1 + number % 3, fill=number, size=30 + 7 * number)
        if number % 5 == 0:
            scene.advance(3)
    scene.caught_up(led, partition)
    assert len(partition.log.segments) > 3
    assert partition.log.epochs.entries == led.log.epochs.entries


def test_a_wiped_disk_is_filled_from_the_leader_within_the_limits_of_an_answer() -> None:
    scene = Scene(settings={"replica.fetch.max.bytes": "3000"})
    led = scene.leader.lead()
    for number in range(60):
        scene.leader.write(led, fill=number, size=200)
    partition = scene.replica()
    scene.follow(partition)
    scene.caught_up(led, partition)
    assert len(scene.leader.fetches) > 5
    assert {each.partition_bytes_max for each in asked(scene)} == {3000}


def test_compressed_and_transactional_batches_are_not_touched_and_are_understood() -> None:
    scene = Scene()
    led, partition = scene.both()
    log = led.log

    def produce(data: bytes, origin: Origin = Origin.CLIENT) -> None:
        log.append(bytearray(data), leader_epoch=0, now_ms=START_MS, origin=origin)

    produce(build_batch([(b"k", b"v" * 300, START_MS)], codec=Codec.ZSTD))
    for producer in (7, 8):
        produce(
            build_batch(
                [(b"k", b"v", START_MS)],
                producer_id=producer,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )
        )
    produce(end_txn_marker(7, 0, False, 0, START_MS), Origin.COORDINATOR)
    led.high_watermark = log.log_end
    scene.caught_up(led, partition)
    copy = partition.log
    assert copy.last_stable == log.last_stable == 2
    assert copy.aborted(0, 10) == log.aborted(0, 10) != []
    assert copy.producers.by_id == log.producers.by_id


def test_what_the_leader_knows_of_the_follower_is_in_each_fetch() -> None:
    settings = {
        "replica.fetch.min.bytes": "5",
        "replica.fetch.wait.max.ms": "321",
        "replica.fetch.response.max.bytes": "54321",
        "replica.fetch.max.bytes": "4321",
    }
    scene = Scene(settings=settings)
    scene.both()
    scene.advance(10)
    fetch, then = scene.leader.fetches
    assert (fetch.replica_id, fetch.replica_epoch) == (FOLLOWER, BROKER_EPOCH)
    assert (fetch.max_wait_ms, fetch.min_bytes, fetch.max_bytes) == (0, 5, 54321)
    assert (then.max_wait_ms, then.min_bytes, then.max_bytes) == (321, 5, 54321)
    assert fetch.topics[0].topic == topic_id("orders")
    assert fetch.topics[0].partitions[0][:6] == (0, 0, 0, -1, 0, 4321)
    assert scene.leader.asked == [(LEADER, "replica")] * 2


def test_the_high_watermark_and_the_log_start_are_the_leaders_as_far_as_the_copy_goes() -> None:
    scene = Scene()
    led, partition = scene.both()
    for _ in range(10):
        scene.leader.write(led)
    led.high_watermark = 6
    scene.advance(50)
    assert (partition.log.log_end, partition.high_watermark) == (10, 6)
    led.log.advance_start(4)
    led.high_watermark = 10
    scene.advance(600)
    assert (partition.log.log_start, partition.high_watermark) == (4, 10)
    scene.advance(600)
    told = scene.leader.fetches[-1]
    assert all(not topic.partitions for topic in told.topics), "the leader knows"
    assert asked(scene)[-1].log_start_offset == 4


def test_an_idle_follower_asks_only_when_the_leader_lets_it_and_for_nothing_by_name() -> None:
    scene = Scene()
    pairs = [scene.both("orders", number) for number in range(300)]
    scene.advance(10)
    assert len(scene.leader.fetches) == 2
    scene.advance(5000)
    assert len(scene.leader.fetches) <= 12
    assert all(not fetch.topics and not fetch.forgotten for fetch in scene.leader.fetches[1:])

    led, partition = pairs[123]
    scene.leader.write(led)
    scene.caught_up(led, partition)
    scene.advance(10)
    (topic,) = scene.leader.fetches[-1].topics
    assert [each.partition for each in topic.partitions] == [123]
    assert scene.leader.in_flight_max == 1


def test_a_leader_without_room_for_a_session_is_told_everything_and_all_have_their_turn() -> None:
    scene = Scene(session_slots=0, settings={"replica.fetch.response.max.bytes": "500"})
    pairs = [scene.both("orders", number) for number in range(4)]
    for led, _ in pairs:
        for _ in range(20):
            append(led.log, 0, size=100)
        led.high_watermark = led.log.log_end
    scene.advance(20)
    ends = [partition.log.log_end for _, partition in pairs]
    assert min(ends) > 0, "one after the other, not one before the others"
    for led, partition in pairs:
        scene.caught_up(led, partition)


def test_each_leader_has_a_fetcher_and_a_new_leader_is_asked_from_then_on() -> None:
    scene = Scene()
    first, second = scene.replica("orders", 0), scene.replica("orders", 1)
    led = scene.leader.lead("orders", 0)
    scene.leader.lead("orders", 1)
    scene.follow(first, leader=5)
    scene.follow(second, leader=6)
    scene.advance(10)
    assert {broker for broker, _ in scene.leader.asked} == {5, 6}

    led.epoch = 1
    scene.follow(first, epoch=1, leader=6)
    scene.advance(600)
    scene.leader.asked.clear()
    scene.leader.write(led)
    scene.caught_up(led, first)
    scene.advance(600)
    assert {broker for broker, _ in scene.leader.asked} == {6}


def test_nothing_is_asked_for_what_is_led_by_nobody() -> None:
    scene = Scene()
    led, partition = scene.both()
    scene.advance(10)
    scene.follow(partition, epoch=1, leader=-1)
    scene.leader.fetches.clear()
    scene.leader.write(led)
    scene.advance(5000)
    assert scene.leader.fetches == []
    assert partition.log.log_end == 0


def test_the_same_leader_in_the_same_epoch_changes_nothing() -> None:
    scene = Scene()
    _, partition = scene.both()
    scene.advance(10)
    following = scene.fetchers.replica_of(partition)
    scene.fetchers.follow(partition)
    assert scene.fetchers.replica_of(partition) is following


# -- new partitions do not wait --------------------------------------------------------------------------


def test_a_new_partition_does_not_wait_for_the_answer_to_a_question_without_it() -> None:
    """When a leader dies, producers wait for the followers to be at the next one."""
    scene = Scene()
    scene.both("orders", 0)
    scene.advance(100)
    led = scene.leader.lead("orders", 1)
    scene.leader.write(led)
    partition = scene.replica("orders", 1)
    scene.follow(partition)
    scene.advance(ABANDON_MS + 3)
    assert partition.log.log_end == 1
    assert scene.leader.asked[-1][1] == "replica-2", "the first connection waits"
    assert len(scene.leader.sessions) == 1, "the session that was given up is over"


def test_a_request_that_opens_a_session_is_not_given_up() -> None:
    """A leader that received it after the next one would take its old fetch offsets for new ones."""
    scene = Scene()
    scene.leader.latency_ms = 500
    old, copy = scene.both("orders", 0)
    scene.advance(5)
    new, other = scene.both("orders", 1)
    scene.leader.write(new)
    scene.advance(10 * ABANDON_MS)
    assert [purpose for _, purpose in scene.leader.asked] == ["replica"]
    scene.leader.latency_ms = 1
    scene.caught_up(old, copy)
    scene.caught_up(new, other)


def test_an_answer_that_was_given_up_counts_for_nothing() -> None:
    scene = Scene()
    old, copy = scene.both("orders", 0)
    scene.advance(100)
    new, other = scene.both("orders", 1)
    scene.leader.write(new)
    scene.advance(ABANDON_MS + 5)
    for number in range(20):
        scene.leader.write(old, fill=number)
        scene.advance(1)
    scene.caught_up(old, copy)
    scene.caught_up(new, other)


def test_a_busy_leader_is_not_asked_twice_at_once() -> None:
    scene = Scene()
    led, partition = scene.both("orders", 0)
    for number in range(30):
        scene.leader.write(led, fill=number)
        if number == 10:
            scene.both("orders", 1)
        scene.advance(2)
    scene.caught_up(led, partition)
    assert scene.leader.in_flight_max == 1


def test_a_partition_that_always_fails_does_not_stop_the_others() -> None:
    scene = Scene()
    scene.both("orders", 0)
    bad, _ = scene.both("orders", 1)
    bad.error = E.KAFKA_STORAGE_ERROR
    scene.advance(5000)
    scene.leader.asked.clear()
    scene.advance(10_000)
    assert {purpose for _, purpose in scene.leader.asked} == {"replica"}


# -- errors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        E.NOT_LEADER_OR_FOLLOWER,
        E.UNKNOWN_TOPIC_ID,
        E.FENCED_LEADER_EPOCH,
        E.UNKNOWN_LEADER_EPOCH,
        E.KAFKA_STORAGE_ERROR,
        E.UNKNOWN_SERVER_ERROR,
        32_000,
    ],
)
def test_an_error_of_one_partition_costs_the_others_nothing(code: int) -> None:
    scene = Scene(settings={"replica.fetch.backoff.ms": "400"})
    bad, waiting = scene.both("orders", 0)
    good, partition = scene.both("orders", 1)
    bad.error = code
    scene.leader.write(bad)
    for number in range(50):
        scene.leader.write(good, fill=number)
        scene.advance(1)
    scene.caught_up(good, partition)
    assert waiting.log.log_end == 0
    scene.advance(2000)
    before = len(scene.leader.fetches)
    scene.advance(4000)
    assert len(scene.leader.fetches) - before <= 40, "it is not asked for without end"

    bad.error = 0
    scene.advance(2000)
    assert waiting.log.log_end == 1, "and is followed again when it is over"


def test_a_leader_that_has_not_heard_of_its_epoch_yet_is_asked_again_soon() -> None:
    scene = Scene()
    led, partition = scene.both()
    scene.advance(10)
    scene.follow(partition, epoch=1)
    scene.advance(60)
    led.epoch = 1
    scene.leader.write(led)
    scene.advance(200)
    assert partition.log.log_end == 1


def test_a_leader_that_is_gone_is_tried_again_sooner_at_first_and_then_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    scene = Scene()
    led, partition = scene.both()
    scene.advance(10)
    scene.leader.refusals = 1000
    scene.leader.write(led)
    scene.advance(200)
    soon = len(scene.leader.asked)
    assert soon >= 3
    scene.advance(20_000)
    assert 15 <= len(scene.leader.asked) - soon <= 24, "once in replica.fetch.backoff.ms"
    scene.leader.refusals = 0
    scene.leader.write(led)
    scene.advance(1100)
    assert partition.log.log_end == 2
    assert caplog.text.count("cannot fetch from broker 1") == 1
    assert "fetching from broker 1 works again" in caplog.text


def test_who_ends_the_rest_of_a_leader_and_is_gone_again_leaves_it_asked_for_the_others() -> None:
    """With `durability.fsync=always`, where a log is synced before it is asked for."""
    scene = Scene(durability=Durability.ALWAYS)
    led, partition = scene.both()
    other, gone = scene.both(name="gone")
    scene.leader.write(other)
    scene.advance(10)
    scene.fetchers.forget(gone)
    append(gone.log, 0)  # and nobody has synced it
    scene.leader.refusals = 1000
    scene.advance(20_000)
    scene.leader.write(led)
    scene.leader.refusals = 0
    scene.fetchers.follow(gone)
    scene.fetchers.forget(gone)
    scene.caught_up(led, partition)


def test_a_leader_that_is_silent_is_given_up_after_replica_socket_timeout_ms() -> None:
    scene = Scene(settings={"replica.socket.timeout.ms": "3000"})
    led, partition = scene.both()
    scene.leader.is_silent = True
    scene.advance(2900)
    before = len(scene.leader.asked)
    scene.leader.is_silent = False
    scene.leader.write(led)
    scene.advance(50)
    assert len(scene.leader.asked) == before
    scene.caught_up(led, partition)


@pytest.mark.parametrize("break_it", ["forgotten", "another epoch"])
def test_a_session_that_the_leader_does_not_know_is_opened_anew_at_once(break_it: str) -> None:
    scene = Scene()
    led, partition = scene.both()
    scene.advance(10)
    sessions = scene.leader.sessions
    if break_it == "forgotten":
        sessions.clear()
    else:
        next(iter(sessions.values())).epoch += 5
    scene.advance(600)
    assert [each.session_epoch for each in scene.leader.fetches[:4]] == [0, 1, 2, 0]
    scene.leader.write(led)
    scene.caught_up(led, partition)
    assert len(sessions) == 1


def test_a_corrupt_batch_is_not_taken_and_is_asked_for_again(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    led, partition = scene.both("orders", 0)
    good, other = scene.both("orders", 1)

    def flip(records: bytearray) -> None:
        if records:
            records[-3] ^= 1

    led.garble = flip
    scene.leader.write(led, 3)
    scene.advance(3000)
    assert partition.log.log_end == 0
    scene.leader.write(good)
    scene.caught_up(good, other)
    (line,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "orders-0 is not replicated for now" in line.getMessage()
    assert "CRC" in line.getMessage()
    led.garble = None
    scene.caught_up(led, partition)


def _set_epoch(records: bytearray) -> None:
    records[12:16] = (9).to_bytes(4, "big")


def _set_offset(records: bytearray) -> None:
    records[0:8] = (0).to_bytes(8, "big")


@pytest.mark.parametrize("garble", [_set_epoch, _set_offset])
def test_batches_that_the_leader_cannot_have_are_refused(garble: Any) -> None:
    """A later epoch than the leader's own, or an offset that the copy has already."""
    scene = Scene()
    led, partition = scene.both()
    scene.leader.write(led)
    scene.caught_up(led, partition)
    led.garble = garble
    scene.leader.write(led)
    scene.advance(500)
    assert partition.log.log_end == 1
    assert partition.log.epochs.latest == 0


def test_a_full_disk_stops_the_partition_until_there_is_room() -> None:
    disk = FaultyDisk(MemoryDisk())
    scene = Scene(disk=disk)
    led, partition = scene.both()
    scene.leader.write(led)
    scene.caught_up(led, partition)
    disk.fail("write", error=ENOSPC)
    scene.leader.write(led)
    scene.advance(2000)
    assert partition.log.log_end == 1
    disk.clear()
    scene.caught_up(led, partition)


# -- logs that part --------------------------------------------------------------------------------------


def diverged(scene: Scene) -> tuple[Any, Any]:
    """Both have epoch 0 up to 5; the leader went on with epoch 2, the follower with epoch 1."""
    led = scene.leader.lead()
    partition = scene.replica()
    for number in range(5):
        append(led.log, 0, fill=number)
        append(partition.log, 0, fill=number)
    for number in range(3):
        append(partition.log, 1, fill=100 + number)
    led.epoch = 2
    for number in range(2):
        append(led.log, 2, fill=200 + number)
    led.high_watermark = led.log.log_end
    partition.high_watermark = 5
    return led, partition


def test_what_the_leader_does_not_have_is_cut_off_and_the_rest_is_copied() -> None:
    scene = Scene()
    led, partition = diverged(scene)
    scene.follow(partition, epoch=2)
    scene.caught_up(led, partition)
    assert [tuple(each) for each in partition.log.epochs.entries] == [(0, 0), (2, 5)]
    assert partition.high_watermark == 7


@pytest.mark.parametrize(
    ("here", "there", "kept"),
    [
        ([(0, 5), (1, 3)], [(0, 7), (2, 2)], 5),  # the leader has more of the last common epoch
        ([(0, 7), (1, 3)], [(0, 5), (2, 2)], 5),  # and here there is more of it
        ([(0, 2), (1, 2), (3, 4)], [(0, 2), (2, 5), (4, 1)], 2),  # two epochs that only one of them has
        ([(1, 4)], [(2, 4)], 0),  # nothing in common
        ([(0, 4), (1, 2)], [(0, 4)], 4),  # a leader that has written nothing yet
    ],
)
def test_logs_are_cut_off_where_they_part(
    here: list[tuple[int, int]], there: list[tuple[int, int]], kept: int
) -> None:
    scene = Scene()
    led, partition = scene.leader.lead(epoch=9), scene.replica()
    for log, history in ((partition.log, here), (led.log, there)):
        for epoch, count in history:
            for number in range(count):
                append(log, epoch, fill=10 * epoch + number)
    led.log.begin_epoch(9)
    led.high_watermark = led.log.log_end
    ends = []
    truncate = partition.log.truncate
    partition.log.truncate = lambda offset: ends.append(truncate(offset)) or ends[-1]  # type: ignore[func-returns-value, method-assign]
    scene.follow(partition, epoch=9)
    scene.caught_up(led, partition)
    assert ends[-1] == kept, "no more is cut off than must be, and no less"
    assert [each.epoch for each in partition.log.epochs.entries] == [epoch for epoch, _ in there]


def test_a_truncation_survives_a_power_cut() -> None:
    disk = MemoryDisk()
    scene = Scene(disk=disk)
    led, partition = diverged(scene)
    partition.log.flush()
    scene.directory.checkpoint()
    scene.follow(partition, epoch=2)
    scene.caught_up(led, partition)
    for seed in range(10):
        after = Scene(disk=disk.crash_clone(Random(seed)))
        copy = after.replica()
        kept = bytes_of(copy.log)
        assert kept == bytes_of(led.log)[: len(kept)], "nothing of what was cut off is back"
        assert len(kept) >= 5, "nothing that was synced, and is the leader's, is lost"


def test_a_leader_that_wrote_nothing_in_its_epoch_follows_the_next_one() -> None:
    """It has an epoch that nobody else knows, and no record of it."""
    scene = Scene()
    led = scene.leader.lead()
    partition = scene.replica()
    for log in (led.log, partition.log):
        append(log, 0)
    partition.log.begin_epoch(4)
    led.epoch = 6
    led.log.begin_epoch(6)
    led.high_watermark = 1
    scene.follow(partition, epoch=6)
    scene.advance(20)
    assert partition.log.epochs.latest == 0
    scene.leader.write(led)
    scene.caught_up(led, partition)


def test_a_log_without_epochs_goes_back_to_its_high_watermark() -> None:
    scene = Scene()
    led = scene.leader.lead()
    partition = scene.replica()
    for number in range(4):
        append(led.log, 0, fill=number)
        append(partition.log, 0, fill=number if number < 2 else 99)
    partition.log.epochs.entries.clear()
    partition.high_watermark = 2
    led.high_watermark = 4
    scene.follow(partition)
    scene.caught_up(led, partition)


def test_an_unclean_leader_takes_committed_records_away_and_that_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    led, partition = diverged(scene)
    partition.high_watermark = 8
    scene.follow(partition, epoch=2)
    scene.caught_up(led, partition)
    assert "loses offsets 5 to 7, which were committed" in caplog.text


def test_many_logs_that_part_leave_the_loop_to_others_in_between() -> None:
    scene = Scene()
    pairs = []
    for number in range(30):
        led, partition = scene.leader.lead("orders", number, epoch=2), scene.replica("orders", number)
        append(led.log, 0)
        append(partition.log, 0)
        append(partition.log, 1)
        led.log.begin_epoch(2)
        led.high_watermark = 1
        pairs.append((led, partition))
        scene.follow(partition, epoch=2)
    left, most = 30, 0
    while left:
        scene.world.step()
        before, left = left, sum(partition.log.log_end == 2 for _, partition in pairs)
        most = max(most, before - left)
    assert most == TRUNCATIONS_PER_TICK
    for led, partition in pairs:
        scene.caught_up(led, partition)


# -- logs that do not meet -------------------------------------------------------------------------------


def test_a_follower_that_is_too_far_behind_begins_where_the_leader_does() -> None:
    scene = Scene()
    led = scene.leader.lead()
    partition = scene.replica()
    append(partition.log, 0)
    for number in range(40):
        append(led.log, 0, fill=number)
    led.log.advance_start(30)
    led.high_watermark = 40
    scene.follow(partition)
    scene.caught_up(led, partition)
    assert partition.log.log_start == 30


def test_what_a_former_leader_says_of_its_ends_counts_for_nothing() -> None:
    scene = Scene(latency_ms=10)
    led, partition = scene.leader.lead(), scene.replica()
    append(partition.log, 0, 3)
    for number in range(40):
        append(led.log, 0, fill=number)
    led.log.advance_start(30)
    scene.follow(partition)
    scene.world.run_until(lambda: "replica-ends" in [purpose for _, purpose in scene.leader.asked])
    scene.follow(partition, epoch=1, leader=-1)
    scene.advance(5000)
    assert (partition.log.log_start, partition.log.log_end) == (0, 3)


def test_a_leader_that_begins_inside_a_batch_gives_all_of_it() -> None:
    """DeleteRecords may end in the middle of one; Kafka's UnexpectedAppendOffsetException."""
    scene = Scene()
    led = scene.leader.lead()
    append(led.log, 0, 10)
    append(led.log, 0, 10, fill=3)
    led.log.advance_start(14)
    led.high_watermark = 20
    partition = scene.replica()
    scene.follow(partition)
    scene.advance(500)
    assert (partition.log.log_start, partition.log.log_end, partition.high_watermark) == (14, 20, 20)
    assert partition.log.read(14, 10_000) == led.log.read(14, 10_000)


def test_a_follower_that_is_ahead_of_a_leader_with_an_empty_log_is_emptied() -> None:
    """The leader lost its disk, and was elected all the same."""
    scene = Scene()
    led = scene.leader.lead(epoch=3)
    partition = scene.replica()
    for _ in range(4):
        append(partition.log, 0)
    led.log.begin_epoch(3)
    scene.follow(partition, epoch=3)
    scene.advance(200)
    assert partition.log.log_end == 0
    scene.leader.write(led)
    scene.caught_up(led, partition)


# -- syncing ---------------------------------------------------------------------------------------------


def test_with_durability_always_fetches_cover_only_what_is_on_disk() -> None:
    scene = Scene(durability=Durability.ALWAYS)
    led, partition = scene.both()
    for number in range(20):
        scene.leader.write(led, fill=number)
        scene.advance(1)
        assert asked(scene)[-1].fetch_offset <= partition.log.flushed
    scene.caught_up(led, partition)
    scene.advance(5)
    assert partition.log.flushed == 20


def test_with_durability_always_a_follower_that_cannot_sync_says_nothing_of_what_it_has() -> None:
    disk = FaultyDisk(MemoryDisk())
    scene = Scene(disk=disk, durability=Durability.ALWAYS)
    led, partition = scene.both()
    scene.advance(10)
    disk.fail("sync", error=EIO)
    scene.leader.write(led)
    scene.advance(3000)
    assert partition.log.log_end == 1
    assert {each.fetch_offset for each in asked(scene)} == {0}
    disk.clear()
    scene.advance(1500)
    assert partition.log.flushed == 1
    scene.advance(600)
    assert asked(scene)[-1].fetch_offset == 1


def test_otherwise_flush_messages_and_flush_ms_decide_when_a_copy_is_synced() -> None:
    settings = LogSettings(segment_bytes=SMALL.segment_bytes, flush_messages=5, flush_ms=10_000)
    scene = Scene(log_settings=settings)
    led, partition = scene.both()
    for number in range(4):
        scene.leader.write(led, fill=number)
    scene.caught_up(led, partition)
    assert partition.log.flushed == 0
    scene.leader.write(led)
    scene.advance(10)
    assert partition.log.flushed == 5
    scene.leader.write(led)
    scene.advance(9_000)
    assert partition.log.flushed == 5
    scene.advance(1_500)
    assert partition.log.flushed == 6


# -- throttling ------------------------------------------------------------------------------------------


def test_a_throttled_replica_is_copied_at_its_rate_and_others_at_theirs() -> None:
    scene = Scene(settings={"follower.replication.throttled.rate": "2000", "replica.fetch.max.bytes": "1000"})
    slow, throttled = scene.leader.lead("orders", 0), scene.replica("orders", 0)
    fast, free = scene.leader.lead("orders", 1), scene.replica("orders", 1)
    for number in range(100):
        for led in (slow, fast):
            append(led.log, 0, fill=number, size=100)
            led.high_watermark = led.log.log_end
    throttled.follow(LEADER, 0, WHY)
    scene.fetchers.follow(throttled, is_throttled=True)
    scene.follow(free)
    scene.caught_up(fast, free, ms_max=200)
    scene.advance(3000)
    copied = throttled.log.written_bytes
    assert 2000 * 3 <= copied <= 2000 * 6
    scene.fetchers.throttle_one(throttled, False)
    scene.caught_up(slow, throttled, ms_max=1500)


def test_a_throttled_replica_that_is_in_sync_is_not_held_back() -> None:
    scene = Scene(settings={"follower.replication.throttled.rate": "10"})
    led, partition = scene.leader.lead(), scene.replica()
    partition.follow(LEADER, 0, WHY)
    scene.fetchers.follow(partition, is_throttled=True)
    scene.advance(10)
    for number in range(20):
        scene.leader.write(led, fill=number)
        scene.caught_up(led, partition, ms_max=10)


def test_a_stopped_node_asks_for_nothing() -> None:
    scene = Scene()
    led, partition = scene.both()
    scene.advance(10)
    scene.fetchers.stop()
    scene.leader.write(led)
    before = len(scene.leader.asked)
    scene.advance(10_000)
    assert len(scene.leader.asked) == before
    assert partition.log.log_end == 0


def test_what_is_copied_counts_as_copied_and_not_as_written_here() -> None:
    scene = Scene()
    led, partition = scene.both()
    scene.leader.write(led)
    scene.caught_up(led, partition)
    assert partition.log.written_records == 1
    assert (partition.messages_in, partition.bytes_in) == (0, 0)
    assert partition.copied_bytes == scene.fetchers.copied_bytes == partition.log.written_bytes > 0


def test_failures_are_counted_those_of_a_leader_and_those_of_a_partition() -> None:
    scene = Scene(settings={"replica.socket.timeout.ms": "3000"})
    led, _ = scene.both()
    scene.advance(10)
    assert scene.fetchers.failures == 0
    led.error = int(ErrorCode.UNKNOWN_SERVER_ERROR)
    scene.leader.write(led)
    scene.advance(10)
    assert scene.fetchers.failures == 1
    assert [each.errors for each in scene.fetchers.replicas()] == [1]
    led.error = 0
    scene.advance(2000)
    assert [each.errors for each in scene.fetchers.replicas()] == [0]
    before = scene.fetchers.failures
    scene.leader.is_silent = True
    scene.advance(4000)
    assert scene.fetchers.failures == before + 1
