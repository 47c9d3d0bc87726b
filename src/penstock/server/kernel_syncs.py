"""Syncs of files by the kernel itself, without a thread of ours: all that is used here of Linux's asynchronous I/O.

    io_submit(FDSYNC) --> a worker of the kernel syncs the file --> an eventfd wakes the loop --> io_getevents

A thread that calls fdatasync must be woken, must wait for the interpreter's lock before the call and again after it,
and wakes the loop while it still holds that lock: a dozen futex calls for each sync, which on a quick disk take as
long as the sync. Here it is one call there and two back, on the loop's own thread, which never waits.

What a sync promises is the same as with fdatasync: the kernel calls the same function of the file system, and gives
its error back. It holds the file itself from the moment that it is asked, so the descriptor may be closed before the
end.

Not everybody lets a process do this (another system, another processor, a sandbox), and a kernel that is given too
much at once refuses. Then the answer is no, and a thread does it.

The kernel's worker belongs to the processor that the question was asked on. Where that one is never idle, some
schedulers let the worker wait for seconds, and with it all who wait for the sync; a thread is moved to where there is
room. So a sync that takes too long (`LATE_S`) sends the next ones to threads, for a while.
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
"""Syncs that the kernel is given at once; what comes above goes to threads. Of 65,536 for all of a machine's processes
(`fs.aio-max-nr`)."""

LATE_S: Final = 0.05
"""No disk that is worth it takes so long, and one that does gains nothing by being asked in this way."""

PAUSE_S_MIN: Final = 5.0
PAUSE_S_MAX: Final = 600.0
"""How long threads sync after one that was late, and twice as long each time: what was in the worker's way is mostly
there for longer, and to find out costs somebody a wait."""

_FDSYNC: Final = 3
_TELLS_EVENTFD: Final = 1


class _Calls(NamedTuple):
    """The numbers of the system calls: the C library has no functions for them."""

    setup: int
    destroy: int
    getevents: int
    submit: int


_GENERIC: Final = _Calls(setup=0, destroy=1, getevents=4, submit=2)
_CALLS: Final = {"x86_64": _Calls(206, 207, 208, 209), "aarch64": _GENERIC, "riscv64": _GENERIC}


class _Question(ctypes.Structure):
    """`struct iocb` of linux/aio_abi.h, on machines whose lowest byte comes first."""

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
    """Everything here is called on the loop's thread. Raises `OSError` where the kernel does not do it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.monotonic) -> None:
        calls = _CALLS.get(platform.machine())
        if sys.platform != "linux" or calls is None or sys.byteorder != "little":
            raise OSError("no asynchronous syncs are known for this system")
        self._submit = _call(calls.submit, ctypes.c_ulong, ctypes.c_long, ctypes.c_void_p)
        self._getevents = _call(
            calls.getevents, ctypes.c_ulong, ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p
        )
        self._destroy = _call(calls.destroy, ctypes.c_ulong)
        self._loop = loop
        self._clock = clock
        self._waiting: dict[int, tuple[float, Done]] = {}
        """Since when, and who; the first has waited longest."""
        self._last = 0
        self._pause_s = PAUSE_S_MIN / 2
        """The last pause, or half of the first."""
        self._resumes_s = 0.0
        """When the kernel is asked again."""
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        made = ctypes.c_ulong(0)
        if _call(calls.setup, ctypes.c_uint, ctypes.c_void_p)(AT_ONCE_MAX, ctypes.addressof(made)):
            os.close(self._eventfd)
            raise OSError(ctypes.get_errno(), f"io_setup: {os.strerror(ctypes.get_errno())}")
        self._context = made.value
        self._question = _Question(opcode=_FDSYNC, flags=_TELLS_EVENTFD, eventfd=self._eventfd)
        """Used again and again: the kernel has read it when it has been asked."""
        self._questions = (ctypes.c_void_p * 1)(ctypes.addressof(self._question))
        self._questions_at = ctypes.addressof(self._questions)
        self._answers = (_Answer * AT_ONCE_MAX)()
        self._answers_at = ctypes.addressof(self._answers)
        loop.add_reader(self._eventfd, self._told)

    def sync(self, descriptor: int, done: Done) -> bool:
        """Have a file's contents and size made durable; False where it cannot be asked for. `done` comes later."""
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
            return False  # a thread finds out what is wrong with the file
        waiting[number] = (now_s, done)
        return True

    def _is_late(self, since_s: float, now_s: float) -> bool:
        """Whether one that was asked for then is; if so, there is a pause."""
        if now_s - since_s <= LATE_S:
            return False
        if now_s >= self._resumes_s:
            has_been_good = now_s - self._resumes_s > PAUSE_S_MAX
            self._pause_s = PAUSE_S_MIN if has_been_good else min(2 * self._pause_s, PAUSE_S_MAX)
            self._resumes_s = now_s + self._pause_s
            logger.info(
                "a sync by the kernel took more than %d ms: threads do it for %d s",
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
            except Exception:  # the others have been synced all the same
                logger.exception("what a sync was for could not be done")

    def close(self) -> None:
        """Wait for what is under way; nobody is told of it any more."""
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
