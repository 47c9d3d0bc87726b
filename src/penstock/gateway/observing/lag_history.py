"""The lag of groups in the last hour, in records and in seconds, for groups that this node coordinates.

Every 15 seconds the node reads the committed offsets of its groups, and asks the leaders of their partitions how far
they are behind. Of many groups, those that committed most recently are sampled; a sampled group keeps its place while
it commits. After a group has moved to another coordinator, this node keeps its samples until they are an hour old.
"""

import logging
from heapq import nlargest
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.base.errors import KafkaError
from penstock.base.ids import Offset, TimestampMs, Uuid
from penstock.base.steps import Steps, next_tick
from penstock.gateway.observing.gathering import ANSWER_MS_MAX
from penstock.gateway.observing.periodic import Periodic, slot_ms
from penstock.gateway.observing.ring import FLOAT, SampleRing
from penstock.gateway.observing.series import KEPT_MS, folded
from penstock.gateway.peer_rpc.client import peer_rpc_of
from penstock.gateway.peer_rpc.messages import GetLagHistory, GetLags, Lags, LagSamples
from penstock.gateway.peer_rpc.service import lags_here
from penstock.gateway.shared.group_lag_metrics import ITEMS_A_TICK
from penstock.handlers.support.context import Context

logger = logging.getLogger(__name__)

LAG_INTERVAL_MS: Final = 15_000

GROUPS_MAX: Final = 200
"""Groups that are sampled: 4 KB each."""

PARTITIONS_MAX: Final = 10_000
"""Committed offsets that are looked at for one sample."""

ACTIVE_MS: Final = 600_000
"""A sampled group that committed within this time keeps its place."""

RECORDS, SECONDS = "records", "seconds"

Asked: TypeAlias = tuple[Uuid, int, Offset]


class _GroupOffsets(NamedTuple):
    group: str
    committed_ms: TimestampMs
    """The last commit."""
    offsets: Any
    """Committed offsets by topic and partition, as the coordinator has them."""


