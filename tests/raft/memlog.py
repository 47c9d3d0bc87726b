"""A log in memory that keeps, after a crash, what was flushed and perhaps some of the rest."""

from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from penstock.raft.log import OffsetAndEpoch, VotersEntry
from penstock.raft.ready import Append, Data, Entry, Fetched, SnapshotChunk, Voters
from penstock.raft.voters import VoterSet


class Record(NamedTuple):
    epoch: int
    value: Entry | object


class Snapshot(NamedTuple):
    """All that was committed below its offset, as one fingerprint, and the voters of then."""

    fingerprint: int
    voters: VoterSet | None
    data: bytes


@dataclass
class MemoryLog:
    """Implements `LogView`. Offset 0 may have a formatted voter set before it."""

    formatted: VoterSet | None = None
    start_offset: int = 0
    records: list[Record] = field(default_factory=list)
    snapshots: dict[OffsetAndEpoch, Snapshot] = field(default_factory=dict)
    arriving: dict[OffsetAndEpoch, bytes] = field(default_factory=dict)
    flushed: list[Record] = field(default_factory=list)
    """The records on disk, from `start_offset` too."""
    generation: int = 0
    """Of the log's history: a sync begun before a truncation says nothing about the log after it."""

    def __post_init__(self) -> None:
        self._voters: list[VotersEntry] = []
        self._reindex()

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.records)

    @property
    def last_epoch(self) -> int:
        if self.records:
            return self.records[-1].epoch
        latest = self.latest_snapshot()
        return latest.epoch if latest is not None else 0

    def at(self, offset: int) -> Record:
        return self.records[offset - self.start_offset]

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        for place in range(len(self.records) - 1, -1, -1):
            if self.records[place].epoch <= epoch:
                return OffsetAndEpoch(self.start_offset + place + 1, self.records[place].epoch)
        before = self.epoch_before_start()
        if before is not None and before <= epoch:
            return OffsetAndEpoch(self.start_offset, before)
        return OffsetAndEpoch(self.start_offset, epoch)

    def epoch_before_start(self) -> int | None:
        return next((each.epoch for each in self.snapshots if each.offset == self.start_offset), None)

    def earliest_snapshot(self) -> OffsetAndEpoch | None:
        return min(self.snapshots, default=None)

    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return max(self.snapshots, default=None)

    def snapshot_bytes(self, snapshot_id: OffsetAndEpoch) -> int | None:
        snapshot = self.snapshots.get(snapshot_id)
        return None if snapshot is None else len(snapshot.data)

    def voters_before(self, offset: int) -> VotersEntry | None:
        return next((entry for entry in reversed(self._voters) if entry.offset < offset), None)

    # What the driver does to it.

    def append(self, append: Append) -> None:
        assert append.base_offset == self.end_offset
        values = append.entry.records if isinstance(append.entry, Data) else (append.entry,)
        self._extend([Record(append.epoch, value) for value in values])

    def append_fetched(self, fetched: Fetched) -> None:
        assert fetched.base_offset == self.end_offset
        assert isinstance(fetched.records, tuple)
        self._extend(list(fetched.records))

    def _extend(self, records: list[Record]) -> None:
        for record in records:
            if isinstance(record.value, Voters):
                self._voters.append(VotersEntry(self.end_offset, record.value.voters))
            self.records.append(record)

    def truncate(self, offset: int) -> None:
        assert self.start_offset <= offset <= self.end_offset
        del self.records[offset - self.start_offset :]
        self.generation += 1
        self._reindex()

    def sync(self, end_offset: int) -> None:
        """Everything below end_offset reaches the disk; what the disk had beyond it and the log has not, goes."""
        count = end_offset - self.start_offset
        keeps_rest = self.flushed[:count] == self.records[:count] and len(self.flushed) > count
        if not keeps_rest or self.flushed[: len(self.records)] != self.records[: len(self.flushed)]:
            self.flushed = self.records[:count]

    def take_snapshot(self, offset: int, fingerprint: int) -> OffsetAndEpoch | None:
        """Write down what is committed below offset; synced at once, as its name is only then given."""
        if offset <= self.start_offset:
            return None
        snapshot_id = OffsetAndEpoch(offset, self.at(offset - 1).epoch)
        if snapshot_id in self.snapshots:
            return None
        entry = self.voters_before(offset)
        self.snapshots[snapshot_id] = make_snapshot(fingerprint, entry.voters if entry else None)
        return snapshot_id

    def delete_before_latest_snapshot(self) -> None:
        latest = self.latest_snapshot()
        if latest is None or latest.offset <= self.start_offset:
            return
        dropped = latest.offset - self.start_offset
        if self.flushed[:dropped] != self.records[:dropped]:
            return
        del self.records[:dropped], self.flushed[:dropped]
        self.start_offset = latest.offset
        self.snapshots = {latest: self.snapshots[latest]}
        self._reindex()

    def store_chunk(self, chunk: SnapshotChunk) -> None:
        known = self.arriving.get(chunk.snapshot_id, b"") if chunk.position else b""
        assert len(known) == chunk.position
        self.arriving = {chunk.snapshot_id: known + chunk.data}

    def load_snapshot(self, snapshot_id: OffsetAndEpoch) -> Snapshot:
        snapshot = parse_snapshot(self.arriving.pop(snapshot_id))
        self.snapshots = {snapshot_id: snapshot}
        self.start_offset = snapshot_id.offset
        self.records, self.flushed = [], []
        self.generation += 1
        self._reindex()
        return snapshot

    def crash(self, rng: Random) -> None:
        """A power cut: the flushed records stay, of the rest a part at most; a truncation may be undone."""
        same = 0
        for ours, theirs in zip(self.records, self.flushed, strict=False):
            if ours != theirs:
                break
            same += 1
        if same < len(self.flushed) and rng.random() < 0.5:
            self.records = list(self.flushed)
        else:
            del self.records[rng.randint(same, len(self.records)) :]
        self.flushed = list(self.records)
        self.arriving.clear()
        self.generation += 1
        self._reindex()

    def _reindex(self) -> None:
        self._voters = [] if self.formatted is None else [VotersEntry(-1, self.formatted)]
        for snapshot_id in sorted(self.snapshots):
            voters = self.snapshots[snapshot_id].voters
            if voters is not None and snapshot_id.offset <= self.start_offset:
                self._voters.append(VotersEntry(snapshot_id.offset - 1, voters))
        for place, record in enumerate(self.records):
            if isinstance(record.value, Voters):
                self._voters.append(VotersEntry(self.start_offset + place, record.value.voters))


_REGISTRY: dict[str, VoterSet | None] = {}
"""Voter sets by their text: a snapshot's bytes need not be decoded twice."""


def make_snapshot(fingerprint: int, voters: VoterSet | None) -> Snapshot:
    text = repr(voters)
    _REGISTRY[text] = voters
    return Snapshot(fingerprint, voters, f"{fingerprint}|{text}".encode())


def parse_snapshot(data: bytes) -> Snapshot:
    fingerprint, text = data.decode().split("|", 1)
    return Snapshot(int(fingerprint), _REGISTRY[text], data)
