"""Syncs the metadata log on a thread, one sync at a time; records appended meanwhile share the next one.

A sync starts at the end of the tick that requested it, so that it covers all appends of that tick. After each sync the
same thread runs the function that `record` returned, which writes the synced end, before `flushed` is called.
"""

from collections.abc import Callable
from functools import partial

from penstock.base.errors import KafkaError
from penstock.base.ids import Offset
from penstock.base.world import World
from penstock.storage.errors import StorageError
from penstock.storage.log import Log
from penstock.storage.syncing import FlushWork


class MetadataSync:
    def __init__(
        self,
        world: World,
        log: Log,
        flushed: Callable[[Offset], None],
        failed: Callable[[Exception], None],
        idle: Callable[[], None],
        record: Callable[[], Callable[[], None]],
    ) -> None:
        """`flushed` is called with the synced end of the log; `failed`, at most once, with the error that stops it."""
        self.is_busy = False
        """A sync runs."""
        self._world = world
        self._log = log
        self._flushed = flushed
        self._failed = failed
        self._idle = idle
        self._record = record
        self._is_due = False
        self._is_closed = False

    def request(self) -> None:
        """Sync the log, if anything is unsynced."""
        if not self._log.flusher.is_flushed and not self._is_due and not self.is_busy:
            self._is_due = True
            self._world.call_soon(self._begin)

    def close(self) -> None:
        """Start no more syncs, and ignore the result of a running one."""
        self._is_closed = True

    def _begin(self) -> None:
        self._is_due = False
        if self._is_closed or self.is_busy:
            return
        try:
            work = self._log.prepare_flush()
        except KafkaError as error:
            self._fail(error)
            return
        if work is not None:
            self.is_busy = True
            self._world.beside(partial(_run, work, self._record()), partial(self._done, work))

    def _done(self, work: FlushWork, _: None, error: Exception | None) -> None:
        self.is_busy = False
        self._count(work, error)
        if not self._is_closed:
            self.request()
        self._idle()

    def _count(self, work: FlushWork, error: Exception | None) -> None:
        try:
            if error is not None and not isinstance(error, OSError):
                raise StorageError(f"cannot sync {self._log.directory}: {error}") from error
            counts = self._log.finish_flush(work, error)
        except StorageError as failure:
            self._fail(failure)
            return
        if counts and not self._is_closed:
            self._flushed(self._log.flushed)

    def _fail(self, error: Exception) -> None:
        if not self._is_closed:
            self.close()
            self._failed(error)


def _run(work: FlushWork, record: Callable[[], None]) -> None:
    work.run()
    record()
