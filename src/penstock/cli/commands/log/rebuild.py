"""`penstock log rebuild`: rebuilds indexes from the log, with the directory locked.

A correct index is kept, with any interval between entries. A missing, wrong or untrimmed index is computed from the
valid batches of its segment, and replaced as a whole.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, NamedTuple

import typer

from penstock.base.errors import KafkaError
from penstock.base.ids import Offset
from penstock.cli.log_paths import Directory, LogPath, locate
from penstock.cli.main import EXIT_WRONG
from penstock.cli.options import Json
from penstock.cli.output import Refused, complain, print_json, print_table, progress
from penstock.storage import checkpoints as ck
from penstock.storage import names
from penstock.storage.check import check_partition
from penstock.storage.checkpoint_reader import SavedPartition
from penstock.storage.epochs import LeaderEpochs
from penstock.storage.errors import BadCheckpoint
from penstock.storage.findings import OFFSET_ENTRY, TIME_ENTRY, Finding, Progress, read_through
from penstock.storage.open_files import OpenFiles
from penstock.storage.producers import Producers
from penstock.storage.scan import RELATIVE_OFFSET_MAX
from penstock.storage.segment import Segment
from penstock.storage.snapshots import load_snapshot
from penstock.vfs import Lock, RealDisk, Vfs, read_file, replace_file

_INDEXES = (names.INDEX, names.TIME_INDEX, names.TXN_INDEX)


def rebuild_command(
    directory: Directory,
    everything: Annotated[bool, typer.Option("--all", help="Rebuild valid indexes too.")] = False,
    interval: Annotated[
        int,
        typer.Option("--index-interval-bytes", metavar="N", min=0, help="Bytes of log between two entries."),
    ] = 4096,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Rebuild missing or damaged indexes from the log.

    Covers .index, .timeindex and .txnindex, and leader-epoch-checkpoint if it is missing. Fails while a broker has the
    directory open. Each file is replaced atomically. The log itself is not changed.

    \b
    penstock log rebuild penstock-data --dry-run
    penstock log rebuild penstock-data/logs/orders-0
    """
    options = RebuildOptions(everything, interval, dry_run)
    path = str(directory)
    vfs = RealDisk()
    log_path = locate(vfs, path)
    with progress("rebuilding", lambda: 2 * log_path.log_bytes(vfs)) as report:
        changes, damage = rebuild(vfs, log_path, options, report)
    if as_json:
        rows = [change._asdict() for change in changes]
        print_json({"directory": path, "dryRun": options.dry_run, "changes": rows, "damage": damage})
    elif not changes:
        print("Nothing to rebuild: every index exists and matches its log.")
    else:
        print_table(("file", "reason", "bytes before", "bytes after"), changes)
        print(f"{len(changes)} {'would be' if options.dry_run else ''} rebuilt.".replace("  ", " "))
    for each in damage:
        complain(f"{each}; this is damage to the log, which rebuilding indexes cannot repair")
    return EXIT_WRONG if damage else 0


class RebuildOptions(NamedTuple):
    everything: bool = False
    interval_bytes: int = 4096
    dry_run: bool = False


class IndexChange(NamedTuple):
    path: str
    reason: str
    bytes_before: int | None
    """None if there was no file."""
    bytes_after: int


def rebuild(
    vfs: Vfs, log_path: LogPath, options: RebuildOptions, report: Progress
) -> tuple[list[IndexChange], list[str]]:
    """Rebuild indexes. Return the changes, and the problems of the logs."""
    changes: list[IndexChange] = []
    damage: list[str] = []
    with _locked(vfs, log_path, options):
        marks = log_path.marks(vfs)
        for each in log_path.partitions:
            known = marks.known(log_path.partition_of(each))
            changes += _Rebuild(vfs, each, known, options, report, damage).run()
    return changes, damage


@contextmanager
def _locked(vfs: Vfs, log_path: LogPath, options: RebuildOptions) -> Iterator[None]:
    """Hold the locks of a broker, Penstock's and Kafka's. A dry run takes none."""
    paths = []
    if log_path.logs is not None and not options.dry_run:
        if vfs.stat(log_path.meta) is not None:
            paths.append(f"{log_path.meta}/lock")
        if any(vfs.stat(f"{log_path.logs}/{name}") for name in (".lock", ck.META_PROPERTIES)):
            paths.append(f"{log_path.logs}/.lock")
    locks: list[Lock] = []
    try:
        for path in paths:
            try:
                locks.append(vfs.lock(path))
            except BlockingIOError as error:
                raise Refused(f"{log_path.logs} is in use by another process, which holds {path}") from error
        yield
    finally:
        for lock in locks:
            lock.release()


