"""Files made for readers, kept while they read.

A reader of Parquet sends several requests about one file (its size, its end, then parts), and does not say which file:
most readers send no tag. The topic grows meanwhile, and parts of two files do not fit together. So requests of
the same client with the same parameters are grouped into reads, by how known readers begin:

    the whole                  pandas, curl                      each request is a read
    HEAD, then parts           DuckDB, fsspec                    HEAD begins a read
    the end, then parts        Polars and others in Rust         the end begins a read; HEAD and a longer end soon
                                                                 after it continue it
    from the first byte on     downloads in pieces               begins a read, unless HEAD or the end did

Any other part continues the latest read. A request with a tag (`If-Range`, `If-Match`) continues the read of that
file, or begins one. A file is made for a range of offsets, and removed when it was not requested for a while. One file
is made at a time, since it takes a core.
"""

import logging
from collections import OrderedDict
from collections.abc import Hashable
from enum import Enum, auto
from functools import partial
from hashlib import blake2b
from importlib.util import find_spec
from typing import Final, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.extras import install_hint
from penstock.base.ids import TimestampMs
from penstock.base.promise import Promise
from penstock.base.steps import Steps
from penstock.base.world import Timer
from penstock.gateway.exports.copies import find_span, remove_copies
from penstock.gateway.exports.job import SUFFIXES, ExportedFile, ExportRefused, ExportSpec, Span, make_file
from penstock.gateway.http.protocol.messages import HttpError
from penstock.gateway.shared.ranges import OffsetRange
from penstock.handlers.support.context import Context
from penstock.vfs import File, remove_tree

BEGINNING_MS: Final = 10_000
"""How long after a request for the end a request for the size, or a longer end, continues the read."""

REMEMBERED_MS: Final = 3_600_000
"""How long a read is remembered after its last request. Its file is removed sooner, and may then differ."""


class FilePart(Enum):
    WHOLE = auto()
    SIZE = auto()
    """HEAD."""
    END = auto()
    START = auto()
    """From the first byte on."""
    MIDDLE = auto()


class FileRequest(NamedTuple):
    """The part of a file that a request asks for."""

    kind: FilePart = FilePart.WHOLE
    length: int = 0
    """Length of the end, in bytes."""
    tags: tuple[str, ...] = ()
    """The tags that the request accepts, in the form of `ETag`."""


class FileRead(NamedTuple):
    """Requests about one file."""

    wanted: ExportSpec
    begun: FileRequest
    """Its first request."""
    begun_ms: TimestampMs
    used_ms: TimestampMs

    def has(self, asked: FileRequest, now_ms: TimestampMs) -> bool:
        """Whether a request without a tag belongs to this read."""
        if now_ms >= self.used_ms + REMEMBERED_MS:
            return False
        is_beginning = self.begun.kind is FilePart.END and now_ms < self.begun_ms + BEGINNING_MS
        if asked.kind is FilePart.SIZE:
            return is_beginning
        if asked.kind is FilePart.END:
            return is_beginning and asked.length > self.begun.length
        if asked.kind is FilePart.START:
            return self.begun.kind in (FilePart.SIZE, FilePart.END)
        return asked.kind is FilePart.MIDDLE


logger = logging.getLogger(__name__)

KEPT_MS: Final = 60_000
"""How long a file is kept after its last request."""
KEPT_BYTES_MAX: Final = 4 << 30
WAITING_MAX: Final = 32
"""Files that wait to be made, beyond which requests get 503."""
READS_MAX: Final = 1024
"""Reads that are remembered."""

NEEDS: Final = ("pyarrow", "pyspark", "numpy")
"""Modules that the child process imports; the extra `spark` installs them."""


class Export(NamedTuple):
    """A finished file."""

    wanted: ExportSpec
    made: ExportedFile
    path: str
    tag: str
    """For `ETag`: each range has another tag."""


class _Kept:
    """A finished or unfinished file."""

    def __init__(self, path: str, tag: str) -> None:
        self.path = path
        self.tag = tag
        self.made: ExportedFile | None = None
        self.used_ms: TimestampMs = 0
        self.waiting: list[Promise[ExportedFile]] = []


