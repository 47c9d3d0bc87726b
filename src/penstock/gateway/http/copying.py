"""`POST /topics/{topic}/records/copy`: write chosen records again, to another topic or the same one.

The node reads the records and writes them, so that keys, values and headers stay the same bytes, whatever they are,
and large values need not travel to the client and back. Records are copied in the order of the list, in portions of a
few megabytes; each has its result. A call whose response is lost may have copied some, or all.
"""

from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.steps import Steps
from penstock.gateway.http.produce import ProduceResult, produce_result
from penstock.gateway.http.protocol.messages import Answer, Request, Routes, json
from penstock.gateway.http.protocol.parameters import OFFSET_MAX, PARTITION_MAX, TopicName, topic_in
from penstock.gateway.idempotency import HEADER
from penstock.gateway.peer_rpc.routed_partition import find_partition
from penstock.gateway.shared.access import TOPIC, Need, Rule
from penstock.gateway.shared.producer import NewRecord, RecordResult
from penstock.gateway.shared.single_record import read_record
from penstock.handlers.support.context import Context
from penstock.metadata.acls import Operation

COPIED_MAX: Final = 1_000
"""Records of one call."""

PORTION_BYTES: Final = 4 << 20
PORTION_RECORDS: Final = 200
"""Records that are read before they are written."""

ROUTES = Routes("records")


class CopiedRecord(Struct, forbid_unknown_fields=True):
    partition: Annotated[int, Meta(ge=0, le=PARTITION_MAX)]
    offset: Annotated[int, Meta(ge=0, le=OFFSET_MAX)]


class CopyRequest(Struct, forbid_unknown_fields=True):
    """Records to write again."""

    to: Annotated[
        TopicName, Meta(description="Created on first use, if `auto.create.topics.enable` is true.")
    ]
    records: Annotated[list[CopiedRecord], Meta(min_length=1, max_length=COPIED_MAX)]
    partition: Annotated[
        Annotated[int, Meta(ge=0, le=PARTITION_MAX)] | None,
        Meta(description="The partition to write to. By default chosen from the key."),
    ] = None
    keep_timestamps: Annotated[
        bool, Meta(description="Keep the records' timestamps. By default the time of the copy.")
    ] = False


class CopyResponse(Struct):
    topic: str
    copied: int
    """Records that were written."""
    results: list[ProduceResult]
    """For each record, in the order of the request: its new position, or an error."""


@ROUTES.add(
    "POST",
    "/topics/{topic}/records/copy",
    "Write records again, to another topic: the same key, value and headers.",
    body=CopyRequest,
    answer=CopyResponse,
    errors=(404, 409),
    rule=Rule((Need(Operation.READ, TOPIC, "topic"), Need(Operation.WRITE, TOPIC, "to")), creates=True),
)
def _copy(gateway: Any, request: Request) -> Steps[Answer]:
    context: Context = gateway.context
    topic = topic_in(context, request)
    asked: CopyRequest = request.body
    results: list[RecordResult] = []
    at = 0
    while at < len(asked.records):
        portion: list[NewRecord | KafkaError] = []
        size = 0
        while at < len(asked.records) and size < PORTION_BYTES and len(portion) < PORTION_RECORDS:
            yield gateway.fair_queue.next()
            new = yield from _read(context, topic.name, asked, asked.records[at])
            portion.append(new)
            size += 0 if isinstance(new, KafkaError) else len(new.key or b"") + len(new.value or b"")
            at += 1
        written: list[RecordResult] = yield gateway.producer.produce_all(
            request.session, [each for each in portion if isinstance(each, NewRecord)]
        )
        new_results = iter(written)
        results += [
            RecordResult(-1, -1, each) if isinstance(each, KafkaError) else next(new_results)
            for each in portion
        ]
    copied = sum(each.error is None for each in results)
    return json(CopyResponse(asked.to, copied, [produce_result(asked.to, each) for each in results]))


def _read(
    context: Context, topic: str, asked: CopyRequest, each: CopiedRecord
) -> Steps[NewRecord | KafkaError]:
    """A record to write; or why it cannot be copied."""
    try:
        partition = find_partition(context, topic, each.partition)
        record = (yield from read_record(context, partition, each.offset)).record
    except KafkaError as error:
        return error
    for name, _ in record.headers:
        if not name.isascii() and any("\udc80" <= char <= "\udcff" for char in name):
            return KafkaError(
                f"the record at offset {each.offset} has a header whose name is not UTF-8",
                ErrorCode.INVALID_RECORD,
            )
    # An idempotency key belongs to the record that was written with it: the copy is a new record.
    headers = [(name, content) for name, content in record.headers if name != HEADER]
    timestamp = max(record.timestamp, 0) if asked.keep_timestamps else None
    return NewRecord(asked.to, record.key, record.value, headers, asked.partition, None, timestamp)
