"""`meta/metadata-synced`: how far the metadata log was on disk, kept apart from the log.

A voter acknowledges records when they are synced. If the end of its log is lost afterwards (a flipped bit that looks
like a torn write, a segment that vanished, an older copy that was put back), the log itself cannot tell. This file
can: `read` at the start returns the end that the log once had, and the node must not lead, nor vote for a shorter log,
before it has fetched that much again (`raft.node.Node.is_recovering`).

The file has two slots of one disk sector each, written in turn, in place:

    f24c1b09 {"sequence":17,"endOffset":204,"epoch":21}\\n      padded with spaces to 512 bytes
    91e003aa {"sequence":16,"endOffset":201,"epoch":21}\\n

The slot with the higher sequence counts. A power cut during a write damages the slot that was written, whose end
nobody relied on yet; a flipped bit in one slot leaves the other, which is one sync older. Slots are written in place,
because a sync of a file whose size and name do not change costs one write to the disk.

A directory without the file (new, or last used by Apache Kafka) is believed as it is. An operator who accepts that
records are lost removes the file.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import msgspec

from penstock.base.ids import LeaderEpoch, Offset
from penstock.controlplane.metadata_log import MetadataLog
from penstock.raft.log import OffsetAndEpoch
from penstock.records.checksum import crc32c
from penstock.storage.errors import StorageError
from penstock.vfs import Vfs, join, read_file, replace_file

logger = logging.getLogger(__name__)

METADATA_SYNCED = "metadata-synced"
SLOT_BYTES = 512
"""What a disk writes whole or not at all."""


class _Slot(msgspec.Struct, frozen=True, rename="camel"):
    sequence: int
    end_offset: Offset
    epoch: LeaderEpoch


class _Content(NamedTuple):
    newest: _Slot | None
    place: int
    """Of the newest slot: 0 or 1."""
    damaged: int
    """Slots that are neither empty nor sound."""


def _encode(slot: _Slot) -> bytes:
    body = msgspec.json.encode(slot)
    return (b"%08x %s\n" % (crc32c(body), body)).ljust(SLOT_BYTES)


def _decode(data: bytes) -> _Slot | None:
    check, _, body = data.rstrip(b" \n\0").partition(b" ")
    try:
        if int(check, 16) != crc32c(body):
            return None
        return msgspec.json.decode(body, type=_Slot)
    except ValueError:  # no number, or not of this shape
        return None


def _parse(data: bytes) -> _Content:
    slots = [data[start : start + SLOT_BYTES] for start in (0, SLOT_BYTES)]
    decoded = [_decode(each) for each in slots]
    damaged = sum(1 for raw, slot in zip(slots, decoded, strict=True) if slot is None and raw.strip(b" \n\0"))
    found = [(slot.sequence, place) for place, slot in enumerate(decoded) if slot is not None]
    if not found:
        return _Content(None, 1, damaged)
    place = max(found)[1]
    return _Content(decoded[place], place, damaged)


class SyncedEndFile:
    """The file. Written by one thread at a time."""

    def __init__(self, vfs: Vfs, meta_path: str) -> None:
        self.path = join(meta_path, METADATA_SYNCED)
        self._vfs = vfs
        self._newest: _Slot | None = None
        self._place = 1

    @property
    def end(self) -> OffsetAndEpoch | None:
        """As the file has it; None where it was not written yet."""
        slot = self._newest
        return None if slot is None else OffsetAndEpoch(slot.end_offset, slot.epoch)

    def read(self) -> OffsetAndEpoch | None:
        """The end that the log once had; None where nothing is known of it."""
        try:
            content = _parse(read_file(self._vfs, self.path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"cannot read {self.path}: {error.strerror or error}") from error
        if content.damaged:
            logger.warning(
                "%s is damaged; %s",
                self.path,
                "nothing is known of how far the metadata log was synced, and the log is believed as it is"
                if content.newest is None
                else f"it says that the metadata log was synced to {content.newest.end_offset} at least",
            )
        self._newest, self._place = content.newest, content.place
        return self.end

    def write(self, end: OffsetAndEpoch) -> None:
        """Record an end, higher or lower than before; durable when this returns. `StorageError` if the disk refuses.
        On any thread."""
        if end == self.end:
            return
        sequence = 1 if self._newest is None else self._newest.sequence + 1
        slot, place = _Slot(sequence, end.offset, end.epoch), 1 - self._place
        try:
            if self._newest is None:
                replace_file(self._vfs, self.path, _encode(slot) + b" " * SLOT_BYTES)
                place = 0
            else:
                self._overwrite(place * SLOT_BYTES, _encode(slot))
        except OSError as error:
            raise StorageError(f"cannot write {self.path}: {error.strerror or error}") from error
        self._newest, self._place = slot, place

    def _overwrite(self, position: int, data: bytes) -> None:
        file = self._vfs.open(self.path, write=True)
        try:
            file.pwrite([data], position)
            file.sync()
        finally:
            file.close()


class SyncedEnd:
    """Keeps the file in step with the log: written after each sync of the log and before it counts."""

    def __init__(self, file: SyncedEndFile, log: MetadataLog) -> None:
        """`log` is open and on disk, whole."""
        self._file = file
        self._log = log
        self.lost: OffsetAndEpoch | None = None
        """The end that the log once had, while it ends before that; None otherwise."""
        known = file.end
        if known is not None and _is_before(self._end, known):
            self.lost = known
        elif self._end.offset > 0:
            file.write(self._end)

    @property
    def _end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self._log.end_offset, self._log.last_epoch)

    def writer(self) -> Callable[[], None]:
        """What to run, on any thread, once the log is synced up to its present end."""
        end = self._end
        if self.lost is not None and _is_before(end, self.lost):
            return _no_write  # the file still says what must be fetched again
        self.lost = None
        return partial(self._file.write, end)

    def log_recovery(self, *, is_recovering: bool) -> None:
        """Log that the end of the log is lost, or that it was fetched again."""
        end, lost, directory = self._end, self.lost, self._log.log.directory
        if is_recovering and lost is not None:
            logger.error(
                "%s ends at offset %d in epoch %d, but was synced to offset %d in epoch %d: its end is lost. "
                "This node stands in no election, and votes only for logs that reach that far, until it has fetched "
                "the records from another controller. If no controller has them: 'Lost metadata' in docs/cluster.md",
                directory,
                end.offset,
                end.epoch,
                lost.offset,
                lost.epoch,
            )
        else:
            logger.warning(
                "%s is whole again: the lost records were fetched, it ends at offset %d in epoch %d",
                directory,
                end.offset,
                end.epoch,
            )

    def truncated(self) -> None:
        """Lower the recorded end after the log was cut for a leader: those records were never committed.

        Not while a writer runs. Until this is called the file says too much, which costs a node that restarts some
        fetches, but no record.
        """
        known = self._file.end
        if self.lost is None and known is not None and _is_before(self._end, known):
            self._file.write(self._end)


def _is_before(end: OffsetAndEpoch, other: OffsetAndEpoch) -> bool:
    """As votes compare logs: by epoch, then by offset."""
    return (end.epoch, end.offset) < (other.epoch, other.offset)


def _no_write() -> None: ...
