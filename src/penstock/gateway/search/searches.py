"""Gives the work of searches to helper processes of this node, or to the brokers that lead the partitions.

A replica of this broker is searched here if it has the whole range; other partitions are searched by their leader.
Each piece of work takes a fraction of a second, so all searches progress, and one that is cancelled stops soon.
"""

import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Final, TypeVar

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.extras import install_hint
from penstock.base.ids import Offset, Uuid
from penstock.base.promise import Promise
from penstock.base.steps import Steps, next_tick
from penstock.base.world import SEARCHES
from penstock.gateway.http.protocol.messages import HttpError
from penstock.gateway.peer_rpc.client import peer_rpc_of
from penstock.gateway.peer_rpc.messages import PlanSearch, SearchChunks
from penstock.handlers.support.context import ANONYMOUS, Context, Session
from penstock.replica import Partition
from penstock.search.engine import plan_search, search_chunks
from penstock.search.query import PartitionPlan, Portion, SearchQuery, SearchSpan

logger = logging.getLogger(__name__)

T = TypeVar("T")

SEARCHES_MAX: Final = 8
"""Searches at once, beyond which clients get 429."""

SEARCHES_OF_USER_MAX: Final = 4
"""Searches of one user at once, so that others can search too. Clients that have not logged in are no user."""

STARTED_MS_MAX: Final = 10_000
"""A search that its client has not begun to read by then no longer counts."""

PLANS_A_CALL: Final = 64
"""Partitions that a helper process plans in one call."""

POINTS_MAX: Final = 1024
"""Positions in the active segment that a plan is given."""

ANSWER_MS_MAX: Final = 35_000
"""Timeout of a call: a helper process ends one after 30 seconds."""


class SearchPermit:
    """The right to run one search; `release` it once or more."""

    def __init__(self, release: Callable[[], None], context: Context) -> None:
        self._release: Callable[[], None] | None = release
        self._timer = context.world.call_later(STARTED_MS_MAX, self.release)

    def start(self) -> None:
        """The client reads: from here on the search itself releases the permit."""
        self._timer.cancel()

    def release(self) -> None:
        self._timer.cancel()
        release, self._release = self._release, None
        if release is not None:
            release()


