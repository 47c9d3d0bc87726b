"""Snapshots of the metadata log, in Kafka's files: the image at one offset, as records.

    00000000000000000512-0000000003.checkpoint       covers offsets below 512; the last one has epoch 3
    00000000000000000512-0000000003.checkpoint.part  being written or fetched, removed after a crash
    00000000000000000000-0000000000.checkpoint       written by formatting: the first voters

    control batch   header (timestamp of the last record); kraft.version and voters if the log has them
    data batches    the records that build the image, with offsets from 0
    control batch   footer: a file without it is incomplete

A file gets its name when it is complete and synced. A snapshot with a missing footer or a wrong CRC is rejected as a
whole: `BadSnapshot` names the fault, and an older snapshot is used.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from penstock.base.errors import KafkaError
from penstock.base.ids import LeaderEpoch, TimestampMs
from penstock.controlplane.quorum_records import (
    control_batch,
    control_messages,
    records_in,
    voters_of,
    voters_record,
)
from penstock.metadata import control_records as control
from penstock.metadata.records import AnyRecord, encode
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.ready import SnapshotChunk
from penstock.raft.voters import VoterSet
from penstock.records import BatchBuilder, ControlType, RecordBatch
from penstock.storage.errors import StorageError
from penstock.storage.scan import scan_batches
from penstock.vfs import File, Vfs, join

SUFFIX = ".checkpoint"
PART = ".part"
DELETED = ".deleted"
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint(\.part|\.deleted)?")

FORMATTED = OffsetAndEpoch(0, 0)
"""The snapshot that formatting writes: the first voters, without an image."""

BATCH_BYTES = 1 << 20
"""A batch of a snapshot is finished at this size; Kafka accepts up to 8 MB."""


class BadSnapshot(StorageError):
    """A snapshot that is damaged or incomplete."""


def snapshot_name(snapshot_id: OffsetAndEpoch) -> str:
    return f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}{SUFFIX}"


class SnapshotReader:
    """Reads a snapshot file once. The fields of the header are set after the first batch."""

    def __init__(self, vfs: Vfs, path: str) -> None:
        self._vfs = vfs
        self.path = path
        self.timestamp: TimestampMs = 0
        """Of the last record that the snapshot covers."""
        self.kraft_version = 0
        self.voters: VoterSet | None = None

    def records(self) -> Iterator[AnyRecord]:
        """The image's records. Raises `BadSnapshot` if the file is damaged or has no footer."""
        for batch in self._batches():
            if not batch.is_control:
                yield from records_in(batch)

    def skim(self) -> None:
        """Read the header, and check the file without decoding its records."""
        for _ in self._batches():
            pass

    def head(self) -> None:
        """Read only the header."""
        next(self._batches(), None)

    def _batches(self) -> Iterator[RecordBatch]:
        kind = ControlType.UNKNOWN
        try:
            file = self._vfs.open(self.path)
            try:
                for position, batch in scan_batches(file, 0, file.size()):
                    batch.check_crc()
                    if kind is ControlType.SNAPSHOT_FOOTER:
                        raise BadSnapshot(f"{self.path} has data at position {position}, after its footer")
                    if batch.is_control:
                        kind = self._take_control(batch, is_first=position == 0)
                    elif position == 0:
                        raise BadSnapshot(f"{self.path} starts with data, expected a header")
                    yield batch
            finally:
                file.close()
        except OSError as error:
            raise BadSnapshot(f"cannot read {self.path}: {error.strerror or error}") from error
        except BadSnapshot:
            raise
        except KafkaError as error:
            raise BadSnapshot(f"{self.path}: {error}") from error
        if kind is not ControlType.SNAPSHOT_FOOTER:
            raise BadSnapshot(f"{self.path} has no footer: it is incomplete or truncated")

    def _take_control(self, batch: RecordBatch, *, is_first: bool) -> ControlType:
        last = ControlType.UNKNOWN
        for place, (_, kind, message) in enumerate(control_messages(batch)):
            if is_first and not place and kind is not ControlType.SNAPSHOT_HEADER:
                raise BadSnapshot(f"{self.path} starts with a {kind.name} record, expected a header")
            if isinstance(message, control.SnapshotHeaderRecord):
                self.timestamp = message.last_contained_log_timestamp
            elif isinstance(message, control.KRaftVersionRecord):
                self.kraft_version = message.kraft_version
            elif isinstance(message, control.VotersRecord):
                self.voters = voters_of(message)
            last = kind
        return last


def encode_snapshot(
    records: Iterable[AnyRecord],
    epoch: LeaderEpoch,
    *,
    timestamp: TimestampMs,
    now_ms: TimestampMs,
    kraft_version: int,
    voters: VoterSet | None,
) -> Iterator[bytes]:
    """Generate the batches of a snapshot."""
    header: list[control.ControlMessage] = [
        control.SnapshotHeaderRecord(last_contained_log_timestamp=timestamp)
    ]
    if kraft_version > 0:
        header.append(control.KRaftVersionRecord(kraft_version=kraft_version))
        if voters is not None:
            header.append(voters_record(voters))
    yield control_batch(header, 0, epoch, now_ms)
    builder = BatchBuilder(len(header), leader_epoch=epoch)
    for record in records:
        builder.append(None, encode(record), now_ms)
        if builder.records_bytes >= BATCH_BYTES:
            yield builder.build()
            builder = BatchBuilder(builder.next_offset, leader_epoch=epoch)
    if len(builder):
        yield builder.build()
    yield control_batch([control.SnapshotFooterRecord()], builder.next_offset, epoch, now_ms)


