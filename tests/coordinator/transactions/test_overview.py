"""What people see: DescribeTransactions and ListTransactions."""

from tests.coordinator.transactions.driver import ID, P0, P1, TIMEOUT_MS, Driver

from penstock.base.errors import ErrorCode
from penstock.coordinator.transactions.requests import (
    Described,
    DescribeTransaction,
    InitProducerId,
    Listed,
    ListTransactions,
)
from penstock.coordinator.transactions.state import State


def listed(driver: Driver, **filters: object) -> list[str]:
    reply = driver.ask(ListTransactions(**filters))  # type: ignore[arg-type]
    return sorted(each.transactional_id for each in reply.transactions)


def crowd() -> Driver:
    """One id of each kind: "idle", "open" since a minute, "old" since ten."""
    driver = Driver()
    driver.init()
    state = driver.state
    start_ms = driver.now_ms
    driver.log = [
        state.record("idle", 2),
        state._replace(
            producer_id=7,
            state=State.ONGOING,
            partitions=frozenset({P1, P0}),
            started_ms=start_ms - 60_000,
        ).record("open", 2),
        state._replace(producer_id=8, state=State.PREPARE_COMMIT, started_ms=start_ms - 600_000).record(
            "old", 2
        ),
    ]
    driver.reload()
    return driver


def test_an_id_is_described_as_it_is_committed() -> None:
    driver = Driver()
    driver.decide(InitProducerId(ID, TIMEOUT_MS))
    assert driver.ask(DescribeTransaction(ID)) == Described(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    assert driver.ask(ListTransactions()).transactions == ()
    driver.reload()
    producer = driver.init()
    driver.add(producer, P1, P0)
    assert driver.ask(DescribeTransaction(ID)) == Described(
        ErrorCode.NONE, "Ongoing", *producer, TIMEOUT_MS, driver.now_ms, (P0, P1)
    )
    driver.end(producer)
    assert driver.ask(DescribeTransaction(ID)).state == "PrepareCommit"
    assert driver.ask(DescribeTransaction("")).code is ErrorCode.INVALID_REQUEST


def test_filters_narrow_the_list() -> None:
    driver = crowd()
    assert listed(driver) == ["idle", "old", "open"]
    assert listed(driver, states=frozenset({"Ongoing"})) == ["open"]
    assert listed(driver, states=frozenset({"Ongoing", "Empty"})) == ["idle", "open"]
    assert listed(driver, producer_ids=frozenset({7, 8})) == ["old", "open"]
    assert listed(driver, producer_ids=frozenset({7}), states=frozenset({"Empty"})) == []
    assert listed(driver, matches=lambda name: name.startswith("o")) == ["old", "open"]


def test_a_duration_leaves_those_that_began_longer_ago() -> None:
    """KIP-994. An id without a transaction began never, which is long ago: as with Kafka."""
    driver = crowd()
    assert listed(driver, duration_ms=60_000) == ["idle", "old"]
    assert listed(driver, duration_ms=59_999) == ["idle", "old", "open"]


def test_a_state_that_there_is_not_is_named_and_matches_nothing() -> None:
    driver = crowd()
    reply = driver.ask(ListTransactions(states=frozenset({"Sleeping", "Ongoing"})))
    assert reply.unknown_states == ("Sleeping",)
    assert reply.transactions == (Listed("open", 7, "Ongoing", driver.now_ms - 60_000),)
    assert listed(driver, states=frozenset({"Sleeping"})) == []
    for each in State:
        assert driver.ask(ListTransactions(states=frozenset({each.title}))).unknown_states == ()
