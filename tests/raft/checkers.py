"""The promises of Raft (figure 3 of the paper) as classes, fed with every change as it happens."""

from typing import NamedTuple

from tests.raft.memlog import MemoryLog, Record, Snapshot

from penstock.raft.election import NO_LEADER, ElectionState
from penstock.raft.log import OffsetAndEpoch


class Violation(AssertionError):
    """A promise of safety is broken."""


class NoProgress(Violation):
    """Nothing is wrong, and nothing goes on."""


class Rule:
    """One promise. The message of a violation begins with the promise's name."""

    def violation(self, text: str) -> Violation:
        return Violation(f"{type(self).__name__}: {text}")


def fingerprint(before: int, offset: int, record: Record) -> int:
    """Of a log up to and with a record, from the one before it; the same in every process."""
    text = f"{before}/{offset}/{record!r}"
    value = 0
    for byte in text.encode():
        value = (value * 1_000_003 + byte) & 0xFFFFFFFFFFFFFFFF
    return value


class OneLeaderAnEpoch(Rule):
    """Election Safety: at most one leader can be elected in a given epoch (5.2)."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}

    def on_leader(self, node_id: int, epoch: int) -> None:
        first = self.leaders.setdefault(epoch, node_id)
        if first != node_id:
            raise self.violation(f"epoch {epoch} has two leaders, {first} and {node_id}")


class _Seen(NamedTuple):
    record: Record
    epoch_before: int | None


class LogMatching(Rule):
    """Log Matching: the same offset and epoch mean the same record, and the same log before it (5.3)."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], _Seen] = {}

    def on_append(self, log: MemoryLog, offset: int) -> None:
        record = log.at(offset)
        before = log.at(offset - 1).epoch if offset > log.start_offset else log.epoch_before_start()
        known = self._seen.setdefault((offset, record.epoch), _Seen(record, before))
        if known.record != record or (
            None not in (known.epoch_before, before) and known.epoch_before != before
        ):
            raise self.violation(
                f"offset {offset} of epoch {record.epoch} is {known} and {record} after {before}"
            )


class CommittedStays(Rule):
    """State Machine Safety: no two nodes ever apply different records at one offset (5.4.3)."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.fingerprints: list[int] = [0]

    def on_commit(self, node_id: int, log: MemoryLog, start: int, end: int) -> None:
        for offset in range(start, end):
            record = log.at(offset)
            if offset < len(self.records):
                if self.records[offset] != record:
                    raise self.violation(
                        f"node {node_id} commits {record} at {offset}, where {self.records[offset]} was committed"
                    )
            else:
                assert offset == len(self.records)
                self.records.append(record)
                self.fingerprints.append(fingerprint(self.fingerprints[-1], offset, record))

    def on_snapshot(self, node_id: int, snapshot_id: OffsetAndEpoch, snapshot: Snapshot) -> None:
        if self.fingerprints[snapshot_id.offset] != snapshot.fingerprint:
            raise self.violation(f"node {node_id} loads a snapshot of another history at {snapshot_id}")


class LeaderCompleteness(Rule):
    """Leader Completeness: what is committed is in the log of every leader of a later epoch (5.4)."""

    def __init__(self, committed: CommittedStays) -> None:
        self._committed = committed

    def on_leader(self, node_id: int, log: MemoryLog) -> None:
        records = self._committed.records
        for offset in range(log.start_offset, len(records)):
            if offset >= log.end_offset or log.at(offset) != records[offset]:
                raise self.violation(f"leader {node_id} lacks {records[offset]}, committed at {offset}")


class HighWatermarkForward(Rule):
    """The high watermark of a node that stays up never goes back."""

    def __init__(self) -> None:
        self._last: dict[int, int] = {}

    def on_start(self, node_id: int) -> None:
        self._last.pop(node_id, None)

    def on_move(self, node_id: int, offset: int) -> None:
        if offset < self._last.get(node_id, 0):
            raise self.violation(
                f"high watermark of node {node_id} goes from {self._last[node_id]} back to {offset}"
            )
        self._last[node_id] = offset


class ReadsAreCurrent(Rule):
    """A ReadIndex that succeeds has everything that any node had committed when it was requested (thesis 6.4)."""

    def __init__(self, committed: CommittedStays) -> None:
        self._committed = committed
        self._begun: dict[int, int] = {}
        self.answered = 0

    def on_read(self, number: int) -> None:
        self._begun[number] = len(self._committed.records)

    def on_reply(self, node_id: int, number: int, high_watermark: int) -> None:
        self.answered += 1
        if high_watermark < self._begun[number]:
            raise self.violation(
                f"leader {node_id} reads {high_watermark} where {self._begun[number]} was committed before"
            )


class PromisesKept(Rule):
    """On disk the epoch never goes back, and within an epoch neither vote nor leader changes (5.1, 5.2)."""

    def __init__(self) -> None:
        self._last: dict[int, ElectionState] = {}

    def on_new_disk(self, node_id: int) -> None:
        self._last.pop(node_id, None)

    def on_persist(self, node_id: int, state: ElectionState) -> None:
        last, self._last[node_id] = self._last.get(node_id, ElectionState()), state
        if state.epoch < last.epoch:
            raise self.violation(f"node {node_id} goes from epoch {last.epoch} back to {state.epoch}")
        if state.epoch > last.epoch:
            return
        if last.leader_id not in (NO_LEADER, state.leader_id):
            raise self.violation(f"node {node_id} changes the leader of an epoch: {last} to {state}")
        if last.voted not in (None, state.voted) and state.leader_id != node_id:
            raise self.violation(f"node {node_id} takes back its vote: {last} to {state}")
