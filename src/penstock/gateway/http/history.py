"""GET /cluster/history and GET /groups/{group}/lag/history: the last hour, as the brokers remember it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TimestampMs
from penstock.base.steps import Steps, next_tick
from penstock.gateway.http.protocol.messages import Query, Request, Response, Routes, json
from penstock.gateway.http.protocol.parameters import GROUP_CHARS_MAX, MOMENT, parse_moment
from penstock.gateway.observing.gathering import MissingBroker, gather
from penstock.gateway.observing.lag_history import LAG_INTERVAL_MS
from penstock.gateway.observing.series import BUCKETS, INTERVAL_MS, KEPT_MS, SERIES, Series, percentile_ms
from penstock.gateway.peer_rpc.messages import GetHistory, GetLagHistory, LagSamples, NodeHistory
from penstock.gateway.shared.access import DESCRIBE_CLUSTER, GROUP, Need, Rule
from penstock.handlers.support.context import Context
from penstock.metadata.acls import Operation

DEFAULT_SERIES: Final = ("bytes_in", "bytes_out", "messages_in", "messages_out")

STEP_MAX: Final = KEPT_MS // 1000

_SINCE: Final = Query(
    "since",
    str,
    "Only samples after this time: ISO 8601, or milliseconds since 1970. Default: an hour ago.",
    max=64,
    pattern=MOMENT,
)

ROUTES = Routes("cluster")


class HistorySeries(msgspec.Struct):
    name: str
    unit: str
    what: str
    total: list[float | None]
    """One value for each of `times`, over all brokers that answered: the sum; the largest of `offline` and
    `loop_held_ms`; the percentile of all requests. Null where nothing was measured."""
    brokers: dict[str, list[float | None]]
    """The same for each broker, by its id."""


class ClusterHistory(msgspec.Struct):
    step: int
    """Seconds between two of `times`."""
    times: list[int]
    """When each step begins, in milliseconds since 1970."""
    series: list[HistorySeries]
    missing: list[MissingBroker]
    """Brokers that did not answer, and why."""


class LagHistory(msgspec.Struct):
    group: str
    step: int
    """Seconds between two of `times`, where no sample is missing."""
    times: list[int]
    """When the lag was measured, in milliseconds since 1970."""
    lag: list[int | None]
    """Records behind, over all partitions; null if the leader of a partition was not known or did not answer."""
    lag_seconds: list[float | None]
    """Age of the oldest record that is not consumed; null if it was not known."""
    missing: list[MissingBroker]
    """Brokers that did not answer, and why."""


@ROUTES.add(
    "GET",
    "/cluster/history",
    "Metrics of the last hour, of all brokers or one.",
    query=(
        Query(
            "series",
            list[str],
            "Names of series, comma-separated.",
            default=list(DEFAULT_SERIES),
            max=len(SERIES),
            one_of=tuple(SERIES),
            is_unique=True,
        ),
        _SINCE,
        Query(
            "step",
            int,
            "Seconds that one value stands for. Rounded up to a multiple of 5.",
            default=INTERVAL_MS // 1000,
            min=1,
            max=STEP_MAX,
        ),
        Query(
            "broker",
            str,
            "`all`, or `this` for the broker that answers, without asking the others.",
            default="all",
            one_of=("all", "this"),
        ),
    ),
    answer=ClusterHistory,
    rule=Rule((DESCRIBE_CLUSTER,)),
)
def _history(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    wanted = [SERIES[name] for name in request.query["series"]]
    step_ms = -(-request.query["step"] * 1000 // INTERVAL_MS) * INTERVAL_MS
    asked = GetHistory(tuple(each.name for each in wanted), _since(context, request), step_ms)
    here: Steps[NodeHistory] = gateway.history.history(asked)
    missing: list[MissingBroker] = []
    if request.query["broker"] == "this":
        replies = {context.node_id: (yield from here)}
    else:
        replies, missing = yield from gather(context, asked, here)
    times = _common_times(replies, step_ms)
    rows: list[HistorySeries] = []
    for series in wanted:
        row = yield from _row(context, series, times, replies)
        rows += (row,)
    return json(ClusterHistory(step_ms // 1000, times, rows, missing))


def _common_times(replies: Mapping[int, NodeHistory], step_ms: int) -> list[int]:
    """The steps of all brokers, up to the last one that all have which are up to date: a sum without a broker that is
    about to take its sample would look like a dip."""
    times = sorted({each for reply in replies.values() for each in reply.times})
    lasts = [reply.times[-1] for reply in replies.values() if reply.times]
    end = min((each for each in lasts if each >= times[-1] - step_ms), default=0)
    return [each for each in times if each <= end]


def _since(context: Context, request: Request) -> TimestampMs:
    text = request.query["since"]
    earliest = context.world.now_ms() - KEPT_MS
    return earliest if text is None else max(parse_moment("since", text), earliest)


def _row(
    context: Context, series: Series, times: Sequence[int], replies: Mapping[int, NodeHistory]
) -> Steps[HistorySeries]:
    if not series.requests:
        found = {broker: _placed(times, reply, series.name) for broker, reply in replies.items()}
        total = [_over_brokers(series, column) for column in zip(*found.values(), strict=True)]
        yield next_tick(context.world)
    else:
        counts = {broker: _placed_counts(times, reply, series.requests) for broker, reply in replies.items()}
        found = {}
        for broker, rows in counts.items():
            found[broker] = [_percentile(row, series.quantile) for row in rows]
            yield next_tick(context.world)
        total = [
            _percentile([sum(column) for column in zip(*rows, strict=True)], series.quantile)
            for rows in zip(*counts.values(), strict=True)
        ]
        yield next_tick(context.world)
    brokers = {str(broker): values for broker, values in found.items()}
    return HistorySeries(series.name, series.unit, series.what, total, brokers)


def _placed(times: Sequence[int], reply: NodeHistory, name: str) -> list[float | None]:
    """A broker's values at the times of all brokers. An older release may lack a series."""
    known = dict(zip(reply.times, reply.values.get(name, [None] * len(reply.times)), strict=True))
    return [_rounded(known.get(each)) for each in times]


