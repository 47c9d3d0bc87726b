"""The rules of HTTP and of the line protocol, each shown a history that keeps it and one that breaks it."""

import pytest

from penstock.base.ids import TopicPartition
from penstock.sim.checkers.all_checkers import AllCheckers
from penstock.sim.checkers.history import (
    Acked,
    Batch,
    DoorCommitEnded,
    DoorCommitSent,
    DoorFetchReceived,
    DoorFetchSent,
    Event,
    KeyAnswered,
    ProducedRecord,
    ReadRecord,
    Sent,
    Survives,
)
from penstock.sim.checkers.records import Rules
from penstock.sim.checkers.violation import Violation

AT = TopicPartition("doors", 0)
GROUP = "web"


def written(count: int) -> list[Event]:
    """Records 0 to count, each acknowledged at its offset."""
    events: list[Event] = []
    for offset in range(count):
        batch = Batch("poster", offset, AT, -1, [ProducedRecord(None, value(offset), offset)])
        batch.identities.append((0, 0, offset))
        batch.sends = 1
        events += [Sent(batch), Acked(batch, offset, Survives.POWER_CUT, 0)]
    return events


def value(offset: int) -> bytes:
    return b"%d" % offset


def commit(number: int, offset: int, is_done: bool | None = True, now_us: int = 0) -> list[Event]:
    return [DoorCommitSent(number, GROUP, AT, offset, now_us), DoorCommitEnded(number, is_done)]


def read(number: int, *offsets: int, start: int | None = None) -> list[Event]:
    seen = [ReadRecord(each, None, value(each)) for each in offsets]
    return [DoorFetchSent(number, GROUP, [AT]), DoorFetchReceived("web-1", number, GROUP, AT, start, seen)]


def judge(*events: Event) -> None:
    checkers = AllCheckers(Rules(is_replicated=True, has_doors=True))
    for event in events:
        checkers.see(event)


def broken(*events: Event) -> str:
    with pytest.raises(Violation) as caught:
        judge(*events)
    return str(caught.value)


def test_the_same_key_gets_the_same_offset() -> None:
    judge(KeyAnswered("a", "key", AT, 4), KeyAnswered("a", "key", AT, 4), KeyAnswered("a", "other", AT, 5))
    assert broken(KeyAnswered("a", "key", AT, 4), KeyAnswered("b", "key", AT, 5)) == (
        "SameKeySameOffset: b got doors-0 at 4 for key, and then doors-0 at 5"
    )


def test_a_group_reads_on_where_it_has_committed() -> None:
    judge(*written(5), *read(1, 0, 1), *commit(2, 2), *read(3, 2, 3, 4))


def test_a_group_that_goes_back_is_caught() -> None:
    events = [*written(5), *commit(1, 3), *read(2, 1, 2)]
    assert (
        broken(*events)
        == "DoorGroupsGoOn: web-1 of web read doors-0 from 1, though its committed offset is 3"
    )


def test_a_record_that_is_passed_over_is_caught() -> None:
    events = [*written(5), *commit(1, 1), *read(2, 3, 4)]
    assert broken(*events) == (
        "DoorGroupsGoOn: web-1 of web read doors-0 at 3, and skipped the acknowledged record at 1"
    )
    assert "acknowledged record at 1" in broken(*written(3), *read(1, 0, 2))


def test_a_commit_that_was_not_answered_may_count_or_not_and_late() -> None:
    unsure = commit(1, 2, None)
    judge(*written(5), *unsure, *read(2, 0))
    judge(*written(5), *unsure, *read(2, 2))
    judge(*written(5), *unsure, *commit(3, 4), *read(4, 2))


def test_a_commit_that_was_not_answered_long_before_another_does_not_count() -> None:
    events = [*written(5), *commit(1, 2, None), *commit(3, 4, now_us=61_000_000), *read(4, 2)]
    assert "though its committed offset is 4" in broken(*events)


def test_a_commit_that_was_refused_does_not_count() -> None:
    judge(*written(5), *commit(1, 1), *commit(2, 4, False), *read(3, 1))
    assert "acknowledged record at 1" in broken(*written(5), *commit(1, 1), *commit(2, 4, False), *read(3, 4))


def test_a_value_that_nobody_sent_is_caught() -> None:
    event = DoorFetchReceived("web-1", 1, GROUP, AT, None, [ReadRecord(0, None, b"what")])
    assert "which was never sent there" in broken(DoorFetchSent(1, GROUP, [AT]), event)
