"""`POST /produce`: one record, or a list of them.

A record is answered with where it is, when it is durable. A list has a result for each record, in its order; it is
refused whole where its form is wrong, and where not one of its records could be written.
"""

from typing import TYPE_CHECKING, Annotated, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.json import Encoder

from penstock.base.errors import KafkaError
from penstock.base.promise import Promise
from penstock.gateway.http.protocol.errors import ErrorInfo, about_topic
from penstock.gateway.http.protocol.messages import Answer, HttpError, Request, Response, Route
from penstock.gateway.http.protocol.parameters import TOPIC_NAME
from penstock.gateway.idempotency import IDEMPOTENCY_KEY_BYTES_MAX
from penstock.gateway.shared.producer import NewRecord, PositionOrError
from penstock.metadata.controller.topics import NAME_LENGTH_MAX
from penstock.records.builder import Headers

if TYPE_CHECKING:
    from penstock.gateway.shared.gateway import Gateway

RECORDS_MAX = 10_000
"""Of a list: what is decoded, and answered, in one go."""

HEADERS_MAX = 1_000
PARTITION_MAX = 2**31 - 1

_encode = Encoder().encode


_IN_BYTES = [
    {"maxLength": IDEMPOTENCY_KEY_BYTES_MAX, "pattern": "^[\u0000-\u007f]*$"},
    {"maxLength": IDEMPOTENCY_KEY_BYTES_MAX // 2, "pattern": "^[\u0000-\u07ff]*$"},
    {"maxLength": IDEMPOTENCY_KEY_BYTES_MAX // 4},
]
"""A schema counts characters: how many there may be depends on how many bytes each has."""

Base64: TypeAlias = Annotated[
    bytes,
    Meta(
        extra_json_schema={
            "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
            "examples": ["cGFpZA=="],
        }
    ),
]


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


def produce(gateway: "Gateway", request: Request) -> Promise[Answer | HttpError | KafkaError]:
    body: ProduceRecord | list[ProduceRecord] = request.body
    answer: Promise[Answer | HttpError | KafkaError] = Promise()
    if not isinstance(body, list):
        topic = body.topic

        def placed(outcome: PositionOrError) -> None:
            if isinstance(outcome, KafkaError):
                answer.resolve(about_topic(outcome, topic))
            else:
                answer.resolve(
                    Response(200, _encode(RecordMetadata(topic, outcome.partition, outcome.offset)))
                )

        gateway.producer.produce(
            request.session,
            topic,
            body.key,
            body.value,
            headers=_headers(body) if body.headers else (),
            partition=body.partition,
            idempotency_key=body.idempotency_key,
        ).then(placed)
        return answer

    def all_placed(outcomes: list[PositionOrError]) -> None:
        if all(isinstance(each, KafkaError) for each in outcomes):
            [first, *_] = outcomes
            assert isinstance(first, KafkaError)
            answer.resolve(about_topic(first, body[0].topic))
            return
        results = [_result(each.topic, outcome) for each, outcome in zip(body, outcomes, strict=True)]
        answer.resolve(Response(200, _encode(results)))

    records = [
        NewRecord(each.topic, each.key, each.value, _headers(each), each.partition, each.idempotency_key)
        for each in body
    ]
    gateway.producer.produce_all(request.session, records).then(all_placed)
    return answer


def _headers(record: ProduceRecord) -> Headers:
    if record.headers is None:
        return ()
    if isinstance(record.headers, dict):
        return list(record.headers.items())
    return [(each.key, each.value) for each in record.headers]


def _result(topic: str, outcome: PositionOrError) -> ProduceResult:
    if isinstance(outcome, KafkaError):
        return ProduceResult(topic, error=ErrorInfo(outcome.code.name.lower(), str(outcome)))
    return ProduceResult(topic, outcome.partition, outcome.offset)


ROUTES = (
    Route(
        "POST",
        "/produce",
        produce,
        "records",
        "Produce a record or a list of records. The response is sent when they are durable (`acks=all`).",
        body=ProduceBody,
        answer=RecordMetadata | list[ProduceResult],
        errors=(404, 409),
    ),
)
