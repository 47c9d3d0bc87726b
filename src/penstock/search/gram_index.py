"""A file beside a sealed segment that tells which parts of it cannot contain some bytes.

    00000000000000000000.searchindex

    header    magic, version, CRC-32C of all that follows, size, mtime and tail CRC of the segment, number of blocks
    blocks    first offset, offset after the last, log2 of the table's bits, position of the table    each
    tables    bit h(g) is set if any record of the block has the four bytes g                         each

A block is about a megabyte of the log. To search for `timeout`, the bits of `time`, `imeo`, `meou` and `eout` are
looked up; a block that lacks one of them does not have the word. A table has about four bits for each different gram,
so one that is not there is taken for one that is in a quarter of the cases, and a word of eight letters in one of a
thousand. Random data, such as many UUIDs, has every gram in every block: then the index rules nothing out.

The log is the truth. The file is made once, is not synced, and may be deleted at any time. It is used only if its
checksum is right and the segment is the one it was made of: same size, same time of modification, same last bytes.
Compaction makes other segments; a file without its segment is removed. Kafka ignores the file.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from struct import Struct
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.arrow.frames import Frames
from penstock.base.ids import Offset
from penstock.records import DECOMPRESSED_BYTES_MAX, HEADER_BYTES, CorruptBatch, RecordBatch
from penstock.records.checksum import crc32c
from penstock.storage import names
from penstock.vfs import File, Vfs, read_file

GRAM_BYTES: Final = 4
BLOCK_BYTES: Final = 1 << 20
BITS_LOG2_MIN: Final = 10
BITS_LOG2_MAX: Final = 19
"""A table of 64 KB, 6% of a block. Text has about 30,000 different grams in a megabyte, and takes 16 KB."""

_MAGIC: Final = b"PNSI"
_VERSION: Final = 1
_HEADER: Final = Struct(">4sHxxI")
_SEGMENT: Final = Struct(">QQII")
"""Size, mtime in nanoseconds, CRC-32C of the last bytes, number of blocks."""
_BLOCK: Final = Struct(">QQII")
_TAIL_BYTES: Final = 4096
_MULTIPLIER: Final = np.uint32(0x9E3779B1)
"""Fibonacci hashing: the high bits of the product depend on all bits of the gram."""
_STEP_BYTES: Final = 4 << 20

Bits = npt.NDArray[np.bool_]


class _Origin(NamedTuple):
    """The segment that an index was made of."""

    size: int
    mtime_ns: int
    tail_crc: int


def may_contain(
    vfs: Vfs, directory: str, base_offset: Offset, needle: bytes
) -> list[tuple[Offset, Offset]] | None:
    """The ranges of offsets of a sealed segment that may have these bytes; None without a good index."""
    if len(needle) < GRAM_BYTES:
        return None
    try:
        data = read_file(vfs, _path(directory, base_offset))
        return _look_up(data, _origin(vfs, directory, base_offset), needle)
    except FileNotFoundError:
        return None
    except OSError:
        return None  # the log is read instead; if it cannot be read either, that is reported


def _look_up(data: bytes, origin: _Origin, needle: bytes) -> list[tuple[Offset, Offset]] | None:
    blocks = _read_blocks(data, origin)
    if blocks is None:
        return None
    hashes = np.unique(_hashes(np.frombuffer(needle, np.uint8)))
    found: list[tuple[Offset, Offset]] = []
    for first, behind, bits_log2, at in blocks:
        places = hashes >> np.uint32(32 - bits_log2)
        table = np.frombuffer(data, np.uint8, 1 << (bits_log2 - 3), at)
        if (table[places >> 3] >> (places & 7).astype(np.uint8) & 1).all():
            if found and found[-1][1] == first:
                found[-1] = (found[-1][0], behind)
            else:
                found.append((first, behind))
    return found


def _read_blocks(data: bytes, origin: _Origin) -> list[tuple[int, int, int, int]] | None:
    """The blocks; None if the file is not a whole index of this segment."""
    head = _HEADER.size + _SEGMENT.size
    if len(data) < head:
        return None
    magic, version, crc = _HEADER.unpack_from(data)
    if magic != _MAGIC or version != _VERSION or crc != crc32c(memoryview(data)[_HEADER.size :]):
        return None
    *made_of, count = _SEGMENT.unpack_from(data, _HEADER.size)
    if _Origin(*made_of) != origin:
        return None
    # The checksum is right, so the rest is as it was written.
    return [_BLOCK.unpack_from(data, head + index * _BLOCK.size) for index in range(count)]


def is_current(vfs: Vfs, directory: str, base_offset: Offset) -> bool:
    """Whether there is a good index of a segment."""
    try:
        data = read_file(vfs, _path(directory, base_offset))
        return _read_blocks(data, _origin(vfs, directory, base_offset)) is not None
    except FileNotFoundError:
        return False


def build(vfs: Vfs, directory: str, base_offset: Offset) -> bool:
    """Make the index of a sealed segment, unless there is a good one. Whether it was made.

    A segment that disappears meanwhile, or is damaged, gets none: its part of the log is always read.
    """
    if is_current(vfs, directory, base_offset):
        return False
    path = _path(directory, base_offset)
    try:
        origin = _origin(vfs, directory, base_offset)
        blocks = list(_blocks(vfs, _log_path(directory, base_offset), base_offset))
        if _origin(vfs, directory, base_offset) != origin:
            return False  # compacted or truncated meanwhile
    except (FileNotFoundError, CorruptBatch):
        return False
    _write(vfs, path, origin, blocks)
    return True


def remove_orphans(vfs: Vfs, directory: str, keep: frozenset[Offset]) -> None:
    """Remove the indexes in a partition's directory except for those of some segments."""
    try:
        entries = vfs.list_dir(directory)
    except FileNotFoundError:
        return  # the partition was deleted
    for entry in entries:
        parsed = names.parse_segment_file(entry.name.removesuffix(_TEMPORARY))
        if parsed is None or parsed.kind != names.SEARCH_INDEX:
            continue
        if parsed.base_offset not in keep or entry.name.endswith(_TEMPORARY):
            with suppress(FileNotFoundError):
                vfs.remove(f"{directory}/{entry.name}")


