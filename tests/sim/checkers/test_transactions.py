"""The rules of transactions and groups on histories made by hand."""

import pytest

from penstock.base.hashing import partition_for
from penstock.base.ids import TopicPartition
from penstock.sim.checkers.all_checkers import AllCheckers
from penstock.sim.checkers.history import (
    Acked,
    Batch,
    Closed,
    CommitSent,
    CoordinatorLoaded,
    CoordinatorUnloaded,
    Delivered,
    Derived,
    Event,
    FetchReceived,
    FetchSent,
    Initialised,
    InitSent,
    LeaderFound,
    Leased,
    OffsetCommit,
    OffsetFetchSent,
    OffsetsAcked,
    OffsetsFetched,
    OffsetsRefused,
    OffsetsSent,
    Owned,
    PowerCut,
    ProducedRecord,
    ReadRecord,
    Renewal,
    RequestRefused,
    Sent,
    Survives,
    Txn,
    TxnEnd,
    TxnEnded,
)
from penstock.sim.checkers.records import Rules, Violation

AT = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
SOURCE = TopicPartition("source", 0)


class Story:
    def __init__(self, rules: Rules | None = None) -> None:
        self.checkers = AllCheckers(rules or Rules())
        self.txns = 0
        self.requests = 0
        self.offsets: dict[TopicPartition, int] = {}
        self.places: dict[str, tuple[TopicPartition, int]] = {}

    def tell(self, *events: Event) -> None:
        for event in events:
            self.checkers.see(event)

    # -- transactions ----------------------------------------------------------------------------------

    def begin(self, **values: TopicPartition) -> Txn:
        """A transaction whose records are acknowledged: values by name, with where they are."""
        self.txns += 1
        txn = Txn("producer", self.txns)
        for value, at in values.items():
            self.write(value, at, txn)
        return txn

    def write(self, value: str, at: TopicPartition, txn: Txn | None = None) -> None:
        batch = Batch(
            "producer", len(self.places), at, -1, [ProducedRecord(None, value.encode(), len(self.places))]
        )
        batch.sends = 1
        batch.txn = txn
        batch.identities.append((1, 0, len(self.places)))
        if txn is not None:
            txn.batches.append(batch)
        offset = self.offsets.get(at, 0)
        self.offsets[at] = offset + 1
        self.places[value] = at, offset
        self.tell(Sent(batch), Acked(batch, offset, Survives.POWER_CUT, 1))

    def ask_commit(self, txn: Txn) -> None:
        txn.commit_sends += 1
        self.tell(CommitSent(txn))

    def end(self, txn: Txn, end: TxnEnd) -> None:
        txn.end = end
        self.tell(TxnEnded(txn))

    def commit(self, txn: Txn) -> None:
        self.ask_commit(txn)
        self.end(txn, TxnEnd.COMMITTED)

    def seen(self, value: str) -> ReadRecord:
        return ReadRecord(self.places[value][1], None, value.encode())

    def give(self, *values: str) -> None:
        for value in values:
            self.tell(Delivered("reader", self.places[value][0], [self.seen(value)], []))

    def hide(self, *values: str) -> None:
        for value in values:
            self.tell(Delivered("reader", self.places[value][0], [], [self.seen(value)]))

    # -- groups ----------------------------------------------------------------------------------------

    def send_offset(
        self, name: str, offset: int, txn: Txn | None = None, at: TopicPartition = AT
    ) -> OffsetCommit:
        commit = OffsetCommit(name, "group", at, offset, txn)
        if txn is not None:
            txn.commits.append(commit)
        self.tell(OffsetsSent([commit]))
        return commit

    def commit_offset(self, name: str, offset: int, txn: Txn | None = None, at: TopicPartition = AT) -> None:
        self.tell(OffsetsAcked([self.send_offset(name, offset, txn, at)]))

    def want(self) -> tuple[str, int]:
        self.requests += 1
        request = "reader", self.requests
        self.tell(OffsetFetchSent(request))
        return request

    def read_offset(
        self,
        name: str,
        offset: int,
        *,
        request: tuple[str, int] | None = None,
        is_stable: bool = True,
        at: TopicPartition = AT,
    ) -> None:
        names = {at: (offset, name)}
        self.tell(OffsetsFetched(request or self.want(), "group", names, is_stable))


@pytest.fixture
def story() -> Story:
    return Story()


# -- NoAbortedRead --------------------------------------------------------------------------------------------


def test_a_record_whose_commit_nobody_asked_for_is_not_read(story: Story) -> None:
    story.begin(a=AT)
    with pytest.raises(Violation, match=r"NoAbortedRead: reader got b'a' at 0 of orders-0: .*open"):
        story.give("a")


