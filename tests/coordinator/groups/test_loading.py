"""A coordinator from its log: Kafka's own, ours, and one that is damaged."""

from pathlib import Path
from random import Random

import pytest
from tests.coordinator.groups.clients import Consumer
from tests.coordinator.groups.world import START_MS, Desk, topics

from penstock.base.errors import ErrorCode
from penstock.coordinator.groups.consumer.group import ConsumerGroup
from penstock.coordinator.groups.coordinator import GroupCoordinator
from penstock.coordinator.groups.offset_store import CommittedOffset
from penstock.coordinator.groups.requests import (
    DescribeGroups,
    Heartbeat,
    JoinGroup,
    ListGroups,
    OffsetFetch,
    WantedOffset,
)
from penstock.coordinator.groups.schemas import ConsumerGroupMetadataKey, GroupMetadataKey, encode_key
from penstock.coordinator.groups.settings import GroupSettings
from penstock.records import build_batch, end_txn_marker, iter_batches
from penstock.records.structs import CorruptStruct

GOLDEN = Path(__file__).parents[2] / "golden/kafka/logs/__consumer_offsets-0/00000000000000000000.log"


def empty() -> GroupCoordinator:
    return GroupCoordinator(GroupSettings(), topics(segments=2), Random(1))


def test_groups_and_offsets_that_kafka_wrote_are_there() -> None:
    coordinator = empty()
    coordinator.load(iter_batches(GOLDEN.read_bytes()))
    coordinator.loaded(START_MS)
    listed = coordinator.handle(ListGroups(), START_MS).reply
    assert {(each.group, each.type, each.state, each.protocol_type) for each in listed.groups} == {
        ("group-classic", "classic", "Empty", "consumer"),
        ("group-consumer", "consumer", "Empty", "consumer"),
        ("group-by-hand", "classic", "Empty", ""),
    }
    fetched = coordinator.handle(OffsetFetch("group-by-hand", None), START_MS).reply.offsets
    assert [(each.topic, each.offset, each.metadata) for each in fetched] == [("segments", 7, "by hand")]
    wanted = OffsetFetch("group-classic", (WantedOffset("segments", 0),))
    assert coordinator.handle(wanted, START_MS).reply.offsets[0].offset == 16
    found = coordinator.committed("group-consumer", "segments", 0)
    assert isinstance(found, CommittedOffset)
    assert found.offset == 16


def test_a_member_joins_a_group_that_kafka_left() -> None:
    coordinator = empty()
    coordinator.load(iter_batches(GOLDEN.read_bytes()))
    coordinator.loaded(START_MS)
    request = JoinGroup("group-classic", "c", "/h", "consumer", (("range", b""),), 10_000)
    assert coordinator.handle(request, START_MS).reply.code is ErrorCode.MEMBER_ID_REQUIRED


def test_transactions_are_read_with_their_markers() -> None:
    key, committed = CommittedOffset(9, -1, "", START_MS).record("g", "orders", 0).encoded()
    pending = build_batch(
        [(key, committed, START_MS)], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    coordinator = empty()
    coordinator.load(iter_batches(pending))
    assert coordinator.committed("g", "orders", 0) is None
    coordinator.load(iter_batches(end_txn_marker(7, 0, True, 0, START_MS, base_offset=1)))
    found = coordinator.committed("g", "orders", 0)
    assert found is not None
    assert found.offset == 9


def test_a_record_that_cannot_be_read_stops_the_load_and_is_named() -> None:
    key = encode_key(GroupMetadataKey(group="g"))
    with pytest.raises(CorruptStruct, match="the record at offset 17: 255 bytes at byte 4 end after"):
        empty().replay(key, b"\0\3\0\xff", 17)
    with pytest.raises(CorruptStruct, match="the record at offset 18: a key has 1 bytes"):
        empty().replay(b"x", None, 18)


def test_records_that_contradict_each_other_stop_the_load() -> None:
    desk = Desk()
    desk.stable({})
    coordinator = empty()
    for offset, each in enumerate(desk.log):
        coordinator.replay(each.key, each.value, offset)
    key = encode_key(ConsumerGroupMetadataKey(group_id="g"))
    with pytest.raises(CorruptStruct, match=r"the record at offset 9: .* follows classic group g"):
        coordinator.replay(key, b"\0\0\0\0\0\2\0", 9)


def test_tombstones_of_what_is_gone_already_do_nothing() -> None:
    desk = Desk()
    one = Consumer(desk, "one", None, regex="orders")
    one.join()
    one.leave()
    coordinator = empty()
    for offset, each in enumerate(desk.log):
        coordinator.replay(each.key, None, offset)
    coordinator.loaded(START_MS)
    assert coordinator.handle(ListGroups(), START_MS).reply.groups == ()


def test_compaction_in_any_measure_leaves_the_same_groups() -> None:
    """Of each key the last record stays, and tombstones may be gone with what they took away."""
    desk = Desk()
    one, two = Consumer(desk, "one"), Consumer(desk, "two", instance_id="i")
    one.join()
    two.join()
    for _ in range(4):
        one.beat()
        two.beat()
    three = Consumer(desk, "three")
    three.join()
    three.leave()
    for _ in range(4):
        one.beat()
        two.beat()
    last = {each.key: offset for offset, each in enumerate(desk.log)}
    coordinator = empty()
    for offset, each in enumerate(desk.log):
        if last[each.key] == offset and each.value is not None:
            coordinator.replay(each.key, each.value, offset)
    coordinator.loaded(desk.now_ms)
    coordinator.topics_changed(desk.known)
    found, expected = coordinator._state.groups["g"], desk.coordinator._state.groups["g"]
    assert isinstance(expected, ConsumerGroup)
    expected.checked_version = -1
    assert found == expected


def test_before_it_is_loaded_and_after_it_is_gone_a_coordinator_answers_nothing() -> None:
    coordinator = empty()
    assert coordinator.handle(Heartbeat("g", "m", 1), START_MS).reply.code is ErrorCode.NOT_COORDINATOR
    coordinator.loaded(START_MS)
    assert coordinator.handle(DescribeGroups(("g",)), START_MS).reply.code is ErrorCode.NONE
    coordinator.unload()
    assert coordinator.handle(Heartbeat("g", "m", 1), START_MS).reply.code is ErrorCode.NOT_COORDINATOR
    assert coordinator.tick(START_MS + 10**9) is None
    assert coordinator.next_deadline_ms() is None
