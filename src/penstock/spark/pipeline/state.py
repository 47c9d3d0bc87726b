"""The lock and the status file of a run, for other processes.

    run.lock        locked by the runner until its process ends
    status.json     state of the flows, replaced atomically about once a second
    FLOW.error.txt  Spark's full error when a flow failed

They are in the pipeline's state directory, by default its checkpoint directory if that is local.
"""

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from .checkpoint_compat import replace
from .errors import CannotRun
from .progress import FlowProgress
from .spec import PipelineSpec

LOCK = "run.lock"
STATUS = "status.json"
ERROR_SUFFIX = ".error.txt"
STATUS_BYTES_MAX = 50_000_000
ERROR_CHARS_MAX = 1_000_000


class RunLock:
    """Held while a pipeline runs: two runs cannot share a checkpoint."""

    def __init__(self, spec: PipelineSpec) -> None:
        self._file = spec.state / LOCK
        self._name = spec.name
        self._handle = -1

    def __enter__(self) -> Self:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._handle = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._handle)
            raise CannotRun(
                f"pipeline {self._name} is already running: {self._file} is locked by another process"
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)


def is_running(spec: PipelineSpec) -> bool:
    """Whether a process on this machine is running the pipeline."""
    try:
        handle = os.open(spec.state / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


class StatusFile:
    def __init__(self, spec: PipelineSpec, where: str, servers: str) -> None:
        self._spec = spec
        self._file = spec.state / STATUS
        self._where = where
        self._servers = servers
        self._started_ms = time.time_ns() // 1_000_000

    def write(self, state: str, flows: Iterable[FlowProgress], error: str | None = None) -> None:
        status = {
            "pipeline": self._spec.name,
            "file": str(self._spec.file.resolve()),
            "state": state,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "spark": self._where,
            "bootstrap": self._servers,
            "started_ms": self._started_ms,
            "updated_ms": time.time_ns() // 1_000_000,
            "error": error,
            "flows": [each.as_json() for each in flows],
        }
        replace(self._file, json.dumps(status, indent=2) + "\n")

    def keep_error(self, text: str, flow: str) -> Path:
        """Write the full error of a flow to a file; return its path."""
        file = self._spec.state / f"{flow}{ERROR_SUFFIX}"
        replace(file, text[:ERROR_CHARS_MAX] + "\n")
        return file


def read_status(spec: PipelineSpec) -> dict[str, Any] | None:
    """The status of the last run; None if there is none. If the runner died, `running` becomes `died`."""
    file = spec.state / STATUS
    try:
        if file.stat().st_size > STATUS_BYTES_MAX:
            raise CannotRun(f"{file}: has more than {STATUS_BYTES_MAX:,} bytes, expected a pipeline's status")
        status = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CannotRun(f"{file}: is not JSON ({error}), expected a pipeline's status") from error
    if not isinstance(status, dict) or not isinstance(status.get("flows"), list):
        raise CannotRun(f"{file}: is not a pipeline's status, expected an object with flows")
    if status.get("state") in ("starting", "running", "stopping") and not is_running(spec):
        status["state"] = "died"
        for flow in status["flows"]:
            if flow.get("state") in ("running", "waiting"):
                flow["state"] = "died"
    return status