def test_a_record_of_an_aborted_transaction_is_not_read(story: Story) -> None:
    txn = story.begin(a=AT)
    story.ask_commit(txn)
    story.end(txn, TxnEnd.ABORTED)
    with pytest.raises(Violation, match="NoAbortedRead"):
        story.give("a")


def test_a_record_that_was_read_and_turns_out_to_be_aborted_is_caught(story: Story) -> None:
    txn = story.begin(a=AT)
    story.ask_commit(txn)
    story.give("a")
    with pytest.raises(Violation, match="NoAbortedRead: b'a' was delivered before"):
        story.end(txn, TxnEnd.ABORTED)


def test_a_record_may_be_read_before_its_producer_knows_that_it_is_committed(story: Story) -> None:
    txn = story.begin(a=AT)
    story.ask_commit(txn)
    story.give("a")
    story.end(txn, TxnEnd.COMMITTED)
    story.tell(Closed())


# -- NoHalfTransaction ----------------------------------------------------------------------------------------


def test_a_transaction_is_not_given_on_one_partition_and_hidden_on_another(story: Story) -> None:
    txn = story.begin(a=AT, b=OTHER)
    story.ask_commit(txn)
    story.give("a")
    with pytest.raises(Violation, match="NoHalfTransaction: b'b' at 0 of orders-1 was hidden from reader"):
        story.hide("b")


def test_of_a_transaction_whose_end_is_unknown_all_is_given_or_nothing(story: Story) -> None:
    txn = story.begin(a=AT, b=OTHER)
    story.ask_commit(txn)
    story.end(txn, TxnEnd.UNKNOWN)
    story.give("a")
    with pytest.raises(Violation, match="NoHalfTransaction: b'a' was delivered, but never b'b' of orders-1"):
        story.tell(Closed())


def test_what_retention_took_may_be_missing() -> None:
    story = Story(Rules(shortened=frozenset({"orders"})))
    txn = story.begin(a=AT, b=OTHER)
    story.commit(txn)
    story.give("a")
    story.tell(Closed())


def test_offsets_of_a_transaction_do_not_count_without_its_records(story: Story) -> None:
    txn = story.begin(a=AT)
    story.commit_offset("one", 5, txn)
    story.ask_commit(txn)
    story.end(txn, TxnEnd.UNKNOWN)
    story.read_offset("one", 5)
    with pytest.raises(Violation, match="NoHalfTransaction: 5 of orders-0 for group"):
        story.tell(Closed())


# -- CommittedNotHidden ---------------------------------------------------------------------------------------


def test_what_is_committed_is_not_hidden(story: Story) -> None:
    story.commit(story.begin(a=AT))
    with pytest.raises(Violation, match="CommittedNotHidden: from reader b'a'"):
        story.hide("a")


def test_what_was_hidden_may_not_turn_out_to_be_committed(story: Story) -> None:
    txn = story.begin(a=AT)
    story.ask_commit(txn)
    story.hide("a")
    with pytest.raises(Violation, match="CommittedNotHidden: b'a' was hidden"):
        story.end(txn, TxnEnd.COMMITTED)


def test_what_is_committed_is_given_to_somebody_in_the_end(story: Story) -> None:
    story.commit(story.begin(a=AT))
    with pytest.raises(Violation, match="CommittedNotHidden: b'a' of orders-0 was never delivered"):
        story.tell(Closed())


def test_an_aborted_transaction_may_be_hidden(story: Story) -> None:
    txn = story.begin(a=AT, b=OTHER)
    story.end(txn, TxnEnd.ABORTED)
    story.hide("a", "b")
    story.tell(Closed())


# -- EpochsRise -----------------------------------------------------------------------------------------------


def test_who_becomes_a_transactional_id_is_in_a_later_epoch(story: Story) -> None:
    story.tell(InitSent("a"), Initialised("a", "txn", 7, 3, True), InitSent("b"))
    with pytest.raises(
        Violation, match="EpochsRise: b got epoch 3 of producer id 7 for txn, which had epoch 3"
    ):
        story.tell(Initialised("b", "txn", 7, 3, True))


def test_a_reply_that_is_late_may_tell_of_an_earlier_epoch(story: Story) -> None:
    story.tell(InitSent("a"), InitSent("b"), Initialised("b", "txn", 7, 1, True))
    story.tell(Initialised("a", "txn", 7, 0, True))


