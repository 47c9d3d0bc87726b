"""What time does: transactions that last too long are aborted, ids that nobody uses are forgotten."""

import pytest
from tests.coordinator.transactions.driver import ID, P0, P1, TIMEOUT_MS, V1, V2, Driver

from penstock.base.errors import ErrorCode
from penstock.coordinator.transactions.coordinator import RETRY_MS, TransactionCoordinator
from penstock.coordinator.transactions.decisions import Settings
from penstock.coordinator.transactions.expiry import IDS_A_SLICE, TOMBSTONE_BYTES_MAX
from penstock.coordinator.transactions.requests import (
    NEEDS_PRODUCER_ID,
    AbortTimedOut,
    AddPartitions,
    EndTxn,
    ExpireIds,
    InitProducerId,
    ProducerEpoch,
)
from penstock.coordinator.transactions.state import State
from penstock.coordinator.transactions.timers import TransactionTimers

DAY_MS = 24 * 60 * 60 * 1000
HOUR_MS = 60 * 60 * 1000
LAST_EPOCH = 2**15 - 2


def begun(settings: Settings = Settings(), version: int = V2) -> tuple[Driver, ProducerEpoch]:  # noqa: B008
    driver = Driver(settings)
    producer = driver.init()
    driver.add(producer, P0, version=version)
    return driver, producer


