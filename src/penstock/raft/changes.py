"""Changes of the voter set, one at a time (KIP-853).

A set is in force as soon as it is in the log. Two sets that differ by one voter always share a majority's member, so
one change is safe while the one before is committed; and it must have been committed in an epoch whose leader has
itself committed something, or two leaders could each change a set that the other does not know of. Hence the order of
the checks: a high watermark of our own epoch, nothing pending, nothing uncommitted, then the request itself.
"""

from typing import TYPE_CHECKING, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.ids import Offset, TimestampMs
from penstock.raft.messages import AddVoter, RemoveVoter, UpdateVoter, VoterChangeReply
from penstock.raft.ready import Voters
from penstock.raft.voters import Voter, VoterSet

if TYPE_CHECKING:
    from penstock.raft.leader import Leader


class _Refused(NamedTuple):
    error: ErrorCode
    message: str


class _Pending(NamedTuple):
    request_id: int
    offset: Offset
    deadline: TimestampMs


class VoterChanges:
    def __init__(self, leader: "Leader") -> None:
        self._leader = leader
        self._pending: _Pending | None = None

    @property
    def deadline(self) -> TimestampMs | None:
        return self._pending.deadline if self._pending is not None else None

    def handle(self, request: AddVoter | RemoveVoter | UpdateVoter, now_ms: TimestampMs) -> None:
        outcome = self._unsettled() or self._change(request, now_ms)
        if isinstance(outcome, _Refused):
            self._reply(request.request_id, outcome.error, outcome.message)
            return
        offset = self._leader.append(Voters(outcome), now_ms)
        if isinstance(request, UpdateVoter) or (
            isinstance(request, AddVoter) and not request.ack_when_committed
        ):
            # A voter that moved must fetch on for its own move to be committed, and asks one thing at a time.
            self._reply(request.request_id, ErrorCode.NONE)
        else:
            self._pending = _Pending(request.request_id, offset, now_ms + request.timeout_ms)

    def committed(self, high_watermark: Offset) -> None:
        if self._pending is not None and high_watermark > self._pending.offset:
            self._settle(ErrorCode.NONE)

    def expire(self, now_ms: TimestampMs) -> None:
        """The caller hears no more; the change itself may still be committed."""
        if self._pending is not None and now_ms >= self._pending.deadline:
            self._settle(ErrorCode.REQUEST_TIMED_OUT, "the change was not committed in time")

    def abandon(self) -> None:
        if self._pending is not None:
            self._settle(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "the leader stepped down before the change was committed"
            )

    def _unsettled(self) -> _Refused | None:
        entry = self._leader.node.tail.voters()
        if entry is None:
            return _Refused(ErrorCode.UNSUPPORTED_VERSION, "the voters are configured, not in the log")
        committed = self._leader.high_watermark
        if committed < 0:
            return _Refused(ErrorCode.REQUEST_TIMED_OUT, "the leader has committed nothing in its epoch yet")
        if self._pending is not None or entry.offset >= committed:
            return _Refused(
                ErrorCode.REQUEST_TIMED_OUT, "an earlier change of the voters is not committed yet"
            )
        return None

    def _change(
        self, request: AddVoter | RemoveVoter | UpdateVoter, now_ms: TimestampMs
    ) -> VoterSet | _Refused:
        voters = self._leader.node.voters
        if isinstance(request, AddVoter):
            return self._added(voters, request.voter, now_ms)
        key = request.voter if isinstance(request, RemoveVoter) else request.voter.key
        known = voters.by_id(key.id)
        if known is None or known.key != key:
            return _Refused(ErrorCode.VOTER_NOT_FOUND, f"{key} is not among the voters")
        if isinstance(request, UpdateVoter):
            return voters.without(key).with_voter(request.voter)
        if len(voters) == 1:
            return _Refused(ErrorCode.VOTER_NOT_FOUND, f"{key} is the last voter")
        return voters.without(key)

    def _added(self, voters: VoterSet, voter: Voter, now_ms: TimestampMs) -> VoterSet | _Refused:
        if voters.by_id(voter.key.id) is not None:
            return _Refused(ErrorCode.DUPLICATE_VOTER, f"{voter.key.id} is a voter already")
        if not self._leader.replicas.is_caught_up(voter.key, now_ms):
            return _Refused(ErrorCode.REQUEST_TIMED_OUT, f"{voter.key} has not caught up")
        return voters.with_voter(voter)

    def _settle(self, error: ErrorCode, message: str = "") -> None:
        if self._pending is not None:
            self._reply(self._pending.request_id, error, message)
            self._pending = None

    def _reply(self, request_id: int, error: ErrorCode, message: str = "") -> None:
        node = self._leader.node
        node.reply(VoterChangeReply(request_id, error, node.role.hint, message))