def test_a_producer_id_is_of_one_transactional_id(story: Story) -> None:
    story.tell(InitSent("a"), Initialised("a", "txn", 7, 0, True), InitSent("b"))
    with pytest.raises(Violation, match="EpochsRise: producer id 7 of txn was given to b"):
        story.tell(Initialised("b", "other", 7, 1, True))


# -- OneOwner -------------------------------------------------------------------------------------------------


def test_a_partition_has_one_owner_in_a_generation(story: Story) -> None:
    story.tell(Owned("group", 3, "a", [0, 1], 10))
    story.tell(Owned("group", 4, "b", [0], 20), Owned("elsewhere", 3, "b", [0], 20))
    with pytest.raises(Violation, match="OneOwner: partition 1 was given to a in generation 3 of group"):
        story.tell(Owned("group", 3, "b", [1], 30))


def test_a_partition_is_not_given_away_before_its_owners_session_has_ended(story: Story) -> None:
    story.tell(Leased("group", 3, "a", [0], 100))
    with pytest.raises(
        Violation, match="OneOwner: partition 0 of group was assigned to b at 99, though a has it"
    ):
        story.tell(Owned("group", 4, "b", [0], 99))


def test_a_partition_that_was_given_up_or_whose_session_has_ended_is_free(story: Story) -> None:
    story.tell(Leased("group", 3, "a", [0], 100), Owned("group", 4, "b", [0], 100))
    story.tell(Leased("group", 4, "b", [0], 300), Leased("group", 4, "b", [], 300))
    story.tell(Owned("group", 5, "c", [0], 200))


def test_who_hears_late_of_an_earlier_generation_is_no_second_owner(story: Story) -> None:
    story.tell(Leased("group", 3, "a", [0], 100), Owned("group", 2, "b", [0], 50))


@pytest.mark.parametrize(
    ("node", "sent_us", "is_renewed"),
    [
        (1, 4, False),
        (1, 5, True),
        (1, 49, True),
        (1, 50, False),
        (1, 79, False),
        (2, 54, False),
        (2, 55, True),
        (2, 80, False),
        (1, 84, False),
        (1, 85, True),
    ],
)
def test_a_session_is_renewed_by_who_coordinates_the_group_when_it_is_asked(
    node: int, sent_us: int, is_renewed: bool
) -> None:
    """Node 1 leads, then node 2, then node 1 again, and each takes a while to read the group; of another partition
    nothing follows."""
    story = Story(Rules(is_replicated=True, offsets_partitions=2))
    number = partition_for("group", 2)
    for partition in (number, 1 - number):
        led_by = (1, 2, 1) if partition == number else (3, 3, 3)
        at, topic_id = TopicPartition("__consumer_offsets", partition), b"id of the offsets"
        for epoch, (leader, now_us) in enumerate(zip(led_by, (0, 50, 80), strict=True)):
            story.tell(LeaderFound(leader, at, topic_id, epoch, now_us))
            story.tell(CoordinatorLoaded(leader, partition, epoch, now_us + 5))
    story.tell(Leased("group", 3, "a", [0], 200, Renewal(node, sent_us)))
    owned = Owned("group", 4, "b", [0], 199)
    if is_renewed:
        with pytest.raises(Violation, match="OneOwner: partition 0 of group was assigned to b at 199"):
            story.tell(owned)
    else:
        story.tell(owned)


@pytest.mark.parametrize(("sent_us", "is_renewed"), [(9, True), (10, False), (19, False), (20, True)])
def test_a_coordinator_that_reads_its_partition_anew_renews_no_session(
    sent_us: int, is_renewed: bool
) -> None:
    story = Story(Rules(is_replicated=True, offsets_partitions=1))
    story.tell(LeaderFound(1, TopicPartition("__consumer_offsets", 0), b"id of the offsets", 0, 0))
    story.tell(CoordinatorLoaded(1, 0, 0, 5))
    story.tell(CoordinatorUnloaded(1, 0, 0, 10))
    story.tell(CoordinatorLoaded(1, 0, 0, 20))
    story.tell(Leased("group", 3, "a", [0], 200, Renewal(1, sent_us)))
    owned = Owned("group", 4, "b", [0], 199)
    if is_renewed:
        with pytest.raises(Violation, match="OneOwner"):
            story.tell(owned)
    else:
        story.tell(owned)


# -- OffsetsNotLostOrRewound ----------------------------------------------------------------------------------


def test_an_offset_that_was_acknowledged_is_there(story: Story) -> None:
    story.commit_offset("one", 5)
    story.read_offset("one", 5)
    with pytest.raises(Violation, match="OffsetsNotLostOrRewound: group has no offset for orders-0"):
        story.read_offset("", -1)


