"""Writing records: where they go, how many batches they make, and when they are answered."""

import errno
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest
from tests.gateway.producing_world import TOPIC, Desk

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.hashing import partition_of_key
from penstock.gateway.idempotency import HEADER
from penstock.gateway.shared.new_records import RECORD_OVERHEAD_BYTES_MAX
from penstock.gateway.shared.producer import RECORDS_A_SLICE, NewRecord, RecordPosition, RecordResult
from penstock.records import BatchBuilder
from penstock.vfs import MemoryDisk
from penstock.vfs.faulty import FaultyDisk


def batches(desk: Desk, number: int = 0) -> list[int]:
    """How many records each batch has."""
    return [batch.count for batch in desk.partition(number).log.batches()]


def codes(results: Iterable[RecordResult]) -> list[RecordPosition | str]:
    """The position of each record that was written, and the error of each that was not."""
    return [
        RecordPosition(each.partition, each.offset) if each.error is None else each.error.code.name
        for each in results
    ]


def test_a_topic_appears_on_first_use_with_three_partitions() -> None:
    desk = Desk()
    desk.produce()
    assert len(desk.partitions()) == 3


def test_a_topic_does_not_appear_where_it_may_not() -> None:
    desk = Desk(auto_create_topics_enable="false")
    assert desk.refusal() is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_key_goes_where_kafkas_default_partitioner_puts_it() -> None:
    desk = Desk()
    for number in range(20):
        key = f"customer-{number}".encode()
        assert desk.produce(key=key).partition == partition_of_key(key, 3)


def test_records_without_a_key_are_spread_evenly() -> None:
    desk = Desk()
    places = Counter(desk.produce().partition for _ in range(30))
    assert places == {0: 10, 1: 10, 2: 10}


def test_one_without_a_key_goes_where_its_idempotency_key_hashes_to() -> None:
    desk = Desk()
    for number in range(10):
        key = f"request-{number}"
        assert desk.produce(idempotency_key=key).partition == partition_of_key(key.encode(), 3)


def test_a_partition_that_is_named_wins() -> None:
    desk = Desk()
    places = [desk.produce(key=b"k", partition=number, idempotency_key=f"i{number}") for number in range(3)]
    assert [each.partition for each in places] == [0, 1, 2]


def test_a_record_has_what_it_was_given() -> None:
    desk = Desk()
    before_ms = desk.world.now_ms()
    desk.produce(b"v", b"k", partition=0, headers=[("a", b"1"), ("a", None)], idempotency_key="i")
    desk.produce(None, b"k", partition=0)
    first, second = desk.records()
    assert (first.key, first.value) == (b"k", b"v")
    assert first.headers == (("a", b"1"), ("a", None), (HEADER, b"i"))
    assert before_ms <= first.timestamp <= desk.world.now_ms()
    assert (second.value, second.headers) == (None, ())


def test_the_answer_comes_when_the_record_is_on_disk() -> None:
    desk = Desk()
    desk.produce(partition=0)
    later = desk.begin(partition=0)
    assert not later.is_settled
    desk.world.run_until(lambda: desk.partition().log.log_end == 2)
    assert not later.is_settled, "written is not durable"
    desk.world.run_until(lambda: later.is_settled)
    assert desk.partition().log.flushed == 2


