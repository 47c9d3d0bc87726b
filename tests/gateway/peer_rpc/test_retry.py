"""Calls that are retried while a leader or coordinator moves."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.worlds import StillWorld

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.base.steps import RunningSteps, Steps
from penstock.gateway.peer_rpc.messages import Conflict
from penstock.gateway.peer_rpc.retry import retry_while_moving

MOVED = KafkaError("the coordinator moves", ErrorCode.NOT_COORDINATOR)
CONFLICT = Conflict("not_assigned", "the partition is not assigned to this consumer")


def outcome(errors: list[KafkaError], in_doubt: str | None) -> Promise[Any]:
    """The end of a call whose attempts fail one after the other, and then work."""
    world = StillWorld()
    context = cast("Any", SimpleNamespace(world=world, image=SimpleNamespace(brokers={1: 1, 2: 2})))
    left = list(errors)

    def attempt() -> Steps[str]:
        yield from ()
        if left:
            raise left.pop(0)
        return "done"

    ended: Promise[Any] = Promise()
    RunningSteps(retry_while_moving(context, attempt, in_doubt), ended.resolve, ended.fail)  # type: ignore[arg-type]
    world.advance(1000)
    assert ended.is_settled
    return ended


def test_a_call_is_made_again_while_the_coordinator_moves() -> None:
    assert outcome([MOVED, MOVED], None).value == "done"


@pytest.mark.parametrize("in_doubt", [None, "it may have been done"])
def test_a_refusal_at_once_is_a_refusal(in_doubt: str | None) -> None:
    assert outcome([CONFLICT], in_doubt).error is CONFLICT


def test_a_refusal_after_an_attempt_that_may_have_worked_says_so() -> None:
    error = outcome([MOVED, CONFLICT], "it may have been done").error
    assert error is not None
    assert error.code is ErrorCode.REQUEST_TIMED_OUT  # type: ignore[attr-defined]
    assert str(error) == "it may have been done"
    assert outcome([MOVED, CONFLICT], None).error is CONFLICT