class TestTimeouts:
    @pytest.mark.parametrize("level", [1, 2])
    def test_a_transaction_is_aborted_the_moment_its_time_is_over(self, level: int) -> None:
        driver, producer = begun(Settings(transaction_version=level))
        driver.now_ms += TIMEOUT_MS
        assert driver.tick() == []
        driver.ask(AbortTimedOut(ID, producer))
        assert driver.state.state is State.ONGOING, "its last moment is its own"
        assert driver.coordinator.next_deadline_ms() == driver.now_ms + 1
        driver.now_ms += 1
        assert driver.tick() == [AbortTimedOut(ID, producer)]
        (markers,) = driver.write_markers()
        assert (markers.commit, markers.producer.epoch) == (False, producer.epoch + 1)
        assert driver.state.state is State.COMPLETE_ABORT

    def test_more_partitions_do_not_give_more_time(self) -> None:
        driver, producer = begun()
        driver.now_ms += TIMEOUT_MS
        driver.add(producer, P1)
        driver.now_ms += 1
        assert driver.tick() == [AbortTimedOut(ID, producer)]

    def test_the_next_transaction_has_its_own_time(self) -> None:
        driver, producer = begun()
        driver.now_ms += TIMEOUT_MS - 10
        driver.end(producer)
        driver.write_markers()
        producer = producer._replace(epoch=producer.epoch + 1)
        driver.add(producer, P0)
        driver.now_ms += 20
        assert driver.tick() == []
        driver.now_ms += TIMEOUT_MS
        assert driver.tick() == [AbortTimedOut(ID, producer)]

    def test_a_shorter_timeout_than_the_last_producers_is_kept(self) -> None:
        driver, producer = begun()
        driver.run(producer)
        producer = driver.init(timeout_ms=1000)
        driver.add(producer, P0)
        driver.now_ms += 1001
        assert driver.tick() == [AbortTimedOut(ID, producer)]

    def test_the_late_producer_can_never_commit(self) -> None:
        for version in (V1, V2):
            driver, producer = begun(version=version)
            driver.now_ms += TIMEOUT_MS + 1
            driver.tick()
            assert driver.end(producer, version=version).code is not ErrorCode.NONE
            driver.write_markers()
            assert driver.end(producer, version=version).code is not ErrorCode.NONE
            assert driver.add(producer, P0, version=version) is ErrorCode.PRODUCER_FENCED

    def test_with_version_2_the_late_producer_may_abort_what_is_aborted_and_go_on(self) -> None:
        """KIP-890: it did not know, and nobody else has begun; its abort is taken for a repeated one."""
        driver, producer = begun()
        driver.now_ms += TIMEOUT_MS + 1
        driver.tick()
        driver.write_markers()
        reply = driver.end(producer, commit=False)
        assert reply == (ErrorCode.NONE, producer.producer_id, producer.epoch + 1)
        assert driver.add(ProducerEpoch(reply.producer_id, reply.epoch), P0) is ErrorCode.NONE

    def test_a_timeout_waits_for_a_pending_change(self) -> None:
        driver, producer = begun()
        pending = driver.decide(AddPartitions(ID, producer, frozenset({P1})))
        driver.now_ms += TIMEOUT_MS + 1
        assert driver.tick() == []
        assert driver.coordinator.next_deadline_ms() == driver.now_ms + RETRY_MS
        driver.commit(pending)
        driver.now_ms += RETRY_MS
        assert driver.tick() == [AbortTimedOut(ID, producer)]
        assert driver.state.partitions == {P0, P1}

    def test_an_abort_that_is_not_written_is_tried_again(self) -> None:
        driver, producer = begun()
        driver.now_ms += TIMEOUT_MS + 1
        (due,) = driver.coordinator.tick(driver.now_ms)
        driver.fail(driver.decide(due))
        assert driver.state.state is State.ONGOING
        driver.now_ms += RETRY_MS
        assert driver.tick() == [AbortTimedOut(ID, producer)]
        assert driver.state.state is State.PREPARE_ABORT

    def test_an_abort_that_finds_no_producer_id_is_tried_again(self) -> None:
        """KAFKA-20090: under the last epoch, an abort needs a new producer id, which may not be there."""
        driver = Driver()
        driver.init()
        last = driver.at_epoch(LAST_EPOCH)
        driver.add(last, P0)
        driver.now_ms += TIMEOUT_MS + 1
        (due,) = driver.coordinator.tick(driver.now_ms)
        assert driver.coordinator.handle(due, driver.now_ms) is NEEDS_PRODUCER_ID
        driver.now_ms += RETRY_MS
        assert driver.tick() == [AbortTimedOut(ID, last)]
        driver.write_markers()
        assert driver.state.epoch == 0
        assert driver.state.producer_id != last.producer_id

    def test_a_timeout_that_comes_too_late_hits_nobody(self) -> None:
        driver, producer = begun()
        driver.now_ms += TIMEOUT_MS + 1
        (due,) = driver.coordinator.tick(driver.now_ms)
        driver.end(producer)
        driver.write_markers()
        driver.add(producer._replace(epoch=1), P0)
        before = driver.state
        driver.ask(due)
        assert driver.state == before
        driver.ask(AbortTimedOut(ID, producer._replace(epoch=1)))
        assert driver.state == before, "its time is not over"

    def test_a_transaction_that_somebody_else_coordinates_is_never_too_old(self) -> None:
        """KIP-939; such a timeout cannot be asked for here, but a log may have it."""
        driver, _ = begun()
        driver.log.append(driver.state._replace(timeout_ms=2**31 - 1).record(ID, 2))
        driver.reload()
        driver.now_ms += 2**31
        assert not any(isinstance(each, AbortTimedOut) for each in driver.tick())
        assert driver.state.state is State.ONGOING

    def test_a_timeout_counts_from_the_beginning_also_after_a_reload(self) -> None:
        driver, producer = begun()
        driver.now_ms += TIMEOUT_MS + 1
        driver.reload()
        assert driver.tick() == [AbortTimedOut(ID, producer)]

    def test_alarms_do_not_pile_up_however_many_transactions_there_are(self) -> None:
        driver = Driver()
        producer = driver.init()
        for _ in range(200):
            producer = driver.run(producer)
        assert len(driver.coordinator._timers) == 1


