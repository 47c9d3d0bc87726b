"""Parameters of the calls that read records: their descriptions, and the ranges that they name."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset
from penstock.gateway.exports.job import ARROW_FILE, ARROW_STREAM, COLUMNS, PARQUET
from penstock.gateway.http.protocol.messages import JSON, HttpError, Query, Request
from penstock.gateway.http.protocol.parameters import MOMENT, parse_moment
from penstock.gateway.shared.merged_reading import PARTITIONS_MAX
from penstock.gateway.shared.ranges import OffsetRange, RangeQuery
from penstock.gateway.shared.record_json import DECODINGS
from penstock.gateway.shared.topics import no_partition
from penstock.metadata.image import Topic
from penstock.search.query import FIELD_BYTES, FIELD_BYTES_MAX

NDJSON: Final = "application/x-ndjson"
CSV: Final = "text/csv"

FORMATS: Final = {
    "json": JSON,
    "ndjson": NDJSON,
    "csv": CSV,
    "arrow": ARROW_STREAM,
    "feather": ARROW_FILE,
    "parquet": PARQUET,
}
"""By their names in `format`, and behind the dot of a path."""

CONTENT_TYPES: Final = tuple(FORMATS.values())

PAGE_RECORDS: Final = 1_000
PAGE_RECORDS_MAX: Final = 10_000
PAGE_BYTES: Final = 4 << 20
PAGE_BYTES_MAX: Final = 16 << 20
"""A page of JSON is made in memory, and a third larger than its keys and values."""

FILE_BYTES: Final = 1 << 28
FILE_BYTES_MAX: Final = 1 << 31
"""Of the columns of a file; it lies on disk, compressed if it is Parquet."""


class RecordQuery(NamedTuple):
    """What the parameters say."""

    ends: RangeQuery
    limit: int | None
    bytes_max: int | None
    decoding: str
    columns: tuple[str, ...] | None
    """None for what the form has."""
    field_bytes_max: int | None
    """Longer keys, values and headers are cut."""


def record_query(request: Request, *, must_exist: bool = True) -> RecordQuery:
    query = request.query
    since, before = query["from"], query["to"]
    ends = RangeQuery(
        query.get("offset"),
        query.get("until"),
        None if since is None else parse_moment("from", since),
        None if before is None else parse_moment("to", before),
        query["from_end"],
        must_exist,
    )
    return RecordQuery(
        ends,
        query["limit"],
        query["max_bytes"],
        query["decode"],
        query["columns"],
        query["max_field_bytes"],
    )


# -- which records ---------------------------------------------------------------------------------------------


def partition_numbers(
    topic: Topic, listed: tuple[str, ...] | None, spans: Mapping[int, tuple[Offset, Offset]]
) -> list[int]:
    """The partitions to read."""
    if listed is not None and spans:
        raise HttpError(400, "bad_parameter", "partitions and ranges are both given, expected one of them")
    numbers = sorted(spans or (map(int, listed) if listed is not None else topic.partitions))
    for each in numbers:
        if each not in topic.partitions:
            raise no_partition(topic, each)
    return numbers


def offset_spans(listed: tuple[str, ...] | None) -> Mapping[int, tuple[Offset, Offset]]:
    """By partition, its offsets in `ranges`."""
    found: dict[int, tuple[Offset, Offset]] = {}
    for each in listed or ():
        number, _, offsets = each.partition(":")
        first, _, stop = offsets.partition("-")
        if int(number) in found:
            raise HttpError(
                400, "bad_parameter", f"ranges has partition {int(number)} twice, expected each once"
            )
        found[int(number)] = int(first), int(stop)
    return found


def within(span: OffsetRange, first: Offset, stop: Offset) -> OffsetRange:
    start = max(span.start, first)
    return OffsetRange(span.partition, start, max(start, min(span.stop, stop)))


def parse_start(text: str) -> tuple[int, Offset]:
    partition, _, offset = text.partition(":")
    if "," in offset:
        raise HttpError(400, "bad_parameter", f"start is {text[:64]!r}, expected one partition without order")
    return int(partition), int(offset)


def from_start(ranges: list[OffsetRange], number: int, offset: Offset) -> list[OffsetRange]:
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


# -- descriptions ----------------------------------------------------------------------------------------------

_TEXT_MAX = 64
_PLACE = "[0-9]{1,10}:[0-9]{1,18}"
_START_PATTERN = f"^{_PLACE}(,{_PLACE}){{0,{PARTITIONS_MAX - 1}}}$"
_START_CHARS_MAX = 30 * PARTITIONS_MAX
_SPAN_PATTERN = f"^{_PLACE}-[0-9]{{1,18}}$"
ORDERS: Final = ("newest", "oldest")
NEWEST: Final = ORDERS[0]

TIMES = (
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
LIMITS = (
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
        "max_field_bytes",
        int,
        "Show at most this much of each key and value, and of all headers of a record; `cut` has the lengths of "
        "what is longer. JSON and CSV only.",
        min=1,
        max=FIELD_BYTES_MAX,
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
FORMAT = Query(
    "format",
    str,
    "The format of the response. Takes precedence over the Accept header.",
    one_of=tuple(FORMATS),
)
OFFSETS = (
    Query("offset", int, "The first offset.", min=0),
    Query("until", int, "End before this offset.", min=0),
)
START = Query(
    "start",
    str,
    "Where to continue, as `next` of the last page has it: partition and offset, such as 1:250.",
    max=_START_CHARS_MAX,
    pattern=_START_PATTERN,
)

SELECTION = (
    Query("offset", int, "The first offset in each partition.", min=0),
    Query("until", int, "End before this offset in each partition.", min=0),
    Query(
        "partitions",
        list[str],
        "Only these partitions.",
        max=PARTITIONS_MAX,
        pattern="^[0-9]{1,10}$",
        is_unique=True,
    ),
    Query(
        "ranges",
        list[str],
        "Only these offsets: partition, first offset, and the offset after the last, such as 0:100-150,2:7-8.",
        max=PARTITIONS_MAX,
        pattern=_SPAN_PATTERN,
    ),
)
ORDER = Query(
    "order",
    str,
    "Merge the partitions by timestamp, in a page of JSON: newest or oldest first. Keys and values are then cut to "
    f"{FIELD_BYTES >> 10} KiB unless max_field_bytes says otherwise. By default one partition follows the other.",
    one_of=ORDERS,
)
