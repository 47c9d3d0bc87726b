"""Key files: idempotency keys on disk, sorted by digest, written once and never changed.

An entry is 36 bytes, in memory as in files, big-endian:

    digest 16    partition 4    offset 8    timestamp 8

Keys are kept as 128-bit digests. Among 10^12 keys the chance that two digests collide is about 1 in 10^14.

    page 0        the header, see `_HEAD`                          } each page is 4096 bytes
    page 1..n     113 entries each, by digest; the last page may   } and ends with a CRC-32C
                  be short; zeros; CRC
    fences        the first 8 bytes of every n-th page's first digest
    bloom         a Bloom filter over all digests

A lookup asks the Bloom filter, finds the page by the fences, reads that page and checks its CRC. Fences and filter
have a CRC too. They are read at the first lookup and kept in a cache that all files share (`Filters`), so that memory
is bounded. In a file of more than `FENCES_MAX` pages a fence covers several pages; a filter of `BLOOM_BYTES_MAX` has
more false positives.

`merge_key_files` merges several files into one, with one page of each in memory, and drops expired entries.
"""

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from heapq import merge
from struct import Struct
from struct import error as struct_error
from sys import byteorder
from typing import NamedTuple

from penstock.base.ids import Offset, TimestampMs
from penstock.records.checksum import crc32c
from penstock.storage.open_files import FileRef, OpenFiles
from penstock.vfs import File, Vfs
from penstock.vfs.files import DRAFT

HEADER = "penstock-idempotency-key"
"""The record header with the key, as text."""

IDEMPOTENCY_KEY_BYTES_MAX = 256

DIGEST_BYTES = 16
PLACE = Struct(">iqq")
ENTRY_BYTES = DIGEST_BYTES + PLACE.size


class KeyPlace(NamedTuple):
    """The position and timestamp of the record with a key."""

    partition: int
    offset: Offset
    timestamp: TimestampMs


def digest_of(key: bytes) -> bytes:
    return blake2b(key, digest_size=DIGEST_BYTES).digest()


def unpack_place(data: bytes, at: int = 0) -> KeyPlace:
    return KeyPlace(*PLACE.unpack_from(data, at))


PAGE_BYTES = 4096
CRC_AT = PAGE_BYTES - 4
ENTRIES_A_PAGE = CRC_AT // ENTRY_BYTES
FENCES_MAX = 1 << 16
BLOOM_BYTES_MAX = 1 << 20
BLOOM_BITS_A_KEY = 10
"""With four probes, the false positive rate is about one in a hundred."""

FILTER_BYTES_MAX = 16 << 20
"""Memory of `Filters`: enough for about ten million keys."""

WRITE_PAGES = 64
"""Pages in one write."""

_HEAD = Struct(">8sIQIIIIqq")
"""Magic, version, then the fields of `_Head`."""
_MAGIC = b"PENSKEYS"
_VERSION = 1
_PROBES = Struct(">4I")
_CRC = Struct(">I")


