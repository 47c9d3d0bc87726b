"""DescribeTransactions and ListTransactions. Both show committed state only."""

from collections.abc import Iterable

from penstock.base.errors import ErrorCode
from penstock.base.ids import TimestampMs

from .requests import Described, DescribeTransaction, Listed, ListReply, ListTransactions
from .state import STATES_BY_TITLE, Transaction


def describe(request: DescribeTransaction, current: Transaction | None) -> Described:
    if not request.transactional_id:
        return Described(ErrorCode.INVALID_REQUEST)
    if current is None:
        return Described(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return Described(
        ErrorCode.NONE,
        current.state.title,
        current.producer_id,
        current.epoch,
        current.timeout_ms,
        current.started_ms,
        tuple(sorted(current.partitions)),
    )


def list_transactions(
    request: ListTransactions, known: Iterable[tuple[str, Transaction]], now_ms: TimestampMs
) -> ListReply:
    states = {STATES_BY_TITLE[each] for each in request.states if each in STATES_BY_TITLE}
    unknown = tuple(sorted(each for each in request.states if each not in STATES_BY_TITLE))
    listed = []
    for transactional_id, current in known:
        if request.states and current.state not in states:
            continue
        if request.producer_ids and current.producer_id not in request.producer_ids:
            continue
        if request.duration_ms >= 0 and now_ms - current.started_ms <= request.duration_ms:
            continue
        if request.matches is not None and not request.matches(transactional_id):
            continue
        listed.append(Listed(transactional_id, current.producer_id, current.state.title, current.started_ms))
    return ListReply(tuple(listed), unknown)
