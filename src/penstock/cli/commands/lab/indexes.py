"""`penstock lab indexes`: looks up an offset step by step, then damages indexes, detects the damage and repairs it.

The steps are those of the broker, reimplemented here on the files alone. At the end the broker's code looks up the
same offset and must find the same batch.
"""

from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from penstock.cli import labs
from penstock.cli.commands.log.check import summary
from penstock.cli.commands.log.rebuild import IndexChange, RebuildOptions, rebuild
from penstock.cli.labs import Claim, Json, Keep, LabRecord, LabTopic, print_claims, print_lines
from penstock.cli.log_paths import locate
from penstock.cli.output import print_json, print_table
from penstock.records import RecordBatch
from penstock.storage import names
from penstock.storage.check import check_directory
from penstock.storage.findings import OFFSET_ENTRY, TIME_ENTRY, Finding, Tally
from penstock.storage.open_files import OpenFiles
from penstock.storage.scan import walk_headers
from penstock.storage.segment import Segment
from penstock.vfs import RealDisk, read_file

OFFSET_MAX = 999
"""Offset of the last record that the lab writes."""
TOPIC = "lab.indexed"
SEGMENT_BYTES: Final = 100_000
RECORDS: Final = 1_000
BATCH_RECORDS: Final = 5
VALUE_BYTES: Final = 200
SOUGHT: Final = 777


def indexes_command(
    offset: Annotated[
        int, typer.Option("--offset", metavar="N", min=0, max=OFFSET_MAX, help="The offset to look up.")
    ] = SOUGHT,
    keep: Keep = None,
    as_json: Json = False,
) -> int:
    """Look up an offset step by step; damage and repair indexes.

    Writes to a node, stops it, and follows a lookup through the sparse index in its files. The exit code is 1 if the
    files contradict the explanation.

    \b
    penstock lab indexes
    penstock lab indexes --offset 12 --keep ./lab
    """
    with labs.workplace(keep) as data:
        batches = [
            [content(offset) for offset in range(start, start + BATCH_RECORDS)]
            for start in range(0, RECORDS, BATCH_RECORDS)
        ]
        topic = LabTopic(TOPIC, {"segment.bytes": str(SEGMENT_BYTES)}, batches)
        interval = int(labs.write(data, [topic], "index.interval.bytes")[TOPIC])
        directory = f"{data}/logs/{TOPIC}-0"
        lookup = look_up(directory, offset)
        sanity = spoil_and_mend(data, directory, lookup, interval)
        claims = judge(lookup, sanity, interval)
        if as_json:
            print_json(
                {
                    "directory": None if keep is None else str(keep),
                    "indexIntervalBytes": interval,
                    "lookup": labs.camel(lookup),
                    "sanity": labs.camel(sanity),
                    "claims": labs.camel(claims),
                }
            )
        else:
            _show(data, keep, interval, lookup, sanity, claims)
        return labs.verdict(claims)


class Probe(NamedTuple):
    """A step of the binary search."""

    low: int
    high: int
    """The entry is one of these, or the offset is before all of them."""
    entry: int
    """The entry in the middle."""
    offset: int
    position: int
    is_above: bool
    """Whether its offset is above the sought one: continue on the left, otherwise on the right."""


class ScanStep(NamedTuple):
    """A batch that the scan skips, or ends at."""

    position: int
    size_bytes: int
    first_offset: int
    last_offset: int
    is_it: bool


class FoundRecord(NamedTuple):
    offset: int
    timestamp: int
    key: str
    value_bytes: int


class Lookup(NamedTuple):
    offset: int
    segments: list[str]
    segment: str
    """The segment with the largest name that is not above the offset."""
    segment_bytes: int
    index_entries: int
    time_index_entries: int
    probes: list[Probe]
    found_entry: int | None
    """None if the offset is before all entries: the scan then starts with the file."""
    scan_from: int
    steps: list[ScanStep]
    scanned_bytes: int
    """Bytes from the start of the scan to the end of the batch."""
    bytes_before: int
    """Bytes that a scan without an index would read, from the start of the file."""
    record: FoundRecord | None


class Check(NamedTuple):
    errors: int
    notes: int
    summary: str
    findings: list[str]


class Sanity(NamedTuple):
    damaged: str
    """The offset index with a wrong entry."""
    removed: str
    """The removed time index."""
    before: Check
    found_all_the_same: bool
    """The broker's code found the same batch with the damaged indexes."""
    after_damage: Check
    rebuilt: list[IndexChange]
    is_identical: bool
    """The rebuilt files are identical to the original ones."""
    after_rebuild: Check


def content(offset: int) -> LabRecord:
    value = b"record %d " % offset
    return LabRecord(b"key-%d" % offset, value + b"." * (VALUE_BYTES - len(value)))


# -- lookup -----------------------------------------------------------------------------------------------


