"""Notices that files with keys and certificates have changed.

The files are looked at every `LOOK_MS`, on a thread: a file may be on a disk that does not answer, and PKCS#12 takes
long to open.
"""

import os
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

from penstock.base.world import Timer, World

T = TypeVar("T")

LOOK_MS: Final = 2000


class FileWatch(Generic[T]):
    def __init__(
        self,
        world: World,
        files: Iterable[str],
        load: Callable[[], T],
        use: Callable[[T], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`load` is called on a thread when a file has changed; then `use` with what it returned, or `failed`."""
        self._world = world
        self._files = tuple(files)
        self._load = load
        self._use = use
        self._failed = failed
        self._seen: tuple[tuple[int, ...], ...] = ()
        """The files when they were last read, valid or not."""
        self._timer: Timer | None = None
        self._is_stopped = False

    def first(self) -> T:
        """Load for the first time, here and now."""
        self._seen = _signature(self._files)
        return self._load()

    def start(self) -> None:
        if self._files and not self._is_stopped:
            self._timer = self._world.call_later(LOOK_MS, self._look)

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._world.beside(self._read_if_changed, self._read)

    def _read_if_changed(self) -> T | None:
        now = _signature(self._files)
        if now == self._seen:
            return None
        self._seen = now
        return self._load()

    def _read(self, loaded: T | None, error: Exception | None) -> None:
        if self._is_stopped:
            return
        if error is not None:
            self._failed(error)
        elif loaded is not None:
            self._use(loaded)
        self.start()


def _signature(files: Iterable[str]) -> tuple[tuple[int, ...], ...]:
    """Changes when a file is written or replaced, also through a symbolic link."""
    found: list[tuple[int, ...]] = []
    for path in files:
        try:
            stat = os.stat(path)
        except (OSError, ValueError):
            found.append(())
        else:
            found.append((stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))
    return tuple(found)
