"""Changes of the voter set, one at a time (KIP-853).

A set takes effect as soon as it is in the log. Majorities of two sets that differ by one voter always overlap, so one
change is safe once the previous one is committed. The leader must also have committed an entry of its own epoch, or
two leaders could each change a set that the other does not know of. Hence the order of the checks: a high watermark of
our own epoch, nothing pending, nothing uncommitted, then the request itself.

The leader first asks a new voter for its supported versions of `kraft.version`, which also shows that it is reachable
at its endpoint. A new voter must have caught up, or the new majority would wait for it. A leader that has other
endpoints than the set says, after a restart with new settings, changes the set itself.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.ids import Offset, TimestampMs
from penstock.raft.messages import (
    NOT_SENT,
    AddVoter,
    AskVersions,
    RemoveVoter,
    UpdateVoter,
    VersionsReply,
    VoterChangeReply,
)
from penstock.raft.ready import Voters
from penstock.raft.voters import Peer, Voter, VoterSet

if TYPE_CHECKING:
    from penstock.raft.leader import Leader

KRAFT_VERSION: Final = 1
"""The `kraft.version` of every quorum whose voters are in its log."""


class _Refused(NamedTuple):
    error: ErrorCode
    message: str


class _Pending(NamedTuple):
    request: AddVoter | RemoveVoter
    deadline: TimestampMs
    offset: Offset | None = None
    """Offset of the new set; None while the leader waits for the new voter's versions."""
    is_asked: bool = False