class _Rebuild:
    """Rebuilds the indexes of one partition."""

    def __init__(
        self,
        vfs: Vfs,
        directory: str,
        known: SavedPartition,
        options: RebuildOptions,
        report: Progress,
        damage: list[str],
    ) -> None:
        self.vfs = vfs
        self.directory = directory
        self.known = known
        self.options = options
        self.report = report
        self.damage = damage
        self.faults: dict[str, str] = {}
        """The problem of each index, by path."""
        self.zeros: dict[str, int] = {}
        """Start of untrimmed zeros in an index without other problems."""
        self.producers = Producers()
        self.epochs = LeaderEpochs()

    def run(self) -> list[IndexChange]:
        sizes = {
            parsed.base_offset: entry.size
            for entry in self.vfs.list_dir(self.directory)
            if (parsed := names.parse_segment_file(entry.name)) and parsed[1:] == (names.LOG, "")
        }
        if not sizes:
            return []
        self._find_faults()
        epochs_lost = self._epochs_lost()
        if not self.faults and not epochs_lost and not self.options.everything:
            self.report(sum(sizes.values()))
            return []
        first = min(sizes)
        self.producers = Producers(first)
        load_snapshot(self.vfs, self.directory, first, self.producers)
        files = OpenFiles(self.vfs, 16, read_only=True)
        changes = []
        try:
            bases = sorted(sizes)
            for base, end in zip(bases, [*bases[1:], bases[-1] + RELATIVE_OFFSET_MAX + 1], strict=True):
                segment = Segment(
                    files,
                    self.directory,
                    base,
                    interval_bytes=self.options.interval_bytes,
                    size=sizes[base],
                )
                changes += self._rebuild_segment(segment, end)
        finally:
            files.close()
        if epochs_lost and self.epochs.entries:
            self.epochs.truncate_start(max(self.known.log_start or 0, first))
            path = f"{self.directory}/{names.LEADER_EPOCHS}"
            changes += self._replace(path, epochs_lost, self.epochs.encode())
        return changes

    def _find_faults(self) -> None:
        for finding in check_partition(self.vfs, self.directory, self.known, report=self.report):
            if finding.path.endswith(_INDEXES) and "without its log" not in finding.problem:
                self._add_fault(finding)
            elif finding.path.endswith(names.LOG) and finding.severity == "error":
                self.damage.append(str(finding))

    def _add_fault(self, finding: Finding) -> None:
        path = finding.path
        is_first = path not in self.faults
        self.faults.setdefault(path, finding.problem)
        if is_first and finding.severity == "note" and finding.position:
            self.zeros[path] = finding.position
        else:
            self.zeros.pop(path, None)

    def _epochs_lost(self) -> str:
        path = f"{self.directory}/{names.LEADER_EPOCHS}"
        try:
            LeaderEpochs.decode(read_file(self.vfs, path), path)
        except FileNotFoundError:
            return "the file is missing"
        except BadCheckpoint:
            return "the file cannot be parsed"
        return ""

    def _rebuild_segment(self, segment: Segment, end: Offset) -> list[IndexChange]:
        """Compute the indexes of a segment whose offsets are below `end`."""
        segment.start_indexes()
        for piece in read_through(segment.file(), 0, segment.size, floor=segment.base_offset):
            self.report(piece.size)
            batch = piece.batch
            if batch is None or not piece.is_sound:
                continue
            if not segment.next_offset <= batch.base_offset <= batch.last_offset < end:
                continue  # the offset, which no CRC covers, is out of range
            segment.note(piece.position, batch.last_offset, batch.max_timestamp)
            if batch.leader_epoch > self.epochs.latest:
                self.epochs.assign(batch.leader_epoch, batch.base_offset)
            try:
                aborted = self.producers.apply(batch)
            except KafkaError:
                continue  # a marker that cannot be decoded; the check reports it
            if aborted is not None:
                segment.txn_index.append(aborted)
        segment.finish_time_index()
        base = segment.base_offset
        return [
            *self._replace_index(segment, names.INDEX, _encode_offsets(segment, base)),
            *self._replace_index(segment, names.TIME_INDEX, _encode_times(segment, base)),
            *self._replace_index(
                segment, names.TXN_INDEX, b"".join(entry.encode() for entry in segment.txn_index.entries())
            ),
        ]

    def _replace_index(self, segment: Segment, kind: str, data: bytes) -> list[IndexChange]:
        path = segment.path_of(kind)
        if path in self.zeros and not self.options.everything:
            data = read_file(self.vfs, path)[: self.zeros[path]]
        if path in self.faults:
            return self._replace(path, self.faults[path], data)
        return self._replace(path, "rebuilt on request", data) if self.options.everything else []

    def _replace(self, path: str, reason: str, data: bytes) -> list[IndexChange]:
        try:
            before = read_file(self.vfs, path)
        except FileNotFoundError:
            before = None
        if before == data:
            return []
        if not self.options.dry_run:
            replace_file(self.vfs, path, data)
        return [IndexChange(path, reason, None if before is None else len(before), len(data))]


def _encode_offsets(segment: Segment, base: Offset) -> bytes:
    return b"".join(
        OFFSET_ENTRY.pack(entry.offset - base, entry.position) for entry in segment.index.entries()
    )


def _encode_times(segment: Segment, base: Offset) -> bytes:
    entries = segment.time_index.entries()
    return b"".join(TIME_ENTRY.pack(entry.timestamp, entry.offset - base) for entry in entries)