def test_records_of_one_call_are_one_batch_a_partition() -> None:
    desk = Desk()
    desk.produce(partition=0)
    outcomes = desk.produce_all(*(NewRecord(TOPIC, None, b"%d" % n, partition=n % 2) for n in range(10)))
    assert codes(outcomes) == [RecordPosition(n % 2, n // 2 + (1 if n % 2 == 0 else 0)) for n in range(10)]
    assert (batches(desk, 0), batches(desk, 1)) == ([1, 5], [5])


def test_a_call_may_have_more_than_a_batch_may_hold() -> None:
    desk = Desk()
    desk.node.create_topic(TOPIC, 1, max_message_bytes="1000")
    outcomes = desk.produce_all(*(NewRecord(TOPIC, None, b"x" * 300) for _ in range(7)))
    assert codes(outcomes) == [RecordPosition(0, n) for n in range(7)]
    assert sum(batches(desk)) == 7
    assert all(batch.size <= 1000 for batch in desk.partition().log.batches())


def test_a_long_list_leaves_others_their_turn_and_is_one_batch_all_the_same() -> None:
    desk = Desk()
    desk.produce(partition=1)
    records = [NewRecord(TOPIC, None, b"v", (), 0, f"i{n}") for n in range(3 * RECORDS_A_SLICE)]
    later = desk.producing.produce_all(desk.session, records)
    between = desk.begin(partition=1)
    desk.world.run_until(lambda: desk.partition(1).log.log_end == 2)
    assert desk.partition().log.log_end == 0
    assert codes(desk.outcome(later)) == [RecordPosition(0, n) for n in range(len(records))]
    assert desk.outcome(between) == (1, 1)
    assert batches(desk) == [len(records)]


def test_a_topic_that_goes_while_a_list_is_read_is_reported() -> None:
    desk = Desk()
    desk.produce(partition=0)
    records = [NewRecord(TOPIC, None, b"v", partition=0) for _ in range(RECORDS_A_SLICE + 1)]
    later = desk.producing.produce_all(desk.session, records)
    partition = desk.partition()
    partition.step_down(KafkaError("gone", ErrorCode.NOT_LEADER_OR_FOLLOWER))
    outcomes = desk.outcome(later)
    assert {each.error.code for each in outcomes} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_what_is_wrong_with_one_record_does_not_touch_another() -> None:
    desk = Desk()
    desk.node.create_topic(TOPIC, 1, max_message_bytes="1000")
    outcomes = desk.produce_all(
        NewRecord(TOPIC, None, b"good"),
        NewRecord(TOPIC, None, b"x" * 2000),
        NewRecord(TOPIC, None, b"v", partition=1),
        NewRecord("no good", None, b"v"),
        NewRecord("elsewhere", None, b"v", partition=0),
        NewRecord(TOPIC, None, b"last"),
    )
    assert codes(outcomes) == [
        RecordPosition(0, 0),
        "MESSAGE_TOO_LARGE",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "INVALID_TOPIC_EXCEPTION",
        RecordPosition(0, 0),
        RecordPosition(0, 1),
    ]


def test_nothing_at_all_is_answered_with_nothing() -> None:
    assert Desk().produce_all() == []


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "__share_group_state"])
@pytest.mark.parametrize("idempotency_key", [None, "i"])
def test_internal_topics_are_the_coordinators(topic: str, idempotency_key: str | None) -> None:
    """As Kafka answers a client: INVALID_TOPIC_EXCEPTION."""
    desk = Desk()
    assert (
        desk.refusal(topic=topic, idempotency_key=idempotency_key, key=b"k")
        is ErrorCode.INVALID_TOPIC_EXCEPTION
    )


@pytest.mark.parametrize("topic", ["", ".", "..", "a b", "x" * 250, "ä", "a/b", "a\0b"])
def test_names_that_no_topic_may_have_are_refused(topic: str) -> None:
    assert Desk().refusal(topic=topic) is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("key", ["", "x" * 257, "ä" * 129, "\ud800"])
def test_an_idempotency_key_is_text_of_1_to_256_bytes(key: str) -> None:
    desk = Desk()
    assert desk.refusal(idempotency_key=key) is ErrorCode.INVALID_REQUEST
    assert desk.produce(idempotency_key="ä" * 128).offset == 0


def test_the_header_of_the_key_cannot_be_given() -> None:
    desk = Desk()
    assert desk.refusal(headers=[(HEADER, b"x")]) is ErrorCode.INVALID_REQUEST
    desk.produce()
    assert desk.refusal(headers=[(HEADER, b"x")]) is ErrorCode.INVALID_REQUEST


def test_the_name_of_a_header_is_unicode() -> None:
    desk = Desk()
    desk.produce(headers=[("größe", b"1")], idempotency_key="warm")
    for idempotency_key in (None, "i"):
        code = desk.refusal(headers=[("\ud800", b"1")], idempotency_key=idempotency_key)
        assert code is ErrorCode.INVALID_REQUEST
    assert desk.produce(idempotency_key="i"), "what was refused left no claim"


def test_a_compacted_topic_wants_keys() -> None:
    desk = Desk()
    desk.node.create_topic(TOPIC, 1, cleanup_policy="compact")
    assert desk.refusal() is ErrorCode.INVALID_RECORD
    assert desk.produce(key=b"k") == (0, 0)


def test_a_record_without_a_key_does_not_keep_others_from_a_compacted_topic() -> None:
    desk = Desk()
    desk.node.create_topic(TOPIC, 1, cleanup_policy="compact")
    outcomes = desk.produce_all(
        NewRecord(TOPIC, b"x", b"1"), NewRecord(TOPIC, None, b"2"), NewRecord(TOPIC, b"y", b"3")
    )
    assert codes(outcomes) == [RecordPosition(0, 0), "INVALID_RECORD", RecordPosition(0, 1)]
    assert [each.key for each in desk.records()] == [b"x", b"y"]


