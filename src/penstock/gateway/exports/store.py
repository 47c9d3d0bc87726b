"""Files that were made for readers, kept while they read.

A reader of Parquet asks for the file's size, then its end, then the parts that it wants: several requests about one
file, which must not grow between them. A file is made for a range of offsets, so that it is the same whoever asks; one
that nobody asked for lately goes. Who asks for a part without having said which file (most readers do) means the
one that was last made for the same words from the same place.

One file is made at a time: it takes a core.
"""

import logging
from collections import OrderedDict
from collections.abc import Hashable
from functools import partial
from hashlib import blake2b
from importlib.util import find_spec
from typing import Final, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TimestampMs
from penstock.base.later import Later
from penstock.base.world import Timer
from penstock.gateway.exports.job import SUFFIXES, Made, Refused, Wanted, make_file
from penstock.gateway.http.messages import HttpError
from penstock.gateway.steps import Steps
from penstock.handlers.context import Context
from penstock.vfs import File

logger = logging.getLogger(__name__)

KEPT_MS: Final = 60_000
"""How long a file stays after it was last asked for."""
KEPT_BYTES_MAX: Final = 4 << 30
WAITING_MAX: Final = 32
"""Files that wait to be made; who wants one more is told to come again."""
PINS_MAX: Final = 1024

NEEDS: Final = ("pyarrow", "pyspark", "numpy")
"""What a child imports; it comes with the extra `spark`."""


class Export(NamedTuple):
    """A file that is there."""

    wanted: Wanted
    made: Made
    path: str
    tag: str
    """For `ETag`: another range, another tag."""


class _Kept:
    """A file that is there, or on its way."""

    def __init__(self, path: str, tag: str) -> None:
        self.path = path
        self.tag = tag
        self.made: Made | None = None
        self.used_ms: TimestampMs = 0
        self.waiting: list[Later[Made | KafkaError]] = []


class Exports:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._kept: OrderedDict[Wanted, _Kept] = OrderedDict()
        """The one that was last asked for is last."""
        self._queue: list[Wanted] = []
        self._is_making = False
        self._pins: OrderedDict[Hashable, Wanted] = OrderedDict()
        self._timer: Timer | None = None
        self._directory: str | None = None
        self._count = 0

    def start(self) -> None:
        """Nothing is made before somebody asks for it."""

    def stop(self) -> None:
        """Leave nothing behind."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for wanted in list(self._kept):
            self._drop(wanted)

    # -- asking ----------------------------------------------------------------------------------------

    def pinned(self, reader: Hashable) -> Wanted | None:
        """What a reader was given last, if it is still there."""
        wanted = self._pins.get(reader)
        kept = None if wanted is None else self._kept.get(wanted)
        return None if kept is None or kept.made is None else wanted

    def get(self, reader: Hashable, wanted: Wanted) -> Steps[Export]:
        """The file, made now if it is not there."""
        _check_installed()
        kept = self._kept.get(wanted)
        if kept is None:
            kept = self._begin(wanted)
        if kept.made is None:
            yield from self._wait(wanted, kept)
        assert kept.made is not None
        kept.used_ms = self._context.world.now_ms()
        if wanted in self._kept:
            self._kept.move_to_end(wanted)
        self._pins[reader] = wanted
        self._pins.move_to_end(reader)
        if len(self._pins) > PINS_MAX:
            self._pins.popitem(last=False)
        return Export(wanted, kept.made, kept.path, kept.tag)

    def _wait(self, wanted: Wanted, kept: _Kept) -> Steps[None]:
        later: Later[Made | KafkaError] = Later()
        kept.waiting.append(later)
        try:
            yield later
        finally:
            if later in kept.waiting:  # the client went: what nobody waits for need not be made
                kept.waiting.remove(later)
                if not kept.waiting and wanted in self._queue:
                    self._queue.remove(wanted)
                    self._drop(wanted)

    def open(self, export: Export) -> File:
        """To read from; it stays readable when the file goes."""
        return self._context.replicas.directory.vfs.open(export.path)

    # -- making ----------------------------------------------------------------------------------------

    def _begin(self, wanted: Wanted) -> _Kept:
        if len(self._queue) >= WAITING_MAX:
            raise HttpError(503, "busy", f"{WAITING_MAX} files wait to be made already: come again later")
        self._count += 1
        name = f"{self._count}.{SUFFIXES[wanted.content_type]}"
        path = f"{self._prepare()}/{name}"
        tag = blake2b(repr((wanted, self._count)).encode(), digest_size=12).hexdigest()
        kept = self._kept[wanted] = _Kept(path, tag)
        self._queue.append(wanted)
        self._go_on()
        return kept

    def _prepare(self) -> str:
        """The directory for files; what a former life left there goes."""
        if self._directory is None:
            directory = self._context.replicas.directory
            path = f"{directory.layout.meta}/exports"
            directory.vfs.make_dirs(path)
            for entry in directory.vfs.list_dir(path):
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

    def _made(self, wanted: Wanted, made: Made | Refused | None, error: Exception | None) -> None:
        self._is_making = False
        kept = self._kept.get(wanted)
        if kept is not None:
            answer: Made | KafkaError
            if isinstance(made, Made):
                answer = kept.made = made
                kept.used_ms = self._context.world.now_ms()
                self._expire()
            else:
                if error is not None:
                    logger.error("a file could not be made: %s", error)
                    made = Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "the file could not be made")
                assert made is not None
                answer = KafkaError(made.why, made.code)
                self._drop(wanted)
            waiting, kept.waiting = kept.waiting, []
            for later in waiting:
                later.answer(answer)
        self._go_on()

    # -- keeping ---------------------------------------------------------------------------------------

    def _expire(self) -> None:
        """Drop what nobody asked for lately, and where there is too much, the oldest but not the last."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now_ms = self._context.world.now_ms()
        there = [
            (wanted, kept, kept.made.size) for wanted, kept in self._kept.items() if kept.made is not None
        ]
        total = sum(size for _, _, size in there)
        for place, (wanted, kept, size) in enumerate(there, 1):
            is_old = kept.used_ms + KEPT_MS <= now_ms
            if is_old or (total > KEPT_BYTES_MAX and place < len(there)):
                total -= size
                self._drop(wanted)
        if self._kept:
            self._timer = self._context.world.call_later(KEPT_MS // 2, self._expire)

    def _drop(self, wanted: Wanted) -> None:
        kept = self._kept.pop(wanted)
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
                "Arrow and Parquet need the extra `spark`: pip install 'penstock[spark]', and start the node again",
            )
