"""Writes files with secrets: new ones only, readable by their owner alone, whole or not at all."""

import os
from pathlib import Path

from penstock.cli.output import Refused


def write_new(path: Path, content: str | bytes) -> None:
    """Create a file with mode 0600. Raises Refused if it exists."""
    data = content.encode() if isinstance(content, str) else content
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise Refused(f"{path} exists already, expected a new file") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise
