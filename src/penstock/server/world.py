"""`base.world.World` on an event loop, with the system's randomness, threads and child processes.

Threads and children are created when first needed. A child runs one piece of work: compaction is rare and needs much
memory, which the system gets back when the child ends. After `close` no callback is called.
"""

import asyncio
import errno
import logging
import random
import re
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Any, TypeVar, cast

from penstock.base.ids import TimestampMs
from penstock.base.loop_watch import HELD_NS
from penstock.base.world import (
    DIAL_MS_MAX,
    DIAL_TLS_MS_MAX,
    EXPORTS,
    DialTls,
    ProcessUsage,
    StreamProtocol,
    Syncable,
    Timer,
)
from penstock.server.child import Child
from penstock.server.helper_lane import HelperLane
from penstock.server.kernel_syncs import KernelSyncs
from penstock.server.process import process_usage
from penstock.server.threads import Threads
from penstock.vfs.real import RealFile

logger = logging.getLogger(__name__)

T = TypeVar("T")

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

UNACKNOWLEDGED_MS_MAX = 3000
"""After a cut of the network the kernel waits for up to as long again before it repeats a lost packet. A connection
that is made again works at once."""

THREADS_MAX = 16
"""Each waits for one fdatasync. A disk flushes its cache for many at once: 10,000 files take half as long with sixteen
threads as with eight, and hardly less with more."""

CHILDREN_MAX = 1
"""A second one would take the core that serves clients."""


class CancelledTimer:
    """A timer of a closed world."""

    def cancel(self) -> None:
        """Nothing to do."""


