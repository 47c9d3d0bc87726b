"""Spans of partitions that are led elsewhere: read from the replica that is here, or from a copy of the batches.

A child reads segments from the disk. Where this node follows a partition it has them; where it has nothing of it, the
batches of the range are fetched from the leader and laid down as one segment, beside the file that is made of them,
and are gone when that is made.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset
from penstock.base.steps import Steps, beside
from penstock.gateway.exports.job import Span
from penstock.gateway.peer_rpc.remote_watch import Fetched
from penstock.gateway.peer_rpc.retry import retry_while_moving
from penstock.gateway.peer_rpc.routed_partition import RoutedPartition
from penstock.handlers.support.context import Context
from penstock.records import ControlType, RecordBatch, iter_batches, parse_control
from penstock.replica import Partition
from penstock.storage import StorageError
from penstock.vfs import Vfs, remove_tree

PORTION_BYTES: Final = 1 << 20
COPY_BYTES_MAX: Final = 1 << 31
"""Of one partition: as large as a file may get."""


def span_here(partition: Partition, start: Offset, stop: Offset) -> Span:
    """A range of a replica that this node has."""
    log = partition.log
    aborted = log.aborted(start, stop) if start < stop else []
    return Span(
        partition.topic,
        partition.topic_id,
        partition.number,
        log.directory,
        log.log_start,
        start,
        stop,
        tuple((one.producer_id, one.first_offset, one.last_offset) for one in aborted),
    )


def find_span(
    context: Context,
    partition: RoutedPartition,
    start: Offset,
    stop: Offset,
    new_directory: Callable[[], str],
) -> Steps[Span]:
    """A range, wherever it is led; `new_directory` names one that can be made, if it has to be copied."""
    held = context.replicas.held(partition.topic_id, partition.number)
    if held is not None and (
        held.is_leader or (held.log.log_start <= start and stop <= held.high_watermark) or start >= stop
    ):
        return span_here(held, start, stop)
    if start >= stop:
        return Span(partition.topic, partition.topic_id, partition.number, "", start, start, stop)
    copy = Copy(context, partition, start, stop, new_directory())
    yield from copy.make()
    return copy.span()


class Copy:
    """Batches of a range, fetched into a directory of their own."""

    def __init__(
        self, context: Context, partition: RoutedPartition, start: Offset, stop: Offset, directory: str
    ) -> None:
        self._context = context
        self._partition = partition
        self._start, self._stop = start, stop
        self._directory = directory
        self._size = 0
        self._path = ""
        self._open: dict[tuple[int, Offset], None] = {}
        """Producers and first offsets of aborted transactions whose end has not come yet."""
        self._aborted: list[tuple[int, Offset, Offset]] = []

    def span(self) -> Span:
        still_open = tuple((producer, first, self._stop) for producer, first in self._open)
        return Span(
            self._partition.topic,
            self._partition.topic_id,
            self._partition.number,
            self._directory,
            self._start,
            self._start,
            self._stop,
            (*self._aborted, *still_open),
        )

    def make(self) -> Steps[None]:
        position = self._start
        while position < self._stop:
            got = yield from retry_while_moving(
                self._context, partial(self._partition.fetch, position, PORTION_BYTES)
            )
            behind = self._note(got)
            if behind <= position:
                raise KafkaError(
                    f"{self._partition.name} has no batch at {position}", ErrorCode.KAFKA_STORAGE_ERROR
                )
            position = behind
            yield beside(self._context.world, partial(self._write, got.data), _copy_error)
            if self._size > COPY_BYTES_MAX:
                raise KafkaError(
                    f"the range has more than {COPY_BYTES_MAX} bytes, and another broker leads it. "
                    "Request a shorter range, or send the request to that broker.",
                    ErrorCode.RECORD_LIST_TOO_LARGE,
                )

    def _note(self, got: Fetched) -> Offset:
        """Find out where aborted transactions end; the offset behind the last batch."""
        known = {(producer, first) for producer, first, _ in self._aborted}
        for each in got.aborted:
            if (each.producer_id, each.first_offset) not in known:
                self._open[each.producer_id, each.first_offset] = None
        behind = got.offset
        for batch in iter_batches(got.data):
            behind = batch.next_offset
            if not self._path:
                self._path = f"{self._directory}/{batch.base_offset:020d}.log"
            if batch.is_control and _is_abort(batch):
                for producer, first in list(self._open):
                    if producer == batch.producer_id and first <= batch.base_offset:
                        del self._open[producer, first]
                        self._aborted.append((producer, first, batch.base_offset))
        return behind

    def _write(self, data: bytes) -> None:
        vfs = self._context.replicas.directory.vfs
        if not self._size:
            vfs.make_dirs(self._directory)
        file = vfs.open(self._path, write=True, create=True)
        try:
            # The last batch may be incomplete: it is fetched again.
            whole = memoryview(data)[: sum(batch.size for batch in iter_batches(data))]
            file.pwrite([whole], self._size)
            self._size += len(whole)
        finally:
            file.close()


def _is_abort(batch: RecordBatch) -> bool:
    marker = next(iter(batch.records()), None)
    return marker is not None and parse_control(marker).type is ControlType.ABORT


def remove_copies(vfs: Vfs, spans: Iterable[Span], directory: str) -> None:
    """Remove what was copied for spans, of which there is a file now."""
    for span in spans:
        if span.directory.startswith(f"{directory}/") and vfs.stat(span.directory) is not None:
            remove_tree(vfs, span.directory)


def _copy_error(error: Exception) -> KafkaError:
    return StorageError(f"cannot write a temporary copy: {error}")
