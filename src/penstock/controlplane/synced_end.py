"""`meta/metadata-synced`: how far the metadata log was on disk, kept apart from the log.

A voter acknowledges records when they are synced. If the end of its log is lost afterwards (a flipped bit that looks
like a torn write, a missing segment, a restored older copy), the log itself does not show it. This file does: `read`
at the start returns the former end of the log, and until the node has fetched that much again it must not lead, nor
vote for a shorter log (`raft.node.Node.is_recovering`).

The file has two slots of one disk sector each, written in turn, in place:

    f24c1b09 {"sequence":17,"endOffset":204,"epoch":21}\\n      padded with spaces to 512 bytes
    91e003aa {"sequence":16,"endOffset":201,"epoch":21}\\n

The slot with the higher sequence is valid. A power failure during a write damages only the slot being written, which
was not acknowledged yet; after a flipped bit in one slot, the other one is one sync older. Slots are written in place,
because syncing a file whose size and name do not change costs one disk write.

A directory without the file (new, or last used by Apache Kafka) is accepted as it is. An operator who accepts the loss
of records removes the file.
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
"""A disk sector, which is written atomically."""


class _Slot(msgspec.Struct, frozen=True, rename="camel"):
    sequence: int
    end_offset: Offset
    epoch: LeaderEpoch


class _Content(NamedTuple):
    newest: _Slot | None
    newest_index: int
    """Index of the newest slot: 0 or 1."""
    damaged: int
    """Number of slots that are neither empty nor valid."""


def _encode(slot: _Slot) -> bytes:
    body = msgspec.json.encode(slot)
    return (b"%08x %s\n" % (crc32c(body), body)).ljust(SLOT_BYTES)


def _decode(data: bytes) -> _Slot | None:
    check, _, body = data.rstrip(b" \n\0").partition(b" ")
    try:
        if int(check, 16) != crc32c(body):
            return None
        return msgspec.json.decode(body, type=_Slot)
    except ValueError:  # not a number, or not this structure
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
    """The file. One thread at a time may write it."""

    def __init__(self, vfs: Vfs, meta_path: str) -> None:
        self.path = join(meta_path, METADATA_SYNCED)
        self._vfs = vfs
        self._newest: _Slot | None = None
        self._index = 1

    @property
    def end(self) -> OffsetAndEpoch | None:
        """The end in the file; None before the first write."""
        slot = self._newest
        return None if slot is None else OffsetAndEpoch(slot.end_offset, slot.epoch)

    def read(self) -> OffsetAndEpoch | None:
        """The former end of the log; None if it is unknown."""
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
                "the synced end of the metadata log is unknown, and the log is accepted as it is"
                if content.newest is None
                else f"the metadata log was synced to offset {content.newest.end_offset} at least",
            )
        self._newest, self._index = content.newest, content.newest_index
        return self.end

    def write(self, end: OffsetAndEpoch) -> None:
        """Write an end, higher or lower than before; durable when this returns. Raises `StorageError` if that fails.
        May run on any thread."""
        if end == self.end:
            return
        sequence = 1 if self._newest is None else self._newest.sequence + 1
        slot, place = _Slot(sequence, end.offset, end.epoch), 1 - self._index
        try:
            if self._newest is None:
                replace_file(self._vfs, self.path, _encode(slot) + b" " * SLOT_BYTES)
                place = 0
            else:
                self._overwrite(place * SLOT_BYTES, _encode(slot))
        except OSError as error:
            raise StorageError(f"cannot write {self.path}: {error.strerror or error}") from error
        self._newest, self._index = slot, place

    def _overwrite(self, position: int, data: bytes) -> None:
        file = self._vfs.open(self.path, write=True)
        try:
            file.pwrite([data], position)
            file.sync()
        finally:
            file.close()


class SyncedEnd:
    """Keeps the file up to date: it is written after each sync of the log, before the sync is acknowledged."""

    def __init__(self, file: SyncedEndFile, log: MetadataLog) -> None:
        """`log` is open and completely synced."""
        self._file = file
        self._log = log
        self.lost: OffsetAndEpoch | None = None
        """The former end of the log, while the log ends before it; None otherwise."""
        known = file.end
        if known is not None and _is_before(self._end, known):
            self.lost = known
        elif self._end.offset > 0:
            file.write(self._end)

    @property
    def _end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self._log.end_offset, self._log.last_epoch)

    def writer(self) -> Callable[[], None]:
        """A function to run after the log is synced to its current end; may run on any thread."""
        end = self._end
        if self.lost is not None and _is_before(end, self.lost):
            return _no_write  # keep the end that must be fetched again
        self.lost = None
        return partial(self._file.write, end)

    def log_recovery(self, *, is_recovering: bool) -> None:
        """Log that the end of the log is lost, or that it was fetched again."""
        end, lost, directory = self._end, self.lost, self._log.log.directory
        if is_recovering and lost is not None:
            logger.error(
                "%s ends at offset %d in epoch %d, but was synced to offset %d in epoch %d: its end is lost. "
                "Until this node has fetched the records from another controller, it is no candidate and votes only "
                "for logs that have them. If no controller has them, see 'Lost metadata' in docs/cluster.md",
                directory,
                end.offset,
                end.epoch,
                lost.offset,
                lost.epoch,
            )
        else:
            logger.warning(
                "%s is complete again: the lost records were fetched, it ends at offset %d in epoch %d",
                directory,
                end.offset,
                end.epoch,
            )

    def truncated(self) -> None:
        """Lower the end after the log was truncated to match the leader: those records were never committed.

        Not while a writer runs. Until then the end is too high, which costs a restarted node some fetches, but no
        record.
        """
        known = self._file.end
        if self.lost is None and known is not None and _is_before(self._end, known):
            self._file.write(self._end)


def _is_before(end: OffsetAndEpoch, other: OffsetAndEpoch) -> bool:
    """As votes compare logs: by epoch, then by offset."""
    return (end.epoch, end.offset) < (other.epoch, other.offset)


def _no_write() -> None: ...
