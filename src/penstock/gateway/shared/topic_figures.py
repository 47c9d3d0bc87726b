"""Size, records and rates of the topics that have replicas on this broker, for lists of topics.

Sums are taken over all partitions of the broker, some in each tick, and kept for a moment, so that many clients cost
as much as one (`KeptResult`). A rate is the growth of a counter since an earlier sample, at most `SPAN_MS_MAX` ago. No
timer runs: without a client that asks, nothing is sampled, and the first answer after a pause has no rates.
"""

from typing import Final, NamedTuple

from msgspec import Struct

from penstock.base.ids import Uuid
from penstock.base.promise import Promise
from penstock.base.steps import Steps, next_tick
from penstock.gateway.shared.kept_result import KeptResult
from penstock.handlers.support.context import Context

PARTITIONS_A_TICK: Final = 250
"""Partitions that are summed up in one tick: about a millisecond."""

SPAN_MS_MIN: Final = 1_000
SPAN_MS: Final = 10_000
SPAN_MS_MAX: Final = 60_000
"""A rate is over one to 60 seconds. While clients poll, over 10 to 20."""


class TopicFigures(Struct, array_like=True, frozen=True):
    """Of a topic's replicas on one broker."""

    topic_id: Uuid
    size_bytes: int
    """Of all replicas, as leader or as follower."""
    messages: int
    """Offsets between log start and high watermark, in partitions that the broker leads."""
    bytes_in: float | None
    """Bytes a second that clients wrote; None if not known yet."""
    messages_in: float | None


class _Sums(NamedTuple):
    size_bytes: int
    messages: int
    bytes_in: int
    messages_in: int


class _Sample(NamedTuple):
    ns: int
    topics: dict[Uuid, _Sums]


class TopicSampler:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._kept: KeptResult[list[TopicFigures]] = KeptResult(context.world)
        self._base: _Sample | None = None
        """Rates are counted from here."""
        self._last: _Sample | None = None
        """The next base."""

    def figures(self) -> Promise[list[TopicFigures]]:
        """Of all topics with a replica here, in order of their ids."""
        return self._kept.get(self._compute())

    def _compute(self) -> Steps[list[TopicFigures]]:
        topics = yield from self._sums()
        sample = _Sample(self._context.world.clock_ns(), topics)
        self._advance(sample)
        base = self._base
        seconds = 0.0 if base is None else (sample.ns - base.ns) / 1e9
        rows = []
        for count, topic_id in enumerate(sorted(topics), 1):
            sums = topics[topic_id]
            bytes_in = messages_in = None
            if base is not None and seconds * 1000 >= SPAN_MS_MIN:
                before = base.topics.get(topic_id, _NOTHING)
                # A partition that has left this broker takes its counters along.
                bytes_in = max(sums.bytes_in - before.bytes_in, 0) / seconds
                messages_in = max(sums.messages_in - before.messages_in, 0) / seconds
            rows.append(TopicFigures(topic_id, sums.size_bytes, sums.messages, bytes_in, messages_in))
            if count % PARTITIONS_A_TICK == 0:
                yield next_tick(self._context.world)
        return rows

    def _sums(self) -> Steps[dict[Uuid, _Sums]]:
        found: dict[Uuid, _Sums] = {}
        for count, partition in enumerate(list(self._context.replicas.partitions.values()), 1):
            log = partition.log
            size, messages, bytes_in, messages_in = found.get(partition.topic_id, _NOTHING)
            found[partition.topic_id] = _Sums(
                size + log.size_bytes,
                messages + (max(partition.high_watermark - log.log_start, 0) if partition.is_leader else 0),
                bytes_in + partition.bytes_in,
                messages_in + partition.messages_in,
            )
            if count % PARTITIONS_A_TICK == 0:
                yield next_tick(self._context.world)
        return found

    def _advance(self, sample: _Sample) -> None:
        """Keep a base that is 10 to 20 seconds old while there are samples, and never one that is too old."""
        oldest_ns = sample.ns - SPAN_MS_MAX * 1_000_000
        self._base = self._base if self._base is not None and self._base.ns >= oldest_ns else None
        self._last = self._last if self._last is not None and self._last.ns >= oldest_ns else None
        if self._base is None:
            self._base = self._last
        if self._last is None or sample.ns - self._last.ns >= SPAN_MS * 1_000_000:
            self._base, self._last = self._last or self._base, sample
        if self._base is None:
            self._base = sample


_NOTHING: Final = _Sums(0, 0, 0, 0)
