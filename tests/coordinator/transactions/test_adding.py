"""AddPartitionsToTxn, AddOffsetsToTxn, and the questions of partitions that are about to be written to."""

import pytest
from tests.coordinator.transactions.driver import ID, P0, P1, P2, V1, Driver

from penstock.base.errors import ErrorCode
from penstock.base.hashing import partition_for
from penstock.base.ids import TopicPartition
from penstock.coordinator.transactions.requests import (
    AddPartitions,
    EndTxn,
    ProducerEpoch,
    VerifyPartitions,
    add_offsets,
)
from penstock.coordinator.transactions.state import State


def verify(
    driver: Driver, producer: ProducerEpoch, *partitions: TopicPartition
) -> dict[TopicPartition, ErrorCode]:
    codes: dict[TopicPartition, ErrorCode] = driver.ask(
        VerifyPartitions(ID, producer, frozenset(partitions))
    ).codes
    return codes


def test_the_first_partition_begins_the_transaction_and_the_next_do_not_begin_it_again() -> None:
    driver = Driver()
    producer = driver.init()
    begun_ms = driver.now_ms = driver.now_ms + 10
    assert driver.add(producer, P0) is ErrorCode.NONE
    driver.now_ms += 10
    assert driver.add(producer, P1) is ErrorCode.NONE
    assert driver.state.state is State.ONGOING
    assert driver.state.partitions == {P0, P1}
    assert driver.state.started_ms == begun_ms
    assert driver.state.updated_ms == driver.now_ms


def test_partitions_that_are_there_already_are_not_written_again() -> None:
    driver = Driver()
    producer = driver.init()
    driver.add(producer, P0, P1)
    outcome = driver.decide(AddPartitions(ID, producer, frozenset({P1})))
    assert (outcome.reply.code, outcome.records) == (ErrorCode.NONE, ())


@pytest.mark.parametrize("version", [0, 2])
def test_who_may_not_add(version: int) -> None:
    driver = Driver()
    assert driver.add(ProducerEpoch(1, 0), P0, version=version) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    old = driver.init()
    new = driver.init()
    assert driver.add(old, P0, version=version) is ErrorCode.PRODUCER_FENCED
    assert driver.add(new._replace(epoch=9), P0, version=version) is ErrorCode.PRODUCER_FENCED
    assert driver.add(ProducerEpoch(1, 0), P0, version=version) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    nameless = AddPartitions("", new, frozenset({P0}), version)
    assert driver.ask(nameless).code is ErrorCode.INVALID_REQUEST


def test_while_a_change_is_not_committed_nothing_is_added() -> None:
    driver = Driver()
    producer = driver.init()
    pending = driver.decide(AddPartitions(ID, producer, frozenset({P0})))
    assert driver.add(producer, P1) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.commit(pending)
    assert driver.add(producer, P1) is ErrorCode.NONE


def test_an_addition_that_is_not_written_did_not_happen() -> None:
    driver = Driver()
    producer = driver.init()
    before = driver.state
    driver.fail(driver.decide(AddPartitions(ID, producer, frozenset({P0}))))
    assert driver.state == before
    assert driver.add(producer, P1) is ErrorCode.NONE
    assert driver.state.partitions == {P1}


def test_the_next_transaction_is_told_to_wait_and_is_not_fenced_while_the_last_one_ends() -> None:
    """KAFKA-18660: its epoch may be one that the coordinator has not come to yet."""
    driver = Driver()
    producer = driver.init()
    driver.add(producer, P0)
    outcome = driver.decide(EndTxn(ID, producer, True, 2))
    ahead = ProducerEpoch(outcome.reply.producer_id, outcome.reply.epoch)
    assert driver.add(ahead, P0) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.commit(outcome)
    assert driver.add(ahead, P0) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.write_markers()
    assert driver.add(ahead, P0) is ErrorCode.NONE


def test_offsets_join_with_the_partition_that_keeps_their_group() -> None:
    driver = Driver()
    producer = driver.init()
    assert driver.ask(add_offsets(ID, producer, "billing", 50)).code is ErrorCode.NONE
    kept_by = TopicPartition("__consumer_offsets", partition_for("billing", 50))
    assert driver.state.partitions == {kept_by}


class TestVerifying:
    """KIP-890 part 1: a partition's leader asks before it appends what an older client sends."""

    def test_each_partition_is_answered_for_itself(self) -> None:
        driver = Driver()
        producer = driver.init()
        driver.add(producer, P0, version=V1)
        assert verify(driver, producer, P0, P1) == {
            P0: ErrorCode.NONE,
            P1: ErrorCode.TRANSACTION_ABORTABLE,
        }
        assert len(driver.log) == 2, "a question writes nothing"

    def test_what_is_added_and_not_committed_is_not_there_yet(self) -> None:
        driver = Driver()
        producer = driver.init()
        pending = driver.decide(AddPartitions(ID, producer, frozenset({P0})))
        assert verify(driver, producer, P0) == {P0: ErrorCode.TRANSACTION_ABORTABLE}
        driver.commit(pending)
        assert verify(driver, producer, P0) == {P0: ErrorCode.NONE}

    def test_who_is_refused_is_refused_for_all(self) -> None:
        driver = Driver()
        stranger = ProducerEpoch(1, 0)
        refused = dict.fromkeys((P0, P2), ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        assert verify(driver, stranger, P0, P2) == refused
        old, new = driver.init(), driver.init()
        assert verify(driver, stranger, P0, P2) == refused
        assert verify(driver, old, P0) == {P0: ErrorCode.PRODUCER_FENCED}
        driver.add(new, P0, version=V1)
        driver.end(new, version=V1)
        assert verify(driver, new, P0) == {P0: ErrorCode.CONCURRENT_TRANSACTIONS}
        driver.write_markers()
        assert verify(driver, new, P0) == {P0: ErrorCode.TRANSACTION_ABORTABLE}
        nameless = VerifyPartitions("", new, frozenset({P0}))
        assert driver.ask(nameless).codes == {P0: ErrorCode.INVALID_REQUEST}
