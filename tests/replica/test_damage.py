"""A replica whose disk changed what it holds: it leads no more, and copies that again once nobody counts on it."""

from typing import Any

import pytest
from tests.replica.fake_leader import LEADER, topic_id
from tests.replica.test_replicas import ME, OTHER, THIRD, Broker, created, moved

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.metadata.controller.requests import DAMAGED, AlterPartition, IsrChanged
from penstock.metadata.controller.requests import Result as Decided
from penstock.metadata.records import PartitionChangeRecord
from penstock.records import iter_batches
from penstock.storage import StorageError
from penstock.vfs import MemoryDisk

SEGMENT = "/data/logs/orders-0/00000000000000000000.log"
HEADER_BYTES = 61


def isr(*members: int, leader: int = OTHER) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), isr=members, leader=leader)


def spoil(disk: MemoryDisk, position: int) -> None:
    file = disk.open(SEGMENT, write=True)
    (byte,) = file.pread(1, position)
    file.pwrite([bytes([byte ^ 1])], position)
    file.close()


def restarted(
    *members: int, leader: int = OTHER, number: int = 1, position: int = HEADER_BYTES + 9
) -> Broker:
    """A broker that copied some batches and stopped, and of one of which, the second, a bit flipped; it is back now,
    in a cluster where these are in sync."""
    before = Broker()
    led = before.leader.lead()
    for each in range(5):
        before.leader.write(led, 2, fill=each)
    before.replay(*created(OTHER, replicas=(OTHER, ME, THIRD)))
    before.world.advance(20)
    assert before.copied
    size = before.held().log.size_bytes // 5
    before.directory.close()
    spoil(before.disk, number * size + position)
    led.epoch = 1
    broker = Broker(before.disk, before.leader)
    broker.replay(*created(OTHER, replicas=(OTHER, ME, THIRD)), isr(*members, leader=leader))
    return broker


def read_through(broker: Broker) -> None:
    partition = broker.held()
    partition.read_ahead(0, 1 << 20, None)
    for _ in range(3):
        with pytest.raises(StorageError, match="CRC mismatch"):
            partition.read_ahead(2, 1 << 20, None)


def test_a_damaged_replica_that_nobody_counts_on_is_cut_off_and_copied_again() -> None:
    broker = restarted(OTHER, THIRD)
    read_through(broker)
    partition = broker.held()
    partition.high_watermark = 10
    broker.leader.partitions[topic_id("orders"), 0].epoch = 2
    broker.replay(isr(OTHER, THIRD))
    assert partition.log.log_end == 2
    assert partition.is_behind
    assert partition.high_watermark == 10
    broker.world.advance(100)
    assert broker.copied
    assert not partition.is_behind
    assert not partition.log.is_damaged


def test_a_truncated_replica_whose_leader_starts_later_keeps_its_high_watermark() -> None:
    """Seed 2000131 with holes: a consumer that had read up to 10 here would be out of range."""
    broker = restarted(OTHER, THIRD)
    read_through(broker)
    partition = broker.held()
    partition.high_watermark = 10
    led = broker.leader.partitions[topic_id("orders"), 0]
    led.epoch = 2
    led.log.advance_start(6)
    broker.replay(isr(OTHER, THIRD))
    assert partition.log.log_end == 2
    marks = {partition.high_watermark}
    while partition.is_behind:
        broker.world.advance(1)
        marks.add(partition.high_watermark)
    assert partition.log.log_start == 6
    assert marks == {10}


class Deciding:
    """A controller that keeps what it is asked, and answers it."""

    def __init__(self, code: ErrorCode) -> None:
        self.code = code
        self.asked: list[AlterPartition] = []

    def submit(self, request: AlterPartition) -> Promise[Any]:
        self.asked.append(request)
        answer: Promise[Any] = Promise()
        answer.resolve(
            tuple(IsrChanged(each.topic_id, each.partition, Decided(self.code)) for each in request.changes)
        )
        return answer