class CorruptKeyFile(Exception):
    """A damaged key file: its keys must be read from the log again."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path

    def __reduce__(self) -> tuple[type["CorruptKeyFile"], tuple[str, str]]:
        return CorruptKeyFile, (self.path, str(self).removeprefix(f"{self.path}: "))


class Written(NamedTuple):
    """Summary of a key file."""

    entries: int
    oldest_ms: TimestampMs
    newest_ms: TimestampMs


class _Filter(NamedTuple):
    head: "_Head"
    fences: "array[int]"
    bloom: bytes

    @property
    def size(self) -> int:
        return len(self.fences) * 8 + len(self.bloom)


class _Head(NamedTuple):
    entries: int
    pages: int
    pages_a_fence: int
    bloom_bytes: int
    tail_crc: int
    oldest_ms: TimestampMs
    newest_ms: TimestampMs


def write_key_file(vfs: Vfs, path: str, entries: Iterable[bytes], count: int) -> Written:
    """Write sorted entries, at most `count`, durably to a new file. The caller syncs the directory."""
    file = vfs.open(path + DRAFT, write=True, create=True)
    try:
        file.truncate(0)
        written = _write(file, entries, count)
        file.sync()
    finally:
        file.close()
    vfs.rename(path + DRAFT, path)
    return written


def _write(file: File, entries: Iterable[bytes], count: int) -> Written:
    pages_max = -(-count // ENTRIES_A_PAGE)
    pages_a_fence = max(1, -(-pages_max // FENCES_MAX))
    bloom = bytearray(_bloom_bytes(count))
    mask = len(bloom) * 8 - 1
    fences = array("Q")
    pending: list[bytes] = []
    page: list[bytes] = []
    pages = total = 0
    oldest, newest = 2**63 - 1, -1

    def end_page() -> None:
        nonlocal pages
        if pages % pages_a_fence == 0:
            fences.append(int.from_bytes(page[0][:8], "big"))
        body = b"".join(page).ljust(CRC_AT, b"\0")
        pending.append(body + _CRC.pack(crc32c(body)))
        page.clear()
        pages += 1

    def write() -> None:
        file.pwrite(pending, (1 + pages - len(pending)) * PAGE_BYTES)
        pending.clear()

    for entry in entries:
        for probe in _PROBES.unpack_from(entry):
            bit = probe & mask
            bloom[bit >> 3] |= 1 << (bit & 7)
        timestamp = int.from_bytes(entry[-8:], "big", signed=True)
        oldest, newest = min(oldest, timestamp), max(newest, timestamp)
        page.append(entry)
        total += 1
        if len(page) == ENTRIES_A_PAGE:
            end_page()
            if len(pending) == WRITE_PAGES:
                write()
    if page:
        end_page()
    if pending:
        write()
    if byteorder == "little":
        fences.byteswap()
    tail = fences.tobytes() + bloom
    file.pwrite([tail], (1 + pages) * PAGE_BYTES)
    head = _HEAD.pack(
        _MAGIC, _VERSION, total, pages, pages_a_fence, len(bloom), crc32c(tail), oldest, newest
    ).ljust(CRC_AT, b"\0")
    file.pwrite([head, _CRC.pack(crc32c(head))], 0)
    return Written(total, oldest, newest)


def _bloom_bytes(count: int) -> int:
    """Size of the Bloom filter: a power of two, so that a mask selects the bit."""
    size = 128
    while size < BLOOM_BYTES_MAX and size * 8 < count * BLOOM_BITS_A_KEY:
        size *= 2
    return size


class Filters:
    """Cache of the filters and fences of recently used files."""

    def __init__(self, files: OpenFiles, bytes_max: int = FILTER_BYTES_MAX) -> None:
        self.files = files
        self._bytes_max = bytes_max
        self._bytes = 0
        self._filters: OrderedDict[FileRef, _Filter] = OrderedDict()

    def of(self, ref: FileRef) -> _Filter:
        found = self._filters.get(ref)
        if found is not None:
            self._filters.move_to_end(ref)
            return found
        found = _read_filter(self.files.open(ref))
        self._filters[ref] = found
        self._bytes += found.size
        while self._bytes > self._bytes_max and len(self._filters) > 1:
            _, oldest = self._filters.popitem(last=False)
            self._bytes -= oldest.size
        return found

    def forget(self, ref: FileRef) -> None:
        self.files.forget(ref)
        found = self._filters.pop(ref, None)
        if found is not None:
            self._bytes -= found.size


def _read_head(file: File) -> _Head:
    data = file.pread(PAGE_BYTES, 0)
    if len(data) < PAGE_BYTES or _CRC.unpack_from(data, CRC_AT)[0] != crc32c(data[:CRC_AT]):
        raise CorruptKeyFile(file.path, "CRC mismatch in the first page")
    try:
        magic, version, *rest = _HEAD.unpack_from(data)
    except struct_error as error:
        raise CorruptKeyFile(file.path, str(error)) from error
    if magic != _MAGIC or version != _VERSION:
        raise CorruptKeyFile(file.path, f"version {version}, expected {_VERSION}")
    return _Head(*rest)


def _read_filter(file: File) -> _Filter:
    head = _read_head(file)
    fence_bytes = 8 * -(-head.pages // head.pages_a_fence)
    tail = file.pread(fence_bytes + head.bloom_bytes, (1 + head.pages) * PAGE_BYTES)
    if len(tail) != fence_bytes + head.bloom_bytes or crc32c(tail) != head.tail_crc:
        raise CorruptKeyFile(file.path, "CRC mismatch in the fences")
    fences = array("Q", tail[:fence_bytes])
    if byteorder == "little":
        fences.byteswap()
    return _Filter(head, fences, tail[fence_bytes:])


class KeyFile:
    """A key file for lookups."""

    def __init__(self, path: str, filters: Filters) -> None:
        self.ref = FileRef(path)
        self._filters = filters

    def find(self, digest: bytes) -> KeyPlace | None:
        """The position of a key's record, if the file has the key. Raises `CorruptKeyFile`."""
        head, fences, bloom = self._filters.of(self.ref)
        mask = len(bloom) * 8 - 1
        for probe in _PROBES.unpack_from(digest):
            bit = probe & mask
            if not bloom[bit >> 3] >> (bit & 7) & 1:
                return None
        prefix = int.from_bytes(digest[:8], "big")
        group = bisect_right(fences, prefix) - 1
        file = self._filters.files.open(self.ref)
        while group >= 0:
            found = self._find_in_group(file, head, group, digest)
            if found is not None or fences[group] != prefix:
                return found
            group -= 1  # digests with the same prefix may be on both sides of the fence
        return None

    def _find_in_group(self, file: File, head: _Head, group: int, digest: bytes) -> KeyPlace | None:
        low = group * head.pages_a_fence
        high = min(low + head.pages_a_fence, head.pages) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if read_page(file, middle)[:DIGEST_BYTES] <= digest:
                low = middle
            else:
                high = middle - 1
        page = read_page(file, low)
        at = page.find(digest)
        while at >= 0 and at % ENTRY_BYTES:
            at = page.find(digest, at + 1)
        count = min(ENTRIES_A_PAGE, head.entries - low * ENTRIES_A_PAGE)
        if not 0 <= at < count * ENTRY_BYTES:
            return None
        return unpack_place(page, at + DIGEST_BYTES)

    def forget(self) -> None:
        self._filters.forget(self.ref)


