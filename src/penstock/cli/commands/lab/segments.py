"""`penstock lab segments`: the same messages in two topics, one with small segments, one with the default.

The files differ; a consumer reads the same records.
"""

from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from penstock.cli import labs
from penstock.cli.labs import Claim, Json, Keep, LabRecord, LabTopic, print_claims, print_lines
from penstock.cli.output import counted, print_json, print_table
from penstock.storage import names
from penstock.storage.scan import scan_batches
from penstock.vfs import RealDisk

SMALL, DEFAULT = "lab.small", "lab.default"
SEGMENT_BYTES: Final = 10_000
MESSAGES: Final = 100
VALUE_BYTES: Final = 1_000
SOUGHT: Final = 57
"""An arbitrary offset, to be found by file names."""


def segments_command(keep: Keep = None, as_json: Json = False) -> int:
    """See how segment.bytes splits a log into files.

    Writes the same 100 messages with segment.bytes=10000 and with the default to a node, stops the node, and shows its
    files. The exit code is 1 if the files contradict the explanation.

    \b
    penstock lab segments
    penstock lab segments --keep ./lab
    """
    with labs.workplace(keep) as data:
        messages = [
            [LabRecord(b"message-%d" % number, b"%d " % number + b"." * (VALUE_BYTES - len(b"%d " % number)))]
            for number in range(MESSAGES)
        ]
        topics = [
            LabTopic(SMALL, {"segment.bytes": str(SEGMENT_BYTES)}, messages),
            LabTopic(DEFAULT, {}, messages),
        ]
        limits = labs.write(data, topics, "segment.bytes")
        small, default = (read_files(data, each.name, int(limits[each.name])) for each in topics)
        claims = judge(small, default, [each.value for batch in messages for each in batch])
        if as_json:
            print_json(_document(keep, small, default, claims))
        else:
            _show(data, keep, small, default, claims)
        return labs.verdict(claims)


class SegmentFiles(NamedTuple):
    file: str
    base_offset: int
    last_offset: int
    batches: int
    log_bytes: int
    index_bytes: int
    time_index_bytes: int


class TopicFiles(NamedTuple):
    topic: str
    segment_bytes: int
    messages: int
    largest_batch_bytes: int
    files: int
    """Number of files of all kinds in the partition's directory."""
    values: list[bytes | None]
    segments: list[SegmentFiles]

    @property
    def log_bytes(self) -> int:
        return sum(each.log_bytes for each in self.segments)


def read_files(data: str, topic: str, segment_bytes: int) -> TopicFiles:
    """Read the directory of a topic's only partition."""
    vfs = RealDisk()
    directory = f"{data}/logs/{topic}-0"
    sizes = {entry.name: entry.size for entry in vfs.list_dir(directory)}
    segments, values, largest = [], list[bytes | None](), 0
    for name in sorted(each for each in sizes if each.endswith(names.LOG)):
        base = int(name.removesuffix(names.LOG))
        batches, last_offset = 0, base - 1
        file = vfs.open(f"{directory}/{name}")
        for _, batch in scan_batches(file, 0, sizes[name]):
            batches, last_offset, largest = batches + 1, batch.last_offset, max(largest, batch.size)
            values += [record.value for record in batch.records()]
        file.close()
        segments.append(
            SegmentFiles(
                name,
                base,
                last_offset,
                batches,
                sizes[name],
                sizes.get(names.segment_file(base, names.INDEX), 0),
                sizes.get(names.segment_file(base, names.TIME_INDEX), 0),
            )
        )
    return TopicFiles(topic, segment_bytes, len(values), largest, len(sizes), values, segments)


def judge(small: TopicFiles, default: TopicFiles, sent: list[bytes]) -> list[Claim]:
    """The lessons of the lab, as claims about the files."""
    sealed = small.segments[:-1]
    first, holder = small.segments[0], _holder(small)
    too_much = first.log_bytes + small.largest_batch_bytes
    return [
        Claim(
            f"A consumer sees no difference: both topics have the same {small.messages} messages in the same "
            f"{small.log_bytes:,} bytes of batches. Segments only split them into files.",
            small.values == default.values == sent and small.log_bytes == default.log_bytes,
        ),
        Claim(
            f"A segment is closed when the next batch would not fit: the first has {first.batches} batches in "
            f"{first.log_bytes:,} bytes, one more would make {too_much:,}, and segment.bytes is "
            f"{small.segment_bytes:,}. No segment is larger.",
            all(each.log_bytes <= small.segment_bytes for each in small.segments)
            and all(each.log_bytes + small.largest_batch_bytes > small.segment_bytes for each in sealed),
        ),
        Claim(
            f"With segment.bytes={default.segment_bytes:,} everything is in "
            f"{counted(len(default.segments), 'segment')}; with {small.segment_bytes:,} it is in "
            f"{counted(len(small.segments), 'segment')}, which are {small.files} files instead of {default.files}.",
            len(default.segments) == 1 and len(small.segments) > 1 and small.files > default.files,
        ),
        Claim(
            "A segment is named after its first offset, and starts where the previous one ends: each name is the last "
            "offset of the previous segment, plus one.",
            all(before.last_offset + 1 == after.base_offset for before, after in pairwise(small.segments))
            and first.base_offset == 0,
        ),
        Claim(
            f"So file names are enough to find offset {SOUGHT}: the largest name that is not above it is "
            f"{holder.base_offset}, and {holder.file} has offsets {holder.base_offset} to {holder.last_offset}.",
            holder.base_offset <= SOUGHT <= holder.last_offset,
        ),
        Claim(
            f"Retention deletes whole segments, the oldest first: {small.topic} can lose its first "
            f"{first.last_offset + 1} messages and keep the rest; {default.topic} loses all {default.messages} "
            "at once, when the newest of them is old enough.",
            first.last_offset + 1 < small.messages
            and default.segments[0].last_offset + 1 == default.messages,
        ),
    ]


def _holder(topic: TopicFiles) -> SegmentFiles:
    return max(each for each in topic.segments if each.base_offset <= SOUGHT)


def _document(
    keep: Path | None, small: TopicFiles, default: TopicFiles, claims: list[Claim]
) -> dict[str, object]:
    topics = [labs.camel(each) for each in (small, default)]
    for topic in topics:
        del topic["values"]
    return {
        "directory": None if keep is None else str(keep),
        "topics": topics,
        "claims": labs.camel(claims),
    }


def _show(data: str, keep: Path | None, small: TopicFiles, default: TopicFiles, claims: list[Claim]) -> None:
    print_lines(
        f"The lab started a node, sent {MESSAGES} messages of {VALUE_BYTES:,} bytes to each of two topics, one",
        "message per batch, and stopped the node. These are its files.",
        "",
        f"$ penstock {' '.join(labs.command(data))}",
    )
    columns = ("file", "first offset", "last", "batches", "bytes", ".index", ".timeindex")
    for topic in (small, default):
        print()
        print_table(columns, topic.segments, title=f"{topic.topic}: segment.bytes={topic.segment_bytes:,}")
    print_claims("What the files show:", claims)
    if keep is not None:
        print_lines("", f"To look at the files: penstock log ls {keep} --segments")
