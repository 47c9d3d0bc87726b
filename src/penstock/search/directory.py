"""The partitions of a topic in a directory, as spans to search without a broker.

The range of a partition ends where its log ends on disk; for committed records, at its last stable offset.
"""

from collections.abc import Iterator

from penstock.arrow.errors import BadOption
from penstock.arrow.scan.log_dirs import LogLocation, find_logs
from penstock.arrow.scan.log_files import LogView, with_view
from penstock.arrow.scan.transaction_outcomes import replay_transactions
from penstock.search.query import SearchQuery, SearchSpan
from penstock.vfs import Vfs


def spans_of(
    vfs: Vfs, path: str, topic: str, partition: int | None, query: SearchQuery, is_committed: bool
) -> Iterator[SearchSpan]:
    """The partitions of a topic, or one of them. Raises BadOption if there are none."""
    logs = find_logs(vfs, path)
    of_topic = [each for each in logs if each.partition.topic == topic]
    if not of_topic:
        known = ", ".join(sorted({each.partition.topic for each in logs})[:10])
        raise BadOption(f"{path} has no topic {topic!r}" + (f"; it has {known}" if known else ""))
    chosen = [each for each in of_topic if partition is None or each.partition.partition == partition]
    if not chosen:
        raise BadOption(f"{path} has no partition {partition} of topic {topic!r}")
    for location in chosen:
        yield with_view(vfs, location, lambda view: _span(vfs, view, query, is_committed))


def _span(vfs: Vfs, view: LogView, query: SearchQuery, is_committed: bool) -> SearchSpan:
    location: LogLocation = view.location
    outcomes = replay_transactions(vfs, view)
    start, stop = view.log_start, outcomes.last_stable if is_committed else view.log_end
    for time_ms in (query.since_ms, query.before_ms):
        found = None if time_ms is None else outcomes.reader.offset_for_timestamp(time_ms)
        if time_ms is not None and time_ms == query.since_ms:
            start = stop if found is None else max(start, found.offset)
        if time_ms is not None and time_ms == query.before_ms and found is not None:
            stop = min(stop, found.offset)
    stop = max(start, stop)
    aborted = outcomes.aborted(start, stop) if is_committed and start < stop else ()
    return SearchSpan(
        location.partition.topic,
        location.partition.partition,
        location.directory,
        view.log_start,
        start,
        stop,
        tuple((each.producer_id, each.first_offset, each.last_offset) for each in aborted),
        tuple((each.last_offset, each.position) for each in view.tail),
    )
