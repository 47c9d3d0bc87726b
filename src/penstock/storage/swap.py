"""Replaces old segments by cleaned ones, in steps that a restart can complete or undo.

    written      *.cleaned   files synced                a crash: removed
    committed    *.swap      directory entries synced    a crash: completed
    old files    *.deleted
    done         renamed to their final names

Steps and suffixes are Kafka's: either broker completes what the other began.
"""

from collections.abc import Sequence

from penstock.base.ids import Offset
from penstock.storage import names
from penstock.storage.errors import CorruptLog
from penstock.storage.scan import walk_headers
from penstock.vfs import Vfs


def commit(vfs: Vfs, directory: str, base_offset: Offset) -> None:
    """Rename synced `.cleaned` files to `.swap`: from here on a restart completes the swap."""
    vfs.sync_dir(directory)
    for kind in (names.INDEX, names.TIME_INDEX, names.TXN_INDEX, names.LOG):
        cleaned = f"{directory}/{names.segment_file(base_offset, kind, names.CLEANED)}"
        if vfs.stat(cleaned) is not None:
            vfs.rename(cleaned, f"{directory}/{names.segment_file(base_offset, kind, names.SWAP)}")
    vfs.sync_dir(directory)


def retire(vfs: Vfs, directory: str, bases: Sequence[Offset]) -> list[str]:
    """Rename the old segments' files to `.deleted`; return the new paths, to be removed later.

    The producer snapshots of segments that are merged into an earlier one are renamed too.
    """
    retired = []
    for base_offset in bases:
        kinds: tuple[str, ...] = names.SEGMENT_KINDS
        if base_offset != bases[0]:
            kinds = (*kinds, names.SNAPSHOT, names.SEQUENCES)
        for kind in kinds:
            path = f"{directory}/{names.segment_file(base_offset, kind)}"
            if vfs.stat(path) is not None:
                vfs.rename(path, path + names.DELETED)
                retired.append(path + names.DELETED)
    vfs.sync_dir(directory)
    return retired


def install(vfs: Vfs, directory: str, base_offset: Offset) -> None:
    """Rename the `.swap` files to their final names."""
    for kind in names.SEGMENT_KINDS:
        swap = f"{directory}/{names.segment_file(base_offset, kind, names.SWAP)}"
        if vfs.stat(swap) is not None:
            vfs.rename(swap, f"{directory}/{names.segment_file(base_offset, kind)}")
    vfs.sync_dir(directory)


def finish_swaps(vfs: Vfs, directory: str) -> None:
    """At a start: complete committed swaps, discard unfinished ones, and remove deleted files."""
    entries = [(names.parse_segment_file(entry.name), entry) for entry in vfs.list_dir(directory)]
    cleaned_from = min(
        (each.base_offset for each, _ in entries if each and each.state == names.CLEANED), default=None
    )
    swaps: dict[Offset, Offset] = {}
    """Base offset and end offset of each committed segment."""
    for parsed, entry in entries:
        path = f"{directory}/{entry.name}"
        if parsed is None or not parsed.state:
            continue
        abandoned = cleaned_from is not None and parsed.base_offset >= cleaned_from
        if parsed.state in (names.DELETED, names.CLEANED) or abandoned:
            vfs.remove(path)
        elif parsed.kind == names.LOG:
            swaps[parsed.base_offset] = _end_of(vfs, path, parsed.base_offset, entry.size)
    for parsed, entry in entries:
        if parsed is None or parsed.state or parsed.kind not in names.SEGMENT_KINDS:
            continue
        if any(base <= parsed.base_offset < max(end, base + 1) for base, end in swaps.items()):
            vfs.remove(f"{directory}/{entry.name}")
    for entry in vfs.list_dir(directory):
        parsed = names.parse_segment_file(entry.name)
        if parsed is not None and parsed.state == names.SWAP:
            install(vfs, directory, parsed.base_offset)
    vfs.sync_dir(directory)


def _end_of(vfs: Vfs, path: str, base_offset: Offset, size: int) -> Offset:
    """First offset after a segment file."""
    end = base_offset
    file = vfs.open(path)
    try:
        for spot in walk_headers(file, 0, size):
            end = spot.last_offset + 1
    except CorruptLog:
        pass  # it was synced before the commit; recovery reports the damage
    finally:
        file.close()
    return end
