"""Searches the records of a topic: `GET /topics/{topic}/search`.

The response is a stream of JSON objects, one a line, or server-sent events if `Accept` prefers them:

    {"type":"result","record":{"partition":0,"offset":41,...}}
    {"type":"progress","bytes":{"searched":1048576,"total":73400320,"skipped":0},"results":1}
    {"type":"end","reason":"complete","bytes":{...},"results":1}

A stream that ends without an `end` object was interrupted.
"""

from functools import partial
from typing import Any, Final

from penstock.base.steps import Steps
from penstock.gateway.http.protocol.messages import Answer, HttpError, Query, Request, Routes, Stream
from penstock.gateway.http.protocol.negotiation import preferred
from penstock.gateway.http.protocol.parameters import MOMENT, PARTITION_MAX, parse_moment, topic_in
from penstock.gateway.http.record_queries import NDJSON
from penstock.gateway.http.tail import EVENTS
from penstock.gateway.search.stream import SearchLimits, SearchStream, encode_event, encode_line
from penstock.gateway.shared.access import TOPIC, Need, Rule
from penstock.gateway.shared.record_json import DECODINGS
from penstock.gateway.shared.topics import no_partition
from penstock.handlers.support.context import Context
from penstock.metadata.acls import Operation
from penstock.search.query import (
    CONTAINS_BYTES_MAX,
    FIELD_BYTES,
    FIELD_BYTES_MAX,
    FIELDS,
    LIMIT,
    LIMIT_MAX,
    REGEX_CHARS_MAX,
    WHERE_CHARS_MAX,
    SearchQuery,
    check_query,
)

_TEXT_MAX: Final = 64
ISOLATIONS: Final = ("read_committed", "read_uncommitted")

ROUTES = Routes("records")


@ROUTES.add(
    "GET",
    "/topics/{topic}/search",
    "Search records. Results and progress are streamed, newest first; the last object is the `end`.",
    query=(
        Query("contains", str, "Text that a record contains.", min=1, max=CONTAINS_BYTES_MAX),
        Query(
            "contains_hex",
            str,
            "The same for any bytes, in hexadecimal.",
            min=2,
            max=2 * CONTAINS_BYTES_MAX,
            pattern="^([0-9a-fA-F]{2})+$",
        ),
        Query(
            "regex",
            str,
            "A regular expression that a record matches, in RE2's syntax.",
            min=1,
            max=REGEX_CHARS_MAX,
        ),
        Query(
            "where",
            str,
            "A CEL expression over key, value (decoded JSON), headers, partition, offset and timestamp. "
            "Of several conditions all must hold.",
            min=1,
            max=WHERE_CHARS_MAX,
        ),
        Query("in", str, "Where contains and regex look.", default="any", one_of=FIELDS),
        Query("partition", int, "Only this partition. Default: all of the topic.", min=0, max=PARTITION_MAX),
        Query("offset", int, "Only records from this offset on.", min=0),
        Query("until", int, "Only records before this offset.", min=0),
        Query(
            "from",
            str,
            "Only records with this timestamp or a later one: ISO 8601, or milliseconds since 1970.",
            max=_TEXT_MAX,
            pattern=MOMENT,
        ),
        Query("to", str, "Only records before this time.", max=_TEXT_MAX, pattern=MOMENT),
        Query(
            "isolation",
            str,
            "With read_uncommitted, records of open and aborted transactions are found too.",
            default="read_committed",
            one_of=ISOLATIONS,
        ),
        Query("limit", int, "End after this many results.", default=LIMIT, min=1, max=LIMIT_MAX),
        Query(
            "decode",
            str,
            "How keys and values are shown: as base64, as text, or values as JSON and keys as text.",
            default="text",
            one_of=DECODINGS,
        ),
        Query(
            "max_field_bytes",
            int,
            "Show at most this much of each key and value; longer ones are cut.",
            default=FIELD_BYTES,
            min=1,
            max=FIELD_BYTES_MAX,
        ),
    ),
    errors=(404, 429, 501),
    content_types=(NDJSON, EVENTS),
    rule=Rule((Need(Operation.READ, TOPIC, "topic"),)),
)
def _search(gateway: Any, request: Request) -> Steps[Answer]:
    context: Context = gateway.context
    topic = topic_in(context, request)
    asked = request.query
    number = asked["partition"]
    if number is not None and number not in topic.partitions:
        raise no_partition(topic, number)
    query = _query(request)
    check_query(query)
    limits = SearchLimits(
        asked["limit"], asked["isolation"] == "read_committed", asked["offset"], asked["until"]
    )
    stream = SearchStream(
        context, gateway.searches, gateway.fair_queue, request.session, topic, query, limits
    )
    yield from stream.prepare(sorted(topic.partitions) if number is None else [number])
    kind = preferred(request.headers.get("accept", ""), (NDJSON, EVENTS)) or NDJSON
    encode = encode_event if kind == EVENTS else encode_line
    return Stream(
        partial(stream.lines, write=encode, decoding=asked["decode"]),
        kind,
        headers=(("Cache-Control", "no-store"), ("X-Accel-Buffering", "no")),
    )


def _query(request: Request) -> SearchQuery:
    asked = request.query
    if asked["contains"] is not None and asked["contains_hex"] is not None:
        raise HttpError(
            400, "bad_parameter", "contains and contains_hex are both given, expected one of them"
        )
    contains = None if asked["contains"] is None else asked["contains"].encode()
    if asked["contains_hex"] is not None:
        contains = bytes.fromhex(asked["contains_hex"])
    since, before = asked["from"], asked["to"]
    return SearchQuery(
        contains,
        asked["regex"],
        asked["where"],
        asked["in"],
        None if since is None else parse_moment("from", since),
        None if before is None else parse_moment("to", before),
        asked["max_field_bytes"],
    )
