"""A decision of a state machine: the reply, and the records that make it true.

The controller and the coordinators decide and write nothing:

    outcome = machine.handle(request, now_ms)
    append outcome.records to the machine's log, in one batch
    release outcome.reply once the records, and everything appended before them, are committed
"""

from typing import Any, Generic, NamedTuple, TypeVar

R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")


class Outcome(NamedTuple, Generic[R_co]):
    reply: R_co
    """May be a `Promise` in a classic group, where members wait for each other."""
    records: tuple[Any, ...] = ()
    """In the format of the machine's log. Without records the decision changes nothing durable; a classic group may
    have changed in memory."""
    write: Any = None
    """What the machine has to remember until the records are committed. Only the machine reads it, when it is handed
    the outcome again."""

    def with_reply(self, reply: S) -> "Outcome[S]":
        return Outcome(reply, self.records, self.write)


NOTHING = Outcome(None)
"""Nothing to reply, nothing to write."""
