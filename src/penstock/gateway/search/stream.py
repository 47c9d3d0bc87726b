"""One client's search: results as they are found, progress, and an end.

The query is checked and the work is planned before the response starts, so that a bad expression is an error response.
From then on a few pieces of work are under way at any time. When the client leaves, no further ones are given out.
What a search holds is bounded: a piece of work returns at most a megabyte of results, and the next ones are only given
out when the client has room.

A partition that cannot be searched, because it has no leader or its files are damaged, does not end the search: the
end names it.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from penstock.base.errors import KafkaError
from penstock.base.ids import Offset, TimestampMs, Uuid
from penstock.base.promise import Promise
from penstock.base.steps import Steps, in_time, next_tick, sleep
from penstock.gateway.http.protocol.messages import Out
from penstock.gateway.peer_rpc.held_replicas import bounds_of
from penstock.gateway.peer_rpc.messages import Bounds, PlanSearch, SearchChunks
from penstock.gateway.peer_rpc.retry import RETRIABLE, is_alone
from penstock.gateway.peer_rpc.routed_partition import RoutedPartition, look_up_bounds
from penstock.gateway.search.searches import Searches, SearchPermit
from penstock.gateway.shared.fair_queue import FairQueue
from penstock.gateway.shared.record_json import JsonRecord, show
from penstock.handlers.list_offsets import LOOKUPS_A_TURN
from penstock.handlers.support.context import Context, Session
from penstock.metadata.image import Topic
from penstock.records import Record
from penstock.search.progress import SearchRun, Work
from penstock.search.query import Match, Portion, SearchQuery, Unsearched

UNDER_WAY_MAX: Final = 2
UNDER_WAY_MAX_CLUSTER: Final = 4
"""Pieces of work of one search that are under way."""

PROGRESS_MS: Final = 250
"""Between two reports of progress."""

SILENT_MS_MAX: Final = 2_000
"""Progress is reported even if there is none: a client that hears nothing gives up."""

STALLED_MS_MAX: Final = 60_000
"""A client that does not read for so long loses its connection: others may wait for its permit."""

ATTEMPTS_MAX: Final = 40
RETRY_MS: Final = 250
"""For work whose partition moves to another broker, or has no leader: ten seconds."""


class Bytes(msgspec.Struct):
    searched: int
    total: int
    """Bytes of the log to look at."""
    skipped: int
    """Bytes that the search index ruled out, in addition to the total."""


class ResultLine(msgspec.Struct, tag="result", omit_defaults=True):
    """A record that matches."""

    record: JsonRecord
    cut: dict[str, int] = {}
    """Lengths in bytes of fields of which only the beginning is shown."""


class ProgressLine(msgspec.Struct, tag="progress"):
    bytes: Bytes
    results: int


class UnsearchedRange(msgspec.Struct, omit_defaults=True):
    partition: int
    start: int
    stop: int
    """Offsets from `start` up to, and without, `stop`; both are 0 for the whole range of the partition."""
    reason: str


class FailedRecords(msgspec.Struct):
    """Records for which `where` had no result."""

    count: int
    example: str


class EndLine(msgspec.Struct, tag="end", omit_defaults=True):
    """The last object."""

    reason: str
    """`complete`, `limit` or `failed`."""
    bytes: Bytes
    results: int
    error: str | None = None
    """Why the search failed."""
    not_searched: list[UnsearchedRange] = []
    not_searched_count: int = 0
    failed_records: FailedRecords | None = None


Line = ResultLine | ProgressLine | EndLine


class SearchLimits(msgspec.Struct, frozen=True):
    """Which records are looked at, and how many results are wanted."""

    limit: int
    is_committed: bool = True
    offset: Offset | None = None
    until: Offset | None = None
    """The first offset after the range."""


class SearchStream:
    def __init__(
        self,
        context: Context,
        searches: Searches,
        fair_queue: FairQueue,
        session: Session,
        topic: Topic,
        query: SearchQuery,
        limits: SearchLimits,
    ) -> None:
        self._context = context
        self._searches = searches
        self._fair_queue = fair_queue
        self._session = session
        self._topic_id: Uuid = topic.id
        self._topic_name = topic.name
        self._query = query
        self._limits = limits
        self._run = SearchRun(limits.limit, self._place_or_none)
        self._ranges: dict[int, tuple[Offset, Offset]] = {}
        self._permit: SearchPermit | None = None
        self._under_way = 0
        self._returned: list[tuple[Work, Portion | KafkaError]] = []
        self._wake: Promise[None] | None = None
        self._attempts = 0
        """Retries since the last piece of work that was searched."""
        self._error: str | None = None

    # -- planning --------------------------------------------------------------------------------------

    def prepare(self, numbers: list[int]) -> Steps[None]:
        """Check the query and plan the search of these partitions. Raises what the client is told instead."""
        self._searches.check_installed(self._query)
        self._permit = self._searches.permit(self._session.principal)
        try:
            yield from self._searches.check(self._query)
            yield from self._find_ranges(numbers)
            yield from self._plan()
        except BaseException:
            self._permit.release()
            raise

    def _find_ranges(self, numbers: list[int]) -> Steps[None]:
        query = self._query
        times = tuple(each for each in (query.since_ms, query.before_ms) if each is not None)
        partitions = [
            RoutedPartition(self._context, self._topic_name, self._topic_id, each) for each in numbers
        ]
        looked: dict[RoutedPartition, Bounds] = {}
        for _ in range(1 if is_alone(self._context) else ATTEMPTS_MAX):
            missing = [each for each in partitions if each.here is None and each not in looked]
            looked |= yield from look_up_bounds(self._context, missing, times, retries=False)
            if all(each.here is not None or each in looked for each in partitions):
                break
            yield sleep(self._context.world, RETRY_MS)
        for count, each in enumerate(partitions, 1):
            here = each.here
            bounds = looked.get(each) if here is None else bounds_of(here, times)
            if bounds is None:
                self._run.note_unsearched(Unsearched(each.number, 0, 0, f"{each.name} has no leader"))
            else:
                self._ranges[each.number] = self._range(bounds)
            if count % LOOKUPS_A_TURN == 0:
                yield next_tick(self._context.world)

    def _range(self, bounds: Bounds) -> tuple[Offset, Offset]:
        limits, query = self._limits, self._query
        visible = bounds.last_stable if limits.is_committed else bounds.high_watermark
        found = iter([visible if each is None else min(each, visible) for each in bounds.found])
        start = max(bounds.log_start, limits.offset or 0)
        if query.since_ms is not None:
            start = max(start, next(found))
        stop = visible if limits.until is None else min(visible, limits.until)
        if query.before_ms is not None:
            stop = min(stop, next(found))
        return start, max(start, stop)

    def _plan(self) -> Steps[None]:
        left = dict(self._ranges)
        for attempt in range(ATTEMPTS_MAX):
            by_place: dict[int | None, list[tuple[int, Offset, Offset]]] = {}
            problems: dict[int, str] = {}
            for number, (start, stop) in left.items():
                try:
                    place = self._searches.place_of(self._topic_id, number, start, stop)
                    by_place.setdefault(place, []).append((number, start, stop))
                except KafkaError as error:
                    problems[number] = str(error)
            for place, ranges in by_place.items():
                try:
                    asked = PlanSearch(self._topic_id, self._query, tuple(ranges))
                    for plan in (yield from self._searches.plan(place, asked, self._session)):
                        if plan.problem:
                            problems[plan.partition] = plan.problem
                        else:
                            self._run.add(plan)
                            left.pop(plan.partition, None)
                except KafkaError as error:
                    if place is None:
                        raise
                    problems |= dict.fromkeys((number for number, _, _ in ranges), str(error))
            if not left or is_alone(self._context) or attempt == ATTEMPTS_MAX - 1:
                break
            yield sleep(self._context.world, RETRY_MS)
        for number, (start, stop) in left.items():
            self._run.note_unsearched(Unsearched(number, start, stop, problems.get(number, "")))

    def _place_or_none(self, number: int) -> int | None:
        try:
            return self._searches.place_of(self._topic_id, number, *self._ranges[number])
        except KafkaError:
            return None  # asked here, where the error is found again

    # -- running ---------------------------------------------------------------------------------------

    def lines(self, out: Out, write: Callable[[Line], bytes], decoding: str) -> Steps[None]:
        """Write results and progress, and the end last."""
        assert self._permit is not None
        self._permit.start()
        world, run = self._context.world, self._run
        reported_ms: TimestampMs = world.now_ms()
        out.write(write(self._progress()))
        try:
            while not run.is_over and self._error is None:
                self._give_out()
                if not self._returned:
                    self._wake = Promise()
                    timer = world.call_later(SILENT_MS_MAX, self._wake_up)
                    try:
                        yield self._wake
                    finally:
                        timer.cancel()
                yield from self._take_back()
                written = b"".join(write(_shown(each, decoding)) for each in run.drain())
                now_ms = world.now_ms()
                if now_ms - reported_ms >= PROGRESS_MS or now_ms < reported_ms:
                    reported_ms = now_ms
                    written += write(self._progress())
                if written:
                    out.write(written)
                yield self._fair_queue.next()
                if not (ready := out.ready()).is_settled:
                    yield in_time(world, ready, STALLED_MS_MAX, "the client of a search does not read")
            out.write(write(self._end()))
        finally:
            self._permit.release()
            self._wake = None

    def _give_out(self) -> None:
        most = UNDER_WAY_MAX if is_alone(self._context) else UNDER_WAY_MAX_CLUSTER
        while self._under_way < most and (work := self._run.take()) is not None:
            self._under_way += 1
            asked = SearchChunks(
                self._topic_id, self._query, work.chunks, work.limit, self._limits.is_committed
            )
            done = partial(self._done, work)
            try:
                first = work.chunks[0]
                place = self._searches.place_of(self._topic_id, first.partition, first.start, first.stop)
                self._searches.search(place, asked, self._session).then(done, done)
            except KafkaError as error:
                done(error)

    def _done(self, work: Work, result: Portion | KafkaError) -> None:
        self._under_way -= 1
        self._returned.append((work, result))
        self._wake_up()

    def _wake_up(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None:
            wake.resolve(None)

    def _take_back(self) -> Steps[None]:
        returned, self._returned = self._returned, []
        for work, result in returned:
            if isinstance(result, Portion):
                self._attempts = 0
                self._run.returned(work, result)
            elif result.code in RETRIABLE and not is_alone(self._context) and self._attempts < ATTEMPTS_MAX:
                self._attempts += 1
                self._run.returned(work, Portion((), 0))
                yield sleep(self._context.world, RETRY_MS)
            elif result.code in RETRIABLE or self._is_deleted:
                self._run.failed(work, str(result))
            else:
                self._run.failed(work, str(result))
                self._error = str(result)

    @property
    def _is_deleted(self) -> bool:
        return self._context.image.topic_by_id(self._topic_id) is None

    # -- lines -----------------------------------------------------------------------------------------

    def _bytes(self) -> Bytes:
        run = self._run
        return Bytes(run.searched_bytes, run.total_bytes, run.skipped_bytes)

    def _progress(self) -> ProgressLine:
        return ProgressLine(self._bytes(), self._run.match_count)

    def _end(self) -> EndLine:
        run = self._run
        reason = "failed" if self._error is not None else "limit" if run.is_limited else "complete"
        failed = FailedRecords(run.failed_count, run.failed_why) if run.failed_count else None
        missed = [UnsearchedRange(each.partition, each.start, each.stop, each.why) for each in run.unsearched]
        return EndLine(
            reason, self._bytes(), run.match_count, self._error, missed, run.unsearched_count, failed
        )


def _shown(match: Match, decoding: str) -> ResultLine:
    record = Record(match.offset, match.timestamp, match.key, match.value, match.headers)
    [shown] = show(match.partition, [record], decoding)
    return ResultLine(shown, dict(match.cut))


def encode_line(line: Line) -> bytes:
    return _encode(line) + b"\n"


def encode_event(line: Line) -> bytes:
    """A server-sent event, named by the type of the object."""
    name: Mapping[type[Any], bytes] = {ResultLine: b"result", ProgressLine: b"progress", EndLine: b"end"}
    return b"event: %s\ndata: %s\n\n" % (name[type(line)], _encode(line))


_encode = msgspec.json.Encoder().encode
