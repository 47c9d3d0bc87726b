"""Putting cleaned segments in the place of old ones, in steps that a restart can finish or undo.

    written      *.cleaned   synced, names durable       a crash: thrown away
    promised     *.swap      names durable               a crash: completed from here
    old files    *.deleted
    done         renamed to their plain names

These are Kafka's steps and suffixes: either broker finishes what the other began.
"""

from collections.abc import Sequence

from penstock.base.ids import Offset
from penstock.storage import names
from penstock.storage.errors import CorruptLog
from penstock.storage.scan import walk_headers
from penstock.vfs import Vfs


def commit(vfs: Vfs, directory: str, base_offset: Offset) -> None:
    """Turn `.cleaned` files, which must be synced, into `.swap`: from here on there is no way back."""
    vfs.sync_dir(directory)
    for kind in (names.INDEX, names.TIME_INDEX, names.TXN_INDEX, names.LOG):
        cleaned = f"{directory}/{names.segment_file(base_offset, kind, names.CLEANED)}"
        if vfs.stat(cleaned) is not None:
            vfs.rename(cleaned, f"{directory}/{names.segment_file(base_offset, kind, names.SWAP)}")
    vfs.sync_dir(directory)


def retire(vfs: Vfs, directory: str, bases: Sequence[Offset]) -> list[str]:
    """Rename the old segments' files to `.deleted`; return the new paths, to be removed later.

    The producer snapshots of segments that are merged into an earlier one go with them.
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
    """Give the `.swap` files their plain names."""
    for kind in names.SEGMENT_KINDS:
        swap = f"{directory}/{names.segment_file(base_offset, kind, names.SWAP)}"
        if vfs.stat(swap) is not None:
            vfs.rename(swap, f"{directory}/{names.segment_file(base_offset, kind)}")
    vfs.sync_dir(directory)


def finish_swaps(vfs: Vfs, directory: str) -> None:
    """At a start: complete promised swaps, throw unfinished ones away, remove what was deleted."""
    entries = [(names.parse_segment_file(entry.name), entry) for entry in vfs.list_dir(directory)]
    cleaned_from = min(
        (each.base_offset for each, _ in entries if each and each.state == names.CLEANED), default=None
    )
    swaps: dict[Offset, Offset] = {}
    """Base offset of each promised segment, and its end."""
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
    """First offset behind a segment file."""
    end = base_offset
    file = vfs.open(path)
    try:
        for spot in walk_headers(file, 0, size):
            end = spot.last_offset + 1
    except CorruptLog:
        pass  # synced before it was promised: whatever happened to it, recovery will say
    finally:
        file.close()
    return end