class TestExpiry:
    SETTINGS = Settings(id_expiration_ms=7 * DAY_MS)

    @pytest.mark.parametrize("commit", [None, True, False])
    def test_an_id_at_rest_is_forgotten_with_a_tombstone(self, commit: bool | None) -> None:
        driver = Driver(self.SETTINGS)
        producer = driver.init()
        if commit is not None:
            driver.run(producer, commit=commit)
        driver.now_ms += 7 * DAY_MS
        assert driver.tick() == [ExpireIds((ID,))]
        assert driver.coordinator.current(ID) is None
        assert driver.log[-1].value is None
        assert driver.reload().current(ID) is None
        assert driver.add(producer, P0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert driver.init().producer_id != producer.producer_id

    def test_an_id_that_is_used_or_not_at_rest_is_kept(self) -> None:
        driver = Driver(self.SETTINGS)
        driver.init()
        driver.now_ms += 7 * DAY_MS - 1
        assert driver.tick() == []
        producer = driver.init(timeout_ms=900_000)
        driver.add(producer, P0)
        driver.end(producer)
        driver.now_ms += 30 * DAY_MS
        assert driver.tick() == [], "its markers are not written"
        driver.write_markers()
        driver.now_ms += HOUR_MS
        assert driver.tick() == []

    def test_it_is_looked_for_once_an_interval(self) -> None:
        driver = Driver(Settings(id_expiration_ms=1, expiry_interval_ms=HOUR_MS))
        driver.init()
        assert driver.coordinator.next_deadline_ms() == driver.now_ms + HOUR_MS
        driver.now_ms += HOUR_MS - 1
        assert driver.tick() == []
        driver.now_ms += 1
        assert driver.tick() == [ExpireIds((ID,))]
        assert driver.coordinator.next_deadline_ms() is None, "nothing is left to look at"

    def test_while_its_tombstone_is_written_it_cannot_be_used(self) -> None:
        driver = Driver(self.SETTINGS)
        producer = driver.init()
        driver.now_ms += 7 * DAY_MS
        pending = driver.decide(ExpireIds((ID,)))
        assert driver.add(producer, P0) is ErrorCode.CONCURRENT_TRANSACTIONS
        reply = driver.ask(InitProducerId(ID, TIMEOUT_MS))
        assert reply.code is ErrorCode.CONCURRENT_TRANSACTIONS
        driver.commit(pending)
        assert driver.init().producer_id != producer.producer_id

    def test_a_tombstone_that_is_not_written_leaves_the_id(self) -> None:
        driver = Driver(self.SETTINGS)
        producer = driver.init()
        driver.now_ms += 7 * DAY_MS
        driver.fail(driver.decide(ExpireIds((ID, "never heard of"))))
        assert driver.add(producer, P0) is ErrorCode.NONE
        assert driver.decide(ExpireIds((ID,))).records == ()

    def test_a_busy_id_does_not_expire(self) -> None:
        driver = Driver(self.SETTINGS)
        producer = driver.init()
        driver.now_ms += 7 * DAY_MS
        pending = driver.decide(EndTxn(ID, producer, False, V2))
        assert driver.tick() == []
        driver.commit(pending)

    def test_many_ids_are_looked_at_a_slice_at_a_time_in_batches_that_fit(self) -> None:
        driver = Driver(self.SETTINGS)
        state = (driver.init(), driver.state)[1]
        names = [f"{n:05}" + "x" * 200 for n in range(IDS_A_SLICE + 500)]
        driver.log = [state.record(each, 2) for each in names]
        driver.reload()
        driver.now_ms += 7 * DAY_MS
        rounds = []
        while due := driver.tick():
            assert all(isinstance(each, ExpireIds) for each in due)
            rounds.append(due)
        assert len(rounds) == 2
        requests = [each for one_round in rounds for each in one_round if isinstance(each, ExpireIds)]
        assert sorted(name for each in requests for name in each.transactional_ids) == names
        assert len(requests) > 2
        assert all(sum(map(len, each.transactional_ids)) <= TOMBSTONE_BYTES_MAX for each in requests)
        assert driver.coordinator.next_deadline_ms() is None


def test_nothing_is_due_before_the_coordinator_is_loaded() -> None:
    coordinator = TransactionCoordinator()
    assert coordinator.next_deadline_ms() is None
    assert coordinator.tick(10**15) == []


def test_an_alarm_moves_forward_but_never_back() -> None:
    timers = TransactionTimers()
    timers.wake("a", 50)
    timers.wake("a", 70)
    timers.wake("a", 30)
    timers.wake("b", 40)
    assert timers.next_ms() == 30
    assert timers.due(30) == ["a"]
    assert timers.due(60) == ["b"]
    timers.wake("a", 80)
    assert timers.due(90) == ["a"]
    assert timers.next_ms() is None
