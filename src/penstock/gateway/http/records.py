"""Records of a topic or of a partition: a page of JSON, lines of JSON, or a file for data frames.

    /topics/{topic}/records                              all partitions, one after the other
    /topics/{topic}/partitions/{partition}/records       one of them

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

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset
from penstock.base.steps import Steps, next_tick
from penstock.gateway.exports.job import ARROW_FILE, ARROW_STREAM, COLUMNS, PARQUET, ExportSpec
from penstock.gateway.http.protocol.messages import (
    JSON,
    Answer,
    Out,
    Query,
    Request,
    Response,
    Route,
    Stream,
    json,
)
from penstock.gateway.http.protocol.negotiation import preferred, requested_part, whole_or_part
from penstock.gateway.http.protocol.parameters import MOMENT, parse_moment, partition_in, topic_in
from penstock.gateway.peer_rpc.messages import DeleteRecords
from penstock.gateway.peer_rpc.retry import retry_while_moving
from penstock.gateway.peer_rpc.routed_partition import RoutedPartition, RoutedWalk, find_partition
from penstock.gateway.peer_rpc.service import delete_records
from penstock.gateway.shared.access import TOPIC, Need, Rule
from penstock.gateway.shared.fair_queue import FairQueue
from penstock.gateway.shared.ranges import OffsetRange, RangeQuery, resolve
from penstock.gateway.shared.record_json import DECODINGS, JsonRecord, show, show_some
from penstock.handlers.support.context import Context
from penstock.metadata.acls import Operation
from penstock.records import Record

NDJSON: Final = "application/x-ndjson"

FORMATS: Final = {
    "json": JSON,
    "ndjson": NDJSON,
    "arrow": ARROW_STREAM,
    "feather": ARROW_FILE,
    "parquet": PARQUET,
}
"""By their names in `format`, and behind the dot of a path."""

CONTENT_TYPES: Final = tuple(FORMATS.values())

SPANS_A_TICK: Final = 100
"""Partitions whose aborted transactions are looked up in one tick."""

PAGE_RECORDS: Final = 1_000
PAGE_RECORDS_MAX: Final = 10_000
PAGE_BYTES: Final = 4 << 20
PAGE_BYTES_MAX: Final = 16 << 20
"""A page of JSON is made in memory, and a third larger than its keys and values."""

FILE_BYTES: Final = 1 << 28
FILE_BYTES_MAX: Final = 1 << 31
"""Of the columns of a file; it lies on disk, compressed if it is Parquet."""

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
    """A page of records of a topic, by partition and offset."""

    topic: str
    records: list[JsonRecord]
    next: str | None
    """The `start` of the next page; null on the last page."""


# -- which records ---------------------------------------------------------------------------------------------


class RecordQuery(NamedTuple):
    """What the parameters say."""

    ends: RangeQuery
    limit: int | None
    bytes_max: int | None
    decoding: str
    columns: tuple[str, ...] | None
    """None for what the form has."""


def _record_query(request: Request) -> RecordQuery:
    query = request.query
    since, before = query["from"], query["to"]
    ends = RangeQuery(
        query.get("offset"),
        query.get("until"),
        None if since is None else parse_moment("from", since),
        None if before is None else parse_moment("to", before),
        query["from_end"],
    )
    return RecordQuery(ends, query["limit"], query["max_bytes"], query["decode"], query["columns"])


def _of_partition(gateway: Any, request: Request, content_type: str) -> Steps[Answer]:
    context: Context = gateway.context
    partition = partition_in(context, request)
    asked = _record_query(request)
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
    asked = _record_query(request)
    start = _start(request.query["start"])
    partitions = [find_partition(context, topic.name, number) for number in sorted(topic.partitions)]
    ranges = yield from resolve(context, partitions, asked.ends)
    if start is not None:
        ranges = _from_start(ranges, *start)
    if content_type == JSON:
        page = yield from _page(context, gateway.fair_queue, ranges, asked)
        following = None if page.next is None else f"{page.next[0]}:{page.next[1]}"
        return json(TopicRecords(topic.name, page.records, following))
    return (yield from _other_forms(gateway, request, content_type, ranges, asked))


def _start(text: str | None) -> tuple[int, Offset] | None:
    if text is None:
        return None
    partition, _, offset = text.partition(":")
    return int(partition), int(offset)


def _from_start(ranges: list[OffsetRange], number: int, offset: Offset) -> list[OffsetRange]:
    """The ranges from an offset of a partition on."""
    left = [each for each in ranges if each.partition.number >= number]
    if left and left[0].partition.number == number:
        first = left[0]
        if offset < first.partition.log_start:
            raise KafkaError(
                f"start is {offset}, and {first.partition.name} begins at {first.partition.log_start}",
                ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        start = max(first.start, offset)
        left[0] = OffsetRange(first.partition, start, max(start, first.stop))
    return left


# -- JSON ------------------------------------------------------------------------------------------------------


class Page(NamedTuple):
    records: list[JsonRecord]
    next: tuple[int, Offset] | None
    """Partition and offset of the first record that did not fit."""


def _shown(partition: RoutedPartition, records: list[Record], asked: RecordQuery) -> list[JsonRecord]:
    shown = show(partition.number, records, asked.decoding)
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
    if content_type == NDJSON:
        return Stream(partial(_lines, gateway.context, gateway.fair_queue, ranges, asked), NDJSON)
    return (yield from _file(gateway, request, content_type, ranges, asked))


def _lines(
    context: Context, fair_queue: FairQueue, ranges: Sequence[OffsetRange], asked: RecordQuery, out: Out
) -> Steps[None]:
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
                    lines = _encode_lines(_shown(each.partition, records, asked))
                    left -= len(records)
                    bytes_left -= len(lines)
                    out.write(lines)
                    del lines
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

_TEXT_MAX = 64
_START_PATTERN = "^[0-9]{1,10}:[0-9]{1,18}$"

_TIMES = (
    Query(
        "from",
        str,
        "Begin at the first record with this timestamp or a later one: ISO 8601, or milliseconds since 1970.",
        max=_TEXT_MAX,
        pattern=MOMENT,
    ),
    Query(
        "to",
        str,
        "End before the first record with this timestamp or a later one.",
        max=_TEXT_MAX,
        pattern=MOMENT,
    ),
    Query("from_end", int, "Only this many offsets at the end of the range.", min=0, max=2**62),
)
_LIMITS = (
    Query(
        "limit",
        int,
        f"Maximum number of records. A page of JSON has {PAGE_RECORDS:,} by default and never more than "
        f"{PAGE_RECORDS_MAX:,}, and names the start of the next page. Other formats have all records by default.",
        min=1,
        max=2**62,
    ),
    Query(
        "max_bytes",
        int,
        "Approximate maximum size in bytes. "
        f"JSON: {PAGE_BYTES >> 20} MiB by default, at most {PAGE_BYTES_MAX >> 20} MiB. "
        f"Arrow and Parquet (uncompressed): {FILE_BYTES >> 20} MiB by default, at most {FILE_BYTES_MAX >> 30} GiB.",
        min=1,
        max=2**62,
    ),
    Query(
        "decode",
        str,
        "How keys and values are shown: as base64, as text, or values as JSON and keys as text. In Arrow and Parquet "
        "both text and json make string columns.",
        default="base64",
        one_of=DECODINGS,
    ),
    Query(
        "columns",
        list[str],
        "Fields of each record, or columns of the file. All by default, in JSON without topic.",
        max=len(COLUMNS),
        one_of=COLUMNS,
        is_unique=True,
    ),
)
_FORMAT = Query(
    "format",
    str,
    "The format of the response. Takes precedence over the Accept header.",
    one_of=tuple(FORMATS),
)
_OFFSETS = (
    Query("offset", int, "The first offset.", min=0),
    Query("until", int, "End before this offset.", min=0),
)
_START = Query(
    "start",
    str,
    "Where to continue, as `next` of the last page has it: partition and offset, such as 1:250.",
    max=_TEXT_MAX,
    pattern=_START_PATTERN,
)

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
        query=(*_OFFSETS, *_TIMES, *_LIMITS, _FORMAT),
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
        "Read committed records of all partitions of a topic, one partition after the other.",
        query=(_START, *_TIMES, *_LIMITS, _FORMAT),
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
            query=(*extra, *_TIMES, *_LIMITS),
            errors=_ERRORS,
            content_types=(content_type,),
            rule=_READ_TOPIC,
        )
        for path, of, extra in ((_PARTITION, _of_partition, _OFFSETS), (_TOPIC, _of_topic, (_START,)))
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
