"""How the records of a group's outcome are written, and the callbacks of the write."""

from collections.abc import Callable
from typing import NamedTuple

from penstock.base.errors import ErrorCode


class Producer(NamedTuple):
    producer_id: int
    producer_epoch: int


class GroupWrite(NamedTuple):
    settled: Callable[[ErrorCode], None] | None = None
    """Called once: with NONE when the records are committed, or with the error of a failed append."""
    replays: bool = True
    """Whether appended records are replayed. A classic group changes at once, because its members wait for each other
    and not for the log; its records only restore the group on a later coordinator."""
    applied: Callable[[], None] | None = None
    """Called when the records are appended, in place of replaying them."""
    producer: Producer | None = None
    """The producer whose transaction the records belong to."""
    overdue: Callable[[ErrorCode], None] | None = None
    """Called once, before `settled`, if the commit takes longer than the timeout: other members may wait for it."""


REPLAYED = GroupWrite()
"""The records are replayed when they are appended; nothing else happens."""