def look_up(directory: str, sought: int) -> Lookup:
    """Find the record of an offset with nothing but the files."""
    vfs = RealDisk()
    sizes = {entry.name: entry.size for entry in vfs.list_dir(directory)}
    logs = sorted(name for name in sizes if name.endswith(names.LOG))
    chosen = [name for name in logs if int(name.removesuffix(names.LOG)) <= sought][-1]
    base = int(chosen.removesuffix(names.LOG))

    index = read_file(vfs, f"{directory}/{names.segment_file(base, names.INDEX)}")
    entries = [(base + relative, position) for relative, position in OFFSET_ENTRY.iter_unpack(index)]
    probes = search(entries, sought)
    found = max((each.entry for each in probes if not each.is_above), default=None)
    scan_from = 0 if found is None else entries[found][1]

    file = vfs.open(f"{directory}/{chosen}")
    steps, record = [], None
    for spot in walk_headers(file, scan_from, sizes[chosen]):
        is_it = spot.last_offset >= sought
        steps.append(ScanStep(spot.position, spot.size, spot.base_offset, spot.last_offset, is_it))
        if is_it:
            batch = RecordBatch.parse(file.pread(spot.size, spot.position))
            record = next((each for each in batch.records() if each.offset == sought), None)
            break
    file.close()
    end = steps[-1].position + steps[-1].size_bytes
    return Lookup(
        offset=sought,
        segments=logs,
        segment=chosen,
        segment_bytes=sizes[chosen],
        index_entries=len(entries),
        time_index_entries=sizes[names.segment_file(base, names.TIME_INDEX)] // TIME_ENTRY.size,
        probes=probes,
        found_entry=found,
        scan_from=scan_from,
        steps=steps,
        scanned_bytes=end - scan_from,
        bytes_before=end,
        record=record
        and FoundRecord(
            record.offset, record.timestamp, (record.key or b"").decode(), len(record.value or b"")
        ),
    )


def search(entries: list[tuple[int, int]], sought: int) -> list[Probe]:
    """Find the last entry that is not above an offset, by binary search; each comparison is a probe."""
    low, high = 0, len(entries) - 1
    probes = []
    while low <= high:
        middle = (low + high) // 2
        offset, position = entries[middle]
        probes.append(Probe(low, high, middle, offset, position, offset > sought))
        if offset > sought:
            high = middle - 1
        else:
            low = middle + 1
    return probes


# -- the sanity check -------------------------------------------------------------------------------------


def spoil_and_mend(data: str, directory: str, lookup: Lookup, interval: int) -> Sanity:
    base = int(lookup.segment.removesuffix(names.LOG))
    index, time_index = (
        f"{directory}/{names.segment_file(base, kind)}" for kind in (names.INDEX, names.TIME_INDEX)
    )
    originals = [Path(each).read_bytes() for each in (index, time_index)]
    before = _check(data)
    _spoil(Path(index), lookup.found_entry or 0)
    Path(time_index).unlink()
    after_damage = _check(data)
    spot_of_broker = _ask_broker(directory, lookup, interval)
    changes, _ = rebuild(
        RealDisk(), locate(RealDisk(), data), RebuildOptions(interval_bytes=interval), lambda _: None
    )
    return Sanity(
        damaged=index,
        removed=time_index,
        before=before,
        found_all_the_same=spot_of_broker == lookup.steps[-1].position,
        after_damage=after_damage,
        rebuilt=changes,
        is_identical=originals == [Path(each).read_bytes() for each in (index, time_index)],
        after_rebuild=_check(data),
    )


def _spoil(index: Path, entry: int) -> None:
    """Make an entry point one byte past its batch."""
    data = bytearray(index.read_bytes())
    relative, position = OFFSET_ENTRY.unpack_from(data, entry * OFFSET_ENTRY.size)
    OFFSET_ENTRY.pack_into(data, entry * OFFSET_ENTRY.size, relative, position + 1)
    index.write_bytes(data)


def _ask_broker(directory: str, lookup: Lookup, interval: int) -> int | None:
    """Position at which the broker's code finds the offset."""
    files = OpenFiles(RealDisk(), 16, read_only=True)
    try:
        base = int(lookup.segment.removesuffix(names.LOG))
        segment = Segment(files, directory, base, interval_bytes=interval, size=lookup.segment_bytes)
        spot = segment.find(lookup.offset)
        return None if spot is None else spot.position
    finally:
        files.close()


def _check(data: str) -> Check:
    vfs = RealDisk()
    place, tally = locate(vfs, data), Tally()
    assert place.logs is not None
    findings: list[Finding] = list(check_directory(vfs, place.logs, place.meta, tally=tally))
    return Check(tally.errors, tally.notes, summary(tally), [f"{each.severity}: {each}" for each in findings])