def following(controller: Deciding) -> Broker:
    broker = restarted(OTHER, ME)
    assert broker.replicas.failing_disk is not None
    broker.replicas.failing_disk._controller = controller
    return broker


@pytest.mark.parametrize("eligible", [False, True])
def test_a_damaged_replica_that_is_counted_on_keeps_what_it_has(eligible: bool) -> None:
    """What lies behind the damage may be the last copy of it."""
    broker = restarted(OTHER, ME)
    read_through(broker)
    change = isr(OTHER, ME)
    if eligible:
        change = PartitionChangeRecord(
            version=2,
            partition_id=0,
            topic_id=topic_id("orders"),
            isr=(OTHER,),
            eligible_leader_replicas=(ME,),
            leader=OTHER,
        )
    broker.replay(change)
    assert broker.held().log.log_end == 10
    broker.world.advance(5_000)
    assert broker.held().log.log_end == 10


def test_a_damaged_replica_without_a_leader_keeps_what_it_has() -> None:
    broker = restarted(THIRD)
    read_through(broker)
    broker.replay(isr(THIRD, leader=-1))
    assert broker.held().log.log_end == 10


@pytest.mark.parametrize("eligible", [False, True])
def test_a_follower_that_finds_damage_asks_not_to_be_counted_on(eligible: bool) -> None:
    """An ISR that counts on a replica without a record has one copy less of it than it says."""
    controller = Deciding(ErrorCode.NONE)
    broker = following(controller)
    if eligible:
        broker.replay(
            PartitionChangeRecord(
                version=2,
                partition_id=0,
                topic_id=topic_id("orders"),
                isr=(OTHER,),
                eligible_leader_replicas=(ME,),
                leader=OTHER,
            )
        )
    read_through(broker)
    broker.world.advance(10)
    (change,) = controller.asked[0].changes
    assert [member.broker_id for member in change.isr] == [LEADER]
    assert change.recovery_state == DAMAGED
    assert broker.held().log.log_end == 10, "it keeps what it has as long as it is counted on"


def test_a_follower_that_left_the_isr_is_cut_off_and_copied_again_at_once() -> None:
    broker = following(Deciding(ErrorCode.NONE))
    read_through(broker)
    broker.world.advance(10)
    broker.leader.partitions[topic_id("orders"), 0].epoch = 2
    broker.replay(isr(OTHER, THIRD))
    assert broker.held().log.log_end == 2
    broker.world.advance(100)
    assert broker.copied
    assert not broker.held().has_failing_disk


def test_a_follower_asks_until_it_is_out_however_long_that_takes() -> None:
    """It fetches nothing meanwhile: with all there is to fetch it would look as if it were whole."""
    controller = Deciding(ErrorCode.NONE)
    broker = following(controller)
    read_through(broker)
    broker.world.advance(60_000)
    asked = len(controller.asked)
    assert asked > 10
    assert broker.held().has_failing_disk
    broker.replay(isr(OTHER, THIRD))
    broker.world.advance(5_000)
    assert len(controller.asked) <= asked + 1


def test_a_follower_without_a_leader_asks_when_there_is_one() -> None:
    controller = Deciding(ErrorCode.NONE)
    broker = following(controller)
    broker.replay(isr(OTHER, ME, leader=-1))
    read_through(broker)
    broker.world.advance(1_000)
    assert not controller.asked
    broker.replay(isr(OTHER, ME))
    broker.world.advance(10)
    assert controller.asked


def leading(controller: Deciding) -> Broker:
    broker = restarted(OTHER, ME)
    assert broker.replicas.isr_changes is not None
    broker.replicas.isr_changes._controller = controller
    broker.replay(moved(ME))
    assert broker.held().is_leader
    return broker


def test_a_leader_that_finds_damage_asks_for_another_one() -> None:
    controller = Deciding(ErrorCode.NEW_LEADER_ELECTED)
    broker = leading(controller)
    read_through(broker)
    broker.world.advance(10)
    (request,) = controller.asked
    (change,) = request.changes
    assert [member.broker_id for member in change.isr] == [LEADER]
    assert change.recovery_state == DAMAGED


