"""Records of a topic or of a partition: a page of JSON, lines of JSON, or a file for data frames.

    /topics/{topic}/records                              all partitions, one after the other
    /topics/{topic}/partitions/{partition}/records       one of them

With `order` the partitions of a topic are merged by timestamp (`merged_reading`).

The format is chosen with `Accept`, with `format`, or by the suffix of the path (`records.parquet`): pandas, Polars and
DuckDB take a URL and set no headers. Only committed records are returned.

JSON is returned in pages, each with the start of the next one. Lines are sent as they are read, up to the end of the
range. Files are made by a child process (`exports`). A range that is too long for one file is rejected unless the
client sets a limit, so that a part is never mistaken for the whole.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from penstock.base.ids import Offset
from penstock.base.steps import Steps, next_tick
from penstock.gateway.exports.job import COLUMNS, ExportSpec
from penstock.gateway.http.protocol.messages import (
    JSON,
    Answer,
    HttpError,
    Out,
    Query,
    Request,
    Response,
    Route,
    Stream,
    json,
)
from penstock.gateway.http.protocol.negotiation import preferred, requested_part, whole_or_part
from penstock.gateway.http.protocol.parameters import partition_in, topic_in
from penstock.gateway.http.record_queries import (
    CONTENT_TYPES,
    CSV,
    FILE_BYTES,
    FILE_BYTES_MAX,
    FORMAT,
    FORMATS,
    LIMITS,
    NDJSON,
    NEWEST,
    OFFSETS,
    ORDER,
    PAGE_BYTES,
    PAGE_BYTES_MAX,
    PAGE_RECORDS,
    PAGE_RECORDS_MAX,
    SELECTION,
    START,
    TIMES,
    RecordQuery,
    from_start,
    offset_spans,
    parse_start,
    partition_numbers,
    record_query,
    within,
)
from penstock.gateway.peer_rpc.messages import DeleteRecords
from penstock.gateway.peer_rpc.retry import retry_while_moving
from penstock.gateway.peer_rpc.routed_partition import RoutedPartition, RoutedWalk, find_partition
from penstock.gateway.peer_rpc.service import delete_records
from penstock.gateway.shared.access import TOPIC, Need, Rule
from penstock.gateway.shared.fair_queue import FairQueue
from penstock.gateway.shared.merged_reading import PARTITIONS_MAX, ReadLimits, read_merged
from penstock.gateway.shared.ranges import OffsetRange, resolve
from penstock.gateway.shared.reading import RECORDS_A_SLICE
from penstock.gateway.shared.record_csv import csv_line, csv_lines
from penstock.gateway.shared.record_json import FIELDS, JsonRecord, show, show_cut, show_some
from penstock.handlers.support.context import Context
from penstock.metadata.acls import Operation
from penstock.metadata.image import Topic
from penstock.records import Record
from penstock.search.query import FIELD_BYTES

SPANS_A_TICK: Final = 100
"""Partitions whose aborted transactions are looked up in one tick."""

RECORD_COST: Final = 64
"""Bytes that a record counts beside its key and value."""

_encode_lines = msgspec.json.Encoder().encode_lines


class PartitionRecords(msgspec.Struct):
    """A page of records of a partition."""

    topic: str
    partition: int
    records: list[JsonRecord]
    next_offset: int
    """The offset at which the next page starts."""
    end_offset: int
    """The offset after the last record that can be read now."""


class TopicRecords(msgspec.Struct):
    """A page of records of a topic, by partition and offset, or in the requested order."""

    topic: str
    records: list[JsonRecord]
    next: str | None
    """The `start` of the next page; null on the last page. A page may have few records, or none, before the last."""


# -- which records ---------------------------------------------------------------------------------------------


def _of_partition(gateway: Any, request: Request, content_type: str) -> Steps[Answer]:
    context: Context = gateway.context
    partition = partition_in(context, request)
    asked = record_query(request)
    ranges = yield from resolve(context, [partition], asked.ends)
    if content_type == JSON:
        page = yield from _page(context, gateway.fair_queue, ranges, asked)
        following = page.next or (partition.number, ranges[-1].stop)
        return json(
            PartitionRecords(
                partition.topic, partition.number, page.records, following[1], partition.last_stable
            )
        )
    return (yield from _other_forms(gateway, request, content_type, ranges, asked))


def _of_topic(gateway: Any, request: Request, content_type: str) -> Steps[Answer]:
    context: Context = gateway.context
    topic = topic_in(context, request)
    asked = record_query(request, must_exist=False)
    order, start = request.query.get("order"), request.query["start"]
    spans = offset_spans(request.query["ranges"])
    numbers = partition_numbers(topic, request.query["partitions"], spans)
    if order is not None:
        _check_order(topic, numbers, content_type)
    partitions = [find_partition(context, topic.name, number) for number in numbers]
    ranges = yield from resolve(context, partitions, asked.ends)
    if spans:
        ranges = [within(each, *spans[each.partition.number]) for each in ranges]
    if order is not None:
        return (yield from _merged(gateway, topic, ranges, asked, start, order))
    if start is not None:
        ranges = from_start(ranges, *parse_start(start))
    if content_type == JSON:
        page = yield from _page(context, gateway.fair_queue, ranges, asked)
        following = None if page.next is None else f"{page.next[0]}:{page.next[1]}"
        return json(TopicRecords(topic.name, page.records, following))
    return (yield from _other_forms(gateway, request, content_type, ranges, asked))


def _check_order(topic: Topic, numbers: Sequence[int], content_type: str) -> None:
    if content_type != JSON:
        raise HttpError(
            400,
            "bad_parameter",
            f"order is only for pages of {JSON}; lines and files have one partition after the other. "
            "Read what a page shows as a file with the parameter ranges.",
        )
    if len(numbers) > PARTITIONS_MAX:
        raise HttpError(
            409,
            "too_many_partitions",
            f"topic {topic.name!r} has {len(numbers)} partitions; at most {PARTITIONS_MAX} are merged. "
            "Choose some with the parameter partitions.",
        )


def _merged(
    gateway: Any, topic: Topic, ranges: list[OffsetRange], asked: RecordQuery, start: str | None, order: str
) -> Steps[Answer]:
    """A page in the order of timestamps."""
    newest_first = order == NEWEST
    if start is not None:
        left = dict(parse_start(each) for each in start.split(","))
        ranges = [
            within(each, 0, left[each.partition.number])
            if newest_first
            else within(each, left[each.partition.number], each.stop)
            for each in ranges
            if each.partition.number in left
        ]
    limits = ReadLimits(
        min(asked.limit or PAGE_RECORDS, PAGE_RECORDS_MAX),
        min(asked.bytes_max or PAGE_BYTES, PAGE_BYTES_MAX),
        asked.field_bytes_max or FIELD_BYTES,
    )
    page = yield from read_merged(
        gateway.context, gateway.fair_queue, ranges, limits, newest_first=newest_first
    )
    rows: list[JsonRecord] = []
    for count, (number, each) in enumerate(page.records, 1):
        [row] = show(number, [each.record], asked.decoding)
        row.cut = each.cut
        rows.append(row)
        if count % RECORDS_A_SLICE == 0:
            yield gateway.fair_queue.next()
    if asked.columns is not None:
        show_some(topic.name, rows, asked.columns)
    following = None
    if page.next is not None:
        following = ",".join(f"{number}:{offset}" for number, offset in page.next.items())
    return json(TopicRecords(topic.name, rows, following))


# -- JSON ------------------------------------------------------------------------------------------------------


class Page(NamedTuple):
    records: list[JsonRecord]
    next: tuple[int, Offset] | None
    """Partition and offset of the first record that did not fit."""


def _shown(partition: RoutedPartition, records: list[Record], asked: RecordQuery) -> list[JsonRecord]:
    if asked.field_bytes_max is None:
        shown = show(partition.number, records, asked.decoding)
    else:
        shown = show_cut(partition.number, records, asked.decoding, asked.field_bytes_max)
    if asked.columns is not None:
        show_some(partition.topic, shown, asked.columns)
    return shown


def _page(
    context: Context, fair_queue: FairQueue, ranges: Sequence[OffsetRange], asked: RecordQuery
) -> Steps[Page]:
    left = min(asked.limit or PAGE_RECORDS, PAGE_RECORDS_MAX)
    bytes_left = min(asked.bytes_max or PAGE_BYTES, PAGE_BYTES_MAX)
    shown: list[JsonRecord] = []
    for each in ranges:
        walk, number = RoutedWalk(context, *each), each.partition.number
        try:
            while not walk.is_over:
                if left <= 0 or bytes_left <= 0:
                    return Page(shown, (number, walk.position))
                yield fair_queue.next()
                yield from walk.prepare()
                records = walk.some(left)
                fitting = 0
                for record in records:
                    cost = RECORD_COST + len(record.key or b"") + len(record.value or b"")
                    if cost > bytes_left and (shown or fitting):
                        break
                    bytes_left -= cost
                    fitting += 1
                shown += _shown(each.partition, records[:fitting], asked)
                left -= fitting
                if fitting < len(records):
                    return Page(shown, (number, records[fitting].offset))
        finally:
            walk.release()
    return Page(shown, None)


# -- lines and files ---------------------------------------------------------------------------------------------


def _other_forms(
    gateway: Any, request: Request, content_type: str, ranges: Sequence[OffsetRange], asked: RecordQuery
) -> Steps[Answer]:
    if content_type in (NDJSON, CSV):
        lines = partial(
            _lines, gateway.context, gateway.fair_queue, ranges, asked, is_csv=content_type == CSV
        )
        return Stream(lines, content_type)
    if asked.field_bytes_max is not None:
        raise HttpError(
            400, "bad_parameter", "max_field_bytes is only for JSON and CSV; files have whole keys and values"
        )
    return (yield from _file(gateway, request, content_type, ranges, asked))


def _lines(
    context: Context,
    fair_queue: FairQueue,
    ranges: Sequence[OffsetRange],
    asked: RecordQuery,
    out: Out,
    *,
    is_csv: bool,
) -> Steps[None]:
    fields = asked.columns or FIELDS[1:]
    if is_csv:
        out.write(csv_line(fields))
    left = asked.limit if asked.limit is not None else 1 << 62
    bytes_left = asked.bytes_max if asked.bytes_max is not None else 1 << 62
    for each in ranges:
        walk = RoutedWalk(context, *each)
        slot = fair_queue.stream_slot(out, walk.release)
        try:
            while not walk.is_over and left > 0 and bytes_left > 0:
                yield from slot.wait()
                yield from walk.prepare()
                records = walk.some(left)
                if records:
                    shown = _shown(each.partition, records, asked)
                    lines = csv_lines(shown, fields) if is_csv else _encode_lines(shown)
                    left -= len(records)
                    bytes_left -= len(lines)
                    out.write(lines)
                    del lines, shown
                del records  # which may be views of a whole batch, while it waits for the client
        finally:
            slot.close()


def _file(
    gateway: Any, request: Request, content_type: str, ranges: Sequence[OffsetRange], asked: RecordQuery
) -> Steps[Answer]:
    """A file of the current range, or the file that the reader has begun to read."""
    peer = request.session.peer.rpartition(":")[0]
    words = (tuple(request.path.items()), tuple(request.query.items()))
    reader = (peer, request.session.principal, request.headers.get("user-agent"), content_type, *words)
    part = requested_part(request.headers, is_head=request.is_head)
    topic_id = ranges[0].partition.topic_id if ranges else b""
    wanted = gateway.exports.continued(reader, part, topic_id)
    if wanted is None:
        spans = []
        for count, each in enumerate(ranges, 1):
            spans.append((yield from gateway.exports.span(each)))
            if count % SPANS_A_TICK == 0:
                yield next_tick(gateway.context.world)
        wanted = ExportSpec(
            content_type,
            tuple(spans),
            asked.columns or COLUMNS,
            asked.decoding != "base64",
            asked.limit,
            min(asked.bytes_max or FILE_BYTES, FILE_BYTES_MAX),
            may_be_cut=asked.limit is not None or asked.bytes_max is not None,
        )
    export = yield from gateway.exports.get(reader, wanted, part)
    headers = [("X-Records", str(export.made.rows))]
    if export.made.next is not None:
        partition, offset = export.made.next
        headers.append(("X-Next", f"{partition}:{offset}"))
    file = gateway.exports.open(export)
    return whole_or_part(
        gateway.fair_queue, file, export.made.size, export.tag, content_type, request.headers, tuple(headers)
    )


# -- deleting --------------------------------------------------------------------------------------------------


class DeleteRecordsResponse(msgspec.Struct):
    topic: str
    partition: int
    log_start: int
    """The first offset of the partition now."""


def _delete(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    partition = partition_in(context, request)
    before = request.query["before"]

    def attempt() -> Steps[Offset]:
        here = partition.here
        if here is not None:
            return delete_records(context, here, before)
        asked = DeleteRecords(partition.topic_id, partition.number, before)
        start: Offset = yield gateway.peer_rpc.send(
            partition.leader, asked, session=request.session, order_key=partition.number
        )
        return start

    start = yield from retry_while_moving(context, attempt)
    return json(DeleteRecordsResponse(partition.topic, partition.number, start))


# -- routes ----------------------------------------------------------------------------------------------------

_TOPIC = "/topics/{topic}/records"
_PARTITION = "/topics/{topic}/partitions/{partition}/records"


def _negotiated(of: Callable[[Any, Request, str], Steps[Answer]]) -> Callable[[Any, Request], Steps[Answer]]:
    def handle(gateway: Any, request: Request) -> Steps[Answer]:
        named = request.query["format"]
        if named is not None:
            return of(gateway, request, FORMATS[named])
        return of(gateway, request, preferred(request.headers.get("accept", ""), CONTENT_TYPES) or JSON)

    return handle


def _named(
    of: Callable[[Any, Request, str], Steps[Answer]], content_type: str
) -> Callable[[Any, Request], Steps[Answer]]:
    return lambda gateway, request: of(gateway, request, content_type)


_READ_TOPIC = Rule((Need(Operation.READ, TOPIC, "topic"),))
_ERRORS = (404, 409, 410, 412, 416, 501)
_WORDS = {
    "ndjson": "newline-delimited JSON",
    "csv": "CSV",
    "arrow": "an Arrow IPC stream",
    "feather": "an Arrow IPC file (Feather)",
    "parquet": "a Parquet file",
}

ROUTES = (
    Route(
        "GET",
        _PARTITION,
        _negotiated(_of_partition),
        "records",
        "Read committed records of a partition, by offset or by time.",
        query=(*OFFSETS, *TIMES, *LIMITS, FORMAT),
        answer=PartitionRecords,
        errors=_ERRORS,
        content_types=CONTENT_TYPES,
        rule=_READ_TOPIC,
    ),
    Route(
        "GET",
        _TOPIC,
        _negotiated(_of_topic),
        "records",
        "Read committed records of a topic: one partition after the other, or merged by timestamp.",
        query=(START, *SELECTION, ORDER, *TIMES, *LIMITS, FORMAT),
        answer=TopicRecords,
        errors=_ERRORS,
        content_types=CONTENT_TYPES,
        rule=_READ_TOPIC,
    ),
    *(
        Route(
            "GET",
            f"{path}.{suffix}",
            _named(of, content_type),
            "records",
            f"The records as {_WORDS[suffix]}, for tools that take a URL.",
            query=(*extra, *TIMES, *LIMITS),
            errors=_ERRORS,
            content_types=(content_type,),
            rule=_READ_TOPIC,
        )
        for path, of, extra in (
            (_PARTITION, _of_partition, OFFSETS),
            (_TOPIC, _of_topic, (START, *SELECTION, ORDER)),
        )
        for suffix, content_type in FORMATS.items()
        if content_type != JSON
    ),
    Route(
        "DELETE",
        _PARTITION,
        _delete,
        "records",
        "Delete the records of a partition below an offset.",
        query=(
            Query(
                "before",
                int,
                "Offset of the first record to keep; -1 deletes all records.",
                is_required=True,
                min=-1,
            ),
        ),
        answer=DeleteRecordsResponse,
        errors=(404, 409),
        rule=Rule((Need(Operation.DELETE, TOPIC, "topic"),)),
    ),
)