def test_an_offset_does_not_go_back(story: Story) -> None:
    story.commit_offset("one", 5)
    story.commit_offset("two", 9)
    with pytest.raises(
        Violation, match=r"group has 5 of orders-0 .* though 9 of orders-0 .* was committed after"
    ):
        story.read_offset("one", 5)


def test_an_offset_that_was_read_once_does_not_go_back_though_its_reply_was_lost(story: Story) -> None:
    story.commit_offset("one", 5)
    story.send_offset("two", 9)
    story.read_offset("one", 5)
    story.read_offset("two", 9)
    with pytest.raises(Violation, match="OffsetsNotLostOrRewound"):
        story.read_offset("one", 5)


def test_a_reader_that_began_before_a_commit_may_read_the_one_before(story: Story) -> None:
    story.commit_offset("one", 5)
    request = story.want()
    story.commit_offset("two", 9)
    story.read_offset("one", 5, request=request)


def test_an_offset_that_nobody_committed_or_that_was_refused_is_caught(story: Story) -> None:
    with pytest.raises(Violation, match="which was never committed"):
        story.read_offset("one", 5)
    story.tell(OffsetsRefused([story.send_offset("two", 6)]))
    with pytest.raises(Violation, match="which was not committed"):
        story.read_offset("two", 6)


def test_an_offset_of_an_open_transaction_does_not_count(story: Story) -> None:
    txn = story.begin()
    story.commit_offset("one", 5, txn)
    story.read_offset("", -1)
    with pytest.raises(Violation, match="which was not committed"):
        story.read_offset("one", 5)


def test_an_offset_of_a_committed_transaction_counts_for_who_waits_for_it(story: Story) -> None:
    txn = story.begin()
    story.commit_offset("one", 5, txn)
    story.commit(txn)
    story.read_offset("", -1, is_stable=False)
    with pytest.raises(Violation, match="group has no offset for orders-0, though 5 of orders-0"):
        story.read_offset("", -1)


def test_a_commit_that_came_after_a_transactions_offset_was_written_replaces_it(story: Story) -> None:
    """Kafka goes by the order of the records, not by when the transaction ends."""
    txn = story.begin()
    story.commit_offset("one", 5, txn)
    story.commit_offset("two", 9)
    story.commit(txn)
    story.read_offset("two", 9)


# -- ExactlyOnce ----------------------------------------------------------------------------------------------


def process(story: Story, value: str, *, of: str) -> Txn:
    """Read a record, write another, and commit how far that is."""
    at, offset = story.places[of]
    story.tell(Derived(value.encode(), "group", at, offset, of.encode()))
    txn = story.begin(**{value: AT})
    story.commit_offset(f"after {value}", offset + 1, txn, at)
    story.commit(txn)
    return txn


def test_what_is_made_of_a_record_is_there_once(story: Story) -> None:
    story.write("in", SOURCE)
    process(story, "out", of="in")
    story.give("out", "out")
    story.read_offset("after out", 1, at=SOURCE)
    story.tell(Closed())
    process(story, "again", of="in")
    with pytest.raises(Violation, match="ExactlyOnce: the result of group for source-0 at 0 exists twice"):
        story.give("again")


def test_a_record_that_a_group_has_passed_without_a_trace_is_caught(story: Story) -> None:
    story.write("in", SOURCE)
    story.write("missed", SOURCE)
    process(story, "out", of="in")
    story.give("out")
    story.commit_offset("too far", 2, at=SOURCE)
    story.read_offset("too far", 2, at=SOURCE)
    with pytest.raises(
        Violation, match=r"ExactlyOnce: group is at 2 of source-0, and .*b'missed' at 1 exists 0"
    ):
        story.tell(Closed())


def test_what_was_read_before_it_was_durable_may_count_twice_after_a_power_cut(story: Story) -> None:
    request = "c", 1
    story.tell(FetchSent(request, [SOURCE]))
    story.tell(FetchReceived("c", SOURCE, request, 0, 0, [], 1, 0, 1))
    story.tell(PowerCut(1))
    for value in ("one", "two"):
        story.tell(Derived(value.encode(), "group", SOURCE, 0, b"in"))
        story.commit(story.begin(**{value: AT}))
        story.give(value)


# -- NoStrangeError -------------------------------------------------------------------------------------------


def test_a_coordinator_refuses_for_a_reason(story: Story) -> None:
    story.tell(RequestRefused("worker", "EndTxn", 90, True))
    with pytest.raises(Violation, match="NoStrangeError: EndTxn of worker was rejected with PRODUCER_FENCED"):
        story.tell(RequestRefused("worker", "EndTxn", 90, False))
