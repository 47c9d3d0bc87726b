"""Reads the checkpoint files of a log directory for tools, and reports damaged ones.

`checkpoint_files` reads the same files for the broker and rebuilds lost ones; nothing is written here.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from penstock.base.ids import Offset, TopicPartition
from penstock.storage import checkpoints as ck
from penstock.storage.checkpoints import Checkpoint, Extent, Hole, MetaProperties, RecoveryPoint
from penstock.storage.errors import BadCheckpoint
from penstock.storage.findings import Finding
from penstock.vfs import Vfs, read_file

Result = TypeVar("Result")


class SavedPartition(NamedTuple):
    """The saved offsets of one partition."""

    clean: bool = False
    """Stopped cleanly: the next start has nothing to repair."""
    recovery_point: Offset | None = None
    log_start: Offset | None = None
    high_watermark: Offset | None = None
    cleaner_point: Offset | None = None
    our_point: RecoveryPoint | None = None
    segments: tuple[Extent, ...] = ()
    holes: tuple[Hole, ...] = ()


@dataclass
class SavedOffsets:
    """The readable checkpoint files of a log directory."""

    logs: str
    meta: str
    identity: MetaProperties | None = None
    clean: bool = False
    recovery_points: dict[TopicPartition, Offset] = field(default_factory=dict)
    log_starts: dict[TopicPartition, Offset] = field(default_factory=dict)
    high_watermarks: dict[TopicPartition, Offset] = field(default_factory=dict)
    cleaner_points: dict[TopicPartition, Offset] = field(default_factory=dict)
    our_points: dict[str, RecoveryPoint] = field(default_factory=dict)
    our_segments: dict[str, list[Extent]] = field(default_factory=dict)
    our_holes: dict[str, list[Hole]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def known(self, partition: TopicPartition | None) -> SavedPartition:
        if partition is None:
            return SavedPartition(self.clean)
        return SavedPartition(
            self.clean,
            self.recovery_points.get(partition),
            self.log_starts.get(partition),
            self.high_watermarks.get(partition),
            self.cleaner_points.get(partition),
            self.our_points.get(str(partition)),
            tuple(self.our_segments.get(str(partition), ())),
            tuple(self.our_holes.get(str(partition), ())),
        )


def read_saved_offsets(vfs: Vfs, logs: str, meta: str) -> SavedOffsets:
    """Read the checkpoint files of a log directory; problems are in `findings`."""
    marks = SavedOffsets(logs, meta)
    marks.clean = vfs.stat(f"{logs}/{ck.CLEAN_SHUTDOWN}") is not None
    read = SmallFileReader(vfs, marks.findings)
    marks.identity = read(f"{logs}/{ck.META_PROPERTIES}", MetaProperties.decode, None)
    marks.recovery_points = read(f"{logs}/{ck.RECOVERY_POINTS}", ck.decode_offsets, {})
    marks.log_starts = read(f"{logs}/{ck.LOG_STARTS}", ck.decode_offsets, {})
    marks.high_watermarks = read(f"{logs}/{ck.HIGH_WATERMARKS}", ck.decode_offsets, {})
    marks.cleaner_points = read(f"{logs}/{ck.CLEANER_POINTS}", ck.decode_offsets, {})
    checkpoint = read(f"{meta}/{ck.CHECKPOINT}", Checkpoint.decode, None)
    if checkpoint is not None:
        marks.our_points = checkpoint.recovery_points
        marks.our_segments, marks.our_holes = checkpoint.segments, checkpoint.holes
    broker_id = read(f"{meta}/{ck.BROKER_ID}", lambda data, _: data.decode("ascii").strip(), None)
    if broker_id is not None and marks.identity and broker_id != str(marks.identity.node_id):
        marks.findings.append(
            Finding(
                "error",
                f"{meta}/{ck.BROKER_ID}",
                0,
                "another node id than the directory has",
                broker_id,
                f"{marks.identity.node_id}, by {ck.META_PROPERTIES}",
            )
        )
    return marks


class SmallFileReader:
    """Reads small files, and reports those that cannot be parsed."""

    def __init__(self, vfs: Vfs, findings: list[Finding]) -> None:
        self._vfs = vfs
        self._findings = findings

    def __call__(self, path: str, decode: Callable[[bytes, str], Result], default: Result) -> Result:
        try:
            return decode(read_file(self._vfs, path), path)
        except (FileNotFoundError, NotADirectoryError):
            return default
        except (BadCheckpoint, ValueError) as error:
            self._findings.append(unreadable(path, error))
            return default


def unreadable(path: str, error: Exception) -> Finding:
    return Finding("error", path, 0, "the file cannot be parsed", str(error).removeprefix(f"{path}: "))