class Searches:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._waiting = dict.fromkeys(SEARCHES, 0)
        """Calls that a helper process has not answered, by lane."""
        self.running_count = 0
        """Searches of clients of this node."""
        self._of_users: Counter[str] = Counter()
        """The same by principal."""

    def start(self) -> None:
        """Nothing to do before the first search."""

    def stop(self) -> None:
        """The world ends its helper processes."""

    def permit(self, principal: str) -> SearchPermit:
        if self.running_count >= SEARCHES_MAX:
            raise _too_many(f"{SEARCHES_MAX} searches are running on this node")
        if principal != ANONYMOUS and self._of_users[principal] >= SEARCHES_OF_USER_MAX:
            raise _too_many(f"{SEARCHES_OF_USER_MAX} searches of {principal} are running on this node")
        self.running_count += 1
        self._of_users[principal] += 1
        return SearchPermit(partial(self._released, principal), self._context)

    def _released(self, principal: str) -> None:
        self.running_count -= 1
        self._of_users[principal] -= 1
        if not self._of_users[principal]:
            del self._of_users[principal]

    def check_installed(self, query: SearchQuery) -> None:
        needed = ["numpy", "pyarrow", *(["cel_expr_python"] if query.where is not None else [])]
        for name in needed:
            if find_spec(name) is None:
                raise HttpError(
                    501,
                    "not_installed",
                    f"this search needs {name}: {install_hint('search')} and restart the node",
                )

    # -- anywhere --------------------------------------------------------------------------------------

    def place_of(self, topic_id: Uuid, number: int, start: Offset, stop: Offset) -> int | None:
        """The broker that searches a range: None for this one. Raises if the partition has no leader."""
        if self._held(topic_id, number, start, stop) is not None:
            return None
        topic = self._context.image.topic_by_id(topic_id)
        placed = None if topic is None else topic.partitions.get(number)
        if topic is None or placed is None:
            raise KafkaError("the topic was deleted", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if placed.leader in (-1, self._context.node_id):
            raise KafkaError(f"{topic.name}-{number} has no leader", ErrorCode.LEADER_NOT_AVAILABLE)
        leader: int = placed.leader
        return leader

    def plan(self, broker_id: int | None, asked: PlanSearch, session: Session) -> Steps[list[PartitionPlan]]:
        if broker_id is None:
            return (yield from self.plan_here(asked))
        plans: list[PartitionPlan] = yield self._send(broker_id, asked, session)
        return plans

    def search(self, broker_id: int | None, asked: SearchChunks, session: Session) -> Promise[Portion]:
        return self.search_here(asked) if broker_id is None else self._send(broker_id, asked, session)

    def _send(self, broker_id: int, asked: PlanSearch | SearchChunks, session: Session) -> Promise[T]:
        # A connection of its own: answers on a shared one would delay those behind them.
        return peer_rpc_of(self._context).send(broker_id, asked, session=session, wait_ms=ANSWER_MS_MAX)

    def check(self, query: SearchQuery) -> Steps[None]:
        """Check a query in every helper process of searches, which starts those that do not run. Raises BadQuery."""
        vfs = self._context.replicas.directory.vfs
        answers = [self._in_helper(partial(plan_search, vfs, query, ())) for _ in SEARCHES]
        while answers:
            yield answers.pop()

    # -- here ------------------------------------------------------------------------------------------

    def plan_here(self, asked: PlanSearch) -> Steps[list[PartitionPlan]]:
        """Check a query, and plan ranges of replicas of this broker. Raises BadQuery."""
        plans: list[PartitionPlan] = []
        vfs = self._context.replicas.directory.vfs
        for first in range(0, max(len(asked.ranges), 1), PLANS_A_CALL):
            spans = []
            for number, start, stop in asked.ranges[first : first + PLANS_A_CALL]:
                held = self._held(asked.topic_id, number, start, stop)
                if held is None:
                    plans.append(PartitionPlan(number, (), problem=_not_here(number)))
                else:
                    entries = held.log.segments.active.index.sampled(POINTS_MAX)
                    points = tuple((each.offset, each.position) for each in entries)
                    spans.append(_span(held, start, stop)._replace(points=points))
            plans += yield self._in_helper(partial(plan_search, vfs, asked.query, spans))
            yield next_tick(self._context.world)
        return plans

    def search_here(self, asked: SearchChunks) -> Promise[Portion]:
        spans: dict[int, SearchSpan] = {}
        for number in dict.fromkeys(each.partition for each in asked.chunks):
            start = min(each.start for each in asked.chunks if each.partition == number)
            stop = max(each.stop for each in asked.chunks if each.partition == number)
            held = self._held(asked.topic_id, number, start, stop)
            if held is None:
                moved: Promise[Portion] = Promise()
                moved.fail(KafkaError(_not_here(number), ErrorCode.NOT_LEADER_OR_FOLLOWER))
                return moved
            aborted = held.log.aborted(start, stop) if asked.is_committed else []
            spans[number] = _span(held, start, stop)._replace(
                aborted=tuple((each.producer_id, each.first_offset, each.last_offset) for each in aborted)
            )
        work = [(spans[each.partition], each) for each in asked.chunks]
        vfs = self._context.replicas.directory.vfs
        return self._in_helper(partial(search_chunks, vfs, asked.query, work, asked.limit))

    def _held(self, topic_id: Uuid, number: int, start: Offset, stop: Offset) -> Partition | None:
        """The replica of this broker, if it has all committed records of the range that still exist."""
        held: Partition | None = self._context.replicas.held(topic_id, number)
        if held is None or held.is_leader:
            return held
        return held if held.log.log_start <= start and stop <= held.high_watermark else None

    def _in_helper(self, work: Callable[[], T]) -> Promise[T]:
        """Run on the lane with the fewest calls."""
        promise: Promise[T] = Promise()
        lane = min(self._waiting, key=self._waiting.__getitem__)
        self._waiting[lane] += 1

        def done(result: T | None, error: Exception | None) -> None:
            self._waiting[lane] -= 1
            if error is None:
                promise.resolve(result)  # type: ignore[arg-type]  # only if the work returns None
            elif isinstance(error, KafkaError):
                promise.fail(error)
            else:
                logger.warning("a search process failed: %s", error)
                promise.fail(
                    KafkaError(
                        f"the process that searched has ended ({error}). Retry, with a shorter range or a simpler "
                        "expression if that does not help.",
                        ErrorCode.UNKNOWN_SERVER_ERROR,
                    )
                )

        self._context.world.in_helper(work, done, lane)
        return promise


def _too_many(what: str) -> HttpError:
    return HttpError(429, "too_many_searches", f"{what}. Retry when one has ended.", (("Retry-After", "1"),))


def _span(held: Partition, start: Offset, stop: Offset) -> SearchSpan:
    log = held.log
    return SearchSpan(held.topic, held.number, log.directory, log.log_start, start, stop)


def _not_here(number: int) -> str:
    return f"this broker no longer has partition {number} of the topic"
