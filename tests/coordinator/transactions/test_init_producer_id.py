"""InitProducerId: who owns a transactional id, and how others are shut out."""

import pytest
from tests.coordinator.transactions.driver import ID, P0, P1, TIMEOUT_MS, V1, V2, Driver

from penstock.base.errors import ErrorCode
from penstock.coordinator.transactions.decisions import Settings
from penstock.coordinator.transactions.requests import (
    NEEDS_PRODUCER_ID,
    InitProducerId,
    ProducerEpoch,
    ProducerReply,
)
from penstock.coordinator.transactions.state import State

LAST_EPOCH = 2**15 - 2
"""The highest that a client is given."""


def code_of(driver: Driver, expected: ProducerEpoch | None = None, timeout_ms: int = TIMEOUT_MS) -> ErrorCode:
    code: ErrorCode = driver.ask(InitProducerId(ID, timeout_ms, expected)).code
    return code


def test_a_new_id_needs_a_producer_id_and_begins_at_epoch_0() -> None:
    driver = Driver()
    request = InitProducerId(ID, TIMEOUT_MS)
    assert driver.coordinator.handle(request, driver.now_ms) is NEEDS_PRODUCER_ID
    assert driver.coordinator.current(ID) is None, "asking changes nothing"
    reply = driver.commit(driver.coordinator.handle(request, driver.now_ms, 77))  # type: ignore[arg-type]
    assert reply == ProducerReply(ErrorCode.NONE, 77, 0)
    assert driver.state.state is State.EMPTY


def test_every_start_bumps_the_epoch_and_keeps_the_producer_id() -> None:
    driver = Driver()
    first = driver.init()
    assert driver.init() == (first.producer_id, 1)
    assert driver.init() == (first.producer_id, 2)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_above_the_limit_or_not_above_0_is_refused(timeout_ms: int) -> None:
    driver = Driver()
    assert code_of(driver, timeout_ms=timeout_ms) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert driver.log == []
    assert code_of(driver, timeout_ms=900_000) is ErrorCode.NONE
    driver.coordinator.settings = Settings(timeout_ms_max=1000)
    assert code_of(driver) is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_a_transactional_id_that_no_record_can_hold_is_an_invalid_request() -> None:
    """A key has two bytes for its length; a flexible request has five."""
    driver = Driver()
    for name, code in (
        ("", ErrorCode.INVALID_REQUEST),
        ("x" * 2**15, ErrorCode.INVALID_REQUEST),
        ("ü" * 2**14, ErrorCode.INVALID_REQUEST),
        ("x" * (2**15 - 1), ErrorCode.NONE),
    ):
        assert driver.ask(InitProducerId(name, TIMEOUT_MS)).code is code
    driver.reload()


def test_two_who_begin_at_once_do_not_both_get_the_id() -> None:
    driver = Driver()
    first = driver.decide(InitProducerId(ID, TIMEOUT_MS))
    assert code_of(driver) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.commit(first)
    assert code_of(driver) is ErrorCode.NONE


def test_a_first_record_that_is_not_written_leaves_no_trace() -> None:
    driver = Driver()
    outcome = driver.decide(InitProducerId(ID, TIMEOUT_MS))
    driver.fail(outcome)
    assert driver.coordinator.current(ID) is None
    assert not driver.coordinator.is_pending(ID)
    assert driver.init().epoch == 0


def test_a_new_producer_aborts_what_the_old_one_left_open_and_comes_again() -> None:
    driver = Driver()
    old = driver.init()
    driver.add(old, P0, P1)
    assert code_of(driver) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.state.state is State.PREPARE_ABORT
    assert driver.add(old, P0) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert code_of(driver) is ErrorCode.CONCURRENT_TRANSACTIONS, "the markers are not written"
    (markers,) = driver.write_markers()
    assert (markers.commit, markers.partitions) == (False, {P0, P1})
    assert markers.producer.epoch == old.epoch + 1, "the marker fences the old producer on each partition"
    new = driver.init()
    assert new.epoch > markers.producer.epoch
    assert driver.add(old, P0) is ErrorCode.PRODUCER_FENCED
    assert driver.end(old, version=V1).code is ErrorCode.PRODUCER_FENCED
    assert driver.end(old).code is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("level", [1, 2])
