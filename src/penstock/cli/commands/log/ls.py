"""`penstock log ls`: lists the contents of a directory, without a lock and without writing.

Beside a running broker only the files are read: the indexes of the active segment, which are in the broker's memory,
are computed from the log.
"""

from dataclasses import asdict, dataclass, field
from typing import Annotated

import typer

from penstock.base.errors import KafkaError
from penstock.base.ids import Offset, uuid_text
from penstock.cli.log_paths import Directory, LogPath, locate
from penstock.cli.main import EXIT_WRONG
from penstock.cli.options import Json
from penstock.cli.output import Refused, camel_case, complain, print_json, print_table, show_time
from penstock.cli.stray_table import as_document
from penstock.storage import checkpoints as ck
from penstock.storage import names
from penstock.storage.checkpoint_reader import SavedPartition
from penstock.storage.epochs import LeaderEpochs
from penstock.storage.errors import BadCheckpoint
from penstock.storage.open_files import OpenFiles
from penstock.storage.segment import Segment
from penstock.storage.strays import find_strays
from penstock.vfs import RealDisk, Vfs, read_file

_INTERVAL_BYTES = 4096
_OFFSET_MAX = 2**63 - 1
_ATTEMPTS_MAX = 10
"""Attempts to read a partition whose segments a broker is deleting or swapping."""


def ls_command(
    directory: Directory,
    segments: Annotated[bool, typer.Option("--segments", help="Show every segment too.")] = False,
    as_json: Json = False,
) -> int:
    """List the partitions of a directory, or the segments of one partition.

    Reads little, writes nothing and takes no lock: safe beside a running broker, whose newest records may be
    missing here.

    \b
    penstock log ls penstock-data
    penstock log ls penstock-data/logs/orders-0
    penstock log ls /var/lib/kafka --segments --json
    """
    path = str(directory)
    vfs = RealDisk()
    log_path = locate(vfs, path)
    segments = segments or log_path.is_partition
    marks = log_path.marks(vfs)
    problems = [str(finding) for finding in marks.findings]
    rows = []
    for each in log_path.partitions:
        row = _describe_live(vfs, each, marks.known(log_path.partition_of(each)), segments)
        if row is not None:
            rows.append(row)
            problems += row.problems
    strays = [] if log_path.logs is None or log_path.is_partition else list(find_strays(vfs, log_path.logs))
    if as_json:
        document = {
            "directory": path,
            "clusterId": marks.identity.cluster_id if marks.identity else None,
            "nodeId": marks.identity.node_id if marks.identity else None,
            "stoppedCleanly": marks.clean,
            "partitions": [_as_json(row, segments) for row in rows],
            "strays": [as_document(each) for each in strays],
        }
        print_json(document)
    else:
        _print(log_path, rows, segments, marks.clean)
        if strays:
            print(f"\nStrays, which no topic claims (`penstock log strays list {path}` shows the reasons):")
            print_table(
                ("partition", "bytes", "directory"),
                [(str(each.partition), each.size_bytes, each.name) for each in strays],
            )
    for problem in problems:
        complain(problem)
    return EXIT_WRONG if problems else 0


@dataclass
class SegmentRow:
    base_offset: Offset
    end_offset: Offset
    """First offset of the next segment; for the last segment, the log end."""
    size_bytes: int
    max_timestamp: int
    """-1 if there is none."""
    index_bytes: int | None
    time_index_bytes: int | None
    txn_index_bytes: int | None
    """None if the file is missing."""


@dataclass
class PartitionRow:
    partition: str
    path: str
    log_start: Offset | None = None
    log_end: Offset | None = None
    segment_count: int = 0
    size_bytes: int = 0
    leader_epoch: int | None = None
    topic_id: str | None = None
    recovery_point: Offset | None = None
    is_clean: bool = False
    """Stopped cleanly, or completely on disk: the next start scans nothing."""
    segments: list[SegmentRow] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def _describe_live(vfs: Vfs, path: str, known: SavedPartition, with_segments: bool) -> PartitionRow | None:
    """Read a partition, again if a segment disappears meanwhile; None if the partition disappears."""
    for _ in range(_ATTEMPTS_MAX):
        try:
            return describe(vfs, path, known, with_segments=with_segments)
        except FileNotFoundError:
            if vfs.stat(path) is None:
                return None
    return PartitionRow(
        path.rpartition("/")[2], path, problems=[f"{path}: its files change too quickly to be read"]
    )