def read_page(file: File, number: int) -> bytes:
    """A page of entries, counted from 0. Checks its CRC."""
    page = file.pread(PAGE_BYTES, (1 + number) * PAGE_BYTES)
    if len(page) < PAGE_BYTES or _CRC.unpack_from(page, CRC_AT)[0] != crc32c(page[:CRC_AT]):
        raise CorruptKeyFile(file.path, f"page {number + 1}: CRC mismatch")
    return page


def read_entries(file: File) -> Iterator[bytes]:
    """All entries in their order."""
    head = _read_head(file)
    left = head.entries
    for number in range(head.pages):
        page = read_page(file, number)
        for at in range(0, min(left, ENTRIES_A_PAGE) * ENTRY_BYTES, ENTRY_BYTES):
            yield page[at : at + ENTRY_BYTES]
        left -= ENTRIES_A_PAGE


def read_written(vfs: Vfs, path: str) -> Written:
    """The summary in a file's header."""
    file = vfs.open(path)
    try:
        head = _read_head(file)
    finally:
        file.close()
    return Written(head.entries, head.oldest_ms, head.newest_ms)


NEVER_CUT = 2**63 - 1


class Source(NamedTuple):
    """A file to merge."""

    path: str
    cuts: Mapping[str, Offset]
    """See `FileNote.cuts`."""


def merge_key_files(
    vfs: Vfs, sources: Sequence[Source], path: str, count: int, expired_ms: TimestampMs
) -> Written:
    """Merge files, given oldest first and with at most `count` entries in all, into one. Of entries with the same key
    the newest file's is kept; entries older than `expired_ms` are dropped."""
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
    """Valid entries of a file, with digest and file number as sort keys."""
    for entry in entries:
        place = unpack_place(entry, DIGEST_BYTES)
        if place.timestamp >= expired_ms and place.offset < cuts.get(str(place.partition), NEVER_CUT):
            yield entry[:DIGEST_BYTES], age, entry


def _latest(ordered: Iterator[tuple[bytes, int, bytes]]) -> Iterator[bytes]:
    """The last of each run of entries with the same digest."""
    held: tuple[bytes, int, bytes] | None = None
    for each in ordered:
        if held is not None and held[0] != each[0]:
            yield held[2]
        held = each
    if held is not None:
        yield held[2]
