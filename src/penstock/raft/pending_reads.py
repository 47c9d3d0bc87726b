"""ReadIndex (Raft thesis 6.4): the committed end of the log, from a leader that has proved that it still leads.

A deposed leader does not know of its successor until a message of the later epoch arrives, and until then its high
watermark stands still. So a read waits until a majority of voters has acknowledged the leader's epoch, in replies to
BeginQuorumEpoch requests that were sent after the read arrived. If a later leader had been elected before the read,
one of those voters would have voted for it, and would have rejected the older epoch. The leader must also have
committed an entry of its own epoch: before that, its high watermark may be below its predecessor's.

    reads 1 and 2 --> BeginQuorumEpoch to each other voter --> replies of a majority confirm 1 and 2
    read 3        -----(while a request is in flight)-----> the next request to each voter confirms 3

At most one request to a voter is in flight, however many reads wait; without reads none is sent.
"""

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.ids import TimestampMs
from penstock.raft.messages import ReadIndex, ReadIndexReply
from penstock.raft.voters import ReplicaKey, Voter

if TYPE_CHECKING:
    from penstock.raft.leader import Leader

READ_INDEX_MS_MAX: Final = 800
"""After this time without a majority a read gets REQUEST_TIMED_OUT. Below the second that a broker waits for the reply
(`handlers/support/latest_metadata`), which closes its connection after that."""


class _Read(NamedTuple):
    request_id: int
    number: int
    deadline: TimestampMs


class _Sent(NamedTuple):
    to: ReplicaKey
    last_read: int
    """Number of the last read that arrived before the request was sent."""


class PendingReads:
    def __init__(self, leader: "Leader") -> None:
        self._leader = leader
        self._reads: deque[_Read] = deque()
        """In the order of their numbers, and so of their deadlines."""
        self._last_read = 0
        self._sent: dict[int, _Sent] = {}
        """The last BeginQuorumEpoch to each voter, by the voter's id."""
        self._acknowledged: dict[ReplicaKey, int] = {}
        """The last read that each voter has confirmed."""

    @property
    def deadline(self) -> TimestampMs | None:
        return self._reads[0].deadline if self._reads else None

    def add(self, request: ReadIndex, now_ms: TimestampMs) -> None:
        self._last_read += 1
        self._reads.append(_Read(request.request_id, self._last_read, now_ms + READ_INDEX_MS_MAX))

    def needs(self, voter: Voter) -> bool:
        """Whether reads wait for a BeginQuorumEpoch that has not been sent to this voter."""
        if not self._reads:
            return False
        sent = self._sent.get(voter.key.id)
        return sent is None or sent.to != voter.key or sent.last_read < self._last_read

    def sent(self, voter: Voter) -> None:
        """A BeginQuorumEpoch is sent to this voter, for whatever reason."""
        self._sent[voter.key.id] = _Sent(voter.key, self._last_read)

    def acknowledged(self, voter_id: int) -> None:
        """The voter has acknowledged the leader's epoch in its reply to the last BeginQuorumEpoch."""
        sent = self._sent.get(voter_id)
        if sent is not None:
            self._acknowledged[sent.to] = sent.last_read

    def failed(self, voter_id: int) -> None:
        """The last BeginQuorumEpoch to the voter was rejected, or will get no reply: it is sent again."""
        self._sent.pop(voter_id, None)

    def poll(self, now_ms: TimestampMs) -> None:
        """Reply to reads that are confirmed, and to those that have waited too long."""
        if not self._reads:
            return
        confirmed = self._confirmed() if self._leader.high_watermark >= 0 else 0
        while self._reads and self._reads[0].number <= confirmed:
            self._reply(self._reads.popleft(), ErrorCode.NONE)
        while self._reads and self._reads[0].deadline <= now_ms:
            self._reply(self._reads.popleft(), ErrorCode.REQUEST_TIMED_OUT)

    def abandon(self) -> None:
        while self._reads:
            self._reply(self._reads.popleft(), ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _confirmed(self) -> int:
        """The last read that a majority has confirmed, this node included if it is a voter."""
        local = self._leader.node.key
        return self._leader.node.voters.reached_by_majority(
            lambda voter: self._last_read if voter.key.covers(local) else self._acknowledged.get(voter.key, 0)
        )

    def _reply(self, read: _Read, error: ErrorCode) -> None:
        end = self._leader.high_watermark if error is ErrorCode.NONE else -1
        self._leader.node.reply(ReadIndexReply(read.request_id, error, self._leader.node.role.hint, end))
