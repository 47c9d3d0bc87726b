"""EndTxn: commit and abort, their markers, and asking twice."""

import pytest
from tests.coordinator.transactions.driver import ID, P0, P1, P2, V1, V2, Driver

from penstock.base.errors import ErrorCode
from penstock.coordinator.transactions.coordinator import RETRY_MS
from penstock.coordinator.transactions.requests import EndTxn, MarkersWritten, ProducerEpoch, ProducerReply
from penstock.coordinator.transactions.state import State

LAST_EPOCH = 2**15 - 2
NONE, FENCED, INVALID = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [V1, V2])
def test_an_end_is_decided_first_then_marked_then_complete(version: int, commit: bool) -> None:
    driver = Driver()
    producer = driver.init()
    driver.add(producer, P0, P1, version=version)
    outcome = driver.decide(EndTxn(ID, producer, commit, version))
    assert driver.coordinator.take_markers() == [], "nothing is marked before the decision is committed"
    driver.commit(outcome)
    assert driver.state.state is (State.PREPARE_COMMIT if commit else State.PREPARE_ABORT)
    (markers,) = driver.coordinator.take_markers()
    assert (markers.commit, markers.partitions, markers.version) == (commit, {P0, P1}, version)
    assert markers.producer == (producer.producer_id, producer.epoch + (version == V2))
    assert markers.coordinator_epoch == driver.epoch
    driver.ask(MarkersWritten(ID, markers.end, frozenset({P1})))
    assert driver.state.state.is_prepared, "one partition is not marked yet"
    driver.ask(MarkersWritten(ID, markers.end, frozenset({P0, P1})))
    assert driver.state.state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
    assert driver.state.partitions == frozenset()
    assert driver.coordinator.take_markers() == []


def test_a_client_of_version_1_keeps_its_epoch_and_is_told_none() -> None:
    driver = Driver()
    producer = driver.init()
    driver.add(producer, P0, version=V1)
    assert driver.end(producer, version=V1) == ProducerReply(NONE)
    driver.write_markers()
    assert driver.state.epoch == producer.epoch
    assert driver.run(producer, version=V1) == producer


def test_a_client_of_version_2_is_given_the_next_epoch_at_every_end() -> None:
    """KIP-890 part 2."""
    driver = Driver()
    producer = driver.init()
    for n in range(1, 4):
        producer = driver.run(producer, commit=n % 2 == 0)
        assert producer.epoch == n
    assert driver.add(producer._replace(epoch=2), P0) is FENCED


class TestVersion1:
    """The end of a transaction under an epoch that stays."""

    def test_asking_twice_is_as_good_as_once(self) -> None:
        for commit in (True, False):
            driver = Driver()
            producer = driver.init()
            driver.add(producer, P0, version=V1)
            driver.end(producer, commit=commit, version=V1)
            again = driver.end(producer, commit=commit, version=V1)
            assert again.code is ErrorCode.CONCURRENT_TRANSACTIONS
            driver.write_markers()
            assert driver.end(producer, commit=commit, version=V1).code is NONE
            assert driver.end(producer, commit=not commit, version=V1).code is INVALID

    def test_there_must_be_a_transaction(self) -> None:
        driver = Driver()
        producer = driver.init()
        assert driver.end(producer, version=V1).code is INVALID
        assert driver.end(producer, commit=False, version=V1).code is INVALID

    def test_the_producer_must_be_the_one_we_know(self) -> None:
        driver = Driver()
        assert driver.end(ProducerEpoch(1, 0), version=V1).code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        old, new = driver.init(), driver.init()
        driver.add(new, P0, version=V1)
        assert driver.end(ProducerEpoch(1, 0), version=V1).code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert driver.end(old, version=V1).code is FENCED
        assert driver.end(new._replace(epoch=7), version=V1).code is FENCED
        assert driver.ask(EndTxn("", new, True)).code is ErrorCode.INVALID_REQUEST


