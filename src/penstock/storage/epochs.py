"""Leader epochs of a partition: the first offset of each.

    epoch   0      3          4
    offset  0 .... 17 ....... 52 ... log end

For epoch 3 a follower gets end offset 52, and truncates its records of epoch 3 from there on (KIP-101). The checkpoint
file is Kafka's: a version line `0`, a count, then `epoch offset` lines.
"""

from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import NamedTuple

from penstock.base.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset
from penstock.storage.errors import BadCheckpoint


class EpochStart(NamedTuple):
    epoch: LeaderEpoch
    offset: Offset


class LeaderEpochs:
    """Sorted by epoch, and so by offset: both strictly increase."""

    def __init__(self, entries: list[EpochStart] | None = None) -> None:
        self.entries: list[EpochStart] = entries or []
        self.latest: LeaderEpoch = self.entries[-1].epoch if self.entries else NO_LEADER_EPOCH
        """A field, because it is read for every batch."""

    def assign(self, epoch: LeaderEpoch, offset: Offset) -> bool:
        """Start an epoch at an offset; True if that is new.

        Entries that contradict it (a later epoch, or an equal or later start) are superseded.
        """
        if self.entries and epoch == self.entries[-1].epoch:
            return False
        while self.entries and (self.entries[-1].epoch >= epoch or self.entries[-1].offset >= offset):
            self.entries.pop()
        self.entries.append(EpochStart(epoch, offset))
        self.latest = epoch
        return True

    def end_of(self, epoch: LeaderEpoch, log_end: Offset) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch at or below the given one, and its end offset.

        (-1, -1) if there is none, as in OffsetForLeaderEpoch.
        """
        if epoch == NO_LEADER_EPOCH or not self.entries or epoch > self.latest:
            return NO_LEADER_EPOCH, -1
        after = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch)
        if after == 0:
            # Older than all known epochs: it ended where the first known one began.
            return epoch, self.entries[0].offset
        end = self.entries[after].offset if after < len(self.entries) else log_end
        return self.entries[after - 1].epoch, end

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        after = bisect_right(self.entries, offset, key=lambda entry: entry.offset)
        return self.entries[after - 1].epoch if after else NO_LEADER_EPOCH

    def truncate_end(self, offset: Offset) -> bool:
        """Drop epochs that began at or after offset."""
        keep = bisect_left(self.entries, offset, key=lambda entry: entry.offset)
        changed = keep < len(self.entries)
        del self.entries[keep:]
        self.latest = self.entries[-1].epoch if self.entries else NO_LEADER_EPOCH
        return changed

    def truncate_start(self, offset: Offset) -> bool:
        """Drop epochs that ended at or before offset; the epoch of offset now begins there."""
        covering = bisect_right(self.entries, offset, key=lambda entry: entry.offset) - 1
        if covering < 0 or (covering == 0 and self.entries[0].offset == offset):
            return False
        self.entries[: covering + 1] = [EpochStart(self.entries[covering].epoch, offset)]
        return True

    def encode(self) -> bytes:
        lines = [f"{epoch} {offset}\n" for epoch, offset in self.entries]
        return f"0\n{len(lines)}\n{''.join(lines)}".encode()

    @classmethod
    def decode(cls, data: bytes, path: str) -> "LeaderEpochs":
        rows = parse_checkpoint(data, path, columns=2)
        entries = [EpochStart(int(epoch), int(offset)) for epoch, offset in rows]
        for before, after in pairwise(entries):
            if after.epoch <= before.epoch or after.offset < before.offset:
                raise BadCheckpoint(
                    f"{path}: epoch {after.epoch} at {after.offset} follows {before}: out of order"
                )
        return cls(entries)


def parse_checkpoint(data: bytes, path: str, columns: int) -> list[list[str]]:
    """The rows of a Kafka checkpoint file: a version line, a count line, then that many rows.

    An empty file has no rows: Kafka creates it early. Every line ends with a newline, so a truncated file is detected
    even if only part of a number is lost.
    """
    if not data:
        return []
    if not data.endswith(b"\n"):
        raise BadCheckpoint(f"{path}: the last line has no newline")
    try:
        lines = data.decode("utf-8").removesuffix("\n").split("\n")
        version, count = int(lines[0]), int(lines[1])
        rows = [line.split(" ") for line in lines[2:]]
        [[int(number) for number in row[-2:]] for row in rows]
    except (UnicodeDecodeError, ValueError, IndexError) as error:
        raise BadCheckpoint(f"{path}: not a checkpoint file: {error}") from error
    if version != 0:
        raise BadCheckpoint(f"{path}: version {version}, expected 0")
    if count != len(rows):
        raise BadCheckpoint(f"{path}: {len(rows)} rows, expected {count}")
    for row in rows:
        if len(row) != columns:
            raise BadCheckpoint(f"{path}: row {' '.join(row)!r} has {len(row)} columns, expected {columns}")
    return rows