def describe(vfs: Vfs, path: str, known: SavedPartition, *, with_segments: bool) -> PartitionRow:
    """Read one partition; values that cannot be read stay unset, with the reason in `problems`."""
    name = path.rpartition("/")[2]
    row = PartitionRow(name, path, recovery_point=known.recovery_point)
    sizes: dict[tuple[Offset, str], int] = {}
    for entry in vfs.list_dir(path):
        parsed = names.parse_segment_file(entry.name)
        if parsed is not None and not parsed.state:
            sizes[parsed.base_offset, parsed.kind] = entry.size
    bases = sorted(base for base, kind in sizes if kind == names.LOG)
    row.segment_count = len(bases)
    row.size_bytes = sum(size for (_, kind), size in sizes.items() if kind == names.LOG)
    _read_small_files(vfs, path, row)
    if not bases:
        row.problems.append(f"{path}: no segment, expected a .log file")
        return row
    files = OpenFiles(vfs, 16, read_only=True)
    try:
        segments = [
            Segment(files, path, base, interval_bytes=_INTERVAL_BYTES, size=sizes[base, names.LOG])
            for base in bases
        ]
        active = segments[-1]
        if not active.resume(below=_OFFSET_MAX):
            row.problems.append(f"{active.ref.path}: damaged; `penstock log check` shows where")
        row.log_end = max(active.next_offset, active.base_offset)
        row.log_start = max(known.log_start or 0, bases[0])
        row.is_clean = known.clean or (
            known.recovery_point is not None and known.recovery_point >= row.log_end
        )
        if with_segments:
            for segment, end in zip(segments, [*bases[1:], row.log_end], strict=True):
                row.segments.append(_describe_segment(segment, end, sizes))
    except (KafkaError, BadCheckpoint, ValueError) as error:
        row.problems.append(str(error))
    except FileNotFoundError:
        raise
    except OSError as error:
        row.problems.append(f"{path}: {error.strerror or error}")
    finally:
        files.close()
    return row


def _describe_segment(segment: Segment, end: Offset, sizes: dict[tuple[Offset, str], int]) -> SegmentRow:
    base = segment.base_offset
    return SegmentRow(
        base,
        end,
        segment.size,
        segment.largest().timestamp,
        *(sizes.get((base, kind)) for kind in (names.INDEX, names.TIME_INDEX, names.TXN_INDEX)),
    )


def _read_small_files(vfs: Vfs, path: str, row: PartitionRow) -> None:
    try:
        file = f"{path}/{names.LEADER_EPOCHS}"
        epochs = LeaderEpochs.decode(read_file(vfs, file), file)
        row.leader_epoch = epochs.latest if epochs.entries else None
    except FileNotFoundError:
        pass
    except BadCheckpoint as error:
        row.problems.append(str(error))
    try:
        file = f"{path}/{names.PARTITION_METADATA}"
        row.topic_id = uuid_text(ck.decode_partition_metadata(read_file(vfs, file), file))
    except FileNotFoundError:
        pass
    except BadCheckpoint as error:
        row.problems.append(str(error))


def _as_json(row: PartitionRow, with_segments: bool) -> dict[str, object]:
    return {
        camel_case(name): [{camel_case(key): value for key, value in each.items()} for each in content]
        if name == "segments"
        else content
        for name, content in asdict(row).items()
        if name != "segments" or with_segments
    }


def _print(log_path: LogPath, rows: list[PartitionRow], with_segments: bool, clean: bool) -> None:
    if not rows:
        if log_path.is_partition:
            raise Refused(f"{log_path.partitions[0]} was deleted while it was read")
        print("No partitions.")
        return
    columns = (
        "partition", "start", "end", "segments", "bytes", "epoch", "recovery point", "clean", "topic id",
    )  # fmt: skip
    table = [
        (
            row.partition,
            row.log_start,
            row.log_end,
            row.segment_count,
            row.size_bytes,
            row.leader_epoch,
            row.recovery_point,
            "yes" if row.is_clean else "no",
            row.topic_id,
        )
        for row in rows
    ]
    print_table(columns, table)
    if with_segments:
        for row in rows:
            print()
            print_segments(row)
    if not clean and not all(row.is_clean for row in rows):
        print("\nNot clean: a broker is running, or the next start will scan from the recovery point.")


def print_segments(row: PartitionRow) -> None:
    columns = ("base offset", "end", "bytes", "largest timestamp", ".index", ".timeindex", ".txnindex")
    table = [
        (
            each.base_offset,
            each.end_offset,
            each.size_bytes,
            show_time(each.max_timestamp),
            each.index_bytes,
            each.time_index_bytes,
            each.txn_index_bytes,
        )
        for each in row.segments
    ]
    print_table(columns, table, title=row.partition)
