"""`POST /topics/{topic}/records/copy`: write chosen records again, to another topic or the same one.

The node reads the records and writes them, so that keys, values and headers stay the same bytes, whatever they are,
and large values need not travel to the client and back. Records are copied in the order of the list, in portions of a
few megabytes; each has its result. A call whose response is lost may have copied some, or all.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset
from penstock.base.steps import Steps
from penstock.gateway.http.produce import ProduceResult, produce_result
from penstock.gateway.http.protocol.messages import Answer, Request, Routes, json
from penstock.gateway.http.protocol.parameters import OFFSET_MAX, PARTITION_MAX, TopicName, topic_in
from penstock.gateway.idempotency import HEADER
from penstock.gateway.peer_rpc.routed_partition import find_partition
from penstock.gateway.shared.access import TOPIC, Need, Rule
from penstock.gateway.shared.fair_queue import FairQueue
from penstock.gateway.shared.producer import NewRecord, RecordResult
from penstock.gateway.shared.single_record import read_records
from penstock.handlers.support.context import Context
from penstock.metadata.acls import Operation
from penstock.records import Record

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
        source = _Source(context, gateway.fair_queue, topic.name, asked.records[at : at + PORTION_RECORDS])
        size = 0
        while at < len(asked.records) and size < PORTION_BYTES and len(portion) < PORTION_RECORDS:
            yield gateway.fair_queue.next()
            new = yield from _read(source, asked, asked.records[at])
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


class _Source:
    """Reads the records of one portion. Those of one batch, which may be a large one, are read together."""

    def __init__(
        self, context: Context, fair_queue: FairQueue, topic: str, wanted: Sequence[CopiedRecord]
    ) -> None:
        self._context, self._fair_queue, self._topic = context, fair_queue, topic
        self._offsets: dict[int, set[Offset]] = {}
        """Of the portion, by partition."""
        for each in wanted:
            self._offsets.setdefault(each.partition, set()).add(each.offset)
        self._found: dict[tuple[int, Offset], Record] = {}

    def read(self, number: int, offset: Offset) -> Steps[Record]:
        """Raises an error if there is no record at an offset."""
        known = self._found.get((number, offset))
        if known is not None:
            return known
        partition = find_partition(self._context, self._topic, number)
        found = yield from read_records(
            self._context, self._fair_queue, partition, offset, self._offsets[number]
        )
        self._found |= {(number, each): one.record for each, one in found.items()}
        return found[offset].record


def _read(source: _Source, asked: CopyRequest, each: CopiedRecord) -> Steps[NewRecord | KafkaError]:
    """A record to write; or why it cannot be copied."""
    try:
        record = yield from source.read(each.partition, each.offset)
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
