"""A piece of work for a child process."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.ids import Offset
from penstock.vfs import Vfs

COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")

PARQUET: Final = "application/vnd.apache.parquet"
ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"
ARROW_FILE: Final = "application/vnd.apache.arrow.file"

SUFFIXES: Final[Mapping[str, str]] = {PARQUET: "parquet", ARROW_STREAM: "arrow", ARROW_FILE: "feather"}
"""Content types, and how files of each are called."""


class Span(NamedTuple):
    """A range of a partition: offsets start up to, and without, stop, all of them committed or aborted."""

    topic: str
    topic_id: bytes
    partition: int
    directory: str
    log_start: Offset
    start: Offset
    stop: Offset
    aborted: tuple[tuple[int, Offset, Offset], ...] = ()
    """Producer id, first and last offset of aborted transactions."""


class ExportSpec(NamedTuple):
    """What a file is to have. Two that are equal have the same file."""

    content_type: str
    spans: tuple[Span, ...]
    columns: tuple[str, ...] = COLUMNS
    is_text: bool = False
    """Keys and values as text, not as bytes."""
    rows_max: int | None = None
    bytes_max: int = 1 << 28
    """Of Arrow's columns. A range that has more is cut there, or refused."""
    may_be_cut: bool = True

    @property
    def topic_id(self) -> bytes:
        return self.spans[0].topic_id if self.spans else b""


class ExportedFile(NamedTuple):
    rows: int
    size: int
    next: tuple[int, Offset] | None
    """Partition and offset to continue at; None if everything is in the file."""


class ExportRefused(NamedTuple):
    """Why there is no file. Plain words, since exceptions of the child's would have the node import its modules."""

    code: ErrorCode
    why: str


def make_file(vfs: Vfs, wanted: ExportSpec, path: str) -> ExportedFile | ExportRefused:
    """In the child: make the file."""
    from penstock.gateway.exports.files import make  # noqa: PLC0415  # the node never imports pyarrow

    return make(vfs, wanted, path)
