"""The rules about users, ACLs and quotas, by events alone. `test_planted_security` has them catch real brokers."""

from collections.abc import Callable
from itertools import chain, combinations
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.base.ids import TopicPartition
from penstock.metadata.acls import ANY_HOST, AclResourceType, Operation
from penstock.metadata.scram import ScramMechanism
from penstock.security.authorizer import Authorizer
from penstock.sim.checkers.history import Audited, Event, ReadRecord
from penstock.sim.checkers.rights import (
    CALM_US,
    Access,
    ChangeEnded,
    ChangeSent,
    Password,
    ProduceDenied,
    RightAnswered,
    RightsWatch,
    RightTried,
    allows,
)
from penstock.sim.checkers.violation import Violation
from penstock.sim.secured import GUARDED, guest_acls, guest_group, guest_transactional_id
from penstock.sim.world.machine import State

USER = "guest"
FIRST, SECOND = (Password(ScramMechanism.SCRAM_SHA_256, salt) for salt in (b"1", b"2"))
SET = ChangeSent(USER, FIRST), ChangeEnded(USER, is_done=True)
CHANGED = *SET, ChangeSent(USER, SECOND), ChangeEnded(USER, is_done=True)
WRITE = Access(Operation.WRITE, AclResourceType.TOPIC, GUARDED)


def watch(*, is_calm: bool = True) -> Callable[..., None]:
    """Rules that see events of a cluster in which nothing fails, or in which something has just failed."""
    now_us = 0
    machine = SimpleNamespace(host="node-1", state=State.UP, is_paused=False, node=None, incarnation=1)
    rules = RightsWatch([cast(Any, machine)], lambda: now_us, lambda: is_calm)
    rules.look()
    now_us = 2 * CALM_US
    rules.look()

    def see(*events: Event) -> None:
        for event in events:
            rules.see(event)

    return see


def test_a_password_that_was_changed_is_accepted_nowhere() -> None:
    with pytest.raises(Violation, match="RevokedDenied: guest may not log in any more"):
        watch()(*CHANGED, RightTried(1, "node-1", USER, FIRST), RightAnswered(1, is_granted=True))


def test_while_something_fails_a_broker_may_not_know_it_yet() -> None:
    watch(is_calm=False)(*CHANGED, RightTried(1, "node-1", USER, FIRST), RightAnswered(1, is_granted=True))


@pytest.mark.parametrize("is_calm", [True, False])
def test_a_right_password_is_refused_nowhere(is_calm: bool) -> None:
    tried = RightTried(1, "node-1", USER, SECOND)
    with pytest.raises(Violation, match="GrantedAllowed: guest may log in, but was denied it at node-1"):
        watch(is_calm=is_calm)(*CHANGED, tried, RightAnswered(1, is_granted=False))


@pytest.mark.parametrize(
    "before",
    [
        (ChangeSent(USER, FIRST),),
        (*SET, ChangeSent(USER, SECOND)),
        (*SET, ChangeSent(USER, None), ChangeEnded(USER, is_done=False)),
    ],
    ids=["not yet answered", "a change under way", "a change that was lost"],
)
@pytest.mark.parametrize("is_granted", [True, False])
def test_nothing_is_expected_of_what_was_not_answered(before: tuple[Event, ...], is_granted: bool) -> None:
    watch()(*before, RightTried(1, "node-1", USER, FIRST), RightAnswered(1, is_granted))


def test_a_change_that_is_sent_before_the_answer_may_decide_it() -> None:
    watch()(*SET, RightTried(1, "node-1", USER, FIRST), ChangeSent(USER, None), RightAnswered(1, False))


def test_a_denied_record_may_not_be_in_the_log() -> None:
    read = Audited(TopicPartition(GUARDED, 0), 0, 1, [ReadRecord(0, None, b"denied")])
    with pytest.raises(Violation, match="DeniedNotWritten: guarded-0 has b'denied' at 0"):
        watch()(ProduceDenied(USER, (b"denied",)), read)


def test_a_deny_outweighs_an_allow() -> None:
    allowed, *_ = [each for each in guest_acls(USER) if each.operation is Operation.WRITE]
    denied = allowed._replace(permission=type(allowed.permission).DENY)
    assert allows(frozenset({allowed}), WRITE)
    assert not allows(frozenset({allowed, denied}), WRITE)


def test_the_rules_decide_as_the_authorizer_does() -> None:
    """All sets of a guest's ACLs, and all that guests try."""
    tried = (
        WRITE,
        Access(Operation.READ, AclResourceType.TOPIC, GUARDED),
        Access(Operation.DESCRIBE, AclResourceType.TOPIC, GUARDED),
        Access(Operation.READ, AclResourceType.GROUP, guest_group(USER)),
        Access(Operation.WRITE, AclResourceType.TRANSACTIONAL_ID, guest_transactional_id(USER)),
    )
    acls = guest_acls(USER)
    for some in chain.from_iterable(combinations(acls, count) for count in range(len(acls) + 1)):
        authorizer = Authorizer(some)
        for each in tried:
            expected = authorizer.allows(f"User:{USER}", ANY_HOST, *each)
            assert allows(frozenset(some), each) is expected, (some, each)
