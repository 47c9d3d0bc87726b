"""Several key files made into one, without what is past its time.

One page of each file is in memory at a time, however large they are. This runs in a child process where there is much
of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from typing import NamedTuple

from penstock.base.ids import Offset, TimestampMs
from penstock.gateway.idempotency.entries import DIGEST_BYTES, unpack_place
from penstock.gateway.idempotency.keyfile import Written, read_entries, write_key_file
from penstock.vfs import Vfs

NEVER_CUT = 2**63 - 1


class Source(NamedTuple):
    """A file to be merged."""

    path: str
    cuts: Mapping[str, Offset]
    """See `FileNote.cuts`."""


def merge_key_files(
    vfs: Vfs, sources: Sequence[Source], path: str, count: int, expired_ms: TimestampMs
) -> Written:
    """Write one file with all keys of others, which come oldest first and have at most `count` entries; of entries for
    the same key the latest file's stays, and none that is older than `expired_ms`."""
    files = [vfs.open(source.path) for source in sources]
    try:
        streams = [
            _living(read_entries(file), number, source.cuts, expired_ms)
            for number, (file, source) in enumerate(zip(files, sources, strict=True))
        ]
        return write_key_file(vfs, path, _latest(merge(*streams)), count)
    finally:
        for file in files:
            file.close()


def _living(
    entries: Iterator[bytes], age: int, cuts: Mapping[str, Offset], expired_ms: TimestampMs
) -> Iterator[tuple[bytes, int, bytes]]:
    """Entries by digest and by how late their file is."""
    for entry in entries:
        place = unpack_place(entry, DIGEST_BYTES)
        if place.timestamp >= expired_ms and place.offset < cuts.get(str(place.partition), NEVER_CUT):
            yield entry[:DIGEST_BYTES], age, entry


def _latest(ordered: Iterator[tuple[bytes, int, bytes]]) -> Iterator[bytes]:
    """Of neighbours with one digest the last."""
    held: tuple[bytes, int, bytes] | None = None
    for each in ordered:
        if held is not None and held[0] != each[0]:
            yield held[2]
        held = each
    if held is not None:
        yield held[2]