class VoterChanges:
    def __init__(self, leader: "Leader") -> None:
        self._leader = leader
        self._pending: _Pending | None = None

    @property
    def deadline(self) -> TimestampMs | None:
        pending = self._pending
        if pending is None:
            return None
        if isinstance(pending.request, AddVoter) and not pending.is_asked:
            return min(pending.deadline, self._leader.node.requests.ready_at(pending.request.voter.key.id))
        return pending.deadline

    def handle(self, request: AddVoter | RemoveVoter | UpdateVoter, now_ms: TimestampMs) -> None:
        outcome = self._unsettled() or self._change(request, now_ms)
        if isinstance(outcome, _Refused):
            self._reply(request.request_id, outcome.error, outcome.message)
        elif isinstance(request, AddVoter):
            self._pending = _Pending(request, now_ms + request.timeout_ms)
            self._ask(now_ms)
        else:
            offset = self._leader.append(Voters(outcome), now_ms)
            if isinstance(request, UpdateVoter):
                # The voter must fetch again before its change can be committed, and has one open request at a time.
                self._reply(request.request_id, ErrorCode.NONE)
            else:
                self._pending = _Pending(request, now_ms + request.timeout_ms, offset)

    def poll(self, now_ms: TimestampMs) -> None:
        """Answer a request that waited too long; its change may still be committed."""
        if self._pending is not None and now_ms >= self._pending.deadline:
            self._settle(ErrorCode.REQUEST_TIMED_OUT, "the change was not committed in time; it may still be")
        self._ask(now_ms)
        self._correct_own(now_ms)

    def _correct_own(self, now_ms: TimestampMs) -> None:
        """Write the leader's own endpoints if the voter set has outdated ones. Followers send UpdateVoter instead."""
        node = self._leader.node
        known = node.voters.find(node.key)
        if known is None or not node.local.endpoints or known == node.local or self._unsettled() is not None:
            return
        self._leader.append(Voters(node.voters.without(node.key).with_voter(node.local)), now_ms)

    def _ask(self, now_ms: TimestampMs) -> None:
        """Ask the new voter for its versions, once no request to a replica of its id is in flight."""
        pending, node = self._pending, self._leader.node
        if pending is None or pending.is_asked or not isinstance(pending.request, AddVoter):
            return
        voter = pending.request.voter
        if node.requests.is_ready(voter.key.id, now_ms):
            self._pending = pending._replace(is_asked=True)
            node.request(Peer(voter.key.id, voter.endpoints), AskVersions(NOT_SENT), now_ms)

    def on_versions(self, peer_id: int, reply: VersionsReply, now_ms: TimestampMs) -> None:
        """The new voter has replied with its supported versions."""
        request = self._asking(peer_id)
        if request is None:
            return
        voter = request.voter
        if reply.error is not ErrorCode.NONE:
            self._settle(ErrorCode.REQUEST_TIMED_OUT, f"{voter.key} responded with {reply.error.name}")
        elif reply.kraft_versions is None or not _understands(reply.kraft_versions):
            found = "none" if reply.kraft_versions is None else "{} to {}".format(*reply.kraft_versions)
            self._settle(
                ErrorCode.INVALID_REQUEST,
                f"{voter.key} supports kraft.version {found}, expected a range with {KRAFT_VERSION}",
            )
        else:
            self._add(request, voter._replace(kraft_versions=reply.kraft_versions), now_ms)

    def unanswered(self, peer_id: int) -> None:
        request = self._asking(peer_id)
        if request is not None:
            where = request.voter.endpoints[0]
            self._settle(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{request.voter.key} does not respond at {where.host}:{where.port}",
            )

    def committed(self, high_watermark: Offset) -> None:
        pending = self._pending
        if pending is not None and pending.offset is not None and high_watermark > pending.offset:
            self._settle(ErrorCode.NONE)

    def abandon(self) -> None:
        if self._pending is not None:
            self._settle(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "the leader stepped down before the change was committed"
            )

    def _asking(self, peer_id: int) -> AddVoter | None:
        """The AddVoter request that waits for this peer's versions."""
        pending = self._pending
        if pending is None or not isinstance(pending.request, AddVoter):
            return None
        if not pending.is_asked or pending.offset is not None:
            return None
        return pending.request if pending.request.voter.key.id == peer_id else None

    def _unsettled(self) -> _Refused | None:
        entry = self._leader.node.tail.voters()
        if entry is None:
            return _Refused(
                ErrorCode.UNSUPPORTED_VERSION,
                "the voters are configured statically (controller.quorum.voters), and cannot change",
            )
        committed = self._leader.high_watermark
        if committed < 0:
            return _Refused(
                ErrorCode.REQUEST_TIMED_OUT, "the leader has not committed an entry of its epoch yet; retry"
            )
        if self._pending is not None or entry.offset >= committed:
            return _Refused(
                ErrorCode.REQUEST_TIMED_OUT, "an earlier change of the voters is not committed yet; retry"
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
            return _Refused(ErrorCode.VOTER_NOT_FOUND, f"{key} is not a voter")
        if isinstance(request, UpdateVoter):
            if not _understands(request.voter.kraft_versions):
                return _Refused(
                    ErrorCode.INVALID_REQUEST, f"{key} does not support kraft.version {KRAFT_VERSION}"
                )
            return voters.without(key).with_voter(request.voter)
        if len(voters) == 1:
            return _Refused(ErrorCode.VOTER_NOT_FOUND, f"{key} is the last voter")
        return voters.without(key)

    def _added(self, voters: VoterSet, voter: Voter, now_ms: TimestampMs) -> VoterSet | _Refused:
        if voters.by_id(voter.key.id) is not None:
            return _Refused(ErrorCode.DUPLICATE_VOTER, f"replica {voter.key.id} is already a voter")
        listener = next((each.listener for each in self._leader.node.local.endpoints), None)
        if not any(listener in (None, each.listener) for each in voter.endpoints):
            return _Refused(ErrorCode.INVALID_REQUEST, f"{voter.key} has no endpoint for listener {listener}")
        if not self._leader.replicas.is_caught_up(voter.key, now_ms):
            return _Refused(ErrorCode.REQUEST_TIMED_OUT, f"{voter.key} has not caught up with the log; retry")
        return voters.with_voter(voter)

    def _add(self, request: AddVoter, voter: Voter, now_ms: TimestampMs) -> None:
        """Add the voter, unless it has fallen behind since. No other change can have come between."""
        assert self._pending is not None
        outcome = self._added(self._leader.node.voters, voter, now_ms)
        if isinstance(outcome, _Refused):
            self._settle(outcome.error, outcome.message)
            return
        self._pending = self._pending._replace(offset=self._leader.append(Voters(outcome), now_ms))
        if not request.ack_when_committed:
            self._settle(ErrorCode.NONE)

    def _settle(self, error: ErrorCode, message: str = "") -> None:
        if self._pending is not None:
            pending, self._pending = self._pending, None
            self._reply(pending.request.request_id, error, message)

    def _reply(self, request_id: int, error: ErrorCode, message: str = "") -> None:
        node = self._leader.node
        node.reply(VoterChangeReply(request_id, error, node.role.hint, message))


def _understands(kraft_versions: tuple[int, int]) -> bool:
    low, high = kraft_versions
    return low <= KRAFT_VERSION <= high
