"""Each rule on histories made by hand: what it lets pass, and what it does not."""

from collections.abc import Sequence
from uuid import UUID

import pytest

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.sim.checkers.all_checkers import AllCheckers
from penstock.sim.checkers.history import (
    Acked,
    Audited,
    Batch,
    Event,
    FetchReceived,
    FetchSent,
    GotProducerId,
    Killed,
    Overdue,
    PowerCut,
    ProducedRecord,
    ReadRecord,
    Refused,
    ReplicaCreated,
    Replied,
    Sent,
    Stopped,
    Survives,
    TopicDescribed,
)
from penstock.sim.checkers.records import Rules, Violation

AT = TopicPartition("orders", 0)
COMPACTED = Rules(compacted=frozenset({"orders"}))
SHORTENED = Rules(shortened=frozenset({"orders"}))


class Story:
    """A history in the making: batches of one record each, named by their value."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.checkers = AllCheckers(rules or Rules())
        self.batches: dict[str, Batch] = {}
        self.incarnation = 1
        self.requests = 0

    def tell(self, *events: Event) -> None:
        for event in events:
            self.checkers.see(event)

    def send(
        self, value: str, *, key: str | None = None, identity: int | None = None, acks: int = -1
    ) -> None:
        producer = value.rstrip("0123456789") or "p"
        if value not in self.batches:
            written = ProducedRecord(key and key.encode(), value.encode(), int(value[len(producer) :] or 0))
            self.batches[value] = Batch(producer, len(self.batches), AT, acks, [written])
        batch = self.batches[value]
        batch.sends += 1
        if identity is not None and (identity, 0, 0) not in batch.identities:
            batch.identities.append((identity, 0, 0))
        self.tell(Sent(batch))

    def ack(
        self, value: str, offset: int, survives: Survives = Survives.POWER_CUT, *, of: int | None = None
    ) -> None:
        self.tell(Acked(self.batches[value], offset, survives, of or self.incarnation))

    def write(
        self, value: str, offset: int, survives: Survives = Survives.POWER_CUT, **how: int | str
    ) -> None:
        self.send(value, **how)  # type: ignore[arg-type]
        self.ack(value, offset, survives)

    def read(
        self,
        start: int,
        values: Sequence[str | None],
        *,
        reader: str = "c",
        log_start: int = 0,
        high_watermark: int = 1000,
        of: int | None = None,
    ) -> None:
        """A view from start on; None where an offset has no record."""
        self.requests += 1
        request = reader, self.requests
        self.tell(FetchSent(request, [AT]))
        self.tell(self.view(request, start, values, log_start, high_watermark, of or self.incarnation))

    def view(
        self,
        request: tuple[str, int],
        start: int,
        values: Sequence[str | None],
        log_start: int,
        high_watermark: int,
        incarnation: int,
    ) -> FetchReceived:
        stop = start + len(values)
        seen = self.seen(start, values)
        return FetchReceived(
            request[0], AT, request, start, stop, seen, high_watermark, log_start, incarnation
        )

    def seen(self, start: int, values: Sequence[str | None]) -> list[ReadRecord]:
        return [
            ReadRecord(
                offset, self.batches[value].records[0].key if value in self.batches else None, value.encode()
            )
            for offset, value in enumerate(values, start)
            if value is not None
        ]

    def audit(self, start: int, values: Sequence[str | None]) -> None:
        self.tell(Audited(AT, start, start + len(values), self.seen(start, values)))

    def cut_power(self) -> None:
        self.tell(PowerCut(self.incarnation))
        self.incarnation += 1

    def kill(self) -> None:
        self.tell(Killed(self.incarnation))
        self.incarnation += 1

    def stop(self) -> None:
        self.tell(Stopped(self.incarnation, is_clean=True))
        self.incarnation += 1


@pytest.fixture
def story() -> Story:
    return Story()


# -- AckedNotLost ---------------------------------------------------------------------------------------------


def test_a_durable_record_may_not_be_missing_after_a_power_cut(story: Story) -> None:
    story.write("a", 0)
    story.cut_power()
    with pytest.raises(Violation, match="AckedNotLost: orders-0 at 0 must have b'a'"):
        story.audit(0, [])


def test_a_record_that_survives_kills_alone_may_be_missing_after_a_power_cut(story: Story) -> None:
    story.write("a", 0, Survives.KILL)
    story.cut_power()
    story.audit(0, [])


def test_a_record_that_survives_kills_may_not_be_missing_after_one(story: Story) -> None:
    story.write("a", 0, Survives.KILL)
    story.kill()
    with pytest.raises(Violation, match="AckedNotLost"):
        story.audit(0, [])


def test_what_lies_before_a_durable_record_is_durable_too(story: Story) -> None:
    story.write("a", 0, Survives.KILL)
    story.write("b", 1)
    story.cut_power()
    with pytest.raises(Violation, match="AckedNotLost: orders-0 at 0"):
        story.audit(0, [None, "b"])


def test_a_clean_stop_makes_everything_durable(story: Story) -> None:
    story.write("a", 0, Survives.KILL)
    story.stop()
    story.cut_power()
    with pytest.raises(Violation, match="AckedNotLost"):
        story.audit(0, [])


def test_an_acknowledgement_that_comes_after_the_power_cut_promises_what_it_did_before(story: Story) -> None:
    story.send("a")
    story.send("b")
    story.cut_power()
    story.ack("b", 1, Survives.KILL, of=1)
    story.audit(0, [])
    story.ack("a", 0, Survives.POWER_CUT, of=1)
    with pytest.raises(Violation, match="AckedNotLost"):
        story.audit(0, [])


def test_a_consumer_that_passes_over_a_record_gives_it_away_at_once(story: Story) -> None:
    story.write("a", 0)
    story.write("b", 1)
    with pytest.raises(Violation, match="AckedNotLost: orders-0 at 1 must have b'b', c read None"):
        story.read(0, ["a", None])


def test_nothing_shortens_a_log_that_nothing_may_shorten(story: Story) -> None:
    story.write("a", 0)
    with pytest.raises(Violation, match="AckedNotLost: orders-0 begins at 1"):
        story.read(1, [], log_start=1)


def test_retention_may_take_records_from_the_front() -> None:
    story = Story(SHORTENED)
    story.write("a", 0)
    story.write("b", 1)
    story.read(1, ["b"], log_start=1)
    story.audit(1, ["b"])


def test_compaction_may_take_a_record_whose_key_has_a_later_one_and_no_other() -> None:
    story = Story(COMPACTED)
    story.write("a", 0, key="k")
    story.write("b", 1, key="other")
    story.write("c", 2, key="k")
    story.read(0, [None, "b", "c"])
    story.audit(0, [None, "b", "c"])
    with pytest.raises(Violation, match="AckedNotLost: orders-0 at 1"):
        story.audit(0, [None, None, "c"])


# -- NoChangedRecord ------------------------------------------------------------------------------------------


def test_an_offset_keeps_its_value_over_a_kill(story: Story) -> None:
    story.send("a")
    story.send("b")
    story.read(0, ["a"])
    story.kill()
    with pytest.raises(Violation, match="NoChangedRecord: orders-0 at 0 changed from b'a' to b'b'"):
        story.read(0, ["b"])


def test_an_offset_may_have_another_value_after_a_power_cut_if_nothing_durable_lay_at_it_or_behind(
    story: Story,
) -> None:
    story.send("a")
    story.send("b")
    story.read(0, ["a"])
    story.cut_power()
    story.read(0, ["b"])


def test_an_offset_before_a_durable_one_keeps_its_value(story: Story) -> None:
    story.send("a")
    story.read(0, ["a"])
    story.write("b", 1)
    story.send("c")
    story.cut_power()
    with pytest.raises(Violation, match="NoChangedRecord: orders-0 at 0 changed from b'a' to b'c'"):
        story.read(0, ["c", "b"])


def test_an_acknowledgement_at_the_offset_of_another_record_is_caught(story: Story) -> None:
    story.write("a", 0)
    story.send("b")
    with pytest.raises(Violation, match="NoChangedRecord"):
        story.ack("b", 0)


def test_a_value_that_nobody_sent_is_caught(story: Story) -> None:
    with pytest.raises(Violation, match="NoChangedRecord: orders-0 at 0 has b'x', which was never sent"):
        story.read(0, ["x"])


def test_a_value_in_the_wrong_partition_is_caught(story: Story) -> None:
    story.send("a")
    story.batches["a"].at = TopicPartition("orders", 1)
    with pytest.raises(Violation, match=r"NoChangedRecord: .* which was sent to orders-1"):
        story.read(0, ["a"])


def test_a_view_from_before_the_power_cut_is_not_held_against_what_came_after(story: Story) -> None:
    story.send("a")
    story.cut_power()
    story.write("b", 0)
    story.read(0, ["a"], of=1)


# -- NoDuplicate ----------------------------------------------------------------------------------------------


def test_a_record_of_one_identity_is_there_once_however_often_it_was_sent(story: Story) -> None:
    story.send("a", identity=7)
    story.send("a", identity=7)
    story.read(0, ["a"])
    with pytest.raises(Violation, match=r"NoDuplicate: orders-0 has b'a' at \[0, 1\], expected at most 1"):
        story.read(1, ["a"], reader="d")


def test_a_plain_record_is_there_as_often_as_it_was_sent_at_most(story: Story) -> None:
    story.send("a")
    story.send("a")
    story.read(0, ["a", "a"])
    with pytest.raises(Violation, match="NoDuplicate"):
        story.read(2, ["a"])


def test_a_record_that_a_power_cut_may_have_taken_may_be_elsewhere_after_it(story: Story) -> None:
    story.send("a", identity=7)
    story.read(3, ["a"])
    story.cut_power()
    story.send("a", identity=7)
    story.read(2, ["a"], reader="d")


# -- OrderKept ------------------------------------------------------------------------------------------------


def test_an_idempotent_producers_records_come_in_order(story: Story) -> None:
    story.send("p0", identity=7)
    story.send("p1", identity=7)
    with pytest.raises(Violation, match="OrderKept: c read record 0 of p in orders-0 at 1, after 1"):
        story.read(0, ["p1", "p0"])


def test_a_plain_producers_records_may_come_in_any_order(story: Story) -> None:
    story.send("p0")
    story.send("p1")
    story.read(0, ["p1", "p0"])


def test_a_consumers_offsets_rise(story: Story) -> None:
    story.send("a")
    story.send("b")
    view = story.view(("c", 1), 0, ["a", "b"], 0, 1000, 1)
    story.tell(FetchSent(("c", 1), [AT]))
    with pytest.raises(Violation, match="OrderKept"):
        story.tell(view._replace(records=list(reversed(view.records))))


def test_a_consumer_gets_nothing_from_before_its_offset(story: Story) -> None:
    story.send("a")
    story.send("b")
    view = story.view(("c", 1), 0, ["a", "b"], 0, 1000, 1)
    story.tell(FetchSent(("c", 1), [AT]))
    with pytest.raises(Violation, match="OrderKept"):
        story.tell(view._replace(start=1))


# -- HighWatermarkNeverBack -----------------------------------------------------------------------------------


def test_a_high_watermark_does_not_go_back_over_a_kill(story: Story) -> None:
    story.read(0, [], high_watermark=10)
    story.kill()
    with pytest.raises(Violation, match="HighWatermarkNeverBack: orders-0 was at 10, and then at 9 for d"):
        story.read(0, [], reader="d", high_watermark=9)


def test_a_high_watermark_may_go_back_to_what_is_durable_at_a_power_cut(story: Story) -> None:
    story.write("a", 0)
    story.read(0, ["a"], high_watermark=10)
    story.cut_power()
    story.read(0, ["a"], high_watermark=1)
    with pytest.raises(Violation, match="HighWatermarkNeverBack"):
        story.read(0, ["a"], reader="d", high_watermark=0)


def test_a_reply_is_held_against_what_was_known_when_it_was_asked_for(story: Story) -> None:
    story.tell(FetchSent(("slow", 1), [AT]))
    story.read(0, [], high_watermark=10)
    story.tell(story.view(("slow", 1), 0, [], 0, 5, 1))


def test_an_acknowledged_record_is_below_the_high_watermark(story: Story) -> None:
    story.write("a", 4)
    with pytest.raises(Violation, match="HighWatermarkNeverBack: orders-0 was at 5, and then at 4"):
        story.read(0, [], high_watermark=4)


def test_a_process_that_gets_a_partition_back_learns_its_high_watermark_anew() -> None:
    story = Story(Rules(is_replicated=True))
    story.read(0, [], high_watermark=10)
    story.tell(FetchSent(("slow", 1), [AT]), ReplicaCreated(1, AT))
    story.tell(story.view(("slow", 1), 0, [], 0, 5, 1))
    with pytest.raises(Violation, match="HighWatermarkNeverBack: orders-0 was at 5, and then at 4"):
        story.read(0, [], high_watermark=4)


# -- the others -----------------------------------------------------------------------------------------------


def test_replies_out_of_order_are_caught(story: Story) -> None:
    story.tell(Replied("c", 1, 5, 5))
    with pytest.raises(Violation, match="RepliesInOrder: c on link 1 got reply 7, expected 6"):
        story.tell(Replied("c", 1, 6, 7))


def test_a_reply_that_nobody_asked_for_is_caught(story: Story) -> None:
    with pytest.raises(Violation, match="RepliesInOrder"):
        story.tell(Replied("c", 1, -1, 7))


def test_a_request_that_is_never_answered_is_caught_unless_the_node_is_gone(story: Story) -> None:
    story.tell(Overdue("c", "Fetch 17", is_node_there=False))
    with pytest.raises(Violation, match="EveryRequestAnswered: c got no reply to its Fetch 17"):
        story.tell(Overdue("c", "Fetch 17", is_node_there=True))


def test_a_producer_id_is_given_out_once(story: Story) -> None:
    story.tell(GotProducerId("p", 7, 0, 1))
    with pytest.raises(Violation, match="ProducersRemembered: producer id 7 of p was also given to q"):
        story.tell(GotProducerId("q", 7, 0, 1))


@pytest.mark.parametrize("code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID])
def test_a_producer_whose_records_are_durable_is_not_forgotten(story: Story, code: ErrorCode) -> None:
    story.write("p0", 0, identity=7)
    story.cut_power()
    story.send("p1", identity=7)
    story.tell(Refused(story.batches["p1"], code, is_first=False, incarnation=2))
    with pytest.raises(Violation, match="ProducersRemembered"):
        story.tell(Refused(story.batches["p1"], code, is_first=True, incarnation=2))


def test_a_producer_whose_records_a_power_cut_may_take_may_be_forgotten(story: Story) -> None:
    story.write("p0", 0, Survives.KILL, identity=7)
    story.cut_power()
    story.send("p1", identity=7)
    story.tell(Refused(story.batches["p1"], ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, True, 2))


def test_a_sound_batch_is_not_called_corrupt(story: Story) -> None:
    story.send("a")
    story.tell(Refused(story.batches["a"], ErrorCode.REQUEST_TIMED_OUT, is_first=True, incarnation=1))
    with pytest.raises(Violation, match=r"NoStrangeError: .* was rejected with CORRUPT_MESSAGE"):
        story.tell(Refused(story.batches["a"], ErrorCode.CORRUPT_MESSAGE, is_first=True, incarnation=1))


def test_a_storage_error_is_for_disks_that_fail() -> None:
    for rules in (Rules(has_disk_faults=True), Rules()):
        story = Story(rules)
        story.send("a")
        refused = Refused(story.batches["a"], ErrorCode.KAFKA_STORAGE_ERROR, is_first=True, incarnation=1)
        if rules.has_disk_faults:
            story.tell(refused)
        else:
            with pytest.raises(Violation, match="NoStrangeError"):
                story.tell(refused)


def test_a_topic_keeps_its_id_and_its_partitions(story: Story) -> None:
    met = TopicDescribed("orders", UUID(int=1000), 3)
    story.tell(met, met)
    with pytest.raises(Violation, match="TopicsKept"):
        story.tell(met._replace(id=UUID(int=1001)))
