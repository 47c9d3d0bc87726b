"""`penstock up`: runs a node in its own process, from the command to the exit code.

Standard output gets one line, when the node serves, without the doors that are off:

    penstock ready kafka=127.0.0.1:9092 http=127.0.0.1:8080 line=127.0.0.1:9090 registry=127.0.0.1:8081

Everything else is log lines on standard error. The first SIGTERM, SIGINT or SIGHUP stops the node cleanly; a second
one ends the process at once, as a crash would, without losing acknowledged records.

    0    stopped cleanly
    1    stopped by a failure, such as of the disk
    2    could not start

A failed node always ends, even if standard error is on a full disk or a pipe without a reader, or a thread waits for a
sync that never returns: after `END_S_MAX` the process is ended.
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
"""Time limit for a failed node to end."""

LEVELS = ("debug", "info", "warning", "error")


def run(config: NodeConfig, make_node: MakeNode = new_node) -> int:
    """Serve until a signal arrives; return the exit code."""
    # Objects created at the start live on: collecting them finds no garbage.
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
        import uvloop  # noqa: PLC0415  # after the configuration was checked

        loop = uvloop.new_event_loop()
        try:
            return _Run(loop, config, make_node).run()
        finally:
            loop.close()
    finally:
        gc.enable()


class _Run:
    """One run of a node, and its exit code."""

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
        # Called from the running loop: a signal between adding handlers and running the loop would be lost.
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
        with suppress(OSError):  # no reader, or a full disk
            print(f"penstock ready {shown}", flush=True)

    def _opened(self) -> None:
        """Everything but rarely used modules is loaded."""
        keep_freed_memory()
        gc.freeze()
        gc.enable()

    def _failed(self, reason: str) -> None:
        """End after a failure of the node. Acknowledged records are on disk."""
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
            # Started with nohup: ignore hangups.
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
        logger.info("%s: stopping; a second signal ends the process at once", number.name)
        self._host.stop(self._loop.stop)


def refuse(sentence: str) -> int:
    """Print why the node cannot start; return the exit code."""
    say(sentence)
    return EXIT_CANNOT_START


def say(sentence: str) -> None:
    """Print a sentence to standard error, if possible."""
    try:
        print(f"penstock: {sentence}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        # Python would try again at exit, and change the exit code when that fails.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def end_within(seconds: float) -> None:
    """End the process with exit code 1 after this time, from a C thread, whatever blocks the interpreter."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=open(os.devnull, "wb"))  # noqa: SIM115  # open until the end


# -- the process ---------------------------------------------------------------------------------------


class OneLine(logging.Formatter):
    """Formats each record as one line, with line breaks escaped and tracebacks folded."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s", "%Y-%m-%d %H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).replace("\r", "\\r").replace("\n", " | ")


def start_logging(level: str | None, *, verbose: bool = False) -> None:
    """Log to standard error."""
    name = "debug" if verbose else (level or "info").strip().lower()
    if name not in LEVELS:
        raise BadSetting(f"PENSTOCK_LOG is {level!r}, expected one of {', '.join(LEVELS)}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine())
    logging.raiseExceptions = False  # do not fail if standard error cannot be written
    logging.basicConfig(level=name.upper(), handlers=[handler], force=True)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