def test_an_abort_against_its_producer_uses_one_epoch(level: int) -> None:
    """KAFKA-19367: with transaction.version 2 the fence and the abort once took one each."""
    driver = Driver(Settings(transaction_version=level))
    old = driver.init()
    driver.add(old, P0)
    code_of(driver)
    assert driver.state.epoch == old.epoch + 1


def test_a_failed_fence_leaves_the_transaction_and_takes_no_epoch() -> None:
    """KAFKA-9666: while the log cannot be written, every try must not use up an epoch."""
    driver = Driver()
    old = driver.init()
    driver.add(old, P0)
    before = driver.state
    for _ in range(3):
        driver.fail(driver.decide(InitProducerId(ID, TIMEOUT_MS)))
    assert driver.state == before
    code_of(driver)
    assert driver.state.epoch == old.epoch + 1


class TestGoingOn:
    """KIP-360: a producer that names its id and epoch goes on after an error, unless somebody else has begun."""

    def test_it_gets_the_next_epoch(self) -> None:
        driver = Driver()
        producer = driver.init()
        assert driver.init(producer) == (producer.producer_id, 1)

    def test_a_repeated_request_gets_what_the_first_got(self) -> None:
        driver = Driver()
        producer = driver.init()
        given = driver.init(producer)
        assert driver.init(producer) == given
        assert driver.init(producer) == given

    def test_it_is_fenced_where_another_has_begun(self) -> None:
        driver = Driver()
        producer = driver.init()
        driver.init()
        assert code_of(driver, producer) is ErrorCode.PRODUCER_FENCED

    def test_it_is_fenced_where_another_began_after_a_lost_reply(self) -> None:
        driver = Driver()
        producer = driver.init()
        driver.init(producer)
        driver.init()
        assert code_of(driver, producer) is ErrorCode.PRODUCER_FENCED

    def test_another_producer_id_is_fenced(self) -> None:
        driver = Driver()
        producer = driver.init()
        assert code_of(driver, producer._replace(producer_id=5)) is ErrorCode.PRODUCER_FENCED

    def test_an_id_that_has_expired_is_new_again(self) -> None:
        driver = Driver()
        assert driver.init(ProducerEpoch(5, 9)).epoch == 0

    def test_a_repeated_request_after_a_reload_is_fenced(self) -> None:
        """The last epoch is not in the record, with Kafka neither."""
        driver = Driver()
        producer = driver.init()
        driver.init(producer)
        driver.reload()
        assert code_of(driver, producer) is ErrorCode.PRODUCER_FENCED


class TestExhaustion:
    """Epochs are 16 bits; the last one is kept to fence its forerunner."""

    def test_the_last_epoch_is_followed_by_a_new_producer_id(self) -> None:
        driver = Driver()
        driver.init()
        last = driver.at_epoch(LAST_EPOCH - 1)
        assert driver.init() == (last.producer_id, LAST_EPOCH)
        new = driver.init()
        assert new.producer_id != last.producer_id
        assert new.epoch == 0
        assert driver.add(last._replace(epoch=LAST_EPOCH), P0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING

    def test_a_producer_that_goes_on_and_lost_the_reply_gets_the_same_new_id(self) -> None:
        driver = Driver()
        driver.init()
        last = driver.at_epoch(LAST_EPOCH)
        new = driver.init(last)
        assert (new.producer_id != last.producer_id, new.epoch) == (True, 0)
        assert driver.init(last) == new

    def test_a_repeated_request_for_the_last_epoch_gets_it(self) -> None:
        """Kafka answers UNKNOWN_SERVER_ERROR here; there is an answer, and it is safe."""
        driver = Driver()
        driver.init()
        before = driver.at_epoch(LAST_EPOCH - 1)
        given = driver.init(before)
        assert given.epoch == LAST_EPOCH
        assert driver.init(before) == given

    @pytest.mark.parametrize("level", [1, 2])
    def test_an_open_transaction_under_the_last_epoch_can_still_be_fenced(self, level: int) -> None:
        """KAFKA-20090, KAFKA-19367: the fence is epoch 32767; no epoch ever becomes negative."""
        driver = Driver(Settings(transaction_version=level))
        driver.init()
        last = driver.at_epoch(LAST_EPOCH)
        driver.add(last, P0, version=V1)
        code_of(driver)
        (markers,) = driver.write_markers()
        assert markers.producer == (last.producer_id, 2**15 - 1)
        new = driver.init()
        assert new.producer_id != last.producer_id
        assert driver.add(last, P0, version=V2) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert driver.end(last, version=V1).code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
