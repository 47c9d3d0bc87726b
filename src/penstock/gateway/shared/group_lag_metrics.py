"""The lag of groups in records and in seconds, for the page of metrics."""

from collections import Counter
from typing import Final, NamedTuple

from penstock.base.errors import KafkaError
from penstock.base.ids import Offset
from penstock.base.steps import Steps, next_tick
from penstock.gateway.shared.exposition import Page, Sample
from penstock.handlers.support.context import Context
from penstock.replica import Partition

LAGS_MAX: Final = 2000
"""Pairs of group and topic with a lag series, the first by name."""

LAG_LOOKUPS: Final = 500
"""Offsets whose timestamp is looked up in the log for one page. Others are left out until a later page: a group that
does not move is looked up once, so that it is soon there."""

LOOKUP_COST: Final = 50
"""Items that take as long as one lookup, about 50 us."""

ITEMS_A_TICK: Final = 250
"""Offsets that are handled before others have their turn."""


class Lags(NamedTuple):
    """The lag of each group in each topic."""

    records: list[Sample]
    seconds: list[Sample]
    left_out: int


def group_lags(context: Context) -> Steps[Lags]:
    """Counts only partitions that this node leads: the end of another is known to its leader."""
    lags: Counter[tuple[str, str]] = Counter()
    seconds: dict[tuple[str, str], float] = {}
    led = context.replicas.by_key.get
    count = 0
    lookups_left = LAG_LOOKUPS
    for shard in context.groups.shards:
        for group_id, offsets in list(shard.coordinator.positions):
            for (topic, number), committed in list(offsets.items()):
                partition = led((topic, number))
                if partition is not None:
                    lags[group_id, topic] += max(0, partition.high_watermark - committed.offset)
                    if not context.replicas.record_times.is_known(partition, committed.offset):
                        lookups_left -= 1
                        count += LOOKUP_COST
                    if lookups_left >= 0:
                        age = _age(context, partition, committed.offset)
                        if age is not None:
                            seconds[group_id, topic] = max(age, seconds.get((group_id, topic), 0.0))
                count += 1
                if count >= ITEMS_A_TICK:
                    count = 0
                    yield next_tick(context.world)
    shown = sorted(lags)[:LAGS_MAX]
    labels = {each: (("group", each[0]), ("topic", each[1])) for each in shown}
    return Lags(
        [(labels[each], lags[each]) for each in shown],
        [(labels[each], seconds[each]) for each in shown if each in seconds],
        len(lags) - len(shown),
    )


def _age(context: Context, partition: Partition, offset: Offset) -> float | None:
    try:
        return context.replicas.record_times.lag_seconds(partition, offset, context.world.now_ms())
    except KafkaError:
        return None  # damaged there; those who read it are told


def show_lags(page: Page, lags: Lags) -> None:
    page.gauge(
        "penstock_group_lag",
        "Lag of a group in a topic, summed over the partitions with a committed offset that this node leads.",
        lags.records,
    )
    page.gauge(
        "penstock_group_lag_seconds",
        "Age of the oldest record that a group has not consumed in a topic, over the same partitions; 0 if none.",
        lags.seconds,
    )
