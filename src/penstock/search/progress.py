"""The order of chunks, the limit and the progress of one search, without any waiting.

    run = SearchRun(limit)
    run.add(plan)                       # for each partition
    while (work := run.take()):         # several may be out at once
        run.returned(work, portion)     # a portion may leave a part of the work
        for match in run.drain(): ...

Partitions take turns, each from its newest chunk to its oldest. Matches come out in the order in which work was taken,
even if a later piece returns first. So with one partition they come newest first, except that a chunk that takes
longer than a call is searched in parts.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import Final, NamedTuple

from penstock.search.query import Chunk, Match, PartitionPlan, Portion, Unsearched

WORK_BYTES_FIRST: Final = 2 << 20
WORK_BYTES: Final = 64 << 20
WORK_CHUNKS: Final = 64
"""What is given out at a time: little at first, so that the newest results come soon, and then more. A helper returns
after a fraction of a second, finished or not."""

UNSEARCHED_MAX: Final = 100
"""Ranges that are named; the rest is counted."""


class Work(NamedTuple):
    """Chunks for one call."""

    ticket: int
    chunks: tuple[Chunk, ...]
    limit: int


class SearchRun:
    def __init__(self, limit: int, place: Callable[[int], Hashable] = lambda _: None) -> None:
        """`place` tells where a partition is searched: all chunks of one piece of work are of one place."""
        self.limit = limit
        self.total_bytes = 0
        """Bytes to look at. Does not change once all plans are added."""
        self.searched_bytes = 0
        self.skipped_bytes = 0
        """Bytes that the index ruled out; not part of the total."""
        self.match_count = 0
        """Matches that were drained."""
        self.failed_count = 0
        self.failed_why = ""
        self.unsearched: list[Unsearched] = []
        self.unsearched_count = 0
        self._place = place
        self._plans: deque[deque[Chunk]] = deque()
        """Chunks by partition. The first partition is next."""
        self._work_bytes = WORK_BYTES_FIRST
        self._ticket = 0
        self._next_out = 0
        """The ticket whose matches come out next."""
        self._finished: dict[int, list[Match]] = {}
        """Matches of returned work whose turn has not come."""
        self._out_count = 0

    def add(self, plan: PartitionPlan) -> None:
        self.total_bytes += sum(each.size_bytes for each in plan.chunks)
        self.skipped_bytes += plan.skipped_bytes
        if plan.problem:
            self.note_unsearched(Unsearched(plan.partition, 0, 0, plan.problem))
        if plan.chunks:
            self._plans.append(deque(plan.chunks))

    def note_unsearched(self, what: Unsearched) -> None:
        self.unsearched_count += 1
        if len(self.unsearched) < UNSEARCHED_MAX:
            self.unsearched.append(what)

    @property
    def is_limited(self) -> bool:
        """Whether as many matches as wanted have come out."""
        return self.match_count >= self.limit

    @property
    def is_over(self) -> bool:
        return self.is_limited or not (self._plans or self._out_count or self._finished)

    def take(self) -> Work | None:
        """The next chunks to search; None if there are none now."""
        if self.is_limited or not self._plans:
            return None
        taken = [self._next_chunk()]
        place = self._place(taken[0].partition)
        size = taken[0].size_bytes
        while (
            self._plans
            and len(taken) < WORK_CHUNKS
            and size + self._plans[0][0].size_bytes <= self._work_bytes
            and self._place(self._plans[0][0].partition) == place
        ):
            taken.append(self._next_chunk())
            size += taken[-1].size_bytes
        self._work_bytes = min(2 * self._work_bytes, WORK_BYTES)
        self._ticket += 1
        self._out_count += 1
        return Work(self._ticket - 1, tuple(taken), self.limit - self.match_count)

    def _next_chunk(self) -> Chunk:
        chunks = self._plans.popleft()
        chunk = chunks.popleft()
        if chunks:
            self._plans.append(chunks)
        return chunk

    def returned(self, work: Work, portion: Portion) -> None:
        self._out_count -= 1
        self.searched_bytes = min(self.searched_bytes + portion.size_bytes, self.total_bytes)
        self.failed_count += portion.failed_count
        self.failed_why = self.failed_why or portion.failed_why
        for each in portion.unsearched:
            self.note_unsearched(each)
        left = (*portion.rests, *work.chunks[portion.done :])
        self._finished[work.ticket] = list(portion.matches)
        for partition in dict.fromkeys(each.partition for each in left):
            self._give_back(partition, [each for each in left if each.partition == partition])

    def failed(self, work: Work, why: str) -> None:
        """No answer: the chunks count as unsearched."""
        self._out_count -= 1
        self._finished[work.ticket] = []
        for each in work.chunks:
            self.note_unsearched(Unsearched(each.partition, each.start, each.stop, why))

    def _give_back(self, partition: int, chunks: list[Chunk]) -> None:
        """They are next, before the older chunks of the partition."""
        for waiting in self._plans:
            if waiting[0].partition == partition:
                waiting.extendleft(reversed(chunks))
                self._plans.remove(waiting)
                self._plans.appendleft(waiting)
                return
        self._plans.appendleft(deque(chunks))

    def drain(self) -> Iterator[Match]:
        """The matches whose turn has come, up to the limit."""
        while self._next_out in self._finished:
            for match in self._finished.pop(self._next_out):
                if self.is_limited:
                    return
                self.match_count += 1
                yield match
            self._next_out += 1
