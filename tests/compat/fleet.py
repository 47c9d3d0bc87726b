"""Workers (`tests.compat.worker`) that are started again whenever they end, until the test is over."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any

PROGRAM = (sys.executable, "-m", "tests.compat.worker")
WAIT_S_MAX = 180.0


class Slot:
    """One worker after another under one name."""

    def __init__(self, fleet: "Fleet", wish: Mapping[str, Any]) -> None:
        self.fleet, self.wish = fleet, wish
        self.process: subprocess.Popen[str] | None = None
        self.lives = 0
        self.commits = 0
        self.aborts = 0
        self.failures: list[str] = []
        self.owned: set[int] = set()
        self.is_revoking = False
        self.is_over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def name(self) -> str:
        return str(self.wish["name"])

    def _run(self) -> None:
        while self._begin():
            assert self.process is not None
            assert self.process.stdout is not None
            for line in self.process.stdout:
                with self.fleet.changed:
                    self._take(json.loads(line))
                    self.fleet.changed.notify_all()
            self.process.wait()
            with self.fleet.changed:
                self.is_revoking = False
                self.owned.clear()
                assert self.process.stdin is not None
                with suppress(BrokenPipeError):  # a word was on its way when it died
                    self.process.stdin.close()
                self.process.stdout.close()
                self.fleet.changed.notify_all()

    def _begin(self) -> bool:
        with self.fleet.changed:
            if self.is_over:
                return False
            wish = {**self.wish, "seed": self.fleet.rng.randrange(1 << 30)}
            self.process = subprocess.Popen(
                [*PROGRAM, json.dumps(wish)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
            self.lives += 1
            return True

    def _take(self, said: dict[str, Any]) -> None:
        match said["event"]:
            case "assigned":
                self.owned.update(said["partitions"])
            case "committed":
                self.is_revoking = False
                self.commits += 1
            case "aborted":
                self.aborts += 1
            case "revoking":
                # Who owns nothing gives nothing away: that is no moment to aim at.
                self.is_revoking = bool(said["partitions"])
                self.owned.difference_update(said["partitions"])
            case "failed":
                self.failures.append(said["reason"])

    def kill(self) -> None:
        """kill -9, now. Safe from any thread."""
        assert self.process is not None
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)

    def tell(self, word: str) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            assert self.process.stdin is not None
            with suppress(BrokenPipeError, ValueError):  # it has ended since
                self.process.stdin.write(word + "\n")
                self.process.stdin.flush()

    def end(self) -> None:
        """Let it finish what it does and end; kill it if it cannot."""
        with self.fleet.changed:
            self.is_over = True
            self.tell("end")
        self._thread.join(WAIT_S_MAX)
        if self._thread.is_alive():
            self.kill()
            self._thread.join()


class Fleet:
    def __init__(self, rng: random.Random, **wish: Any) -> None:
        self.rng, self.wish = rng, wish
        self.changed = threading.Condition()
        self.slots: dict[str, Slot] = {}

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            for slot in self.slots.values():
                slot.is_over = True
                slot.kill()
        self.end()

    def start(self, name: str) -> Slot:
        self.slots[name] = Slot(self, {**self.wish, "name": name})
        return self.slots[name]

    def end(self) -> None:
        for slot in list(self.slots.values()):
            slot.end()

    def tell(self, word: str) -> None:
        with self.changed:
            for slot in self.slots.values():
                slot.tell(word)

    @property
    def committed(self) -> int:
        return sum(slot.commits for slot in self.slots.values())

    def comes_to(self, holds: Callable[[], bool], seconds_max: float) -> bool:
        with self.changed:
            return self.changed.wait_for(holds, seconds_max)

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        with self.changed:
            if not self.changed.wait_for(holds, WAIT_S_MAX):
                said = {slot.name: slot.failures[-3:] for slot in self.slots.values()}
                raise AssertionError(f"{what} did not happen; lives, and failures of workers: {said}")

    @contextmanager
    def commits(self, count: int) -> Iterator[None]:
        """Wait until there were so many since the beginning: they may come before the end."""
        wanted = self.committed + count
        yield
        self.wait(lambda: self.committed >= wanted, f"{count} more commits")