def test_a_refused_record_leaves_its_idempotency_key_free_and_others_keep_theirs() -> None:
    desk = Desk()
    desk.node.create_topic(TOPIC, 1, cleanup_policy="compact")
    keyed = [NewRecord(TOPIC, b"k%d" % n, b"v", (), None, f"i{n}") for n in range(3)]
    faulty = keyed[1]._replace(key=None)

    first = desk.produce_all(keyed[0], faulty, faulty, keyed[2])
    assert codes(first) == [RecordPosition(0, 0), "INVALID_RECORD", "INVALID_RECORD", RecordPosition(0, 1)]
    again = desk.produce_all(keyed[0]._replace(key=None), keyed[1], faulty, keyed[2])

    assert codes(again) == [
        RecordPosition(0, 0),
        RecordPosition(0, 2),
        RecordPosition(0, 2),
        RecordPosition(0, 1),
    ]
    desk.kill()
    assert codes(desk.produce_all(*keyed)) == [
        RecordPosition(0, 0),
        RecordPosition(0, 2),
        RecordPosition(0, 1),
    ]
    assert len(desk.records()) == 3


def test_what_the_log_refuses_of_a_batch_does_not_keep_the_rest_from_it() -> None:
    """The topic becomes compacted while a long list is looked at: what was in order when it was looked at is not
    any more."""
    desk = Desk()
    desk.node.create_topic(TOPIC, 1)
    desk.produce(idempotency_key="warm")
    count = 5 * RECORDS_A_SLICE
    records = [
        NewRecord(TOPIC, b"k" if n % 2 else None, b"%d" % n, (), 0, f"i{n}" if n % 3 else None)
        for n in range(count)
    ]
    later = desk.producing.produce_all(desk.session, records)
    desk.partition().log.configure(replace(desk.partition().log.settings, cleanup_policy=("compact",)))

    outcomes = desk.outcome(later)

    offsets = iter(range(1, count))
    expected = [RecordPosition(0, next(offsets)) if n % 2 else "INVALID_RECORD" for n in range(count)]
    assert codes(outcomes) == expected
    assert [each.value for each in desk.records()][1:] == [b"%d" % n for n in range(1, count, 2)]
    retries = [each._replace(key=b"late") for n, each in enumerate(records) if n % 3]
    placed = [each for n, each in enumerate(expected) if n % 3]
    for known, outcome in zip(placed, codes(desk.produce_all(*retries)), strict=True):
        assert isinstance(outcome, RecordPosition)
        assert outcome == known if isinstance(known, RecordPosition) else outcome.offset > count // 2


def test_a_batch_that_the_topics_codec_makes_too_large_is_written_in_parts() -> None:
    desk = Desk()
    rng = Random(7)
    values = [rng.randbytes(20_000) for _ in range(9)]
    builder = BatchBuilder()
    for value in values:
        builder.append(None, value, desk.world.now_ms())
    fits = len(builder.build()) + RECORD_OVERHEAD_BYTES_MAX
    desk.node.create_topic(TOPIC, 1, compression_type="gzip", max_message_bytes=str(fits))

    outcomes = desk.produce_all(*(NewRecord(TOPIC, None, value) for value in values))

    assert codes(outcomes) == [RecordPosition(0, n) for n in range(9)]
    assert batches(desk) == [4, 5]
    assert [each.value for each in desk.records()] == values


def test_a_full_disk_is_reported_and_gone_when_there_is_room_again() -> None:
    disk = FaultyDisk(MemoryDisk())
    desk = Desk(disk)
    desk.produce(partition=0)
    disk.fail("write", path="*.log", error=errno.ENOSPC)
    assert desk.refusal(partition=0) is ErrorCode.KAFKA_STORAGE_ERROR
    disk.clear()
    assert desk.produce(partition=0) == (0, 1)


def test_too_few_replicas_are_reported() -> None:
    desk = Desk()
    desk.produce(partition=0)
    desk.partition().isr_size = 0
    assert desk.refusal(partition=0) is ErrorCode.NOT_ENOUGH_REPLICAS
    [result] = desk.produce_all(NewRecord(TOPIC, None, b"v", partition=0, idempotency_key="i"))
    assert result.error is not None
    desk.partition().isr_size = 1
    assert desk.produce(partition=0, idempotency_key="i") == (0, 1), "what was refused left no claim"
