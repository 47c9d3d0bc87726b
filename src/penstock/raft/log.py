"""What the core asks of the log, and the two questions of replication: does this position fit, and where to cut.

The log belongs to the driver. The core reads it through `LogView` and says, in `Ready`, what to write. Between
the moment a leader decides on an entry and the moment the driver has written it, `LogTail` answers for both.
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
    """Of the voters record; for a set that came with a snapshot, the snapshot's last offset. Below 0 for the set that
    the directory was formatted with: its first leader copies it into the log."""
    voters: VoterSet


class LogView(Protocol):
    """The log as the driver keeps it: what was written, flushed or not."""

    @property
    def start_offset(self) -> Offset: ...

    @property
    def end_offset(self) -> Offset: ...

    @property
    def last_epoch(self) -> LeaderEpoch:
        """Of the last record; of the latest snapshot where the log is empty; else 0."""

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> OffsetAndEpoch:
        """The largest epoch at or below the one asked for, and where it ends.

            epoch   1    3       4
            offset  0 .. 17 .... 52 ... 60     2 -> (17, 1)   4 -> (60, 4)   9 -> (60, 4)

        An epoch older than all that the log and its snapshot know: (start offset, that epoch).
        """

    def earliest_snapshot(self) -> OffsetAndEpoch | None: ...

    def latest_snapshot(self) -> OffsetAndEpoch | None: ...

    def snapshot_bytes(self, snapshot_id: OffsetAndEpoch) -> int | None:
        """The size of a finished snapshot; None where there is none of that name."""

    def voters_before(self, offset: Offset) -> VotersEntry | None:
        """The last voter set among the records below offset, or else in the snapshot; None if there is none."""


class LogTail:
    """The log with what a leader has decided to append and the driver has yet to write."""

    def __init__(self, log: LogView) -> None:
        self.log = log
        self._end: OffsetAndEpoch | None = None
        self._voters: VotersEntry | None = None

    def appended(self, count: int, epoch: LeaderEpoch, voters: VoterSet | None = None) -> None:
        if voters is not None:
            self._voters = VotersEntry(self.end_offset, voters)
        self._end = OffsetAndEpoch(self.end_offset + count, epoch)

    def written(self) -> None:
        """The driver took the entries and writes them before it asks again."""
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
    """A leader's verdict on a fetch: fits where both are None."""

    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None


def check_position(tail: LogTail, fetch_offset: Offset, last_fetched_epoch: LeaderEpoch) -> Position:
    """Whether a follower's log is a prefix of ours (KIP-595), or lies before what we still hold (KIP-630)."""
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
    """Where a follower cuts its log when the leader says that its own epoch ended at that offset.

    us      1 1 1 2 2 2        leader 1 1 1 1 3      asked about (6, 2), it answers (4, 1)
            0 1 2 3 4 5               0 1 2 3 4      our epoch 1 ends at 3 -> cut at 3
    """
    ours = log.end_offset_for_epoch(diverging.epoch)
    if ours.epoch == diverging.epoch:
        return min(ours.offset, diverging.offset)
    return min(ours.offset, log.end_offset)
