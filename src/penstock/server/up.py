"""`penstock up`: a node in a process of its own, from the command to the exit code.

Standard output gets one line, when the node serves, without the doors that are off:

    penstock ready kafka=127.0.0.1:9092 http=127.0.0.1:8080 line=127.0.0.1:9090

Everything else is log lines on standard error. The first SIGTERM, SIGINT or SIGHUP stops the node cleanly; a second
one ends the process at once, as a crash would, which loses nothing that was acknowledged.

    0    stopped cleanly
    1    a failure ended it: the disk refused, or a part of it broke
    2    it could not start

A node that gives up ends, whatever else fails on the way out: standard error may lie on the disk that is full, or be
a pipe that nobody reads, and a thread may wait for a sync that never returns. After `END_S_MAX` the process just ends.
"""

import faulthandler
import gc
import logging
import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from typing import Any

from penstock.base.errors import KafkaError
from penstock.base.settings import BadSetting
from penstock.server.config import NodeConfig
from penstock.server.host import Host, MakeNode, new_node
from penstock.server.process import connections_max, keep_freed_memory, open_files_max, raise_descriptor_limit

logger = logging.getLogger("penstock.up")

EXIT_STOPPED = 0
EXIT_FAILED = 1
EXIT_CANNOT_START = 2

END_S_MAX = 10
"""How long a node that has given up may take to let everything go."""

LEVELS = ("debug", "info", "warning", "error")


def run(config: NodeConfig, make_node: MakeNode = new_node) -> int:
    """Serve until a signal comes; return the exit code."""
    # The objects of the start stay: looking through them for garbage, now or later, finds none.
    gc.disable()
    descriptors = raise_descriptor_limit()
    config = replace(
        config,
        open_files_max=open_files_max(descriptors),
        connections_max=connections_max(descriptors),
    )
    for warning in config.warnings:
        logger.warning("%s", warning)
    try:
        import uvloop  # noqa: PLC0415  # after the configuration was found good

        loop = uvloop.new_event_loop()
        try:
            return _Run(loop, config, make_node).run()
        finally:
            loop.close()
    finally:
        gc.enable()


class _Run:
    """One run of a node, and why it ends."""

    def __init__(self, loop: Any, config: NodeConfig, make_node: MakeNode) -> None:
        self._loop = loop
        self._config = config
        self._make_node = make_node
        self._host: Host | None = None
        self._is_ready = False
        self._signalled = False
        self._code = EXIT_STOPPED
        self._unexpected: BaseException | None = None

    def run(self) -> int:
        try:
            self._host = Host(self._loop, self._config, self._make_node)
        except KafkaError as error:
            return refuse(str(error))
        self._loop.call_soon(self._begin, self._host)
        self._loop.run_forever()
        self._host.close()
        if self._unexpected is not None:
            raise self._unexpected
        if self._code == EXIT_STOPPED:
            logger.info("stopped")
        return self._code

    def _begin(self, host: Host) -> None:
        # A signal that comes between taking signals and running the loop would be lost: so it runs already.
        self._take_signals()
        try:
            host.start(self._ready, self._failed, self._opened)
        except (KafkaError, OSError) as error:
            self._code = refuse(str(error))
            self._loop.stop()
        except BaseException as error:
            self._unexpected = error
            self._loop.stop()

    def _ready(self) -> None:
        assert self._host is not None
        self._is_ready = True
        kafka = ",".join(each.shown for each in self._host.listening.values())
        controller = ",".join(each.shown for each in self._host.controllers.values())
        places = [("kafka", kafka), *((name, each.shown) for name, each in self._host.doors.items())]
        shown = " ".join(f"{name}={at}" for name, at in [*places, ("controller", controller)] if at)
        with suppress(OSError):  # nobody reads it, or it goes to a disk that is full
            print(f"penstock ready {shown}", flush=True)

    def _opened(self) -> None:
        """All is loaded that ever will be, but for what few ask for."""
        keep_freed_memory()
        gc.freeze()
        gc.enable()

    def _failed(self, reason: str) -> None:
        """The node cannot go on: what it had acknowledged is on disk, and the rest is not its to save."""
        assert self._host is not None
        if self._code != EXIT_STOPPED:
            return
        self._code = EXIT_FAILED if self._is_ready else EXIT_CANNOT_START
        end_within(END_S_MAX)
        try:
            say(reason)
            self._host.abandon()
        finally:
            self._loop.stop()

    # -- signals ---------------------------------------------------------------------------------------

    def _take_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # Whoever started us with nohup wants no end at a hangup.
            if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue
            self._loop.add_signal_handler(number, self._signal, number)

    def _signal(self, number: signal.Signals) -> None:
        assert self._host is not None
        if self._signalled:
            end_within(END_S_MAX)
            logger.warning("%s again: ending at once", number.name)
            os._exit(128 + number)
        self._signalled = True
        logger.info("%s: stopping; a second one ends it at once", number.name)
        self._host.stop(self._loop.stop)


def refuse(sentence: str) -> int:
    """Say why there is no node; return the exit code for that."""
    say(sentence)
    return EXIT_CANNOT_START


def say(sentence: str) -> None:
    """Write a last sentence to standard error, if that can be written to."""
    try:
        print(f"penstock: {sentence}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        # Python would try again at exit, and change the exit code when that fails.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def end_within(seconds: float) -> None:
    """End the process after so long with exit code 1, whatever holds it: a thread without Python does it."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=open(os.devnull, "wb"))  # noqa: SIM115  # until the end


# -- the process ---------------------------------------------------------------------------------------


class OneLine(logging.Formatter):
    """A log line is a line: what would break it is shown as an escape, and a traceback is folded into it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s", "%Y-%m-%d %H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).replace("\r", "\\r").replace("\n", " | ")


def start_logging(level: str | None, *, verbose: bool = False) -> None:
    """Log lines go to standard error."""
    name = "debug" if verbose else (level or "info").strip().lower()
    if name not in LEVELS:
        raise BadSetting(f"PENSTOCK_LOG is {level!r}, expected one of {', '.join(LEVELS)}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine())
    logging.raiseExceptions = False  # when nobody reads standard error, that is no reason to fail
    logging.basicConfig(level=name.upper(), handlers=[handler], force=True)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