def _placed_counts(times: Sequence[int], reply: NodeHistory, kind: str) -> list[list[int]]:
    nothing = [0] * BUCKETS
    known = dict(zip(reply.times, reply.counts.get(kind, [nothing] * len(reply.times)), strict=True))
    return [known.get(each, nothing) for each in times]


def _over_brokers(series: Series, values: Sequence[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return _rounded(series.over_brokers(known)) if known else None


def _percentile(counts: Sequence[int], quantile: float) -> float | None:
    return _rounded(percentile_ms(counts, quantile))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


@ROUTES.add(
    "GET",
    "/groups/{group}/lag/history",
    "Lag of a group in the last hour. The 200 groups of a coordinator that committed most recently are sampled.",
    query=(_SINCE,),
    answer=LagHistory,
    errors=(404,),
    rule=Rule((Need(Operation.DESCRIBE, GROUP, "group"),)),
)
def _lag_history(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    group = request.path["group"]
    if not 0 < len(group) <= GROUP_CHARS_MAX:
        raise KafkaError("the group id is too long", ErrorCode.INVALID_GROUP_ID)
    asked = GetLagHistory(group, _since(context, request))
    replies: dict[int, LagSamples]
    replies, missing = yield from gather(context, asked, gateway.lag_history.history(asked))
    found: dict[int, tuple[float | None, float | None]] = {}
    for reply in replies.values():
        for time_ms, records, seconds in zip(reply.times, reply.records, reply.seconds, strict=True):
            if records is not None or time_ms not in found:
                found[time_ms] = records, seconds
    if not found and not missing and not any(each.is_known for each in replies.values()):
        raise KafkaError(f"no such group: {group!r}", ErrorCode.GROUP_ID_NOT_FOUND)
    times = sorted(found)
    lags = [found[each][0] for each in times]
    return json(
        LagHistory(
            group,
            LAG_INTERVAL_MS // 1000,
            times,
            [None if each is None else int(each) for each in lags],
            [_rounded(found[each][1]) for each in times],
            missing,
        )
    )