class Exports:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._kept: OrderedDict[ExportSpec, _Kept] = OrderedDict()
        """The most recently used is last."""
        self._queue: list[ExportSpec] = []
        self._is_making = False
        self._reads: OrderedDict[Hashable, FileRead] = OrderedDict()
        """The last read of each reader; the most recently used is last."""
        self._timer: Timer | None = None
        self._directory: str | None = None
        self._count = 0

    def start(self) -> None:
        """Nothing to do before the first request."""

    def stop(self) -> None:
        """Remove all files."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for wanted in list(self._kept):
            self._drop(wanted)

    # -- requests --------------------------------------------------------------------------------------

    def continued(self, reader: Hashable, asked: FileRequest, topic_id: bytes) -> ExportSpec | None:
        """The file of the reader's last read, if the request continues it, the topic is the same, and the file
        exists."""
        read = self._reads.get(reader)
        kept = None if read is None else self._kept.get(read.wanted)
        if read is None or kept is None or kept.made is None or read.wanted.topic_id != topic_id:
            return None
        if asked.tags:
            return read.wanted if f'"{kept.tag}"' in asked.tags else None
        return read.wanted if read.has(asked, self._context.world.now_ms()) else None

    def span(self, wanted: OffsetRange) -> Steps[Span]:
        """The segments of a range for the child process; fetched to a temporary copy if this broker has no replica."""
        _check_installed()
        return (yield from find_span(self._context, *wanted, self._new_copy))

    def _new_copy(self) -> str:
        self._count += 1
        return f"{self._prepare()}/{self._count}.copy"

    def get(self, reader: Hashable, wanted: ExportSpec, asked: FileRequest = FileRequest()) -> Steps[Export]:  # noqa: B008
        """The file; created if it does not exist."""
        _check_installed()
        try:
            is_continued = self._continues_read(reader, wanted, asked)
            kept = self._kept.get(wanted)
            if kept is None:
                kept = self._begin(wanted)
        except HttpError:
            self._remove_copies(wanted)
            raise
        if kept.made is None:
            yield from self._wait(wanted, kept)
        assert kept.made is not None
        now_ms = kept.used_ms = self._context.world.now_ms()
        if wanted in self._kept:
            self._kept.move_to_end(wanted)
        read = self._reads.get(reader) if is_continued else None
        if read is None or read.wanted != wanted:
            read = FileRead(wanted, asked, now_ms, now_ms)
        self._reads[reader] = read._replace(used_ms=now_ms)
        self._reads.move_to_end(reader)
        if len(self._reads) > READS_MAX:
            self._reads.popitem(last=False)
        return Export(wanted, kept.made, kept.path, kept.tag)

    def _continues_read(self, reader: Hashable, wanted: ExportSpec, asked: FileRequest) -> bool:
        """Whether the request continues the reader's last read. Raises 410 if that was of another file, which is
        removed: the client would mix parts of both."""
        read = self._reads.get(reader)
        if read is None:
            return False
        is_named = bool(asked.tags) and read.wanted == wanted
        if not is_named and not read.has(asked, self._context.world.now_ms()):
            return False
        if read.wanted != wanted and asked.kind is FilePart.MIDDLE and not asked.tags:
            del self._reads[reader]
            raise HttpError(
                410,
                "file_gone",
                "the file that this client was reading has expired, and the topic has changed. Start again.",
            )
        return read.wanted == wanted

    def _wait(self, wanted: ExportSpec, kept: _Kept) -> Steps[None]:
        later: Promise[ExportedFile] = Promise()
        kept.waiting.append(later)
        try:
            yield later
        finally:
            if later in kept.waiting:  # the client has disconnected: without others, the file is not needed
                kept.waiting.remove(later)
                if not kept.waiting and wanted in self._queue:
                    self._queue.remove(wanted)
                    self._drop(wanted)

    def open(self, export: Export) -> File:
        """Open the file. It stays readable after its removal."""
        return self._context.replicas.directory.vfs.open(export.path)

    # -- making ----------------------------------------------------------------------------------------

    def _begin(self, wanted: ExportSpec) -> _Kept:
        if len(self._queue) >= WAITING_MAX:
            raise HttpError(503, "busy", f"{WAITING_MAX} exports are waiting already. Retry later.")
        self._count += 1
        name = f"{self._count}.{SUFFIXES[wanted.content_type]}"
        path = f"{self._prepare()}/{name}"
        tag = blake2b(repr((wanted, self._count)).encode(), digest_size=12).hexdigest()
        kept = self._kept[wanted] = _Kept(path, tag)
        self._queue.append(wanted)
        self._go_on()
        return kept

    def _prepare(self) -> str:
        """The directory of files. On first use, files of an earlier process are removed."""
        if self._directory is None:
            directory = self._context.replicas.directory
            path = f"{directory.layout.meta}/exports"
            directory.vfs.make_dirs(path)
            for entry in directory.vfs.list_dir(path):
                if entry.name.endswith(".copy"):
                    remove_tree(directory.vfs, f"{path}/{entry.name}")
                else:
                    directory.vfs.remove(f"{path}/{entry.name}")
            self._directory = path
        return self._directory

    def _go_on(self) -> None:
        if self._is_making or not self._queue:
            return
        wanted = self._queue.pop(0)
        self._is_making = True
        vfs = self._context.replicas.directory.vfs
        work = partial(make_file, vfs, wanted, self._kept[wanted].path)
        self._context.world.in_helper(work, partial(self._made, wanted))

    def _made(
        self, wanted: ExportSpec, made: ExportedFile | ExportRefused | None, error: Exception | None
    ) -> None:
        self._is_making = False
        self._remove_copies(wanted)
        kept = self._kept.get(wanted)
        if kept is not None:
            refused: KafkaError | None = None
            if isinstance(made, ExportedFile):
                kept.made = made
                kept.used_ms = self._context.world.now_ms()
                self._expire()
            else:
                if error is not None:
                    logger.error("cannot create an export: %s", error)
                    made = ExportRefused(
                        ErrorCode.UNKNOWN_SERVER_ERROR, "cannot create the file; see the log"
                    )
                assert made is not None
                refused = KafkaError(made.why, made.code)
                self._drop(wanted)
            waiting, kept.waiting = kept.waiting, []
            for later in waiting:
                if isinstance(made, ExportedFile):
                    later.resolve(made)
                elif refused is not None:
                    later.fail(refused)
        self._go_on()

    def _remove_copies(self, wanted: ExportSpec) -> None:
        if self._directory is not None:
            try:
                remove_copies(self._context.replicas.directory.vfs, wanted.spans, self._directory)
            except OSError as error:
                logger.warning("a copy could not be removed: %s", error.strerror or error)

    # -- keeping ---------------------------------------------------------------------------------------

    def _expire(self) -> None:
        """Drop files without a recent request; and the oldest beyond `KEPT_BYTES_MAX`, but never the newest."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now_ms = self._context.world.now_ms()
        there = [
            (wanted, kept, kept.made.size) for wanted, kept in self._kept.items() if kept.made is not None
        ]
        total = sum(size for _, _, size in there)
        for rank, (wanted, kept, size) in enumerate(there, 1):
            is_old = kept.used_ms + KEPT_MS <= now_ms
            if is_old or (total > KEPT_BYTES_MAX and rank < len(there)):
                total -= size
                self._drop(wanted)
        if self._kept:
            self._timer = self._context.world.call_later(KEPT_MS // 2, self._expire)

    def _drop(self, wanted: ExportSpec) -> None:
        kept = self._kept.pop(wanted)
        self._remove_copies(wanted)
        vfs = self._context.replicas.directory.vfs
        try:
            vfs.remove(kept.path)
        except FileNotFoundError:
            pass
        except OSError as error:
            logger.warning("%s could not be removed: %s", kept.path, error.strerror or error)


def _check_installed() -> None:
    for name in NEEDS:
        if find_spec(name) is None:
            raise HttpError(
                501,
                "not_installed",
                f"Arrow and Parquet need {name}: {install_hint('spark')} and restart the node",
            )
