"""Asynchronous file syncs by the kernel, through Linux AIO, instead of on a thread.

    io_submit(FDSYNC) --> a kernel worker syncs the file --> an eventfd wakes the loop --> io_getevents

A thread that calls fdatasync must be woken, waits for the interpreter's lock before and after the call, and wakes the
loop while it still holds that lock: a dozen futex calls per sync, which on a fast disk take as long as the sync. Linux
AIO takes one system call to start and two to finish, on the loop's thread, which never blocks.

The guarantee is that of fdatasync: the kernel calls the same function of the file system and reports its error. The
kernel holds a reference to the file from `io_submit` on, so the descriptor may be closed before the sync ends.

Some systems do not offer this (another operating system or processor, a sandbox), and the kernel rejects requests
above its limit. `sync` then returns False, and the caller syncs on a thread.

The kernel's worker is bound to the processor that submitted the request. If that processor is never idle, some
schedulers delay the worker for seconds, whereas a thread moves to a free processor. So after a sync that took longer
than `LATE_S`, syncs go to threads for a while.
"""

import asyncio
import ctypes
import logging
import os
import platform
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

logger = logging.getLogger(__name__)

Done = Callable[[OSError | None], None]

AT_ONCE_MAX: Final = 64
"""Maximum number of concurrent kernel syncs; further ones go to threads. All processes of a machine share 65,536
(`fs.aio-max-nr`)."""

LATE_S: Final = 0.05
"""A disk that regularly takes longer gains nothing from kernel syncs."""

PAUSE_S_MIN: Final = 5.0
PAUSE_S_MAX: Final = 600.0
"""How long threads sync after a late kernel sync; doubled each time. What delays the worker usually persists, and each
new attempt costs a client a wait."""

_FDSYNC: Final = 3
_TELLS_EVENTFD: Final = 1


class _Calls(NamedTuple):
    """System call numbers; the C library has no functions for these calls."""

    setup: int
    destroy: int
    getevents: int
    submit: int


_GENERIC: Final = _Calls(setup=0, destroy=1, getevents=4, submit=2)
_CALLS: Final = {"x86_64": _Calls(206, 207, 208, 209), "aarch64": _GENERIC, "riscv64": _GENERIC}


class _Question(ctypes.Structure):
    """`struct iocb` of linux/aio_abi.h, little-endian."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_uint32),
        ("opcode", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("descriptor", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("eventfd", ctypes.c_uint32),
    )


class _Answer(ctypes.Structure):
    """`struct io_event`."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("question", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("result2", ctypes.c_int64),
    )


class KernelSyncs:
    """All methods are called on the loop's thread. The constructor raises `OSError` if Linux AIO is not available."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.monotonic) -> None:
        calls = _CALLS.get(platform.machine())
        if sys.platform != "linux" or calls is None or sys.byteorder != "little":
            raise OSError("asynchronous syncs are not supported on this system")
        self._submit = _call(calls.submit, ctypes.c_ulong, ctypes.c_long, ctypes.c_void_p)
        self._getevents = _call(
            calls.getevents, ctypes.c_ulong, ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p
        )
        self._destroy = _call(calls.destroy, ctypes.c_ulong)
        self._loop = loop
        self._clock = clock
        self._waiting: dict[int, tuple[float, Done]] = {}
        """Start time and callback by number of the sync, oldest first."""
        self._last = 0
        self._pause_s = PAUSE_S_MIN / 2
        """The last pause, or half of the first."""
        self._resumes_s = 0.0
        """End of the current pause."""
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        made = ctypes.c_ulong(0)
        if _call(calls.setup, ctypes.c_uint, ctypes.c_void_p)(AT_ONCE_MAX, ctypes.addressof(made)):
            os.close(self._eventfd)
            raise OSError(ctypes.get_errno(), f"io_setup: {os.strerror(ctypes.get_errno())}")
        self._context = made.value
        self._question = _Question(opcode=_FDSYNC, flags=_TELLS_EVENTFD, eventfd=self._eventfd)
        """Reused for every request: the kernel has copied it when `io_submit` returns."""
        self._questions = (ctypes.c_void_p * 1)(ctypes.addressof(self._question))
        self._questions_at = ctypes.addressof(self._questions)
        self._answers = (_Answer * AT_ONCE_MAX)()
        self._answers_at = ctypes.addressof(self._answers)
        loop.add_reader(self._eventfd, self._told)

    def sync(self, descriptor: int, done: Done) -> bool:
        """Start to make a file's contents and size durable, then call `done`; return False if a thread must do it."""
        waiting, now_s = self._waiting, self._clock()
        if now_s < self._resumes_s or len(waiting) >= AT_ONCE_MAX:
            return False
        if waiting and self._is_late(next(iter(waiting.values()))[0], now_s):
            return False
        self._last = number = self._last + 1
        question = self._question
        question.data = number
        question.descriptor = descriptor
        if self._submit(self._context, 1, self._questions_at) != 1:
            return False  # if the file is at fault, the thread reports the error
        waiting[number] = (now_s, done)
        return True

    def _is_late(self, since_s: float, now_s: float) -> bool:
        """Return whether a sync that started at `since_s` is late; if so, begin a pause."""
        if now_s - since_s <= LATE_S:
            return False
        if now_s >= self._resumes_s:
            has_been_good = now_s - self._resumes_s > PAUSE_S_MAX
            self._pause_s = PAUSE_S_MIN if has_been_good else min(2 * self._pause_s, PAUSE_S_MAX)
            self._resumes_s = now_s + self._pause_s
            logger.info(
                "a kernel sync took more than %d ms; syncing on threads for %d s",
                LATE_S * 1000,
                self._pause_s,
            )
        return True

    def _told(self) -> None:
        try:
            os.eventfd_read(self._eventfd)
        except BlockingIOError:
            return
        count = self._getevents(self._context, 0, AT_ONCE_MAX, self._answers_at, None)
        ended = [(each.data, each.result) for each in self._answers[: max(0, count)]]
        now_s = self._clock()
        for number, result in ended:
            error = None if result >= 0 else OSError(-result, os.strerror(-result))
            since_s, done = self._waiting.pop(number)
            self._is_late(since_s, now_s)
            try:
                done(error)
            except Exception:  # the other callbacks must still run
                logger.exception("the callback of a completed sync failed")

    def close(self) -> None:
        """Wait for syncs in progress, without calling their callbacks."""
        if not self._loop.is_closed():
            self._loop.remove_reader(self._eventfd)
        self._destroy(self._context)
        self._waiting.clear()
        os.close(self._eventfd)


def _call(number: int, *types: Any) -> Callable[..., int]:
    """A system call as a function; -1 and an errno where it fails."""
    function = ctypes.CDLL(None, use_errno=True)["syscall"]
    function.argtypes = (ctypes.c_long, *types)
    function.restype = ctypes.c_long
    return partial(function, number)
