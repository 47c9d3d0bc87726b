"""Waiting a moment before telling who leads, where that may be about to change.

A client whose broker dies asks another one at once who leads now. The cluster needs some ten milliseconds to find out,
and a client that is told of the dead one once more may not ask for a second: librdkafka does not. So the answer waits
for news of the leaders

- where a connection from here to one of them was lost a moment ago,
- where the client asks again as soon as it was answered: it may have seen a leader go before we did.

If no news come in time, it was the connection alone, or a client in a hurry.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from penstock.base.promise import Promise
from penstock.base.world import Timer
from penstock.replica.broker_client import MAY_BE_DEAD_MS

from .context import Context, Session

T = TypeVar("T")

AGAIN_MS: Final = 100
"""Who asks twice within this time waits for as long, and longer only if there is a doubt by then."""


def once_sure(
    context: Context, session: Session, leaders: Callable[[], Iterable[int]], respond: Callable[[], T]
) -> T | Promise[T]:
    """The response, at once unless one of the leaders that it tells of may be gone."""
    now_ns = context.world.clock_ns()
    is_again = now_ns - session.metadata_ns < AGAIN_MS * 1_000_000
    session.metadata_ns = now_ns
    broker_client = context.broker_client
    if len(context.image.brokers) < 2 or not (is_again or broker_client.has_lost_connections):
        return respond()
    known = tuple(leaders())

    def has_doubts() -> bool:
        return any(broker_client.may_be_dead(each) for each in set(known))

    is_doubtful = has_doubts()
    if not known or not (is_again or is_doubtful):
        return respond()
    later: Promise[T] = Promise()
    timer: Timer

    def look() -> None:
        if tuple(leaders()) != known:
            finish()

    def overdue() -> None:
        """The client may have seen a leader go, and this node a moment after it was asked."""
        nonlocal timer
        waited_ms = (context.world.clock_ns() - now_ns) // 1_000_000
        if waited_ms < MAY_BE_DEAD_MS and has_doubts():
            timer = context.world.call_later(MAY_BE_DEAD_MS - waited_ms, finish)
        else:
            finish()

    def finish() -> None:
        timer.cancel()
        context.image_watchers.discard(look)
        session.metadata_ns = context.world.clock_ns()
        later.resolve(respond())

    timer = context.world.call_later(MAY_BE_DEAD_MS if is_doubtful else AGAIN_MS, overdue)
    context.image_watchers.add(look)
    return later
