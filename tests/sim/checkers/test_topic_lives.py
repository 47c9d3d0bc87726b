"""The rules of topics that are deleted and created again, on histories made by hand."""

from uuid import UUID

import pytest

from penstock.base.ids import TopicPartition
from penstock.sim.checkers.all_checkers import AllCheckers
from penstock.sim.checkers.history import (
    Acked,
    Audited,
    Batch,
    Event,
    FetchReceived,
    FetchSent,
    ProducedRecord,
    ReadRecord,
    Sent,
    Survives,
)
from penstock.sim.checkers.records import Rules, Violation
from penstock.sim.topic_lives import (
    Deleted,
    DeletionLost,
    DeletionSent,
    LifeStarted,
    ReadByName,
    is_life,
    life_name,
    topic_name,
)

FIRST, SECOND = (life_name("orders", UUID(int=number)) for number in (1, 2))
BY_NAME = TopicPartition("orders", 0)


def tell(*events: Event) -> None:
    checkers = AllCheckers(Rules(is_replicated=True, renewed=frozenset({"orders"})))
    for event in events:
        checkers.see(event)


def batch(topic: str, value: bytes, sends: int = 1) -> Batch:
    made = Batch("writer", 1, TopicPartition(topic, 0), -1, [ProducedRecord(None, value, 0)])
    made.sends = sends
    return made


def read(scope: str, value: bytes) -> list[Event]:
    at = TopicPartition(scope, 0)
    request = "reader", 1
    return [
        FetchSent(request, [at]),
        FetchReceived("reader", at, request, 0, 1, [ReadRecord(0, None, value)], 1, 0, 1),
    ]


def audit(scope: str) -> Audited:
    return Audited(TopicPartition(scope, 0), 0, 0, [])


def test_a_life_is_named_after_its_topic() -> None:
    assert topic_name(FIRST) == topic_name("orders") == "orders"
    assert is_life(FIRST)
    assert not is_life("orders")


def test_what_was_written_by_id_is_in_that_life_alone() -> None:
    written = batch(FIRST, b"a")
    tell(Sent(written), *read(FIRST, b"a"))
    with pytest.raises(Violation, match=r"NoChangedRecord: .* which was sent to orders@"):
        tell(Sent(written), *read(SECOND, b"a"))


def test_what_was_acknowledged_by_name_is_in_no_later_life() -> None:
    written = batch("orders", b"a")
    acked = Acked(written, 0, Survives.NOTHING, 1)
    first, second = LifeStarted("orders", FIRST), LifeStarted("orders", SECOND)
    over = DeletionSent("orders", FIRST)
    tell(first, Sent(written), acked, *read(FIRST, b"a"))
    tell(first, Sent(written), over, acked, second, *read(SECOND, b"a"))
    with pytest.raises(Violation, match=r"LivesApart: .* was acknowledged before this life began"):
        tell(first, Sent(written), acked, over, second, *read(SECOND, b"a"))


def test_what_was_sent_twice_may_come_late() -> None:
    written = batch("orders", b"a", sends=1)
    again = batch("orders", b"a", sends=2)
    acked = Acked(again, 0, Survives.NOTHING, 1)
    over = DeletionSent("orders", FIRST)
    tell(Sent(written), Sent(again), acked, over, LifeStarted("orders", SECOND), *read(SECOND, b"a"))


def test_no_view_has_records_of_two_lives_or_of_nobody() -> None:
    one, other = batch(FIRST, b"a"), batch(SECOND, b"b")
    sent = Sent(one), Sent(other)
    tell(*sent, ReadByName("reader", BY_NAME, [(0, b"a")]), ReadByName("reader", BY_NAME, [(0, b"b")]))
    with pytest.raises(Violation, match="LivesApart: reader read records of"):
        tell(*sent, ReadByName("reader", BY_NAME, [(0, b"a"), (1, b"b")]))
    with pytest.raises(Violation, match=r"LivesApart: .* which was never sent there"):
        tell(*sent, ReadByName("reader", BY_NAME, [(0, b"c")]))


def test_a_topic_that_was_deleted_is_not_there_in_the_end() -> None:
    over = DeletionSent("orders", FIRST), Deleted("orders", FIRST)
    tell(LifeStarted("orders", FIRST), *over, LifeStarted("orders", SECOND), audit(SECOND))
    with pytest.raises(Violation, match=r"TopicsEndOnPurpose: .* was deleted, and still exists at the end"):
        tell(LifeStarted("orders", FIRST), *over, audit(FIRST))


def test_a_topic_that_nobody_deleted_is_there_in_the_end() -> None:
    lives = LifeStarted("orders", FIRST), LifeStarted("orders", SECOND)
    with pytest.raises(Violation, match=r"TopicsEndOnPurpose: .* was never deleted"):
        tell(*lives, audit(SECOND))
    tell(lives[0], DeletionSent("orders", None), lives[1], audit(SECOND))
    with pytest.raises(Violation, match=r"TopicsEndOnPurpose: .* was never deleted"):
        tell(DeletionSent("orders", None), *lives, audit(SECOND))
    tell(DeletionSent("orders", None), DeletionLost("orders"), *lives, audit(SECOND))