def test_a_leader_without_others_says_that_its_records_are_corrupt() -> None:
    """Who is told of trouble with a disk comes again, and again: there is nobody else to ask."""
    broker = restarted(OTHER, ME)
    broker.replay(moved(ME), isr(ME, leader=ME))
    with pytest.raises(KafkaError, match="CRC mismatch") as caught:
        broker.held().read_ahead(2, 1 << 20, None)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert broker.held().read_ahead(0, 1 << 20, None)


def test_a_leader_that_must_go_on_asks_again_after_a_while() -> None:
    controller = Deciding(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    broker = leading(controller)
    read_through(broker)
    broker.world.advance(10)
    assert len(controller.asked) == 1
    broker.world.advance(40_000)
    assert len(controller.asked) > 1
    assert broker.held().is_leader


def test_a_replica_that_is_cut_off_at_its_very_beginning_still_knows_what_is_committed() -> None:
    """A log without leader epochs goes back to its high watermark when it begins to follow: which is not there."""
    broker = restarted(OTHER, THIRD)
    spoil(broker.disk, HEADER_BYTES + 9)
    partition = broker.held()
    with pytest.raises(StorageError, match="CRC mismatch"):
        partition.log.read(0, 1 << 20)
    partition.high_watermark = 10
    broker.leader.partitions[topic_id("orders"), 0].epoch = 2
    broker.replay(isr(OTHER, THIRD))
    assert (partition.log.log_end, partition.high_watermark) == (0, 10)
    broker.world.advance(100)
    assert broker.copied


EPOCH_AT = 12
"""Where a batch has its leader epoch, which no CRC covers: this is the byte that counts most."""


def test_a_leader_does_not_give_away_a_batch_of_an_epoch_that_has_not_been() -> None:
    """No follower would take it, nor anything behind it."""
    controller = Deciding(ErrorCode.NEW_LEADER_ELECTED)
    broker = restarted(OTHER, ME, position=EPOCH_AT)
    assert broker.replicas.isr_changes is not None
    broker.replicas.isr_changes._controller = controller
    broker.replay(moved(ME))
    partition = broker.held()
    partition.read_ahead(0, 1 << 20, None)
    with pytest.raises(StorageError, match="leader epoch 16777216, expected 0 to 0"):
        partition.read_ahead(2, 1 << 20, None)
    broker.world.advance(10)
    assert controller.asked[0].changes[0].recovery_state == DAMAGED


def test_a_replica_whose_last_batch_is_of_an_epoch_that_has_not_been_copies_it_again() -> None:
    """Its leader knows nothing of such an epoch, and could not say where the two logs part."""
    broker = restarted(OTHER, THIRD, number=4, position=EPOCH_AT)
    partition = broker.held()
    assert partition.log.log_end == 8
    broker.world.advance(100)
    assert broker.copied
    assert not partition.log.is_damaged
    assert [each.epoch for each in partition.log.epochs.entries] == [0]


def test_a_replica_that_is_counted_on_keeps_a_batch_of_an_epoch_that_has_not_been() -> None:
    broker = restarted(OTHER, ME, number=4, position=EPOCH_AT)
    assert broker.held().log.is_damaged
    assert broker.held().log.log_end == 10


def test_a_log_that_nobody_else_has_is_read_whatever_its_epochs() -> None:
    """It may have come from elsewhere, and the cluster that it is in now may count epochs anew."""
    broker = restarted(OTHER, ME, position=EPOCH_AT)
    broker.directory.close()
    alone = Broker(broker.disk)
    alone.replay(*created(ME, replicas=(ME,)))
    partition = alone.held()
    data = partition.read_ahead(0, 1 << 20, None)
    assert [each.base_offset for each in iter_batches(bytearray(data))] == [0, 2, 4, 6, 8]
    assert not partition.log.is_damaged