class LagSampler:
    """A `Part`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._rings: dict[str, SampleRing[str]] = {}
        self._periodic = Periodic(
            context.world, LAG_INTERVAL_MS, self._sample, "a sample of the lag of groups"
        )
        self._turn = 0

    def start(self) -> None:
        self._periodic.run()

    def stop(self) -> None:
        self._periodic.stop()

    # -- sampling --------------------------------------------------------------------------------------

    def _sample(self) -> Steps[None]:
        now_ms = self._context.world.now_ms()
        time_ms = slot_ms(now_ms, LAG_INTERVAL_MS)
        chosen = yield from self._choose(now_ms)
        self._turn += 1
        if chosen:  # with each sample another group is first: lookups of timestamps are limited
            first = self._turn % len(chosen)
            chosen = chosen[first:] + chosen[:first]
        lags = yield from self._lags(chosen)
        for group, (records, seconds) in lags.items():
            ring = self._rings.get(group)
            if ring is None:
                columns = {RECORDS: FLOAT, SECONDS: FLOAT}
                ring = self._rings[group] = SampleRing(columns, KEPT_MS // LAG_INTERVAL_MS)
            known = {RECORDS: records, SECONDS: seconds}
            if time_ms != ring.last_ms:
                ring.add(time_ms, {name: value for name, value in known.items() if value is not None})
        self._forget(now_ms, {each.group for each in chosen})

    def _choose(self, now_ms: TimestampMs) -> Steps[list[_GroupOffsets]]:
        """The groups to be sampled."""
        found = []
        count = 0
        for shard in self._context.groups.shards:
            for group, offsets in list(shard.coordinator.positions):
                committed = [each.commit_ms for each in list(offsets.values())]
                if committed:
                    found.append(_GroupOffsets(group, max(committed), offsets))
                count += len(committed) + 1
                if count >= ITEMS_A_TICK:
                    count = 0
                    yield next_tick(self._context.world)

        def rank(each: _GroupOffsets) -> tuple[bool, TimestampMs]:
            return each.group in self._rings and now_ms - each.committed_ms < ACTIVE_MS, each.committed_ms

        return nlargest(GROUPS_MAX, found, key=rank)

    def _lags(self, chosen: list[_GroupOffsets]) -> Steps[dict[str, tuple[float | None, float | None]]]:
        """Records and seconds of each group; None if they are not known of one of its partitions."""
        context = self._context
        by_leader: dict[int, list[tuple[str, Asked]]] = {}
        unknown = set()
        sampled: dict[str, None] = {}
        room = PARTITIONS_MAX
        for each in chosen:
            room -= len(each.offsets)
            if room < 0:
                break
            sampled[each.group] = None
            for (name, number), committed in list(each.offsets.items()):
                topic = context.image.topics.get(name)
                placed = None if topic is None else topic.partitions.get(number)
                if topic is None or placed is None:
                    continue  # deleted
                if placed.leader < 0:
                    unknown.add(each.group)
                    continue
                by_leader.setdefault(placed.leader, []).append(
                    (each.group, (topic.id, number, committed.offset))
                )
            yield next_tick(context.world)
        records: dict[str, int] = dict.fromkeys(sampled, 0)
        seconds: dict[str, float | None] = dict.fromkeys(sampled, 0.0)
        for (group, _), lag in (yield from self._ask(by_leader)):
            if lag is None:
                unknown.add(group)
                continue
            records[group] += lag[0]
            longest = seconds[group]
            seconds[group] = None if longest is None or lag[1] is None else max(longest, lag[1])
        return {
            group: (None, None) if group in unknown else (records[group], seconds[group]) for group in sampled
        }

    def _ask(
        self, by_leader: dict[int, list[tuple[str, Asked]]]
    ) -> Steps[list[tuple[tuple[str, Asked], tuple[int, float | None] | None]]]:
        context = self._context
        promises = {
            leader: peer_rpc_of(context).send(
                leader, GetLags(tuple(each for _, each in asked)), wait_ms=1, timeout_ms=ANSWER_MS_MAX
            )
            for leader, asked in by_leader.items()
            if leader != context.node_id
        }
        found: list[tuple[tuple[str, Asked], tuple[int, float | None] | None]] = []
        for leader, asked in by_leader.items():
            lags: Lags = [None] * len(asked)
            if leader == context.node_id:
                lags = yield from lags_here(context, tuple(each for _, each in asked))
            else:
                try:
                    lags = yield promises[leader]
                except KafkaError as error:
                    logger.debug("broker %d does not tell the lag of groups: %s", leader, error)
            found += zip(asked, lags, strict=True)
        return found

    def _forget(self, now_ms: TimestampMs, chosen: set[str]) -> None:
        """Drop old samples, and those of the groups that were sampled least recently if there are too many."""
        for group, ring in list(self._rings.items()):
            if group not in chosen and now_ms - (ring.last_ms or 0) > KEPT_MS:
                del self._rings[group]
        spare = sorted(
            (ring.last_ms or 0, group) for group, ring in self._rings.items() if group not in chosen
        )
        for _, group in spare[: max(len(self._rings) - 2 * GROUPS_MAX, 0)]:
            del self._rings[group]

    # -- reading ---------------------------------------------------------------------------------------

    def history(self, asked: GetLagHistory) -> Steps[LagSamples]:
        is_known = any(
            shard.coordinator.find(asked.group) is not None for shard in self._context.groups.shards
        )
        ring = self._rings.get(asked.group)
        if ring is None:
            return LagSamples(is_known, [], [], [])
        times = ring.times(asked.since_ms)
        records, seconds = (
            [folded([each], max) for each in ring.values(name, len(times))] for name in (RECORDS, SECONDS)
        )
        return LagSamples(is_known, times, records, seconds)
        yield  # makes this a generator; it never waits
