"""Requests under way: at most one to a peer at a time, a pause after a failure, and which answers still count.

A change of role forgets them all, so that no answer to an old question is taken for one to a new.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.base.ids import TimestampMs
from penstock.raft.config import RaftConfig
from penstock.raft.voters import Peer


@dataclass(slots=True)
class _Line:
    """The state of one peer."""

    peer: Peer
    request_id: int | None = None
    busy_until: TimestampMs = 0
    """While a request is under way, when it is given up; else the end of the pause."""


_IDLE = _Line(Peer(-1, ()))


class Ledger:
    def __init__(self, config: RaftConfig, first_id: int) -> None:
        self._config = config
        self._next_id = first_id
        self._lines: dict[int, _Line] = {}

    def is_ready(self, peer_id: int, now_ms: TimestampMs) -> bool:
        return self.ready_at(peer_id) <= now_ms

    def ready_at(self, peer_id: int) -> TimestampMs:
        line = self._lines.get(peer_id)
        return line.busy_until if line is not None else 0

    def is_pausing(self, peer_id: int, now_ms: TimestampMs) -> bool:
        line = self._lines.get(peer_id)
        return line is not None and line.request_id is None and line.busy_until > now_ms

    def any_ready_at(self, peer_ids: Iterable[int]) -> TimestampMs | None:
        """When one of them may be asked, if only one of them is to be asked at a time."""
        lines = [self._lines.get(peer_id, _IDLE) for peer_id in peer_ids]
        asked = [line.busy_until for line in lines if line.request_id is not None]
        return max(asked) if asked else min((line.busy_until for line in lines), default=None)

    def sent(self, peer: Peer, now_ms: TimestampMs) -> int:
        """The id for a request that goes out now."""
        request_id, self._next_id = self._next_id, (self._next_id + 1) % 2**31
        self._lines[peer.id] = _Line(peer, request_id, now_ms + self._config.request_timeout_ms)
        return request_id

    def answered(self, request_id: int) -> Peer | None:
        """Who answered; None if the answer is no longer waited for."""
        line = self._line_of(request_id)
        if line is None:
            return None
        line.request_id, line.busy_until = None, 0
        return line.peer

    def pause(self, peer_id: int, now_ms: TimestampMs) -> None:
        line = self._lines.get(peer_id)
        if line is not None and line.request_id is None:
            line.busy_until = now_ms + self._config.retry_backoff_ms

    def forget(self) -> None:
        self._lines.clear()

    def _line_of(self, request_id: int) -> _Line | None:
        return next((line for line in self._lines.values() if line.request_id == request_id), None)
