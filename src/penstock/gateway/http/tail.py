"""Streams new records of a topic as server-sent events, one for each record.

    id: 0:41,1:7          the last offset of each partition that the client has
    data: {"partition":0,"offset":41,...}

A browser's `EventSource`, or another reader, that loses the connection sends the last id as `Last-Event-ID`, and the
stream continues after it: no record is missed or repeated. A comment every 15 seconds keeps proxies from closing the
connection. An event `end` follows when the topic is deleted, or the requested number of records is sent. When the node
stops, the stream ends without it, and the client reconnects. Partitions that are added to the topic are read from
their start.

With `max_rate` the stream never falls behind: at the end of each quarter of a second that had more records, it
continues with the newest, and an event `skipped` has the number of offsets that were left out. They are not read, so a
page that shows a busy topic costs the node little.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, Uuid
from penstock.base.steps import Steps, sleep
from penstock.gateway.http.protocol.messages import Answer, HttpError, Out, Query, Request, Routes, Stream
from penstock.gateway.http.protocol.parameters import PARTITION_MAX, topic_in
from penstock.gateway.peer_rpc.retry import is_alone
from penstock.gateway.peer_rpc.routed_partition import RoutedPartition, find_partition, look_up_bounds
from penstock.gateway.shared.access import TOPIC, Need, Rule
from penstock.gateway.shared.fair_queue import FairQueue, StreamSlot
from penstock.gateway.shared.record_json import DECODINGS, show, show_cut
from penstock.gateway.shared.tail_reader import TailReader
from penstock.handlers.support.context import Context
from penstock.metadata.acls import Operation
from penstock.records import Record
from penstock.search.query import FIELD_BYTES_MAX

EVENTS: Final = "text/event-stream"

KEEP_ALIVE_MS: Final = 15_000
"""The interval that the standard recommends: some proxies close a connection after 20 idle seconds."""

RETRY_MS: Final = 1_000
"""Delay before a client reconnects."""

PARTITIONS_MAX: Final = 256
"""Partitions of one stream: the id of each event names them all."""

WAIT_MS_MAX: Final = 86_400_000

RATE_WINDOW_MS: Final = 250
RATE_MAX: Final = 10_000
"""Bounds of `max_rate`, and the time in which it is kept."""

EARLIEST: Final = ("earliest", "beginning")
LATEST: Final = ("latest", "end")

DELETED: Final = "the topic was deleted"
ALL_SENT: Final = "max_events were sent"
NOTHING_CAME: Final = "no record arrived within wait_ms"
"""Reasons of the event `end`."""

_DIGITS_MAX = 18
_encode = msgspec.json.Encoder().encode


ROUTES = Routes("records")


@ROUTES.add(
    "GET",
    "/topics/{topic}/tail",
    "Stream records as server-sent events. A client that reconnects with `Last-Event-ID` misses none.",
    query=(
        Query(
            "from",
            str,
            "Where to start: `earliest`, `latest`, or an offset of the one `partition`. "
            "`beginning` and `end` are other names of the first two.",
            default="latest",
            max=20,
            pattern="^(earliest|latest|beginning|end|[0-9]{1,18})$",
        ),
        Query("partition", int, "Only this partition. Default: all of the topic.", min=0, max=PARTITION_MAX),
        Query(
            "decode",
            str,
            "How keys and values are shown: as base64, as text, or values as JSON and keys as text.",
            default="base64",
            one_of=DECODINGS,
        ),
        Query("max_events", int, "End after this many records.", min=1, max=2**62),
        Query(
            "wait_ms",
            int,
            "End when no record arrives for this long; 0 sends the records that exist. "
            "By default the stream does not end.",
            min=0,
            max=WAIT_MS_MAX,
        ),
        Query(
            "max_field_bytes",
            int,
            "Show at most this much of each key and value, and of all headers of a record; `cut` has the lengths of "
            "what is longer.",
            min=1,
            max=FIELD_BYTES_MAX,
        ),
        Query(
            "max_rate",
            int,
            "Send about this many records a second. Of more, the newest are sent, and an event `skipped` counts the "
            "offsets left out. By default all are sent, however long that takes.",
            min=4,
            max=RATE_MAX,
        ),
    ),
    errors=(404, 409),
    content_types=(EVENTS,),
    rule=Rule((Need(Operation.READ, TOPIC, "topic"),)),
)
def _tail(gateway: Any, request: Request) -> Answer | Steps[Answer]:
    context: Context = gateway.context
    topic = topic_in(context, request)
    number = request.query["partition"]
    numbers = sorted(topic.partitions) if number is None else [number]
    if len(numbers) > PARTITIONS_MAX:
        raise HttpError(
            409,
            "too_many_partitions",
            f"topic {topic.name!r} has {len(numbers)} partitions; a stream follows at most {PARTITIONS_MAX}. "
            "Choose one with the parameter partition.",
        )
    partitions = [find_partition(context, topic.name, each) for each in numbers]
    if all(each.here is not None for each in partitions):
        return _stream(gateway, request, topic.id, partitions)
    return _looked(gateway, request, topic.id, partitions)


def _looked(
    gateway: Any, request: Request, topic_id: Uuid, partitions: Sequence[RoutedPartition]
) -> Steps[Answer]:
    """The same where others have to be asked first how far their partitions go."""
    yield from look_up_bounds(gateway.context, partitions)
    return _stream(gateway, request, topic_id, partitions)


def _stream(gateway: Any, request: Request, topic_id: Uuid, partitions: Sequence[RoutedPartition]) -> Answer:
    positions = _positions(request, partitions)
    tail = Tail(gateway.context, gateway.fair_queue, topic_id, partitions, positions, request.query["decode"])
    tail.takes_new = request.query["partition"] is None
    tail.events_left = request.query["max_events"]
    tail.wait_ms = request.query["wait_ms"]
    tail.field_bytes_max = request.query["max_field_bytes"]
    tail.rate_max = request.query["max_rate"]
    return Stream(tail.events, EVENTS, headers=(("Cache-Control", "no-store"), ("X-Accel-Buffering", "no")))


def _positions(request: Request, partitions: Sequence[RoutedPartition]) -> dict[int, Offset]:
    origin: str = request.query["from"]
    last_id = request.headers.get("last-event-id", "").strip()
    first = {each.number: each.log_start for each in partitions}
    end = {each.number: each.last_stable for each in partitions}
    if last_id:
        seen = _after(last_id)
        # What the id does not name, or is ahead of, was made after it: nothing of it has been seen.
        return {
            number: seen[number] if number in seen and seen[number] <= end[number] else start
            for number, start in first.items()
        }
    if origin in (*EARLIEST, *LATEST):
        return first if origin in EARLIEST else end
    if len(first) > 1:
        raise HttpError(
            409,
            "too_many_partitions",
            f"from is an offset, and the topic has {len(first)} partitions. Choose one with the parameter partition.",
        )
    [(number, start)] = first.items()
    if not start <= int(origin) <= end[number]:
        raise KafkaError(
            f"offset {origin} is out of range: partition {number} has offsets {start} to {end[number]}",
            ErrorCode.OFFSET_OUT_OF_RANGE,
        )
    return {number: int(origin)}


def _after(last_id: str) -> dict[int, Offset]:
    """The positions after an event id."""
    found = {}
    for word in last_id.split(",", PARTITIONS_MAX):
        number, _, offset = word.strip().partition(":")
        digits = offset.removeprefix("-")
        if not all(
            each.isascii() and each.isdigit() and len(each) <= _DIGITS_MAX for each in (number, digits)
        ):
            raise HttpError(
                400,
                "bad_event_id",
                f"Last-Event-ID is {last_id[:64]!r}, expected an id of this stream such as 0:41,1:7",
            )
        found[int(number)] = max(int(offset) + 1, 0)
    return found


class Tail:
    """One client's stream."""

    def __init__(
        self,
        context: Context,
        fair_queue: FairQueue,
        topic_id: Uuid,
        partitions: Sequence[RoutedPartition],
        positions: dict[int, Offset],
        decoding: str,
    ) -> None:
        self._context = context
        self._fair_queue = fair_queue
        self._topic_id = topic_id
        self._partitions = partitions
        self._positions = positions
        self._decoding = decoding
        self.takes_new = True
        """Whether partitions that the topic is given are followed too."""
        self.events_left: int | None = None
        """Records that are still to be sent; None for no limit."""
        self.wait_ms: int | None = None
        """How long to wait for a record before the stream ends; None for no limit."""
        self.field_bytes_max: int | None = None
        """Longer keys, values and headers are cut."""
        self.rate_max: int | None = None
        """Records a second; None for no limit."""
        self._window_ns = 0
        """When the current window of `rate_max` began."""
        self._window_left = 0
        """Records that may still be sent in it."""
        self._skipped = 0
        """Offsets that were left out since the last event `skipped`."""
        self._ids = {number: b"%d:%d" % (number, offset - 1) for number, offset in positions.items()}
        """By partition: the last sent offset, in the form of event ids."""

    def events(self, out: Out) -> Steps[None]:
        world = self._context.world
        reader = TailReader(self._context, self._partitions, self._positions)
        slot = self._fair_queue.stream_slot(out, reader.release)
        sent_ns = world.clock_ns()
        why = ""
        try:
            # The first id is the start: a client that reconnects before the first record misses none.
            out.write(b"retry: %d\nid: %s\n\n" % (RETRY_MS, self._id))
            while not reader.is_over and not why:
                if self.rate_max is not None and reader.may_have_more:
                    yield from self._keep_rate(reader, slot, out)
                if reader.may_have_more:
                    yield from slot.wait()
                    if reader.is_over:
                        break
                found = yield from reader.read()
                if found is not None:
                    out.write(self._written(*found))
                    del found  # which may be views of a whole batch, while it waits for the client
                    sent_ns = world.clock_ns()
                    why = ALL_SENT if self.events_left == 0 else ""
                elif not self._find_new(reader):
                    slot.pause()
                    silent_ms = (world.clock_ns() - sent_ns) / 1e6
                    left_ms = float("inf") if self.wait_ms is None else self.wait_ms - silent_ms
                    if left_ms <= 0:
                        why = NOTHING_CAME
                    elif not (yield reader.more(min(left_ms, KEEP_ALIVE_MS))) and left_ms > KEEP_ALIVE_MS:
                        out.write(b": keep-alive\n\n")
                        yield out.ready()
            if not why and self._is_deleted:
                why = DELETED
            if why:
                out.write(b'event: end\ndata: {"reason":"%s"}\n\n' % why.encode())
        finally:
            slot.close()
            reader.close()

    def _keep_rate(self, reader: TailReader, slot: StreamSlot, out: Out) -> Steps[None]:
        """Begin a new window if the last one is over. If its records were sent sooner, wait for its end, and continue
        with the newest."""
        assert self.rate_max is not None
        world, length_ns = self._context.world, RATE_WINDOW_MS * 1_000_000
        passed_ns = world.clock_ns() - self._window_ns
        if passed_ns < length_ns:
            if self._window_left > 0:
                return
            slot.pause()
            yield sleep(world, (length_ns - passed_ns) / 1e6)
        self._window_ns = world.clock_ns()
        self._window_left = self.rate_max * RATE_WINDOW_MS // 1000
        self._skipped += reader.skip_to_last(self._window_left)
        for number, offset in reader.positions.items():
            self._ids[number] = b"%d:%d" % (number, offset - 1)
        if self._skipped:
            out.write(b'event: skipped\nid: %s\ndata: {"offsets":%d}\n\n' % (self._id, self._skipped))
            self._skipped = 0

    def _find_new(self, reader: TailReader) -> bool:
        """Follow what the topic was given; whether there was anything."""
        topic = self._context.image.topic_by_id(self._topic_id) if self.takes_new else None
        if topic is None or not len(self._ids) < len(topic.partitions) <= PARTITIONS_MAX:
            return False
        alone = is_alone(self._context)
        partitions = [
            RoutedPartition(self._context, topic.name, topic.id, number)
            for number in sorted(topic.partitions)
            if number not in self._ids
        ]
        new = [each for each in partitions if not alone or each.here is not None]
        for each in new:
            reader.add(each, each.log_start)
            self._ids[each.number] = b"%d:%d" % (each.number, each.log_start - 1)
        return bool(new)

    @property
    def _is_deleted(self) -> bool:
        return self._partitions[0].is_gone

    @property
    def _id(self) -> bytes:
        return b",".join(self._ids.values())

    def _written(self, number: int, records: list[Record]) -> bytes:
        parts = []
        if self.events_left is not None:
            records = records[: self.events_left]
            self.events_left -= len(records)
        if self.rate_max is not None:
            sent = records[: self._window_left]
            self._window_left -= len(sent)
            if len(sent) < len(records):
                self._skipped += len(records) - len(sent)
                self._ids[number] = b"%d:%d" % (number, records[-1].offset)
                records = sent
        if self.field_bytes_max is None:
            rows = show(number, records, self._decoding)
        else:
            rows = show_cut(number, records, self._decoding, self.field_bytes_max)
        for record, shown in zip(records, rows, strict=True):
            self._ids[number] = b"%d:%d" % (number, record.offset)
            parts.append(b"id: %s\ndata: %s\n\n" % (self._id, _encode(shown)))
        return b"".join(parts)
