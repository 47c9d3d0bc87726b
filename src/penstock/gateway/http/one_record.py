"""One record: with what its batch says about it, and the bytes of its key or value as a download.

    GET /topics/{topic}/partitions/{partition}/records/{offset}
    GET /topics/{topic}/partitions/{partition}/records/{offset}/value        the same for /key

Bytes of records come from anybody. They are sent as a download of an unknown type (`Content-Disposition`, and a policy
that lets nothing run), so that no browser shows them as a page of this server.
"""

from functools import partial
from typing import Any, Final

import msgspec

from penstock.base.steps import Steps
from penstock.gateway.http.protocol.messages import (
    Answer,
    HttpError,
    Out,
    Query,
    Request,
    Routes,
    Stream,
    json,
)
from penstock.gateway.http.protocol.parameters import offset_in, partition_in
from penstock.gateway.shared.access import TOPIC, Need, Rule
from penstock.gateway.shared.record_json import DECODINGS, JsonHeader, show_cut
from penstock.gateway.shared.single_record import FoundRecord, NoRecord, read_record
from penstock.metadata.acls import Operation
from penstock.search.query import FIELD_BYTES_MAX

BYTES: Final = "application/octet-stream"

PIECE_BYTES: Final = 1 << 18
"""Of a download that are sent at once."""

_HARMLESS: Final = (
    ("Content-Security-Policy", "sandbox; default-src 'none'"),
    ("Cache-Control", "private, no-cache"),
)


class RecordSizes(msgspec.Struct):
    """In bytes."""

    key: int | None
    """null if the record has no key."""
    value: int | None
    """null if the record is a tombstone."""
    headers: int
    """Of all names and values."""


class RecordBatchInfo(msgspec.Struct):
    """The batch that the record was written in."""

    base_offset: int
    last_offset: int
    records: int
    size: int
    """In bytes, compressed."""
    compression: str
    """none, gzip, snappy, lz4 or zstd."""
    producer_id: int | None
    producer_epoch: int | None
    sequence: int | None
    """The record's, for an idempotent producer."""
    is_transactional: bool
    leader_epoch: int


class RecordDetails(msgspec.Struct):
    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970."""
    timestamp_type: str
    """CreateTime: set by the producer; LogAppendTime: set by the broker."""
    key: Any
    value: Any
    headers: list[JsonHeader]
    cut: dict[str, int]
    """Lengths in bytes of fields of which only the beginning is shown."""
    sizes: RecordSizes
    batch: RecordBatchInfo


ROUTES = Routes("records")
_PATH = "/topics/{topic}/partitions/{partition}/records/{offset}"
_READ = Rule((Need(Operation.READ, TOPIC, "topic"),))


def _found(gateway: Any, request: Request) -> Steps[FoundRecord]:
    partition = partition_in(gateway.context, request)
    try:
        return (yield from read_record(gateway.context, gateway.fair_queue, partition, offset_in(request)))
    except NoRecord as error:
        raise HttpError(404, "no_such_record", str(error)) from error


@ROUTES.add(
    "GET",
    _PATH,
    "One committed record, with what its batch says about it.",
    query=(
        Query(
            "decode",
            str,
            "How key and value are shown: as base64, as text, or the value as JSON and the key as text.",
            default="base64",
            one_of=DECODINGS,
        ),
        Query(
            "max_field_bytes",
            int,
            "Show at most this much of key and value, and of all headers. Read the rest with /key or /value.",
            default=FIELD_BYTES_MAX,
            min=1,
            max=FIELD_BYTES_MAX,
        ),
    ),
    answer=RecordDetails,
    errors=(404, 409),
    rule=_READ,
)
def _one(gateway: Any, request: Request) -> Steps[Answer]:
    found = yield from _found(gateway, request)
    record, batch = found.record, found.batch
    [row] = show_cut(found.partition, [record], request.query["decode"], request.query["max_field_bytes"])
    is_numbered = batch.has_producer_id
    return json(
        RecordDetails(
            found.topic,
            found.partition,
            record.offset,
            record.timestamp,
            "LogAppendTime" if batch.log_append_time else "CreateTime",
            row.key,
            row.value,
            row.headers if isinstance(row.headers, list) else [],
            row.cut,
            RecordSizes(
                None if record.key is None else len(record.key),
                None if record.value is None else len(record.value),
                sum(
                    len(name.encode(errors="surrogateescape")) + len(content or b"")
                    for name, content in record.headers
                ),
            ),
            RecordBatchInfo(
                batch.base_offset,
                batch.last_offset,
                batch.count,
                batch.size,
                batch.codec.name.lower(),
                batch.producer_id if is_numbered else None,
                batch.producer_epoch if is_numbered else None,
                _sequence(batch.base_sequence, record.offset - batch.base_offset) if is_numbered else None,
                batch.is_transactional,
                batch.leader_epoch,
            ),
        )
    )


def _sequence(base: int, delta: int) -> int:
    """Sequences go on at 0 after the largest int32."""
    return (base + delta) & 0x7FFF_FFFF


def _bytes(gateway: Any, request: Request, field: str) -> Steps[Answer]:
    found = yield from _found(gateway, request)
    data: bytes | None = getattr(found.record, field)
    if data is None:
        what = "has no key" if field == "key" else "is a tombstone: it has no value"
        raise HttpError(404, f"no_{field}", f"the record at offset {found.record.offset} {what}")
    name = f"{found.topic}-{found.partition}-{found.record.offset}.{field}"
    return Stream(
        partial(_pieces, data),
        BYTES,
        headers=(("Content-Disposition", f'attachment; filename="{name}"'), *_HARMLESS),
    )


def _pieces(data: bytes, out: Out) -> Steps[None]:
    for start in range(0, len(data), PIECE_BYTES):
        out.write(data[start : start + PIECE_BYTES])
        yield out.ready()


@ROUTES.add(
    "GET",
    f"{_PATH}/value",
    "The bytes of a record's value, as a download.",
    errors=(404, 409),
    content_types=(BYTES,),
    rule=_READ,
)
def _value(gateway: Any, request: Request) -> Steps[Answer]:
    return _bytes(gateway, request, "value")


@ROUTES.add(
    "GET",
    f"{_PATH}/key",
    "The bytes of a record's key, as a download.",
    errors=(404, 409),
    content_types=(BYTES,),
    rule=_READ,
)
def _key(gateway: Any, request: Request) -> Steps[Answer]:
    return _bytes(gateway, request, "key")
