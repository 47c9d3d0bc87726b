"""Which file a request means.

Who reads Parquet sends several requests about one file, and does not say which: most readers name no tag. The topic
grows meanwhile, and parts of two files do not fit together; but whoever reads again wants what is there now. So
requests of the same program for the same words make up reads, by how the readers that there are begin:

    the whole                  pandas, curl                      is a read of its own
    HEAD, then parts           DuckDB, fsspec                    HEAD begins one
    the end, then parts        Polars and others in Rust         the end begins one, and soon after it HEAD and a
                                                                 longer end go on with it
    from the first byte on     downloads in pieces               begins one, unless HEAD or the end did

Any other part goes on with what was begun last. A request that names a tag (`If-Range`, `If-Match`) goes on with the
file that has it, or begins a read.
"""

from enum import Enum, auto
from typing import Final, NamedTuple

from penstock.base.ids import TimestampMs
from penstock.gateway.exports.job import Wanted

BEGINNING_MS: Final = 10_000
"""How long the size, and more of the end, may be asked for after the end was: readers do that at once."""

REMEMBERED_MS: Final = 3_600_000
"""How long a read is known after its last request. Its file goes sooner: what it asks for then may have changed."""


class Kind(Enum):
    WHOLE = auto()
    SIZE = auto()
    """HEAD."""
    END = auto()
    START = auto()
    """From the first byte on."""
    MIDDLE = auto()


class Asked(NamedTuple):
    """What of a file a request wants."""

    kind: Kind = Kind.WHOLE
    length: int = 0
    """Of an end."""
    tags: tuple[str, ...] = ()
    """Those that it names, as they stand in `ETag`. None of the others will do."""


class Read(NamedTuple):
    """Requests about one file."""

    wanted: Wanted
    begun: Asked
    """Its first request."""
    begun_ms: TimestampMs
    used_ms: TimestampMs

    def has(self, asked: Asked, now_ms: TimestampMs) -> bool:
        """Whether a request is one of them, by what it wants alone."""
        if now_ms >= self.used_ms + REMEMBERED_MS:
            return False
        is_beginning = self.begun.kind is Kind.END and now_ms < self.begun_ms + BEGINNING_MS
        if asked.kind is Kind.SIZE:
            return is_beginning
        if asked.kind is Kind.END:
            return is_beginning and asked.length > self.begun.length
        if asked.kind is Kind.START:
            return self.begun.kind in (Kind.SIZE, Kind.END)
        return asked.kind is Kind.MIDDLE
