"""All rules at work on one history."""

from collections.abc import Callable

from penstock.sim.checkers import (
    AckedNotLost,
    Checker,
    EveryRequestAnswered,
    Ground,
    HighWatermarkNeverBack,
    NoChangedRecord,
    NoDuplicate,
    NoStrangeError,
    OrderKept,
    ProducersRemembered,
    Register,
    RepliesInOrder,
    Rules,
    TopicsKept,
)
from penstock.sim.group_checkers import OffsetsNotLostOrRewound, OneOwner
from penstock.sim.history import Event
from penstock.sim.txn_checkers import (
    CommittedNotHidden,
    EpochsRise,
    ExactlyOnce,
    NoAbortedRead,
    NoHalfTransaction,
)

CHECKERS: tuple[Callable[[Rules, Ground, Register], Checker], ...] = (
    AckedNotLost,
    NoChangedRecord,
    NoDuplicate,
    OrderKept,
    HighWatermarkNeverBack,
    RepliesInOrder,
    EveryRequestAnswered,
    ProducersRemembered,
    NoStrangeError,
    TopicsKept,
    NoAbortedRead,
    NoHalfTransaction,
    CommittedNotHidden,
    EpochsRise,
    OneOwner,
    OffsetsNotLostOrRewound,
    ExactlyOnce,
)


class Bench:
    """All checkers, each told of every event."""

    def __init__(self, rules: Rules) -> None:
        self._ground, self._register = Ground(), Register()
        self._checkers = [make(rules, self._ground, self._register) for make in CHECKERS]

    def see(self, event: Event) -> None:
        self._register.see(event)
        self._ground.see(event)
        for checker in self._checkers:
            checker.see(event)