class LoopWorld:
    """Called on the loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        threads_max: int = THREADS_MAX,
        children_max: int = CHILDREN_MAX,
    ) -> None:
        self.rng = random.Random()  # seeded by the system
        self._loop = loop
        self.call_soon_unwatched = cast("Callable[[Callable[[], None]], None]", loop.call_soon)
        """The loop's own `call_soon`, for `LoopTick`, which measures itself."""
        self.held: Callable[[str, int, int], None] = lambda *_: None
        """Called for work that held the loop longer than `HELD_NS`, with its name, duration and end."""
        self._children_max = children_max
        self._threads = Threads("penstock-beside", threads_max)
        self._kernel_syncs: KernelSyncs | None = None
        """None until the first sync, and if the kernel does not support it."""
        self._has_asked_kernel = False
        self._minders: ThreadPoolExecutor | None = None
        """One thread waits for each child."""
        self._children: set[Child[Any]] = set()
        self._helpers: dict[str, HelperLane] = {}
        self._dialling: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def now_ms(self) -> TimestampMs:
        return time.time_ns() // 1_000_000

    clock_ns = staticmethod(perf_counter_ns)  # direct: an extra call per tick is measurable

    def process(self) -> ProcessUsage:
        return process_usage()

    def boot_id(self) -> str | None:
        try:
            return BOOT_ID.read_text("ascii").strip() or None
        except (OSError, ValueError):
            return None  # not Linux

    def call_soon(self, call: Callable[[], None]) -> None:
        self._loop.call_soon(self._watched, call)

    def call_later(self, delay_ms: float, call: Callable[[], None]) -> Timer:
        return self._loop.call_later(delay_ms / 1000, self._watched, call)

    def _watched(self, call: Callable[[], None]) -> None:
        began_ns = perf_counter_ns()
        try:
            call()
        finally:
            now_ns = perf_counter_ns()
            if now_ns - began_ns > HELD_NS:
                self.held(_name_of(call), now_ns - began_ns, now_ns)

    def beside(self, work: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        if self._is_closed:
            return
        self._threads.run(lambda: self._run(work, done))

    def sync_file(self, file: Syncable, done: Callable[[OSError | None], None]) -> bool:
        if self._is_closed or type(file) is not RealFile:
            return False
        if not self._has_asked_kernel:
            self._has_asked_kernel = True
            try:
                self._kernel_syncs = KernelSyncs(self._loop)
            except OSError as error:
                logger.info("syncing files with threads: %s", error)
        return self._kernel_syncs is not None and self._kernel_syncs.sync(file.descriptor, done)

    def in_child(self, work: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        if self._is_closed:
            return
        if self._minders is None:
            self._minders = ThreadPoolExecutor(self._children_max, "penstock-minder")
        child: Child[T] = Child(work)
        self._children.add(child)

        def finished(result: T | None, error: Exception | None) -> None:
            self._children.discard(child)
            done(result, error)

        self._minders.submit(self._run, child.run, finished)

    def in_helper(
        self,
        work: Callable[[], T],
        done: Callable[[T | None, Exception | None], None],
        lane: str = EXPORTS,
    ) -> None:
        if self._is_closed:
            return
        helpers = self._helpers.get(lane)
        if helpers is None:
            helpers = self._helpers[lane] = HelperLane(lane, self._run, self.call_later)
        helpers.do(work, done)

    def dial(
        self,
        host: str,
        port: int,
        protocol: StreamProtocol,
        failed: Callable[[bool], None],
        tls: DialTls | None = None,
    ) -> None:
        if self._is_closed:
            return
        task = self._loop.create_task(self._dial(host, port, protocol, failed, tls))
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)

    async def _dial(
        self,
        host: str,
        port: int,
        protocol: StreamProtocol,
        failed: Callable[[bool], None],
        tls: DialTls | None,
    ) -> None:
        try:
            async with asyncio.timeout((DIAL_MS_MAX if tls is None else DIAL_TLS_MS_MAX) / 1000):
                transport, _ = await self._loop.create_connection(
                    lambda: cast("asyncio.BufferedProtocol", protocol),
                    host,
                    port,
                    ssl=None if tls is None else tls.context,
                    server_hostname=None if tls is None else host,
                )
            _limit_unacknowledged(transport.get_extra_info("socket"))
        except OSError as error:  # TimeoutError is one
            if tls is not None:
                tls.error = error
            if not self._is_closed:
                failed(_is_refused(error))
        except ValueError as error:  # a host that is no name, as TLS and IDNA understand it
            logger.warning("cannot connect to %r: %s", host, error)
            if not self._is_closed:
                failed(False)

    def close(self) -> None:
        """Kill children, wait for running threads, and drop queued work."""
        self._is_closed = True
        # Abandoned objects may set timers when they are collected, after the loop is closed.
        setattr(self, "call_later", lambda _delay_ms, _call: CancelledTimer())  # noqa: B010
        for task in self._dialling:
            task.cancel()
        for child in self._children:
            child.kill()
        self._threads.close()
        if self._kernel_syncs is not None:
            self._kernel_syncs.close()
        if self._minders is not None:
            self._minders.shutdown(wait=True, cancel_futures=True)
        self._children.clear()
        for lane in self._helpers.values():
            lane.close()

    def _run(self, work: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        """On a thread."""
        result: T | None = None
        failed: Exception | None = None
        try:
            result = work()
        except Exception as error:
            failed = error
        if self._is_closed:
            return
        try:
            self._loop.call_soon_threadsafe(self._give_back, done, result, failed)
        except RuntimeError:
            # The loop was closed after the check.
            logger.debug("dropped the result of work that ended after the loop was closed")

    def _give_back(
        self, done: Callable[[T | None, Exception | None], None], result: T | None, error: Exception | None
    ) -> None:
        if not self._is_closed:
            self._watched(partial(done, result, error))


def _name_of(call: Callable[..., object]) -> str:
    while isinstance(call, partial):
        call = call.func
    return getattr(call, "__qualname__", type(call).__qualname__)


def _limit_unacknowledged(connection: socket.socket | None) -> None:
    """Have the kernel break the connection once sent bytes are unacknowledged for `UNACKNOWLEDGED_MS_MAX`."""
    if connection is not None and hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        with suppress(OSError):  # it is closed already
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS_MAX)


def _is_refused(error: OSError) -> bool:
    """Whether every address of the name refused the connection."""
    if error.errno is not None:
        return error.errno == errno.ECONNREFUSED
    return set(re.findall(r"\[Errno (\d+)\]", str(error))) == {str(errno.ECONNREFUSED)}
