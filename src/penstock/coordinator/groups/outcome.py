"""What a decision comes to: an answer, perhaps one that comes later, and the records that make it true."""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from penstock.base.errors import ErrorCode
from penstock.base.promise import Promise

from .schemas import Records

R = TypeVar("R")


class Producer(NamedTuple):
    producer_id: int
    producer_epoch: int


class Change(NamedTuple):
    """What is to be written, and what follows from it."""

    records: Records = ()
    settled: Callable[[ErrorCode], None] | None = None
    """Called once, with NONE when the records are committed, or with what kept them from it."""
    replays: bool = True
    """Whether the records move the state when they are appended. A classic group moves at once, because its members
    wait for each other and not for the log, and its records only tell a later coordinator where it was."""
    applied: Callable[[], None] | None = None
    """What to do when the records are appended, in place of replaying them."""
    producer: Producer | None = None
    """The records are part of this producer's transaction."""
    overdue: Callable[[ErrorCode], None] | None = None
    """Called once, before `settled`, where that takes long, for those who wait for what another has asked for."""


NOTHING = Change()


class Outcome(NamedTuple, Generic[R]):
    """The reply goes out when the records are committed, and so is everything that was written before it.

    A reply that comes later is a `Promise`, which other requests, time or the commit itself will answer.
    """

    reply: R | Promise[R]
    change: Change = NOTHING

    @property
    def records(self) -> Records:
        return self.change.records
