"""The log as the core sees it, the leader's check of a fetch position, and the follower's truncation point.

The log belongs to the driver. The core reads it through `LogView` and requests writes through `Ready`. `LogTail` adds
the entries that a leader has decided to append and the driver has not written yet.
"""

from typing import NamedTuple, Protocol

from penstock.base.ids import LeaderEpoch, Offset
from penstock.raft.voters import VoterSet


class OffsetAndEpoch(NamedTuple):
    """An end offset and the epoch of the record before it. Also the name of a snapshot."""

    offset: Offset
    epoch: LeaderEpoch


class VotersEntry(NamedTuple):
    offset: Offset
    """Offset of the voters record; for a set from a snapshot, the snapshot's last offset. Below 0 for the set that the
    directory was formatted with: its first leader copies it into the log."""
    voters: VoterSet


class LogView(Protocol):
    """The log as the driver keeps it: what was written, flushed or not."""

    @property
    def start_offset(self) -> Offset: ...

    @property
    def end_offset(self) -> Offset: ...

    @property
    def last_epoch(self) -> LeaderEpoch:
        """Epoch of the last record, or of the latest snapshot if the log is empty, or 0."""

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> OffsetAndEpoch:
        """Return the largest epoch at or below the given one, and its end offset.

            epoch   1    3       4
            offset  0 .. 17 .... 52 ... 60     2 -> (17, 1)   4 -> (60, 4)   9 -> (60, 4)

        An epoch older than all that the log and its snapshot know: (start offset, that epoch).
        """

    def earliest_snapshot(self) -> OffsetAndEpoch | None: ...

    def latest_snapshot(self) -> OffsetAndEpoch | None: ...

    def snapshot_bytes(self, snapshot_id: OffsetAndEpoch) -> int | None:
        """Return the size of a complete snapshot; None if there is none with this id."""

    def voters_before(self, offset: Offset) -> VotersEntry | None:
        """Return the last voter set among the records below `offset`, or in the snapshot; None if there is none."""


class LogTail:
    """The log with the entries that a leader has decided to append and the driver has not written yet."""

    def __init__(self, log: LogView) -> None:
        self.log = log
        self._end: OffsetAndEpoch | None = None
        self._voters: VotersEntry | None = None

    def appended(self, count: int, epoch: LeaderEpoch, voters: VoterSet | None = None) -> None:
        if voters is not None:
            self._voters = VotersEntry(self.end_offset, voters)
        self._end = OffsetAndEpoch(self.end_offset + count, epoch)

    def written(self) -> None:
        """The driver took the entries, and writes them before its next call."""
        self._end = self._voters = None

    @property
    def end_offset(self) -> Offset:
        return self.log.end_offset if self._end is None else self._end.offset

    @property
    def end(self) -> OffsetAndEpoch:
        return self._end or OffsetAndEpoch(self.log.end_offset, self.log.last_epoch)

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> OffsetAndEpoch:
        if self._end is not None and epoch >= self._end.epoch:
            return self._end
        return self.log.end_offset_for_epoch(epoch)

    def voters(self) -> VotersEntry | None:
        return self._voters or self.log.voters_before(self.log.end_offset)


class Position(NamedTuple):
    """A leader's check of a fetch position; valid if both fields are None."""

    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None


def check_position(tail: LogTail, fetch_offset: Offset, last_fetched_epoch: LeaderEpoch) -> Position:
    """Check whether a follower's log is a prefix of ours (KIP-595), or ends before our log start (KIP-630)."""
    log = tail.log
    if log.start_offset == 0 and fetch_offset == 0:
        return Position()
    earliest = log.earliest_snapshot()
    if earliest is not None and (
        fetch_offset < log.start_offset
        or last_fetched_epoch < earliest.epoch
        or (fetch_offset == log.start_offset == earliest.offset and last_fetched_epoch != earliest.epoch)
    ):
        return Position(snapshot=log.latest_snapshot())
    end = tail.end_offset_for_epoch(last_fetched_epoch)
    if end.epoch != last_fetched_epoch or end.offset < fetch_offset:
        return Position(diverging=end)
    return Position()


def truncation_point(log: LogView, diverging: OffsetAndEpoch) -> Offset:
    """Return where a follower truncates its log, given the diverging epoch and its end on the leader.

    us      1 1 1 2 2 2        leader 1 1 1 1 3      to a fetch at (6, 2) it replies (4, 1)
            0 1 2 3 4 5               0 1 2 3 4      our epoch 1 ends at 3 -> truncate to 3
    """
    ours = log.end_offset_for_epoch(diverging.epoch)
    if ours.epoch == diverging.epoch:
        return min(ours.offset, diverging.offset)
    return min(ours.offset, log.end_offset)
