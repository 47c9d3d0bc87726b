"""The leader's side of replication: high watermark, ISR, and who is told. After Kafka's PartitionTest."""

import pytest
from tests.placing import placed
from tests.replica.leaders import LAG_MS, Led
from tests.worlds import START_MS

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.settings import LogSettings
from penstock.metadata.configs import BrokerSettings
from penstock.records import build_batch, end_txn_marker
from penstock.replica.delayed_operations import ALL_IN_SYNC, Durability
from penstock.replica.isr import JOINING_MS_MAX, FetchTime
from penstock.replica.isr_changes import RETRY_MS
from penstock.replica.partition import Partition
from penstock.replica.replicas import Replicas
from penstock.replica.sync_lane import SyncLane
from penstock.storage import Origin, open_directory
from penstock.vfs import MemoryDisk

GONE = KafkaError("led elsewhere", ErrorCode.NOT_LEADER_OR_FOLLOWER)


class Reader:
    """A consumer that waits, and a follower's tail."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def grew(self, bytes_more: int) -> None:
        self.heard.append("grew")

    def decided(self) -> None:
        self.heard.append("decided")

    def changed(self) -> None:
        self.heard.append("changed")

    def wrote(self, bytes_more: int) -> None:
        self.heard.append(f"wrote {bytes_more}")

    def moved(self) -> None:
        self.heard.append("moved")


# -- who leads -----------------------------------------------------------------------------------------


def test_a_leader_may_be_deposed_while_it_is_out_of_touch_with_the_controller() -> None:
    led = Led()
    assert not led.partition.may_be_deposed
    led.changes.has_lease = lambda: False
    assert led.partition.may_be_deposed
    led.partition.follow(2, 4, GONE)
    assert not led.partition.may_be_deposed, "it knows"


def test_the_only_replica_of_a_partition_cannot_be_deposed() -> None:
    led = Led((1,))
    led.changes.has_lease = lambda: False
    assert not led.partition.may_be_deposed


# -- the high watermark --------------------------------------------------------------------------------


def test_the_high_watermark_moves_to_what_the_isr_has() -> None:
    """The worked example: high watermark 100, log ends 105, 95 and 90."""
    led = Led(isr=(1, 2, 3), before=100)
    led.written(5)
    led.fetch(2, 95)
    led.fetch(3, 90)
    assert led.high_watermark == 100, "it does not go back for who is behind it"
    led.fetch(2, 105)
    assert led.high_watermark == 100, "one of the ISR does not have it yet"
    led.fetch(3, 104)
    assert led.high_watermark == 104
    led.fetch(3, 105)
    assert led.high_watermark == 105


def test_who_is_not_in_sync_does_not_hold_the_high_watermark_back() -> None:
    led = Led(isr=(1, 2), before=3)
    led.written(5)
    led.fetch(3, 1)
    led.fetch(2, 8)
    assert led.high_watermark == 8


def test_nothing_is_committed_before_a_new_leader_has_heard_of_its_isr() -> None:
    led = Led(before=3)
    led.partition.high_watermark = 1
    led.epoch = 4
    led.lead()
    assert led.high_watermark == 1
    led.fetch(2)
    assert led.high_watermark == 1
    led.fetch(3)
    assert led.high_watermark == 3


def test_the_only_replica_in_sync_commits_what_it_writes() -> None:
    led = Led(isr=(1,))
    led.written(5)
    assert led.high_watermark == 5


def test_a_follower_that_is_about_to_join_is_waited_for() -> None:
    """Partition.maybeIncrementLeaderHW: or a busy leader would always be ahead of it."""
    led = Led(replicas=(1, 2), isr=(1,))
    led.written(5)
    led.fetch(2, 5)
    led.decide(ErrorCode.INELIGIBLE_REPLICA)
    led.written(1)
    assert led.high_watermark == 5, "it was at the end just now"
    led.world.advance(LAG_MS + 2)
    led.written(1)
    assert led.high_watermark == 7, "that was too long ago"


def test_a_follower_that_is_about_to_join_is_waited_for_a_second_at_most() -> None:
    """Its disk may fail before it is in the ISR, and then it fetches no more."""
    led = Led(replicas=(1, 2), isr=(1,))
    led.changes.lag_ms_max = 30_000
    led.written(5)
    led.fetch(2, 5)
    led.decide(ErrorCode.INELIGIBLE_REPLICA)
    waiting = led.written(1)
    led.world.advance(JOINING_MS_MAX - 100)
    assert waiting.answers == []
    led.world.advance(300)
    assert waiting.answers == [None]


def test_a_follower_that_left_the_isr_is_not_waited_for_when_it_fetches_what_it_could_not_write() -> None:
    """It asks for what it asked for before it failed; that does not show that it was at the log end of late."""
    led = Led(replicas=(1, 2, 3))
    led.changes.lag_ms_max = 30_000
    led.written(5)
    led.fetch(2, 5)
    led.fetch(3, 5)
    led.lead(isr=(1, 3))
    led.written(5)
    led.fetch(3, 10)
    waiting = led.written(5)
    led.fetch(2, 5)
    led.fetch(3, 15)
    assert waiting.answers == [None]


def test_a_follower_that_may_not_join_is_not_waited_for() -> None:
    led = Led(replicas=(1, 2), isr=(1,))
    led.broker(2, fenced=True)
    led.written(5)
    led.fetch(2, 5)
    led.written(1)
    assert led.high_watermark == 6
    assert led.wishes == []


def test_nothing_is_committed_while_too_few_are_in_sync() -> None:
    """KIP-966: who is elected next need not have it."""
    led = Led(isr=(1,), min_isr=2)
    waiting = led.written(1, acks=1)
    assert waiting.answers == [None]
    assert led.high_watermark == 0
    assert led.partition.is_under_min_isr
    led.fetch(2)
    led.decide()
    assert led.high_watermark == 1
    assert not led.partition.is_under_min_isr


def test_a_partition_with_fewer_replicas_than_are_asked_for_needs_all_of_them() -> None:
    """Partition.effectiveMinIsr"""
    led = Led(replicas=(1, 2), min_isr=3)
    led.written(1, acks=1)
    led.fetch(2)
    assert led.high_watermark == 1


def test_fewer_replicas_may_do_from_now_on() -> None:
    led = Led(isr=(1,), min_isr=2)
    led.written(1, acks=1)
    led.partition.require(1)
    assert led.high_watermark == 1


def test_a_partition_that_loses_its_other_replicas_commits_what_it_has() -> None:
    led = Led()
    waiting = led.written(2)
    led.replicas = (1,)
    led.lead(isr=(1,))
    assert led.partition.isr is None
    assert led.high_watermark == 2
    led.world.advance(5)
    assert waiting.answers == [None]
    assert led.partition.log.flushed == 2


# -- the ISR grows -------------------------------------------------------------------------------------


def test_a_follower_that_has_all_that_is_committed_joins() -> None:
    led = Led(isr=(1, 2))
    led.written(5)
    led.fetch(2, 4)
    led.fetch(3, 3)
    assert led.wishes == []
    led.fetch(3, 4)
    assert led.wishes == [(1, 2, 3)]
    [(request, _)] = led.desk.asked
    assert (request.broker_id, request.broker_epoch) == (1, 101)
    assert request.changes[0].isr == ((1, 101), (2, 102), (3, 103))
    led.decide()
    assert led.partition.isr_size == 3
    assert (led.changes.expands, led.changes.shrinks) == (1, 0)


def test_a_follower_must_have_all_that_was_there_when_the_leader_began() -> None:
    """What the last leader has committed of it is not known here yet."""
    led = Led(isr=(1, 2), before=10)
    led.partition.high_watermark = 5
    led.epoch = 4
    led.lead()
    led.fetch(3, 9)
    assert led.wishes == []
    led.fetch(3, 10)
    assert led.wishes == [(1, 2, 3)]


@pytest.mark.parametrize("why", ["fenced", "another epoch", "unknown", "stopping"])
def test_who_may_not_be_in_sync_is_not_proposed(why: str) -> None:
    led = Led(isr=(1, 2))
    if why == "fenced":
        led.broker(3, fenced=True)
    elif why == "another epoch":
        led.broker(3, epoch=99)
    elif why == "unknown":
        led.image = type(led.image)()
    else:
        broker = led.image.brokers[3]
        object.__setattr__(broker, "in_controlled_shutdown", True)
    led.fetch(3)
    assert led.wishes == []


def test_a_follower_that_is_to_join_counts_before_it_has_joined() -> None:
    """KIP-497: the maximal ISR."""
    led = Led(isr=(1, 2))
    led.fetch(3)
    assert led.wishes == [(1, 2, 3)]
    led.written(1)
    led.world.advance(2 * LAG_MS)
    led.fetch(2)
    assert led.high_watermark == 0, "however long the controller takes"
    led.fetch(3)
    assert led.high_watermark == 1


def test_one_change_is_under_way_at_a_time() -> None:
    led = Led(isr=(1,))
    led.fetch(2)
    led.fetch(3)
    assert led.wishes == [(1, 2)]
    led.decide()
    led.fetch(3)
    assert led.wishes == [(1, 2, 3)]


# -- the ISR shrinks -----------------------------------------------------------------------------------


def test_a_follower_that_falls_behind_leaves() -> None:
    led = Led()
    led.fetch(2)
    led.fetch(3)
    led.written(1)
    led.world.advance(LAG_MS / 2)
    led.fetch(2)
    led.world.advance(LAG_MS)
    assert led.wishes == [(1, 2)]
    led.written(1)
    led.fetch(2)
    assert led.high_watermark == 0, "a wish does not commit anything"
    led.decide()
    assert led.high_watermark == 2
    assert led.partition.is_under_replicated
    assert (led.changes.expands, led.changes.shrinks) == (0, 1)


def test_a_follower_that_has_everything_stays_however_long_it_is_silent() -> None:
    led = Led()
    led.written(1)
    led.fetch(2)
    led.fetch(3)
    led.world.advance(10 * LAG_MS)
    assert led.wishes == []


def test_a_follower_that_never_came_leaves() -> None:
    led = Led()
    led.fetch(2)
    led.world.advance(2 * LAG_MS)
    assert led.wishes == [(1, 2)]


def test_a_follower_is_judged_by_when_it_was_at_the_end() -> None:
    """Replica.updateFetchState: a fetch of what was the end at the fetch before says that it was there then."""
    led = Led(replicas=(1, 2))
    led.fetch(2, 0)
    for _ in range(8):  # always a record behind, and never further
        led.written(1)
        end = led.partition.log.log_end
        led.fetch(2, end - 1)
        led.world.advance(LAG_MS / 2)
    assert led.wishes == []
    led.written(1)
    for _ in range(4):  # it fetches, and gets nowhere
        led.fetch(2, end)
        led.world.advance(LAG_MS / 2)
    assert led.wishes == [(1,)]


def test_who_was_seen_lately_has_its_time_from_then() -> None:
    """A follower at the end need not ask for a partition again; what counts is when it asked for anything."""
    led = Led(replicas=(1, 2))
    seen = FetchTime(led.changes.now_ms())
    led.partition.fetched_by(2, 102, 0, 0, seen.ms, seen)
    led.world.advance(10 * LAG_MS)
    seen.ms = led.changes.now_ms()
    led.written(1)
    led.world.advance(LAG_MS - 1)
    assert led.wishes == []
    led.world.advance(LAG_MS)
    assert led.wishes == [(1,)]


def test_that_holds_where_a_segment_is_full_and_the_turn_is_not() -> None:
    led = Led(replicas=(1, 2), settings=LogSettings(segment_bytes=1000))
    seen = FetchTime(led.changes.now_ms())
    led.partition.fetched_by(2, 102, 0, 0, seen.ms, seen)
    led.world.advance(10 * LAG_MS)
    seen.ms = led.changes.now_ms()
    for _ in range(30):
        led.produce(5)
    led.world.advance(LAG_MS - 1)
    assert len(led.partition.log.segments) > 1
    assert led.wishes == []


def test_a_leader_that_stood_still_does_not_blame_its_followers() -> None:
    led = Led()
    led.fetch(2)
    led.fetch(3)
    led.written(1)
    led.world.stall(10 * LAG_MS)
    assert led.wishes == []
    led.fetch(2)
    led.world.advance(LAG_MS)
    assert led.wishes == [(1, 2)]


def test_a_setting_says_how_long_a_follower_may_be_behind() -> None:
    led = Led()
    directory = open_directory(MemoryDisk(), "/data", now_ms=START_MS, rng=led.world.rng)
    settings = BrokerSettings(1, {"replica.lag.time.max.ms": "1234"})
    replicas = Replicas(
        led.world, directory, 1, settings, Durability.NEVER, led.world.call_soon, controller=led.desk
    )
    assert replicas.isr_changes is not None
    assert replicas.isr_changes.lag_ms_max == 1234


def test_a_former_leader_asks_for_nothing() -> None:
    led = Led()
    led.partition.follow(2, 4, GONE)
    led.world.advance(5 * LAG_MS)
    assert led.wishes == []


# -- the controller's word -----------------------------------------------------------------------------


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_refusal_that_leaves_all_as_it_was_is_the_end_of_a_wish(code: ErrorCode) -> None:
    led = Led(isr=(1, 2))
    led.fetch(3)
    led.decide(code)
    isr = led.partition.isr
    assert isr is not None
    assert (isr.pending, isr.maximal) == (None, {1, 2})
    led.fetch(3)
    assert led.wishes == [(1, 2, 3)]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_a_refusal_that_the_log_will_explain_leaves_the_wish_open(code: ErrorCode) -> None:
    led = Led(isr=(1, 2))
    led.fetch(3)
    led.decide(code)
    led.fetch(3)
    led.world.advance(10 * RETRY_MS)
    assert led.wishes == [], "nothing is asked for until the metadata log has spoken"
    led.written(1)
    led.fetch(2)
    assert led.high_watermark == 0, "it may have been granted"
    led.lead(isr=(1, 2))
    led.fetch(3)
    assert led.wishes == [(1, 2, 3)]


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_what_could_not_be_decided_is_asked_again(code: ErrorCode) -> None:
    led = Led(isr=(1, 2))
    led.fetch(3)
    led.decide(code)
    assert led.wishes == []
    led.world.advance(RETRY_MS)
    assert led.wishes == [(1, 2, 3)]


def test_a_refusal_of_everything_is_asked_again_unless_it_is_settled_by_then() -> None:
    led = Led(isr=(1, 2))
    led.fetch(3)
    led.world.advance(0)
    [(_, later)] = led.desk.asked
    led.desk.asked = []
    later.fail(KafkaError("stale", ErrorCode.STALE_BROKER_EPOCH))
    led.lead(isr=(1, 2, 3))
    led.world.advance(RETRY_MS)
    assert led.wishes == []
    assert led.partition.isr_size == 3


def test_an_answer_that_the_log_has_overtaken_is_not_looked_at() -> None:
    led = Led(isr=(1, 2))
    led.fetch(3)
    led.world.advance(0)
    led.lead(isr=(1,))
    led.partition_epoch -= 1
    led.decide()
    assert led.partition.isr_size == 1


def test_a_record_that_an_answer_has_overtaken_is_not_looked_at() -> None:
    led = Led(isr=(1, 2))
    led.fetch(3)
    led.decide()
    led.partition.lead(placed(3, replicas=(1, 2, 3), isr=(1, 2), partition_epoch=0), 1)
    assert led.partition.isr_size == 3
    led.lead()
    assert led.partition.isr_size == 3


def test_wishes_of_one_turn_are_one_request() -> None:
    led = Led(isr=(1, 2))
    led.fetch(3)
    led.fetch(2)
    led.world.advance(0)
    assert len(led.desk.asked) == 1


# -- producers -----------------------------------------------------------------------------------------


def test_acks_all_is_settled_when_the_isr_has_it() -> None:
    led = Led()
    first, second = led.written(2), led.written(1)
    quick = led.written(1, acks=1)
    assert (first.answers, second.answers, quick.answers) == ([], [], [None])
    led.fetch(2)
    led.fetch(3, 2)
    assert (first.answers, second.answers) == ([None], [])
    led.fetch(3)
    assert second.answers == [None]
    assert led.partition.log.flushed == 0, "two others have it"


def test_acks_all_with_too_few_in_sync_is_refused() -> None:
    led = Led(isr=(1,), min_isr=2)
    with pytest.raises(KafkaError) as caught:
        led.produce()
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_batch_with_too_few_replicas_when_it_is_synced_gets_an_error() -> None:
    led = Led(min_isr=2, durability=Durability.ALWAYS)
    waiting = led.written(1)
    led.fetch(2)
    led.fetch(3)
    assert led.high_watermark == 1
    assert waiting.answers == []
    led.lead(isr=(1,))
    led.world.advance(5)
    assert waiting.answers == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


def test_followers_that_take_too_long_are_not_waited_for() -> None:
    led = Led()
    hasty, patient = led.written(1, timeout_ms=150), led.written(1, timeout_ms=800)
    led.world.advance(300)
    assert (hasty.answers, patient.answers) == ([ErrorCode.REQUEST_TIMED_OUT], [])
    led.fetch(2)
    led.fetch(3)
    assert (hasty.answers, patient.answers) == ([ErrorCode.REQUEST_TIMED_OUT], [None])


def test_who_waits_for_followers_hears_of_the_next_leader() -> None:
    led = Led()
    waiting = led.written(1)
    led.partition.follow(2, 4, GONE)
    assert waiting.answers == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert (led.partition.is_leader, led.partition.leader_id, led.partition.leader_epoch) == (False, 2, 4)


def test_a_leader_that_is_alone_by_now_syncs_before_it_acknowledges() -> None:
    led = Led(replicas=(1, 2))
    waiting = led.written(1)
    led.world.beside_ms = 50
    led.broker(2, fenced=True)
    led.lead(isr=(1,))
    led.world.advance(10)
    assert led.high_watermark == 1
    assert waiting.answers == []
    led.world.advance(100)
    assert waiting.answers == [None]
    assert led.partition.log.flushed == 1


def test_a_leader_that_is_alone_by_now_syncs_what_others_vouched_for() -> None:
    led = Led(replicas=(1, 2))
    waiting = led.written(1)
    led.fetch(2)
    assert waiting.answers == [None]
    assert led.partition.log.flushed == 0
    led.lead(isr=(1,))
    led.world.advance(5)
    assert led.partition.log.flushed == 1


@pytest.mark.parametrize("acks", [1, ALL_IN_SYNC])
def test_flush_messages_is_waited_for_beside_followers(acks: int) -> None:
    led = Led(replicas=(1, 2), settings=LogSettings(flush_messages=1), durability=Durability.NEVER)
    waiting = led.written(1, acks=acks)
    led.fetch(2)
    assert waiting.answers == []
    led.world.advance(5)
    assert waiting.answers == [None]
    assert led.partition.log.flushed == 1


def test_always_syncs_while_followers_fetch() -> None:
    led = Led(replicas=(1, 2), durability=Durability.ALWAYS)
    waiting = led.written(1)
    led.world.advance(5)
    assert led.partition.log.flushed == 1
    assert waiting.answers == []
    led.fetch(2)
    assert waiting.answers == [None]


# -- readers -------------------------------------------------------------------------------------------


def test_followers_hear_of_what_is_written_and_readers_of_what_is_committed() -> None:
    led = Led(replicas=(1, 2))
    reader, tail = Reader(), Reader()
    led.partition.watch(reader)
    led.partition.tail(tail)
    led.written(1)
    assert reader.heard == []
    assert tail.heard == [f"wrote {led.partition.log.size_bytes}"]
    led.fetch(2)
    assert reader.heard == ["decided"]
    assert tail.heard[1:] == ["moved"]
    led.partition.delete_records(-1)
    assert (reader.heard[-1], tail.heard[-1]) == ("changed", "changed")
    led.partition.follow(2, 4, GONE)
    assert (reader.heard.count("changed"), tail.heard.count("changed")) == (2, 2)


def test_a_transaction_is_decided_for_readers_when_its_marker_is_committed() -> None:
    """The last stable offset never goes back: another leader may not have a marker that is not committed."""
    led = Led(replicas=(1, 2))
    batch = build_batch(
        [(None, b"v", START_MS)], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    led.written(1, acks=1)
    led.partition.stage(memoryview(bytearray(batch)), 1, START_MS)
    led.world.advance(0)
    led.fetch(2)
    assert (led.high_watermark, led.partition.last_stable) == (2, 1)
    led.written(1, acks=1)
    marker = end_txn_marker(7, 0, True, 0, START_MS)
    led.partition.stage(memoryview(bytearray(marker)), 1, START_MS, Origin.COORDINATOR)
    led.written(1, acks=1)
    assert led.partition.last_stable == 1
    led.fetch(2, 3)
    assert (led.high_watermark, led.partition.last_stable) == (3, 1)
    led.fetch(2, 4)
    assert led.partition.last_stable == 4


def test_a_marker_that_could_not_be_written_has_decided_nothing() -> None:
    led = Led(replicas=(1, 2))
    batch = build_batch(
        [(None, b"v", START_MS)], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    led.partition.stage(memoryview(bytearray(batch)), 1, START_MS)
    led.world.advance(0)
    led.fetch(2)
    led.disk.fail("write", path="*.log", times=1)
    marker = bytearray(end_txn_marker(7, 0, True, 0, START_MS))
    led.partition.stage(memoryview(marker), 1, START_MS, Origin.COORDINATOR)
    led.world.advance(5)
    assert led.partition.last_stable == 0
    led.partition.stage(memoryview(marker), 1, START_MS, Origin.COORDINATOR)
    led.world.advance(5)
    led.fetch(2)
    assert led.partition.last_stable == 2


# -- who may fetch -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("broker_id", "broker_epoch", "leader_epoch", "code"),
    [
        (2, 102, 3, None),
        (2, -1, 3, None),
        (4, 104, 3, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (4, 104, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (1, 101, 3, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (2, 101, 3, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_only_replicas_in_their_present_life_are_followers(
    broker_id: int, broker_epoch: int, leader_epoch: int, code: ErrorCode | None
) -> None:
    led = Led()
    if code is None:
        led.partition.check_follower(broker_id, broker_epoch, leader_epoch)
        return
    with pytest.raises(KafkaError) as caught:
        led.partition.check_follower(broker_id, broker_epoch, leader_epoch)
    assert caught.value.code is code


def test_followers_come_and_go_with_the_assignment() -> None:
    led = Led()
    led.replicas = (1, 3, 4)
    led.lead(isr=(1, 3))
    isr = led.partition.isr
    assert isr is not None
    assert list(isr.followers) == [3, 4]


# -- low watermark -------------------------------------------------------------------------------------


def one_follower_has_deleted() -> tuple[Led, list[object]]:
    """Records are deleted below 4, here and at one of two followers; and what who waits for the other has heard."""
    led = Led()
    led.written(5)
    for each in (2, 3):
        led.fetch(each)
    reached: list[object] = []
    led.partition.delete_records(4)
    led.partition.when_low(4, reached.append)
    led.fetch(2, log_start=4)
    return led, reached


def test_the_low_watermark_is_where_all_replicas_that_are_alive_begin() -> None:
    led, reached = one_follower_has_deleted()
    assert (led.partition.low_watermark, reached) == (0, [])
    led.fetch(3, log_start=4)
    assert (led.partition.low_watermark, reached) == (4, [None])


def test_a_replica_that_is_dead_is_not_waited_for() -> None:
    led, reached = one_follower_has_deleted()
    led.broker(3, fenced=True)
    led.lead(isr=(1, 2))
    assert reached == [None]


def test_who_waits_for_it_hears_of_the_next_leader() -> None:
    led = Led()
    reached: list[object] = []
    led.partition.when_low(4, reached.append)
    led.partition.follow(2, 4, GONE)
    assert reached == [GONE]


# -- following -----------------------------------------------------------------------------------------


def test_a_follower_takes_its_leaders_high_watermark_as_far_as_its_log_goes() -> None:
    led = Led(before=10)
    partition = led.partition
    partition.high_watermark = 2
    reader = Reader()
    partition.follow(2, 4, GONE)
    partition.watch(reader)
    partition.follow_high_watermark(7, 3)
    assert (partition.high_watermark, partition.log.log_start, reader.heard) == (7, 3, ["decided"])
    partition.follow_high_watermark(5, 3)
    assert partition.high_watermark == 7, "never back"
    partition.follow_high_watermark(50, 3)
    assert (partition.high_watermark, partition.leader_high_watermark) == (10, 50)


def test_a_former_life_left_its_high_watermark() -> None:
    led = Led(before=10)
    log = led.partition.log
    lane = SyncLane(led.world)
    for left, found in ((8, 8), (50, 10)):
        made = Partition(log, bytes(16), led.world, lane, Durability.NEVER, led.world.call_soon, None, left)
        assert made.high_watermark == found