class TestVersion2:
    """KIP-890 part 2: by its epoch a repeated end is told from the next."""

    @pytest.mark.parametrize(
        ("last_end", "commit", "repeated", "new"),
        [
            (None, False, FENCED, NONE),
            (None, True, FENCED, INVALID),
            (False, False, NONE, NONE),
            (False, True, INVALID, INVALID),
            (True, False, INVALID, NONE),
            (True, True, NONE, INVALID),
        ],
    )
    def test_what_an_end_without_a_transaction_gets(
        self, last_end: bool | None, commit: bool, repeated: ErrorCode, new: ErrorCode
    ) -> None:
        driver = Driver()
        driver.init()
        producer = driver.init()
        if last_end is not None:
            producer = driver.run(producer, commit=last_end)
        before = driver.state
        reply = driver.end(producer._replace(epoch=producer.epoch - 1), commit=commit)
        assert reply == (ProducerReply(NONE, *producer) if repeated is NONE else ProducerReply(repeated))
        assert driver.state == before
        reply = driver.end(producer, commit=commit)
        bumped = ProducerReply(NONE, producer.producer_id, producer.epoch + 1)
        assert reply == (bumped if new is NONE else ProducerReply(new))

    def test_an_abort_of_nothing_is_complete_at_once(self) -> None:
        driver = Driver()
        producer = driver.init()
        outcome = driver.decide(EndTxn(ID, producer, False, V2))
        assert len(outcome.records) == 2, "prepared and complete, as Kafka writes them"
        driver.commit(outcome)
        assert driver.state.state is State.COMPLETE_ABORT
        assert driver.coordinator.take_markers() == []
        assert driver.state.started_ms == driver.now_ms

    def test_while_markers_are_written_every_end_waits(self) -> None:
        driver = Driver()
        producer = driver.init()
        driver.add(producer, P0)
        driver.end(producer)
        for commit in (True, False):
            assert driver.end(producer, commit=commit).code is ErrorCode.CONCURRENT_TRANSACTIONS

    def test_the_producer_must_be_the_one_we_know(self) -> None:
        driver = Driver()
        assert driver.end(ProducerEpoch(1, 0)).code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        old, new = driver.init(), driver.init()
        assert driver.end(ProducerEpoch(1, 0)).code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        driver.add(new, P0)
        assert driver.end(old).code is FENCED
        assert driver.end(old, commit=False).code is FENCED
        assert driver.end(new._replace(epoch=7)).code is FENCED
        assert driver.ask(EndTxn("", new, True, V2)).code is ErrorCode.INVALID_REQUEST

    def test_a_fenced_producer_does_not_take_the_end_of_a_version_1_owner_for_its_own(self) -> None:
        """Kafka goes by the epoch alone here, and would let both write under one epoch."""
        driver = Driver()
        old, new = driver.init(), driver.init()
        driver.run(new, commit=False, version=V1)
        assert driver.end(old, commit=False).code is FENCED

    def test_the_end_that_uses_up_the_epochs_gives_a_new_producer_id(self) -> None:
        """KAFKA-18660. The markers have epoch 32767 of the old id; the client goes on with epoch 0 of another."""
        driver = Driver()
        driver.init()
        last = driver.at_epoch(LAST_EPOCH)
        driver.add(last, P0)
        reply = driver.end(last)
        assert (reply.code, reply.epoch) == (NONE, 0)
        assert reply.producer_id != last.producer_id
        (markers,) = driver.write_markers()
        assert markers.producer == (last.producer_id, LAST_EPOCH + 1)
        assert driver.end(last) == reply, "asked again, it is the same id"
        assert driver.end(last, commit=False).code is INVALID
        assert driver.add(ProducerEpoch(reply.producer_id, 0), P0) is NONE
        assert driver.add(last, P0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING

    def test_the_new_producer_id_survives_a_reload_between_decision_and_completion(self) -> None:
        driver = Driver()
        driver.init()
        last = driver.at_epoch(LAST_EPOCH)
        driver.add(last, P0)
        reply = driver.end(last)
        driver.reload()
        driver.write_markers()
        assert (driver.state.producer_id, driver.state.epoch) == (reply.producer_id, 0)


class TestMarkers:
    def test_what_was_said_of_an_earlier_end_does_not_count_for_a_later_one(self) -> None:
        """Before transaction.version 2, both have the same producer and epoch."""
        driver = Driver()
        producer = driver.init()
        driver.add(producer, P0, version=V1)
        driver.end(producer, version=V1)
        (first,) = driver.write_markers()
        driver.add(producer, P0, version=V1)
        driver.end(producer, commit=False, version=V1)
        (second,) = driver.coordinator.take_markers()
        assert (first.producer, first.partitions) == (second.producer, second.partitions)
        driver.ask(MarkersWritten(ID, first.end, first.partitions))
        assert driver.state.state is State.PREPARE_ABORT
        driver.ask(MarkersWritten(ID, second.end, second.partitions))
        assert driver.state.state is State.COMPLETE_ABORT

    def test_markers_that_nobody_waits_for_change_nothing(self) -> None:
        driver = Driver()
        assert driver.decide(MarkersWritten(ID, 1, frozenset({P0}))).records == ()
        driver.run(driver.init())
        before = driver.state
        for end in range(5):
            assert driver.decide(MarkersWritten(ID, end, frozenset({P0, P1}))).records == ()
        assert driver.state == before

    def test_a_last_record_that_is_not_written_is_tried_again(self) -> None:
        driver = Driver()
        producer = driver.init()
        driver.add(producer, P0)
        driver.end(producer)
        (markers,) = driver.coordinator.take_markers()
        driver.fail(driver.decide(MarkersWritten(ID, markers.end, frozenset({P0}))))
        assert driver.state.state is State.PREPARE_COMMIT
        assert driver.coordinator.next_deadline_ms() == driver.now_ms + RETRY_MS
        assert driver.tick() == []
        driver.now_ms += RETRY_MS
        (due,) = driver.coordinator.tick(driver.now_ms)
        driver.fail(driver.decide(due))
        driver.now_ms += RETRY_MS
        assert len(driver.tick()) == 1
        assert driver.state.state is State.COMPLETE_COMMIT

    def test_a_partition_that_is_gone_counts_as_marked(self) -> None:
        driver = Driver()
        producer = driver.init()
        driver.add(producer, P0, P2)
        driver.end(producer)
        (markers,) = driver.coordinator.take_markers()
        driver.ask(MarkersWritten(ID, markers.end, frozenset({P0})))
        driver.ask(MarkersWritten(ID, markers.end, frozenset({P2})))
        assert driver.state.state is State.COMPLETE_COMMIT

    def test_an_end_that_is_not_written_leaves_the_transaction_open(self) -> None:
        driver = Driver()
        producer = driver.init()
        driver.add(producer, P0)
        before = driver.state
        driver.fail(driver.decide(EndTxn(ID, producer, True, V2)))
        assert driver.state == before
        assert driver.coordinator.take_markers() == []
        assert driver.end(producer, commit=False).code is NONE