def judge(lookup: Lookup, sanity: Sanity, interval: int) -> list[Claim]:
    sought = content(lookup.offset)
    record = lookup.record
    spoilt = {sanity.damaged, sanity.removed}
    return [
        Claim(
            f"Offset {lookup.offset} is the record with key {sought.key.decode()}, as written.",
            record is not None
            and (record.offset, record.key, record.value_bytes)
            == (lookup.offset, sought.key.decode(), VALUE_BYTES),
        ),
        Claim(
            f"The index is sparse: {lookup.index_entries} entries for {lookup.segment_bytes:,} bytes of log, and the "
            f"scan from one of them read {lookup.scanned_bytes:,} bytes instead of {lookup.bytes_before:,}.",
            lookup.index_entries * interval <= lookup.segment_bytes
            and lookup.scanned_bytes <= lookup.bytes_before
            and lookup.scanned_bytes <= interval + 3 * max(each.size_bytes for each in lookup.steps),
        ),
        Claim(
            f"The binary search read {len(lookup.probes)} of the {lookup.index_entries} entries.",
            len(lookup.probes) <= lookup.index_entries.bit_length(),
        ),
        Claim(
            "The check found nothing before the damage, and both files after it.",
            not sanity.before.errors
            and sanity.after_damage.errors + sanity.after_damage.notes >= 2
            and all(any(path in line for line in sanity.after_damage.findings) for path in spoilt),
        ),
        Claim(
            "With the damaged index the broker's code still found the right batch: it compares an entry with the "
            "batch that it points at, and ignores a wrong one.",
            sanity.found_all_the_same,
        ),
        Claim(
            "Both files were rebuilt from the log, identical to the original ones, and the check finds nothing.",
            {change.path for change in sanity.rebuilt} == spoilt
            and sanity.is_identical
            and not sanity.after_rebuild.errors,
        ),
    ]


# -- output -----------------------------------------------------------------------------------------------


def _show(
    data: str, keep: Path | None, interval: int, lookup: Lookup, sanity: Sanity, claims: list[Claim]
) -> None:
    sought = lookup.offset
    print_lines(
        f"The lab started a node, sent {RECORDS:,} records to {TOPIC}, {BATCH_RECORDS} per batch, and stopped the",
        "node. The rest is read from its files.",
        "",
        f"$ penstock {' '.join(labs.command(data))}",
        "",
        f"1. Which segment has offset {sought}? The one with the largest name that is not above it.",
    )
    for name in lookup.segments:
        print_lines(f"   {name}{'   <-- this one' if name == lookup.segment else ''}")
    print_lines(
        "",
        f"2. Its .index has {lookup.index_entries} entries of {OFFSET_ENTRY.size} bytes: one for at least every "
        f"{interval:,} bytes of log.",
        f"   A binary search for the last entry that is not above {sought}:",
    )
    print_table(
        ("among entries", "looks at", "offset", "position", "so go"),
        [
            (
                f"{each.low}-{each.high}",
                each.entry,
                each.offset,
                each.position,
                "left" if each.is_above else "right",
            )
            for each in lookup.probes
        ],
    )
    where = "before all entries" if lookup.found_entry is None else f"entry {lookup.found_entry}"
    print_lines(
        "",
        f"3. It is {where}: the scan starts at byte {lookup.scan_from:,}, and reads batch headers until a batch "
        f"ends at {sought} or later:",
    )
    print_table(
        ("position", "bytes", "first offset", "last", ""),
        [
            (
                each.position,
                each.size_bytes,
                each.first_offset,
                each.last_offset,
                "this one" if each.is_it else "",
            )
            for each in lookup.steps
        ],
    )
    if lookup.record is not None:
        print_lines(
            "",
            f"4. That batch is read and decoded: offset {lookup.record.offset}, key {lookup.record.key}, "
            f"{lookup.record.value_bytes} bytes of value.",
        )
    _show_sanity(data, sanity)
    print_claims("What the files show:", claims)
    if keep is not None:
        print_lines("", f"To look at the files: penstock log dump {keep}/logs/{TOPIC}-0/*.index")


def _show_sanity(data: str, sanity: Sanity) -> None:
    def short(text: str) -> str:
        return text.replace(f"{data}/", "")

    print_lines(
        "",
        f"5. Now {short(sanity.damaged)} has an entry that points one byte too far,",
        f"   and {short(sanity.removed)} is removed. penstock log check:",
    )
    print_lines(*(f"   {short(each)}" for each in sanity.after_damage.findings))
    print_lines(f"   {sanity.after_damage.summary}", "", "6. penstock log rebuild:")
    print_table(
        ("file", "reason", "bytes before", "bytes after"),
        [(short(each.path), each.reason, each.bytes_before, each.bytes_after) for each in sanity.rebuilt],
    )
    print_lines("", "7. penstock log check:", f"   {sanity.after_rebuild.summary}")