class SnapshotFiles:
    """The complete snapshots of a directory, without those known to be damaged."""

    def __init__(self, vfs: Vfs, directory: str) -> None:
        self._vfs = vfs
        self._directory = directory
        self._sizes: dict[OffsetAndEpoch, int] = {}
        self._timestamps: dict[OffsetAndEpoch, TimestampMs] = {}

    def __len__(self) -> int:
        return len(self._sizes)

    def ids(self) -> list[OffsetAndEpoch]:
        return sorted(self._sizes)

    def size(self, snapshot_id: OffsetAndEpoch) -> int | None:
        return self._sizes.get(snapshot_id)

    @property
    def size_bytes(self) -> int:
        return sum(self._sizes.values())

    @property
    def earliest(self) -> OffsetAndEpoch | None:
        return min(self._sizes, default=None)

    @property
    def latest(self) -> OffsetAndEpoch | None:
        return max(self._sizes, default=None)

    def path_of(self, snapshot_id: OffsetAndEpoch) -> str:
        return join(self._directory, snapshot_name(snapshot_id))

    def scan(self) -> None:
        """List the snapshots, and remove incomplete and deleted files."""
        self._sizes = {}
        for entry in self._vfs.list_dir(self._directory):
            found = _NAME.fullmatch(entry.name)
            if found is None:
                continue
            if found[3]:
                self._vfs.remove(join(self._directory, entry.name))
            else:
                self._sizes[_id_of(found)] = entry.size

    def reader(self, snapshot_id: OffsetAndEpoch) -> SnapshotReader:
        return SnapshotReader(self._vfs, self.path_of(snapshot_id))

    def timestamp(self, snapshot_id: OffsetAndEpoch) -> TimestampMs:
        """Of the last record that a snapshot covers."""
        if snapshot_id not in self._timestamps:
            reader = self.reader(snapshot_id)
            reader.head()
            self._timestamps[snapshot_id] = reader.timestamp
        return self._timestamps[snapshot_id]

    def read(self, snapshot_id: OffsetAndEpoch, position: int, length: int) -> bytes:
        file = self._vfs.open(self.path_of(snapshot_id))
        try:
            return file.pread(length, position)
        finally:
            file.close()

    # Writing and fetching.

    def write(self, snapshot_id: OffsetAndEpoch, batches: Iterable[bytes], *, sync_names: bool = True) -> int:
        """Write a snapshot file; return its size. May run on any thread; call `added` afterwards, on the loop."""
        path = self.path_of(snapshot_id)
        file = self._vfs.open(path + PART, write=True, create=True)
        try:
            file.truncate(0)
            size = 0
            for batch in batches:
                file.pwrite([batch], size)
                size += len(batch)
            file.sync()
        except OSError:
            with suppress(OSError):  # free the space; otherwise the next start removes the file
                self._vfs.remove(path + PART)
            raise
        finally:
            file.close()
        self._vfs.rename(path + PART, path)
        if sync_names:
            self._vfs.sync_dir(self._directory)
        return size

    def added(self, snapshot_id: OffsetAndEpoch, size: int) -> None:
        self._sizes[snapshot_id] = size

    def receive(self, chunk: SnapshotChunk) -> None:
        """Write a chunk of a snapshot that is being fetched."""
        self._with_part(chunk.snapshot_id, lambda file: self._put(file, chunk), create=True)

    def _put(self, file: File, chunk: SnapshotChunk) -> None:
        file.truncate(chunk.position)
        file.pwrite([chunk.data], chunk.position)

    def received(self, snapshot_id: OffsetAndEpoch) -> None:
        """All chunks are written: check the file, sync it and rename it."""
        path = self.path_of(snapshot_id)
        SnapshotReader(self._vfs, path + PART).skim()
        self._with_part(snapshot_id, lambda file: file.sync())
        self._vfs.rename(path + PART, path)
        self._vfs.sync_dir(self._directory)
        stat = self._vfs.stat(path)
        self.added(snapshot_id, stat.size if stat is not None else 0)

    def _with_part(
        self, snapshot_id: OffsetAndEpoch, use: Callable[[File], None], *, create: bool = False
    ) -> None:
        file = self._vfs.open(self.path_of(snapshot_id) + PART, write=True, create=create)
        try:
            use(file)
        finally:
            file.close()

    # Removal.

    def disown(self, snapshot_id: OffsetAndEpoch) -> None:
        """Drop a snapshot from the list, and keep its file for inspection."""
        self._sizes.pop(snapshot_id, None)
        self._timestamps.pop(snapshot_id, None)

    def disown_before(self, snapshot_id: OffsetAndEpoch) -> None:
        for older in [each for each in self._sizes if each < snapshot_id]:
            self.disown(older)

    def remove_before(self, snapshot_id: OffsetAndEpoch) -> None:
        """Remove the files of all older snapshots, damaged ones too. May run on any thread, after `disown_before`."""
        for entry in self._vfs.list_dir(self._directory):
            found = _NAME.fullmatch(entry.name)
            if found is not None and not found[3] and _id_of(found) < snapshot_id:
                with suppress(FileNotFoundError):
                    self._vfs.remove(join(self._directory, entry.name))


def _id_of(found: re.Match[str]) -> OffsetAndEpoch:
    return OffsetAndEpoch(int(found[1]), int(found[2]))