_TEMPORARY: Final = ".new"


def _path(directory: str, base_offset: Offset) -> str:
    return f"{directory}/{names.segment_file(base_offset, names.SEARCH_INDEX)}"


def _log_path(directory: str, base_offset: Offset) -> str:
    return f"{directory}/{names.segment_file(base_offset, names.LOG)}"


def _origin(vfs: Vfs, directory: str, base_offset: Offset) -> _Origin:
    path = _log_path(directory, base_offset)
    file = vfs.open(path)
    try:
        size = file.size()
        tail = file.pread(min(_TAIL_BYTES, size), max(0, size - _TAIL_BYTES))
    finally:
        file.close()
    return _Origin(size, os.stat(path).st_mtime_ns, crc32c(tail))


class _Block(NamedTuple):
    first: Offset
    behind: Offset
    bits_log2: int
    table: bytes


def _blocks(vfs: Vfs, path: str, base_offset: Offset) -> Iterator[_Block]:
    file = vfs.open(path)
    try:
        first, at, size = base_offset, 0, file.size()
        while at < size:
            frames = _read_frames(file, at, size)
            bits: Bits = np.zeros(1 << BITS_LOG2_MAX, np.bool_)
            for index in range(len(frames)):
                _set_bits(bits, frames, index)
            behind = max(int(frames.last_offsets.max()) + 1, first)
            yield _Block(first, behind, *_folded(bits))
            first, at = behind, at + frames.end
    finally:
        file.close()


def _read_frames(file: File, at: int, size: int) -> Frames:
    """At least one whole batch, and about a block of them. Raises CorruptBatch."""
    wanted = BLOCK_BYTES
    while True:
        data = file.pread(min(wanted, size - at), at)
        frames = Frames.read(data)
        if len(frames):
            break
        if wanted >= size - at:
            raise CorruptBatch(f"no batch at position {at} of {file.path}")
        wanted *= 4
    if frames.bad_crc() is not None or int(frames.last_offset_deltas.min()) < 0:
        raise CorruptBatch(f"a damaged batch behind position {at} of {file.path}")
    return frames


def _set_bits(bits: Bits, frames: Frames, index: int) -> None:
    begin = int(frames.at[index])
    if frames.codecs[index]:
        batch = RecordBatch.parse(memoryview(frames.data), begin)
        records = batch.decompressed(DECOMPRESSED_BYTES_MAX)
    else:
        records = memoryview(frames.data)[begin + HEADER_BYTES : begin + int(frames.sizes[index])]
    raw = np.frombuffer(records, np.uint8)
    for at in range(0, max(len(raw) - GRAM_BYTES + 1, 0), _STEP_BYTES):
        bits[_hashes(raw[at : at + _STEP_BYTES + GRAM_BYTES - 1]) >> np.uint32(32 - BITS_LOG2_MAX)] = True


def _hashes(raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """The hash of each gram."""
    grams: npt.NDArray[np.uint32] = np.ndarray((len(raw) - GRAM_BYTES + 1,), "<u4", raw, strides=(1,))
    return grams * _MULTIPLIER


def _folded(bits: Bits) -> tuple[int, bytes]:
    """The smallest table that is at most a quarter full, as log2 of its bits and its bytes."""
    wanted = 4 * int(np.count_nonzero(bits))
    bits_log2 = min(max(BITS_LOG2_MIN, (max(wanted, 1) - 1).bit_length()), BITS_LOG2_MAX)
    table = bits.reshape(1 << bits_log2, -1).any(axis=1)
    return bits_log2, np.packbits(table, bitorder="little").tobytes()


def _write(vfs: Vfs, path: str, origin: _Origin, blocks: list[_Block]) -> None:
    at = _HEADER.size + _SEGMENT.size + len(blocks) * _BLOCK.size
    rows, tables = [], []
    for each in blocks:
        rows.append(_BLOCK.pack(each.first, each.behind, each.bits_log2, at))
        tables.append(each.table)
        at += len(each.table)
    body = b"".join((_SEGMENT.pack(*origin, len(blocks)), *rows, *tables))
    file = vfs.open(path + _TEMPORARY, write=True, create=True)
    try:
        file.truncate(0)
        file.pwrite([_HEADER.pack(_MAGIC, _VERSION, crc32c(body)), body], 0)
    finally:
        file.close()
    vfs.rename(path + _TEMPORARY, path)
