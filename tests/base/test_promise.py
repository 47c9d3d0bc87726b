"""Promises carry a value or an error, and each goes one way; steps raise the error where they wait."""

import logging
from typing import Any

import pytest
from tests.worlds import StillWorld

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import HoldingPromise, Promise
from penstock.base.steps import RunningSteps, Steps, in_time

ERROR = KafkaError("no leader", ErrorCode.LEADER_NOT_AVAILABLE)


class Waiter:
    def __init__(self) -> None:
        self.values: list[Any] = []
        self.errors: list[Exception] = []

    def wait(self, promise: Promise[Any]) -> None:
        promise.then(self.values.append, self.errors.append)


@pytest.mark.parametrize("is_settled_first", [True, False])
def test_value_goes_to_on_value(is_settled_first: bool) -> None:
    promise: Promise[int] = Promise()
    waiter = Waiter()
    if is_settled_first:
        promise.resolve(7)
        waiter.wait(promise)
    else:
        waiter.wait(promise)
        promise.resolve(7)
    assert (waiter.values, waiter.errors) == ([7], [])
    assert (promise.is_settled, promise.value, promise.error) == (True, 7, None)


@pytest.mark.parametrize("is_settled_first", [True, False])
def test_error_goes_to_on_error_only(is_settled_first: bool) -> None:
    promise: Promise[int] = Promise()
    waiter = Waiter()
    if is_settled_first:
        promise.fail(ERROR)
        waiter.wait(promise)
    else:
        waiter.wait(promise)
        promise.fail(ERROR)
    assert (waiter.values, waiter.errors) == ([], [ERROR])
    assert promise.error is ERROR
    with pytest.raises(AttributeError):
        _ = promise.value


def test_error_as_a_value_stays_a_value() -> None:
    """A promise fails by `fail` alone."""
    promise: Promise[KafkaError] = Promise()
    waiter = Waiter()
    waiter.wait(promise)
    promise.resolve(ERROR)
    assert (waiter.values, waiter.errors) == ([ERROR], [])


@pytest.mark.parametrize("is_settled_first", [True, False])
def test_error_without_a_handler_is_logged(is_settled_first: bool, caplog: pytest.LogCaptureFixture) -> None:
    promise: Promise[int] = Promise()
    values: list[int] = []
    with caplog.at_level(logging.ERROR):
        if is_settled_first:
            promise.fail(ERROR)
            promise.then(values.append)
        else:
            promise.then(values.append)
            promise.fail(ERROR)
    [record] = caplog.records
    assert record.getMessage() == "a promise without an error handler failed: no leader"
    assert values == []


def test_error_that_nothing_waits_for_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    promise: Promise[int] = Promise()
    promise.fail(ERROR)
    assert promise.is_settled
    assert not caplog.records


def test_promise_is_settled_once_and_has_one_waiter() -> None:
    promise: Promise[int] = Promise()
    Waiter().wait(promise)
    with pytest.raises(AssertionError, match="one waiter"):
        Waiter().wait(promise)
    promise.resolve(1)
    with pytest.raises(AssertionError, match="settled once"):
        promise.fail(ERROR)
    with pytest.raises(AssertionError, match="settled once"):
        promise.resolve(2)


def test_holding_promise_lets_go_once() -> None:
    promise: HoldingPromise[int] = HoldingPromise()
    calls: list[str] = []
    promise.when_let_go(lambda: calls.append("let go"))
    promise.let_go()
    promise.let_go()
    assert calls == ["let go"]
    assert not promise.is_settled


# -- steps ---------------------------------------------------------------------------------------------


def steps_of(*promises: Promise[Any]) -> Steps[list[Any]]:
    """Wait for each promise; a failed one counts as its error code."""
    values: list[Any] = []
    for each in promises:
        try:
            values.append((yield each))
        except KafkaError as error:
            values.append(error.code)
    return values


@pytest.mark.parametrize("is_settled_first", [True, False])
def test_failed_promise_raises_at_the_yield(is_settled_first: bool) -> None:
    promises: list[Promise[int]] = [Promise(), Promise()]
    waiter = Waiter()

    def settle() -> None:
        promises[0].fail(ERROR)
        promises[1].resolve(7)

    if is_settled_first:
        settle()
    running = RunningSteps(steps_of(*promises), waiter.values.append, waiter.errors.append)
    if not is_settled_first:
        assert not running.is_over
        settle()
    assert running.is_over
    assert (waiter.values, waiter.errors) == ([[ErrorCode.LEADER_NOT_AVAILABLE, 7]], [])


def test_error_that_steps_do_not_catch_ends_them() -> None:
    promise: Promise[int] = Promise()
    waiter = Waiter()

    def steps() -> Steps[int]:
        return (yield promise) + 1

    RunningSteps(steps(), waiter.values.append, waiter.errors.append)
    promise.fail(ERROR)
    assert (waiter.values, waiter.errors) == ([], [ERROR])


def test_cancelled_steps_run_their_finally_and_make_no_callback() -> None:
    promise: Promise[int] = Promise()
    waiter, calls = Waiter(), []

    def steps() -> Steps[int]:
        try:
            return (yield promise)
        finally:
            calls.append("cleaned up")

    running = RunningSteps(steps(), waiter.values.append, waiter.errors.append)
    running.cancel()
    promise.resolve(1)
    assert (waiter.values, waiter.errors, calls) == ([], [], ["cleaned up"])


def test_promise_that_is_not_settled_in_time_fails() -> None:
    world, waiter = StillWorld(), Waiter()
    slow: Promise[int] = Promise()
    waiter.wait(in_time(world, slow, 100, "no reply within 100 ms"))
    world.advance(99)
    assert not waiter.errors
    world.advance(1)
    [error] = waiter.errors
    assert isinstance(error, KafkaError)
    assert (str(error), error.code) == ("no reply within 100 ms", ErrorCode.REQUEST_TIMED_OUT)
    slow.resolve(7)
    assert waiter.values == [], "the late value is dropped"


def test_promise_that_is_settled_in_time_keeps_its_value_or_error() -> None:
    world, waiter = StillWorld(), Waiter()
    promises: list[Promise[int]] = [Promise(), Promise(), Promise()]
    promises[0].resolve(1)
    for each in promises:
        waiter.wait(in_time(world, each, 100, "late"))
    promises[1].resolve(2)
    promises[2].fail(ERROR)
    world.advance(1000)
    assert (waiter.values, waiter.errors) == ([1, 2], [ERROR])
