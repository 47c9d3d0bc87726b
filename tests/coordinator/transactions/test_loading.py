"""A coordinator is what its log says: replayed, taken up, given away."""

import pytest
from tests.coordinator.transactions.driver import ID, P0, P1, TIMEOUT_MS, V2, Driver, load

from penstock.base.errors import ErrorCode
from penstock.coordinator.transactions.coordinator import RETRY_MS, TransactionCoordinator
from penstock.coordinator.transactions.requests import AddPartitions, InitProducerId, MarkersWritten
from penstock.coordinator.transactions.schema import encode_key
from penstock.coordinator.transactions.state import State, Transaction
from penstock.records.structs import CorruptStruct


def test_every_state_comes_back_except_what_kafka_does_not_write_either() -> None:
    driver = Driver()
    producer = driver.init()
    for step in (
        lambda: driver.init(producer),
        lambda: driver.add(driver.init(), P0, P1),
        lambda: driver.end(producer._replace(epoch=2)),
        driver.write_markers,
    ):
        step()
        before = driver.state
        driver.reload()
        assert driver.state == before._replace(last_epoch=-1)


@pytest.mark.parametrize("commit", [True, False])
def test_markers_of_what_was_decided_are_written_again_with_the_new_coordinators_epoch(commit: bool) -> None:
    driver = Driver()
    producer = driver.init()
    driver.add(producer, P0, P1)
    driver.end(producer, commit=commit)
    (before,) = driver.coordinator.take_markers()
    driver.ask(MarkersWritten(ID, before.end, frozenset({P0})))
    driver.reload()
    (markers,) = driver.coordinator.take_markers()
    assert markers.partitions == {P0, P1}, "which of them was written is not in the log"
    assert (markers.producer, markers.commit) == (before.producer, commit)
    assert markers.coordinator_epoch == before.coordinator_epoch + 1
    driver.ask(MarkersWritten(ID, markers.end, markers.partitions))
    assert driver.state.state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)


def test_a_decided_end_without_partitions_is_completed_after_a_reload() -> None:
    """Kafka writes its two records apart, so a log may end between them."""
    driver = Driver()
    driver.end(driver.init(), commit=False)
    driver.log.pop()
    driver.reload()
    assert driver.state.state is State.PREPARE_ABORT
    assert driver.coordinator.take_markers() == []
    assert driver.coordinator.next_deadline_ms() == driver.now_ms
    assert len(driver.coordinator.tick(driver.now_ms)) == 1
    assert driver.tick() == []
    driver.now_ms += RETRY_MS
    assert len(driver.tick()) == 1, "what nobody saw to comes again"
    assert driver.state.state is State.COMPLETE_ABORT


def test_a_change_that_was_not_committed_is_not_there_after_a_reload() -> None:
    driver = Driver()
    producer = driver.init()
    pending = driver.decide(AddPartitions(ID, producer, frozenset({P0})))
    driver.reload()
    assert driver.state.state is State.EMPTY
    assert not driver.coordinator.is_pending(ID)
    assert not driver.coordinator.committed(pending, driver.now_ms)


def test_an_unloaded_coordinator_knows_nothing_and_keeps_no_promise() -> None:
    driver = Driver()
    producer = driver.init()
    driver.add(producer, P0)
    driver.end(producer)
    other = driver.decide(InitProducerId("other", TIMEOUT_MS))
    coordinator = driver.coordinator
    coordinator.unload()
    assert not coordinator.committed(other, driver.now_ms)
    assert not coordinator.failed(other, driver.now_ms)
    assert coordinator.current(ID) is None
    assert coordinator.take_markers() == []
    assert coordinator.next_deadline_ms() is None
    assert coordinator.tick(driver.now_ms + 10**12) == []
    load(coordinator, driver.log, 9, driver.now_ms)
    assert not coordinator.committed(other, driver.now_ms), "a promise from before is still not kept"
    (markers,) = driver.write_markers()
    assert markers.coordinator_epoch == 9
    assert driver.run(producer._replace(epoch=1)).epoch == 2


def test_a_tombstone_and_a_later_record_win_over_earlier_ones() -> None:
    first, second = Transaction(1, 0, 10, 20), Transaction(2, 5, 10, 20)
    coordinator = TransactionCoordinator()
    gone = (encode_key("gone"), None)
    load(coordinator, [first.record("a", 2), first.record("gone", 2), second.record("a", 2), gone], 0, 0)
    assert coordinator.current("a") == second
    assert coordinator.current("gone") is None


def test_both_versions_of_values_load() -> None:
    state = Transaction(1, 3, 10, 20, State.ONGOING, frozenset({P0}), 15)
    coordinator = TransactionCoordinator()
    load(coordinator, [state.record("old", 0), state.record("new", 2)], 0, 0)
    assert coordinator.current("old") == coordinator.current("new") == state


def test_a_corrupt_record_names_the_id_that_it_is_of() -> None:
    key, value = Transaction(1, 0, 10, 20).record(ID, 2)
    assert value is not None
    for bad in (b"", value[:-1], b"\0\7" + value[2:]):
        with pytest.raises(CorruptStruct, match="payments"):
            load(TransactionCoordinator(), [(key, bad)], 0, 0)
    with pytest.raises(CorruptStruct):
        TransactionCoordinator().replay(b"\0", value)


def test_a_record_of_an_unknown_type_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    coordinator = TransactionCoordinator()
    load(coordinator, [(b"\0\5whatever", b"whatever"), Transaction(1, 0, 10, 20).record(ID, 2)], 0, 0)
    assert coordinator.current(ID) is not None
    assert "unknown type" in caplog.text


def test_a_fenced_producer_stays_fenced_after_a_reload() -> None:
    driver = Driver()
    old = driver.init()
    new = driver.init()
    driver.reload()
    assert driver.add(old, P0) is ErrorCode.PRODUCER_FENCED
    assert driver.add(new, P0, version=V2) is ErrorCode.NONE
