"""Delays Metadata replies briefly while the leaders may be changing.

A client whose broker dies asks another broker at once for the new leader. The cluster elects it within some ten
milliseconds, but a client that gets the dead leader once more may not ask again for a second (librdkafka). So the
reply waits for other leaders

- if this broker has just lost a connection to one of them,
- if the client asks again as soon as it was answered: it may have noticed a failure before this broker did.

If the leaders stay the same until the delay ends, only the connection was lost, or the client retried early.
"""

from collections.abc import Callable, Iterable
from typing import Final

from penstock.base.promise import Promise
from penstock.base.world import Timer
from penstock.replica.broker_client import MAY_BE_DEAD_MS

from .context import Context, Session
from .waiting import settled

AGAIN_MS: Final = 100
"""A request within this time of the last one waits this long, and longer only if a leader is in doubt by then."""


def leaders_known(context: Context, session: Session, leaders: Callable[[], Iterable[int]]) -> Promise[None]:
    """Resolved at once, unless one of the leaders may have failed."""
    now_ns = context.world.clock_ns()
    is_again = now_ns - session.state.metadata_ns < AGAIN_MS * 1_000_000
    session.state.metadata_ns = now_ns
    broker_client = context.broker_client
    if len(context.image.brokers) < 2 or not (is_again or broker_client.has_lost_connections):
        return settled(None)
    known = tuple(leaders())

    def has_doubts() -> bool:
        return any(broker_client.may_be_dead(each) for each in set(known))

    is_doubtful = has_doubts()
    if not known or not (is_again or is_doubtful):
        return settled(None)
    sure: Promise[None] = Promise()
    timer: Timer

    def look() -> None:
        if tuple(leaders()) != known:
            finish()

    def overdue() -> None:
        """This broker may have lost a connection to a leader since the request."""
        nonlocal timer
        waited_ms = (context.world.clock_ns() - now_ns) // 1_000_000
        if waited_ms < MAY_BE_DEAD_MS and has_doubts():
            timer = context.world.call_later(MAY_BE_DEAD_MS - waited_ms, finish)
        else:
            finish()

    def finish() -> None:
        timer.cancel()
        context.image_watchers.pop(look, None)
        session.state.metadata_ns = context.world.clock_ns()
        sure.resolve(None)

    timer = context.world.call_later(MAY_BE_DEAD_MS if is_doubtful else AGAIN_MS, overdue)
    context.image_watchers[look] = None
    return sure
