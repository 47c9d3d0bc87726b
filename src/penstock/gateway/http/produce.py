"""`POST /produce`: one record, or a list of records.

The response to a record is its position, sent when the record is durable. The response to a list has a result for each
record, in the list's order. A malformed list, or one of which no record could be written, gets an error response.
"""

from typing import TYPE_CHECKING, Annotated, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.json import Encoder

from penstock.base.errors import KafkaError
from penstock.base.promise import Promise
from penstock.gateway.http.protocol.errors import ErrorInfo, error_response, topic_error
from penstock.gateway.http.protocol.messages import Answer, Request, Response, Routes
from penstock.gateway.http.protocol.parameters import PARTITION_MAX, TOPIC_NAME
from penstock.gateway.idempotency import IDEMPOTENCY_KEY_BYTES_MAX
from penstock.gateway.shared.access import TOPIC, Need, Rule
from penstock.gateway.shared.producer import NewRecord, RecordPosition, RecordResult
from penstock.metadata.acls import Operation
from penstock.metadata.controller.topics import NAME_LENGTH_MAX
from penstock.records.builder import Headers

if TYPE_CHECKING:
    from penstock.gateway.shared.gateway import Gateway

RECORDS_MAX = 10_000
"""Records of a list, which is decoded and answered in one step."""

HEADERS_MAX = 1_000

TIMESTAMP_MAX = 10**15 - 1
"""The year 33,658, the last that times in parameters can name."""

_encode = Encoder().encode


_IN_BYTES = [
    {"maxLength": IDEMPOTENCY_KEY_BYTES_MAX, "pattern": "^[\u0000-\u007f]*$"},
    {"maxLength": IDEMPOTENCY_KEY_BYTES_MAX // 2, "pattern": "^[\u0000-\u07ff]*$"},
    {"maxLength": IDEMPOTENCY_KEY_BYTES_MAX // 4},
]
"""JSON Schema counts characters, so the limit in bytes is one case for each number of bytes per character."""

Base64: TypeAlias = Annotated[
    bytes,
    Meta(
        extra_json_schema={
            "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
            "examples": ["cGFpZA=="],
        }
    ),
]


ROUTES = Routes("records")


class ProduceHeader(Struct, forbid_unknown_fields=True):
    """A header of a record. Keys may repeat; the order is kept."""

    key: str
    value: Base64 | None = None


class ProduceRecord(Struct, forbid_unknown_fields=True):
    """A record to write. Key, value and header values are base64."""

    topic: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=NAME_LENGTH_MAX,
            description="Created on first use, if `auto.create.topics.enable` is true.",
            extra_json_schema={"pattern": TOPIC_NAME, "examples": ["orders"]},
        ),
    ]
    value: Annotated[
        Base64 | None, Meta(description="null is a tombstone: in a compacted topic it deletes the key.")
    ]
    key: Annotated[Base64 | None, Meta(description="Records with the same key go to the same partition.")] = (
        None
    )
    idempotency_key: Annotated[
        Annotated[
            str,
            Meta(min_length=1, max_length=IDEMPOTENCY_KEY_BYTES_MAX, extra_json_schema={"anyOf": _IN_BYTES}),
        ]
        | None,
        Meta(description="A retry with the same key to the same topic returns the first record's offset."),
    ] = None
    partition: Annotated[
        Annotated[int, Meta(ge=0, le=PARTITION_MAX)] | None,
        Meta(description="The partition to write to. By default chosen from the key."),
    ] = None
    headers: Annotated[
        Annotated[list[ProduceHeader], Meta(max_length=HEADERS_MAX)]
        | Annotated[dict[str, Base64 | None], Meta(max_length=HEADERS_MAX)]
        | None,
        Meta(description="A list of headers, or an object from key to value."),
    ] = None
    timestamp: Annotated[
        Annotated[int, Meta(ge=0, le=TIMESTAMP_MAX)] | None,
        Meta(
            description="Milliseconds since 1970. By default the time of the call. "
            "A topic with LogAppendTime replaces it."
        ),
    ] = None


class RecordMetadata(Struct):
    """The position of a written record."""

    topic: str
    partition: int
    offset: int


class ProduceResult(Struct):
    """The result of one record of a list: its position, or an error."""

    topic: str
    partition: int | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    error: ErrorInfo | UnsetType = UNSET


ProduceBody: TypeAlias = (
    ProduceRecord | Annotated[list[ProduceRecord], Meta(min_length=1, max_length=RECORDS_MAX)]
)


@ROUTES.add(
    "POST",
    "/produce",
    "Produce a record or a list of records. The response is sent when they are durable (`acks=all`).",
    body=ProduceBody,
    answer=RecordMetadata | list[ProduceResult],
    errors=(404, 409),
    rule=Rule(shows=(Need(Operation.WRITE, TOPIC, "topic"),), creates=True),
)
def produce(gateway: "Gateway", request: Request) -> Promise[Answer]:
    body: ProduceRecord | list[ProduceRecord] = request.body
    answer: Promise[Answer] = Promise()
    if not isinstance(body, list):
        topic = body.topic

        def written(position: RecordPosition) -> None:
            answer.resolve(Response(200, _encode(RecordMetadata(topic, position.partition, position.offset))))

        def failed(error: KafkaError) -> None:
            answer.resolve(error_response(topic_error(error, topic)))

        gateway.producer.produce(
            request.session,
            topic,
            body.key,
            body.value,
            headers=_headers(body) if body.headers else (),
            partition=body.partition,
            idempotency_key=body.idempotency_key,
            timestamp=body.timestamp,
        ).then(written, failed)
        return answer

    def produced(results: list[RecordResult]) -> None:
        first_error = results[0].error
        if first_error is not None and all(each.error is not None for each in results):
            answer.resolve(error_response(topic_error(first_error, body[0].topic)))
            return
        rows = [produce_result(each.topic, result) for each, result in zip(body, results, strict=True)]
        answer.resolve(Response(200, _encode(rows)))

    records = [
        NewRecord(
            each.topic,
            each.key,
            each.value,
            _headers(each),
            each.partition,
            each.idempotency_key,
            each.timestamp,
        )
        for each in body
    ]
    gateway.producer.produce_all(request.session, records).then(produced)
    return answer


def _headers(record: ProduceRecord) -> Headers:
    if record.headers is None:
        return ()
    if isinstance(record.headers, dict):
        return list(record.headers.items())
    return [(each.key, each.value) for each in record.headers]


def produce_result(topic: str, result: RecordResult) -> ProduceResult:
    """The result of one record of several, for the response."""
    if result.error is not None:
        return ProduceResult(topic, error=ErrorInfo(result.error.code.name.lower(), str(result.error)))
    return ProduceResult(topic, result.partition, result.offset)
